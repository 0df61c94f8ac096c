"""What runs in a worker of Ray: the model, loaded once, and the shards it is asked for."""

from __future__ import annotations

import os
import re
import socket
import sys
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

import torch

from credibly._extras import load_extra
from credibly.batch.formats import Record
from credibly.batch.overlap import AHEAD
from credibly.batch.parts import PartWriter
from credibly.batch.work import Packed, Plan, Work
from credibly.errors import CrediblyError, ModelError, OutputError, WorkerError
from credibly.io.source import Known, Watch

SEND_CODE = (
    "Code that only the machine has where you start must be sent along or installed: --working-dir "
    "DIR (in Python Ray(working_dir=...)) sends a folder, py_modules=[...] sends packages, and "
    "load_classifier('package.module:factory') names a model instead of sending it."
)


IDLE = 0.1
"""Seconds between two looks at whether what was written last was written."""


@dataclass(frozen=True)
class Shipped:
    """The work of a run on its way to a worker."""

    plan: Plan
    packed: Packed
    writer: PartWriter
    watch: Known

    @staticmethod
    def of(work: Work) -> Shipped:
        """Pack the work."""
        return Shipped(
            work.plan, work.maker.packed(work.writer.records), work.writer, work.watch.known()
        )

    def unpack(self, device: str | None) -> Work:
        """Load the model, and see that the output can be written from here."""
        for place in (self.writer.data, self.writer.records):
            if place.is_local and not place.is_folder():
                raise OutputError(
                    f"there is no folder {place} on {socket.gethostname()}",
                    remedy="Workers on other machines need a folder that all of them share, or a "
                    "store such as s3://.",
                )
        maker = self.packed.unpack(device)
        return Work(self.plan, maker, self.writer, Watch(maker.rows.source, self.watch))


@dataclass(frozen=True)
class Answer:
    """What a worker says.

    Attributes:
        record: of the shard that is finished.
        seconds: of solving, since the last answer.
        error: what went wrong.
    """

    record: Record | None = None
    seconds: float = 0.0
    error: CrediblyError | None = None


class Worker:
    """Makes shards in the order it is asked, and reads the next one meanwhile.

    Its methods are called from several threads, so that a call can wait while the next arrives.
    """

    def __init__(self) -> None:
        self._asked: SimpleQueue[int] = SimpleQueue()
        self._waiting: dict[int, Future[Answer]] = {}
        self._lock, self._seconds = threading.Lock(), 0.0
        self._broken: CrediblyError | None = None

    def load(self, sent: Sequence[Any], folder: str, device: str | None, threads: int) -> Answer:
        """Load the model, in the folder that the run was started in if there is one."""
        try:
            if folder and Path(folder).is_dir():
                os.chdir(folder)
            sys.path.insert(0, str(Path.cwd()))  # as `python -m` does
            torch.set_num_threads(threads)
            work = self._received(sent).unpack(device)
        except CrediblyError as error:
            return Answer(error=_with_remedy(error))
        except Exception as error:  # noqa: BLE001  # the code of a model may raise anything
            return Answer(error=_from_afar(error))
        threading.Thread(target=self._run, args=(work,), daemon=True).start()
        return Answer()

    def make(self, number: int) -> Answer:
        """Make one shard."""
        future: Future[Answer] = Future()
        with self._lock:
            if self._broken is not None:
                return Answer(error=self._broken)
            self._waiting[number] = future
        self._asked.put(number)
        return future.result()

    def _received(self, sent: Sequence[Any]) -> Shipped:
        ray = load_extra("ray", extra="ray", purpose="A worker")
        found = ray.get(sent[0])
        assert isinstance(found, Shipped)  # noqa: S101
        return found

    def _run(self, work: Work) -> None:
        try:
            work.run(self._numbers(), solved=self._solved, done=self._done)
        except BaseException as error:  # noqa: BLE001  # it must reach who waits
            known = error if isinstance(error, CrediblyError) else _from_afar(error)
            with self._lock:
                self._broken = known
                for future in self._waiting.values():
                    future.set_result(Answer(error=known))
                self._waiting.clear()

    def _numbers(self) -> Iterator[int | None]:
        """Numbers as they are asked for, and None now and then while there are none.

        What was read is then solved, and an error of writing it is noticed.
        """
        idle = 0
        while True:
            try:
                number = self._asked.get(timeout=0.0 if idle <= AHEAD + 1 else IDLE)
            except Empty:
                idle += 1
                yield None
            else:
                idle = 0
                yield number

    def _solved(self, _: int, seconds: float) -> None:
        self._seconds += seconds

    def _done(self, record: Record) -> None:
        with self._lock:
            future = self._waiting.pop(record["part"], None)
            seconds, self._seconds = self._seconds, 0.0
        if future is not None:
            future.set_result(Answer(record, seconds))


def _with_remedy(error: CrediblyError) -> CrediblyError:
    """Say where it happened, and what to do about code that is missing there."""
    cause = error.__cause__
    if isinstance(error, ModelError) and isinstance(cause, ImportError | AttributeError):
        problem = f"{error.problem}, on the worker at {socket.gethostname()}"
        return ModelError(problem, remedy=SEND_CODE)
    return error


def _from_afar(error: BaseException) -> CrediblyError:
    """The error of a worker in words; its class may not be known where the run was started."""
    where, whole = f"on the worker at {socket.gethostname()}", " ".join(str(error).split())
    text = f"{type(error).__name__}: {whole[:400]}"
    missing = re.search(r"No module named '[^']*'|Can't get attribute .*? on <[^>]*>", whole)
    if missing is not None or isinstance(error, ImportError | AttributeError):
        reason = text if missing is None else missing[0]
        return ModelError(f"the model cannot be made {where}: {reason}", remedy=SEND_CODE)
    return WorkerError(f"the work failed {where}: {text}", remedy="Finished shards are kept.")
