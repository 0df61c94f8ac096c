"""An ONNX graph in plain form: one input, one output, nothing that the output does not need.

A graph is pruned before it is converted, so that a branch nobody asked for, such as the label that
scikit-learn's converter adds, may hold operators without a derivative. Every name is replaced:
torch.fx writes Python code with the names of nodes in it, and a file must not choose code.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from credibly._validation import require
from credibly.adapters.onnx.constants import stored_constants
from credibly.adapters.onnx.linear_models import without_linear_models
from credibly.adapters.onnx.older import make_older, with_formulas
from credibly.errors import ModelError

MAIN, CLASSICAL = "", "ai.onnx.ml"

FLOATS = {1: "float", 10: "float16", 11: "double", 16: "bfloat16"}
"""Types of numbers that have a derivative, by their code in ONNX."""

_PASSES_ON = ("Cast", "Identity", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Dropout")
"""What may stand after a softmax without changing its numbers."""

_PROBABILITIES = ("Softmax", "Sigmoid", "Normalizer", "LinearClassifier", "SVMClassifier",
                  "TreeEnsembleClassifier")  # fmt: skip


@dataclass(frozen=True)
class Plain:
    """A graph that can be converted.

    Attributes:
        model: the ModelProto; its input is 'x', its output 'y'.
        batch: rows that every batch must have; None where it is open.
        classes: names of the classes, where the file has them.
        output: the name of the output in the file.
        probabilities: the operator that makes probabilities of what it gets, if the graph ends so.
        before: the name of what that operator gets, which are logits.
        missing: operators that have no version that can be converted.
        original: the same graph with the operators and names of the file.
    """

    model: Any
    batch: int | None
    classes: tuple[str, ...] | None
    output: str
    probabilities: str | None
    before: str | None
    missing: tuple[str, ...]
    original: bytes = field(repr=False)


def plain(model: Any, wanted: str | None) -> Plain:
    """Bring a valid ModelProto, which is changed, into plain form.

    Args:
        model: without functions of its own.
        wanted: name of the output, or of any value inside; None where only one is possible.
    """
    graph = model.graph
    _name_domains_once(model)
    makers = {name: node for node in graph.node for name in node.output if name}
    entry = _entry(graph)
    output = _output(graph, makers, wanted)
    inner, classes = _without_names(makers, output)
    last, before = _ends_in(makers, inner)
    shape, name = entry.type.tensor_type.shape.dim, entry.name
    batch = (shape[0].dim_value or None) if len(shape) else None
    _prune(graph, inner, entry)
    original = model.SerializeToString()
    without_linear_models(model)
    model = with_formulas(model)
    inner = stored_constants(model.graph, inner)
    missing = make_older(model)
    _rename(model.graph, name, inner)
    return Plain(model, batch, classes, output, last, before, tuple(missing), original)


def _name_domains_once(model: Any) -> None:
    """The main domain has two names, and converters may write it twice."""
    versions: dict[str, int] = {}
    for part in model.opset_import:
        domain = MAIN if part.domain == "ai.onnx" else part.domain
        versions[domain] = max(part.version, versions.get(domain, 0))
    model.ClearField("opset_import")
    for domain, version in versions.items():
        model.opset_import.add(domain=domain, version=version)
    for node in model.graph.node:
        node.domain = MAIN if node.domain == "ai.onnx" else node.domain


def _entry(graph: Any) -> Any:
    """The one input, which must be of numbers that can move."""
    stored = {tensor.name for tensor in graph.initializer}
    inputs = [value for value in graph.input if value.name not in stored]
    if len(inputs) != 1:
        names = ", ".join(repr(value.name) for value in inputs) or "none"
        raise ModelError(
            f"the ONNX graph takes {len(inputs)} inputs: {names}",
            remedy="Export a network that takes one batch of inputs; scikit-learn pipelines as one "
            "tensor: skl2onnx.to_onnx(pipeline, X.to_numpy(dtype='float32')[:1]).",
        )
    code = inputs[0].type.tensor_type.elem_type
    if code not in FLOATS:
        raise ModelError(
            f"the input {inputs[0].name!r} of the ONNX graph takes no floating numbers (type "
            f"{code} of ONNX), and only these can be moved",
            remedy="Export the part of the network after the embedding or the cast, which takes "
            "floating numbers, or name a Python factory: package.module:factory.",
        )
    return inputs[0]


def _output(graph: Any, makers: dict[str, Any], wanted: str | None) -> str:
    """The name of the output to use: as asked for, or the only one that is possible."""
    if wanted is not None:
        names = [value.name for value in graph.output]
        expected = f"an output of the graph, {', '.join(map(repr, names))}, or a value inside it"
        remedy = "Names are as in the file; netron.app, for one, shows them."
        require(wanted in makers, "graph_output", expected, repr(wanted), remedy)
        return wanted
    possible = [str(value.name) for value in graph.output if _is_possible(value)]
    if not possible:
        raise ModelError(
            "no output of the ONNX graph is a tensor of floating numbers: it has "
            f"{', '.join(repr(value.name) for value in graph.output) or 'none'}",
            remedy="Export logits or probabilities.",
        )
    require(
        len(possible) == 1,
        "graph_output",
        f"one of the outputs {', '.join(map(repr, possible))}",
        "none",
        "Say which holds the logits or the probabilities: graph_output='NAME' "
        "(--graph-output NAME).",
    )
    return possible[0]


def _is_possible(value: Any) -> bool:
    """Whether an output can hold logits: floating numbers, or scikit-learn's list of mappings."""
    kind = value.type.WhichOneof("value")
    if kind == "sequence_type":
        return bool(value.type.sequence_type.elem_type.HasField("map_type"))
    return kind == "tensor_type" and value.type.tensor_type.elem_type in FLOATS


