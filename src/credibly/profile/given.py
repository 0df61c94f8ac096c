"""Checks of a profile that a caller passes, and of the classifier that goes with it."""

from __future__ import annotations

import torch
from torch import Tensor

from credibly._validation import require
from credibly.io.fingerprints import in_words, quick_digest
from credibly.model.batches import check_evaluation_mode
from credibly.model.bind import rebind
from credibly.model.classifier import Classifier
from credibly.model.variable import Variable
from credibly.problem.weights import class_count
from credibly.profile.profile import Profile


def check_profile(profile: object) -> None:
    """Refuse anything that is not a profile."""
    require(
        isinstance(profile, Profile),
        "profile",
        "a profile, as credibility(...) gives",
        type(profile).__name__,
        "Solve one first: profile = credibility(clf, x, gamma=...).",
    )


def check_same_model(clf: Classifier, profile: Profile) -> None:
    """Refuse a classifier with other parameters than the one of the profile."""
    made_with, own = profile.settings.model, quick_digest(clf)
    require(
        not made_with or own == made_with,
        "clf",
        f"the classifier the profile was made with, {in_words(made_with)}",
        in_words(own),
        "Solve the profile again with this classifier: credibility(clf, x, ...).",
    )


def check_same_classes(variable: Variable, profile: Profile) -> None:
    """Refuse a classifier that cannot have made the profile: of other parameters or classes."""
    check_evaluation_mode(variable.clf)
    check_same_model(variable.clf, profile)
    expected = len(profile.settings.weights)
    try:
        got = f"one of {class_count(variable)} classes"
    except (RuntimeError, ValueError, TypeError) as error:
        got = f"one that fails on its inputs with {type(error).__name__}: {error}"
    require(
        got == f"one of {expected} classes",
        "clf",
        f"the classifier the profile was made with, of {expected} classes",
        got,
        "Pass the classifier that was given to credibility(...).",
    )


def rebind_profile(clf: Classifier | Variable, profile: Profile) -> Variable:
    """What the profile was solved for: the classifier around its x0, and its classes."""
    settings = profile.settings
    return rebind(clf, profile.x0, settings.space, kept=profile.kept, total=settings.class_count)


def weights_of(profile: Profile) -> Tensor:
    """The weights w (K,) in the precision and on the device of the inputs."""
    w, x0 = profile.settings.weights, profile.x0
    return torch.tensor(w, dtype=torch.float64, device=x0.device).to(x0)
