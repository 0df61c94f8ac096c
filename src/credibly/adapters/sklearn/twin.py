"""A fitted scikit-learn model as a torch module that computes the same, differentiably."""

from __future__ import annotations

from typing import Any, Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from credibly._validation import choice, require
from credibly.adapters.sklearn.context import Context, SvcOutputs, kind_of, require_fitted
from credibly.adapters.sklearn.dispatch import build_head, unwrapped
from credibly.adapters.sklearn.heads import Head
from credibly.adapters.sklearn.tables import Names, as_matrix, check_columns
from credibly.errors import ModelError
from credibly.model.batches import TakesTables
from credibly.model.classifier import Classifier
from credibly.model.losses import Loss
from credibly.model.space import Space
from credibly.types import CPU

_KEEP = ("SimpleImputer", "FunctionTransformer")
"""Steps with a twin that leave every complete row as it is."""


def steps_of(model: Any) -> list[Any]:
    """The model, or the steps of a pipeline, from the first on."""
    if kind_of(model) != "Pipeline":
        return [model]
    return [part for _, step in model.steps for part in steps_of(unwrapped(step))]


def deviations_of(model: Any) -> NDArray[np.float64] | None:
    """The standard deviations of the inputs at fit (d,), 0 for constant ones; None if unknown.

    They are known only from a StandardScaler that sees the inputs themselves.
    """
    for step in steps_of(model):
        if kind_of(step) == "StandardScaler":
            return None if step.scale_ is None else _spreads(step)
        if not (step is None or isinstance(step, str) or kind_of(step) in _KEEP):
            return None
    return None


def _spreads(scaler: Any) -> NDArray[np.float64]:
    spreads = np.sqrt(np.asarray(scaler.var_, dtype=np.float64))
    # scikit-learn divides by 1 where a column is constant, even if rounding says otherwise
    constant = ~np.isclose(scaler.scale_, spreads, rtol=1e-6, atol=0.0)
    return np.where(constant, 0.0, spreads)


def standardised_space(model: Any, names: Names) -> Space:
    """The space in which a standard deviation of the scaler's data costs 1 in any column."""
    found = deviations_of(model)
    require(
        found is not None,
        "space",
        "for 'standardised' a pipeline that begins with a StandardScaler, which knows the standard "
        "deviations",
        f"a {type(model).__name__} without one",
        "Pass the training inputs: space=Space.standardised(X_train).",
    )
    deviations = np.asarray(found)
    constant = deviations == 0.0
    return Space(scale=np.where(constant, 1.0, deviations), locked=constant, columns=names)


class Twin(TakesTables):
    """The module inside the classifier that `from_sklearn` returns; all its numbers are buffers.

    Calling it gives the outputs for profiles. `decision_function` and `predict_proba` give what
    the methods of that name of the model give, as tensors.

    Attributes:
        features: number of features of the inputs.
        feature_names: their names, if the model was fitted on a table.
    """

    reference: Tensor  # has the device and precision, also if a model has no other number

    def __init__(self, head: Head, features: int, names: Names, dtype: torch.dtype) -> None:
        super().__init__()
        self.register_buffer("reference", torch.zeros((), dtype=dtype, device=CPU))
        self.head, self.features, self.feature_names = head, features, names

    def forward(self, x: Tensor) -> Tensor:
        """Outputs (n, m) for inputs (n, features)."""
        require(
            x.dim() == 2 and x.shape[1] == self.features,
            "x",
            f"inputs (n, {self.features}), the features of the fit",
            f"shape {tuple(x.shape)}",
            "Pass the columns that the model was fitted on.",
        )
        outputs: Tensor = self.head(x)
        return outputs

    def as_tensor(self, x: Any, *, gaps: bool = False) -> Tensor:
        """An array, list or table as a tensor, its columns checked against those of the fit."""
        names, dtype = self.feature_names, self.reference.dtype
        values = as_matrix(x, features=self.features, names=names, dtype=dtype, gaps=gaps)
        return values.to(self.reference.device)

    def of_table(self, table: Any) -> Tensor:
        """The same for a table with columns in any order; missing values stay missing."""
        names = self.feature_names
        if names is not None and set(table.columns) == set(names):
            table = table[list(names)]
        return self.as_tensor(table, gaps=True)

    def decision_function(self, x: Tensor) -> Tensor:
        """The model's own decision function: (n,) for two classes, else (n, K) or (n, pairs)."""
        values = self.head.decision_function(x)
        return values.squeeze(1) if values.shape[1] == 1 else values

    def predict_proba(self, x: Tensor) -> Tensor:
        """The model's own probabilities (n, K)."""
        return self.head.predict_proba(x)