def _without_names(makers: dict[str, Any], output: str) -> tuple[str, tuple[str, ...] | None]:
    """The tensor behind a list of mappings from classes to probabilities, and the classes."""
    node = makers.get(output)
    if node is None or node.op_type != "ZipMap":
        return output, None
    names: list[str] = []
    for attribute in node.attribute:
        names += map(str, attribute.ints)
        names += [text.decode("utf-8", "replace") for text in attribute.strings]
    return str(node.input[0]), tuple(names) if len(set(names)) == len(names) else None


def _ends_in(makers: dict[str, Any], output: str) -> tuple[str | None, str | None]:
    """The operator at the end that makes probabilities, and the name of the logits before it."""
    node = makers.get(output)
    while node is not None and node.op_type in _PASSES_ON and node.input:
        node = makers.get(node.input[0])
    if node is not None and node.op_type == "Concat":  # 1 - p beside p
        ends = (makers.get(name) for name in node.input)
        known = any(end is not None and end.op_type == "Sigmoid" for end in ends)
        return ("Sigmoid", None) if known else (None, None)
    if node is None or not _makes_probabilities(node):
        return None, None
    known = node.domain == MAIN and node.input[0] in makers
    return node.op_type, node.input[0] if known else None


def _makes_probabilities(node: Any) -> bool:
    raw = any(a.name == "post_transform" and a.s == b"NONE" for a in node.attribute)
    return node.op_type in _PROBABILITIES and not (raw or (
        node.op_type == "LinearClassifier" and not any(
            a.name == "post_transform" for a in node.attribute)))  # fmt: skip


def _prune(graph: Any, output: str, entry: Any) -> None:
    """Keep what the output needs, in the order of the file."""
    needed, kept = {output}, []
    for node in reversed(graph.node):
        if needed & set(node.output):
            kept.append(node)
            needed |= {name for name in _reads(node) if name}
    stored = [tensor for tensor in graph.initializer if tensor.name in needed]
    for part, content in (
        ("node", kept[::-1]), ("initializer", stored), ("input", [entry]),
        ("output", []), ("value_info", []), ("sparse_initializer", []),
    ):  # fmt: skip
        copies = [type(value).FromString(value.SerializeToString()) for value in content]
        graph.ClearField(part)
        getattr(graph, part).extend(copies)
    graph.output.add().name = output


def _reads(node: Any) -> Iterator[str]:
    """What a node takes, also inside the branches of an `If` or the body of a `Loop`."""
    yield from node.input
    for attribute in node.attribute:
        for part in [attribute.g, *attribute.graphs]:
            for inner in part.node:
                yield from _reads(inner)


def _rename(graph: Any, entry: str, output: str) -> None:
    """Give every node and value a name of our own, and the output a node of its own."""
    names = {entry: "x", "": ""}
    for tensor in graph.initializer:
        tensor.name = names.setdefault(tensor.name, f"weight{len(names)}")
    for number, node in enumerate(graph.node):
        node.name = f"node{number}"
        node.doc_string = ""
        node.input[:] = [names.setdefault(name, f"value{len(names)}") for name in node.input]
        node.output[:] = [names.setdefault(name, f"value{len(names)}") for name in node.output]
    last = graph.node.add()
    last.op_type, last.name = "Identity", "last"
    last.input.append(names.setdefault(output, f"value{len(names)}"))
    last.output.append("y")
    graph.input[0].name, graph.output[0].name, graph.name = "x", "y", "graph"
