"""Thresholds on a score, each from what its user knows: a share, a risk to keep, false alarms."""

from __future__ import annotations

import math
import sys
import warnings
from bisect import bisect_left
from collections.abc import Iterator
from functools import partial

import torch
from torch import Tensor

from credibly.errors import CrediblyWarning, InvalidArgumentError
from credibly.types import real_number

ENOUGH = 50
"""Scores in a sample, for what is usual in it to be known."""

FAR = 100.0
"""Times the lower half of the spread; a threshold that lies below is owed to foreign inputs."""

LEVELS = 20
"""Coverages that are tested for a guaranteed threshold, each with this share of the allowed error.
More of them find a finer threshold by a stricter test."""

EVERYTHING = -sys.float_info.max
"""The threshold that every score reaches, as a number that JSON can hold."""

RISKS = tuple(float(f"{digits}e{power}") for power in range(-8, -1) for digits in range(10, 100))
"""Risks of two digits, from below: those that an error names as possible."""


def for_coverage(score: Tensor, coverage: float) -> float:
    """Largest threshold that accepts (score >= threshold) at least this share of the sample.

    Ties are accepted together. Samples without a score (NaN) do not count.
    """
    check_share("coverage", coverage, closed=True)
    values = _known(score)
    kept = max(1, math.ceil(float(coverage) * len(values) - 1e-9))
    return float(values.sort(descending=True).values[kept - 1])


def for_error_rate(score: Tensor, correct: Tensor, error_rate: float, confidence: float) -> float:
    """Smallest threshold whose error rate among the accepted is at most `error_rate`, with the stated confidence.

    With probability at least `confidence` over the labelled sample, at most the share `error_rate` of
    the accepted predictions on new samples of the same kind is wrong, whatever the score. `LEVELS`
    coverages, fixed beforehand, are tested, each by the exact binomial test at its share of the
    allowed error (Bonferroni; the bound is that of Geifman and El-Yaniv 2017). Given the m-th
    largest score, the samples strictly above it are independent draws of what is accepted by a
    threshold just above it, with ties and without. The score must not have seen the labels. The
    tests bound the risks of all coverages at once, so the smallest risk that can be promised, which
    the error names, may be asked for next.
    """
    check_share("error_rate", error_rate)
    check_share("confidence", confidence)
    if score.dim() != 1 or score.shape != correct.shape:
        raise InvalidArgumentError(
            "labels",
            expected=f"one label a sample, {len(score)}",
            got=f"shape {tuple(correct.shape)}",
            remedy="Pass the labels of the very samples of the profile.",
        )
    known = ~score.isnan()
    values, order = score[known].double().sort(descending=True)
    wrong = ~correct[known].bool()[order]
    passed = _lowest_passing(values, wrong, float(error_rate), float(confidence))
    if passed is None:
        possible = _possible(values, wrong, float(confidence), len(score))
        raise InvalidArgumentError(
            "labels",
            expected=f"enough labelled samples, right often enough, to promise an error rate of "
            f"{error_rate:g} "
            f"with confidence {confidence:g}",
            got=f"{len(values)} samples, {int(wrong.sum())} of them wrong",
            remedy=f"{_needed(values, wrong, error_rate, confidence)} Allow a larger risk, or bring more "
            f"labelled samples. {possible}",
        )
    return passed


def samples_needed(risk: float, confidence: float) -> int:
    """Accepted samples without any error from which `for_error_rate` can promise anything."""
    return math.ceil(math.log((1 - confidence) / LEVELS) / math.log1p(-risk))


def _needed(values: Tensor, wrong: Tensor, risk: float, confidence: float) -> str:
    """What a promise takes and, if there are samples enough, what the score makes of them."""
    needed = samples_needed(risk, confidence)
    words = f"At least {needed} accepted samples without an error are needed, and more with some"
    if len(values) < needed:
        return f"{words}."
    most = max((kept for _, kept, errors in _levels(values, wrong) if not errors), default=0)
    return (
        f"{words}; at the {LEVELS} coverages that are tried, the score accepts at most {most} of "
        f"these {len(values)} before the first error."
    )


