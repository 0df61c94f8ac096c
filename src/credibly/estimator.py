"""A scikit-learn meta-estimator: fits a classifier, and gives profiles of its predictions."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from credibly.adapters.sklearn.context import kind_of, missing_sklearn

try:
    from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, clone
    from sklearn.exceptions import NotFittedError
    from sklearn.metrics import accuracy_score
    from sklearn.utils.metaestimators import available_if
    from sklearn.utils.validation import check_is_fitted
except ImportError as error:
    raise missing_sklearn("CredibilityClassifier") from error

from credibly.adapters.sklearn.context import SvcOutputs
from credibly.adapters.sklearn.twin import from_sklearn
from credibly.errors import CrediblyWarning, InvalidArgumentError, ModelError
from credibly.model.losses import Loss
from credibly.model.space import Space
from credibly.model.tables import unlike_spreads
from credibly.problem.weights import auto_gamma, positive
from credibly.profile.credibility import credibility
from credibly.profile.profile import Profile
from credibly.solve.base import Solver
from credibly.types import Bounds

if TYPE_CHECKING:
    from torch import Tensor

    from credibly.model.classifier import Classifier


def _inner_has(method: str) -> Callable[[Any], bool]:
    """Whether the inner model, fitted or not, offers a method."""

    def has(self: Any) -> bool:
        getattr(getattr(self, "estimator_", self.estimator), method)
        return True

    return has


class CredibilityClassifier(ClassifierMixin, MetaEstimatorMixin, BaseEstimator):  # type: ignore[misc]
    """A classifier of scikit-learn that can say how credible each class is.

    `predict`, `predict_proba` and `decision_function` are those of the inner model; `profile` and
    `predict_credibility` are made with its differentiable twin (`credibly.from_sklearn`).

    Args:
        estimator: the classifier or pipeline, cloned and fitted by `fit`. Inside of
            `sklearn.frozen.FrozenEstimator`, or with `prefit=True`, it is used as it is.
        gamma: how dear it is to move an input; 'auto' finds it on the training data at fit, so
            that the profile of a sample does not depend on the company it is in.
        solver: by default `credibly.solvers.Hybrid()`.
        loss: by default the one that fits the model.
        svc_outputs: as of `from_sklearn`.
        space: how dear it is to move each column, in the inputs of the estimator: a `Space`, or
            'standardised' for `Space.standardised` of the training data, in which a deviation of
            any column costs the same. None measures all columns alike, in their own units: right
            where they are scaled before they come here.
        bounds: smallest and largest value that any feature may take.
        chunk_size: samples solved at a time.
        prefit: use `estimator` as it is; `fit` then only finds gamma.

    Attributes:
        estimator_: the fitted model.
        classifier_: its twin.
        gamma_: the weight that is used.
        classes_: labels, in the order of all columns.
        n_features_in_: number of features.
        feature_names_in_: their names, where fitted on a table.
    """

    def __init__(
        self,
        estimator: Any,
        *,
        gamma: float | Literal["auto"] = "auto",
        solver: Solver | None = None,
        loss: str | Loss | None = None,
        svc_outputs: SvcOutputs = "soft_minimum",
        space: Space | Literal["standardised"] | None = None,
        bounds: Bounds | None = None,
        chunk_size: int = 128,
        prefit: bool = False,
    ) -> None:
        self.estimator = estimator
        self.gamma = gamma
        self.solver = solver
        self.loss = loss
        self.svc_outputs = svc_outputs
        self.space = space
        self.bounds = bounds
        self.chunk_size = chunk_size
        self.prefit = prefit

    def fit(self, X: Any, y: Any, **fit_params: Any) -> CredibilityClassifier:  # noqa: N803
        """Fit the inner model, build its twin and settle gamma; `fit_params` go to the model."""
        _refuse_sparse(X)
        frozen = self.prefit or kind_of(self.estimator) == "FrozenEstimator"
        model = self.estimator if frozen else clone(self.estimator).fit(X, y, **fit_params)
        _check_classes(model)
        chosen = _space(self.space, X if hasattr(model, "feature_names_in_") else _nameless(X))
        twin = from_sklearn(model, loss=self.loss, svc_outputs=self.svc_outputs, space=chosen)
        inputs = twin.net.as_tensor(X)  # type: ignore[attr-defined]
        _compare_spreads(chosen, inputs)
        self.gamma_ = _gamma(self.gamma, twin, inputs)
        self.estimator_, self.classifier_ = model, twin
        self.classes_ = np.asarray(model.classes_)
        self.n_features_in_ = int(inputs.shape[1])
        self._note_names(twin)
        return self

    def _note_names(self, twin: Classifier) -> None:
        names = twin.net.feature_names  # type: ignore[attr-defined]
        if names is not None:
            self.feature_names_in_ = np.asarray(names, dtype=object)
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_

    def predict(self, X: Any) -> NDArray[Any]:  # noqa: N803
        """Labels (n,), as the inner model gives them."""
        return np.asarray(self._fitted().predict(X))

    @available_if(_inner_has("predict_proba"))  # type: ignore[untyped-decorator, unused-ignore]
    def predict_proba(self, X: Any) -> NDArray[np.floating]:  # noqa: N803
        """Probabilities (n, K) of the inner model, where it has them."""
        return np.asarray(self._fitted().predict_proba(X))

    @available_if(_inner_has("decision_function"))  # type: ignore[untyped-decorator, unused-ignore]
    def decision_function(self, X: Any) -> NDArray[np.floating]:  # noqa: N803
        """Scores of the inner model, where it has them."""
        return np.asarray(self._fitted().decision_function(X))

    def profile(self, X: Any) -> Profile:  # noqa: N803
        """The full credibility profiles."""
        self._fitted()
        inputs = self.classifier_.net.as_tensor(X)  # type: ignore[attr-defined]
        return credibility(
            self.classifier_,
            inputs,
            gamma=self.gamma_,
            solver=self.solver,
            bounds=self.bounds,
            chunk_size=self.chunk_size,
        )

    def predict_credibility(self, X: Any) -> NDArray[np.floating]:  # noqa: N803
        """Credibilities c+ (n, K), at most 0; higher is more credible."""
        return self.profile(X).credibility.cpu().numpy()

    def predict_most_credible(self, X: Any) -> NDArray[Any]:  # noqa: N803
        """Labels (n,) of the most credible class, which need not be the predicted one."""
        return np.asarray(self.classes_[self.predict_credibility(X).argmax(1)])

    def most_credible_score(self, X: Any, y: Any) -> float:  # noqa: N803
        """Accuracy of the most credible class: unlike `score` it depends on gamma.

        As a scorer: `GridSearchCV(..., scoring=CredibilityClassifier.most_credible_score)`.
        """
        return float(accuracy_score(y, self.predict_most_credible(X)))

    def _fitted(self) -> Any:
        check_is_fitted(self, "estimator_")
        return self.estimator_

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "estimator_")


def _gamma(gamma: object, twin: Classifier, inputs: Any) -> float:
    if isinstance(gamma, str) and gamma == "auto":
        return auto_gamma(twin, inputs)
    return positive(gamma, "gamma")


def _nameless(x: Any) -> Any:
    """A table as scikit-learn takes it where names are no text: by place."""
    try:
        return np.asarray(x, dtype=np.float64)
    except (TypeError, ValueError):
        return x  # refused where its numbers are needed


def _space(asked: Space | Literal["standardised"] | None, x: Any) -> Space | None:
    if isinstance(asked, str) and asked == "standardised":
        return Space.standardised(x)
    if asked is None or isinstance(asked, Space):
        return asked
    raise InvalidArgumentError(
        "space",
        expected="a credibly.Space, 'standardised' or None",
        got=repr(asked),
        remedy="'standardised' takes the deviations of the training data.",
    )


def _compare_spreads(space: Space | None, inputs: Tensor) -> None:
    """Warn where a movement would be one of the columns of the smallest units alone."""
    unlike = None if space is not None else unlike_spreads(inputs)
    if unlike is not None:
        warnings.warn(
            f"columns spread by {unlike[0]:.3g} to {unlike[1]:.3g}: profiles move each in its own "
            "units, so that those of large units hardly move, also with a scaler inside of the "
            "estimator. Pass space='standardised', or scale before: make_pipeline("
            "StandardScaler(), CredibilityClassifier(...)).",
            CrediblyWarning,
            stacklevel=3,
        )


def _refuse_sparse(x: Any) -> None:
    if hasattr(x, "toarray") and not isinstance(x, np.ndarray):
        raise InvalidArgumentError(
            "X",
            expected="a dense matrix or table",
            got=f"a sparse {type(x).__name__}",
            remedy="Convert it: X.toarray(). Profiles move every feature, also those at zero.",
        )


def _check_classes(model: Any) -> None:
    try:
        check_is_fitted(model)
    except NotFittedError as error:
        raise ModelError(
            f"{type(model).__name__}: prefit=True, but it is not fitted",
            remedy="Fit it first, or leave out prefit.",
        ) from error
    if not hasattr(model, "classes_"):
        raise ModelError(
            f"{type(model).__name__}: it has no classes_, so that it is no classifier",
            remedy="Use credibly.from_sklearn for a KernelRidge on one-hot targets.",
        )
    if len(model.classes_) < 2:
        raise InvalidArgumentError(
            "y",
            expected="at least two classes",
            got=f"{len(model.classes_)} class",
            remedy="A profile compares classes.",
        )
