"""Numbers by which an answer can be checked: residuals of the optimality conditions."""
# ruff: noqa: RUF009  # `Stored()` is a descriptor, not a default

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from credibly import _validation as check
from credibly.model.bind import bind, check_reachable, encoded
from credibly.model.checks import check_model
from credibly.model.classifier import Classifier
from credibly.model.derivatives import undisturbed
from credibly.model.structure import Nested
from credibly.model.variable import Variable
from credibly.problem.fit_risk import FitRiskProblem, Point
from credibly.problem.rows import Rows, Stored
from credibly.problem.weights import resolve_weights
from credibly.profile.arguments import check_bounds, class_numbers
from credibly.solve.base import reach
from credibly.solve.status import Status
from credibly.types import CPU, Array, Bounds, norm, per_sample


@dataclass(frozen=True, repr=False)
class Certificate(Rows):
    """Residuals of the optimality conditions, one number per sample each.

    Attributes:
        objective: F at the answer.
        stationarity: |2 (x - x0) + sum_k lambda_k grad l_k|, zero at a smooth minimum (Theorem 1).
        relative_stationarity: the same, relative to the lengths of its two parts: 0 to 1.
        fixed_point: max_k |c_k + w_k lambda_k / 2|, zero for a credibility profile (Theorem 2).
        feasibility: the largest excess of a loss over its credence, max_k [l_k + c_k]_+, or of a
            feature over its bounds.
        slackness: max_k |lambda_k (l_k + c_k)|.
        decrease: |c0|^2 - |c|^2 - |x - x0|^2 in the weighted norms; never negative for a profile of
            `credibility`.
        tradeoff: how much smaller the objective is at the best nearby x' that was tried, as a share
            of the risk; 0 if none is better, NaN if none was tried. `certify` tries some; the
            certificate of a profile does not.
        hull: the shortest element of the convex hull of gradients sampled near the answer, relative
            like `relative_stationarity`; near zero on a kink. NaN if not sampled.

    Example: see `certify`.
    """

    objective: Tensor
    relative_stationarity: Tensor
    decrease: Tensor
    stationarity: Stored = Stored()
    fixed_point: Stored = Stored()
    feasibility: Stored = Stored()
    slackness: Stored = Stored()
    tradeoff: Stored = Stored()
    hull: Stored = Stored()

    def holds(self, *, tolerance: float = 1e-3, improvement: float = 1e-3) -> Tensor:
        """Whether each answer is a local optimum (n,); other basins may be deeper.

        The multipliers must fit the credences to `tolerance`. The point must be stationary to
        `tolerance`, or no nearby point that `certify` tried may improve the objective by more than
        the share `improvement` of the risk. Without that search, as in `profile.certificate`, only
        stationary points pass.
        """
        consistent = (
            (self.fixed_point <= tolerance)
            & (self.feasibility <= tolerance)
            & (self.decrease >= -tolerance * self.objective)
        )
        local = (self.relative_stationarity <= tolerance) | (self.tradeoff <= improvement)
        return consistent & local

    def __getitem__(self, rows: Tensor | slice) -> Certificate:
        return self.select(rows)

    def __repr__(self) -> str:
        known = (name for name, value in vars(self).items() if value is not None)
        return f"Certificate({len(self.objective)} samples; {', '.join(known)})"


