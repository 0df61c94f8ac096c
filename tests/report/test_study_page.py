"""The page about a study: stands alone, and says what the numbers say."""

import html
import re
from dataclasses import replace

import pytest
import torch

from credibly.report import study_figures
from credibly.report.study_page import study_page
from credibly.report.study_view import StudyView, label
from credibly.study.study import Rows
from credibly.study.summary import summarise


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
        "energy <rival>": noise[2],
        "max_softmax": soft * right + noise[0],
    }
    facts = {"samples": float(count), "without a profile": 0.0, "median passes": 41.5}
    labels = torch.full((count,), -1) if kind == "outliers" else labels
    return Rows(kind, labels, predicted, predicted, scores, facts)


def made(own=1.0, soft=1.0):
    study = {
        "plain": rows("ordinary", own=own, soft=soft),
        "bent <b>": rows("shifted", own=own, soft=soft, seed=1),
        "attack": rows("attacked", seed=2),
        "far": rows("outliers", shift=3.0, seed=3),
    }
    return summarise(study, resamples=40, settings={"gamma": 12.5, "solver": "Hybrid()"})


@pytest.fixture(scope="module")
def result():
    return made(own=0.2, soft=4.0)


def test_the_page_stands_alone_and_has_its_parts(result):
    page = study_page(result)
    assert page.count('src="data:image/png;base64,') == 3
    assert re.findall(r'(?:src|href)="(?!data:)', page) == []
    assert "<script" not in page
    for words in ("What was found", "Flagging what does not belong", "41.5", "12.5", "Hybrid()"):
        assert words in page
    assert page.index("What was found") < page.index("<img")


def first_cells(page):
    return re.findall(r"<tr[^>]*><td[^>]*>([^<]*)</td>", page)


def test_the_largest_softmax_stands_beside_the_rivals_and_nowhere_else(result):
    view = StudyView(result)
    assert view.twins == {"max_softmax": "max softmax (baseline)"}
    page = study_page(result)
    cells = [html.unescape(cell) for cell in first_cells(page)]
    # ranking, accuracies, and flagging in two ways
    assert cells.count("max softmax (baseline)") == 3
    assert cells.count("max softmax (baseline), two-sided") == 1
    assert not any("max_softmax" in cell for cell in cells)
    assert page.count("max_softmax") == 1  # where it is said to be left out
    assert "max_softmax" not in [*view.curves, *(name for name, _ in view.detectors)]
    assert not any("max_softmax" in sentence for sentence in view.sentences())
    assert "max_softmax" in result.sets["plain"].failures  # numbers in files are not touched


def test_without_the_rival_or_as_the_reference_the_score_is_shown():
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
        assert page.count(f'<th class="turned">attack {n}</th>') == 1
    # whatever is wider than a small screen scrolls by itself, and not the page
    assert page.count("<table>") == page.count('<div class="wide"><table>')


def test_names_from_outside_are_escaped(result):
    page = study_page(result)
    assert "bent <b>" not in page
    assert "bent &lt;b&gt;" in page
    assert "energy <rival>" not in page


@pytest.mark.parametrize(
    ("own", "soft", "words"), [(0.2, 4.0, "clearly worse"), (4.0, 0.2, "clearly better")]
)
def test_the_summary_is_honest_in_both_directions(own, soft, words):
    view = StudyView(made(own, soft))
    text = next(s for s in view.sentences() if "is ratio" in s)
    assert words in text
    failures = view.ordinary.failures
    assert f"{100 * failures['ratio'].metrics['aurc']:.2f} % against" in text


def test_equal_scores_show_no_difference():
    result = made()
    gap = result.sets["plain"].failures["max_softmax"].differences["aurc"]
    assert gap.contains(0)
    assert "clearly" not in StudyView(result)._compared("max_softmax")
    assert "no clear difference" in StudyView(result)._compared("max_softmax")


