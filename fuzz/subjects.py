"""Small models of every kind that the package takes, each with inputs that suit it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import credibly as cr

FEATURES, CLASSES = 6, 3


@dataclass(frozen=True)
class Subject:
    """A model and how it is asked.

    Attributes:
        shape: of one input.
        ask: from inputs (n, ...) to the first arguments of `credibility`.
        rough: whether it has kinks, which amplify rounding.
        floating: False where inputs are numbers of words: they are spoiled in another way.
        mean: around which good inputs lie.
        fixed: the only precision it takes.
    """

    shape: tuple[int, ...]
    ask: Callable[[Tensor], tuple[Any, ...]]
    rough: bool = False
    floating: bool = True
    mean: float = 0.0
    fixed: torch.dtype | None = None

    def draw(self, random: np.random.Generator, rows: int, dtype: torch.dtype) -> Tensor:
        """Inputs that nothing is wrong with."""
        if not self.floating:
            return torch.from_numpy(random.integers(2, 40, (rows, *self.shape)))
        drawn = torch.from_numpy(random.normal(self.mean, 1.0, (rows, *self.shape)))
        return drawn.to(self.fixed or dtype)


def network(act: type[nn.Module], dtype: torch.dtype, *last: nn.Module) -> nn.Sequential:
    """A small perceptron with fixed weights."""
    torch.manual_seed(0)
    layers = nn.Linear(FEATURES, 12), act(), nn.Linear(12, CLASSES), *last
    return nn.Sequential(*layers).to(dtype).eval()


def plain(net: Callable[[Tensor], Tensor], **settings: Any) -> Subject:
    """A network on plain inputs."""
    rough = settings.pop("rough", False)
    clf = cr.Classifier(net, **settings)
    return Subject((FEATURES,), lambda x: (clf, x), rough=rough)


def convolutional(dtype: torch.dtype) -> Subject:
    """Two convolutions with batch norm and pooling."""
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(4, 4, 3), nn.GELU(), nn.Flatten(), nn.Linear(16, CLASSES),
    )  # fmt: skip
    clf = cr.Classifier(net.to(dtype).eval())
    return Subject((1, 8, 8), lambda x: (clf, x), rough=True)


def nested(dtype: torch.dtype) -> Subject:
    """Inputs in two parts, one of which moves."""
    net = network(nn.Tanh, dtype)
    clf = cr.Classifier(
        lambda parts: net(torch.cat([parts["a"], parts["b"]], 1)), space=cr.Space(vary="a")
    )
    return Subject((FEATURES,), lambda x: (clf, {"a": x[:, :4], "b": x[:, 4:]}))


def in_space(dtype: torch.dtype) -> Subject:
    """Features of their own scale, some of them locked or tied."""
    scale = 10.0 ** torch.linspace(-2, 2, FEATURES)
    space = cr.Space(scale=scale, locked=[1], bounds=(-float("inf"), float("inf")))
    return plain(network(nn.Softplus, dtype), space=space)


def over_parameters(dtype: torch.dtype) -> Subject:
    """Parameters move, inputs stay."""
    clf = cr.Classifier(network(nn.Tanh, dtype))
    return Subject((FEATURES,), lambda x: (cr.vary_parameters(clf, x),))


def embedded(dtype: torch.dtype) -> Subject:
    """Numbers of words; their embeddings move."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Embedding(40, 4), nn.Flatten(), nn.Tanh(), nn.Linear(20, CLASSES))
    clf = cr.Classifier(net.to(dtype).eval(), module="0")
    return Subject((5,), lambda x: (clf, x), floating=False)


class Times(nn.Module):
    """Logits that no softmax was made for."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, x: Tensor) -> Tensor:
        """The product."""
        return self.factor * x


class Picky(nn.Module):
    """Functions that are not finite everywhere: a root, a logarithm, a quotient."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: Tensor) -> Tensor:
        """Logits that are NaN for a sum below -6, and have infinite slopes at a sum of -6."""
        total = x.sum(1, keepdim=True)
        return self.net(x) + (total + 6).sqrt() + torch.log(x.std(1, keepdim=True)) / x[:, :1]


CORE: dict[str, Callable[[torch.dtype], Subject]] = {
    "smooth": lambda dtype: plain(network(nn.Tanh, dtype)),
    "relu": lambda dtype: plain(network(nn.ReLU, dtype), rough=True),
    "probabilities": lambda dtype: plain(
        network(nn.Tanh, dtype, nn.Softmax(1)), outputs="probabilities"
    ),
    "hinge": lambda dtype: plain(network(nn.Tanh, dtype), loss=cr.losses.Hinge(), rough=True),
    "logistic": lambda dtype: plain(network(nn.ReLU, dtype), loss=cr.losses.Logistic(), rough=True),
    "preprocess": lambda dtype: plain(
        network(nn.GELU, dtype), preprocess=lambda x: (x - 0.5) / 0.25
    ),
    "huge logits": lambda dtype: plain(network(nn.Tanh, dtype, Times(1e30))),
    "not finite everywhere": lambda dtype: plain(Picky(network(nn.Tanh, dtype)), rough=True),
    "convnet": convolutional,
    "nested": nested,
    "space": in_space,
    "module": lambda dtype: plain(network(nn.Tanh, dtype), module="0"),
    "parameters": over_parameters,
    "words": embedded,
}


@cache
def subject(name: str, dtype: torch.dtype) -> Subject:
    """A subject by name, made once."""
    return {**CORE, **libraries().LIBRARIES}[name](dtype)


def libraries() -> Any:
    """The other subjects; they are made of these."""
    return import_module("fuzz.libraries")


def all_names() -> list[str]:
    """The names of all subjects, whatever is installed: a case is the same everywhere."""
    return [*CORE, *libraries().LIBRARIES]


def make_all(*, quick: bool) -> set[str]:
    """Make the subjects that can be made; quickly only those without large libraries.

    What is made before does not count as time spent on looking.
    """
    others = [] if quick else [name for name in libraries().LIBRARIES if libraries().there(name)]
    for name in (*CORE, *others):
        subject(name, torch.float32)
        subject(name, torch.float64)
    return {*CORE, *others}
