"""The page about a study: one self-contained HTML file."""

from __future__ import annotations

import math

from credibly.report import page, study_figures, study_tables, style
from credibly.report.study_view import FEWEST, StudyView, aurc_of, auroc_of
from credibly.report.tables import Table
from credibly.study.study_result import StudyResult

SHARES = ("1", "0.95", "0.9", "0.8", "0.7", "0.5")

MOST_COLUMNS = 7
"""Sets in one table; more do not fit the page."""


def study_page(result: StudyResult, *, title: str = "Which score to trust") -> str:
    """The whole page as HTML; it loads nothing from elsewhere.

    Args:
        result: from `summarise`, or `StudyResult.load`; without rows there are no curves.
        title: the heading.
    """
    view = StudyView(result)
    other = view.ordinary.most_credible
    systems = [(name, view.ordinary.failures[name]) for name in view.ranked]
    return page.render(
        "study_page.html.j2",
        pictures(view),
        title=title,
        result=result,
        view=view,
        findings=study_tables.findings(view),
        what_to_use=study_tables.what_to_use(view),
        accuracies=study_tables.accuracies(view),
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
