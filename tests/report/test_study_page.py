"""The page about a study stands alone and says what the numbers say."""

import html
import re
from dataclasses import replace

import pytest
import torch

from credibly.decide.scores import SCORES
from credibly.report import study_figures
from credibly.report.study_page import accuracies, findings, study_page, what_to_use
from credibly.report.study_view import StudyView, aurc_of
from credibly.report.tables import as_text, number, with_interval
from credibly.study import Rows
from credibly.study.summary import summarise

WRONG = "Which answers are wrong? (AURC in %, low is good; {} inputs)"
NO_CLASS = "Which inputs are of no class?"
FEW = "too few to compare scores by"
GUESS = "A guess, or always the most common class, could do as well"


def rows(kind, *, own=1.0, soft=1.0, shift=0.0, count=120, seed=0):
    """Scores that know the failures as well as `own` and `soft` say."""
    g = torch.Generator().manual_seed(seed)
    labels = torch.randint(3, (count,), generator=g)
    predicted = torch.where(torch.rand(count, generator=g) < 0.75, labels, (labels + 1) % 3)
    right = (predicted == labels).double()
    noise = torch.randn(4, count, generator=g, dtype=torch.float64)
    scores = {
        "max softmax (baseline)": soft * right + noise[0],
        "ratio": own * right + noise[1] - shift,
        "energy <baseline>": noise[2],
        "max_softmax": soft * right + noise[0],
    }
    facts = {"samples": float(count), "without a profile": 0.0, "median passes": 41.5}
    labels = torch.full((count,), -1) if kind == "outliers" else labels
    return Rows(kind, labels, predicted, predicted, scores, facts)


def with_errors(errors, *, kind="ordinary", count=400, **known):
    """A set with this many errors, which each score knows as well as the numbers say."""
    g = torch.Generator().manual_seed(0)
    labels = torch.randint(3, (count,), generator=g)
    wrong = torch.zeros(count, dtype=torch.bool)
    wrong[torch.randperm(count, generator=g)[:errors]] = True
    noise = torch.randn(5, count, generator=g, dtype=torch.float64)
    strength = {
        "max_softmax": 1.0, "softmax_ratio": 1.0, "predicted_ratio": 1.0, "shift": 0.0,
        "better than all (baseline)": 9.0, **known,
    }  # fmt: skip
    pairs = zip(strength.items(), noise, strict=True)
    scores = {name: s * (~wrong).double() + n for (name, s), n in pairs}
    scores["max softmax (baseline)"] = scores["max_softmax"]
    predicted = torch.where(wrong, (labels + 1) % 3, labels)
    return Rows(kind, labels, predicted, predicted, scores, {})


def made(own=1.0, soft=1.0):
    study = {
        "plain": rows("ordinary", own=own, soft=soft),
        "bent <b>": rows("shifted", own=own, soft=soft, seed=1),
        "attack": rows("attacked", seed=2),
        "far": rows("outliers", shift=3.0, seed=3),
    }
    return summarise(study, resamples=40, settings={"gamma": 12.5, "solver": "Hybrid()"})


def answers(result):
    """The rows of the table of what to use, by question."""
    table = what_to_use(StudyView(result))
    return {question: rest for question, *rest in table.rows}


def answer(result, question):
    return next(rest for text, rest in answers(result).items() if text.startswith(question))


@pytest.fixture(scope="module")
def result():
    return made(own=0.2, soft=4.0)


def test_the_page_stands_alone_and_has_its_parts(result):
    page = study_page(result)
    assert page.count('src="data:image/png;base64,') == 3
    assert re.findall(r'(?:src|href)="(?!data:)', page) == []
    assert "<script" not in page
    for words in ("What to use", "Flagging outliers and attacks", "41.5", "12.5", "Hybrid()"):
        assert words in page
    assert page.index("What to use") < page.index("<img")


def first_cells(page):
    return re.findall(r"<tr[^>]*><td[^>]*>([^<]*)</td>", page)


def test_the_largest_softmax_stands_beside_the_baselines_and_nowhere_else(result):
    view = StudyView(result)
    assert view.twins == {"max_softmax": "max softmax (baseline)"}
    page = study_page(result)
    cells = [html.unescape(cell) for cell in first_cells(page)]
    # ranking, accuracies, and flagging in two ways
    assert cells.count("max softmax (baseline)") == 3
    assert cells.count("max softmax (baseline), two-sided") == 1
    assert not any("max_softmax" in cell for cell in cells)
    assert "max_softmax" not in [*view.curves, *(name for name, _ in view.detectors)]
    assert "max_softmax" in result.sets["plain"].failures  # numbers in files are not touched


