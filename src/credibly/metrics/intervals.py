"""Intervals by the percentile bootstrap over samples.

The draws depend only on the seed and the number of samples, so scores of the same samples are
always compared on the same resamples. The metrics of this package sort once and count; any other
function is called once per resample.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from credibly._validation import plain_tensor, require, share, whole
from credibly._validation import seed as check_seed
from credibly.metrics import detection, selective
from credibly.metrics.ranking import FailureCounts, GroupCounts, rank_failures, rank_groups
from credibly.types import CPU, Array

_DRAWN = 1 << 20  # weights drawn at a time
_AT_A_TIME = 1 << 18  # weights handled at a time; they fit into the cache of most processors
_EXACT = 1 << 24  # float32 counts exactly up to here

Metric = Callable[..., Any]
Weigh = Callable[..., Tensor]
"""A metric of prepared data: weights (n, b) of each group -> values (b,)."""


@dataclass(frozen=True)
class Interval:
    """A value and the ends of its interval.

    Attributes:
        value: the metric of the samples as they are.
        low: its lower end over resamples.
        high: its upper end.
        level: share of the resamples between the two.

    Example:
        >>> from credibly.metrics import Interval
        >>> print(Interval(0.25, 0.125, 0.5), Interval(0.25, 0.125, 0.5).contains(0))
        0.25 [0.125, 0.5] False
    """

    value: float
    low: float
    high: float
    level: float = 0.95

    @staticmethod
    def of(value: float, values: Tensor, level: float = 0.95) -> Interval:
        """The interval that holds the share `level` of the resampled values; NaN do not count."""
        tail = (1 - level) / 2
        low, high = values.nanquantile(values.new_tensor([tail, 1 - tail])).tolist()
        return Interval(value, low, high, level)

    def contains(self, number: float) -> bool:
        """Whether a number lies inside; a difference whose interval contains 0 shows nothing."""
        return self.low <= number <= self.high

    def __str__(self) -> str:
        return f"{self.value:.4g} [{self.low:.4g}, {self.high:.4g}]"


def bootstrap(
    metric: Metric,
    *arrays: Array,
    n: int = 1000,
    level: float = 0.95,
    seed: int = 0,
    paired: bool | None = None,
) -> Interval:
    """The metric of the arrays with its percentile interval.

    Resamples in which the metric is not defined (no failure was drawn, say) are left out. If it is
    defined in none, the interval is NaN.

    Args:
        metric: a function of the arrays that gives one number, such as `aurc`. Pass settings with
            `functools.partial(fpr_at_tpr, tpr=0.9)`.
        *arrays: each with one entry per sample.
        n: number of resamples.
        level: share of the resamples that the interval contains.
        seed: of the resamples.
        paired: whether entry i of all arrays is one sample, drawn together. None: true, except for
            `auroc`, `aupr` and `fpr_at_tpr`, whose two groups are drawn separately.

    Example:
        >>> import torch, credibly as cr
        >>> score, correct = torch.arange(100.0), torch.arange(100) % 10 > 0
        >>> found = cr.metrics.bootstrap(cr.metrics.aurc, score, correct)
        >>> found.low < found.value < found.high
        True
    """
    n, level, seed = whole("n", n), share("level", level), check_seed(seed)
    fast = _prepare(metric, arrays)
    if fast is None:
        separate = paired is False
        weigh = _by_rows(metric, arrays, separate=separate)
    else:
        weigh, separate = fast
        good = paired is None or paired is not separate
        require(good, "paired", f"{not separate} for this metric", repr(paired), "Leave it out.")
    return _interval(weigh, _sizes(arrays, separate=separate), n, level, seed)


def paired_difference(
    metric: Metric,
    score_a: Array,
    score_b: Array,
    correct: Array,
    *,
    correct_b: Array | None = None,
    n: int = 1000,
    level: float = 0.95,
    seed: int = 0,
) -> Interval:
    """metric(score_a, correct) - metric(score_b, correct), both on the same resamples.

    Args:
        metric: a function of scores and `correct`, such as `aurc`.
        score_a: one score of trust (n,).
        score_b: the other, of the same samples.
        correct: whether each prediction is right (n,).
        correct_b: the same for `score_b`, where it belongs to other predictions.
        n: number of resamples.
        level: share of the resamples that the interval contains.
        seed: of the resamples.

    Example:
        >>> import torch, credibly as cr
        >>> score, correct = torch.arange(100.0), torch.arange(100) % 10 > 0
        >>> print(cr.metrics.paired_difference(cr.metrics.aurc, score, 2 * score, correct))
        0 [0, 0]
    """
    n, level, seed = whole("n", n), share("level", level), check_seed(seed)
    sides = [(score_a, correct), (score_b, correct if correct_b is None else correct_b)]
    first, second = (_of_one_sample(metric, side) for side in sides)
    sizes = _sizes([array for side in sides for array in side], separate=False)
    return _interval(lambda w: first(w) - second(w), sizes, n, level, seed)


def draws(sizes: Sequence[int], count: int, seed: int) -> Iterator[list[Tensor]]:
    """Weights (size, b) of each group, in pieces, `count` resamples in all."""
    generator = torch.Generator().manual_seed(seed)
    total = sum(sizes)
    dtype = torch.float32 if total < _EXACT else torch.float64
    most, few = (max(1, limit // total) for limit in (_DRAWN, _AT_A_TIME))
    for first in range(0, count, most):
        piece = min(most, count - first)
        groups = [_counts(size, piece, generator).to(dtype) for size in sizes]
        for part in zip(*(torch.split(group, few) for group in groups), strict=True):
            yield [group.T.contiguous() for group in part]


def _counts(size: int, count: int, generator: torch.Generator) -> Tensor:
    drawn = torch.randint(size, (count, size), generator=generator)
    drawn += size * torch.arange(count, device=CPU).unsqueeze(1)
    return torch.bincount(drawn.flatten(), minlength=count * size).reshape(count, size)


_OF_FAILURES: dict[Metric, Callable[..., Tensor]] = {
    selective.aurc: FailureCounts.aurc,
    selective.e_aurc: FailureCounts.e_aurc,
    selective.augrc: FailureCounts.augrc,
    selective.accuracy_at_coverage: FailureCounts.accuracy_at,
    selective.coverage_at_accuracy: FailureCounts.coverage_at,
    detection.failure_auroc: FailureCounts.auroc,
    detection.failure_aupr: FailureCounts.aupr,
    detection.failure_fpr_at_tpr: FailureCounts.fpr_at,
}
_OF_GROUPS: dict[Metric, Callable[..., Tensor]] = {
    detection.auroc: GroupCounts.auroc,
    detection.aupr: GroupCounts.aupr,
    detection.fpr_at_tpr: GroupCounts.fpr_at,
}


def _prepare(metric: Metric, arrays: Sequence[Array]) -> tuple[Weigh, bool] | None:
    """A metric of this package as a function of weights, and whether it has two groups.

    A `functools.partial` with keywords is looked into. None for any other function.
    """
    settings: dict[str, Any] = {}
    if isinstance(metric, partial) and not metric.args:
        settings, metric = metric.keywords, metric.func
    if not isinstance(metric, Hashable) or metric not in _OF_FAILURES | _OF_GROUPS:
        return None
    require(len(arrays) == 2, "arrays", "two for this metric", str(len(arrays)), "See its help.")
    if metric in _OF_GROUPS:
        groups = rank_groups(*arrays)
        return lambda p, n: _OF_GROUPS[metric](groups.count(p, n), **settings), True
    ranking = rank_failures(*arrays)
    return lambda w: _OF_FAILURES[metric](ranking.count(w), **settings), False


def _of_one_sample(metric: Metric, arrays: tuple[Array, Array]) -> Weigh:
    fast = _prepare(metric, arrays)
    if fast is None:
        return _by_rows(metric, arrays, separate=False)
    weigh, separate = fast
    name = getattr(metric, "__name__", repr(metric))
    remedy = "For failures use failure_auroc, failure_aupr or failure_fpr_at_tpr."
    require(not separate, "metric", "a metric of scores and `correct`", name, remedy)
    return weigh


def _by_rows(metric: Metric, arrays: Sequence[Array], *, separate: bool) -> Weigh:
    """Any function of arrays as one of weights: it is called on the rows that were drawn."""
    tensors = [plain_tensor(array, "arrays") for array in arrays]

    def call(times: tuple[Tensor, ...]) -> Tensor:
        each = zip(tensors, times if separate else times * len(tensors), strict=True)
        rows = [tensor.repeat_interleave(k.to(tensor.device), dim=0) for tensor, k in each]
        return torch.as_tensor(metric(*rows), dtype=torch.float64)

    return lambda *weights: torch.stack(
        [call(columns) for columns in zip(*(w.long().T for w in weights), strict=True)], dim=-1
    )


def _interval(weigh: Weigh, sizes: list[int], n: int, level: float, seed: int) -> Interval:
    value = _one_number(
        weigh(*(torch.ones(size, 1, dtype=torch.float64, device=CPU) for size in sizes))
    )
    values = [_one_number(weigh(*weights)) for weights in draws(sizes, n, seed)]
    return Interval.of(float(value), torch.cat(values), level)


def _one_number(values: Tensor) -> Tensor:
    """Values (b,) of a metric that gives one number per resample."""
    flat = values.reshape(-1, values.shape[-1])
    remedy = "Ask for one at a time: functools.partial(accuracy_at_coverage, coverages=0.9)."
    require(len(flat) == 1, "metric", "one number", str(len(flat)), remedy)
    return flat[0]


def _sizes(arrays: Sequence[Array], *, separate: bool) -> list[int]:
    lengths = [len(array) for array in arrays]
    got = f"lengths {lengths}"
    require(0 not in (lengths or [0]), "arrays", "at least one sample", got, "Check them.")
    if separate:
        return lengths
    remedy = "For separate groups pass paired=False."
    require(len(set(lengths)) == 1, "arrays", "one entry per sample in each", got, remedy)
    return lengths[:1]
