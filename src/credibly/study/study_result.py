"""What a study found, as plain numbers, and its two files: `result.json` and `scores.parquet`."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from credibly.errors import FileFormatError, MissingExtraError
from credibly.io.whole_files import whole_file
from credibly.metrics.intervals import Interval
from credibly.study.study import Kind, Rows
from credibly.version import __version__

FORMAT, FORMAT_VERSION = "credibly.study-result", 1

_COLUMNS = ("set", "kind", "row", "label", "predicted", "credible")


@dataclass(frozen=True)
class FailureResult:
    """How well one score ranks the failures of a system on one set.

    Attributes:
        metrics: 'aurc', 'e_aurc', 'augrc' (low is good), 'auroc' (high is good), 'fpr95' (the share
            of right answers refused with 95 % of the wrong ones, low is good), 'accuracy at 0.9'
            and so on for other coverages, 'coverage at 99 % accuracy' (high is good).
        intervals: of some of the metrics.
        differences: metric less that of the reference score, on the same resamples.
    """

    metrics: Mapping[str, float]
    intervals: Mapping[str, Interval]
    differences: Mapping[str, Interval]


@dataclass(frozen=True)
class DetectionResult:
    """How well one score tells a set from the ordinary one: flagged is what is trusted less.

    Attributes:
        metrics: 'auroc', 'aupr' (high is good) and 'fpr95' (low is good); 0.5 is a coin for the
            first. The members of the set are the positives.
        two_sided: the same with what lies far from the ordinary median flagged, on either side.
        difference: AUROC less that of the reference score, which is one-sided.
        two_sided_difference: the same of the two-sided AUROC.
    """

    metrics: Mapping[str, Interval]
    two_sided: Mapping[str, Interval]
    difference: Interval
    two_sided_difference: Interval


@dataclass(frozen=True)
class SetResult:
    """All about one set.

    Attributes:
        kind: as of the set.
        samples: those that count: every score has a number for them.
        left_out: samples without a profile, or with a score that is no number.
        accuracy: of the model's class (system A) and of the most credible class (system B); empty
            for outliers.
        failures: by score, for the model's class; empty for outliers.
        most_credible: for the most credible class, ranked by 'ratio'; its differences are to the
            model's class ranked by the reference.
        detection: by score, for attacked sets and outliers.
        facts: numbers about the run, as in `Rows`.
    """

    kind: Kind
    samples: int
    left_out: int
    accuracy: Mapping[str, float]
    failures: Mapping[str, FailureResult]
    most_credible: FailureResult | None
    detection: Mapping[str, DetectionResult]
    facts: Mapping[str, float]


@dataclass(frozen=True)
class StudyResult:
    """What a study found.

    Attributes:
        reference: name of the score that the others are compared with.
        resamples: of the bootstrap.
        seed: of the resamples.
        sets: by name.
        settings: of the study, as in its `study.json`.
        rows: the columns that the numbers were made of.
        version: of credibly.
    """

    reference: str
    resamples: int
    seed: int
    sets: Mapping[str, SetResult]
    settings: Mapping[str, Any] = field(default_factory=dict)
    rows: Mapping[str, Rows] = field(default_factory=dict, repr=False, compare=False)
    version: str = __version__

    @property
    def ordinary(self) -> str:
        """Name of the ordinary set."""
        return next(name for name, found in self.sets.items() if found.kind == "ordinary")

    def save(self, folder: str | Path) -> None:
        """Write `result.json` and `scores.parquet` (extra 'table'), each whole or not at all.

        Without settings of its own, the result takes those of the `study.json` in the folder.
        """
        place = Path(folder)
        place.mkdir(parents=True, exist_ok=True)
        study = place / "study.json"
        settings = dict(self.settings)
        if not settings and study.exists():
            settings = json.loads(study.read_text("utf-8"))
        text = json.dumps(_as_plain(self, settings), indent=1, allow_nan=False)
        _write_rows(self.rows, place / "scores.parquet")
        with whole_file(place / "result.json") as aside:
            aside.write_text(text + "\n", encoding="utf-8")

    @staticmethod
    def load(folder: str | Path) -> StudyResult:
        """Read what `save` wrote; without `scores.parquet` there are no rows."""
        path = Path(folder) / "result.json"
        try:
            values = json.loads(path.read_text("utf-8"))
        except FileNotFoundError as error:
            raise FileFormatError(f"{path}: no such file.") from error
        except ValueError as error:
            raise FileFormatError(f"{path}: not readable as JSON ({error}).") from error
        _check_format(values, path)
        table = path.with_name("scores.parquet")
        try:
            return _from_plain(values, _read_rows(table) if table.exists() else {})
        except (KeyError, TypeError, AttributeError) as error:
            raise FileFormatError(f"{path}: cannot be read ({error!r}).") from error


def _as_plain(result: StudyResult, settings: Mapping[str, Any]) -> dict[str, Any]:
    sets = {name: asdict(found) for name, found in result.sets.items()}
    return {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "credibly": result.version,
        "reference": result.reference,
        "resamples": result.resamples,
        "seed": result.seed,
        "settings": _no_nan(settings),
        "sets": _no_nan(sets),
    }


def _no_nan(value: Any) -> Any:
    """JSON has no NaN and no infinity: null stands for the first, words for the second."""
    if isinstance(value, Mapping):
        return {name: _no_nan(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_no_nan(part) for part in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else str(value)
    return value


def _check_format(values: Any, path: Path) -> None:
    if not isinstance(values, dict) or values.get("format") != FORMAT:
        raise FileFormatError(f"{path}: not the result of a study.")
    if values.get("format_version") != FORMAT_VERSION:
        raise FileFormatError(
            f"{path}: format version {values.get('format_version')!r}; this credibly reads "
            f"{FORMAT_VERSION}. Install a newer one."
        )


def _from_plain(values: dict[str, Any], rows: Mapping[str, Rows]) -> StudyResult:
    return StudyResult(
        reference=values["reference"],
        resamples=values["resamples"],
        seed=values["seed"],
        sets={name: _set(found) for name, found in values["sets"].items()},
        settings=values["settings"],
        rows={
            name: Rows(r.kind, r.labels, r.predicted, r.credible, r.scores, dict(facts))
            for name, r in rows.items()
            if (facts := _numbers(values["sets"][name]["facts"])) is not None
        },
        version=values["credibly"],
    )


def _set(values: dict[str, Any]) -> SetResult:
    best = values["most_credible"]
    return SetResult(
        kind=values["kind"],
        samples=values["samples"],
        left_out=values["left_out"],
        accuracy=_numbers(values["accuracy"]),
        failures={name: _failure(found) for name, found in values["failures"].items()},
        most_credible=None if best is None else _failure(best),
        detection={name: _detection(found) for name, found in values["detection"].items()},
        facts=_numbers(values["facts"]),
    )


def _failure(values: dict[str, Any]) -> FailureResult:
    return FailureResult(
        _numbers(values["metrics"]),
        _intervals(values["intervals"]),
        _intervals(values["differences"]),
    )


def _detection(values: dict[str, Any]) -> DetectionResult:
    return DetectionResult(
        _intervals(values["metrics"]),
        _intervals(values["two_sided"]),
        _interval(values["difference"]),
        _interval(values["two_sided_difference"]),
    )


def _numbers(values: dict[str, Any]) -> dict[str, float]:
    return {name: _number(value) for name, value in values.items()}


def _intervals(values: dict[str, Any]) -> dict[str, Interval]:
    return {name: _interval(value) for name, value in values.items()}


def _interval(values: dict[str, Any]) -> Interval:
    return Interval(**_numbers(values))


def _number(value: Any) -> float:
    return math.nan if value is None else float(value)


def _write_rows(rows: Mapping[str, Rows], path: Path) -> None:
    pa, parquet = _arrow()
    names = sorted({name for part in rows.values() for name in part.scores})
    tables = []
    for name, part in rows.items():
        count = len(part.labels)
        columns: dict[str, Any] = {
            "set": pa.array([name] * count).dictionary_encode(),
            "kind": pa.array([part.kind] * count).dictionary_encode(),
            "row": pa.array(range(count), pa.int64()),
            "label": pa.array(part.labels.numpy()),
            "predicted": pa.array(part.predicted.numpy()),
            "credible": pa.array(part.credible.numpy()),
        }
        for score in names:
            values = part.scores.get(score)
            filled = torch.full((count,), torch.nan) if values is None else values
            columns[f"score.{score}"] = pa.array(filled.double().numpy())
        tables.append(pa.table(columns))
    with whole_file(path) as aside:
        parquet.write_table(pa.concat_tables(tables).unify_dictionaries(), aside)


def _read_rows(path: Path) -> dict[str, Rows]:
    pa, parquet = _arrow()
    try:
        frame = parquet.read_table(path).to_pandas()
    except (pa.ArrowException, OSError) as error:
        raise FileFormatError(f"{path}: not a readable table ({error}).") from error
    missing = [name for name in _COLUMNS if name not in frame]
    if missing:
        raise FileFormatError(f"{path}: the columns {missing} are missing.")
    found = {}
    scores = [name for name in frame.columns if name.startswith("score.")]
    for name, part in frame.groupby("set", sort=False, observed=True):

        def column(key: str, part: Any = part) -> Tensor:
            return torch.tensor(part[key].to_numpy())

        own = {score.removeprefix("score."): column(score) for score in scores}
        found[str(name)] = Rows(
            part["kind"].iloc[0], column("label"), column("predicted"), column("credible"), own, {}
        )
    return found


def _arrow() -> tuple[Any, Any]:
    try:
        import pandas as pd  # noqa: F401
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError as error:
        raise MissingExtraError(
            package=error.name or "pyarrow", extra="table", purpose="A table of all scores"
        ) from error
    return pa, parquet
