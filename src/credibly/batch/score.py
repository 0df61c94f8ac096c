"""`score`: profiles of every row of a file, written to Parquet, safe to interrupt."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import torch

from credibly._extras import require_table_extra
from credibly._validation import as_numbers, real_number, require
from credibly.batch.chunks import Job, find_weights, solve, solve_chunk
from credibly.batch.first_rows import faster
from credibly.batch.formats import PROFILES
from credibly.batch.packed import PackedModel, PackedSource
from credibly.batch.ray_engine import EngineLike, as_engine
from credibly.batch.report import ScoreReport, read_report
from credibly.batch.rows import Read, Rows, prepare
from credibly.batch.run import Output, Run, check_sizes
from credibly.batch.work import Maker, Packed, Table
from credibly.io.fingerprints import digest_of_classifier
from credibly.io.models import LoadedClassifier
from credibly.io.places import Place
from credibly.io.sources import Source, open_source
from credibly.io.streams import as_classifier
from credibly.model.batches import check_classifier
from credibly.model.classifier import Classifier
from credibly.model.joined import check_top
from credibly.profile.arguments import check_pair, check_solver
from credibly.profile.profile import Profile
from credibly.solve.base import Solver
from credibly.solve.gradient_descent import Hybrid
from credibly.types import CPU, Array, Bounds, Progress

Gamma = float | Literal["auto"]


def score(
    clf: Classifier | LoadedClassifier,
    source: Source | str | Path,
    out: str | Path,
    *,
    gamma: Gamma = "auto",
    weights: Array | Sequence[float] | None = None,
    solver: Solver | None = None,
    bounds: Bounds | None = None,
    top: int | None = None,
    chunk_size: int = 128,
    shard_size: int = 1024,
    resume: bool = True,
    overwrite: bool = False,
    progress: Progress = False,
    fingerprint: str | None = None,
    engine: EngineLike = "local",
    folder: bool = False,
    status: str | Path | None = None,
) -> ScoreReport:
    """Solve the profile of every row of `source` and write them to Parquet.

    Rows are read, solved and written chunk by chunk, so memory does not grow with their number.
    A run that was killed continues where it was when it is started again, and gives the same rows.
    A row that cannot be solved gets a status and does not affect other rows.

    Args:
        clf: the classifier, or the result of `load_classifier`.
        source: the result of `open_source`, or a path for it. A model that was fitted on a table
            takes the columns of a table by name.
        out: the Parquet file to write, on this machine or in a store (`s3://...`). Until it is
            finished its parts are in `<out>.parts/`. With a slash at the end it is a folder.
        gamma: see `credibility`; 'auto' is set once, from the first rows, and recorded.
        weights: K numbers instead of gamma.
        solver: see `credibility`.
        bounds: see `credibility`, for the values that may move; a row in which one of them lies
            outside, or outside the bounds of a `Space`, gets a status.
        top: see `credibility`; the columns are then `class.top1`, `credibility.top1`, ...,
            `credibility.others`.
        chunk_size: rows solved at a time.
        shard_size: rows in a part: an interruption loses at most this many, and one chunk.
        resume: False drops the parts of an earlier run.
        overwrite: whether a finished file may be replaced.
        progress: True shows a bar; a function is called with the share done.
        fingerprint: identifies the model; by default a digest of its weights. `preprocess`, `pick`,
            a custom loss and a model that is a function are identified by name only: a change of
            their code is not noticed. For a model loaded as `package.module:factory` the digest of
            the file notices it.
        engine: 'local', 'ray', or a `credibly.ray.Ray` that says where and with how many workers.
            The rows are the same; a run that one engine began another can finish.
        folder: write a folder of one Parquet file per shard and a manifest; nothing is joined.
        status: a JSON file that says how far the run is; by default among the parts.

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
    loaded = clf if isinstance(clf, LoadedClassifier) else None
    if isinstance(clf, LoadedClassifier):
        known = known or clf.parts_by_name()
        clf = clf.classifier
    clf = check_classifier(clf)
    source = source if isinstance(source, Source) else open_source(source)
    source = source.for_model(clf)
    chunk, shard = check_sizes(chunk_size, shard_size)
    both = weights is not None and gamma is not None and not isinstance(gamma, str)
    require(not both, "gamma", "exactly one of gamma and weights", "both", "Leave out one of them.")
    solver = check_solver(solver, default=Hybrid())
    few = None if top is None else check_top(top, clf.loss)
    job = Job(
        clf=clf,
        source=source,
        chunk=chunk,
        shard=shard,
        bounds=check_pair(bounds),
        solver=solver,
        top=few,
    )
    output = Output(
        out=out,
        folder=folder,
        resume=resume,
        overwrite=overwrite,
        engine=as_engine(engine),
        progress=progress,
        status=status,
    )
    known = known or {"model": digest_of_classifier(clf) or "unknown"}
    run = Run(job, output, PROFILES)

    def maker(found: Mapping[str, Any]) -> Maker:
        return _Scores(replace(job, weights=tuple(found["weights"])), loaded)

    resumed = run.complete(
        {**known, **_settings(job, gamma, weights)}, lambda: _resolve(job, gamma, weights), maker
    )
    return read_report(run.shards, resumed=resumed, seconds=time.monotonic() - started)


