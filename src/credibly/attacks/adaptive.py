"""Gradient attacks that know of the profile (A2 to A5): each attaches it to the input its own way.

The deployed c+ is a function of x0 by way of a solver. What differs is how that function is
differentiated; what is lowered, the steps and the choice among restarts are the same for all.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from credibly.attacks.base import Ascent, Task
from credibly.attacks.system import as_profile
from credibly.model.classifier import Classifier
from credibly.model.derivatives import attached_loss_jacobian, attached_slope, undisturbed
from credibly.problem.fit_risk import FitRiskProblem
from credibly.profile.arguments import check_solver
from credibly.profile.implicit import PRODUCTS, Curvature, attached_answer
from credibly.profile.profile import Profile
from credibly.solve.base import Solver, require, require_positive, require_whole
from credibly.solve.lbfgs import LBFGS
from credibly.solve.loop import solve
from credibly.types import per_sample


@dataclass(frozen=True, kw_only=True)
class Adaptive(Ascent):
    """Lowers the goal of the system on profiles that are attached to the input.

    The starts are the input itself, for the first restart, and random ones.
    """

    steps: int = 40

    needs_profile: ClassVar[bool] = True

    def start(self, task: Task) -> Tensor:
        drawn = task.ball.start(task.keys)
        return torch.where(per_sample(task.restart == 0, drawn), task.ball.x0, drawn)

    def objective(self, task: Task) -> Callable[[Tensor], Tensor]:
        weights = self.system.weights_for(task.clf, task.ball.x0)
        numbers = tuple(weights.tolist())

        def goal(x: Tensor) -> Tensor:
            seen = self._through_transform(x)
            perturbed, credibility = self.attached(task.clf, seen, weights)
            # the model's own class and scores need c0; the most credible class alone does not
            whole = self.system.decision == "model" or self.system.aware
            fit = -task.clf.losses(seen) if whole else credibility
            view = as_profile(fit, credibility, seen, perturbed, numbers)
            return self.system.goal(view, task.labels, task.target)

        return goal

    @abstractmethod
    def attached(self, clf: Classifier, x: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
        """The moved input x+ (m, ...) and c+ (m, K), attached to x."""

    def _through_transform(self, x: Tensor) -> Tensor:
        """The transform of the system, if any, passed by the gradient as if it were not there."""
        return x if self.system.transform is None else x + (self.system.moved(x) - x.detach())


@dataclass(frozen=True, kw_only=True)
class BPDA(Adaptive):
    """A2: the gradient at x+, applied at x0 as if the solver only added a constant.

    Backward pass differentiable approximation (Athalye, Carlini and Wagner 2018). A transform of
    the system is passed in the same way, so that this also attacks a system without profiles.

    Attributes:
        solver: finds x+ at every step; None: a short `LBFGS`.
    """

    solver: Solver | None = None

    needs_profile: ClassVar[bool] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        check_solver(self.solver, default=LBFGS())

    def objective(self, task: Task) -> Callable[[Tensor], Tensor]:
        if self.system.solves:
            return super().objective(task)

        def goal(x: Tensor) -> Tensor:
            values = -task.clf.losses(self._through_transform(x))
            return self.system.goal(as_profile(values, values, x, x, ()), task.labels, task.target)

        return goal

    def attached(self, clf: Classifier, x: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
        with undisturbed(x.detach()) as x0, torch.no_grad():
            problem = FitRiskProblem(clf, x0, weights, self.system.bounds)
            short = self.solver or LBFGS(steps=15)
            moved = solve(problem, short, chunk_size=len(x0)).x
        perturbed = x + (moved - x.detach())
        return perturbed, -clf.losses(perturbed)


@dataclass(frozen=True, kw_only=True)
class ImplicitGradient(Adaptive):
    """A3: the gradient of c+ by the implicit function theorem, at the point the solver found.

    Exact at a minimum of a smooth model. On a ReLU network the minimum sits on kinks, where it is
    the gradient of one piece.

    Attributes:
        solver: finds x+ at every step; None: `LBFGS` of 40 steps.
        curvature: as of `attached_credibility`.
        products: likewise.
        accuracy: likewise.
    """

    solver: Solver | None = None
    curvature: Curvature = "full"
    products: int = PRODUCTS
    accuracy: float = 1e-6

    def __post_init__(self) -> None:
        super().__post_init__()
        check_solver(self.solver, default=LBFGS())
        known = self.curvature in ("full", "outputs")
        require(known, "curvature", "'full' or 'outputs'", self.curvature)
        require_whole("products", self.products)

    def attached(
        self,
        clf: Classifier,
        x: Tensor,
        weights: Tensor,  # noqa: ARG002  # the profile has them
    ) -> tuple[Tensor, Tensor]:
        profile = self.system.profile(clf, x.detach(), solver=self.solver or LBFGS(steps=40))
        good = profile.usable
        if bool(good.all()):
            return self._solved(clf, x, profile)
        # what could not be solved did not move: there c+ is c0
        perturbed, credibility = x.clone(), -clf.losses(x)
        if bool(good.any()):
            rows = good.nonzero().squeeze(1)
            moved, found = self._solved(clf, x[rows], profile[rows])
            perturbed = perturbed.index_put((rows,), moved)
            credibility = credibility.index_put((rows,), found)
        return perturbed, credibility

    def _solved(self, clf: Classifier, x: Tensor, profile: Profile) -> tuple[Tensor, Tensor]:
        return attached_answer(
            clf,
            profile,
            x0=x,
            curvature=self.curvature,
            products=self.products,
            accuracy=self.accuracy,
        )


@dataclass(frozen=True, kw_only=True)
class Unrolled(Adaptive):
    """A4: plain gradient steps on F, unrolled, with the gradient taken through all of them.

    Memory grows with `length`: lower `chunk_size` with it. Where the deployed solver is
    `GradientDescent` without momentum, its own step and number of steps are the full length.

    Attributes:
        length: steps that are unrolled.
        rate: what multiplies the gradient of F in each.
    """

    length: int = 10
    rate: float = 0.05
    chunk_size: int = 64

    def __post_init__(self) -> None:
        super().__post_init__()
        require_whole("length", self.length)
        require_positive("rate", self.rate)

    def attached(self, clf: Classifier, x: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
        moved = x
        for _ in range(self.length):
            slope = attached_slope(clf, moved, lambda losses: (losses.square() / weights).sum(1))
            moved = moved - self.rate * (2 * (moved - x) + slope)
            if self.system.bounds is not None:
                moved = moved.clamp(*self.system.bounds)
        return moved, -clf.losses(moved)


@dataclass(frozen=True, kw_only=True)
class Surrogate(Adaptive):
    """A5: one step in place of the solver, differentiated exactly; what it finds is transferred.

    Attributes:
        step: 'gauss-newton', x0 - A^T (W + A A^T)^-1 l with the Jacobian A of the losses, K
            backwards; or 'gradient', x0 - grad h(x0), one.
    """

    step: Literal["gauss-newton", "gradient"] = "gauss-newton"
    chunk_size: int = 64

    def __post_init__(self) -> None:
        super().__post_init__()
        known = self.step in ("gauss-newton", "gradient")
        require(known, "step", "'gauss-newton' or 'gradient'", self.step)

    def attached(self, clf: Classifier, x: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
        if self.step == "gradient":
            h = attached_slope(clf, x, lambda losses: (losses.square() / (2 * weights)).sum(1))
            moved = x - h
        else:
            losses, slopes = attached_loss_jacobian(clf, x)
            system = torch.diag(weights) + slopes @ slopes.mT
            dual: Tensor = torch.linalg.solve(system, losses.unsqueeze(2))
            moved = x - (slopes.mT @ dual).reshape(x.shape)
        if self.system.bounds is not None:
            moved = moved.clamp(*self.system.bounds)
        return moved, -clf.losses(moved)
