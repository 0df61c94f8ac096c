"""Profiles back from their table: all that decisions need, and nothing of the inputs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from credibly.errors import FileFormatError, MissingExtraError
from credibly.profile.certificate import Certificate
from credibly.profile.files import FORMAT, IN_TABLES, metadata_of, settings_in
from credibly.profile.profile import Profile, Settings
from credibly.solve.status import Status
from credibly.types import CPU

SCORE_FORMAT = "credibly.score"
"""Format of the files of `credibly.score`, whose settings of the profiles stand under `profile`."""

_STATUS = {status.label: status for status in Status} | {
    "outside bounds": Status.NON_FINITE_INPUT,  # such rows were given to the solver as NaN
    "unreadable file": Status.NON_FINITE_INPUT,
    "model failed": Status.NON_FINITE_MODEL,
}


def read_parquet(path: str | Path) -> Profile:
    """The profile in a file of `Profile.to_parquet` or `credibly.score`."""
    table = _table(path)
    settings = _settings(table, path)
    count = len(settings.weights)
    names = [str(k) for k in range(count)] if settings.classes is None else settings.classes
    if len(names) != count:
        raise FileFormatError(f"{path}: {len(names)} names of classes for {count} weights.")
    credibility, credence = (
        torch.stack([_numbers(table, f"{kind}.{name}", path) for name in names], dim=1)
        for kind in ("credibility", "credence")
    )
    weights = torch.tensor(settings.weights, dtype=torch.float64, device=CPU).to(credibility)
    certificate = {name: _numbers(table, f"certificate.{name}", path) for name in IN_TABLES}
    return Profile.holding(
        {
            "credibility": credibility,
            "credence": credence,
            "risk": _numbers(table, "risk", path),
            "multipliers": 2 * -credibility / weights,
            "certificate": Certificate.holding(certificate),
            "passes": _numbers(table, "passes", path),
            "codes": _codes(table, path),
            "settings": settings,
        }
    )


def _table(path: str | Path) -> Any:
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError as error:
        raise MissingExtraError(
            package="pyarrow", extra="table", purpose="A Parquet file of profiles"
        ) from error
    if Path(path).is_dir():
        raise FileFormatError(f"{path}: a folder, where a Parquet file was expected.")
    try:
        with parquet.ParquetFile(path) as file:  # read_table would look for meaning in the path
            return file.read()
    except pa.ArrowException as error:
        raise FileFormatError(
            f"{path}: not a readable Parquet file ({error}). What Profile.save wrote is read by "
            "Profile.load."
        ) from error


def _settings(table: Any, path: str | Path) -> Settings:
    try:
        raw = table.schema.metadata or {}
        metadata = {key.decode(): value.decode() for key, value in raw.items()}
    except UnicodeDecodeError as error:
        raise FileFormatError(f"{path}: its metadata cannot be read ({error}).") from error
    if metadata.get("format") == SCORE_FORMAT:
        if "profile" not in metadata:
            raise FileFormatError(
                f"{path}: written by a credibly that did not yet record which model, as decisions "
                "know it, the rows belong to. Score the inputs again."
            )
        metadata = {**metadata_of(None), "settings": metadata["profile"]}
    elif "format" not in metadata:
        raise FileFormatError(
            f"{path}: a Parquet file without the settings of a profile in its metadata (format "
            f"{FORMAT!r}). Profile.to_parquet and `credibly score` write them; other programs that "
            "write the table again may drop them."
        )
    return settings_in(metadata, path)


def _numbers(table: Any, name: str, path: str | Path) -> Tensor:
    from pyarrow import types

    if table.column_names.count(name) != 1:
        raise FileFormatError(f"{path}: the column {name!r} is missing, or there twice.")
    column = table.column(name)
    if not (types.is_float32(column.type) or types.is_float64(column.type)):
        raise FileFormatError(f"{path}: {name!r} holds {column.type}, where numbers should stand.")
    return torch.from_numpy(column.to_numpy().copy())


def _codes(table: Any, path: str | Path) -> Tensor:
    if table.column_names.count("status") != 1:
        raise FileFormatError(f"{path}: the column 'status' is missing, or there twice.")
    words = table.column("status").to_pylist()
    unknown = {str(word) for word in words} - set(_STATUS)
    if unknown:
        raise FileFormatError(f"{path}: unknown status {sorted(unknown)[:5]}.")
    return torch.tensor([int(_STATUS[word]) for word in words], dtype=torch.int8, device=CPU)
