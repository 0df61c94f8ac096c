"""The inequality of Definition 2, checked at many other inputs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from credibly import _validation as check
from credibly._validation import require
from credibly.model.bind import encoded
from credibly.model.classifier import Classifier
from credibly.model.derivatives import undisturbed
from credibly.model.variable import Variable
from credibly.problem.fit_risk import FitRiskProblem
from credibly.profile.profile import Profile
from credibly.solve.base import reach
from credibly.theory.neighbours import checked_variable, solved_chunks, unit, unit_noise
from credibly.types import Array, per_sample

RADII = (0.01, 0.1, 0.5)  # of the neighbourhoods, relative to |x+ - x0|
BETWEEN = (0.0, 0.25, 0.5, 0.75, 0.9, 0.99)  # points of the segment from x0 (0) to x+ (1)
KINDS = ("random directions", "gradient directions", "between x0 and x+")  # always tried


@dataclass(frozen=True, eq=False)
class TradeOff:
    """Where the trade-off inequality holds among inputs x' that are not x+.

    Attributes:
        margins: for each kind of x', (F(x') - F(x+)) / F(x+) at every one tried (n, tries). Where
            it is negative the inequality fails: x' balances fit and risk better than x+.

    Example: see docs/theory.md.
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

    Example: see docs/theory.md.
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
    require(
        mapping and not set(others) & set(KINDS),
        "others",
        f"a mapping from names, other than {list(KINDS)}, to inputs",
        f"{list(others)}" if mapping else type(others).__name__,
        "For example others={'attack': x_attacked}.",
    )
    return {name: encoded(variable, x, name=f"others[{name!r}]") for name, x in others.items()}
