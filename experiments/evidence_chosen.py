"""Settings chosen on the held-out slice, once for a folder: gamma, and those of baselines."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch
from torch import Tensor

import credibly as cr
from credibly.baselines import (
    ODIN,
    Baseline,
    Doctor,
    DoctorWithStep,
    MaxLogitPNorm,
    NoiseVote,
    TemperatureScaled,
    all_baselines,
)
from credibly.io.fingerprints import digest_of_tensor, quick_digest
from credibly.io.run_folder import RunFolder
from credibly.metrics import aurc, auroc
from experiments.evidence_sets import noises, shuffled
from experiments.images import Images

STEPS = (0.0002, 0.0005, 0.001, 0.0014, 0.002, 0.004)
SIGMAS = (0.01, 0.02, 0.05, 0.1)
POWERS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10)
FOR_VOTES = 500
"""How many held-out images the noise of the votes is chosen on."""


@dataclass(frozen=True, kw_only=True)
class Chosen:
    """Settings from the held-out slice.

    Attributes:
        gamma: the automatic one.
        temperature: with the smallest cross-entropy.
        power: p of the p-norm, with the smallest AURC.
        doctor_step: of DOCTOR, with the smallest AURC.
        odin_step: of ODIN, with the largest mean AUROC against noise and shuffled patches.
        sigma: of the noise votes, with the smallest AURC.
        votes: noise votes per image.
    """

    gamma: float
    temperature: float
    power: float
    doctor_step: float
    odin_step: float
    sigma: float
    votes: int

    def baselines(self, chunk_size: int) -> dict[str, Chunked]:
        """Return every baseline by name."""
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
    """A baseline with a chunk size, which its repr leaves out."""

    baseline: Baseline
    chunk_size: int = field(repr=False)

    def __call__(self, clf: cr.Classifier, x: Tensor) -> Tensor:
        return self.baseline(clf, x, chunk_size=self.chunk_size)


def chosen_in(
    path: Path, clf: cr.Classifier, data: Images, *, votes: int, chunk_size: int
) -> Chosen:
    """Read what the folder has on record; the first of several processes chooses it."""
    own = {"held_out": digest_of_tensor(data.pixels), "model": quick_digest(clf), "votes": votes}
    found = folder(path).begin(
        own, lambda: asdict(choose(clf, data, votes=votes, chunk_size=chunk_size))
    )
    return Chosen(**found)


def folder(path: Path) -> RunFolder:
    """Return the folder of a study; its file `chosen.json` records the chosen settings."""
    return RunFolder(path, kind="credibly.evidence", manifest="chosen.json")


def choose(clf: cr.Classifier, data: Images, *, votes: int, chunk_size: int) -> Chosen:
    """Choose everything on the held-out slice; test images are not used."""
    x, y = data.pixels, data.labels
    with torch.no_grad():
        logits = torch.cat([clf.logits(part) for part in torch.split(x, chunk_size)]).double()
    right = logits.argmax(1) == y
    few = slice(FOR_VOTES)
    foreign = [make() for make in noises(x[few], seed=1).values()] + [shuffled(x[few])]

    def area(baseline: Baseline, rows: slice = slice(None)) -> float:
        return aurc(baseline(clf, x[rows], chunk_size=chunk_size), right[rows])

    def missed(step: float) -> float:
        odin = ODIN(eps=step)
        usual = -odin(clf, x, chunk_size=chunk_size)
        return -sum(auroc(-odin(clf, part, chunk_size=chunk_size), usual) for part in foreign)

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
    )


def smallest(values: Sequence[float], loss: Callable[[float], float]) -> float:
    """Return the value with the smallest loss; the first of equals."""
    return min(values, key=loss)
