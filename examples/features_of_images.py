"""Move the pixels of an image, or its features inside the network: which finds errors better?

The embedded network and images are used; nothing is downloaded or trained. Run it with
`python -m examples.features_of_images --out FOLDER`.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

import credibly as cr
from credibly.data.sample import load_sample
from credibly.decide.scores import predicted_ratio, softmax_ratio

PLACES = {
    "pixels": None,
    "block 1 of 3": "blocks.0",
    "block 2 of 3": "blocks.1",
    "block 3 of 3": "blocks.2",
}
"""Name -> the submodule whose output moves."""


@dataclass(frozen=True)
class Row:
    """One line of the table.

    Attributes:
        name: where the movement happens.
        ranks: share of pairs in which the right prediction scores above the wrong one.
        low: lower end of the 90 % interval of that.
        high: upper end.
        features: how many numbers may move.
        passes: per sample, on average.
        converged: share of samples whose gradient vanished.
        gamma: set by the model's own sensitivity there.
    """

    name: str
    ranks: float
    low: float
    high: float
    features: int = 0
    passes: float = 0.0
    converged: float = 0.0
    gamma: float = float("nan")


def row_of(name: str, score: Tensor, right: Tensor, profile: cr.Profile | None = None) -> Row:
    """Measure how a score ranks, and what its profile cost."""
    found = cr.metrics.bootstrap(cr.metrics.failure_auroc, score, right, n=400, level=0.9)
    if profile is None:
        return Row(name, found.value, found.low, found.high, passes=1 / 3)
    return Row(
        name,
        found.value,
        found.low,
        found.high,
        features=profile.x0[0].numel(),
        passes=float(profile.passes.mean()),
        converged=float((profile.codes == cr.Status.CONVERGED).double().mean()),
        gamma=profile.gamma or float("nan"),
    )


def rows_of(count: int) -> tuple[list[Row], int]:
    """Return a row per place, one for softmax, and the number of errors.

    Prints the differences of the deepest place to the pixels and to softmax, on the same images.
    """
    sample = load_sample()
    images, labels = sample.images[:count], sample.labels[:count]
    rows, right, scores = [], torch.zeros(0, dtype=torch.bool), []
    for name, module in PLACES.items():
        clf = cr.Classifier(sample.net, classes=sample.classes, module=module)
        profile = cr.credibility(clf, images, gamma="auto")
        right = profile.credence.argmax(1) == labels
        if not rows:
            scores.append(softmax_ratio(profile))
            rows.append(row_of("softmax, no movement", scores[0], right))
        scores.append(predicted_ratio(profile))
        rows.append(row_of(name, scores[-1], right, profile))
    for name, other in (("softmax", scores[0]), ("pixels", scores[1])):
        gap = cr.metrics.paired_difference(
            cr.metrics.failure_auroc, scores[-1], other, right, n=400, level=0.9
        )
        print(f"block 3 less {name}: {100 * gap.low:+.1f} to {100 * gap.high:+.1f} points (90 %)")
    return rows, int((~right).sum())


def table(rows: list[Row]) -> None:
    """Print the rows."""
    print(
        f"{'moved':<22}{'numbers':>8}{'gamma':>9}{'passes':>8}{'converged':>11}  right above wrong"
    )
    for row in rows:
        solved = row.features > 0
        gamma = f"{row.gamma:.4g}" if solved else "-"
        converged = f"{row.converged:.0%}" if solved else "-"
        print(
            f"{row.name:<22}{row.features or '-':>8}{gamma:>9}{row.passes:>8.1f}"
            f"{converged:>11}  {row.ranks:.1%} ({row.low:.1%} to {row.high:.1%})"
        )


def draw(rows: list[Row], count: int, errors: int, path: Path) -> None:
    """Draw how well errors are ranked, place by place."""
    from credibly.plot import style

    figure, axes = style.panels(1, width=7.6, height=3.1)
    panel, places = axes[0], list(range(len(rows)))
    for place, row in zip(places, rows, strict=True):
        colour = style.SOFTMAX if place == 0 else style.PROFILE
        panel.plot([100 * row.low, 100 * row.high], [place, place], color=colour, linewidth=2)
        panel.plot([100 * row.ranks], [place], "o", color=colour, markersize=7)
        cost = f"{row.passes:.0f} passes" if row.features else "one forward"
        panel.text(101, place, cost, va="center", fontsize=8, color=style.QUIET)
    style.tidy(
        panel,
        title=f"{_finding(rows)}\n{count} images, {errors} errors; bars: 90 % by bootstrap",
        x="pairs in which the right prediction scores above the wrong one (%)",
    )
    panel.set_yticks(places, [row.name for row in rows])
    panel.set_ylim(len(rows) - 0.5, -0.5)
    panel.set_xlim(50, 100)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130, facecolor="white")


def _finding(rows: list[Row]) -> str:
    best, pixels, deepest = max(rows, key=lambda row: row.ranks), rows[1], rows[-1]
    order = "better" if deepest.ranks > pixels.ranks else "no better"
    first = best.name.split(",")[0]
    return f"Moving deep features ranks errors {order} than moving pixels; best: {first}"


def main(out: Path | None = None, *, small: bool = False) -> list[Row]:
    """Solve in every space, print, draw, and return the rows of the table."""
    count = 12 if small else 300
    rows, errors = rows_of(count)
    print(f"{count} images, {errors} of them wrong")
    table(rows)
    if out is not None:
        draw(rows, count, errors, out / "gallery-features.png")
    return rows


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, help="folder for the picture")
    main(parser.parse_args().out)
