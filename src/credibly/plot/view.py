"""What a figure of one profile shows, worked out before anything is drawn."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal

import torch
from torch import Tensor

from credibly.profile.profile import Profile

Kind = Literal["picture", "signal", "features", "other"]

MOST_CHANNELS = 16  # of a signal; inputs with more rows are rather sequences of vectors
TIMES_LONGER = 8  # a signal has at least this many values per channel


@dataclass(frozen=True)
class Features:
    """What is known about flat features: their names, and the scales they are measured in (D,)."""

    names: tuple[str, ...] | None = None
    scale: Tensor | None = None


@dataclass(frozen=True, eq=False)
class View:
    """One sample of a profile, in the form in which it is drawn.

    Attributes:
        profile: the profile it is taken from.
        row: the number of the sample.
        classes: names of the classes, one per column.
        features: names and scales of flat features.
        kind: pictures (h, w, 1 or 3), signals (channels, T), flat features (D,), or anything else.
        before: x0 in that form, in double precision on the CPU.
        after: x+ in that form.
        beside: a picture of the input, if something else moved.
    """

    profile: Profile
    row: int
    classes: tuple[str, ...]
    features: Features
    kind: Kind
    before: Tensor
    after: Tensor
    beside: Tensor | None

    @staticmethod
    def of(
        profile: Profile,
        row: int,
        classes: tuple[str, ...],
        features: Features = Features(),
        given: Tensor | None = None,
    ) -> View:
        """Find the form: that of `given` if it has as many numbers, else that of x0."""
        before, after = (
            values[row].detach().double().cpu() for values in (profile.x0, profile.perturbed)
        )
        beside, flat = None, False
        if given is not None and given.numel() != before.numel():
            beside = as_picture(given, without_channels=True)
        elif given is not None:
            before, after = before.reshape(given.shape), after.reshape(given.shape)
            flat = as_signal(given) is None and min(given.shape, default=0) > 1
        pictures = _both(partial(as_picture, without_channels=flat), before, after)
        signals = _both(as_signal, before, after)
        kind: Kind = "other"
        moves = profile.settings.moves
        if not bool((after - before).isfinite().all()):
            pass  # nothing to draw; the title says why
        elif pictures is not None and beside is None:
            kind, (before, after) = "picture", pictures
        elif signals is not None and moves not in ("module", "parameters"):
            kind, (before, after) = "signal", signals
        elif before.dim() == 1 and (moves != "parameters" or features.names is not None):
            kind = "features"
        return View(profile, row, classes, features, kind, before, after, beside)

    @property
    def solved(self) -> bool:
        """Whether all credibilities, before and after, are numbers."""
        both = torch.stack([self.profile.credence[self.row], self.profile.credibility[self.row]])
        return bool(both.isfinite().all())

    @property
    def move(self) -> Tensor:
        """x+ - x0, in the form in which it is drawn."""
        return self.after - self.before

    def title(self) -> str:
        """The class ahead at x0, the class ahead at x+, and the distance between the two."""
        status = self.profile.status[self.row]
        if not self.solved:
            return f"No profile ({status.label}): {status.advice}"
        credence, credible = self.profile.credence[self.row], self.profile.credibility[self.row]
        first, last = int(self.profile.predicted_column[self.row]), int(credible.argmax())
        best = credence[first]
        by_softmax = self.profile.settings.loss == "CrossEntropy()"
        sure = f"{100 * best.exp():.1f} % by softmax" if by_softmax else f"credibility {best:.3g}"
        ahead = "still ahead at x+" if first == last else f"{self._class(last)} ahead at x+"
        stuck = "" if status.usable else f" ({status.label}: no search)"
        return f"{self._class(first)} at x0, {sure}; {ahead}{stuck}; {self._distance()}"

    def _class(self, column: int) -> str:
        name = self.classes[column]
        place = torch.tensor([column], device=self.profile.codes.device)
        number = int(self.profile[self.row].classes_of(place))
        return f"class {name}" if name == str(number) else _shorten(name, 40)

    def _distance(self) -> str:
        length, plain = float(self.profile.risk[self.row].double().sqrt()), float(self.move.norm())
        if abs(length - plain) > 1e-3 * max(length, plain):
            return f"|x+ - x0| = {length:.3g} in the scales of the space"
        return f"|x+ - x0| = {length:.3g}, |x0| = {float(self.before.norm()):.3g}"

    def sentence(self) -> str:
        """How far an input moved that cannot be drawn."""
        shape = "" if self.before.dim() == 1 else f" in the shape {tuple(self.before.shape)}"
        return (
            f"What moved, {_shorten(self.profile.settings.space)}: {self.move.numel()} numbers"
            f"{shape}, by {float(self.move.norm()):.3g} in all; the largest change is "
            f"{float(self.move.abs().max()):.3g}."
        )


def as_picture(values: Tensor, *, without_channels: bool = False) -> Tensor | None:
    """A sample as (h, w, 1 or 3) if it looks like an image; (h, w) counts if `without_channels`."""
    if values.dim() == 3 and values.shape[0] in (1, 3):
        return values.movedim(0, -1)
    if values.dim() == 3 and values.shape[-1] in (1, 3):
        return values
    return values[..., None] if without_channels and values.dim() == 2 else None


def as_signal(values: Tensor) -> Tensor | None:
    """A sample as (channels, T), if it has few channels and many values in each."""
    if values.dim() != 2:
        return None
    channels, length = sorted(values.shape)
    if channels > MOST_CHANNELS or length < max(TIMES_LONGER * channels, 2 * TIMES_LONGER):
        return None
    return values if values.shape[0] == channels else values.T


def _both(
    form: Callable[[Tensor], Tensor | None], before: Tensor, after: Tensor
) -> tuple[Tensor, Tensor] | None:
    first, last = form(before), form(after)
    return None if first is None or last is None else (first, last)


def _shorten(text: str, most: int = 70) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"
