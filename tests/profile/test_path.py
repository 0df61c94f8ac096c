import math
from dataclasses import replace

import pytest
import torch

import credibly as cr
from credibly.data.sample import load_sample
from credibly.profile.path import CredibilityPath
from tests.reference import models

GAMMAS = torch.logspace(5, 0, 16).tolist()


def test_the_path_is_the_separate_solves_on_smooth_models():
    clf, x0 = models.affine_classifier(), models.inputs(4, 6)
    path = cr.credibility_path(clf, x0, GAMMAS, solver=cr.solvers.LBFGS())
    for gamma, profile in zip(path.gammas, path.profiles, strict=True):
        alone = cr.credibility(clf, x0, gamma=gamma, solver=cr.solvers.LBFGS())
        assert profile.gamma == gamma
        assert torch.allclose(profile.credibility, alone.credibility, atol=1e-6)
    separate = sum(
        cr.credibility(clf, x0, gamma=gamma, solver=cr.solvers.LBFGS()).passes.sum()
        for gamma in GAMMAS
    )
    assert float(path.passes.sum()) < float(separate)


def test_both_limits_lie_on_the_path():
    clf, x0 = models.affine_classifier(), models.inputs(3, 6)
    path = cr.credibility_path(
        clf, x0, [1e10, 1e6, 1e3, 1.0, 1e-3, 1e-6], solver=cr.solvers.LBFGS()
    )
    assert torch.allclose(path.credibility[0], path.profiles[0].credence, atol=1e-6)
    assert torch.allclose(
        path.credibility[-1], torch.full((3, 4), -math.log(4)).double(), atol=1e-3
    )
    assert bool((path.risk[1:] >= path.risk[:-1] - 1e-9).all())


def test_gammas_are_sorted_and_shapes_are_those_of_the_docs():
    clf, x0 = cr.Classifier(models.relu_network()), models.inputs(5)
    path = cr.credibility_path(clf, x0, [3.0, 300.0, 30.0])
    assert path.gammas == (300.0, 30.0, 3.0)
    assert path.credibility.shape == (3, 5, 5)
    assert path.risk.shape == path.most_credible().shape == (3, 5)
    assert all(bool((p.certificate.decrease >= 0).all()) for p in path.profiles)


def test_the_switching_gamma_is_the_largest_at_which_another_class_is_ahead():
    # two classes, one feature: the class boundary is at zero, and -1 is overtaken for no gamma
    net = torch.tensor([[2.0, -2.0]], dtype=torch.float64)
    tilt = torch.tensor([0.0, 0.5], dtype=torch.float64)  # the minimum of the losses is off zero

    def outputs(x):
        z = x @ net
        return torch.cat([z, tilt[1] + 0.8 * z[:, :1]], dim=1)

    clf = cr.Classifier(outputs)
    x0 = torch.tensor([[0.2], [3.0], [math.nan]], dtype=torch.float64)
    path = cr.credibility_path(clf, x0, GAMMAS, solver=cr.solvers.LBFGS())
    found = path.switching_gamma()
    predicted = path.profiles[0].credence.nan_to_num(-9e9).argmax(1)
    for n in (0, 1):
        expected = max(
            (g for g, c in zip(path.gammas, path.most_credible()[:, n], strict=True)
             if c != predicted[n]),
            default=0.0,
        )  # fmt: skip
        assert float(found[n]) == expected
    assert bool(found[2].isnan())
    assert float(found[:2].max()) > 0  # or the test has nothing to see


