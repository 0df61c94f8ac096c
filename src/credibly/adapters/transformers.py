"""Classification models of the transformers library, as they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from credibly._validation import require
from credibly.errors import ModelError
from credibly.model.batches import HALF
from credibly.model.classifier import Classifier
from credibly.model.generators import kept_generators
from credibly.model.losses import Loss
from credibly.model.space import Space

_TOKENS = "input_ids"


def from_transformers(
    model: Any,
    *,
    module: str | None = None,
    space: Space | None = None,
    classes: Sequence[str] | None = None,
    loss: str | Loss | None = None,
) -> Classifier:
    """A classification model of transformers; it takes what its tokenizer or processor returns.

    For text the word embeddings move, for images and sound the numbers themselves (`pixel_values`,
    `input_values`). Positions that the attention mask hides have no influence on the outputs, so
    they neither move nor count.

    Args:
        model: such as a `BertForSequenceClassification` or a `ViTForImageClassification`, in eval
            mode and in float32 or float64.
        module: name of another submodule whose output is moved instead.
        space: metric, locked features and bounds of what moves; see `Space`.
        classes: names of the classes; by default those of `model.config.id2label`.
        loss: by default cross-entropy, and the logistic loss where the configuration says
            'multi_label_classification'.

    Example: `credibility(from_transformers(model), tokenizer(texts, padding=True,
    return_tensors="pt"), gamma="auto")`; see docs/how-to/gallery/text.md.
    """
    config = _checked(model)
    if module is None and model.main_input_name == _TOKENS:
        module = _name_of_embedding(model)
    elif module is None and (space is None or space.vary is None):
        space = replace(space or Space(), vary=model.main_input_name)
    if model.main_input_name == _TOKENS and config.pad_token_id is None:
        _check_padding(model)
    if loss is None:
        several = config.problem_type == "multi_label_classification"
        loss = "logistic" if several else "cross_entropy"
    names = [config.id2label[k] for k in range(config.num_labels)] if classes is None else classes
    return Classifier(
        model, classes=names, loss=loss, module=module, space=space, unpack=True, pick=_logits
    )


def _logits(found: Any) -> Tensor:
    """The logits of what the model returns: an object, or a tuple where return_dict is off."""
    logits: Tensor = found.logits if hasattr(found, "logits") else found[0]
    return logits


def _checked(model: Any) -> Any:
    """The configuration of a model that can be used."""
    wrapped = hasattr(getattr(model, "module", None), "main_input_name")
    good = hasattr(model, "main_input_name") and hasattr(model, "get_input_embeddings")
    require(
        isinstance(model, nn.Module) and good,
        "model",
        "a classification model of transformers",
        model if isinstance(model, str) else type(model).__name__,
        "Take the model out of its wrapper: model.module."
        if wrapped
        else "Load it first, such as AutoModelForSequenceClassification.from_pretrained(). "
        "Pass other networks to Classifier.",
    )
    if "Classification" not in type(model).__name__ or "Token" in type(model).__name__:
        raise ModelError(
            f"{type(model).__name__} does not classify whole inputs",
            remedy="Use a ...ForSequenceClassification, ...ForImageClassification or "
            "...ForAudioClassification model, or wrap it: Classifier(model, pick=...).",
        )
    config = model.config
    problem = getattr(config, "problem_type", None)
    if problem == "regression" or config.num_labels < 2:
        raise ModelError(
            f"the model has {config.num_labels} output(s) and problem_type={problem!r}, which "
            "means regression in transformers",
            remedy="Wrap a binary head of one logit yourself: Classifier(model, unpack=True, "
            "pick=lambda found: found.logits, module=...).",
        )
    half = next((p.dtype for p in model.parameters() if p.dtype in HALF), None)
    if half is not None:
        raise ModelError(
            f"the model is in {half}, whose rounding is larger than the trade-off",
            remedy="Convert it: model.float(), or load it with dtype=torch.float32.",
        )
    return config


def _name_of_embedding(model: Any) -> str:
    embedding = model.get_input_embeddings()
    found: list[str] = [n for n, part in model.named_modules() if part is embedding and n]
    if not found:
        raise ModelError(
            f"the input embedding of {type(model).__name__} is not one of its submodules",
            remedy="Name the part to move: from_transformers(model, module=...).",
        )
    return found[0]


def _check_padding(model: Any) -> None:
    """Try two short texts: models that read the last word must know which ones are padding."""
    device = next(model.parameters()).device
    pair = torch.zeros(2, 1, dtype=torch.long, device=device)
    try:
        with kept_generators(device), torch.inference_mode(False), torch.no_grad():
            model(input_ids=pair)
    except ValueError as error:
        raise ModelError(
            f"{type(model).__name__} takes no batches: {error}",
            remedy="Set model.config.pad_token_id = tokenizer.pad_token_id; GPT-2 has none, so set "
            "tokenizer.pad_token = tokenizer.eos_token first.",
        ) from error
