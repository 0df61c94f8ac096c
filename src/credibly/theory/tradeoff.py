"""The paper's inequalities, tried: Definition 2 at many other inputs, Assumption 2 around x+."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from credibly.errors import InvalidArgumentError
from credibly.model.classifier import Classifier
from credibly.model.derivatives import loss_jacobian, losses_only, undisturbed
from credibly.model.inputs import as_inputs, enter_again
from credibly.problem.fit_risk import FitRiskProblem
from credibly.profile.arguments import check_chunk_size, check_seed
from credibly.profile.given import check_profile, check_same_classes
from credibly.profile.noise import generators_from, noise_of
from credibly.profile.profile import Profile
from credibly.solve.base import reach, require_positive, require_whole
from credibly.types import Array, norm, per_sample

RADII = (0.01, 0.1, 0.5)
"""Sizes of the neighbourhoods, relative to |x+ - x0|."""

SMALL_RADII = (1e-5, 1e-4, 1e-3, 1e-2, 1e-1)
"""On networks with kinks Assumption 2 holds in the small only; see docs/theory.md."""

BETWEEN = (0.0, 0.25, 0.5, 0.75, 0.9, 0.99)
"""Points of the segment from x0 (0) to x+ (1)."""

ROUNDING = 32.0
"""Errors of losses in units of the largest loss and the machine epsilon: a few times those seen."""

KINDS = ("random directions", "gradient directions", "between x0 and x+")
"""Names of what is tried by itself."""


@dataclass(frozen=True, eq=False)
class TradeOff:
    """How the trade-off inequality fared at inputs x' that are not x+.

    Attributes:
        margins: for each kind of x', (F(x') - F(x+)) / F(x+) at every one tried (n, tries). A
            negative one refutes the inequality there: x' balances fit and risk better than x+.
    """

    margins: Mapping[str, Tensor]

    def holds(self, *, tolerance: float = 1e-3) -> Tensor:
        """Samples (n,) with no x' that is better by more than the share `tolerance`."""
        return self.worst() >= -tolerance

    def worst(self) -> Tensor:
        """The smallest margin of each sample (n,)."""
        return torch.cat(list(self.margins.values()), dim=1).amin(1)

    def summary(self) -> str:
        """One line a kind of x'."""
        lines = []
        for name, margin in self.margins.items():
            known = margin[~margin.isnan()]  # samples without an answer have nothing to hold
            if len(known) == 0:
                lines.append(f"{name}: no sample has an answer")
                continue
            share = float((known >= 0).double().mean())
            lines.append(
                f"{name}: holds at {share:.1%} of {margin.shape[1]} x' a sample, worst margin "
                f"{float(known.min()):+.3g} of F"
            )
        return "\n".join(lines)


def check_tradeoff(
    clf: Classifier,
    profile: Profile,
    *,
    others: Mapping[str, Array] | None = None,
    directions: int = 16,
    radii: Sequence[float] = RADII,
    seed: int = 0,
    chunk_size: int = 128,
) -> TradeOff:
    """Try |x+ - x0|^2 - |x' - x0|^2 <= |c'|^2 - |c+|^2 at many x'.

    Near x+: random directions, the gradient of F and that of the fit, each at several radii; then
    points between x0 and x+; then whatever `others` brings, such as the answers of other solvers
    or minimum-norm attacks (`minimum_norm_attacks`). The inequality is promised near x+ only
    (Definition 2): an `other` that refutes it lies in a deeper basin, which the solver missed.

    Args:
        clf: the classifier the profile was made with.
        profile: its profile; samples that could not be solved get NaN.
        others: name -> inputs (n, ...), one for each sample.
        directions: random directions a radius.
        radii: sizes of the neighbourhood, relative to |x+ - x0|.
        seed: of the random directions.
        chunk_size: samples handled at a time.
    """
    _check(profile, directions, radii, chunk_size)
    seed = check_seed(seed)
    clf, start = enter_again(clf, profile.x0, profile.settings.space)
    check_same_classes(clf, start, profile)
    brought = _as_others(clf, profile, others or {})
    parts: list[dict[str, Tensor]] = []
    with undisturbed(start):
        whole = _problem(clf, start, profile)
        for begin in range(0, len(profile), chunk_size):
            rows = slice(begin, begin + chunk_size)
            chunk = whole[0].select(rows), whole[1][rows]
            tried = dict(_nearby(*chunk, directions, radii, seed + begin))
            tried |= {name: [x[rows]] for name, x in brought.items()}
            parts.append(_margins(*chunk, tried))
    return TradeOff({name: torch.cat([part[name] for part in parts]) for name in parts[0]})


