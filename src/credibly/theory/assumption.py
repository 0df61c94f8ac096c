"""Assumption 2 of the paper, checked around x+."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from credibly import _validation as check
from credibly.model.classifier import Classifier
from credibly.model.derivatives import loss_jacobian, losses_only, undisturbed
from credibly.model.variable import Variable
from credibly.problem.fit_risk import FitRiskProblem
from credibly.profile.profile import Profile
from credibly.theory.neighbours import checked_variable, solved_chunks, unit_noise
from credibly.types import norm, per_sample

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

    Example: see docs/theory.md.
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

    Example: see docs/theory.md.
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
