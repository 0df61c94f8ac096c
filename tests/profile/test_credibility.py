import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import credibly as cr
from credibly.model.bind import bind
from credibly.profile.credibility import _assemble
from credibly.solve.loop import Solution
from tests.reference import models, oracles

GAMMA = 30.0


def test_the_parts_of_a_profile_belong_together():
    clf = cr.Classifier(models.smooth_network())
    x0 = models.inputs()
    p = cr.credibility(clf, x0, gamma=GAMMA)
    with torch.no_grad():
        assert torch.allclose(p.credence, -clf.losses(x0))
        assert torch.allclose(p.credibility, -clf.losses(p.perturbed), atol=1e-12)
    assert torch.allclose(p.risk, (p.perturbed - x0).square().sum(1))
    assert torch.allclose(p.multipliers, -2 * p.credibility / GAMMA)
    assert bool((p.credibility <= 0).all())
    assert torch.equal(p.x0, x0)
    assert p.gamma == GAMMA


def test_ranking_goes_from_most_to_least_credible():
    p = cr.credibility(cr.Classifier(models.smooth_network()), models.inputs(), gamma=GAMMA)
    ordered = p.credibility.gather(1, p.ranking())
    assert bool((ordered[:, :-1] >= ordered[:, 1:]).all())


@given(order=st.permutations(range(5)))
def test_permuting_classes_permutes_the_profile(order):
    net, x0 = models.smooth_network(), models.inputs(3)
    index = torch.tensor(order)
    weights = torch.tensor([10.0, 20.0, 30.0, 40.0, 50.0], dtype=torch.float64)
    plain = cr.credibility(cr.Classifier(net), x0, weights=weights, solver=cr.solvers.LBFGS())
    shuffled = cr.credibility(
        cr.Classifier(lambda x: net(x)[:, index]),
        x0,
        weights=weights[index],
        solver=cr.solvers.LBFGS(),
    )
    assert torch.allclose(shuffled.credibility, plain.credibility[:, index], atol=1e-6)
    assert torch.allclose(shuffled.perturbed, plain.perturbed, atol=1e-6)


@given(order=st.permutations(range(6)))
def test_permuting_samples_permutes_the_profile(order):
    clf, x0, index = cr.Classifier(models.smooth_network()), models.inputs(6), torch.tensor(order)
    plain = cr.credibility(clf, x0, gamma=GAMMA)
    shuffled = cr.credibility(clf, x0[index], gamma=GAMMA)
    assert torch.allclose(shuffled.perturbed, plain.perturbed[index], atol=1e-7)


@given(
    seed=st.integers(0, 10_000),
    low=st.floats(0.5, 50.0),
    factor=st.floats(1.1, 20.0),
)
def test_risk_falls_and_credibility_moves_from_zero_as_gamma_grows_on_convex_problems(
    seed, low, factor
):
    clf = models.affine_classifier(seed=seed)
    x0 = models.inputs(2, 6, seed=seed + 1)
    small = cr.credibility(clf, x0, gamma=low, solver=cr.solvers.LBFGS())
    large = cr.credibility(clf, x0, gamma=low * factor, solver=cr.solvers.LBFGS())
    assert bool((large.risk <= small.risk + 1e-7).all())
    overall = [p.credibility.square().sum(1) for p in (small, large)]
    assert bool((overall[1] >= overall[0] - 1e-6).all())


@given(seed=st.integers(0, 10_000), gamma=st.floats(1e-3, 1e6))
def test_the_decrease_holds_on_any_kinked_network(seed, gamma):
    clf = cr.Classifier(models.relu_network(seed=seed).float())
    p = cr.credibility(clf, models.inputs(3, seed=seed).float(), gamma=gamma)
    gain = (p.credence.double() ** 2 / p.gamma).sum(1) - (
        p.credibility.double() ** 2 / p.gamma
    ).sum(1)
    assert bool((p.risk.double() <= gain).all())


def test_both_limits_of_gamma():
    matrix, offset = models.affine()
    clf, x0 = models.affine_classifier(), models.inputs(3, 6)
    still = cr.credibility(clf, x0, gamma=1e10, solver=cr.solvers.LBFGS())
    assert torch.allclose(still.perturbed, x0, atol=1e-6)
    assert torch.allclose(still.credibility, still.credence, atol=1e-6)
    # gamma -> 0: c+ ~ -ln K + gamma / (1 + ln K) (Jc Jc^T)^+ zc, class-centred
    gamma, classes = 1e-3, 4
    moved = cr.credibility(
        clf, x0, gamma=gamma, solver=cr.solvers.LBFGS(tolerance=1e-12, steps=3000)
    )
    centred = matrix - matrix.mean(0)
    logits = x0 @ matrix.T + offset
    logits = logits - logits.mean(1, keepdim=True)
    first = logits @ torch.linalg.pinv(centred @ centred.T) * gamma / (1 + math.log(classes))
    assert torch.allclose(moved.credibility + math.log(classes), first, rtol=0.02, atol=1e-8)


