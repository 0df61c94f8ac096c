"""Who broke what: the worst case over attacks, success rates, and checks that attacks are sane."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from credibly.attacks.base import Attack
from credibly.attacks.rejection import RejectionAware
from credibly.attacks.system import System, worst_verdict
from credibly.errors import InvalidArgumentError
from credibly.model.classifier import Classifier
from credibly.types import Labels

AnyAttack = Attack | RejectionAware
CLEAN = "clean"


@dataclass(frozen=True)
class WorstCase:
    """Of each image the input that is worst for the system.

    Attributes:
        inputs: (n, ...).
        success: whether it is answered and wrong (n,).
        attack: the name of the attack that found it, 'clean' where none did better (n names).
        alone: success of each attack by itself.
    """

    inputs: Tensor
    success: Tensor
    attack: tuple[str, ...]
    alone: dict[str, Tensor]


def worst_case(
    results: Mapping[str, Tensor],
    system: System,
    *,
    clf: Classifier,
    x: Tensor,
    labels: Labels,
    target: Tensor | None = None,
) -> WorstCase:
    """Judge what attacks found by the deployed system, image by image; the clean input counts, too.

    Args:
        results: perturbed inputs (n, ...) by the name of the attack.
        system: the deployed decision.
        clf: the classifier.
        x: the clean inputs (n, ...).
        labels: the true classes (n,).
        target: classes the attacker wants (n,), or None.
    """
    for name, found in results.items():
        if found.shape != x.shape:
            raise InvalidArgumentError(
                "results",
                expected=f"perturbed inputs of shape {tuple(x.shape)}",
                got=f"{tuple(found.shape)} from {name!r}",
                remedy="Pass what the attacks return for the same inputs.",
            )
    names = [CLEAN, *results]
    inputs = [x, *results.values()]
    verdicts = [system.judge(clf, found, labels, target=target) for found in inputs]
    best = worst_verdict(verdicts)
    rows = torch.arange(len(x), device=x.device)
    success = torch.stack([verdict.success for verdict in verdicts])
    return WorstCase(
        torch.stack(inputs)[best, rows],
        success[best, rows],
        tuple(names[number] for number in best.tolist()),
        {name: verdict.success for name, verdict in zip(names, verdicts, strict=True)},
    )


@dataclass(frozen=True)
class Finding:
    """One item of the sanity list: whether it holds, and the numbers."""

    name: str
    holds: bool
    detail: str

    def __str__(self) -> str:
        return f"{'holds' if self.holds else 'DOES NOT HOLD'}: {self.name} ({self.detail})"


@dataclass(frozen=True)
class AttackTable:
    """Success of each attack at each eps on the same images.

    Attributes:
        success: accepted and wrong (n,), by (name, eps); 'clean' has eps 0.
    """

    success: Mapping[tuple[str, float], Tensor]

    @property
    def attacks(self) -> tuple[str, ...]:
        """Names in the order they came, without 'clean'."""
        return tuple(dict.fromkeys(name for name, _ in self.success if name != CLEAN))

    @property
    def radii(self) -> tuple[float, ...]:
        """Every eps, smallest first."""
        return tuple(sorted({eps for name, eps in self.success if name != CLEAN}))

    def rate(self, attack: str, eps: float) -> float:
        """Share of the images on which the attack succeeds."""
        return float(self._at(attack, eps).double().mean())

    def worst(self, eps: float, *, among: Sequence[str] | None = None) -> float:
        """Share on which any attack succeeds, or the clean input is wrong already."""
        return float(self._any(eps, among).double().mean())

    def _any(self, eps: float, among: Sequence[str] | None) -> Tensor:
        chosen = [self._at(name, eps) for name in among or self.attacks]
        clean = [found for (name, _), found in self.success.items() if name == CLEAN]
        return torch.stack([*chosen, *clean]).any(0)

    def _at(self, attack: str, eps: float) -> Tensor:
        if (attack, eps) not in self.success:
            raise InvalidArgumentError(
                "attack",
                expected=f"one of {sorted({str(key) for key in self.success})}",
                got=f"({attack!r}, {eps!r})",
                remedy="Run it first.",
            )
        return self.success[attack, eps]

    def __str__(self) -> str:
        radii = self.radii
        width = max(len(name) for name in ("worst case", *self.attacks))
        head = " ".join(f"{eps:>8.4g}" for eps in radii)
        lines = [f"{'success at eps':<{width}} {head}"]
        for name in self.attacks:
            cells = [f"{self.rate(name, e):8.3f}" if (name, e) in self.success else " " * 8
                     for e in radii]  # fmt: skip
            lines.append(f"{name:<{width}} {' '.join(cells)}")
        complete = [e for e in radii if all((name, e) in self.success for name in self.attacks)]
        if complete == list(radii):
            cells = [f"{self.worst(e):8.3f}" for e in radii]
            lines.append(f"{'worst case':<{width}} {' '.join(cells)}")
        return "\n".join(lines)


def run_attacks(
    clf: Classifier,
    x: Tensor,
    labels: Labels,
    *,
    attacks: Mapping[str, Callable[[float], AnyAttack]],
    radii: Sequence[float],
    system: System,
) -> AttackTable:
    """Run every attack at every radius, and judge what it finds by the deployed system.

    Args:
        clf: the classifier.
        x: inputs (n, ...).
        labels: true classes (n,).
        attacks: by name, a function from eps to the attack.
        radii: every eps to try.
        system: the deployed decision.
    """
    for name, make in attacks.items():
        if isinstance(make, Attack | RejectionAware):  # can be called, too, but has its own eps
            raise InvalidArgumentError(
                "attacks",
                expected="functions from eps to an attack",
                got=f"a {type(make).__name__} as {name!r}",
                remedy=f"attacks={{{name!r}: lambda eps: credibly.attacks.PGD(eps=eps)}}, say.",
            )
    success = {(CLEAN, 0.0): system.judge(clf, x, labels).success}
    for eps in radii:
        for name, make in attacks.items():
            found = make(eps)(clf, x, labels)
            success[name, float(eps)] = system.judge(clf, found, labels).success
    return AttackTable(success)


def more_steps_do_not_help(fewer: Tensor, more: Tensor, *, slack: float = 0.02) -> Finding:
    """The same attack with several times the steps succeeds no more often.

    Args:
        fewer: success (n,) with its own steps.
        more: success (n,) with several times as many.
        slack: share of the images by which it may.
    """
    before, after = float(fewer.double().mean()), float(more.double().mean())
    return Finding(
        "more steps do not help further", after <= before + slack, f"{before:.3f} to {after:.3f}"
    )


def accuracy_falls_with_eps(table: AttackTable, *, slack: float = 0.02) -> Finding:
    """The success of the worst case does not fall as eps grows, by more than `slack`."""
    rates = [table.worst(eps) for eps in table.radii]
    falls = all(b >= a - slack for a, b in pairwise(rates))
    listed = ", ".join(f"{r:.3f}" for r in rates)
    return Finding("success does not fall with eps", falls, listed)


def white_box_beats_black_box(
    table: AttackTable, *, white: Sequence[str], black: Sequence[str], slack: float = 0.02
) -> Finding:
    """At every eps, attacks with gradients find at least what those without find.

    Args:
        table: from `run_attacks`.
        white: names of attacks with gradients.
        black: names of attacks without.
        slack: share of the images that these may be ahead.
    """
    pairs = [(table.worst(e, among=white), table.worst(e, among=black)) for e in table.radii]
    holds = all(with_ >= without - slack for with_, without in pairs)
    listed = ", ".join(f"{with_:.3f} against {without:.3f}" for with_, without in pairs)
    return Finding("white box beats black box", holds, listed)


def large_eps_breaks_everything(table: AttackTable, *, slack: float = 0.0) -> Finding:
    """At the largest eps no more than `slack` of the images are left.

    Choose an eps at which every class can be reached.
    """
    eps = table.radii[-1]
    worst = table.worst(eps)
    return Finding("a large eps breaks everything", worst >= 1 - slack, f"{worst:.3f} at {eps:g}")


def sanity_checks(
    table: AttackTable, *, white: Sequence[str], black: Sequence[str], slack: float = 0.02
) -> tuple[Finding, ...]:
    """What a table alone can say: eps, white box against black box, and the largest eps.

    An item that does not hold says that an attack fails, not that the system is robust.

    Args:
        table: from `run_attacks`.
        white: names of attacks with gradients.
        black: names of attacks without.
        slack: share of the images by which each item may be missed.
    """
    return (
        accuracy_falls_with_eps(table, slack=slack),
        white_box_beats_black_box(table, white=white, black=black, slack=slack),
        large_eps_breaks_everything(table, slack=slack),
    )
