"""From ordinary inputs to what a Judge knows."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

import torch
from torch import Tensor

from credibly._validation import require
from credibly.decide import thresholds
from credibly.decide.alarm import Alarm, Answers, Question
from credibly.decide.calibration import VennAbers
from credibly.decide.examine import (
    Examiner,
    classes_of,
    finite_logits,
    over_top,
    watched,
)
from credibly.decide.judge_facts import Asked
from credibly.decide.ordinary import Ordinary
from credibly.decide.ordinary_checks import check_distinct, warn_of_a_probability
from credibly.decide.recipe import (
    FAR,
    MANY_CLASSES,
    OUTLIER,
    TOP,
    TrustRecipe,
)
from credibly.decide.signals import Glance, Signals, Typicality, of_logits, of_profile
from credibly.decide.surprise import Surprise, inputs_needed
from credibly.decide.verdict import Verdict
from credibly.errors import CrediblyWarning, InvalidArgumentError
from credibly.model.classifier import Classifier
from credibly.model.features import LastHidden
from credibly.model.losses import CrossEntropy
from credibly.model.memory import MOST_JUDGED, in_chunks, resolve_size
from credibly.model.variable import Variable
from credibly.problem.weights import found_gamma
from credibly.solve.fixed import FixedDescent
from credibly.solve.loop import Tick
from credibly.types import CPU

TURNED = 0.1
"""Share of ordinary inputs whose class views may turn without a warning."""

PARTS = 8
"""Chunks of ordinary inputs, at most, from which gamma is found."""


def make_examiner(ordinary: Ordinary, asked: Asked) -> Examiner:
    """Find gamma and the last hidden layer."""
    clf = ordinary.variables[0].clf
    step = -(-len(ordinary.variables) // PARTS)
    some = ordinary.variables[::step]
    few = -(-64 // len(some))
    many = classes_of(some[0]) > MANY_CLASSES and isinstance(clf.loss, CrossEntropy)
    top, gamma = TOP if many else None, asked.gamma
    asked_over = [over_top(variable, top) for variable in some]
    if gamma == "auto":
        gamma = median(found_gamma(v, sample=few, chunk_size=len(v)) for v in asked_over)
    hidden = _hidden(clf, some[0], asked)
    size = resolve_size(asked.chunk_size, some[0], MOST_JUDGED)
    auto, seen = asked.chunk_size == "auto", watched(clf)
    return Examiner(
        clf, float(gamma), FixedDescent(), hidden, top, size, asked.views, auto=auto, watched=seen
    )


def _hidden(clf: Classifier, variable: Variable, asked: Asked) -> LastHidden | None:
    if asked.features is None:
        return None
    if asked.features == "auto":
        return LastHidden.find(variable)
    return LastHidden.of(clf, asked.features)


FEWEST_SHARED = 10
"""Ordinary inputs of a verdict below which the share of right ones says nothing."""


@dataclass(frozen=True, eq=False)
class Learned:
    """What is known of the ordinary inputs; one row each, those set aside left out."""

    typicality: Typicality
    alarm: Alarm
    own: Answers
    recipe: TrustRecipe
    signals: Signals
    predicted: Tensor
    passes: Tensor
    rows: Tensor  # numbers among the usable ordinary inputs
    set_aside: tuple[int, ...]

    @property
    def trust(self) -> Tensor:
        """Of each ordinary input (n,)."""
        return self.recipe(self.signals)

    def codes(self, trusted: Tensor, false_alarms: float) -> Tensor:
        """The verdicts (n,) of the ordinary inputs, by their rank among themselves."""
        ranks: Answers = {}
        for question, values in self.own.items():
            above = len(values) - torch.searchsorted(values.sort().values, values)
            ranks[question] = above / len(values)
        return codes_of(ranks, trusted, false_alarms=false_alarms)


def learn(examiner: Examiner, ordinary: Ordinary, asked: Asked, tick: Tick | None) -> Learned:
    """Look at the ordinary inputs, and set aside those that are not ordinary at all."""
    seen, signals, passes = [], [], []
    for number, variable in enumerate(ordinary.variables):
        look = lambda rows, part=variable: examiner.glance(part.select(rows))  # noqa: E731
        size = len(variable)
        seen.append(Glance.concatenate(list(in_chunks(size, size, look))))
        told = of_logits(seen[-1])
        cost = torch.zeros_like(told["confidence"])
        if asked.profile != "never":
            profile = examiner.profile(variable)
            told, cost = told | of_profile(profile), profile.passes.cpu()
        signals.append(told)
        passes.append(cost)
        if tick is not None:
            tick((number + 1) / len(ordinary.variables))
    looks = Glance.concatenate(seen)
    own = {name: torch.cat([part[name] for part in signals]) for name in signals[0]}
    rows = finite_logits(looks.logits).nonzero().squeeze(1)
    values = None if looks.values is None else looks.values[rows]
    if len(rows):  # else the count below is refused
        check_distinct(looks.logits[rows], values, inputs_needed(asked.false_alarms))
        warn_of_a_probability(looks.logits[rows])
    asked.check_counts(len(rows), None if ordinary.labels is None else len(rows))
    _warn_of_views(own)
    whole = _Seen(looks, own, torch.cat(passes), ordinary.variables[0], ordinary.labels)
    found = _learn(whole, rows, asked)
    far = not_ordinary(found.signals)
    if bool(far.any()) and float(far.double().mean()) <= 0.05:
        aside = tuple(rows[far].tolist())
        rows = rows[~far]
        found = _learn(whole, rows, asked, aside)
    return found


def _warn_of_views(signals: Signals) -> None:
    """Say so where views often speak for another class: they do not suit the data."""
    if "views" not in signals:
        return
    turned = float(((signals["views"] < 0) & (signals["confidence"] > 0)).double().mean())
    if turned > TURNED:
        warnings.warn(
            f"the views speak against the predicted class of {turned:.0%} of the ordinary inputs "
            "of which the network is sure: they may not keep the class",
            CrediblyWarning,
            stacklevel=4,
        )


def not_ordinary(signals: Signals) -> Tensor:
    """Inputs (n,) among the ordinary ones that no tail of the others explains."""
    found = torch.zeros_like(signals["confidence"], dtype=torch.bool)
    for name, sign in OUTLIER.items():
        scale = Surprise.fit(sign * signals[name], robust=True) if name in signals else None
        if scale is not None:
            found |= scale(sign * signals[name]) > FAR
    return found


@dataclass(frozen=True, eq=False)
class _Seen:
    """What was seen of all usable ordinary inputs."""

    looks: Glance
    signals: Signals
    passes: Tensor
    variable: Variable
    labels: Tensor | None


def _learn(seen: _Seen, rows: Tensor, asked: Asked, aside: tuple[int, ...] = ()) -> Learned:
    chosen = seen.looks.select(rows.to(seen.looks.logits.device))
    typicality = Typicality.fit(chosen, seen.variable)
    signals = {name: values[rows] for name, values in seen.signals.items()}
    known = signals | typicality.of_own(chosen)
    alarm, own = Alarm.fit(known, asked.profile, asked.false_alarms)
    again = alarm.whole.look_again(known)
    used = alarm.whole.seen(known)
    predicted = chosen.logits.argmax(1).cpu()
    right = None if seen.labels is None else predicted == seen.labels[rows]
    recipe = TrustRecipe.fit(used, right)
    cost = torch.where(again, seen.passes[rows], 0.0)
    return Learned(typicality, alarm, own, recipe, used, predicted, cost, rows, aside)


def codes_of(p_values: Answers, trusted: Tensor, *, false_alarms: float) -> Tensor:
    """The verdicts (n,) by code, from the p-values and who is trusted otherwise.

    "Either" raises the alarm. What does not belong is said first: far away from all ordinary inputs
    the model's confidence is unusual, too, and that is no sign of an attack.
    """
    alarmed, outlier = (p_values[name] <= false_alarms + 1e-12 for name in _ALARMS)
    codes = torch.full(alarmed.shape, Verdict.DOUBTFUL.code, dtype=torch.int8, device=CPU)
    codes[trusted] = Verdict.TRUST.code
    codes[alarmed & outlier] = Verdict.OUTLIER.code
    codes[alarmed & ~outlier] = Verdict.TAMPERED.code
    return codes


_ALARMS: tuple[Question, Question] = ("either", "outlier")


def thresholds_of(learned: Learned, labels: Tensor | None, asked: Asked, classes: int) -> Tensor:
    """The trust (K,) from which a class is accepted."""
    trust = learned.trust
    if asked.error_rate is None or labels is None:
        least = thresholds.for_coverage(trust, 1 - asked.doubted)
        if labels is not None:
            least = max(least, _likelier_right(trust, learned.predicted != labels))
        return torch.full((classes,), least, dtype=torch.float64, device=CPU)
    everyone = torch.ones_like(trust, dtype=torch.bool)
    codes = learned.codes(everyone, asked.false_alarms)
    calm = codes == Verdict.TRUST.code
    right = learned.predicted == labels
    if not asked.by_class:
        least = thresholds.for_error_rate(
            trust[calm], right[calm], asked.error_rate, asked.tested_confidence
        )
        return torch.full((classes,), least, dtype=torch.float64, device=CPU)
    rows = [calm & (learned.predicted == k) for k in range(classes)]
    return _by_class([(trust[chosen], right[chosen]) for chosen in rows], asked)


def _likelier_right(trust: Tensor, wrong: Tensor) -> float:
    """The trust from which a class is more likely right than wrong: nothing below is trusted."""
    likelier = trust[VennAbers.fit(trust, wrong)(trust) < 0.5]
    return float(likelier.min()) if len(likelier) else torch.inf


def _by_class(samples: Sequence[tuple[Tensor, Tensor]], asked: Asked) -> Tensor:
    """A threshold for each predicted class; all of them hold together with the confidence.

    `samples` are the trust and the correctness of the inputs of each predicted class.
    """
    found, never = [], []
    sure = 1 - (1 - asked.tested_confidence) / len(samples)
    needed = thresholds.samples_needed(asked.error_rate or 0.0, sure)
    for k, (trust, right) in enumerate(samples):
        try:
            least = thresholds.for_error_rate(trust, right, asked.error_rate or 0.0, sure)
        except InvalidArgumentError:
            least = torch.inf
            never.append(k)
        found.append(least)
    require(
        len(never) < len(samples),
        "labels",
        f"for an error rate of {asked.error_rate:g} in one class, with confidence "
        f"{asked.confidence:g}: at least {needed} labelled inputs of it, none of them wrong",
        f"at most {max(len(right) for _, right in samples)} predicted as one class",
        "Label more ordinary inputs, allow a larger error rate, or leave by_class out.",
    )
    if never:
        warnings.warn(
            f"no error rate of {asked.error_rate:g} can be promised for the classes {never}, of "
            f"which too few are labelled ({needed} are needed, if none is wrong) or too many are "
            "wrong: they are never accepted",
            CrediblyWarning,
            stacklevel=5,
        )
    return torch.tensor(found, dtype=torch.float64, device=CPU)


def shares_right(codes: Tensor, right: Tensor) -> dict[str, float]:
    """The share of right ones among the ordinary inputs of each verdict, if there are enough."""
    found = {}
    for verdict in Verdict:
        rows = codes == verdict.code
        if int(rows.sum()) >= FEWEST_SHARED:
            found[verdict.value] = float(right[rows].double().mean())
    return found


def calibrate(trust: Tensor, predicted: Tensor, labels: Tensor | None) -> VennAbers | None:
    """From trust to a chance of being wrong, if there are labels."""
    return None if labels is None else VennAbers.fit(trust, predicted != labels)
