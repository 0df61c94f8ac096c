"""Nodes of a graph, or whole graphs, as the samples to solve for."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

import torch

from credibly._validation import choice, require
from credibly.adapters.graphs.checks import (
    check_data,
    check_graph_classifier,
    chosen_nodes,
    directions,
    found_hops,
    geometric,
    plain_edges,
)
from credibly.adapters.graphs.fields import Surroundings
from credibly.adapters.graphs.variables import Call, OverGraphs, OverNodes, over_graphs, over_nodes
from credibly.model.classifier import Classifier


def graph_nodes(
    clf: Classifier,
    data: Any,
    nodes: Any = None,
    *,
    moves: Literal["own", "neighbourhood"] = "own",
    hops: int | None = None,
    call: Call | None = None,
) -> OverNodes:
    """The nodes of one graph as samples: the features of a node, or of its neighbourhood, move.

    `credibility(graph_nodes(clf, data), gamma='auto')` asks how far these features must move to fit
    every class. Each node has its own copy of its receptive field, so its moves affect no other
    sample. Where nothing has moved the outputs are those on the whole graph, which is checked for
    some of the nodes. Edges and everything else in the graph stay as they are.

    Args:
        clf: a classifier around the network, in eval mode.
        data: a `torch_geometric.data.Data` with floating `x` and an `edge_index`.
        nodes: numbers of nodes, or a mask over all; by default all of them.
        moves: 'own': the features of the node itself (n, F); 'neighbourhood': those of every node
            within its receptive field (n, S, F), filled up to the largest field by rows that never
            move and do not count. `members` of the result says which nodes they are, the node
            itself first. Memory grows with the largest field: choose nodes if there are hubs.
        hops: how far messages travel; by default counted from the MessagePassing layers.
        call: how the network is called, `call(net, data) -> outputs (number of nodes, m)`; by
            default `net(data.x, data.edge_index)`. Everything else the graph has for nodes and
            edges, such as weights, is in `data` under its name.

    Example: see docs/how-to/gallery/graphs.md.
    """
    with torch.inference_mode(False):
        check_graph_classifier(clf)
        x = check_data(clf, data)
        remedy = "'own' moves the features of the node itself."
        choice("moves", moves, ("own", "neighbourhood"), remedy)
        around = Surroundings(plain_edges(data), len(x), **directions(clf))
        return over_nodes(
            clf, x, chosen_nodes(nodes, len(x), x.device), around, data=data,
            hops=found_hops(clf, hops), own=moves == "own", call=call or _call_on_nodes,
        )  # fmt: skip


def graph_samples(
    clf: Classifier, graphs: Iterable[Any], *, call: Call | None = None
) -> OverGraphs:
    """Whole graphs as samples: the features of all nodes of a graph move.

    In the profile, x0 and `perturbed` are (n, S, F): the nodes of each graph in their order, filled
    up to the largest graph by rows that never move and do not count.

    Args:
        clf: a classifier around the network, in eval mode.
        graphs: a list of `torch_geometric.data.Data`, a data set, or a `Batch` of such.
        call: how the network is called, `call(net, batch) -> outputs (number of graphs, m)`; by
            default `net(batch.x, batch.edge_index, batch=batch.batch)`.

    Example: see docs/how-to/gallery/graphs.md.
    """
    with torch.inference_mode(False):
        check_graph_classifier(clf)
        listed = _listed(graphs)
        features = [check_data(clf, data, f"graphs[{n}]") for n, data in enumerate(listed)]
        widths = sorted({tuple(x.shape[1:]) for x in features})
        expected, got = "the same features for the nodes of all graphs", f"shapes {widths}"
        remedy = "A model takes one kind of features: give all nodes the same."
        require(len(widths) == 1, "graphs", expected, got, remedy)
        return over_graphs(clf, listed, features, call or _call_on_graphs)


def _call_on_nodes(net: Any, data: Any) -> Any:
    return net(data.x, data.edge_index)


def _call_on_graphs(net: Any, batch: Any) -> Any:
    return net(batch.x, batch.edge_index, batch=batch.batch)


def _listed(graphs: Any) -> list[Any]:
    if isinstance(graphs, geometric().data.Batch):
        return list(graphs.to_data_list())
    single = isinstance(graphs, geometric().data.Data) or not isinstance(graphs, Iterable)
    listed = [] if single else list(graphs)
    expected = "a list of torch_geometric.data.Data, at least one, or a Batch"
    got = type(graphs).__name__ + ("" if single else " without any")
    require(bool(listed), "graphs", expected, got, "For a single graph pass [data].")
    return listed
