"""A graph in the version of the operators that onnx2torch knows.

PyTorch exports newer ones, whose operators mostly take more types and mean the same. Operators that
have a formula of their own in the standard are replaced by it where onnx2torch has none.
"""

from __future__ import annotations

from typing import Any

from credibly._extras import load_extra

NEWEST = 17
"""Version of the operators up to which onnx2torch has most of them."""

BY_FORMULA = (
    "CastLike", "Gelu", "GreaterOrEqual", "GroupNormalization", "LessOrEqual",
    "MeanVarianceNormalization", "Mish", "RMSNormalization", "Shrink", "Swish", "ThresholdedRelu",
)  # fmt: skip
"""Operators that the standard defines by others, and that onnx2torch does not have."""

_HARMLESS = {
    "Cast": ("saturate", "round_mode"),  # of numbers of eight bits
    "CastLike": ("saturate", "round_mode"),
    "Split": ("num_outputs",),  # it has as many names
}
"""Newer settings that change nothing here."""


def with_formulas(model: Any) -> Any:
    """The model with formulas in the place of the operators `BY_FORMULA`."""
    inliner = load_extra("onnx.inliner", extra="onnx", purpose="An ONNX file")
    ids = [("", name) for name in BY_FORMULA]
    return inliner.inline_selected_functions(model, ids, inline_schema_functions=True)


def make_older(model: Any) -> list[str]:
    """Bring a model to version `NEWEST`, if its own is newer; what has no such version."""
    onnx = load_extra("onnx", extra="onnx", purpose="An ONNX file")
    main = next((part for part in model.opset_import if not part.domain), None)
    if main is None:
        model.opset_import.add().version = NEWEST
        return []
    given = main.version
    if given <= NEWEST:
        return []
    missing = [
        f"{node.op_type} (version {given})"
        for node in model.graph.node
        if not node.domain and not _is_older(onnx, model.graph, node)
    ]
    main.version = NEWEST
    return missing


def _is_older(onnx: Any, graph: Any, node: Any) -> bool:
    """Whether a node means the same in the older version, after what is harmless was removed."""
    try:
        schema = onnx.defs.get_schema(node.op_type, NEWEST)
    except Exception:  # noqa: BLE001  # an operator that the older version does not have
        return False
    if node.op_type.startswith("Reduce") and len(node.input) > schema.max_input:
        return _with_axes(onnx, graph, node)
    drop = _HARMLESS.get(node.op_type, ())
    kept = [a for a in node.attribute if a.name not in drop and not _says_nothing(a)]
    del node.attribute[:]
    node.attribute.extend(kept)
    return len(node.input) <= schema.max_input and all(a.name in schema.attributes for a in kept)


def _says_nothing(attribute: Any) -> bool:
    """Newer settings at the value that they had before they could be set."""
    return (attribute.name, attribute.i) in (("antialias", 0), ("noop_with_empty_axes", 0)) or (
        attribute.name == "keep_aspect_ratio_policy" and attribute.s == b"stretch"
    )


def _with_axes(onnx: Any, graph: Any, node: Any) -> bool:
    """Turn the axes, which became an input in version 18, into a setting."""
    axes = _constant(onnx, graph, node.input[1])
    given = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
    idle = given.pop("noop_with_empty_axes", 0)
    if axes is None or (idle and not axes):
        return False
    del node.input[1:]
    del node.attribute[:]
    if axes:
        given["axes"] = axes
    node.attribute.extend(onnx.helper.make_attribute(k, v) for k, v in given.items())
    return True


def _constant(onnx: Any, graph: Any, name: str) -> list[int] | None:
    """The whole numbers behind a name, if they stand in the file."""
    if not name:
        return []
    stored = [tensor for tensor in graph.initializer if tensor.name == name]
    return onnx.numpy_helper.to_array(stored[0]).reshape(-1).tolist() if stored else None