def test_without_the_baseline_or_as_the_reference_the_score_is_shown():
    study = {"plain": rows("ordinary")}
    named = StudyView(summarise(study, resamples=5, reference="max_softmax"))
    assert named.twins == {"max softmax (baseline)": "max_softmax"}
    assert "max_softmax" in named.ranked
    part = study["plain"]
    alone = {name: s for name, s in part.scores.items() if name != "max softmax (baseline)"}
    view = StudyView(summarise({"plain": replace(part, scores=alone)}, resamples=5))
    assert (view.twins, "max_softmax" in view.ranked) == ({}, True)


def test_no_table_is_wider_than_the_page():
    many = {f"attack {n}": rows("attacked", count=12, seed=n) for n in range(20)}
    page = study_page(summarise({"plain": rows("ordinary"), **many}, resamples=3))
    tables = re.findall(r"<table>(.*?)</table>", page, re.DOTALL)
    columns = [max(row.count("<td") for row in table.split("<tr")) for table in tables]
    assert max(columns) == 8  # 1200 px have room for nine such as those of flagging
    for n in range(20):
        assert page.count(f"<th>attack {n}</th>") == 1
    # whatever is wider than a small screen scrolls by itself, and not the page
    assert page.count("<table>") == page.count('<div class="wide"><table>')


def test_names_from_outside_are_escaped(result):
    page = study_page(result)
    assert "bent <b>" not in page
    assert "bent &lt;b&gt;" in page
    assert "energy <baseline>" not in page


@pytest.mark.parametrize(
    ("own", "soft", "best", "verdict"),
    [(0.2, 4.0, "max softmax (baseline)", "-"), (4.0, 0.2, "ratio", "clearly better")],
)
def test_the_table_is_honest_in_both_directions(own, soft, best, verdict):
    found = made(own, soft)
    first, default, reference, word = answer(found, WRONG.format("ordinary"))
    failures = found.sets["plain"].failures
    assert first == f"{best}: {with_interval(failures[best].intervals['aurc'], 2, 100)}"
    assert reference == with_interval(failures["max softmax (baseline)"].intervals["aurc"], 2, 100)
    assert default == "failure_score: - [-, -]"  # its parts are not among the scores
    assert word == verdict
    assert 'class="bad"' in study_page(made(0.2, 4.0))


def test_the_best_score_that_a_rule_can_use_is_named_beside_the_best_of_all():
    strengths = {"max_softmax": 2.0, "softmax_ratio": 0.1, "predicted_ratio": 0.1, "shift": 4.0}
    found = summarise({"plain": with_errors(60, **strengths)}, resamples=200)
    assert answer(found, WRONG.format("ordinary"))[0].startswith("better than all (baseline): ")
    best, default, reference, verdict = answer(found, "The same, by a score that a rule can use")
    assert best.startswith("shift: ")
    assert "shift" in SCORES
    failures = found.sets["plain"].failures
    interval = failures["failure_score"].intervals["aurc"]
    assert default == f"failure_score: {with_interval(interval, 2, 100)}"
    assert reference == with_interval(failures["max_softmax"].intervals["aurc"], 2, 100)
    assert verdict == "clearly better"


def test_equal_scores_show_no_difference():
    view = StudyView(made())
    assert view.ordinary.failures["max_softmax"].differences["aurc"].contains(0)
    verdict = view.verdict(view.ordinary, ("max_softmax", False), aurc_of)
    assert verdict == "no clear difference"


def test_the_best_detector_is_named_with_its_number(result):
    found = result.sets["far"].detection
    sides = {(name, far): (part.two_sided if far else part.metrics)["auroc"]
             for name, part in found.items() for far in (False, True)}  # fmt: skip
    (name, far), interval = max(sides.items(), key=lambda item: item[1].value)
    best, _, reference, verdict = answer(result, NO_CLASS)
    assert best == f"{name}{', two-sided' if far else ''}: {with_interval(interval)}"
    assert name == "ratio"
    assert reference == with_interval(found["max softmax (baseline)"].metrics["auroc"])
    assert verdict == "clearly better"


def test_accuracies_are_means_by_kind(result):
    found = {kind: rest for kind, *rest in accuracies(StudyView(result)).rows}
    assert set(found) == {"ordinary", "shifted", "attacked"}
    for kind, name in (("ordinary", "plain"), ("shifted", "bent <b>"), ("attacked", "attack")):
        share = f"{result.sets[name].accuracy['model']:.1%}"
        assert found[kind] == ["1", share, share]


