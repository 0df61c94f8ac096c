"""Profiles along a range of gamma, each solve started from its neighbour's answer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from credibly.errors import InvalidArgumentError
from credibly.model.checks import check_model
from credibly.model.classifier import Classifier
from credibly.model.derivatives import undisturbed
from credibly.model.inputs import enter
from credibly.model.structure import Nested
from credibly.problem.fit_risk import FitRiskProblem
from credibly.problem.weights import positive, resolve_weights
from credibly.profile.arguments import (
    Progress,
    check_bounds,
    check_chunk_size,
    check_solver,
    ticking,
)
from credibly.profile.credibility import solved_profile
from credibly.profile.profile import Profile
from credibly.solve.base import Solver
from credibly.solve.gradient_descent import GradientDescent
from credibly.solve.hybrid import Hybrid
from credibly.types import Bounds

FIRST = Hybrid(effort=0.5)
"""The largest gamma has no neighbour to start from."""

SHORT = GradientDescent(
    steps=9, step=0.2, momentum=0.5, forgetting=0.6, scaling="adam", schedule="cosine",
    patience=None,
)  # fmt: skip
"""From a neighbour's answer a few annealed steps are enough; measured in benchmarks/path.py."""


@dataclass(frozen=True, eq=False, repr=False)
class CredibilityPath:
    """Profiles of the same inputs for several gamma, from the largest to the smallest."""

    gammas: tuple[float, ...]
    profiles: tuple[Profile, ...]

    @property
    def credibility(self) -> Tensor:
        """c+ along the path (G, N, K)."""
        return torch.stack([profile.credibility for profile in self.profiles])

    @property
    def risk(self) -> Tensor:
        """|x+ - x0|^2 along the path (G, N)."""
        return torch.stack([profile.risk for profile in self.profiles])

    @property
    def passes(self) -> Tensor:
        """Passes spent on each sample for the whole path (N,)."""
        return torch.stack([profile.passes for profile in self.profiles]).sum(0)

    def most_credible(self) -> Tensor:
        """The class that is ahead, along the path (G, N)."""
        return self.credibility.argmax(2)

    def switching_gamma(self) -> Tensor:
        """The largest gamma at which another class is ahead of the model's own (N,).

        0 where the model's class stays ahead along the whole path, NaN where a sample could not be
        solved. Smaller is more trustworthy: it takes a cheaper movement to change the answer.
        """
        first = self.profiles[0]
        switched = self.most_credible() != first.credence.nan_to_num(-torch.inf).argmax(1)
        gammas = torch.tensor(self.gammas, dtype=torch.float64, device=switched.device)
        found = (switched * gammas[:, None]).amax(0)
        solved = torch.stack([profile.usable for profile in self.profiles]).all(0)
        return torch.where(solved, found, torch.nan)

    def summary(self) -> str:
        """A few lines a person reads: for how many samples the answer changes, and where."""
        switch = self.switching_gamma()
        solved = switch[~switch.isnan()]
        changed = solved[solved > 0]
        lines = [
            f"{len(switch)} samples along {self._range()}",
            f"  {len(solved) - len(changed):>6} keep the model's class along the whole path",
            f"  {len(changed):>6} change it"
            + (f", at a gamma of {changed.median():.4g} (median)" if len(changed) else ""),
        ]
        if len(solved) < len(switch):
            lines.append(f"  {len(switch) - len(solved):>6} could not be solved")
        return "\n".join(lines)

    def _range(self) -> str:
        return f"{len(self.gammas)} gammas from {self.gammas[0]:.4g} to {self.gammas[-1]:.4g}"

    def __repr__(self) -> str:
        return f"CredibilityPath({self._range()}, {len(self.profiles[0])} samples)"


def credibility_path(
    clf: Classifier,
    x: Nested,
    gammas: Sequence[float],
    *,
    solver: Solver | None = None,
    bounds: Bounds | None = None,
    chunk_size: int = 128,
    progress: Progress = False,
) -> CredibilityPath:
    """Solve profiles for many gamma, each but the first at an eighth of the price of a solve.

    The largest gamma comes first, where x+ is near x0; every other solve starts from the answer for
    the next larger gamma. On networks with kinks such a path and separate solves may end in
    different basins; neither is always the better.

    On the embedded network the first gamma takes 60 passes and every other 12, where a solve by
    itself takes about 96: paths of 3, 5, 10 and 20 gammas take 83, 107, 165 and 282.

    Args:
        clf: the classifier.
        x: inputs as in `credibility`; None for a classifier that is bound to its inputs.
        gammas: at least two different positive numbers, in any order; close neighbours (a factor
            of 1.5 or so) are followed more exactly.
        solver: used for each gamma. By default `Hybrid(effort=0.5)` for the first and nine
            annealed steps for each of the others, which suits rough networks. They are always
            nine, so these profiles usually end as 'step limit'; how exact they are stands in
            `certificate.relative_stationarity`. For smooth models pass `LBFGS()`, which then
            converges in few steps; `Hybrid()` solves each gamma to the end, at about the price of a
            solve.
        bounds: as in `credibility`.
        chunk_size: as in `credibility`.
        progress: as in `credibility`.
    """
    clf, x0 = enter(clf, x)
    ordered = _descending(gammas)
    first, later = check_solver(solver, default=FIRST), check_solver(solver, default=SHORT)
    check_chunk_size(chunk_size)
    bounds = check_bounds(bounds, clf.free_values(x0))
    profiles: list[Profile] = []
    with undisturbed(x0) as x0, ticking(progress) as tick:
        check_model(clf, x0)
        for number, gamma in enumerate(ordered):
            weights = resolve_weights(clf, x0, gamma=gamma, weights=None)
            problem = FitRiskProblem(clf, x0, weights, clf.limits(bounds))
            start = problem.project(clf.encode(profiles[-1].perturbed)) if profiles else None
            chosen = first if start is None else later
            profiles.append(
                solved_profile(problem, chosen, chunk_size=chunk_size, start=start, bounds=bounds)
            )
            if tick is not None:
                tick((number + 1) / len(ordered))
    return CredibilityPath(tuple(ordered), tuple(profiles))


def _descending(gammas: Sequence[float]) -> list[float]:
    several = list(gammas) if isinstance(gammas, Iterable) else [gammas]
    values = sorted({positive(gamma, "gammas") for gamma in several}, reverse=True)
    if len(values) < 2:
        raise InvalidArgumentError(
            "gammas",
            expected="at least two different positive numbers",
            got=f"{several[:8]}",
            remedy="For example torch.logspace(4, 1, 20).tolist(); for one gamma use credibility.",
        )
    return values
