"""Baselines that run the model more than once: on moved or noisy inputs, or with dropout.

Lengths such as `eps` and `sigma` are in the units of the inputs that the classifier takes.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor, nn

from credibly._validation import positive, real_number, require, whole
from credibly._validation import seed as check_seed
from credibly.baselines import base
from credibly.baselines.base import Baseline, LogitBaseline
from credibly.baselines.logit_baselines import Doctor, TemperatureScaled
from credibly.errors import ModelError
from credibly.model.classifier import Classifier
from credibly.model.derivatives import (
    BACKWARD,
    FORWARD,
    AnyVariable,
    logits_only,
    output_gradient,
)
from credibly.model.generators import seeded_generators
from credibly.model.logits import class_logits, log_odds
from credibly.model.structure import Nested
from credibly.model.substitute import Parts
from credibly.model.variable import Variable
from credibly.problem.fit_risk import FitRiskProblem
from credibly.problem.weights import resolve_weights
from credibly.solve.base import reach
from credibly.solve.gauss_newton import GaussNewton
from credibly.solve.loop import solve
from credibly.types import CPU, norm, per_sample


@dataclass(frozen=True, kw_only=True)
class ODIN(Baseline):
    """The largest softmax probability at a temperature, after a step that raises it.

    x' = x - eps sign(-grad log p1(x)), and log(p1 / (1 - p1)) there (Liang, Li and Srikant 2018).
    Example: see `all_baselines`.
    """

    temperature: float = 1000.0
    eps: float = 0.0014

    cost = 1 + FORWARD

    def __post_init__(self) -> None:
        positive("temperature", self.temperature, "The authors use 1000.")
        positive("eps", self.eps, "The authors use 0.0014; TemperatureScaled has no step.")

    def of_chunk(self, variable: Variable, x: Tensor) -> Tensor:
        scaled = TemperatureScaled(temperature=self.temperature)  # its log odds rise where p1 does
        return _after_step(variable, x, scaled, self.eps)


@dataclass(frozen=True, kw_only=True)
class DoctorWithStep(Baseline):
    """DOCTOR with its input step (Granese et al. 2021): x' = x - eps sign(-grad log D(x)).

    As printed, the step *raises* the ratio D: to first order every sample looks worse after it.
    Example: see `all_baselines`.
    """

    doctor: Doctor = field(default_factory=Doctor)
    eps: float = 0.001

    cost = 1 + FORWARD

    def __post_init__(self) -> None:
        positive("eps", self.eps, "Without a step use Doctor.")

    def of_chunk(self, variable: Variable, x: Tensor) -> Tensor:
        return _after_step(variable, x, self.doctor, -self.eps)  # the score is -log D


def _after_step(variable: Variable, x: Tensor, score: LogitBaseline, step: float) -> Tensor:
    """The score after a step along the sign of its own gradient by the input."""
    slope = output_gradient(variable, x, lambda z: score.of_logits(class_logits(variable.loss, z)))
    return score.of_chunk(variable, x + step * slope.sign())


@dataclass(frozen=True, kw_only=True)
class MonteCarloDropout(Baseline):
    """The largest mean probability over runs with dropout on (Gal and Ghahramani 2016).

    Only dropout layers are on, in a copy of the model that shares all the rest. As log odds. The
    masks of a sample depend on the seed and on its place in its chunk. Threads take turns, since
    dropout draws from torch's own generator, which they share. Example: see `all_baselines`.
    """

    samples: int = 20
    seed: int = 0

    def __post_init__(self) -> None:
        whole("samples", self.samples, remedy="20 is usual.")
        check_seed(self.seed)

    def of_chunk(self, variable: Variable, x: Tensor) -> Tensor:
        with seeded_generators(int(self.seed), x.device), dropping_out(variable) as random:
            runs = [
                class_logits(random.loss, logits_only(random, x)).log_softmax(1)
                for _ in range(self.samples)
            ]
        return log_odds(torch.stack(runs).logsumexp(0))

    def passes(self, classes: int) -> float:  # noqa: ARG002
        return FORWARD * self.samples


@contextmanager
def dropping_out(variable: AnyVariable) -> Iterator[AnyVariable]:
    """The variable with the dropout layers of its model on, and nothing else."""
    net = variable.net
    names = dropout_layers(net)
    if not isinstance(net, nn.Module) or not names:
        raise ModelError(
            "the model has no dropout layer that could be switched on",
            remedy="Monte-Carlo dropout is for networks with nn.Dropout inside; use NoiseVote.",
        )
    with Parts.of(net, modules=names).training() as random:
        yield replace(variable, clf=variable.clf.with_net(random))


def dropout_layers(net: object) -> list[str]:
    """The names of the layers of a network that drop something where they are switched on."""
    modules = net.named_modules() if isinstance(net, nn.Module) else ()
    dropout = nn.modules.dropout._DropoutNd  # noqa: SLF001
    return [name for name, part in modules if isinstance(part, dropout) and part.p > 0]


@dataclass(frozen=True, kw_only=True)
class NoiseVote(Baseline):
    """Share of votes for the predicted class under Gaussian noise (as in Cohen et al. 2019).

    Every sample gets the same noise, so no score depends on the batch or the chunk. A vote costs a
    third of a pass: 300 votes cost as much as a profile of 100 passes.
    Example: see `all_baselines`.
    """

    sigma: float = 0.1
    votes: int = 100
    seed: int = 0

    def __post_init__(self) -> None:
        positive("sigma", self.sigma, "It is in the units of the inputs.")
        whole("votes", self.votes, remedy="100 is usual.")
        check_seed(self.seed)

    def of_chunk(self, variable: Variable, x: Tensor) -> Tensor:
        predicted = class_logits(variable.loss, logits_only(variable, x)).argmax(1)
        generator = torch.Generator().manual_seed(int(self.seed))
        agreed = torch.zeros(len(x), dtype=torch.float64, device=x.device)
        for _ in range(self.votes):
            noise = torch.randn(x.shape[1:], generator=generator, dtype=torch.float64, device=CPU)
            moved = x + self.sigma * noise.to(x)
            agreed += (
                class_logits(variable.loss, logits_only(variable, moved)).argmax(1) == predicted
            )
        return agreed / self.votes

    def passes(self, classes: int) -> float:  # noqa: ARG002
        return FORWARD * (1 + self.votes)


@dataclass(frozen=True, kw_only=True)
class _OneStep(Baseline):
    """The ratio rule after one step on the trade-off's objective F."""

    gamma: float
    keep_class: bool = False

    def __post_init__(self) -> None:
        positive("gamma", self.gamma, "Use the gamma of the profile it is compared with.")

    def of_chunk(self, variable: Variable, x: Tensor) -> Tensor:
        here = replace(variable, start=x)
        weights = resolve_weights(here, gamma=self.gamma, weights=None)
        moved = self.move(FitRiskProblem(here, weights, here.limits(None)), x)
        kept = (
            base.class_losses(variable, logits_only(variable, x)).argmin(1)
            if self.keep_class
            else None
        )
        return base.log_ratio(base.class_losses(variable, logits_only(variable, moved)), kept)

    @abstractmethod
    def move(self, problem: FitRiskProblem, x: Tensor) -> Tensor:
        """The inputs after the step."""