@pytest.mark.parametrize("right", [True, False])
def test_a_model_that_is_always_or_never_right_has_nothing_to_rank(right):
    part = rows("ordinary")
    sure = replace(part, predicted=part.labels if right else (part.labels + 1) % 3)
    result = summarise({"only": sure, "other": rows("shifted", seed=1)}, resamples=10)
    assert list(answers(result)) == [WRONG.format("shifted")]
    assert any(FEW in sentence for sentence in findings(StudyView(result)))
    assert FEW in study_page(result)
    assert "Flagging outliers and attacks" not in study_page(result)


def test_without_rows_there_are_no_curves_but_a_page(result):
    page = study_page(replace(result, rows={}))
    assert page.count('src="data:image/png;base64,') == 2


def test_bars_show_weak_and_strong_attacks_and_both_sides_of_baselines():
    study = {"plain": rows("ordinary", count=30)}
    study |= {f"eps {k}": rows("attacked", count=10, seed=k) for k in range(1, 13)}
    view = StudyView(summarise(study, resamples=3))
    shown = study_figures.shown_sets(view)
    assert len(shown) == 8
    assert (shown[0], shown[-1]) == ("eps 1", "eps 12")
    kinds = {(view.from_profile(name), far) for name, far in view.detectors}
    assert kinds == {(False, False), (False, True), (True, False), (True, True)}


def test_the_score_that_the_table_calls_best_is_among_the_bars():
    """Good at outliers, wrong about attacks: its mean over all sets would leave it out."""
    moves = {"ordinary": (0.0, 0.0), "outliers": (-0.5, -4.0), "attacked": (-4.0, 4.0)}

    def part(kind, seed):
        found = rows(kind, seed=seed)
        noise = torch.randn(6, 120, generator=torch.Generator().manual_seed(seed)).double()
        more = {f"s{n} (baseline)": noise[n] + moves[kind][n == 5] for n in range(6)}
        return replace(found, scores={**found.scores, **more})

    study = {kind: part(kind, seed) for seed, kind in enumerate(moves)}
    result = summarise(study, resamples=40, settings={})
    assert ("s5 (baseline)", False) in StudyView(result).detectors
    assert answer(result, NO_CLASS)[0].startswith("s5 (baseline): ")


def test_the_default_of_every_question_is_among_the_bars_and_curves():
    g = torch.Generator().manual_seed(5)

    def with_parts(kind, seed):
        part = rows(kind, seed=seed)
        names = ("shift", "elasticity", "softmax_ratio", "predicted_ratio")
        noise = {name: torch.randn(120, generator=g, dtype=torch.float64) for name in names}
        # other scores flag better, so that only its being the default brings it in
        better = {f"good {n}": noise["shift"] + 9 * (kind == "ordinary") for n in range(3)}
        return replace(part, scores={**part.scores, **noise, **better})

    plain = with_parts("ordinary", 0)
    defaults = {"attacked": "tamper_score", "outliers": "shift"}
    for kinds in (["attacked"], ["outliers"], ["attacked", "outliers"]):
        study = {"plain": plain, **{kind: with_parts(kind, 3) for kind in kinds}}
        view = StudyView(summarise(study, resamples=5))
        for kind in kinds:
            assert (defaults[kind], False) in view.detectors
        assert "failure_score" in view.curves
        assert len(view.curves) == len(set(view.curves))


@pytest.mark.parametrize("errors", [1, 9, 10, 390, 391])
def test_few_errors_or_few_right_answers_cannot_compare_scores(errors):
    found = summarise({"plain": with_errors(errors, max_softmax=4.0)}, resamples=40)
    few = not 10 <= errors <= 390
    assert any(FEW in sentence for sentence in findings(StudyView(found))) == few
    verdict = answer(found, WRONG.format("ordinary"))[-1]
    assert (verdict == "too few to tell") == few


def few_wrong(kind, errors, seed=1, count=60):
    """A set with this many errors, all of which the profile's score puts last."""
    part = rows(kind, count=count, seed=seed)
    wrong = torch.arange(count) < errors
    predicted = torch.where(wrong, (part.labels + 1) % 3, part.labels)
    scores = {**part.scores, "ratio": (~wrong).double()}
    return replace(part, predicted=predicted, scores=scores)


