"""The answer: a batch of credibility profiles, frozen, with everything needed to check it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from credibly.errors import InvalidArgumentError
from credibly.profile.certificate import Certificate
from credibly.profile.partial import Partial
from credibly.solve.status import Status
from credibly.types import shortest_repr, whole_number

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, repr=False)
class Settings:
    """What a profile was made with, so that it can be traced and repeated."""

    weights: tuple[float, ...]
    solver: str
    loss: str
    dtype: str
    classes: tuple[str, ...] | None = None
    bounds: tuple[float, float] | None = None
    space: str = "inputs"
    model: str = ""
    version: str = ""

    @property
    def gamma(self) -> float | None:
        """The one weight, where all classes have the same."""
        return self.weights[0] if len(set(self.weights)) == 1 else None

    def weights_in_words(self) -> str:
        """'gamma 200', or that the classes have weights of their own."""
        if self.gamma is None:
            return "weights of their own"
        return f"gamma {shortest_repr(self.gamma)}"

    def __repr__(self) -> str:
        """The weights as one number where they are, and the names of classes as their count."""
        rest = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "weights"}
        shown = [f"{name}={value!r}" for name, value in rest.items() if name != "classes"]
        return f"Settings({self.weights_in_words()} x {len(self.weights)}, {', '.join(shown)})"


@dataclass(frozen=True, repr=False, eq=False)
class Profile(Partial):
    """Credibility profiles of N inputs; the sample axis is first everywhere.

    Attributes:
        credibility: c+ (N, K), at most 0; higher is more credible.
        credence: c0 (N, K), the same at the untouched input.
        risk: |x+ - x0|^2 (N,), in the squared units of the input, or in the metric of a `Space`.
        x0: the inputs (N, ...), or the part of them that may move.
        perturbed: x+ (N, ...).
        multipliers: lambda (N, K) = 2 l / w at x+.
        certificate: residuals of the optimality conditions.
        steps: solver steps (N,).
        passes: forward-and-backward passes through the model (N,); a forward alone is a third.
            Passes in which a finished sample still waited in the batch are counted, too.
        codes: the status of each sample as a number (N,); `status` has the names.
        settings: weights, solver, loss, version.
    """

    credibility: Tensor
    credence: Tensor
    risk: Tensor
    x0: Tensor
    perturbed: Tensor
    multipliers: Tensor
    certificate: Certificate
    steps: Tensor
    passes: Tensor
    codes: Tensor
    settings: Settings

    @cached_property
    def status(self) -> tuple[Status, ...]:
        """One `Status` a sample; `print(profile.status[0])` gives its name in words."""
        return tuple(Status(code) for code in self.codes.tolist())

    @property
    def gamma(self) -> float | None:
        """The one weight of all classes, also where it was found by gamma='auto'."""
        return self.settings.gamma

    @property
    def usable(self) -> Tensor:
        """Samples (N,) whose profile was really solved for."""
        good = torch.tensor([status.usable for status in Status], device=self.codes.device)
        return good[self.codes.long()]

    def ranking(self) -> Tensor:
        """Classes from most to least credible (N, K)."""
        return self.credibility.argsort(dim=1, descending=True, stable=True)

    def class_name(self, index: int) -> str:
        """Name of a class, or its number."""
        names = self.settings.classes
        return str(index) if names is None else names[index]

    def __len__(self) -> int:
        return len(self.codes)

    def __getitem__(self, rows: int | slice | Sequence[int] | Tensor) -> Profile:
        """The chosen samples; a single number gives a profile of one."""
        chosen = _row_indices(rows, len(self), self.codes.device)
        values: dict[str, Any] = {
            name: getattr(self, name)[chosen] for name in self.stored() if name != "settings"
        }
        return Profile.holding({**values, "settings": self.settings})

    @staticmethod
    def concatenate(parts: Sequence[Profile]) -> Profile:
        """One profile of many that were made with the same settings."""
        if not parts:
            raise InvalidArgumentError(
                "parts", expected="at least one profile", got="none", remedy="Check the list."
            )
        for number, part in enumerate(parts):
            if part.settings != parts[0].settings:
                one, other = _differences(parts[0].settings, part.settings)
                raise InvalidArgumentError(
                    "parts",
                    expected=f"the same settings everywhere, as in part 0: {one}",
                    got=f"{other} in part {number}",
                    remedy="Profiles of other weights, solvers or losses are not comparable. With "
                    "gamma='auto' call auto_gamma once and pass its number to every batch.",
                )
        joined: dict[str, Any] = {}
        for name in set(parts[0].stored()).intersection(*(part.stored() for part in parts)):
            values = [getattr(part, name) for part in parts]
            if name == "certificate":
                joined[name] = Certificate.concatenate(values)
            elif name == "settings":
                joined[name] = values[0]
            else:
                joined[name] = torch.cat(values)
        return Profile.holding(joined)

    def summary(self) -> str:
        """A few lines a person reads: how it went, what it found, what it cost."""
        counts = Counter(self.status)
        good = self.usable
        lines = [f"{len(self)} profiles of {self.credibility.shape[1]} classes, {_weights(self)}"]
        for status, count in sorted(counts.items()):
            lines.append(f"  {count:>6} {status.label}: {status.advice}")
        if bool(good.any()):
            kept = self.credibility[good].argmax(1) == self.credence[good].argmax(1)
            distance = self.risk[good].sqrt()
            stationarity = self.certificate.relative_stationarity[good]
            passes = self.passes[good]
            lines += [
                f"  class unchanged by the trade-off: {kept.double().mean():.1%}",
                f"  distance |x+ - x0|: median {distance.median():.4g}, most {distance.max():.4g}",
                f"  relative stationarity: median {stationarity.median():.2g}",
                f"  passes a sample: median {passes.median():.0f}, most {passes.max():.0f}",
            ]
        return "\n".join(lines)

    def __repr__(self) -> str:
        counts = ", ".join(f"{n} {s.label}" for s, n in sorted(Counter(self.status).items()))
        size = f"{len(self)} x {self.credibility.shape[1]} classes"
        return f"Profile({size}, {_weights(self)}; {counts})"

    def save(self, path: str | Path) -> None:
        """Write a safetensors file with the settings inside; see `Profile.load`.

        A name of another format, such as .parquet or .csv, is refused; see `to_parquet` and
        `to_pandas`.
        """
        from credibly.profile.files import save_profile

        save_profile(self, path)

    @staticmethod
    def load(path: str | Path) -> Profile:
        """Read what `save` wrote. Nothing in the file is executed."""
        from credibly.profile.files import load_profile

        return load_profile(path)

    def to_pandas(self) -> pd.DataFrame:
        """One row a sample: prediction, credibilities, risk, status, certificate."""
        from credibly.profile.files import to_pandas

        return to_pandas(self)

    def to_parquet(self, path: str | Path) -> None:
        """The table of `to_pandas` as a Parquet file, with the settings in its metadata."""
        from credibly.profile.files import write_parquet

        write_parquet(self, path)

    @staticmethod
    def from_parquet(path: str | Path) -> Profile:
        """Read what `to_parquet` or `credibly score` wrote, to decide by it.

        Every score, rule and verdict made from it equals the one made from the profile itself. A
        table has nothing of the inputs: `x0`, `perturbed`, `steps` and the numbers of the
        certificate other than `objective`, `relative_stationarity` and `decrease` are not there,
        and asking for them is a `NotStoredError`. So it can be neither saved nor drawn, nor passed
        to `attached_credibility` or `token_movement`. Rows come in the order of the file (ids are
        in its column `id`), on the CPU; 'outside bounds' and 'unreadable file' become
        NON_FINITE_INPUT, 'model failed' becomes NON_FINITE_MODEL.
        """
        from credibly.profile.parquet import read_parquet

        return read_parquet(path)


def _weights(profile: Profile) -> str:
    return profile.settings.weights_in_words()


def _differences(one: Settings, other: Settings) -> tuple[str, str]:
    """The settings that differ, in words, of the one and of the other."""
    names = [f.name for f in fields(one) if getattr(one, f.name) != getattr(other, f.name)]
    left, right = ([_setting(settings, name) for name in names] for settings in (one, other))
    return ", ".join(left), ", ".join(right)


def _setting(settings: Settings, name: str) -> str:
    if name == "weights" and settings.gamma is not None:
        return f"gamma {settings.gamma:.8g} for {len(settings.weights)} classes"
    return f"{name} {getattr(settings, name)}"


def _row_indices(
    rows: int | slice | Sequence[int] | Tensor, count: int, device: torch.device
) -> Tensor:
    everything = torch.arange(count, device=device)
    single = whole_number(rows)
    if single is not None:
        if not -count <= single < count:
            message = f"sample {single} of a profile of {count}"
            raise IndexError(message)
        return everything[single].reshape(1)
    if isinstance(rows, slice):
        rows = range(count)[rows]  # torch itself knows no way backwards
    if not isinstance(rows, Tensor):
        # Python's own numbers: of NumPy's bytes torch would make a mask
        listed = np.asarray(list(rows)).tolist()  # type: ignore[arg-type]  # ints are gone
        rows = torch.as_tensor(listed, dtype=None if listed else torch.long, device=device)
    if rows.dim() != 1:
        message = f"rows of shape {tuple(rows.shape)}, where a list of samples or a mask should be"
        raise IndexError(message)
    numbers = rows.dtype != torch.bool and not rows.is_floating_point()
    return everything[rows.long() if numbers else rows]  # torch takes bytes for a mask
