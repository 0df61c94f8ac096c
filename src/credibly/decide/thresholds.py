"""Thresholds on a score, each from what its user knows: a share, a risk to keep, false alarms."""

from __future__ import annotations

import math
import sys

import torch
from torch import Tensor

from credibly.errors import InvalidArgumentError
from credibly.types import real_number

LEVELS = 20
"""Coverages that are tested for a guaranteed threshold, each with this share of the allowed error.
More of them find a finer threshold by a stricter test."""

EVERYTHING = -sys.float_info.max
"""The threshold that every score reaches, as a number that JSON can hold."""


def for_coverage(score: Tensor, coverage: float) -> float:
    """Largest threshold that accepts (score >= threshold) at least this share of the sample.

    Ties are accepted together. Samples without a score (NaN) do not count.
    """
    check_share("coverage", coverage, closed=True)
    values = _known(score)
    kept = max(1, math.ceil(float(coverage) * len(values) - 1e-9))
    return float(values.sort(descending=True).values[kept - 1])


def for_risk(score: Tensor, correct: Tensor, risk: float, confidence: float) -> float:
    """Smallest threshold whose selective risk is at most `risk`, with the stated confidence.

    With probability at least `confidence` over the labelled sample, at most the share `risk` of
    the accepted predictions on new samples of the same kind is wrong, whatever the score. `LEVELS`
    coverages, fixed beforehand, are tested, each by the exact binomial test at its share of the
    allowed error (Bonferroni; the bound is that of Geifman and El-Yaniv 2017). Given the m-th
    largest score, the samples strictly above it are independent draws of what is accepted by a
    threshold just above it, with ties and without. The score must not have seen the labels.
    """
    check_share("risk", risk)
    check_share("confidence", confidence)
    if score.dim() != 1 or score.shape != correct.shape:
        raise InvalidArgumentError(
            "labels",
            expected=f"one label a sample, {len(score)}",
            came=f"shape {tuple(correct.shape)}",
            remedy="Pass the labels of the very samples of the profile.",
        )
    known = ~score.isnan()
    values, order = score[known].double().sort(descending=True)
    wrong = ~correct[known].bool()[order]
    passed = _lowest_passing(values, wrong, float(risk), float(confidence))
    if passed is None:
        raise InvalidArgumentError(
            "labels",
            expected=f"enough labelled samples, right often enough, to promise a risk of {risk:g} "
            f"with confidence {confidence:g}",
            came=f"{len(values)} samples, {int(wrong.sum())} of them wrong",
            remedy=f"At least {samples_needed(risk, confidence)} accepted samples without an error "
            "are needed; bring more, or ask for less.",
        )
    return passed


def samples_needed(risk: float, confidence: float) -> int:
    """Accepted samples without any error from which `for_risk` can promise anything."""
    return math.ceil(math.log((1 - confidence) / LEVELS) / math.log1p(-risk))


def for_false_alarms(score: Tensor, rate: float) -> float:
    """Threshold below which at most this share of ordinary inputs falls, from a sample of them.

    Over the draw of the sample and of one more ordinary input, the chance of flagging it (score <
    threshold) is at most `rate`, exactly, whatever the distribution (split conformal).
    """
    check_share("false_alarms", rate)
    values = _known(score).sort().values
    rank = min(len(values), math.floor(rate * (len(values) + 1) + 1e-9))
    if rank < 1:
        needed = math.ceil(1 / rate - 1 - 1e-9)
        raise InvalidArgumentError(
            "profile",
            expected=f"at least {needed} ordinary samples for a rate of {rate:g}",
            came=f"{len(values)}",
            remedy="Bring more, or allow more false alarms.",
        )
    return float(values[rank - 1])


def check_share(name: str, value: object, *, closed: bool = False) -> None:
    """A share must lie in (0, 1), or in (0, 1] where `closed`."""
    number = real_number(value)
    good = number is not None and number > 0 and (number <= 1 if closed else number < 1)
    if not good:
        raise InvalidArgumentError(
            name,
            expected=f"a share in (0, 1{']' if closed else ')'}",
            came=repr(value),
            remedy="0.05 is one in twenty.",
        )


def _lowest_passing(values: Tensor, wrong: Tensor, risk: float, confidence: float) -> float | None:
    """The threshold of the largest coverage that passes, of scores sorted from the top."""
    count, allowed = len(values), (1 - confidence) / LEVELS
    for level in range(LEVELS, 0, -1):
        if level == LEVELS:
            threshold, kept = EVERYTHING, count
        else:
            border = float(values[math.ceil(level * count / LEVELS) - 1]) if count else math.nan
            # just above it, not at the next score seen: scores in between are accepted, too
            threshold = math.nextafter(border, math.inf)
            kept = int((values > border).sum())
        if kept and _binomial_cdf(int(wrong[:kept].sum()), kept, risk) <= allowed:
            return threshold
    return None


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
            came=f"{len(score)} samples, none of them",
            remedy="Look at profile.status.",
        )
    return values
