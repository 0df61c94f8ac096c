"""The page of `credibly demo`: one self-contained HTML file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from credibly.decide import scores
from credibly.metrics import ErrorCoverageCurve, error_coverage
from credibly.profile.profile import Profile
from credibly.report import figures, page, style
from credibly.report.one_sample import draw
from credibly.report.tables import Table
from credibly.report.view import View

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
        profiles: by gamma.
        gamma: the one that most of the page is about.
        labels: true classes (n,).
        seconds: by gamma.
        test_accuracy: of the network on its whole test set.
        threads: of torch.
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
        """The network's classes of the original images (n,)."""
        return self.profile.credence.argmax(1)

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
        note=NOTE,
    )


def pictures(results: DemoResults) -> dict[str, bytes]:
    """Every figure of the page as PNG."""
    profile = results.profile
    names = tuple(profile.class_name(k) for k in range(profile.credibility.shape[1]))
    drawn = {
        "example": draw(View.of(profile, results.example(), names)),
        "sorted": figures.sorted_profiles(profile),
        "trade_off": figures.trade_off(results.profiles),
        "coverage": figures.coverage(results.curves()),
    }
    for name, rows in zip(("most", "least"), results.extremes(), strict=True):
        drawn[name] = figures.gallery(profile, rows, [_caption(results, n) for n in rows])
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


def extremes_table(results: DemoResults, count: int = 4) -> Table:
    """A few images with the most and the least credible predictions."""
    trust, softmax = scores.predicted_ratio(results.profile), results.profile.credence.amax(1).exp()
    most, least = results.extremes(count)
    rows = [
        (str(n), *results.names(n), f"{float(softmax[n]):.1%}", f"{float(trust[n]):.3f}")
        for n in [*most, *least]
    ]
    columns = ("image", "predicted", "true class", "most credible", "softmax", "trust")
    return Table(rows, columns, "The most and the least credible predictions")
