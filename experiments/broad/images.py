"""Networks on Fashion-MNIST, MNIST and CIFAR-10: embedded, from files, and trained on the spot.

The folder has the files of `experiments.broad.prepare` and networks as safetensors; what is not
there is left out. Networks that choose use the first half of the test images of a file, also as
foreign images, and those that confirm use the second half. Nothing of a test file is trained on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor, nn

from credibly.data.sample import load_sample
from experiments import networks
from experiments.broad.digits import Mixer, VisionTransformer
from experiments.broad.image_sets import COLOUR, GREY, Plan, affordable, few, sets
from experiments.broad.subject import Role, Subject
from experiments.densenet169 import DenseNet169
from experiments.evidence_sets import NEAR
from experiments.images import Images, read_npz
from experiments.networks import Affine
from experiments.recipes import Recipe
from experiments.resnet18 import BasicBlock
from experiments.training_step import Step, plan_epoch, runner

ORDINARY, TEST = 300, 3000
"""How many images a Judge is fitted on, and how many new ones there are at most."""

TESTS = {
    "MNIST": "mnist.npz",
    "Fashion-MNIST": "fashion-mnist-test.npz",
    "CIFAR-10": "cifar10-test.npz",
}
TRAININGS = {
    "MNIST": "mnist-train.npz",
    "Fashion-MNIST": "fashion-mnist-train.npz",
    "CIFAR-10": "cifar10-train.npz",
}
FILES = {
    "CIFAR-10": "cifar10-resnet18.safetensors",
    "Fashion-MNIST": "fashion-mnist-resnet18.safetensors",
}
"""Networks that are loaded."""

CIFAR_IMAGES = 750_000
"""Images that a network on CIFAR-10 sees in training: 15 epochs of the whole training set."""


def convolutions(classes: int) -> nn.Module:
    """Build three convolutions with batch norm, for 28 x 28 pixels."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(),
        nn.Flatten(), nn.Linear(3136, classes),
    )  # fmt: skip


def resnet20(classes: int, *, width: int = 32) -> nn.Module:
    """Build a stem and three stages of three blocks, twice as wide as in He et al. (2016)."""
    blocks = [
        BasicBlock(
            width << max(0, stage - (number == 0)), width << stage, 1 + (stage > 0 and number == 0)
        )
        for stage in range(3)
        for number in range(3)
    ]
    return nn.Sequential(
        nn.Conv2d(3, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU(), *blocks,
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4 * width, classes),
    )  # fmt: skip


def grey_transformer(classes: int) -> nn.Module:
    """Build three layers on 4 x 4 patches of 28 x 28 pixels."""
    return VisionTransformer(size=28, patch=7, width=64, layers=3, classes=classes)


def colour_transformer(classes: int) -> nn.Module:
    """Build six layers on 8 x 8 patches of 32 x 32 pixels."""
    return VisionTransformer(size=32, patch=4, channels=3, width=192, layers=6, classes=classes)


def lenet(classes: int) -> nn.Module:
    """Build LeNet with tanh and mean pooling, for 28 x 28 pixels (LeCun et al., 1998)."""
    return nn.Sequential(
        nn.Conv2d(1, 6, 5, padding=2), nn.Tanh(), nn.AvgPool2d(2),
        nn.Conv2d(6, 16, 5), nn.Tanh(), nn.AvgPool2d(2), nn.Flatten(),
        nn.Linear(400, 120), nn.Tanh(), nn.Linear(120, 84), nn.Tanh(), nn.Linear(84, classes),
    )  # fmt: skip


def perceptron(classes: int) -> nn.Module:
    """Build two hidden layers with GELU, for 28 x 28 pixels."""
    return nn.Sequential(
        nn.Flatten(), nn.Linear(784, 256), nn.GELU(), nn.Linear(256, 128), nn.GELU(),
        nn.Linear(128, classes),
    )  # fmt: skip


def grey_mixer(classes: int) -> nn.Module:
    """Build three layers on 4 x 4 patches of 28 x 28 pixels."""
    return Mixer(size=28, patch=7, width=64, layers=3, classes=classes)


def vgg(classes: int) -> nn.Module:
    """Build eight convolutions with batch norm and no residuals (Simonyan and Zisserman, 2015)."""
    layers, inputs = list[nn.Module](), 3
    for width in (64, 128, 256, 512):
        for _ in range(2):
            convolution = nn.Conv2d(inputs, width, 3, padding=1, bias=False)
            layers += [convolution, nn.BatchNorm2d(width), nn.ReLU()]
            inputs = width
        layers.append(nn.MaxPool2d(2))
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, classes))


