"""All differentiation of the package. Nothing here touches a parameter's gradient.

One *pass* is one forward and one backward through the model; a forward alone counts a third.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from credibly.errors import ModelError
from credibly.model.classifier import Classifier
from credibly.model.switches import CUDNN, FAST_PATH

FORWARD = 1.0 / 3.0
BACKWARD = 2.0 / 3.0


@contextmanager
def differentiable(classifier: Classifier) -> Iterator[None]:
    """Allow gradients inside `no_grad` and `inference_mode`, and leave everything as it was."""
    with (
        torch.inference_mode(False),
        torch.enable_grad(),
        _native_recurrence(classifier),
        ordinary_path(),
    ):
        yield


@contextmanager
def twice_differentiable(classifier: Classifier) -> Iterator[None]:
    """The same with attention spelled out: its fused kernels have one derivative only."""
    with differentiable(classifier), sdpa_kernel(SDPBackend.MATH):
        yield


@contextmanager
def ordinary_path() -> Iterator[None]:
    """Run torch's own transformer layers as they are differentiated.

    Without gradients, in eval mode, they take a fast path with other values: it gives zeros at
    padded positions. The losses of a forward alone must be those that the gradient belongs to.
    """
    with FAST_PATH.off():
        yield


@contextmanager
def _native_recurrence(classifier: Classifier) -> Iterator[None]:
    """Keep recurrent layers off cuDNN, whose kernels have no backward in eval mode."""
    recurrent = isinstance(classifier.net, nn.Module) and any(
        isinstance(module, nn.RNNBase) for module in classifier.net.modules()
    )
    with CUDNN.off() if recurrent else nullcontext():
        yield


def ordinary(x: Tensor) -> Tensor:
    """`x` itself, or a copy that autograd accepts where `x` was made in inference mode."""
    return x.clone() if x.is_inference() else x


def leaf(x: Tensor) -> Tensor:
    """A fresh leaf with the values of `x`; inference tensors are copied out of their mode."""
    return ordinary(x).detach().requires_grad_(True)


@contextmanager
def undisturbed(x0: Tensor) -> Iterator[Tensor]:
    """Leave the random generators as they are, and give inputs that autograd accepts.

    Autocast is off inside: the trade-off is lost in the rounding of half precision.
    """
    devices = [x0.device] if x0.is_cuda else []
    with torch.random.fork_rng(devices=devices), in_full(x0.device):
        yield ordinary(x0)


@contextmanager
def in_full(device: torch.device) -> Iterator[None]:
    """Numbers as they are: neither of inference mode nor of autocast."""
    with torch.inference_mode(False), torch.autocast(device.type, enabled=False):
        yield


@dataclass(frozen=True)
class Evaluation:
    """Losses (n, K) and the pull sum_k lambda_k grad l_k, shaped like the input."""

    losses: Tensor
    pull: Tensor


def losses_only(classifier: Classifier, x: Tensor) -> Tensor:
    """Losses (n, K): one forward."""
    with torch.inference_mode(False), torch.no_grad(), ordinary_path():
        return classifier.losses(ordinary(x))


def losses_and_pull(
    classifier: Classifier, x: Tensor, multipliers: Callable[[Tensor], Tensor]
) -> Evaluation:
    """One pass, whatever K is: the backward of sum_k lambda_k l_k with lambda held fixed."""
    with differentiable(classifier):
        x = leaf(x)
        losses = classifier.losses(x)
        fixed = ordinary(multipliers(losses.detach()))
        return Evaluation(losses.detach(), _gradient((losses * fixed).sum(), x))


def output_gradient(
    classifier: Classifier, x: Tensor, scalar: Callable[[Tensor], Tensor]
) -> Tensor:
    """Gradient by x of a row-wise function of the outputs, (n, m) -> (n,): one pass."""
    with differentiable(classifier):
        x = leaf(x)
        return _gradient(scalar(classifier.logits(x)).sum(), x)


def output_jacobian(classifier: Classifier, x: Tensor) -> tuple[Tensor, Tensor]:
    """Outputs z (n, m) and their Jacobian (n, m, D): one forward and m backwards."""
    with differentiable(classifier):
        x = leaf(x)
        outputs = classifier.logits(x)
        return outputs.detach(), _rows(outputs, x)


def loss_jacobian(classifier: Classifier, x: Tensor) -> tuple[Tensor, Tensor]:
    """Losses l (n, K) and their Jacobian A (n, K, D): one forward and K backwards."""
    with differentiable(classifier):
        x = leaf(x)
        losses = classifier.losses(x)
        return losses.detach(), _rows(losses, x)


def sketched_trace(classifier: Classifier, x: Tensor, probes: Tensor) -> Tensor:
    """Estimate tr(A A^T) (n,) as the mean of |A^T v|^2 over probes v (p, K) of random signs."""
    with differentiable(classifier):
        x = leaf(x)
        losses = classifier.losses(x)
        squares = [
            _gradient((losses * probe).sum(), x, keep=True).flatten(1).square().sum(1)
            for probe in ordinary(probes)
        ]
        return torch.stack(squares).mean(0)


class OutputLinearisation:
    """The network linearised at x, by products only: J v and J^T u, without storing J."""

    def __init__(self, classifier: Classifier, x: Tensor) -> None:
        self._classifier = classifier
        with twice_differentiable(classifier):
            self._x = leaf(x)
            self._outputs = classifier.logits(self._x)
            # J^T u is linear in u, so the derivative of <J^T u, v> in u is J v, for any u.
            self._dummy = torch.zeros_like(self._outputs, requires_grad=True)
            self._adjoint = _gradient((self._outputs * self._dummy).sum(), self._x, graph=True)
        self.outputs = self._outputs.detach()

    def transposed(self, u: Tensor) -> Tensor:
        """J^T u, shaped like x: one backward."""
        with differentiable(self._classifier):
            return _gradient((self._outputs * ordinary(u)).sum(), self._x, keep=True)

    def forward(self, v: Tensor) -> Tensor:
        """J v (n, m): about two backwards."""
        with differentiable(self._classifier):
            return _gradient((self._adjoint * ordinary(v)).sum(), self._dummy, keep=True)


class HessianProducts:
    """Hessian of the sum over samples of fit(losses) at x; the gradient's graph is built once."""

    def __init__(self, classifier: Classifier, x: Tensor, fit: Callable[[Tensor], Tensor]) -> None:
        self._classifier = classifier
        with twice_differentiable(classifier):
            self._x = leaf(x)
            self._slope = _gradient(fit(classifier.losses(self._x)).sum(), self._x, graph=True)

    def __call__(self, v: Tensor) -> Tensor:
        """The Hessian applied to v, shaped like x: about two backwards."""
        with differentiable(self._classifier):
            projected = (self._slope * ordinary(v)).sum()
            return _gradient(projected, self._x, keep=True, constant=True)


