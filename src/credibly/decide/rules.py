"""Rules of any kind: from their files, and what they say of every sample, as columns."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from credibly.decide import thresholds, verdict
from credibly.decide.conformal import ConformalSets
from credibly.decide.flag import OutlierFlag
from credibly.decide.records import LOADED_BY
from credibly.decide.scores import without_profile
from credibly.decide.selective import Abstention, SelectiveClassifier
from credibly.decide.verdict import Judge, Verdict
from credibly.errors import FileFormatError
from credibly.profile.profile import Profile

Rule = SelectiveClassifier | Judge | OutlierFlag | ConformalSets

_KINDS = {kind.__name__: kind for kind in (SelectiveClassifier, Judge, OutlierFlag, ConformalSets)}


def load_rule(path: str | Path) -> Rule:
    """The rule in a file that the `save` of any of them wrote. Nothing in it is executed."""
    if not Path(path).is_file():
        raise FileFormatError(f"{path}: no such file. A rule is written by its save(...).")
    try:
        content = json.loads(Path(path).read_text("utf-8"))
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise FileFormatError(f"{path}: not a JSON file ({error}).") from error
    name = LOADED_BY.get(str(content.get("format"))) if isinstance(content, dict) else None
    if name is None:
        raise FileFormatError(f"{path}: not a file that the save of {', '.join(_KINDS)} wrote.")
    rule: Rule = _KINDS[name].load(path)
    return rule


@dataclass(frozen=True, eq=False)
class Answers:
    """What a rule says of every sample, in one form for all kinds of rules.

    Attributes:
        predicted: the class of the model (N,), None where its losses are no numbers.
        classes: the class that is answered (N,), None where none is.
        unusable: samples (N,) without a profile; these are never answered.
        columns: what this kind of rule says beside, N values each.
        notes: a few words on how it came out.
    """

    predicted: tuple[int | None, ...]
    classes: tuple[int | None, ...]
    unusable: tuple[bool, ...]
    columns: Mapping[str, Sequence[Any]]
    notes: str

    @property
    def accepted(self) -> tuple[bool, ...]:
        """Which samples got an answer."""
        return tuple(k is not None for k in self.classes)

    @property
    def counts(self) -> Counter[str]:
        """How many were answered, how many were abstained on, and how many are unusable."""
        pairs = zip(self.accepted, self.unusable, strict=True)
        words = {(True, False): "answered", (False, False): "abstained"}
        return Counter(words.get(pair, "unusable") for pair in pairs)


def answers(rule: Rule, profile: Profile) -> Answers:
    """What the rule says of every sample; it refuses profiles of other settings than its own."""
    if isinstance(rule, SelectiveClassifier):
        return _selected(rule, profile)
    if isinstance(rule, Judge):
        return _judged(rule, profile)
    if isinstance(rule, OutlierFlag):
        return _flagged(rule, profile)
    return _in_sets(rule, profile)


def _selected(rule: SelectiveClassifier, profile: Profile) -> Answers:
    decision = rule.decide(profile)
    classes = tuple(None if isinstance(k, Abstention) else k for k in decision.classes)
    columns = {"score": decision.scores.tolist()}
    return _answers(profile, classes, columns, f"abstains: {thresholds.in_words(rule.threshold)}")


def _judged(rule: Judge, profile: Profile) -> Answers:
    verdicts = rule.judge(profile)
    names = ("score", "outlier_score", "tamper_score")
    values = (score(profile).tolist() for score in rule.scores)
    columns = {"verdict": [v.value for v in verdicts], **dict(zip(names, values, strict=True))}
    trusted = torch.tensor([v is Verdict.TRUST for v in verdicts], dtype=torch.bool)
    return _answers(profile, _where(trusted, profile), columns, verdict.summary(verdicts))


def _flagged(rule: OutlierFlag, profile: Profile) -> Answers:
    flagged = rule.flag(profile).cpu()
    columns = {"flagged": flagged.tolist(), "score": rule.score(profile).tolist()}
    notes = f"flagged: {thresholds.in_words(rule.threshold)}, or without a profile"
    return _answers(profile, _where(~flagged, profile), columns, notes)


def _in_sets(rule: ConformalSets, profile: Profile) -> Answers:
    """A set of one class is an answer; of none or of several it is not."""
    sets = rule.sets(profile).cpu()
    sizes = sets.sum(1)
    alone = (sizes == 1) & ~without_profile(profile).cpu()
    found = sets.double().argmax(1).tolist() if len(sets) else []
    classes = tuple(k if yes else None for k, yes in zip(found, alone.tolist(), strict=True))
    names = [profile.class_name(k) for k in range(sets.shape[1])]
    words = [[names[k] for k, inside in enumerate(row) if inside] for row in sets.tolist()]
    mean = float(sizes.double().mean()) if len(sizes) else 0.0
    notes = (
        f"sets of {mean:.3g} classes in the mean, {int((sizes == 0).sum())} of them empty; a set "
        "of one class is an answer, and a row without a profile has all"
    )
    columns = {"set": words, "set_size": sizes.tolist()}
    return _answers(profile, classes, columns, notes)


def _answers(
    profile: Profile,
    classes: tuple[int | None, ...],
    columns: Mapping[str, Sequence[Any]],
    notes: str,
) -> Answers:
    known = ~profile.credence.isnan().any(1).cpu()
    unusable = tuple(without_profile(profile).cpu().tolist())
    return Answers(_where(known, profile), classes, unusable, columns, notes)


def _where(rows: Tensor, profile: Profile) -> tuple[int | None, ...]:
    """The class of the model in these rows, None elsewhere."""
    predicted = profile.credence.nan_to_num(-torch.inf).argmax(1).tolist()
    pairs = zip(predicted, rows.tolist(), strict=True)
    return tuple(int(k) if yes else None for k, yes in pairs)
