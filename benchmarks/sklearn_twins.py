"""Profiles per second for twins of scikit-learn models, with the default solver.

python -m benchmarks.sklearn_twins
"""

from __future__ import annotations

import argparse
import time
import warnings
from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_digits, make_classification
from sklearn.gaussian_process import GaussianProcessClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier
from sklearn.svm import SVC

import credibly as cr


def main() -> None:
    """Print one row per model."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--samples", type=int, default=256)
    settings = parser.parse_args()
    torch.set_num_threads(settings.threads)
    print("model                          support  samples/s  passes  converged")
    for name, model, X in _models():  # noqa: N806
        rows = np.resize(np.arange(len(X)), settings.samples)
        _row(name, model, torch.from_numpy(X[rows]))


def _models() -> list[tuple[str, Any, np.ndarray]]:
    rows = []
    for classes in (2, 5):
        X, y = make_classification(  # noqa: N806
            2000, 100, n_informative=20, n_classes=classes, flip_y=0.1, random_state=0
        )
        count = {2: 1460, 5: 1030}[classes]  # rows that leave about 1000 support vectors
        rows.append((f"SVC rbf, {classes} classes", SVC().fit(X[:count], y[:count]), X))
    X, y = load_digits(return_X_y=True)  # noqa: N806
    X = X / 16.0  # noqa: N806
    rows.append(("SVC rbf, digits", SVC().fit(X, y), X))
    rows.append(("LogisticRegression, digits", LogisticRegression(max_iter=500).fit(X, y), X))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        network = MLPClassifier((64,), activation="tanh", max_iter=50, random_state=0).fit(X, y)
    rows.append(("MLPClassifier tanh, digits", network, X))
    two = y < 2
    process = GaussianProcessClassifier(optimizer=None).fit(X[two], y[two])
    rows.append(("GaussianProcess, digits 0/1", process, X[two]))
    return rows


def _row(name: str, model: Any, x: torch.Tensor) -> None:
    clf = cr.from_sklearn(model)
    cr.credibility(clf, x[:64], gamma="auto")  # warm
    start = time.perf_counter()
    profile = cr.credibility(clf, x, gamma="auto")
    seconds = time.perf_counter() - start
    support = len(model.support_) if hasattr(model, "support_") else 0
    done = float((profile.codes == cr.Status.CONVERGED).double().mean())
    print(
        f"{name:30s} {support:7d} {len(x) / seconds:10.0f} "
        f"{float(profile.passes.mean()):7.1f} {done:10.2f}"
    )


if __name__ == "__main__":
    main()
