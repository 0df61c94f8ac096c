"""Logs as lines of JSON: what happened and how long it took, and nothing of any input."""

from __future__ import annotations

import json
import logging
import sys
import traceback
from datetime import UTC, datetime
from typing import Any, TextIO

LOG = logging.getLogger("credibly.serve")

SERVER = "uvicorn"
"""Its messages may be written: they hold nothing of a request."""


class JsonLines(logging.Formatter):
    """One JSON object per line.

    The message of an exception, or of another library, may hold parts of an input. So only their
    kind and place are written.
    """

    def format(self, record: logging.LogRecord) -> str:
        known: dict[str, Any] = getattr(record, "facts", {})
        when = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line: dict[str, Any] = {"time": when, "level": record.levelname.lower()}
        own = record.name == LOG.name or record.name.startswith(SERVER)
        line["event"] = record.getMessage() if own and not record.exc_info else record.name
        line |= known
        if record.exc_info and record.exc_info[1] is not None:
            line |= of_exception(record.exc_info[1])
        return json.dumps(line, default=str)


def of_exception(error: BaseException) -> dict[str, Any]:
    """Its kind, and the last places it went through."""
    frames = traceback.extract_tb(error.__traceback__)[-3:]
    places = [f"{frame.filename.rpartition('/')[2]}:{frame.lineno}" for frame in frames]
    return {"exception": type(error).__name__, "at": places}


def begin(stream: TextIO | None = None) -> None:
    """Write the logs of the service, and of the server below it, to a stream."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonLines())
    logging.getLogger().handlers[:] = [handler]
    LOG.setLevel(logging.INFO)


def note(event: str, level: int = logging.INFO, **facts: Any) -> None:
    """Write one line."""
    LOG.log(level, event, extra={"facts": facts})
