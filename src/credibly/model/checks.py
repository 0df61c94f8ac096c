"""Check a model before it is used; every error says what to do.

The checks cost a handful of forwards of at most two samples. They use finite samples only; a row
with NaN or infinity is left to its own status.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from itertools import chain

import torch
from torch import Tensor, nn

from credibly._validation import require
from credibly.errors import CrediblyWarning, InvalidArgumentError, ModelError
from credibly.model.batches import check_evaluation_mode, float_tokens, unlike_units
from credibly.model.classifier import Classifier
from credibly.model.derivatives import losses_and_pull, ordinary_path
from credibly.model.generators import kept_generators, watch_for_draws
from credibly.model.variable import Inputs, Variable
from credibly.types import finite_rows

NO_CHANCE = 10
"""So many numbers that are all in [0, 1] are hardly logits."""

BRIGHT = 128
"""Images of whole numbers up to 255 are bytes if one of them is at least this."""


def check_model(variable: Variable) -> None:
    """Refuse a model that cannot be used on what moves."""
    clf, start = variable.clf, variable.start
    check_evaluation_mode(clf)
    _check_no_inference_weights(clf)
    usable = finite_rows(start).nonzero().squeeze(1)[:2]
    if len(usable) == 0:
        return
    with kept_generators(start.device) as kept:  # a random model must not advance them
        rows = usable if len(usable) == 2 else usable.repeat(2)
        chosen, pair = variable.select(rows), _different(start[rows])
        raw = _outputs(chosen, pair, start)
        repeated, draws = watch_for_draws(lambda: _outputs(chosen, pair, start))
        kept.learn(draws=draws)
        halves = (slice(0, 1), slice(1, 2))
        single = torch.cat([_outputs(chosen.select(one), pair[one], start) for one in halves])
        together, again, alone = (
            clf.as_logits(outputs.to(pair.dtype)) for outputs in (raw, repeated, single)
        )
        _check_rows(together, again, alone, _rounding(raw, together))
        _check_losses(clf, together)
        _check_kind_of_outputs(clf, raw)
        _check_gradient(chosen, pair, together)
    _warn_of_bytes(variable, start)
    _warn_of_units(variable)


def _different(pair: Tensor) -> Tensor:
    """Two samples that differ: equal ones cannot show that a model mixes them."""
    if not torch.equal(pair[0], pair[1]):
        return pair
    first = pair[:1]
    return torch.cat([first, torch.where(first == 0, 0.5, 0.5 * first)])


def _check_gradient(variable: Variable, x: Tensor, outputs: Tensor) -> None:
    try:
        pull = losses_and_pull(variable, x, torch.clone).pull  # each loss pulls by its size
    except (ModelError, InvalidArgumentError):
        raise
    except Exception as error:
        raise ModelError(
            f"no gradient could be taken through the model: {type(error).__name__}: {error}",
            remedy="Every step from the input to the output must be differentiable and use "
            "tensors made outside of torch.inference_mode.",
        ) from error
    if not bool(pull.any()) and not torch.equal(outputs[0], outputs[1]):
        _warn(
            "two inputs give different outputs, but the gradient is zero at both: the model looks "
            "flat, and such samples end as 'no gradient'. Look for rounding, sign, argmax or "
            "saturated probabilities in the model or its preprocess."
        )


def _outputs(variable: Variable, x: Tensor, passed: Tensor) -> Tensor:
    """What the model returns for the samples x, which were taken from all that were `passed`."""
    try:
        with torch.inference_mode(False), torch.no_grad(), ordinary_path():
            given = x.clone()
            writes = given._version  # noqa: SLF001  # autograd's own count of writes into a tensor
            outputs = variable.raw_outputs(given)
    except (ModelError, InvalidArgumentError):
        raise
    except Exception as error:
        raise _failure(variable, x, passed, error) from error
    if given._version != writes:  # noqa: SLF001
        raise ModelError(
            "the model writes into its input, in place",
            remedy="Make a new tensor: x = x - mean and not x -= mean, inplace=False in the first "
            "layer.",
        )
    return outputs


def _failure(variable: Variable, tried: Tensor, passed: Tensor, error: Exception) -> ModelError:
    where = f"a batch of shape {tuple(tried.shape)}"
    if len(passed) != len(tried):
        where += f" (made from x of shape {tuple(passed.shape)})"
    remedy = float_tokens(variable.clf, error) or _working_shape(variable, passed)
    return ModelError(
        f"the model failed on {where} with {type(error).__name__}: {error}",
        remedy=remedy or _hints(variable.clf, error),
    )


def _working_shape(variable: Variable, passed: Tensor) -> str | None:
    """Where the model works on the same numbers in another shape, say which."""
    if not isinstance(variable.innermost, Inputs):
        return None  # what moves need not be what was passed
    for code, meaning, x in _other_shapes(passed):
        try:
            with torch.no_grad():
                variable.clf.raw_outputs(x.clone())
        except Exception:  # noqa: BLE001, S112  # a model may raise anything
            continue
        return f"It works on {code}: pass that if {meaning}."
    return None


def _other_shapes(x: Tensor) -> Iterator[tuple[str, str, Tensor]]:
    shape, two = tuple(x.shape), x[:2]
    yield "x[None]", f"this is one sample of shape {shape}", x[None]
    yield "x[:, None]", f"these are {shape[0]} samples of one channel", two[:, None]
    if x.dim() == 4:
        yield "x.permute(0, 3, 1, 2)", "the channels are last", two.permute(0, 3, 1, 2)
    if x.dim() > 2:
        yield "x.flatten(1)", "the model takes flat inputs", two.flatten(1)
        return
    for channels in (1, 3):
        side = math.isqrt(shape[1] // channels)
        if channels * side * side == shape[1] and side > 1:
            image = (-1, channels, side, side)
            yield f"x.reshape{image}", "these are flat images", two.reshape(image)


def _hints(clf: Classifier, error: Exception) -> str:
    hints = [
        "Try it yourself with x[:1] and x[:2]: it must take batches of any size, sample axis first."
    ]
    if "training" in str(error):
        hints.append("Batch norm and dropout must be in eval mode: call net.eval().")
    if isinstance(clf.net, torch.fx.GraphModule):
        hints.append("A torch.export program needs a dynamic batch dimension.")
    if clf.unpack:
        hints.append("With unpack=True a mapping is passed as keywords, a tuple as positions.")
    elif isinstance(error, TypeError) and "positional argument" in str(error):
        hints.append(
            "A model of several arguments takes a mapping of them, or a tuple, by "
            "Classifier(net, unpack=True, space=Space(vary=...))."
        )
    return " ".join(hints)


def _warn_of_bytes(variable: Variable, x: Tensor) -> None:
    """Warn of images whose floats are bytes, if nothing rescales them."""
    image = isinstance(variable.innermost, Inputs) and x.dim() == 4 and x.shape[1] in (1, 3, 4)
    if not image or variable.clf.preprocess is not None:
        return
    some, most = x[:8], float(x[:8].max())
    if BRIGHT <= most <= 255 and bool(((some >= 0) & (some == some.round())).all()):
        _warn(
            f"the inputs are whole numbers from {float(some.min()):g} to {most:g}, as bytes of "
            "images are. If the model was trained on [0, 1], divide them by 255, or pass "
            "Classifier(net, preprocess=lambda x: x / 255)."
        )


def _warn_of_units(variable: Variable) -> None:
    """Warn of columns that hardly share a unit, if nothing brings them to one scale."""
    said = unlike_units(variable.clf, variable.values) if variable.moves == "inputs" else None
    if said is not None:
        _warn(said)


def _warn(message: str) -> None:
    warnings.warn(message, CrediblyWarning, stacklevel=5)


def _check_no_inference_weights(clf: Classifier) -> None:
    if not isinstance(clf.net, nn.Module):
        return
    for name, tensor in chain(clf.net.named_parameters(), clf.net.named_buffers()):
        if tensor.is_inference():
            raise ModelError(
                f"the tensor {name!r} was created inside torch.inference_mode and cannot take "
                "part in a gradient",
                remedy="Build or load the model outside of inference_mode.",
            )


def _check_rows(together: Tensor, again: Tensor, alone: Tensor, rounding: float) -> None:
    """Each row must be a function of its own sample and nothing else."""
    gap = _largest_gap(together, again)
    if gap > rounding:
        raise ModelError(
            f"the model is random: the same input gave outputs that differ by {gap:.3g}",
            remedy="Switch its randomness off (dropout, noise, sampling), or average it inside "
            "the callable with a fixed seed.",
        )
    gap = _largest_gap(together, alone)
    if gap > rounding:
        raise ModelError(
            "samples are coupled through the batch: one sample's output changes by "
            f"{gap:.3g} depending on the batch",
            remedy="Each row must be computed by itself. Look for statistics over the batch "
            "axis, or batch norm without running statistics.",
        )


def _check_losses(clf: Classifier, outputs: Tensor) -> None:
    losses = clf.losses_of(outputs)
    found = losses.shape[1]
    require(
        not bool((losses < 0).any()),
        "loss",
        "non-negative losses, whose negatives are credibilities",
        f"a smallest loss of {float(losses.nan_to_num(0.0).min()):.4g}",
        "Add a constant, or use a loss that is zero at a perfect fit.",
    )
    if found < 2:
        raise ModelError(f"the loss gives {found} class", remedy="At least two classes are needed.")
    names = len(clf.classes or ())
    expected = f"{found} names, one per class of the model"
    remedy = "Pass the names in the order of the model's outputs."
    require(clf.classes is None or names == found, "classes", expected, f"{names} names", remedy)


def _check_kind_of_outputs(clf: Classifier, rows: Tensor) -> None:
    """Compare what the model returns with what it was declared to return."""
    if not bool(torch.isfinite(rows).all()):
        return
    inside = bool((rows >= 0).all() and (rows <= 1).all())
    sums = bool(((rows.sum(1) - 1).abs() < 1e-3).all())
    single = rows.shape[1] == 1
    if clf.outputs == "logits":
        whole = bool((rows == rows.round()).all())  # such as an untrained model that returns zeros
        many = rows.numel() >= NO_CHANCE and not whole
        if inside and not single and (sums or many):
            found = "lies in [0, 1] and sums to one" if sums else "lies in [0, 1]"
            more = "" if sums else ", with loss='logistic' if they are from a sigmoid"
            _warn(
                f"every row of the model's output {found}. If these are probabilities, say "
                f"Classifier(..., outputs='probabilities') (--outputs probabilities){more}; they "
                "were taken as logits, as declared."
            )
        return
    if not (inside and (sums or single or clf.loss.separate)):
        raise ModelError(
            "the model was declared to return probabilities, but a row of its output is "
            f"{[round(value, 4) for value in rows[0].tolist()[:5]]}",
            remedy="Probabilities lie in [0, 1] and, unless the loss is one-versus-rest, sum to "
            "one. If these are logits, leave out outputs='probabilities'.",
        )
    if bool((rows <= torch.finfo(rows.dtype).tiny).any()):
        _warn(
            "some probabilities are rounded to zero, where they have no gradient; these classes "
            "will seem not to move. Pass the logits instead."
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
