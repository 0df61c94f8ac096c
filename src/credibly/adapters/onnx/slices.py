"""`Slice` without the list as an index that onnx2torch passes, which torch is about to refuse."""

from __future__ import annotations

from torch import Tensor, nn


class Slice(nn.Module):
    """A part of a tensor along some axes; a negative step reads backwards."""

    def forward(
        self,
        x: Tensor,
        starts: Tensor,
        ends: Tensor,
        axes: Tensor | None = None,
        steps: Tensor | None = None,
    ) -> Tensor:
        places = range(len(starts)) if axes is None else axes.tolist()
        sizes = [1] * len(starts) if steps is None else steps.tolist()
        index, backwards = [slice(None)] * x.dim(), []
        for start, end, axis, step in zip(
            starts.tolist(), ends.tolist(), places, sizes, strict=True
        ):
            if step < 0:
                backwards.append(axis)
                index[axis] = slice(-start - 1, -end - 1, -step)
            else:
                index[axis] = slice(start, end, step)
        return (x.flip(backwards) if backwards else x)[tuple(index)]


def with_own_slices(net: nn.Module) -> None:
    """Replace them in a converted network."""
    for name, part in net.named_children():
        if type(part).__name__ == "OnnxSlice":
            setattr(net, name, Slice())