def certify(
    clf: Classifier | Variable,
    x0: Nested,
    x: Array,
    *,
    gamma: float | Literal["auto"] | None = None,
    weights: Array | None = None,
    multipliers: Array | None = None,
    credences: Array | None = None,
    bounds: Bounds | None = None,
    probes: int = 24,
    gradient_samples: int = 0,
    radius: float = 0.02,
    seed: int = 0,
    chunk_size: int = 128,
) -> Certificate:
    """Check any answer, from any solver.

    Args:
        clf: the classifier.
        x0: inputs as in `credibility`; None for a classifier that is bound to them.
        x: the proposed x+ (n, ...), as in `profile.perturbed`.
        gamma: as in `credibility`; exactly one of gamma and weights.
        weights: as in `credibility`.
        multipliers: lambda (n, K); by default -2 c / w, which satisfy the fixed point by design.
        credences: c (n, K), none positive; by default -l at x. With given credences the objective
            is |x - x0|^2 + sum_k c_k^2 / w_k, and a loss above -c_k is a violation.
        bounds: as in `credibility`.
        probes: nearby points at which the trade-off inequality (Definition 2) is checked: along
            the gradient, towards x0 and away from it, and in random directions.
        gradient_samples: gradients sampled in a small ball for `hull`; 0 leaves it NaN.
        radius: size of the neighbourhood, relative to |x - x0|.
        seed: of the random directions.
        chunk_size: samples handled at a time.

    Example:
        >>> import torch, credibly as cr
        >>> clf = cr.Classifier(lambda x: x @ torch.tensor([[2.0, -2.0], [1.0, 0.0]]))
        >>> x0 = torch.tensor([[1.0, 2.0]])
        >>> profile = cr.credibility(clf, x0, gamma=5.0)
        >>> cr.certify(clf, x0, profile.perturbed, gamma=5.0).holds()
        tensor([True])
    """
    variable = bind(clf, x0, name="x0")
    answer = encoded(variable, x)
    check_reachable(variable, x, answer)
    check.chunk_size(chunk_size)
    bounds = check_bounds(bounds, variable.free_values(variable.start))
    for name, count in (("probes", probes), ("gradient_samples", gradient_samples)):
        check.whole(name, count, least=0, remedy="0 leaves this search out.")
    seed = check.seed(seed)
    check.positive("radius", radius)
    with undisturbed(variable) as variable:
        check_model(variable)
        start, w = variable.start, resolve_weights(variable, gamma=gamma, weights=weights)
        shape = len(start), len(w)
        if multipliers is not None:
            multipliers = class_numbers(multipliers, "multipliers", shape, start, sign=1)
        if credences is not None:
            credences = class_numbers(credences, "credences", shape, start, sign=-1)
        problem = FitRiskProblem(variable, w, variable.limits(bounds))
        parts = []
        for begin in range(0, len(start), chunk_size):
            rows = slice(begin, begin + chunk_size)
            certificate = certificate_of(
                problem.select(rows),
                answer[rows],
                multipliers=None if multipliers is None else multipliers[rows],
                credences=None if credences is None else credences[rows],
                search=Search(probes, gradient_samples, radius, seed + begin),
            )
            parts.append(certificate)
    return Certificate.concatenate(parts)


@dataclass(frozen=True)
class Search:
    """How much to search around an answer."""

    probes: int = 0
    gradient_samples: int = 0
    radius: float = 0.02
    seed: int = 0


def certificate_of(
    problem: FitRiskProblem,
    x: Tensor,
    *,
    multipliers: Tensor | None = None,
    credences: Tensor | None = None,
    search: Search | None = None,
    fit_at_start: Tensor | None = None,
) -> Certificate:
    """The certificate of one batch: one pass, a forward at x0, and the search."""
    search = search or Search()
    if multipliers is None and credences is not None:
        multipliers = -2 * credences / problem.weights
    point = problem.evaluate(x, multipliers)
    duals = problem.multipliers(point.losses) if multipliers is None else multipliers
    if fit_at_start is None:
        fit_at_start = problem.objective(problem.x0)
    earned = -point.losses
    if credences is not None:
        point = replace(point, objective=problem.risk(x) + problem.misfit(credences))
    # with c = -l the losses meet their credences exactly; given multipliers imply their own c
    implied = earned if multipliers is None else -0.5 * problem.weights * duals
    excess = point.losses + (implied if credences is None else credences)
    held = earned if credences is None else credences
    unknown = torch.full_like(point.objective, torch.nan)
    return Certificate(
        objective=point.objective,
        stationarity=norm(problem.free_gradient(point)),
        relative_stationarity=problem.relative_stationarity(point),
        fixed_point=(held + 0.5 * problem.weights * duals).abs().amax(1),
        feasibility=torch.maximum(excess.clamp(min=0).amax(1), _outside(problem, x)),
        slackness=(duals * excess).abs().amax(1),
        decrease=fit_at_start - point.objective,
        tradeoff=_best_improvement(problem, point, search) if search.probes else unknown,
        hull=_shortest_in_hull(problem, point, search) if search.gradient_samples else unknown,
    )


