"""Studies in numbers, against the bootstrap of `decide` and small cases by hand."""

import json
import math
from dataclasses import replace
from functools import partial

import pytest
import torch

import credibly as cr
from credibly import metrics as m
from credibly.metrics.intervals import draws
from credibly.metrics.ranking import Failures, TwoGroups
from credibly.study.rows import Rows, study_folder
from credibly.study.study_result import StudyResult
from credibly.study.summary import _distance, summarise

COUNT = 60


def rows(kind="ordinary", seed=0, count=90, shift=0.0):
    g = torch.Generator().manual_seed(seed)
    labels = torch.randint(3, (count,), generator=g)
    predicted = torch.where(torch.rand(count, generator=g) < 0.8, labels, (labels + 1) % 3)
    right = (predicted == labels).double()
    noise = torch.randn(3, count, generator=g, dtype=torch.float64)
    values = right + noise - shift
    values[1] = values[1].mul(3).round()  # ties
    scores = {"max_softmax": values[0], "ratio": values[1], "risk": noise[2] - shift}
    labels = torch.full((count,), -1) if kind == "outliers" else labels
    facts = {"samples": float(count), "without a profile": 0.0, "median passes": 7.0}
    return Rows(kind, labels, predicted, (predicted + (noise[2] > 1)) % 3, scores, facts)


@pytest.fixture(scope="module")
def study():
    return {
        "clean": rows(),
        "attacked": rows("attacked", seed=1, count=40, shift=0.7),
        "foreign": rows("outliers", seed=2, count=30, shift=1.5),
        "noisy": rows("shifted", seed=3),
    }


@pytest.fixture(scope="module")
def result(study):
    return summarise(study, resamples=COUNT, seed=5)


def test_progress_counts_the_sets(study):
    seen = []
    summarise(study, resamples=2, progress=seen.append)
    assert seen == [0.0, 0.25, 0.5, 0.75]


def close(found, expected):
    for name in ("value", "low", "high"):
        a, b = getattr(found, name), getattr(expected, name)
        assert math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-12) or (math.isnan(a) and math.isnan(b))


FAILURE_METRICS = {
    "aurc": m.aurc,
    "e_aurc": m.e_aurc,
    "augrc": m.augrc,
    "auroc": m.failure_auroc,
    "fpr95": m.failure_fpr_at_tpr,
    "accuracy at 0.9": partial(m.accuracy_at_coverage, coverages=0.9),
    "accuracy at 0.5": partial(m.accuracy_at_coverage, coverages=0.5),
    "coverage at 99 % accuracy": partial(m.coverage_at_accuracy, target=0.99),
}


@pytest.mark.parametrize("name", FAILURE_METRICS)
@pytest.mark.parametrize("score", ["ratio", "risk"])
def test_failures_are_those_of_the_bootstrap(study, result, name, score):
    part, metric = study["clean"], FAILURE_METRICS[name]
    found = result.sets["clean"].failures[score]
    own, base = part.scores[score], part.scores["max_softmax"]
    close(found.intervals[name], cr.metrics.bootstrap(metric, own, part.correct, n=COUNT, seed=5))
    difference = cr.metrics.paired_difference(metric, own, base, part.correct, n=COUNT, seed=5)
    close(found.differences[name], difference)
    assert found.metrics[name] == pytest.approx(float(metric(own, part.correct)), abs=1e-12)


def test_the_most_credible_class_is_judged_by_its_own_hits(study, result):
    part, found = study["clean"], result.sets["clean"]
    expected = cr.metrics.paired_difference(
        cr.metrics.aurc, part.scores["ratio"], part.scores["max_softmax"], part.credible_correct,
        correct_b=part.correct, n=COUNT, seed=5,
    )  # fmt: skip
    close(found.most_credible.differences["aurc"], expected)
    hits = (part.credible == part.labels).double().mean()
    assert found.accuracy["most credible"] == pytest.approx(float(hits))


@pytest.mark.parametrize("name", ["attacked", "foreign"])
@pytest.mark.parametrize("score", ["max_softmax", "ratio"])
def test_detection_is_that_of_the_bootstrap(study, result, name, score):
    outside, inside = study[name].scores[score], study["clean"].scores[score]
    found = result.sets[name].detection[score]
    median = inside.median()
    for metric, function in (("auroc", m.auroc), ("aupr", m.aupr), ("fpr95", m.fpr_at_tpr)):
        flagged = cr.metrics.bootstrap(function, -outside, -inside, n=COUNT, seed=5)
        close(found.metrics[metric], flagged)
        far = [(values - median).abs() for values in (outside, inside)]
        close(found.two_sided[metric], cr.metrics.bootstrap(function, *far, n=COUNT, seed=5))


