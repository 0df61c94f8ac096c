"""The page of `credibly demo`: one self-contained HTML file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from matplotlib.figure import Figure
from torch import Tensor

from credibly.decide import scores
from credibly.metrics import ErrorCoverageCurve, error_coverage
from credibly.plot import style
from credibly.plot.one_sample import draw
from credibly.plot.view import View
from credibly.profile.profile import Profile
from credibly.report import demo_judge, page
from credibly.report.alarms import alarms_figure
from credibly.report.demo_judge import JudgeDemo
from credibly.report.tables import Table


def sorted_profiles(profile: Profile) -> Figure:
    """Credibilities before and after, each sample sorted and scaled to [0, 1] (Fig. 2)."""
    figure, axes = style.panels(2)
    titles = ("before: c0, at the original input", "after: c+, at the trade-off")
    both = (profile.credence, profile.credibility)
    for panel, values, title in zip(axes, both, titles, strict=True):
        curves = _scaled(values).cpu()
        ranks = range(1, curves.shape[1] + 1)
        for curve in curves[:150]:
            panel.plot(ranks, curve.tolist(), color=style.PROFILE, alpha=0.10, linewidth=0.8)
        middle = curves.median(0).values.tolist()
        panel.plot(ranks, middle, color=style.INK, linewidth=2, label="median of all")
        style.tidy(
            panel, title=title, x="class, from most to least credible", y="credibility, scaled"
        )
        panel.set_xticks(list(ranks))
        style.legend(panel)
    return figure


def _scaled(values: Tensor) -> Tensor:
    """Sort each row from best to worst and scale it to [0, 1]."""
    ordered = values.sort(dim=1, descending=True).values
    best, worst = ordered[:, :1], ordered[:, -1:]
    return (ordered - worst) / (best - worst).clamp(min=torch.finfo(values.dtype).tiny)


def trade_off(profiles: Mapping[float, Profile]) -> Figure:
    """Distribution of risk and of overall credibility for several gamma (Fig. 1)."""
    figure, axes = style.panels(2)
    quantities = {
        "risk: squared distance to x+": [p.risk for p in profiles.values()],
        "overall credibility: |c+|²  (0 is best)": [
            p.credibility.square().sum(1) for p in profiles.values()
        ],
    }
    for panel, (title, measured) in zip(axes, quantities.items(), strict=True):
        for gamma, unsorted, color in zip(profiles, measured, style.SHADES, strict=False):
            values = unsorted.sort().values.tolist()
            share = [(k + 1) / len(values) for k in range(len(values))]
            panel.plot(values, share, color=color, linewidth=2, label=f"gamma {gamma:g}")
        style.tidy(panel, title=title, x="value", y="share of images below it")
        panel.set_ylim(0, 1)
        style.legend(panel, where="lower right")
    return figure


def coverage(curves: Mapping[str, ErrorCoverageCurve]) -> Figure:
    """Accuracy against coverage for several rules (Figs. 3 and 4, without an attack)."""
    figure, (panel,) = style.panels(1, width=6.4, height=3.8)
    colors = (style.SOFTMAX, style.PROFILE, style.THIRD)
    for (name, curve), color in zip(curves.items(), colors, strict=False):
        shown = curve.coverage >= 0.05
        x, y = (100 * curve.coverage[shown]).tolist(), (100 * curve.accuracy[shown]).tolist()
        panel.plot(x, y, color=color, linewidth=2, label=name)
    style.tidy(panel, x="coverage: share of images answered (%)", y="accuracy among them (%)")
    panel.set_xlim(0, 100)
    style.legend(panel)
    return figure


def gallery(profile: Profile, chosen: Sequence[int], captions: Sequence[str]) -> Figure:
    """Rows of x0, x+ and their difference; one column per sample."""
    figure, axes = style.panels(len(chosen), rows=3, width=1.35 * len(chosen) + 0.4, height=4.9)
    for column, (sample, caption) in enumerate(zip(chosen, captions, strict=True)):
        before, after = profile.x0[sample, 0].cpu(), profile.perturbed[sample, 0].cpu()
        for row, pixels in enumerate((before, after, after - before)):
            panel, signed = axes[row * len(chosen) + column], row == 2
            style.picture(panel, pixels.tolist(), signed=signed, high=0.15 if signed else 1.0)
            if column == 0:
                panel.set_ylabel(("x0", "x+", "difference")[row], fontsize=9, color=style.INK)
        axes[column].set_title(caption, fontsize=7.5, color=style.INK)
    return figure


SHARES = (1.0, 0.95, 0.9, 0.8, 0.7, 0.5)
SHOWN = 8
NOTE = (
    "On clean images softmax is usually the better score for abstaining. The profile adds a view "
    "of robustness: how small a change brings the classes level, and what this change looks like."
)


@dataclass(frozen=True)
class DemoResults:
    """What the demo computed: a profile for each gamma, the true classes, and the time it took.

    Attributes:
        profiles: by gamma; those of the main one are of all images.
        gamma: the one that most of the page is about.
        labels: true classes (n,).
        seconds: by gamma.
        test_accuracy: of the network on its whole test set.
        threads: of torch.
        judged: what a Judge says of several kinds of images.
    """

    profiles: Mapping[float, Profile]
    gamma: float
    labels: Tensor
    seconds: Mapping[float, float]
    test_accuracy: float
    threads: int
    judged: JudgeDemo

    @property
    def profile(self) -> Profile:
        """The profile at the main gamma."""
        return self.profiles[self.gamma]

    @property
    def compared(self) -> dict[float, Profile]:
        """The profiles of the images that were solved with every gamma."""
        count = min(len(profile) for profile in self.profiles.values())
        return {gamma: profile[slice(count)] for gamma, profile in self.profiles.items()}

    @property
    def predicted(self) -> Tensor:
        """The network's classes of the original images (n,)."""
        return self.profile.predicted

    @property
    def credible(self) -> Tensor:
        """The most credible classes (n,)."""
        return self.profile.credibility.argmax(1)

    def curves(self) -> dict[str, ErrorCoverageCurve]:
        """Accuracy against coverage for softmax and for two uses of the profile."""
        right, credible_right = self.predicted == self.labels, self.credible == self.labels
        ranked = {
            "network's class, by softmax": (scores.softmax_ratio, right),
            "network's class, by the profile": (scores.predicted_ratio, right),
            "most credible class, by the profile": (scores.ratio, credible_right),
        }
        return {
            name: error_coverage(score(self.profile), hits)
            for name, (score, hits) in ranked.items()
        }

    def cost(self) -> str:
        """The time per image, and the number of threads."""
        solved = sum(len(profile) for profile in self.profiles.values())
        threads = "one thread" if self.threads == 1 else f"{self.threads} threads"
        return (
            f"{1000 * sum(self.seconds.values()) / solved:.0f} ms per image and gamma on {threads}"
        )

    def overturned(self) -> dict[str, int]:
        """Images with another most credible class: all, those it is right on, and wrong on."""
        lost = self.credible != self.predicted
        right, harmed = (
            lost & (self.credible == self.labels),
            lost & (self.predicted == self.labels),
        )
        return {"all": int(lost.sum()), "right": int(right.sum()), "harmed": int(harmed.sum())}

    def extremes(self, count: int = SHOWN) -> tuple[list[int], list[int]]:
        """The images with the most and with the least credible predictions."""
        order = scores.predicted_ratio(self.profile).argsort(descending=True, stable=True).tolist()
        return order[:count], order[-count:][::-1]

    def names(self, row: int) -> list[str]:
        """The predicted, the true and the most credible class of an image."""
        numbers = (self.predicted, self.labels, self.credible)
        return [self.profile.class_name(int(values[row])) for values in numbers]

    def example(self) -> int:
        """A confident error with another most credible class, if there is one."""
        confident = scores.softmax_ratio(self.profile).double()
        lost, wrong = self.credible != self.predicted, self.predicted != self.labels
        return int((confident + 1e6 * lost + 1e6 * (wrong & lost)).argmax())


