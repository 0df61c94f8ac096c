"""Numbers of a graph in one place, where onnx2torch looks for weights."""

from __future__ import annotations

from typing import Any

from credibly._extras import load_extra


def stored_constants(graph: Any, output: str) -> str:
    """Store what `Constant` nodes hold, and drop nodes that only give a value another name.

    PyTorch exports weights that happen to be equal once, with `Identity` nodes for the others.
    Returns the name of the output, which may have been such another name.
    """
    onnx = load_extra("onnx", extra="onnx", purpose="An ONNX file")
    names: dict[str, str] = {}
    kept = []
    for node in graph.node:
        node.input[:] = [names.get(name, name) for name in node.input]
        plain = not node.domain
        if plain and node.op_type == "Identity":
            names[node.output[0]] = node.input[0]
        elif plain and node.op_type == "Constant" and (tensor := _tensor(onnx, node)) is not None:
            tensor.name = node.output[0]
            graph.initializer.append(tensor)
        else:
            kept.append(node)
    copies = [type(node).FromString(node.SerializeToString()) for node in kept]
    graph.ClearField("node")
    graph.node.extend(copies)
    return names.get(output, output)


def _tensor(onnx: Any, node: Any) -> Any:
    """What a `Constant` holds, unless it is text or sparse."""
    import numpy as np

    attribute = node.attribute[0]
    if attribute.name == "value":
        return attribute.t
    kind = {"value_float": "float32", "value_floats": "float32",
            "value_int": "int64", "value_ints": "int64"}.get(attribute.name)  # fmt: skip
    if kind is None:
        return None
    value = onnx.helper.get_attribute_value(attribute)
    return onnx.numpy_helper.from_array(np.asarray(value, kind))
