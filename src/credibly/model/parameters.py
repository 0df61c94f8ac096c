"""Perturb the model instead of the input: every sample gets parameters of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.func import vmap

from credibly._validation import require
from credibly.errors import ModelError
from credibly.model.batches import check_classifier, check_evaluation_mode
from credibly.model.classifier import Classifier
from credibly.model.derivatives import in_full
from credibly.model.in_space import recorded
from credibly.model.structure import (
    Nested,
    as_tensors,
    device_in,
    leaves,
    mapped,
    samples_in,
    split,
)
from credibly.model.substitute import Parts, writes_into
from credibly.model.variable import Moves, Variable


@dataclass(frozen=True, eq=False)
class OverParameters(Variable):
    """Chosen parameters, flat (n, P), every sample with its own; the inputs are held fixed.

    Attributes:
        context: the inputs.
        names: of the parameters that move.
        parts: these parameters, as parts of the network; found when needed.
    """

    context: Nested
    names: tuple[str, ...]
    parts: Parts | None = field(default=None, kw_only=True)

    moves: ClassVar[Moves] = "parameters"
    per_sample: ClassVar[tuple[str, ...]] = ("start", "context")

    @cached_property
    def shapes(self) -> list[torch.Size]:
        """Shape of each of the parameters."""
        own = dict(_module(self.clf).named_parameters())
        return [own[name].shape for name in self.names]

    def run_at(self, x: Tensor) -> Any:
        tensors = {path: leaf for path, leaf in leaves(self.context) if isinstance(leaf, Tensor)}
        try:
            return vmap(self._one)(self.split(x), tensors)
        except (RuntimeError, ValueError) as error:
            raise ModelError(
                "the model cannot be evaluated with other parameters for every sample: "
                f"{type(error).__name__}: {error}",
                remedy="torch.func.vmap must be able to run it: no in-place writes, no decisions "
                "by values. Perturbing a last nn.Linear alone needs none of this.",
            ) from error

    def split(self, x: Tensor) -> dict[str, Tensor]:
        """The parameters by name, each (n, ...), from their flat form."""
        return split(x, self.names, self.shapes)

    def based_at(self, values: Tensor) -> OverParameters:
        return replace(self, start=values)

    def describe(self) -> str:
        return f"parameters {', '.join(self.names)}"

    def _one(self, parameters: dict[str, Tensor], tensors: dict[str, Tensor]) -> Tensor:
        """The outputs (m,) of one sample with parameters of its own."""
        rows = {path: tensor.unsqueeze(0) for path, tensor in tensors.items()}
        single = mapped(self.context, rows.get)
        return self.clf.one_row_per_sample(self.run_with(parameters, single), 1)[0]

    def run_with(self, parameters: dict[str, Tensor], inputs: Nested) -> Any:
        """What the model returns for inputs, with one set of parameters for all samples."""
        net = _module(self.clf)
        parts = self.parts.on(net) if self.parts else Parts.of(net, parameters=self.names)
        with parts.holding(parameters) as held:
            return self.clf.with_net(held).run(inputs)


@dataclass(frozen=True, eq=False)
class OverLastLinear(OverParameters):
    """The usual case, without a pass through the body: features times weights of their own."""

    features: Tensor

    per_sample: ClassVar[tuple[str, ...]] = ("start", "context", "features")

    def run_at(self, x: Tensor) -> Any:
        parts = list(self.split(x).values())
        outputs = torch.einsum("nod,nd->no", parts[0], self.features)
        return outputs + parts[1] if len(parts) == 2 else outputs


def _module(clf: Classifier) -> nn.Module:
    assert isinstance(clf.net, nn.Module)  # noqa: S101  # checked by vary_parameters
    return clf.net


def vary_parameters(
    clf: Classifier, x: Nested, parameters: str | Sequence[str] | None = None
) -> OverParameters:
    """The paper's footnote: the same trade-off over parameters of the model, inputs held fixed.

    For each sample the question is how far the parameters must move to fit every class better.
    Pass the result in place of a classifier: `credibility(vary_parameters(clf, x), gamma=...)`. In
    the profile, x0 and `perturbed` are then the flat parameters (n, P), and risk is their squared
    distance. A `space` or `module` of the classifier is about inputs and plays no role.

    Args:
        clf: the classifier, around an `nn.Module`.
        x: inputs as it takes them.
        parameters: names of parameters ('fc.weight') or of modules ('fc'); by default the last
            layer. If that is an `nn.Linear` whose output the model returns as it is, no pass
            through the body is needed; else each pass costs one forward and backward of the model
            with separate parameters for every sample.

    Example:
        >>> import torch, credibly as cr
        >>> clf = cr.Classifier(torch.nn.Linear(4, 3))
        >>> cr.vary_parameters(clf, torch.zeros(2, 4)).start.shape
        torch.Size([2, 15])
    """
    clf = check_classifier(clf)
    good, expected = isinstance(clf.net, nn.Module), "a Classifier around an nn.Module"
    remedy = "Functions hide their parameters; wrap the module itself, with pick= for its logits."
    require(good, "clf", expected, repr(clf), remedy)
    check_evaluation_mode(clf)
    names = _chosen(_module(clf), parameters)
    inputs = as_tensors(x)
    with in_full(device_in(inputs)):
        own = dict(_module(clf).named_parameters())
        flat = torch.cat([own[name].detach().flatten() for name in names])
        start = flat.expand(samples_in(inputs), -1).clone()
        parts = Parts.of(_module(clf), parameters=names, beside=(clf.preprocess, clf.pick))
        every = OverParameters(clf, start, inputs, tuple(names), parts=parts)
        features = _features_of_last_linear(clf, inputs, names)
        if features is not None:
            short = OverLastLinear(clf, start, inputs, tuple(names), features, parts=parts)
            if _agrees(short):
                return short
        in_place = replace(every, parts=replace(parts, in_place=True))
        return every if _has_effect(every) or not _has_effect(in_place) else in_place


def _chosen(net: nn.Module, parameters: str | Sequence[str] | None) -> list[str]:
    own = [name for name, tensor in net.named_parameters() if tensor.is_floating_point()]
    got, remedy = (
        f"{type(net).__name__} with no parameters",
        "Move its inputs: credibility(clf, x).",
    )
    require(bool(own), "parameters", "a model that has floating parameters", got, remedy)
    if parameters is None:
        layers = [name.rpartition(".")[0] for name in own]
        return [name for name, layer in zip(own, layers, strict=True) if layer == layers[-1]]
    several = isinstance(parameters, Sequence) and not isinstance(parameters, str)
    wanted = list(parameters) if several else [parameters]
    chosen = [n for n in own if any(n == w or n.startswith(f"{w}.") for w in wanted)]
    unmatched = [w for w in wanted if not any(n == w or n.startswith(f"{w}.") for n in own)]
    expected = f"names of parameters or modules, such as {own[-3:]}"
    good, got = bool(chosen) and not unmatched, repr(unmatched or wanted)
    require(good, "parameters", expected, got, "Look at net.named_parameters().")
    return chosen


def _features_of_last_linear(
    clf: Classifier, inputs: Nested, names: Sequence[str]
) -> Tensor | None:
    """The inputs of the nn.Linear the names belong to, if the model returns what it gives."""
    layer, _, _ = names[0].rpartition(".")
    module = dict(_module(clf).named_modules())[layer]
    expected = {f"{layer}.{own}".lstrip(".") for own, _ in module.named_parameters(recurse=False)}
    if not isinstance(module, nn.Linear) or set(names) != expected:
        return None
    parts = Parts.of(_module(clf), modules=[layer], beside=(clf.preprocess, clf.pick))
    seen, found = recorded(clf, parts, inputs)
    if len(seen.inputs) != 1 or len(seen.inputs[0]) != 1:
        return None
    (features,), outputs, version = seen.inputs[0], seen.outputs[0], seen.versions[0]
    # the same object, and nothing was written into it since
    returned = found is outputs and version == writes_into(outputs)
    return features.detach() if returned and outputs.dim() == 2 else None


def _agrees(short: OverLastLinear) -> bool:
    """Whether the shortcut gives what the model gives at other parameters: they may be shared."""
    first = short.select(slice(0, 1))
    other = first.start * 1.1 + 0.01
    with torch.no_grad():
        found, expected = first.run_with(_single(first, other), first.context), first.run_at(other)
    precision = torch.finfo(expected.dtype).eps ** 0.5
    return bool(torch.allclose(found, expected, rtol=precision, atol=precision, equal_nan=True))


def _has_effect(every: OverParameters) -> bool:
    """Whether the outputs change with the parameters: a model may use them past its own modules."""
    first = every.select(slice(0, 1))
    values = first.start, first.start * 1.1 + 0.01
    try:
        with torch.no_grad():
            one, other = (first.run_with(_single(first, at), first.context) for at in values)
    except Exception:  # noqa: BLE001  # told by the first pass, with what to do
        return True
    return not (isinstance(one, Tensor) and isinstance(other, Tensor) and torch.equal(one, other))


def _single(first: OverParameters, x: Tensor) -> dict[str, Tensor]:
    return {name: part[0] for name, part in first.split(x).items()}
