"""Independent answers: other libraries, closed forms, and loops too plain to be wrong."""

import cvxpy as cp
import numpy as np
import torch
from scipy.optimize import minimize
from scipy.special import log_softmax, softmax


def by_scipy(matrix, offset, x0, weights):
    """Softmax regression solved by SciPy with a hand-written gradient: (x, losses)."""
    matrix, offset, x0, w = (np.asarray(v) for v in (matrix, offset, x0, weights))

    def objective(x):
        z = matrix @ x + offset
        losses, p = -log_softmax(z), softmax(z)
        slope = matrix.T @ ((2 * losses / w).sum() * p - 2 * losses / w)
        return ((x - x0) ** 2).sum() + (losses**2 / w).sum(), 2 * (x - x0) + slope

    found = minimize(
        objective, x0, jac=True, method="L-BFGS-B", options={"ftol": 1e-16, "gtol": 1e-12}
    )
    return found.x, -log_softmax(matrix @ found.x + offset)


def by_cvxpy(matrix, offset, x0, weights):
    """The problem as the paper states it, with constraints: (x, c, multipliers)."""
    matrix, offset, x0, w = (np.asarray(v) for v in (matrix, offset, x0, weights))
    x, c = cp.Variable(len(x0)), cp.Variable(len(w))
    z = matrix @ x + offset
    constraints = [cp.log_sum_exp(z) - z[k] <= -c[k] for k in range(len(w))]
    objective = cp.sum_squares(x - x0) + cp.sum(cp.multiply(1 / w, cp.square(c)))
    problem = cp.Problem(cp.Minimize(objective), constraints)
    problem.solve(solver=cp.CLARABEL, tol_gap_abs=1e-10, tol_gap_rel=1e-10, tol_feas=1e-10)
    return x.value, c.value, np.array([float(k.dual_value) for k in constraints])


def ridge(slopes, offsets, x0, weights):
    """Affine losses l = A x + b (where positive): x, losses, multipliers in closed form."""
    residual = slopes @ x0 + offsets
    dual = 2 * torch.linalg.solve(torch.diag(weights) + slopes @ slopes.T, residual)
    x = x0 - 0.5 * slopes.T @ dual
    return x, slopes @ x + offsets, dual


def algorithm_1(losses_of, x0, weights, *, primal_step, dual_step, steps, start):
    """Algorithm 1 for ONE sample, written as the paper writes it; gives the iterates."""
    x, multipliers = x0.clone(), start.clone()
    path = []
    for _ in range(steps):
        gradient = 2 * (x - x0)
        leaf = x.clone().requires_grad_(True)
        losses = losses_of(leaf)
        for k in range(len(weights)):
            (slope,) = torch.autograd.grad(losses[k], leaf, retain_graph=True)
            gradient = gradient + multipliers[k] * slope
        path.append((x.clone(), multipliers.clone()))
        new_x = x - primal_step * gradient
        ascent = losses.detach() - 0.5 * weights * multipliers
        multipliers = torch.clamp(multipliers + dual_step * ascent, min=0)
        x = new_x
    return path


def classical_arrow_hurwicz(losses_of, x0, credences, *, primal_step, dual_step, steps, start):
    """The paper's two updates for fixed credences, ONE sample, class by class."""
    x, multipliers = x0.clone(), [start] * len(credences)
    path = []
    for _ in range(steps):
        path.append((x.clone(), torch.tensor(multipliers, dtype=x0.dtype)))
        leaf = x.clone().requires_grad_(True)
        losses = losses_of(leaf)
        step = 2 * (x - x0)
        for k, multiplier in enumerate(multipliers):
            (slope,) = torch.autograd.grad(losses[k], leaf, retain_graph=True)
            step = step + multiplier * slope
        multipliers = [
            max(0.0, multiplier + dual_step * (float(loss) + float(credence)))
            for multiplier, loss, credence in zip(
                multipliers, losses.detach(), credences, strict=True
            )
        ]
        x = x - primal_step * step
    return path


def finite_difference(function, x, step=1e-6):
    """Gradient of a scalar function of one sample by central differences."""
    gradient = torch.zeros_like(x)
    for i in range(x.numel()):
        shift = torch.zeros_like(x).flatten()
        shift[i] = step
        shift = shift.view_as(x)
        gradient.view(-1)[i] = (function(x + shift) - function(x - shift)) / (2 * step)
    return gradient