@dataclass(frozen=True, eq=False)
class Assumption2:
    """How Assumption 2 fared around x+: that every l_k^2 lies above its tangent at x+.

    (Completing the square in the paper's condition gives this form.) Near x+ the two differ by
    less than the model's own rounding. Such x' are counted neither as holding nor as failing: the
    share at which it holds lies between `by_radius` and `by_radius + unknown`.

    Attributes:
        fraction: share of the sampled x' at which it holds for every class, beyond rounding (n,).
        worst: smallest margin (l_k(x')^2 - tangent) / sum_j l_j(x+)^2 of any class and x' (n,); 0
            for those that rounding hides.
        by_radius: the fraction for each radius (radii, n).
        unknown: share of the x' of each radius of which rounding hides whether it holds (radii, n).
        radii: sizes of the neighbourhoods, relative to |x+ - x0|.
    """

    fraction: Tensor
    worst: Tensor
    by_radius: Tensor
    unknown: Tensor
    radii: tuple[float, ...]


def check_assumption_2(
    clf: Classifier,
    profile: Profile,
    *,
    directions: int = 64,
    radii: Sequence[float] = SMALL_RADII,
    seed: int = 0,
    chunk_size: int = 128,
) -> Assumption2:
    """Sample directions around x+ and see in how many the paper's Assumption 2 holds.

    It costs K backwards at x+ and a forward for every direction and radius. Use double precision:
    in single nothing can be told at small radii (`unknown`), because the differences drown in the
    rounding of the model.

    Args:
        clf: the classifier the profile was made with.
        profile: its profile; samples that could not be solved get NaN.
        directions: random directions a radius.
        radii: sizes of the neighbourhood, relative to |x+ - x0|.
        seed: of the directions.
        chunk_size: samples handled at a time.
    """
    _check(profile, directions, radii, chunk_size)
    seed = check_seed(seed)
    found = []
    clf, start = enter_again(clf, profile.x0, profile.settings.space)
    check_same_classes(clf, start, profile)
    with undisturbed(start):
        whole = _problem(clf, start, profile)
        for begin in range(0, len(profile), chunk_size):
            rows = slice(begin, begin + chunk_size)
            problem, x = whole[0].select(rows), whole[1][rows]
            found.append(_tangent_margins(problem, x, directions, radii, seed + begin))
    margins, holds, fails = (torch.cat(part, dim=2) for part in zip(*found, strict=True))
    unsolved = margins.isnan()  # no answer: neither held nor failed
    good, hidden = (
        torch.where(unsolved, torch.nan, share.double()) for share in (holds, ~holds & ~fails)
    )
    return Assumption2(
        fraction=good.mean((0, 1)),
        worst=margins.amin((0, 1)),
        by_radius=good.mean(1),
        unknown=hidden.mean(1),
        radii=tuple(float(radius) for radius in radii),
    )


