"""Thresholds on a score: for a coverage, for an error rate, or for a rate of false alarms."""

from __future__ import annotations

import math
import sys
import warnings
from bisect import bisect_left
from collections.abc import Iterator
from functools import partial

import torch
from torch import Tensor

from credibly._validation import require, share
from credibly.errors import CrediblyWarning, InvalidArgumentError
from credibly.types import CPU

ENOUGH = 50
"""Scores in a sample from which its usual range is known."""

FAR = 100.0
"""Times the lower half of the spread: a threshold further below is due to strange inputs."""

LEVELS = 20
"""Coverages that are tested for a promised error rate, each with this share of the allowed error.
More of them would find a finer threshold by a stricter test."""

EVERYTHING = -sys.float_info.max
"""The threshold that every score reaches, as a number that JSON can hold."""

ERROR_RATES = tuple(
    float(f"{digits}e{power}") for power in range(-8, -1) for digits in range(10, 100)
)
"""Error rates of two digits, in rising order: those that an error message names as possible."""


def for_coverage(score: Tensor, coverage: float) -> float:
    """Largest threshold that accepts (score >= threshold) at least this share of the sample.

    Ties are accepted together. Samples without a score (NaN) do not count.
    """
    asked = share("coverage", coverage, closed=True)
    values = _known(score)
    kept = max(1, math.ceil(asked * len(values) - 1e-9))
    return float(values.sort(descending=True).values[kept - 1])


def for_error_rate(score: Tensor, correct: Tensor, error_rate: float, confidence: float) -> float:
    """Smallest threshold for which the error rate among the accepted is at most `error_rate`.

    With probability at least `confidence` over the labelled sample, at most the share `error_rate`
    of the accepted predictions on new samples of the same kind is wrong, for any score that was
    chosen without these labels. `LEVELS` coverages, fixed beforehand, are tested, each by the exact
    binomial test at its share of the allowed error (Bonferroni; the bound is that of Geifman and
    El-Yaniv 2017). Given the m-th largest score, the samples strictly above it are independent
    draws of what a threshold just above it accepts, with or without ties. The tests bound the error
    rates of all coverages at once, so the smallest error rate that can be promised, which the error
    message names, may be asked for next.
    """
    rate, sure = share("error_rate", error_rate), share("confidence", confidence)
    known = ~score.isnan()
    values, order = score[known].double().sort(descending=True)
    wrong = ~correct[known].bool()[order]
    allowed = (1 - sure) / LEVELS
    for threshold, kept, errors in _levels(values, wrong):
        if _passes(errors, kept, allowed, rate):
            return threshold
    raise InvalidArgumentError(
        "labels",
        expected="enough labelled samples, right often enough, to promise an error rate of "
        f"{rate:g} with confidence {sure:g}",
        got=f"{len(values)} samples, {int(wrong.sum())} of them wrong",
        remedy=f"At least {samples_needed(rate, sure)} accepted samples without an error are "
        "needed, and more with some. Allow a larger error rate, or bring more labelled samples. "
        + _possible(values, wrong, allowed, len(score)),
    )


def samples_needed(error_rate: float, confidence: float) -> int:
    """Accepted samples without any error from which `for_error_rate` can promise anything."""
    return math.ceil(math.log((1 - confidence) / LEVELS) / math.log1p(-error_rate))


def for_false_alarms(score: Tensor, rate: float, *, unsolved_are_flagged: bool = False) -> float:
    """Threshold below which at most this share of ordinary inputs falls, from a sample of them.

    Over the draw of the sample and of one more ordinary input, the chance of flagging it (score <
    threshold) is at most `rate`, exactly, for any distribution (split conformal). Samples without a
    score (NaN) are left out, and the rate is then that among inputs with one; with
    `unsolved_are_flagged` they count as the lowest, and the rate is that of all inputs.
    """
    rate = share("false_alarms", rate)
    values = _known(score).sort().values
    unsolved = len(score) - len(values) if unsolved_are_flagged else 0
    count = len(values) + unsolved
    rank = min(count, math.floor(rate * (count + 1) + 1e-9))
    needed = math.ceil(1 / rate - 1 - 1e-9)
    expected = f"at least {needed} ordinary samples for a rate of {rate:g}"
    remedy = "Bring more, or allow more false alarms."
    require(rank >= 1, "profile", expected, f"{count}", remedy)
    expected = (
        f"at most {rank - 1} of {count} samples without a profile, since they are flagged and "
        f"count as false alarms, for a rate of {rate:g}"
    )
    remedy = "Look at profile.status, or allow more false alarms."
    require(rank > unsolved, "profile", expected, f"{unsolved}", remedy)
    threshold = float(values[rank - unsolved - 1])
    _warn_of_strange_inputs(values, threshold)
    return threshold


