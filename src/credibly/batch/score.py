"""`score`: profiles of every row of a file, written to Parquet, safe to interrupt."""

from __future__ import annotations

import platform
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from credibly._validation import as_numbers, real_number, require
from credibly._validation import chunk_size as check_chunk_size
from credibly.batch.chunks import Job, find_weights, prepare, solve, solve_chunk
from credibly.batch.report import ScoreReport, read_report
from credibly.batch.shards import NAME_A_FILE, DamagedShardError, Shards
from credibly.errors import CrediblyError, FileFormatError, OutputError
from credibly.io.fingerprints import digest_of_classifier, digest_of_space, name_of_callable
from credibly.io.models import LoadedClassifier
from credibly.io.sources import Source, open_source
from credibly.io.tables import require_table_extra
from credibly.io.watch import Watch
from credibly.model.batches import check_classifier
from credibly.model.classifier import Classifier
from credibly.profile.arguments import check_pair, check_solver, ticking
from credibly.profile.profile import Profile
from credibly.solve.base import Solver
from credibly.solve.hybrid import Hybrid
from credibly.solve.loop import Tick
from credibly.types import CPU, Array, Bounds, Progress
from credibly.version import __version__

Gamma = float | Literal["auto"]

ROUNDS = 3
"""How often parts are solved again that are damaged when they are joined."""

OTHER_FORMATS = frozenset({".csv", ".tsv", ".txt", ".json", ".npz", ".npy", ".xlsx", ".feather"})
"""Names that would promise something else than Parquet."""


