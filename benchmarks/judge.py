"""What a Judge catches on small networks and tables, at what rate of false alarms and what price.

    python -m benchmarks.judge [--out results/judge-small.json] [--only digits]

Handwritten digits (scikit-learn, four kinds of networks, three seeds each), and tables with three
models each, over ten random splits (forty of wine). Breast cancer, wine and a survey of mixed
columns were looked at several times while the alarm was built, so they do not confirm it. Votes,
visits to a doctor and diabetes were looked at once, when it was finished. The Judge has
no labels and is asked for 1 % of false alarms. Catch rates are of the verdicts 'outlier' and
'tampered'; of rows with a column in another unit, only those whose answer changes are counted.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import credibly as cr
from benchmarks.small_networks import KINDS, trained
from credibly.baselines import MaxSoftmax
from credibly.metrics import aurc

RATE = 0.01


@dataclass(frozen=True)
class Subject:
    """A trained model, ordinary inputs to fit a Judge on, and others to judge."""

    name: str
    model: Any
    ordinary: Tensor
    test: Tensor
    labels: Tensor
    table: bool


def digits() -> Iterator[Subject]:
    """Networks on images of 8 x 8 pixels: half of these train, a quarter is ordinary."""
    from sklearn.datasets import load_digits

    pixels, labels = load_digits(return_X_y=True)
    for seed in range(3):
        generator = torch.Generator().manual_seed(seed)
        order = torch.randperm(len(pixels), generator=generator)
        x, y = torch.tensor(pixels / 16).float()[order], torch.tensor(labels)[order]
        for kind, make in KINDS.items():
            torch.manual_seed(seed)
            net = trained(make, x[:900], y[:900], 60)
            image = x.reshape(-1, 1, 8, 8)
            whole = nn.Sequential(nn.Flatten(), net).eval()
            yield Subject(f"digits, {kind}", whole, image[900:1300], image[1300:], y[1300:], False)


def tables() -> Iterator[Subject]:
    """Pipelines of scikit-learn on tables, in the units of their columns."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.neural_network import MLPClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler
    from sklearn.svm import SVC

    for name, (x, y, counts) in read_tables().items():
        for split in range(40 if name == "wine" else 10):  # wine has only 178 rows
            order = np.random.default_rng(split).permutation(len(x))
            train, known, new = np.split(order[: sum(counts)], np.cumsum(counts)[:-1])
            models = {
                "logistic": LogisticRegression(max_iter=1000),
                "SVC": SVC(),
                "MLP": MLPClassifier((32,), max_iter=400, random_state=split),
            }
            for kind, model in models.items():
                fitted = make_pipeline(StandardScaler(), model).fit(x[train], y[train])
                yield Subject(
                    f"{name}, {kind}", fitted, torch.tensor(x[known]), torch.tensor(x[new]),
                    torch.tensor(y[new]), True,
                )  # fmt: skip


def read_tables() -> dict[str, tuple[np.ndarray, np.ndarray, tuple[int, int, int]]]:
    """Features, classes, and how many rows train, are ordinary, and are new."""
    import statsmodels.api as sm
    from sklearn.datasets import load_breast_cancer, load_diabetes, load_wine

    survey = sm.datasets.fair.load_pandas().data
    jobs = ("occupation", "occupation_husb")
    numbers = survey.drop(columns=["affairs", *jobs]).to_numpy(float)
    one_hot = [np.eye(6)[survey[job].to_numpy(int) - 1] for job in jobs]
    mixed, answers = np.hstack([numbers, *one_hot]), (survey["affairs"] > 0).to_numpy(int)
    votes = sm.datasets.anes96.load_pandas().data
    visits = sm.datasets.randhie.load_pandas().data
    diabetes = load_diabetes(scaled=False)
    return {
        "votes": (
            votes.drop(columns=["vote", "logpopul"]).to_numpy(float),
            votes["vote"].to_numpy(int), (350, 300, 290),
        ),
        "visits": (
            visits.drop(columns="mdvis").to_numpy(float),
            (visits["mdvis"] > 0).to_numpy(int), (2000, 300, 700),
        ),
        "diabetes": (
            diabetes.data, (diabetes.target > np.median(diabetes.target)).astype(int),
            (160, 150, 130),
        ),
        "breast cancer": (*load_breast_cancer(return_X_y=True), (250, 160, 159)),
        "wine": (*load_wine(return_X_y=True), (58, 100, 20)),
        "survey": (mixed, answers, (2000, 300, 700)),
    }  # fmt: skip


def strange(subject: Subject, seed: int) -> dict[str, Tensor]:
    """Inputs that do not belong."""
    x, g = subject.test, torch.Generator().manual_seed(seed)
    low, high = subject.ordinary.amin(0), subject.ordinary.amax(0)
    uniform = low + (high - low) * torch.rand(x.shape, generator=g, dtype=x.dtype)
    if subject.table:
        rows = torch.rand(x.shape, generator=g).argsort(0)
        return {"uniform": uniform, "inverted": low + high - x, "shuffled": x.gather(0, rows)}
    places = torch.rand(x.flatten(1).shape, generator=g).argsort(1)
    noise = (0.5 + 0.25 * torch.randn(x.shape, generator=g)).clamp(0, 1)
    return {
        "uniform": torch.rand(x.shape, generator=g),
        "Gaussian": noise,
        "inverted": 1 - x,
        "shuffled": x.flatten(1).gather(1, places).reshape(x.shape),
    }


