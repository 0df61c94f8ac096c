"""Points around the answers of a profile, for checks of the paper's claims."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from credibly import _validation as check
from credibly.model.bind import rebind
from credibly.model.classifier import Classifier
from credibly.model.variable import Variable
from credibly.problem.fit_risk import FitRiskProblem
from credibly.profile.given import check_profile, check_same_classes, weights_of
from credibly.profile.noise import generators_from, noise_of
from credibly.profile.profile import Profile
from credibly.types import norm, per_sample


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
    variable = rebind(clf, profile.x0, profile.settings.space)
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
