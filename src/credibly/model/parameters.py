"""Perturb the model instead of the input: every sample gets parameters of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from credibly._validation import require
from credibly.errors import ModelError
from credibly.model.batches import check_classifier, check_evaluation_mode
from credibly.model.classifier import Classifier
from credibly.model.derivatives import in_full
from credibly.model.in_space import run_watched
from credibly.model.structure import (
    Nested,
    as_tensors,
    device_in,
    leaves,
    mapped,
    samples_in,
    split,
)
from credibly.model.variable import Moves, Variable


@dataclass(frozen=True, eq=False)
class OverParameters(Variable):
    """Chosen parameters, flat (n, P), every sample with its own; the inputs are held fixed.

    Attributes:
        context: the inputs.
        names: of the parameters that move.
    """

    context: Nested
    names: tuple[str, ...]

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
            return vmap(self._one)(self.parts(x), tensors)
        except (RuntimeError, ValueError) as error:
            raise ModelError(
                "the model cannot be evaluated with other parameters for every sample: "
                f"{type(error).__name__}: {error}",
                remedy="torch.func.vmap must be able to run it: no in-place writes, no decisions "
                "by values. Perturbing a last nn.Linear alone needs none of this.",
            ) from error

    def parts(self, x: Tensor) -> dict[str, Tensor]:
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
        outputs = _with_parameters(self.clf, parameters).run(single)
        return self.clf.one_row_per_sample(outputs, 1)[0]


@dataclass(frozen=True, eq=False)
class OverLastLinear(OverParameters):
    """The usual case, without a pass through the body: features times weights of their own."""

    features: Tensor

    per_sample: ClassVar[tuple[str, ...]] = ("start", "context", "features")

    def run_at(self, x: Tensor) -> Any:
        parts = list(self.parts(x).values())
        outputs = torch.einsum("nod,nd->no", parts[0], self.features)
        return outputs + parts[1] if len(parts) == 2 else outputs


def _module(clf: Classifier) -> nn.Module:
    assert isinstance(clf.net, nn.Module)  # noqa: S101  # checked by vary_parameters
    return clf.net


def _with_parameters(clf: Classifier, parameters: dict[str, Tensor]) -> Classifier:
    """The same model called with other parameters."""
    module = _module(clf)
    return clf.with_net(
        lambda *args, **kw: functional_call(module, parameters, args, kw, strict=False)
    )


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
    check_classifier(clf)
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
        every = OverParameters(clf, start, inputs, tuple(names))
        features = _features_of_last_linear(clf, inputs, names)
        if features is None:
            return every
        short = OverLastLinear(clf, start, inputs, tuple(names), features)
        return short if _agrees(short) else every


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
    module = _module(clf).get_submodule(layer) if layer else _module(clf)
    expected = {f"{layer}.{own}".lstrip(".") for own, _ in module.named_parameters(recurse=False)}
    if not isinstance(module, nn.Linear) or set(names) != expected:
        return None
    seen: list[tuple[Any, Tensor, int]] = []

    def watch(_module: object, given: Any, output: Tensor) -> None:
        seen.append((given, output, output._version))  # noqa: SLF001

    found = run_watched(clf, module, inputs, watch)
    if len(seen) != 1 or len(seen[0][0]) != 1:
        return None
    (features,), outputs, version = seen[0]
    # the same object, and nothing was written into it since
    returned = found is outputs and version == outputs._version  # noqa: SLF001
    return features.detach() if returned and outputs.dim() == 2 else None


def _agrees(short: OverLastLinear) -> bool:
    """Whether the shortcut gives what the model gives at other parameters: they may be shared."""
    first = short.select(slice(0, 1))
    other = first.start * 1.1 + 0.01
    own = {name: part[0] for name, part in first.parts(other).items()}
    with torch.no_grad():
        found, expected = _with_parameters(first.clf, own).run(first.context), first.run_at(other)
    precision = torch.finfo(expected.dtype).eps ** 0.5
    return bool(torch.allclose(found, expected, rtol=precision, atol=precision, equal_nan=True))
