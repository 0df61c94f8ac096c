"""The one loop that runs every solver; each sample stops by itself and keeps its best point.

Samples that are done leave the batch. It shrinks to one of a few sizes only, because convolution
libraries prepare code and buffers for each size. The work is cut into chunks to bound memory;
samples do not affect each other, so chunks change nothing but rounding.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from credibly.model.memory import in_chunks
from credibly.problem.fit_risk import FitRiskProblem, Point
from credibly.problem.rows import FULL, Rows, filled_up
from credibly.solve.base import Solver, Stage, State
from credibly.solve.status import Status
from credibly.types import finite_rows

Tick = Callable[[float], None]
"""Called with the share of the samples that is done, between 0 and 1."""


@dataclass(frozen=True)
class Solution(Rows):
    """The best point found for each sample, and how it was found."""

    x: Tensor
    status: Tensor  # (n,) codes of Status
    steps: Tensor  # (n,)
    passes: Tensor  # (n,)


def solve(
    problem: FitRiskProblem,
    solver: Solver,
    *,
    chunk_size: int,
    tick: Tick | None = None,
    start: Tensor | None = None,
) -> Solution:
    """Solve every problem of the batch, `chunk_size` at a time, from x0 or from `start`."""
    count, filled = len(problem), problem.repeatable and chunk_size >= FULL
    size = chunk_size - chunk_size % FULL if filled else chunk_size  # copies keep to it, too

    def work(rows: slice) -> Solution:
        base, share = rows.start / count, (rows.stop - rows.start) / count
        part, told = problem.select(rows), _scaled(tick, base, share)
        chunk = _Chunk(part, told, solver.stages(), filled=filled)
        return chunk.run(None if start is None else start[rows])

    return Solution.concatenate(list(in_chunks(count, size, work)))


def _scaled(tick: Tick | None, base: float, share: float) -> Tick:
    if tick is None:
        return lambda _: None
    return lambda done: tick(base + share * done)


class _Chunk:
    """The samples of one chunk; the results are filled in as samples finish."""

    def __init__(
        self, problem: FitRiskProblem, tick: Tick, stages: tuple[Stage[State], ...], *, filled: bool
    ) -> None:
        self.problem, self.tick, self.stages, self.filled = problem, tick, stages, filled
        count, device = len(problem), problem.x0.device
        self.x = problem.x0.clone()
        self.status = torch.full((count,), Status.RUNNING, dtype=torch.int8, device=device)
        self.steps = torch.zeros(count, dtype=torch.long, device=device)
        self.passes = torch.zeros(count, dtype=torch.float64, device=device)

    def run(self, start: Tensor | None) -> Solution:
        rows, best = self._first_look(start)
        for number, stage in enumerate(self.stages):
            if len(rows) == 0:
                break
            best = self._run_stage(stage, number, rows, best)
            again = self._goes_on(stage, rows, best)
            rows, best = rows[again], best.select(again)
        self.tick(1.0)
        return Solution(self.x, self.status, self.steps, self.passes)

    def _goes_on(self, stage: Stage[State], rows: Tensor, best: Point) -> Tensor:
        """Samples not done, also those that left the region where the model is finite."""
        status = self.status[rows]
        back = (status == Status.NON_FINITE_MODEL) & finite_rows(best.gradient)
        open_ = (status == Status.STALLED) | (status == Status.STEP_LIMIT) | back
        if stage.enough is None:
            return open_
        return open_ & ~(self.problem.select(rows).relative_stationarity(best) <= stage.enough)

    def _first_look(self, start: Tensor | None) -> tuple[Tensor, Point]:
        """Evaluate the starting points, and take out the samples that cannot be solved."""
        finite = finite_rows(self.problem.x0)
        self.status[~finite] = Status.NON_FINITE_INPUT
        rows = finite.nonzero().squeeze(1)
        if len(rows) == 0:
            return rows, _nothing(self.problem)
        begin = self.problem.x0 if start is None else start
        full = rows[self._filled(rows)]
        point = self.problem.select(full).evaluate(begin[full]).select(slice(0, len(rows)))
        self.passes[rows] += 1
        sane = torch.isfinite(point.objective) & finite_rows(point.gradient)
        # a vanishing gradient at x0 means a flat model; elsewhere it is the goal
        elsewhere = point.x != self.problem.x0[rows]
        moves = ((point.gradient != 0) | elsewhere).flatten(1).any(dim=1)
        self.status[rows[~sane]] = Status.NON_FINITE_MODEL
        self.status[rows[sane & ~moves]] = Status.NO_GRADIENT
        keep = sane & moves
        return rows[keep], point.select(keep)

    def _run_stage(self, stage: Stage[State], number: int, rows: Tensor, start: Point) -> Point:
        """Run one stage, and give the best point of each of its samples.

        What is only there to fill up the batch costs no passes: neither copies, nor samples that
        are done.
        """
        count, full = len(rows), self._filled(rows)
        rows, start = rows[full], start.select(full)
        problem = self.problem.select(rows)
        active = _Active.of(problem, start, samples=count)
        state, rule = stage.begin(problem, start), _StoppingRule.of(stage, start)
        self.passes[rows[:count]] += state.cost.double()[:count]
        finished, left = start.copy(), count
        for step in range(stage.steps):
            state = stage.advance(active.problem, state)
            running = rows[active.index]
            self.passes.index_add_(0, running, state.cost.double() * active.open)
            self.steps.index_add_(0, running, active.open.long())
            active.keep_best(state.visited)
            verdict = rule.judge(active.problem, state)
            done = active.open & (verdict != Status.RUNNING)
            still = int((active.open & ~done).sum())  # the only number that the CPU waits for
            if still < left:
                active.best = _prefer_converged(active.best, state.point, verdict)
                places = done.nonzero().squeeze(1)  # once: each mask is waited for
                ready, index = active.best.select(places), active.index[places]
                finished.write(index, ready)
                self._note(rows[index], ready, verdict[places])
                active.open = active.open & ~done
            left = still
            if left == 0:
                return finished.select(slice(0, count))
            if (size := batch_size(left, least=FULL if self.filled else 1)) < len(active.open):
                # the running samples, and finished ones that fill up the batch
                keep = active.open.byte().argsort(descending=True, stable=True)[:size]
                state, rule, active = state.select(keep), rule.select(keep), active.select(keep)
            self._report(number, (step + 1) / stage.steps, left)
        places = active.open.nonzero().squeeze(1)
        last, running = active.best.select(places), active.index[places]
        finished.write(running, last)
        self._note(rows[running], last, torch.full_like(running, Status.STEP_LIMIT))
        return finished.select(slice(0, count))

    def _filled(self, rows: Tensor) -> Tensor:
        """Places among `rows`, some of them twice if that makes results the same in any batch."""
        if self.filled:
            return filled_up(len(rows), rows.device)
        return torch.arange(len(rows), device=rows.device)

    def _note(self, rows: Tensor, point: Point, verdict: Tensor) -> None:
        self.x[rows] = point.x
        self.status[rows] = verdict.to(torch.int8)

    def _report(self, stage: int, share: float, active: int) -> None:
        total = len(self.problem)
        self.tick((total - active + active * (stage + share) / len(self.stages)) / total)


def batch_size(left: int, *, least: int = 1) -> int:
    """The smallest of 1 to 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, ... that is at least `left`.

    Of these only multiples of `least`.
    """
    unit = max(least, 1 << max(0, (left - 1).bit_length() - 3))
    return -(-left // unit) * unit


@dataclass
class _Active(Rows):
    """The samples in the batch: most of them running, a few finished and not yet removed."""

    index: Tensor  # row numbers among the samples of the stage
    problem: FitRiskProblem
    best: Point
    open: Tensor  # which of them still run

    def keep_best(self, visited: Point) -> None:
        """Keep what was just evaluated where it is the best so far."""
        better = visited.objective < self.best.objective
        self.best = self.best.replaced(visited, better)

    @staticmethod
    def of(problem: FitRiskProblem, start: Point, *, samples: int) -> _Active:
        """All of them; those after the first `samples` are copies, which only fill up."""
        everyone = torch.arange(len(problem), device=problem.x0.device)
        return _Active(everyone, problem, start, everyone < samples)


@dataclass
class _StoppingRule(Rows):
    """Judges samples by the residual, and by the progress since the last step that made some."""

    stage: Stage[State]
    tolerance: float
    objective: Tensor
    residual: Tensor
    idle: Tensor  # steps without progress

    @staticmethod
    def of(stage: Stage[State], point: Point) -> _StoppingRule:
        value, precision = point.objective, torch.finfo(point.objective.dtype).eps
        tolerance = precision**0.5 if stage.tolerance is None else stage.tolerance
        worst, idle = torch.full_like(value, torch.inf), torch.zeros_like(value)
        return _StoppingRule(stage, tolerance, value, worst, idle)

    def judge(self, problem: FitRiskProblem, state: State) -> Tensor:
        """A code of Status for each sample (n,)."""
        residual, objective = self.stage.residual(problem, state), state.point.objective
        least = torch.full_like(objective, self.stage.decrease)
        if self.stage.smooth > 0:
            smooth = problem.relative_stationarity(state.point) <= self.stage.smooth
            least = torch.where(smooth, 0.1 * least, least)
        progress = (objective <= (1 - least) * self.objective) | (residual <= 0.5 * self.residual)
        self.objective = torch.where(progress, objective, self.objective)
        self.residual = torch.where(progress, residual, self.residual)
        self.idle = torch.where(progress, 0.0, self.idle + 1)
        stuck = state.stuck
        if self.stage.patience is not None:
            stuck = stuck | (self.idle >= self.stage.patience)
        # `masked_fill`, since `verdict[mask] = ...` makes the CPU wait for a GPU
        verdict = torch.full_like(objective, Status.RUNNING, dtype=torch.int8)
        verdict = verdict.masked_fill(stuck, Status.STALLED)
        verdict = verdict.masked_fill(residual <= self.tolerance, Status.CONVERGED)
        return verdict.masked_fill(~torch.isfinite(objective), Status.NON_FINITE_MODEL)


def _prefer_converged(best: Point, current: Point, verdict: Tensor) -> Point:
    """Take the current point where it has converged and is as good as the best up to rounding."""
    slack = 1 + torch.finfo(best.objective.dtype).eps ** 0.5
    take = (verdict == Status.CONVERGED) & (current.objective <= slack * best.objective)
    return best.replaced(current, take)


def _nothing(problem: FitRiskProblem) -> Point:
    empty = problem.x0[:0]
    flat = empty.flatten(1)[:, 0] if empty.dim() > 1 else empty
    return Point(empty, flat.new_zeros(0, len(problem.weights)), flat, empty)