@pytest.mark.parametrize(("errors", "told"), [(9, False), (10, True), (50, True), (51, False)])
def test_other_sets_with_few_errors_or_few_right_answers_tell_nothing_apart(errors, told):
    bent = {f"bent {n}": few_wrong("shifted", errors, seed=n) for n in (1, 2)}
    result = summarise({"plain": rows("ordinary", own=4.0), **bent}, resamples=40)
    assert result.sets["bent 1"].failures["ratio"].differences["aurc"].high < 0
    best, *_, verdict = answer(result, f"{WRONG.format('shifted')}, mean of 2 sets")
    mean = sum(result.sets[name].failures["ratio"].metrics["aurc"] for name in bent) / 2
    assert best == f"ratio: {number(100 * mean, 2)}"
    assert verdict == ("clearly better on 2" if told else "too few to tell on 2")
    row = re.search(r"<tr><td>bent 1</td>.*?</tr>", study_page(result))[0]
    assert ('class="good"' in row) == told


@pytest.mark.parametrize(("count", "told"), [(1, False), (9, False), (10, True)])
def test_a_handful_of_outliers_tells_no_scores_apart(count, told):
    study = {"plain": rows("ordinary"), "far": rows("outliers", count=count, shift=30.0, seed=3)}
    result = summarise(study, resamples=40)
    assert result.sets["far"].detection["ratio"].difference.low > 0
    verdict = answer(result, NO_CLASS)[-1]
    assert verdict == ("clearly better" if told else "too few to tell")
    table = study_page(result).partition("All scores and sets")[2].partition("</table>")[0]
    assert ('class="good"' in table) == told


def test_long_names_of_sets_stay_apart_and_dollars_are_no_formula():
    long = "outliers that have a very long name"
    study = {"plain $^$": rows("ordinary"), "bent $_{$": rows("shifted", seed=1)}
    study |= {f"{long} {n} of them, all alike": rows("outliers", seed=n) for n in (2, 3)}
    study = {
        name: replace(part, scores={**part.scores, "$\\frac$ score": part.scores["ratio"]})
        for name, part in study.items()
    }
    result = summarise(study, resamples=10)
    assert study_page(result).count('src="data:image/png;base64,') == 3
    titles = [panel.get_title("left") for panel in study_figures.detection(StudyView(result)).axes]
    assert len(set(titles)) == 2


@pytest.mark.parametrize(("common", "said"), [(0.9, True), (0.4, False)])
def test_a_class_that_is_as_common_as_the_model_is_right_is_noticed(common, said):
    part = rows("ordinary", count=200)
    labels = torch.where(torch.arange(200) < 200 * common, 2, part.labels)
    right = torch.arange(200) % 5 > 0  # 80 %
    skewed = replace(part, labels=labels, predicted=torch.where(right, labels, (labels + 1) % 3))
    text = " ".join(findings(StudyView(summarise({"only": skewed}, resamples=10))))
    assert (GUESS in text) == said


@pytest.mark.parametrize(("classes", "said"), [(2, True), (None, False)])
def test_an_accuracy_that_a_guess_could_reach_is_noticed(classes, said):
    part = rows("ordinary", count=200)
    predicted = torch.where(torch.arange(200) % 2 > 0, part.labels, (part.labels + 1) % 3)
    settings = {} if classes is None else {"classes": classes}
    found = summarise({"only": replace(part, predicted=predicted)}, resamples=5, settings=settings)
    assert (GUESS in " ".join(findings(StudyView(found)))) == said


def test_one_input_that_is_right_raises_no_doubt_about_labels():
    part = rows("ordinary", count=1)
    result = summarise(
        {"only": replace(part, predicted=part.labels)}, resamples=5, settings={"classes": 2}
    )
    first, *rest = findings(StudyView(result))
    assert first == "The model is right on 100.0% of 1 ordinary inputs."
    assert not any(GUESS in sentence for sentence in rest)


@pytest.mark.parametrize("lacking", ["one", "two"])
def test_a_score_that_one_set_lacks_is_not_called_best_and_stops_no_page(lacking):
    study = {"plain": rows("ordinary")}
    study |= {name: rows("outliers", shift=3.0, seed=len(name)) for name in ("one", "two")}
    part = study[lacking]
    gone = {**part.scores, "ratio": torch.full_like(part.scores["ratio"], torch.nan)}
    study[lacking] = replace(part, scores=gone)
    result = summarise(study, resamples=20)
    assert not answer(result, NO_CLASS)[0].startswith("ratio")
    assert "mean of 2 sets" in study_page(result)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"a": [1, None], "b": {}}, "a: 1, -; b: -"),
        (["x"] * 13, ", ".join(["x"] * 12) + ", ..."),
        ("", "-"),
        (0, "0"),
    ],
)
def test_settings_become_text(value, text):
    assert as_text(value) == text
