"""Which scores and sets a page about a study shows, and the sentences it opens with."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from credibly.metrics.intervals import Interval
from credibly.report import study_advice
from credibly.study.study_result import DetectionResult, SetResult, StudyResult

WITHOUT_SOLVE = ("max_softmax", "p_norm", "softmax_ratio")
"""Among the scores, but they only read the outputs."""

TWINS = {
    "max_softmax": "max softmax (baseline)",
    "softmax_ratio": "logit margin (baseline)",
    "p_norm": "max logit p-norm (baseline)",
}
"""Scores and the rivals of `credibly evaluate` that order inputs in the same way."""

DEFAULTS = {"outliers": "shift", "attacked": "tamper_score"}
"""What the library itself flags a kind of inputs by."""

NO_BREAK = "\N{NO-BREAK SPACE}"

Pick = tuple[str, bool]
"""A score, and whether it is taken two-sided."""


@dataclass(frozen=True)
class StudyView:
    """A result, seen by a reader."""

    result: StudyResult

    @property
    def ordinary(self) -> SetResult:
        """The ordinary set."""
        return self.result.sets[self.result.ordinary]

    def of_kind(self, *kinds: str) -> dict[str, SetResult]:
        """Sets of these kinds, by name."""
        return {name: found for name, found in self.result.sets.items() if found.kind in kinds}

    def from_profile(self, name: str) -> bool:
        """Whether a score comes from solved profiles."""
        rivals = self.result.settings.get("baselines", {})
        return name not in WITHOUT_SOLVE and name not in rivals and not name.endswith("(baseline)")

    @cached_property
    def twins(self) -> dict[str, str]:
        """What is not shown, and what stands for it: nobody wants the same numbers twice.

        The rival stays, since it is what one compares with; but the reference always does.
        """
        known = self.ordinary.failures
        pairs = [(own, rival) for own, rival in TWINS.items() if own in known and rival in known]
        return dict(p[::-1] if p[0] == self.result.reference else p for p in pairs)

    def shown(self, names: Iterable[str]) -> list[str]:
        """Those of the scores that a page shows, each once."""
        return [name for name in names if name not in self.twins]

    @cached_property
    def ranked(self) -> list[str]:
        """Scores from the lowest AURC on the ordinary set to the highest."""
        failures = self.ordinary.failures
        return sorted(self.shown(failures), key=lambda name: failures[name].metrics["aurc"])

    @cached_property
    def best_of_profile(self) -> str | None:
        """The score of a profile with the lowest AURC on the ordinary set.

        None without failures, or with nothing else, which leave nothing to choose by.
        """
        if self.ordinary.accuracy["model"] in (0, 1):
            return None
        return next((name for name in self.ranked if self.from_profile(name)), None)

    @cached_property
    def curves(self) -> list[str]:
        """A handful of scores for curves: the reference, the best, the default, the paper's."""
        wanted = [
            self.result.reference, *self.ranked[:1], self.best_of_profile,
            study_advice.DEFAULT, "ratio",
        ]  # fmt: skip
        known = [name for name in wanted if name in self.ordinary.failures]
        return list(dict.fromkeys(name for name in known if name is not None))

    @cached_property
    def detectors(self) -> list[Pick]:
        """A handful of scores for detection: the reference, what the text calls best, others.

        The defaults of the questions that are asked are always among them.
        """
        sets = list(self.of_kind("attacked", "outliers").values())
        if not sets:
            return []
        order = sorted(
            ((name, far) for name in self.shown(sets[0].detection) for far in (False, True)),
            key=lambda pick: -_mean(auroc_of(part, pick).value for part in sets),
        )
        groups = [
            [pick for pick in order if self.from_profile(pick[0]) is own and pick[1] is far]
            for far in (False, True)
            for own in (False, True)
        ]
        named = [self.best_detector(kind) for kind in ("outliers", "attacked")]
        chosen = [(self.result.reference, False), *(pick for pick in named if pick is not None)]
        chosen += [
            (name, False)
            for kind, name in DEFAULTS.items()
            if self.of_kind(kind) and name in sets[0].detection
        ]
        chosen += [pick for group in groups for pick in group[:2]]
        return list(dict.fromkeys(chosen))

    def best_detector(self, kind: str) -> Pick | None:
        """The score that flags a kind of sets best in the mean, of those that all of them have.

        None where there is no such set.
        """
        sets = list(self.of_kind(kind).values())
        if not sets:
            return None
        names = [n for n in self.shown(sets[0].detection) if all(n in p.detection for p in sets)]
        known = [(name, far) for name in names for far in (False, True)]
        return max(known, key=lambda pick: _mean(auroc_of(part, pick).value for part in sets))

    def enough_inputs(self, part: SetResult) -> bool:
        """Whether there are inputs enough to tell apart how well scores flag this set."""
        return min(part.samples, self.ordinary.samples) >= study_advice.FEWEST

    def sentences(self) -> list[str]:
        """The findings in plain words, also where they speak against the profile."""
        found = [
            self._about_accuracy(),
            self._about_guessing() or study_advice.commonest(self.result),
        ]
        found += self._about_failures()
        found.append(self._about_most_credible())
        found += [self._about_others("shifted"), self._about_others("attacked")]
        found.append(self._about_credible_under_attack())
        for kind, words in (("outliers", "inputs of no class"), ("attacked", "attacked inputs")):
            found.append(self._about_detection(kind, words))
        found += study_advice.advice(self.result)
        return [sentence for sentence in found if sentence]

    def _about_accuracy(self) -> str:
        part = self.ordinary
        left = f" (left out for want of a profile: {part.left_out})" if part.left_out else ""
        return (
            f"The model is right on {100 * part.accuracy['model']:.1f} % of {part.samples} "
            f"ordinary input{'s' if part.samples != 1 else ''}{left}. A score is judged by how "
            "well it puts the wrong answers last: the numbers below are error rates among the "
            "answered inputs, averaged over all shares that one may choose to answer (AURC), so "
            "lower is better."
        )

    def _about_guessing(self) -> str:
        """A doubt about the labels, where the accuracy is within two deviations of a guess."""
        part, count = self.ordinary, self.result.settings.get("classes")
        if not isinstance(count, int) or count < 2 or not part.samples:
            return ""
        guess = 1 / count
        if part.accuracy["model"] == 1:  # of a few inputs a guess could be, but that is no doubt
            return ""
        if part.accuracy["model"] > guess + 2 * math.sqrt(guess * (1 - guess) / part.samples):
            return ""
        return (
            f"Guessing one of {count} classes could do as well: the labels may stand in another "
            "order than the rows, or number the classes otherwise than the model does. Make sure "
            "of them before you read on."
        )

    def _about_failures(self) -> list[str]:
        if self.ordinary.accuracy["model"] == 1:
            return ["The model makes no mistake here, so there are no failures to rank."]
        if self.ordinary.accuracy["model"] == 0:
            return ["The model is right on none of them, so there is nothing to rank."]
        best, reference = self.ranked[0], self.result.reference
        others = len(self.ranked) - 1
        first = (
            f"No score ranks the failures better than {reference}."
            if best == reference
            else f"Best of {others + 1} scores is {best}: {self._compared(best)}. (It was picked "
            "on the very samples that judge it, which flatters it a little.)"
        )
        own = self.best_of_profile
        if own is None or own == best:
            return [first]
        return [first, f"Best of the scores from the profile is {own}: {self._compared(own)}."]

    def _compared(self, name: str) -> str:
        part, reference = self.ordinary.failures, self.result.reference
        difference = part[name].differences["aurc"]
        own, base = (100 * part[n].metrics["aurc"] for n in (name, reference))
        return (
            f"{own:.2f} % against {base:.2f} % of {reference}, {study_advice.points(difference)}, "
            f"which is {self._judged(difference)}"
        )

    def _judged(self, difference: Interval) -> str:
        """A difference of AURC in words; a handful of errors tells nothing apart."""
        right, errors = study_advice.right_and_wrong(self.ordinary)
        if min(right, errors) < study_advice.FEWEST:
            few = "errors" if errors < study_advice.FEWEST else "right answers"
            return f"nothing that so few {few} can tell apart"
        return _verdict(difference, low_is_good=True)

    def _about_most_credible(self) -> str:
        part = self.ordinary
        if part.most_credible is None or "most credible" not in part.accuracy:
            return ""
        own, base = part.accuracy["most credible"], part.accuracy["model"]
        difference = part.most_credible.differences["aurc"]
        return (
            f"Answering with the most credible class instead of the model's is right on "
            f"{100 * own:.1f} % of the ordinary inputs ({100 * (own - base):+.1f} points); ranked "
            f"by the ratio, its error averaged over coverages differs from the model's "
            f"with {self.result.reference} by {study_advice.points(difference)}, which is "
            f"{self._judged(difference)}."
        )

    def _about_others(self, kind: str) -> str:
        own = self.best_of_profile
        parts = [part for part in self.of_kind(kind).values() if own in part.failures]
        if own is None or not parts:
            return ""
        told = [part for part in parts if study_advice.enough_answers(part)]
        gaps = [part.failures[own].differences["aurc"] for part in told]
        better, worse = sum(g.high < 0 for g in gaps), sum(g.low > 0 for g in gaps)
        sets, few = "one set" if len(parts) == 1 else f"{len(parts)} sets", len(parts) - len(told)
        more = f" ({few} of these for want of {study_advice.FEWEST} wrong and right answers)"
        return (
            f"On {sets} of {kind} inputs, {own} ranks the failures clearly better than "
            f"{self.result.reference} on {better}, clearly worse on {worse}, and neither on "
            f"{len(parts) - better - worse}{more if few else ''}."
        )

    def _about_credible_under_attack(self) -> str:
        parts = [p for p in self.of_kind("attacked").values() if p.accuracy]
        if not parts:
            return ""
        sets = "one set" if len(parts) == 1 else f"{len(parts)} sets"
        base, own = (_mean(p.accuracy[name] for p in parts) for name in ("model", "most credible"))
        return (
            f"On attacked inputs the model is right on {100 * base:.1f} % and the most credible "
            f"class on {100 * own:.1f} %, in the mean over {sets}. Attacks on the model "
            "alone do not know of the profile; one that does can bring the second number down."
        )

    def _about_detection(self, kind: str, words: str) -> str:
        sets, best = self.of_kind(kind), self.best_detector(kind)
        if best is None:
            return ""
        base = (self.result.reference, False)
        own, other = (
            _mean(auroc_of(p, pick).value for p in sets.values()) for pick in (best, base)
        )
        gaps = [_difference(part, best) for part in sets.values() if self.enough_inputs(part)]
        better, worse = sum(g.low > 0 for g in gaps), sum(g.high < 0 for g in gaps)
        count = "one set" if len(sets) == 1 else f"{len(sets)} sets, in the mean"
        start = f"To flag {words} ({count}), "
        if best == base:
            return f"{start}nothing is better than {base[0]}: AUROC {other:.3f} (0.5 is a coin)."
        numbers = f"AUROC {own:.3f} against {other:.3f} of {base[0]} (0.5 is a coin)"
        if len(sets) == 1:
            few = "nothing that so few inputs can tell apart"
            verdict = _verdict(gaps[0], low_is_good=False) if gaps else few
            return f"{start}{label(best)} is best: {numbers}, which is {verdict}."
        return (
            f"{start}{label(best)} is best: {numbers}. It is clearly better on {better} and "
            f"clearly worse on {worse} of them."
        )


def unbroken(sentence: str) -> str:
    """The sentence with its units tied to their numbers."""
    return re.sub(r"(?<=\d) (?=%|points)", NO_BREAK, sentence)


def label(pick: Pick) -> str:
    """A score in words."""
    return f"{pick[0]}, two-sided" if pick[1] else pick[0]


def auroc_of(part: SetResult, pick: Pick) -> Interval:
    """AUROC of a pick on a set; NaN where the score is missing."""
    found: DetectionResult | None = part.detection.get(pick[0])
    if found is None:
        return Interval(math.nan, math.nan, math.nan)
    return (found.two_sided if pick[1] else found.metrics)["auroc"]


def _difference(part: SetResult, pick: Pick) -> Interval:
    found = part.detection[pick[0]]
    return found.two_sided_difference if pick[1] else found.difference


def _mean(values: Iterable[float]) -> float:
    numbers = [value for value in values if not math.isnan(value)]
    return sum(numbers) / len(numbers) if numbers else -math.inf


def _verdict(difference: Interval, *, low_is_good: bool) -> str:
    if math.isnan(difference.low) or difference.contains(0):
        return "no clear difference"
    return "clearly better" if (difference.high < 0) is low_is_good else "clearly worse"
