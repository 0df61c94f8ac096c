"""The page of `credibly demo`: results in, one self-contained HTML file out."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from importlib.resources import files
from typing import TYPE_CHECKING

import jinja2
import torch
from torch import Tensor

from credibly.decide import scores
from credibly.metrics.coverage import CoverageCurve, accuracy_against_coverage
from credibly.report import figures, style
from credibly.version import __version__

if TYPE_CHECKING:
    from collections.abc import Mapping

    from credibly.profile.profile import Profile

SHARES = (1.0, 0.95, 0.9, 0.8, 0.7, 0.5)
SHOWN = 8


@dataclass(frozen=True)
class DemoResults:
    """What the demo solved: a profile for each gamma, the truth, and the time it took.

    Attributes:
        profiles: by gamma.
        gamma: the one that most of the page is about.
        labels: true classes (n,).
        seconds: by gamma.
        test_accuracy: of the network on its whole test set.
        threads: that torch computed with.
    """

    profiles: Mapping[float, Profile]
    gamma: float
    labels: Tensor
    seconds: Mapping[float, float]
    test_accuracy: float
    threads: int

    @property
    def profile(self) -> Profile:
        """The profile at the main gamma."""
        return self.profiles[self.gamma]

    @property
    def predicted(self) -> Tensor:
        """What the network says of the untouched images (n,)."""
        return self.profile.credence.argmax(1)

    def curves(self) -> dict[str, CoverageCurve]:
        """Accuracy against coverage for softmax and for the profile, in both of its uses."""
        profile = self.profile
        hit = self.predicted == self.labels
        credible_hit = profile.credibility.argmax(1) == self.labels
        return {
            "softmax: its class, its ratio": accuracy_against_coverage(
                scores.softmax_ratio(profile), hit
            ),
            "network's class, ranked by the profile": accuracy_against_coverage(
                scores.predicted_ratio(profile), hit
            ),
            "most credible class, ranked by the profile": accuracy_against_coverage(
                scores.ratio(profile), credible_hit
            ),
        }

    def verdict(self) -> str:
        """Say in words what the curves say, also where they speak against the method."""
        soft, kept, _ = (curve.at(0.8) for curve in self.curves().values())
        if soft >= kept:
            return (
                f"On these clean images softmax is the better filter: at 80 % coverage it is right "
                f"{soft:.1%} of the time, the profile {kept:.1%}. That is the usual finding. What "
                "the profile adds is a view of robustness: how little it takes to level the "
                "classes, and what that change looks like."
            )
        return (
            f"At 80 % coverage the profile is right {kept:.1%} of the time, softmax {soft:.1%}. "
            "On clean images softmax usually is the better filter; do not count on this order."
        )

    def cost(self) -> str:
        """How long it took an image, and on what."""
        solved = sum(len(profile) for profile in self.profiles.values())
        threads = "one thread" if self.threads == 1 else f"{self.threads} threads"
        return (
            f"{1000 * sum(self.seconds.values()) / solved:.0f} ms an image and gamma on {threads}"
        )

    def extremes(self) -> tuple[list[int], list[int]]:
        """The images whose predictions come out most and least credible."""
        order = scores.predicted_ratio(self.profile).argsort(descending=True, stable=True).tolist()
        return order[:SHOWN], order[-SHOWN:][::-1]


def render(results: DemoResults, images: Mapping[str, bytes]) -> str:
    """The page as HTML, with the images of `pictures` inside."""
    template = jinja2.Template(
        (files("credibly.report") / "demo_page.html.j2").read_text("utf-8"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
    )
    page: str = template.render(
        facts=_facts(results),
        pictures={name: style.as_data_uri(image) for name, image in images.items()},
        table=_table(results),
        costs=_costs(results),
    )
    return page


def pictures(results: DemoResults) -> dict[str, bytes]:
    """Every figure of the page as PNG."""
    profile, (most, least) = results.profile, results.extremes()
    sample, title, _ = _example(results)
    drawn = {
        "example": figures.example(profile, sample, title=title),
        "sorted": figures.sorted_profiles(profile),
        "trade_off": figures.trade_off(results.profiles),
        "coverage": figures.coverage(results.curves()),
        "most": figures.gallery(profile, most, [_caption(results, n) for n in most]),
        "least": figures.gallery(profile, least, [_caption(results, n) for n in least]),
    }
    return {name: style.png(figure) for name, figure in drawn.items()}


def _example(results: DemoResults) -> tuple[int, str, str]:
    """A sure and wrong prediction whose lead the trade-off takes away, if there is one."""
    profile, predicted = results.profile, results.predicted
    wrong = predicted != results.labels
    lost = profile.credibility.argmax(1) != predicted
    sure = scores.softmax_ratio(profile).double()
    rank = torch.where(wrong & lost, sure, torch.where(lost, sure - 1e6, sure - 1e12))
    n = int(rank.argmax())
    name = profile.class_name
    before, after = int(predicted[n]), int(profile.credibility[n].argmax())
    truth = name(int(results.labels[n]))
    probability = float(profile.credence[n].max().exp())
    title = f"predicted {name(before)} ({probability:.0%} by softmax); in truth {truth}"
    why = "Of the mistakes that the trade-off overturns, softmax was surest of this one. "
    text = (
        (why if bool(wrong[n] and lost[n]) else "")
        + f"The network says {name(before)} and softmax gives it {probability:.1%}; it is in truth "
        f"{truth}. A change of length {float(profile.risk[n].sqrt()):.2f} (of an image of length "
        f"{float(profile.x0[n].norm()):.1f}) is enough to bring all ten classes close together"
        + (_ahead(name(after), truth) if bool(lost[n]) else ".")
        + f" {_overturned(results)}"
    )
    return n, title, text


def _ahead(name: str, truth: str) -> str:
    return f", and {name} comes out ahead" + ("." if name == truth else ", which is wrong, too.")


def _overturned(results: DemoResults) -> str:
    """How often the most credible class is another one, and how often that is a correction."""
    credible = results.profile.credibility.argmax(1)
    lost, right = credible != results.predicted, credible == results.labels
    return (
        f"Another class than the network's comes out ahead on {int(lost.sum())} of the {len(lost)} "
        f"images; on {int((lost & right).sum())} of them it is the right one, and on "
        f"{int((lost & (results.predicted == results.labels)).sum())} the network's was."
    )


def _caption(results: DemoResults, sample: int) -> str:
    name = results.profile.class_name
    predicted, truth = int(results.predicted[sample]), int(results.labels[sample])
    return name(predicted) + ("\n " if predicted == truth else f"\nis {name(truth)}")


def _facts(results: DemoResults) -> dict[str, object]:
    profile = results.profile
    counts = Counter(status.label for status in profile.status)
    return {
        "images": len(profile),
        "test_accuracy": results.test_accuracy,
        "version": __version__,
        "gamma": f"{results.gamma:g}",
        "example_text": _example(results)[2],
        "kept": float((profile.credibility.argmax(1) == results.predicted).double().mean()),
        "verdict": results.verdict(),
        "cost": results.cost(),
        "statuses": ", ".join(f"{count} {label}" for label, count in counts.most_common()),
    }


def _table(results: DemoResults) -> dict[str, object]:
    rows = [
        {"name": name, "values": [f"{100 * curve.at(share):.1f} %" for share in SHARES]}
        for name, curve in results.curves().items()
    ]
    return {"shares": [f"{share:.0%}" for share in SHARES], "rows": rows}


def _costs(results: DemoResults) -> list[dict[str, str]]:
    return [
        {
            "gamma": f"{gamma:g}",
            "images": str(len(profile)),
            "seconds": f"{results.seconds[gamma]:.1f}",
            "passes": f"{float(profile.passes.median()):.0f}",
            "risk": f"{float(profile.risk.median()):.3f}",
            "overall": f"{float(profile.credibility.square().sum(1).median()):.1f}",
            "stationarity": f"{float(profile.certificate.relative_stationarity.median()):.2f}",
        }
        for gamma, profile in results.profiles.items()
    ]
