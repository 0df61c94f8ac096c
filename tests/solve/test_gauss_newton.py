import pytest
import torch

import credibly as cr
from credibly.solve.gauss_newton import _prox_linear
from tests.reference import models


def test_an_affine_model_is_solved_in_one_step():
    profile = cr.credibility(
        models.affine_classifier(), models.inputs(4, 6), gamma=20.0, solver=cr.solvers.GaussNewton()
    )
    assert profile.steps.tolist() == [1] * 4
    assert set(profile.status) == {cr.Status.CONVERGED}


@pytest.mark.parametrize("loss", ["cross_entropy", "logistic", "one_versus_rest_hinge"])
def test_stored_and_matrix_free_steps_lead_to_the_same_point(loss):
    clf = cr.Classifier(models.smooth_network(), loss=loss)
    x0 = models.inputs(4)
    dense = cr.credibility(clf, x0, gamma=30.0, solver=cr.solvers.GaussNewton(jacobian="dense"))
    free = cr.credibility(
        clf, x0, gamma=30.0, solver=cr.solvers.GaussNewton(jacobian="free", products=40, steps=300)
    )
    assert torch.allclose(dense.perturbed, free.perturbed, atol=1e-6)


def test_a_singular_system_costs_only_its_own_sample():
    def fit(z):  # bends down as much as the risk bends up, left of zero
        return torch.where(z < 0, -z.square(), z.square()).sum(1)

    z = torch.tensor([[-1.0], [1.0]], dtype=torch.float64)
    jacobian, shift = torch.ones(2, 1, 1).double(), torch.full((2, 1), 0.5).double()
    still = torch.zeros(2, dtype=torch.float64)
    together = _prox_linear(fit, z, jacobian, shift, still)
    alone = _prox_linear(fit, z[1:], jacobian[1:], shift[1:], still[1:])
    assert torch.equal(together[1:], alone)
    assert float(alone[0, 0]) == pytest.approx(-0.25)  # the minimum of u^2 + (1 + u - 0.5)^2


def test_gammas_far_too_small_for_the_precision_raise_nothing():
    clf, x0 = cr.Classifier(models.smooth_network().float()), models.inputs(64).float()
    gamma = 1e-8 * cr.auto_gamma(clf, x0)
    profile = cr.credibility(clf, x0, gamma=gamma, solver=cr.solvers.GaussNewton())
    assert bool((profile.certificate.decrease >= 0).all())


def test_many_classes_are_solved_without_storing_the_jacobian():
    clf = models.affine_classifier(features=20, classes=1000, scale=0.3)
    x0 = models.inputs(2, 20)
    profile = cr.credibility(clf, x0, gamma=3000.0, solver=cr.solvers.GaussNewton())
    best = cr.credibility(clf, x0, gamma=3000.0, solver=cr.solvers.LBFGS())
    assert torch.allclose(profile.credibility, best.credibility, atol=1e-5)
    assert float(profile.passes.max()) < 1000  # one Jacobian alone would take 667
