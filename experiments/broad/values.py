"""What scores are worth: AURC, catch rates, AUROC, and both questions at once."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

import credibly as cr
from credibly.metrics import aurc, auroc, ds_aurc, ds_f1, failure_auroc
from experiments.broad.subject import Subject

RATES = (0.01, 0.05)


@dataclass(frozen=True)
class Scored:
    """One set of inputs: scores of trust, scores of belonging, and p-values, by method."""

    trust: dict[str, Tensor]
    belongs: dict[str, Tensor]
    p_values: dict[str, Tensor]


def rank(known: Tensor, values: Tensor) -> Tensor:
    """Conformal p-values (n,): small scores of trust are strange."""
    return (1 + torch.searchsorted(known.sort().values, values.contiguous(), right=True)) / (
        len(known) + 1
    )


def failures(
    subject: Subject, scored: dict[str, Scored], right: Tensor, clf: cr.Classifier
) -> dict[str, dict[str, float]]:
    """AURC over that of max softmax, for clean inputs and each damaged set; failure AUROC."""
    found: dict[str, dict[str, float]] = {}
    for name in ("clean", *(f"damaged: {kind}" for kind in subject.damaged)):
        good = right
        if name != "clean":
            x = subject.damaged[name.removeprefix("damaged: ")]
            good = clf.predict(x).cpu() == subject.labels[: len(x)].cpu()
        if not 0 < int(good.sum()) < len(good):
            continue
        base = aurc(scored[name].trust["max softmax"], good)
        found[name] = {
            method: aurc(score, good) / base for method, score in scored[name].trust.items()
        }
        if name == "clean":
            found["failure AUROC"] = {
                method: failure_auroc(score, good) for method, score in scored[name].trust.items()
            }
            found["AURC"] = {"max softmax": base}
    return found


def caught(subject: Subject, scored: dict[str, Scored]) -> dict[str, dict[str, list[float]]]:
    """Shares at or below 1 and 5 % of each set, clean ones (false alarms) included."""
    kinds = ("clean", *subject.far, *subject.near, *subject.attacked, *subject.wrong_unit)
    return {
        kind: {
            name: [round(float((p <= rate + 1e-12).double().mean()), 4) for rate in RATES]
            for name, p in scored[kind].p_values.items()
        }
        for kind in kinds
    }


def fooled(subject: Subject, judge: cr.Judge) -> dict[str, float]:
    """Shares of clean and attacked inputs that are trusted with a wrong class."""
    found = {}
    for kind, x in {"clean": subject.test, **subject.attacked}.items():
        told, labels = judge(x, keep=False), subject.labels[: len(x)].cpu()
        found[kind] = float((told.accepted & (told.predicted != labels)).double().mean())
    return found


def detection(subject: Subject, scored: dict[str, Scored]) -> dict[str, dict[str, float]]:
    """AUROC of each set of outliers against clean inputs."""
    clean = scored["clean"].belongs
    return {
        kind: {name: auroc(-values, -clean[name]) for name, values in scored[kind].belongs.items()}
        for kind in (*subject.far, *subject.near)
    }


def joint(subject: Subject, scored: dict[str, Scored], right: Tensor) -> dict[str, list[float]]:
    """DS-F1 and DS-AURC in a stream of clean inputs and, as many in all, far outliers.

    Baselines of outliers are paired with max softmax; a Judge has its own two scores.
    """
    clean, count = scored["clean"], -(-len(right) // max(len(subject.far), 1))
    found = {}
    for name in clean.belongs:
        first = name if name.startswith("Judge") else "max softmax"
        foreign = tuple(
            torch.cat([part[name][:count] for part in parts])
            for parts, name in (
                ([scored[kind].trust for kind in subject.far], first),
                ([scored[kind].belongs for kind in subject.far], name),
            )
        )
        given = (clean.trust[first], clean.belongs[name], right, foreign)
        found[name] = [ds_f1(*given), ds_aurc(*given)]
    return found
