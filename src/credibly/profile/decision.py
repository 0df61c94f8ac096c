"""Profiles that are good enough to decide by, at a known price; see `solve/fixed.py`."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from credibly.model.derivatives import FORWARD
from credibly.model.memory import in_chunks
from credibly.model.recorded import Faster
from credibly.problem.fit_risk import FitRiskProblem, Point
from credibly.problem.recorded import key_of, without_samples
from credibly.problem.rows import FULL, filled_up, spread
from credibly.profile.certificate import Certificate, explained
from credibly.profile.profile import Profile
from credibly.profile.settings import Settings
from credibly.solve.fixed import FixedDescent
from credibly.solve.status import Status
from credibly.types import Model, finite_rows, norm, per_sample

Descend = Callable[[FitRiskProblem, FixedDescent], tuple[Point, Point]]


def decision_profile(
    problem: FitRiskProblem,
    descent: FixedDescent,
    settings: Settings,
    *,
    chunk_size: int,
    recorded: bool = True,
) -> Profile:
    """The profile by a descent of fixed length: T + 1 passes per sample and nothing more.

    All numbers come from the passes of the descent. The certificate has the objective, the decrease
    and the stationarity at the best point; nothing around it was searched. With a draft, the
    stationarity is as near to the exact one as its gradients are.

    It is `recorded` where the classifier has a recorder: not if gamma was found from these inputs,
    since hardly any other batch then asks the same again.
    """
    descend = _descend if recorded else _descend_as_it_is
    if chunk_size >= FULL and problem.repeatable and problem.variable.clf.recorder is None:
        descend = partial(_descend_filled_up, descend)
        chunk_size -= chunk_size % FULL  # copies keep to it, too
    work = lambda rows: _decide(problem.select(rows), descent, settings, descend)  # noqa: E731
    return Profile.concatenate(list(in_chunks(len(problem), chunk_size, work)))


def _decide(
    problem: FitRiskProblem, descent: FixedDescent, settings: Settings, descend: Descend
) -> Profile:
    known = finite_rows(problem.x0)
    everyone = bool(known.all())  # the one look at values: nothing else here waits for a GPU
    placed = _as_it_is if everyone else partial(spread, rows=known)
    clean = problem if everyone else problem.select(known)
    start = best = _nothing(clean)
    if len(clean):
        start, best = descend(clean, descent)
    certificate, variable = _certificate(clean, start, best), problem.variable
    exact = 0.0 if variable.drafted() is None else 2 * FORWARD
    spent = torch.full_like(best.objective, descent.passes + exact, dtype=torch.float64)
    codes, x = explained(_codes(start), certificate), placed(best.x)
    if not everyone:
        codes = spread(codes, known, Status.NON_FINITE_INPUT)
        spent, x = spread(spent, known, 0.0), torch.where(per_sample(known, x), x, problem.x0)
    return Profile(
        credibility=-placed(best.losses),
        credence=-placed(start.losses),
        risk=placed(clean.risk(best.x)),
        multipliers=placed(clean.multipliers(best.losses)),
        certificate=Certificate(**{n: placed(v) for n, v in vars(certificate).items()}),
        passes=spent,
        codes=codes,
        settings=settings,
        x0=variable.decode(problem.x0),
        perturbed=variable.decode(x),
        steps=torch.full_like(codes, descent.steps, dtype=torch.long),
        kept=variable.kept_classes,
    )


def _as_it_is(values: Tensor) -> Tensor:
    return values


def _nothing(problem: FitRiskProblem) -> Point:
    """A point of problems that cannot be evaluated: NaN."""
    unknown = torch.full_like(problem.x0, torch.nan)
    losses = problem.x0.new_full((len(problem), len(problem.weights)), torch.nan)
    return Point(problem.x0, losses, losses.sum(1), unknown)


def _descend(problem: FitRiskProblem, descent: FixedDescent) -> tuple[Point, Point]:
    """The starting points and the best ones; replayed where the classifier has a recorder."""
    recorder, given = problem.variable.clf.recorder, problem.variable.tensors()
    plain = problem.bounds is None or not isinstance(problem.bounds[0], Tensor)
    if recorder is None or given is None or not plain:
        return _descend_as_it_is(problem, descent)
    work = partial(_again, without_samples(problem), descent)
    found = recorder.run(_key(problem, descent), work, given)
    half = len(found) // 2
    return Point(*found[:half]), Point(*found[half:])


def _descend_filled_up(
    descend: Descend, problem: FitRiskProblem, descent: FixedDescent
) -> tuple[Point, Point]:
    """The same, with copies; see `filled_up`."""
    rows = filled_up(len(problem), problem.x0.device)
    start, best = descend(problem.select(rows), descent)
    return start.select(slice(0, len(problem))), best.select(slice(0, len(problem)))


def _descend_as_it_is(problem: FitRiskProblem, descent: FixedDescent) -> tuple[Point, Point]:
    return _descend_with(problem, descent, problem.variable.clf.draft)


def _descend_with(
    problem: FitRiskProblem, descent: FixedDescent, draft: Model | None
) -> tuple[Point, Point]:
    drafted = None if draft is None else problem.variable.drafted()
    return descent.run(problem, None if drafted is None else replace(problem, variable=drafted))


def _again(
    problem: FitRiskProblem, descent: FixedDescent, given: tuple[Tensor, ...], faster: Faster
) -> tuple[Tensor, ...]:
    """The same descent of other samples, asked of other forms of the networks."""
    clf, draft = problem.variable.clf, problem.variable.clf.draft
    quick = clf.with_net(faster(clf.net))
    quick.draft = None if draft is None else faster(draft)
    variable = problem.variable.with_tensors(given, quick)
    found = _descend_with(replace(problem, variable=variable), descent, quick.draft)
    return tuple(part for point in found for part in vars(point).values())


def _key(problem: FitRiskProblem, descent: FixedDescent) -> Hashable:
    """All that a descent depends on but the samples."""
    return descent, problem.bounds, *key_of(problem)


def _codes(start: Point) -> Tensor:
    """How each sample ended: the length is fixed, so a usable one ends at its last step."""
    sane = torch.isfinite(start.objective) & finite_rows(start.gradient)
    moves = (start.gradient != 0).flatten(1).any(1)
    codes = torch.full_like(sane, Status.STEP_LIMIT, dtype=torch.int8)
    codes[sane & ~moves] = Status.NO_GRADIENT
    codes[~sane] = Status.NON_FINITE_MODEL
    return codes


def _certificate(problem: FitRiskProblem, start: Point, best: Point) -> Certificate:
    unknown = torch.full_like(best.objective, torch.nan)
    zero = torch.zeros_like(best.objective)
    return Certificate(**{
        "objective": best.objective,
        "stationarity": norm(problem.free_gradient(best)),
        "relative_stationarity": problem.relative_stationarity(best),
        "decrease": start.objective - best.objective,
        **dict.fromkeys(("fixed_point", "feasibility", "slackness"), zero),  # c = -l by definition
        **dict.fromkeys(("tradeoff", "hull"), unknown),
    })  # fmt: skip
