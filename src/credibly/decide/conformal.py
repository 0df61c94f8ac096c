"""Sets of classes that hold the true one as often as asked: split conformal prediction by MAPIE."""

from __future__ import annotations

import math
import warnings
from dataclasses import asdict, dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from credibly.decide import thresholds
from credibly.decide.arguments import checked_labels
from credibly.decide.records import (
    UNREADABLE,
    check_own_profile,
    finite,
    in_short,
    read_json,
    refuse_other_settings,
    settings_of,
    write_json,
)
from credibly.errors import FileFormatError, InvalidArgumentError, MissingExtraError
from credibly.profile.profile import Profile, Settings
from credibly.types import Labels, whole_number

FORMAT, FORMAT_VERSION = "credibly.conformal", 1

Source = Literal["softmax", "profile"]
Method = Literal["lac", "aps"]

FLOOR = 1e-6
"""Least probability of a class. MAPIE takes those below 1e-8 for zero and leaves them out of sets,
also where a very sure model gives the true class less than that: then coverage would be lost."""


@dataclass(frozen=True, repr=False)
class ConformalSets:
    """A set of classes a sample, which holds the true class with a chosen probability.

    Over the draw of the labelled sample and of one new sample of the same distribution, the set
    holds the true class with probability at least `confidence` (marginal coverage), whatever the
    model and however bad the scores are. Bad scores give large sets. Nothing is promised for each
    class, each group or each kind of input by itself, under a shift, or against an adversary.

    Attributes:
        threshold: the quantile of MAPIE's conformity scores of the labelled sample.
        confidence: the probability asked for.
        probabilities: 'softmax' is softmax of c0, 'profile' that of c+. With cross-entropy these
            are the model's own probabilities at x0 and at x+; with other losses they are scores
            that sum to one.
        method: 'lac' takes every class that is probable enough, which gives the smallest sets and
            now and then an empty one; 'aps' takes the most probable classes until they add up to
            enough, which gives larger sets that follow the difficulty of the sample better.
        settings: those of the labelled profiles; profiles of others are refused.
        samples: labelled samples that were used.
    """

    threshold: float
    confidence: float
    probabilities: Source
    method: Method
    settings: Settings
    samples: int

    @classmethod
    def fit(
        cls,
        clf: object,
        profile: Profile,
        labels: Labels,
        *,
        confidence: float = 0.9,
        probabilities: Source = "softmax",
        method: Method = "lac",
        seed: int = 0,
    ) -> ConformalSets:
        """Set the threshold by labelled samples that were used neither in training nor in choosing.

        Args:
            clf: the classifier of the profile.
            profile: of a labelled sample like those to come. Those that could not be solved are
                left out, which keeps the promise, since such samples get all classes later.
            labels: its classes (N,), as numbers from 0.
            confidence: how often a set should hold the true class, in (0, 1).
            probabilities: 'softmax' or 'profile'; softmax gave the smaller sets on the embedded
                images (docs/decisions.md).
            method: 'lac' or 'aps'.
            seed: of the numbers by which 'aps' breaks ties in the labelled sample, below 2**32.
        """
        check_own_profile(clf, profile)
        thresholds.check_share("confidence", confidence)
        _check_choice("probabilities", probabilities, get_args(Source))
        _check_choice("method", method, get_args(Method))
        _check_seed(seed)
        truth: NDArray[np.int64] = checked_labels(labels, *profile.credence.shape).numpy()
        known = _known(profile)
        _check_enough(int(known.sum()), float(confidence))
        values = _probabilities(profile, probabilities)[known]
        threshold = _quantile(values, truth[known], float(confidence), method, int(seed))
        return cls(
            threshold, float(confidence), probabilities, method, profile.settings, int(known.sum())
        )

    def sets(self, profile: Profile) -> Tensor:
        """Which classes are in the set of each sample: bool (N, K).

        A sample that could not be solved gets all classes: nothing is known that rules one out.
        """
        refuse_other_settings(self.settings, profile)
        known = _known(profile)
        found = np.ones(tuple(profile.credence.shape), dtype=bool)
        if known.any():
            values = _probabilities(profile, self.probabilities)[known]
            found[known] = _sets(values, self.threshold, self.confidence, self.method)
        return torch.from_numpy(found).to(profile.credence.device)

    def named(self, profile: Profile) -> list[list[str]]:
        """Names of the classes in the set of each sample."""
        return [
            [profile.class_name(k) for k, inside in enumerate(row) if inside]
            for row in self.sets(profile).tolist()
        ]

    def __repr__(self) -> str:
        return (
            f"ConformalSets({self.method} of {self.probabilities}, confidence {self.confidence:g}, "
            f"{self.samples} samples; {in_short(self.settings)})"
        )

    def save(self, path: str | Path) -> None:
        """Write a JSON file; see `load`."""
        content = {"format": FORMAT, "format_version": FORMAT_VERSION, **asdict(self)}
        write_json(path, content)

    @classmethod
    def load(cls, path: str | Path) -> ConformalSets:
        """Read what `save` wrote. Nothing in the file is executed."""
        content = read_json(path, FORMAT, FORMAT_VERSION)
        try:
            _check_choice("probabilities", content["probabilities"], get_args(Source))
            _check_choice("method", content["method"], get_args(Method))
            thresholds.check_share("confidence", content["confidence"])
            return cls(
                finite(content["threshold"]),
                finite(content["confidence"]),
                content["probabilities"],
                content["method"],
                settings_of(content["settings"]),
                int(content["samples"]),
            )
        except UNREADABLE as error:
            raise FileFormatError(f"{path}: cannot be read ({error!r}).") from error


