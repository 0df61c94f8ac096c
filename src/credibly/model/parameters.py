"""Perturb the model instead of the input: every sample gets parameters of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from credibly.errors import InvalidArgumentError, ModelError
from credibly.model.batches import check_classifier, check_evaluation_mode
from credibly.model.bound import Bound
from credibly.model.classifier import Classifier
from credibly.model.derivatives import in_full
from credibly.model.structure import Nested, as_tensors, device_in, leaves, mapped, samples_in


class OverParameters(Bound):
    """Outputs as a function of chosen parameters, flat (n, P), the inputs held fixed."""

    def __init__(self, base: Classifier, inputs: Nested, names: Sequence[str]) -> None:
        assert isinstance(base.net, nn.Module)  # noqa: S101  # checked by vary_parameters
        self.names = tuple(names)
        own = dict(base.net.named_parameters())
        chosen = [own[name].detach() for name in self.names]
        self.shapes = [tensor.shape for tensor in chosen]
        flat = torch.cat([tensor.flatten() for tensor in chosen])
        super().__init__(base, inputs, flat.expand(samples_in(inputs), -1).clone())

    def run_at(self, variable: Tensor) -> Any:
        tensors = {path: leaf for path, leaf in leaves(self.context) if isinstance(leaf, Tensor)}
        try:
            return vmap(self._one)(self.parts(variable), tensors)
        except (RuntimeError, ValueError) as error:
            raise ModelError(
                "the model cannot be evaluated with other parameters for every sample: "
                f"{type(error).__name__}: {error}",
                remedy="torch.func.vmap must be able to run it: no in-place writes, no decisions "
                "by values. Perturbing a last nn.Linear alone needs none of this.",
            ) from error

    def parts(self, variable: Tensor) -> dict[str, Tensor]:
        """The parameters by name, each (n, ...), from their flat form."""
        sizes = [shape.numel() for shape in self.shapes]
        pieces = torch.split(variable, sizes, dim=1)
        return {
            name: piece.reshape(-1, *shape)
            for name, piece, shape in zip(self.names, pieces, self.shapes, strict=True)
        }

    def space_name(self) -> str:
        return f"parameters {', '.join(self.names)}"

    def _one(self, parameters: dict[str, Tensor], tensors: dict[str, Tensor]) -> Tensor:
        """The outputs (m,) of one sample with parameters of its own."""
        single = mapped(
            self.context,
            lambda path, leaf: tensors[path].unsqueeze(0) if path in tensors else leaf,
        )
        outputs = self.one_row_per_sample(_Functional(self, parameters).run(single), 1)
        return outputs[0]


class _Functional(Classifier):
    """The same model called with other parameters."""

    def __init__(self, base: Classifier, parameters: dict[str, Tensor]) -> None:
        self.__dict__.update(base.__dict__)
        module = base.net
        assert isinstance(module, nn.Module)  # noqa: S101  # checked by vary_parameters
        self.net = lambda *args, **kw: functional_call(module, parameters, args, kw, strict=False)


class OverLastLinear(OverParameters):
    """The usual case, without a pass through the body: features times weights of their own."""

    def __init__(
        self, base: Classifier, inputs: Nested, names: Sequence[str], features: Tensor
    ) -> None:
        super().__init__(base, inputs, names)
        self.features = features

    def run_at(self, variable: Tensor) -> Any:
        parts = list(self.parts(variable).values())
        outputs = torch.einsum("nod,nd->no", parts[0], self.features)
        return outputs + parts[1] if len(parts) == 2 else outputs

    def select(self, rows: Tensor | slice) -> OverLastLinear:
        chosen = super().select(rows)
        assert isinstance(chosen, OverLastLinear)  # noqa: S101  # a copy of self
        chosen.features = self.features[rows]
        return chosen


def vary_parameters(
    clf: Classifier, x: Nested, parameters: str | Sequence[str] | None = None
) -> Bound:
    """The paper's footnote: the same trade-off over parameters of the model, inputs held fixed.

    Each sample asks by itself how far the parameters would have to move to fit every class better.
    Use it as any classifier: `credibility(vary_parameters(clf, x), gamma=...)`. In the profile, x0
    and `perturbed` are then the flat parameters (n, P), and risk is their squared distance. A
    `space` or `module` of the classifier is about inputs and plays no role.

    Args:
        clf: the classifier, around an `nn.Module`.
        x: inputs as it takes them.
        parameters: names of parameters ('fc.weight') or of modules ('fc'); by default the last
            layer. If that is an `nn.Linear` whose output the model returns as it is, no pass
            through the body is needed; else each pass costs one forward and backward of the model
            with separate parameters for every sample.
    """
    check_classifier(clf)
    if not isinstance(clf.net, nn.Module) or isinstance(clf, Bound):
        raise InvalidArgumentError(
            "clf",
            expected="a Classifier around an nn.Module",
            got=repr(clf),
            remedy="Functions hide their parameters; wrap the module itself, with pick= for its "
            "logits.",
        )
    check_evaluation_mode(clf)
    names = _chosen(clf.net, parameters)
    inputs = as_tensors(x)
    with in_full(device_in(inputs)):
        features = _features_of_last_linear(clf, inputs, names)
        if features is None:
            return OverParameters(clf, inputs, names)
        short = OverLastLinear(clf, inputs, names, features)
        return short if _agrees(short) else OverParameters(clf, inputs, names)


def _chosen(net: nn.Module, parameters: str | Sequence[str] | None) -> list[str]:
    own = [name for name, tensor in net.named_parameters() if tensor.is_floating_point()]
    if not own:
        raise InvalidArgumentError(
            "parameters",
            expected="a model that has floating parameters",
            got=f"{type(net).__name__} with no parameters",
            remedy="Move its inputs instead: credibility(clf, x, ...).",
        )
    if parameters is None:
        layers = [name.rpartition(".")[0] for name in own]
        return [name for name, layer in zip(own, layers, strict=True) if layer == layers[-1]]
    wanted = [parameters] if isinstance(parameters, str) else _listed(parameters)
    chosen = [n for n in own if any(n == w or n.startswith(f"{w}.") for w in wanted)]
    unmatched = [w for w in wanted if not any(n == w or n.startswith(f"{w}.") for n in own)]
    if unmatched or not chosen:
        raise InvalidArgumentError(
            "parameters",
            expected=f"names of parameters or modules, such as {own[-3:]}",
            got=repr(unmatched or wanted),
            remedy="Look at net.named_parameters().",
        )
    return chosen


def _listed(parameters: object) -> list[Any]:
    """The names given; what is no sequence at all is named as it came."""
    return list(parameters) if isinstance(parameters, Sequence) else [parameters]


def _features_of_last_linear(
    clf: Classifier, inputs: Nested, names: Sequence[str]
) -> Tensor | None:
    """The inputs of the nn.Linear the names belong to, if the model returns what it gives."""
    assert isinstance(clf.net, nn.Module)  # noqa: S101  # checked by the caller
    layer, _, _ = names[0].rpartition(".")
    module = clf.net.get_submodule(layer) if layer else clf.net
    expected = {f"{layer}.{own}".lstrip(".") for own, _ in module.named_parameters(recurse=False)}
    if not isinstance(module, nn.Linear) or set(names) != expected:
        return None
    seen: list[tuple[Any, Tensor, int]] = []
    handle = module.register_forward_hook(
        lambda _m, given, out: seen.append((given, out, out._version))  # noqa: SLF001
    )
    try:
        with torch.no_grad():
            found = clf.run(inputs)
    except Exception as error:
        raise ModelError(
            f"the model failed on the inputs with {type(error).__name__}: {error}",
            remedy="Try it yourself on the same inputs: shape, precision and device must be those "
            "it was trained with; with unpack=True a mapping is passed as keywords.",
        ) from error
    finally:
        handle.remove()
    if len(seen) != 1 or len(seen[0][0]) != 1:
        return None
    (features,), outputs, version = seen[0]
    # the same object, and nothing was written into it since
    returned = found is outputs and version == outputs._version  # noqa: SLF001
    return features.detach() if returned and outputs.dim() == 2 else None


def _agrees(short: OverLastLinear) -> bool:
    """Whether the short way is that of the model at other parameters: they may act elsewhere."""
    first = short.select(slice(0, 1))
    other = first.variable * 1.1 + 0.01
    shared = {name: part[0] for name, part in first.parts(other).items()}
    with torch.no_grad():
        found, expected = _Functional(first, shared).run(first.context), first.run_at(other)
    precision = torch.finfo(expected.dtype).eps ** 0.5
    return bool(torch.allclose(found, expected, rtol=precision, atol=precision, equal_nan=True))