def densenet(classes: int) -> nn.Module:
    """Build the DenseNet-169 of the paper."""
    return DenseNet169(channels=3, classes=classes)


@dataclass(frozen=True)
class Spec:
    """A network to train: what it is, on what, and how. 0 epochs: until `CIFAR_IMAGES`."""

    kind: str
    data: str
    make: Callable[[int], nn.Module]
    recipe: Recipe
    plan: Plan = GREY
    small: bool = True
    role: Role = "choose"
    members: int = 4

    @property
    def cuda_only(self) -> bool:
        """Whether training it takes a GPU."""
        return self.data == "CIFAR-10"

    @property
    def name(self) -> str:
        """As the tables print it."""
        return f"{self.data}, {self.kind}"


CONVOLUTIONS = Recipe("", "", 2, 100, augment=False, weight_decay=0.0)
TRANSFORMER = replace(CONVOLUTIONS, epochs=8, weight_decay=0.05, decoupled=True)
COLOUR_NET = Recipe("", "", 0, 250, augment=True, weight_decay=0.5, decoupled=True, rate=2e-3)
COLOUR_TRANSFORMER = replace(COLOUR_NET, weight_decay=0.05, rate=5e-4)

SPECS = (
    Spec("convolutions", "MNIST", convolutions, CONVOLUTIONS),
    Spec(
        "convolutions, eight classes", "Fashion-MNIST", convolutions,
        replace(CONVOLUTIONS, epochs=3, left_out=(8, 9)),
    ),
    Spec("vision transformer", "Fashion-MNIST", grey_transformer, TRANSFORMER),
    Spec("ResNet20-like", "CIFAR-10", resnet20, COLOUR_NET, COLOUR, small=False),
    Spec("vision transformer", "CIFAR-10", colour_transformer, COLOUR_TRANSFORMER, COLOUR,
         small=False),
    Spec("LeNet, eight classes", "MNIST", lenet, replace(CONVOLUTIONS, left_out=(4, 7)),
         role="confirm"),
    Spec("perceptron, GELU", "Fashion-MNIST", perceptron, replace(CONVOLUTIONS, epochs=4),
         role="confirm"),
    Spec("mixer", "Fashion-MNIST", grey_mixer, TRANSFORMER, role="confirm"),
    Spec("VGG-like, eight classes", "CIFAR-10", vgg, replace(COLOUR_NET, left_out=(3, 9)), COLOUR,
         small=False, role="confirm"),
    Spec("DenseNet169", "CIFAR-10", densenet, replace(COLOUR_NET, epochs=15),
         replace(COLOUR, search=None), small=False, role="confirm", members=0),
)  # fmt: skip


def images(
    data: Path,
    *,
    device: str = "cpu",
    small: bool = False,
    only: Role | None = None,
    alone: bool = False,
) -> Iterator[Subject]:
    """Yield one network after another; `small` yields the embedded one with few images.

    `alone`: without the members of an ensemble.
    """
    if only != "confirm":
        yield embedded(data, device, small=small)
    if small:
        return
    for dataset, file in FILES.items():
        there = (data / file).exists() and (data / TESTS[dataset]).exists()
        if there and only != "confirm":
            yield loaded(data, dataset, device)
    for spec in SPECS:
        there = all((data / names[spec.data]).exists() for names in (TESTS, TRAININGS))
        wanted = only in (None, spec.role)
        if there and wanted and (device != "cpu" or not spec.cuda_only):
            yield trained(data, replace(spec, members=0) if alone else spec, device)


def embedded(data: Path, device: str, *, small: bool = False) -> Subject:
    """Return the embedded network: every third of its images is ordinary."""
    sample = load_sample()
    known = Images(sample.images, sample.labels).to(device)
    third = torch.arange(len(known), device=device) % 3 == 0
    ordinary, test = known[third], known[~third]
    if small:
        ordinary, test = ordinary[:150], test[:150]
    net, plan = sample.net.to(device), few(GREY) if small else GREY
    others = foreign(data, "Fashion-MNIST", "choose")
    return Subject(
        name="embedded network", kind="residual network", data="Fashion-MNIST", role="choose",
        net=net, ordinary=ordinary.pixels, ordinary_labels=ordinary.labels, test=test.pixels,
        labels=test.labels, **sets(net, test, others, plan, ordinary),
    )  # fmt: skip


