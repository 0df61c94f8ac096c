"""The files of a finished folder whose list is gone or damaged: which of them are whole."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

from credibly.batch.formats import FOLDER, KINDS, PART, Record, part_name
from credibly.batch.manifests import is_ours, marks_of, plan_of, run_of
from credibly.batch.parts import PLACE
from credibly.batch.reopen import reopen_folder
from credibly.batch.shards import Shards
from credibly.batch.store_shards import shards_at
from credibly.batch.verification import FOREIGN, Verification
from credibly.batch.work import Plan
from credibly.errors import FileFormatError
from credibly.io.places import Place


def verify_unlisted(
    out: str | Path | Place, folder: Place, tick: Callable[[float], object], *, reopen: bool
) -> Verification:
    """Compare the files of a folder with the settings that each of them holds.

    Without the list their bytes cannot be compared; their pages have checksums of their own.
    """
    there = {found.name: found.size for found in folder.list()} if folder.is_folder() else {}
    settings = _settings_in(folder, there)
    run = None if settings is None else run_of(settings)
    if settings is None or run is None:
        raise FileFormatError(
            f"{folder}: no output of score or judge, and none that was begun. Check the name."
        )
    if run["settings"].get("layout") != "folder":
        output = str(folder).removesuffix(".parts")
        raise FileFormatError(
            f"{folder}: parts of {output}. Verify that: `credibly verify {output}`."
        )
    plan, shards = plan_of(run["settings"]), shards_at(out, KINDS[run["format"]], folder=True)
    bad = _find_damaged(shards, plan, there, settings, tick)
    names = [part_name(number) for number in range(len(plan.sizes()))]
    problems = [f"{FOLDER}: is missing, or damaged", *(f"{n}: {what}" for n, what in bad.items())]
    problems += [f"{name}: {FOREIGN}" for name in sorted(there.keys() - {FOLDER, *names})]
    whole = {number: name for number, name in enumerate(names) if name not in bad}
    if reopen:
        reopen_folder(shards, settings, _records(shards, plan, whole, there))
    rows, counted = sum(plan.sizes()[number] for number in whole), (len(whole), len(names))
    return Verification.of_folder(
        shards.out, rows, counted, problems, reopened=reopen, listed=False
    )


def _find_damaged(
    shards: Shards,
    plan: Plan,
    there: Mapping[str, int],
    settings: bytes,
    tick: Callable[[float], object],
) -> dict[str, str]:
    """Read all pages of the files that there should be; return what is wrong, by name."""
    found, sizes = {}, plan.sizes()
    for number, rows in enumerate(sizes):
        name = part_name(number)
        problem = _problem_of(shards, number, settings, rows) if name in there else "is missing"
        if problem is not None:
            found[name] = problem
        tick((number + 1) / len(sizes))
    return found


def _settings_in(folder: Place, there: Mapping[str, int]) -> bytes | None:
    """The manifest of the run that wrote most of the files."""
    found = Counter[bytes]()
    for name in filter(PART.fullmatch, there):
        marks = marks_of(folder / name)
        if marks is not None and is_ours(marks):
            found[marks.get(b"settings", b"")] += 1
    return found.most_common(1)[0][0] if found else None


def _problem_of(shards: Shards, number: int, settings: bytes, rows: int) -> str | None:
    try:
        with shards.opened(number, checked=True) as file:
            marks = file.schema_arrow.metadata or {}
            got = sum(batch.num_rows for batch in file.iter_batches(batch_size=1 << 16))
    except Exception as error:  # noqa: BLE001  # a damaged file may raise anything
        return f"cannot be read ({' '.join(str(error).split())[:200]})"
    if marks.get(b"settings") != settings:
        return "is of another run"
    if marks.get(PLACE) != str(number).encode():
        return "holds the rows of another part"
    return None if got == rows else f"has {got} rows instead of {rows}"


def _records(
    shards: Shards, plan: Plan, whole: Mapping[int, str], there: Mapping[str, int]
) -> dict[int, Record]:
    """What the list held of each file that is whole."""
    sizes = plan.sizes()
    return {
        number: {
            "first": number * plan.shard,
            "rows": sizes[number],
            "bytes": there[name],
            "sha256": (shards.data / name).checksum(),
        }
        for number, name in whole.items()
    }
