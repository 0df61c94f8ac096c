"""Sets of classes that contain the true one as often as asked: split conformal prediction."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from typing import Any, ClassVar, Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from credibly._extras import load_extra
from credibly._validation import choice, require, share, whole_number
from credibly.decide.rule import Answers, Rule, make_answers
from credibly.decide.scores import without_profile
from credibly.decide.settings import check_own_profile, finite
from credibly.io.labels import class_numbers
from credibly.profile.profile import Profile
from credibly.types import Labels

Source = Literal["softmax", "profile"]
Method = Literal["lac", "aps"]

FLOOR = 1e-6
"""Least probability of a class. MAPIE treats those below 1e-8 as zero and leaves them out of sets,
even where a very sure model gives the true class less than that, which would lose coverage."""


@dataclass(frozen=True, repr=False)
class ConformalSets(Rule):
    """A set of classes per sample, which contains the true class with a chosen probability.

    Over the draw of the labelled sample and of one new sample of the same distribution, the set
    contains the true class with probability at least `confidence` (marginal coverage), for any
    model and any scores. Bad scores give large sets. Nothing is promised for each class, each group
    or each kind of input by itself, under a shift, or against an adversary.

    Attributes:
        threshold: the quantile of MAPIE's conformity scores of the labelled sample.
        confidence: the probability asked for.
        probabilities: 'softmax' is softmax of c0, 'profile' that of c+. With cross-entropy these
            are the model's own probabilities at x0 and at x+; with other losses they are scores
            that sum to one.
        method: 'lac' takes every class that is probable enough, which gives the smallest sets and
            sometimes an empty one; 'aps' takes the most probable classes until they add up to
            enough, which gives larger sets that follow the difficulty of the sample better.
        samples: labelled samples that were used.
        settings: those of the labelled profiles; profiles of others are refused.

    Example: see docs/how-to/decisions.md.
    """

    format = "credibly.conformal"
    readers: ClassVar = {
        "threshold": finite,
        "confidence": partial(share, "confidence"),
        "probabilities": lambda value: _check("probabilities", value, Source),
        "method": lambda value: _check("method", value, Method),
        "samples": int,
    }

    threshold: float
    confidence: float
    probabilities: Source
    method: Method
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
            confidence: how often a set should contain the true class, in (0, 1).
            probabilities: 'softmax' or 'profile'; softmax gave the smaller sets on the embedded
                images (docs/how-to/decisions.md).
            method: 'lac' or 'aps'.
            seed: of the numbers by which 'aps' breaks ties in the labelled sample, below 2**32.
        """
        check_own_profile(clf, profile)
        got, remedy = profile.settings.classes_in_words(), "Solve it without top."
        require(profile.kept is None, "profile", "a profile of all classes", got, remedy)
        level = share("confidence", confidence)
        _check("probabilities", probabilities, Source)
        _check("method", method, Method)
        number = whole_number(seed)
        require(
            number is not None and 0 <= number < 2**32,  # the seeds that NumPy takes
            "seed", "a whole number from 0 to 2**32 - 1", repr(seed), "0 is as good as any.",
        )  # fmt: skip
        names = profile.settings.classes
        truth = class_numbers(labels, len(profile), profile.class_count, names).numpy()
        known = _known(profile)
        count, needed = int(known.sum()), samples_needed(level)
        expected = f"at least {needed} labelled samples that were solved, for a confidence of "
        remedy = "Bring more, or ask for less confidence."
        require(count >= needed, "profile", f"{expected}{level:g}", f"{count}", remedy)
        values = _probabilities(profile, probabilities)[known]
        threshold = _quantile(values, truth[known], level, method, number or 0)
        return cls(threshold, level, probabilities, method, count, settings=profile.settings)

    def sets(self, profile: Profile) -> Tensor:
        """Which classes are in the set of each sample: bool (N, K).

        A sample that could not be solved gets all classes, since none can be ruled out.
        """
        self.check(profile)
        known = _known(profile)
        found = np.ones(tuple(profile.credence.shape), dtype=bool)
        if known.any():
            values = _probabilities(profile, self.probabilities)[known]
            found[known] = _sets(values, self.threshold, self.confidence, self.method)
        return torch.from_numpy(found).to(profile.credence.device)

    def named(self, profile: Profile) -> list[list[str]]:
        """Names of the classes in the set of each sample."""
        return _names(self.sets(profile), profile)

    def answers(self, profile: Profile) -> Answers:
        """A set of one class is an answer, one of none or several is not; see `Rule.answers`."""
        sets = self.sets(profile).cpu()
        sizes = sets.sum(1)
        alone = (sizes == 1) & ~without_profile(profile).cpu()
        found = sets.double().argmax(1).tolist() if len(sets) else []
        classes = tuple(k if yes else None for k, yes in zip(found, alone.tolist(), strict=True))
        mean = float(sizes.double().mean()) if len(sizes) else 0.0
        notes = (
            f"{mean:.3g} classes per set on average, {int((sizes == 0).sum())} empty sets; a set "
            "of one class is an answer, and a row without a profile has all"
        )
        columns = {"set": _names(sets, profile), "set_size": sizes.tolist()}
        return make_answers(profile, classes, columns, notes)

    def __str__(self) -> str:
        return (
            f"{self.method} of {self.probabilities}, confidence {self.confidence:g}, "
            f"{self.samples} samples"
        )