def test_a_difference_in_detection_is_paired(study, result):
    found = result.sets["foreign"].detection
    base = found["max_softmax"]
    assert base.difference.low == base.difference.high == 0
    inside, outside = study["clean"].scores, study["foreign"].scores
    values = []
    for positive, negative in draws([30, 90], COUNT, 5):
        one, two = (
            TwoGroups(-outside[k], -inside[k]).count(positive, negative).auroc()
            for k in ("risk", "max_softmax")
        )
        values.append(one - two)
    low, high = (
        torch.cat(values).quantile(torch.tensor([0.025, 0.975], dtype=torch.float64)).tolist()
    )
    assert found["risk"].difference.low == pytest.approx(low, abs=1e-12)
    assert found["risk"].difference.high == pytest.approx(high, abs=1e-12)


def test_what_has_no_labels_has_no_failures(result):
    foreign, noisy = result.sets["foreign"], result.sets["noisy"]
    assert foreign.failures == {}
    assert foreign.accuracy == {}
    assert foreign.most_credible is None
    assert noisy.detection == {}
    assert set(noisy.failures["ratio"].differences) >= {"aurc", "auroc"}
    assert "accuracy at 0.9" in noisy.failures["ratio"].metrics
    assert "accuracy at 0.9" not in noisy.failures["ratio"].intervals


@pytest.mark.parametrize("correct", [True, False])
def test_a_set_without_failures_or_without_successes(correct):
    score = torch.arange(8.0).double()
    hits = torch.full((8,), correct)
    (weights,) = next(iter(draws([8], 4, 0)))
    found = Failures(score, hits).count(weights).metrics()
    assert found["aurc"].tolist() == pytest.approx([0.0 if correct else 1.0] * 4)
    assert found["augrc"].tolist() == pytest.approx([0.0 if correct else 0.5] * 4)
    assert found["auroc"].isnan().all()


def test_resamples_without_a_failure_have_no_ranking():
    score, hits = torch.tensor([3.0, 1.0, 2.0, 2.0, 5.0, 4.0]).double(), torch.arange(6) != 2
    weights = torch.cat([part for (part,) in draws([6], 40, 0)], dim=1)
    found = Failures(score, hits).count(weights).metrics()
    lucky = weights[2] == 0
    assert 0 < int(lucky.sum()) < 40
    for name in ("auroc", "fpr95"):
        assert torch.equal(found[name].isnan(), lucky)
    for name in ("aurc", "e_aurc", "augrc", "auroc", "fpr95"):
        for n in range(40):
            drawn = torch.arange(6).repeat_interleave(weights[:, n].long())
            expected = FAILURE_METRICS[name](score[drawn], hits[drawn])
            assert float(found[name][n]) == pytest.approx(expected, abs=1e-12, nan_ok=True)


def test_equal_infinities_are_no_distance_apart():
    inf = math.inf
    values = torch.tensor([inf, -inf, 1.0, 4.0], dtype=torch.float64)
    assert _distance(values, torch.tensor([inf, inf, 0.0])).tolist() == [0.0, inf, inf, inf]
    # of an even number the lower of the two in the middle
    assert _distance(values, torch.tensor([9.0, 1.0, 3.0, 0.0])).tolist() == [inf, inf, 0.0, 3.0]


def test_samples_without_a_score_are_left_out_for_all_and_counted(study):
    part = study["clean"]
    holes = part.scores["risk"].clone()
    holes[:5] = torch.nan
    empty = torch.full_like(holes, torch.nan)
    scores = {**part.scores, "risk": holes, "broken": empty}
    changed = Rows(part.kind, part.labels, part.predicted, part.credible, scores, part.facts)
    found = summarise({"clean": changed}, resamples=5).sets["clean"]
    assert (found.samples, found.left_out) == (85, 5)
    assert "broken" not in found.failures
    assert found.accuracy["model"] == pytest.approx(float(part.correct[5:].double().mean()))
    expected = cr.metrics.aurc(part.scores["ratio"][5:], part.correct[5:])
    assert found.failures["ratio"].metrics["aurc"] == pytest.approx(expected)


def test_files_give_everything_back(study, result, tmp_path):
    study_folder(tmp_path).begin({"model": "m"}, lambda: {"gamma": 12.5})
    result.save(tmp_path)
    text = (tmp_path / "result.json").read_text("utf-8")
    assert json.loads(text, parse_constant=pytest.fail)["format_version"] == 1
    loaded = StudyResult.load(tmp_path)
    assert loaded.sets == result.sets
    assert loaded.settings == {"model": "m", "gamma": 12.5}
    assert list(loaded.rows) == list(study)
    for name, part in study.items():
        other = loaded.rows[name]
        assert other.kind == part.kind
        assert dict(other.facts) == part.facts
        for column in ("labels", "predicted", "credible"):
            assert torch.equal(getattr(other, column), getattr(part, column))
        assert all(torch.equal(other.scores[k], part.scores[k]) for k in part.scores)


