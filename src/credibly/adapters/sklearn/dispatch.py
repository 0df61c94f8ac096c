"""Which class of scikit-learn becomes which module, and why some cannot."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from credibly.adapters.sklearn import linear
from credibly.adapters.sklearn.compounds import calibrated, one_versus_rest, soft_vote
from credibly.adapters.sklearn.context import Context, kind_of, require_fitted
from credibly.adapters.sklearn.gaussian_process import gaussian_process
from credibly.adapters.sklearn.heads import Chain, Head
from credibly.adapters.sklearn.neural import kernel_ridge, multilayer_perceptron
from credibly.adapters.sklearn.support_vectors import support_vectors
from credibly.adapters.sklearn.transforms import ENCODE, TRANSFORMS, Select
from credibly.errors import ModelError

HEADS: dict[str, Callable[[Any, Context], Head]] = {
    "LogisticRegression": linear.logistic_regression,
    "LogisticRegressionCV": linear.logistic_regression,
    "SGDClassifier": linear.sgd,
    "Perceptron": linear.hinged,
    "PassiveAggressiveClassifier": linear.hinged,
    "RidgeClassifier": linear.hinged,
    "RidgeClassifierCV": linear.hinged,
    "LinearSVC": linear.linear_svc,
    "LinearDiscriminantAnalysis": linear.linear_discriminant,
    "QuadraticDiscriminantAnalysis": linear.quadratic_discriminant,
    "GaussianNB": linear.gaussian_naive_bayes,
    "SVC": support_vectors,
    "NuSVC": support_vectors,
    "GaussianProcessClassifier": gaussian_process,
    "MLPClassifier": multilayer_perceptron,
    "KernelRidge": kernel_ridge,
}

_COMPOUNDS = {
    "OneVsRestClassifier": one_versus_rest,
    "VotingClassifier": soft_vote,
    "CalibratedClassifierCV": calibrated,
}

_INSIDE = {
    "FrozenEstimator": "estimator",
    "GridSearchCV": "best_estimator_",
    "RandomizedSearchCV": "best_estimator_",
    "HalvingGridSearchCV": "best_estimator_",
    "HalvingRandomSearchCV": "best_estimator_",
}

_FLAT = ("Tree", "Forest", "Boosting", "AdaBoost", "Bagging", "Neighbors", "NearestCentroid")


_WHY_FLAT = "it is piecewise constant: no gradient says where to move an input"

_OTHERS = (
    "Use a differentiable model, such as LogisticRegression, SVC, MLPClassifier or "
    "GaussianProcessClassifier, or fit one to this model's predictions; a torch model of your "
    "own goes into credibly.Classifier. The list is in docs/scikit-learn.md."
)


def refuse_flat(kind: str) -> None:
    """Raise for the name of a class that cannot be differentiated, before a file is opened."""
    if any(word in kind for word in _FLAT):
        raise ModelError(f"{kind}: {_WHY_FLAT}", remedy=_OTHERS)


def inside_of(kind: str) -> str | None:
    """The attribute in which a search or a freezer keeps its fitted model."""
    return _INSIDE.get(kind)


def unwrapped(estimator: Any) -> Any:
    """The fitted model inside a search or a freezer."""
    while kind_of(estimator) in _INSIDE:
        inner = getattr(estimator, _INSIDE[kind_of(estimator)], None)
        if inner is None:
            return estimator
        estimator = inner
    return estimator


def build_head(estimator: Any, context: Context) -> Head:
    """The twin of a fitted classifier, however it is wrapped."""
    estimator = unwrapped(estimator)
    if kind_of(estimator) == "Pipeline":
        return _pipeline(estimator, context)
    kind = kind_of(estimator)
    if kind not in HEADS and kind not in _COMPOUNDS:
        raise _no_twin(estimator, context)
    require_fitted(estimator, context)
    if kind in _COMPOUNDS:
        return _COMPOUNDS[kind](estimator, context, build_head)
    return HEADS[kind](estimator, context)


def build_transform(model: Any, context: Context) -> nn.Module:
    """The twin of a fitted transformer; 'passthrough' and None do nothing."""
    model = unwrapped(model)
    if model is None or (isinstance(model, str) and model == "passthrough"):
        return nn.Identity()
    kind = kind_of(model)
    if kind == "Pipeline":
        parts = [build_transform(step, context.inside(name)) for name, step in model.steps]
        return nn.Sequential(*parts)
    if kind in ("ColumnTransformer", "FeatureUnion"):
        require_fitted(model, context)
        return _side_by_side(model, context)
    selects = kind and hasattr(model, "get_support")
    if kind not in TRANSFORMS and not selects:
        raise _no_transform(model, context)
    require_fitted(model, context)
    if selects:
        return Select(model.get_support(indices=True))
    return TRANSFORMS[kind](model, context)


def _pipeline(model: Any, context: Context) -> Head:
    *before, (name, last) = model.steps
    # the last step first: that it is a tree matters more than what comes before it
    if last is None or isinstance(last, str):
        raise context.inside(name).refusal(
            "passthrough", "no classifier", remedy="End the pipeline with a classifier."
        )
    head = build_head(last, context.inside(name))
    transforms = [build_transform(step, context.inside(title)) for title, step in before]
    return Chain(transforms, head)


class SideBySide(nn.Module):
    """Several transforms of the same input, their outputs next to each other."""

    weights: Tensor

    def __init__(self, parts: list[nn.Module], weights: Tensor) -> None:
        super().__init__()
        self.parts = nn.ModuleList(parts)
        self.register_buffer("weights", weights)

    def forward(self, x: Tensor) -> Tensor:
        pairs = zip(self.parts, self.weights, strict=True)
        return torch.cat([part(x) * weight for part, weight in pairs], dim=1)


def _side_by_side(model: Any, context: Context) -> nn.Module:
    weights = model.transformer_weights or {}
    parts, factors = [], []
    union = kind_of(model) == "FeatureUnion"
    listed = [(n, t, None) for n, t in model.transformer_list] if union else model.transformers_
    for name, transform, columns in listed:
        if isinstance(transform, str) and transform == "drop":
            continue
        chosen = None if columns is None else _positions(model, columns)
        if chosen is not None and len(chosen) == 0:
            continue  # scikit-learn leaves the transform of no columns unfitted
        part = build_transform(transform, context.inside(name))
        part = part if chosen is None else nn.Sequential(Select(chosen), part)
        parts.append(part)
        factors.append(float(weights.get(name, 1.0)))
    if not parts:
        raise context.refusal(model, "it keeps no columns", remedy="Name some columns to keep.")
    return SideBySide(parts, context.tensor(factors))


def _positions(model: Any, columns: Any) -> Any:
    """Numbers of the columns, however they were named at fit."""
    everything = np.arange(model.n_features_in_)
    if isinstance(columns, slice) and (
        isinstance(columns.start, str) or isinstance(columns.stop, str)
    ):
        names = list(model.feature_names_in_)
        first = 0 if columns.start is None else names.index(columns.start)
        last = len(names) if columns.stop is None else names.index(columns.stop) + 1
        return everything[first:last]
    if isinstance(columns, slice):
        return everything[columns]
    listed = np.atleast_1d(np.asarray(columns))
    if listed.dtype.kind in "OUST":
        names = list(model.feature_names_in_)
        return np.array([names.index(name) for name in listed])
    return everything[listed] if len(listed) else everything[:0]


def _no_twin(estimator: Any, context: Context) -> Exception:
    kind = type(estimator).__name__
    if kind_of(estimator) in _INSIDE:
        return context.refusal(
            estimator,
            "it holds no fitted model",
            remedy="Call fit(X, y) first; a search must have refit=True.",
        )
    if any(word in kind for word in _FLAT):
        why = _WHY_FLAT
    elif not kind_of(estimator):
        known = [base.__name__ for base in type(estimator).__mro__ if base.__name__ in HEADS]
        why = (
            f"a subclass of {known[0]} may compute something else"
            if known
            else "it is not one of scikit-learn's own classes"
        )
    else:
        why = "it has no twin"
    return context.refusal(estimator, why, remedy=_OTHERS)


def _no_transform(model: Any, context: Context) -> Exception:
    if type(model).__name__.endswith("Encoder"):
        why = "a category has no gradient: nothing says where to move it"
        return context.refusal(model, why, remedy=ENCODE)
    return context.refusal(
        model,
        "this transform has no twin",
        remedy=f"Those that have one: {', '.join(sorted(TRANSFORMS))}, feature selection, "
        "ColumnTransformer, FeatureUnion and Pipeline. Transform the data before the model, and "
        "profiles are then made in the transformed space.",
    )
