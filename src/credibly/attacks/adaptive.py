"""Gradient attacks that use the profile (A2 to A5), each with its own gradient of the profile.

The deployed c+ is a function of x0 through a solver. The attacks differ in how they differentiate
that function; the objective, the steps and the choice among restarts are the same for all.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from credibly._validation import choice, positive, whole
from credibly.attacks.base import SEE_DOCS, Ascent, Task
from credibly.attacks.system import as_profile
from credibly.model.classifier import Classifier
from credibly.model.derivatives import attached_loss_jacobian, attached_slope, undisturbed
from credibly.model.variable import Inputs
from credibly.problem.fit_risk import FitRiskProblem
from credibly.profile.arguments import check_solver
from credibly.profile.implicit import PRODUCTS, Curvature, attached_answer
from credibly.solve.base import Solver
from credibly.solve.lbfgs import LBFGS
from credibly.solve.loop import solve
from credibly.types import per_sample


@dataclass(frozen=True, kw_only=True)
class Adaptive(Ascent):
    """Lowers the goal of the system on profiles that are attached to the input.

    The first restart starts at the input itself, the others at random points.
    """

    steps: int = 40

    needs_profile: ClassVar[bool] = True

    def start(self, task: Task) -> Tensor:
        drawn = task.ball.start(task.keys)
        return torch.where(per_sample(task.restart == 0, drawn), task.ball.x0, drawn)

    def objective(self, task: Task) -> Callable[[Tensor], Tensor]:
        weights = self.system.weights_for(task.clf, task.ball.x0)
        numbers = tuple(weights.tolist())
        # the model's own class and scores need c0; the most credible class alone does not
        needs_credence = self.system.decision == "model" or self.system.aware

        def goal(x: Tensor) -> Tensor:
            seen = self._through_transform(x)
            perturbed, credibility = self.attached(task.clf, seen, weights)
            credence = -task.clf.losses(seen) if needs_credence else credibility
            view = as_profile(credence, credibility, seen, perturbed, numbers)
            return self.system.goal(view, task.labels, task.target)

        return goal

    @abstractmethod
    def attached(self, clf: Classifier, x: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
        """The moved input x+ (m, ...) and c+ (m, K), attached to x."""

    def _through_transform(self, x: Tensor) -> Tensor:
        """Apply the transform of the system, if any; the gradient ignores it."""
        if self.system.transform is None:
            return x
        return x + (self.system.transformed(x) - x.detach())

    def _inside(self, x: Tensor) -> Tensor:
        return x if self.system.bounds is None else x.clamp(*self.system.bounds)


@dataclass(frozen=True, kw_only=True)
class BPDA(Adaptive):
    """A2: the gradient at x+, applied at x0 as if the solver only added a constant.

    Backward pass differentiable approximation (Athalye, Carlini and Wagner 2018). A transform of
    the system is handled in the same way, so this also attacks a system without profiles.

    Attributes:
        solver: finds x+ at every step; None: a short `LBFGS`.

    Example: see docs/how-to/attacks.md.
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
        with undisturbed(Inputs(clf, x.detach())) as variable, torch.no_grad():
            problem = FitRiskProblem(variable, weights, self.system.bounds)
            short = self.solver or LBFGS(steps=15)
            moved = solve(problem, short, chunk_size=len(x)).x
        perturbed = x + (moved - x.detach())
        return perturbed, -clf.losses(perturbed)


@dataclass(frozen=True, kw_only=True)
class ImplicitGradient(Adaptive):
    """A3: the gradient of c+ by the implicit function theorem, at the point the solver found.

    Exact at a minimum of a smooth model. On a ReLU network the minimum lies on kinks, where it is
    the gradient of one piece.

    Attributes:
        solver: finds x+ at every step; None: `LBFGS` of 40 steps.
        curvature: as in `attached_credibility`, like `products` and `accuracy`.
        products: most Hessian-vector products.
        accuracy: at which they stop.

    Example: see docs/how-to/attacks.md.
    """

    solver: Solver | None = None
    curvature: Curvature = "full"
    products: int = PRODUCTS
    accuracy: float = 1e-6

    def __post_init__(self) -> None:
        super().__post_init__()
        check_solver(self.solver, default=LBFGS())
        choice("curvature", self.curvature, ("full", "outputs"), SEE_DOCS)
        whole("products", self.products)

    def attached(
        self,
        clf: Classifier,
        x: Tensor,
        weights: Tensor,  # noqa: ARG002  # the profile has them
    ) -> tuple[Tensor, Tensor]:
        profile = self.system.profile(clf, x.detach(), solver=self.solver or LBFGS(steps=40))
        rows = profile.usable.nonzero().squeeze(1)
        if len(rows) == 0:
            return x.clone(), -clf.losses(x)
        moved, found = attached_answer(
            clf,
            profile[rows],
            x0=x[rows],
            curvature=self.curvature,
            products=self.products,
            accuracy=self.accuracy,
        )
        if len(rows) == len(x):
            return moved, found
        # a sample that could not be solved did not move: its c+ is c0
        return x.index_put((rows,), moved), (-clf.losses(x)).index_put((rows,), found)


@dataclass(frozen=True, kw_only=True)
class Unrolled(Adaptive):
    """A4: plain gradient steps on F, unrolled, with the gradient taken through all of them.

    Memory grows with `length`: lower `chunk_size` with it. Where the deployed solver is
    `GradientDescent` without momentum, its own step and number of steps are the full length.

    Attributes:
        length: steps that are unrolled.
        rate: factor of the gradient of F in each.

    Example: see docs/how-to/attacks.md.
    """

    length: int = 10
    rate: float = 0.05
    chunk_size: int = 64

    def __post_init__(self) -> None:
        super().__post_init__()
        whole("length", self.length)
        positive("rate", self.rate)

    def attached(self, clf: Classifier, x: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
        moved = x
        for _ in range(self.length):
            slope = attached_slope(clf, moved, lambda losses: (losses.square() / weights).sum(1))
            moved = self._inside(moved - self.rate * (2 * (moved - x) + slope))
        return moved, -clf.losses(moved)


@dataclass(frozen=True, kw_only=True)
class Surrogate(Adaptive):
    """A5: one step in place of the solver, differentiated exactly; what it finds is transferred.

    Attributes:
        step: 'gauss-newton', x0 - A^T (W + A A^T)^-1 l with the Jacobian A of the losses, K
            backwards; or 'gradient', x0 - grad h(x0), one.

    Example: see docs/how-to/attacks.md.
    """

    step: Literal["gauss-newton", "gradient"] = "gauss-newton"
    chunk_size: int = 64

    def __post_init__(self) -> None:
        super().__post_init__()
        choice("step", self.step, ("gauss-newton", "gradient"), SEE_DOCS)

    def attached(self, clf: Classifier, x: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
        if self.step == "gradient":
            h = attached_slope(clf, x, lambda losses: (losses.square() / (2 * weights)).sum(1))
            moved = self._inside(x - h)
        else:
            losses, slopes = attached_loss_jacobian(clf, x)
            system = torch.diag(weights) + slopes @ slopes.mT
            dual: Tensor = torch.linalg.solve(system, losses.unsqueeze(2))
            moved = self._inside(x - (slopes.mT @ dual).reshape(x.shape))
        return moved, -clf.losses(moved)
