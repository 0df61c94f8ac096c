"""A trained model seen as one callable: inputs -> outputs -> losses for every class."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from os import PathLike
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from credibly.errors import InvalidArgumentError, ModelError
from credibly.model.failures import no_tensor
from credibly.model.losses import Loss, resolve_loss
from credibly.model.space import Space
from credibly.types import Bounds, Limits, Model

Outputs = Literal["logits", "probabilities"]


class Classifier:
    """A trained classifier, wrapped; the model itself is never changed.

    Args:
        net: an `nn.Module`, a function, or a `torch.export` program. It takes a batch (n, ...)
            and returns outputs (n, m), or (n,) or (n, 1) from a binary head of one logit, whose
            two classes are then 0 (negative logit) and 1 (positive).
        preprocess: applied to a batch before `net`. The risk is measured *before* it, in the
            space of the inputs you pass; so is gamma.
        classes: names of the K classes, for tables and pictures.
        loss: 'cross_entropy', 'logistic', 'hinge', 'one_versus_rest_hinge' or a `Loss`.
        outputs: what `net` returns: 'logits' (real numbers of any size) or 'probabilities' (rows
            that sum to one, whose logarithm is taken; with a one-versus-rest loss each in [0, 1] by
            itself). It is asked, never guessed from values. Logits are better: a probability that
            is rounded to zero has no gradient any more.
        device: where inputs must lie; by default where the parameters lie.
        dtype: precision of inputs; by default that of the parameters.
        space: which parts of the input may move, and how dear each feature is; see `Space`. With
            it, inputs may be mappings, lists and tuples of tensors.
        module: name of a submodule of `net`, such as 'embeddings': its output is moved instead of
            the input, which then may be anything (token numbers, say); `space` applies to it. What
            comes before that module still runs in every pass: where it is most of the model, wrap
            the rest by itself and pass it the features.
        unpack: whether a mapping is passed to `net` as keywords and a list or tuple as positional
            arguments, instead of as one argument.
        pick: takes what `net` returns and gives the outputs (n, m), such as
            `lambda found: found.logits`.
    """

    def __init__(
        self,
        net: Model | torch.export.ExportedProgram,
        *,
        preprocess: Callable[[Tensor], Tensor] | None = None,
        classes: Sequence[str] | None = None,
        loss: str | Loss = "cross_entropy",
        outputs: Outputs = "logits",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        space: Space | None = None,
        module: str | None = None,
        unpack: bool = False,
        pick: Callable[[Any], Tensor] | None = None,
    ) -> None:
        self.net: Model = net.module() if isinstance(net, torch.export.ExportedProgram) else net
        _check_arguments(self.net, preprocess, outputs, dtype)
        _check_pick(pick)
        _check_space(space)
        self.preprocess = preprocess
        self.classes = _class_names(classes)
        self.loss = resolve_loss(loss)
        self.outputs: Outputs = outputs
        self.space, self.module = space, _checked_module(self.net, module)
        self.unpack, self.pick = unpack, pick
        found = _floating_tensor(self.net)
        self.device = found.device if device is None and found is not None else None
        if device is not None:
            self.device = _device(device)
        self.dtype = found.dtype if dtype is None and found is not None else dtype

    def logits(self, x: Tensor) -> Tensor:
        """Outputs of the model (n, m) as logits, in the precision of the inputs."""
        outputs = self.raw_outputs(x).to(x.dtype)
        if self.outputs == "logits":
            return outputs
        tiny = torch.finfo(outputs.dtype).tiny
        if outputs.shape[1] == 1 or self.loss.separate:
            return outputs.clamp(min=tiny).log() - (1 - outputs).clamp(min=tiny).log()
        return outputs.clamp(min=tiny).log()

    def raw_outputs(self, x: Any) -> Tensor:
        """What the model itself returns, as (n, m)."""
        return self.one_row_per_sample(self.run(x), len(x))

    def run(self, x: Any) -> Any:
        """Call the model on a whole input, preprocessed."""
        prepared = x if self.preprocess is None else self.preprocess(x)
        if self.unpack and isinstance(prepared, Mapping):
            found = self.net(**prepared)
        elif self.unpack and isinstance(prepared, list | tuple):
            found = self.net(*prepared)
        else:
            found = self.net(prepared)
        return found if self.pick is None else self.pick(found)

    def select(self, rows: Tensor | slice) -> Classifier:  # noqa: ARG002  # for those that need it
        """The classifier for the chosen samples: itself, unless it was bound to inputs."""
        return self

    def encode(self, values: Tensor) -> Tensor:
        """What is solved for, from what was passed: the same, unless there is a space."""
        return values

    def decode(self, variable: Tensor) -> Tensor:
        """The inverse of `encode`."""
        return variable

    def based_at(self, values: Tensor) -> Classifier:  # noqa: ARG002  # for those that need it
        """The classifier around these values: itself, unless it was bound to others."""
        return self

    def free_values(self, variable: Tensor) -> Tensor:
        """Those of the values that may move, which are the ones that bounds are about."""
        return self.decode(variable)

    def limits(self, bounds: Bounds | None) -> Limits | None:
        """Bounds of what is solved for."""
        return bounds

    def space_name(self) -> str:
        """What moves, in words, for the record."""
        return "inputs"

    def losses_of(self, logits: Tensor) -> Tensor:
        """Losses (n, K) of given outputs (n, m)."""
        if logits.shape[1] == 1:
            logits = self.loss.two_classes(logits)
        losses = self.loss(logits)
        if not isinstance(losses, Tensor) or losses.dim() != 2 or len(losses) != len(logits):
            raise InvalidArgumentError(
                "loss",
                expected=f"a loss that maps outputs {tuple(logits.shape)} to losses "
                f"({len(logits)}, K)",
                got=f"shape {tuple(losses.shape)}"
                if isinstance(losses, Tensor)
                else type(losses).__name__,
                remedy="Return one row a sample and one column a class, without averaging.",
            )
        return losses

    def losses(self, x: Tensor) -> Tensor:
        """Losses (n, K) of inputs (n, ...): one forward pass."""
        return self.losses_of(self.logits(x))

    def class_name(self, index: int) -> str:
        """Name of a class, or its number where no names were given."""
        return str(index) if self.classes is None else self.classes[index]

    def __repr__(self) -> str:
        name = type(self.net).__name__
        name = getattr(self.net, "__name__", name) if name == "function" else name
        return (
            f"Classifier({name}, loss={self.loss!r}, outputs={self.outputs!r}, "
            f"device={self.device}, dtype={self.dtype})"
        )

    def one_row_per_sample(self, outputs: object, count: int) -> Tensor:
        """Outputs as (n, m), or an error that says what came instead."""
        if not isinstance(outputs, Tensor):
            raise no_tensor(outputs)
        if not outputs.is_floating_point():
            raise ModelError(
                f"the model returned numbers of type {outputs.dtype}, which have no derivative",
                remedy="Return logits or probabilities; leave out argmax and rounding.",
            )
        if outputs.dim() == 1 and len(outputs) == count:
            outputs = outputs.unsqueeze(1)
        if outputs.dim() != 2 or len(outputs) != count:
            raise ModelError(
                f"the model returned shape {tuple(outputs.shape)} for a batch of {count} samples",
                remedy="It must return (n, m): one row a sample, one column a class (or one "
                "logit for a binary head).",
            )
        return outputs


def _check_arguments(
    net: object,
    preprocess: Callable[[Tensor], Tensor] | None,
    outputs: str,
    dtype: torch.dtype | None,
) -> None:
    if dtype is not None and not isinstance(dtype, torch.dtype):
        raise InvalidArgumentError(
            "dtype",
            expected="a torch.dtype such as torch.float32",
            got=repr(dtype),
            remedy="Leave it out to use the precision of the model's parameters.",
        )
    if not callable(net):
        raise InvalidArgumentError(
            "net",
            expected="a callable from inputs to outputs",
            got=f"{type(net).__name__}",
            remedy=_instead_of(net),
        )
    if preprocess is not None and not callable(preprocess):
        raise InvalidArgumentError(
            "preprocess",
            expected="a callable from a batch to a batch, or None",
            got=f"{type(preprocess).__name__}",
            remedy="Pass a function such as lambda x: (x - mean) / std.",
        )
    if outputs not in ("logits", "probabilities"):
        raise InvalidArgumentError(
            "outputs",
            expected="'logits' or 'probabilities'",
            got=repr(outputs),
            remedy="Log-probabilities are logits.",
        )


def _check_pick(pick: object) -> None:
    if pick is None or callable(pick):
        return
    by_name = f"found.{pick}" if isinstance(pick, str) and pick.isidentifier() else "found[0]"
    raise InvalidArgumentError(
        "pick",
        expected="a callable from what the model returns to its outputs, or None",
        got=repr(pick),
        remedy=f"Pass a function: pick=lambda found: {by_name}.",
    )


def _instead_of(net: object) -> str:
    """What to pass instead of something that cannot be called."""
    if isinstance(net, Mapping) and any(isinstance(value, Tensor) for value in net.values()):
        return (
            "Weights alone are no model: load them into your module first, with "
            "net.load_state_dict(...), and pass net."
        )
    if isinstance(net, str | PathLike):
        return "Load it first: credibly.load_classifier(...), or your own torch code."
    if hasattr(net, "fit") and hasattr(net, "predict"):
        return "Of a fitted scikit-learn model make a twin: credibly.from_sklearn(model)."
    return "Pass an nn.Module, a function or a torch.export program."


def _check_space(space: object) -> None:
    if space is not None and not isinstance(space, Space):
        raise InvalidArgumentError(
            "space",
            expected="a credibly.Space, or None",
            got=type(space).__name__,
            remedy="For example Space(scale=deviations, locked=['sex'], columns=names).",
        )


def _checked_module(net: object, name: str | None) -> str | None:
    if name is None:
        return None
    known = [part for part, _ in net.named_modules() if part] if isinstance(net, nn.Module) else []
    if name not in known:
        close = get_close_matches(str(name), known, n=3, cutoff=0.3) or known[:5]
        raise InvalidArgumentError(
            "module",
            expected="the name of a submodule of `net`, an nn.Module",
            got=repr(name),
            remedy=f"Look at net.named_modules(); close ones are {close}.",
        )
    return name


def _class_names(classes: Sequence[str] | None) -> tuple[str, ...] | None:
    if classes is None:
        return None
    ordered = isinstance(classes, Sequence | np.ndarray) and not isinstance(classes, str | bytes)
    names = tuple(str(name) for name in classes) if ordered else ()
    if not ordered or len(set(names)) < len(names):
        raise InvalidArgumentError(
            "classes",
            expected="a sequence of different names, one a class",
            got=repr(classes),
            remedy="Pass a list of strings in the order of the model's outputs.",
        )
    return names


def _device(device: torch.device | str) -> torch.device:
    try:
        return torch.device(device)
    except (RuntimeError, TypeError) as error:
        raise InvalidArgumentError(
            "device",
            expected="a device such as 'cpu' or 'cuda:0'",
            got=repr(device),
            remedy="Leave it out to use the device of the model's parameters.",
        ) from error


def _floating_tensor(net: object) -> Tensor | None:
    """Any floating tensor of the model: it tells device and precision."""
    if not isinstance(net, nn.Module):
        return None
    tensors = [*net.parameters(), *net.buffers()]
    return next((tensor for tensor in tensors if tensor.is_floating_point()), None)
