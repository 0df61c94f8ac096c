"""The signals of a batch: what one forward tells of every input, and what a profile adds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor
from torch.nn import functional

from credibly._validation import require
from credibly.decide import scores
from credibly.decide.agreement import Agreement
from credibly.decide.recipe import FROM_PROFILE
from credibly.decide.typicality import Neighbours, TypicalInputs, input_columns
from credibly.model.batches import column_names
from credibly.model.derivatives import logits_only
from credibly.model.features import LastHidden
from credibly.model.logits import class_logits, log_odds
from credibly.model.variable import Variable
from credibly.model.views import View, odds_over_views
from credibly.problem.rows import Rows
from credibly.profile.profile import Profile

ROUNDING = 1e-6
"""An energy below this share of the largest logit is rounding."""

Signals = dict[str, Tensor]
"""Numbers (n,) in float64 on the CPU, by name; NaN where an input has none."""


@dataclass(frozen=True, eq=False)
class Glance(Rows):
    """What one forward gives of each input.

    Attributes:
        logits: one per class (n, K), in float64.
        features: of the last hidden layer (n, d), of length one; None without such a layer.
        values: the inputs themselves (n, ...), where they are what moves; else None.
        views: log odds of the class over the views of each input (n,); None without views.
    """

    logits: Tensor
    features: Tensor | None
    values: Tensor | None
    views: Tensor | None = None

    @cached_property
    def columns(self) -> Tensor | None:
        """What ranges and statistics look at (n, d); None where something else moves."""
        return None if self.values is None else input_columns(self.values)


def glance(variable: Variable, hidden: LastHidden | None, views: Sequence[View] = ()) -> Glance:
    """Run the model once on finite inputs, and once on every view of them."""
    x, features = variable.start, None
    if hidden is None:
        outputs = logits_only(variable, x)
    else:
        outputs, found = hidden.forward(variable, x)
        features = functional.normalize(found.float(), dim=1)
    losses = variable.losses_of(outputs)
    logits = class_logits(variable.loss, outputs)
    if logits.shape != losses.shape:  # a loss of one's own, with other classes than outputs
        logits = -losses.double()
    values = variable.values if variable.moves == "inputs" else None
    odds = odds_over_views(variable, views, logits) if views else None
    return Glance(logits, features, values, odds)


@dataclass(frozen=True, eq=False)
class Typicality:
    """The ordinary inputs, as far as new ones are compared with them.

    Attributes:
        features: what the network makes of them; None if it has no last hidden layer.
        inputs: they themselves; None where something else than the inputs moves.
        agreement: whether those that the network finds alike have the class it predicts; None if it
            has no last hidden layer.
    """

    features: Neighbours | None
    inputs: TypicalInputs | None
    agreement: Agreement | None

    @classmethod
    def fit(cls, seen: Glance, variable: Variable) -> Typicality:
        """From a glance at the ordinary inputs."""
        features, inputs, agreement = None, None, None
        if seen.features is not None:
            features = Neighbours(seen.features)
            agreement = Agreement(seen.features, seen.logits.argmax(1))
        if seen.values is not None and seen.columns is not None:
            inputs = TypicalInputs.fit(seen.values, seen.columns, column_names(variable.clf))
        return cls(features, inputs, agreement)

    @property
    def names(self) -> tuple[str, ...]:
        """Of the signals."""
        features = () if self.features is None else ("features", "agreement")
        return features if self.inputs is None else (*features, *self.inputs.names)

    def of_new(self, seen: Glance) -> Signals:
        """Signals of new inputs."""
        found: Signals = {}
        if self.features is not None and seen.features is not None:
            known, got = self.features.points.shape[1], seen.features.shape[1]
            remedy = "Pass inputs of the size of the ordinary ones, or fit with features=None."
            require(known == got, "features", f"{known} per input", f"{got}", remedy)
            found["features"] = self.features.of_new(seen.features)
            if self.agreement is not None:
                predicted = seen.logits.argmax(1)
                found["agreement"] = self.agreement.of_new(seen.features, predicted)
        if self.inputs is not None and seen.values is not None and seen.columns is not None:
            found |= self.inputs.of_new(seen.values, seen.columns)
        return found

    def of_own(self, seen: Glance) -> Signals:
        """Signals of the ordinary inputs themselves, each among the others."""
        found: Signals = {}
        if self.features is not None:
            found["features"] = self.features.of_own()
        if self.agreement is not None:
            found["agreement"] = self.agreement.of_own()
        if self.inputs is not None and seen.values is not None and seen.columns is not None:
            found |= self.inputs.of_own(seen.values, seen.columns)
        return found


def signal_names(typicality: Typicality, *, views: bool, profiled: bool) -> tuple[str, ...]:
    """The signals of every input, also of one of which nothing can be seen."""
    names = ("confidence", "energy", *(("views",) if views else ()), *typicality.names)
    return (*names, *sorted(FROM_PROFILE)) if profiled else names


def of_logits(seen: Glance) -> Signals:
    """Signals of the logits alone, and of those of the views."""
    found = {"confidence": log_odds(seen.logits), "energy": _energy(seen.logits)}
    if seen.views is not None:
        found["views"] = seen.views
    return {name: values.double().cpu() for name, values in found.items()}


def _energy(logits: Tensor) -> Tensor:
    """The log of the sum of exponentials; of log probabilities it is zero, not their rounding."""
    energy = logits.logsumexp(1)
    return torch.where(energy.abs() > ROUNDING * logits.abs().amax(1), energy, 0.0)


def of_profile(profile: Profile) -> Signals:
    """Signals of a profile; NaN for inputs that could not be solved."""
    return {name: scores.SCORES[name](profile).cpu() for name in sorted(FROM_PROFILE)}


def placed(signals: Mapping[str, Tensor], rows: Tensor, count: int) -> Signals:
    """Signals of some rows (their numbers) among `count`; NaN for the others."""
    found = {}
    for name, values in signals.items():
        whole = torch.full((count,), torch.nan, dtype=torch.float64, device=values.device)
        whole[rows.cpu()] = values
        found[name] = whole
    return found
