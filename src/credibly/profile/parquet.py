"""Profiles in Parquet tables: what decisions need, and nothing of the inputs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from credibly._extras import load_extra, require_table_extra
from credibly.errors import CrediblyError, FileFormatError
from credibly.io.files import whole_file
from credibly.model.joined import UNKNOWN
from credibly.profile.certificate import Certificate
from credibly.profile.files import (
    FORMAT,
    FORMAT_VERSION,
    check_kept,
    check_name,
    metadata_of,
    settings_in,
)
from credibly.profile.settings import Settings
from credibly.solve.status import Status
from credibly.types import CPU

if TYPE_CHECKING:
    import pandas as pd

    from credibly.profile.profile import Profile

SCORE_FORMAT = "credibly.score"
"""Format of the files of `credibly.score`; the settings of the profiles are in their `profile`."""

_CERTIFICATE = ("objective", "relative_stationarity", "decrease")
"""Numbers of the certificate that are in the table."""

_STATUS = {status.label: status for status in Status} | {
    "outside bounds": Status.NON_FINITE_INPUT,  # the solver got such rows as NaN
    "unreadable file": Status.NON_FINITE_INPUT,
    "model failed": Status.NON_FINITE_MODEL,
}


def to_pandas(profile: Profile) -> pd.DataFrame:
    """One row per sample."""
    pd = load_extra("pandas", extra="table", purpose="A table of a profile")
    predicted = profile.classes_of(profile.predicted_column)
    columns: dict[str, Any] = {
        "predicted": [profile.class_name(k) for k in predicted.tolist()],
        "most_credible": [profile.class_name(k) for k in profile.ranking()[:, 0].tolist()],
        "status": [status.label for status in profile.status],
        "risk": profile.risk,
        "passes": profile.passes,
    }
    names = _columns(profile.settings, profile.credibility.shape[1])
    if profile.kept is not None:
        for name, kept in zip(names, profile.kept.unbind(1), strict=False):
            columns[f"class.{name}"] = _class_names(profile, kept.tolist())
    for kind in ("credibility", "credence"):
        numbers = getattr(profile, kind).unbind(1)
        columns |= {f"{kind}.{name}": column for name, column in zip(names, numbers, strict=True)}
    columns |= {f"certificate.{n}": getattr(profile.certificate, n) for n in _CERTIFICATE}
    plain = {k: v.cpu().numpy() if isinstance(v, Tensor) else v for k, v in columns.items()}
    frame = pd.DataFrame(plain)
    unknown = ~profile.usable & profile.credibility.isnan().any(1)
    frame.loc[unknown.cpu().numpy(), ["predicted", "most_credible"]] = None
    return frame  # type: ignore[no-any-return]  # a DataFrame


def _columns(settings: Settings, count: int) -> list[str]:
    """What the columns of a profile are called: by class, or by rank with the others last."""
    if settings.top is not None:
        return [*(f"top{rank + 1}" for rank in range(settings.top)), "others"]
    return [str(k) for k in range(count)] if settings.classes is None else list(settings.classes)


def _class_names(profile: Profile, numbers: list[int]) -> list[str | None]:
    return [None if k == UNKNOWN else profile.class_name(k) for k in numbers]


def write_parquet(profile: Profile, path: str | Path) -> None:
    """The same table as Parquet, with the settings in the file's metadata."""
    check_name(path, ".parquet")
    pa = require_table_extra()
    table = pa.Table.from_pandas(to_pandas(profile), preserve_index=False)
    metadata = {**(table.schema.metadata or {}), **metadata_of(profile.settings)}
    with whole_file(path) as place:
        pa.parquet.write_table(table.replace_schema_metadata(metadata), place)


def read_parts(path: str | Path) -> dict[str, Any]:
    """The fields of the `Profile` in a file of `Profile.to_parquet` or `credibly.score`."""
    with _reading(path):
        return _parts(_read(path), path)


