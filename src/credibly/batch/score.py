"""`score`: profiles of every row of a file, written to Parquet, safe to interrupt."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from credibly.batch.chunks import AUTO_ROWS, Job, answered, gamma_of, prepared, solve_chunk, solved
from credibly.batch.manifest import FORMAT, FORMAT_VERSION, Manifest, plain, require_same, versions
from credibly.batch.report import ScoreReport, movement
from credibly.batch.shards import NAME_A_FILE, Shards, require_table_extra
from credibly.errors import CrediblyError, FileFormatError, InvalidArgumentError, OutputError
from credibly.io.code_digest import digest_of_callable, words_of_loss
from credibly.io.columns import naming_columns
from credibly.io.fingerprints import digest_of_classifier, digest_of_space
from credibly.io.lock import locked
from credibly.io.models import LoadedClassifier
from credibly.io.sources import Source, open_source
from credibly.model.checks import check_model
from credibly.model.classifier import Classifier
from credibly.model.derivatives import undisturbed
from credibly.model.inputs import enter, finite_rows
from credibly.problem.weights import as_numbers, resolve_weights
from credibly.profile.arguments import (
    Progress,
    check_bounds,
    check_chunk_size,
    check_solver,
    ticking,
)
from credibly.profile.profile import Profile
from credibly.solve.base import Solver
from credibly.solve.hybrid import Hybrid
from credibly.solve.loop import Tick
from credibly.types import Array, Bounds, real_number

OTHER_FORMATS = frozenset({".csv", ".tsv", ".txt", ".json", ".npz", ".npy", ".xlsx", ".feather"})
"""Names that would promise something else than Parquet."""


def score(
    clf: Classifier | LoadedClassifier,
    source: Source | str | Path,
    out: str | Path,
    *,
    gamma: float | Literal["auto"] = "auto",
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
    A run that was killed goes on where it was when it is started again, and gives the same rows.
    A row that cannot be solved gets a status and never stops the others.

    Args:
        clf: the classifier, or what `load_classifier` gave.
        source: what `open_source` gave, or a path for it. A model that was fitted on a table takes
            the columns of a table by name.
        out: the Parquet file to write. Until it is finished its parts are in `<out>.parts/`.
        gamma: as of `credibility`; 'auto' is set once, by the first rows, and recorded.
        weights: K numbers instead of gamma.
        solver: as of `credibility`.
        bounds: as of `credibility`, for the values that may move; a row in which one of them lies
            outside, or outside the bounds of a `Space`, gets a status.
        chunk_size: rows solved at a time.
        shard_size: rows in a part: at most so many (and a chunk) are lost by an interruption.
        resume: False drops the parts of an earlier run.
        overwrite: whether a finished file may be replaced.
        progress: show a bar, or a function called with the share done.
        fingerprint: what identifies the model; by default a digest of its weights. A model that is
            a function without weights has none: then a change of it is not noticed. One of
            `preprocess` or `pick` is.
    """
    started = time.monotonic()
    require_table_extra()
    known: dict[str, Any] = {} if fingerprint is None else {"model": fingerprint}
    if isinstance(clf, LoadedClassifier) and fingerprint is None:
        known = {"model": clf.fingerprint, **clf.parts_by_name()}
    clf = clf.classifier if isinstance(clf, LoadedClassifier) else clf
    source = source if isinstance(source, Source) else open_source(source)
    source = source.for_model(_checked(clf))
    check_chunk_size(chunk_size)
    check_chunk_size(shard_size)
    _check_one_source_of_weights(gamma, weights)
    chunk = int(chunk_size)  # JSON has no whole numbers of NumPy
    shard = -(-int(shard_size) // chunk) * chunk
    job = Job(clf, source, (), check_solver(solver, default=Hybrid()), _pair(bounds), chunk, shard)
    shards = Shards(Path(out))
    _check_output(shards, source, overwrite=overwrite)
    wanted = plain({**_settings(job, gamma, weights), **known})
    shards.create()
    with locked(shards.lock, shards.out), ticking(progress) as tick:
        _check_still_free(shards, source, overwrite=overwrite)
        if not resume:
            shards.clear()
        manifest = Manifest.read(shards.manifest) or _begun(job, gamma, weights, wanted, shards)
        require_same(manifest.settings, wanted, shards.folder)
        resumed = _solve_shards(replace(job, weights=manifest.weights), shards, tick)
        statuses = shards.merge(-(-len(source) // shard), _metadata(manifest))
        shards.remove()
    moved = movement(shards.out)
    seconds = time.monotonic() - started
    return ScoreReport(
        shards.out, len(source), resumed, dict(statuses), manifest.gamma, seconds, *moved
    )


def _checked(clf: Classifier) -> Classifier:
    if not isinstance(clf, Classifier):
        raise InvalidArgumentError(
            "clf",
            expected="a credibly.Classifier or what load_classifier gave",
            got=type(clf).__name__,
            remedy="Wrap your model first: credibly.Classifier(net).",
        )
    return clf


def _check_one_source_of_weights(gamma: object, weights: object) -> None:
    if weights is not None and gamma is not None and not isinstance(gamma, str):
        raise InvalidArgumentError(
            "gamma",
            expected="exactly one of gamma and weights",
            got="both",
            remedy="Leave out one of them.",
        )


def _check_output(shards: Shards, source: Source, *, overwrite: bool) -> None:
    out = shards.out
    if not out.parent.is_dir():
        raise OutputError(f"{out}: the folder {out.parent} does not exist", remedy="Make it first.")
    if out.is_dir():
        raise OutputError(f"{out} is a folder", remedy=NAME_A_FILE)
    if out.exists() and not out.is_file():  # a device, say, in place of which a file would come
        raise OutputError(f"{out} is no plain file", remedy=NAME_A_FILE)
    if out.suffix.lower() in OTHER_FORMATS:
        raise OutputError(
            f"{out}: the result is a Parquet file, whatever its name",
            remedy="Name it .parquet; pandas.read_parquet(...).to_csv(...) converts it.",
        )
    if out.exists() and source.path.exists() and out.samefile(source.path):
        raise OutputError(f"{out} is the file that is to be read", remedy="Choose another name.")
    if out.is_symlink():  # it would be replaced by a file, and what it points to stay as it is
        raise OutputError(
            f"{out} is a link to {out.readlink()}", remedy="Name the file itself, or another one."
        )
    if out.exists() and not overwrite and not shards.merged():
        raise OutputError(
            f"{out} exists already",
            remedy="Choose another name, or replace it with overwrite=True (--overwrite).",
        )


def _check_still_free(shards: Shards, source: Source, *, overwrite: bool) -> None:
    """Look again under the lock: another run may have finished since."""
    try:
        _check_output(shards, source, overwrite=overwrite)
    except OutputError:
        shards.leave()
        raise


def _pair(bounds: Bounds | None) -> Bounds | None:
    """The bounds as two numbers; that rows keep them is looked at row by row."""
    return check_bounds(bounds, torch.empty(0, 1))


def _settings(job: Job, gamma: object, weights: object) -> dict[str, Any]:
    clf = job.clf
    reading = {k: v for k, v in job.source.describe().items() if k != "name"}
    return {
        "model": digest_of_classifier(clf) or "unknown",
        "data": job.source.fingerprint(),
        "gamma": real_number(gamma) if weights is None and gamma != "auto" else _word(weights),
        "weights": None
        if weights is None
        else as_numbers(weights, "weights", torch.empty(0, dtype=torch.float64)).tolist(),
        "solver": repr(job.solver),
        "loss": words_of_loss(clf.loss),
        "outputs": clf.outputs,
        "classes": clf.classes,
        "bounds": job.bounds,
        "module": clf.module,
        "preprocess": None if clf.preprocess is None else digest_of_callable(clf.preprocess),
        "pick": None if clf.pick is None else digest_of_callable(clf.pick),
        "space": None if clf.space is None else clf.space.describe(),
        "space fingerprint": None if clf.space is None else digest_of_space(clf.space),
        "device": None if clf.device is None else clf.device.type,
        "dtype": str(clf.dtype),
        "chunk_size": job.chunk,
        "shard_size": job.shard,
        "versions": versions(),
        **{f"data {name}": value for name, value in reading.items()},
    }


def _word(weights: object) -> str | None:
    return "auto" if weights is None else None


def _begun(
    job: Job, gamma: float | Literal["auto"], weights: Any, wanted: dict[str, Any], shards: Shards
) -> Manifest:
    """Look at the model, resolve the weights once, by the first rows, and record all of it."""
    shards.clear()  # without a manifest nobody knows what the parts are
    try:
        w = _resolved(job, gamma, weights)
    except CrediblyError:
        shards.remove()
        raise
    manifest = Manifest(wanted, w, w[0] if len(set(w)) == 1 else None)
    shards.write_manifest(manifest.to_json())
    return manifest


def _resolved(job: Job, gamma: float | Literal["auto"], weights: Any) -> tuple[float, ...]:
    read = job.source.read(0, AUTO_ROWS)[1]
    x, outside = prepared(job, read)
    with undisturbed(x) as rows:
        x = answered(job.clf, rows)
        clf, x0 = enter(job.clf, x)
        with naming_columns(getattr(job.source, "columns", None)):
            check_model(clf, x0)
        if weights is None and gamma == "auto":
            _require_rows(job, read, outside)
            gamma = gamma_of(job.clf, x)
        given = gamma if weights is None else None
        return tuple(resolve_weights(clf, x0, gamma=given, weights=weights).tolist())


def _require_rows(job: Job, x: Tensor, outside: Tensor) -> None:
    """Say so where it is the bounds, or the files, that leave no row to set gamma by."""
    finite = finite_rows(x)
    if job.source.files and not bool(finite.any()):
        raise FileFormatError(
            f"{job.source.path}: none of the first {len(x)} files can be read, by which gamma "
            "would be set. Replace them, or pass gamma as a number."
        )
    if not bool(outside.any()) or bool((finite & ~outside.cpu()).any()):
        return
    values = x[finite]
    raise InvalidArgumentError(
        "bounds",
        expected="bounds that at least one of the first rows keeps, to set gamma by",
        got=f"{job.bounds or 'those of the space'}; {int(outside.sum())} of the first {len(x)} "
        f"rows lie outside (values from {float(values.min()):.4g} to {float(values.max()):.4g}), "
        "and no other can be used",
        remedy="Widen the bounds, bring the inputs into them (--scale 255 for bytes), or pass "
        "gamma as a number: such rows then get the status 'outside bounds'.",
    )


def first_look(
    clf: Classifier,
    source: Source,
    *,
    gamma: float | Literal["auto"],
    bounds: Bounds | None,
    rows: int,
) -> tuple[Profile, float]:
    """The profile of the first few rows, with the weights that `score` would use, and seconds."""
    source = source.for_model(clf)
    job = Job(clf, source, (), Hybrid(), _pair(bounds), rows, rows)
    weights = _resolved(job, gamma, None)
    x, _ = prepared(job, source.read(0, rows)[1])
    started = time.monotonic()
    profile = solved(replace(job, weights=weights), x)
    return profile, time.monotonic() - started


def _solve_shards(job: Job, shards: Shards, tick: Tick | None) -> int:
    """Solve the shards that are not there yet; gives how many rows were."""
    rows, resumed, done = len(job.source), 0, 0
    starts = range(0, rows, job.shard)
    missing = []
    for number, start in enumerate(starts):
        size = min(job.shard, rows - start)
        if shards.rows_of(number) == size:
            resumed += size
        else:
            missing.append(number)
    done = resumed
    _report(tick, done / rows)
    for number in missing:
        start, tables = number * job.shard, []
        for first in range(start, min(start + job.shard, rows), job.chunk):
            tables.append(solve_chunk(job, first))
            done += tables[-1].num_rows
            _report(tick, done / rows)
        shards.write(number, require_table_extra().concat_tables(tables))
    return resumed


def _report(tick: Tick | None, share: float) -> None:
    if tick is not None:
        tick(share)


def _metadata(manifest: Manifest) -> dict[str, str]:
    return {
        "format": FORMAT,
        "format_version": str(FORMAT_VERSION),
        "settings": manifest.to_json(),
    }
