"""Which class of scikit-learn becomes which module, and why some have none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from credibly.adapters.sklearn import linear
from credibly.adapters.sklearn.compounds import calibrated, one_versus_rest, soft_vote
from credibly.adapters.sklearn.context import Context, kind_of, require_fitted
from credibly.adapters.sklearn.gaussian_process import gaussian_process
from credibly.adapters.sklearn.heads import Chain, Head
from credibly.adapters.sklearn.kernel_machines import kernel_ridge, support_vectors
from credibly.adapters.sklearn.transforms import ENCODE, TRANSFORMS, select
from credibly.errors import ModelError

HEADS: dict[str, Callable[[Any, Context], Head]] = {
    "LogisticRegression": linear.logistic_regression,
    "LogisticRegressionCV": linear.logistic_regression,
    "SGDClassifier": linear.sgd,
    "Perceptron": linear.hinge_head,
    "PassiveAggressiveClassifier": linear.hinge_head,
    "RidgeClassifier": linear.hinge_head,
    "RidgeClassifierCV": linear.hinge_head,
    "LinearSVC": linear.linear_svc,
    "LinearDiscriminantAnalysis": linear.softmax_head,
    "QuadraticDiscriminantAnalysis": linear.quadratic_discriminant,
    "GaussianNB": linear.gaussian_naive_bayes,
    "SVC": support_vectors,
    "NuSVC": support_vectors,
    "GaussianProcessClassifier": gaussian_process,
    "MLPClassifier": linear.multilayer_perceptron,
    "KernelRidge": kernel_ridge,
    "OneVsRestClassifier": lambda model, context: one_versus_rest(model, context, build_head),
    "VotingClassifier": lambda model, context: soft_vote(model, context, build_head),
    "CalibratedClassifierCV": lambda model, context: calibrated(model, context, build_head),
}

_INSIDE = {
    "FrozenEstimator": "estimator",
    "GridSearchCV": "best_estimator_",
    "RandomizedSearchCV": "best_estimator_",
    "HalvingGridSearchCV": "best_estimator_",
    "HalvingRandomSearchCV": "best_estimator_",
}

_FLAT = ("Tree", "Forest", "Boosting", "AdaBoost", "Neighbors")
_WHY_FLAT = "it is piecewise constant: no gradient says where to move an input"

_OTHERS = (
    "Use a differentiable model, such as LogisticRegression, SVC, MLPClassifier or "
    "GaussianProcessClassifier, or fit one to this model's predictions; a torch model of your "
    "own goes into credibly.Classifier. The list is in docs/how-to/scikit-learn.md."
)


def refuse_flat(kind: str) -> None:
    """Raise for the name of a class that cannot be differentiated, before a file is opened."""
    if any(word in kind for word in _FLAT):
        raise ModelError(f"{kind}: {_WHY_FLAT}", remedy=_OTHERS)


def inside_of(kind: str) -> str | None:
    """The attribute in which a search or a frozen estimator keeps its fitted model."""
    return _INSIDE.get(kind)


def unwrapped(estimator: Any) -> Any:
    """The fitted model inside a search or a frozen estimator."""
    while (inside := inside_of(kind_of(estimator))) is not None:
        inner = getattr(estimator, inside, None)
        if inner is None:
            return estimator
        estimator = inner
    return estimator


def build_head(estimator: Any, context: Context) -> Head:
    """The twin of a fitted classifier, however it is wrapped."""
    estimator = unwrapped(estimator)
    kind = kind_of(estimator)
    if kind == "Pipeline":
        return _pipeline(estimator, context)
    if kind not in HEADS:
        raise _no_twin(estimator, context)
    require_fitted(estimator, context)
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
    selects = bool(kind) and hasattr(model, "get_support")
    together = kind in ("ColumnTransformer", "FeatureUnion")
    if not (selects or together or kind in TRANSFORMS):
        raise _no_transform(model, context)
    require_fitted(model, context)
    if together:
        return _side_by_side(model, context)
    return select(model.get_support(indices=True)) if selects else TRANSFORMS[kind](model, context)


def _pipeline(model: Any, context: Context) -> Head:
    *before, (name, last) = model.steps
    inside = context.inside(name)
    ends = last is not None and not isinstance(last, str)
    inside.require(ends, "passthrough", "no classifier", "End the pipeline with a classifier.")
    # the last step first: that it is a tree matters more than what comes before it
    head = build_head(last, inside)
    return Chain([build_transform(step, context.inside(title)) for title, step in before], head)


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
    union = kind_of(model) == "FeatureUnion"
    listed = model.transformer_list if union else [entry[:2] for entry in model.transformers_]
    # scikit-learn's own record of the columns, however they were named at fit
    columns = {} if union else model._transformer_to_input_indices  # noqa: SLF001
    weights = model.transformer_weights or {}
    parts, factors = [], []
    for name, transform in listed:
        empty = not union and len(columns[name]) == 0  # scikit-learn leaves it unfitted
        if empty or (isinstance(transform, str) and transform == "drop"):
            continue
        part = build_transform(transform, context.inside(name))
        parts.append(part if union else nn.Sequential(select(columns[name]), part))
        factors.append(float(weights.get(name, 1.0)))
    context.require(bool(parts), model, "it keeps no columns", "Name some columns to keep.")
    return SideBySide(parts, context.tensor(factors))


def _is_flat(estimator: Any) -> bool:
    """Whether it is piecewise constant: trees and the like, and votes of other models."""
    kind = type(estimator).__name__
    if "Bagging" not in kind:
        uniform = getattr(estimator, "weights", "uniform") == "uniform"  # of neighbours
        return uniform and any(word in kind for word in _FLAT)
    member = unwrapped(getattr(estimator, "estimator_", None))
    last = member.steps[-1][1] if kind_of(member) == "Pipeline" else member
    return not hasattr(member, "predict_proba") or _is_flat(unwrapped(last))


def _no_twin(estimator: Any, context: Context) -> Exception:
    kind = type(estimator).__name__
    if inside_of(kind_of(estimator)) is not None:
        remedy = "Call fit(X, y) first; a search must have refit=True."
        return context.refusal(estimator, "it holds no fitted model", remedy)
    if kind == "CredibilityClassifier":
        return _not_alone(estimator, context)
    bases = [base.__name__ for base in type(estimator).__mro__ if base.__name__ in HEADS]
    why, remedy = "it has no twin", _OTHERS
    if _is_flat(estimator):
        why = _WHY_FLAT
    elif not hasattr(estimator, "classes_"):
        why, remedy = (
            "it is no classifier",
            "Pass a fitted classifier, or a pipeline that ends in one.",
        )
    elif "Neighbors" in kind:
        why = "it jumps where other neighbours become the nearest"
    elif kind_of(estimator) == "BaggingClassifier":
        remedy = f"VotingClassifier(voting='soft') over the same models has one. {_OTHERS}"
    elif not kind_of(estimator) and bases:
        why = f"a subclass of {bases[0]} may compute something else"
    elif not kind_of(estimator):
        why = "it is not one of scikit-learn's own classes"
    return context.refusal(estimator, why, remedy)


def _not_alone(estimator: Any, context: Context) -> Exception:
    """A CredibilityClassifier that is not fitted, or that is a part of another model."""
    if not context.path:
        return context.refusal(estimator, "it is not fitted", "Call fit(X, y) first.")
    return context.refusal(
        estimator,
        "it moves what the steps before it give, not the inputs of the whole",
        "Pass it alone, with inputs that went through these steps: pipeline[-1] and "
        "pipeline[:-1].transform(X). Or put it around the whole: "
        "CredibilityClassifier(pipeline, space='standardised').",
    )


def _no_transform(model: Any, context: Context) -> Exception:
    if type(model).__name__.endswith("Encoder"):
        why = "a category has no gradient: nothing says where to move it"
        return context.refusal(model, why, ENCODE)
    return context.refusal(
        model,
        "this transform has no twin",
        f"These have one: {', '.join(sorted(TRANSFORMS))}, feature selection, ColumnTransformer, "
        "FeatureUnion and Pipeline. Transform the data before the model; profiles are then made "
        "in the transformed space.",
    )
