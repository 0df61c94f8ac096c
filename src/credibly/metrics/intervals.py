"""Intervals by the percentile bootstrap over samples.

Draws depend on the seed and the number of samples alone: scores of the same samples are always
compared on the same resamples. The metrics of this package sort once and count; any other function
of the arrays is called once a resample.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from credibly.decide.arguments import plain_tensor
from credibly.errors import InvalidArgumentError
from credibly.metrics.measures import prepared
from credibly.metrics.ranking import Weigh
from credibly.profile.arguments import check_seed
from credibly.types import Array, real_number, whole_number

_AT_A_TIME = 1 << 20
"""Weights held at a time: 8 MiB, which stays in the cache of most processors."""

Metric = Callable[..., Any]


@dataclass(frozen=True)
class Interval:
    """A value and the ends of its interval.

    Attributes:
        value: the metric of the samples as they are.
        low: its lower end over resamples.
        high: its upper end.
        level: share of the resamples between the two.
    """

    value: float
    low: float
    high: float
    level: float = 0.95

    def contains(self, number: float) -> bool:
        """Whether a number lies inside; a difference whose interval holds 0 shows nothing."""
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

    Resamples in which the metric is not defined (no failure was drawn, say) are left out; the
    interval is NaN if that holds for all.

    Args:
        metric: a function of the arrays that gives one number, such as `aurc`. Settings go in by
            `functools.partial(fpr_at_tpr, tpr=0.9)`.
        *arrays: one entry a sample each.
        n: resamples.
        level: share of them that the interval holds.
        seed: of the resamples.
        paired: whether entry i of all arrays is one sample, drawn together. None: true, except for
            `auroc`, `aupr` and `fpr_at_tpr`, whose two groups are drawn one by one.
    """
    _check_settings(n, level)
    seed = check_seed(seed)
    fast = prepared(metric, arrays)
    if fast is None:
        fast = _by_rows(metric, arrays, separate=paired is False), paired is False
    elif paired is not None and paired is fast[1]:
        raise InvalidArgumentError(
            "paired",
            expected=f"{not fast[1]} for this metric",
            got=repr(paired),
            remedy="Leave it out.",
        )
    weigh, separate = fast
    draws = _Draws(_sizes(arrays, separate=separate), n, seed, _device(arrays))
    return _interval(weigh, draws, level)


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
        n: resamples.
        level: share of them that the interval holds.
        seed: of the resamples.
    """
    _check_settings(n, level)
    seed = check_seed(seed)
    sides = [(score_a, correct), (score_b, correct if correct_b is None else correct_b)]
    weighs = []
    for side in sides:
        fast = prepared(metric, side)
        if fast is not None and fast[1]:
            raise InvalidArgumentError(
                "metric",
                expected="a metric of scores and `correct`",
                got=getattr(metric, "__name__", repr(metric)),
                remedy="For failures use failure_auroc, failure_aupr or failure_fpr_at_tpr.",
            )
        weighs.append(_by_rows(metric, side, separate=False) if fast is None else fast[0])
    sizes = _sizes([array for side in sides for array in side], separate=False)
    first, second = weighs
    draws = _Draws(sizes, n, seed, _device([score_a]))
    return _interval(lambda weights: first(weights) - second(weights), draws, level)


@dataclass(frozen=True)
class _Draws:
    """n resamples as weights (b, total), in pieces; each group keeps its size."""

    sizes: Sequence[int]
    n: int
    seed: int
    device: torch.device

    def once(self) -> Tensor:
        """The samples as they are."""
        return torch.ones(1, sum(self.sizes), dtype=torch.float64, device=self.device)

    def __iter__(self) -> Iterator[Tensor]:
        generator = torch.Generator().manual_seed(self.seed)
        most = max(1, _AT_A_TIME // sum(self.sizes))
        for first in range(0, self.n, most):
            count = min(most, self.n - first)
            groups = [_counts(size, count, generator) for size in self.sizes]
            yield torch.cat(groups, dim=1).to(self.device)


def _interval(weigh: Weigh, draws: _Draws, level: float) -> Interval:
    value = float(_one_number(weigh(draws.once())))
    values = torch.cat([_one_number(weigh(weights)) for weights in draws])
    tail = (1 - level) / 2
    low, high = values.nanquantile(values.new_tensor([tail, 1 - tail])).tolist()
    return Interval(value, low, high, level)


def _counts(size: int, count: int, generator: torch.Generator) -> Tensor:
    drawn = torch.randint(size, (count, size), generator=generator)
    drawn += size * torch.arange(count).unsqueeze(1)
    return torch.bincount(drawn.flatten(), minlength=count * size).reshape(count, size).double()


def _by_rows(metric: Metric, arrays: Sequence[Array], *, separate: bool) -> Weigh:
    """Any function of arrays as one of weights: it is called on the rows that were drawn."""
    tensors = [plain_tensor(array, "arrays") for array in arrays]
    lengths = [len(tensor) for tensor in tensors]

    def call(times: Tensor) -> Tensor:
        parts = torch.split(times, lengths) if separate else [times] * len(tensors)
        chosen = [
            tensor.repeat_interleave(part.to(tensor.device), dim=0)
            for tensor, part in zip(tensors, parts, strict=True)
        ]
        return torch.as_tensor(metric(*chosen), dtype=torch.float64)

    return lambda weights: torch.stack([call(row.long()) for row in weights])


def _one_number(values: Tensor) -> Tensor:
    flat = values.reshape(len(values), -1)
    if flat.shape[1] != 1:
        raise InvalidArgumentError(
            "metric",
            expected="one number",
            got=f"{flat.shape[1]}",
            remedy="Ask for one at a time: functools.partial(accuracy_at_coverage, coverages=0.9).",
        )
    return flat.squeeze(1)


def _sizes(arrays: Sequence[Array], *, separate: bool) -> list[int]:
    lengths = [len(array) for array in arrays]
    if not lengths or 0 in lengths:
        raise InvalidArgumentError(
            "arrays",
            expected="at least one sample",
            got=f"lengths {lengths}",
            remedy="Check them.",
        )
    if separate:
        return lengths
    if len(set(lengths)) > 1:
        raise InvalidArgumentError(
            "arrays",
            expected="one entry a sample in each",
            got=f"lengths {lengths}",
            remedy="For groups of their own pass paired=False.",
        )
    return lengths[:1]


def _device(arrays: Sequence[Array]) -> torch.device:
    first = arrays[0] if arrays else None
    return first.device if isinstance(first, Tensor) else torch.device("cpu")


def _check_settings(n: int, level: float) -> None:
    count, share = whole_number(n), real_number(level)
    if count is None or count < 1:
        raise InvalidArgumentError(
            "n", expected="a whole number >= 1", got=repr(n), remedy="1000 is usual."
        )
    if share is None or not 0 < share < 1:
        raise InvalidArgumentError(
            "level", expected="a share in (0, 1)", got=repr(level), remedy="0.95 is usual."
        )
