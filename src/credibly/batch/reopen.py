"""Make an interrupted run of a finished folder, so that a run makes its damaged files again."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from credibly.batch.formats import FOLDER, Record, record_name
from credibly.batch.shards import Shards
from credibly.batch.tally import tally
from credibly.errors import OutputError
from credibly.io.files import json_text


def reopen_folder(shards: Shards, run: bytes, whole: Mapping[int, Record]) -> None:
    """Write the records of the files that are whole, and then the manifest of the run.

    The list of the finished folder goes last. If that is prevented, it lists damaged files beside
    the manifest: the next run reads them before it believes the list.
    """
    digest = hashlib.sha256(run).hexdigest()
    with shards.lock(shards.out):
        if shards.is_begun() and shards.manifest_bytes() != run:
            raise OutputError(
                f"an interrupted run is to replace {shards.out} ({shards})",
                remedy="Finish that run, or remove these parts.",
            )
        for number, file in whole.items():
            with shards.opened(number) as opened:
                counted = tally(opened.read())
            record = {
                "format": shards.format.part,
                "format_version": shards.format.version,
                "part": number,
                "run": digest,
                **{name: file[name] for name in ("first", "rows", "bytes", "sha256")},
                "tally": counted,
            }
            (shards.home / record_name(number)).write_whole(json_text(record).encode())
        (shards.home / shards.manifest.name).write_whole(run)
        (shards.data / FOLDER).delete()
