"""Count passes from outside the solver, by wrapping the model.

Every input has its own number as an extra feature, which the wrapped model reads and removes. Its
gradient is zero, so no solver moves it. The meter therefore knows the sample of each row of each
call, whatever the solver does with its batches, and computes F itself.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from credibly.model.derivatives import BACKWARD, FORWARD


class Meter:
    """A wrapped model that records the best F of every sample after each pass."""

    def __init__(self, net: torch.nn.Module, x0: Tensor, gamma: float, most: int) -> None:
        self.net, self.gamma, self.shape, self.x0 = net, gamma, x0.shape[1:], x0.flatten(1)
        count, device = len(x0), x0.device
        self.spent = torch.zeros(count, dtype=torch.float64, device=device)
        self.best = torch.full((count,), torch.inf, device=device)
        self.best_class = torch.zeros(count, dtype=torch.long, device=device)
        self.history = torch.full((most + 2, count), torch.inf, device=device)
        self.calls: list[int] = []

    def numbered(self) -> Tensor:
        """Return the inputs of the wrapped model: flat, with their number at the end."""
        numbers = torch.arange(len(self.x0), dtype=self.x0.dtype, device=self.x0.device)
        return torch.cat([self.x0, numbers[:, None]], dim=1)

    def __call__(self, x: Tensor) -> Tensor:
        rows, flat = x[:, -1].detach().round().long(), x[:, :-1]
        logits = self.net(flat.reshape(-1, *self.shape))
        self.calls.append(len(rows))
        self.spent[rows] += FORWARD
        self._record(rows, flat.detach(), logits.detach())
        if logits.requires_grad:
            logits.register_hook(lambda _: self._backward(rows))
        return logits

    def _backward(self, rows: Tensor) -> None:
        self.spent[rows] += BACKWARD

    def _record(self, rows: Tensor, x: Tensor, logits: Tensor) -> None:
        losses = -functional.log_softmax(logits, dim=1)
        value = (x - self.x0[rows]).square().sum(1) + losses.square().sum(1) / self.gamma
        better = value < self.best[rows]
        self.best[rows[better]] = value[better]
        self.best_class[rows[better]] = logits.argmax(1)[better]
        # a point counts from its backward on
        when = (self.spent[rows] + BACKWARD).ceil().long().clamp(max=len(self.history) - 1)
        self.history[when, rows] = torch.minimum(self.history[when, rows], self.best[rows])

    def curve(self) -> Tensor:
        """Return the best F of each sample after each whole number of passes (passes, n)."""
        return torch.cummin(self.history, dim=0).values
