"""Auto-PGD on the bare model or on another one, transferred to the deployed system (A1)."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from credibly.attacks.base import Attack, Task
from credibly.attacks.box import Box, apart, ends, outer
from credibly.errors import InvalidArgumentError, MissingExtraError
from credibly.model.checks import check_model
from credibly.model.classifier import Classifier
from credibly.model.derivatives import differentiable, losses_only
from credibly.solve.base import require, require_whole

Kind = Literal["ce", "dlr-targeted"]


@dataclass(frozen=True, kw_only=True)
class TransferAPGD(Attack):
    """A1: APGD with cross-entropy and with the targeted DLR loss (Croce and Hein 2020).

    Both choose their own step sizes, so `step_size` has no meaning here. They run on the bare
    model, or on a surrogate of the attacker's own; the candidate that is worst for the deployed
    system is returned. Needs the extra 'attacks' (pyautoattack) and bounds.

    Attributes:
        kinds: which of 'ce' and 'dlr-targeted'. With fewer than four classes the DLR loss is not
            defined, and targeted cross-entropy stands in.
        targets: classes the targeted attack tries, the likeliest first.
        surrogate: a classifier of the same inputs and classes, trained independently.
    """

    kinds: tuple[Kind, ...] = ("ce", "dlr-targeted")
    targets: int = 9
    surrogate: Classifier | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        require_whole("targets", self.targets)
        known = len(self.kinds) > 0 and all(k in ("ce", "dlr-targeted") for k in self.kinds)
        require(known, "kinds", "some of 'ce' and 'dlr-targeted'", self.kinds)
        remedy = "Pass bounds=(0.0, 1.0) for pixels."
        require(self.bounds is not None, "bounds", "two numbers", self.bounds, remedy)

    def run(self, task: Task) -> list[Tensor]:
        source = self._source(task)
        predict = _in_unit_box(source, self.bounds or (0.0, 1.0))
        order = losses_only(source, task.ball.x0).argsort(dim=1, stable=True)
        classes, found = order.shape[1], []
        others = order[order != task.labels[:, None]].reshape(len(order), classes - 1)
        for kind in self.kinds:
            if task.target is not None:
                found.append(self._single(task, predict, _defined(kind, classes), task.target))
            elif kind == "ce":
                found.append(self._single(task, predict, "ce", None))
            else:
                for column in others[:, : self.targets].unbind(1):
                    loss = _defined(kind, classes)
                    found.append(self._single(task, predict, loss, column))
        return found

    def _single(
        self, task: Task, predict: Callable[[Tensor], Tensor], loss: str, towards: Tensor | None
    ) -> Tensor:
        """One run from the sample's own random start, in the unit box that the library wants."""
        low, high = outer(self.bounds or (0.0, 1.0))
        kind = "Linf" if self.norm == "linf" else "L2"
        library = _library()
        attack = library.APGDAttack_targeted(
            predict, n_iter=self.steps, norm=kind, eps=self.eps / (high - low)
        )
        attack.loss, attack.y_target = loss, towards
        x0 = ((task.ball.x0 - low) / (high - low)).contiguous()
        start = ((task.ball.start(task.keys) - low) / (high - low)).contiguous()
        attack.init_hyperparam(x0)
        devices = [x0.device] if x0.is_cuda else []
        with torch.random.fork_rng(devices=devices), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it warns of zero gradients; the table shows them
            best: Tensor = attack.attack_single_run(x0, task.labels, x_init=start)[0]
        return low + (high - low) * best.detach()

    def _source(self, task: Task) -> Classifier:
        if self.surrogate is None:
            return task.clf
        check_model(self.surrogate, task.ball.x0)
        theirs = losses_only(self.surrogate, task.ball.x0[:1]).shape
        ours = losses_only(task.clf, task.ball.x0[:1]).shape
        if theirs != ours:
            raise InvalidArgumentError(
                "surrogate",
                expected=f"a classifier with {ours[1]} classes, as the attacked one",
                got=f"one with {theirs[1]}",
                remedy="Train the surrogate on the same task.",
            )
        return self.surrogate


def _defined(kind: str, classes: int) -> str:
    """The targeted loss, where it is defined."""
    return "ce-targeted" if kind == "ce" or classes < 4 else kind


def _in_unit_box(clf: Classifier, bounds: Box) -> Callable[[Tensor], Tensor]:
    """The model on the unit box that the library wants, one scale for all features.

    Channels with bounds of their own are clamped here, as the projection at the end does: what the
    library judges is what is returned. The slope passes the clamp as if it were not there. Without
    one, a feature that was once stepped across its bound could never come back.
    """
    low, high = outer(bounds)
    own = apart(bounds)

    def predict(z: Tensor) -> Tensor:
        with differentiable(clf):
            x = low + (high - low) * z
            if own:  # the value is the clamped one, exactly; the slope is that of x
                x = x.detach().clamp(*ends(bounds, x)) + (x - x.detach())
            outputs = clf.logits(x)
            return clf.loss.two_classes(outputs) if outputs.shape[1] == 1 else outputs

    return predict


def _library() -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from pyautoattack import autopgd_base
    except ImportError as error:
        raise MissingExtraError(
            package="pyautoattack", extra="attacks", purpose="Auto-PGD"
        ) from error
    return autopgd_base
