"""Looks at a model before it is used; every complaint comes with what to do.

The checks cost a handful of forwards of at most two samples. They run on finite samples only, so
that a bad row is left to its own status.
"""

from __future__ import annotations

import warnings
from itertools import chain

import torch
from torch import Tensor, nn

from credibly.errors import CrediblyWarning, InvalidArgumentError, ModelError
from credibly.model.batches import check_evaluation_mode
from credibly.model.classifier import Classifier
from credibly.model.derivatives import losses_and_pull, ordinary_path
from credibly.model.failures import failure
from credibly.model.inputs import finite_rows

NO_CHANCE = 10
"""Numbers that are all in [0, 1] are hardly logits if there are so many."""


def check_model(classifier: Classifier, x: Tensor) -> None:
    """Raise `ModelError` or `InvalidArgumentError` where the model cannot be used on `x`."""
    check_evaluation_mode(classifier)
    _check_no_inference_weights(classifier)
    usable = finite_rows(x).nonzero().squeeze(1)[:2]
    if len(usable) == 0:
        return
    devices = [x.device] if x.is_cuda else []
    with torch.random.fork_rng(devices=devices):  # a random model must not advance the generator
        rows = usable if len(usable) == 2 else usable.repeat(2)
        classifier, pair = classifier.select(rows), _different(x[rows])
        together = _outputs(classifier, pair, of=x)
        again = _outputs(classifier, pair, of=x)
        alone = torch.cat(
            [
                _outputs(classifier.select(one), pair[one], of=x)
                for one in (slice(0, 1), slice(1, 2))
            ]
        )
        with torch.inference_mode(False), torch.no_grad(), ordinary_path():
            raw = classifier.raw_outputs(pair.clone())
        rounding = _rounding(raw, together)
        _check_repeatable(together, again, rounding)
        _check_uncoupled(together, alone, rounding)
        _check_losses(classifier, together)
        _check_kind_of_outputs(classifier, raw)
        _check_gradient(classifier, pair, together)


def _different(pair: Tensor) -> Tensor:
    """Two samples that differ: equal ones cannot show that a model mixes them."""
    if not torch.equal(pair[0], pair[1]):
        return pair
    first = pair[:1]
    return torch.cat([first, torch.where(first == 0, 0.5, 0.5 * first)])


def _check_gradient(classifier: Classifier, x: Tensor, outputs: Tensor) -> None:
    try:
        pull = losses_and_pull(classifier, x, torch.clone).pull  # each loss pulls by its size
    except (ModelError, InvalidArgumentError):
        raise
    except Exception as error:
        raise ModelError(
            f"no gradient could be taken through the model: {type(error).__name__}: {error}",
            remedy="Every step from the input to the output must be differentiable and use "
            "tensors made outside of torch.inference_mode.",
        ) from error
    if not bool(pull.any()) and not torch.equal(outputs[0], outputs[1]):
        warnings.warn(
            "two inputs give different outputs, but the gradient is zero at both: the model looks "
            "flat, and such samples end as 'no gradient'. Look for rounding, sign, argmax or "
            "saturated probabilities in the model or its preprocess.",
            CrediblyWarning,
            stacklevel=4,
        )


def _outputs(classifier: Classifier, x: Tensor, *, of: Tensor) -> Tensor:
    """Outputs of the samples `x`; `of` is all that was passed, for words about a failure."""
    try:
        with torch.inference_mode(False), torch.no_grad(), ordinary_path():
            given = x.clone()
            writes = given._version  # noqa: SLF001  # autograd's own count of writes into a tensor
            outputs = classifier.logits(given)
    except (ModelError, InvalidArgumentError):
        raise
    except Exception as error:
        raise failure(classifier, x, of, error) from error
    if given._version != writes:  # noqa: SLF001
        raise ModelError(
            "the model writes into its input, in place",
            remedy="Make a new tensor: x = x - mean and not x -= mean, inplace=False in the first "
            "layer.",
        )
    return outputs


def _check_no_inference_weights(classifier: Classifier) -> None:
    if not isinstance(classifier.net, nn.Module):
        return
    for name, tensor in chain(classifier.net.named_parameters(), classifier.net.named_buffers()):
        if tensor.is_inference():
            raise ModelError(
                f"the tensor {name!r} was created inside torch.inference_mode and cannot take "
                "part in a gradient",
                remedy="Build or load the model outside of inference_mode.",
            )


