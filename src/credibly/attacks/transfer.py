"""Auto-PGD on the bare model or on another one, transferred to the deployed system (A1)."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from credibly._extras import load_extra
from credibly._validation import require, whole
from credibly.attacks.ball import Box, apart, ends, outer
from credibly.attacks.base import SEE_DOCS, Attack, Task
from credibly.model.checks import check_model
from credibly.model.classifier import Classifier
from credibly.model.derivatives import differentiable, losses_only
from credibly.model.generators import kept_generators
from credibly.model.variable import Inputs

Kind = Literal["ce", "dlr-targeted"]


@dataclass(frozen=True, kw_only=True)
class TransferAPGD(Attack):
    """A1: APGD with cross-entropy and with the targeted DLR loss (Croce and Hein 2020).

    Both choose their own step sizes, so `step_size` has no effect. They run on the bare model, or
    on the attacker's own surrogate; the candidate that is worst for the deployed system is
    returned. Needs the extra 'attacks' (pyautoattack) and bounds.

    Attributes:
        kinds: which of 'ce' and 'dlr-targeted'. With fewer than four classes the DLR loss is not
            defined, and targeted cross-entropy is used instead.
        targets: classes the targeted attack tries, the likeliest first.
        surrogate: a classifier of the same inputs and classes, trained independently.

    Example: see docs/how-to/attacks.md.
    """

    kinds: tuple[Kind, ...] = ("ce", "dlr-targeted")
    targets: int = 9
    surrogate: Classifier | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        whole("targets", self.targets)
        known = len(self.kinds) > 0 and set(self.kinds) <= {"ce", "dlr-targeted"}
        require(known, "kinds", "some of 'ce' and 'dlr-targeted'", repr(self.kinds), SEE_DOCS)
        remedy = "Pass bounds=(0.0, 1.0) for pixels."
        require(self.bounds is not None, "bounds", "two numbers", repr(self.bounds), remedy)

    def run(self, task: Task) -> list[Tensor]:
        source = self._source(task)
        predict = _in_unit_box(source, self.bounds or (0.0, 1.0))
        order = losses_only(source, task.ball.x0).argsort(dim=1, stable=True)
        classes, found = order.shape[1], list[Tensor]()
        others = order[order != task.labels[:, None]].reshape(len(order), classes - 1)
        for kind in self.kinds:
            # the DLR loss is defined from four classes on
            targeted = "ce-targeted" if kind == "ce" or classes < 4 else kind
            if task.target is not None:
                runs: list[tuple[str, Tensor | None]] = [(targeted, task.target)]
            elif kind == "ce":
                runs = [("ce", None)]
            else:
                runs = [(targeted, column) for column in others[:, : self.targets].unbind(1)]
            found += [self._single(task, predict, loss, towards) for loss, towards in runs]
        return found

    def _single(
        self, task: Task, predict: Callable[[Tensor], Tensor], loss: str, towards: Tensor | None
    ) -> Tensor:
        """One run from the sample's own random start, in the unit box that the library expects."""
        low, high = outer(self.bounds or (0.0, 1.0))
        kind = "Linf" if self.norm == "linf" else "L2"
        library = load_extra("pyautoattack.autopgd_base", extra="attacks", purpose="Auto-PGD")
        attack = library.APGDAttack_targeted(
            predict, n_iter=self.steps, norm=kind, eps=self.eps / (high - low)
        )
        attack.loss, attack.y_target = loss, towards
        x0 = ((task.ball.x0 - low) / (high - low)).contiguous()
        start = ((task.ball.start(task.keys) - low) / (high - low)).contiguous()
        attack.init_hyperparam(x0)
        with kept_generators(x0.device), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about zero gradients, which the table shows
            best: Tensor = attack.attack_single_run(x0, task.labels, x_init=start)[0]
        return low + (high - low) * best.detach()

    def _source(self, task: Task) -> Classifier:
        if self.surrogate is None:
            return task.clf
        check_model(Inputs(self.surrogate, task.ball.x0))
        theirs = losses_only(self.surrogate, task.ball.x0[:1]).shape
        ours = losses_only(task.clf, task.ball.x0[:1]).shape
        expected = f"a classifier with {ours[1]} classes, like the attacked one"
        remedy = "Train the surrogate on the same task."
        require(theirs == ours, "surrogate", expected, f"one with {theirs[1]}", remedy)
        return self.surrogate


def _in_unit_box(clf: Classifier, bounds: Box) -> Callable[[Tensor], Tensor]:
    """The model on the unit box that the library expects, one scale for all features.

    Channels with bounds of their own are clamped here, like the projection at the end: the library
    judges what is returned. The gradient ignores the clamp; otherwise a feature that once crossed
    its bound could never come back.
    """
    low, high = outer(bounds)
    own = apart(bounds)

    def predict(z: Tensor) -> Tensor:
        with differentiable(clf):
            x = low + (high - low) * z
            if own:  # exactly the clamped value, with the gradient of x
                x = x.detach().clamp(*ends(bounds, x)) + (x - x.detach())
            outputs = clf.logits(x)
            return clf.loss.two_classes(outputs) if outputs.shape[1] == 1 else outputs

    return predict
