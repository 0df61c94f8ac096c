"""Thresholds on a score, each from what its user knows: a share, a risk to keep, false alarms."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from credibly.errors import InvalidArgumentError
from credibly.types import real_number

STARTS = 10
"""Coverages from which the search for a guaranteed threshold sets out, each with a tenth of the
allowed error."""


def for_coverage(score: Tensor, coverage: float) -> float:
    """Largest threshold that accepts (score >= threshold) at least this share of the sample."""
    check_share("coverage", coverage, closed=True)
    values = _known(score)
    kept = math.ceil(coverage * len(values) - 1e-9)
    return float(values.sort(descending=True).values[kept - 1])


def for_risk(score: Tensor, correct: Tensor, risk: float, confidence: float) -> float:
    """Smallest threshold whose selective risk is at most `risk`, with the stated confidence.

    With probability at least `confidence` over the labelled sample, at most the share `risk` of
    the accepted predictions on new samples of the same kind is wrong. Coverages are tested in a
    fixed order, each by the exact binomial test (learn then test: Angelopoulos et al. 2021; the
    bound is that of Geifman and El-Yaniv 2017): given the m-th largest score, the m - 1 samples
    above it are independent draws of what a threshold there accepts.
    """
    check_share("risk", risk)
    check_share("confidence", confidence)
    if score.shape != correct.shape:
        raise InvalidArgumentError(
            "labels",
            expected=f"one label a sample, {len(score)}",
            came=f"{len(correct)}",
            remedy="Pass the labels of the very samples of the profile.",
        )
    known = ~score.isnan()
    values, order = score[known].sort(descending=True)
    wrong = (~correct[known])[order].double()
    # one error at the top of the list must not end the search: several starts share the error
    allowed = (1 - confidence) / STARTS
    passed = _largest_passing(values, wrong, risk, allowed)
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
    return math.ceil(math.log((1 - confidence) / STARTS) / math.log1p(-risk))


def for_false_alarms(score: Tensor, rate: float) -> float:
    """Threshold below which at most this share of ordinary inputs falls, from a sample of them.

    Over the draw of the sample and of one more ordinary input, the chance of flagging it (score <
    threshold) is at most `rate`, exactly, whatever the distribution (split conformal).
    """
    check_share("false_alarms", rate)
    values = _known(score).sort().values
    rank = math.floor(rate * (len(values) + 1) + 1e-9)
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


def _largest_passing(values: Tensor, wrong: Tensor, risk: float, allowed: float) -> float | None:
    """From every start go on to larger coverages while the test passes; the furthest wins."""
    count = len(values)
    errors = wrong.cumsum(0)
    best = None
    for start in range(1, STARTS + 1):
        m = max(2, math.ceil(start * count / STARTS))
        while m <= count and _binomial_cdf(int(errors[m - 2]), m - 1, risk) <= allowed:
            best = m if best is None else max(best, m)
            m += max(1, count // 200)
    if best is None:
        return None
    # accepted are those strictly above the m-th score
    above = values[values > values[best - 1]]
    return float(above.min()) if len(above) else None


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
