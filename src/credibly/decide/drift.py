"""`DriftWatch`: is the stream of inputs still like what the Judge was fitted on?"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from credibly._validation import require, share, whole
from credibly.decide import drift_files
from credibly.decide.drift_bets import Numbers
from credibly.decide.drift_engine import Engine, Integers, WatchSettings
from credibly.decide.drift_history import DriftHistory
from credibly.decide.drift_state import ClassDrift, DriftState, state_of
from credibly.decide.drift_verdicts import open_verdicts
from credibly.decide.judge import Judge
from credibly.decide.judge_files import digest
from credibly.decide.judgement import Judgement

FEWEST = 99
"""Fresh ordinary inputs, at least: with fewer a drift is found late."""


class DriftWatch:
    """Says when a stream of inputs is no longer like the ordinary ones; one watch per stream.

    It bets against the hypothesis that ordinary inputs and the inputs of the stream are
    exchangeable: that every order of them has the same chance, as of independent draws from one
    distribution. It looks at the Judge's `p_ordinary`. Each input gets its rank among the ordinary
    inputs and *all earlier inputs of the stream*, with ties broken at random, and capital is bet on
    small ranks and on large ones. Much capital is evidence that the stream changed.

    **The promise.** Let `ordinary` be inputs that the Judge was not fitted on, exchangeable with
    those of the stream. Then the chance of ever raising an alarm, however long the stream is, is at
    most `false_alarms`. Proof: given the Judge, each number is a fixed function of its input, so
    the numbers are exchangeable. Given which numbers the first t are, but not their order, the t-th
    is any of them with the same chance; so its rank, plus a random share of its ties, is uniform on
    [0, 1], whatever comes later. Later ranks depend on the first t numbers only through which they
    are. So all ranks are independent and uniform (Vovk, Gammerman and Shafer 2005, theorem 8.2).
    The product of bets f(rank) with mean 1 is then a martingale, and so is an average of such
    products with weights that were fixed before. It starts at 1, so by Ville's inequality it ever
    reaches 1 / a with a chance of at most a. Ranks within each predicted class, given the classes,
    are independent and uniform by the same argument.

    **By class.** The martingales of the classes share one history, so their average is a
    martingale, too. That of all inputs has another history, and its average with them need not be
    one. So the rate is split: the martingale of all inputs and the average over all classes each
    raise the alarm at 2 / `false_alarms`. A class that lifts the average there alone is named.

    **Without `ordinary`**, the inputs that the Judge was fitted on take their place. Each of them
    was judged by the others, a new input by all of them, so the two are not quite exchangeable and
    the proof does not cover it. In simulations the rate was at most doubled (`tests/decide`). Each
    class is then compared with its own past only, since a Judge does not store the classes of its
    inputs.

    P-values against a *fixed* set of ordinary inputs must not be bet on: all of them share the
    error of that set, so the capital may grow without limit on a stream that never changed.

    **Memory** does not grow with the stream. A Judge of n ordinary inputs gives p-values of n + 1
    kinds, so how often each of them was seen gives exact ranks: 8 (n + 2) bytes for all inputs and
    as much for each class that was seen. Several threads may share a watch.

    Example:
        >>> import torch, credibly as cr
        >>> _ = torch.manual_seed(0)
        >>> judge = cr.Judge.fit(torch.nn.Linear(4, 3), torch.randn(200, 4))
        >>> watch = cr.DriftWatch.fit(judge, torch.randn(200, 4), by_class=False)
        >>> watch.update(judge(torch.randn(300, 4))).alarm
        False
        >>> state = watch.update(judge(torch.randn(100, 4) + 2))
        >>> state.alarm, 300 < state.since < 320
        (True, True)
    """

    def __init__(self, engine: Engine) -> None:
        """Use `fit` or `load`."""
        self._engine, self._lock = engine, threading.Lock()

    @classmethod
    def fit(
        cls,
        judge: Judge | str | Path,
        ordinary: Any = None,
        *,
        false_alarms: float = 0.01,
        by_class: bool = True,
        seed: int = 0,
    ) -> DriftWatch:
        """Begin to watch a stream.

        Args:
            judge: whose judgements will be watched, or a file of verdicts by it.
            ordinary: inputs like those to come that the Judge was not fitted on, as it takes them,
                their judgement, or a file of verdicts on them; at least 99. None: those that it was
                fitted on.
            false_alarms: the chance of ever raising an alarm while nothing changes, at most.
            by_class: whether half of it is spent on changes within a predicted class.
            seed: of the random share of ties.
        """
        share("false_alarms", false_alarms)
        subject = _subject(judge)
        known = _known(judge, subject, ordinary)
        usable = sum(int((places > 0).sum()) for places, _ in known)
        require(
            ordinary is None or usable >= FEWEST,
            "ordinary",
            f"at least {FEWEST} usable inputs",
            f"{usable}",
            "Bring more inputs that the Judge was not fitted on, or leave it out to compare with "
            "those that it was fitted on.",
        )
        engine = Engine.begin(
            WatchSettings(
                false_alarms=float(false_alarms),
                by_class=by_class,
                seed=whole("seed", seed, least=0),
                ordinary=subject.ordinary,
                classes=subject.classes,
                reference=usable,
                judge=subject.judge,
                compared=_digest_of(known) if usable else "",
            )
        )
        for places, predicted in known:
            engine.know(places[places > 0], predicted[places > 0])
        return cls(engine)

    def update(
        self, judgement: Judgement | str | Path, *, history: DriftHistory | None = None
    ) -> DriftState:
        """Go on with the next inputs of the stream, in their order; what is known then.

        Args:
            judgement: by the Judge that the watch was begun with, or a file of verdicts that
                `judge_file` wrote. How the stream is cut into batches makes no difference.
            history: keeps what happened at each input, for a picture.
        """
        with self._lock:
            self._go_on(judgement, history)
            return state_of(self._engine)

    def follow(self, judgement: Judgement) -> None:
        """Go on as `update` does, without the state: that of many classes takes time."""
        with self._lock:
            self._go_on(judgement, None)

    def skip(self, rows: int = 1) -> None:
        """Go on past inputs that have no judgement, since the model failed; they are unusable."""
        nothing = np.zeros(whole("rows", rows), np.int64)
        with self._lock:
            for _ in self._engine.after(nothing, nothing - 1):
                pass

    def _go_on(self, judgement: Judgement | str | Path, history: DriftHistory | None) -> None:
        for places, predicted in self._parts(judgement):
            for trace in self._engine.after(places, predicted):
                if history is not None:
                    history.add(trace)

    def _parts(self, judgement: Judgement | str | Path) -> Iterator[tuple[Integers, Integers]]:
        if isinstance(judgement, Judgement):
            samples, classes = self.settings.ordinary, self.settings.classes
            yield places_of(judgement, samples), classes_of(judgement, classes)
            return
        verdicts = open_verdicts(judgement)
        verdicts.check_judge("judgement", self.settings.judge, "the watch")
        for p, predicted in verdicts.parts():
            yield places_of_p_values(p, self.settings.ordinary), predicted

    @property
    def settings(self) -> WatchSettings:
        """What it was begun with."""
        return self._engine.settings

    @property
    def state(self) -> DriftState:
        """What is known now."""
        with self._lock:
            return state_of(self._engine)

    @property
    def alarm(self) -> bool:
        """Whether the stream left what the Judge was fitted on."""
        return self._engine.since is not None

    @property
    def martingale(self) -> float:
        """Evidence of all inputs that the stream changed."""
        return self.state.martingale

    @property
    def log_martingale(self) -> float:
        """Log of `martingale`, which a float can always hold."""
        return self._engine.whole.bets.log_martingale

    @property
    def seen(self) -> int:
        """Inputs so far."""
        return self._engine.seen

    @property
    def since(self) -> int | None:
        """Number of the input, from 1 on, with which the alarm rose."""
        return self._engine.since

    @property
    def by_class(self) -> Mapping[int, ClassDrift]:
        """Of each predicted class that was seen."""
        return self.state.by_class

    def save(self, path: str | Path) -> None:
        """Write one safetensors file with everything that `load` needs to go on.

        The file is written whole or not at all, so this may be done while the stream is watched.
        """
        with self._lock:
            content = drift_files.content_of(self._engine)
        drift_files.save(content, path)

    @staticmethod
    def load(path: str | Path, judge: Judge | str | Path) -> DriftWatch:
        """Go on where the watch was when it was saved; another Judge is refused.

        Args:
            path: the file.
            judge: that it was begun with, or a file of verdicts by it.
        """
        return DriftWatch(drift_files.load(Path(path), _subject(judge).judge))

    def __repr__(self) -> str:
        return f"DriftWatch({self.state.summary()})"


@dataclass(frozen=True)
class _Subject:
    """What a watch has to know of a Judge."""

    judge: str
    ordinary: int
    classes: int


def _subject(judge: Judge | str | Path) -> _Subject:
    if isinstance(judge, str | Path):
        found = open_verdicts(judge)
        return _Subject(found.judge, found.ordinary, found.classes)
    samples = sum(len(part["either"]) for part in judge.alarm.ordinary)
    return _Subject(digest(judge), samples, judge.facts.classes)


def _known(
    judge: Judge | str | Path, subject: _Subject, ordinary: Any
) -> list[tuple[Integers, Integers]]:
    """Places and classes of the ordinary inputs."""
    if ordinary is None:
        return []
    if isinstance(ordinary, str | Path):
        verdicts = open_verdicts(ordinary)
        verdicts.check_judge("ordinary", subject.judge, str(judge))
        return [(places_of_p_values(p, subject.ordinary), k) for p, k in verdicts.parts()]
    if not isinstance(ordinary, Judgement):
        require(
            isinstance(judge, Judge),
            "ordinary",
            "a file of verdicts on ordinary inputs, where the Judge is given by one, too",
            type(ordinary).__name__,
            "Judge them first: credibly judge MODEL ORDINARY --judge judge --out ordinary.parquet.",
        )
        assert isinstance(judge, Judge)  # noqa: S101  # just checked
        ordinary = judge(ordinary)
    return [(places_of(ordinary, subject.ordinary), classes_of(ordinary, subject.classes))]


def _digest_of(known: list[tuple[Integers, Integers]]) -> str:
    """Of the places and classes of ordinary inputs, in hex, however they are cut."""
    places, predicted = (np.concatenate([part[k] for part in known]) for k in (0, 1))
    whole = np.stack([places, predicted]).astype("<i8")
    return hashlib.sha256(whole.tobytes()).hexdigest()


def places_of(judgement: Judgement, samples: int) -> Integers:
    """Where each input (N,) stands among the ordinary ones: from 1, the strangest; 0: unusable."""
    return places_of_p_values(judgement.p_ordinary.numpy(), samples)


def places_of_p_values(p: Numbers, samples: int) -> Integers:
    """The same from the p-values (N,) of a Judge with so many ordinary inputs."""
    scaled = p * (samples + 1)
    known = np.isfinite(scaled)
    places = np.where(known, np.rint(np.where(known, scaled, 0)), 0)
    off = np.abs(places - np.where(known, scaled, 0)) > 1e-6 * (samples + 1)
    good = not bool(off.any() or (known & ((places < 1) | (places > samples + 1))).any())
    require(
        good,
        "judgement",
        f"p-values of a Judge with {samples} ordinary inputs",
        "p-values that such a Judge does not give",
        "Pass what the Judge says that the watch was begun with.",
    )
    return places.astype(np.int64)


def classes_of(judgement: Judgement, classes: int) -> Integers:
    """The predicted classes (N,)."""
    found: Integers = judgement.predicted.numpy()
    remedy = "Pass what the Judge says that the watch was begun with."
    most = int(found.max(initial=-1))
    require(most < classes, "judgement", f"classes below {classes}", f"{most}", remedy)
    return found