def describe(threshold: float) -> str:
    """Which scores a threshold rejects."""
    return "no score is too low" if threshold <= EVERYTHING else f"score below {threshold:.4g}"


def _warn_of_strange_inputs(values: Tensor, threshold: float) -> None:
    """Warn if the lowest of the sorted values are so far out that the threshold passes anything."""
    if len(values) < ENOUGH:
        return
    low, middle = (float(values[len(values) // part]) for part in (4, 2))
    if middle - threshold > FAR * (middle - low) > 0:
        warnings.warn(
            f"the threshold, {threshold:.4g}, lies far below what is usual in the sample (median "
            f"{middle:.4g}, lower quartile {low:.4g}): some of its inputs are not ordinary, and "
            "inputs like them will raise no alarm. Leave them out",
            CrediblyWarning,
            stacklevel=4,
        )


def _levels(values: Tensor, wrong: Tensor) -> Iterator[tuple[float, int, int]]:
    """Threshold, accepted and wrong among them, of each coverage from the largest down.

    The scores are sorted from the top. Coverages that accept nothing are left out.
    """
    count = len(values)
    for level in range(LEVELS if count else 0, 0, -1):
        if level == LEVELS:
            threshold, kept = EVERYTHING, count
        else:
            border = float(values[math.ceil(level * count / LEVELS) - 1])
            # just above it, not at the next score seen: scores in between are accepted, too
            threshold = math.nextafter(border, math.inf)
            kept = int((values > border).sum())
        if kept:
            yield threshold, kept, int(wrong[:kept].sum())


def _possible(values: Tensor, wrong: Tensor, allowed: float, samples: int) -> str:
    """The smallest error rate that these samples can promise, and its coverage."""
    best, coverage = len(ERROR_RATES), 0.0
    for threshold, kept, errors in _levels(values, wrong):
        # coverages fall, so one that is no better need not be searched
        test = partial(_passes, errors, kept, allowed)
        if best and test(ERROR_RATES[best - 1]):
            best = bisect_left(ERROR_RATES, x=True, hi=best - 1, key=test)
            coverage = int((values >= threshold).sum()) / samples
    if best == len(ERROR_RATES):
        return "These samples can promise no error rate at this confidence."
    return (
        "The smallest error rate these samples can promise at this confidence is "
        f"{ERROR_RATES[best]:g}, at a coverage of {coverage:.2g}."
    )


def _passes(errors: int, count: int, allowed: float, error_rate: float) -> bool:
    return _binomial_cdf(errors, count, error_rate) <= allowed


def _binomial_cdf(errors: int, count: int, error_rate: float) -> float:
    """P(at most `errors` of `count` | each with chance `error_rate`), summed in log space."""
    k = torch.arange(errors + 1, dtype=torch.float64, device=CPU)
    n = torch.tensor(float(count), dtype=torch.float64, device=CPU)
    logs = (
        torch.lgamma(n + 1) - torch.lgamma(k + 1) - torch.lgamma(n - k + 1)
        + k * math.log(error_rate) + (n - k) * math.log1p(-error_rate)
    )  # fmt: skip
    return float(torch.logsumexp(logs, 0).exp())


def _known(score: Tensor) -> Tensor:
    values = score[~score.isnan()].double()
    got = f"{len(score)} samples, none of them"
    expected, remedy = "at least one sample that was solved", "Look at profile.status."
    require(len(values) > 0, "profile", expected, got, remedy)
    return values
