"""A profile that a caller brings, and the classifier it should belong to, checked once."""

from __future__ import annotations

import torch
from torch import Tensor

from credibly.errors import InvalidArgumentError
from credibly.io.fingerprints import in_words, quick_digest
from credibly.model.batches import check_evaluation_mode
from credibly.model.classifier import Classifier
from credibly.model.derivatives import losses_only
from credibly.profile.profile import Profile


def check_profile(profile: object) -> None:
    """Refuse what is no profile."""
    if not isinstance(profile, Profile):
        raise InvalidArgumentError(
            "profile",
            expected="a profile, as credibility(...) gives",
            got=type(profile).__name__,
            remedy="Solve one first: profile = credibility(clf, x, gamma=...).",
        )


def check_same_model(clf: Classifier, profile: Profile) -> None:
    """Refuse a classifier with other weights than the profile was made with."""
    made_with = profile.settings.model
    if made_with and quick_digest(clf) != made_with:
        raise InvalidArgumentError(
            "clf",
            expected=f"the classifier the profile was made with, {in_words(made_with)}",
            got=in_words(quick_digest(clf)),
            remedy="Solve the profile again with this classifier: credibility(clf, x, ...).",
        )


def check_same_classes(clf: Classifier, x0: Tensor, profile: Profile) -> None:
    """Refuse a classifier that cannot have made the profile: of other weights or classes."""
    check_evaluation_mode(clf)
    check_same_model(clf, profile)
    probe = torch.where(torch.isfinite(x0[:1]), x0[:1], 0.0)
    expected = len(profile.settings.weights)
    try:
        got = f"one of {losses_only(clf.select(slice(0, 1)), probe).shape[1]} classes"
    except (RuntimeError, ValueError, TypeError) as error:
        got = f"one that fails on its inputs with {type(error).__name__}: {error}"
    if got != f"one of {expected} classes":
        raise InvalidArgumentError(
            "clf",
            expected=f"the classifier the profile was made with, of {expected} classes",
            got=got,
            remedy="Pass the classifier that was given to credibility(...).",
        )
