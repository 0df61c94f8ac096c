"""A trained model seen as one callable: inputs -> outputs -> losses for every class."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from difflib import get_close_matches
from typing import Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor, nn

from credibly._validation import choice, require
from credibly.errors import InvalidArgumentError, ModelError
from credibly.model.losses import Loss, resolve_loss
from credibly.model.no_models import check_callables, not_a_tensor
from credibly.model.recorded import Recorder
from credibly.model.space import Space
from credibly.model.watched import Watched
from credibly.types import Model

Outputs = Literal["logits", "probabilities"]


class Classifier:
    """A trained classifier, wrapped; the model itself is never changed.

    Args:
        net: an `nn.Module`, a function, or a `torch.export` program. It takes a batch (n, ...)
            and returns outputs (n, m). A binary head returns one logit, (n,) or (n, 1); its classes
            are 0 (negative logit) and 1 (positive). `predict` gives the classes of either form.
        preprocess: applied to a batch before `net`. The risk is measured *before* it, in the
            space of the inputs you pass; so is gamma.
        classes: names of the K classes, for tables and pictures.
        loss: 'cross_entropy', 'logistic', 'hinge', 'one_versus_rest_hinge' or a `Loss`.
        outputs: what `net` returns: 'logits' (real numbers of any size) or 'probabilities' (rows
            that sum to one; with a one-versus-rest loss each in [0, 1]). Logits are better: a
            probability rounded to zero has no gradient.
        device: where inputs must be; by default the device of the parameters.
        dtype: precision of inputs; by default that of the parameters.
        space: which parts of the input may move, and what moving each feature costs; see `Space`.
            With it, inputs may be mappings, lists and tuples of tensors.
        module: name of a submodule of `net`, such as 'embeddings': its output is moved instead of
            the input, which may then be anything, such as token ids; `space` applies to it. What
            comes before that module still runs in every pass: if it is most of the model, wrap the
            rest by itself and pass it the features.
        unpack: whether a mapping is passed to `net` as keywords and a list or tuple as positional
            arguments, instead of as one argument.
        pick: takes what `net` returns and gives the outputs (n, m), such as
            `lambda found: found.logits`.

    Example:
        >>> import torch, credibly as cr
        >>> net = torch.nn.Linear(4, 3)
        >>> clf = cr.Classifier(net, classes=["cat", "dog", "owl"])
        >>> clf.losses(torch.zeros(2, 4)).shape, clf.predict(torch.zeros(2, 4)).shape
        (torch.Size([2, 3]), torch.Size([2]))
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
        check_callables(self.net, preprocess, pick)
        choice("outputs", outputs, get_args(Outputs), "Log-probabilities are logits.")
        self.preprocess, self.pick = preprocess, pick
        self.classes = _class_names(classes)
        self.loss = resolve_loss(loss)
        self.outputs: Outputs = outputs
        self.space, self.module = _checked_space(space), _checked_module(self.net, module)
        self.unpack = unpack
        self.device, self.dtype = _place(self.net, device, dtype)
        self.original: Model = self.net  # by which it is known; `accelerate` changes only `net`
        self.draft: Model | None = None  # a cheaper network for steps that need not be exact
        self.recorder: Recorder | None = None  # of decision-grade solves, on a GPU
        self.watched: Watched | None = None  # the weights that faster copies were made of
        self.notes: tuple[str, ...] = ()  # what `accelerate` did, and what it did not

    def logits(self, x: Tensor) -> Tensor:
        """Outputs of the model (n, m) as logits, in the precision of the inputs.

        For two classes m may be 1, where `argmax(1)` is always 0: see `predict`.
        """
        if self.watched is not None:
            self.watched.require_same()
        return self.as_logits(self.raw_outputs(x).to(x.dtype))

    def predict(self, x: Tensor) -> Tensor:
        """Numbers (n,) of the predicted classes, -1 where an output is NaN.

        It is the class of the smallest loss, and of these the one of the largest output. A
        profile has the same classes in `profile.credence.argmax(1)`, unless losses tie.
        """
        with torch.no_grad():
            logits = self.logits(x)
            losses = self.losses_of(logits)
            known = self.loss.two_classes(logits) if logits.shape[1] == 1 else logits
            values = known if known.shape == losses.shape else -losses
            best = losses == losses.amin(1, keepdim=True)
            classes = values.masked_fill(~best, -torch.inf).argmax(1)
            return classes.masked_fill(losses.isnan().any(1), -1)

    def losses(self, x: Tensor) -> Tensor:
        """Losses (n, K) of inputs (n, ...): one forward pass."""
        return self.losses_of(self.logits(x))

    def raw_outputs(self, x: Tensor) -> Tensor:
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

    def as_logits(self, outputs: Tensor) -> Tensor:
        """Outputs (n, m) as logits, where the model returns probabilities."""
        if self.outputs == "logits":
            return outputs
        tiny = torch.finfo(outputs.dtype).tiny
        if outputs.shape[1] == 1 or self.loss.separate:
            return outputs.clamp(min=tiny).log() - (1 - outputs).clamp(min=tiny).log()
        return outputs.clamp(min=tiny).log()

    def losses_of(self, logits: Tensor) -> Tensor:
        """Losses (n, K) of given logits (n, m)."""
        if logits.shape[1] == 1:
            logits = self.loss.two_classes(logits)
        losses = self.loss(logits)
        tensor = isinstance(losses, Tensor)
        require(
            tensor and losses.dim() == 2 and len(losses) == len(logits),
            "loss",
            f"a loss that maps outputs {tuple(logits.shape)} to losses ({len(logits)}, K)",
            f"shape {tuple(losses.shape)}" if tensor else type(losses).__name__,
            "Return one row per sample and one column per class, without averaging.",
        )
        return losses

    def one_row_per_sample(self, outputs: object, count: int) -> Tensor:
        """Outputs as (n, m), or an error that says what the model returned instead."""
        if not isinstance(outputs, Tensor):
            raise not_a_tensor(outputs)
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
                remedy="It must return (n, m): one row per sample, one column per class (or one "
                "logit for a binary head).",
            )
        return outputs

    def with_net(self, net: Model) -> Classifier:
        """The same question about another callable."""
        other = copy(self)
        other.net, other.original, other.notes = net, net, ()
        other.draft, other.recorder, other.watched = None, None, None
        return other

    def drafted(self) -> Classifier | None:
        """The same question about the cheaper network, if `accelerate` found one."""
        return None if self.draft is None else self.with_net(self.draft)

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


