"""Checks of the graphs and classifiers that callers pass; every error says what to do."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from credibly._extras import load_extra
from credibly._validation import require, whole, whole_number
from credibly.errors import ModelError
from credibly.model.batches import check_batch
from credibly.model.classifier import Classifier
from credibly.types import CPU, from_numpy


def geometric() -> Any:
    """The library torch_geometric, which is loaded only when graphs are used."""
    for part in ("torch_geometric.data", "torch_geometric.nn"):
        load_extra(part, extra="graph", purpose="A classifier of graphs")
    return load_extra("torch_geometric", extra="graph", purpose="A classifier of graphs")


def check_graph_classifier(clf: object) -> None:
    """A plain classifier, in eval mode, without layers that cache a graph."""
    plain = isinstance(clf, Classifier)
    expected = "a credibly.Classifier around the network, not bound and without module="
    got, remedy = repr(clf) if plain else type(clf).__name__, "Wrap the network: Classifier(net)."
    require(isinstance(clf, Classifier) and clf.module is None, "clf", expected, got, remedy)
    net = getattr(clf, "net", None)
    for name, module in net.named_modules() if isinstance(net, nn.Module) else ():
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
    """A space that can be used for the features of nodes."""
    space = clf.space
    if space is None:
        return
    require(
        space.paths in (None, ["x"]),
        "vary",
        "nothing, or 'x': only the features of nodes move",
        repr(space.vary),
        "Leave vary out; everything else in the graph stays as it is.",
    )
    require(
        space.tied is None or not padded,
        "tied",
        "no tied features where samples differ in their number of nodes",
        "tied features",
        "Leave tied out, or move the node's own features only: moves='own'.",
    )


def check_data(clf: Classifier, data: Any, name: str = "data") -> Tensor:
    """The features of the nodes of one graph, checked."""
    require(
        isinstance(data, geometric().data.Data),
        name,
        "a torch_geometric.data.Data: one graph with one kind of nodes",
        type(data).__name__,
        "Convert a HeteroData with data.to_homogeneous(), arrays with Data(x=..., edge_index=...).",
    )
    expected = "features of the nodes (N, F), which can be moved"
    remedy = "Give the nodes features, such as embeddings of their numbers."
    require(data.x is not None, f"{name}.x", expected, "None", remedy)
    x = check_batch(clf, data.x, f"{name}.x")
    _check_edges(plain_edges(data), len(x), f"{name}.edge_index")
    return x.clone() if x.is_inference() else x


def plain_edges(data: Any) -> Any:
    """The edges as an ordinary tensor, also if they are an EdgeIndex."""
    edges = data.edge_index
    return edges.as_tensor() if isinstance(edges, geometric().EdgeIndex) else edges


def _check_edges(edges: Any, count: int, name: str) -> None:
    tensor = isinstance(edges, Tensor)
    got = f"{edges.dtype} of shape {tuple(edges.shape)}" if tensor else type(edges).__name__
    require(
        tensor
        and edges.dtype == torch.long
        and edges.layout == torch.strided
        and edges.dim() == 2
        and len(edges) == 2,
        name,
        "a dense tensor of whole numbers (2, E), the sources and the targets of the edges",
        got,
        "Convert a sparse matrix with torch_geometric.utils.to_edge_index(adj_t), which gives "
        "edge_index and edge_weight; flip the first for a transposed matrix.",
    )
    _check_numbers(edges, count, name)


def _check_numbers(nodes: Tensor, count: int, name: str) -> None:
    low, high = (int(nodes.min()), int(nodes.max())) if nodes.numel() else (0, 0)
    expected, got = f"node numbers from 0 to {count - 1}", f"numbers from {low} to {high}"
    remedy = "Nodes are counted from 0; there are as many as data.x has rows."
    require((low >= 0 and high < count) or not nodes.numel(), name, expected, got, remedy)


def chosen_nodes(nodes: Any, count: int, device: torch.device) -> Tensor:
    """Numbers of the nodes (n,) in question: all, some, or those of a mask."""
    if nodes is None:
        return torch.arange(count, device=device)
    listed = list(nodes) if isinstance(nodes, Iterable) and not isinstance(nodes, Tensor) else nodes
    try:
        found = listed if isinstance(listed, Tensor) else from_numpy(np.asarray(listed))
    except (TypeError, ValueError):
        found = torch.zeros(0, device=CPU)
    if found.dtype == torch.bool and found.shape == (count,):
        found = found.nonzero().squeeze(1)
    numbers = not found.is_floating_point() and found.dtype != torch.bool
    require(
        numbers and found.dim() == 1 and found.numel() > 0,
        "nodes",
        f"node numbers, at least one, or a mask of {count} nodes",
        f"{type(nodes).__name__} of shape {tuple(found.shape)}",
        "For example nodes=data.test_mask, or nodes=[0, 5].",
    )
    _check_numbers(found, count, "nodes")
    return found.to(device=device, dtype=torch.long)


def found_hops(clf: Classifier, hops: int | None) -> int:
    """How many steps a message travels: as given, or one for each layer that passes messages."""
    if hops is not None:
        return whole("hops", hops, least=0, remedy="Leave it out to count the layers.")
    total = sum(_reach(layer) for layer in _layers_of(clf))
    expected = "the number of steps that messages travel, if the layers cannot be counted"
    got = f"none, and no MessagePassing layer in {clf!r}"
    require(total > 0, "hops", expected, got, "Pass hops=2 for two layers of message passing.")
    return total


def directions(clf: Classifier) -> dict[str, bool]:
    """Whether messages travel along the edges, against them, or both ways."""
    flows = {str(layer.flow) for layer in _layers_of(clf)}
    # both if no layer says: a field that is too large also gives the right result
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
    """Most layers reach one hop; some have more, as K or num_layers."""
    given = (whole_number(getattr(layer, name, None)) for name in ("K", "num_layers"))
    return max([1, *(number for number in given if number is not None)])
