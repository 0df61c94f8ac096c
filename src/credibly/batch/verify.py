"""`verify_output`: is everything there and whole, and what to run if not."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from credibly._extras import require_table_extra
from credibly._validation import require
from credibly.batch.formats import (
    FOLDER,
    KINDS,
    PART,
    PROFILES,
    STATUS,
    Record,
    part_name,
    record_name,
)
from credibly.batch.manifests import find_damaged, is_ours, listing_at, marks_of, plan_of, run_of
from credibly.batch.reopen import reopen_folder
from credibly.batch.shards import Shards
from credibly.batch.store_shards import shards_at
from credibly.batch.unlisted import verify_unlisted
from credibly.batch.verification import FOREIGN, Verification
from credibly.batch.work import Plan
from credibly.errors import CrediblyError, FileFormatError
from credibly.io.places import Place
from credibly.io.store_folder import json_at
from credibly.profile.arguments import ticking
from credibly.types import Progress

Tick = Callable[[float], object]


def verify_output(
    out: str | Path | Place, *, reopen: bool = False, progress: Progress = False
) -> Verification:
    """Say whether what `score` or `judge_file` wrote is all there and whole; every byte is read.

    A folder is compared with the checksums of its manifest, the parts of an unfinished run with
    their records, a single file with the checksums of its pages.

    Args:
        out: the output, on this machine or in a store.
        reopen: make an interrupted run of a finished folder with damaged files, so that the same
            command makes only these again.
        progress: True shows a bar; a function is called with the share done.

    Example:
        >>> import tempfile, numpy as np, torch, credibly as cr
        >>> folder = tempfile.mkdtemp()
        >>> np.save(f"{folder}/x.npy", np.eye(3))
        >>> clf = cr.Classifier(torch.nn.Linear(3, 2).double().eval())
        >>> report = cr.score(clf, f"{folder}/x.npy", f"{folder}/profiles", gamma=1.0, folder=True)
        >>> cr.verify_output(f"{folder}/profiles").is_whole
        True
    """
    require_table_extra()
    shards = shards_at(out, PROFILES, folder=False)
    begun = _settings_of(shards)
    with ticking(progress, "verifying") as bar:
        tick = bar or (lambda _: None)
        tick(0.0)
        found = _verify(out, shards, begun, tick, reopen=reopen)
    if begun is not None and found.is_whole:
        return found.to_be_replaced(str(shards.home))
    return found


def _verify(
    out: str | Path | Place, shards: Shards, begun: dict[str, Any] | None, tick: Tick, *,
    reopen: bool,
) -> Verification:  # fmt: skip
    if shards.output.facts() is not None:
        remedy = "A single file is made again as a whole: leave reopen out."
        require(not reopen, "reopen", "the folder of a run with folder=True (--folder)",
                f"the file {shards.out}", remedy)  # fmt: skip
        return _verify_file(shards, tick)
    listed = listing_at(shards.output)
    if listed is not None:
        kind, listing = listed
        return _verify_folder(shards_at(out, kind, folder=True), listing, tick, reopen=reopen)
    if begun is not None:
        folder = begun["settings"].get("layout") == "folder"
        shards = shards_at(out, KINDS[begun["format"]], folder=folder)
        return _verify_parts(shards, begun, tick)
    return verify_unlisted(out, shards.output, tick, reopen=reopen)


def _verify_file(shards: Shards, tick: Tick) -> Verification:
    """Read every page of a single file, and compare the rows with what the run was about."""
    problems, rows, path = [], 0, shards.out
    expected = _rows_of_file(shards)
    if expected is None:
        return Verification.of_file(path, 0, ["it cannot be read: its end is damaged"])
    try:
        with shards.opened(checked=True) as file:
            for batch in file.iter_batches(batch_size=1 << 16):
                rows += batch.num_rows
                tick(rows / max(expected, 1))
        if rows != expected:
            problems.append(f"it has {rows} rows, and the run was about {expected}")
    except CrediblyError:
        raise
    except Exception as error:  # noqa: BLE001  # a damaged file may raise anything
        problems.append(f"it cannot be read to its end: {' '.join(str(error).split())[:200]}")
    return Verification.of_file(path, rows, problems)


def _rows_of_file(shards: Shards) -> int | None:
    """The rows that a file should have; None if it is damaged. A file of others is refused."""
    path, marks = shards.out, marks_of(shards.output)
    with shards.output.open_input() as file:
        parquet = file.read(4) == b"PAR1"
    if marks is None and parquet:
        return None
    if not is_ours(marks):
        raise FileFormatError(f"{path}: not from score or judge. Name what they wrote.")
    run = run_of((marks or {}).get(b"settings", b""))
    if run is None:
        raise FileFormatError(
            f"{path}: its settings are damaged. Run the same command again with overwrite=True "
            "(--overwrite)."
        )
    _refuse_part(shards.output, run["settings"])
    return int(run["settings"]["data rows"])


def _refuse_part(file: Place, settings: Mapping[str, Any]) -> None:
    """Name the whole of which a file is a part."""
    folder = file.parent
    aside = folder.name.endswith(".parts")
    if PART.fullmatch(file.name) and (aside or settings.get("layout") == "folder"):
        whole = str(folder).removesuffix(".parts") if aside else folder
        raise FileFormatError(
            f"{file}: one part of {whole}. Verify all of it: `credibly verify {whole}`."
        )


def _verify_folder(
    shards: Shards, listing: Mapping[str, Any], tick: Tick, *, reopen: bool
) -> Verification:
    plan, files = plan_of(json.loads(listing["run"])["settings"]), list(listing["files"])
    problems = _problems_of_list(plan, files)
    there = {found.name: found.size for found in shards.data.list()}
    bad = find_damaged(shards.data, files, there, tick)
    problems += [f"{name}: {what}" for name, what in bad.items()]
    known = {FOLDER, *(file["name"] for file in files)}
    problems += [f"{name}: {FOREIGN}" for name in sorted(there.keys() - known)]
    if bad and reopen:
        whole = {n: file for n, file in enumerate(files) if file["name"] not in bad}
        reopen_folder(shards, str(listing["run"]).encode(), whole)
    rows = sum(file["rows"] for file in files if file["name"] not in bad)
    counted = len(files) - len(bad), len(files)
    return Verification.of_folder(shards.out, rows, counted, problems, reopened=reopen)


def _problems_of_list(plan: Plan, files: Sequence[Record]) -> list[str]:
    """Compare the list of files with the plan: nothing is missing, and nothing is there twice."""
    wanted = [(part_name(n), n * plan.shard, rows) for n, rows in enumerate(plan.sizes())]
    got = [(file["name"], file["first"], file["rows"]) for file in files]
    return [] if got == wanted else [f"{FOLDER} does not list the rows of this run in order"]


def _verify_parts(shards: Shards, begun: Mapping[str, Any], tick: Tick) -> Verification:
    """Compare the parts of a run that is not finished with their records."""
    plan = plan_of(begun["settings"])
    sizes, run = plan.sizes(), hashlib.sha256(shards.manifest_bytes()).hexdigest()
    there = {found.name: found.size for found in shards.data.list()} if shards.data.exists() else {}
    known = {found.name for found in shards.home.list()}
    records, bad = [], {}
    for number, rows in enumerate(sizes):
        if record_name(number) in known and part_name(number) in there:
            record = _record_of(shards, number)
            fits = {"run": run, "first": number * plan.shard, "rows": rows, "part": number}
            if any(record.get(name) != value for name, value in fits.items()):
                bad[part_name(number)] = "its record is of another run, or of another part"
            else:
                records.append({**record, "name": part_name(number)})
    bad |= find_damaged(shards.data, records, there, tick)
    done = sum(record["rows"] for record in records if record["name"] not in bad)
    problems = [f"{name}: {what}" for name, what in bad.items()]
    finished = sum(record["name"] not in bad for record in records)
    counted = ((done, plan.rows), (finished, len(sizes)))
    return Verification.of_parts(shards.out, *counted, problems, _last_seen(shards))


def _record_of(shards: Shards, number: int) -> Record:
    try:
        name = shards.home / record_name(number)
        return json_at(name, shards.format.part, shards.format.version)
    except FileFormatError:
        return {}


def _settings_of(shards: Shards) -> dict[str, Any] | None:
    """The manifest of a run that is not finished; None where there is none."""
    if not (shards.exists() and shards.is_begun()):
        return None
    run = run_of(shards.manifest_bytes())
    if run is None:
        raise FileFormatError(
            f"{shards.home / shards.manifest.name}: damaged, or not from score or judge. Run the "
            "same command again with resume=False (--restart)."
        )
    return run


def _last_seen(shards: Shards) -> Mapping[str, Any]:
    """What the status file among the parts says, if it says anything."""
    try:
        return dict(json.loads((shards.home / STATUS).read_whole()))
    except (ValueError, TypeError, CrediblyError):
        return {}
