"""Batch norms folded into the layers before them, in a copy of the network.

In evaluation mode a batch norm multiplies and shifts each channel by constants, and so does the
convolution or linear layer before it: one layer can do both, exactly but for rounding.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from copy import deepcopy

from torch import Tensor, fx, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval, fuse_linear_bn_eval

from credibly.model.substitute import without_hooks

FUSE: dict[type[nn.Module], tuple[type[nn.Module], Callable[..., nn.Module]]] = {
    nn.Conv1d: (nn.BatchNorm1d, fuse_conv_bn_eval),
    nn.Conv2d: (nn.BatchNorm2d, fuse_conv_bn_eval),
    nn.Conv3d: (nn.BatchNorm3d, fuse_conv_bn_eval),
    nn.Linear: (nn.BatchNorm1d, fuse_linear_bn_eval),
}


def folded(net: nn.Module) -> tuple[nn.Module, int]:
    """A copy without parameters to train and without these norms, and how many were folded.

    A network that torch.fx cannot follow is copied as it is.
    """
    # a forward that keeps what it computes would be left with what torch.fx runs it on
    pairs = list(_pairs(deepcopy(net)))
    copy = deepcopy(net).requires_grad_(False)
    for layer, norm in pairs:
        kept = copy.get_submodule(layer)
        fuse = FUSE[type(kept)][1]
        _put(copy, layer, fuse(kept, copy.get_submodule(norm)).requires_grad_(False))
        _put(copy, norm, nn.Identity())
    return copy, len(pairs)


def _pairs(net: nn.Module) -> Iterator[tuple[str, str]]:
    """Names of layers and of the norms that alone read what they give."""
    try:
        graph = fx.Tracer().trace(net)
    except Exception:  # noqa: BLE001  # control flow by values, and whatever else fx cannot follow
        return
    modules = dict(net.named_modules(remove_duplicate=False))
    names = [str(node.target) for node in graph.nodes if node.op == "call_module"]
    calls = Counter(id(modules[name]) for name in names)
    for node in graph.nodes:
        before = node.args[0] if node.op == "call_module" and node.args else None
        if not isinstance(before, fx.Node) or before.op != "call_module" or len(before.users) > 1:
            continue
        layer, norm = str(before.target), str(node.target)
        once = calls[id(modules[layer])] == calls[id(modules[norm])] == 1
        if once and _constant(modules[norm]) and _fit(modules[layer], modules[norm]):
            yield layer, norm


def _constant(norm: nn.Module) -> bool:
    """Whether a norm only multiplies and shifts by constants."""
    known = not norm.training and without_hooks(norm)
    return known and isinstance(getattr(norm, "running_mean", None), Tensor)


def _fit(layer: nn.Module, norm: nn.Module) -> bool:
    """Whether a layer can take the norm in; that of a sequence is over its positions."""
    if type(layer) not in FUSE or type(norm) is not FUSE[type(layer)][0]:
        return False
    width = "out_features" if isinstance(layer, nn.Linear) else "out_channels"
    return bool(getattr(layer, width) == norm.num_features) and without_hooks(layer)


def _put(net: nn.Module, name: str, module: nn.Module) -> None:
    parent, _, own = name.rpartition(".")
    setattr(net.get_submodule(parent) if parent else net, own, module)
