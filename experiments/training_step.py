"""One step of training, and the same step captured as a CUDA graph.

At batches of 250 small images a GPU waits for Python. As a captured graph, a whole step (choice of
images, augmentation, forward, backward, Adam) is one launch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, pad

from experiments.images import Images
from experiments.recipes import Recipe

PADDING = 4
WARM_UP = 3  # steps before a capture: cuDNN and Adam set up what they need


def plan_epoch(count: int, recipe: Recipe, generator: torch.Generator) -> Tensor:
    """Draw for each step (4, batch): images, shifts down and right, and flips.

    Drawn on the CPU, so that a seed gives the same order and crops on every device.
    """
    steps = count // recipe.batch
    order = torch.randperm(count, generator=generator)[: steps * recipe.batch]
    plan = torch.stack([order, *(torch.full_like(order, PADDING),) * 2, torch.zeros_like(order)])
    if recipe.augment:
        plan[1:3] = torch.randint(0, 2 * PADDING + 1, (2, len(order)), generator=generator)
        plan[3] = torch.randint(0, 2, (len(order),), generator=generator)
    return plan.reshape(4, steps, recipe.batch).transpose(0, 1).contiguous()


def augmented(padded: Tensor, plan: Tensor) -> Tensor:
    """Return the planned crops of padded images, in [0, 1]."""
    which, down, right, flip = plan
    size = padded.shape[2] - 2 * PADDING
    along = torch.arange(size, device=padded.device)
    rows = along + down[:, None]
    columns = torch.where(flip[:, None] > 0, size - 1 - along, along) + right[:, None]
    crops = padded[which[:, None, None], :, rows[:, :, None], columns[:, None, :]]
    return crops.permute(0, 3, 1, 2).float() / 255


@dataclass
class Step:
    """Everything one step of training needs, held in place so that it can be captured."""

    net: nn.Module
    images: Images
    recipe: Recipe
    mean: Tensor
    std: Tensor
    compiled: bool = False
    plan: Tensor = field(init=False)
    rate: Tensor = field(init=False)
    total: Tensor = field(init=False)
    optimizer: torch.optim.Adam = field(init=False)

    def __post_init__(self) -> None:
        device = self.images.labels.device
        self.plan = torch.zeros(4, self.recipe.batch, dtype=torch.long, device=device)
        self.rate = torch.tensor(self.recipe.rate, device=device)
        self.total = torch.zeros((), device=device)
        self.padded = pad(self.images.pixels, (PADDING,) * 4)
        # fuses norms and activations; compiling takes minutes, so use it for long runs only
        self.forward = torch.compile(self.net, dynamic=False) if self.compiled else self.net
        on_gpu = device.type == "cuda"
        self.optimizer = torch.optim.Adam(
            self.net.parameters(), lr=self.rate, weight_decay=self.recipe.weight_decay,
            capturable=on_gpu, fused=True, decoupled_weight_decay=self.recipe.decoupled,
        )  # fmt: skip

    def run(self) -> None:
        """Update the weights once, with the images of `plan` and the step size `rate`."""
        x = (augmented(self.padded, self.plan) - self.mean) / self.std
        x = x.contiguous(memory_format=torch.channels_last)
        labels = self.images.labels[self.plan[0]]
        with torch.autocast(x.device.type, torch.bfloat16, enabled=x.is_cuda, cache_enabled=False):
            logits = self.forward(x)
        loss = cross_entropy(logits.float(), labels)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        self.total += loss.detach()

    def state(self) -> dict[str, Tensor]:
        """Return the tensors of the weights and of Adam's state, by name."""
        found = {f"net.{name}": value for name, value in self.net.state_dict().items()}
        for name, weight in self.net.named_parameters():
            for key, value in self.optimizer.state.get(weight, {}).items():
                found[f"adam.{name}.{key}"] = value
        return found

    @torch.no_grad()
    def restore(self, state: dict[str, Tensor]) -> None:
        """Copy values into the tensors in use; those that are missing become zero."""
        for name, value in self.state().items():
            value.copy_(state[name]) if name in state else value.zero_()


def runner(step: Step) -> Callable[[], None]:
    """Return the step as a function, captured on a GPU; the weights do not change."""
    kept = {name: value.clone() for name, value in step.state().items()}
    if not step.plan.is_cuda:
        _try_once(step, kept)
        return step.run
    aside = torch.cuda.Stream()
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):
        for _ in range(WARM_UP):
            step.run()
    torch.cuda.current_stream().wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    step.optimizer.zero_grad(set_to_none=True)
    with torch.cuda.graph(graph):
        step.run()
    step.restore(kept)
    return graph.replay


def _try_once(step: Step, kept: dict[str, Tensor]) -> None:
    """Create Adam's state, so that a stored one can be copied into it."""
    step.run()
    step.restore(kept)
