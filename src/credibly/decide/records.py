"""What files of decisions have in common: JSON, and the settings a threshold belongs to."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from credibly.errors import FileFormatError, InvalidArgumentError
from credibly.io.fingerprints import in_words, quick_digest
from credibly.io.whole_files import whole_file
from credibly.model.batches import classifier_inside
from credibly.model.classifier import Classifier
from credibly.profile.profile import Profile, Settings
from credibly.types import shortest_repr

UNREADABLE = (KeyError, TypeError, ValueError, AttributeError, OverflowError)
"""What a file of our format with wrong content can cause."""


def in_short(settings: Settings) -> str:
    """The settings a rule belongs to, as short as its repr should be."""
    return f"{settings.weights_in_words()}, {len(settings.weights)} classes, {settings.loss}"


def refuse_other_settings(expected: Settings, profile: Profile | Settings) -> None:
    """A threshold is worth nothing for another model, gamma, solver or space."""
    got = profile if isinstance(profile, Settings) else _checked_profile(profile).settings
    for name in ("model", "weights", "loss", "solver", "space", "bounds"):
        left, right = getattr(expected, name), getattr(got, name)
        if name == "weights" and not _same_weights(left, right):
            _refuse_weights(expected, got)
        if name != "weights" and left != right:
            words = in_words if name == "model" else str
            raise _other(name, words(left), words(right), "Choose a threshold of its own for it")
    _refuse_classes(expected.classes, got.classes)


def _refuse_classes(expected: Sequence[str] | None, got: Sequence[str] | None) -> None:
    """Names in another order would put wrong ones to right answers; no names do no harm."""
    if expected is None or got is None or tuple(expected) == tuple(got):
        return
    pairs = enumerate(zip(expected, got, strict=True))
    first = next(k for k, (left, right) in pairs if left != right)
    raise InvalidArgumentError(
        "profile",
        expected=f"the names of classes the rule was made with, {expected[first]!r} for {first}",
        got=f"{got[first]!r}",
        remedy="Name them in the order of the model's outputs, in both.",
    )


def _same_weights(left: Sequence[float], right: Sequence[float]) -> bool:
    """The same numbers in another precision are the same."""
    return len(left) == len(right) and all(
        abs(a - b) <= 1e-6 * abs(a) for a, b in zip(left, right, strict=True)
    )


def _refuse_weights(expected: Settings, got: Settings) -> None:
    left, right = expected.weights, got.weights
    one, other = expected.gamma, got.gamma
    if one is not None and other is not None and len(left) == len(right):
        remedy = f"Solve with gamma={shortest_repr(one)}, or choose a threshold of its own for it"
        raise _other("gamma", shortest_repr(one), shortest_repr(other), remedy)
    pairs = enumerate(zip(left, right, strict=False))
    first = next((k for k, (a, b) in pairs if not _same_weights((a,), (b,))), 0)
    raise _other(
        "weights", _in_short(left, first), _in_short(right, first),
        "Choose a threshold of its own for it",
    )  # fmt: skip


def _in_short(weights: Sequence[float], first: int) -> str:
    """A few weights in words, from the first that differs."""
    shown = ", ".join(f"{weight:.8g}" for weight in weights[first : first + 3])
    if len(weights) <= 3:
        return f"({shown})"
    return f"{len(weights)} weights, from class {first} on: {shown}, ..."


def _other(name: str, expected: str, got: str, remedy: str) -> InvalidArgumentError:
    return InvalidArgumentError(
        "profile",
        expected=f"the {name} the threshold was chosen with, {expected}",
        got=got,
        remedy=f"{remedy}; scores of different settings are not comparable.",
    )


def _checked_profile(profile: object) -> Profile:
    """What came where a profile is wanted, if it is one; often it is the inputs themselves."""
    if not isinstance(profile, Profile):
        shape = getattr(profile, "shape", None)
        raise InvalidArgumentError(
            "profile",
            expected="a Profile",
            got=type(profile).__name__ + ("" if shape is None else f" of shape {tuple(shape)}"),
            remedy="Make one with credibility(clf, x, gamma=...).",
        )
    return profile


def write_json(path: str | Path, content: Mapping[str, Any]) -> None:
    """Write a JSON file whole or not at all: an old rule outlives a full disk."""
    text = json.dumps(content, indent=2) + "\n"
    with whole_file(path) as place:
        place.write_text(text, encoding="utf-8")


def read_json(path: str | Path, kind: str, version: int) -> dict[str, Any]:
    """A JSON file of one of our formats."""
    try:
        content = json.loads(Path(path).read_text("utf-8"))
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise FileFormatError(f"{path}: not a JSON file ({error}).") from error
    if not isinstance(content, dict) or content.get("format") != kind:
        raise FileFormatError(f"{path}: {_instead_of(kind, content)}")
    if content.get("format_version") != version:
        raise FileFormatError(
            f"{path}: format version {content.get('format_version')!r}; this credibly reads "
            f"{version}. Install a newer one."
        )
    return content


LOADED_BY = {
    "credibly.selective": "SelectiveClassifier",
    "credibly.judge": "Judge",
    "credibly.outlier-flag": "OutlierFlag",
    "credibly.conformal": "ConformalSets",
}
"""Which class reads which format."""


def _instead_of(kind: str, content: object) -> str:
    """What a file is that is not of the format `kind`, and who reads it."""
    wanted = LOADED_BY.get(kind, kind)
    found = LOADED_BY.get(str(content.get("format"))) if isinstance(content, dict) else None
    if found is None:
        return f"not a file that {wanted}.save wrote (format {kind!r})."
    return f"the file of a {found}, not of a {wanted}. Load it with {found}.load."


def settings_of(values: Mapping[str, Any]) -> Settings:
    """Settings from their JSON form."""
    known = Settings(weights=(), solver="", loss="", dtype="")
    named = {name: values[name] for name in asdict(known)}
    for name, kind in (("weights", finite), ("classes", str), ("bounds", float)):
        if named[name] is not None or name == "weights":
            named[name] = tuple(kind(value) for value in named[name])
    for name in ("solver", "loss", "space", "model"):
        if not isinstance(named[name], str):
            raise FileFormatError(f"{name} is {named[name]!r}, where words should stand")
    return replace(known, **named)


def finite(value: Any) -> float:
    """A number of a file; NaN and infinity have no place in it."""
    number = float(value)
    if not math.isfinite(number):
        raise FileFormatError(f"{number} where a finite number should stand")
    return number


def check_own_profile(clf: object, profile: Profile) -> None:
    """The profile must be one of this very classifier."""
    if not isinstance(clf, Classifier):
        raise InvalidArgumentError(
            "clf", expected="the Classifier of the profile", got=type(clf).__name__,
            remedy=classifier_inside(clf) or "Pass the classifier first, then its profile.",
        )  # fmt: skip
    if quick_digest(clf) != _checked_profile(profile).settings.model:
        raise InvalidArgumentError(
            "profile",
            expected="a profile of this very classifier",
            got=f"that of a model, {in_words(profile.settings.model)}",
            remedy="Solve it again with credibility(clf, x, ...).",
        )
