"""A scikit-learn meta-estimator: fits a classifier, and gives profiles of its predictions."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from credibly._validation import require
from credibly.adapters.sklearn.context import SvcOutputs, kind_of
from credibly.adapters.sklearn.twin import from_sklearn
from credibly.errors import CrediblyWarning, MissingExtraError, ModelError
from credibly.model.batches import refuse_sparse, unlike_units
from credibly.model.classifier import Classifier
from credibly.model.losses import Loss
from credibly.model.space import Space
from credibly.problem.weights import auto_gamma, positive_gamma
from credibly.profile.credibility import credibility
from credibly.profile.profile import Profile
from credibly.solve.base import Solver
from credibly.types import Bounds

try:
    from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, clone
    from sklearn.exceptions import NotFittedError
    from sklearn.metrics import accuracy_score
    from sklearn.utils.metaestimators import available_if
    from sklearn.utils.validation import check_is_fitted
except ImportError as error:
    raise MissingExtraError(
        package="scikit-learn", extra="sklearn", purpose="CredibilityClassifier"
    ) from error


def _inner_has(method: str) -> Callable[[Any], bool]:
    """Whether the inner model, fitted or not, offers a method."""

    def has(self: Any) -> bool:
        getattr(getattr(self, "estimator_", self.estimator), method)
        return True

    return has


class CredibilityClassifier(ClassifierMixin, MetaEstimatorMixin, BaseEstimator):  # type: ignore[misc]
    """A scikit-learn classifier that also says how credible each class is.

    `predict`, `predict_proba` and `decision_function` are those of the inner model; `profile` and
    `predict_credibility` use its differentiable twin (`credibly.from_sklearn`). Once fitted, it may
    be passed wherever a `Classifier` is expected.

    Args:
        estimator: the classifier or pipeline, cloned and fitted by `fit`. Inside
            `sklearn.frozen.FrozenEstimator`, or with `prefit=True`, it is used as it is.
        gamma: the cost of moving an input; 'auto' sets it at fit from the training data, so the
            profile of a sample does not depend on the batch.
        solver: by default `credibly.solvers.Hybrid()`.
        loss: by default the one that fits the model.
        svc_outputs: see `from_sklearn`.
        space: the cost of moving each column of X: a `Space`, or 'standardised' for
            `Space.standardised` of the training data, in which a standard deviation of any column
            costs the same. None measures all columns in their own units, which is right if they
            were scaled before.
        bounds: smallest and largest value that any feature may take.
        chunk_size: samples solved at a time.
        prefit: use `estimator` as it is; `fit` then only sets gamma.

    Attributes:
        estimator_: the fitted model.
        classifier_: its twin, made again after loading: files hold the fitted model alone.
        gamma_: the gamma in use.
        space_: the space in use, or None.
        classes_: labels, in the order of all columns.
        n_features_in_: number of features.
        feature_names_in_: their names, if fitted on a table.

    Example:
        >>> import credibly as cr
        >>> from sklearn.linear_model import LogisticRegression
        >>> model = cr.CredibilityClassifier(LogisticRegression(), gamma=1.0)
        >>> model = model.fit([[0.0], [1.0], [2.0], [3.0]], [0, 0, 1, 1])
        >>> model.predict([[2.5]]), model.predict_credibility([[2.5]]).shape
        (array([1]), (1, 2))
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
        refuse_sparse(X, "X")
        self._check_space()
        frozen = self.prefit or kind_of(self.estimator) == "FrozenEstimator"
        model = self.estimator if frozen else clone(self.estimator).fit(X, y, **fit_params)
        _check_classes(model)
        own = self.space if isinstance(self.space, Space) else None
        made_with: dict[str, Any] = {"loss": self.loss, "svc_outputs": self.svc_outputs}
        twin = from_sklearn(model, space=own, **made_with)
        inputs = twin.net.as_tensor(X)  # type: ignore[attr-defined]
        names = twin.net.feature_names  # type: ignore[attr-defined]
        if self.space is not None and own is None:
            twin.space = Space.standardised(inputs, columns=names)
        twin.space = _of_arrays(twin.space)
        auto = isinstance(self.gamma, str) and self.gamma == "auto"
        if not auto:
            _warn_of_units(twin, inputs)  # else auto_gamma does
        self.gamma_ = auto_gamma(twin, inputs) if auto else positive_gamma(self.gamma)
        self.estimator_, self.space_, self._twin = model, twin.space, twin
        self._made_with = made_with
        self.classes_ = np.asarray(model.classes_)
        self.n_features_in_ = int(inputs.shape[1])
        if names is not None:
            self.feature_names_in_ = np.asarray(names, dtype=object)
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_
        return self

    @property
    def classifier_(self) -> Classifier:
        """The twin of the fitted model."""
        model = self._fitted()
        twin: Classifier | None = getattr(self, "_twin", None)
        if twin is None:
            twin = from_sklearn(model, space=self.space_, **self._made_with)
            self._twin = twin
        return twin

    def __getstate__(self) -> dict[str, Any]:
        """What files hold: no tensors, which skops cannot store."""
        state = dict(super().__getstate__())
        state.pop("_twin", None)
        return {**state, "space": _of_arrays(state["space"])}

    def _check_space(self) -> None:
        named = isinstance(self.space, str) and self.space == "standardised"
        require(
            self.space is None or named or isinstance(self.space, Space),
            "space",
            "a credibly.Space, 'standardised' or None",
            repr(self.space),
            "'standardised' takes the standard deviations of the training data.",
        )

    def predict(self, X: Any) -> NDArray[Any]:  # noqa: N803
        """Labels (n,), as the inner model gives them."""
        return np.asarray(self._fitted().predict(X))

    @available_if(_inner_has("predict_proba"))  # type: ignore[untyped-decorator, unused-ignore]
    def predict_proba(self, X: Any) -> NDArray[np.floating]:  # noqa: N803
        """Probabilities (n, K) of the inner model, if it has them."""
        return np.asarray(self._fitted().predict_proba(X))

    @available_if(_inner_has("decision_function"))  # type: ignore[untyped-decorator, unused-ignore]
    def decision_function(self, X: Any) -> NDArray[np.floating]:  # noqa: N803
        """Scores of the inner model, if it has them."""
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
        """Accuracy of the most credible class; unlike `score`, it depends on gamma.

        As a scorer: `GridSearchCV(..., scoring=CredibilityClassifier.most_credible_score)`.
        """
        return float(accuracy_score(y, self.predict_most_credible(X)))

    def _fitted(self) -> Any:
        check_is_fitted(self, "estimator_")
        return self.estimator_

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "estimator_")


