"""Thresholds on a score: for a coverage, for an error rate, or for a rate of false alarms."""

from __future__ import annotations

import math
import sys
import warnings
from bisect import bisect_left
from collections.abc import Iterator

from torch import Tensor

from credibly._validation import require, share
from credibly.errors import CrediblyWarning, InvalidArgumentError

ENOUGH = 50
"""Scores in a sample from which its usual range is known."""

FAR = 100.0
"""Times the lower half of the spread: a threshold further below is due to strange inputs."""

LEVELS = 20
"""Steps of the coverage from the first that is tested for a promised error rate to all samples."""

ALL = 0.1
"""Share of the allowed error of a promise that is spent on answering everything."""

EVERYTHING = -sys.float_info.max
"""The threshold that every score reaches, as a number that JSON can hold."""

ERROR_RATES = tuple(
    float(f"{digits}e{power}") for power in range(-4, -1) for digits in range(10, 100)
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
    chosen without these labels. Coverages, fixed beforehand, are tested from the smallest that can
    pass with one error upward, each by the exact binomial test at the full level, and the first
    failure ends it (fixed-sequence testing, as in Learn then Test, Angelopoulos and others 2021):
    the chance that any coverage passes wrongly is that of the first one that should not. A tenth of
    the error is spent on answering everything first. Given the m-th largest score, the samples
    strictly above it are independent draws of what a threshold just above it accepts, with or
    without ties.
    """
    rate, sure = share("error_rate", error_rate), share("confidence", confidence)
    known = ~score.isnan()
    values, order = score[known].double().sort(descending=True)
    wrong = ~correct[known].bool()[order]
    passed = _last_passing(values, wrong, rate, 1 - sure)
    if passed is not None:
        return passed
    raise InvalidArgumentError(
        "labels",
        expected="enough labelled samples, right often enough, to promise an error rate of "
        f"{rate:g} with confidence {sure:g}",
        got=f"{len(values)} samples, {int(wrong.sum())} of them wrong",
        remedy=f"At least {samples_needed(rate, sure)} accepted samples without an error are "
        "needed, and more with some. Allow a larger error rate, or bring more labelled samples. "
        + _possible(values, wrong, 1 - sure),
    )


def samples_needed(error_rate: float, confidence: float, *, errors: int = 0) -> int:
    """Accepted samples, with so many errors among them, from which a promise can be made."""
    allowed = 1 - confidence
    least = math.ceil(math.log((1 - ALL) * allowed) / math.log1p(-error_rate))
    if errors == 0:
        return least
    enough = range(least, 8 * (errors + 1) * (least + errors + 1))
    return enough[
        bisect_left(
            enough,
            x=True,
            key=lambda n: _binomial_cdf(errors, n, error_rate) <= (1 - ALL) * allowed,
        )
    ]


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


def _last_passing(values: Tensor, wrong: Tensor, rate: float, allowed: float) -> float | None:
    """The threshold of the largest coverage before the first that fails; scores are sorted.

    A tenth of the allowed error is spent on answering everything, which is right for a model that
    is good enough, however bad the score is.
    """
    count, passed = len(values), None
    if count and _binomial_cdf(int(wrong.sum()), count, rate) <= ALL * allowed:
        return EVERYTHING
    allowed *= 1 - ALL
    for threshold, kept, errors in _levels(values, wrong, rate, allowed):
        if _binomial_cdf(errors, kept, rate) > allowed:
            break
        passed = threshold
    return passed


def _levels(
    values: Tensor, wrong: Tensor, rate: float, allowed: float
) -> Iterator[tuple[float, int, int]]:
    """Threshold, accepted and wrong among them, of each coverage from the smallest up.

    The scores are sorted from the top. The first coverage may have one error, if there are samples
    enough for that, so that a single unlucky one does not end the search.
    """
    count = len(values)
    sure = 1 - allowed / (1 - ALL)
    starts = (samples_needed(rate, sure, errors=errors) for errors in (1, 0))
    first = next((start for start in starts if start <= count), None)
    for level in range(LEVELS + 1) if first is not None else ():
        size = (first or 0) + round(level * (count - (first or 0)) / LEVELS)
        if size == count:
            yield EVERYTHING, count, int(wrong.sum())
            return
        border = float(values[size])
        kept = int((values > border).sum())
        if kept:  # just above the border: scores between it and the next are accepted, too
            yield math.nextafter(border, math.inf), kept, int(wrong[:kept].sum())


def _possible(values: Tensor, wrong: Tensor, allowed: float) -> str:
    """The smallest error rate, of two digits, that these samples can promise."""
    place = bisect_left(
        ERROR_RATES,
        x=True,
        key=lambda rate: _last_passing(values, wrong, rate, allowed) is not None,
    )
    if place == len(ERROR_RATES):
        return "These samples can promise no error rate at this confidence."
    return (
        "The smallest error rate these samples can promise at this confidence is "
        f"{ERROR_RATES[place]:g}."
    )


def _binomial_cdf(errors: int, count: int, error_rate: float) -> float:
    """P(at most `errors` of `count` | each with chance `error_rate`), summed in log space."""
    good, bad = math.log1p(-error_rate), math.log(error_rate)
    whole = math.lgamma(count + 1)
    return math.fsum(
        math.exp(
            whole - math.lgamma(k + 1) - math.lgamma(count - k + 1) + k * bad + (count - k) * good
        )
        for k in range(errors + 1)
    )


def _known(score: Tensor) -> Tensor:
    values = score[~score.isnan()].double()
    got = f"{len(score)} samples, none of them"
    expected, remedy = "at least one sample that was solved", "Look at profile.status."
    require(len(values) > 0, "profile", expected, got, remedy)
    return values
