"""Networks on the handwritten digits of scikit-learn, 8 x 8 pixels in [0, 1].

The seven kinds that were measured before the present recipe was fixed choose. A recurrent network,
a mixer of patches and convolutions that never saw a 0 or a 1 confirm.
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


class Recurrent(nn.Module):
    """A GRU that reads the rows of an image from above; its last state decides."""

    def __init__(self, *, size: int, width: int = 64, classes: int = 10) -> None:
        super().__init__()
        self.read = nn.GRU(size, width, batch_first=True)
        self.head = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.read(x.squeeze(1))[0][:, -1])
        return logits


class Mixer(nn.Module):
    """Patches that are mixed along positions and along channels (Tolstikhin et al., 2021)."""

    def __init__(
        self, *, size: int, patch: int, width: int = 48, layers: int = 2, classes: int = 10
    ) -> None:
        super().__init__()
        count = (size // patch) ** 2
        self.patches = nn.Conv2d(1, width, patch, stride=patch)
        self.along = nn.ModuleList(_two_layers(count) for _ in range(layers))
        self.across = nn.ModuleList(_two_layers(width) for _ in range(layers))
        self.head = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, classes))

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.patches(x).flatten(2).mT
        for along, across in zip(self.along, self.across, strict=True):
            tokens = tokens + along(tokens.mT).mT
            tokens = tokens + across(tokens)
        logits: Tensor = self.head(tokens.mean(1))
        return logits


def _two_layers(size: int) -> nn.Module:
    return nn.Sequential(
        nn.LayerNorm(size), nn.Linear(size, 2 * size), nn.GELU(), nn.Linear(2 * size, size)
    )


def recurrent() -> nn.Module:
    """Build a recurrent network on rows of 8 pixels."""
    return nn.Sequential(nn.Unflatten(1, (1, 8, 8)), Recurrent(size=8))


def mixer() -> nn.Module:
    """Build a mixer of patches of 2 x 2 pixels."""
    return nn.Sequential(nn.Unflatten(1, (1, 8, 8)), Mixer(size=8, patch=2))


def smooth_convolutions() -> nn.Module:
    """Build convolutions with SiLU, for eight classes."""
    return nn.Sequential(
        nn.Unflatten(1, (1, 8, 8)),
        nn.Conv2d(1, 16, 3, padding=1), nn.SiLU(), nn.Conv2d(16, 32, 3, stride=2, padding=1),
        nn.SiLU(), nn.Conv2d(32, 32, 3, padding=1), nn.SiLU(), nn.Flatten(), nn.Linear(512, 8),
    )  # fmt: skip


@dataclass(frozen=True)
class Kind:
    """A kind of network, what it is for, and the classes it does not see."""

    name: str
    make: Make
    role: Role
    left_out: tuple[int, ...] = ()


def kinds() -> list[Kind]:
    """Return all kinds: those that choose, then those that confirm."""
    return [
        *(Kind(name, make, "choose") for name, make in KINDS.items()),
        Kind("vision transformer", transformer, "choose"),
        Kind("perceptron, GELU, dropout", dropout, "choose"),
        Kind("convolutions, eight classes", eight_classes, "choose", LEFT_OUT),
        Kind("recurrent network", recurrent, "confirm"),
        Kind("mixer", mixer, "confirm"),
        Kind("smooth convolutions, eight classes", smooth_convolutions, "confirm", (0, 1)),
    ]


def digits(*, small: bool = False, only: Role | None = None) -> Iterator[Subject]:
    """Train and yield one network after another; `small` yields two, trained for a short time."""
    everything = {"choose": shuffled_digits(0), "confirm": shuffled_digits(1)}
    wanted = kinds()
    for kind in (wanted[1], wanted[-1]) if small else wanted:
        if only in (None, kind.role):
            yield subject(kind, everything[kind.role], small=small)


def shuffled_digits(seed: int) -> Images:
    """Read all digits in the order of the benchmarks with this seed."""
    pixels, labels = load_digits(return_X_y=True)
    order = torch.randperm(len(pixels), generator=torch.Generator().manual_seed(seed))
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
        **sets(net, test, foreign, few(DIGITS) if small else DIGITS, ordinary),
    )  # fmt: skip


def fitted(make: Make, train: Images, seed: int, epochs: int) -> nn.Module:
    """Train one network on images."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        net = trained(make, train.pixels.flatten(1), train.labels, epochs)
    return nn.Sequential(nn.Flatten(), net).eval().requires_grad_(False)
