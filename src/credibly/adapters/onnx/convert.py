"""From an ONNX graph in plain form to a torch module, by onnx2torch."""

from __future__ import annotations

import warnings
from collections import Counter

import torch
from torch import Tensor, nn

from credibly._extras import load_extra
from credibly.adapters.onnx.graph import MAIN, Plain
from credibly.adapters.onnx.slices import with_own_slices
from credibly.errors import MissingExtraError, ModelError

PURPOSE = "A model in an ONNX file"

_REMEDY = (
    "Export the network with torch.export to a .pt2 file, pass package.module:factory, or, if only "
    "the end of the graph is to blame, take a value before it (--graph-output NAME). A fitted "
    "scikit-learn model is exact as a .skops file."
)


def to_torch(found: Plain) -> nn.Module:
    """Convert a graph; operators that cannot be converted are all named at once."""
    _require_torchvision()
    load_extra("onnx2torch", extra="onnx", purpose=PURPOSE)
    from onnx2torch import convert

    _refuse_unsupported(found)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about numbers of the graph that it reads
            net: nn.Module = convert(found.model)
    except Exception as error:
        reason = (str(error).splitlines() or [""])[0][:300]
        raise ModelError(
            f"onnx2torch cannot convert the ONNX graph ({type(error).__name__}: {reason})",
            remedy=_REMEDY,
        ) from error
    with_own_slices(net)
    net.eval().requires_grad_(requires_grad=False)
    return net if found.batch is None else OneByOne(net)


class OneByOne(nn.Module):
    """A network that takes one row at a time, on a batch of any size."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        if not len(x):
            return x.new_zeros(0)
        return torch.cat([self.net(row).reshape(1, -1) for row in torch.split(x, 1)])


def _require_torchvision() -> None:
    """It is the one import of onnx2torch that its own requirements may not bring."""
    load_extra("onnx", extra="onnx", purpose=PURPOSE)
    try:
        load_extra("torchvision", extra="onnx", purpose=PURPOSE)
    except MissingExtraError as error:
        raise MissingExtraError(
            package="torchvision", extra="onnx", purpose=f"{PURPOSE} (onnx2torch imports it)"
        ) from error


def _refuse_unsupported(found: Plain) -> None:
    from onnx2torch.node_converters import get_converter

    versions = {part.domain: part.version for part in found.model.opset_import}
    missing = Counter(found.missing)
    for node in found.model.graph.node:
        version = versions.get(node.domain, 1)
        try:
            get_converter(operation_type=node.op_type, version=version, domain=node.domain)
        except NotImplementedError:
            if any(name.startswith(f"{node.op_type} (") for name in found.missing):
                continue  # already named, with its version
            where = "" if node.domain == MAIN else f" of {node.domain}"
            missing[f"{node.op_type}{where}"] += 1
    if missing:
        named = ", ".join(
            f"{name} x {count}" if count > 1 else name for name, count in sorted(missing.items())
        )
        raise ModelError(
            f"operators of the ONNX graph that have no derivative or that onnx2torch does not "
            f"know: {named}",
            remedy=_REMEDY,
        )
