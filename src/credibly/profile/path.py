"""Profiles for several gamma, each solve started from the answer for the next larger one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from credibly import _validation as check
from credibly.model.bind import bind
from credibly.model.checks import check_model
from credibly.model.classifier import Classifier
from credibly.model.derivatives import undisturbed
from credibly.model.structure import Nested
from credibly.model.variable import Variable
from credibly.problem.fit_risk import FitRiskProblem
from credibly.problem.weights import positive_gamma, resolve_weights
from credibly.profile.arguments import check_bounds, check_solver, ticking
from credibly.profile.credibility import solved_profile
from credibly.profile.profile import Profile
from credibly.solve.base import Solver
from credibly.solve.gradient_descent import Hybrid, annealed
from credibly.types import Bounds, Progress

FIRST = Hybrid(effort=0.5)  # for the largest gamma, which starts from x0
SHORT = annealed(9, 0.2, momentum=0.5, forgetting=0.6)  # enough, see benchmarks/path.py


@dataclass(frozen=True, eq=False, repr=False)
class CredibilityPath:
    """Profiles of the same inputs for several gamma, from the largest to the smallest.

    Example: see `credibility_path`.
    """

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
        """The most credible class along the path (G, N); -1 for others that were joined."""
        return torch.stack([p.classes_of(p.credibility.argmax(1)) for p in self.profiles])

    def switching_gamma(self) -> Tensor:
        """The largest gamma at which the most credible class is not the predicted one (N,).

        0 if they agree along the whole path, NaN for a sample that could not be solved. Smaller is
        more trustworthy: movement must be cheaper before the class changes.
        """
        switched = self.most_credible() != self.profiles[0].predicted
        gammas = torch.tensor(self.gammas, dtype=torch.float64, device=switched.device)
        found = (switched * gammas[:, None]).amax(0)
        solved = torch.stack([profile.usable for profile in self.profiles]).all(0)
        return torch.where(solved, found, torch.nan)

    def summary(self) -> str:
        """A few lines to read: for how many samples the class changes, and where."""
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
    clf: Classifier | Variable,
    x: Nested,
    gammas: Sequence[float],
    *,
    solver: Solver | None = None,
    bounds: Bounds | None = None,
    chunk_size: int = 128,
    progress: Progress = False,
) -> CredibilityPath:
    """Solve profiles for many gamma; each after the first costs an eighth of a separate solve.

    The largest gamma comes first, where x+ is near x0; every other solve starts from the answer for
    the next larger gamma. On networks with kinks a path and separate solves may end in different
    basins; neither is always better.

    On the embedded network the first gamma takes 65 passes and every other 12; a separate solve
    takes about 98. Paths of 3, 5, 10 and 20 gammas take 88, 111, 170 and 286 passes.

    Args:
        clf: the classifier.
        x: inputs as in `credibility`; None for a classifier that is bound to its inputs.
        gammas: at least two different positive numbers, in any order; small ratios (1.5 or so) give
            more exact results.
        solver: used for each gamma. By default `Hybrid(effort=0.5)` for the first and nine annealed
            steps for each of the others, which suits rough networks. There are always nine, so
            these profiles usually end as 'step limit'; `certificate.relative_stationarity` says how
            exact they are. For smooth models pass `LBFGS()`, which then converges in few steps;
            `Hybrid()` solves each gamma fully, at about the cost of a separate solve.
        bounds: as in `credibility`.
        chunk_size: as in `credibility`.
        progress: as in `credibility`.

    Example:
        >>> import torch, credibly as cr
        >>> clf = cr.Classifier(lambda x: x @ torch.tensor([[2.0, -2.0], [1.0, 0.0]]))
        >>> path = cr.credibility_path(clf, torch.tensor([[1.0, 2.0]]), [50.0, 5.0])
        >>> path.switching_gamma().tolist()
        [0.0]
    """
    variable = bind(clf, x)
    ordered = _descending(gammas)
    first, later = check_solver(solver, default=FIRST), check_solver(solver, default=SHORT)
    check.chunk_size(chunk_size)
    bounds = check_bounds(bounds, variable.free_values(variable.start))
    profiles: list[Profile] = []
    with undisturbed(variable) as variable, ticking(progress) as tick:
        check_model(variable)
        for number, gamma in enumerate(ordered):
            weights = resolve_weights(variable, gamma=gamma, weights=None)
            problem = FitRiskProblem(variable, weights, variable.limits(bounds))
            before = variable.encode(profiles[-1].perturbed) if profiles else None
            start = None if before is None else problem.project(before)
            chosen = first if start is None else later
            profiles.append(
                solved_profile(problem, chosen, chunk_size=chunk_size, start=start, bounds=bounds)
            )
            if tick is not None:
                tick((number + 1) / len(ordered))
    return CredibilityPath(tuple(ordered), tuple(profiles))


def _descending(gammas: Sequence[float]) -> list[float]:
    several = list(gammas) if isinstance(gammas, Iterable) else [gammas]
    values = sorted({positive_gamma(gamma, "gammas") for gamma in several}, reverse=True)
    check.require(
        len(values) > 1,
        "gammas",
        "at least two different positive numbers",
        f"{several[:8]}",
        "For example torch.logspace(4, 1, 20).tolist(); for one gamma use credibility.",
    )
    return values