@dataclass(frozen=True, kw_only=True)
class OneGradientStep(_OneStep):
    """The ratio rule after one explicit gradient step on the trade-off's objective F.

    Attributes:
        gamma: as in `credibility`.
        step: x = x0 - step grad F(x0); 0.5 is exact as gamma grows. None: at most that, and at
            most as far as x+ is likely to lie, a quarter of the square root of F(x0).
        keep_class: score the model's own class; negative where another one overtook it.

    Example: see `all_baselines`.
    """

    step: float | None = None

    cost = 1 + FORWARD

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.step is not None:
            positive("step", self.step, "Leave it out for a length that fits the model.")

    def move(self, problem: FitRiskProblem, x: Tensor) -> Tensor:
        point = problem.evaluate(x)
        length = norm(point.gradient)
        step = torch.full_like(length, self.step or 0.0)
        if self.step is None:
            step = torch.where(length > 0, reach(problem, point) / length, 0.0)
        return problem.project(x - per_sample(step, x) * point.gradient)


@dataclass(frozen=True, kw_only=True)
class OneGaussNewtonStep(_OneStep):
    """The ratio rule after one step of `GaussNewton`; a step that raises F is not taken.

    Attributes:
        gamma: as in `credibility`.
        keep_class: score the model's own class; negative where another one overtook it.
        method: the solver, of which one step is run.

    Example: see `all_baselines`.
    """

    method: GaussNewton = field(default_factory=lambda: GaussNewton(steps=1))

    def __post_init__(self) -> None:
        super().__post_init__()
        good = isinstance(self.method, GaussNewton) and self.method.steps == 1
        remedy = "For more steps pass a solver to credibility()."
        require(good, "method", "GaussNewton(steps=1, ...)", repr(self.method), remedy)

    def move(self, problem: FitRiskProblem, x: Tensor) -> Tensor:
        return solve(problem, self.method, chunk_size=len(x)).x

    def passes(self, classes: int) -> float:
        """With a stored Jacobian at x0 and at the new point, each also evaluated once."""
        return 2 * (1 + FORWARD + BACKWARD * classes) + FORWARD


@dataclass(frozen=True)
class TwoSided(Baseline):
    """Minus the distance of a score from its usual value: too unsure and too sure both count.

    For tampered inputs, which can make a model surer than usual.

    Example:
        >>> import torch, credibly as cr
        >>> score = cr.baselines.TwoSided(cr.baselines.MaxSoftmax(), centre=3.0)
        >>> score.of_scores(torch.tensor([1.0, 4.0])).tolist()
        [-2.0, -1.0]
    """

    baseline: Baseline
    centre: float

    def __post_init__(self) -> None:
        number = real_number(self.centre)
        finite = number is not None and math.isfinite(number)
        remedy = "TwoSided.fit(baseline, clf, x) takes the median of a sample."
        require(finite, "centre", "a finite number", repr(self.centre), remedy)

    @classmethod
    def fit(
        cls, baseline: Baseline, clf: Classifier, x: Nested = None, *, chunk_size: int = 256
    ) -> TwoSided:
        """Take the median score of an unlabelled sample of usual inputs as the centre."""
        scores = baseline(clf, x, chunk_size=chunk_size)
        return cls(baseline=baseline, centre=float(scores.nanquantile(0.5)))

    def of_scores(self, scores: Tensor) -> Tensor:
        """The same from scores of the baseline that are known already."""
        return -(scores.double() - self.centre).abs()

    def of_chunk(self, variable: Variable, x: Tensor) -> Tensor:
        return self.of_scores(self.baseline.of_chunk(variable, x))

    def passes(self, classes: int) -> float:
        return self.baseline.passes(classes)
