"""What a picture of one profile shows, worked out before anything is drawn."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from credibly.profile.profile import Profile
from credibly.solve.status import Status

Kind = Literal["picture", "signal", "features", "other"]

MOST_CHANNELS = 16
"""Of a signal; what has more rows is rather a sequence of vectors."""
TIMES_LONGER = 8
"""So many values for each channel a signal has at least."""


@dataclass(frozen=True)
class Features:
    """What is known of flat features: their names, and the scales they are measured in (D,)."""

    names: tuple[str, ...] | None
    scale: Tensor | None


@dataclass(frozen=True, eq=False)
class View:
    """One sample of a profile, in the form in which it is drawn.

    Attributes:
        profile: what it was taken from.
        row: which sample.
        classes: names of all classes.
        kind: pictures (h, w, 1 or 3), signals (channels, T), flat features (D,), or anything else.
        before: x0 in that form, in double precision on the CPU.
        after: x+ likewise.
        features: names and scales of flat features, where known.
        beside: a picture of the input, where something else moved.
    """

    profile: Profile
    row: int
    classes: tuple[str, ...]
    kind: Kind
    before: Tensor
    after: Tensor
    features: Features | None
    beside: Tensor | None

    @staticmethod
    def of(
        profile: Profile,
        row: int,
        classes: tuple[str, ...],
        *,
        features: Features | None = None,
        given: Tensor | None = None,
    ) -> View:
        """Find the form: that of `given` where it has as many numbers, else that of x0."""
        x0, moved = profile.x0[row], profile.perturbed[row]
        before, after = (values.detach().double().cpu() for values in (x0, moved))
        beside = None
        if given is not None and given.numel() == before.numel():
            before, after = before.reshape(given.shape), after.reshape(given.shape)
        elif given is not None:
            beside = as_picture(given, without_channels=True)
        rows = 0 if given is None or as_signal(given) is not None else min(given.shape, default=0)
        flat = rows > 1  # one row is no picture
        first = as_picture(before, without_channels=flat)
        last = as_picture(after, without_channels=flat)
        kind: Kind = "other"
        if not bool((after - before).isfinite().all()):
            pass  # there is nothing to draw, and the status says why
        elif first is not None and last is not None and beside is None:
            kind, before, after = "picture", first, last
        elif (pair := _signals(profile, before, after)) is not None:
            kind, (before, after) = "signal", pair
        elif before.dim() == 1 and (features is not None or not _joined(profile)):
            kind = "features"
        return View(profile, row, classes, kind, before, after, features, beside)

    @property
    def status(self) -> Status:
        """How the solve of this sample ended."""
        return self.profile.status[self.row]

    @property
    def solved(self) -> bool:
        """Whether there are numbers for every class, before and after."""
        both = torch.stack([self.profile.credence[self.row], self.profile.credibility[self.row]])
        return bool(both.isfinite().all())

    @property
    def move(self) -> Tensor:
        """x+ - x0, in the form in which it is drawn."""
        return self.after - self.before

    def title(self) -> str:
        """Which class was ahead at x0, which one at x+, and how far apart these are."""
        if not self.solved:
            return f"No profile ({self.status.label}): {self.status.advice}"
        fit, credible = self.profile.credence[self.row], self.profile.credibility[self.row]
        first, last = int(fit.argmax()), int(credible.argmax())
        best = float(fit.max())
        sure = (
            f"{100 * torch.tensor(best).exp():.1f} % by softmax"
            if self.profile.settings.loss == "CrossEntropy()"
            else f"credibility {best:.3g}"
        )
        ahead = "still ahead at x+" if first == last else f"{self._called(last)} ahead at x+"
        stuck = "" if self.status.usable else f" ({self.status.label}: nothing was searched)"
        return f"{self._called(first)} at x0, {sure}; {ahead}{stuck}; {self._distance()}"

    def _called(self, number: int) -> str:
        name = self.classes[number]
        return f"class {name}" if name == str(number) else _short(name, 40)

    def _distance(self) -> str:
        length = float(self.profile.risk[self.row].double().sqrt())
        if "scale=" in self.profile.settings.space:
            return f"|x+ - x0| = {length:.3g} in the scales of the space"
        return f"|x+ - x0| = {length:.3g}, |x0| = {float(self.before.norm()):.3g}"

    def sentence(self) -> str:
        """How far it moved, for what cannot be drawn."""
        space = self.profile.settings.space
        what = "inputs" if space == "inputs" else _short(space)
        shape = "" if self.before.dim() == 1 else f" in the shape {tuple(self.before.shape)}"
        move = self.move
        return (
            f"What moved, {what}: {move.numel()} numbers{shape}, by {float(move.norm()):.3g} in "
            f"all; the one that moved most, by {float(move.abs().max()):.3g}."
        )


def as_picture(values: Tensor, *, without_channels: bool = False) -> Tensor | None:
    """A sample as (h, w, 1 or 3), if it looks like an image; None if it does not.

    Args:
        values: of one sample.
        without_channels: whether (h, w) is one, too. It may as well be a sequence of vectors.
    """
    if values.dim() == 3 and values.shape[0] in (1, 3):
        return values.movedim(0, -1)
    if values.dim() == 3 and values.shape[-1] in (1, 3):
        return values
    return values[..., None] if without_channels and values.dim() == 2 else None


def as_signal(values: Tensor) -> Tensor | None:
    """A sample as (channels, T), if it is few curves of many values; None if it is not."""
    if values.dim() != 2:
        return None
    channels, length = sorted(values.shape)
    if channels > MOST_CHANNELS or length < max(TIMES_LONGER * channels, 2 * TIMES_LONGER):
        return None
    return values if values.shape[0] == channels else values.T


def _signals(profile: Profile, before: Tensor, after: Tensor) -> tuple[Tensor, Tensor] | None:
    """Both as signals, where they are inputs: what a layer gives has other axes."""
    first, last = as_signal(before), as_signal(after)
    inside = profile.settings.space.startswith(("output of module", "parameters "))
    return None if first is None or last is None or inside else (first, last)


def _joined(profile: Profile) -> bool:
    """Whether flat values are not features of one input, but of several parts, or of a model."""
    space = profile.settings.space
    return space.startswith(("parameters ", "Space(vary=[", "Space(vary=("))


def _short(text: str, most: int = 70) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"