def score(
    clf: Classifier | LoadedClassifier,
    source: Source | str | Path,
    out: str | Path,
    *,
    gamma: Gamma = "auto",
    weights: Array | Sequence[float] | None = None,
    solver: Solver | None = None,
    bounds: Bounds | None = None,
    chunk_size: int = 128,
    shard_size: int = 1024,
    resume: bool = True,
    overwrite: bool = False,
    progress: Progress = False,
    fingerprint: str | None = None,
) -> ScoreReport:
    """Solve the profile of every row of `source` and write them to the Parquet file `out`.

    Rows are read, solved and written chunk by chunk, so memory does not grow with their number.
    A run that was killed continues where it was when it is started again, and gives the same rows.
    A row that cannot be solved gets a status and does not affect other rows.

    Args:
        clf: the classifier, or the result of `load_classifier`.
        source: the result of `open_source`, or a path for it. A model that was fitted on a table
            takes the columns of a table by name.
        out: the Parquet file to write. Until it is finished its parts are in `<out>.parts/`.
        gamma: see `credibility`; 'auto' is set once, from the first rows, and recorded.
        weights: K numbers instead of gamma.
        solver: see `credibility`.
        bounds: see `credibility`, for the values that may move; a row in which one of them lies
            outside, or outside the bounds of a `Space`, gets a status.
        chunk_size: rows solved at a time.
        shard_size: rows in a part: an interruption loses at most this many, and one chunk.
        resume: False drops the parts of an earlier run.
        overwrite: whether a finished file may be replaced.
        progress: True shows a bar; a function is called with the share done.
        fingerprint: identifies the model; by default a digest of its weights. `preprocess`, `pick`,
            a custom loss and a model that is a function are identified by name only: a change of
            their code is not noticed. For a model loaded as `package.module:factory` the digest of
            the file notices it.

    Example:
        >>> import tempfile, numpy as np, torch, credibly as cr
        >>> folder = tempfile.mkdtemp()
        >>> np.save(f"{folder}/x.npy", np.eye(3))
        >>> clf = cr.Classifier(torch.nn.Linear(3, 2).double().eval())
        >>> cr.score(clf, f"{folder}/x.npy", f"{folder}/profiles.parquet", gamma=1.0).rows
        3
    """
    started = time.monotonic()
    require_table_extra()
    known = {} if fingerprint is None else {"model": fingerprint}
    if isinstance(clf, LoadedClassifier):
        known = known or clf.parts_by_name()
        clf = clf.classifier
    clf = check_classifier(clf)
    source = source if isinstance(source, Source) else open_source(source)
    source = source.for_model(clf)
    check_chunk_size(chunk_size)
    check_chunk_size(shard_size)
    both = weights is not None and gamma is not None and not isinstance(gamma, str)
    require(not both, "gamma", "exactly one of gamma and weights", "both", "Leave out one of them.")
    chunk = int(chunk_size)  # JSON knows no NumPy integers
    shard = -(-int(shard_size) // chunk) * chunk
    solver = check_solver(solver, default=Hybrid())
    job = Job(clf, source, (), solver, check_pair(bounds), chunk, shard)
    shards = Shards(Path(out))
    known = known or {"model": digest_of_classifier(clf) or "unknown"}
    killed = shards.path.is_dir()  # then the output may be one that was just finished
    _check_output(shards, source, overwrite=overwrite or killed)
    watch = Watch(source)
    settings = _settings(job, gamma, weights, {**known, "data": watch.digest})
    with shards.lock(shards.out), ticking(progress) as tick:
        resumed = len(source)
        if overwrite or not shards.is_finished(settings):
            _check_still_free(shards, source, overwrite=overwrite)
            _drop_unknown(shards, resume=resume)
            found = shards.begin(settings, lambda: _resolve_or_leave(job, gamma, weights, shards))
            job = replace(job, weights=tuple(found["weights"]))
            resumed = _solve_and_merge(job, shards, watch, tick or (lambda _share: None))
        shards.remove()
    return read_report(shards.out, resumed=resumed, seconds=time.monotonic() - started)


def first_look(
    clf: Classifier, source: Source, *, gamma: Gamma, bounds: Bounds | None, rows: int
) -> tuple[Profile, float]:
    """Solve the first few rows as `score` would; return their profile and the seconds it took."""
    source = source.for_model(clf)
    job = Job(clf, source, (), Hybrid(), check_pair(bounds), rows, rows)
    weights = find_weights(job, gamma, None)
    x, _ = prepare(job, source.read(0, rows)[1])
    started = time.monotonic()
    profile = solve(replace(job, weights=weights), x)
    return profile, time.monotonic() - started


def _check_output(shards: Shards, source: Source, *, overwrite: bool) -> None:
    """Refuse an output that cannot or must not be written; the first reason is named."""
    out = shards.out
    regular = out.is_file()
    wrong = [
        (not out.parent.is_dir(), f": the folder {out.parent} does not exist", "Make it first."),
        (out.is_dir(), " is a folder", NAME_A_FILE),
        (out.exists() and not regular, " is not a plain file", NAME_A_FILE),
        (out.suffix.lower() in OTHER_FORMATS, ": the result is always a Parquet file",
         "Name it .parquet; pandas.read_parquet(...).to_csv(...) converts it."),
        (regular and source.path.exists() and out.samefile(source.path), " is the file to be read",
         "Choose another name."),
        (out.is_symlink(), f" is a link to {out.resolve()}",
         "Name the file itself, or another one."),
        (regular and not overwrite, " exists already",
         "Choose another name, or replace it with overwrite=True (--overwrite)."),
    ]  # fmt: skip
    for holds, problem, remedy in wrong:
        if holds:
            raise OutputError(f"{out}{problem}", remedy=remedy)


def _check_still_free(shards: Shards, source: Source, *, overwrite: bool) -> None:
    """Check again under the lock: another run may have finished since."""
    try:
        _check_output(shards, source, overwrite=overwrite)
    except OutputError:
        shards.leave()
        raise


def _drop_unknown(shards: Shards, *, resume: bool) -> None:
    """Drop the parts of an earlier run if asked to, or if nothing is known about them."""
    known = False
    with suppress(FileFormatError):
        known = bool(shards.read())
    if not (resume and known):
        shards.clear()


def _settings(job: Job, gamma: object, weights: Any, known: dict[str, str]) -> dict[str, Any]:
    """Collect everything that decides the rows, by name."""
    clf = job.clf
    like = torch.empty(0, dtype=torch.float64, device=CPU)
    number = "auto" if gamma == "auto" else real_number(gamma)
    reading = {k: v for k, v in job.source.describe().items() if k != "name"}
    return {
        **known,
        "gamma": number if weights is None else None,
        "weights": None if weights is None else as_numbers(weights, "weights", like).tolist(),
        "solver": repr(job.solver),
        "loss": repr(clf.loss),
        "outputs": clf.outputs,
        "classes": clf.classes,
        "bounds": job.bounds,
        "module": clf.module,
        "preprocess": name_of_callable(clf.preprocess),
        "pick": name_of_callable(clf.pick),
        "space": None if clf.space is None else clf.space.describe(),
        "space fingerprint": None if clf.space is None else digest_of_space(clf.space),
        "device": None if clf.device is None else clf.device.type,
        "dtype": str(clf.dtype),
        "chunk_size": job.chunk,
        "shard_size": job.shard,
        "versions": {  # another one may round differently
            "credibly": __version__,
            "torch": str(torch.__version__),
            "numpy": np.__version__,
            "python": platform.python_version(),
        },
        **{f"data {name}": value for name, value in reading.items()},
    }


def _resolve_or_leave(job: Job, gamma: Gamma, weights: Any, shards: Shards) -> dict[str, Any]:
    """Resolve the weights once for all starts of a run; remove the folder if that fails."""
    try:
        w = find_weights(job, gamma, weights)
    except CrediblyError:
        shards.remove()
        raise
    return {"weights": w, "gamma": w[0] if len(set(w)) == 1 else None}


def _solve_and_merge(job: Job, shards: Shards, watch: Watch, tick: Tick) -> int:
    """Write the output, and return how many rows were finished before."""
    rows = len(job.source)
    sizes = [min(job.shard, rows - start) for start in range(0, rows, job.shard)]
    resumed: int | None = None
    for _ in range(ROUNDS):
        missing = shards.missing(sizes)
        done = rows - sum(sizes[number] for number in missing)
        resumed = done if resumed is None else resumed
        tick(done / rows)
        for number in missing:
            tables = []
            for table in _solve_shard(job, number, watch):
                tables.append(table)
                done += table.num_rows
                tick(done / rows)
            shards.add(number, number * job.shard, tables)
        _compare_or_remove(watch, shards)
        with suppress(DamagedShardError):
            shards.merge(len(sizes))
            return resumed
    raise OutputError(
        f"{shards.path} does not give back what was written to it",
        remedy="Its disk is failing, or another program changes its files. Choose another place.",
    )


def _solve_shard(job: Job, number: int, watch: Watch) -> Iterator[Any]:
    """Solve the chunks of one shard; an input that has changed meanwhile is refused."""
    start = number * job.shard
    for first in range(start, min(start + job.shard, len(job.source)), job.chunk):
        table = solve_chunk(job, first)
        watch.look()
        yield table


def _compare_or_remove(watch: Watch, shards: Shards) -> None:
    """Refuse an input that changed unnoticed; it is not known which of the parts are right."""
    try:
        watch.compare()
    except FileFormatError:
        shards.remove()
        raise