def test_any_planted_point_is_the_answer_for_the_input_of_the_inverse_map():
    clf = cr.Classifier(models.smooth_network(seed=8))
    planted = models.inputs(4, seed=9)
    problem = cr.solvers.FitRiskProblem(
        bind(clf, planted), torch.full((5,), 300.0, dtype=torch.float64)
    )
    pull = problem.evaluate(planted).gradient  # at x = x0 only the fit pulls
    x0 = planted + 0.5 * pull
    found = cr.credibility(clf, x0, gamma=300.0)
    assert torch.allclose(found.perturbed, planted, atol=1e-6)


@pytest.mark.parametrize("loss", ["cross_entropy", "logistic", "hinge", "one_versus_rest_hinge"])
def test_every_loss_can_be_solved_and_certified(loss):
    clf = cr.Classifier(models.smooth_network(), loss=loss)
    x0 = models.inputs()
    p = cr.credibility(clf, x0, gamma=GAMMA)
    assert all(status.usable or status is cr.Status.NO_GRADIENT for status in p.status)
    assert bool(cr.certify(clf, x0, p.perturbed, gamma=GAMMA).holds().all())


def test_a_single_logit_is_solved_as_two_classes():
    g = models.generator(0)
    weight = torch.randn(6, 1, generator=g, dtype=torch.float64)
    x0 = models.inputs(4, 6)
    one = cr.credibility(cr.Classifier(lambda x: x @ weight), x0, gamma=5.0)
    two = cr.credibility(
        cr.Classifier(lambda x: torch.cat([torch.zeros(len(x), 1).double(), x @ weight], 1)),
        x0,
        gamma=5.0,
    )
    assert one.credibility.shape == (4, 2)
    assert torch.allclose(one.credibility, two.credibility, atol=1e-7)


def test_images_tables_and_numpy_arrays_are_taken_as_they_come():
    net = nn.Sequential(nn.Flatten(), models.smooth_network(features=12))
    x0 = models.inputs(3, 12)
    flat = cr.credibility(cr.Classifier(models.smooth_network(features=12)), x0, gamma=GAMMA)
    image = cr.credibility(cr.Classifier(net), x0.reshape(3, 3, 2, 2).numpy(), gamma=GAMMA)
    assert image.perturbed.shape == (3, 3, 2, 2)
    assert torch.allclose(image.perturbed.flatten(1), flat.perturbed, atol=1e-7)


def test_risk_is_measured_before_preprocessing():
    net = models.smooth_network()
    x0 = models.inputs(3)
    inside = cr.Classifier(net, preprocess=lambda x: (x - 0.4) / 0.25)
    outside = cr.Classifier(net)
    pixels = x0 * 0.25 + 0.4
    a = cr.credibility(inside, pixels, gamma=GAMMA / 0.25**2)
    b = cr.credibility(outside, x0, gamma=GAMMA)
    assert torch.allclose(a.credibility, b.credibility, atol=1e-6)
    assert torch.allclose(a.risk, b.risk * 0.25**2, atol=1e-7)


def test_the_model_and_the_generator_are_left_as_found():
    net = models.relu_network()
    net[0].train()
    net[2].weight.requires_grad_(False)
    before = {name: value.clone() for name, value in net.state_dict().items()}
    flags = [module.training for module in net.modules()]
    wanted = [parameter.requires_grad for parameter in net.parameters()]
    state = torch.get_rng_state()
    cr.credibility(cr.Classifier(net), models.inputs(2), gamma=GAMMA)
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
    assert flags == [module.training for module in net.modules()]
    assert wanted == [parameter.requires_grad for parameter in net.parameters()]
    assert all(parameter.grad is None for parameter in net.parameters())
    assert torch.equal(state, torch.get_rng_state())


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_it_works_inside_modes_without_gradients(mode):
    clf, x0 = cr.Classifier(models.smooth_network()), models.inputs(2)
    outside = cr.credibility(clf, x0, gamma=GAMMA)
    with mode():
        inside = cr.credibility(clf, x0 * 1.0, gamma=GAMMA)
    assert torch.equal(outside.perturbed, inside.perturbed)


