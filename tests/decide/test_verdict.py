import json
import math
from collections import Counter
from dataclasses import replace

import pytest
import torch

import credibly as cr
from credibly.decide.verdict import summarise
from tests.reference import models

GAMMA = 30.0


@pytest.fixture(scope="module")
def clf():
    return cr.Classifier(models.smooth_network(classes=3))


@pytest.fixture(scope="module")
def population(clf):
    return cr.credibility(
        clf, models.inputs(6000, seed=5), gamma=GAMMA, solver=cr.solvers.LBFGS(steps=15)
    )


def test_ordinary_inputs_are_alarming_as_rarely_as_asked(clf, population):
    counts = Counter()
    draws, size = 150, 99
    for _ in range(draws):
        rows = torch.randperm(len(population))[: size + 20]
        judge = cr.Judge.fit(clf, population[rows[:size]], false_alarms=0.05, doubted=0.1)
        counts.update(judge.judge(population[rows[size:]]))
    total = draws * 20
    # each draw shares its thresholds among 20 samples: the error is that of the draws at worst
    error = 4 * math.sqrt(0.05 / total + 0.05 * 0.95 / (size + 1) / draws)
    assert abs(counts[cr.Verdict.OUTLIER] / total - 0.05) < error
    # outliers are said first, so fewer are left to be called tampered
    assert 0 < counts[cr.Verdict.TAMPERED] / total < 0.05 + error
    assert counts[cr.Verdict.DOUBTFUL] / total < 0.1 + 2 * error
    assert counts[cr.Verdict.TRUST] / total > 0.75


def test_what_does_not_belong_is_said_first(clf, population):
    judge = cr.Judge.fit(clf, population[:200], false_alarms=0.05)
    good, belongs, untouched = judge.thresholds
    bad, foreign, tampered = (value - 1e-9 for value in judge.thresholds)
    cases = {
        (good, foreign, untouched): cr.Verdict.OUTLIER,
        (bad, foreign, tampered): cr.Verdict.OUTLIER,
        (good, belongs, tampered): cr.Verdict.TAMPERED,
        (bad, belongs, tampered): cr.Verdict.TAMPERED,
        (bad, belongs, untouched): cr.Verdict.DOUBTFUL,
        (good, belongs, untouched): cr.Verdict.TRUST,
        (math.nan, belongs, untouched): cr.Verdict.NO_PROFILE,
        (good, math.nan, untouched): cr.Verdict.NO_PROFILE,
        (good, belongs, math.nan): cr.Verdict.NO_PROFILE,
    }
    for scores, verdict in cases.items():
        assert judge._one(*scores) is verdict


def test_each_threshold_belongs_to_the_default_of_its_question(clf, population):
    some = population[:200]
    judge = cr.Judge.fit(clf, some, false_alarms=0.05, doubted=0.2)
    assert judge.scores == (
        cr.scores.failure_score(some),
        cr.scores.outlier_score(),
        cr.scores.tamper_score(some),
    )
    below = [
        float((score(some) < limit).double().mean())
        for score, limit in zip(judge.scores, judge.thresholds, strict=True)
    ]
    assert below == pytest.approx([0.195, 0.045, 0.045])


def test_every_sample_has_a_verdict_and_every_verdict_an_advice(clf, population):
    judge = cr.Judge.fit(clf, population[:200])
    x = models.inputs(5)
    x[2] = math.nan
    x[4] *= 1e3
    solved = cr.credibility(clf, x, gamma=GAMMA, solver=cr.solvers.LBFGS(steps=15))
    verdicts = judge.judge(solved)
    assert len(verdicts) == 5
    assert verdicts[2] is cr.Verdict.NO_PROFILE
    assert verdicts[4] in (cr.Verdict.TAMPERED, cr.Verdict.OUTLIER)
    lines = summarise(verdicts).splitlines()
    assert sum(int(line.split()[0]) for line in lines) == 5
    assert all(verdict.advice.endswith(".") for verdict in cr.Verdict)


def test_trust_promises_no_more_than_was_tested():
    advice = cr.Verdict.TRUST.advice
    assert advice.startswith("No alarm; ")
    assert "some inputs that do not belong raise none" in advice
    assert len(advice) < 120


def test_another_score_may_find_the_outliers(clf, population, tmp_path):
    some = population[:200]
    failure = cr.scores.failure_score(some)
    for other, score in (("gain", cr.OutlierFlag.fit(clf, some, score="gain").score),
                         (failure, failure)):  # fmt: skip
        judge = cr.Judge.fit(clf, some, outlier=other)
        assert judge.scores == (failure, score, cr.scores.tamper_score(some))
        flag = cr.OutlierFlag.fit(clf, some, score=other)
        assert judge.thresholds[1] == flag.threshold
        found = [verdict is cr.Verdict.OUTLIER for verdict in judge.judge(population)]
        assert found == flag.flag(population).tolist()
        judge.save(tmp_path / "judge.json")
        assert cr.Judge.load(tmp_path / "judge.json") == judge
    assert cr.Judge.fit(clf, some, outlier="shift") == cr.Judge.fit(clf, some)
    for bad in (3, ["gain"], lambda p: p.risk):
        with pytest.raises(cr.errors.InvalidArgumentError, match=r"`outlier`.*TrustScore"):
            cr.Judge.fit(clf, some, outlier=bad)


def test_a_judge_survives_its_file(clf, population, tmp_path):
    judge = cr.Judge.fit(clf, population[:300])
    judge.save(tmp_path / "judge.json")
    again = cr.Judge.load(tmp_path / "judge.json")
    assert again == judge
    assert again.judge(population) == judge.judge(population)


@pytest.mark.parametrize(
    "change",
    [
        {"format": "credibly.selective"},
        {"format_version": 2},
        {"thresholds": [1.0, 2.0]},
        {"thresholds": [1.0, 2.0, math.inf]},
        {"thresholds": None},
        {"scores": [{"kind": "plain", "name": "none"}] * 3},
        {"scores": ["shift", "shift", "shift"]},
        {"scores": [{"kind": "plain", "name": "shift"}] * 2},
        {"settings": {"weights": [1.0]}},
    ],
)
def test_other_files_are_refused(clf, population, tmp_path, change):
    path = tmp_path / "judge.json"
    cr.Judge.fit(clf, population[:200]).save(path)
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(cr.errors.FileFormatError, match=r"judge\.json"):
        cr.Judge.load(path)


def test_other_settings_and_too_few_samples_are_refused(clf, population):
    judge = cr.Judge.fit(clf, population[:200])
    for other in (
        replace(population.settings, model="other"),
        replace(population.settings, weights=(1.0, 1.0, 1.0)),
        replace(population.settings, space="output of module '0'"),
    ):
        with pytest.raises(cr.errors.InvalidArgumentError, match="not comparable"):
            judge.judge(replace(population, settings=other))
    with pytest.raises(cr.errors.InvalidArgumentError, match="at least 99 ordinary samples"):
        cr.Judge.fit(clf, population[:98])
    with pytest.raises(cr.errors.InvalidArgumentError, match="this very classifier"):
        cr.Judge.fit(cr.Classifier(models.smooth_network(classes=3, seed=9)), population)
    for bad in (0.0, 0.5, 0.9, True):
        with pytest.raises(cr.errors.InvalidArgumentError, match="`false_alarms`"):
            cr.Judge.fit(clf, population[:200], false_alarms=bad)
    with pytest.raises(cr.errors.InvalidArgumentError, match="`doubted`"):
        cr.Judge.fit(clf, population[:200], doubted=1.5)