def from_sklearn(
    estimator: Any,
    *,
    loss: str | Loss | None = None,
    dtype: torch.dtype = torch.float64,
    svc_outputs: SvcOutputs = "soft_minimum",
    space: Space | Literal["standardised"] | None = None,
) -> Classifier:
    """Turn a fitted scikit-learn classifier or pipeline into a differentiable `Classifier`.

    The twin computes the same as the model, to rounding. Nothing is trained, and the model is not
    kept. docs/how-to/scikit-learn.md lists the supported models with their outputs and losses.

    Args:
        estimator: a fitted classifier, a `Pipeline` that ends in one, a search over one, or a
            `KernelRidge` that was fitted on one-hot targets (or on -1 and 1, for two classes). Of a
            fitted `CredibilityClassifier` the classifier inside is returned.
        loss: by default the one that fits the model: cross-entropy for models of probabilities,
            one-versus-rest logistic or hinge losses for those of separate scores.
        dtype: precision of the twin; inputs must have the same.
        svc_outputs: the outputs of an SVC or NuSVC of several classes: the 'soft_minimum' or the
            'mean' of a class's one-versus-one decisions. 'probabilities' also work for two
            classes; the model must have been fitted with them.
        space: which columns may move, and the cost of moving each, in the model's own inputs. In a
            pipeline that begins with a `StandardScaler`, 'standardised' takes the standard
            deviations from it, so that one of any column costs the same; for other models pass
            `Space.standardised(X_train)`.

    Returns:
        A `Classifier`; its `net` is a `Twin`, whose `as_tensor` reads and checks tables.

    Raises:
        ModelError: a step cannot be differentiated, is unknown or is not fitted. It is named.

    Example:
        >>> import numpy as np, credibly as cr
        >>> from sklearn.svm import SVC
        >>> x = np.array([[0.0], [1.0], [2.0], [3.0]])
        >>> clf = cr.from_sklearn(SVC().fit(x, ["low", "low", "high", "high"]))
        >>> clf.classes, cr.credibility(clf, x, gamma=1.0).credibility.shape
        (('high', 'low'), torch.Size([4, 2]))
    """
    known = dtype in (torch.float32, torch.float64)
    expected = "torch.float32 or torch.float64"
    require(known, "dtype", expected, repr(dtype), "float64 is as exact as the model itself.")
    remedy = "docs/how-to/scikit-learn.md explains them; leave it out for the first."
    choice("svc_outputs", svc_outputs, get_args(SvcOutputs), remedy)
    context = Context(dtype, svc_outputs)
    if isinstance(estimator, type):
        name = estimator.__name__
        remedy = f"Make one and fit it: {name}(...).fit(X, y)."
        raise context.refusal(name, "it is a class, not a fitted model", remedy)
    if not hasattr(estimator, "fit"):
        require_fitted(estimator, context)
    model = unwrapped(estimator)
    own = getattr(model, "classifier_", None)
    if isinstance(own, Classifier):
        given = loss is not None or space is not None or (dtype, svc_outputs) != _DEFAULTS
        return _as_it_is(model, own, given=given)
    with torch.inference_mode(False):  # tensors made in inference mode take no gradient
        head = build_head(model, context).eval()
        twin = Twin(head, *_features(model), dtype).eval()
        twin.deviations = deviations_of(model)
        if isinstance(space, str) and space == "standardised":
            space = standardised_space(model, twin.feature_names)
        _check_space(space, twin.feature_names)
        chosen = head.loss if loss is None else loss
        return Classifier(twin, classes=_class_names(model, twin), loss=chosen, space=space)


_DEFAULTS = (torch.float64, "soft_minimum")


def _as_it_is(model: Any, own: Classifier, *, given: bool) -> Classifier:
    """The classifier of a fitted CredibilityClassifier, which has settings of its own."""
    if given:
        raise ModelError(
            f"{type(model).__name__}: it has its own loss, space and outputs",
            remedy="Leave out all settings, or pass the model inside it: model.estimator_.",
        )
    return own


def _check_space(space: object, names: Names) -> None:
    """Refuse a space that names the columns of the fit in another order, or only some of them."""
    columns = getattr(space, "columns", None)  # Classifier refuses what is not a space
    if columns is not None and names is not None and {*map(str, columns)} & {*names}:
        check_columns(columns, names, "space")


def _features(model: Any) -> tuple[int, Names]:
    """Number and names of the features of the first step that has any."""
    first = next(step for step in steps_of(model) if getattr(step, "n_features_in_", None))
    names = getattr(first, "feature_names_in_", None)
    return int(first.n_features_in_), None if names is None else tuple(map(str, names))


def _class_names(model: Any, twin: Twin) -> list[str]:
    classes = getattr(model, "classes_", None)
    if classes is not None:
        return [str(name) for name in classes]
    with torch.no_grad():
        outputs = twin(twin.reference.new_zeros(1, twin.features)).shape[1]
    return [str(k) for k in range(max(2, outputs))]
