"""Two networks of about the same accuracy, told apart by their profiles and without labels."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

from credibly.decide.scores import gain, predicted_ratio, shift
from credibly.errors import InvalidArgumentError
from credibly.metrics.intervals import Interval, bootstrap
from credibly.model.classifier import Classifier
from credibly.model.structure import Nested
from credibly.profile.arguments import Progress, ticking
from credibly.profile.credibility import credibility
from credibly.profile.profile import Profile
from credibly.solve.base import Solver
from credibly.types import CPU, norm


def _kept(profile: Profile) -> Tensor:
    return (profile.credibility.argmax(1) == profile.credence.argmax(1)).double()


def _relative_shift(profile: Profile) -> Tensor:
    return shift(profile) / norm(profile.credence.double())


MEASURES: dict[str, Callable[[Profile], Tensor]] = {
    "class kept": _kept,
    "relative shift": _relative_shift,
    "trust": predicted_ratio,
    "gain": gain,
    "risk": lambda profile: profile.risk.double(),
}
"""Name -> one number a sample; the mean over samples is compared."""

FIRMER = {
    "class kept": "higher is firmer",
    "relative shift": "lower is firmer",
    "trust": "higher is firmer",
    "gain": "lower is firmer",
    "risk": "neither way is firmer by itself",
}
"""Which side of each measure speaks for predictions that hold. A model that hardly answers to its
inputs has little to win by moving, and a steep one wins much by moving little: both have low risks.
"""

FEWEST = 10
"""Samples from which intervals are taken to mean something; resamples of fewer are too alike."""


ALIKE = 1.25
"""Sizes of losses that differ by less hardly matter."""


@dataclass(frozen=True, repr=False)
class Comparison:
    """Means over the same inputs, with bootstrap intervals.

    Attributes:
        models: the names, in order.
        means: measure -> model -> mean.
        differences: measure -> pair of models -> mean of the first less that of the second, paired.
        gammas: model -> the gamma used.
        samples: inputs that all models could solve.
        left_out: inputs that some model could not.
        unlike: in what the models were asked different questions, in words; empty is best.
        sizes: model -> mean |c0|, the size of its losses at the inputs themselves.
        agreement: pair of models -> share of these inputs for which both predict the same class (by
            name, where both have the same names; else by its number).
    """

    models: tuple[str, ...]
    means: Mapping[str, Mapping[str, Interval]]
    differences: Mapping[str, Mapping[tuple[str, str], Interval]]
    gammas: Mapping[str, float | None]
    samples: int
    left_out: int = 0
    unlike: tuple[str, ...] = ()
    agreement: Mapping[tuple[str, str], Interval] = field(default_factory=dict)
    sizes: Mapping[str, float] = field(default_factory=dict)

    @property
    def one_price(self) -> bool:
        """Whether all models were asked with the same gamma; if not, measures do not compare."""
        known = [gamma for gamma in self.gammas.values() if gamma is not None]
        return all(math.isclose(gamma, known[0], rel_tol=1e-6) for gamma in known)

    def summary(self) -> str:
        """What was asked, one line a measure and model, and one a difference."""
        few = self.samples < FEWEST
        lines = [f"Not comparable: {why}" for why in self.unlike]
        lines += [] if self.one_price else [self._about_prices()]
        lines += self._about_sizes()
        out = f" ({self.left_out} left out: not solved by all)" if self.left_out else ""
        lines.append(f"{self._inputs()}{out}; gamma: {self._prices()}")
        if few:
            lines.append(
                f"Only {self._inputs()}: the intervals mean nothing below {FEWEST}, and no "
                "difference is marked."
            )
        for (left, right), share in self.agreement.items():
            lines.append(f"same class predicted, {left} and {right}: {_words(share)}")
        for measure, by_model in self.means.items():
            side = FIRMER.get(measure, "")
            for model, mean in by_model.items():
                lines.append(f"{measure}, {model}: {_words(mean)}  {side}".rstrip())
            for (left, right), gap in self.differences[measure].items():
                apart = "" if few or gap.contains(0) else self._apart(measure, left, right, gap)
                lines.append(f"{measure}, {left} less {right}: {_words(gap)}{apart}")
        return "\n".join(lines)

    def _apart(self, measure: str, left: str, right: str, gap: Interval) -> str:
        side = FIRMER.get(measure, "").partition(" ")[0]
        if self.unlike or not self.one_price or side not in ("higher", "lower"):
            return "  (apart)"
        return f"  (apart)  {left if (gap.value > 0) is (side == 'higher') else right} is firmer"

    def _about_sizes(self) -> list[str]:
        """A line where logits of other sizes may decide alone who is firmer."""
        ordered = sorted(self.sizes.items(), key=lambda pair: pair[1])
        if not ordered or ordered[-1][1] <= ALIKE * ordered[0][1]:
            return []
        (small, least), (large, most) = ordered[0], ordered[-1]
        times = "many" if least == 0 else f"{most / least:.2g}"
        found = f"Losses of {large} are {times} times those of {small}"
        why = "scaled logits alone, as by a temperature, make a model more or less firm"
        return [f"{found}: {why}. Compare both at one temperature."]

    def _inputs(self) -> str:
        return f"{self.samples} input{'' if self.samples == 1 else 's'}"

    def _prices(self) -> str:
        return ", ".join(
            f"{name} {'of each class' if gamma is None else f'{gamma:.4g}'}"
            for name, gamma in self.gammas.items()
        )

    def _about_prices(self) -> str:
        usual = next(gamma for gamma in self.gammas.values() if gamma is not None)
        return (
            f"The prices differ (gamma: {self._prices()}): risk and shift, and what follows from "
            "them, are not comparable, and one price for all may turn the result round. "
            f"Pass one number for all models, such as gamma={usual:.4g}."
        )

    def __repr__(self) -> str:
        return f"Comparison({self._inputs()}; gamma: {self._prices()})"


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
    holds its predictions against small movements of the input. That says nothing about whether
    they are right. With gamma='auto' every model gets the gamma of its own sensitivity: a steep one
    is asked at a higher price, which can turn the result round, and the summary then says so. Pass
    a number, such as `auto_gamma` of one of them, to ask all of them the same question.

    Args:
        models: name -> classifier, at least two, of the same classes.
        x: inputs that all of them take.
        gamma: as in `credibility`; one number for all is what compares.
        solver: as in `credibility`.
        level: of the intervals.
        chunk_size: as in `credibility`.
        progress: as in `credibility`, over all models.
    """
    if not isinstance(models, Mapping) or len(models) < 2:
        raise InvalidArgumentError(
            "models",
            expected="a mapping from at least two names to classifiers",
            got=f"{type(models).__name__} of {len(models) if hasattr(models, '__len__') else '?'}",
            remedy="compare({'resnet': clf_a, 'densenet': clf_b}, x).",
        )
    with ticking(progress) as tick:
        profiles = {
            name: credibility(
                clf, x, gamma=gamma, solver=solver, chunk_size=chunk_size,
                progress=False if tick is None else _part(tick, place, len(models)),
            )
            for place, (name, clf) in enumerate(models.items())
        }  # fmt: skip
    _check_comparable(profiles)
    usable = torch.stack([profile.usable.cpu() for profile in profiles.values()]).all(0)
    names = tuple(models)
    values = {
        measure: {name: function(profiles[name]).cpu()[usable] for name in names}
        for measure, function in MEASURES.items()
    }
    pairs = [(a, b) for i, a in enumerate(names) for b in names[i + 1 :]]
    return Comparison(
        models=names,
        means={
            m: {n: bootstrap(_mean, v[n], level=level) for n in names} for m, v in values.items()
        },
        differences={
            m: {(a, b): bootstrap(_mean, v[a] - v[b], level=level) for a, b in pairs}
            for m, v in values.items()
        },
        gammas={name: profile.gamma for name, profile in profiles.items()},
        samples=int(usable.sum()),
        left_out=int((~usable).sum()),
        unlike=_unlike(profiles),
        agreement={
            (a, b): bootstrap(_mean, _agree(profiles[a], profiles[b])[usable], level=level)
            for a, b in pairs
        },
        sizes={
            name: float(norm(profile.credence.double().cpu()[usable]).mean())
            for name, profile in profiles.items()
        },
    )


