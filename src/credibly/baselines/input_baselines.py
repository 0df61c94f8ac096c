"""Baselines that run the model more than once: on moved, noisy or randomly thinned inputs.

Lengths such as `eps` and `sigma` are in the units of the inputs that the classifier takes, so state
the space with them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from credibly.baselines.base import (
    Baseline,
    LogitBaseline,
    class_logits,
    class_losses,
    log_odds,
    log_ratio,
    logits_at,
    need_count,
    need_positive,
)
from credibly.baselines.logit_baselines import Doctor, TemperatureScaled
from credibly.errors import InvalidArgumentError, ModelError
from credibly.model.classifier import Classifier
from credibly.model.derivatives import BACKWARD, FORWARD, output_gradient
from credibly.model.structure import Nested
from credibly.problem.fit_risk import FitRiskProblem
from credibly.problem.weights import resolve_weights
from credibly.profile.arguments import check_seed
from credibly.solve.base import reach
from credibly.solve.gauss_newton import GaussNewton
from credibly.solve.loop import solve
from credibly.types import norm, per_sample, real_number


@dataclass(frozen=True, kw_only=True)
class ODIN(Baseline):
    """The largest softmax probability at a temperature, after a step that raises it.

    x' = x - eps sign(-grad log p1(x)), and log(p1 / (1 - p1)) there (Liang, Li and Srikant 2018).
    """

    temperature: float = 1000.0
    eps: float = 0.0014

    def __post_init__(self) -> None:
        need_positive("temperature", self.temperature, "The authors use 1000.")
        need_positive("eps", self.eps, "The authors use 0.0014; TemperatureScaled has no step.")

    def of_chunk(self, clf: Classifier, x: Tensor) -> Tensor:
        scaled = TemperatureScaled(temperature=self.temperature)
        moved = x + self.eps * _slope_sign(clf, x, scaled)  # log odds rise where p1 does
        return scaled.of_chunk(clf, moved)

    def passes(self, classes: int) -> float:  # noqa: ARG002
        return 1 + FORWARD


@dataclass(frozen=True, kw_only=True)
class DoctorWithStep(Baseline):
    """DOCTOR with its input step (Granese et al. 2021): x' = x - eps sign(-grad log D(x)).

    As printed, the step *raises* the ratio D: to first order every sample looks worse after it.
    """

    doctor: Doctor = field(default_factory=Doctor)
    eps: float = 0.001

    def __post_init__(self) -> None:
        need_positive("eps", self.eps, "Without a step use Doctor.")

    def of_chunk(self, clf: Classifier, x: Tensor) -> Tensor:
        moved = x - self.eps * _slope_sign(clf, x, self.doctor)  # the score is -log D
        return self.doctor.of_chunk(clf, moved)

    def passes(self, classes: int) -> float:  # noqa: ARG002
        return 1 + FORWARD


@dataclass(frozen=True, kw_only=True)
class MonteCarloDropout(Baseline):
    """The largest mean probability over runs with dropout at work (Gal and Ghahramani 2016).

    Only the dropout layers are switched, and switched back. As log odds. The masks of a sample
    depend on the seed and on its place in its chunk.
    """

    samples: int = 20
    seed: int = 0

    def __post_init__(self) -> None:
        need_count("samples", self.samples, "20 is usual.")
        check_seed(self.seed)

    def of_chunk(self, clf: Classifier, x: Tensor) -> Tensor:
        with dropping_out(clf):
            _seed(int(self.seed), x.device)
            runs = [
                class_logits(clf, logits_at(clf, x)).log_softmax(1) for _ in range(self.samples)
            ]
        return log_odds(torch.stack(runs).logsumexp(0))

    def passes(self, classes: int) -> float:  # noqa: ARG002
        return FORWARD * self.samples


@contextmanager
def dropping_out(clf: Classifier) -> Iterator[None]:
    """Dropout layers at work, and nothing else; every flag is as it was afterwards."""
    modules = clf.net.modules() if isinstance(clf.net, nn.Module) else ()
    layers = [m for m in modules if isinstance(m, nn.modules.dropout._DropoutNd) and m.p > 0]  # noqa: SLF001
    if not layers:
        raise ModelError(
            "the model has no dropout layer that could be switched on",
            remedy="Monte-Carlo dropout is for networks with nn.Dropout inside; use NoiseVote.",
        )
    before = [layer.training for layer in layers]
    try:
        for layer in layers:
            layer.training = True
        yield
    finally:
        for layer, flag in zip(layers, before, strict=True):
            layer.training = flag


@dataclass(frozen=True, kw_only=True)
class NoiseVote(Baseline):
    """Share of votes for the predicted class under Gaussian noise (as in Cohen et al. 2019).

    Every sample meets the same noise, so that no score depends on batch or chunk. A vote costs a
    third of a pass: 300 votes cost what a profile of 100 passes does.
    """

    sigma: float = 0.1
    votes: int = 100
    seed: int = 0

    def __post_init__(self) -> None:
        need_positive("sigma", self.sigma, "It is in the units of the inputs.")
        need_count("votes", self.votes, "100 is usual.")
        check_seed(self.seed)

    def of_chunk(self, clf: Classifier, x: Tensor) -> Tensor:
        predicted = class_logits(clf, logits_at(clf, x)).argmax(1)
        generator = torch.Generator().manual_seed(int(self.seed))
        agreed = torch.zeros(len(x), dtype=torch.float64, device=x.device)
        for _ in range(self.votes):
            noise = torch.randn(x.shape[1:], generator=generator, dtype=torch.float64)
            moved = x + self.sigma * noise.to(x)
            agreed += class_logits(clf, logits_at(clf, moved)).argmax(1) == predicted
        return agreed / self.votes

    def passes(self, classes: int) -> float:  # noqa: ARG002
        return FORWARD * (1 + self.votes)


@dataclass(frozen=True, kw_only=True)
class OneGradientStep(Baseline):
    """The ratio rule after one explicit gradient step of the trade-off's objective F.

    Attributes:
        gamma: as in `credibility`.
        step: x = x0 - step grad F(x0); 0.5 is exact as gamma grows. None: at most that, and at
            most as far as x+ is likely to lie, a quarter of the square root of F(x0).
        keep_class: ask the rule about the model's class; negative where it was overtaken.
    """

    gamma: float
    step: float | None = None
    keep_class: bool = False

    def __post_init__(self) -> None:
        need_positive("gamma", self.gamma, "Use the gamma of the profile it is compared with.")
        if self.step is not None:
            need_positive("step", self.step, "Leave it out for a length that fits the model.")

    def of_chunk(self, clf: Classifier, x: Tensor) -> Tensor:
        problem = _problem(clf, x, self.gamma)
        point = problem.evaluate(x)
        length = norm(point.gradient)
        step = torch.full_like(length, self.step or 0.0)
        if self.step is None:
            step = torch.where(length > 0, reach(problem, point) / length, 0.0)
        moved = problem.project(x - per_sample(step, x) * point.gradient)
        return _ratio_at(clf, moved, point.losses.argmin(1) if self.keep_class else None)

    def passes(self, classes: int) -> float:  # noqa: ARG002
        return 1 + FORWARD


@dataclass(frozen=True, kw_only=True)
class OneGaussNewtonStep(Baseline):
    """The ratio rule after one step of `GaussNewton`; a step that raises F is not taken.

    Attributes:
        gamma: as in `credibility`.
        keep_class: ask the rule about the model's class; negative where it was overtaken.
        method: the solver, of which one step is run.
    """

    gamma: float
    keep_class: bool = False
    method: GaussNewton = field(default_factory=lambda: GaussNewton(steps=1))

    def __post_init__(self) -> None:
        need_positive("gamma", self.gamma, "Use the gamma of the profile it is compared with.")
        if not isinstance(self.method, GaussNewton) or self.method.steps != 1:
            raise InvalidArgumentError(
                "method",
                expected="GaussNewton(steps=1, ...)",
                got=repr(self.method),
                remedy="For more steps pass a solver to credibility().",
            )

    def of_chunk(self, clf: Classifier, x: Tensor) -> Tensor:
        problem = _problem(clf, x, self.gamma)
        moved = solve(problem, self.method, chunk_size=len(x)).x
        kept = class_losses(clf, logits_at(clf, x)).argmin(1) if self.keep_class else None
        return _ratio_at(clf, moved, kept)

    def passes(self, classes: int) -> float:
        """With a stored Jacobian: at x0 and at the new point, each evaluated once besides."""
        return 2 * (1 + FORWARD + BACKWARD * classes) + FORWARD


@dataclass(frozen=True)
class TwoSided(Baseline):
    """Minus the distance of a score from its usual value: both too unsure and too sure count.

    For tampered inputs, which can make a model surer than it usually is.
    """

    baseline: Baseline
    centre: float

    def __post_init__(self) -> None:
        number = real_number(self.centre)
        if number is None or not math.isfinite(number):
            raise InvalidArgumentError(
                "centre",
                expected="a finite number",
                got=repr(self.centre),
                remedy="TwoSided.fit(baseline, clf, x) takes the median of a sample.",
            )

    @classmethod
    def fit(
        cls, baseline: Baseline, clf: Classifier, x: Nested = None, *, chunk_size: int = 256
    ) -> TwoSided:
        """With the median score of an unlabelled sample of usual inputs as its centre."""
        scores = baseline(clf, x, chunk_size=chunk_size)
        return cls(baseline=baseline, centre=float(scores.nanquantile(0.5)))

    def of_scores(self, scores: Tensor) -> Tensor:
        """The same from scores of the baseline that are known already."""
        return -(scores.double() - self.centre).abs()

    def of_chunk(self, clf: Classifier, x: Tensor) -> Tensor:
        return self.of_scores(self.baseline.of_chunk(clf, x))

    def passes(self, classes: int) -> float:
        return self.baseline.passes(classes)


def _slope_sign(clf: Classifier, x: Tensor, score: LogitBaseline) -> Tensor:
    """Sign of the gradient of a score by the input: one pass."""
    return output_gradient(clf, x, lambda z: score.of_logits(class_logits(clf, z))).sign()


def _problem(clf: Classifier, x: Tensor, gamma: float) -> FitRiskProblem:
    weights = resolve_weights(clf, x, gamma=gamma, weights=None)
    return FitRiskProblem(clf, x, weights, clf.limits(None))


def _ratio_at(clf: Classifier, x: Tensor, kept: Tensor | None) -> Tensor:
    return log_ratio(class_losses(clf, logits_at(clf, x)), kept)


def _seed(seed: int, device: torch.device) -> None:
    """Seed the generators that dropout uses; the caller restores them."""
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        with torch.cuda.device(device):
            torch.cuda.manual_seed(seed)
