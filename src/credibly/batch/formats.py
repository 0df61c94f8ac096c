"""What a run writes: the kinds of its output, and the names of its files."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from credibly.io.images import INDEX

FOLDER = "_manifest.json"
"""Lists the files of a finished folder; readers of Parquet pass over such a name."""

STATUS = "status.json"

PART = re.compile(r"part-\d{6,}\.parquet")
"""The name of a shard."""

Record = dict[str, Any]
"""What is known of a finished shard, as JSON."""


@dataclass(frozen=True)
class Format:
    """The kind of file that a run ends with.

    Attributes:
        name: what the metadata of the file and the manifest call it.
        example: a name for such a file, for messages.
        writing: options of the writer of Parquet.
        version: of the format.
    """

    name: str
    example: str
    writing: Mapping[str, Any] = field(default_factory=dict)
    version: int = 1

    @property
    def remedy(self) -> str:
        """What to do where the output is not a file."""
        return (
            f"Name a file, such as {self.example}; a folder of one file per shard is asked for "
            "with folder=True (--folder)."
        )

    @property
    def part(self) -> str:
        """What a record calls a shard."""
        return f"{self.name}-part"

    @property
    def folder(self) -> str:
        """What the manifest of a finished folder calls it."""
        return f"{self.name}-folder"

    def marks(self, settings: bytes) -> dict[bytes, bytes]:
        """Return the metadata of every file of a run, of which `settings` is the manifest."""
        return {
            b"format": self.name.encode(),
            b"format_version": str(self.version).encode(),
            b"settings": settings,
        }


PROFILES = Format("credibly.score", "profiles.parquet")

VERDICTS = Format(
    "credibly.verdicts",
    "verdicts.parquet",
    {"write_page_index": True, "data_page_size": 64 * 1024},  # a few rows are read quickly
)

KINDS = {kind.name: kind for kind in (PROFILES, VERDICTS)}


def part_name(number: int) -> str:
    """Return the file name of a shard."""
    return f"part-{number:06d}.parquet"


def record_name(number: int) -> str:
    """Return the file name of the record of a shard."""
    return f"part-{number:06d}.json"


def settings_of_folder(kind: Format) -> dict[str, Any]:
    """Return what a run folder of shards is called, and what is in it."""
    return {
        "kind": kind.name,
        "version": kind.version,
        "parts": ("part-*.parquet", "part-*.json", STATUS, INDEX),
        "restart": "drop its rows with resume=False (--restart)",
    }