def tracked_slope(classifier: Classifier, x: Tensor, fit: Callable[[Tensor], Tensor]) -> Tensor:
    """Gradient by x of the sum of fit(losses), at x held fixed, still attached to all else.

    Its derivative by x is cut; those by parameters and by tensors inside `fit` are not.
    """
    with twice_differentiable(classifier):
        x = leaf(x)
        return _gradient(fit(classifier.losses(x)).sum(), x, graph=True)


def gradient_of(
    classifier: Classifier, x: Tensor, objective: Callable[[Tensor], Tensor]
) -> tuple[Tensor, Tensor]:
    """Values (n,) of a function of the inputs, row by row, and its gradient, shaped like x."""
    with differentiable(classifier):
        x = leaf(x)
        values = objective(x)
        return values.detach(), _gradient(values.sum(), x)


def attached_slope(classifier: Classifier, x: Tensor, fit: Callable[[Tensor], Tensor]) -> Tensor:
    """Gradient by x of the sum of fit(losses), itself attached to x: for solvers unrolled.

    Call it inside the objective of `gradient_of`, with an x that depends on its input.
    """
    return _gradient(fit(classifier.losses(x)).sum(), x, graph=True)


def attached_loss_jacobian(classifier: Classifier, x: Tensor) -> tuple[Tensor, Tensor]:
    """Losses (n, K) and their Jacobian (n, K, D), both attached to x; as `attached_slope`."""
    losses = classifier.losses(x)
    return losses, _rows(losses, x, graph=True)


def output_curvature(fit: Callable[[Tensor], Tensor], outputs: Tensor) -> tuple[Tensor, Tensor]:
    """Gradient (n, m) and Hessian (n, m, m) of a row-wise scalar function of the outputs."""
    with torch.inference_mode(False), torch.enable_grad():
        z = leaf(outputs)
        slope = _gradient(fit(z).sum(), z, graph=True)
        columns = [
            _gradient(slope[:, k].sum(), z, keep=True, constant=True)
            for k in range(outputs.shape[1])
        ]
    return slope.detach(), torch.stack(columns, dim=1)


def output_curvature_product(fit: Callable[[Tensor], Tensor], outputs: Tensor, v: Tensor) -> Tensor:
    """The Hessian of `output_curvature` applied to v (n, m), without forming it."""
    with torch.inference_mode(False), torch.enable_grad():
        z = leaf(outputs)
        slope = _gradient(fit(z).sum(), z, graph=True)
        return _gradient((slope * ordinary(v)).sum(), z, constant=True)


def _rows(values: Tensor, x: Tensor, *, graph: bool = False) -> Tensor:
    """Jacobian of values (n, K) by x (n, ...) as (n, K, D), one backward a column."""
    count = values.shape[1]
    rows = [_gradient(values[:, k].sum(), x, keep=k + 1 < count, graph=graph) for k in range(count)]
    return torch.stack([row.flatten(1) for row in rows], dim=1)


def _gradient(
    scalar: Tensor, x: Tensor, *, keep: bool = False, graph: bool = False, constant: bool = False
) -> Tensor:
    """Gradient by x; only where `constant` is said may x be missing from the graph (zero then)."""
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
