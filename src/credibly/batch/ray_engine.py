"""The engine 'ray': workers of a Ray cluster, or of one that is started on this machine."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from credibly._extras import load_extra
from credibly._validation import positive, real_number, require, whole
from credibly.batch.engines import Engine, Local
from credibly.batch.progress import Reporter
from credibly.batch.ray_connection import connected
from credibly.batch.ray_crew import Crew, Wish
from credibly.batch.work import Work
from credibly.model.classifier import Classifier


@dataclass(frozen=True, kw_only=True)
class Ray(Engine):
    """Workers of Ray, each with the model loaded once; a lost one is replaced, its shards redone.

    All machines must see the input and the output under the same names: a shared folder, or a store
    (`s3://...`). A run that was interrupted can be finished by any engine.

    Args:
        address: HOST:PORT of the head of a cluster, or 'auto' for the one on this machine. By
            default RAY_ADDRESS if it is set; else a cluster is started here, for this run only.
        workers: how many; by default as many as there is room for.
        gpus_per_worker: with more than 0, workers solve on a GPU, also if this machine has none.
        cpus_per_worker: also the number of their threads.
        working_dir: a folder that is sent to the workers, for a model whose code is in it.
        py_modules: packages that are sent to the workers.
        patience: seconds to wait for a first worker, or for the next when all are lost.

    Example:
        >>> import credibly as cr
        >>> cr.ray.Ray(address="head:6379", workers=64, gpus_per_worker=1).name
        'ray'
    """

    address: str | None = None
    workers: int | None = None
    gpus_per_worker: float = 0
    cpus_per_worker: float = 1
    working_dir: str | Path | None = None
    py_modules: Sequence[str] = ()
    patience: float = 300.0

    def __post_init__(self) -> None:
        if self.workers is not None:
            whole("workers", self.workers, remedy="Leave it out for as many as fit.")
        gpus = real_number(self.gpus_per_worker)
        good, got = gpus is not None and gpus >= 0, repr(self.gpus_per_worker)
        require(good, "gpus_per_worker", "a number, 0 or more", got, "Pass 0 for the CPU.")
        positive("cpus_per_worker", self.cpus_per_worker, "Pass 1, or more for large models.")
        positive("patience", self.patience, "It is a number of seconds.")
        folder = self.working_dir
        require(
            folder is None or Path(folder).is_dir() or "://" in str(folder),
            "working_dir",
            "a folder",
            repr(folder),
            "Name the folder that the code of the model is in.",
        )

    @property
    def name(self) -> str:
        return "ray"

    def device(self, clf: Classifier) -> str | None:
        return "cuda" if self.gpus_per_worker > 0 else super().device(clf)

    def run(self, work: Work, numbers: Sequence[int], reporter: Reporter) -> None:
        wish = Wish(
            work=work,
            device="cuda" if self.gpus_per_worker > 0 else None,
            folder=str(Path.cwd()) if self.working_dir is None else "",
            most=self.workers,
            cpus=self.cpus_per_worker,
            gpus=self.gpus_per_worker,
            patience=self.patience,
        )
        with self.connection() as ray, Crew(ray, wish, reporter) as crew:
            crew.make(numbers)

    @contextmanager
    def connection(self) -> Iterator[Any]:
        """Connect to the cluster, or start one, for as long as the block lasts."""
        ray = load_extra("ray", extra="ray", purpose="The engine 'ray'")
        wanted: dict[str, Any] = {}
        if self.working_dir is not None:
            wanted["working_dir"] = str(self.working_dir)
        if self.py_modules:
            wanted["py_modules"] = list(self.py_modules)
        with connected(ray, self.address, wanted, self._local_cpus()):
            yield ray

    def _local_cpus(self) -> float:
        """How many CPUs a cluster on this machine is said to have: enough for the workers."""
        own = float(os.cpu_count() or 1)
        return max(own, (self.workers or 1) * self.cpus_per_worker)


EngineLike = Engine | Literal["local", "ray"]


def as_engine(engine: EngineLike) -> Engine:
    """Return an engine, also by its name."""
    known: dict[object, Engine] = {"local": Local(), "ray": Ray()}
    found = engine if isinstance(engine, Engine) else known.get(engine)
    require(
        found is not None,
        "engine",
        "'local', 'ray' or a credibly.ray.Ray(...)",
        repr(engine),
        "Ray(address=..., workers=...) says where and how many.",
    )
    assert found is not None  # noqa: S101
    return found