def loaded(data: Path, dataset: str, device: str) -> Subject:
    """Return a ResNet18 from a file."""
    net = networks.load(data / FILES[dataset], device).net
    part = half(read_npz(data / TESTS[dataset]), "choose").to(device)
    ordinary, test = part[:ORDINARY], part[ORDINARY : ORDINARY + TEST]
    plan = affordable(COLOUR if dataset == "CIFAR-10" else GREY, device)
    return Subject(
        name=f"{dataset}, ResNet18", kind="ResNet18", data=dataset, role="choose", net=net,
        ordinary=ordinary.pixels, ordinary_labels=ordinary.labels, test=test.pixels,
        labels=test.labels, small=False,
        **sets(net, test, foreign(data, dataset, "choose"), plan, ordinary),
    )  # fmt: skip


def trained(data: Path, spec: Spec, device: str) -> Subject:
    """Train a network and its members, and make their sets."""
    train = read_npz(data / TRAININGS[spec.data]).without(spec.recipe.left_out)
    seeds = range(1 + (min(spec.members, 2) if device == "cpu" else spec.members))
    net, *members = (fitted(spec, train, seed, device) for seed in seeds)
    return subject_of(data, spec, net, tuple(members), device)


def subject_of(
    data: Path, spec: Spec, net: nn.Module, members: tuple[nn.Module, ...], device: str
) -> Subject:
    """Make the sets of a trained network."""
    unknown, every = spec.recipe.left_out, tests_of(data, spec)
    part = every.without(unknown).to(device)
    ordinary, test = part[:ORDINARY], part[ORDINARY : ORDINARY + TEST]
    near = {NEAR: every.only(unknown).pixels.to(device)} if unknown else {}
    others = foreign(data, spec.data, spec.role)
    return Subject(
        name=spec.name, kind=spec.kind, data=spec.data, role=spec.role, net=net,
        ordinary=ordinary.pixels, ordinary_labels=ordinary.labels, test=test.pixels,
        labels=test.labels, near=near, members=members, small=spec.small,
        **sets(net, test, others, spec.plan, ordinary),
    )  # fmt: skip


def half(known: Images, role: Role) -> Images:
    """Return the images of a test file for networks that choose, or for those that confirm."""
    middle = len(known) // 2
    return known[:middle] if role == "choose" else known[middle:]


def tests_of(data: Path, spec: Spec) -> Images:
    """Read the test images of a role; those of MNIST stand in the order of their writers."""
    found = half(read_npz(data / TESTS[spec.data]), spec.role)
    if spec.data != "MNIST":
        return found
    return found[torch.randperm(len(found), generator=torch.Generator().manual_seed(0))]


def foreign(data: Path, own: str, role: Role) -> dict[str, Tensor]:
    """Read the test images of the other data sets."""
    found = {}
    for name, file in TESTS.items():
        if name != own and (data / file).exists():
            found[name] = half(read_npz(data / file), role).pixels
    return found


def fitted(spec: Spec, train: Images, seed: int, device: str) -> nn.Module:
    """Train one network by Adam, as `experiments.train` does; on a GPU in bfloat16."""
    step, net = prepared(spec, train, seed, device)
    once = runner(step)
    for epoch in range(step.recipe.epochs):
        run_epoch(step, once, epoch, seed)
    return net.eval().requires_grad_(False)


def prepared(spec: Spec, train: Images, seed: int, device: str) -> tuple[Step, nn.Module]:
    """Return a step of training, and the network on pixels that it trains."""
    torch.manual_seed(seed)
    torch.backends.cudnn.deterministic = True
    epochs = spec.recipe.epochs or round(CIFAR_IMAGES / len(train))
    mean, std = train.pixels.mean((0, 2, 3)).to(device), train.pixels.std((0, 2, 3)).to(device)
    net = spec.make(int(train.labels.max()) + 1).to(device).train()
    shaped = (moment.reshape(1, -1, 1, 1) for moment in (mean, std))
    recipe = replace(spec.recipe, epochs=epochs)
    step = Step(net, train.as_bytes().to(device), recipe, *shaped)
    return step, Affine(net, mean, std)


def run_epoch(step: Step, once: Callable[[], None], epoch: int, seed: int) -> None:
    """Train on each image once, in an order that depends on seed and epoch alone."""
    generator = torch.Generator().manual_seed(1_000_003 * seed + epoch)
    plans = plan_epoch(len(step.images), step.recipe, generator).to(step.plan.device)
    for number, plan in enumerate(plans):
        step.rate.fill_(step.recipe.rate_at((epoch + number / len(plans)) / step.recipe.epochs))
        step.plan.copy_(plan)
        once()
