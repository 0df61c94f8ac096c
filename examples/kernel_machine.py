"""A kernel machine in the plane: where its predictions move to, and which of them to trust.

    python -m examples.kernel_machine --out FOLDER

It is an RBF support vector classifier of scikit-learn on two interleaved moons.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import torch
from sklearn.datasets import make_moons
from sklearn.svm import SVC

import credibly as cr
from credibly.decide.scores import predicted_ratio


def main(out: Path | None = None, *, small: bool = False) -> None:
    """Fit, solve, print accuracy by trust and draw the plane."""
    x, y = make_moons(600, noise=0.28, random_state=0)
    model = SVC(C=2.0, gamma=1.5).fit(x[:300], y[:300])
    count = 40 if small else 300
    points, labels = x[300 : 300 + count], y[300 : 300 + count]
    profile = cr.credibility(cr.from_sklearn(model), points, gamma="auto")
    trust = predicted_ratio(profile).numpy()
    right = model.predict(points) == labels
    print(f"accuracy {right.mean():.1%} on {count} points, gamma {profile.gamma:.4g} (auto)")
    print("trust               points  accuracy  mean |x+ - x0|")
    for name, chosen in thirds(trust):
        distance = profile.risk.sqrt().numpy()[chosen].mean()
        print(f"{name:<18}{chosen.sum():>8}{right[chosen].mean():>10.1%}{distance:>16.2f}")
    if out is not None:
        draw(out, model, profile, trust, right)


def thirds(trust: np.ndarray) -> list[tuple[str, np.ndarray]]:
    """Return the least, middle and most trusted third."""
    low, high = np.quantile(trust, [1 / 3, 2 / 3])
    middle = (trust > low) & (trust <= high)
    return [("least trusted", trust <= low), ("middle", middle), ("most trusted", trust > high)]


def draw(out: Path, model: SVC, profile: cr.Profile, trust: np.ndarray, right: np.ndarray) -> None:
    """Draw decision regions, and the points with arrows to x+, coloured by trust."""
    from credibly.plot.style import legend, panels, png, tidy

    x0, moved = profile.x0.numpy(), profile.perturbed.numpy()
    figure, (axes,) = panels(1, width=8.2, height=5.2)
    both = np.vstack([x0, moved])
    (left, low), (side, high) = both.min(0) - 0.15, both.max(0) + 0.15
    grid = np.stack(np.meshgrid(np.linspace(left, side, 240), np.linspace(low, high, 240)), -1)
    height = model.decision_function(grid.reshape(-1, 2)).reshape(240, 240)
    axes.contourf(
        grid[..., 0], grid[..., 1], height, levels=[-99, 0, 99], colors=["#eef1f4", "#dfe5ec"]
    )
    axes.contour(grid[..., 0], grid[..., 1], height, levels=[0], colors="#1f2933", linewidths=1)
    shown = slice(0, 120)
    axes.quiver(
        *x0[shown].T, *(moved - x0)[shown].T, angles="xy", scale_units="xy", scale=1,
        width=0.0022, headwidth=4, color="#8a94a0",
    )  # fmt: skip
    colours = axes.scatter(*x0[shown].T, c=trust[shown], cmap="RdYlBu", s=22, zorder=3,
                           edgecolors="#1f2933", linewidths=0.3)  # fmt: skip
    wrong = x0[shown][~right[shown]]
    axes.scatter(*wrong.T, marker="o", s=80, facecolors="none", edgecolors="#b3261e", zorder=4,
                 label="misclassified")  # fmt: skip
    figure.colorbar(colours, ax=axes, label="trust: ratio of the predicted class at x+")
    least, _, most = (right[chosen].mean() for _, chosen in thirds(trust))
    tidy(
        axes,
        title="Arrows lead from x0 to x+. The most trusted third is right "
        f"{most:.0%} of the time, the least {least:.0%}",
    )
    axes.grid(visible=False)
    legend(axes, where="lower right")
    out.mkdir(parents=True, exist_ok=True)
    (out / "gallery-kernel.png").write_bytes(png(figure))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, help="folder for the picture")
    parser.add_argument("--small", action="store_true", help="fewer points")
    given = parser.parse_args()
    torch.set_num_threads(1)
    main(given.out, small=given.small)
