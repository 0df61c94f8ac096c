"""What a Judge says in `credibly demo`, beside thresholds on softmax and energy."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec

import torch
from torch import Tensor
from torch.nn.functional import interpolate

from credibly.attacks.pgd import PGD
from credibly.baselines.logit_baselines import Energy, MaxSoftmax
from credibly.data.sample import Sample
from credibly.decide.judge import Judge
from credibly.decide.judgement import Judgement
from credibly.decide.verdict import Verdict
from credibly.explore.page import Explorer
from credibly.metrics.intervals import Interval
from credibly.model.classifier import Classifier
from credibly.report.tables import Table, number
from credibly.study.alarms import share_with_interval, threshold
from credibly.study.corruptions import Corruption
from credibly.types import CPU

RATE, ORDINARY, SHOWN = 0.01, 400, 300
DETAILS = 100
"""Images that the explorer shows in full."""

LABELLED = ("ordinary", "noisy", "blurred", "attacked")
"""Kinds of images that still show their class."""

METHODS = ("Judge", "energy", "softmax")


@dataclass(frozen=True)
class JudgeDemo:
    """A Judge of the embedded network, and what it says of several kinds of images.

    Attributes:
        judge: fitted on ordinary images, with their labels.
        found: what it says, by kind.
        caught: the share of alarms by kind, for each of `METHODS`, with its interval.
        right: the share of trusted ordinary images whose class is right.
        softmax_right: the same of as many, those of which softmax is surest.
        all_right: the same of all ordinary images.
        labels: true classes of the images of each kind (n,).
    """

    judge: Judge
    found: dict[str, Judgement]
    caught: dict[str, dict[str, Interval]]
    right: float
    softmax_right: float
    all_right: float
    labels: Tensor

    def explore(self) -> Explorer:
        """The explorer of all of them; what shows no clothes as they are has no true class."""
        names = [self.judge.examiner.clf.class_name(k) for k in self.labels.tolist()]
        known: list[list[str | None]] = [
            [name if kind in LABELLED else None for name in names] for kind in self.found
        ]
        columns: dict[str, list[str | None]] = {
            "kind": [kind for kind, found in self.found.items() for _ in range(len(found))],
            "label": [label for labels in known for label in labels],
        }
        every = Judgement.concatenate(list(self.found.values()))
        return every.explore(
            details=DETAILS, columns=columns, title="images of clothes, and others"
        )


def judge_images(sample: Sample) -> JudgeDemo:
    """Fit a Judge on some of the images, and let it judge others and images that do not belong."""
    order = torch.randperm(len(sample.images), generator=torch.Generator(CPU).manual_seed(0))
    known, new = order[:ORDINARY], order[ORDINARY : ORDINARY + SHOWN]
    clf = Classifier(sample.net, classes=sample.classes)
    judge = Judge.fit(clf, sample.images[known], sample.labels[known], false_alarms=RATE)
    kinds = kinds_of(clf, sample.images[new], sample.labels[new])
    found = {kind: judge(images) for kind, images in kinds.items()}
    alarms = {"Judge": {kind: result.p_ordinary <= RATE for kind, result in found.items()}}
    for name, baseline in zip(METHODS[1:], (Energy(), MaxSoftmax()), strict=True):
        least = threshold(baseline(clf, sample.images[known]), RATE)
        alarms[name] = {kind: baseline(clf, images) <= least for kind, images in kinds.items()}
    caught = {
        kind: {name: share_with_interval(alarms[name][kind]) for name in METHODS} for kind in kinds
    }
    labels, ordinary = sample.labels[new], found["ordinary"]
    right = (ordinary.predicted == labels).double()
    surest = MaxSoftmax()(clf, kinds["ordinary"]).argsort(descending=True)
    by_softmax = right[surest[: int(ordinary.accepted.sum())]]
    shares = (ordinary.accuracy(labels), float(by_softmax.mean()), float(right.mean()))
    return JudgeDemo(judge, found, caught, *shares, labels)


def kinds_of(clf: Classifier, images: Tensor, labels: Tensor) -> dict[str, Tensor]:
    """Ordinary, foreign, random, damaged and attacked images."""
    generator = torch.Generator(CPU).manual_seed(1)
    places = torch.rand(images.flatten(1).shape, generator=generator).argsort(1)
    attack = PGD(eps=0.05, steps=10, step_size=0.005, bounds=(0.0, 1.0))
    return {
        "ordinary": images,
        **({} if (found := digits(len(images))) is None else {"digits": found}),
        "inverted": 1 - images,
        "upside down": images.flip(2),
        "shuffled": images.flatten(1).gather(1, places).reshape(images.shape),
        "noise": torch.rand(images.shape, generator=generator),
        "noisy": Corruption("gaussian noise", 5)(images),
        "blurred": Corruption("gaussian blur", 5)(images),
        "attacked": attack(clf, images, labels),
    }


def digits(count: int) -> Tensor | None:
    """Written digits (n, 1, 28, 28), which are no clothes; None without scikit-learn."""
    if find_spec("sklearn") is None:
        return None
    from sklearn.datasets import load_digits

    small = torch.from_numpy(load_digits().images[:count]).float()[:, None] / 16
    return interpolate(small, size=28, mode="bilinear")


def verdicts_table(demo: JudgeDemo, *, wide: bool) -> Table:
    """The share of each verdict, and the alarms of thresholds at the same rate.

    `wide`, with intervals beside all alarms; else with the widest of them in the title.
    """
    words = [verdict for verdict in Verdict if verdict is not Verdict.UNUSABLE]
    methods = METHODS if wide else METHODS[1:]
    rows, widest = [], 0.0
    for kind, found in demo.found.items():
        shares = [float((found.codes == verdict.code).double().mean()) for verdict in words]
        alarms = [demo.caught[kind][name] for name in methods]
        cells = [f"{number(share, 0, 100)} %" for share in shares]
        rows.append([kind, *cells, *(_share(alarm, interval=wide) for alarm in alarms)])
        widest = max(widest, *((alarm.high - alarm.low) / 2 for alarm in alarms))
    columns = ["images", *map(str, words), *(["all alarms"] if wide else []), *METHODS[1:]]
    title = f"Verdicts at {RATE:.0%} of false alarms, and alarms by energy and softmax at the same"
    if not wide:
        title += f"; 95 % intervals: at most {number(widest, 0, 100)} points to either side"
    return Table(rows, columns, title)


def _share(share: Interval, *, interval: bool) -> str:
    value, low, high = (number(part, 0, 100) for part in (share.value, share.low, share.high))
    return f"{value} % ({low}-{high})" if interval else f"{value} %"
