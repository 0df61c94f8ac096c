"""One verdict per input that a person can act on."""

from __future__ import annotations

from enum import StrEnum


class Verdict(StrEnum):
    """What to make of a prediction; equal to its name, `Verdict.TRUST == "trust"`.

    Example:
        >>> import credibly as cr
        >>> print(cr.Verdict.DOUBTFUL, "-", cr.Verdict.DOUBTFUL.advice)
        doubtful - Nothing is wrong with the input, but the class is less sure: ask a person.
    """

    TRUST = "trust"
    DOUBTFUL = "doubtful"
    OUTLIER = "outlier"
    TAMPERED = "tampered"
    UNUSABLE = "unusable"

    @property
    def code(self) -> int:
        """Its place among the verdicts, for tensors."""
        return list(Verdict).index(self)

    @property
    def advice(self) -> str:
        """What to do."""
        return _ADVICE[self]


_ADVICE = {
    Verdict.TRUST: "Use the class.",
    Verdict.DOUBTFUL: "Nothing is wrong with the input, but the class is less sure: ask a person.",
    Verdict.OUTLIER: "It is unlike the ordinary inputs: it may belong to no class or be damaged. "
    "Do not use the class; check where it comes from.",
    Verdict.TAMPERED: "The model is sure of it in an unusual way, as after an attack. Do not use "
    "the class; check where it comes from.",
    Verdict.UNUSABLE: "It holds NaN or infinity, or the model gives such numbers for it.",
}
