"""The page about a study: results in, one self-contained HTML file out."""

from __future__ import annotations

import math
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import jinja2

from credibly.report import study_advice, study_figures, style
from credibly.report.study_view import Pick, StudyView, auroc_of, unbroken

if TYPE_CHECKING:
    from collections.abc import Mapping

    from credibly.metrics.intervals import Interval
    from credibly.study.study_result import FailureResult, SetResult, StudyResult

SHARES = ("1", "0.95", "0.9", "0.8", "0.7", "0.5")

MOST_COLUMNS = 7
"""Sets side by side in one table; more would not fit the page."""


def study_page(result: StudyResult, *, title: str = "How far can the scores be trusted?") -> str:
    """The whole page as HTML; pictures are inside, and nothing is loaded from elsewhere.

    Args:
        result: from `summarise`, or `StudyResult.load`; without rows there are no curves.
        title: what stands on top.
    """
    view = StudyView(result)
    template = jinja2.Template(
        (files("credibly.report") / "study_page.html.j2").read_text("utf-8"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
    )
    page: str = template.render(
        title=title,
        facts=_facts(view),
        sentences=[unbroken(sentence) for sentence in view.sentences()],
        pictures={name: style.as_data_uri(image) for name, image in pictures(view).items()},
        failures=_failures(view),
        labelled=_labelled(view),
        detection=_detection(view),
        sets=_sets(view),
        settings=_settings(result.settings),
    )
    return page


def pictures(view: StudyView) -> dict[str, bytes]:
    """Every figure that the result has data for, as PNG."""
    drawn = {}
    if view.result.ordinary in view.result.rows:
        drawn["curves"] = study_figures.curves(view)
    if len(view.ranked) > 1:
        drawn["differences"] = study_figures.differences(view)
    if view.detectors:
        drawn["detection"] = study_figures.detection(view)
    return {name: style.png(figure) for name, figure in drawn.items()}


def _facts(view: StudyView) -> dict[str, Any]:
    result = view.result
    return {
        "version": result.version,
        "reference": result.reference,
        "resamples": result.resamples,
        "fewest": study_advice.FEWEST,
        "ordinary": result.ordinary,
        "samples": view.ordinary.samples,
        "sets": len(result.sets),
        "scores": len(view.ranked),
        "more": len(view.of_kind("attacked", "outliers")) - study_figures.SHOWN,
        "twins": view.twins,
    }


def _failures(view: StudyView) -> dict[str, Any]:
    """The ordinary set: a row a score."""
    part = view.ordinary
    rows = [_failure_row(name, part.failures[name], view) for name in view.ranked]
    if part.most_credible is not None:
        rows.append(_failure_row("most credible class, by ratio", part.most_credible, view))
    return {"shares": [f"{100 * float(share):.0f} %" for share in SHARES], "rows": rows}


def _failure_row(name: str, found: FailureResult, view: StudyView) -> dict[str, Any]:
    own, gap = found.metrics, found.differences["aurc"]
    return {
        "name": name,
        "own": view.from_profile(name),
        "reference": name == view.result.reference,
        "aurc": f"{100 * own['aurc']:.2f}",
        "difference": "" if name == view.result.reference else _signed(gap),
        "e_aurc": f"{100 * own['e_aurc']:.2f}",
        "augrc": f"{100 * own['augrc']:.2f}",
        "auroc": _with_ends(found.intervals["auroc"]),
        "fpr95": _number(own["fpr95"]),
        "accuracies": [f"{100 * own[f'accuracy at {share}']:.1f}" for share in SHARES],
        "covered": f"{100 * own['coverage at 99 % accuracy']:.1f}",
    }


def _labelled(view: StudyView) -> dict[str, Any]:
    """All other sets with labels: a row a set, a few scores."""
    names = view.curves
    sets = {n: p for n, p in view.result.sets.items() if p.failures and p.kind != "ordinary"}
    rows = [
        {
            "name": name,
            "kind": part.kind,
            "accuracy": f"{100 * part.accuracy['model']:.1f}",
            "credible": f"{100 * part.accuracy['most credible']:.1f}",
            "scores": [_cell(part, score, view.result.reference) for score in names],
        }
        for name, part in sets.items()
    ]
    return {"names": names, "rows": rows}


def _cell(part: SetResult, score: str, reference: str) -> dict[str, str]:
    found = part.failures.get(score)
    if found is None:
        return {"text": "-", "mark": ""}
    gap = found.differences["aurc"]
    text = f"{100 * found.metrics['aurc']:.2f}"
    if score == reference:
        return {"text": text, "mark": ""}
    told = study_advice.enough_answers(part)
    return {"text": text, "mark": _mark(better=gap.high < 0, worse=gap.low > 0) if told else ""}


def _mark(*, better: bool, worse: bool) -> str:
    return "good" if better else "bad" if worse else ""


def _detection(view: StudyView) -> list[dict[str, Any]]:
    """AUROC of every score on every set to be flagged, both ways; a table for a few sets."""
    sets = list(view.of_kind("attacked", "outliers").items())
    starts = range(0, len(sets), MOST_COLUMNS)
    return [_detection_table(view, dict(sets[n : n + MOST_COLUMNS])) for n in starts]


def _detection_table(view: StudyView, sets: Mapping[str, SetResult]) -> dict[str, Any]:
    every = dict.fromkeys(name for part in sets.values() for name in part.detection)
    names = view.shown(every)
    rows = [
        {"name": name, "far": far, "own": view.from_profile(name), "values": [
            _auroc_cell(view, part, (name, far)) for part in sets.values()
        ]}
        for far in (False, True)
        for name in names
    ]  # fmt: skip
    return {"sets": list(sets), "rows": rows}


def _auroc_cell(view: StudyView, part: SetResult, pick: Pick) -> dict[str, str]:
    found, far = part.detection.get(pick[0]), pick[1]
    if found is None:
        return {"text": "-", "ends": "", "mark": "", "more": ""}
    value = auroc_of(part, pick)
    gap = found.two_sided_difference if far else found.difference
    others = found.two_sided if far else found.metrics
    more = f"AUPR {others['aupr'].value:.3f}, FPR95 {others['fpr95'].value:.3f}"
    return {
        "text": _number(value.value),
        "ends": f"{_number(value.low)} to {_number(value.high)}",
        "mark": _mark(better=gap.low > 0, worse=gap.high < 0) if view.enough_inputs(part) else "",
        "more": more,
    }


def _sets(view: StudyView) -> list[dict[str, str]]:
    return [
        {
            "name": name,
            "kind": part.kind,
            "samples": str(part.samples),
            "left_out": str(part.left_out),
            "passes": _number(part.facts.get("median passes", math.nan), digits=1),
        }
        for name, part in view.result.sets.items()
    ]


def _settings(settings: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [(name, _words(value)) for name, value in settings.items()]


def _words(value: object) -> str:
    if isinstance(value, dict):
        return "; ".join(f"{name}: {_words(part)}" for name, part in value.items()) or "-"
    if isinstance(value, list):
        return ", ".join(_words(part) for part in value) or "-"
    return "-" if value in (None, "") else str(value)


def _signed(interval: Interval) -> str:
    low, high = 100 * interval.low, 100 * interval.high
    return f"{100 * interval.value:+.2f} [{low:+.2f}, {high:+.2f}]"


def _with_ends(interval: Interval) -> str:
    return f"{_number(interval.value)} [{_number(interval.low)}, {_number(interval.high)}]"


def _number(value: float, *, digits: int = 3) -> str:
    return "-" if math.isnan(value) else f"{value:.{digits}f}"
