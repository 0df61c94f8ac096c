"""Train a network of the experiments; an interrupted run continues where it stopped.

    python -m experiments.train cifar10-resnet18 --seed 0 --data FOLDER --out checkpoints

Writes checkpoints/NAME-seed0.safetensors with the recipe and the accuracies in its metadata. The
last 2000 training images are held out for choices (`--held-out`). The test set is used once, after
training. The state is stored about once a minute, after an epoch; the same command continues from
there.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch
from torch import nn

import credibly
from credibly.io.files import load_metadata, load_tensors, save_tensors, whole_file
from experiments import networks
from experiments.datasets import MOMENTS
from experiments.images import Images
from experiments.made_with import stamp
from experiments.recipes import HELD_OUT, RECIPES, Data, Recipe, load_data
from experiments.training_step import Step, plan_epoch, runner

Saying = Callable[[str], None]


@dataclass(frozen=True)
class Run:
    """One training: a recipe, a seed, and a folder."""

    name: str
    recipe: Recipe
    seed: int
    out: Path
    device: str = "cpu"
    save_every: float = 60.0
    compiled: bool = False

    @property
    def target(self) -> Path:
        """The finished network."""
        return self.out / f"{self.name}-seed{self.seed}.safetensors"

    @property
    def unfinished(self) -> Path:
        """Weights and the state of Adam after the last stored epoch."""
        return self.out / f"{self.name}-seed{self.seed}.unfinished.safetensors"

    def settings(self, data: Data) -> str:
        """Everything that must agree before a run is continued."""
        sizes = {"trained_on": len(data.train), "held_out": data.kept_back}
        recipe = asdict(self.recipe)
        if not recipe["decoupled"]:
            del recipe["decoupled"]  # as in files from before there was a choice
        return json.dumps({**recipe, "seed": self.seed, **sizes}, sort_keys=True)


def train(run: Run, data: Data, say: Saying = print) -> Path:
    """Train to the end, measure, write; a finished run is left as it is."""
    run.out.mkdir(parents=True, exist_ok=True)
    settings = run.settings(data)
    if _finished(run, settings):
        say(f"{run.target} is there already, made with these settings")
        return run.target
    step = _step(run, data)
    once = runner(step)
    begin, spent = _resume(run, step, settings, say)
    stored = time.perf_counter()
    clock = stored - spent
    for epoch in range(begin, run.recipe.epochs):
        loss = _epoch(run, step, once, epoch)
        now = time.perf_counter()
        say(f"{now - clock:6.0f} s  epoch {epoch + 1}/{run.recipe.epochs}: loss {loss:.4f}")
        if now - stored > run.save_every:
            _store(run, step, {"epoch": str(epoch + 1), "settings": settings,
                               "seconds": f"{now - clock:.1f}"})  # fmt: skip
            stored = now
    facts = _facts(run, data, step, time.perf_counter() - clock)
    with whole_file(run.target) as aside:  # a file appears only with its accuracies
        networks.save(aside, step.net, facts)
        trained = networks.load(aside, run.device)  # as users load it: in half precision
        measured = {
            f"{part}_accuracy": f"{accuracy(trained, images):.4f}"
            for part, images in (("held_out", data.held_out), ("test", data.test))
            if len(images)
        }
        networks.save(aside, step.net, {**facts, **measured})
    run.unfinished.unlink(missing_ok=True)
    say(f"{run.target}: {measured}")
    return run.target


def _step(run: Run, data: Data) -> Step:
    torch.manual_seed(run.seed)
    torch.backends.cudnn.deterministic = True
    channels, classes = data.train.pixels.shape[1], int(data.train.labels.max()) + 1
    net = networks.build(run.recipe.arch, channels=channels, classes=classes)
    net = net.to(run.device).to(memory_format=torch.channels_last).train()
    mean, std = (
        torch.tensor(v, device=run.device).reshape(1, -1, 1, 1) for v in MOMENTS[run.recipe.dataset]
    )
    return Step(net, data.train.to(run.device), run.recipe, mean, std, run.compiled)


def _epoch(run: Run, step: Step, once: Callable[[], None], epoch: int) -> float:
    """Train on each image once; the order depends on seed and epoch alone, so runs can continue."""
    generator = torch.Generator().manual_seed(1_000_003 * run.seed + epoch)
    plans = plan_epoch(len(step.images), run.recipe, generator).to(run.device)
    step.total.zero_()
    for number, plan in enumerate(plans):
        done = (epoch + number / len(plans)) / run.recipe.epochs
        step.rate.fill_(run.recipe.rate_at(done))
        step.plan.copy_(plan)
        once()
    return float(step.total) / len(plans)


def _finished(run: Run, settings: str) -> bool:
    """Return whether the network is there; a different one of this name is not replaced.

    Figures identify a network by its bytes, and a second training would give other bytes.
    """
    if not run.target.exists():
        return False
    made_by = load_metadata(run.target).get("recipe")
    if made_by != settings:
        message = (
            f"{run.target} is there and was made with other settings ({made_by}); move it away, or "
            f"choose another --out, to train with {settings}."
        )
        raise ValueError(message)
    return True


def _store(run: Run, step: Step, facts: dict[str, str]) -> None:
    state = {name: value.contiguous().cpu() for name, value in step.state().items()}
    save_tensors(state, run.unfinished, metadata=facts)


def _resume(run: Run, step: Step, settings: str, say: Saying) -> tuple[int, float]:
    """Return how many epochs are done, and the seconds they took."""
    if not run.unfinished.exists():
        return 0, 0.0
    state, facts = load_tensors(run.unfinished)
    if facts.get("settings") != settings:
        message = (
            f"{run.unfinished} was begun with other settings ({facts.get('settings')}); remove it "
            f"to start again with {settings}."
        )
        raise ValueError(message)
    step.restore(state)
    say(f"continuing after epoch {facts['epoch']}")
    return int(facts["epoch"]), float(facts.get("seconds", 0))


@torch.no_grad()
def accuracy(trained: networks.Trained, images: Images) -> float:
    """Return the share of images whose largest logit is that of the label."""
    net: nn.Module = trained.net
    hits = [
        net(x.to(trained.mean.device).float() / 255).argmax(1).cpu() == y
        for x, y in zip(images.pixels.split(500), images.labels.split(500), strict=True)
    ]
    return torch.cat(hits).double().mean().item()


def _facts(run: Run, data: Data, step: Step, seconds: float) -> dict[str, str]:
    recipe = run.recipe
    device = torch.cuda.get_device_name() if step.plan.is_cuda else "CPU"
    moments = (",".join(str(v) for v in values) for values in MOMENTS[recipe.dataset])
    return {
        "arch": recipe.arch,
        **dict(zip(("mean", "std"), moments, strict=True)),
        "dataset": recipe.dataset,
        "left_out": ",".join(str(v) for v in recipe.left_out),
        "recipe": run.settings(data),
        "trained_on": str(len(data.train)),
        "held_out": str(data.kept_back),
        "seconds": f"{seconds:.0f}",
        "made_with": f"credibly {credibly.__version__}, torch {torch.__version__}, {device}",
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    given = parsed(arguments)
    recipe = RECIPES[given.recipe]
    if given.epochs is not None:
        recipe = replace(recipe, epochs=given.epochs)
    if given.decoupled is not None:
        recipe = replace(recipe, weight_decay=given.decoupled, decoupled=True)
    run = Run(given.recipe, recipe, given.seed, given.out, given.device, compiled=given.compile)
    try:
        stamp(given.device)  # refuses a device that is not there
        data = load_data(recipe, given.data, held_out=given.held_out)
        train(run, data, lambda line: print(line, flush=True))
    except (OSError, ValueError) as error:  # data that are not there, settings that do not fit
        print(f"error: {error}", file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        print("\nstopped; the same command continues from the last stored epoch")
        sys.exit(130)


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        message = f"at least 1 is needed, and {text} was given"
        raise argparse.ArgumentTypeError(message)
    return number


def parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add(
        "recipe", choices=tuple(RECIPES), help="network, data and training (experiments/recipes.py)"
    )
    add("--data", type=Path, required=True, help="folder of the data set's archives or files")
    add("--out", type=Path, default=Path("checkpoints"), help="default %(default)s")
    add("--seed", type=int, default=0, help="of weights, order and crops; default %(default)s")
    add("--epochs", type=_positive, help="instead of the recipe's")
    add("--held-out", type=int, default=HELD_OUT, metavar="IMAGES",
        help="how many images at the end of the training set to hold out; default %(default)s; "
        "the published CIFAR-10 networks of the paper's figures have 0")  # fmt: skip
    add("--decoupled", type=float, metavar="DECAY",
        help="weight decay, subtracted from the weights and not added to the gradient")  # fmt: skip
    add("--device", default="cuda" if torch.cuda.is_available() else "cpu", help="here %(default)s")
    add("--compile", action="store_true", help="fuse layers with torch.compile")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
