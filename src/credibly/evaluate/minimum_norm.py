"""Minimum-norm attacks from foolbox: the nearest inputs of another class that they find."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from credibly.errors import InvalidArgumentError, MissingExtraError
from credibly.model.batches import check_batch
from credibly.model.classifier import Classifier
from credibly.types import Array, Bounds

_ATTACKS = {
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
    labels: Tensor | None = None,
) -> dict[str, Tensor]:
    """The nearest inputs of another class that each attack finds, for `try_tradeoff(others=...)`.

    Where an attack fails, the input itself stands.

    Args:
        clf: the classifier; needs the extra 'attacks' (foolbox).
        x: inputs (n, ...).
        bounds: smallest and largest value of a feature, such as (0.0, 1.0).
        attacks: some of 'deepfool', 'carlini-wagner', 'decoupled direction and norm'; None: all.
        labels: the classes to leave (n,); by default the predicted ones.
    """
    foolbox = _foolbox()
    inputs = check_batch(clf, x, "x")
    wanted = list(_ATTACKS) if attacks is None else list(attacks)
    unknown = [name for name in wanted if name not in _ATTACKS]
    if unknown:
        raise InvalidArgumentError(
            "attacks", expected=f"some of {list(_ATTACKS)}", came=repr(unknown), remedy="Spell it."
        )
    net = _Logits(clf)
    model = foolbox.PyTorchModel(net, bounds=bounds, device=inputs.device)
    with torch.inference_mode(False):
        if labels is None:
            with torch.no_grad():
                labels = net(inputs).argmax(1)
        return {name: _run(foolbox, name, model, inputs.clone(), labels) for name in wanted}


class _Logits(nn.Module):
    """The classifier as foolbox wants it: a module in eval mode."""

    def __init__(self, clf: Classifier) -> None:
        super().__init__()
        self.classifier = clf
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        outputs = self.classifier.logits(x)
        return self.classifier.loss.two_classes(outputs) if outputs.shape[1] == 1 else outputs


def _run(foolbox: Any, name: str, model: Any, x: Tensor, labels: Tensor) -> Tensor:
    kind, settings = _ATTACKS[name]
    attack = getattr(foolbox.attacks, kind)(**settings)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # foolbox warns of deprecated calls of its own
        _, found, success = attack(model, x, labels, epsilons=None)
    moved: Tensor = torch.where(success.reshape(-1, *[1] * (x.dim() - 1)), found, x)
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
