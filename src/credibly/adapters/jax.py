"""A bridge to JAX: its compiled functions as differentiable steps of torch, to any order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from credibly._extras import load_extra
from credibly._validation import require
from credibly.errors import ModelError
from credibly.model.classifier import Classifier, Outputs
from credibly.model.losses import Loss


def from_jax(
    function: Callable[[Any], Any],
    *,
    classes: Sequence[str] | None = None,
    loss: str | Loss = "cross_entropy",
    outputs: Outputs = "logits",
    preprocess: Callable[[Tensor], Tensor] | None = None,
) -> Classifier:
    """A classifier written in JAX, Flax or Equinox; inputs and results are torch tensors.

    Values and derivatives of all orders are JAX's own: a backward of torch calls the compiled
    vector-Jacobian product. Arrays are passed through NumPy on the CPU, without a copy where
    possible. Batches are filled up to a power of two, since JAX compiles once per shape.

    Args:
        function: pure, from a batch (n, ...) to outputs (n, m), with the parameters inside, such as
            `lambda x: model.apply(params, x)`; `jax.jit` must be able to compile it. For inputs in
            float64 call `jax.config.update("jax_enable_x64", True)` first.
        classes: names of the classes.
        loss: as in `Classifier`.
        outputs: as in `Classifier`.
        preprocess: in torch, as in `Classifier`.

    Example: `clf = from_jax(lambda x: model.apply(params, x), classes=names)`.
    """
    expected, got = "a function of JAX from a batch to outputs", type(function).__name__
    remedy = "Close over the parameters: lambda x: model.apply(params, x)."
    require(callable(function), "function", expected, got, remedy)
    jax = load_extra("jax", extra="jax", purpose="A classifier of JAX")
    compiled = _Compiled(jax, lambda x: (function(x),), arguments=1, results=1)

    def net(x: Tensor) -> Tensor:
        outputs: Tensor = _Step.apply(compiled, x)[0]  # type: ignore[no-untyped-call]
        return outputs

    return Classifier(
        net, classes=classes, loss=loss, outputs=outputs, preprocess=preprocess, device="cpu"
    )


class _Compiled:
    """A function of JAX from a tuple of arrays to a tuple of arrays, one row per sample."""

    def __init__(
        self, jax: Any, function: Callable[..., tuple[Any, ...]], *, arguments: int, results: int
    ) -> None:
        self.jax, self.function, self.compiled = jax, function, jax.jit(function)
        self.arguments, self.results = arguments, results

    def __call__(self, *given: Tensor) -> tuple[Tensor, ...]:
        if given[0].dtype == torch.float64 and not self.jax.config.jax_enable_x64:
            raise ModelError(
                "the inputs are float64, and JAX would round them to float32",
                remedy='Call jax.config.update("jax_enable_x64", True) before anything else, or '
                "pass float32.",
            )
        count = len(given[0])
        filled = 1 << max(count - 1, 0).bit_length()
        rows = torch.arange(filled, device=given[0].device).clamp(max=count - 1)  # repeat the last
        found = self.compiled(*(tensor.detach()[rows].numpy() for tensor in given))
        return tuple(torch.from_numpy(np.array(array)[:count]) for array in found)

    @cached_property
    def pullback(self) -> _Compiled:
        """Arguments and gradients by the results -> gradients by the arguments."""

        def pulled(*given: Any) -> tuple[Any, ...]:
            _, pull = self.jax.vjp(self.function, *given[: self.arguments])
            found: tuple[Any, ...] = pull(given[self.arguments :])
            return found

        given = self.arguments + self.results
        return _Compiled(self.jax, pulled, arguments=given, results=self.arguments)


class _Step(torch.autograd.Function):
    """Forward: the compiled function. Backward: its pullback, which is such a step itself."""

    @staticmethod
    def forward(ctx: Any, compiled: _Compiled, *given: Tensor) -> tuple[Tensor, ...]:
        ctx.compiled = compiled
        ctx.save_for_backward(*given)
        return compiled(*given)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        found: tuple[Tensor, ...] = _Step.apply(  # type: ignore[no-untyped-call]
            ctx.compiled.pullback, *ctx.saved_tensors, *gradients
        )
        return (None, *found)