def _part(tick: Callable[[float], None], place: int, count: int) -> Callable[[float], None]:
    """What one of several models reports to: its share is a part of the whole."""
    return lambda share: tick((place + share) / count)


def _agree(first: Profile, second: Profile) -> Tensor:
    """Whether both models predict the same class, sample by sample."""
    left, right = first.credence.argmax(1).cpu(), second.credence.argmax(1).cpu()
    names = [set(profile.settings.classes or ()) for profile in (first, second)]
    if names[0] != names[1]:  # other names for what may be the same: then the order of outputs
        return (left == right).double()
    pairs = zip(left.tolist(), right.tolist(), strict=True)
    same = [first.class_name(a) == second.class_name(b) for a, b in pairs]
    return torch.tensor(same, dtype=torch.float64, device=CPU)


def _unlike(profiles: Mapping[str, Profile]) -> tuple[str, ...]:
    """What makes losses or distances of the models numbers of different kinds."""
    found = {name: profile.settings for name, profile in profiles.items()}
    losses = {name: settings.loss for name, settings in found.items()}
    spaces = {name: settings.space for name, settings in found.items()}
    reasons = []
    if len(set(losses.values())) > 1:
        reasons.append(
            f"the losses differ ({_listed(losses)}), and with them the units of all measures. "
            "Give all models one loss."
        )
    if len(set(spaces.values())) > 1:
        reasons.append(
            f"what moves, or how dear that is, differs ({_listed(spaces)}). Give all models one "
            "space."
        )
    elif _inner(next(iter(spaces.values()))) and not _same_start(list(profiles.values())):
        reasons.append(
            "what moves is inside of each model, whose units are its own. Move what all models "
            "have in common: their inputs."
        )
    return tuple(reasons)


def _inner(space: str) -> bool:
    return space.startswith(("output of module", "parameters "))


def _same_start(profiles: Sequence[Profile]) -> bool:
    """Whether the same numbers move, as where models have their first layers in common."""
    first, *others = (profile.x0.double().cpu() for profile in profiles)
    return all(
        x0.shape == first.shape and torch.allclose(x0, first, equal_nan=True) for x0 in others
    )


def _listed(words: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {word}" for name, word in words.items())


def _check_comparable(profiles: Mapping[str, Profile]) -> None:
    sizes = {name: profile.credibility.shape[1] for name, profile in profiles.items()}
    if len(set(sizes.values())) > 1:
        raise InvalidArgumentError(
            "models",
            expected="models of the same classes",
            got=f"as many classes as {sizes}",
            remedy="Measures of other sets of classes are not comparable.",
        )
    if not bool(torch.stack([profile.usable.cpu() for profile in profiles.values()]).all(0).any()):
        raise InvalidArgumentError(
            "x",
            expected="at least one sample that was solved for every model",
            got="none",
            remedy="Look at credibility(clf, x, ...).status of each.",
        )


def _mean(values: Tensor) -> float:
    return float(torch.as_tensor(values).double().mean())


def _words(interval: Interval) -> str:
    return f"{interval.value:.4g} ({interval.low:.4g} to {interval.high:.4g})"