def _check_repeatable(first: Tensor, second: Tensor, rounding: float) -> None:
    gap = _largest_gap(first, second)
    if gap > rounding:
        raise ModelError(
            f"the model is random: the same input gave outputs that differ by {gap:.3g}",
            remedy="Switch its randomness off (dropout, noise, sampling), or average it inside "
            "the callable with a fixed seed.",
        )


def _check_uncoupled(together: Tensor, alone: Tensor, rounding: float) -> None:
    gap = _largest_gap(together, alone)
    if gap > rounding:
        raise ModelError(
            "samples are coupled through the batch: one sample's output changes by "
            f"{gap:.3g} with the company it is in",
            remedy="Each row must be computed by itself. Look for statistics over the batch "
            "axis, or batch norm without running statistics.",
        )


def _check_losses(classifier: Classifier, outputs: Tensor) -> None:
    losses = classifier.losses_of(outputs)
    found = losses.shape[1]
    if bool((losses < 0).any()):
        raise InvalidArgumentError(
            "loss",
            expected="non-negative losses, whose negatives are credibilities",
            got=f"a smallest loss of {float(losses.nan_to_num(0.0).min()):.4g}",
            remedy="Add a constant, or use a loss that is zero at a perfect fit.",
        )
    if found < 2:
        raise ModelError(f"the loss gives {found} class", remedy="At least two classes are needed.")
    if classifier.classes is not None and len(classifier.classes) != found:
        raise InvalidArgumentError(
            "classes",
            expected=f"{found} names, one a class of the model",
            got=f"{len(classifier.classes)} names",
            remedy="Pass the names in the order of the model's outputs.",
        )


def _check_kind_of_outputs(classifier: Classifier, rows: Tensor) -> None:
    if not bool(torch.isfinite(rows).all()):
        return
    inside = bool((rows >= 0).all() and (rows <= 1).all())
    alone = rows.shape[1] == 1 or classifier.loss.separate
    sums = bool(((rows.sum(1) - 1).abs() < 1e-3).all())
    if classifier.outputs == "logits":
        whole = bool((rows == rows.round()).all())  # as of a model that answers nothing yet
        many = rows.numel() >= NO_CHANCE and not whole
        if inside and rows.shape[1] > 1 and (sums or many):
            _warn_of_probabilities(sums=sums)
        return
    if not (inside and (sums or alone)):
        raise ModelError(
            "the model was said to return probabilities, but a row of its output is "
            f"{[round(value, 4) for value in rows[0].tolist()[:5]]}",
            remedy="Probabilities lie in [0, 1] and, unless the loss is one-versus-rest, sum to "
            "one. If these are logits, leave out outputs='probabilities'.",
        )
    if bool((rows <= torch.finfo(rows.dtype).tiny).any()):
        warnings.warn(
            "some probabilities are rounded to zero, where they have no gradient; these classes "
            "will seem not to move. Pass the logits instead.",
            CrediblyWarning,
            stacklevel=4,
        )


def _warn_of_probabilities(*, sums: bool) -> None:
    found = "lies in [0, 1] and sums to one" if sums else "lies in [0, 1]"
    more = "" if sums else ", of a sigmoid with loss='logistic' as well"
    warnings.warn(
        f"every row of the model's output {found}. If these are probabilities, say "
        f"Classifier(..., outputs='probabilities') (--outputs probabilities){more}; they were "
        "taken as logits, as declared.",
        CrediblyWarning,
        stacklevel=5,
    )


def _largest_gap(first: Tensor, second: Tensor) -> float:
    gap = (first - second).abs()
    return float(gap[torch.isfinite(gap)].max()) if torch.isfinite(gap).any() else 0.0


def _rounding(raw: Tensor, outputs: Tensor) -> float:
    """Differences that other summation orders explain, on the scale of the outputs.

    A model may compute in less precision than it is given, so single precision is the least.
    """
    precision = max(torch.finfo(raw.dtype).eps, torch.finfo(torch.float32).eps)
    shortened = torch.backends.cudnn.allow_tf32 or torch.backends.cuda.matmul.allow_tf32
    if raw.is_cuda and shortened:  # TF32, on by default in convolutions, has ten bits
        precision = 2.0**-10
    scale = outputs[torch.isfinite(outputs)].abs()
    largest = float(scale.max()) if scale.numel() else 0.0
    return float(precision**0.5) * (1.0 + largest)
