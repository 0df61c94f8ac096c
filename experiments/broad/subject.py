"""What is measured: a trained model, ordinary inputs, new ones, and some that do not belong."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from torch import Tensor

Role = Literal["choose", "confirm"]


@dataclass(frozen=True, eq=False)
class Subject:
    """One network and its inputs. Splits are disjoint, and none of them was trained on.

    Attributes:
        name: as the tables print it, "digits, convolutions".
        kind: of the model, "convolutions".
        data: the data set, "digits".
        role: whether it chooses scores, or confirms the choice. Never both.
        net: what `Judge.fit` takes: a module in evaluation mode, a fitted scikit-learn model, ...
        ordinary: the inputs a Judge is fitted on, 300 where the data allow it.
        ordinary_labels: their classes; only what is said to use labels sees them.
        test: new ordinary inputs.
        labels: their classes.
        far: inputs that do not belong, by kind: noise, inverted, shuffled, foreign data.
        near: inputs of classes that were left out of training.
        damaged: the first inputs of `test`, damaged or attacked a little, by kind.
        attacked: the same under attacks that mean to be believed: PGD and others.
        wrong_unit: rows of tables of which one column has another unit and the answer changed.
        members: other networks, trained in the same way from other seeds, for an ensemble.
        views: augmentations that keep the class, where there are any.
        small: whether it counts as a small network or a table.
    """

    name: str
    kind: str
    data: str
    role: Role
    net: Any
    ordinary: Tensor
    ordinary_labels: Tensor
    test: Tensor
    labels: Tensor
    far: dict[str, Tensor]
    near: dict[str, Tensor] = field(default_factory=dict)
    damaged: dict[str, Tensor] = field(default_factory=dict)
    attacked: dict[str, Tensor] = field(default_factory=dict)
    wrong_unit: dict[str, Tensor] = field(default_factory=dict)
    members: tuple[Any, ...] = ()
    views: tuple[Callable[[Tensor], Tensor], ...] = ()
    small: bool = True


Subjects = Callable[..., Iterator[Subject]]
"""A function that trains or loads networks and yields them one by one."""
