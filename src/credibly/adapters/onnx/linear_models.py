"""scikit-learn's scaling and linear classifiers, which ONNX has operators of its own for.

They are written with matrix products, so that they can be differentiated like any network.
"""

from __future__ import annotations

from typing import Any

from credibly._extras import load_extra
from credibly.adapters.onnx.older import NEWEST

CLASSICAL = "ai.onnx.ml"
SUM_BY_INPUT = 13
"""Since this version of the operators `ReduceSum` takes its axes as an input."""


def without_linear_models(model: Any) -> None:
    """Replace `Scaler`, `LinearClassifier` and `Normalizer` where that is exact; others stay."""
    graph = model.graph
    version = max((part.version for part in model.opset_import if not part.domain), default=NEWEST)
    rewriter = _Rewriter(graph, version)
    nodes = list(graph.node)
    replaced = [rewriter.instead_of(node) for node in nodes]
    graph.ClearField("node")
    graph.node.extend(node for group in replaced for node in group)


class _Rewriter:
    """Makes nodes and stores numbers in the graph."""

    def __init__(self, graph: Any, version: int) -> None:
        onnx = load_extra("onnx", extra="onnx", purpose="An ONNX file")
        self.helper, self.numpy_helper, self.graph = onnx.helper, onnx.numpy_helper, graph
        self.version, self.count = version, 0

    def instead_of(self, node: Any) -> list[Any]:
        """The nodes to put in the place of one."""
        make = {
            "Scaler": self._scaler,
            "LinearClassifier": self._classifier,
            "Normalizer": self._normalizer,
        }.get(node.op_type)
        if node.domain != CLASSICAL or make is None:
            return [node]
        settings = {a.name: self.helper.get_attribute_value(a) for a in node.attribute}
        return make(node, settings) or [node]

    def _scaler(self, node: Any, settings: dict[str, Any]) -> list[Any]:
        """(x - offset) * scale."""
        between = self._name("scaled")
        offset = self._store(settings.get("offset", [0.0]))
        scale = self._store(settings.get("scale", [1.0]))
        return [
            self._node("Sub", [node.input[0], offset], [between]),
            self._node("Mul", [between, scale], [node.output[0]]),
        ]

    def _classifier(self, node: Any, settings: dict[str, Any]) -> list[Any] | None:
        """The scores x C' + b, and a softmax or a sigmoid of them; labels are not needed."""
        import numpy as np

        labels = settings.get("classlabels_ints") or settings.get("classlabels_strings") or []
        after = {b"NONE": "Identity", b"SOFTMAX": "Softmax", b"LOGISTIC": "Sigmoid"}.get(
            settings.get("post_transform", b"NONE")
        )
        given = np.asarray(settings.get("coefficients", []), np.float32)
        count = len(labels)
        offsets = settings.get("intercepts", [0.0] * count)
        if after is None or len(node.output) < 2 or count < 2 or len(given) % count:
            return None
        if len(offsets) != count:
            return None
        scores = self._name("scores")
        steps = {"axis": 1} if after == "Softmax" else {}
        weights = self._store(given.reshape(count, -1).T)
        product = self._name("product")
        return [
            self._node("MatMul", [node.input[0], weights], [product]),
            self._node("Add", [product, self._store(offsets)], [scores]),
            self._node(after, [scores], [node.output[1]], **steps),
        ]

    def _normalizer(self, node: Any, settings: dict[str, Any]) -> list[Any] | None:
        """Each row over the sum of its absolute values."""
        if settings.get("norm", b"MAX") != b"L1":
            return None
        size, total = self._name("size"), self._name("total")
        if self.version >= SUM_BY_INPUT:
            axes = self._store([1], "int64")
            add = self._node("ReduceSum", [size, axes], [total], keepdims=1)
        else:
            add = self._node("ReduceSum", [size], [total], axes=[1], keepdims=1)
        return [
            self._node("Abs", [node.input[0]], [size]),
            add,
            self._node("Div", [node.input[0], total], [node.output[0]]),
        ]

    def _node(self, kind: str, inputs: list[str], outputs: list[str], **settings: Any) -> Any:
        return self.helper.make_node(kind, inputs, outputs, **settings)

    def _name(self, word: str) -> str:
        self.count += 1
        return f"{word} of credibly {self.count}"

    def _store(self, numbers: Any, kind: str = "float32") -> str:
        import numpy as np

        name = self._name("numbers")
        self.graph.initializer.append(self.numpy_helper.from_array(np.asarray(numbers, kind), name))
        return name
