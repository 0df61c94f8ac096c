"""Weights as prior knowledge: how class frequencies change a profile.

python -m examples.class_priors [--out FOLDER]

The embedded network is used on a stream in which some classes are much rarer than in its training
data. `prior_weights` puts that into the weights: rare classes become less credible.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from torch import Tensor

import credibly as cr
from credibly.data.sample import load_sample
from credibly.decide.scores import predicted_ratio
from credibly.metrics import error_coverage
from credibly.plot.style import INK, PROFILE, panels, tidy

GAMMA = 200.0


def main(out: Path | None = None, *, small: bool = False) -> None:
    """Print what the prior changes, and draw it if a folder is given."""
    sample, images = load_sample(), 200 if small else 1000
    priors = torch.softmax(-0.45 * torch.arange(10.0), dim=0)
    rows = stream(sample.labels[:images], priors)
    x, labels = sample.images[rows], sample.labels[rows]
    clf = cr.Classifier(sample.net, classes=sample.classes)
    plain = cr.credibility(clf, x, gamma=GAMMA)
    informed = cr.credibility(clf, x, weights=cr.prior_weights(priors, gamma=GAMMA))
    softer = priors**0.25 / (priors**0.25).sum()  # a prior that is trusted only in part
    tempered = cr.credibility(clf, x, weights=cr.prior_weights(softer, gamma=GAMMA))
    print(f"{len(rows)} images; frequencies from {priors[0]:.0%} ({sample.classes[0]}) "
          f"to {priors[-1]:.1%} ({sample.classes[-1]})")  # fmt: skip
    for name, profile in (
        ("equal weights", plain),
        ("weights from frequencies ^ 1/4", tempered),
        ("weights from frequencies", informed),
    ):
        credible = (profile.credibility.argmax(1) == labels).double().mean()
        own = profile.credence.argmax(1) == labels
        curve = error_coverage(predicted_ratio(profile), own)
        print(
            f"{name}: most credible class right for {credible:.1%}; network's own class right for "
            f"{own.double().mean():.1%}, of the most trusted 80 % for {curve.accuracy_at(0.8):.1%}"
        )
    change = (informed.credibility - plain.credibility).mean(0)
    for k in (0, 4, 9):
        print(f"  mean change of c+ of {sample.classes[k]} ({priors[k]:.1%}): {change[k]:+.2f}")
    if out is not None:
        draw(out, sample.classes, priors, change)


def stream(labels: Tensor, priors: Tensor) -> Tensor:
    """Select rows of the images so that the classes have these frequencies."""
    counts = torch.bincount(labels, minlength=len(priors))
    size = float((counts / priors).min())
    keep = [
        (labels == k).nonzero().squeeze(1)[: max(1, round(float(size * share)))]
        for k, share in enumerate(priors.tolist())
    ]
    return torch.cat(keep).sort().values


def draw(out: Path, classes: tuple[str, ...], priors: Tensor, change: Tensor) -> None:
    """Draw how the prior changes the credibility of each class."""
    out.mkdir(parents=True, exist_ok=True)
    figure, (axes,) = panels(1, width=7, height=3.6)
    labels = [f"{name}\n{share:.1%}" for name, share in zip(classes, priors.tolist(), strict=True)]
    axes.bar(labels, change.tolist(), color=PROFILE)
    axes.axhline(0, color=INK, linewidth=0.8)
    title = "Weights from class frequencies make rare classes less credible"
    tidy(axes, title=title, y="mean change of c+")
    axes.tick_params(axis="x", labelrotation=45)
    figure.savefig(out / "gallery-priors.png", dpi=140)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    main(parser.parse_args().out)
