import json
import math

import pytest
import torch

import credibly as cr
from tests.reference import models

GAMMA = 30.0


@pytest.fixture(scope="module")
def clf():
    return cr.Classifier(models.smooth_network(classes=3))


@pytest.fixture(scope="module")
def population(clf):
    return cr.credibility(
        clf, models.inputs(2000, seed=5), gamma=GAMMA, solver=cr.solvers.LBFGS(steps=10)
    )


def test_ordinary_inputs_are_flagged_as_rarely_as_asked(clf, population):
    draws, size, tried, rate = 200, 39, 20, 0.1
    flagged = 0
    for _ in range(draws):
        rows = torch.randperm(len(population))[: size + tried]
        rule = cr.OutlierFlag.fit(clf, population[rows[:size]], false_alarms=rate)
        flagged += int(rule.flag(population[rows[size:]]).sum())
    total = draws * tried
    error = 3 * math.sqrt(rate / total + rate / (size + 1) / draws)
    assert abs(flagged / total - rate) < error  # exact, since the scores have no ties


def test_it_flags_what_lies_below_the_rank_that_the_rate_allows(clf, population):
    rule = cr.OutlierFlag.fit(clf, population[:499], false_alarms=0.05)
    shift = (population.credibility - population.credence).norm(dim=1)
    least = shift[:499].sort().values[25 - 1]  # 0.05 * (499 + 1)
    assert rule.flag(population).tolist() == (shift < least).tolist()
    assert int(rule.flag(population[:499]).sum()) == 24


def test_samples_without_a_profile_are_flagged(clf, population):
    x = models.inputs(20)
    x[3] = math.nan
    holes = cr.credibility(clf, x, gamma=GAMMA, solver=cr.solvers.LBFGS(steps=10))
    rule = cr.OutlierFlag.fit(clf, population[:500])
    assert bool(rule.flag(holes)[3])
    assert int(rule.flag(holes).sum()) < 5
    own = cr.OutlierFlag.fit(clf, holes, false_alarms=0.1)
    assert own.samples == 20
    assert own.flag(holes).nonzero().squeeze(1).tolist() == [3]  # the one that the rate allows
    with pytest.raises(
        cr.errors.InvalidArgumentError, match="at most 0 of 20 samples without a profile"
    ):
        cr.OutlierFlag.fit(clf, holes, false_alarms=0.05)


@pytest.mark.parametrize("score", [None, "margin", "tamper"])
def test_what_was_saved_flags_the_same(clf, population, tmp_path, score):
    chosen = cr.scores.tamper_score(population[:300]) if score == "tamper" else score
    rule = cr.OutlierFlag.fit(clf, population[300:800], false_alarms=0.2, score=chosen)
    rule.save(tmp_path / "flag.json")
    again = cr.OutlierFlag.load(tmp_path / "flag.json")
    assert again == rule
    assert torch.equal(again.flag(population), rule.flag(population))
    with pytest.raises(cr.errors.InvalidArgumentError, match="the gamma the threshold"):
        again.flag(
            cr.credibility(clf, models.inputs(2), gamma=9.0, solver=cr.solvers.LBFGS(steps=10))
        )


@pytest.mark.parametrize(
    "change", [{"format": "x"}, {"threshold": None}, {"false_alarms": 2}, {"score": {}}]
)
def test_files_of_other_content_are_refused(clf, population, tmp_path, change):
    path = tmp_path / "flag.json"
    cr.OutlierFlag.fit(clf, population[:200]).save(path)
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(cr.errors.FileFormatError, match=r"flag\.json"):
        cr.OutlierFlag.load(path)


def test_too_few_samples_and_bad_rates_are_refused(clf, population):
    with pytest.raises(cr.errors.InvalidArgumentError, match="at least 99 ordinary samples"):
        cr.OutlierFlag.fit(clf, population[:98])
    for bad in (0.0, 1.0, "low", math.nan):
        with pytest.raises(cr.errors.InvalidArgumentError, match="`false_alarms`"):
            cr.OutlierFlag.fit(clf, population, false_alarms=bad)
