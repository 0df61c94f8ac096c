"""What a profile was made with."""

from __future__ import annotations

from dataclasses import dataclass, fields

from credibly.model.variable import Moves
from credibly.types import shortest_repr


@dataclass(frozen=True, repr=False)
class Settings:
    """What a profile was made with, so that it can be traced and repeated."""

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

    @property
    def gamma(self) -> float | None:
        """The weight, if it is the same for all classes."""
        return self.weights[0] if len(set(self.weights)) == 1 else None

    def weights_in_words(self) -> str:
        """'gamma 200', or that each class has its own weight."""
        return "weights per class" if self.gamma is None else f"gamma {shortest_repr(self.gamma)}"

    def differences(self, other: Settings) -> tuple[str, str]:
        """The settings that differ, in words: here and in the other."""
        names = [f.name for f in fields(self) if getattr(self, f.name) != getattr(other, f.name)]
        here, there = (", ".join(one.text_of(name) for name in names) for one in (self, other))
        return here, there

    def text_of(self, name: str) -> str:
        """One setting in words."""
        if name == "weights" and self.gamma is not None:
            return f"gamma {self.gamma:.8g} for {len(self.weights)} classes"
        return f"{name} {getattr(self, name)}"

    def __repr__(self) -> str:
        hidden = ("weights", "classes")
        rest = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in hidden}
        shown = ", ".join(f"{name}={value!r}" for name, value in rest.items())
        return f"Settings({self.weights_in_words()} x {len(self.weights)}, {shown})"
