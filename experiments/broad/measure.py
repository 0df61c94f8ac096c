"""All scores of one subject, and what they are worth.

A threshold on any score is set as a Judge sets its own: by conformal p-values among the same
ordinary inputs, with five folds where the score is fitted to them. AURC is that of the model's own
class, over that of the largest softmax output on the same inputs.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

import credibly as cr
from credibly.baselines.catalogue import baselines_of
from credibly.baselines.feature_baselines import Hidden, hidden_of
from credibly.baselines.input_baselines import dropout_layers
from credibly.decide.alarm import ProfileUse
from credibly.decide.scores import SCORES
from credibly.errors import ModelError
from credibly.model.bind import bind
from credibly.model.derivatives import FORWARD
from credibly.model.features import LastHidden
from experiments.broad.depths import Depths
from experiments.broad.subject import Subject
from experiments.broad.values import (
    Scored,
    caught,
    detection,
    failures,
    fooled,
    joint,
    rank,
)

FOLDS = 5
USES: dict[str, ProfileUse] = {
    "Judge": "never", "Judge, doubtful profiles": "doubtful", "Judge, every profile": "always",
}  # fmt: skip
LABELLED, VIEWED = "Judge, with labels", "Judge, with views"
BOTH = "smaller rank of shift and gain"
JUDGES = (*USES, LABELLED, VIEWED)
PROFILED = "Judge, every profile"
MODE = "nearest mode"
OF_PROFILES = ("shift", "gain", "predicted ratio", "predicted ratio, gamma x 16", BOTH)
"""Scores that need a profile of every input; two prices of gamma."""

Fit, Say, Parts = Callable[..., cr.Judge], Callable[[str], None], tuple[str, ...]
PARTS: Parts = ("forwards", "profiles", "mode", "depths")
"""Groups of methods: those of a few forwards; profiles and as dear ones; the nearest mode; and
profiles at other depths and along a path. The last two were added after the choice."""


def no_words(_: str) -> None:
    """Say nothing."""


def measure(
    subject: Subject, *, parts: Parts = PARTS, fit: Fit = cr.Judge.fit, say: Say = no_words
) -> dict[str, Any]:
    """All numbers of one subject.

    Args:
        subject: the network and its sets.
        parts: which methods are tried; the Judge and max softmax always are.
        fit: makes a Judge, `cr.Judge.fit` with settings that change its speed alone.
        say: is told what was done.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", cr.errors.CrediblyWarning)
        methods = Methods(subject, judges_of(subject, parts, fit), parts)
        say("methods fitted")
        scored = {}
        for name, x in sets_of(subject).items():
            scored[name] = methods.score(x)
            say(f"{len(x)} scored: {name}")
    right = methods.predicted == subject.labels.cpu()
    return {
        "name": subject.name, "kind": subject.kind, "data": subject.data, "role": subject.role,
        "small": subject.small, "classes": methods.classes, "ordinary": len(subject.ordinary),
        "test": len(subject.test), "accuracy": float(right.double().mean()),
        "agreement": methods.agreement, "price": methods.price,
        "failures": failures(subject, scored, right, methods.clf),
        "caught": caught(subject, scored),
        "auroc": detection(subject, scored),
        "joint": joint(subject, scored, right),
        "fooled": fooled(subject, methods.judges["Judge"]),
    }  # fmt: skip


def judges_of(subject: Subject, parts: Parts, fit: Fit) -> dict[str, cr.Judge]:
    """The Judges that are compared; the first one is the default."""
    net, ordinary = subject.net, subject.ordinary
    uses = USES if "profiles" in parts else {"Judge": USES["Judge"]}
    found = {name: fit(net, ordinary, profile=use) for name, use in uses.items()}
    if "forwards" in parts:
        found[LABELLED] = fit(net, ordinary, subject.ordinary_labels.cpu())
        if subject.views:
            found[VIEWED] = fit(net, ordinary, views=subject.views)
    return found


def sets_of(subject: Subject) -> dict[str, Tensor]:
    """All inputs that are scored, by name."""
    found = {"clean": subject.test, **subject.far, **subject.near, **subject.attacked}
    found |= subject.wrong_unit
    return found | {f"damaged: {kind}": x for kind, x in subject.damaged.items()}


