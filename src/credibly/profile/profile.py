"""The result: a batch of credibility profiles, with everything needed to check it."""
# ruff: noqa: RUF009  # `Stored()` is a descriptor, not a default

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch
from torch import Tensor

from credibly._validation import require
from credibly.errors import InvalidArgumentError
from credibly.model.joined import UNKNOWN
from credibly.problem.rows import Rows, Stored
from credibly.profile.certificate import Certificate
from credibly.profile.files import load_parts, save_profile
from credibly.profile.parquet import read_parts, to_pandas, write_parquet
from credibly.profile.settings import Settings
from credibly.profile.shown import profile_html
from credibly.solve.status import Status

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Profile", "Settings"]

OTHERS = "(others)"
"""The name of all classes that have no column of their own."""


@dataclass(frozen=True, repr=False, eq=False)
class Profile(Rows):
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
        passes: forward-and-backward passes through the model (N,); a forward alone is a third. What
            only fills up a batch does not count, nor what is found once for a call: gamma='auto',
            and the classes of `top`.
        codes: the status of each sample as a number (N,); `status` has the names.
        settings: weights, solver, loss, version.
        kept: with `top`, the numbers of the classes that the columns are about (N, m), the most
            probable at x0 first; the last column is all other classes together. -1 where they are
            not known. None for an ordinary profile, which has a column for every class.

    Example:
        >>> import torch, credibly as cr
        >>> clf = cr.Classifier(lambda x: x @ torch.tensor([[2.0, -2.0], [1.0, 0.0]]))
        >>> profile = cr.credibility(clf, torch.tensor([[1.0, 2.0], [0.0, 0.1]]), gamma=5.0)
        >>> profile
        Profile(2 x 2 classes, gamma 5; 2 converged)
        >>> profile[profile.risk < 0.1].credibility.argmax(1)
        tensor([0])
    """

    credibility: Tensor
    credence: Tensor
    risk: Tensor
    multipliers: Tensor
    certificate: Certificate
    passes: Tensor
    codes: Tensor
    settings: Settings
    x0: Stored = Stored()
    perturbed: Stored = Stored()
    steps: Stored = Stored()
    kept: Tensor | None = None

    @cached_property
    def status(self) -> tuple[Status, ...]:
        """One `Status` per sample; `print(profile.status[0])` gives its name in words."""
        return tuple(Status(code) for code in self.codes.tolist())

    @property
    def gamma(self) -> float | None:
        """The weight of all classes, also if gamma='auto' found it; None if they differ."""
        return self.settings.gamma

    @property
    def usable(self) -> Tensor:
        """Samples (N,) whose profile was solved for."""
        good = torch.tensor([status.usable for status in Status], device=self.codes.device)
        return good[self.codes.long()]

    @property
    def class_count(self) -> int:
        """How many classes the model has; with `top` these are more than there are columns."""
        return self.settings.class_count or self.credibility.shape[1]

    @property
    def predicted(self) -> Tensor:
        """Numbers (N,) of the classes that the model predicts at x0; -1 where a loss is NaN.

        They are those of `Classifier.predict`, unless losses tie. With `top`, it is the most
        probable of the kept classes, even where all others together are more probable.
        """
        unknown = self.credence.isnan().any(1)
        return self.classes_of(self.predicted_column).masked_fill(unknown, UNKNOWN)

    @property
    def predicted_column(self) -> Tensor:
        """The columns (N,) of the predicted classes in `credibility` and `credence`."""
        own = self.credence if self.kept is None else self.credence[:, :-1]
        return own.nan_to_num(-torch.inf).argmax(1)

    def ranking(self) -> Tensor:
        """Classes from most to least credible (N, K).

        With `top` there are m + 1 of them, and -1 stands for all other classes together.
        """
        return self.classes_of(self.credibility.argsort(dim=1, descending=True, stable=True))

    def classes_of(self, columns: Tensor) -> Tensor:
        """The numbers of the classes in these columns (N,) or (N, ...); -1 for the joined one."""
        if self.kept is None:
            return columns
        known = torch.nn.functional.pad(self.kept, (0, 1), value=UNKNOWN)
        return known.gather(1, columns.reshape(len(columns), -1)).reshape(columns.shape)

    def class_name(self, index: int) -> str:
        """The name of a class, or its number if there are no names; '(others)' for a joined one."""
        if self.kept is not None and index == UNKNOWN:
            return OTHERS
        names = self.settings.classes
        return str(index) if names is None else names[index]

    def column_names(self, row: int) -> tuple[str, ...]:
        """The names of the classes that the columns of one sample are about."""
        columns = torch.arange(self.credibility.shape[1], device=self.credibility.device)
        here = self.select(slice(row, row + 1)) if self.kept is not None else self
        numbers = here.classes_of(columns[None]).flatten().tolist()
        return tuple(self.class_name(k) for k in numbers)

    def __len__(self) -> int:
        return len(self.codes)

    def __getitem__(self, rows: int | slice | Sequence[int] | Tensor) -> Profile:
        """The chosen samples; a single number gives a profile of one."""
        return self.select(_row_indices(rows, len(self), self.codes.device))

    @classmethod
    def concatenate(cls, parts: Sequence[Self]) -> Self:
        """One profile of many that were made with the same settings."""
        require(len(parts) > 0, "parts", "at least one profile", "none", "Check the list.")
        for number, part in enumerate(parts):
            if part.settings != parts[0].settings:
                one, other = parts[0].settings.differences(part.settings)
                raise InvalidArgumentError(
                    "parts",
                    expected=f"the same settings everywhere, as in part 0: {one}",
                    got=f"{other} in part {number}",
                    remedy="Profiles of other weights, solvers or losses are not comparable. With "
                    "gamma='auto' call auto_gamma once and pass its number to every batch.",
                )
        return super().concatenate(parts)

    def summary(self) -> str:
        """A few lines to read: how it went, what was found, what it cost."""
        counts, good = Counter(self.status), self.usable
        classes, weights = self._classes_in_words(), self.settings.weights_in_words()
        lines = [f"{len(self)} profiles of {classes}, {weights}"]
        for status, count in sorted(counts.items()):
            lines.append(f"  {count:>6} {status.label}: {status.advice}")
        if bool(good.any()):
            kept = self.credibility[good].argmax(1) == self.predicted_column[good]
            unchanged = "class unchanged by the trade-off"
            if self.kept is not None:
                unchanged = "predicted class ahead at x+"
            distance = self.risk[good].sqrt()
            stationarity = self.certificate.relative_stationarity[good]
            passes = self.passes[good]
            lines += [
                f"  {unchanged}: {kept.double().mean():.1%}",
                f"  distance |x+ - x0|: median {distance.median():.4g}, most {distance.max():.4g}",
                f"  relative stationarity: median {stationarity.median():.2g}",
                f"  passes per sample: median {passes.median():.0f}, most {passes.max():.0f}",
            ]
        return "\n".join(lines)

    def __repr__(self) -> str:
        counts = ", ".join(f"{n} {s.label}" for s, n in sorted(Counter(self.status).items()))
        size = f"{len(self)} x {self._classes_in_words()}"
        return f"Profile({size}, {self.settings.weights_in_words()}; {counts})"

    def _repr_html_(self) -> str:
        return profile_html(self)

    def _classes_in_words(self) -> str:
        ordinary = f"{self.credibility.shape[1]} classes"
        return ordinary if self.kept is None else self.settings.classes_in_words()

    def save(self, path: str | Path) -> None:
        """Write a safetensors file with everything in it; see `Profile.load`.

        A name of another format, such as .parquet or .csv, is refused; see `to_parquet` and
        `to_pandas`.
        """
        save_profile(self, path)

    @staticmethod
    def load(path: str | Path) -> Profile:
        """Read what `save` wrote. Nothing in the file is executed."""
        return Profile(**load_parts(path))

    def to_pandas(self) -> pd.DataFrame:
        """One row per sample: prediction, credibilities, risk, status, certificate."""
        return to_pandas(self)

    def to_parquet(self, path: str | Path) -> None:
        """The table of `to_pandas` as a Parquet file, with the settings in its metadata."""
        write_parquet(self, path)

    @staticmethod
    def from_parquet(path: str | Path) -> Profile:
        """Read what `to_parquet` or `credibly score` wrote, to make decisions from it.

        Every score, rule and verdict from it equals the one from the original profile. A table has
        nothing of the inputs: `x0`, `perturbed`, `steps` and the numbers of the certificate other
        than `objective`, `relative_stationarity` and `decrease` are missing, and reading them
        raises a `NotStoredError`. So it cannot be saved, drawn, or passed to `attached_credibility`
        or `token_movement`. Rows are in the order of the file (ids are in its column `id`), on the
        CPU; 'outside bounds' and 'unreadable file' become NON_FINITE_INPUT, 'model failed' becomes
        NON_FINITE_MODEL.
        """
        return Profile(**read_parts(path))


def _row_indices(
    rows: int | slice | Sequence[int] | Tensor, count: int, device: torch.device
) -> Tensor:
    """The numbers of the chosen rows, by the rules of NumPy."""
    index: Any = rows.cpu().numpy() if isinstance(rows, Tensor) else rows
    if not isinstance(index, slice):
        index = np.asarray(index)
        index = index if index.size else index.astype(int)  # an empty list has no integers
    chosen = np.atleast_1d(np.arange(count)[index])
    if chosen.ndim != 1:
        message = f"rows of shape {chosen.shape}, expected a list of samples or a mask"
        raise IndexError(message)
    return torch.from_numpy(chosen.copy()).to(device)
