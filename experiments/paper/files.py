"""JSON files of figures, with short lists on one line."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from credibly.errors import FileFormatError
from credibly.io.files import whole_file

_PLAIN = re.compile(r"\[[^\[\]{}\"]*\]")


def write_json(path: Path, record: object) -> bool:
    """Write lists of numbers on one line; return False if the file was there already."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(record, indent=1, allow_nan=False)
    text = _PLAIN.sub(lambda found: re.sub(r"\s+", " ", found[0]), text)
    if path.exists() and path.read_text("utf-8") == text + "\n":
        return False
    with whole_file(path) as aside:
        aside.write_text(text + "\n", "utf-8")
    return True


def read_json(path: Path) -> dict[str, Any]:
    """Read what `write_json` wrote."""
    try:
        record: dict[str, Any] = json.loads(path.read_text("utf-8"))
    except ValueError as error:
        message = f"{path} is not JSON ({error}). Delete it and make the figure again."
        raise FileFormatError(message) from error
    return record


def read_figure(path: Path) -> dict[str, Any]:
    """Read the record of a figure."""
    record = read_json(path)
    if not isinstance(record, dict) or not {"kind", "settings", "results"} <= set(record):
        message = f"{path} is not a figure of this command. Delete it and make the figure again."
        raise FileFormatError(message)
    return record
