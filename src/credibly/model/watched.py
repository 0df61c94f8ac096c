"""Whether the weights of a network are still those that something was made of."""

from __future__ import annotations

from weakref import ref

from torch import Tensor, nn

from credibly.errors import ModelError


class Watched:
    """The parameters and buffers of a network, as they were when this was made.

    What is written into them is seen by torch's own counter of writes, and other tensors in their
    place, also after a move to another device, by identity. Writes through `.data` are not seen.
    """

    def __init__(self, net: nn.Module, stale: bool = False) -> None:  # noqa: FBT001, FBT002  # pickle
        self.net = net
        self.renew()
        self._stale = stale

    def renew(self) -> None:
        """Take the weights of now."""
        # not by `id`, which a new tensor may have from one that is gone
        self._seen = [(ref(part), _writes(part)) for part in _tensors(self.net)]
        self._stale = False

    @property
    def changed(self) -> bool:
        """Whether there are other weights now."""
        now = _tensors(self.net)
        same = len(now) == len(self._seen) and all(
            seen() is part and writes == _writes(part)
            for part, (seen, writes) in zip(now, self._seen, strict=True)
        )
        return self._stale or not same

    def require_same(self) -> None:
        """Refuse to answer by a copy of weights that are gone."""
        if self.changed:
            raise ModelError(
                "the weights of the network have changed, or were moved, since `accelerate` made a "
                "faster copy of it, which would answer for the old ones",
                remedy="Make another: credibly.accelerate(Classifier(net), x); fit a Judge again.",
            )

    def __reduce__(self) -> tuple[type[Watched], tuple[nn.Module, bool]]:
        return Watched, (self.net, self.changed)  # identities mean nothing in a copy


def _tensors(net: nn.Module) -> list[Tensor]:
    return [*net.parameters(), *net.buffers()]


def _writes(tensor: Tensor) -> int:
    return 0 if tensor.is_inference() else tensor._version  # noqa: SLF001  # nothing else counts
