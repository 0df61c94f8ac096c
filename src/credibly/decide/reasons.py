"""Why a verdict was given: which signal, and how rare it is among ordinary inputs."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self, overload

import torch
from torch import Tensor

from credibly.decide.alarm import Scales
from credibly.decide.ranges import Ranges
from credibly.decide.signals import Signals
from credibly.decide.verdict import Verdict

RAREST = 1e-4
"""Shares below this are not told apart: tails are extrapolated."""

TOGETHER = 0.01
"""Shares above this do not explain an alarm alone: other signals are strange, too."""

SHOWN = 10
"""Sentences at most that are printed."""

_STRANGE = {
    "range": "its values lie outside their range",
    "features": "what the network makes of it is far from what it makes of ordinary inputs",
    "inputs": "it is far from all ordinary inputs",
    "statistics": "its mean, spread and roughness are unlike those of all ordinary inputs",
    "correlations": "its columns contradict each other, as those of ordinary inputs do not",
    "energy": "its logits are unusually small",
    "shift": "moving it hardly changes what the classes can claim",
    "gain": "hardly any of its misfit can be removed by moving it",
}
_UNUSUAL = {
    "confidence": "the network is unusually sure of it, or unusually unsure",
    "together": "what it takes to change the network's mind is unusual",
}


@dataclass(frozen=True, eq=False, repr=False)
class Reasons(Sequence[str]):
    """One sentence per input, written when it is read.

    Attributes:
        scales: what the signals were compared with.
        ranges: of the ordinary inputs, to name the value that lies outside.
        signals: of the inputs (N,).
        columns: what ranges look at (N, d), if they are known.
        codes: of the verdicts (N,).
        doubt: how the trust of the inputs ranks among ordinary ones (N,): the share below.
    """

    scales: Scales
    ranges: Ranges | None
    signals: Signals
    columns: Tensor | None
    codes: Tensor
    doubt: Tensor

    def __len__(self) -> int:
        return len(self.codes)

    def __repr__(self) -> str:
        return "\n".join([*self[:SHOWN], *(["..."] if len(self) > SHOWN else [])])

    @overload
    def __getitem__(self, index: int) -> str: ...

    @overload
    def __getitem__(self, index: slice) -> list[str]: ...

    def __getitem__(self, index: int | slice) -> str | list[str]:
        if isinstance(index, slice):
            return [self[row] for row in range(*index.indices(len(self)))]
        index = operator.index(index)
        if not -len(self) <= index < len(self):
            raise IndexError(index)
        index %= len(self)
        verdict = tuple(Verdict)[int(self.codes[index])]
        if verdict is Verdict.UNUSABLE:
            return "unusable: the input or the model's answer holds NaN or infinity"
        if verdict in (Verdict.TRUST, Verdict.DOUBTFUL):
            below = float(self.doubt[index])
            doubtful = verdict is Verdict.DOUBTFUL
            rank = f"less sure than {1 - below:.0%}" if doubtful else f"surer than {below:.0%}"
            odd = self._odd(index) or "the input looks ordinary"
            return f"{verdict}: {rank} of ordinary inputs; {odd}"
        return f"{verdict}: {self._strangest(index, verdict)}"

    def _strangest(self, index: int, verdict: Verdict) -> str:
        one = {name: values[index : index + 1] for name, values in self.signals.items()}
        found = self.scales.surprises(one)
        if verdict is Verdict.TAMPERED:
            unusual = self.scales.unusualness(one)
            found = {f"tampered {name}": values for name, values in unusual.items()}
        shares = {n: float(torch.exp(-values)) for n, values in found.items()}
        known = [n for n in (*_STRANGE, *found) if n in found and not math.isnan(shares[n])]
        if not known:
            return "it is unlike the ordinary inputs"
        # of several that are as rare as can be told, the first says most
        name = min(known, key=lambda n: max(shares[n], RAREST))
        share = shares[name]
        more = "several things together; above all " if share > TOGETHER else ""
        rare = f"{share:.2%}" if share >= RAREST else f"under {RAREST:.2%}"
        return f"{more}{self._words(name, index)} (estimated: {rare} of ordinary inputs)"

    def _words(self, name: str, index: int) -> str:
        if name.startswith("tampered "):
            return _UNUSUAL[name.removeprefix("tampered ")]
        outside = self._outside(index) if name == "range" else ""
        return outside or _STRANGE[name]

    def _outside(self, index: int) -> str:
        """What lies outside the range of the ordinary inputs; '' if nothing does."""
        if self.ranges is None or self.columns is None:
            return ""
        return self.ranges.outside(self.columns[index])

    def _odd(self, index: int) -> str:
        """What lies outside and raised no alarm, since ordinary inputs do that, too."""
        beyond = "range" in self.signals and float(self.signals["range"][index]) > 0
        outside = self._outside(index) if beyond else ""
        return f"{outside}, which alone raises no alarm" if outside else ""

    def select(self, rows: Tensor) -> Self:
        """The chosen inputs."""
        return replace(
            self,
            signals={name: values[rows] for name, values in self.signals.items()},
            columns=None if self.columns is None else self.columns[rows],
            codes=self.codes[rows],
            doubt=self.doubt[rows],
        )

    @classmethod
    def concatenate(cls, parts: Sequence[Reasons]) -> Reasons:
        """The reasons of many batches."""
        first = parts[0]
        known = [part.columns for part in parts if part.columns is not None]
        return replace(
            first,
            signals={n: torch.cat([part.signals[n] for part in parts]) for n in first.signals},
            columns=torch.cat(known) if len(known) == len(parts) else None,
            codes=torch.cat([part.codes for part in parts]),
            doubt=torch.cat([part.doubt for part in parts]),
        )
