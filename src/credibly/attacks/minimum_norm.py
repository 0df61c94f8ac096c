"""Minimum-norm attacks from foolbox: the nearest inputs of another class that they find."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from credibly.decide.arguments import plain_labels
from credibly.errors import InvalidArgumentError, MissingExtraError
from credibly.model.batches import check_batch, check_classifier, check_evaluation_mode
from credibly.model.bound import Bound
from credibly.model.classifier import Classifier
from credibly.model.inputs import finite_rows
from credibly.profile.arguments import check_bounds, check_chunk_size
from credibly.types import Array, Bounds, Labels, per_sample

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

    Where an attack fails, the input itself stands.

    Args:
        clf: the classifier; needs the extra 'attacks' (foolbox).
        x: inputs (n, ...).
        bounds: smallest and largest value of a feature, such as (0.0, 1.0).
        attacks: some of 'deepfool', 'carlini-wagner', 'decoupled direction and norm'; None: all.
        labels: the classes to leave (n,); by default the predicted ones.
        settings: of foolbox, by attack, over those used here: {'carlini-wagner': {'steps': 100}}.
        chunk_size: inputs attacked at a time; an attack that stops when all of them have changed
            goes on for the last.
    """
    wanted = _wanted(attacks)
    chosen = _settings(settings)
    check_chunk_size(chunk_size)
    inputs, limits = _plain_inputs(clf, x, bounds)
    foolbox, net = _foolbox(), _Logits(clf)
    with torch.inference_mode(False), _gradients_kept(clf):
        model = foolbox.PyTorchModel(net, bounds=limits, device=inputs.device)
        with torch.no_grad():
            outputs = torch.cat([net(part.clone()) for part in torch.split(inputs, chunk_size)])
        leave = outputs.argmax(1) if labels is None else _labels(labels, outputs)
        # foolbox asserts finite values for the whole batch: one bad row would cost all others
        usable = (finite_rows(inputs) & finite_rows(outputs)).nonzero().squeeze(1)
        found = {}
        for name in wanted:
            attack = getattr(foolbox.attacks, _ATTACKS[name][0])(**chosen[name])
            found[name] = inputs.clone()
            for rows in torch.split(usable, chunk_size) if len(usable) else ():
                found[name][rows] = _run(attack, model, inputs[rows], leave[rows])
        return found


def _wanted(attacks: Sequence[str] | None) -> list[str]:
    wanted = (
        list(_ATTACKS) if attacks is None else [attacks] if isinstance(attacks, str) else attacks
    )
    unknown = [name for name in wanted if name not in _ATTACKS]
    if unknown or not wanted:
        raise InvalidArgumentError(
            "attacks",
            expected=f"some of {list(_ATTACKS)}",
            got=repr(unknown),
            remedy="Leave it out for all of them.",
        )
    return list(wanted)


def _settings(given: Mapping[str, Mapping[str, Any]] | None) -> dict[str, dict[str, Any]]:
    asked = given or {}
    unknown = [name for name in asked if name not in _ATTACKS]
    if unknown:
        raise InvalidArgumentError(
            "settings",
            expected=f"settings of some of {list(_ATTACKS)}",
            got=repr(unknown),
            remedy="Leave it out for those of this package.",
        )
    return {name: {**own, **asked.get(name, {})} for name, (_, own) in _ATTACKS.items()}


def _plain_inputs(clf: Classifier, x: Array, bounds: Bounds) -> tuple[Tensor, Bounds]:
    check_classifier(clf)
    if isinstance(clf, Bound) or clf.space is not None or clf.module is not None:
        raise InvalidArgumentError(
            "clf",
            expected="a classifier of plain inputs: these attacks know no space or module",
            got=clf.space_name() if isinstance(clf, Bound) else "one with a space or a module",
            remedy="Attack the same net by itself: Classifier(net).",
        )
    check_evaluation_mode(clf)
    inputs = check_batch(clf, x, "x")
    limits = check_bounds(bounds, inputs)
    if limits is None or not all(map(math.isfinite, limits)):
        raise InvalidArgumentError(
            "bounds",
            expected="two finite numbers",
            got=repr(bounds),
            remedy="The attacks need them; pass the range of the data, such as (0.0, 1.0).",
        )
    return inputs, limits


def _labels(labels: Labels, outputs: Tensor) -> Tensor:
    given = plain_labels(labels)
    whole = not given.is_floating_point() and given.dtype != torch.bool
    right = whole and given.shape == outputs.shape[:1]
    if not right or bool(((given < 0) | (given >= outputs.shape[1])).any()):
        raise InvalidArgumentError(
            "labels",
            expected=f"{len(outputs)} class numbers below {outputs.shape[1]}",
            got=f"shape {tuple(given.shape)} of {given.dtype}",
            remedy="Leave it out for the predicted classes.",
        )
    return given.to(outputs.device).long()


@contextmanager
def _gradients_kept(clf: Classifier) -> Iterator[None]:
    """Foolbox calls backward, which adds to the gradients of parameters: they are put back."""
    parameters = list(clf.net.parameters()) if isinstance(clf.net, nn.Module) else []
    before = [parameter.grad for parameter in parameters]
    for parameter in parameters:
        parameter.grad = None
    try:
        yield
    finally:
        for parameter, gradient in zip(parameters, before, strict=True):
            parameter.grad = gradient


class _Logits(nn.Module):
    """The classifier as foolbox wants it: a module in eval mode."""

    def __init__(self, clf: Classifier) -> None:
        super().__init__()
        self.classifier = clf
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        outputs = self.classifier.logits(x)
        return self.classifier.loss.two_classes(outputs) if outputs.shape[1] == 1 else outputs


def _run(attack: Any, model: Any, x: Tensor, labels: Tensor) -> Tensor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # foolbox warns of deprecated calls of its own
        _, found, success = attack(model, x, labels, epsilons=None)
    # Carlini-Wagner returns zeros where it found nothing, and foolbox takes them for a success
    # wherever they happen to be of another class
    good = success & (found != 0).flatten(1).any(1)
    moved: Tensor = torch.where(per_sample(good, x), found, x)
    return moved.detach()


def _foolbox() -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it imports a deprecated place of SciPy
            import foolbox
    except ImportError as error:
        raise MissingExtraError(
            package="foolbox", extra="attacks", purpose="A minimum-norm attack"
        ) from error
    return foolbox
