"""Numbers by which anyone can check an answer: residuals first, the verdict second."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Literal, Self

import torch
from torch import Tensor

from credibly.errors import InvalidArgumentError
from credibly.model.checks import check_model
from credibly.model.classifier import Classifier
from credibly.model.derivatives import undisturbed
from credibly.model.inputs import as_inputs, check_reachable, enter
from credibly.model.structure import Nested
from credibly.problem.fit_risk import FitRiskProblem, Point
from credibly.problem.weights import as_numbers, resolve_weights
from credibly.profile.arguments import check_bounds, check_chunk_size, check_seed
from credibly.profile.noise import generators_from, noise_of
from credibly.profile.partial import Partial
from credibly.solve.base import reach, require_positive
from credibly.types import Array, Bounds, norm, per_sample, whole_number


@dataclass(frozen=True, repr=False)
class Certificate(Partial):
    """Residuals of the optimality conditions, one number a sample each.

    Attributes:
        objective: F at the answer.
        stationarity: |2 (x - x0) + sum_k lambda_k grad l_k|, zero at a smooth minimum (Theorem 1).
        relative_stationarity: the same against the two pulls that balance in it: 0 to 1.
        fixed_point: max_k |c_k + w_k lambda_k / 2|, zero for a credibility profile (Theorem 2).
        feasibility: how far any loss exceeds its credence, max_k [l_k + c_k]_+, or any feature its
            bounds, whichever is more.
        slackness: max_k |lambda_k (l_k + c_k)|.
        decrease: |c0|^2 - |c|^2 - |x - x0|^2 in the weighted norms; never negative for a profile of
            `credibility`.
        tradeoff: how much smaller the objective is at the best of the nearby x' that were tried,
            as a share of the risk; 0 if none is better, NaN if none was tried: the certificate that
            comes with a profile has not searched, that of `certify` has.
        hull: the shortest element of the convex hull of gradients sampled near the answer, relative
            like `relative_stationarity`; near zero on a kink. NaN if not sampled.
    """

    objective: Tensor
    stationarity: Tensor
    relative_stationarity: Tensor
    fixed_point: Tensor
    feasibility: Tensor
    slackness: Tensor
    decrease: Tensor
    tradeoff: Tensor
    hull: Tensor

    def holds(self, *, tolerance: float = 1e-3, improvement: float = 1e-3) -> Tensor:
        """Verdict (n,): optimal as far as was looked, which is nearby; other basins may be deeper.

        The multipliers must fit the credences to `tolerance`. The point must be stationary to
        `tolerance` or, where it is not, as on a kink, none of the nearby points that `certify`
        tried may improve the objective by more than the share `improvement` of the risk. Without
        that search, as in `profile.certificate`, only stationary points pass.
        """
        consistent = (
            (self.fixed_point <= tolerance)
            & (self.feasibility <= tolerance)
            & (self.decrease >= -tolerance * self.objective)
        )
        local = (self.relative_stationarity <= tolerance) | (self.tradeoff <= improvement)
        return consistent & local

    def __getitem__(self, rows: Tensor | slice) -> Certificate:
        return Certificate.holding({name: getattr(self, name)[rows] for name in self.stored()})

    def __repr__(self) -> str:
        shown = ", ".join(self.stored())
        return f"Certificate({len(self.objective)} samples; {shown})"

    @classmethod
    def concatenate(cls, parts: list[Certificate]) -> Self:
        """One certificate of many."""
        known = [f.name for f in fields(cls) if all(f.name in part.stored() for part in parts)]
        return cls.holding(
            {name: torch.cat([getattr(part, name) for part in parts]) for name in known}
        )


def certify(
    clf: Classifier,
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
    """Check any answer, wherever it came from.

    Args:
        clf: the classifier.
        x0: the inputs that were asked about, as in `credibility`; None for a classifier that is
            bound to them.
        x: the proposed x+ (n, ...), as in `profile.perturbed`.
        gamma: as in `credibility`; exactly one of gamma and weights.
        weights: as in `credibility`.
        multipliers: lambda (n, K); by default -2 c / w, which satisfy the fixed point by design.
        credences: c (n, K), none positive; by default the -l that x itself earns. Brought credences
            are held to what they claim: the objective is |x - x0|^2 + sum_k c_k^2 / w_k, and a loss
            above -c_k is a violation.
        bounds: as in `credibility`.
        probes: nearby points at which the trade-off inequality (Definition 2) is tried: along the
            gradient, towards x0 and away from it, and in random directions.
        gradient_samples: gradients sampled in a small ball for `hull`; 0 leaves it NaN.
        radius: size of the neighbourhood, relative to |x - x0|.
        seed: of the random directions.
        chunk_size: samples handled at a time.
    """
    clf, start = enter(clf, x0, name="x0")
    answer = as_inputs(clf, x, name="x")
    if start.shape != answer.shape:
        raise InvalidArgumentError(
            "x",
            expected=f"the shape of x0, {tuple(start.shape)}",
            got=f"{tuple(answer.shape)}",
            remedy="Pass one answer for each input.",
        )
    check_reachable(clf, x, answer)
    check_chunk_size(chunk_size)
    bounds = check_bounds(bounds, clf.free_values(start))
    _check_counts(probes=probes, gradient_samples=gradient_samples)
    seed = check_seed(seed)
    require_positive("radius", radius)  # around nothing there is nothing better
    with undisturbed(start) as start:
        check_model(clf, start)
        w = resolve_weights(clf, start, gamma=gamma, weights=weights)
        duals, claimed = _as_multipliers(multipliers, start, w), _as_credences(credences, start, w)
        parts = []
        for begin in range(0, len(start), chunk_size):
            rows = slice(begin, begin + chunk_size)
            problem = FitRiskProblem(clf, start, w, clf.limits(bounds)).select(rows)
            search = Search(probes, gradient_samples, radius, seed + begin)
            certificate = certificate_of(
                problem,
                answer[rows],
                multipliers=None if duals is None else duals[rows],
                credences=None if claimed is None else claimed[rows],
                search=search,
            )
            parts.append(certificate)
    return Certificate.concatenate(parts)


@dataclass(frozen=True)
class Search:
    """How hard to look around an answer."""

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
    """The certificate of one batch: one pass, a forward at x0, and what `search` asks for."""
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
    # With c = -l the losses meet their credences exactly; given multipliers imply their own c.
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
    """Try x' around x; the largest decrease of F that any brings, as a share of the risk (n,)."""
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
    """Minimum-norm convex combination of gradients in a small ball, relative to the pulls (n,)."""
    shift = point.x - problem.x0
    size = per_sample(search.radius * reach(problem, point), shift)
    generators = generators_from(search.seed, len(shift))
    gradients = [problem.free_gradient(point).flatten(1)]
    for _ in range(search.gradient_samples):
        noise = noise_of(generators, shift)
        noise = size * noise / per_sample(norm(noise), noise)
        # the ball is small: the risk's own gradient is taken at the answer, only the pull varies
        near = problem.evaluate(problem.project(point.x + noise))
        gradients.append((near.gradient - 2 * (near.x - point.x)).flatten(1))
    stacked = torch.stack(gradients, dim=1)
    gram = stacked @ stacked.mT
    shares = _minimum_on_simplex(gram)
    length = (shares.unsqueeze(1) @ gram @ shares.unsqueeze(2)).flatten().clamp(min=0).sqrt()
    pulls = norm(2 * shift) + norm(point.gradient - 2 * shift)
    return length / pulls.clamp(min=torch.finfo(pulls.dtype).tiny)