class Methods:
    """Everything that gives an input a score, fitted to the ordinary inputs."""

    def __init__(self, subject: Subject, judges: Mapping[str, cr.Judge], parts: Parts) -> None:
        self.judges, self.ordinary = judges, subject.ordinary
        default = judges["Judge"]
        self.clf = default.examiner.clf
        hidden = hidden_or_none(self.clf, subject.ordinary)
        self.plain = plain_baselines(self.clf, subject, default.examiner.gamma, parts)
        if "mode" in parts and hidden is not None:
            self.plain |= {MODE: nearest_mode(subject.ordinary)}
        self.hidden = hidden if "forwards" in parts else None
        self.folds = () if self.hidden is None else tuple(folds(self.hidden))
        self.fitted = {} if self.hidden is None else dict(baselines_of(self.hidden))
        self.known = {name: b(self.clf, subject.ordinary).cpu() for name, b in self.plain.items()}
        clean = {name: judge(subject.test, keep=False) for name, judge in judges.items()}
        self.predicted = clean["Judge"].predicted
        self.classes = default.facts.classes
        self.agreement = default.recipe.shares.get("agreement", 0.0)
        self.price = {name: b.passes(self.classes) for name, b in self.plain.items()}
        self.price |= dict.fromkeys(self.fitted, FORWARD)
        self.price |= {name: found.cost for name, found in clean.items()}
        self.profiles = self.depths = None
        if "profiles" in parts:
            self.profiles = Profiles(judges[PROFILED])
            own = self.profiles.scores(subject.ordinary)
            self.known |= {name: own[name] for name in ("shift", "gain")}
            self.price |= dict.fromkeys(OF_PROFILES, self.price[PROFILED])
        if "depths" in parts and hidden is not None:
            self.depths = Depths(default.examiner, subject.ordinary)
            self.price |= self.depths.price

    def score(self, x: Tensor) -> Scored:
        """All scores of a set."""
        trust = {name: b(self.clf, x).cpu() for name, b in self.plain.items()}
        belongs = dict(trust)
        p_values = {name: self._p(name, values) for name, values in trust.items()}
        if self.hidden is not None:
            self._by_features(x, trust, belongs, p_values)
        for name, judge in self.judges.items():
            found = judge(x, keep=False)
            strange = judge.alarm.whole.strangeness(found.signals)["either"]
            trust[name], belongs[name], p_values[name] = found.trust, -strange, found.p_ordinary
        if self.profiles is not None:
            self._by_profiles(x, trust, belongs, p_values)
        if self.depths is not None:
            trust |= self.depths.scores(x)
        return Scored(trust, belongs, p_values)

    def _by_profiles(self, x: Tensor, trust: Any, belongs: Any, p_values: Any) -> None:
        assert self.profiles is not None
        trust |= self.profiles.scores(x)
        for name in ("shift", "gain"):
            belongs[name], p_values[name] = trust[name], self._p(name, trust[name])
        both = torch.stack([p_values["shift"], p_values["gain"]]).amin(0)
        both_known = torch.stack([self._p(n, self.known[n]) for n in ("shift", "gain")]).amin(0)
        belongs[BOTH], p_values[BOTH] = both, rank(both_known, both)

    def _p(self, name: str, values: Tensor) -> Tensor:
        return rank(self.known[name], values)

    def _by_features(self, x: Tensor, trust: Any, belongs: Any, p_values: Any) -> None:
        hidden = hidden_of(self.clf, x)
        for name, baseline in self.fitted.items():
            try:
                trust[name] = belongs[name] = baseline.of_hidden(hidden).cpu()
            except ModelError:
                continue
            above = torch.ones(len(x), dtype=torch.float64)
            for fitted, part in self.folds:
                known, new = (
                    fitted[name].of_hidden(part).cpu(),
                    fitted[name].of_hidden(hidden).cpu(),
                )
                above += torch.searchsorted(known.sort().values, new, right=True)
            p_values[name] = above / (len(self.ordinary) + 1)


def hidden_or_none(clf: cr.Classifier, x: Tensor) -> Hidden | None:
    """What the last linear layer takes and gives; None for models without one."""
    if LastHidden.find(bind(clf, x[:2]).innermost) is None:
        return None
    return hidden_of(clf, x)


class Profiles:
    """Scores of decision-grade profiles, for gamma as a Judge sets it and for 16 times that."""

    def __init__(self, judge: cr.Judge) -> None:
        self.near = judge.examiner
        self.far = replace(self.near, gamma=16 * self.near.gamma)

    def scores(self, x: Tensor) -> dict[str, Tensor]:
        """Shift, gain and the predicted ratio (n,)."""
        parts: dict[str, list[Tensor]] = {}
        for (variable, _), (other, _) in zip(
            self.near.variables(x), self.far.variables(x), strict=True
        ):
            profile = self.near.profile(variable)
            found = {name: SCORES[name](profile) for name in ("shift", "gain")}
            found["predicted ratio"] = SCORES["predicted_ratio"](profile)
            found["predicted ratio, gamma x 16"] = SCORES["predicted_ratio"](
                self.far.profile(other)
            )
            for name, values in found.items():
                parts.setdefault(name, []).append(values.double().cpu())
        return {name: torch.cat(values) for name, values in parts.items()}


def plain_baselines(
    clf: cr.Classifier, subject: Subject, gamma: float, parts: Parts
) -> dict[str, Any]:
    """Baselines that need nothing but the model, and those of named views and members."""
    spread = float(subject.ordinary.double().std())
    found = cr.baselines.all_baselines(
        gamma=gamma,
        eps=0.005 * spread,
        sigma=0.3 * spread,
        votes=30,
        dropout=bool(dropout_layers(clf.net)),
    )
    for name in ("DOCTOR beta with step", "credence ratio", "one gradient step",
                 "one Gauss-Newton step"):  # fmt: skip
        found.pop(name)
    if "profiles" not in parts:
        del found["noise vote"]
    if "forwards" not in parts:
        return {name: found[name] for name in ("max softmax", "noise vote") if name in found}
    if subject.views:
        found["test-time augmentation"] = cr.baselines.TestTimeAugmentation(views=subject.views)
    if subject.members and isinstance(subject.net, torch.nn.Module):
        found["ensemble"] = cr.baselines.Ensemble(members=subject.members)
    return found


def nearest_mode(ordinary: Tensor) -> cr.baselines.NearestMode:
    """Our reading of TRUST; its step was set before anything was measured with it."""
    return cr.baselines.NearestMode(step=0.05 * float(ordinary.double().std()))


def folds(hidden: Hidden) -> Any:
    """Baselines fitted to all but one fifth of the ordinary inputs, and that fifth."""
    order = torch.randperm(len(hidden.features), generator=torch.Generator().manual_seed(0))
    for part in range(FOLDS):
        here = order % FOLDS == part
        inside, outside = (
            replace(hidden, features=hidden.features[rows], logits=hidden.logits[rows])
            for rows in (here.to(hidden.features.device), ~here.to(hidden.features.device))
        )
        yield baselines_of(outside), inside
