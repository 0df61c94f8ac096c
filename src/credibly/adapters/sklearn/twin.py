"""A fitted scikit-learn model as a torch module that computes the same, differentiably."""

from __future__ import annotations

from typing import Any, get_args

import torch
from torch import Tensor, nn

from credibly.adapters.sklearn.context import Context, SvcOutputs, kind_of, require_fitted
from credibly.adapters.sklearn.dispatch import build_head, unwrapped
from credibly.adapters.sklearn.heads import Head
from credibly.adapters.sklearn.tables import as_matrix
from credibly.errors import InvalidArgumentError
from credibly.model.classifier import Classifier
from credibly.model.losses import Loss
from credibly.model.space import Space


class Twin(nn.Module):
    """The module inside `from_sklearn`'s classifier; all of its numbers are buffers.

    Calling it gives the outputs of which profiles are made. `decision_function` and
    `predict_proba` give what the methods of that name of the model give, as tensors.

    Attributes:
        features: number of features of the inputs.
        feature_names: their names, where the model was fitted on a table.
    """

    reference: Tensor  # tells device and precision, also where a model has no other number

    def __init__(
        self, head: Head, features: int, feature_names: tuple[str, ...] | None, dtype: torch.dtype
    ) -> None:
        super().__init__()
        self.register_buffer("reference", torch.zeros((), dtype=dtype))
        self.head, self.features, self.feature_names = head, features, feature_names

    def forward(self, x: Tensor) -> Tensor:
        """Outputs (n, m) for inputs (n, features)."""
        if x.dim() != 2 or x.shape[1] != self.features:
            raise InvalidArgumentError(
                "x",
                expected=f"inputs (n, {self.features}), the features of the fit",
                got=f"shape {tuple(x.shape)}",
                remedy="Pass the columns that the model was fitted on.",
            )
        outputs: Tensor = self.head(x)
        return outputs

    def as_tensor(self, x: Any) -> Tensor:
        """An array, list or table as a tensor, its columns checked against those of the fit."""
        values = as_matrix(
            x, features=self.features, names=self.feature_names, dtype=self.reference.dtype
        )
        return values.to(self.reference.device)

    def of_table(self, table: Any) -> Tensor:
        """The same of a table whose columns may stand in any order; rows with gaps keep them."""
        names = self.feature_names
        if names is not None and set(table.columns) == set(names):
            table = table[list(names)]
        values = as_matrix(
            table, features=self.features, names=names, dtype=self.reference.dtype, gaps=True
        )
        return values.to(self.reference.device)

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
    space: Space | None = None,
) -> Classifier:
    """Turn a fitted scikit-learn classifier or pipeline into a differentiable `Classifier`.

    The twin computes what the model computes, to rounding. Nothing is learned, and the model is
    not kept. What is supported, with outputs and losses, stands in docs/scikit-learn.md.

    Args:
        estimator: a fitted classifier, a `Pipeline` that ends in one, a search over one, or a
            `KernelRidge` that was fitted on one-hot targets (or on -1 and 1, for two classes).
        loss: by default the one that fits the model: cross-entropy for models of probabilities,
            one-versus-rest logistic or hinge losses for those of separate scores.
        dtype: precision of the twin; inputs must have the same.
        svc_outputs: what SVC and NuSVC give for several classes: 'soft_minimum' or 'mean' of a
            class's one-versus-one decisions. 'probabilities', for two classes, too, need a model
            that was fitted with them.
        space: which columns may move, and how dear that is, in the model's own inputs.

    Returns:
        A `Classifier`; its `net` is a `Twin`, whose `as_tensor` takes tables and checks them.

    Raises:
        ModelError: a step cannot be differentiated, is unknown or is not fitted. It is named.
    """
    _check_settings(dtype, svc_outputs)
    context = Context(dtype, svc_outputs)
    if isinstance(estimator, type):
        raise context.refusal(
            estimator.__name__,
            "it is a class, not a fitted model",
            remedy=f"Make one and fit it: {estimator.__name__}(...).fit(X, y).",
        )
    if not hasattr(estimator, "fit"):
        require_fitted(estimator, context)
    with torch.inference_mode(False):  # tensors made inside of it could take no gradient
        head = build_head(estimator, context).eval()
        model = unwrapped(estimator)
        twin = Twin(head, _feature_count(model), _feature_names(model), dtype).eval()
        names = _class_names(model, twin)
        _check_order(space, twin.feature_names)
        chosen = head.loss if loss is None else loss
        return Classifier(twin, classes=names, loss=chosen, space=space)


def _check_settings(dtype: object, svc_outputs: object) -> None:
    if dtype not in (torch.float32, torch.float64):
        raise InvalidArgumentError(
            "dtype",
            expected="torch.float32 or torch.float64",
            got=repr(dtype),
            remedy="float64 is as exact as the model itself.",
        )
    if svc_outputs not in get_args(SvcOutputs):
        raise InvalidArgumentError(
            "svc_outputs",
            expected="'soft_minimum', 'mean' or 'probabilities'",
            got=repr(svc_outputs),
            remedy="Leave it out for the first; docs/scikit-learn.md explains them.",
        )


def _check_order(space: Space | None, names: tuple[str, ...] | None) -> None:
    """Refuse columns that are in part others than those of the fit, or in another order."""
    named = getattr(space, "columns", None)  # what is no space is refused by the classifier
    columns = None if named is None else tuple(map(str, named))
    if columns is None or names is None or columns == names or not {*columns} & {*names}:
        return  # wholly other names are names of one's own
    which = "the same in another order" if {*columns} == {*names} else "some others"
    raise InvalidArgumentError(
        "space",
        expected=f"columns in the order of the fit: {', '.join(names[:5])}, ...",
        got=f"{which}: {', '.join(columns[:5])}, ...",
        remedy="Make it of table[list(model.feature_names_in_)].",
    )


def _steps(model: Any) -> list[Any]:
    """The model and, of pipelines, what is inside, from the first step on."""
    if kind_of(model) != "Pipeline":
        return [model]
    return [part for _, step in model.steps for part in _steps(unwrapped(step))]


def _feature_count(model: Any) -> int:
    found = (getattr(step, "n_features_in_", None) for step in _steps(model))
    return next(int(count) for count in found if count is not None)


def _feature_names(model: Any) -> tuple[str, ...] | None:
    first = next((s for s in _steps(model) if hasattr(s, "n_features_in_")), model)
    names = getattr(first, "feature_names_in_", None)
    return None if names is None else tuple(str(name) for name in names)


def _class_names(model: Any, twin: Twin) -> list[str]:
    classes = getattr(model, "classes_", None)
    if classes is not None:
        return [str(name) for name in classes]
    with torch.no_grad():
        outputs = twin(twin.reference.new_zeros(1, twin.features)).shape[1]
    return [str(k) for k in range(max(2, outputs))]
