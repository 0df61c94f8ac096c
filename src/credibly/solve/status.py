"""How the solve of each sample ended, and what to do about it."""

from __future__ import annotations

from enum import IntEnum


class Status(IntEnum):
    """How the solve of a sample ended; `advice` says what that means and what to do.

    It prints as its name in words; as a number it is what `profile.codes` holds.

    Example: see `Profile`.
    """

    RUNNING = 0
    CONVERGED = 1
    STALLED = 2
    STEP_LIMIT = 3
    NO_GRADIENT = 4
    NON_FINITE_INPUT = 5
    NON_FINITE_MODEL = 6

    @property
    def advice(self) -> str:
        """What this status means and what to do."""
        return _ADVICE[self]

    @property
    def usable(self) -> bool:
        """Whether a search took place, so that the profile can be used."""
        return self in (Status.CONVERGED, Status.STALLED, Status.STEP_LIMIT)

    @property
    def label(self) -> str:
        """Lower-case words for tables."""
        return self.name.lower().replace("_", " ")

    def __str__(self) -> str:
        return self.label

    def __format__(self, spec: str) -> str:
        """Words, unless the format is one of numbers."""
        number = spec[-1:] in tuple("bcdoxXneEfFgG%")
        return format(int(self) if number else str(self), spec)


_ADVICE = {
    Status.RUNNING: "Not finished; never returned.",
    Status.CONVERGED: "The gradient of the objective is zero to the tolerance.",
    Status.STALLED: (
        "The normal ending on networks with ReLU or max-pooling, not a failure: their minima lie "
        "on kinks, where the gradient does not become zero. certificate.relative_stationarity "
        "says how large it is. Hybrid(effort=4) searches a little further, in more passes."
    ),
    Status.STEP_LIMIT: (
        "The steps ran out before the objective settled; along a path over gamma that is normal. "
        "To go on, use a solver with more steps, or Hybrid()."
    ),
    Status.NO_GRADIENT: (
        "The losses do not change with the input at x0 (saturated or cut off), so x0 itself is "
        "returned. Look for dead units, clipping or rounding in the model."
    ),
    Status.NON_FINITE_INPUT: (
        "The input holds NaN or infinity, so its profile is NaN. Clean this sample."
    ),
    Status.NON_FINITE_MODEL: (
        "The losses or gradients of the model were not finite, perhaps after division by a very "
        "small gamma. At x0: x0 is returned (NaN if its losses are). Later: the best point before "
        "is returned; use a smaller step."
    ),
}
