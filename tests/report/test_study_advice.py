"""The findings of a study end with what to do, and only what the numbers carry."""

from dataclasses import replace

import pytest
import torch
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import scale

import credibly as cr
from credibly.baselines.catalogue import LogitMargin, MaxSoftmax, NegativeEntropy
from credibly.decide.scores import SCORES
from credibly.metrics.intervals import paired_difference
from credibly.report.study_view import StudyView
from credibly.study.study import Rows
from credibly.study.summary import summarise


def result(errors, *, free, own, other=0.0, count=400):
    """A study with this many errors, known as well as these numbers say to three scores."""
    g = torch.Generator().manual_seed(0)
    labels = torch.randint(3, (count,), generator=g)
    wrong = torch.zeros(count, dtype=torch.bool)
    wrong[torch.randperm(count, generator=g)[:errors]] = True
    predicted = torch.where(wrong, (labels + 1) % 3, labels)
    noise = torch.randn(5, count, generator=g, dtype=torch.float64)
    right = (~wrong).double()
    scores = {
        "max_softmax": free * right + noise[0],
        "softmax_ratio": own * right + noise[1],
        "predicted_ratio": own * right + noise[2],
        "shift": other * right + noise[3],
        "max softmax (baseline)": free * right + noise[0],
        "better than all (baseline)": 9 * right + noise[4],
    }
    rows = {"plain": Rows("ordinary", labels, predicted, predicted, scores, {})}
    return summarise(rows, resamples=200)


def last(found):
    return StudyView(found).sentences()[-1]


def test_a_score_that_is_clearly_better_than_the_default_is_named_with_the_call():
    found = result(60, free=4.0, own=0.5)
    text = last(found)
    assert "rank errors by max_softmax: SelectiveClassifier.for_error_rate(" in text
    assert "score='max_softmax')" in text
    rows = found.rows["plain"]
    gap = paired_difference(
        cr.metrics.aurc,
        rows.scores["max_softmax"],
        rows.scores["failure_score"],
        rows.correct,
        n=200,
    )
    assert gap.high < 0
    assert f"{100 * gap.value:+.2f} points [{100 * gap.low:+.2f}, {100 * gap.high:+.2f}]" in text
    assert (
        f"{100 * cr.metrics.aurc(rows.scores['max_softmax'], rows.correct):.2f} % against" in text
    )
    assert "make the rule from other labelled ones" in text
    # what no rule can use is not advised, however good
    assert "(baseline)" not in text


def test_of_several_better_ones_the_best_is_named():
    assert "rank errors by shift:" in last(result(60, free=2.0, own=0.1, other=4.0))
    assert "rank errors by max_softmax:" in last(result(60, free=4.0, own=0.1, other=2.0))


@pytest.mark.parametrize(("free", "close"), [(2.0, True), (0.0, False)])
def test_otherwise_the_default_is_left(free, close):
    text = last(result(60, free=free, own=2.0))
    assert "leave the score of rules as it is (failure_score): of 4 others" in text
    assert "none ranks the errors clearly better" in text
    assert ("max_softmax, from the outputs alone, is not clearly worse" in text) == close


@pytest.mark.parametrize(
    ("worse", "better", "warned"),
    [(0, 0, False), (1, 0, False), (2, 0, True), (2, 1, False), (3, 1, True)],
)
def test_sets_that_speak_against_the_default_are_not_kept_quiet(worse, better, warned):
    plain = result(60, free=2.0, own=2.0)
    bad, good = result(60, free=4.0, own=0.2), result(60, free=0.1, own=4.0)
    assert bad.sets["plain"].failures["failure_score"].differences["aurc"].low > 0
    assert good.sets["plain"].failures["failure_score"].differences["aurc"].high < 0
    kinds = [bad] * worse + [good] * better
    few = result(8, free=4.0, own=0.2)  # errors that tell nothing apart
    sets = {f"damaged {n}": replace(f.sets["plain"], kind="shifted") for n, f in enumerate(kinds)}
    sets["few"] = replace(few.sets["plain"], kind="shifted")
    text = last(replace(plain, sets={**plain.sets, **sets}))
    assert "leave the score of rules as it is" in text
    words = (
        f"But of {worse + better} other sets with labels and errors enough, failure_score ranks "
        f"them clearly worse than max softmax (baseline) on {worse}, and clearly better on {better}"
    )
    assert (words in text) == warned
    assert text.endswith("pass score='max_softmax' to the rule.") == warned
    otherwise = last(replace(plain, reference="softmax_ratio", sets={**plain.sets, **sets}))
    assert "other sets" not in otherwise  # differences to another score


@pytest.mark.parametrize("errors", [1, 9, 10])
def test_a_handful_of_errors_tells_nothing_apart(errors):
    sentences = StudyView(result(errors, free=4.0, own=0.1)).sentences()
    few = errors < 10
    be = "is" if errors == 1 else "are"
    words = f"only {errors} of 400 answers {be} wrong, and with fewer than 10 errors no score"
    assert (words in sentences[-1]) == few
    assert any("clearly" in s for s in sentences) != few


def test_a_handful_of_right_answers_tells_nothing_apart_either():
    sentences = StudyView(result(391, free=4.0, own=0.1)).sentences()
    assert "only 9 of 400 answers are right, and with fewer than 10 right answers" in sentences[-1]
    assert not any("clearly" in sentence for sentence in sentences)
    assert any("nothing that so few right answers can tell apart" in s for s in sentences)


def test_without_errors_or_rows_nothing_is_advised():
    assert "no failures to rank" in " ".join(StudyView(result(0, free=1.0, own=1.0)).sentences())
    assert not last(result(0, free=1.0, own=1.0)).startswith("What to do")
    whole = result(60, free=4.0, own=0.5)
    bare = cr.study.StudyResult(whole.reference, whole.resamples, whole.seed, whole.sets)
    assert not last(bare).startswith("What to do")


def test_scores_that_are_one_with_two_classes_are_said_to_be(tmp_path):
    x, y = load_breast_cancer(return_X_y=True)
    x = torch.tensor(scale(x))[:, :4]
    clf = cr.from_sklearn(LogisticRegression().fit(x.numpy(), y))
    study = cr.study.Study(
        clf=clf, gamma=10.0, solver=cr.solvers.LBFGS(steps=5),
        baselines={
            "max softmax (baseline)": MaxSoftmax(), "logit margin (baseline)": LogitMargin(),
            "negative entropy (baseline)": NegativeEntropy(),
        },
    )  # fmt: skip
    rows = study.run({"plain": cr.study.InputSet(x[:200], y[:200], "ordinary")}, tmp_path)
    assert int((~rows["plain"].correct).sum()) >= 10
    many = StudyView(summarise(rows, resamples=50, settings={"classes": 3})).sentences()
    assert not any("With two classes" in sentence for sentence in many)
    sentences = StudyView(summarise(rows, resamples=50, settings={"classes": 2})).sentences()
    (same,) = (s for s in sentences if "put the inputs in the same order" in s)
    group = next(g for g in same.partition(": ")[2].strip(".").split("; ") if "max_softmax" in g)
    assert set(group.split(", ")) >= {
        "softmax_ratio", "max_softmax", "max softmax (baseline)", "logit margin (baseline)",
        "negative entropy (baseline)",
    }  # fmt: skip
    assert "risk" not in group.split(", ")
    (flat,) = (s for s in sentences if "rank nothing" in s)
    assert set(flat.partition(": ")[2].strip(".").split(", ")) == {"p_norm", "min_max"}
    assert sentences[-1].startswith("What to do: ")
    assert set(SCORES) <= set(rows["plain"].scores)
