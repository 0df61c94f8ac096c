"""How often smooth forms of an SVC's one-versus-one decisions agree with the vote.

python -m benchmarks.svc_votes
"""

from __future__ import annotations

import warnings

import numpy as np
import torch
from sklearn.datasets import load_digits, load_iris, load_wine
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

import credibly as cr

SPLITS = 10


def main() -> None:
    """Print shares over held-out halves: agreement with predict, and accuracy."""
    print("data    outputs        agrees with predict   accuracy (predict's)")
    for name, load in (("iris", load_iris), ("wine", load_wine), ("digits", load_digits)):
        X, y = load(return_X_y=True)  # noqa: N806
        X = StandardScaler().fit_transform(X)  # noqa: N806
        found: dict[str, list[np.ndarray]] = {
            "decision_function": [],
            "soft_minimum": [],
            "mean": [],
        }
        voted, truth = [], []
        for seed in range(SPLITS):
            rows = train_test_split(X, y, test_size=0.5, random_state=seed, stratify=y)
            model = SVC().fit(rows[0], rows[2])
            voted.append(model.predict(rows[1]))
            truth.append(rows[3])
            found["decision_function"].append(model.decision_function(rows[1]).argmax(1))
            for outputs in ("soft_minimum", "mean"):
                clf = cr.from_sklearn(model, svc_outputs=outputs)
                found[outputs].append(clf.logits(torch.from_numpy(rows[1])).argmax(1).numpy())
        votes, right = np.concatenate(voted), np.concatenate(truth)
        for outputs, parts in found.items():
            chosen = np.concatenate(parts)
            print(
                f"{name:7s} {outputs:18s} {(chosen == votes).mean():15.4f} "
                f"{(chosen == right).mean():12.4f} ({(votes == right).mean():.4f})"
            )
        print(f"{name:7s} libsvm's probabilities against the exact coupling: {_gap(X, y):.4f}")


def _gap(X: np.ndarray, y: np.ndarray) -> float:  # noqa: N803
    """Largest difference on the held-out halves of three splits."""
    gaps = []
    for seed in range(3):
        rows = train_test_split(X, y, test_size=0.5, random_state=seed, stratify=y)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # deprecated, but still there
            model = SVC(probability=True, random_state=0).fit(rows[0], rows[2])
        clf, x = cr.from_sklearn(model, svc_outputs="probabilities"), torch.from_numpy(rows[1])
        gaps.append(clf.losses(x).neg().exp() - torch.from_numpy(model.predict_proba(rows[1])))
    return float(torch.cat(gaps).abs().max())


if __name__ == "__main__":
    main()
