"""Small networks and inputs for `benchmarks.threads`."""

from __future__ import annotations

import torch
from torch import Tensor, nn

SAMPLES = 8


class Words(nn.Module):
    """Token numbers, their embedding, and a smooth rest."""

    def __init__(self) -> None:
        super().__init__()
        self.front, self.words = nn.Flatten(), nn.Embedding(9, 4)
        self.tail = nn.Sequential(nn.Linear(12, 8), nn.Softplus(), nn.Linear(8, 4))

    def forward(self, tokens: Tensor) -> Tensor:
        found: Tensor = self.tail(self.front(self.words(tokens)))
        return found


class InAFunction(Words):
    """The same, called by a function that refers to the modules."""

    def __init__(self) -> None:
        super().__init__()
        words, front, tail = self.words, self.front, self.tail
        self.call = lambda tokens: tail(front(words(tokens)))

    def forward(self, tokens: Tensor) -> Tensor:
        found: Tensor = self.call(tokens)
        return found


class InASet(Words):
    """The same, called from a set: no copy can be made of it."""

    def __init__(self) -> None:
        super().__init__()
        self.steps = frozenset([nn.Sequential(self.words, self.front, self.tail)])

    def forward(self, tokens: Tensor) -> Tensor:
        (steps,) = self.steps
        found: Tensor = steps(tokens)
        return found


class Masking(nn.Module):
    """An embedding that leaves a mask behind for others."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.mask = nn.Embedding(9, 4), torch.zeros(1)

    def forward(self, tokens: Tensor) -> Tensor:
        self.mask = (tokens > 2).unsqueeze(2)
        found: Tensor = self.inner(tokens)
        return found


class Masked(Words):
    """Reads what its embedding left behind."""

    def __init__(self) -> None:
        super().__init__()
        self.words = Masking()  # type: ignore[assignment]

    def forward(self, tokens: Tensor) -> Tensor:
        embedded = self.words(tokens)
        found: Tensor = self.tail(self.front(embedded * self.words.mask))
        return found


class Attention(nn.Module):
    """Two layers of attention over the features."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True)
        self.body, self.head = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), None
        self.out = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.out(self.body(x.reshape(-1, 2, 4)).flatten(1))
        return found


def ready(net: nn.Module) -> nn.Module:
    """The network in double precision, with numbers of its own that are not small."""
    drawn = torch.Generator().manual_seed(0)
    net = net.double().eval()
    with torch.no_grad():
        for p in net.parameters():
            size = 1.5 / p.shape[-1] ** 0.5
            p.copy_(size * torch.randn(p.shape, generator=drawn, dtype=p.dtype))
    return net


def smooth(features: int = 8, classes: int = 4) -> nn.Module:
    """A network without kinks."""
    return ready(nn.Sequential(nn.Linear(features, 16), nn.Softplus(), nn.Linear(16, classes)))


def numbers(*shape: int) -> Tensor:
    """Inputs, the same in every run."""
    return torch.randn(SAMPLES, *shape, generator=torch.Generator().manual_seed(1)).double()


def tokens(least: int = 0, most: int = 9, length: int = 3) -> Tensor:
    """Numbers of tokens, the same in every run."""
    drawn = torch.Generator().manual_seed(2)
    return torch.randint(least, most, (SAMPLES, length), generator=drawn)