def samples_needed(confidence: float) -> int:
    """Labelled samples from which MAPIE gives sets of this confidence, by its own arithmetic."""
    alpha = float(1 - Decimal(str(confidence)))
    return math.ceil(max(1 / alpha, 1 / (1 - alpha)))


def _quantile(
    values: NDArray[np.float64], truth: NDArray[np.int64], confidence: float, method: Method,
    seed: int,
) -> float:  # fmt: skip
    """The threshold that MAPIE finds on labelled probabilities (n, K)."""
    mapie = _mapie()
    score = _score(method)
    sets = mapie.SplitConformalClassifier(
        _Given(values.shape[1]), confidence_level=confidence, conformity_score=score, prefit=True,
        random_state=seed,
    )  # fmt: skip
    with warnings.catch_warnings():
        # classes that the labelled sample lacks are no problem for a promise about all classes
        warnings.filterwarnings("ignore", message=r".*conformalization dataset has less labels")
        sets.conformalize(values, truth)
    sets.predict_set(values[:1])  # the quantile is found when it is first asked for
    return float(score.quantiles_[0])


def _sets(
    values: NDArray[np.float64], threshold: float, confidence: float, method: Method
) -> NDArray[np.bool_]:
    """MAPIE's sets (n, K) for a threshold that was found before."""
    score = _score(method)
    score.quantiles_ = np.array([threshold])
    found: NDArray[np.bool_] = score.get_prediction_sets(
        values[:, :, None], conformity_scores=np.empty((0, 1)),
        alpha_np=np.array([1 - confidence]), cv="prefit", include_last_label=True,
    )  # fmt: skip
    return found[:, :, 0]


class _Given:
    """A fitted classifier, as MAPIE wants one, whose inputs are the probabilities themselves."""

    def __init__(self, classes: int) -> None:
        self.classes_ = np.arange(classes)
        self.n_features_in_ = classes

    def fit(self, *_: object) -> _Given:
        return self

    def predict(self, values: NDArray[np.float64]) -> NDArray[np.intp]:
        found: NDArray[np.intp] = np.argmax(values, axis=1)
        return found

    def predict_proba(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.asarray(values)


def _score(method: Method) -> Any:
    """An object of MAPIE that turns probabilities into conformity scores and sets."""
    _mapie()
    from mapie.conformity_scores import APSConformityScore, LACConformityScore

    return LACConformityScore() if method == "lac" else APSConformityScore()


def _mapie() -> Any:
    try:
        from mapie import classification
    except ImportError as error:
        raise MissingExtraError(
            package="mapie", extra="conformal", purpose="Conformal sets"
        ) from error
    return classification


def _known(profile: Profile) -> NDArray[np.bool_]:
    """Samples (N,) that were solved."""
    finite_rows = profile.credibility.isfinite().all(1) & profile.credence.isfinite().all(1)
    known: NDArray[np.bool_] = (finite_rows & profile.usable).cpu().numpy()
    return known


def _probabilities(profile: Profile, source: Source) -> NDArray[np.float64]:
    """Probabilities (N, K) in double precision, none of them zero."""
    values = profile.credibility if source == "profile" else profile.credence
    raw = values.detach().double().softmax(1)
    least = min(FLOOR, 0.1 / raw.shape[1])
    floored = (1 - least * raw.shape[1]) * raw + least  # keeps the order, and sums to one
    found: NDArray[np.float64] = floored.cpu().numpy()
    return found


def _check_enough(count: int, confidence: float) -> None:
    needed = samples_needed(confidence)
    if count < needed:
        raise InvalidArgumentError(
            "profile",
            expected=f"at least {needed} labelled samples that were solved, for a confidence of "
            f"{confidence:g}",
            got=f"{count}",
            remedy="Bring more, or ask for less confidence.",
        )


def _check_choice(name: str, value: object, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise InvalidArgumentError(
            name,
            expected=" or ".join(map(repr, choices)),
            got=repr(value),
            remedy="docs/decisions.md says what each is.",
        )


def _check_seed(seed: object) -> None:
    number = whole_number(seed)
    if number is None or not 0 <= number < 2**32:  # what NumPy takes
        raise InvalidArgumentError(
            "seed",
            expected="a whole number from 0 to 2**32 - 1",
            got=repr(seed),
            remedy="0 is as good as any.",
        )
