"""What is solved for: the part of a batch that may move, and the model as a function of it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Self

from torch import Tensor

from credibly.errors import ModelError
from credibly.model.classifier import Classifier
from credibly.model.coordinates import Coordinates
from credibly.model.losses import Loss
from credibly.model.structure import rows_of
from credibly.types import Bounds, Limits, Model

Moves = Literal["inputs", "module", "parameters", "nodes", "graphs"]
"""What moves: inputs or parts of them, the output of a submodule, parameters, graph features."""


@dataclass(frozen=True, eq=False)
class Variable(ABC):
    """The moving part of a batch, and the model as a function of it.

    It may be passed in place of a classifier and its inputs: `credibility(bind(clf, x), gamma=...)`
    is `credibility(clf, x, gamma=...)`.

    Attributes:
        clf: the classifier.
        start: what moves, as it is in the inputs, in the coordinates of the solver (n, ...).
    """

    clf: Classifier
    start: Tensor

    moves: ClassVar[Moves] = "inputs"
    per_sample: ClassVar[tuple[str, ...]] = ("start",)  # the fields with one row per sample

    @abstractmethod
    def run_at(self, x: Tensor) -> Any:
        """What the model returns when the moving part is at x."""

    @abstractmethod
    def based_at(self, values: Tensor) -> Self:
        """The same around other values of the moving part, and attached to them."""

    def describe(self) -> str:
        """What moves, as text for settings and tables."""
        return "inputs"

    def select(self, rows: Tensor | slice) -> Self:
        """The variable of the chosen samples."""
        fields = {name: getattr(self, name) for name in self.per_sample}
        return replace(self, **{name: _rows(value, rows) for name, value in fields.items()})

    def __len__(self) -> int:
        return len(self.start)

    @property
    def net(self) -> Model:
        """The model itself."""
        return self.clf.net

    @property
    def loss(self) -> Loss:
        """The loss of the classifier."""
        return self.clf.loss

    def drafted(self) -> Variable | None:
        """The same in a cheaper network, whose values are near; None if there is none."""
        return None

    def tensors(self) -> tuple[Tensor, ...] | None:
        """All that `with_tensors` needs of these samples; None if it is more than some tensors."""
        return None

    def with_tensors(self, tensors: tuple[Tensor, ...], clf: Classifier) -> Self:
        """The same question about other samples, asked of another form of the classifier."""
        raise NotImplementedError

    @property
    def innermost(self) -> Variable:
        """The variable itself; of one that joins classes, the one with all of them."""
        return self

    @property
    def kept_classes(self) -> Tensor | None:
        """Numbers of the classes with a column of their own (n, m); None: all, in order."""
        return None

    @property
    def all_classes(self) -> int | None:
        """How many classes the model has, where only some have a column of their own."""
        return None

    @property
    def values(self) -> Tensor:
        """What moves, as it is in the inputs, in the inputs' own units."""
        return self.decode(self.start)

    def raw_outputs(self, x: Tensor) -> Tensor:
        """What the model itself returns at x, as (n, m)."""
        if len(x) != len(self):
            raise ModelError(
                f"a variable of {len(self)} samples was evaluated at {len(x)}",
                remedy="Choose the same samples of both: variable.select(rows).",
            )
        return self.clf.one_row_per_sample(self.run_at(x), len(x))

    def logits(self, x: Tensor) -> Tensor:
        """Outputs at x (n, m) as logits, in the precision of x."""
        return self.clf.as_logits(self.raw_outputs(x).to(x.dtype))

    def losses(self, x: Tensor) -> Tensor:
        """Losses at x (n, K): one forward pass."""
        return self.losses_of(self.logits(x))

    def losses_of(self, logits: Tensor) -> Tensor:
        """Losses (n, K) of given logits (n, m)."""
        return self.clf.losses_of(logits)

    def encode(self, values: Tensor) -> Tensor:
        """The coordinates of the solver, from values in the inputs' own units."""
        return values

    def decode(self, x: Tensor) -> Tensor:
        """The inverse of `encode`."""
        return x

    def free_values(self, x: Tensor) -> Tensor:
        """Those of the values that may move, which are the ones that bounds are about."""
        return self.decode(x)

    def limits(self, bounds: Bounds | None) -> Limits | None:
        """Bounds in the coordinates of the solver."""
        return bounds


def _rows(field: Any, rows: Tensor | slice) -> Any:
    if isinstance(field, Tensor):
        return field[rows]
    own = isinstance(field, Coordinates | Variable)
    return field.select(rows) if own else rows_of(field, rows)


@dataclass(frozen=True, eq=False)
class Inputs(Variable):
    """Plain inputs: one tensor, every feature of which may move at the same cost."""

    def run_at(self, x: Tensor) -> Any:
        return self.clf.run(x)

    def drafted(self) -> Inputs | None:
        clf = self.clf.drafted()
        return None if clf is None else replace(self, clf=clf)

    def based_at(self, values: Tensor) -> Inputs:
        return replace(self, start=values)

    def tensors(self) -> tuple[Tensor, ...]:
        return (self.start,)

    def with_tensors(self, tensors: tuple[Tensor, ...], clf: Classifier) -> Inputs:
        return Inputs(clf, tensors[0])
