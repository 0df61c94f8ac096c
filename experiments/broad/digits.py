"""Networks on the handwritten digits of scikit-learn, 8 x 8 pixels in [0, 1].

The four kinds of `benchmarks.small_networks` were looked at before, so they choose. A vision
transformer, a perceptron with dropout and a network that never saw an 8 or a 9 confirm.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn

from benchmarks.small_networks import KINDS, TRAINED, trained
from credibly.data.sample import load_sample
from experiments.broad.image_sets import DIGITS, few, sets
from experiments.broad.subject import Role, Subject
from experiments.evidence_sets import NEAR
from experiments.images import Images

EPOCHS, ORDINARY, SEEDS = 60, 400, (1, 2, 3, 4)
"""Of training, how many images are ordinary, and the seeds of the members."""

LEFT_OUT = (8, 9)

Make = Callable[[], nn.Module]


class VisionTransformer(nn.Module):
    """Patches, positions and torch's own encoder; the mean of its tokens decides."""

    def __init__(
        self, *, size: int, patch: int, channels: int = 1, width: int = 64, layers: int = 2,
        classes: int = 10,
    ) -> None:  # fmt: skip
        super().__init__()
        self.patches = nn.Conv2d(channels, width, patch, stride=patch)
        self.place = nn.Parameter(0.02 * torch.randn(1, (size // patch) ** 2, width))
        layer = nn.TransformerEncoderLayer(
            width, 4, 2 * width, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.patches(x).flatten(2).mT + self.place
        logits: Tensor = self.head(self.norm(self.encoder(tokens)).mean(1))
        return logits


def transformer() -> nn.Module:
    """Build a transformer of two layers on patches of 2 x 2 pixels."""
    return nn.Sequential(nn.Unflatten(1, (1, 8, 8)), VisionTransformer(size=8, patch=2))


def dropout() -> nn.Module:
    """Build a perceptron with GELU and dropout."""
    return nn.Sequential(
        nn.Linear(64, 128), nn.GELU(), nn.Dropout(0.2),
        nn.Linear(128, 128), nn.GELU(), nn.Dropout(0.2), nn.Linear(128, 10),
    )  # fmt: skip


def eight_classes() -> nn.Module:
    """Build convolutions with batch norm, for eight classes."""
    return nn.Sequential(
        nn.Unflatten(1, (1, 8, 8)),
        nn.Conv2d(1, 24, 3, padding=1), nn.BatchNorm2d(24), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(24, 48, 3, padding=1), nn.BatchNorm2d(48), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(192, 8),
    )  # fmt: skip


@dataclass(frozen=True)
class Kind:
    """A kind of network, what it is for, and the classes it does not see."""

    name: str
    make: Make
    role: Role
    left_out: tuple[int, ...] = ()


def kinds() -> list[Kind]:
    """Return all kinds: those that choose first."""
    return [
        *(Kind(name, make, "choose") for name, make in KINDS.items()),
        Kind("vision transformer", transformer, "confirm"),
        Kind("perceptron, GELU, dropout", dropout, "confirm"),
        # looked at while the measurement was built, so it does not confirm
        Kind("convolutions, eight classes", eight_classes, "choose", LEFT_OUT),
    ]


def digits(*, small: bool = False, only: Role | None = None) -> Iterator[Subject]:
    """Train and yield one network after another; `small` yields two, trained for a short time."""
    everything = shuffled_digits()
    wanted = kinds()
    for kind in (wanted[1], wanted[-1]) if small else wanted:
        if only in (None, kind.role):
            yield subject(kind, everything, small=small)


def shuffled_digits() -> Images:
    """Read all digits in the order of the benchmarks with seed 0."""
    pixels, labels = load_digits(return_X_y=True)
    order = torch.randperm(len(pixels), generator=torch.Generator().manual_seed(0))
    images = torch.tensor(pixels / 16).float().reshape(-1, 1, 8, 8)
    return Images(images[order], torch.tensor(labels)[order])


def subject(kind: Kind, everything: Images, *, small: bool) -> Subject:
    """Train a network and its members, and make their sets."""
    cuts = (slice(0, TRAINED), slice(TRAINED, TRAINED + ORDINARY), slice(TRAINED + ORDINARY, None))
    train, ordinary, test = (everything[cut].without(kind.left_out) for cut in cuts)
    epochs, seeds = (10, SEEDS[:1]) if small else (EPOCHS, SEEDS)
    net, *members = (fitted(kind.make, train, seed, epochs) for seed in (0, *seeds))
    near = {NEAR: everything.only(kind.left_out).pixels} if kind.left_out else {}
    foreign = {"Fashion-MNIST": load_sample().images}
    return Subject(
        name=f"digits, {kind.name}", kind=kind.name, data="digits", role=kind.role, net=net,
        ordinary=ordinary.pixels, ordinary_labels=ordinary.labels, test=test.pixels,
        labels=test.labels, near=near, members=tuple(members),
        **sets(net, test, foreign, few(DIGITS) if small else DIGITS),
    )  # fmt: skip


def fitted(make: Make, train: Images, seed: int, epochs: int) -> nn.Module:
    """Train one network on images."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        net = trained(make, train.pixels.flatten(1), train.labels, epochs)
    return nn.Sequential(nn.Flatten(), net).eval().requires_grad_(False)
