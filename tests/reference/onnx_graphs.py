"""Networks exported to ONNX, and what stands in for torchvision where it is not installed."""

from __future__ import annotations

import importlib.util
import sys
import warnings

import numpy as np
import torch

from benchmarks.onnx_networks import Transformer, torchvision_stand_in

__all__ = ["Transformer", "export", "stand_in_for_torchvision", "table"]

OPEN = {"x": {0: "n"}}


def stand_in_for_torchvision(monkeypatch):
    """onnx2torch imports torchvision for two operators on boxes, which no classifier has."""
    if importlib.util.find_spec("torchvision") is None:
        for name, module in torchvision_stand_in().items():
            monkeypatch.setitem(sys.modules, name, module)


def export(net, x, path, *, axes=OPEN, outputs=("y",), version=None):
    """Write a network as users do."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the exporter is called legacy, and traces
        torch.onnx.export(
            net.eval(), (x,), path, dynamo=False, input_names=["x"], output_names=list(outputs),
            dynamic_axes=axes, opset_version=version,
        )  # fmt: skip
    return path


def table(rows=200, classes=3):
    random = np.random.default_rng(0)
    x = random.normal(2, 3, size=(rows, 5)).astype(np.float32)
    return x, (np.digitize(x[:, 0] - x[:, 1], [-2, 3][: classes - 1])).astype(np.int64)