def _names(sets: Tensor, profile: Profile) -> list[list[str]]:
    names = [profile.class_name(k) for k in range(sets.shape[1])]
    return [[names[k] for k, inside in enumerate(row) if inside] for row in sets.tolist()]


def _check(argument: str, value: Any, choices: Any) -> Any:
    choice(argument, value, get_args(choices), "docs/how-to/decisions.md says what each is.")
    return value


def samples_needed(confidence: float) -> int:
    """Labelled samples that MAPIE needs for sets of this confidence, by its own arithmetic."""
    alpha = float(1 - Decimal(str(confidence)))
    return math.ceil(max(1 / alpha, 1 / (1 - alpha)))


def _quantile(
    values: NDArray[np.float64], truth: NDArray[np.int64], confidence: float, method: Method,
    seed: int,
) -> float:  # fmt: skip
    """The threshold that MAPIE finds on labelled probabilities (n, K)."""
    mapie = _mapie("classification")
    score = _score(method)
    sets = mapie.SplitConformalClassifier(
        _Given(values.shape[1]), confidence_level=confidence, conformity_score=score, prefit=True,
        random_state=seed,
    )  # fmt: skip
    with warnings.catch_warnings():
        # the promise is about all classes together, so the labelled sample may lack some
        warnings.filterwarnings("ignore", message=r".*conformalization dataset has less labels")
        sets.conformalize(values, truth)
    sets.predict_set(values[:1])  # the quantile is computed on first use
    return float(score.quantiles_[0])


def _sets(
    values: NDArray[np.float64], threshold: float, confidence: float, method: Method
) -> NDArray[np.bool_]:
    """MAPIE's sets (n, K) for a given threshold."""
    score = _score(method)
    score.quantiles_ = np.array([threshold])
    found: NDArray[np.bool_] = score.get_prediction_sets(
        values[:, :, None], conformity_scores=np.empty((0, 1)),
        alpha_np=np.array([1 - confidence]), cv="prefit", include_last_label=True,
    )  # fmt: skip
    return found[:, :, 0]


class _Given:
    """A fitted classifier, as MAPIE expects one, whose inputs are the probabilities themselves."""

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
    scores = _mapie("conformity_scores")
    return scores.LACConformityScore() if method == "lac" else scores.APSConformityScore()


def _mapie(part: str) -> Any:
    return load_extra(f"mapie.{part}", extra="conformal", purpose="Conformal sets")


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
    mixed = (1 - least * raw.shape[1]) * raw + least  # keeps the order, and sums to one
    found: NDArray[np.float64] = mixed.cpu().numpy()
    return found
