"""Success rates of attacks, the worst case over all of them, and checks that attacks work."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from credibly._validation import require
from credibly.attacks.base import Attack
from credibly.attacks.pgd import RejectionAware
from credibly.attacks.system import System, choose, worst_verdict
from credibly.model.classifier import Classifier
from credibly.types import Labels

AnyAttack = Attack | RejectionAware
CLEAN = "clean"


@dataclass(frozen=True)
class WorstCase:
    """For each sample the input that is worst for the system.

    Attributes:
        inputs: (n, ...).
        success: whether it is answered and wrong (n,).
        attack: the name of the attack that found it, 'clean' where none did better (n names).
        alone: success of each attack by itself.

    Example: see `worst_case`.
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
    target: Labels | None = None,
) -> WorstCase:
    """Judge what attacks found by the deployed system, sample by sample, and the clean inputs.

    Args:
        results: perturbed inputs (n, ...) by the name of the attack.
        system: the deployed decision.
        clf: the classifier.
        x: the clean inputs (n, ...).
        labels: the true classes (n,).
        target: classes the attacker wants (n,), or None.

    Example:
        >>> import torch, credibly as cr
        >>> clf, x = cr.Classifier(lambda x: x), torch.tensor([[1.0, 0.0]])
        >>> found = {"swap": x.flip(1)}
        >>> cr.attacks.worst_case(found, cr.attacks.System(), clf=clf, x=x, labels=[0]).attack
        ('swap',)
    """
    for name, found in results.items():
        expected = f"perturbed inputs of shape {tuple(x.shape)}"
        got, remedy = f"{tuple(found.shape)} from {name!r}", "Pass results of the same inputs."
        require(found.shape == x.shape, "results", expected, got, remedy)
    inputs = {CLEAN: x, **results}
    verdicts = {n: system.judge(clf, v, labels, target=target) for n, v in inputs.items()}
    best = worst_verdict(list(verdicts.values()))
    alone = {name: verdict.success for name, verdict in verdicts.items()}
    return WorstCase(
        choose(torch.stack(list(inputs.values())), best),
        choose(torch.stack(list(alone.values())), best),
        tuple(list(inputs)[number] for number in best.tolist()),
        alone,
    )


@dataclass(frozen=True)
class Finding:
    """The result of one sanity check: whether it holds, and the numbers.

    Example: see `sanity_checks`.
    """

    name: str
    holds: bool
    detail: str

    def __str__(self) -> str:
        return f"{'holds' if self.holds else 'DOES NOT HOLD'}: {self.name} ({self.detail})"


@dataclass(frozen=True)
class AttackTable:
    """Success of each attack at each eps on the same samples.

    Attributes:
        success: accepted and wrong (n,), by (name, eps); 'clean' has eps 0.

    Example: see `run_attacks`.
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
        """Share of the samples on which the attack succeeds."""
        return float(self._at(attack, eps).double().mean())

    def worst(self, eps: float, *, among: Sequence[str] | None = None) -> float:
        """Share on which any attack succeeds, or the clean input is wrong already."""
        chosen = [self._at(name, eps) for name in among or self.attacks]
        clean = [found for (name, _), found in self.success.items() if name == CLEAN]
        return float(torch.stack([*chosen, *clean]).any(0).double().mean())

    def _at(self, attack: str, eps: float) -> Tensor:
        known = (attack, eps) in self.success
        expected = f"one of {sorted({str(key) for key in self.success})}"
        require(known, "attack", expected, f"({attack!r}, {eps!r})", "Run it first.")
        return self.success[attack, eps]

    def __str__(self) -> str:
        rows = {
            name: [f"{self.rate(name, e):.3f}" if (name, e) in self.success else "" for e in radii]
            for radii in [self.radii]
            for name in self.attacks
        }
        if all("" not in cells for cells in rows.values()):
            rows["worst case"] = [f"{self.worst(eps):.3f}" for eps in self.radii]
        rows = {"success at eps": [f"{eps:.4g}" for eps in self.radii], **rows}
        width = max(map(len, rows))
        return "\n".join(
            " ".join([f"{name:<{width}}", *(f"{cell:>8}" for cell in cells)])
            for name, cells in rows.items()
        )


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

    Example:
        >>> import torch, credibly as cr
        >>> clf, x = cr.Classifier(lambda x: x), torch.tensor([[1.5, 0.0]])
        >>> attacks = {"pgd": lambda eps: cr.attacks.PGD(eps=eps, steps=5)}
        >>> given = {"attacks": attacks, "radii": [0.1, 1.0], "system": cr.attacks.System()}
        >>> cr.attacks.run_attacks(clf, x, [0], **given).rate("pgd", 1.0)
        1.0
    """
    for name, make in attacks.items():  # an attack can be called, too, but has its own eps
        function = not isinstance(make, Attack | RejectionAware)
        got = f"a {type(make).__name__} as {name!r}"
        remedy = f"attacks={{{name!r}: lambda eps: credibly.attacks.PGD(eps=eps)}}, for example."
        require(function, "attacks", "functions from eps to an attack", got, remedy)
    success = {(CLEAN, 0.0): system.judge(clf, x, labels).success}
    for eps in radii:
        for name, make in attacks.items():
            found = make(eps)(clf, x, labels)
            success[name, float(eps)] = system.judge(clf, found, labels).success
    return AttackTable(success)