def render(results: DemoResults, images: Mapping[str, bytes]) -> str:
    """The page as HTML, with the images of `pictures` inside."""
    return page.render(
        "demo_page.html.j2",
        images,
        title="How much should you trust this prediction?",
        results=results,
        coverage=coverage_table(results),
        verdicts=demo_judge.verdicts_table(results.judged, wide=True),
        note=NOTE,
    )


def pictures(results: DemoResults) -> dict[str, bytes]:
    """Every figure of the page as PNG."""
    profile = results.profile
    names = tuple(profile.class_name(k) for k in range(profile.credibility.shape[1]))
    drawn = {
        "judge": alarms_figure(results.judged.caught),
        "example": draw(View.of(profile, results.example(), names)),
        "sorted": sorted_profiles(profile),
        "trade_off": trade_off(results.compared),
        "coverage": coverage(results.curves()),
    }
    for name, rows in zip(("most", "least"), results.extremes(), strict=True):
        drawn[name] = gallery(profile, rows, [_caption(results, n) for n in rows])
    return {name: style.png(figure) for name, figure in drawn.items()}


def _caption(results: DemoResults, row: int) -> str:
    predicted, truth, _ = results.names(row)
    return predicted + ("\n " if predicted == truth else f"\nis {truth}")


def coverage_table(results: DemoResults) -> Table:
    """Accuracy of each curve at a few coverages."""
    rows = [
        [name, *(f"{curve.accuracy_at(share):.1%}" for share in SHARES)]
        for name, curve in results.curves().items()
    ]
    columns = ["share answered", *(f"{share:.0%}" for share in SHARES)]
    return Table(rows, columns, "Accuracy when answering only the most trusted share")


def extremes_table(results: DemoResults) -> Table:
    """A few images with the most and the least credible predictions."""
    trust, softmax = scores.predicted_ratio(results.profile), results.profile.credence.amax(1).exp()
    most, least = results.extremes(4)
    rows = [
        (str(n), *results.names(n), f"{float(softmax[n]):.1%}", f"{float(trust[n]):.3f}")
        for n in [*most, *least]
    ]
    columns = ("image", "predicted", "true class", "most credible", "softmax", "trust")
    return Table(rows, columns, "The most and the least credible predictions")