def test_the_best_detector_is_named_with_its_numbers(result):
    text = next(s for s in StudyView(result).sentences() if "inputs of no class" in s)
    found = result.sets["far"].detection
    best = max(
        ((name, far) for name in found for far in (False, True)),
        key=lambda p: (found[p[0]].two_sided if p[1] else found[p[0]].metrics)["auroc"].value,
    )
    assert f"{label(best)} is best: AUROC" in text
    assert best[0] == "ratio"
    assert "clearly better" in text


def test_a_model_without_mistakes_is_said_to_have_none():
    part = rows("ordinary")
    sure = replace(part, labels=part.predicted)
    other = rows("shifted", seed=1)
    result = summarise({"only": sure, "other": other}, resamples=10)
    assert StudyView(result).best_of_profile is None
    page = study_page(result)
    assert "makes no mistake" in page
    assert "Flagging what does not belong" not in page


def test_without_rows_there_are_no_curves_but_a_page(result):
    page = study_page(replace(result, rows={}))
    assert page.count('src="data:image/png;base64,') == 2


def test_bars_show_weak_and_strong_attacks_and_both_sides_of_rivals():
    study = {"plain": rows("ordinary", count=30)}
    study |= {f"eps {k}": rows("attacked", count=10, seed=k) for k in range(1, 13)}
    view = StudyView(summarise(study, resamples=3))
    shown = study_figures.shown_sets(view)
    assert len(shown) == 8
    assert (shown[0], shown[-1]) == ("eps 1", "eps 12")
    kinds = {(view.from_profile(name), far) for name, far in view.detectors}
    assert kinds == {(False, False), (False, True), (True, False), (True, True)}


def test_the_score_that_the_text_calls_best_is_among_the_bars():
    """Good at outliers, wrong about attacks: its mean over all sets would leave it out."""
    moves = {"ordinary": (0.0, 0.0), "outliers": (-0.5, -4.0), "attacked": (-4.0, 4.0)}

    def part(kind, seed):
        found = rows(kind, seed=seed)
        noise = torch.randn(6, 120, generator=torch.Generator().manual_seed(seed)).double()
        more = {f"s{n} (baseline)": noise[n] + moves[kind][n == 5] for n in range(6)}
        return replace(found, scores={**found.scores, **more})

    study = {kind: part(kind, seed) for seed, kind in enumerate(moves)}
    view = StudyView(summarise(study, resamples=40, settings={}))
    assert view.best_detector("outliers") == ("s5 (baseline)", False)
    assert ("s5 (baseline)", False) in view.detectors
    assert "s5 (baseline) is best" in " ".join(view.sentences())


def test_the_default_of_every_question_is_among_the_bars_and_curves():
    g = torch.Generator().manual_seed(5)

    def with_parts(kind, seed):
        part = rows(kind, seed=seed)
        names = ("shift", "elasticity", "softmax_ratio", "predicted_ratio")
        noise = {name: torch.randn(120, generator=g, dtype=torch.float64) for name in names}
        # rivals and others flag better, so that only its being the default brings it in
        better = {f"good {n}": noise["shift"] + 9 * (kind == "ordinary") for n in range(3)}
        return replace(part, scores={**part.scores, **noise, **better})

    plain = with_parts("ordinary", 0)
    sets = {"attacked": ["tamper_score"], "outliers": ["shift"]}
    for kinds in (["attacked"], ["outliers"], ["attacked", "outliers"]):
        study = {"plain": plain, **{kind: with_parts(kind, 3) for kind in kinds}}
        view = StudyView(summarise(study, resamples=5))
        for kind in kinds:
            for name in sets[kind]:
                assert (name, False) in view.detectors
        assert "failure_score" in view.curves
        assert len(view.curves) == len(set(view.curves))


def test_units_are_tied_to_their_numbers_on_the_page(result):
    text = re.search(r"What was found.*?</ul>", study_page(result), re.DOTALL)[0]
    assert "\N{NO-BREAK SPACE}%" in text
    assert not re.search(r"\d (%|points)", text)


