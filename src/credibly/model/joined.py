"""Many classes: the most probable ones of each sample, and all others joined into one."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from credibly import _validation as check
from credibly._validation import require
from credibly.model.classifier import Classifier
from credibly.model.derivatives import losses_only, ordinary
from credibly.model.losses import CrossEntropy, Loss
from credibly.model.memory import in_chunks
from credibly.model.variable import Moves, Variable
from credibly.types import Bounds, Limits, finite_rows

UNKNOWN = -1
"""In the place of class numbers, for samples whose losses at x0 are not known."""


@dataclass(frozen=True, eq=False)
class Joined(Variable):
    """Another variable, asked about a few classes of each sample and the rest of them as one.

    The probability of the joined class is the sum of theirs, so its logit is their logsumexp and
    cross-entropy over these m + 1 logits is exact. What moves, and how, is that of `inner`.

    Attributes:
        inner: the variable with all classes.
        kept: numbers of the classes with a column of their own (n, m), the most probable at x0
            first; -1 for samples whose losses are not known. The last column is the joined class.
        total: how many classes the model has.
    """

    inner: Variable
    kept: Tensor
    total: int

    per_sample: ClassVar[tuple[str, ...]] = ("start", "inner", "kept")

    @classmethod
    def of(cls, inner: Variable, kept: Tensor, total: int) -> Joined:
        """The variable with only these classes in columns of their own."""
        return cls(inner.clf, inner.start, inner, kept, total)

    def logits(self, x: Tensor) -> Tensor:
        """Logits (n, m + 1): of the kept classes, and of all others together."""
        logits = super().logits(x)
        if logits.shape[1] == 1:
            logits = self.loss.two_classes(logits)
        kept = ordinary(self.kept).clamp(min=0)
        others = logits.scatter(1, kept, -torch.inf).logsumexp(1, keepdim=True)
        return torch.cat([logits.gather(1, kept), others], dim=1)

    def run_at(self, x: Tensor) -> Any:
        same = self.inner.clf is self.clf
        return (self.inner if same else replace(self.inner, clf=self.clf)).run_at(x)

    def drafted(self) -> Joined | None:
        inner = self.inner.drafted()
        return None if inner is None else replace(self, clf=inner.clf, inner=inner)

    def tensors(self) -> tuple[Tensor, ...] | None:
        inner = self.inner.tensors()
        return None if inner is None else (*inner, self.kept)

    def with_tensors(self, tensors: tuple[Tensor, ...], clf: Classifier) -> Joined:
        inner = self.inner.with_tensors(tensors[:-1], clf)
        return Joined.of(inner, tensors[-1], self.total)

    def based_at(self, values: Tensor) -> Joined:
        inner = self.inner.based_at(values)
        return replace(self, inner=inner, start=inner.start)

    def describe(self) -> str:
        return f"{self.inner.describe()}; {in_words(self.kept.shape[1])}"

    @property
    def moves(self) -> Moves:  # type: ignore[override]  # it depends on the inner one
        return self.inner.moves

    @property
    def innermost(self) -> Variable:
        return self.inner.innermost

    @property
    def kept_classes(self) -> Tensor:
        return self.kept

    @property
    def all_classes(self) -> int:
        return self.total

    def encode(self, values: Tensor) -> Tensor:
        return self.inner.encode(values)

    def decode(self, x: Tensor) -> Tensor:
        return self.inner.decode(x)

    def free_values(self, x: Tensor) -> Tensor:
        return self.inner.free_values(x)

    def limits(self, bounds: Bounds | None) -> Limits | None:
        return self.inner.limits(bounds)


def in_words(top: int) -> str:
    """Which classes a profile is about."""
    most = "the most probable class" if top == 1 else f"the {top} most probable classes"
    return f"{most} of each, the others as one"


def check_top(top: object, loss: Loss) -> int:
    """Refuse a `top` that is no positive whole number, or of a loss whose classes do not add up."""
    require(
        isinstance(loss, CrossEntropy),
        "top",
        "a model with cross-entropy: its classes have probabilities, which can be added",
        f"top={top!r} with {loss!r}",
        "Leave top out (--top), which asks about every class, or use loss='cross_entropy'.",
    )
    return check.whole("top", top, remedy="10 asks about the ten most probable classes.")


def keep_top(variable: Variable, top: int, *, chunk_size: int = 128) -> Joined:
    """The variable with the `top` most probable classes of each sample: one forward of each."""
    count = check_top(top, variable.loss)
    got = f"top={top} for a variable that was bound with `top` before"
    remedy = "Leave it out, or bind the classifier again."
    require(variable.kept_classes is None, "top", "a variable of all classes", got, remedy)
    start, usable = variable.start, finite_rows(variable.start).nonzero().squeeze(1)
    kept = torch.full((len(start), count), UNKNOWN, dtype=torch.long, device=start.device)
    # if no row is finite, zeros still tell how many classes there are
    chosen = usable if len(usable) else torch.zeros_like(kept[:1, 0])

    def look(places: slice) -> int:
        rows = chosen[places]
        losses = losses_only(variable.select(rows), start[rows].nan_to_num(0.0, 0.0, 0.0))
        _check_fewer(count, losses.shape[1])
        known = finite_rows(start[rows]) & ~losses.isnan().any(1)
        best = losses.sort(dim=1, stable=True).indices[:, :count]
        kept[rows] = best.where(known[:, None], UNKNOWN)
        return losses.shape[1]

    total = max(in_chunks(len(chosen), chunk_size, look))
    return Joined.of(variable, kept, total)


def _check_fewer(count: int, total: int) -> None:
    require(
        count < total,
        "top",
        f"fewer than the {total} classes of the model",
        str(count),
        "Leave it out (--top): the profile is then about every class.",
    )