def test_numbers_that_json_lacks_come_back(tmp_path, study):
    part = study["clean"]
    sure = Rows("ordinary", part.predicted, part.predicted, part.credible, part.scores, part.facts)
    result = summarise({"clean": sure}, resamples=5)
    result.save(tmp_path)
    found = StudyResult.load(tmp_path).sets["clean"].failures["ratio"]
    assert math.isnan(found.metrics["auroc"])
    assert math.isnan(found.differences["auroc"].low)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"reference": "magic"}, "one of max_softmax, ratio, risk"),
        ({"resamples": 0}, "a whole number >= 1"),
        ({"resamples": 2.5}, "a whole number >= 1"),
    ],
)
def test_bad_settings_are_named(study, change, words):
    with pytest.raises(cr.errors.InvalidArgumentError, match=words):
        summarise(study, **change)


def test_bad_rows_are_named(study):
    with pytest.raises(cr.errors.InvalidArgumentError, match="exactly one set of kind 'ordinary'"):
        summarise({"noisy": study["noisy"]})
    part = study["noisy"]
    fewer = Rows("shifted", part.labels, part.predicted, part.credible,
                 {"ratio": part.scores["ratio"]}, {})  # fmt: skip
    with pytest.raises(cr.errors.InvalidArgumentError, match="'noisy' without it"):
        summarise({**study, "noisy": fewer})


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "not a JSON file"),
        ('{"format": "x"}', "not a 'credibly.study-result' file"),
        ('{"format": "credibly.study-result", "format_version": 9}', "format version 9"),
        ('{"format": "credibly.study-result", "format_version": 1}', "cannot be read"),
    ],
)
def test_a_bad_file_is_refused(tmp_path, text, words):
    (tmp_path / "result.json").write_text(text)
    with pytest.raises(cr.errors.FileFormatError, match=words):
        StudyResult.load(tmp_path)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(cr.errors.FileFormatError, match="No such file"):
        StudyResult.load(tmp_path)


def test_the_default_for_failures_is_balanced_by_the_ordinary_set(study):
    def richer(part, seed):
        g = torch.Generator().manual_seed(seed)
        more = torch.randn(2, len(part.labels), generator=g, dtype=torch.float64)
        named = {"softmax_ratio": 3 * more[0], "predicted_ratio": 0.1 * more[1]}
        return replace(part, scores={**part.scores, **named})

    sets = {name: richer(part, number) for number, (name, part) in enumerate(study.items())}
    found = summarise(sets, resamples=5).sets["noisy"].failures["failure_score"]
    clean, noisy = sets["clean"].scores, sets["noisy"]
    ranges = {
        name: float(clean[name].quantile(0.75) - clean[name].quantile(0.25))
        for name in ("softmax_ratio", "predicted_ratio")
    }
    by_hand = (
        noisy.scores["softmax_ratio"] / ranges["softmax_ratio"]
        + 0.5 * noisy.scores["predicted_ratio"] / ranges["predicted_ratio"]
    )
    assert found.metrics["aurc"] == pytest.approx(m.aurc(by_hand, noisy.correct))


def test_one_sample_without_a_number_does_not_cost_the_defaults(study):
    part = study["clean"]
    g = torch.Generator().manual_seed(3)
    names = ("softmax_ratio", "predicted_ratio", "shift", "elasticity")
    values = dict(zip(names, torch.randn(4, 90, generator=g, dtype=torch.float64), strict=True))
    for known in values.values():
        known[4] = torch.nan
    found = summarise({"clean": replace(part, scores={**part.scores, **values})}, resamples=5)
    assert {"failure_score", "tamper_score"} <= set(found.sets["clean"].failures)
    assert found.sets["clean"].left_out == 1
    for name in names:
        fewer = {**part.scores, **values, name: torch.full((90,), torch.nan)}
        made = summarise({"clean": replace(part, scores=fewer)}, resamples=5).sets["clean"].failures
        assert ("failure_score" in made) == (name in ("shift", "elasticity"))
        assert ("tamper_score" in made) == (name == "predicted_ratio")


def test_a_set_of_which_some_labels_are_unknown_has_no_failures(study):
    labels = study["noisy"].labels.clone()
    labels[3] = -1
    partly = replace(study["noisy"], labels=labels)
    found = summarise({"clean": study["clean"], "noisy": partly}, resamples=5).sets["noisy"]
    assert (found.failures, found.accuracy, found.most_credible) == ({}, {}, None)


def test_the_default_for_tampering_is_measured_from_the_ordinary_medians(study):
    names = ("shift", "elasticity", "softmax_ratio")

    def richer(part, seed):
        g = torch.Generator().manual_seed(seed)
        more = torch.randn(3, len(part.labels), generator=g, dtype=torch.float64)
        named = {name: (1 + n) * more[n] + seed for n, name in enumerate(names)}
        return replace(part, scores={**part.scores, **named})

    sets = {name: richer(part, number) for number, (name, part) in enumerate(study.items())}
    made = summarise(sets, resamples=5)
    clean = sets["clean"].scores
    for key, part in made.rows.items():
        by_hand = torch.zeros(len(part.labels), dtype=torch.float64)
        for name in names:
            low, middle, high = clean[name].quantile(torch.tensor([0.25, 0.5, 0.75]).double())
            by_hand -= (sets[key].scores[name] - middle).abs() / (high - low)
        assert torch.allclose(part.scores["tamper_score"], by_hand)
