"""Minimum-norm attacks from foolbox: the nearest inputs of another class that they find."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from credibly._extras import load_extra
from credibly._validation import chunk_size as check_chunk_size
from credibly._validation import labels as check_labels
from credibly._validation import require
from credibly.model.batches import check_batch, check_classifier, check_evaluation_mode
from credibly.model.classifier import Classifier
from credibly.model.derivatives import by_input_only
from credibly.profile.arguments import check_bounds
from credibly.types import Array, Bounds, Labels, finite_rows, per_sample

_ATTACKS: dict[str, tuple[str, dict[str, Any]]] = {
    "deepfool": ("L2DeepFoolAttack", {"steps": 50}),
    "carlini-wagner": ("L2CarliniWagnerAttack", {"steps": 300, "binary_search_steps": 5}),
    "decoupled direction and norm": ("DDNAttack", {"steps": 100}),
}
"""Name -> class of foolbox and its settings."""


def minimum_norm_attacks(
    clf: Classifier,
    x: Array,
    *,
    bounds: Bounds,
    attacks: Sequence[str] | None = None,
    labels: Labels | None = None,
    settings: Mapping[str, Mapping[str, Any]] | None = None,
    chunk_size: int = 500,
) -> dict[str, Tensor]:
    """The nearest inputs of another class that each attack finds, for `check_tradeoff(others=...)`.

    Where an attack fails, the input itself is returned.

    Args:
        clf: the classifier; needs the extra 'attacks' (foolbox).
        x: inputs (n, ...).
        bounds: smallest and largest value of a feature, such as (0.0, 1.0).
        attacks: some of 'deepfool', 'carlini-wagner', 'decoupled direction and norm'; None: all.
        labels: the classes to leave (n,); by default the predicted ones.
        settings: of foolbox, by attack, over those used here: {'carlini-wagner': {'steps': 100}}.
        chunk_size: inputs attacked at a time; an attack that stops when all of them have changed
            continues until the last has.

    Example: see docs/explanation/theory.md.
    """
    given = _ATTACKS if attacks is None else attacks
    wanted = [given] if isinstance(given, str) else list(given)
    require(len(wanted) > 0, "attacks", f"some of {list(_ATTACKS)}", "none", _LEAVE_OUT)
    _check_known("attacks", wanted)
    _check_known("settings", settings or {})
    check_chunk_size(chunk_size)
    clf = check_classifier(clf)
    inputs, limits = _plain_inputs(clf, x, bounds)
    foolbox = load_extra("foolbox", extra="attacks", purpose="A minimum-norm attack")
    net = _Logits(clf)
    with torch.inference_mode(False):
        model = foolbox.PyTorchModel(net, bounds=limits, device=inputs.device)
        with torch.no_grad():
            outputs = torch.cat([net(part.clone()) for part in torch.split(inputs, chunk_size)])
        leave = outputs.argmax(1)
        if labels is not None:
            leave = check_labels(labels, *outputs.shape).to(outputs.device)
        # foolbox asserts finite values for the whole batch: one bad row would cost all others
        usable = (finite_rows(inputs) & finite_rows(outputs)).nonzero().squeeze(1)
        found = {}
        for name in wanted:
            kind, own = _ATTACKS[name]
            attack = getattr(foolbox.attacks, kind)(**{**own, **(settings or {}).get(name, {})})
            found[name] = inputs.clone()
            for rows in torch.split(usable, chunk_size) if len(usable) else ():
                found[name][rows] = _run(attack, model, inputs[rows], leave[rows])
        return found


_LEAVE_OUT = "Leave it out for all attacks and their usual settings."


def _check_known(argument: str, names: Iterable[str]) -> None:
    unknown = [name for name in names if name not in _ATTACKS]
    require(not unknown, argument, f"some of {list(_ATTACKS)}", repr(unknown), _LEAVE_OUT)


def _plain_inputs(clf: Classifier, x: Array, bounds: Bounds) -> tuple[Tensor, Bounds]:
    plain = clf.space is None and clf.module is None
    expected = "a classifier of plain inputs: these attacks support no space or module"
    remedy = "Attack the same net by itself: Classifier(net)."
    require(plain, "clf", expected, "one with a space or a module", remedy)
    check_evaluation_mode(clf)
    inputs = check_batch(clf, x, "x")
    low, high = check_bounds(bounds, inputs) or (math.nan, math.nan)
    finite = math.isfinite(low) and math.isfinite(high)
    remedy = "The attacks need them; pass the range of the data, such as (0.0, 1.0)."
    require(finite, "bounds", "two finite numbers", repr(bounds), remedy)
    return inputs, (low, high)


class _Logits(nn.Module):
    """The classifier as foolbox wants it: a module in eval mode, safe to call backward on."""

    def __init__(self, clf: Classifier) -> None:
        super().__init__()
        self.classifier = clf
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        run = by_input_only(self.classifier.logits) if x.requires_grad else self.classifier.logits
        outputs = run(x)
        return self.classifier.loss.two_classes(outputs) if outputs.shape[1] == 1 else outputs


def _run(attack: Any, model: Any, x: Tensor, labels: Tensor) -> Tensor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # foolbox uses deprecated functions
        _, found, success = attack(model, x, labels, epsilons=None)
    # where Carlini-Wagner finds nothing it returns zeros, which count as a success if they happen
    # to be of another class
    good = success & (found != 0).flatten(1).any(1)
    moved: Tensor = torch.where(per_sample(good, x), found, x)
    return moved.detach()
