"""Whether the parts of a stored Judge belong together."""

from __future__ import annotations

from math import prod
from typing import Any

import torch
from torch import nn

from credibly.decide.agreement import Agreement
from credibly.decide.judge_facts import Facts
from credibly.decide.signals import signal_names
from credibly.decide.typicality import Neighbours, TypicalInputs, names_of_columns
from credibly.errors import FileFormatError
from credibly.model.features import LastHidden

LONGEST = 1000
"""Steps of a descent at most: a damaged file must not make a Judge run for ever."""


def check_together(content: dict[str, Any], found: dict[str, Any]) -> None:
    """Refuse parts of which each is sound, and which do not belong together."""
    facts, examiner, alarm = found["facts"], found["examiner"], found["alarm"]
    names = {*signal_names(
        found["typicality"], views=bool(examiner.views), profiled=facts.profile != "never"
    )}  # fmt: skip
    scales = (alarm.whole, *alarm.parts)
    used = {n for part in scales for n in (*part.strange, *part.middles)} | {*found["recipe"].units}
    ranked = sum(len(part["either"]) for part in alarm.ordinary)
    inputs = found["typicality"].inputs
    checks = {
        "signals": used <= names,
        "steps": examiner.descent.steps <= LONGEST,
        "features": _fit_layer(examiner.hidden, found["typicality"].features),
        "predicted classes": _known_classes(found["typicality"].agreement, facts),
        "samples": ranked == len(found["ordinary_trust"]) == facts.samples,
        "classes": tuple(found["thresholds"].shape) == (facts.classes,),
        "names of classes": len(content["classes"] or range(facts.classes)) == facts.classes,
        "labels": facts.labelled == (found["calibration"] is not None),
        "shape": inputs is None or prod(inputs.shape) > int(inputs.metric.places.max()),
        "columns": inputs is None or len(inputs.ranges.names) == inputs.ranges.low.shape[1],
        "statistics": inputs is None or _as_many(inputs),
        "most probable classes": examiner.top is None or examiner.top < facts.classes,
    }
    wrong = [name for name, good in checks.items() if not good]
    if wrong:
        raise FileFormatError(f"the {wrong[0]} do not go with the rest")


def _fit_layer(hidden: LastHidden | None, features: Neighbours | None) -> bool:
    """Whether the layer can have such features; of one that is not linear, running it tells."""
    if hidden is None or features is None:
        return hidden is None and features is None
    (layer,) = hidden.parts.modules.values()
    return not isinstance(layer, nn.Linear) or layer.in_features == features.points.shape[1]


def _known_classes(agreement: Agreement | None, facts: Facts) -> bool:
    if agreement is None:
        return True
    classes = agreement.classes
    inside = bool(((classes >= 0) & (classes < facts.classes)).all())
    return (
        not classes.is_floating_point() and classes.shape == agreement.points.shape[:1] and inside
    )


def _as_many(inputs: TypicalInputs) -> bool:
    """Whether inputs of the shape have as many columns as were compared."""
    one = torch.empty((1, *inputs.shape), device="meta")
    return len(names_of_columns(one, None)) == len(inputs.ranges.names)
