"""Classifiers of nodes and of whole graphs, bound to the graphs they are asked about."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

import torch

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
from credibly.adapters.graphs.variables import Call, OverGraphs, OverNodes
from credibly.errors import InvalidArgumentError
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
    """A classifier of the nodes of one graph, one sample a node.

    `credibility(graph_nodes(clf, data), gamma='auto')` asks how far the features of a node, or of
    all nodes it hears from, must move to fit every class. Each node is asked about by itself: it
    has a copy of its receptive field, in which nobody else's moves are seen. At the features as
    they are the outputs are those on the whole graph; this is tried for a few nodes when the
    classifier is bound. Edges and all else of the graph stay as they are.

    Args:
        clf: a classifier around the network, in eval mode.
        data: a `torch_geometric.data.Data` with floating `x` and an `edge_index`.
        nodes: numbers of nodes, or a mask over all; by default all of them.
        moves: 'own': the features of the node itself (n, F); 'neighbourhood': those of every node
            within its receptive field (n, S, F), filled up to the largest field by rows that never
            move and count nothing. `members` of the result says which nodes they are, the node
            itself first. Memory grows with the largest field: choose nodes where there are hubs.
        hops: how far messages travel; by default counted from the MessagePassing layers.
        call: how the network is called, `call(net, data) -> outputs (number of nodes, m)`; by
            default `net(data.x, data.edge_index)`. Weights and attributes of edges, and everything
            else the graph has for nodes and edges, are in `data` under their names.
    """
    with torch.inference_mode(False):
        check_graph_classifier(clf)
        x = check_data(clf, data)
        if moves not in ("own", "neighbourhood"):
            raise InvalidArgumentError(
                "moves",
                expected="'own' or 'neighbourhood'",
                got=repr(moves),
                remedy="'own' moves the features of the node itself.",
            )
        chosen = chosen_nodes(nodes, len(x), x.device)
        bound = OverNodes(
            clf,
            data,
            x,
            chosen,
            around=Surroundings(plain_edges(data), len(x), **directions(clf)),
            hops=found_hops(clf, hops),
            own=moves == "own",
            call=call or (lambda net, graph: net(graph.x, graph.edge_index)),
        )
        bound.check_exact()
        return bound


def graph_samples(
    clf: Classifier, graphs: Iterable[Any], *, call: Call | None = None
) -> OverGraphs:
    """A classifier of whole graphs, one sample a graph; the features of all its nodes move.

    In the profile, x0 and `perturbed` are (n, S, F): the nodes of each graph in their order, filled
    up to the largest graph by rows that never move and count nothing.

    Args:
        clf: a classifier around the network, in eval mode.
        graphs: a list of `torch_geometric.data.Data`, a data set, or a `Batch` of such.
        call: how the network is called, `call(net, batch) -> outputs (number of graphs, m)`; by
            default `net(batch.x, batch.edge_index, batch=batch.batch)`.
    """
    with torch.inference_mode(False):
        check_graph_classifier(clf)
        listed = _listed(graphs)
        features = [check_data(clf, data, f"graphs[{n}]") for n, data in enumerate(listed)]
        widths = sorted({tuple(x.shape[1:]) for x in features})
        if len(widths) > 1:
            raise InvalidArgumentError(
                "graphs",
                expected="the same features for the nodes of all graphs",
                got=f"features of shapes {widths}",
                remedy="One model takes one kind of features.",
            )
        default: Call = lambda net, batch: net(batch.x, batch.edge_index, batch=batch.batch)  # noqa: E731
        return OverGraphs(clf, listed, features, call or default)


def _listed(graphs: Any) -> list[Any]:
    if isinstance(graphs, geometric().data.Batch):
        return list(graphs.to_data_list())
    single = isinstance(graphs, geometric().data.Data) or not isinstance(graphs, Iterable)
    listed = [] if single else list(graphs)
    if not listed:
        raise InvalidArgumentError(
            "graphs",
            expected="a list of torch_geometric.data.Data, at least one, or a Batch",
            got=type(graphs).__name__ + ("" if single else " without any"),
            remedy="For a single graph pass [data].",
        )
    return listed
