"""All differentiation of the package. Nothing here touches a parameter's gradient.

One *pass* is one forward and one backward through the model; a forward alone counts a third.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from credibly.errors import ModelError
from credibly.model.batches import check_ready
from credibly.model.classifier import Classifier
from credibly.model.generators import CUDNN, FAST_PATH, FUSED_ATTENTION, kept_generators
from credibly.model.variable import Variable

AnyVariable = TypeVar("AnyVariable", bound=Variable)
Function = Callable[[Tensor], Tensor]
LossFunction = Classifier | Variable
"""What derivatives are taken of: both have `net`, `logits(x)` and `losses(x)`."""

FORWARD = 1.0 / 3.0
BACKWARD = 2.0 / 3.0

ordinary_path = FAST_PATH.off
"""Run torch's own transformer layers as they are differentiated.

Without gradients, in eval mode, they take a fast path with other values: it gives zeros at padded
positions. The losses of a forward alone must be those that the gradient belongs to.
"""


@contextmanager
def differentiable(model: LossFunction) -> Iterator[None]:
    """Allow gradients inside `no_grad` and `inference_mode`, and leave everything as it was.

    Recurrent layers stay off cuDNN, whose kernels have no backward in eval mode.
    """
    modules = model.net.modules() if isinstance(model.net, nn.Module) else ()
    recurrent = any(isinstance(module, nn.RNNBase) for module in modules)
    cudnn = CUDNN.off() if recurrent else nullcontext()
    with torch.inference_mode(False), torch.enable_grad(), cudnn, ordinary_path():
        yield


@contextmanager
def twice_differentiable(model: LossFunction) -> Iterator[None]:
    """The same with attention in plain operations: fused kernels have a first derivative only."""
    with differentiable(model), FUSED_ATTENTION.off():
        yield


@contextmanager
def undisturbed(variable: AnyVariable) -> Iterator[AnyVariable]:
    """Leave the random generators as they are, and give a variable that autograd accepts.

    Autocast is off inside: the rounding of half precision hides the trade-off. A model that is not
    ready is refused before it runs: every call begins here.
    """
    check_ready(variable.clf)
    start = variable.start
    with kept_generators(start.device), in_full(start.device):
        yield trackable(variable)


def trackable(variable: AnyVariable) -> AnyVariable:
    """The variable itself, or a copy that autograd accepts."""
    start = variable.start
    if not start.is_inference():
        return variable
    with torch.inference_mode(False):
        return replace(variable, start=start.clone())


@contextmanager
def in_full(device: torch.device) -> Iterator[None]:
    """Ordinary tensors in full precision: neither inference mode nor autocast."""
    with torch.inference_mode(False), torch.autocast(device.type, enabled=False):
        yield


def ordinary(x: Tensor) -> Tensor:
    """`x` itself, or a copy that autograd accepts where `x` was made in inference mode."""
    return x.clone() if x.is_inference() else x


def leaf(x: Tensor) -> Tensor:
    """A fresh leaf with the values of `x`."""
    return ordinary(x).detach().requires_grad_(True)


@dataclass(frozen=True)
class Evaluation:
    """Losses (n, K) and the pull sum_k lambda_k grad l_k, shaped like the input."""

    losses: Tensor
    pull: Tensor


def losses_only(model: LossFunction, x: Tensor) -> Tensor:
    """Losses (n, K): one forward."""
    with torch.inference_mode(False), torch.no_grad(), ordinary_path():
        return model.losses(ordinary(x))


def logits_only(model: LossFunction, x: Tensor) -> Tensor:
    """Outputs (n, m) as logits: one forward."""
    with torch.inference_mode(False), torch.no_grad(), ordinary_path():
        return model.logits(ordinary(x))


def losses_and_pull(model: LossFunction, x: Tensor, multipliers: Function) -> Evaluation:
    """One pass, whatever K is: the backward of sum_k lambda_k l_k with lambda held fixed."""
    with differentiable(model):
        x = leaf(x)
        losses = model.losses(x)
        fixed = ordinary(multipliers(losses.detach()))
        return Evaluation(losses.detach(), _gradient((losses * fixed).sum(), x))


def gradient_of(model: LossFunction, x: Tensor, objective: Function) -> tuple[Tensor, Tensor]:
    """Values (n,) of a function of the inputs, row by row, and its gradient, shaped like x."""
    with differentiable(model):
        x = leaf(x)
        values = objective(x)
        return values.detach(), _gradient(values.sum(), x)


def output_gradient(model: LossFunction, x: Tensor, scalar: Function) -> Tensor:
    """Gradient by x of a row-wise function of the outputs, (n, m) -> (n,): one pass."""
    return gradient_of(model, x, lambda x: scalar(model.logits(x)))[1]


def output_jacobian(model: LossFunction, x: Tensor) -> tuple[Tensor, Tensor]:
    """Outputs z (n, m) and their Jacobian (n, m, D): one forward and m backwards."""
    return _jacobian(model, x, model.logits)


def loss_jacobian(model: LossFunction, x: Tensor) -> tuple[Tensor, Tensor]:
    """Losses l (n, K) and their Jacobian A (n, K, D): one forward and K backwards."""
    return _jacobian(model, x, model.losses)


def squared_pulls(model: LossFunction, x: Tensor, directions: Sequence[Tensor]) -> list[Tensor]:
    """|A^T d|^2 (n,) for each of some directions d (n, K), A = dl/dx: a backward each."""
    with differentiable(model):
        x = leaf(x)
        losses, last = model.losses(x), len(directions) - 1
        return [
            _gradient((losses * ordinary(d)).sum(), x, keep=number < last)
            .flatten(1).square().sum(1)
            for number, d in enumerate(directions)
        ]  # fmt: skip


def by_input_only(function: Function) -> Function:
    """The function, of which a backward leaves no gradient in any parameter.

    For libraries that call `backward`: it would write into parameters that all threads share.
    """
    return partial(_ByInput.apply, function)


class _ByInput(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, function: Function, x: Tensor) -> Tensor:
        with torch.enable_grad():
            ctx.x = leaf(x)
            ctx.outputs = function(ctx.x)
        outputs: Tensor = ctx.outputs.detach()
        return outputs

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> tuple[None, Tensor]:
        with torch.enable_grad():
            return None, _gradient((ctx.outputs * slope).sum(), ctx.x, keep=True, constant=True)


class OutputLinearisation:
    """The network linearised at x, by products only: J v and J^T u, without storing J."""

    def __init__(self, model: LossFunction, x: Tensor) -> None:
        self._model = model
        with twice_differentiable(model):
            self._x = leaf(x)
            self._outputs = model.logits(self._x)
            # J^T u is linear in u, so the derivative of <J^T u, v> in u is J v, for any u.
            self._dummy = torch.zeros_like(self._outputs, requires_grad=True)
            self._adjoint = _gradient((self._outputs * self._dummy).sum(), self._x, graph=True)
        self.outputs = self._outputs.detach()

    def transposed(self, u: Tensor) -> Tensor:
        """J^T u, shaped like x: one backward."""
        with differentiable(self._model):
            return _gradient((self._outputs * ordinary(u)).sum(), self._x, keep=True)

    def forward(self, v: Tensor) -> Tensor:
        """J v (n, m): about two backwards."""
        with differentiable(self._model):
            return _gradient((self._adjoint * ordinary(v)).sum(), self._dummy, keep=True)


class HessianProducts:
    """Hessian of the sum of function(losses) at x; the graph of the gradient is built once."""

    def __init__(self, model: LossFunction, x: Tensor, function: Function) -> None:
        self._model = model
        with twice_differentiable(model):
            self._x = leaf(x)
            self._slope = attached_slope(model, self._x, function)

    def __call__(self, v: Tensor) -> Tensor:
        """The Hessian applied to v, shaped like x: about two backwards."""
        with differentiable(self._model):
            projected = (self._slope * ordinary(v)).sum()
            return _gradient(projected, self._x, keep=True, constant=True)


def tracked_slope(model: LossFunction, x: Tensor, function: Function) -> Tensor:
    """Gradient by x of the sum of function(losses), at x held fixed, still attached to all else.

    Its derivative by x is cut; those by parameters and by tensors inside `function` are not.
    """
    with twice_differentiable(model):
        return attached_slope(model, leaf(x), function)


def attached_slope(model: LossFunction, x: Tensor, function: Function) -> Tensor:
    """Gradient by x of the sum of function(losses), itself attached to x: for unrolled solvers.

    Call it inside the objective of `gradient_of`, with an x that depends on its input.
    """
    return _gradient(function(model.losses(x)).sum(), x, graph=True)


def attached_loss_jacobian(model: LossFunction, x: Tensor) -> tuple[Tensor, Tensor]:
    """Losses (n, K) and their Jacobian (n, K, D), both attached to x; see `attached_slope`."""
    losses = model.losses(x)
    return losses, _rows(losses, x, graph=True)


def output_curvature(function: Function, outputs: Tensor) -> tuple[Tensor, Tensor]:
    """Gradient (n, m) and Hessian (n, m, m) of a row-wise scalar function of the outputs."""
    with torch.inference_mode(False), torch.enable_grad():
        z = leaf(outputs)
        slope = _gradient(function(z).sum(), z, graph=True)
        columns = [_gradient(part.sum(), z, keep=True, constant=True) for part in slope.unbind(1)]
    return slope.detach(), torch.stack(columns, dim=1)


def output_curvature_product(function: Function, outputs: Tensor, v: Tensor) -> Tensor:
    """The Hessian of `output_curvature` applied to v (n, m), without forming it."""
    with torch.inference_mode(False), torch.enable_grad():
        z = leaf(outputs)
        slope = _gradient(function(z).sum(), z, graph=True)
        return _gradient((slope * ordinary(v)).sum(), z, constant=True)


def _jacobian(model: LossFunction, x: Tensor, function: Function) -> tuple[Tensor, Tensor]:
    with differentiable(model):
        x = leaf(x)
        values = function(x)
        return values.detach(), _rows(values, x)


def _rows(values: Tensor, x: Tensor, *, graph: bool = False) -> Tensor:
    """Jacobian of values (n, K) by x (n, ...) as (n, K, D), one backward per column."""
    count = values.shape[1]
    rows = [_gradient(values[:, k].sum(), x, keep=k + 1 < count, graph=graph) for k in range(count)]
    return torch.stack([row.flatten(1) for row in rows], dim=1)


def _gradient(
    scalar: Tensor, x: Tensor, *, keep: bool = False, graph: bool = False, constant: bool = False
) -> Tensor:
    """Gradient by x; zero if x is missing from the graph, which is an error unless `constant`."""
    found = None
    if scalar.requires_grad:  # trainable parameters alone make this true: x may still be missing
        (found,) = torch.autograd.grad(
            scalar, x, retain_graph=keep or graph, create_graph=graph, allow_unused=True
        )
    if found is None and not constant:
        raise ModelError(
            "no gradient reaches the input: the model's output does not depend on it through "
            "differentiable operations",
            remedy="Look for .detach(), torch.no_grad(), .numpy(), .item(), rounding or argmax "
            "inside the model or its preprocess.",
        )
    return torch.zeros_like(x) if found is None else found
