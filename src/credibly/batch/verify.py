"""`verify_output`: is everything there and whole, and what to run if not."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from credibly._extras import require_table_extra
from credibly.batch.judge import VERDICTS
from credibly.batch.parts import STATUS, Format, Record, part_name, record_name
from credibly.batch.reopen import reopen_folder
from credibly.batch.shards import FOLDER, PROFILES, Shards
from credibly.batch.store_shards import shards_at
from credibly.batch.verification import FOREIGN, Verification
from credibly.batch.work import Plan
from credibly.errors import CrediblyError, FileFormatError
from credibly.io.places import Place
from credibly.io.run_folder import is_intact
from credibly.io.store_folder import AT_ONCE, json_at
from credibly.profile.arguments import ticking
from credibly.types import Progress

_KINDS = {kind.name: kind for kind in (PROFILES, VERDICTS)}

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
        return _verify_file(shards, tick)
    if (shards.output / FOLDER).facts() is not None:
        kind = _kind_of_folder(shards.output)
        return _verify_folder(shards_at(out, kind, folder=True), tick, reopen=reopen)
    if begun is not None:
        folder = begun["settings"].get("layout") == "folder"
        return _verify_parts(shards_at(out, _kind(begun), folder=folder), begun, tick)
    raise FileFormatError(
        f"{shards.output}: no output of score or judge, and none that was begun. Check the name."
    )


def _verify_file(shards: Shards, tick: Tick) -> Verification:
    """Read every page of a single file, and compare the rows with what the run was about."""
    problems, rows, path = [], 0, shards.out
    try:
        with shards.opened(checked=True) as file:
            marks = file.schema_arrow.metadata or {}
            run = _run_of(marks.get(b"settings", b""), str(path))
            expected = int(run["settings"]["data rows"])
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


def _verify_folder(shards: Shards, tick: Tick, *, reopen: bool) -> Verification:
    listing = json_at(shards.data / FOLDER, shards.format.folder, shards.format.version)
    run = _run_of(str(listing.get("run", "")).encode(), f"{shards.data / FOLDER}")
    plan, files = _plan(run["settings"]), list(listing["files"])
    problems = _problems_of_list(plan, files)
    there = {found.name: found.size for found in shards.data.list()}
    bad = _find_damaged(shards, files, there, tick)
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
    plan = _plan(begun["settings"])
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
    bad |= _find_damaged(shards, records, there, tick)
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


def _find_damaged(
    shards: Shards, files: Sequence[Record], there: Mapping[str, int], tick: Tick
) -> dict[str, str]:
    """Read all bytes of the files; return what is wrong, by name."""
    found: dict[str, str] = {}
    with ThreadPoolExecutor(1 if shards.data.is_local else AT_ONCE) as pool:
        looks = pool.map(partial(_look_at, shards.data, there), files)
        for number, (file, problem) in enumerate(zip(files, looks, strict=True), start=1):
            if problem is not None:
                found[file["name"]] = problem
            tick(number / len(files))
    return found


def _look_at(folder: Place, there: Mapping[str, int], file: Record) -> str | None:
    size = there.get(file["name"])
    if size is None:
        return "is missing"
    if size != file["bytes"]:
        return f"has {size} bytes instead of {file['bytes']}"
    try:
        same = (folder / file["name"]).checksum() == file["sha256"]
    except (CrediblyError, OSError) as error:
        return f"cannot be read ({error})"
    return None if same else "its bytes are not those that were written"


def _plan(settings: Mapping[str, Any]) -> Plan:
    return Plan(*(int(settings[name]) for name in ("data rows", "shard_size", "chunk_size")))


def _settings_of(shards: Shards) -> dict[str, Any] | None:
    """The manifest of a run that is not finished; None where there is none."""
    if not (shards.exists() and shards.is_begun()):
        return None
    return _run_of(shards.manifest_bytes(), str(shards.home / shards.manifest.name))


def _run_of(content: bytes, where: str) -> dict[str, Any]:
    try:
        run = dict(json.loads(content))
        whole = _kind(run) is not None and is_intact(run) and _plan(run["settings"]).rows > 0
    except (ValueError, KeyError, TypeError):
        whole = False
    if not whole:
        raise FileFormatError(
            f"{where}: not from score or judge, or its settings are damaged. If it is, run the "
            "same command again with overwrite=True (--overwrite), or --restart if it was not "
            "finished."
        )
    return run


def _kind(run: Mapping[str, Any]) -> Format:
    return _KINDS[str(run["format"])]


def _kind_of_folder(folder: Place) -> Format:
    for kind in _KINDS.values():
        try:
            json_at(folder / FOLDER, kind.folder, kind.version)
        except FileFormatError:
            continue
        return kind
    raise FileFormatError(
        f"{folder / FOLDER}: damaged, or not from score or judge. If it is, run the same command "
        "again with overwrite=True (--overwrite)."
    )


def _last_seen(shards: Shards) -> Mapping[str, Any]:
    """What the status file among the parts says, if it says anything."""
    try:
        return dict(json.loads((shards.home / STATUS).read_whole()))
    except (ValueError, TypeError, CrediblyError):
        return {}
