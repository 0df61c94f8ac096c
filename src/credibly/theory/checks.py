"""Statements of the paper, checked around profiles: Definition 2 and Assumption 2."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from credibly import _validation as check
from credibly.model.bind import encoded
from credibly.model.classifier import Classifier
from credibly.model.derivatives import loss_jacobian, losses_only, undisturbed
from credibly.model.variable import Variable
from credibly.problem.fit_risk import FitRiskProblem
from credibly.profile.certificate import generators_from, noise_of
from credibly.profile.given import check_profile, check_same_classes, rebind_profile, weights_of
from credibly.profile.profile import Profile
from credibly.solve.base import reach
from credibly.types import Array, norm, per_sample


def checked_variable(
    clf: Classifier | Variable,
    profile: Profile,
    directions: int,
    radii: Sequence[float],
    chunk_size: int,
) -> Variable:
    """The variable of a profile, after checks of the arguments."""
    check_profile(profile)
    check.chunk_size(chunk_size)
    check.whole("directions", directions)
    several = isinstance(radii, Sequence) and len(radii) > 0
    expected = "a sequence of positive numbers, at least one"
    check.require(several, "radii", expected, repr(radii), "For a single one pass (0.1,).")
    for radius in radii:
        check.positive("radii", radius)
    variable = rebind_profile(clf, profile)
    check_same_classes(variable, profile)
    return variable


def solved_chunks(
    variable: Variable, profile: Profile, chunk_size: int
) -> Iterator[tuple[slice, FitRiskProblem, Tensor]]:
    """The rows of each chunk, the problem that the profile solved there, and its answer."""
    limits = variable.limits(profile.settings.bounds)
    problem = FitRiskProblem(variable, weights_of(profile), limits)
    answer = variable.encode(profile.perturbed)
    for begin in range(0, len(profile), chunk_size):
        rows = slice(begin, begin + chunk_size)
        yield rows, problem.select(rows), answer[rows]


def unit_noise(like: Tensor, count: int, seed: int) -> list[Tensor]:
    """Random unit vectors; each sample has its own stream, so chunks do not change them."""
    streams = generators_from(seed, len(like))
    return [unit(noise_of(streams, like)) for _ in range(count)]


def unit(values: Tensor) -> Tensor:
    """The values of each sample, scaled to length one."""
    return values / per_sample(norm(values), values).clamp(min=torch.finfo(values.dtype).tiny)


RADII = (0.01, 0.1, 0.5)  # of the neighbourhoods, relative to |x+ - x0|
BETWEEN = (0.0, 0.25, 0.5, 0.75, 0.9, 0.99)  # points of the segment from x0 (0) to x+ (1)
KINDS = ("random directions", "gradient directions", "between x0 and x+")  # always tried


@dataclass(frozen=True, eq=False)
class TradeOff:
    """Where the trade-off inequality holds among inputs x' that are not x+.

    Attributes:
        margins: for each kind of x', (F(x') - F(x+)) / F(x+) at every one tried (n, tries). Where
            it is negative the inequality fails: x' balances fit and risk better than x+.

    Example: see docs/explanation/theory.md.
    """

    margins: Mapping[str, Tensor]

    def holds(self, *, tolerance: float = 1e-3) -> Tensor:
        """Samples (n,) without an x' that is better by more than the share `tolerance`."""
        return self.worst() >= -tolerance

    def worst(self) -> Tensor:
        """The smallest margin of each sample (n,)."""
        return torch.cat(list(self.margins.values()), dim=1).amin(1)

    def summary(self) -> str:
        """One line per kind of x'."""
        lines = []
        for name, margin in self.margins.items():
            known = margin[~margin.isnan()]
            if len(known) == 0:
                lines.append(f"{name}: no sample has an answer")
                continue
            share = float((known >= 0).double().mean())
            lines.append(
                f"{name}: holds at {share:.1%} of {margin.shape[1]} x' per sample, worst margin "
                f"{float(known.min()):+.3g} of F"
            )
        return "\n".join(lines)


def check_tradeoff(
    clf: Classifier | Variable,
    profile: Profile,
    *,
    others: Mapping[str, Array] | None = None,
    directions: int = 16,
    radii: Sequence[float] = RADII,
    seed: int = 0,
    chunk_size: int = 128,
) -> TradeOff:
    """Check |x+ - x0|^2 - |x' - x0|^2 <= |c'|^2 - |c+|^2 at many x'.

    Near x+: random directions, the gradient of F and that of the fit, each at several radii; points
    between x0 and x+; and those of `others`, such as the answers of other solvers or minimum-norm
    attacks (`minimum_norm_attacks`). The inequality need hold only near x+ (Definition 2): one of
    the `others` at which it fails lies in a deeper basin, which the solver missed.

    Args:
        clf: the classifier the profile was made with.
        profile: its profile; samples that could not be solved get NaN.
        others: name -> inputs (n, ...), one for each sample.
        directions: random directions per radius.
        radii: sizes of the neighbourhood, relative to |x+ - x0|.
        seed: of the random directions.
        chunk_size: samples handled at a time.

    Example: see docs/explanation/theory.md.
    """
    seed = check.seed(seed)
    variable = checked_variable(clf, profile, directions, radii, chunk_size)
    given = _as_others(variable, others or {})
    parts: list[dict[str, Tensor]] = []
    with undisturbed(variable):
        for rows, problem, x in solved_chunks(variable, profile, chunk_size):
            tried = dict(_nearby(problem, x, directions, radii, seed + rows.start))
            tried |= {name: [other[rows]] for name, other in given.items()}
            parts.append(_margins(problem, x, tried))
    return TradeOff({name: torch.cat([part[name] for part in parts]) for name in parts[0]})