def test_a_path_is_short_in_words_and_counts_what_changes():
    x0 = models.inputs(40)
    x0[3] = math.nan
    path = cr.credibility_path(cr.Classifier(models.relu_network()), x0, [300.0, 30.0, 3.0])
    assert repr(path) == "CredibilityPath(3 gammas from 300 to 3, 40 samples)"
    switch = path.switching_gamma()
    kept, changed = int((switch == 0).sum()), int((switch > 0).sum())
    assert min(kept, changed) > 0  # or the test has nothing to see
    lines = path.summary().splitlines()
    assert lines[0] == "40 samples along 3 gammas from 300 to 3"
    assert [int(line.split()[0]) for line in lines[1:]] == [kept, changed, 1]
    middle = sorted(switch[switch > 0].tolist())[(changed - 1) // 2]
    assert f"at a gamma of {middle:.4g} (median)" in lines[2]


def test_the_score_of_a_path_is_public_and_orders_by_the_switching_gamma():
    path = cr.credibility_path(
        cr.Classifier(models.relu_network()), models.inputs(40), [300.0, 30.0, 3.0]
    )
    score, switch = cr.scores.path_score(path), path.switching_gamma()
    known = {300.0: -math.log(300), 30.0: -math.log(30), 3.0: -math.log(3), 0.0: -math.log(1.5)}
    assert score.tolist() == pytest.approx([known[gamma] for gamma in switch.tolist()])


def test_a_flat_model_has_no_gradient_anywhere_on_the_path():
    weight = torch.ones(6, 3, dtype=torch.float64, requires_grad=True)
    clf = cr.Classifier(lambda x: (0.0 * x) @ weight + torch.tensor([1.0, 2.0, 3.0]).double())
    path = cr.credibility_path(clf, models.inputs(2, 6), [10.0, 1.0])
    assert all(set(p.status) == {cr.Status.NO_GRADIENT} for p in path.profiles)
    assert bool(path.switching_gamma().isnan().all())  # nothing was tried: it is not "never"


@pytest.mark.parametrize("gammas", [[], [3.0], 200.0, [3.0, 3.0], [1.0, -1.0], [1.0, math.nan]])
def test_impossible_gammas_are_refused(gammas):
    with pytest.raises(cr.errors.InvalidArgumentError, match="`gammas`"):
        cr.credibility_path(cr.Classifier(models.relu_network()), models.inputs(2), gammas)


def test_the_price_is_the_one_that_is_stated():
    sample = load_sample()
    clf, x0 = cr.Classifier(sample.net), sample.images[:24]
    path = cr.credibility_path(clf, x0, [1000.0, 300.0, 100.0])
    assert float(path.passes.median()) == pytest.approx(88, abs=4)
    alone = cr.credibility(clf, x0, gamma=200.0)
    assert float(alone.passes.median()) == pytest.approx(98, abs=5)


def test_the_advice_along_a_path_says_that_few_steps_are_meant():
    path = cr.credibility_path(
        cr.Classifier(models.relu_network()), models.inputs(4), [300.0, 100.0, 30.0]
    )
    last = path.profiles[-1]
    assert cr.Status.STEP_LIMIT in last.status
    assert "along a path over gamma that is normal" in last.summary()
    thorough = cr.credibility_path(  # what the advice says
        cr.Classifier(models.relu_network()), models.inputs(4), [300.0, 100.0, 30.0],
        solver=cr.solvers.Hybrid(),
    ).profiles[-1]  # fmt: skip
    assert cr.Status.STEP_LIMIT not in thorough.status


def test_gammas_in_quotes_are_refused():
    with pytest.raises(cr.errors.InvalidArgumentError, match=r"`gammas`.*without quotes: 200"):
        cr.credibility_path(cr.Classifier(models.relu_network()), models.inputs(2), [1.0, "200"])


def test_progress_is_the_share_of_the_gammas_done():
    seen = []
    cr.credibility_path(
        models.affine_classifier(), models.inputs(2, 6), [20.0, 10.0, 5.0, 2.0],
        solver=cr.solvers.LBFGS(), progress=seen.append,
    )  # fmt: skip
    assert seen == pytest.approx([0.25, 0.5, 0.75, 1.0])


def test_a_sample_without_an_answer_at_one_gamma_has_no_switching_gamma():
    clf, x0 = models.affine_classifier(), models.inputs(3, 6)
    path = cr.credibility_path(clf, x0, [20.0, 5.0], solver=cr.solvers.LBFGS())
    codes = path.profiles[1].codes.clone()
    codes[1] = int(cr.Status.NON_FINITE_MODEL)
    lost = CredibilityPath(path.gammas, (path.profiles[0], replace(path.profiles[1], codes=codes)))
    assert lost.switching_gamma().isnan().tolist() == [False, True, False]
    assert "1 could not be solved" in lost.summary()


def test_bounds_are_kept_and_written_down_along_the_path():
    clf, x0 = cr.Classifier(models.smooth_network(seed=6)), models.inputs(3).clamp(-0.5, 0.5)
    path = cr.credibility_path(clf, x0, [20.0, 2.0], solver=cr.solvers.LBFGS(), bounds=(-0.5, 0.5))
    assert [profile.settings.bounds for profile in path.profiles] == [(-0.5, 0.5)] * 2
    assert float(path.profiles[1].perturbed.abs().max()) == 0.5


def test_chunks_of_nothing_are_refused():
    with pytest.raises(cr.errors.InvalidArgumentError, match="`chunk_size`"):
        cr.credibility_path(models.affine_classifier(), models.inputs(2, 6), [2, 1], chunk_size=0)
