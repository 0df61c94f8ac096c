"""Passes of a solve, recorded as CUDA graphs and replayed; see `credibly.model.recorded`."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from credibly.model.recorded import Faster, Recorder
from credibly.problem.fit_risk import FitRiskProblem, Point


@dataclass(frozen=True, eq=False)
class RecordedPass:
    """Evaluates points of problems that differ in their samples only.

    Attributes:
        recorder: of the classifier.
        like: one of the problems, without samples: a recording keeps it.
        key: all that a pass depends on but the samples.
    """

    recorder: Recorder
    like: FitRiskProblem
    key: Hashable

    def __call__(self, problem: FitRiskProblem, x: Tensor) -> Point:
        """The points x (n, ...)."""
        given = problem.variable.tensors()
        assert given is not None  # noqa: S101  # asked by `with_recording`
        found = self.recorder.run(self.key, partial(_again, self.like), (x, *given))
        return Point(x, *found)


def with_recording(problem: FitRiskProblem) -> FitRiskProblem:
    """The problem with its passes recorded, if its classifier has a recorder and they can be."""
    recorder = problem.variable.clf.recorder
    if recorder is None or problem.variable.tensors() is None:
        return problem
    key = ("pass", *key_of(problem))
    return replace(problem, recorded=RecordedPass(recorder, without_samples(problem), key))


def without_samples(problem: FitRiskProblem) -> FitRiskProblem:
    """The same question about no samples: all that is kept of a problem by its recordings."""
    return problem.select(torch.zeros(0, dtype=torch.long, device=problem.x0.device))


def key_of(problem: FitRiskProblem) -> tuple[Any, ...]:
    """All that a pass depends on but the samples.

    Objects count by identity: a recording keeps its own, so no other one gets their place.
    """
    x, kept, clf = problem.x0, problem.variable.kept_classes, problem.variable.clf
    cudnn, exact = torch.backends.cudnn, torch.are_deterministic_algorithms_enabled()
    return (
        tuple(problem.weights.tolist()), x.shape[1:], x.dtype, x.device,
        None if kept is None else kept.shape[1], clf.outputs, clf.unpack,
        *map(id, (clf.net, clf.draft, clf.loss, clf.preprocess, clf.pick)),
        cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32, cudnn.benchmark, exact,
    )  # fmt: skip


def _again(
    problem: FitRiskProblem, given: tuple[Tensor, ...], faster: Faster
) -> tuple[Tensor, Tensor, Tensor]:
    """One pass at other points of other samples, by another form of the network."""
    x, *own = given
    clf = problem.variable.clf
    variable = problem.variable.with_tensors(tuple(own), clf.with_net(faster(clf.net)))
    point = replace(problem, variable=variable, recorded=None).evaluate(x)
    return point.losses, point.objective, point.gradient
