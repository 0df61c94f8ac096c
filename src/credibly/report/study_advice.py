"""What a study says to do for its model, derived from its numbers alone."""

from __future__ import annotations

from torch import Tensor

from credibly.decide.scores import SCORES
from credibly.metrics.intervals import Interval, paired_difference
from credibly.metrics.measures import aurc
from credibly.study.study_result import SetResult, StudyResult

DEFAULT = "failure_score"
"""What rules rank by if nothing else is asked for."""

FEWEST = 10
"""Errors, right answers or inputs from which scores can be told apart; intervals over fewer hang
on single inputs."""

FREE = "max_softmax"
"""The usual score that needs no solve."""

FREE_RIVAL = "max softmax (baseline)"
"""The same among the rivals, and the usual reference."""


def right_and_wrong(part: SetResult) -> tuple[int, int]:
    """How many answers of a set with labels are right, and how many wrong."""
    right = round(part.accuracy["model"] * part.samples)
    return right, part.samples - right


def enough_answers(part: SetResult) -> bool:
    """Whether a set with labels has right and wrong answers enough to tell scores apart."""
    return min(right_and_wrong(part)) >= FEWEST


def advice(result: StudyResult) -> list[str]:
    """Sentences to end with: what to rank errors by, or that nothing can be told."""
    part, rows = result.sets[result.ordinary], result.rows.get(result.ordinary)
    right, errors = right_and_wrong(part)
    if errors == 0 or right == 0:
        return []
    if not enough_answers(part):
        few, kind, what = (
            (errors, "wrong", "errors") if errors < FEWEST else (right, "right", "right answers")
        )
        words = (
            f"What to do: only {few} of {part.samples} answers {'is' if few == 1 else 'are'} "
            f"{kind}, and with fewer than {FEWEST} {what} no score can be told from another. Bring "
            "more labelled inputs before you choose one."
        )
        return [words]
    if rows is None or DEFAULT not in rows.scores:
        return []
    known, good = rows.complete()
    scores = {name: values[good].double() for name, values in known.items()}
    found = _alike(scores) if result.settings.get("classes") == 2 else []
    return [*found, _choice(result, scores, rows.correct[good])]


def commonest(result: StudyResult) -> str:
    """A warning where one label is so common that it alone is right as often as the model."""
    rows, accuracy = result.rows.get(result.ordinary), result.sets[result.ordinary].accuracy
    if rows is None or accuracy["model"] == 1:
        return ""
    labels = rows.labels[rows.complete()[1]]
    share = float(labels.bincount().max()) / len(labels)
    if accuracy["model"] > share:
        return ""
    return (
        f"One class alone has {100 * share:.1f} % of these labels: to answer it always would be "
        "right no less often than the model is."
    )


def _choice(result: StudyResult, scores: dict[str, Tensor], correct: Tensor) -> str:
    """Another score a rule can use, where one is clearly better than the default; else that."""
    usable = {name: values for name, values in scores.items() if name in SCORES}
    known = aurc(scores[DEFAULT], correct)
    gaps = {  # intervals take long; a score that is not better at all is not clearly so
        name: paired_difference(
            aurc, values, scores[DEFAULT], correct, n=result.resamples, seed=result.seed
        )
        for name, values in usable.items()
        if name == FREE or aurc(values, correct) < known
    }
    better = {name: gap for name, gap in gaps.items() if gap.high < 0}
    if better:
        best = min(better, key=lambda name: better[name].value)
        return (
            f"What to do: for this model rank errors by {best}: SelectiveClassifier.for_error_rate(clf, "
            f"profile, labels, risk, score={best!r}). Its AURC is {_percent(scores[best], correct)}"
            f" against {_percent(scores[DEFAULT], correct)} of the default of rules ({DEFAULT}), "
            f"{points(better[best])}, which is clearly better. It was picked on these very "
            "inputs: make the rule from other labelled ones."
        )
    free = gaps.get(FREE)
    also = (
        ""
        if free is None or free.low > 0
        else f"; {FREE}, from the outputs alone, is not clearly worse"
    )
    return (
        f"What to do: for this model leave the score of rules as it is ({DEFAULT}): of "
        f"{len(usable)} others that a rule can use, none ranks the errors clearly better{also}."
        f"{_elsewhere(result)}"
    )


def _elsewhere(result: StudyResult) -> str:
    """A word of warning where other sets with labels speak against the default.

    The advice above is about ordinary inputs, and whoever brought damaged ones fears those.
    """
    if result.reference not in (FREE, FREE_RIVAL):
        return ""
    others = [
        part.failures[DEFAULT].differences["aurc"]
        for name, part in result.sets.items()
        if name != result.ordinary and DEFAULT in part.failures and enough_answers(part)
    ]
    better, worse = sum(gap.high < 0 for gap in others), sum(gap.low > 0 for gap in others)
    if worse < 2 or worse <= 2 * better:
        return ""
    return (
        f" But of {len(others)} other sets with labels and errors enough, {DEFAULT} ranks them "
        f"clearly worse than {result.reference} on {worse}, and clearly better on {better}: if you "
        f"expect inputs like these, pass score={FREE!r} to the rule."
    )


def _alike(scores: dict[str, Tensor]) -> list[str]:
    """Which scores are one and the same with two classes."""
    left = [name for name, values in scores.items() if not _constant(values)]
    groups = []
    while left:
        group = [left[0], *(n for n in left[1:] if _same_order(scores[left[0]], scores[n]))]
        left = [name for name in left if name not in group]
        groups.append(group)
    same = "; ".join(", ".join(group) for group in groups if len(group) > 1)
    flat = ", ".join(name for name, values in scores.items() if _constant(values))
    found = []
    if same:
        found.append(
            f"With two classes these scores put the inputs in the same order, and are one score: "
            f"{same}."
        )
    if flat:
        found.append(
            f"With two classes these are the same for all inputs, and rank nothing: {flat}."
        )
    return found


def _same_order(one: Tensor, other: Tensor) -> bool:
    """Whether no two inputs are put in opposite orders, up to rounding."""
    order = other.argsort(stable=True)
    order = order[one[order].argsort(stable=True)]  # by the first; where it ties, by the other
    back = -other[order].diff().min()
    return bool(back <= 1e-6 * other[other.isfinite()].abs().max())


def _constant(values: Tensor) -> bool:
    return bool(values.max() - values.min() <= 1e-6 * values.abs().max())


def _percent(score: Tensor, correct: Tensor) -> str:
    return f"{100 * aurc(score, correct):.2f} %"


def points(gap: Interval) -> str:
    """A difference of shares with its interval, in words."""
    return f"{100 * gap.value:+.2f} points [{100 * gap.low:+.2f}, {100 * gap.high:+.2f}]"