def _best_improvement(problem: FitRiskProblem, point: Point, search: Search) -> Tensor:
    """The largest decrease of F at points around x, as a share of the risk (n,)."""
    shift, distance = point.x - problem.x0, reach(problem, point)
    risk = distance.square().clamp(min=torch.finfo(shift.dtype).tiny)
    size = per_sample(search.radius * distance, shift)
    directions = [problem.free_gradient(point), shift]
    generators = generators_from(search.seed, len(shift))
    found = torch.zeros_like(point.objective)
    for number in range(search.probes):
        if number < 8:
            base = directions[number % 2]
            factor = (-1.0, 1.0, -0.25, 0.25)[number // 2]
        else:
            base = noise_of(generators, shift)
            factor = 1.0 if number % 2 else 0.25
        length = per_sample(norm(base), base).clamp(min=torch.finfo(base.dtype).tiny)
        there = problem.objective(problem.project(point.x + factor * size * base / length))
        found = torch.maximum(found, (point.objective - there) / risk)
    return found


def _shortest_in_hull(problem: FitRiskProblem, point: Point, search: Search) -> Tensor:
    """Shortest convex combination of gradients in a small ball, relative as above (n,)."""
    shift = point.x - problem.x0
    size = per_sample(search.radius * reach(problem, point), shift)
    generators = generators_from(search.seed, len(shift))
    gradients = [problem.free_gradient(point).flatten(1)]
    for _ in range(search.gradient_samples):
        noise = noise_of(generators, shift)
        noise = size * noise / per_sample(norm(noise), noise)
        # the ball is small: the gradient of the risk is taken at the answer
        near = problem.evaluate(problem.project(point.x + noise))
        gradients.append((near.gradient - 2 * (near.x - point.x)).flatten(1))
    stacked = torch.stack(gradients, dim=1)
    gram = stacked @ stacked.mT
    shares = _minimum_on_simplex(gram)
    length = (shares.unsqueeze(1) @ gram @ shares.unsqueeze(2)).flatten().clamp(min=0).sqrt()
    pulls = norm(2 * shift) + norm(point.gradient - 2 * shift)
    return length / pulls.clamp(min=torch.finfo(pulls.dtype).tiny)


def _minimum_on_simplex(gram: Tensor) -> Tensor:
    """Minimise s^T gram s over the simplex by pairwise Frank-Wolfe steps with exact line search."""
    rows = torch.arange(len(gram), device=gram.device)
    shares = torch.zeros(gram.shape[:2], dtype=gram.dtype, device=gram.device)
    shares[:, 0] = 1.0
    for _ in range(500):
        slope = (gram @ shares.unsqueeze(2)).squeeze(2)
        toward = slope.argmin(1)
        away = slope.masked_fill(shares <= 0, -torch.inf).argmax(1)
        gain = slope[rows, away] - slope[rows, toward]
        bend = gram[rows, toward, toward] + gram[rows, away, away] - 2 * gram[rows, toward, away]
        move = (gain / bend.clamp(min=torch.finfo(gram.dtype).tiny)).clamp(min=0)
        move = torch.minimum(move, shares[rows, away])
        shares[rows, toward] += move
        shares[rows, away] -= move
    return shares.clamp(min=0)


def _outside(problem: FitRiskProblem, x: Tensor) -> Tensor:
    """How far the worst feature lies outside the bounds (n,)."""
    return (x - problem.project(x)).abs().flatten(1).amax(1)


def explained(codes: Tensor, found: Certificate) -> Tensor:
    """The status codes (n,), where numbers too large for the precision are the model's fault.

    The length of a gradient may be infinite although none of its parts is; without this status
    nothing would explain the NaN that follows.
    """
    numbers = [v for n, v in vars(found).items() if n not in ("tradeoff", "hull")]  # not searched
    sane = torch.stack(numbers).isfinite().all(0)
    solved = torch.stack([codes == status for status in Status if status.usable]).any(0)
    return torch.where(~sane & solved, Status.NON_FINITE_MODEL, codes)


def generators_from(seed: int, count: int) -> list[torch.Generator]:
    """One generator per sample, so that the batch does not change the directions."""
    return [torch.Generator(CPU).manual_seed(seed + n) for n in range(count)]


def noise_of(generators: list[torch.Generator], like: Tensor) -> Tensor:
    """Standard normal numbers shaped like `like`; each sample uses its own generator."""
    rows = [
        torch.randn(like.shape[1:], generator=g, dtype=like.dtype, device=CPU) for g in generators
    ]
    return torch.stack(rows).to(like.device)
