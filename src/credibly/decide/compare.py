"""Compare models of about the same accuracy by their profiles, without labels."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from credibly._validation import require
from credibly.decide.scores import gain, predicted_ratio, shift
from credibly.metrics.intervals import Interval, bootstrap
from credibly.model.classifier import Classifier
from credibly.model.structure import Nested
from credibly.profile.arguments import ticking
from credibly.profile.credibility import credibility
from credibly.profile.profile import Profile
from credibly.solve.base import Solver
from credibly.types import CPU, Progress, norm

MEASURES: dict[str, Callable[[Profile], Tensor]] = {
    "class kept": lambda p: (p.credibility.argmax(1) == p.predicted_column).double(),
    "relative shift": lambda p: shift(p) / norm(p.credence.double()),
    "trust": predicted_ratio,
    "gain": gain,
    "risk": lambda p: p.risk.double(),
}
"""Name -> one number per sample; the mean over samples is compared."""

FIRMER = {"class kept": "higher", "relative shift": "lower", "trust": "higher", "gain": "lower"}
"""Which side of a measure means firmer predictions. The risk has no such side: it is low for a
model that hardly depends on its inputs, and also for a very steep one."""

FEWEST = 10
"""Samples from which intervals mean something."""

ALIKE = 1.25
"""Sizes of losses whose ratio is below this hardly matter."""

Pair = tuple[str, str]


@dataclass(frozen=True, repr=False)
class Comparison:
    """Means over the same inputs, with bootstrap intervals. Example: see `compare`.

    Attributes:
        models: the names, in order.
        means: measure -> model -> mean.
        differences: measure -> pair of models -> mean of the first less that of the second, paired.
        gammas: model -> the gamma used.
        samples: inputs that could be solved for all models.
        left_out: the other inputs.
        unlike: why the models are not comparable; empty is best.
        agreement: pair of models -> share of these inputs for which both predict the same class (by
            name, where both have the same names; else by its number).
        sizes: model -> mean |c0|, the size of its losses at the inputs themselves.
    """

    models: tuple[str, ...]
    means: Mapping[str, Mapping[str, Interval]]
    differences: Mapping[str, Mapping[Pair, Interval]]
    gammas: Mapping[str, float | None]
    samples: int
    left_out: int
    unlike: tuple[str, ...]
    agreement: Mapping[Pair, Interval]
    sizes: Mapping[str, float]

    @property
    def same_gamma(self) -> bool:
        """Whether all models were solved with one gamma; if not, measures are not comparable."""
        known = [gamma for gamma in self.gammas.values() if gamma is not None]
        return all(math.isclose(gamma, known[0], rel_tol=1e-6) for gamma in known)

    @property
    def warnings(self) -> list[str]:
        """What makes the numbers less than comparable, one line each."""
        found = [f"not comparable: {reason}" for reason in self.unlike]
        if not self.same_gamma:
            usual = next(gamma for gamma in self.gammas.values() if gamma is not None)
            advice = f"pass one number for all models, such as gamma={usual:.4g}"
            found.append(f"not comparable: the gammas differ ({self._gammas()}); {advice}")
        (small, least), *_, (large, most) = sorted(self.sizes.items(), key=lambda item: item[1])
        if most > ALIKE * least:
            times = f"{most / least:.2g} times" if least else "larger than"
            advice = "the scale of logits changes every measure, so compare at one temperature"
            found.append(f"losses of {large} are {times} those of {small}; {advice}")
        if self.samples < FEWEST:
            found.append(f"fewer than {FEWEST} inputs: the intervals mean nothing")
        return found

    def summary(self) -> str:
        """Warnings, then a table of means and differences with their intervals."""
        pairs = list(self.agreement)
        rows = [["measure", "firmer if", *self.models, *(f"{a} - {b}" for a, b in pairs)]]
        for measure, means in self.means.items():
            gaps = (self._cell(measure, pair) for pair in pairs)
            rows.append([measure, FIRMER.get(measure, ""), *map(str, means.values()), *gaps])
        blank = [""] * len(self.models)
        rows.append(["same class", "", *blank, *map(str, self.agreement.values())])
        out = f" ({self.left_out} left out: not solved for all)" if self.left_out else ""
        lines = [f"warning: {text}" for text in self.warnings]
        lines.append(f"{self.samples} inputs{out}; gamma: {self._gammas()}")
        return "\n".join([*lines, *_table(rows)])

    def _cell(self, measure: str, pair: Pair) -> str:
        """A difference; where its interval does not contain 0, which model is firmer."""
        gap, side = self.differences[measure][pair], FIRMER.get(measure)
        if self.samples < FEWEST or gap.contains(0):
            return str(gap)
        if side is None or self.unlike or not self.same_gamma:
            return f"{gap} (apart)"
        return f"{gap} ({pair[0] if (gap.value > 0) is (side == 'higher') else pair[1]} is firmer)"

    def _gammas(self) -> str:
        return ", ".join(
            f"{name} {'per class' if gamma is None else f'{gamma:.4g}'}"
            for name, gamma in self.gammas.items()
        )

    def __repr__(self) -> str:
        return f"Comparison({self.samples} inputs; gamma: {self._gammas()})"


def compare(
    models: Mapping[str, Classifier],
    x: Nested,
    *,
    gamma: float | Literal["auto"] = "auto",
    solver: Solver | None = None,
    level: float = 0.95,
    chunk_size: int = 128,
    progress: Progress = False,
) -> Comparison:
    """Compare trained models on the same inputs without labels.

    A model whose profile stays near its output (class kept, small relative shift, large trust)
    keeps its predictions under small movements of the input. That says nothing about whether they
    are right. With gamma='auto' every model gets a gamma for its own sensitivity: moving costs more
    for a steep one, which can reverse the result, and the summary then warns. Pass a number, such
    as `auto_gamma` of one of them.

    Args:
        models: name -> classifier, at least two, of the same classes.
        x: inputs that all of them take.
        gamma: see `credibility`; pass one number for all.
        solver: see `credibility`.
        level: of the intervals.
        chunk_size: see `credibility`.
        progress: see `credibility`; over all models.

    Example:
        >>> import torch, credibly as cr
        >>> models = {name: cr.Classifier(torch.nn.Linear(4, 3)) for name in "ab"}
        >>> result = cr.compare(models, torch.randn(20, 4), gamma=10.0)
        >>> result
        Comparison(20 inputs; gamma: a 10, b 10)
        >>> sorted(result.differences["trust"])
        [('a', 'b')]
    """
    size = len(models) if hasattr(models, "__len__") else "?"
    require(
        isinstance(models, Mapping) and len(models) >= 2,
        "models",
        "a mapping from at least two names to classifiers",
        f"{type(models).__name__} of {size}",
        "compare({'resnet': clf_a, 'densenet': clf_b}, x).",
    )
    settings = {"gamma": gamma, "solver": solver, "chunk_size": chunk_size}
    with ticking(progress) as tick:
        profiles = {
            name: credibility(clf, x, **settings, progress=_part(tick, place, len(models)))  # type: ignore[arg-type]
            for place, (name, clf) in enumerate(models.items())
        }
    return compare_profiles(profiles, level)


def compare_profiles(profiles: Mapping[str, Profile], level: float) -> Comparison:
    """Compare profiles of the same inputs."""
    usable = _usable(profiles)
    values = {
        measure: {name: function(p).cpu()[usable] for name, p in profiles.items()}
        for measure, function in MEASURES.items()
    }
    names = tuple(profiles)
    pairs = [(a, b) for i, a in enumerate(names) for b in names[i + 1 :]]

    def mean(numbers: Tensor) -> Interval:
        return bootstrap(lambda drawn: drawn.double().mean(), numbers, level=level)

    return Comparison(
        models=names,
        means={m: {name: mean(v[name]) for name in names} for m, v in values.items()},
        differences={m: {(a, b): mean(v[a] - v[b]) for a, b in pairs} for m, v in values.items()},
        gammas={name: p.gamma for name, p in profiles.items()},
        samples=int(usable.sum()),
        left_out=int((~usable).sum()),
        unlike=_find_unlike(profiles),
        agreement={(a, b): mean(_agree(profiles[a], profiles[b])[usable]) for a, b in pairs},
        sizes={
            name: float(norm(p.credence.double().cpu()[usable]).mean())
            for name, p in profiles.items()
        },
    )


def _part(tick: Callable[[float], None] | None, place: int, count: int) -> Progress:
    """The progress of one of several models, as a part of the whole."""
    return False if tick is None else lambda done: tick((place + done) / count)


def _usable(profiles: Mapping[str, Profile]) -> Tensor:
    """Samples (N,) that were solved for every model."""
    sizes = {name: p.credibility.shape[1] for name, p in profiles.items()}
    remedy = "Measures of different sets of classes are not comparable."
    one_size = len(set(sizes.values())) == 1
    require(one_size, "models", "models of the same classes", f"class counts {sizes}", remedy)
    usable = torch.stack([p.usable.cpu() for p in profiles.values()]).all(0)
    expected = "at least one sample that was solved for every model"
    remedy = "Look at credibility(clf, x, ...).status of each."
    require(bool(usable.any()), "x", expected, "none", remedy)
    return usable


def _agree(first: Profile, second: Profile) -> Tensor:
    """Whether both models predict the same class (N,)."""
    left, right = first.predicted.cpu(), second.predicted.cpu()
    if set(first.settings.classes or ()) != set(second.settings.classes or ()):
        return (left == right).double()
    pairs = zip(left.tolist(), right.tolist(), strict=True)
    same = [first.class_name(a) == second.class_name(b) for a, b in pairs]
    return torch.tensor(same, dtype=torch.float64, device=CPU)


def _find_unlike(profiles: Mapping[str, Profile]) -> tuple[str, ...]:
    """Why losses or distances of the models have different units."""
    reasons = {}
    for key in ("loss", "space"):
        found = {name: getattr(p.settings, key) for name, p in profiles.items()}
        if len(set(found.values())) > 1:
            each = ", ".join(f"{name} {value}" for name, value in found.items())
            reasons[key] = f"the {key} differs ({each}); give all models one {key}"
    inner = {p.settings.moves for p in profiles.values()} & {"module", "parameters"}
    if inner and "space" not in reasons and not _same_start(profiles):
        reasons["units"] = "what moves is inside each model, in its own units; move the inputs"
    return tuple(reasons.values())


def _same_start(profiles: Mapping[str, Profile]) -> bool:
    """Whether the same numbers move, as where models share their first layers."""
    first, *others = (p.x0.double().cpu() for p in profiles.values())
    same = (x0.shape == first.shape and torch.allclose(x0, first, equal_nan=True) for x0 in others)
    return all(same)


def _table(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
