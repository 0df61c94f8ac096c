"""The settings that a rule belongs to: a threshold is valid only for profiles made the same way."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from credibly._validation import require
from credibly.errors import FileFormatError
from credibly.io.fingerprints import in_words, quick_digest
from credibly.model.batches import classifier_inside
from credibly.model.classifier import Classifier
from credibly.profile.files import read_count
from credibly.profile.profile import Profile, Settings
from credibly.types import shortest_repr


def describe_settings(settings: Settings) -> str:
    """The settings a rule belongs to, in a few words."""
    return f"{settings.weights_in_words()}, {settings.classes_in_words()}, {settings.loss}"


def check_own_profile(clf: object, profile: Profile) -> None:
    """The profile must be one of this very classifier."""
    own = getattr(clf, "classifier_", clf)  # of a CredibilityClassifier
    remedy = classifier_inside(clf) or "Pass the classifier first, then its profile."
    expected = "the Classifier of the profile"
    require(isinstance(own, Classifier), "clf", expected, type(clf).__name__, remedy)
    check_profile(profile)
    require(
        isinstance(own, Classifier) and quick_digest(own) == profile.settings.model,
        "profile",
        "a profile of this very classifier",
        f"that of a model, {in_words(profile.settings.model)}",
        "Solve it again with credibility(clf, x, ...).",
    )


def check_profile(profile: object) -> None:
    """Refuse what is not a profile; often it is the inputs themselves."""
    shape = getattr(profile, "shape", None)
    got = type(profile).__name__ + ("" if shape is None else f" of shape {tuple(shape)}")
    remedy = "Make one with credibility(clf, x, gamma=...)."
    require(isinstance(profile, Profile), "profile", "a Profile", got, remedy)


def refuse_other_settings(own: Settings, profile: Profile) -> None:
    """Refuse a profile of another model, loss, gamma, solver, space, bounds or order of classes."""
    check_profile(profile)
    other = profile.settings
    _require_same("model", in_words(own.model), in_words(other.model))
    _require_same_top(own, other)
    _require_same_weights(own, other)
    for name in ("loss", "solver", "space", "bounds"):
        _require_same(name, str(getattr(own, name)), str(getattr(other, name)))
    if own.classes is not None and other.classes is not None:
        counts = str(len(own.classes)), str(len(other.classes))
        _require_same("number of classes", *counts)
        pairs = enumerate(zip(own.classes, other.classes, strict=True))
        for k, (left, right) in pairs:
            expected = f"the names of classes the rule was made with, {left!r} for {k}"
            remedy = "Name them in the order of the model's outputs, in both."
            require(left == right, "profile", expected, repr(right), remedy)


def _require_same_top(own: Settings, other: Settings) -> None:
    """Columns of the most probable classes are not comparable with those of all, or of others."""
    left, right = (one.classes_in_words() if one.top else "all" for one in (own, other))
    wanted = "without top" if own.top is None else f"with top={own.top}"
    remedy = f"Solve {wanted}, or choose a threshold of its own for it"
    _require_same("choice of classes", left, right, remedy)


def _require_same_weights(own: Settings, other: Settings) -> None:
    """The same numbers in another precision are the same."""
    left, right = own.weights, other.weights
    if len(left) != len(right):
        _require_same("weights", f"{len(left)} of them", str(len(right)))
    different = [k for k in range(len(left)) if not _same_weight(left, right, k)]
    if different and own.gamma is not None and other.gamma is not None:
        gamma = shortest_repr(own.gamma)
        remedy = f"Solve with gamma={gamma}, or choose a threshold of its own for it"
        _require_same("gamma", gamma, shortest_repr(other.gamma), remedy)
    if different:
        k = different[0]
        _require_same("weights", f"{left[k]:.8g} for class {k}", f"{right[k]:.8g}")


def _same_weight(left: Sequence[float], right: Sequence[float], k: int) -> bool:
    return abs(left[k] - right[k]) <= 1e-6 * abs(left[k])


def _require_same(
    name: str, own: str, other: str, remedy: str = "Choose a threshold of its own for it"
) -> None:
    expected = f"the {name} the threshold was chosen with, {own}"
    remedy += "; scores of different settings are not comparable."
    require(own == other, "profile", expected, other, remedy)


def read_settings(values: Mapping[str, Any]) -> Settings:
    """Settings from their JSON form."""
    known = {"top": None, "class_count": None, **values}  # older files have neither
    read: dict[str, Any] = {field.name: known[field.name] for field in fields(Settings)}
    read["weights"] = tuple(finite(weight) for weight in read["weights"])
    for name, kind in (("classes", str), ("bounds", float)):
        if read[name] is not None:
            read[name] = tuple(kind(value) for value in read[name])
    for name in ("solver", "loss", "moves", "space", "model"):
        if not isinstance(read[name], str):
            raise FileFormatError(f"expected text for {name}, got {read[name]!r}")
    for name in ("top", "class_count"):
        read[name] = read_count(read[name])
    settings = Settings(**read)
    if wrong := settings.check_classes():
        raise FileFormatError(wrong)
    return settings


def finite(value: Any) -> float:
    """A number in a file, neither NaN nor infinite."""
    number = float(value)
    if not math.isfinite(number):
        raise FileFormatError(f"expected a finite number, got {number}")
    return number