def _checked_space(space: Space | None) -> Space | None:
    good, got = space is None or isinstance(space, Space), type(space).__name__
    remedy = "For example Space(scale=deviations, locked=['sex'], columns=names)."
    require(good, "space", "a credibly.Space, or None", got, remedy)
    return space


def _checked_module(net: object, name: str | None) -> str | None:
    known = [part for part, _ in net.named_modules() if part] if isinstance(net, nn.Module) else []
    close = get_close_matches(str(name), known, n=3, cutoff=0.3) or known[:5]
    expected = "the name of a submodule of `net`, an nn.Module"
    remedy = f"Look at net.named_modules(); close ones are {close}."
    require(name is None or name in known, "module", expected, repr(name), remedy)
    return name


def _class_names(classes: Sequence[str] | None) -> tuple[str, ...] | None:
    if classes is None:
        return None
    ordered = isinstance(classes, Sequence | np.ndarray) and not isinstance(classes, str | bytes)
    names = tuple(str(name) for name in classes) if ordered else ()
    good, expected = ordered and len(set(names)) == len(names), "different names, one per class"
    remedy = "Pass a list of strings in the order of the model's outputs."
    require(good, "classes", expected, repr(classes), remedy)
    return names


def _place(
    net: object, device: torch.device | str | None, dtype: torch.dtype | None
) -> tuple[torch.device | None, torch.dtype | None]:
    """Where inputs must be and in which precision: as given, else as the parameters."""
    good, expected = (
        dtype is None or isinstance(dtype, torch.dtype),
        "torch.float32 or another dtype",
    )
    remedy = "Leave it out to use the precision of the model's parameters."
    require(good, "dtype", expected, repr(dtype), remedy)
    wanted = None if device is None else _device(device)
    tensors = [*net.parameters(), *net.buffers()] if isinstance(net, nn.Module) else []
    found = next((tensor for tensor in tensors if tensor.is_floating_point()), None)
    if found is None:
        return wanted, dtype
    require(
        wanted is None or same_place(wanted, found.device),
        "device",
        f"{found.device}, where the parameters of the model are",
        f"{wanted}",
        f"Move the model first: net.to({str(device)!r}), and leave `device` out.",
    )
    return wanted or found.device, dtype or found.dtype


def same_place(one: torch.device, other: torch.device) -> bool:
    """Whether two devices are the same; 'cuda' is any of that kind."""
    return one.type == other.type and (one.index == other.index or None in (one.index, other.index))


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
