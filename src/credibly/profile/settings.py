"""What a profile was made with."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any

from credibly.model.variable import Moves
from credibly.types import shortest_repr


@dataclass(frozen=True, repr=False)
class Settings:
    """What a profile was made with, so that it can be traced and repeated.

    `top` is how many classes of each sample have a column of their own, where all others are joined
    into one, and `class_count` how many the model has then; both are None for an ordinary profile.
    """

    weights: tuple[float, ...]
    solver: str
    loss: str
    dtype: str
    classes: tuple[str, ...] | None = None
    bounds: tuple[float, float] | None = None
    moves: Moves = "inputs"
    space: str = "inputs"
    model: str = ""
    version: str = ""
    top: int | None = None
    class_count: int | None = None

    @property
    def gamma(self) -> float | None:
        """The weight, if it is the same for all classes."""
        return self.weights[0] if len(set(self.weights)) == 1 else None

    def weights_in_words(self) -> str:
        """'gamma 200', or that each class has its own weight."""
        return "weights per class" if self.gamma is None else f"gamma {shortest_repr(self.gamma)}"

    def classes_in_words(self) -> str:
        """'10 classes', or which of them have a column of their own."""
        if self.top is None:
            return f"{len(self.weights)} classes"
        return f"top {self.top} of {self.class_count} classes"

    def as_json(self) -> dict[str, Any]:
        """The settings as they are written to files."""
        left_out = ("top", "class_count") if self.top is None else ()
        return {name: value for name, value in asdict(self).items() if name not in left_out}

    def check_classes(self) -> str | None:
        """What is wrong with the numbers of weights, names and classes; None: nothing."""
        names, count = self.classes, len(self.weights)
        if (self.top is None) != (self.class_count is None):
            return f"top {self.top} of {self.class_count} classes"
        if self.top is not None and not 1 < count == self.top + 1 <= (self.class_count or 0):
            return f"{count} weights for the top {self.top} of {self.class_count} classes"
        if count == 0 or (names is not None and len(names) != (self.class_count or count)):
            wanted = f"{count} weights" if self.top is None else f"{self.class_count} classes"
            return f"{len(names or ())} names of classes for {wanted}"
        return None

    def differences(self, other: Settings) -> tuple[str, str]:
        """The settings that differ, in words: here and in the other."""
        names = [f.name for f in fields(self) if getattr(self, f.name) != getattr(other, f.name)]
        here, there = (", ".join(one.text_of(name) for name in names) for one in (self, other))
        return here, there

    def text_of(self, name: str) -> str:
        """One setting in words."""
        if name == "weights" and self.gamma is not None:
            return f"gamma {self.gamma:.8g} for {self.classes_in_words()}"
        return f"{name} {getattr(self, name)}"

    def __repr__(self) -> str:
        hidden = ("weights", "classes", *(() if self.top else ("top", "class_count")))
        rest = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in hidden}
        shown = ", ".join(f"{name}={value!r}" for name, value in rest.items())
        return f"Settings({self.weights_in_words()} x {len(self.weights)}, {shown})"
