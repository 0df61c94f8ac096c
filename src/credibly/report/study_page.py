"""The page of a study: what to use, all numbers behind it, and figures."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from credibly.decide.scores import SCORES
from credibly.plot import style
from credibly.report import page, study_figures
from credibly.report.alarms import advice_on_alarms, alarms_figure, alarms_table
from credibly.report.study_view import (
    DEFAULT,
    FEWEST,
    FLAG_DEFAULTS,
    Measure,
    Pick,
    StudyView,
    aurc_of,
    auroc_of,
    best_of,
    label,
    mean,
)
from credibly.report.tables import Table, number, with_interval
from credibly.study.alarms import Alarms
from credibly.study.study_result import SetResult, StudyResult


def findings(view: StudyView) -> list[str]:
    """The accuracy, and what makes the tables doubtful."""
    part = view.ordinary
    left = f"; {part.left_out} more lack a profile or a score" if part.left_out else ""
    accuracy = f"{part.accuracy['model']:.1%} of {part.samples} ordinary inputs"
    found = [f"The model is right on {accuracy}{left}."]
    if _is_like_a_guess(view):
        found.append(
            "A guess, or always the most common class, could do as well: check that the labels are "
            "in the order of the rows and number the classes as the model does."
        )
    if not view.can_compare(part, aurc_of):
        found.append(
            f"Fewer than {FEWEST} answers are wrong, or fewer than {FEWEST} are right: too few to "
            "compare scores by. Use more labelled inputs."
        )
    return found


def _is_like_a_guess(view: StudyView) -> bool:
    """Whether the accuracy is within two deviations of a guess, or that of one common class."""
    accuracy, count = view.ordinary.accuracy["model"], view.result.settings.get("classes")
    limit = 0.0
    if isinstance(count, int) and count > 1:
        limit = 1 / count + 2 * math.sqrt((1 - 1 / count) / count / view.ordinary.samples)
    rows = view.result.rows.get(view.result.ordinary)
    if rows is not None:
        labels = rows.labels[rows.complete()[1]]
        limit = max(limit, float(labels.bincount().max()) / len(labels))
    return accuracy < 1 and accuracy <= limit


def what_to_use(view: StudyView) -> Table:
    """For each question the best score, the default and the reference, with their numbers."""
    wrong = "Which answers are wrong? (AURC in %, low is good; {} inputs)"
    rows = []
    if 0 < view.ordinary.accuracy["model"] < 1:
        sets = [view.ordinary]
        usable = [name for name in view.ordinary.failures if name in (*SCORES, DEFAULT)]
        rows.append(_row(view, wrong.format("ordinary"), sets, _one_sided(view.ranked)))
        rows.append(
            _row(view, "The same, by a score that a rule can use", sets, _one_sided(usable))
        )
    for kind in ("shifted", "attacked"):
        sets = [part for part in view.labelled.values() if part.kind == kind]
        sets = [part for part in sets if 0 < part.accuracy["model"] < 1]
        names = [name for name in view.ranked if all(name in part.failures for part in sets)]
        rows.append(_row(view, wrong.format(kind), sets, _one_sided(names)))
    for kind in FLAG_DEFAULTS:
        sets = list(view.of_kind(kind).values())
        text = "of no class" if kind == "outliers" else "attacked"
        text = f"Which inputs are {text}? (AUROC, high is good, 0.5 is chance)"
        rows.append(_row(view, text, sets, view.flag_picks(sets), auroc_of))
    columns = ("question", "best score", "default", view.result.reference, "best against the last")
    return Table([row for row in rows if row], columns, "What to use")


def _one_sided(names: Sequence[str]) -> list[Pick]:
    return [(name, False) for name in names]


def _row(
    view: StudyView,
    question: str,
    sets: Sequence[SetResult],
    picks: Sequence[Pick],
    measure: Measure = aurc_of,
) -> tuple[str, ...]:
    """One row of the table; nothing without sets or scores."""
    if not sets or not picks:
        return ()
    best, reference = best_of(picks, sets, measure), (view.result.reference, False)
    default = DEFAULT if measure is aurc_of else FLAG_DEFAULTS[sets[0].kind]

    def value(pick: Pick) -> str:
        """With an interval for one set, else the mean over the sets."""
        digits = 2 if measure is aurc_of else 3
        if len(sets) == 1:
            return with_interval(measure(sets[0], pick).value, digits)
        return number(mean(measure(part, pick).value.value for part in sets), digits)

    verdicts = Counter(view.verdict(part, best, measure) for part in sets)
    words = [word if len(sets) == 1 else f"{word} on {n}" for word, n in verdicts.items()]
    return (
        question if len(sets) == 1 else f"{question}, mean of {len(sets)} sets",
        f"{label(best)}: {value(best)}",
        f"{default}: {value((default, False))}",
        value(reference),
        "-" if best == reference else ", ".join(words),
    )


def accuracies(view: StudyView) -> Table:
    """Accuracy of the model's class and of the most credible class, by kind of set."""
    rows = []
    for kind in ("ordinary", "shifted", "attacked"):
        parts = [part.accuracy for part in view.of_kind(kind).values() if part.accuracy]
        if parts:
            values = [mean(part[name] for part in parts) for name in ("model", "most credible")]
            rows.append((kind, str(len(parts)), *(f"{value:.1%}" for value in values)))
    columns = ("inputs", "sets", "accuracy of the model", "of the most credible class")
    return Table(rows, columns, "Accuracy")


SHARES = ("1", "0.95", "0.9", "0.8", "0.7", "0.5")

MOST_COLUMNS = 7
"""Sets in one table; more do not fit the page."""


def study_page(result: StudyResult, alarms: Alarms | None = None) -> str:
    """The whole page as HTML, which loads nothing from elsewhere; without rows it has no curves."""
    view = StudyView(result)
    images = pictures(view)
    if alarms is not None:
        images["alarms"] = style.png(alarms_figure(alarms.shares))
    other = view.ordinary.most_credible
    systems = [(name, view.ordinary.failures[name]) for name in view.ranked]
    return page.render(
        "study_page.html.j2",
        images,
        title="Which score to trust",
        result=result,
        view=view,
        alarms=alarms, caught=None if alarms is None else alarms_table(alarms),
        build=[] if alarms is None else advice_on_alarms(alarms),
        findings=findings(view), what_to_use=what_to_use(view), accuracies=accuracies(view),
        systems=[*systems, *([("most credible class, by ratio", other)] if other else [])],
        settings=Table.of_facts(result.settings),
        shares=SHARES, most_columns=MOST_COLUMNS, fewest=FEWEST, most_sets=study_figures.SHOWN,
        aurc_of=aurc_of, auroc_of=auroc_of, nan=math.nan,
    )  # fmt: skip


def pictures(view: StudyView) -> dict[str, bytes]:
    """Every figure that the result has data for, as PNG."""
    drawn = {}
    if view.result.ordinary in view.result.rows:
        drawn["curves"] = study_figures.curves(view)
    if len(view.ranked) > 1:
        drawn["differences"] = study_figures.differences(view)
    if view.flagged:
        drawn["detection"] = study_figures.detection(view)
    return {name: style.png(figure) for name, figure in drawn.items()}
