"""The last hidden layer: what a network has made of an input before its last linear layer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor, nn

from credibly._validation import require
from credibly.model.classifier import Classifier
from credibly.model.derivatives import logits_only
from credibly.model.substitute import Parts
from credibly.model.variable import Variable

Hook = Callable[[nn.Module, tuple[Any, ...], Any], None]
Run = Callable[[Variable, Tensor], Tensor]


@dataclass(frozen=True, eq=False)
class LastHidden:
    """The layer whose input are the features.

    Attributes:
        name: of the layer in the network.
        parts: the layer, as a part of the network.
    """

    name: str
    parts: Parts

    @classmethod
    def of(cls, clf: Classifier, name: str) -> LastHidden:
        """The layer of that name."""
        net = clf.net
        known = [part for part, _ in net.named_modules()] if isinstance(net, nn.Module) else []
        expected = "the name of a submodule whose input are the features"
        remedy = f"Look at net.named_modules(); the last ones are {known[-3:]}."
        require(name in known, "features", expected, repr(name), remedy)
        assert isinstance(net, nn.Module)  # noqa: S101  # it has a submodule
        beside = (clf.preprocess, clf.pick)
        return cls(name, Parts.of(net, modules=[name], beside=beside))

    @classmethod
    def find(cls, variable: Variable) -> LastHidden | None:
        """The last linear layer that runs; None for a model that has none, or is not a module."""
        net = variable.clf.net
        if not isinstance(net, nn.Module):
            return None
        names = [name for name, part in net.named_modules() if isinstance(part, nn.Linear)]
        if not names:
            return None
        calls: list[nn.Module] = []
        beside = (variable.clf.preprocess, variable.clf.pick)
        parts = Parts.of(net, modules=names, beside=beside)

        def note(module: nn.Module, inputs: tuple[Any, ...], _: Any) -> None:
            if inputs and len(inputs[0]) == 1:  # else its rows are not the samples
                calls.append(module)

        with _watched(parts, note) as (run, watched):
            run(variable.select(slice(0, 1)), variable.start[:1])
            known = {id(part): name for name, part in watched.named_modules()}
        return cls.of(variable.clf, known[id(calls[-1])]) if calls else None

    def forward(self, variable: Variable, x: Tensor) -> tuple[Tensor, Tensor]:
        """Logits (n, m) and features (n, d) at x: one forward."""
        seen: list[Any] = []
        with _watched(self.parts, lambda _, inputs, __: seen.extend(inputs[:1])) as (run, _):
            logits = run(variable, x)
        shape = tuple(getattr(seen[-1], "shape", ())) if seen else ()
        expected = f"a layer that takes one row of numbers per sample; {self.name!r} does not"
        got = f"shape {shape} for {len(x)} samples" if seen else "a layer that is not called"
        remedy = "Name another one of net.named_modules(), or pass features=None."
        require(len(shape) > 1 and shape[0] == len(x), "features", expected, got, remedy)
        return logits, self._one_vector(seen[-1].detach())

    def _one_vector(self, found: Tensor) -> Tensor:
        """A vector per sample: positions of a sequence or of an image are averaged."""
        if found.dim() == 2:
            return found
        (layer,) = self.parts.modules.values()
        image = found.dim() > 3 and not isinstance(layer, nn.Linear)  # its channels come first
        return found.flatten(2).mean(2) if image else found.flatten(1, -2).mean(1)


@contextmanager
def _watched(parts: Parts, hook: Hook) -> Iterator[tuple[Run, nn.Module]]:
    """A function that gives the logits of a variable at x, and the network that it runs.

    The hook sees every call of the parts: the module, its inputs and its output.
    """
    with parts.watched(hook) as net:
        yield lambda variable, x: logits_only(_on(variable, net), x), net


def _on(variable: Variable, net: nn.Module) -> Variable:
    return replace(variable, clf=variable.clf.with_net(net))
