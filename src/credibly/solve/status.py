"""How each sample's solve ended, and what to do about it."""

from __future__ import annotations

from enum import IntEnum


class Status(IntEnum):
    """One a sample. `advice` says in a sentence what it means and what to try.

    Printed it is its name in words; as a number it is what `profile.codes` holds.
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
        """Whether the profile of such a sample is a trade-off that was really searched for."""
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
    Status.CONVERGED: "The gradient of the objective vanished to the asked tolerance.",
    Status.STALLED: (
        "No further decrease was found though the gradient is not zero: usual on networks with "
        "ReLU or max-pooling, whose minima sit on kinks. certificate.relative_stationarity says "
        "how far from zero. For a little more decrease, at more passes, use Hybrid(effort=4)."
    ),
    Status.STEP_LIMIT: (
        "The steps ran out before the objective settled, as most do by design along a path over "
        "gamma. To go further, at more passes, use a solver of more steps, or Hybrid()."
    ),
    Status.NO_GRADIENT: (
        "The losses do not change with the input at x0 (saturated or cut off), so x0 itself is "
        "returned. Look for dead units, clipping or integer steps in the model."
    ),
    Status.NON_FINITE_INPUT: (
        "The input holds NaN or infinity; its profile is NaN. Clean this sample."
    ),
    Status.NON_FINITE_MODEL: (
        "The model's losses or gradients were not finite, or became so when divided by a very "
        "small gamma. If that was at x0, x0 is returned as it is (NaN where the losses are); if "
        "later, the best point before: use a smaller step."
    ),
}
