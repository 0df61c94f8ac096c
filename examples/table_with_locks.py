"""A table with columns that cannot move: the profile of a small network on tumour measurements.

    python -m examples.table_with_locks --out FOLDER

In the breast cancer data of scikit-learn, the size of the nucleus becomes a category of three
one-hot columns. A tumour cannot be 0.3 large, so those columns are locked. The others move in
units of their standard deviations and stay in the range of the data.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from sklearn.datasets import load_breast_cancer
from torch import Tensor, nn

import credibly as cr
from credibly.decide.scores import predicted_ratio

MEASURED = ("texture", "smoothness", "compactness", "symmetry", "fractal dimension")
VISIBLE = 0.01  # a one-hot value further than this from 0 and 1 belongs to no category
SIZES = ("size: small", "size: medium", "size: large")


@dataclass(frozen=True)
class Table:
    """Inputs, labels and column names of one part of the data."""

    columns: list[str]
    x: Tensor
    y: Tensor


def load() -> tuple[Table, Table]:
    """Read training and test parts: five measurements, and the radius as a category."""
    data = load_breast_cancer()
    names = [str(name) for name in data.feature_names[:10]]
    kept = [names.index(f"mean {name}") for name in MEASURED]
    third = np.digitize(data.data[:, 0], np.quantile(data.data[:, 0], [1 / 3, 2 / 3]))
    x = torch.from_numpy(np.hstack([data.data[:, kept], np.eye(3)[third]]))
    y = torch.from_numpy(data.target)
    columns = [*MEASURED, *SIZES]
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))
    train, test = order[:400], order[400:]
    return Table(columns, x[train], y[train]), Table(columns, x[test], y[test])


class Network(nn.Module):
    """A network from measurements in their own units to two logits; it standardises inside."""

    def __init__(self, x: Tensor) -> None:
        super().__init__()
        self.register_buffer("mean", x.mean(0))
        self.register_buffer("deviation", x.std(0))
        hidden = nn.Sequential(nn.Linear(x.shape[1], 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh())
        self.layers = nn.Sequential(*hidden, nn.Linear(32, 2)).double()

    def forward(self, x: Tensor) -> Tensor:
        """Logits of malignant and benign."""
        return self.layers((x - self.mean) / self.deviation)


def trained(table: Table, steps: int) -> Network:
    """Train a network for so many steps on the whole table."""
    torch.manual_seed(0)
    net = Network(table.x)
    optimiser = torch.optim.Adam(net.parameters(), lr=5e-3, weight_decay=1e-3)
    for _ in range(steps):
        optimiser.zero_grad()
        nn.functional.cross_entropy(net(table.x), table.y).backward()
        optimiser.step()
    return net.eval()


def profiles(net: Network, train: Table, x: Tensor) -> tuple[cr.Profile, cr.Profile]:
    """Solve profiles with the one-hot columns locked, and with all columns free."""
    limits = (train.x.amin(0), train.x.amax(0))
    x = x.clamp(*limits)  # a few tumours lie outside of what was trained on
    spaces = [
        cr.Space.standardised(train.x, columns=train.columns, locked=locked, bounds=limits)
        for locked in (SIZES, None)
    ]
    locked, free = (
        cr.Classifier(net, space=space, classes=["malignant", "benign"]) for space in spaces
    )
    gamma = cr.auto_gamma(locked, x)
    return cr.credibility(locked, x, gamma=gamma), cr.credibility(free, x, gamma=gamma)


def main(out: Path | None = None, *, small: bool = False) -> None:
    """Train, solve both profiles, print which features moved and draw them."""
    train, test = load()
    net = trained(train, 60 if small else 300)
    count = 24 if small else len(test.x)
    locked, free = profiles(net, train, test.x[:count])
    right = locked.credence.argmax(1) == test.y[:count]
    moves = [mean_move(profile, train) for profile in (locked, free)]
    print(
        f"accuracy {right.double().mean():.1%} on {count} tumours, gamma {locked.gamma:.4g} (auto)"
    )
    print("mean |move| in standard deviations   locked   free")
    for name, held, loose in zip(train.columns, *moves, strict=True):
        print(f"  {name:<32}{held:>9.2f}{loose:>7.2f}")
    print(
        f"median risk |x+ - x0|^2            {locked.risk.median():>8.2f}{free.risk.median():>7.2f}"
    )
    kept = [credible(profile).double().mean() for profile in (locked, free)]
    print(f"prediction ahead at x+             {kept[0]:>8.0%}{kept[1]:>7.0%}")
    change = (free.perturbed - free.x0)[:, len(MEASURED) :].abs().amax(1)
    broken = (change > VISIBLE).double().mean()
    print(f"free x+ whose size is no category: {broken:.0%}; largest change {change.max():.2f}")
    if out is not None:
        draw(out, train.columns, moves, change)


def mean_move(profile: cr.Profile, train: Table) -> list[float]:
    """Return the mean movement of each column, in its standard deviations."""
    moved: Tensor = ((profile.perturbed - profile.x0) / train.x.std(0)).abs().mean(0)
    return [float(size) for size in moved]


def credible(profile: cr.Profile) -> Tensor:
    """Return whether the predicted class is still ahead at x+ (n,)."""
    return predicted_ratio(profile) > 0


def draw(out: Path, columns: list[str], moves: list[list[float]], change: Tensor) -> None:
    """Draw what moves with and without locks, and the category without locks."""
    from credibly.plot.style import PROFILE, SOFTMAX, legend, panels, png, tidy

    figure, (left, side) = panels(2, width=10.0, height=4.0, widths=[1.7, 1.0])
    rows = range(len(columns))
    left.barh([r - 0.2 for r in rows], moves[0], 0.38, color=PROFILE, label="size locked")
    left.barh([r + 0.2 for r in rows], moves[1], 0.38, color=SOFTMAX, label="all columns free")
    left.set_yticks(rows, columns)
    left.invert_yaxis()
    share = sum(moves[1][len(MEASURED) :]) / sum(moves[1])
    tidy(
        left,
        title=f"Free, the category takes {share:.0%} of all movement; locked, none",
        x="mean |move|, in standard deviations",
    )
    legend(left, where="lower right")
    side.hist(change.tolist(), bins=20, color=SOFTMAX)
    broken = float((change > VISIBLE).double().mean())
    tidy(
        side,
        title=f"Free, {broken:.0%} of the x+ belong to no size",
        x="largest change of a size column, 0 or 1 before",
        y="tumours",
    )
    out.mkdir(parents=True, exist_ok=True)
    (out / "gallery-tables.png").write_bytes(png(figure))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, help="folder for the picture")
    parser.add_argument("--small", action="store_true", help="less training and fewer rows")
    given = parser.parse_args()
    main(given.out, small=given.small)
