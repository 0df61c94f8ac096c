"""Does the converted network say what ONNX Runtime says?"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from credibly._extras import load_extra
from credibly.adapters.onnx.graph import Plain
from credibly.errors import MissingExtraError, ModelError
from credibly.types import CPU

TOLERANCE = 1e-4
"""Of outputs, relative to the largest of them where that is above 1."""

FREE = 16
"""Length of an axis that the file leaves open, other than the rows."""


def session_of(model: bytes) -> Any:
    """ONNX Runtime, ready to run a graph on one thread."""
    runtime = load_extra("onnxruntime", extra="onnx", purpose="Comparing with ONNX Runtime")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    providers = ["CPUExecutionProvider"]
    return runtime.InferenceSession(model, options, providers=providers)


def compare(found: Plain, net: nn.Module) -> str:
    """Run both on a few random inputs, and say in a note how well they agree.

    Raises:
        ModelError: if they do not.
    """
    dims = found.model.graph.input[0].type.tensor_type.shape.dim
    if not len(dims):
        return "not compared with ONNX Runtime: the file does not say the shape of its input"
    shape = [found.batch or 3, *(dim.dim_value or FREE for dim in dims[1:])]
    x = torch.rand(shape, generator=torch.Generator().manual_seed(0), device=CPU)
    x = x.to(_dtype(found))
    try:
        session = session_of(found.original)
        expected = session.run(None, {session.get_inputs()[0].name: x.numpy()})[0]
        with torch.no_grad():
            got = net(x)
    except MissingExtraError:
        return "not compared with ONNX Runtime, which is not installed (pip install onnxruntime)"
    except Exception as error:  # noqa: BLE001  # an axis that was left open may need another length
        return f"not compared with ONNX Runtime: a random input failed ({type(error).__name__})"
    return _note(torch.from_numpy(expected.copy()).to(got), got)


def _note(expected: torch.Tensor, got: torch.Tensor) -> str:
    same = expected.numel() == got.numel()
    gap = float((expected.reshape(got.shape) - got).abs().max()) if same else torch.inf
    size = max(1.0, float(expected.abs().max()))
    if not gap <= TOLERANCE * size:
        raise ModelError(
            f"the converted ONNX graph does not say what ONNX Runtime says: outputs differ by "
            f"{gap:.2g} on random inputs",
            remedy="Export the network anew, with a recent opset or as a .pt2 file.",
        )
    return f"outputs agree with ONNX Runtime to {gap:.1g} on random inputs"


def _dtype(found: Plain) -> torch.dtype:
    code = found.model.graph.input[0].type.tensor_type.elem_type
    return {10: torch.float16, 11: torch.float64}.get(code, torch.float32)