@dataclass(frozen=True)
class _Scores(Maker):
    """Makes tables of profiles."""

    job: Job
    loaded: LoadedClassifier | None

    @property
    def rows(self) -> Rows:
        return self.job

    @cached_property
    def quick(self) -> Job:
        """The same with a faster copy of the model, where that is worth it."""
        return replace(self.job, clf=faster(self.job))

    def table(self, read: Read) -> Table:
        return solve_chunk(self.quick, read)

    def packed(self, home: Place) -> Packed:
        own = {k: value for k, value in vars(self.job).items() if k not in ("clf", "source")}
        model = PackedModel.of(self.job.clf, self.loaded)
        return _PackedScores(model, PackedSource.of(self.job.source, home), own)


@dataclass(frozen=True)
class _PackedScores(Packed):
    model: PackedModel
    source: PackedSource
    settings: dict[str, Any]

    def unpack(self, device: str | None) -> Maker:
        clf = as_classifier(self.model.open(device))
        return _Scores(Job(clf=clf, source=self.source.open(clf), **self.settings), None)


def first_look(
    clf: Classifier, source: Source, *, gamma: Gamma, bounds: Bounds | None, rows: int
) -> tuple[Profile, float]:
    """Solve the first few rows as `score` would; return their profile and the seconds it took."""
    source, pair = source.for_model(clf), check_pair(bounds)
    job = Job(clf=clf, source=source, chunk=rows, shard=rows, bounds=pair, solver=Hybrid())
    weights = find_weights(job, gamma, None)
    x, _ = prepare(job, source.read(0, rows)[1])
    started = time.monotonic()
    profile = solve(replace(job, weights=weights), x)
    return profile, time.monotonic() - started


def _settings(job: Job, gamma: object, weights: Any) -> dict[str, Any]:
    """Collect everything that decides the rows, by name."""
    like = torch.empty(0, dtype=torch.float64, device=CPU)
    number = "auto" if gamma == "auto" else real_number(gamma)
    return {
        "gamma": number if weights is None else None,
        "weights": None if weights is None else as_numbers(weights, "weights", like).tolist(),
        "solver": repr(job.solver),
        **({} if job.top is None else {"top": job.top}),
    }


def _resolve(job: Job, gamma: Gamma, weights: Any) -> dict[str, Any]:
    """Find the weights, and gamma if they are all the same."""
    w = find_weights(job, gamma, weights)
    return {"weights": w, "gamma": w[0] if len(set(w)) == 1 else None}
