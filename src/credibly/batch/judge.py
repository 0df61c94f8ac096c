"""`judge_file`: a verdict on every row of a file, written to Parquet, safe to interrupt."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from credibly._extras import require_table_extra
from credibly._validation import require
from credibly.batch.first_rows import faster, first_rows
from credibly.batch.formats import VERDICTS
from credibly.batch.packed import PackedJudge, PackedSource
from credibly.batch.parts import as_table
from credibly.batch.ray_engine import EngineLike, as_engine
from credibly.batch.report import JudgeReport, read_verdicts
from credibly.batch.rows import Read, Rows, work_on
from credibly.batch.run import Output, Run, check_sizes
from credibly.batch.tally import FAILED, JUDGED, OUTSIDE, UNREADABLE
from credibly.batch.work import Maker, Packed, Table
from credibly.decide.judge import Judge
from credibly.decide.judge_files import digest
from credibly.decide.ordinary_checks import warn_of_known
from credibly.decide.shown import classes_as_words
from credibly.io.fingerprints import digest_of_classifier
from credibly.io.models import LoadedClassifier
from credibly.io.places import Place
from credibly.io.sources import Source, open_source
from credibly.solve.status import Status
from credibly.types import Progress, finite_rows

_REASONS = {
    UNREADABLE: "unusable: the file could not be read",
    OUTSIDE: "unusable: a value lies outside the bounds of the model's space",
    FAILED: "unusable: the model raised an exception",
}


def judge_file(
    judge: Judge,
    source: Source | str | Path,
    out: str | Path,
    *,
    chunk_size: int | None = None,
    shard_size: int = 1024,
    resume: bool = True,
    overwrite: bool = False,
    progress: Progress = False,
    fingerprint: str | LoadedClassifier | None = None,
    engine: EngineLike = "local",
    folder: bool = False,
    status: str | Path | None = None,
) -> JudgeReport:
    """Judge every row of `source` and write the verdicts to Parquet.

    The rows are those of `judge(x).to_pandas()`, with an id and a status. They are read, judged and
    written chunk by chunk, so memory does not grow with their number. A run that was killed
    continues where it was when it is started again, and gives the same rows. A row that cannot be
    judged is 'unusable', its status says why, and it does not affect other rows.

    Args:
        judge: fitted for the model.
        source: the result of `open_source`, or a path for it. A model that was fitted on a table
            takes the columns of a table by name.
        out: the Parquet file to write, on this machine or in a store (`s3://...`). Until it is
            finished its parts are in `<out>.parts/`. With a slash at the end it is a folder.
        chunk_size: rows judged at a time; by default that of the Judge.
        shard_size: rows in a part: an interruption loses at most this many, and one chunk.
        resume: False drops the parts of an earlier run.
        overwrite: whether a finished file may be replaced.
        progress: True shows a bar; a function is called with the share done.
        fingerprint: identifies the model, see `score`; the result of `load_classifier` has one,
            and with it workers load the model by its name.
        engine: 'local', 'ray' or a `credibly.ray.Ray`, see `score`.
        folder: write a folder of one file per shard, see `score`.
        status: a JSON file that says how far the run is; by default among the parts.

    Example:
        >>> import tempfile, numpy as np, torch, credibly as cr
        >>> folder, random = tempfile.mkdtemp(), np.random.default_rng(0)
        >>> judge = cr.Judge.fit(torch.nn.Linear(3, 2).double(), random.normal(size=(200, 3)))
        >>> np.save(f"{folder}/x.npy", np.array([[0.1, 0.2, 0.0], [90.0, -90.0, 90.0]]))
        >>> report = cr.judge_file(judge, f"{folder}/x.npy", f"{folder}/verdicts.parquet")
        >>> report.verdicts["outlier"]
        1
    """
    started = time.monotonic()
    require_table_extra()
    clf = judge.examiner.clf
    source = source if isinstance(source, Source) else open_source(source)
    source = source.for_model(clf)
    size = judge.examiner.chunk_size if chunk_size is None else chunk_size
    chunk, shard = check_sizes(size, shard_size)
    job = JudgeJob(clf=clf, source=source, chunk=chunk, shard=shard, judge=judge)
    output = Output(
        out=out,
        folder=folder,
        resume=resume,
        overwrite=overwrite,
        engine=as_engine(engine),
        progress=progress,
        status=status,
    )
    run = Run(job, output, VERDICTS)
    loaded = fingerprint if isinstance(fingerprint, LoadedClassifier) else None
    resumed = run.complete(
        {**_identity(judge, fingerprint), "judge": digest(judge)},
        partial(_check, job),
        lambda _: _Verdicts(job, loaded),
    )
    return read_verdicts(run.shards, resumed=resumed, seconds=time.monotonic() - started)


@dataclass(frozen=True, kw_only=True)
class JudgeJob(Rows):
    """The Judge that every chunk is judged by."""

    judge: Judge


@dataclass(frozen=True)
class _Verdicts(Maker):
    """Makes tables of verdicts."""

    job: JudgeJob
    loaded: LoadedClassifier | None

    @property
    def rows(self) -> Rows:
        return self.job

    @cached_property
    def quick(self) -> JudgeJob:
        """The same with a faster copy of the model, where that is worth it."""
        clf, judge = faster(self.job), self.job.judge
        if clf is self.job.clf:
            return self.job
        return replace(self.job, clf=clf, judge=replace(judge, examiner=judge.examiner.on(clf)))

    def table(self, read: Read) -> Table:
        return judge_chunk(self.quick, read)

    def packed(self, home: Place) -> Packed:
        job, judge = self.job, PackedJudge.of(self.job.judge, self.loaded)
        return _PackedVerdicts(judge, PackedSource.of(job.source, home), job.chunk, job.shard)


@dataclass(frozen=True)
class _PackedVerdicts(Packed):
    judge: PackedJudge
    source: PackedSource
    chunk: int
    shard: int

    def unpack(self, device: str | None) -> Maker:
        judge = self.judge.open(device)
        clf = judge.examiner.clf
        source = self.source.open(clf)
        job = JudgeJob(clf=clf, source=source, chunk=self.chunk, shard=self.shard, judge=judge)
        return _Verdicts(job, None)


def judge_chunk(job: JudgeJob, read: Read) -> Any:
    """Return the table of a chunk."""
    chunk = work_on(job, lambda variable: (job.judge.judge(variable), variable), read)
    found, variable = chunk.result
    frame = classes_as_words(found.to_pandas())
    known = finite_rows(variable.start).cpu().numpy()
    frame["status"] = JUDGED
    frame.loc[(found.predicted < 0).numpy(), "status"] = Status.NON_FINITE_MODEL.label
    frame.loc[~known, "status"] = Status.NON_FINITE_INPUT.label
    chunk.mark(frame)
    for words, reason in _REASONS.items():
        frame.loc[frame["status"] == words, "reason"] = reason
    table = as_table(job.source, read, frame)
    names = job.judge.examiner.clf.classes
    facts = {"judge": job.judge.facts.as_json(), "classes": None if names is None else list(names)}
    return table.replace_schema_metadata({k: json.dumps(v) for k, v in facts.items()})


def _identity(judge: Judge, fingerprint: str | LoadedClassifier | None) -> dict[str, str]:
    """What the model is, as settings of a run."""
    if isinstance(fingerprint, LoadedClassifier):
        return fingerprint.parts_by_name()
    own = digest_of_classifier(judge.examiner.clf) or "unknown"
    return {"model": own if fingerprint is None else fingerprint}


def _check(job: JudgeJob) -> dict[str, Any]:
    """Refuse inputs of another shape than the ordinary ones, and a model that cannot take them."""
    ordinary, source = job.judge.typicality.inputs, job.source
    got, columns = (
        tuple(source.shape),
        "" if job.columns is None else f", {len(job.columns)} columns",
    )
    require(
        ordinary is None or got == ordinary.shape,
        "source",
        f"inputs of the shape of the ordinary ones, {None if ordinary is None else ordinary.shape}",
        f"{got} in {source.path}{columns}",
        "Bring them into that shape: leave out columns that are not features (--drop NAME), resize "
        "images (--size HEIGHTxWIDTH), or fit a Judge on such inputs.",
    )
    with first_rows(job) as first:
        warn_of_known(ordinary, first.variable, level=4)
        return {"gamma": job.judge.examiner.gamma}
