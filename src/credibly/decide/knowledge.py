"""What a Judge knows, and how it judges a chunk of inputs by it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from credibly.decide.alarm import Alarm, Question
from credibly.decide.calibration import VennAbers
from credibly.decide.examine import Examiner, finite_logits
from credibly.decide.judge_facts import Facts
from credibly.decide.judgement import Judgement
from credibly.decide.kept import KeptInputs
from credibly.decide.learn import codes_of
from credibly.decide.ranges import Ranges
from credibly.decide.reasons import Reasons
from credibly.decide.recipe import FROM_PROFILE, TrustRecipe
from credibly.decide.signals import (
    Signals,
    Typicality,
    of_logits,
    of_profile,
    placed,
    signal_names,
)
from credibly.decide.verdict import Verdict
from credibly.model.variable import Variable
from credibly.profile.profile import Profile
from credibly.types import CPU, finite_rows

_P_VALUES: dict[Question, str] = {
    "outlier": "p_outlier", "tampered": "p_tampered", "either": "p_ordinary",
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class _Look:
    """What was seen of some inputs."""

    signals: Signals
    logits: Tensor
    good: Tensor  # whose logits are finite
    again: Tensor  # numbers of those with a profile
    profile: Profile | None
    columns: Tensor | None


@dataclass(frozen=True, eq=False, repr=False)
class Knowledge:
    """What was learned from ordinary inputs.

    Attributes:
        examiner: the classifier, and how it is asked: gamma, the solver, the last hidden layer.
        typicality: the ordinary inputs, as far as new ones are compared with them.
        alarm: how strange the signals of an input are.
        recipe: how trust is computed from the signals.
        ordinary_trust: of the ordinary inputs, sorted (n,).
        thresholds: trust from which the class of each is accepted (K,).
        calibration: from trust to the chance of being wrong; None without labels.
        facts: what it was fitted with.
    """

    examiner: Examiner
    typicality: Typicality
    alarm: Alarm
    recipe: TrustRecipe
    ordinary_trust: Tensor
    thresholds: Tensor
    calibration: VennAbers | None
    facts: Facts

    def judge(self, variable: Variable, *, keep: bool = False) -> Judgement:
        """Judge one chunk that was bound before."""
        rows = finite_rows(variable.start).nonzero().squeeze(1)
        look = self._look(variable, rows) if len(rows) else self._nothing()
        found = self._found(len(variable), rows.cpu(), look, keep=keep)
        if not keep:
            return found
        places = {n: (0, n) for n in rows.tolist()}
        kept = KeptInputs(self.examiner, (variable,), places, self.typicality)
        return replace(found, inputs=kept)

    def _names(self) -> tuple[str, ...]:
        """Of the signals."""
        profiled, views = self.facts.profile != "never", bool(self.examiner.views)
        return signal_names(self.typicality, views=views, profiled=profiled)

    def _nothing(self) -> _Look:
        """What is seen where no input is finite."""
        logits = torch.zeros(0, self.facts.classes, dtype=torch.float64, device=CPU)
        none = logits.sum(1)
        return _Look(
            dict.fromkeys(self._names(), none), logits, none.bool(), none.long(), None, None
        )

    def _look(self, variable: Variable, rows: Tensor) -> _Look:
        """Signals of finite inputs, with a profile for those that one forward does not settle."""
        clean = variable.select(rows)
        if self.typicality.inputs is not None and clean.moves == "inputs":
            self.typicality.inputs.check_shape(clean.values)
        seen = self.examiner.glance(clean)
        good = finite_logits(seen.logits)
        seen = replace(seen, logits=seen.logits.nan_to_num(0.0))
        signals = of_logits(seen) | self.typicality.of_new(seen)
        open_, profile = good & self.alarm.whole.look_again(signals), None
        if self.facts.profile != "never":
            unknown = torch.full_like(signals["confidence"], torch.nan)
            signals |= dict.fromkeys(FROM_PROFILE, unknown)
        if self.facts.profile == "doubtful":
            open_ &= ~self._certain(signals)
        again = open_.nonzero().squeeze(1)
        if self.facts.profile != "never" and len(again):
            profile = self.examiner.profile(clean.select(again.to(rows.device)))
            signals |= placed(of_profile(profile), again, len(rows))
        return _Look(signals, seen.logits.cpu(), good, again, profile, seen.columns)

    def _certain(self, signals: Signals) -> Tensor:
        """Inputs (n,) that are outliers whatever a profile would tell.

        It can only add to what is strange about an input, so such a verdict stays; the p-values are
        those of what was looked at, and larger.
        """
        p_values, trusted = self.alarm.p_values(signals), signals["confidence"] > -torch.inf
        codes = codes_of(p_values, trusted, false_alarms=self.facts.false_alarms)
        return codes == Verdict.OUTLIER.code

    def _found(self, count: int, rows: Tensor, look: _Look, *, keep: bool) -> Judgement:
        """Verdicts and numbers of all inputs of a chunk, from what was seen of the finite ones."""
        usable, again = rows[look.good], rows[look.again]
        signals = {name: look.signals[name][look.good] for name in self._names()}
        predicted = look.logits[look.good].argmax(1)
        numbers: dict[str, Any] = dict(placed(self._numbers(signals, predicted), usable, count))
        codes = numbers.pop("code").nan_to_num(Verdict.UNUSABLE.code).to(torch.int8)
        signals, doubt = placed(signals, usable, count), numbers.pop("doubt")
        passes = torch.zeros(count, dtype=torch.float64, device=CPU)
        passes[rows] = self.examiner.passes
        if look.profile is not None:
            passes[again] += look.profile.passes.cpu()
        ranges, columns = self._columns(count, rows, look)
        kept = look.profile if keep else None
        return Judgement(
            predicted=numbers.pop("class").nan_to_num(-1).long(),
            passes=passes,
            codes=codes,
            signals=signals,
            reasons=Reasons(self.alarm.whole, ranges, signals, columns, codes, doubt),
            shares_right=self.facts.shares_right,
            names=self.examiner.clf.classes,
            class_count=self.facts.classes,
            profile=kept,
            profiled=None if kept is None else again,
            **numbers,
        )

    def _numbers(self, signals: Signals, predicted: Tensor) -> Signals:
        """What is said of usable inputs, as numbers (n,); classes and verdicts as well."""
        p_values, trust = self.alarm.p_values(signals), self.recipe(signals)
        trusted = trust >= self.thresholds[predicted]
        codes = codes_of(p_values, trusted, false_alarms=self.facts.false_alarms)
        below = torch.searchsorted(self.ordinary_trust, trust.contiguous()).double()
        calibrated = self.calibration
        claimed = torch.sigmoid(-signals["confidence"])
        return {
            "trust": trust,
            **{_P_VALUES[name]: p for name, p in p_values.items()},
            "p_wrong": claimed if calibrated is None else calibrated(trust),
            "doubt": below / max(len(self.ordinary_trust), 1),
            "code": codes.double(),
            "class": predicted.double(),
        }

    def _columns(
        self, count: int, rows: Tensor, look: _Look
    ) -> tuple[Ranges | None, Tensor | None]:
        """The ranges of the ordinary inputs, and what they look at in these (n, d)."""
        inputs = self.typicality.inputs
        if inputs is None:
            return None, None
        columns = torch.full(
            (count, len(inputs.ranges.names)), torch.nan, dtype=torch.float64, device=CPU
        )
        if look.columns is not None:
            columns[rows] = look.columns
        return inputs.ranges, columns