def _minimum_on_simplex(gram: Tensor, rounds: int = 500) -> Tensor:
    """Minimise s^T gram s over the simplex by pairwise Frank-Wolfe steps with exact line search."""
    rows = torch.arange(len(gram), device=gram.device)
    shares = torch.zeros(gram.shape[:2], dtype=gram.dtype, device=gram.device)
    shares[:, 0] = 1.0
    for _ in range(rounds):
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


def _check_counts(**counts: int) -> None:
    for name, count in counts.items():
        if whole_number(count) is None or count < 0:
            raise InvalidArgumentError(
                name,
                expected="a whole number >= 0",
                got=repr(count),
                remedy="0 leaves this search out.",
            )


def _as_multipliers(multipliers: Array | None, x0: Tensor, weights: Tensor) -> Tensor | None:
    if multipliers is None:
        return None
    duals = as_numbers(multipliers, "multipliers", x0).detach()
    _check_rows("multipliers", duals, (len(x0), len(weights)), sign=1)
    return duals


def _as_credences(credences: Array | None, x0: Tensor, weights: Tensor) -> Tensor | None:
    if credences is None:
        return None
    c = as_numbers(credences, "credences", x0).detach()
    _check_rows("credences", c, (len(x0), len(weights)), sign=-1)
    return c


def _check_rows(name: str, values: Tensor, expected: tuple[int, int], *, sign: int) -> None:
    if tuple(values.shape) == expected and bool((sign * values >= 0).all()):
        return
    extreme = f"smallest {float(values.min()):.4g}, largest {float(values.max()):.4g}"
    raise InvalidArgumentError(
        name,
        expected=f"{'non-negative' if sign > 0 else 'non-positive'} numbers of shape {expected}",
        got=f"shape {tuple(values.shape)}" + (f", {extreme}" if values.numel() else ""),
        remedy="Pass one a sample and class, or leave it out.",
    )
