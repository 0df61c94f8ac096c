"""How well a score separates two groups: wrong from right predictions, outliers from inliers.

Metrics of two groups take `(positive_scores, negative_scores)` and expect positives to have the
higher scores. Outliers are positive, as in OpenOOD v1.5, so with scores of trust call
`auroc(-outliers, -inliers)`. Failure metrics take `(score, correct)` with a score of trust.
"""

from __future__ import annotations

from credibly.metrics.ranking import Positive, rank_failures, rank_groups
from credibly.types import Array


def failure_auroc(score: Array, correct: Array) -> float:
    """Chance that a right prediction is trusted more than a wrong one, ties counted half.

    It does not matter which side is called positive. NaN where all predictions are right, or all
    are wrong.

    Example:
        >>> import credibly as cr
        >>> round(cr.metrics.failure_auroc([4, 3, 2, 1], [True, True, False, True]), 4)
        0.6667
    """
    return float(rank_failures(score, correct).once().auroc())


def failure_aupr(score: Array, correct: Array, *, positive: Positive = "failures") -> float:
    """Average precision of finding the failures (or the successes) by a score of trust.

    Example:
        >>> import credibly as cr
        >>> cr.metrics.failure_aupr([4, 3, 2, 1], [True, True, False, True])
        0.5
    """
    return float(rank_failures(score, correct).once().aupr(positive))


def failure_fpr_at_tpr(
    score: Array, correct: Array, tpr: float = 0.95, *, positive: Positive = "failures"
) -> float:
    """FPR95 of failure prediction.

    With 'failures' positive (as Granese et al. 2021 report it): the share of the right predictions
    that is rejected when at least 95 % of the wrong ones are. With 'successes' (Moon et al. 2020):
    the share of the wrong ones that is answered when at least 95 % of the right ones are.

    Example:
        >>> import credibly as cr
        >>> round(cr.metrics.failure_fpr_at_tpr([4, 3, 2, 1], [True, True, False, True]), 4)
        0.3333
    """
    return float(rank_failures(score, correct).once().fpr_at(tpr, positive))


def auroc(positive_scores: Array, negative_scores: Array) -> float:
    """Chance that a positive has a higher score than a negative, ties counted half.

    Args:
        positive_scores: (n,), expected to be the higher ones.
        negative_scores: (m,).

    Example:
        >>> import credibly as cr
        >>> cr.metrics.auroc([3, 1], [2, 0])
        0.75
    """
    return float(rank_groups(positive_scores, negative_scores).once().auroc())


def aupr(positive_scores: Array, negative_scores: Array) -> float:
    """Average precision of the positives: sum of precision times the step in recall.

    For the other side pass `aupr(-negative_scores, -positive_scores)`. (OpenOOD joins the points by
    straight lines instead, which gives slightly larger numbers.)

    Example:
        >>> import credibly as cr
        >>> round(cr.metrics.aupr([3, 1], [2, 0]), 4)
        0.8333
    """
    return float(rank_groups(positive_scores, negative_scores).once().aupr())


def fpr_at_tpr(positive_scores: Array, negative_scores: Array, tpr: float = 0.95) -> float:
    """Share of the negatives at or above the highest threshold that finds this share of positives.

    For outliers as in OpenOOD v1.5: `fpr_at_tpr(-outliers, -inliers)` with scores of trust.

    Args:
        positive_scores: (n,), expected to be the higher ones.
        negative_scores: (m,).
        tpr: the share of positives to find.

    Example:
        >>> import credibly as cr
        >>> cr.metrics.fpr_at_tpr([3, 1], [2, 0])
        0.5
    """
    return float(rank_groups(positive_scores, negative_scores).once().fpr_at(tpr))
