"""What is chosen on the held-out slice, once for a folder: gamma, and the settings of rivals."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch
from torch import Tensor

import credibly as cr
from credibly.baselines.catalogue import (
    ODIN,
    Baseline,
    Doctor,
    DoctorWithStep,
    MaxLogitPNorm,
    NoiseVote,
    TemperatureScaled,
    all_baselines,
)
from credibly.errors import InvalidArgumentError
from credibly.io.fingerprints import digest_of_tensor, quick_digest
from credibly.metrics.measures import aurc, auroc
from credibly.study.rows import write_once
from experiments.evidence_sets import noises, shuffled
from experiments.evidence_subject import Labelled

STEPS = (0.0002, 0.0005, 0.001, 0.0014, 0.002, 0.004)
SIGMAS = (0.01, 0.02, 0.05, 0.1)
POWERS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10)
FOR_VOTES = 500  # held-out images on which the noise of the votes is chosen


@dataclass(frozen=True, kw_only=True)
class Chosen:
    """Settings from the held-out slice.

    Attributes:
        gamma: 'auto', of unlabelled images.
        temperature: with the smallest cross-entropy.
        power: p of the p-norm with the smallest AURC.
        doctor_step: of DOCTOR, likewise.
        odin_step: of ODIN, with the largest mean AUROC against noise and shuffled patches.
        sigma: of the noise votes, with the smallest AURC.
        votes: noise votes an image.
        held_out: digest of the images.
        model: short digest of the weights.
    """

    gamma: float
    temperature: float
    power: float
    doctor_step: float
    odin_step: float
    sigma: float
    votes: int
    held_out: str
    model: str

    def rivals(self, chunk_size: int) -> dict[str, Chunked]:
        """Every baseline by name."""
        found = all_baselines(
            gamma=self.gamma, temperature=self.temperature, eps=self.odin_step,
            sigma=self.sigma, votes=self.votes or 1,
        )  # fmt: skip
        found["DOCTOR with step"] = DoctorWithStep(eps=self.doctor_step)
        beta = Doctor(variant="beta")
        found["DOCTOR beta with step"] = DoctorWithStep(doctor=beta, eps=self.doctor_step)
        found["max logit p-norm, p chosen"] = MaxLogitPNorm(p=self.power)
        if not self.votes:
            del found["noise vote"]
        return {f"{name} (baseline)": Chunked(value, chunk_size) for name, value in found.items()}


@dataclass(frozen=True)
class Chunked:
    """A baseline with a chunk size, which is no part of what it is."""

    baseline: Baseline
    chunk_size: int = field(repr=False)

    def __call__(self, clf: cr.Classifier, x: Tensor) -> Tensor:
        return self.baseline(clf, x, chunk_size=self.chunk_size)


def chosen_in(
    folder: Path, clf: cr.Classifier, data: Labelled, *, votes: int, chunk_size: int
) -> Chosen:
    """What the folder has on record; the first of several processes settles it."""
    path = folder / "chosen.json"
    own = {"held_out": digest_of_tensor(data.images), "model": quick_digest(clf), "votes": votes}
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        found = choose(clf, data, votes=votes, chunk_size=chunk_size)
        write_once(path, json.dumps(asdict(found), indent=2) + "\n")
    chosen = Chosen(**json.loads(path.read_text("utf-8")))
    for name, value in own.items():
        if getattr(chosen, name) != value:
            raise InvalidArgumentError(
                "--out",
                expected=f"a folder whose {name} is {getattr(chosen, name)}",
                got=f"{value}",
                remedy="Choose another folder, or remove this one.",
            )
    return chosen


def choose(clf: cr.Classifier, data: Labelled, *, votes: int, chunk_size: int) -> Chosen:
    """Choose everything on the slice; test images are not looked at."""
    x, y = data.images, data.labels
    with torch.no_grad():
        logits = torch.cat([clf.logits(part) for part in torch.split(x, chunk_size)]).double()
    right = logits.argmax(1) == y
    few = slice(FOR_VOTES)
    foreign = [make() for make in noises(x[few], seed=1).values()] + [shuffled(x[few])]

    def area(rival: Baseline, rows: slice = slice(None)) -> float:
        return aurc(rival(clf, x[rows], chunk_size=chunk_size), right[rows])

    def missed(step: float) -> float:
        rival = ODIN(eps=step)
        usual = -rival(clf, x, chunk_size=chunk_size)
        return -sum(auroc(-rival(clf, part, chunk_size=chunk_size), usual) for part in foreign)

    return Chosen(
        gamma=cr.auto_gamma(clf, x),
        temperature=TemperatureScaled.fit(logits, y).temperature,
        power=smallest(POWERS, lambda p: aurc(MaxLogitPNorm(p=p).of_logits(logits), right)),
        doctor_step=smallest(STEPS, lambda step: area(DoctorWithStep(eps=step))),
        odin_step=smallest(STEPS, missed),
        sigma=smallest(SIGMAS, lambda s: area(NoiseVote(sigma=s, votes=min(votes, 50)), few))
        if votes
        else SIGMAS[0],
        votes=votes,
        held_out=digest_of_tensor(x),
        model=quick_digest(clf),
    )


def smallest(values: Sequence[float], loss: Callable[[float], float]) -> float:
    """The value with the smallest loss; the first of equals."""
    return min(values, key=loss)
