"""Outputs at nodes and of graphs as functions of features of nodes.

Every sample gets its own copy of everything its output depends on. The copies form one graph with
no edges between them, so that the model runs once for all.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, ClassVar

import torch
from torch import Tensor

from credibly.adapters.graphs.checks import check_space, geometric
from credibly.adapters.graphs.fields import Surroundings
from credibly.errors import CrediblyError, ModelError
from credibly.model.classifier import Classifier
from credibly.model.coordinates import Coordinates
from credibly.model.in_space import InSpace
from credibly.model.space import Space
from credibly.model.variable import Moves
from credibly.types import CPU, Bounds, Limits

Call = Callable[[Any, Any], Any]
"""From a network and a torch_geometric Data to outputs, one row per node or per graph."""

TRIED = 256
"""Nodes whose output is compared with that on the whole graph when a model is bound."""


@dataclass(frozen=True, eq=False)
class Copies:
    """The copies of some samples as one graph.

    Attributes:
        data: all of the graph but the features.
        x: the features of its nodes (V, F), untouched.
        place: nodes that move (M,).
        sample: the sample that each of them belongs to (M,).
        slot: its place among the nodes of that sample (M,).
        centres: the nodes in question (n,), if samples are nodes.
    """

    data: Any
    x: Tensor
    place: Tensor
    sample: Tensor
    slot: Tensor
    centres: Tensor | None = None


@dataclass(frozen=True, eq=False)
class OverFeatures(InSpace):
    """Outputs as a function of features of nodes (n, F), or (n, S, F) with padding.

    Attributes:
        call: how the network is called.
    """

    call: Call

    @property
    def members(self) -> Tensor:
        """Numbers of the nodes that move (n, S), -1 for padding, which never moves."""
        members: Tensor = self.context["members"]
        return members

    @cached_property
    def copies(self) -> Copies:
        """The graph to run the model on."""
        raise NotImplementedError

    def run_at(self, x: Tensor) -> Any:
        here = self.copies
        values = self.decode(x).reshape(*self.members.shape, *here.x.shape[1:])
        moved = here.x.index_put((here.place,), values[here.sample, here.slot])
        found = self.run_on(here.data, moved)
        if here.centres is None:
            return found
        return self.clf.one_row_per_sample(found, len(here.x))[here.centres]

    def run_on(self, data: Any, x: Tensor) -> Any:
        """What the model gives for a graph with these features."""
        clf, graph = self.clf, copy(data)
        graph.x = x if clf.preprocess is None else clf.preprocess(x)
        try:
            found = self.call(clf.net, graph)
        except CrediblyError:
            raise
        except Exception as error:
            raise ModelError(
                f"the model failed on {graph} with {type(error).__name__}: {error}",
                remedy="Say how to call it, for example "
                "call=lambda net, data: net(data.x, data.edge_index, data.edge_weight).",
            ) from error
        return found if clf.pick is None else clf.pick(found)

    def encode(self, values: Tensor) -> Tensor:
        origin = self.context["x"]
        if origin.shape == values.shape and origin.dim() > 2:  # padding never moves
            values = torch.where(self._padding(values), origin, values)
        return super().encode(values)

    def limits(self, bounds: Bounds | None) -> Limits | None:
        """Padding is held where it is, so that a search around an answer does not move it."""
        found, padding = super().limits(bounds), self._padding(self.context["x"])
        if not bool(padding.any()):
            return found
        start, held = self.coordinates.start, padding.flatten(1)[:, self.coordinates.slot >= 0]
        free = torch.full_like(start, torch.inf)
        low, high = (-free, free) if found is None else found
        return torch.where(held, start, low), torch.where(held, start, high)

    def _padding(self, like: Tensor) -> Tensor:
        if like.dim() == 2:  # a node's own features have no padding
            return torch.zeros_like(like, dtype=torch.bool)
        return (self.members < 0).unsqueeze(-1).expand_as(like)


@dataclass(frozen=True, eq=False)
class OverNodes(OverFeatures):
    """One sample per node.

    Attributes:
        data: the whole graph.
        features: of all of its nodes.
        around: its edges.
        hops: how far messages travel.
        own: whether a node's own features move, or those of its receptive field.
    """

    data: Any
    features: Tensor
    around: Surroundings
    hops: int
    own: bool

    moves: ClassVar[Moves] = "nodes"

    @property
    def nodes(self) -> Tensor:
        """Numbers of the nodes in question (n,)."""
        return self.members[:, 0]

    @cached_property
    def copies(self) -> Copies:
        fields = self.around.fields(self.nodes, self.hops)
        union = self.around.union(fields)
        data = _part_of(self.data, union.node, union.edge)
        data.edge_index = union.edge_index
        centre = fields.slot == 0
        moving = centre if self.own else torch.ones_like(centre)
        return Copies(
            data,
            self.features[union.node],
            place=union.place[moving],
            sample=fields.sample[moving],
            slot=fields.slot[moving],
            centres=union.place[centre],
        )

    def describe(self) -> str:
        hops = f"features of the nodes within {self.hops} hops"
        return self.with_space("features of the node" if self.own else hops)

    def check_exact(self) -> None:
        """Compare some outputs with those of the model on the whole graph."""
        with torch.no_grad():
            whole = self._whole()
            rows = torch.linspace(0, len(self.nodes) - 1, min(TRIED, len(self.nodes)), device=CPU)
            for part in torch.split(rows.round().long().to(self.nodes.device), 16):
                chosen, expected = self.select(part), whole[self.nodes[part]]
                gap = (chosen.raw_outputs(chosen.start) - expected).abs()
                rounding = torch.finfo(gap.dtype).eps ** 0.5 * (1 + expected.abs())
                if bool((gap > rounding).any()):  # never for NaN, which is left to its own status
                    raise self._mismatch(float(gap.nan_to_num(0.0).max()), whole)

    def _whole(self) -> Tensor:
        """Outputs at all nodes of the whole graph."""
        found = self.run_on(self.data, self.features)
        return self.clf.one_row_per_sample(found, len(self.features))

    def _mismatch(self, gap: float, whole: Tensor) -> ModelError:
        if not torch.allclose(self._whole(), whole, equal_nan=True):
            return ModelError(
                "the model is random: the same graph gave different outputs",
                remedy="Switch its randomness off (dropout, sampled neighbours).",
            )
        return ModelError(
            f"the output at a node depends on more than the nodes within {self.hops} hops: it "
            f"changes by {gap:.3g} without the rest of the graph",
            remedy="Pass a larger hops= if messages travel further than layers were counted. "
            "Statistics over all nodes (GraphNorm, PairNorm, global attention or pooling) couple "
            "the nodes; for such a model use whole graphs as samples, see graph_samples.",
        )


@dataclass(frozen=True, eq=False)
class OverGraphs(OverFeatures):
    """One sample per graph; all of its nodes move.

    Attributes:
        graphs: all of them.
        features: of the nodes of each.
    """

    graphs: list[Any]
    features: list[Tensor]

    moves: ClassVar[Moves] = "graphs"

    @cached_property
    def copies(self) -> Copies:
        numbers = self.context["graphs"].tolist()
        data = geometric().data.Batch.from_data_list([self.graphs[n] for n in numbers])
        sample, slot = (self.members >= 0).nonzero(as_tuple=True)
        x = torch.cat([self.features[n] for n in numbers])
        return Copies(data, x, torch.arange(len(x), device=x.device), sample, slot)

    def describe(self) -> str:
        return self.with_space("features of all nodes of the graph")


def over_nodes(
    clf: Classifier, x: Tensor, nodes: Tensor, around: Surroundings, **more: Any
) -> OverNodes:
    """The chosen nodes of a graph, after a comparison with the model on the whole graph."""
    own = more["own"]
    members = nodes[:, None] if own else around.fields(nodes, more["hops"]).table(len(nodes))
    filled = torch.where(members < 0, nodes[:, None], members)
    base = _in_space(clf, x[nodes] if own else x[filled], {"members": members})
    variable = OverNodes(**base, features=x, around=around, **more)
    variable.check_exact()
    return variable


def over_graphs(
    clf: Classifier, graphs: list[Any], features: list[Tensor], call: Call
) -> OverGraphs:
    """Whole graphs, given the features of the nodes of each."""
    sizes = torch.tensor([len(x) for x in features], device=CPU)
    slots = torch.arange(int(sizes.max()), device=CPU).expand(len(sizes), -1)
    members = torch.where(slots < sizes[:, None], slots, -1).to(features[0].device)
    x = torch.stack([part[row.clamp(min=0)] for part, row in zip(features, members)])  # noqa: B905
    numbers = torch.arange(len(graphs), device=members.device)
    base = _in_space(clf, x, {"members": members, "graphs": numbers})
    return OverGraphs(**base, call=call, graphs=graphs, features=features)


def _in_space(clf: Classifier, x: Tensor, context: dict[str, Tensor]) -> dict[str, Any]:
    """The fields that all variables over features of nodes share."""
    check_space(clf, padded=bool((context["members"] < 0).any()))
    coordinates = Coordinates.of(clf.space or Space(), [("x", x)])
    bare = InSpace(clf, coordinates.start, {"x": x, **context}, ("x",), coordinates)
    return {field.name: getattr(bare, field.name) for field in fields(bare)}


def _part_of(data: Any, node: Tensor, edge: Tensor) -> Any:
    """A graph of copied nodes and edges, with what the whole graph says about each of them."""
    kept: dict[str, Any] = {}
    for key, value in data.to_dict().items():
        if key in ("x", "edge_index", "num_nodes", "ptr"):
            continue
        of_node = data.is_node_attr(key)
        if of_node or data.is_edge_attr(key):
            value = _rows(data, key, value, node if of_node else edge)  # noqa: PLW2901
        kept[key] = value
    return geometric().data.Data(num_nodes=len(node), **kept)


def _rows(data: Any, key: str, value: Any, rows: Tensor) -> Any:
    if not isinstance(value, Tensor):
        return [value[n] for n in rows.tolist()]
    return value.index_select(data.__cat_dim__(key, value), rows)
