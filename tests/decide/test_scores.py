import math
from dataclasses import replace

import pytest
import torch

import credibly as cr
from credibly.decide import scores
from tests.reference import models


@pytest.fixture(scope="module")
def template():
    clf = cr.Classifier(models.smooth_network(classes=3))
    return cr.credibility(clf, models.inputs(1), gamma=30.0)


def with_values(template, credibility, fit):
    return replace(
        template,
        credibility=torch.tensor([credibility], dtype=torch.float64),
        credence=torch.tensor([fit], dtype=torch.float64),
    )


def test_the_ratio_is_the_papers_rule(template):
    profile = with_values(template, [-1.0, -4.0, -2.0], [-0.1, -3.0, -5.0])
    assert float(scores.ratio(profile)) == pytest.approx(0.5)
    assert float(scores.softmax_ratio(profile)) == pytest.approx(2.9)


def test_the_predicted_class_gets_a_negative_ratio_when_overtaken(template):
    kept = with_values(template, [-1.0, -4.0, -2.0], [-0.1, -3.0, -5.0])
    lost = with_values(template, [-4.0, -1.0, -2.0], [-0.1, -3.0, -5.0])
    assert float(scores.predicted_ratio(kept)) == pytest.approx(0.5)
    assert float(scores.predicted_ratio(lost)) == pytest.approx(-0.75)


def test_perfect_fits_to_two_classes_are_worth_nothing(template):
    tie = with_values(template, [0.0, 0.0, -2.0], [0.0, 0.0, -5.0])
    assert float(scores.ratio(tie)) == 0.0
    assert float(scores.predicted_ratio(tie)) == 0.0


def test_classes_that_are_all_alike_are_worth_nothing(template):
    alike = with_values(template, [-2.0, -2.0, -2.0], [-3.0, -3.0, -3.0])
    for score in (scores.ratio, scores.predicted_ratio, scores.margin, scores.min_max):
        assert float(score(alike)) == 0.0
    for score in (scores.softmax_ratio, scores.p_norm):
        assert float(score(alike)) == 0.0


def test_what_does_not_move_has_a_number_for_its_elasticity(template):
    still = with_values(template, [-1.0, -2.0, -3.0], [-1.0, -2.0, -3.0])
    still = replace(still, risk=torch.zeros(1, dtype=torch.float64))
    assert float(scores.elasticity(still)) == 0.0


@pytest.mark.parametrize("size", [1e-100, 1.0, 1e100])
def test_the_p_norm_does_not_ask_how_long_the_logits_are(template, size):
    profile = with_values(template, [-1.0] * 3, [-size, -4 * size, -4 * size])
    # centred: 2, -1, -1
    assert float(scores.p_norm(profile)) == pytest.approx(2 / (2**4 + 1 + 1) ** 0.25)


def test_unsolved_samples_have_no_score(template):
    broken = with_values(template, [math.nan] * 3, [math.nan] * 3)
    for score in (scores.ratio, scores.predicted_ratio, scores.softmax_ratio):
        assert bool(score(broken).isnan().all())


def naive(c, f, moved, gamma=30.0):
    """Every score of one sample in plain Python: c+, c0 and |x+ - x0|."""
    predicted = f.index(max(f))
    own, rival = c[predicted], max(v for k, v in enumerate(c) if k != predicted)
    after = moved**2 + sum(v * v for v in c) / gamma
    before = sum(v * v for v in f) / gamma
    centred = [v - sum(f) / len(f) for v in f]
    return {
        "ratio": 1 - max(c) / sorted(c)[-2],
        "predicted_ratio": 1 - own / rival if own >= rival else rival / own - 1,
        "margin": own - rival,
        "min_max": (max(c) - sorted(c)[-2]) / (max(c) - min(c)),
        "negative_risk": -(moved**2),
        "negative_objective": -after,
        "shift": math.dist(c, f),
        "gain": 1 - after / before,
        "elasticity": math.log(moved / math.dist(c, f)),
        "softmax_ratio": max(f) - sorted(f)[-2],
        "max_softmax": max(f),
        "p_norm": max(centred) / sum(v**4 for v in centred) ** 0.25,
    }


@pytest.fixture(scope="module")
def many():
    clf = cr.Classifier(models.smooth_network(classes=4))
    return cr.credibility(clf, models.inputs(25), gamma=30.0)


@pytest.mark.parametrize("name", sorted(scores.SCORES))
def test_every_score_is_its_formula_sample_by_sample(many, name):
    found = scores.SCORES[name](many)
    assert found.dtype == torch.float64
    for n in range(len(many)):
        moved = math.dist(many.perturbed[n].tolist(), many.x0[n].tolist())
        expected = naive(many.credibility[n].tolist(), many.credence[n].tolist(), moved)
        assert float(found[n]) == pytest.approx(expected[name], rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("name", sorted(scores.SCORES))
def test_the_order_of_samples_and_classes_changes_no_score(many, name):
    score = scores.SCORES[name]
    order = torch.randperm(len(many))
    assert torch.equal(score(many[order]), score(many)[order])
    classes = torch.randperm(4)
    turned = replace(
        many, credibility=many.credibility[:, classes], credence=many.credence[:, classes]
    )
    assert torch.allclose(score(turned), score(many), rtol=1e-12)


@pytest.mark.parametrize("name", sorted(scores.SCORES))
def test_a_sample_that_was_not_solved_has_no_score_and_harms_no_other(many, name):
    score = scores.SCORES[name]
    x = models.inputs(4)
    x[1, 0] = math.nan
    clf = cr.Classifier(models.smooth_network(classes=4))
    found = score(cr.credibility(clf, x, gamma=30.0))
    assert found.isnan().tolist() == [False, True, False, False]
    codes = many.codes.clone()
    codes[2] = int(cr.Status.NO_GRADIENT)  # x0 was returned: nothing was searched for
    assert score(replace(many, codes=codes)).isnan().nonzero().flatten().tolist() == [2]


def test_gain_shift_and_elasticity_agree_with_each_other(many):
    before = many.credence.square().sum(1) / 30.0
    after = -scores.negative_objective(many)
    assert torch.allclose(scores.gain(many), (before - after) / before, rtol=1e-9)
    assert bool(((scores.gain(many) >= 0) & (scores.gain(many) <= 1)).all())
    way = scores.elasticity(many).exp() * scores.shift(many)
    assert torch.allclose(way.square(), many.risk, rtol=1e-9)


def test_the_path_score_is_later_for_later_changes_and_unknown_without_a_profile():
    clf = cr.Classifier(models.smooth_network(classes=4))
    x = models.inputs(30)
    x[7] = math.nan
    path = cr.credibility_path(clf, x, [100.0, 10.0, 1.0, 0.1], solver=cr.solvers.LBFGS())
    found, switch = scores.path_score(path), path.switching_gamma()
    assert bool(found[7].isnan())
    assert int(found.isnan().sum()) == 1
    for value, gamma in zip(found.tolist(), switch.tolist(), strict=True):
        if gamma == gamma:  # noqa: PLR0124  # not NaN
            assert value == pytest.approx(-math.log(gamma if gamma > 0 else 0.05))
    assert len(set(switch[~switch.isnan()].tolist())) > 1
