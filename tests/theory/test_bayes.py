import math

import pytest
import torch
from scipy import stats

import credibly as cr
from credibly.model.bind import bind
from credibly.theory import log_joint
from tests.reference import models, oracles

WEIGHTS = torch.tensor([3.0, 5.0, 7.0, 4.0, 6.0], dtype=torch.float64)
CLF = cr.Classifier(models.smooth_network())
X0 = models.inputs(3)
PROBLEM = cr.solvers.FitRiskProblem(bind(CLF, X0), WEIGHTS)
PROFILE = cr.credibility(CLF, X0, weights=WEIGHTS, solver=cr.solvers.LBFGS(tolerance=1e-11))


def losses_at(x):
    with torch.no_grad():
        return CLF.losses(x)


def test_the_density_is_the_product_scipy_computes():
    x, t = X0 + 0.1, 2.5
    c = -0.7 * losses_at(x)  # every loss exceeds its credence
    found = log_joint(PROBLEM, x, c, t=t)
    for n in range(3):
        expected = stats.norm.logpdf(x[n], X0[n], math.sqrt(1 / (2 * t))).sum()
        rate = -2 * c[n] * t / WEIGHTS
        expected += stats.expon.logpdf(losses_at(x)[n], loc=-c[n], scale=1 / rate).sum()
        expected += stats.norm.logpdf(c[n], 0, (WEIGHTS / (2 * t)).sqrt()).sum()
        assert float(found[n]) == pytest.approx(expected, rel=1e-10)


def test_the_density_is_zero_where_a_loss_is_below_its_shift():
    c = -1.5 * losses_at(X0)
    assert log_joint(PROBLEM, X0, c, t=1.0).tolist() == [-math.inf] * 3


def test_classes_with_credence_zero_take_no_part():
    x = X0 + 0.1
    c = -0.7 * losses_at(x)
    c[:, 2] = 0.0
    fewer = log_joint(PROBLEM, x, c, t=1.0)
    failure = 0.0
    for k in (0, 1, 3, 4):
        rate = -2 * c[0, k] / WEIGHTS[k]
        failure += float(rate.log() - rate * (losses_at(x)[0, k] + c[0, k]))
    rest = stats.norm.logpdf(x[0], X0[0], math.sqrt(0.5)).sum()
    rest += stats.norm.logpdf(c[0], 0, (WEIGHTS / 2).sqrt()).sum()
    assert float(fewer[0]) == pytest.approx(failure + rest, rel=1e-10)


def test_minus_log_density_over_t_tends_to_the_objective_less_the_mismatch():
    x = X0 + 0.1
    losses = losses_at(x)
    c = -0.7 * losses
    limit = PROBLEM.objective(x) - ((c + losses).square() / WEIGHTS).sum(1)
    gaps = [
        float((-log_joint(PROBLEM, x, c, t=t) / t - limit).abs().max()) for t in (1e3, 1e6, 1e9)
    ]
    assert gaps[0] > gaps[1] > gaps[2]
    assert gaps[2] < 1e-6


def smooth_part(x, c, t, n):
    """-log P / t of one sample without the wall at l = -c, which no derivative sees."""
    losses = losses_at(x.unsqueeze(0))[0]
    value = (x - X0[n]).square().sum() + (-2 * c / WEIGHTS * (losses + c)).sum()
    value = value + (c.square() / WEIGHTS).sum() - (-2 * c * t / WEIGHTS).log().sum() / t
    return float(value)


def test_the_profile_becomes_a_critical_point_as_t_grows():
    for n in range(3):
        x, c = PROFILE.perturbed[n], PROFILE.credibility[n]
        sizes = []
        for t in (1e2, 1e4, 1e6):
            by_x = oracles.finite_difference(lambda v, c=c, t=t, n=n: smooth_part(v, c, t, n), x)
            by_c = oracles.finite_difference(lambda v, x=x, t=t, n=n: smooth_part(x, v, t, n), c)
            sizes.append(float(by_x.norm() + by_c.norm()))
        assert sizes[0] > 10 * sizes[1] > 100 * sizes[2]
        assert sizes[2] < 1e-5


def test_it_is_no_maximum_in_c_as_printed():
    n, t, step = 0, 1e8, 1e-3
    x, c = PROFILE.perturbed[n], PROFILE.credibility[n]
    here = smooth_part(x, c, t, n)
    for k in range(5):
        moved = c.clone()
        moved[k] += step  # towards zero, where the density does not vanish
        assert smooth_part(x, moved, t, n) < here  # smaller -log P: denser beside the profile


def test_the_profile_itself_has_a_finite_density():
    assert bool(log_joint(PROBLEM, PROFILE.perturbed, PROFILE.credibility, t=10.0).isfinite().all())


def test_a_loss_below_its_shift_is_forgiven_only_where_rounding_explains_it():
    losses, eps = losses_at(X0), torch.finfo(torch.float64).eps
    rounded, below = (log_joint(PROBLEM, X0, -(1 + s) * losses, t=1.0) for s in (4 * eps, 1e-9))
    torch.testing.assert_close(rounded, log_joint(PROBLEM, X0, -losses, t=1.0))
    assert below.tolist() == [-math.inf] * 3


def test_shapes_signs_and_t_are_checked():
    with pytest.raises(cr.errors.InvalidArgumentError, match="`credences`"):
        log_joint(PROBLEM, X0, torch.ones(3, 5).double(), t=1.0)
    with pytest.raises(cr.errors.InvalidArgumentError, match="`credences`"):
        log_joint(PROBLEM, X0, -torch.ones(3, 4).double(), t=1.0)
    with pytest.raises(cr.errors.InvalidArgumentError, match="`t`"):
        log_joint(PROBLEM, X0, -torch.ones(3, 5).double(), t=0.0)


@pytest.mark.parametrize(
    ("x", "credences", "t", "match"),
    [
        (X0[:1], -torch.ones(3, 5).double(), 1.0, r"^`x`.*\(1, "),
        (X0.numpy(), -torch.ones(3, 5).double(), 1.0, "^`x`.*ndarray"),
        (X0, -torch.ones(3, 5), 1.0, r"^`credences`.*float64.*float32"),
        (X0, torch.nan * torch.ones(3, 5).double(), 1.0, "^`credences`.*with NaN"),
        (X0, -torch.ones(3, 5).double(), "one", "^`t`"),
    ],
)
def test_nothing_is_broadcast_or_rounded(x, credences, t, match):
    with pytest.raises(cr.errors.InvalidArgumentError, match=match):
        log_joint(PROBLEM, x, credences, t=t)