def _warn_of_units(twin: Classifier, inputs: Tensor) -> None:
    """Warn if the units of the columns differ so much that only some columns would move."""
    said = unlike_units(twin, inputs)
    if said is not None:
        warnings.warn(said, CrediblyWarning, stacklevel=3)


def _of_arrays(value: Any) -> Any:
    """A space with arrays in the place of its tensors; anything else as it is."""
    if isinstance(value, Tensor):
        return value.detach().cpu().numpy()
    if isinstance(value, Mapping):
        return {name: _of_arrays(part) for name, part in value.items()}
    if isinstance(value, tuple):
        return tuple(map(_of_arrays, value))
    if isinstance(value, Space):
        own = {field.name: _of_arrays(getattr(value, field.name)) for field in fields(value)}
        return replace(value, **own)
    return value


def _check_classes(model: Any) -> None:
    name = type(model).__name__
    try:
        check_is_fitted(model)
    except NotFittedError as error:
        remedy = "Fit it first, or leave out prefit."
        raise ModelError(f"{name}: prefit=True, but it is not fitted", remedy=remedy) from error
    if not hasattr(model, "classes_"):
        remedy = "Use credibly.from_sklearn for a KernelRidge on one-hot targets."
        raise ModelError(f"{name}: not a classifier, as it has no classes_", remedy=remedy)
    count = len(model.classes_)
    expected, got = "at least two classes", f"{count} class"
    require(count > 1, "y", expected, got, "A profile compares classes.")