def _parts(table: Any, path: str | Path) -> dict[str, Any]:
    settings = _settings(table, path)
    names = _columns(settings, len(settings.weights))
    credibility, credence = (
        torch.stack([_numbers(table, f"{kind}.{name}", path) for name in names], dim=1)
        for kind in ("credibility", "credence")
    )
    weights = torch.tensor(settings.weights, dtype=torch.float64, device=CPU).to(credibility)
    certificate = {n: _numbers(table, f"certificate.{n}", path) for n in _CERTIFICATE}
    return {
        "credibility": credibility,
        "credence": credence,
        "risk": _numbers(table, "risk", path),
        "multipliers": 2 * -credibility / weights,
        "certificate": Certificate(**certificate),
        "passes": _numbers(table, "passes", path),
        "codes": _codes(table, path),
        "settings": settings,
        "kept": None if settings.top is None else _kept(table, settings, names[:-1], path),
    }


def _kept(table: Any, settings: Settings, names: list[str], path: str | Path) -> Tensor:
    """The numbers of the classes that were kept (n, m), from their names."""
    columns = [_column(table, f"class.{name}", path).to_pylist() for name in names]
    found = {name for column in columns for name in column if name is not None}
    known = {name: k for k, name in enumerate(settings.classes or ())}
    if settings.classes is None:
        known = {name: int(name) for name in found if str(name).isdecimal()}
    if unknown := found - set(known):
        raise FileFormatError(f"{path}: unknown classes {sorted(map(str, unknown))[:5]}.")
    numbers = [[known.get(name, UNKNOWN) for name in column] for column in columns]
    kept = torch.tensor(numbers, dtype=torch.long, device=CPU).T.contiguous()
    check_kept(kept, settings, path)
    return kept


def _read(path: str | Path) -> Any:
    pa = require_table_extra()
    if Path(path).is_dir():
        raise FileFormatError(f"{path}: a folder, expected a Parquet file.")
    with pa.parquet.ParquetFile(path) as file:  # read_table would look for meaning in the path
        return file.read()


@contextmanager
def _reading(path: str | Path) -> Iterator[None]:
    """Turn whatever a damaged file can cause into a `FileFormatError` that names it."""
    try:
        yield
    except CrediblyError:
        raise
    except FileNotFoundError as error:
        raise FileFormatError(f"{path}: cannot be read (No such file or directory).") from error
    except Exception as error:  # pyarrow raises errors of many kinds
        reason = " ".join(str(error).split())
        raise FileFormatError(
            f"{path}: not a readable Parquet file ({reason}). Profile.load reads what Profile.save "
            "wrote."
        ) from error


def _settings(table: Any, path: str | Path) -> Settings:
    try:
        raw = table.schema.metadata or {}
        metadata = {key.decode(): value.decode() for key, value in raw.items()}
    except UnicodeDecodeError as error:
        raise FileFormatError(f"{path}: its metadata cannot be read ({error}).") from error
    if metadata.get("format") == SCORE_FORMAT:
        settings = metadata.get("profile", "")
        metadata = {"format": FORMAT, "format_version": FORMAT_VERSION, "settings": settings}
    elif "format" not in metadata:
        raise FileFormatError(
            f"{path}: a Parquet file without the settings of a profile in its metadata. "
            "Profile.to_parquet and `credibly score` write them; programs that write the table "
            "again may drop them."
        )
    return settings_in(metadata, path)


def _column(table: Any, name: str, path: str | Path) -> Any:
    if table.column_names.count(name) != 1:
        raise FileFormatError(f"{path}: the column {name!r} is missing, or there twice.")
    return table.column(name)


def _numbers(table: Any, name: str, path: str | Path) -> Tensor:
    column = _column(table, name, path)
    if str(column.type) not in ("float", "double"):
        raise FileFormatError(f"{path}: {name!r} holds {column.type}, expected numbers.")
    return torch.from_numpy(column.to_numpy().copy())


def _codes(table: Any, path: str | Path) -> Tensor:
    words = _column(table, "status", path).to_pylist()
    if unknown := {str(word) for word in words} - set(_STATUS):
        raise FileFormatError(f"{path}: unknown status {sorted(unknown)[:5]}.")
    return torch.tensor([int(_STATUS[word]) for word in words], dtype=torch.int8, device=CPU)
