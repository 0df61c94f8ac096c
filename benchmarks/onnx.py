"""Converted ONNX files beside ONNX Runtime: outputs, gradients and time.

`python -m benchmarks.onnx [--stand-in]` exports networks to a temporary folder and loads them. The
gradient of a fixed mix of the outputs is compared with that of the original network. Without
torchvision, `--stand-in` puts an empty package in its place: onnx2torch imports it for operators on
boxes, which no classifier has.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
import warnings
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import credibly as cr
from benchmarks.onnx_networks import Transformer, torchvision_stand_in
from credibly.adapters.onnx.agreement import session_of
from credibly.data.sample import load_sample
from experiments.resnet18 import ResNet18

ROWS = 64


def networks() -> dict[str, tuple[nn.Module, tuple[int, ...]]]:
    """Networks in evaluation mode, and the shape of an input."""
    torch.manual_seed(0)
    resnet = ResNet18(channels=3, max_pool=False)
    for _ in range(20):  # so that the norms have statistics of their own
        resnet.train()(torch.rand(32, 3, 32, 32))
    return {
        "embedded network": (load_sample().net, (1, 28, 28)),
        "ResNet-18": (resnet.eval(), (3, 32, 32)),
        "ResNet-18 in double": (deepcopy(resnet).double(), (3, 32, 32)),
        "transformer": (Transformer().eval(), (1, 8, 8)),
    }


def pipelines() -> dict[str, tuple[Any, Any]]:
    """Fitted scikit-learn pipelines, and a table."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.neural_network import MLPClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    random = np.random.default_rng(0)
    x = random.normal(2, 3, size=(400, 6)).astype(np.float32)
    y = np.digitize(x[:, 0] - x[:, 1], [-2, 3])
    lasts = (LogisticRegression(), MLPClassifier((16,), max_iter=200, random_state=0))
    names = ("scaling, logistic", "scaling, perceptron")
    return {
        name: (make_pipeline(StandardScaler(), last).fit(x, y), x)
        for name, last in zip(names, lasts, strict=True)
    }


def gradient(call: Any, x: Tensor) -> Tensor:
    """Of a fixed mix of the outputs."""
    leaf = x.clone().requires_grad_()
    found = call(leaf)
    mix = torch.linspace(1, 2, found.shape[1], dtype=found.dtype)
    (pull,) = torch.autograd.grad((found * mix).sum(), leaf)
    return pull


def compare(name: str, path: Path, x: Tensor, original: Any, **settings: Any) -> None:
    """Print one line: how far outputs and gradients are apart, and how long loading took."""
    started = time.perf_counter()
    clf = cr.load_classifier(path, **settings).classifier
    took = time.perf_counter() - started
    pulls = gradient(clf.raw_outputs, x), gradient(original, x)
    pull = float((pulls[0] - pulls[1]).norm() / pulls[1].norm())
    gap = difference(clf, path, x)
    print(f"{name:20} {gap:>12} {pull:18.1e} {took:9.2f} s", flush=True)


def difference(clf: cr.Classifier, path: Path, x: Tensor) -> str:
    """The largest difference of outputs to ONNX Runtime, or why there is none."""
    try:
        session = session_of(path.read_bytes())
    except Exception as error:  # noqa: BLE001  # its errors have no common class
        return type(error).__name__
    wanted = [o.name for o in session.get_outputs()][-1]
    expected = session.run([wanted], {session.get_inputs()[0].name: x.numpy()})[0]
    return f"{float((clf.raw_outputs(x) - torch.from_numpy(expected)).abs().max()):.1e}"


def main() -> None:
    """Print the table."""
    print(f"{'network':20} {'outputs':>12} {'gradient (share)':>18} {'loaded in':>11}")
    generator = torch.Generator().manual_seed(0)
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        path = Path(folder) / "net.onnx"
        for name, (net, shape) in networks().items():
            x = torch.rand(ROWS, *shape, generator=generator).to(next(net.parameters()))
            torch.onnx.export(net, (x[:2],), path, dynamo=False, input_names=["x"],
                              dynamic_axes={"x": {0: "n"}})  # fmt: skip
            compare(name, path, x, net)
        from skl2onnx import to_onnx

        for name, (model, table) in pipelines().items():
            graph = to_onnx(model, table[:1], options={"zipmap": False})
            path.write_bytes(graph.SerializeToString())
            twin = cr.from_sklearn(model, dtype=torch.float32)
            compare(
                name, path, torch.from_numpy(table[:ROWS]),
                lambda x, twin=twin: twin.logits(x).softmax(1), outputs="probabilities",
            )  # fmt: skip


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--stand-in", action="store_true", help="for torchvision")
    if parser.parse_args().stand_in:
        sys.modules |= torchvision_stand_in()
    main()