def more_steps_do_not_help(fewer: Tensor, more: Tensor, *, slack: float = 0.02) -> Finding:
    """Check that several times the steps find at most `slack` more of the samples.

    Args:
        fewer: success (n,) of the attack with its own steps.
        more: success (n,) with several times as many.
        slack: share of the samples by which it may differ.

    Example: see `sanity_checks`.
    """
    before, after = float(fewer.double().mean()), float(more.double().mean())
    detail = f"{before:.3f} to {after:.3f}"
    return Finding("more steps do not help further", after <= before + slack, detail)


def accuracy_falls_with_eps(table: AttackTable, *, slack: float = 0.02) -> Finding:
    """Check that the success of the worst case never falls by more than `slack` as eps grows.

    Example: see `sanity_checks`.
    """
    rates = [table.worst(eps) for eps in table.radii]
    holds = all(b >= a - slack for a, b in pairwise(rates))
    return Finding("success does not fall with eps", holds, ", ".join(f"{r:.3f}" for r in rates))


def white_box_beats_black_box(
    table: AttackTable, *, white: Sequence[str], black: Sequence[str], slack: float = 0.02
) -> Finding:
    """Check that at every eps attacks with gradients (`white`) find at least what others find.

    Example: see `sanity_checks`.
    """
    pairs = [(table.worst(e, among=white), table.worst(e, among=black)) for e in table.radii]
    holds = all(with_ >= without - slack for with_, without in pairs)
    listed = ", ".join(f"{with_:.3f} against {without:.3f}" for with_, without in pairs)
    return Finding("white box beats black box", holds, listed)


def large_eps_breaks_everything(table: AttackTable, *, slack: float = 0.0) -> Finding:
    """Check that at the largest eps, which should reach every class, all but `slack` are wrong.

    Example: see `sanity_checks`.
    """
    eps = table.radii[-1]
    worst = table.worst(eps)
    return Finding("a large eps breaks everything", worst >= 1 - slack, f"{worst:.3f} at {eps:g}")


def sanity_checks(
    table: AttackTable, *, white: Sequence[str], black: Sequence[str], slack: float = 0.02
) -> tuple[Finding, ...]:
    """The three checks that need the table only.

    A check that does not hold means that an attack fails, not that the system is robust.

    Args:
        table: from `run_attacks`.
        white: names of attacks with gradients.
        black: names of attacks without.
        slack: share of the samples by which each may be missed.

    Example:
        >>> import torch, credibly as cr
        >>> found = {("clean", 0.0): [0, 0], ("pgd", 0.1): [1, 1], ("square", 0.1): [1, 0]}
        >>> table = cr.attacks.AttackTable({key: torch.tensor(v) for key, v in found.items()})
        >>> [str(f)[:5] for f in cr.attacks.sanity_checks(table, white=["pgd"], black=["square"])]
        ['holds', 'holds', 'holds']
    """
    return (
        accuracy_falls_with_eps(table, slack=slack),
        white_box_beats_black_box(table, white=white, black=black, slack=slack),
        large_eps_breaks_everything(table, slack=slack),
    )