def _tangent_margins(
    problem: FitRiskProblem, x: Tensor, directions: int, radii: Sequence[float], seed: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Margins, and at which x' it holds and fails beyond doubt, each (radii, directions, n).

    In double precision, but for the model itself, whose rounding is allowed for.
    """
    losses, jacobian = (part.double() for part in loss_jacobian(problem.classifier, x))
    scale = losses.square().sum(1).clamp(min=torch.finfo(losses.dtype).tiny)
    start, distance = x.double(), norm((x - problem.x0).double())
    least = ROUNDING * torch.finfo(x.dtype).eps
    rows: list[tuple[Tensor, Tensor, Tensor]] = []
    for radius in radii:
        for direction in _directions(start, directions, seed):
            tried = (start + per_sample(radius * distance, x) * direction).to(x)
            move = (tried.double() - start).flatten(1)  # as it came out, rounded
            slope = (jacobian @ move.unsqueeze(2)).squeeze(2)
            there = losses_only(problem.classifier, tried).double()
            margin = there.square() - losses.square() - 2 * losses * slope
            size = losses.amax(1, keepdim=True) + jacobian.norm(dim=2) * norm(move)[:, None]
            doubt = least * 2 * torch.maximum(losses, there) * size
            told = torch.where(margin.abs() < doubt, 0.0, margin).amin(1) / scale
            rows.append((told, (margin >= doubt).all(1), (margin < -doubt).any(1)))
    shape = len(radii), directions, len(x)
    margins, holds, fails = (torch.stack(part).reshape(shape) for part in zip(*rows, strict=True))
    return margins, holds, fails


def _problem(clf: Classifier, start: Tensor, profile: Profile) -> tuple[FitRiskProblem, Tensor]:
    """The problem that the profile solved, and its answer."""
    w, like = profile.settings.weights, profile.x0
    weights = torch.tensor(w, dtype=torch.float64, device=like.device).to(like)
    problem = FitRiskProblem(clf, start, weights, clf.limits(profile.settings.bounds))
    return problem, clf.encode(profile.perturbed)


def _nearby(
    problem: FitRiskProblem, x: Tensor, directions: int, radii: Sequence[float], seed: int
) -> Iterator[tuple[str, list[Tensor]]]:
    point = problem.evaluate(x)
    distance = reach(problem, point)
    sizes = [per_sample(radius * distance, x) for radius in radii]
    noise = _directions(x, directions, seed)
    yield KINDS[0], [x + size * step for size in sizes for step in noise]
    shift = 2 * (x - problem.x0)
    steepest = [_unit(point.gradient), _unit(point.gradient - shift)]
    moves = [sign * step for step in steepest for sign in (-1, 1)]
    yield KINDS[1], [x + size * move for size in sizes for move in moves]
    yield KINDS[2], [problem.x0 + share * (x - problem.x0) for share in BETWEEN]


def _margins(
    problem: FitRiskProblem, x: Tensor, tried: Mapping[str, list[Tensor]]
) -> dict[str, Tensor]:
    own = problem.objective(x)
    return {
        name: torch.stack(
            [(problem.objective(problem.project(other)) - own) / own for other in others], dim=1
        )
        for name, others in tried.items()
    }


def _directions(like: Tensor, count: int, seed: int) -> list[Tensor]:
    """Unit directions; each sample has its own stream, so chunks do not change what is tried."""
    streams = generators_from(seed, len(like))
    return [_unit(noise_of(streams, like)) for _ in range(count)]


def _unit(values: Tensor) -> Tensor:
    return values / per_sample(norm(values), values).clamp(min=torch.finfo(values.dtype).tiny)


def _as_others(clf: Classifier, profile: Profile, others: Mapping[str, Array]) -> dict[str, Tensor]:
    if not isinstance(others, Mapping) or set(others) & set(KINDS):
        raise InvalidArgumentError(
            "others",
            expected=f"a mapping from names, other than {list(KINDS)}, to inputs",
            got=type(others).__name__ if not isinstance(others, Mapping) else f"{list(others)}",
            remedy="For example others={'attack': x_attacked}.",
        )
    brought = {name: as_inputs(clf, x, name=f"others[{name!r}]") for name, x in others.items()}
    expected = clf.encode(profile.x0).shape
    for name, x in brought.items():
        if x.shape != expected:
            raise InvalidArgumentError(
                f"others[{name!r}]",
                expected=f"one input for each of the profile's, {tuple(profile.x0.shape)}",
                got=f"shape {tuple(x.shape)}",
                remedy="Repeat the call for further inputs of the same sample.",
            )
    return brought


def _check(profile: Profile, directions: int, radii: Sequence[float], chunk_size: int) -> None:
    check_profile(profile)
    check_chunk_size(chunk_size)
    require_whole("directions", directions)
    if not isinstance(radii, Sequence) or len(radii) == 0:
        raise InvalidArgumentError(
            "radii",
            expected="a sequence of positive numbers, at least one",
            got=repr(radii),
            remedy="For a single one pass (0.1,).",
        )
    for radius in radii:
        require_positive("radii", radius)
