"""What callers bring as graphs, looked at once; every complaint comes with what to do."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from credibly.errors import InvalidArgumentError, MissingExtraError, ModelError
from credibly.model.batches import check_batch
from credibly.model.bound import Bound
from credibly.model.classifier import Classifier
from credibly.types import from_numpy, whole_number


def geometric() -> Any:
    """The library torch_geometric, which is loaded only when graphs are used."""
    try:
        import torch_geometric
        import torch_geometric.data
        import torch_geometric.nn
    except ImportError as error:
        raise MissingExtraError(
            package="torch-geometric", extra="graph", purpose="A classifier of graphs"
        ) from error
    return torch_geometric


def check_graph_classifier(clf: object) -> None:
    """A plain classifier, in eval mode, whose layers remember no graph."""
    if not isinstance(clf, Classifier) or isinstance(clf, Bound) or clf.module is not None:
        raise InvalidArgumentError(
            "clf",
            expected="a credibly.Classifier around the network, not bound and without module=",
            got=repr(clf) if isinstance(clf, Classifier) else type(clf).__name__,
            remedy="Wrap the network: credibly.Classifier(net).",
        )
    for name, module in clf.net.named_modules() if isinstance(clf.net, nn.Module) else ():
        label = f"{name or 'the module itself'} ({type(module).__name__})"
        if module.training:
            raise ModelError(
                f"the model is in training mode: {label} may be random or mix the nodes of a batch",
                remedy="Call net.eval() first; credibly never changes a model's mode.",
            )
        if getattr(module, "cached", False) is True:
            raise ModelError(
                f"{label} keeps the edges of the first graph it sees and would use them for others",
                remedy="Build it with cached=False; the weights stay the same.",
            )


def check_space(clf: Classifier, *, padded: bool) -> None:
    """A space that can be laid over the features of nodes."""
    space = clf.space
    if space is not None and space.paths not in (None, ["x"]):
        raise InvalidArgumentError(
            "vary",
            expected="nothing, or 'x': only the features of nodes move",
            got=repr(space.vary),
            remedy="Leave vary out; what else the graph holds stays as it is.",
        )
    if space is not None and space.tied is not None and padded:
        raise InvalidArgumentError(
            "tied",
            expected="no tied features where samples differ in their number of nodes",
            got="tied features",
            remedy="Leave tied out, or move the node's own features only: moves='own'.",
        )


def check_data(clf: Classifier, data: Any, name: str = "data") -> Tensor:
    """The features of the nodes of one graph, after a look at it."""
    if not isinstance(data, geometric().data.Data):
        raise InvalidArgumentError(
            name,
            expected="a torch_geometric.data.Data: one graph with one kind of nodes",
            got=type(data).__name__,
            remedy="Of a HeteroData take data.to_homogeneous(); of arrays make "
            "Data(x=..., edge_index=...).",
        )
    if data.x is None:
        raise InvalidArgumentError(
            f"{name}.x",
            expected="features of the nodes (N, F), which can be moved",
            got="None",
            remedy="Give the nodes features; of numbers of nodes take the embeddings.",
        )
    x = check_batch(clf, data.x, f"{name}.x")
    _check_edges(plain_edges(data), len(x), f"{name}.edge_index")
    return x.clone() if x.is_inference() else x


def plain_edges(data: Any) -> Any:
    """The edges as an ordinary tensor, where they came as an EdgeIndex."""
    edges = data.edge_index
    return edges.as_tensor() if isinstance(edges, geometric().EdgeIndex) else edges


def _check_edges(edges: Any, count: int, name: str) -> None:
    whole = isinstance(edges, Tensor) and edges.dtype == torch.long
    if not whole or edges.layout != torch.strided or edges.dim() != 2 or len(edges) != 2:
        got = type(edges).__name__ if not isinstance(edges, Tensor) else (
            f"{edges.dtype} of shape {tuple(edges.shape)} and layout {edges.layout}"
        )  # fmt: skip
        raise InvalidArgumentError(
            name,
            expected="whole numbers (2, E), the sources and the targets of the edges",
            got=got,
            remedy="Of a sparse matrix take torch_geometric.utils.to_edge_index(adj_t), which "
            "gives edge_index and edge_weight; flip the first for a transposed matrix.",
        )
    if edges.numel() and not (int(edges.min()) >= 0 and int(edges.max()) < count):
        raise InvalidArgumentError(
            name,
            expected=f"node numbers from 0 to {count - 1}",
            got=f"numbers from {int(edges.min())} to {int(edges.max())}",
            remedy="The graph has as many nodes as data.x has rows.",
        )


def chosen_nodes(nodes: Any, count: int, device: torch.device) -> Tensor:
    """Numbers of the nodes (n,) that were asked about: all, some, or those of a mask."""
    if nodes is None:
        return torch.arange(count, device=device)
    listed = list(nodes) if isinstance(nodes, Iterable) and not isinstance(nodes, Tensor) else nodes
    found = _tensor_or_none(listed)
    if found is not None and found.dtype == torch.bool and found.shape == (count,):
        found = found.nonzero().squeeze(1)
    good = found is not None and found.dim() == 1 and found.numel() > 0
    if found is None or not good or found.is_floating_point() or found.dtype == torch.bool:
        raise InvalidArgumentError(
            "nodes",
            expected=f"node numbers, at least one, or a mask of {count} nodes",
            got=type(nodes).__name__ if found is None else f"{found.dtype} {tuple(found.shape)}",
            remedy="For example nodes=data.test_mask, or nodes=[0, 5].",
        )
    if int(found.min()) < 0 or int(found.max()) >= count:
        raise InvalidArgumentError(
            "nodes",
            expected=f"node numbers from 0 to {count - 1}",
            got=f"numbers from {int(found.min())} to {int(found.max())}",
            remedy="Nodes are counted from 0; there are as many as data.x has rows.",
        )
    return found.to(device=device, dtype=torch.long)


def _tensor_or_none(listed: Any) -> Tensor | None:
    try:
        return listed if isinstance(listed, Tensor) else from_numpy(np.asarray(listed))
    except (TypeError, ValueError):
        return None


def found_hops(clf: Classifier, hops: int | None) -> int:
    """How many steps a message can travel: as told, or one for each layer that passes messages."""
    if hops is not None:
        number = whole_number(hops)
        if number is None or number < 0:
            raise InvalidArgumentError(
                "hops",
                expected="a whole number >= 0, how far messages travel through the model",
                got=repr(hops),
                remedy="Leave it out to count the layers.",
            )
        return number
    total = sum(_reach(layer) for layer in _layers_of(clf))
    if total == 0:
        raise InvalidArgumentError(
            "hops",
            expected="how many hops messages travel, where the model does not tell",
            got=f"none, and no MessagePassing layer in {clf!r}",
            remedy="Pass hops=2 for two layers of message passing.",
        )
    return total


def directions(clf: Classifier) -> dict[str, bool]:
    """Whether messages travel along the edges, against them, or both ways."""
    flows = {str(layer.flow) for layer in _layers_of(clf)}
    # where no layer tells, both: a field that is too large is right, too
    both = len(flows) != 1 or bool(_parts(clf, geometric().nn.DirGNNConv))
    against = "target_to_source" in flows
    return {"forward": both or not against, "backward": both or against}


def _layers_of(clf: Classifier) -> list[Any]:
    """The layers of the model that pass messages."""
    return _parts(clf, geometric().nn.MessagePassing)


def _parts(clf: Classifier, kind: Any) -> list[Any]:
    modules = clf.net.modules() if isinstance(clf.net, nn.Module) else ()
    return [module for module in modules if isinstance(module, kind)]


def _reach(layer: Any) -> int:
    """Most layers look one hop far; some say by K or by num_layers that it is more."""
    told = (whole_number(getattr(layer, name, None)) for name in ("K", "num_layers"))
    return max([1, *(number for number in told if number is not None)])
