"""Workers of Ray and what each has to do: our own plan, our own second tries.

Ray's are off. With `max_task_retries=-1` a run hung when a node was lost (measured with Ray 2.60).
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, Self

from credibly.batch.progress import Reporter
from credibly.batch.ray_actor import SEND_CODE, Answer, Shipped, Worker
from credibly.batch.tally import unusable
from credibly.batch.work import Work
from credibly.errors import CrediblyError, ModelError, WorkerError

AT_A_TIME = 2
"""Shards that a worker knows of: one to make, one to read meanwhile."""

TRIES, STARTS = 5, 3
"""Workers that one shard may cost, and that may be lost in a row while they start."""

SOON = 10.0
"""Seconds after which it is said that workers are waited for."""

KEPT = "Finished shards are kept: the same run continues from them."


@dataclass(frozen=True, kw_only=True)
class Wish:
    """What is to be done, and by whom.

    Attributes:
        work: what is to be done.
        device: to which workers move the model; None leaves it where it is.
        folder: where the run was started; empty where code was sent.
        most: workers at most; None: as many as there is room for.
        cpus: of a worker.
        gpus: of a worker.
        patience: seconds to wait where there is no worker at all.
    """

    work: Work
    device: str | None
    folder: str
    most: int | None
    cpus: float
    gpus: float
    patience: float


@dataclass(eq=False)
class _Hand:
    """A worker: its handle, what it was asked for, and whether it has the model."""

    actor: Any
    ready: bool = False
    asked: set[int] = field(default_factory=set)


class Crew:
    """The workers of one run."""

    def __init__(self, ray: Any, wish: Wish, reporter: Reporter) -> None:
        self._ray, self._wish, self._reporter = ray, wish, reporter
        self._sent = _put(ray, wish.work)
        self._kind = ray.remote(Worker).options(
            num_cpus=wish.cpus,
            num_gpus=wish.gpus,
            max_restarts=0,
            max_task_retries=0,
            max_concurrency=AT_A_TIME + 2,
        )
        self._hands: list[_Hand] = []
        self._calls: dict[Any, tuple[_Hand, int | None]] = {}
        self._pending: deque[int] = deque()
        self._tries: Counter[int] = Counter()
        self._lost_at_start, self._alone_since = 0, monotonic()
        self._fits, self._asked_cluster = 1, -1.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for hand in self._hands:
            self._dismiss(hand)

    def make(self, numbers: Sequence[int]) -> None:
        """Make these shards; an error that is not a lost worker ends it."""
        self._pending.extend(numbers)
        left = set(numbers)
        while left:
            self._hire(len(left))
            self._assign()
            for call in self._answered():
                found = self._answer(call)
                if found is not None:
                    left.discard(found)
            self._check_patience()
            self._reporter.show()

    def _hire(self, left: int) -> None:
        """Ask for workers; those for which there is no room yet wait."""
        while len(self._hands) < min(self._room(), left):
            hand = _Hand(self._kind.remote())
            threads = max(1, int(self._wish.cpus))
            args = [self._sent], self._wish.folder, self._wish.device, threads
            self._hands.append(hand)
            self._calls[hand.actor.load.remote(*args)] = hand, None

    def _room(self) -> int:
        """How many workers there is room for; the cluster is asked once a second."""
        if self._wish.most is not None:
            return self._wish.most
        if monotonic() >= self._asked_cluster + 1.0:
            wish, self._asked_cluster = self._wish, monotonic()
            name, each = ("GPU", wish.gpus) if wish.gpus else ("CPU", wish.cpus)
            self._fits = max(1, int(self._ray.cluster_resources().get(name, 0.0) / each))
        return self._fits

    def _assign(self) -> None:
        """Give every worker what it can make and what it can read meanwhile."""
        for enough in range(1, AT_A_TIME + 1):  # first one each
            for hand in self._hands:
                if self._pending and hand.ready and len(hand.asked) < enough:
                    number = self._pending.popleft()
                    hand.asked.add(number)
                    self._calls[hand.actor.make.remote(number)] = hand, number

    def _answered(self) -> list[Any]:
        """Calls that have an answer, after waiting a second for the first one."""
        found, others = self._ray.wait(list(self._calls), num_returns=1, timeout=1.0)
        if others:
            found += self._ray.wait(others, num_returns=len(others), timeout=0)[0]
        return list(found)

    def _answer(self, call: Any) -> int | None:
        """Take an answer; return the number of the shard that is finished."""
        hand, number = self._calls.pop(call)
        exceptions = self._ray.exceptions
        try:
            answer: Answer = self._ray.get(call)
        except exceptions.RuntimeEnvSetupError as error:
            raise _broken("what was to be sent to the workers cannot be used", error) from error
        except exceptions.RayTaskError as error:
            raise _broken("a worker failed", error) from error
        except exceptions.RayError as error:  # the worker is gone, or its node
            self._lose(hand, number, error)
            return None
        if answer.error is not None:
            raise answer.error
        if number is None:
            hand.ready, self._lost_at_start = True, 0
            return None
        hand.asked.discard(number)
        return self._note(number, answer)

    def _note(self, number: int, answer: Answer) -> int:
        pulse, record = self._reporter.pulse, answer.record
        assert record is not None  # noqa: S101
        pulse.done += record["rows"]
        pulse.failed += unusable(record["tally"])
        pulse.solving += answer.seconds
        return number

    def _lose(self, hand: _Hand, number: int | None, error: Exception) -> None:
        """Give what a lost worker had to others."""
        if hand in self._hands:
            self._hands.remove(hand)
            self._dismiss(hand)
            self._lost_at_start += not hand.ready
            if self._lost_at_start >= STARTS:
                raise _broken(f"{STARTS} workers in a row were lost while they started", error)
        if number is None or number not in hand.asked:
            return
        hand.asked.discard(number)
        self._tries[number] += 1
        if self._tries[number] >= TRIES:
            raise _broken(f"shard {number} was lost with {TRIES} workers", error)
        self._pending.appendleft(number)
        self._reporter.pulse.retries += 1

    def _dismiss(self, hand: _Hand) -> None:
        with suppress(Exception):  # it may be gone
            self._ray.kill(hand.actor, no_restart=True)

    def _check_patience(self) -> None:
        pulse, wish = self._reporter.pulse, self._wish
        pulse.workers, pulse.note = sum(hand.ready for hand in self._hands), ""
        if pulse.workers:
            self._alone_since = monotonic()
            return
        waited = monotonic() - self._alone_since
        needs = f"each asks for {wish.cpus:g} CPUs and {wish.gpus:g} GPUs"
        if waited > SOON:
            pulse.note = f"waiting for workers: {needs}"
        if waited > wish.patience:
            total = self._ray.cluster_resources()
            has = f"{total.get('CPU', 0):g} CPUs and {total.get('GPU', 0):g} GPUs"
            raise WorkerError(
                f"no worker started in {wish.patience:g} s: {needs}, and the cluster has {has}",
                remedy="Ask for less (--gpus-per-worker, cpus_per_worker=...), wait until others "
                f"are done, or add machines. {KEPT}",
            )


def _put(ray: Any, work: Work) -> Any:
    """Send the work to where workers take it from."""
    try:
        return ray.put(Shipped.of(work))
    except TypeError as error:  # as pickling says it
        reason = str(error.__cause__ or error.__context__ or error).strip().partition("\n")[0]
        problem = f"the model cannot be sent to workers: {reason[:200]}"
        raise ModelError(problem, remedy=SEND_CODE) from error


def _broken(what: str, error: Exception) -> CrediblyError:
    reason = " ".join(str(error).split())
    if "ModuleNotFoundError" in reason or "ImportError" in reason:
        return ModelError(f"{what}: {reason[-400:]}", remedy=SEND_CODE)
    return WorkerError(
        f"{what}: {type(error).__name__}: {reason[:400]}",
        remedy=f"It may have run out of memory: try a smaller chunk_size (--chunk-size). {KEPT}",
    )