def for_false_alarms(score: Tensor, rate: float, *, unsolved_are_flagged: bool = False) -> float:
    """Threshold below which at most this share of ordinary inputs falls, from a sample of them.

    Over the draw of the sample and of one more ordinary input, the chance of flagging it (score <
    threshold) is at most `rate`, exactly, whatever the distribution (split conformal). Samples
    without a score (NaN) are left out, and the rate is then that among inputs with one; with
    `unsolved_are_flagged` they count as the lowest, and the rate is that of all inputs.
    """
    check_share("false_alarms", rate)
    values = _known(score).sort().values
    unsolved = len(score) - len(values) if unsolved_are_flagged else 0
    count = len(values) + unsolved
    rank = min(count, math.floor(rate * (count + 1) + 1e-9))
    if rank < 1:
        needed = math.ceil(1 / rate - 1 - 1e-9)
        raise InvalidArgumentError(
            "profile",
            expected=f"at least {needed} ordinary samples for a rate of {rate:g}",
            got=f"{count}",
            remedy="Bring more, or allow more false alarms.",
        )
    if rank <= unsolved:
        raise InvalidArgumentError(
            "profile",
            expected=f"at most {rank - 1} of {count} samples without a profile, since they are "
            f"flagged and count as false alarms, for a rate of {rate:g}",
            got=f"{unsolved}",
            remedy="Look at profile.status, or allow more false alarms.",
        )
    _doubt_sample(values, threshold := float(values[rank - unsolved - 1]))
    return threshold


def _doubt_sample(values: Tensor, threshold: float) -> None:
    """Warn of a sample (sorted) so strange at its end that its threshold would pass anything."""
    if len(values) < ENOUGH:
        return
    low, middle = (float(values[len(values) // part]) for part in (4, 2))
    if middle - threshold > FAR * (middle - low) > 0:
        warnings.warn(
            f"the threshold, {threshold:.4g}, lies far below what is usual in the sample (median "
            f"{middle:.4g}, lower quartile {low:.4g}): some of its inputs are hardly ordinary, and "
            "whatever is no stranger than they are will raise no alarm. Leave them out",
            CrediblyWarning,
            stacklevel=4,
        )


def in_words(threshold: float) -> str:
    """Which scores a threshold turns away."""
    return "no score is too low" if threshold <= EVERYTHING else f"score below {threshold:.4g}"


def check_share(name: str, value: object, *, closed: bool = False) -> None:
    """A share must lie in (0, 1), or in (0, 1] where `closed`."""
    number = real_number(value)
    good = number is not None and number > 0 and (number <= 1 if closed else number < 1)
    if not good:
        raise InvalidArgumentError(
            name,
            expected=f"a share in (0, 1{']' if closed else ')'}",
            got=repr(value),
            remedy=f"{number:g} % is {number / 100:g}."
            if number is not None and 1 < number < 100
            else "0.05 is one in twenty.",
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


def _lowest_passing(values: Tensor, wrong: Tensor, risk: float, confidence: float) -> float | None:
    """The threshold of the largest coverage that passes, of scores sorted from the top."""
    allowed = (1 - confidence) / LEVELS
    for threshold, kept, errors in _levels(values, wrong):
        if _passes(errors, kept, allowed, risk):
            return threshold
    return None


def _possible(values: Tensor, wrong: Tensor, confidence: float, samples: int) -> str:
    """The smallest risk that these samples can promise, and its coverage, in words."""
    allowed = (1 - confidence) / LEVELS
    best, coverage = len(RISKS), 0.0
    for threshold, kept, errors in _levels(values, wrong):
        # coverages fall, so one that is no better need not be searched
        test = partial(_passes, errors, kept, allowed)
        if best and test(RISKS[best - 1]):
            best = bisect_left(RISKS, x=True, hi=best - 1, key=test)
            coverage = int((values >= threshold).sum()) / samples
    if best == len(RISKS):
        return "These samples can promise no risk at this confidence."
    return (
        f"The smallest risk these samples can promise at this confidence is {RISKS[best]:g}, at a "
        f"coverage of {coverage:.2g}."
    )


def _passes(errors: int, count: int, allowed: float, risk: float) -> bool:
    return _binomial_cdf(errors, count, risk) <= allowed


def _binomial_cdf(errors: int, count: int, risk: float) -> float:
    """P(at most `errors` of `count` | each with chance `risk`), by summing in log space."""
    k = torch.arange(errors + 1, dtype=torch.float64)
    n = torch.tensor(float(count), dtype=torch.float64)
    logs = (
        torch.lgamma(n + 1) - torch.lgamma(k + 1) - torch.lgamma(n - k + 1)
        + k * math.log(risk) + (n - k) * math.log1p(-risk)
    )  # fmt: skip
    return float(torch.logsumexp(logs, 0).exp())


def _known(score: Tensor) -> Tensor:
    values = score[~score.isnan()].double()
    if len(values) == 0:
        raise InvalidArgumentError(
            "profile",
            expected="at least one sample that was solved",
            got=f"{len(score)} samples, none of them",
            remedy="Look at profile.status.",
        )
    return values
