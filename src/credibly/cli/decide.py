"""`credibly decide`: apply a saved rule to the profiles that `score` wrote."""

from __future__ import annotations

import csv
import json
import math
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from credibly.cli import options as o
from credibly.errors import FileFormatError, OutputError

if TYPE_CHECKING:
    from credibly.decide.rule import Answers

Columns = Mapping[str, list[Any]]

FORMAT, FORMAT_VERSION = "credibly.decisions", 1


def decide(
    profiles: Annotated[Path, typer.Argument(help="The Parquet file that `score` wrote.")],
    *,
    rule: Annotated[
        Path,
        typer.Option(help="JSON file of a SelectiveClassifier, OutlierFlag or ConformalSets."),
    ],
    out: Annotated[Path, typer.Option(help="The .csv or .parquet file to write.")],
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace a finished output.")
    ] = False,
) -> None:
    """Decide about every row of PROFILES by a rule that was saved in Python."""
    from credibly.decide.rules import load_rule
    from credibly.profile.profile import Profile

    _check(profiles, rule, out, overwrite=overwrite)
    with o.plain_warnings():
        loaded = load_rule(rule)
        profile = Profile.from_parquet(profiles)
        ids, statuses = _ids_and_statuses(profiles)
        found = loaded.answers(profile)
    names = [profile.class_name(k) for k in range(profile.class_count)]
    columns = _columns(found, names, ids.to_pylist(), statuses)
    from credibly.io.files import whole_file  # it loads torch

    with whole_file(out) as place:
        if out.suffix.lower() == ".csv":
            _write_csv(place, columns)
        else:
            _write_parquet(place, _as_table(columns, ids.type, _metadata(rule, profiles)))
    _print(found, statuses, f"{rule.name} ({type(loaded).__name__})", out)


def _check(profiles: Path, rule: Path, out: Path, *, overwrite: bool) -> None:
    """Check the names of the files before anything is read."""
    if not profiles.exists():
        raise FileFormatError(f"{profiles}: no such file. `credibly score` writes it.")
    if (rule / "judge.json").is_file():
        raise FileFormatError(
            f"{rule}: a Judge, not a rule. Use it with `credibly judge`, whose verdicts decide."
        )
    if out.suffix.lower() not in (".csv", ".parquet"):
        raise OutputError(
            f"{out} ends neither in .csv nor in .parquet", remedy="Name it decisions.csv."
        )
    if not out.parent.is_dir():
        raise OutputError(f"{out}: the folder {out.parent} does not exist", remedy="Make it first.")
    if out.is_dir():
        raise OutputError(f"{out} is a folder", remedy="Name a file, such as decisions.csv.")
    if not out.exists():
        return
    for source in (profiles, rule):
        if source.exists() and out.samefile(source):
            raise OutputError(f"{out} is a file that is read", remedy="Choose another name.")
    o.check_free(out, overwrite=overwrite)


def _ids_and_statuses(path: Path) -> tuple[Any, list[str]]:
    """Ids (row numbers where there are none) and the status of each row."""
    import pyarrow as pa
    from pyarrow import parquet

    with parquet.ParquetFile(path) as file:
        wanted = [name for name in ("id", "status") if name in file.schema_arrow.names]
        table = file.read(columns=wanted)
    own = "id" in wanted
    ids = table.column("id") if own else pa.array(range(len(table)), pa.int64())
    return ids, table.column("status").to_pylist()


def _columns(found: Answers, names: list[str], ids: list[Any], statuses: list[str]) -> Columns:
    return {
        "id": ids,
        "predicted": [None if k is None else names[k] for k in found.predicted],
        "class": [None if k is None else names[k] for k in found.classes],
        "class_number": list(found.classes),
        "accepted": list(found.accepted),
        **{name: list(values) for name, values in found.columns.items()},
        "status": statuses,
    }


def _metadata(rule: Path, profiles: Path) -> dict[str, str]:
    """The rule and the settings of the profiles, so that decisions can be traced."""
    from pyarrow import parquet

    made = parquet.read_schema(profiles).metadata or {}
    settings = made.get(b"profile", made.get(b"settings", b"")).decode()
    return {
        "format": FORMAT,
        "format_version": str(FORMAT_VERSION),
        "rule": rule.read_text("utf-8"),
        "profile": settings,
    }


def _as_table(columns: Columns, ids: Any, metadata: dict[str, str]) -> Any:
    """An Arrow table whose types do not depend on the rows."""
    import pyarrow as pa

    kinds = {
        "id": ids, "class_number": pa.int64(), "accepted": pa.bool_(), "flagged": pa.bool_(),
        "set": pa.list_(pa.string()), "set_size": pa.int64(),
    }  # fmt: skip
    words = ("predicted", "class", "status")
    schema = pa.schema(
        [
            (name, kinds.get(name, pa.string() if name in words else pa.float64()))
            for name in columns
        ]
    )
    return pa.Table.from_pydict(dict(columns), schema=schema.with_metadata(metadata))


def _write_parquet(path: Path, table: Any) -> None:
    from pyarrow import parquet

    parquet.write_table(table, path)


def _write_csv(path: Path, columns: Columns) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        for row in zip(*columns.values(), strict=True):
            writer.writerow([_cell(value) for value in row])


def _cell(value: object) -> object:
    """Empty for a missing value; a set as a JSON list, since names may contain any character."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    return json.dumps(value, ensure_ascii=False) if isinstance(value, list) else value


def _print(found: Answers, statuses: list[str], rule: str, out: Path) -> None:
    console = Console(highlight=False)
    counts = found.counts
    reasons = Counter(word for word, bad in zip(statuses, found.unusable, strict=True) if bad)
    why = ", ".join(f"{count} {word}" for word, count in reasons.most_common())
    lines = [
        f"{len(found.classes)} rows in {out}, decided by {rule}",
        f"{counts['answered']:>6} answered",
        f"{counts['abstained']:>6} abstained",
        f"{counts['unusable']:>6} unusable" + (f": {why}" if why else ""),
        found.notes,
    ]
    console.print("\n".join(lines), markup=False, soft_wrap=True)
