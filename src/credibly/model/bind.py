"""What a caller passes as a classifier and a batch, turned into a `Variable` at the edge."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from credibly._validation import require
from credibly.errors import InvalidArgumentError
from credibly.model.batches import check_batch, check_classifier, numbers_of_table, refuse_sparse
from credibly.model.checks import check_model
from credibly.model.classifier import Classifier
from credibly.model.derivatives import undisturbed
from credibly.model.in_space import InSpace, at_module, in_space
from credibly.model.joined import Joined, check_top, keep_top
from credibly.model.structure import Nested, as_tensors, leaves
from credibly.model.variable import Inputs, Variable
from credibly.types import Array


def bind(
    clf: Classifier | Variable, x: Nested = None, *, top: int | None = None, name: str = "x"
) -> Variable:
    """What is solved for: the moving part of these inputs, and the model as a function of it.

    `credibility` and similar functions call it, and also accept the result. Functions that take a
    profile and a classifier of nested inputs need it: `check_tradeoff(bind(clf, x), profile)`.

    Args:
        clf: a classifier, or a variable that was bound before.
        x: inputs as the classifier takes them. For a variable, other values of what moves in the
            same samples; by default its own, and the same classes if it was bound with `top`.
        top: ask about the m most probable classes of each sample, and about all others as one; see
            `credibility`. The model is checked, and runs once on every sample.
        name: what the inputs are called in errors.

    Example:
        >>> import torch, credibly as cr
        >>> clf = cr.Classifier(torch.nn.Linear(4, 3))
        >>> cr.bind(clf, torch.zeros(2, 4)).losses(torch.ones(2, 4)).shape
        torch.Size([2, 3])
    """
    if top is not None:
        with undisturbed(bind(clf, x, name=name)) as variable:
            check_top(top, variable.loss)
            check_model(variable)
            return keep_top(variable, top)
    if isinstance(clf, Variable):
        if x is None:
            return clf
        moved = clf.based_at(_alike(clf, x, name))
        if isinstance(moved.innermost, InSpace):
            moved.innermost.coordinates.check_inside()  # other values than those it was bound to
        return moved
    clf = check_classifier(clf)
    refuse_sparse(x, name)
    if clf.space is None and clf.module is None and not _is_nested(x):
        return Inputs(clf, check_batch(clf, x, name))
    _refuse_labelled(clf, x, name)
    inputs = as_tensors(numbers_of_table(clf, x))
    with torch.inference_mode(False):
        return in_space(clf, inputs) if clf.module is None else at_module(clf, inputs)


def rebind(
    clf: Classifier | Variable,
    x0: Tensor,
    described: str,
    *,
    kept: Tensor | None = None,
    total: int | None = None,
) -> Variable:
    """The variable of a profile, from its x0 and `settings.space`: it has only what moved.

    With `kept` (n, m) it is about these classes of `total`, whatever classes `clf` was bound to.
    """
    clf = clf if isinstance(clf, Variable) else check_classifier(clf)
    whole = isinstance(clf, Variable) or (
        clf.module is None and (clf.space is None or clf.space.vary is None)
    )
    variable = bind(clf, x0, name="profile.x0") if whole else None
    if variable is not None and kept is not None:
        own = variable.inner if isinstance(variable, Joined) else variable
        variable = Joined.of(own, kept, total or 0)
    if variable is None or variable.describe() != described:
        moves = f"one that moves {variable.describe()}" if variable else None
        raise InvalidArgumentError(
            "clf",
            expected=f"the classifier the profile was made with, which moved {described}",
            got=moves or "one not bound to its inputs",
            remedy="A profile of nested inputs, a named module or parameters has only what moved: "
            "pass bind(clf, x), or the result of vary_parameters.",
        )
    return variable


def encoded(variable: Variable, x: Array, *, name: str = "x") -> Tensor:
    """Values of what moves in the coordinates of the solver.

    Values that a space does not allow, such as moved locked features, give the nearest allowed.
    """
    return variable.encode(_alike(variable, x, name))


def check_reachable(variable: Variable, x: Array, answer: Tensor) -> None:
    """Refuse an answer that moves what its space holds: it answers another question."""
    values = check_batch(variable.clf, x, "x").to(answer.device)
    gap = (variable.decode(answer) - values).abs().nan_to_num(0.0)
    near = torch.finfo(answer.dtype).eps ** 0.5 * (1 + values.abs().nan_to_num(0.0))
    moved = int((gap > near).flatten(1).any(1).sum())
    expected = "answers that move only what the space of the classifier lets move"
    got = f"{moved} that move locked features, or tied ones apart"
    require(moved == 0, "x", expected, got, "Solve in the same space, or certify without one.")


def _alike(variable: Variable, x: Array, name: str) -> Tensor:
    values, expected = check_batch(variable.clf, x, name), variable.values.shape
    wanted = f"one value of what moves for each sample, {tuple(expected)}"
    remedy = "Choose the same samples of both: variable.select(rows)."
    require(values.shape == expected, name, wanted, f"shape {tuple(values.shape)}", remedy)
    return values


def _is_nested(x: object) -> bool:
    """Whether x is made of tensors; a list of anything else is refused like any wrong input."""
    if isinstance(x, list | tuple):
        return any(isinstance(leaf, Tensor | np.ndarray) for _, leaf in leaves(x))
    return isinstance(x, Mapping)


def _refuse_labelled(clf: Classifier, x: Any, name: str) -> None:
    """A pair of inputs and labels, as loaders yield, is not a nested input of a plain model."""
    plain = clf.space is None and clf.module is None and not clf.unpack
    if not plain or not isinstance(x, list | tuple) or len(x) != 2:
        return
    first, second = x
    labelled = (
        all(isinstance(part, Tensor | np.ndarray) for part in x)
        and first.ndim > 1
        and second.shape == first.shape[:1]
        and "float" not in str(second.dtype)
    )
    require(
        not labelled,
        name,
        "inputs alone",
        f"a {type(x).__name__} of inputs and labels, as a DataLoader yields",
        f"Pass its first part, {name}[0]. If the model takes both, say which part moves: "
        "Classifier(net, space=Space(vary='0')).",
    )
