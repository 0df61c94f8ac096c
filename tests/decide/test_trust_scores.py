import math
from dataclasses import replace

import pytest
import torch

import credibly as cr
from credibly.decide import scores
from credibly.decide.trust_scores import (
    Balanced,
    DistanceFromUsual,
    Plain,
    as_score,
    score_from_json,
)
from tests.reference import models


@pytest.fixture(scope="module")
def profile():
    clf = cr.Classifier(models.smooth_network(classes=3))
    return cr.credibility(clf, models.inputs(40), gamma=30.0)


def interquartile(values):
    ordered = sorted(values.tolist())

    def at(share):
        place = share * (len(ordered) - 1)
        low = math.floor(place)
        return ordered[low] + (place - low) * (
            ordered[min(low + 1, len(ordered) - 1)] - ordered[low]
        )

    return at(0.25), at(0.5), at(0.75)


def test_the_failure_score_is_the_balanced_sum_by_hand(profile):
    learned = cr.scores.failure_score(profile)
    expected = torch.zeros(len(profile), dtype=torch.float64)
    for name, share in (("softmax_ratio", 1.0), ("predicted_ratio", 0.5)):
        values = scores.SCORES[name](profile)
        low, _, high = interquartile(values)
        expected += share * values / (high - low)
    assert torch.allclose(learned(profile), expected, rtol=1e-12)
    assert isinstance(learned, cr.scores.TrustScore)


def test_the_tamper_score_is_the_sum_of_distances_from_medians(profile):
    learned = cr.scores.tamper_score(profile)
    expected = torch.zeros(len(profile), dtype=torch.float64)
    for score in (scores.shift, scores.elasticity, scores.softmax_ratio):
        low, middle, high = interquartile(score(profile))
        expected -= (score(profile) - middle).abs() / (high - low)
    assert torch.allclose(learned(profile), expected, rtol=1e-12)
    assert float(learned(profile).max()) <= 0


def test_the_outlier_score_is_the_shift(profile):
    assert torch.equal(cr.scores.outlier_score()(profile), scores.shift(profile))


def test_scores_survive_their_json(profile):
    for score in (
        cr.scores.failure_score(profile),
        cr.scores.tamper_score(profile),
        cr.scores.outlier_score(),
    ):
        again = score_from_json(score.as_json())
        assert again == score
        assert torch.equal(again(profile), score(profile))


def test_a_score_without_spread_is_taken_as_it_is(profile):
    one = profile[0]
    for score in (cr.scores.failure_score(one), cr.scores.tamper_score(one)):
        assert bool(score(profile).isfinite().all())
    same = profile[[3, 3, 3]]
    assert Balanced.fit(same, ("margin",), (2.0,)).spreads == (1.0,)
    assert float(DistanceFromUsual.fit(same, "margin")(same)[0]) == 0.0


def test_samples_without_a_profile_are_left_out_of_the_scale_and_get_nan(profile):
    broken = profile.credibility.clone()
    broken[::2] = math.nan
    holes = replace(profile, credibility=broken)
    learned = cr.scores.failure_score(holes)
    assert learned == cr.scores.failure_score(profile[1::2])
    assert learned(holes).isnan().tolist() == [True, False] * 20
    with pytest.raises(cr.errors.InvalidArgumentError, match="fit a scale"):
        cr.scores.tamper_score(holes[::2])
    with pytest.raises(cr.errors.InvalidArgumentError, match="an empty profile"):
        cr.scores.failure_score(profile[:0])


def test_scores_by_name_or_as_they_are(profile):
    assert as_score("gain") == Plain("gain")
    own = cr.scores.failure_score(profile)
    assert as_score(own) is own
    for bad in ("gian", 3, None, ["gain"], scores.gain):
        with pytest.raises(cr.errors.InvalidArgumentError, match=r"`score`.*predicted_ratio"):
            as_score(bad)


@pytest.mark.parametrize(
    "content",
    [
        {},
        {"kind": "pickle"},
        {"kind": "plain", "name": "os.system"},
        {"kind": "balanced", "names": ["gain"], "shares": [1.0], "spreads": []},
        {"kind": "balanced", "names": [], "shares": [], "spreads": []},
        {"kind": "balanced", "names": ["gain"], "shares": [1.0], "spreads": [0.0]},
        {"kind": "distance", "names": ["gain"], "centres": [0.0], "spreads": [-1.0]},
        {"kind": "distance", "names": ["gain"], "centres": [0.0], "spreads": [math.nan]},
        {"kind": "distance", "names": ["gain", "shift"], "centres": [0.0], "spreads": [1.0]},
    ],
)
def test_unknown_scores_are_refused(content):
    with pytest.raises(ValueError, match=r"kind of score|`score`|spread"):
        score_from_json(content)