def wrong_units(subject: Subject, clf: cr.Classifier, seed: int) -> dict[str, Tensor]:
    """Rows of which one column has another unit, if that changes the answer."""
    x, g = subject.test, torch.Generator().manual_seed(seed)
    column = torch.randint(0, x.shape[1], (len(x), 1), generator=g)
    found = {}
    for factor in (10, 100, 0.1, 0.01):
        other = x.scatter(1, column, factor * x.gather(1, column))
        found[f"x{factor}"] = other[clf.predict(other) != clf.predict(x)]
    return found


def measure(subject: Subject, seed: int) -> dict[str, Any]:
    """One Judge: false alarms, catch rates, ranking of failures, price."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        judge = cr.Judge.fit(subject.model, subject.ordinary, false_alarms=RATE)
        clf = judge.examiner.clf
        found = judge(subject.test)
    right = found.predicted == subject.labels
    softmax = MaxSoftmax()(clf, subject.test).cpu()
    sets = strange(subject, seed)
    if subject.table:
        sets |= {name: x for name, x in wrong_units(subject, clf, seed).items() if len(x)}
    caught = {name: _caught(judge, x) for name, x in sets.items()}
    return {
        "right": (int(right.sum()), len(right)),
        "alarms": (int((found.p_ordinary <= RATE).sum()), len(right)),
        "aurc": aurc(found.trust, right),
        "softmax": aurc(softmax, right),
        "cost": found.cost,
        "caught": caught,
        "samples": judge.facts.samples,
    }


def _caught(judge: cr.Judge, x: Tensor) -> tuple[int, int]:
    return int((judge(x).p_ordinary <= RATE).sum()), len(x)


def summed(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """All splits or seeds of one model together."""
    alarms, count = (sum(row["alarms"][k] for row in rows) for k in (0, 1))
    names = {name for row in rows for name in row["caught"]}
    caught = {
        name: [sum(row["caught"].get(name, (0, 0))[k] for row in rows) for k in (0, 1)]
        for name in sorted(names)
    }
    low, high = band(RATE, [(row["samples"], row["alarms"][1]) for row in rows])
    return {
        "accuracy": sum(row["right"][0] for row in rows) / count,
        "false_alarms": alarms / count,
        "band": (low, high),
        "caught": {name: hits / total for name, (hits, total) in caught.items() if total},
        "counts": {name: total for name, (_, total) in caught.items()},
        "relative_aurc": sum(row["aurc"] for row in rows) / sum(row["softmax"] for row in rows),
        "passes": sum(row["cost"] for row in rows) / len(rows),
    }


def band(rate: float, sizes: list[tuple[int, int]]) -> tuple[float, float]:
    """Between which false alarms lie 95 times in 100, by simulation of conformal ranks.

    The rate of a Judge fitted on n inputs has a beta distribution; alarms among new ones are drawn
    with it. `sizes` are the ordinary and the new inputs of each split.
    """
    rng, draws = np.random.default_rng(0), 20000
    total = np.zeros(draws)
    for ordinary, new in sizes:
        rank = int(np.floor(rate * (ordinary + 1) + 1e-9))
        total += rng.binomial(new, rng.beta(rank, ordinary + 1 - rank, draws))
    low, high = np.quantile(total / sum(new for _, new in sizes), [0.025, 0.975])
    return float(low), float(high)


def line(name: str, row: dict[str, Any]) -> str:
    """One row of the printed table."""
    caught = ", ".join(f"{kind} {share:.3f}" for kind, share in row["caught"].items())
    low, high = row["band"]
    return (
        f"{name:24s} right {row['accuracy']:.3f}; false alarms {row['false_alarms']:.4f} "
        f"(band {low:.4f} to {high:.4f}); {row['passes']:.2f} passes; AURC / softmax "
        f"{row['relative_aurc']:.2f}; caught: {caught}"
    )


def main() -> None:
    """Print a line per model, and write them as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--only", default="")
    given = parser.parse_args()
    started, rows = time.monotonic(), {}
    for subjects in (digits, tables):
        for seed, subject in enumerate(subjects()):
            if given.only in subject.name:
                rows.setdefault(subject.name, []).append(measure(subject, seed))
    result = {name: summed(parts) for name, parts in rows.items()}
    for name, row in result.items():
        print(line(name, row), flush=True)
    print(f"{time.monotonic() - started:.0f} s")
    if given.out is not None:
        made = {"command": "python -m benchmarks.judge", "rate": RATE, "models": result}
        given.out.write_text(json.dumps(made, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