def few_wrong(kind, errors, seed=1, count=60):
    """A set with this many errors, all of which the profile's score puts last."""
    part = rows(kind, count=count, seed=seed)
    wrong = torch.arange(count) < errors
    predicted = torch.where(wrong, (part.labels + 1) % 3, part.labels)
    scores = {**part.scores, "ratio": (~wrong).double()}
    return replace(part, predicted=predicted, scores=scores)


@pytest.mark.parametrize(("errors", "told"), [(9, False), (10, True), (50, True), (51, False)])
def test_other_sets_with_few_errors_or_few_right_answers_tell_nothing_apart(errors, told):
    study = {"plain": rows("ordinary", own=4.0), "bent": few_wrong("shifted", errors)}
    result = summarise(study, resamples=40)
    assert result.sets["bent"].failures["ratio"].differences["aurc"].high < 0
    text = next(s for s in StudyView(result).sentences() if "shifted inputs" in s)
    assert ("clearly better than max softmax (baseline) on 1," in text) == told
    assert ("neither on 1 (1 of these for want of 10 wrong and right answers)" in text) != told
    row = re.search(r"<tr><td>bent</td>.*?</tr>", study_page(result))[0]
    assert ('class="good"' in row) == told


@pytest.mark.parametrize(("count", "told"), [(1, False), (9, False), (10, True)])
def test_a_handful_of_outliers_tells_no_scores_apart(count, told):
    study = {"plain": rows("ordinary"), "far": rows("outliers", count=count, shift=30.0, seed=3)}
    result = summarise(study, resamples=40)
    assert result.sets["far"].detection["ratio"].difference.low > 0
    text = next(s for s in StudyView(result).sentences() if "inputs of no class" in s)
    assert ("clearly better" in text) == told
    assert ("which is nothing that so few inputs can tell apart" in text) != told
    table = study_page(result).partition("All scores and sets")[2].partition("</table>")[0]
    assert ('class="good"' in table) == told


def test_a_model_that_is_never_right_is_said_to_be_so_and_nothing_is_called_best():
    part = rows("ordinary")
    result = summarise({"only": replace(part, predicted=(part.labels + 1) % 3)}, resamples=10)
    sentences = StudyView(result).sentences()
    assert "The model is right on none of them, so there is nothing to rank." in sentences
    assert not any("Best of" in s or "What to do" in s for s in sentences)
    assert "right on none" in study_page(result)


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
def test_a_class_that_is_as_common_as_the_model_is_right_is_said_to_be(common, said):
    part = rows("ordinary", count=200)
    labels = torch.where(torch.arange(200) < 200 * common, 2, part.labels)
    right = torch.arange(200) % 5 > 0  # 80 %
    skewed = replace(part, labels=labels, predicted=torch.where(right, labels, (labels + 1) % 3))
    text = " ".join(StudyView(summarise({"only": skewed}, resamples=10)).sentences())
    share = 100 * int((labels == 2).sum()) / 200
    assert (f"One class alone has {share:.1f} % of these labels" in text) == said


def test_one_input_that_is_right_raises_no_doubt_about_labels():
    part = rows("ordinary", count=1)
    result = summarise(
        {"only": replace(part, predicted=part.labels)}, resamples=5, settings={"classes": 2}
    )
    text = " ".join(StudyView(result).sentences())
    assert "100.0 % of 1 ordinary input. " in text
    assert "Guessing" not in text


@pytest.mark.parametrize("lacking", ["one", "two"])
def test_a_score_that_one_set_lacks_is_not_called_best_and_stops_no_page(lacking):
    study = {"plain": rows("ordinary")}
    study |= {name: rows("outliers", shift=3.0, seed=len(name)) for name in ("one", "two")}
    part = study[lacking]
    gone = {**part.scores, "ratio": torch.full_like(part.scores["ratio"], torch.nan)}
    study[lacking] = replace(part, scores=gone)
    result = summarise(study, resamples=20)
    assert StudyView(result).best_detector("outliers")[0] != "ratio"
    assert "To flag inputs of no class (2 sets, in the mean)" in study_page(result)
