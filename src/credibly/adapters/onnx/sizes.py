"""How large the values of a graph become: a small file may ask for a terabyte when it is run.

The sizes in a file may be computed in ways that shape inference of ONNX does not follow, such as
through a cast. So whatever depends on constants alone is computed here, as long as it is small.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from credibly._extras import load_extra
from credibly.adapters.onnx.agreement import FREE
from credibly.errors import ModelError

LARGEST = 2**28
"""Numbers that a value of the graph may hold for one row, at most: a gigabyte of floats."""

SMALL = 256
"""Numbers of a value that is computed here, at most: sizes are few."""

ROUNDS = 32
"""How often what was computed may let other sizes be known."""

GROWING = frozenset({"ConstantOfShape", "Expand", "OneHot", "Pad", "Range", "Resize", "Tile",
                     "Upsample"})  # fmt: skip
"""Operators whose output is as large as numbers of the graph say."""

_PLAIN = frozenset({
    "Abs", "Add", "And", "Cast", "Ceil", "Concat", "Constant", "Div", "Equal", "Flatten", "Floor",
    "Gather", "Greater", "GreaterOrEqual", "Identity", "Less", "LessOrEqual", "Max", "Min", "Mod",
    "Mul", "Neg", "Not", "Or", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceSum", "Reshape",
    "Round", "Shape", "Size", "Slice", "Split", "Sqrt", "Squeeze", "Sub", "Transpose", "Unsqueeze",
    "Where",
})  # fmt: skip
"""Operators with which sizes are computed; none makes much of little."""

Known = dict[str, NDArray[Any]]
Shapes = Mapping[str, list[int | None]]


def refuse_giants(model: Any) -> None:
    """Refuse a valid ModelProto of which a value is too large for one row, or of unknown size."""
    onnx = load_extra("onnx", extra="onnx", purpose="An ONNX file")
    light = _without_weights(onnx, model)
    shapes = _shapes(onnx, light)
    for name, shape in shapes.items():
        if math.prod(size or 1 for size in shape) > LARGEST:
            raise ModelError(
                f"its value {name!r} is of size {'x'.join(str(size or '?') for size in shape)}: "
                "too large",
                remedy=f"For one row at most {LARGEST} numbers are computed.",
            )
    for node in light.graph.node:
        if node.op_type in GROWING and None in shapes.get(node.output[0], [None]):
            raise ModelError(
                f"its node {node.name!r} ({node.op_type}) makes {node.output[0]!r} of a size that "
                "cannot be told from the file",
                remedy="Export the network with fixed sizes (an open batch axis alone is fine), or "
                "with torch.export to a .pt2 file.",
            )


def _without_weights(onnx: Any, model: Any) -> Any:
    """The graph for one row; of weights that are not small only the shapes."""
    light = onnx.ModelProto(ir_version=model.ir_version, opset_import=model.opset_import)
    light.graph.name = model.graph.name
    light.graph.node.extend(model.graph.node)
    stored = {tensor.name for tensor in model.graph.initializer}
    for tensor in model.graph.initializer:
        if math.prod(tensor.dims) <= SMALL:
            light.graph.initializer.append(tensor)
        else:
            value = onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
            light.graph.input.append(value)
    for value in (value for value in model.graph.input if value.name not in stored):
        light.graph.input.append(value)
        for place, dim in enumerate(light.graph.input[-1].type.tensor_type.shape.dim):
            dim.dim_value = dim.dim_value or (FREE if place else 1)
    for value in model.graph.output:
        light.graph.output.add(
            name=value.name
        ).type.tensor_type.elem_type = value.type.tensor_type.elem_type
    return light


def _shapes(onnx: Any, light: Any) -> Shapes:
    """The sizes of all values, None where one is not known; sizes are computed in rounds."""
    known: Known = {t.name: onnx.numpy_helper.to_array(t) for t in light.graph.initializer}
    shapes: Shapes = {}
    for _ in range(ROUNDS):
        try:
            inferred = onnx.shape_inference.infer_shapes(light, data_prop=True)
        except Exception:  # noqa: BLE001  # the values that are known by now remain
            break
        values = [*inferred.graph.input, *inferred.graph.value_info, *inferred.graph.output]
        shapes = {
            value.name: [dim.dim_value if dim.HasField("dim_value") else None
                         for dim in value.type.tensor_type.shape.dim]
            for value in values if value.type.tensor_type.HasField("shape")
        }  # fmt: skip
        if not _computed(onnx, light, known, shapes):
            break
    return shapes


def _computed(onnx: Any, light: Any, known: Known, shapes: Shapes) -> bool:
    """Replace nodes by what they say, where that is small and known; whether there were any."""
    rest = []
    for node in light.graph.node:
        found = _outcome(light, node, known, shapes)
        if found is None:
            rest.append(onnx.NodeProto.FromString(node.SerializeToString()))
            continue
        for name, value in found.items():
            known[name] = value
            light.graph.initializer.append(onnx.numpy_helper.from_array(value, name))
    changed = len(rest) < len(light.graph.node)
    light.graph.ClearField("node")
    light.graph.node.extend(rest)
    return changed


def _outcome(light: Any, node: Any, known: Known, shapes: Shapes) -> Known | None:
    """What a node says, if it depends on small constants alone."""
    if node.domain not in ("", "ai.onnx"):
        return None
    whole = _whole(shapes.get(node.input[0])) if node.input else None
    given: Known
    if node.op_type in ("Shape", "Size") and whole is not None:
        given = {node.input[0]: np.broadcast_to(np.float32(0), whole)}  # takes no memory
    elif all(name in known for name in node.input if name) and _is_small(node, shapes):
        given = {name: known[name] for name in node.input if name}
    else:
        return None
    try:
        found = _run(light, node, given)
        values = [np.asarray(value) for value in found]
    except Exception:  # noqa: BLE001  # then its size stays unknown
        return None
    small = all(value.size <= SMALL for value in values)
    return dict(zip(node.output, values, strict=True)) if small else None


def _run(light: Any, node: Any, given: Known) -> list[Any]:
    """What one node says, in the version of the operators that the graph is of."""
    onnx = load_extra("onnx", extra="onnx", purpose="An ONNX file")
    reference = load_extra("onnx.reference", extra="onnx", purpose="An ONNX file")
    alone = onnx.ModelProto(ir_version=light.ir_version, opset_import=light.opset_import)
    alone.graph.name = "one"
    alone.graph.node.append(node)
    for name in given:
        alone.graph.input.add(name=name)
    for name in node.output:
        alone.graph.output.add(name=name)
    found: list[Any] = reference.ReferenceEvaluator(alone).run(None, given)
    return found


def _whole(shape: list[int | None] | None) -> list[int] | None:
    """A shape of which every size is known."""
    sizes = [size for size in shape or () if size is not None]
    return sizes if shape is not None and len(sizes) == len(shape) else None


def _is_small(node: Any, shapes: Shapes) -> bool:
    """Whether the output of a node with small inputs is small for sure."""
    if node.op_type in _PLAIN:
        return True
    shape = _whole(shapes.get(node.output[0]))
    return shape is not None and math.prod(shape) <= SMALL
