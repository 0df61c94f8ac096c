"""What a study found, as plain numbers, and its two files: `result.json` and `scores.parquet`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, is_dataclass, replace
from pathlib import Path
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

import torch

from credibly._extras import require_table_extra
from credibly.errors import FileFormatError
from credibly.io.files import read_json, whole_file, write_json
from credibly.metrics.intervals import Interval
from credibly.study.rows import Kind, Rows, study_folder, study_settings
from credibly.study.shown import study_html
from credibly.types import CPU
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
        differences: metric minus that of the reference score, on the same resamples.
    """

    metrics: Mapping[str, float]
    intervals: Mapping[str, Interval]
    differences: Mapping[str, Interval]


@dataclass(frozen=True)
class DetectionResult:
    """How well one score separates a set from the ordinary one: less trusted inputs are flagged.

    Attributes:
        metrics: 'auroc', 'aupr' (high is good) and 'fpr95' (low is good); an AUROC of 0.5 is
            chance. The members of the set are the positives.
        two_sided: the same, with inputs far from the ordinary median flagged, on either side.
        difference: AUROC minus that of the reference score, which is one-sided.
        two_sided_difference: the same for the two-sided AUROC.
    """

    metrics: Mapping[str, Interval]
    two_sided: Mapping[str, Interval]
    difference: Interval
    two_sided_difference: Interval


@dataclass(frozen=True)
class SetResult:
    """All results of one set.

    Attributes:
        kind: of the set.
        samples: those that count: every score has a number for them.
        left_out: samples without a profile, or with a score that is not a number.
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
        rows: the columns that the numbers were computed from.
        version: of credibly.

    Example: see `summarise`.
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

    def save(
        self, folder: str | Path, *, ids: Mapping[str, Sequence[int | str | None]] | None = None
    ) -> None:
        """Write `result.json` and `scores.parquet` (extra 'table'), each whole or not at all.

        Without its own settings, the result takes those of the study in the folder. `ids` name the
        rows of each set, in a column of the table.
        """
        place = study_folder(folder)
        place.create()
        settings = dict(self.settings)
        if not settings and place.manifest.exists():
            settings = study_settings(folder)
        plain = asdict(replace(self, settings=settings, rows={}))
        del plain["rows"]  # they are in the table
        if self.rows:
            _write_rows(self.rows, place.part("scores.parquet"), ids)
        marks = {"format": FORMAT, "format_version": FORMAT_VERSION}
        write_json(place.part("result.json"), {**marks, **_without_nan(plain)})

    def _repr_html_(self) -> str:
        return study_html(self)

    @staticmethod
    def load(folder: str | Path) -> StudyResult:
        """Read what `save` wrote; without `scores.parquet` there are no rows."""
        path = Path(folder) / "result.json"
        values = read_json(path, FORMAT, FORMAT_VERSION)
        table = path.with_name("scores.parquet")
        own = {name: part for name, part in values.items() if not name.startswith("format")}
        try:
            found: StudyResult = _from_plain(StudyResult, own)
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise FileFormatError(f"{path}: cannot be read ({error!r}).") from error
        return replace(found, rows=_read_rows(table, found.sets)) if table.exists() else found


def _without_nan(value: Any) -> Any:
    """JSON has no NaN and no infinity: null stands for the first, words for the second."""
    if isinstance(value, Mapping):
        return {name: _without_nan(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(part) for part in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else str(value)
    return value


def _from_plain(kind: Any, value: Any) -> Any:
    """A value of this type from what `asdict` and JSON made of it."""
    if is_dataclass(kind):
        types = get_type_hints(kind)
        return kind(**{name: _from_plain(types[name], part) for name, part in value.items()})  # type: ignore[operator]
    if get_origin(kind) is UnionType:  # a dataclass, or None
        return None if value is None else _from_plain(get_args(kind)[0], value)
    if get_origin(kind) is Mapping:
        return {name: _from_plain(get_args(kind)[1], part) for name, part in value.items()}
    if kind is float:
        return math.nan if value is None else float(value)
    return value


def _id_column(values: list[Any]) -> Any:
    """Ids of all sets as one column: whole numbers, or text if any of them is."""
    import pandas as pd

    if all(value is None or isinstance(value, int) for value in values):
        return pd.array(values, dtype="Int64")
    return [None if value is None else str(value) for value in values]


def _write_rows(
    rows: Mapping[str, Rows],
    path: Path,
    ids: Mapping[str, Sequence[int | str | None]] | None = None,
) -> None:
    require_table_extra("A table of all scores")
    import pandas as pd

    names = sorted({name for part in rows.values() for name in part.scores})
    frames = []
    for name, part in rows.items():
        count = len(part.labels)
        nothing = torch.full((count,), torch.nan, dtype=torch.float64, device=CPU)
        scores = {f"score.{n}": part.scores.get(n, nothing).double().numpy() for n in names}
        columns = (part.labels, part.predicted, part.credible)
        own = (name, part.kind, range(count), *(column.numpy() for column in columns))
        frames.append(pd.DataFrame({**dict(zip(_COLUMNS, own, strict=True)), **scores}))
    table = pd.concat(frames, ignore_index=True).astype({"set": "category", "kind": "category"})
    if ids is not None:
        table.insert(3, "id", _id_column([value for name in rows for value in ids[name]]))
    with whole_file(path) as aside:
        table.to_parquet(aside, engine="pyarrow", index=False)


def _read_rows(path: Path, sets: Mapping[str, SetResult]) -> dict[str, Rows]:
    require_table_extra("A table of all scores")
    import pandas as pd

    found = {}
    try:
        frame = pd.read_parquet(path, engine="pyarrow")
        for name, part in frame.groupby("set", sort=False, observed=True):
            chosen = [key for key in frame if key in _COLUMNS[3:] or str(key).startswith("score.")]
            columns = {str(key): torch.tensor(part[key].to_numpy(), device=CPU) for key in chosen}
            labels, predicted, credible = (columns.pop(key) for key in _COLUMNS[3:])
            scores = {key.removeprefix("score."): values for key, values in columns.items()}
            kind: Any = part["kind"].iloc[0]
            facts = sets[str(name)].facts
            found[str(name)] = Rows(kind, labels, predicted, credible, scores, facts)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:  # of pyarrow, too
        raise FileFormatError(f"{path}: not a readable table of scores ({error!r}).") from error
    return found
