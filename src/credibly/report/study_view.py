"""Which scores and sets a page about a study shows, and how each score did."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import NamedTuple

from credibly.metrics.intervals import Interval
from credibly.study.study_result import SetResult, StudyResult

FEWEST = 10  # wrong answers, right answers or inputs that it takes to compare scores
DEFAULT = "failure_score"  # of rules, unless another score is chosen
FLAG_DEFAULTS = {"outliers": "shift", "attacked": "tamper_score"}  # of the library's flags
WITHOUT_SOLVE = ("max_softmax", "p_norm", "softmax_ratio")  # they need only the model's outputs
TWINS = {
    "max_softmax": "max softmax (baseline)",
    "softmax_ratio": "logit margin (baseline)",
    "p_norm": "max logit p-norm (baseline)",
}
"""Scores, and the baselines of `credibly evaluate` that order inputs in the same way."""

Pick = tuple[str, bool]
"""A score, and whether it is used two-sided."""

UNKNOWN = Interval(math.nan, math.nan, math.nan)


class Outcome(NamedTuple):
    """The number of a score on a set, and how much better it is than the reference's."""

    value: Interval = UNKNOWN
    gain: Interval = UNKNOWN


Measure = Callable[[SetResult, Pick], Outcome]


def aurc_of(part: SetResult, pick: Pick) -> Outcome:
    """AURC of a score on a set with labels, in percent."""
    found = part.failures.get(pick[0])
    if found is None:
        return Outcome()
    value, gap = found.intervals["aurc"], found.differences["aurc"]
    return Outcome(
        Interval(100 * value.value, 100 * value.low, 100 * value.high),
        Interval(-100 * gap.value, -100 * gap.high, -100 * gap.low),
    )


def auroc_of(part: SetResult, pick: Pick) -> Outcome:
    """AUROC of telling a set from the ordinary one by a score."""
    found = part.detection.get(pick[0])
    if found is None:
        return Outcome()
    if pick[1]:
        return Outcome(found.two_sided["auroc"], found.two_sided_difference)
    return Outcome(found.metrics["auroc"], found.difference)


def mean(values: Iterable[float]) -> float:
    """Mean of the known numbers; -inf without any."""
    numbers = [value for value in values if not math.isnan(value)]
    return sum(numbers) / len(numbers) if numbers else -math.inf


def best_of(picks: Iterable[Pick], sets: Sequence[SetResult], measure: Measure) -> Pick:
    """The pick with the largest mean gain over the sets."""
    return max(picks, key=lambda pick: mean(measure(part, pick).gain.value for part in sets))


def label(pick: Pick) -> str:
    """A score as text."""
    return f"{pick[0]}, two-sided" if pick[1] else pick[0]


@dataclass(frozen=True)
class StudyView:
    """A result, with what a page shows of it."""

    result: StudyResult

    @property
    def ordinary(self) -> SetResult:
        """The ordinary set."""
        return self.result.sets[self.result.ordinary]

    def of_kind(self, *kinds: str) -> dict[str, SetResult]:
        """Sets of these kinds, by name."""
        return {name: part for name, part in self.result.sets.items() if part.kind in kinds}

    @cached_property
    def flagged(self) -> dict[str, SetResult]:
        """Sets to be told from the ordinary one, by name."""
        return self.of_kind("attacked", "outliers")

    @cached_property
    def labelled(self) -> dict[str, SetResult]:
        """Sets with labels other than the ordinary one, by name."""
        return {n: p for n, p in self.of_kind("shifted", "attacked").items() if p.failures}

    def from_profile(self, name: str) -> bool:
        """Whether a score needs solved profiles."""
        others = (*WITHOUT_SOLVE, *self.result.settings.get("baselines", {}))
        return name not in others and not name.endswith("(baseline)")

    @cached_property
    def twins(self) -> Mapping[str, str]:
        """Scores that are not shown, and those that order the inputs in the same way.

        The baseline is shown, unless the score itself is the reference.
        """
        known = self.ordinary.failures
        pairs = [pair for pair in TWINS.items() if pair[0] in known and pair[1] in known]
        return dict(p[::-1] if p[0] == self.result.reference else p for p in pairs)

    def shown(self, names: Iterable[str]) -> list[str]:
        """The scores that a page shows."""
        return [name for name in names if name not in self.twins]

    @cached_property
    def ranked(self) -> list[str]:
        """Scores from the lowest AURC on the ordinary set to the highest."""
        failures = self.ordinary.failures
        return sorted(self.shown(failures), key=lambda name: failures[name].metrics["aurc"])

    @cached_property
    def curves(self) -> list[str]:
        """Scores for curves: the reference, the best, the best from the profile, two defaults."""
        own = [name for name in self.ranked if self.from_profile(name)]
        wanted = [self.result.reference, *self.ranked[:1], *own[:1], DEFAULT, "ratio"]
        return list(dict.fromkeys(name for name in wanted if name in self.ordinary.failures))

    @cached_property
    def detectors(self) -> list[Pick]:
        """Scores for bars: the reference, the best and default per kind, the best of each sort."""
        chosen = [(self.result.reference, False)]
        every = list(self.flagged.values())
        for kind, default in FLAG_DEFAULTS.items():
            sets = list(self.of_kind(kind).values())
            picks = self.flag_picks(sets)
            chosen += (
                [best_of(picks, sets, auroc_of), *({(default, False)} & {*picks})] if sets else []
            )
        for sort in product((False, True), repeat=2):
            same = [p for p in self.flag_picks(every) if (self.from_profile(p[0]), p[1]) == sort]
            chosen += [best_of(same, every, auroc_of)] if same else []
        return list(dict.fromkeys(chosen))

    def flag_picks(self, sets: Sequence[SetResult]) -> list[Pick]:
        """Shown scores that all of these sets have, one-sided and two-sided."""
        names = self.shown(sets[0].detection if sets else ())
        common = [name for name in names if all(name in part.detection for part in sets)]
        return [(name, far) for name in common for far in (False, True)]

    def can_compare(self, part: SetResult, measure: Measure) -> bool:
        """Whether a set has enough answers, or inputs, to compare scores."""
        if measure is auroc_of:
            return min(part.samples, self.ordinary.samples) >= FEWEST
        right = round(part.accuracy["model"] * part.samples)
        return min(right, part.samples - right) >= FEWEST

    def verdict(self, part: SetResult, pick: Pick, measure: Measure) -> str:
        """Whether a score is clearly better or worse than the reference on a set."""
        gain = measure(part, pick).gain
        if not self.can_compare(part, measure):
            return "too few to tell"
        if gain.low > 0:
            return "clearly better"
        return "clearly worse" if gain.high < 0 else "no clear difference"

    def mark_of(self, name: str) -> str:
        """How the name of a score is marked."""
        if name == self.result.reference:
            return "reference"
        return "own" if self.from_profile(name) else ""