def _nearby(
    problem: FitRiskProblem, x: Tensor, directions: int, radii: Sequence[float], seed: int
) -> Iterator[tuple[str, list[Tensor]]]:
    point = problem.evaluate(x)
    distance = reach(problem, point)
    sizes = [per_sample(radius * distance, x) for radius in radii]
    noise = unit_noise(x, directions, seed)
    yield KINDS[0], [x + size * step for size in sizes for step in noise]
    shift = 2 * (x - problem.x0)
    steepest = [unit(point.gradient), unit(point.gradient - shift)]
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


def _as_others(variable: Variable, others: Mapping[str, Array]) -> dict[str, Tensor]:
    mapping = isinstance(others, Mapping)
    check.require(
        mapping and not set(others) & set(KINDS),
        "others",
        f"a mapping from names, other than {list(KINDS)}, to inputs",
        f"{list(others)}" if mapping else type(others).__name__,
        "For example others={'attack': x_attacked}.",
    )
    return {name: encoded(variable, x, name=f"others[{name!r}]") for name, x in others.items()}


SMALL_RADII = (1e-5, 1e-4, 1e-3, 1e-2, 1e-1)  # kinks refute the assumption at larger ones
ROUNDING = 32.0  # of losses, in units of the largest loss and the machine epsilon


@dataclass(frozen=True, eq=False)
class Assumption2:
    """Where Assumption 2 holds around x+: every l_k^2 lies above its tangent at x+.

    (Completing the square in the paper's condition gives this form.) Near x+ the two differ by less
    than the rounding of the model. Such x' count neither as holding nor as failing: the share at
    which it holds lies between `by_radius` and `by_radius + unknown`.

    Attributes:
        fraction: share of the sampled x' at which it holds for every class, beyond rounding (n,).
        worst: smallest margin (l_k(x')^2 - tangent) / sum_j l_j(x+)^2 of any class and x' (n,);
            margins below rounding count as 0.
        by_radius: the fraction for each radius (radii, n).
        unknown: share of the x' of each radius at which rounding decides (radii, n).
        radii: sizes of the neighbourhoods, relative to |x+ - x0|.

    Example: see docs/explanation/theory.md.
    """

    fraction: Tensor
    worst: Tensor
    by_radius: Tensor
    unknown: Tensor
    radii: tuple[float, ...]


def check_assumption_2(
    clf: Classifier | Variable,
    profile: Profile,
    *,
    directions: int = 64,
    radii: Sequence[float] = SMALL_RADII,
    seed: int = 0,
    chunk_size: int = 128,
) -> Assumption2:
    """Sample directions around x+, and see in how many the paper's Assumption 2 holds.

    It costs K backwards at x+ and a forward for every direction and radius. Use double precision:
    in single precision the differences at small radii are below the rounding of the model
    (`unknown`).

    Args:
        clf: the classifier the profile was made with.
        profile: its profile; samples that could not be solved get NaN.
        directions: random directions per radius.
        radii: sizes of the neighbourhood, relative to |x+ - x0|.
        seed: of the directions.
        chunk_size: samples handled at a time.

    Example: see docs/explanation/theory.md.
    """
    seed = check.seed(seed)
    variable = checked_variable(clf, profile, directions, radii, chunk_size)
    with undisturbed(variable):
        found = [
            _tangent_margins(problem, x, directions, radii, seed + rows.start)
            for rows, problem, x in solved_chunks(variable, profile, chunk_size)
        ]
    margins, holds, fails = (torch.cat(part, dim=2) for part in zip(*found, strict=True))
    unsolved = margins.isnan()
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
    """Margins, and where it holds and fails beyond rounding, each (radii, directions, n).

    In double precision, except for the model itself, whose rounding is allowed for.
    """
    losses, jacobian = (part.double() for part in loss_jacobian(problem.variable, x))
    scale = losses.square().sum(1).clamp(min=torch.finfo(losses.dtype).tiny)
    start, distance = x.double(), norm((x - problem.x0).double())
    least = ROUNDING * torch.finfo(x.dtype).eps
    rows: list[tuple[Tensor, Tensor, Tensor]] = []
    for radius in radii:
        for direction in unit_noise(start, directions, seed):
            tried = (start + per_sample(radius * distance, x) * direction).to(x)
            move = (tried.double() - start).flatten(1)  # after rounding
            slope = (jacobian @ move.unsqueeze(2)).squeeze(2)
            there = losses_only(problem.variable, tried).double()
            margin = there.square() - losses.square() - 2 * losses * slope
            size = losses.amax(1, keepdim=True) + jacobian.norm(dim=2) * norm(move)[:, None]
            doubt = least * 2 * torch.maximum(losses, there) * size
            known = torch.where(margin.abs() < doubt, 0.0, margin).amin(1) / scale
            rows.append((known, (margin >= doubt).all(1), (margin < -doubt).any(1)))
    shape = len(radii), directions, len(x)
    margins, holds, fails = (torch.stack(part).reshape(shape) for part in zip(*rows, strict=True))
    return margins, holds, fails
