"""Whether the weights of a network are still those that something was made of."""

from __future__ import annotations

from itertools import chain

from torch import Tensor, nn


class Watched:
    """The parameters and buffers of a network, as they were when this was made.

    What is written into them is seen by torch's own counter of writes, and other tensors in their
    place, also after a move to another device, by identity. Writes through `.data` are not seen.
    """

    def __init__(self, net: nn.Module, stale: bool = False) -> None:  # noqa: FBT001, FBT002  # pickle
        self.net, self._stale = net, stale
        self._seen = _state(net)

    @property
    def changed(self) -> bool:
        """Whether there are other weights now."""
        return self._stale or self._seen != _state(self.net)

    def __reduce__(self) -> tuple[type[Watched], tuple[nn.Module, bool]]:
        return Watched, (self.net, self.changed)  # identities mean nothing in a copy


def _state(net: nn.Module) -> list[tuple[int, int]]:
    return [(id(part), _writes(part)) for part in chain(net.parameters(), net.buffers())]


def _writes(tensor: Tensor) -> int:
    return 0 if tensor.is_inference() else tensor._version  # noqa: SLF001  # nothing else counts