def test_a_model_that_is_not_finite_for_some_rows_costs_only_those():
    net, x0 = models.smooth_network(), models.inputs(4)
    x0[2, 0] = 99.0

    def broken(x):
        return torch.where(x[:, :1] > 50, math.nan, net(x.clamp(max=5)))

    p = cr.credibility(cr.Classifier(broken), x0, gamma=GAMMA)
    assert p.status[2] is cr.Status.NON_FINITE_MODEL
    assert bool(p.credibility[2].isnan().all())
    assert all(p.status[n].usable for n in (0, 1, 3))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"solver": "lbfgs"}, "`solver`.*credibly.solvers.LBFGS"),
        ({"solver": cr.solvers.LBFGS}, "`solver`.*parentheses"),
        ({"chunk_size": 0}, "`chunk_size`"),
        ({"bounds": (1.0, 0.0)}, "`bounds`.*low < high"),
        ({"bounds": (-0.01, 0.01)}, "`bounds`.*clamp the inputs"),
    ],
)
def test_impossible_arguments_are_refused_by_name(settings, message):
    with pytest.raises(cr.errors.InvalidArgumentError, match=message):
        cr.credibility(
            cr.Classifier(models.smooth_network()), models.inputs(), gamma=1.0, **settings
        )


def test_negative_losses_are_refused():
    clf = cr.Classifier(models.smooth_network(), loss=cr.losses.CustomLoss(lambda z: z - 100))
    with pytest.raises(cr.errors.InvalidArgumentError, match=r"loss.*non-negative"):
        cr.credibility(clf, models.inputs(), gamma=1.0)


def test_what_rounding_sent_back_to_x0_is_not_called_converged():
    x0 = models.inputs(200, 1).float()
    clf = cr.Classifier(lambda x: 0.03 * torch.cat([x, -x], 1), loss="logistic", dtype=x0.dtype)
    profile = cr.credibility(clf, x0, gamma=179.0, solver=cr.solvers.LBFGS())
    converged = torch.tensor([status is cr.Status.CONVERGED for status in profile.status])
    there = profile.risk == 0
    assert bool(there.any())
    assert bool((converged & ~there).any())
    assert float(profile.certificate.relative_stationarity[converged].max()) < 1e-3


def test_float32_and_scipy_agree_to_single_precision():
    matrix, offset = models.affine()
    m, o = matrix.float(), offset.float()
    x0 = models.inputs(3, 6).float()
    p = cr.credibility(cr.Classifier(lambda x: x @ m.T + o), x0, gamma=20.0)
    for n in range(3):
        x, _ = oracles.by_scipy(matrix, offset, x0[n].double(), np.full(4, 20.0))
        assert torch.allclose(p.perturbed[n].double(), torch.as_tensor(x), atol=1e-3)


def test_a_sample_that_cannot_be_evaluated_costs_no_passes():
    x0 = models.inputs(3, 6)
    x0[1, 2] = torch.nan
    profile = cr.credibility(
        models.affine_classifier(), x0, gamma=20.0, solver=cr.solvers.GaussNewton()
    )
    # at x0, a Jacobian of 4 outputs there and one after the step, the step; then x0 and x+ again
    each = 1 + 2 * (1 / 3 + 4 * 2 / 3) + 1 + 2 / 3 + 1
    assert profile.passes.tolist() == pytest.approx([each, 0.0, each])


def test_an_answer_worse_than_x0_is_x0_in_every_number():
    clf, x0 = models.affine_classifier(), models.inputs(4, 6)
    good = cr.credibility(clf, x0, gamma=20.0, solver=cr.solvers.LBFGS())
    x = good.perturbed.clone()
    x[:2] += 50.0
    x[3] = torch.nan
    ended = [cr.Status.CONVERGED, cr.Status.STEP_LIMIT, cr.Status.CONVERGED, cr.Status.STALLED]
    solution = Solution(x, torch.tensor(ended, dtype=torch.int8), good.steps, good.passes)
    problem = cr.solvers.FitRiskProblem(bind(clf, x0), torch.full((4,), 20.0).double())
    found = _assemble(problem, solution, good.settings)
    back = [0, 1, 3]
    # only the first had been called stationary, which x0 is not
    assert found.status == (cr.Status.STALLED, *ended[1:])
    assert torch.equal(found.perturbed[back], x0[back])
    assert torch.equal(found.credibility[back], found.credence[back])
    assert found.risk[back].tolist() == [0.0] * 3
    torch.testing.assert_close(found.multipliers[back], -2 * found.credence[back] / 20.0)
    torch.testing.assert_close(found.credibility[2], good.credibility[2])


def test_infinite_inputs_break_no_bounds():
    x0 = models.inputs(3, 6).clamp(-1, 1)
    x0[1, 2] = torch.inf
    profile = cr.credibility(models.affine_classifier(), x0, gamma=20.0, bounds=(-1.0, 1.0))
    assert profile.status[1] is cr.Status.NON_FINITE_INPUT
    assert profile.usable.tolist() == [True, False, True]
