"""Outputs at nodes and of graphs as functions of features of nodes.

Every sample gets a copy of its own of all that its output depends on. The copies lie side by side
as one graph with no edge between them, so that one run of the model serves them all.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from credibly.adapters.graphs.checks import check_space, geometric
from credibly.adapters.graphs.fields import Surroundings
from credibly.errors import CrediblyError, ModelError
from credibly.model.bound import InSpace
from credibly.model.classifier import Classifier
from credibly.model.coordinates import Coordinates
from credibly.model.space import Space
from credibly.types import Bounds, Limits

Call = Callable[[Any, Any], Any]
"""From a network and a torch_geometric Data to outputs, one row a node or one a graph."""

TRIED = 256
"""Nodes whose output is compared with that on the whole graph when a model is bound."""


@dataclass(frozen=True, eq=False)
class Copies:
    """The copies of some samples as one graph.

    Attributes:
        data: all of the graph but the features.
        x: the features of its nodes (V, F), untouched.
        place: nodes that move (M,).
        sample: to which sample each of them belongs (M,).
        slot: its place among the nodes of that sample (M,).
        centres: the nodes asked about (n,), where samples are nodes.
    """

    data: Any
    x: Tensor
    place: Tensor
    sample: Tensor
    slot: Tensor
    centres: Tensor | None = None


class OverFeatures(InSpace):
    """Outputs as a function of features of nodes (n, F), or (n, S, F) with padding.

    Attributes:
        members: numbers of the nodes that move (n, S); -1 for padding, which never moves.
    """

    def __init__(self, base: Classifier, x: Tensor, context: dict[str, Tensor], call: Call) -> None:
        padded = bool((context["members"] < 0).any())
        check_space(base, padded=padded)
        coordinates = Coordinates.of(base.space or Space(), [("x", x)])
        super().__init__(base, {"x": x, **context}, ["x"], coordinates)
        self.call = call
        self.ready: Copies | None = None

    @property
    def members(self) -> Tensor:
        """Numbers of the nodes that move (n, S), -1 for padding."""
        members: Tensor = self.context["members"]
        return members

    def run_at(self, variable: Tensor) -> Any:
        if self.ready is None:
            self.ready = self.copies()
        here = self.ready
        values = self.decode(variable).reshape(*self.members.shape, *here.x.shape[1:])
        moved = here.x.index_put((here.place,), values[here.sample, here.slot])
        return self.answers(here, self.called(here.data, moved))

    def called(self, data: Any, x: Tensor) -> Any:
        """What the model gives for a graph with these features."""
        graph = copy(data)
        graph.x = x if self.preprocess is None else self.preprocess(x)
        try:
            found = self.call(self.net, graph)
        except CrediblyError:
            raise
        except Exception as error:
            raise ModelError(
                f"the model failed on {graph} with {type(error).__name__}: {error}",
                remedy="Say how to call it, for example "
                "call=lambda net, data: net(data.x, data.edge_index, data.edge_weight).",
            ) from error
        return found if self.pick is None else self.pick(found)

    @abstractmethod
    def copies(self) -> Copies:
        """The graph to run the model on."""

    @abstractmethod
    def answers(self, here: Copies, found: Any) -> Any:
        """The rows of what the model returned that belong to the samples."""

    def select(self, rows: Tensor | slice) -> OverFeatures:
        chosen = super().select(rows)
        assert isinstance(chosen, OverFeatures)  # noqa: S101  # a copy of self
        chosen.ready = None
        return chosen

    def encode(self, values: Tensor) -> Tensor:
        origin = self.context["x"]
        if origin.shape == values.shape and origin.dim() > 2:  # whatever padding holds is no move
            values = torch.where(self._padding(values), origin, values)
        return super().encode(values)

    def limits(self, bounds: Bounds | None) -> Limits | None:
        """Padding is held where it is, so that no search around an answer moves it either."""
        found, padding = super().limits(bounds), self._padding(self.context["x"])
        if not bool(padding.any()):
            return found
        start, held = self.coordinates.start, padding.flatten(1)[:, self.coordinates.slot >= 0]
        free = torch.full_like(start, torch.inf)
        low, high = (-free, free) if found is None else found
        return torch.where(held, start, low), torch.where(held, start, high)

    def _padding(self, like: Tensor) -> Tensor:
        if like.dim() == 2:  # a node's own features: nothing to fill up
            return torch.zeros_like(like, dtype=torch.bool)
        return (self.members < 0).reshape(*self.members.shape, 1).expand_as(like)

    def _named(self, what: str) -> str:
        if self.space is None or self.space.is_plain:
            return what
        return f"{what}, {self.space.describe()}"


class OverNodes(OverFeatures):
    """One sample a node.

    Attributes:
        nodes: numbers of the nodes asked about (n,).
        hops: how far messages travel.
    """

    def __init__(
        self,
        base: Classifier,
        data: Any,
        x: Tensor,
        nodes: Tensor,
        *,
        around: Surroundings,
        hops: int,
        own: bool,
        call: Call,
    ) -> None:
        self._data, self._x, self._around, self.hops, self._own = data, x, around, hops, own
        members = nodes[:, None] if own else around.fields(nodes, hops).table(len(nodes))
        filled = torch.where(members < 0, nodes[:, None], members)
        super().__init__(base, x[nodes] if own else x[filled], {"members": members}, call)

    @property
    def nodes(self) -> Tensor:
        """Numbers of the nodes asked about (n,)."""
        return self.members[:, 0]

    def copies(self) -> Copies:
        fields = self._around.fields(self.nodes, self.hops)
        union = self._around.union(fields)
        data = _part_of(self._data, union.node, union.edge)
        data.edge_index = union.edge_index
        own = fields.slot == 0
        moving = own if self._own else torch.ones_like(own)
        return Copies(
            data,
            self._x[union.node],
            place=union.place[moving],
            sample=fields.sample[moving],
            slot=fields.slot[moving],
            centres=union.place[own],
        )

    def answers(self, here: Copies, found: Any) -> Any:
        return self.one_row_per_sample(found, len(here.x))[here.centres]

    def space_name(self) -> str:
        what = "features of the node" if self._own else (
            f"features of the nodes within {self.hops} hops"
        )  # fmt: skip
        return self._named(what)

    def check_exact(self) -> None:
        """Compare a few outputs with those of the model on the whole graph."""
        with torch.no_grad():
            whole = self.one_row_per_sample(self.called(self._data, self._x), len(self._x))
            rows = torch.linspace(0, len(self.nodes) - 1, min(TRIED, len(self.nodes)))
            for part in torch.split(rows.round().long().to(self.nodes.device), 16):
                chosen = self.select(part)
                gap = (chosen.raw_outputs(chosen.variable) - whole[self.nodes[part]]).abs()
                rounding = torch.finfo(gap.dtype).eps ** 0.5 * (1 + whole[self.nodes[part]].abs())
                if bool((gap > rounding).any()):  # never for NaN, which is left to its own status
                    self._complain(float(gap.nan_to_num(0.0).max()), whole)

    def _complain(self, gap: float, whole: Tensor) -> None:
        again = self.one_row_per_sample(self.called(self._data, self._x), len(self._x))
        if not torch.allclose(again, whole, equal_nan=True):
            raise ModelError(
                "the model is random: the same graph gave different outputs",
                remedy="Switch its randomness off (dropout, sampled neighbours).",
            )
        raise ModelError(
            f"the output at a node depends on more than what lies within {self.hops} hops: it "
            f"changes by {gap:.3g} without the rest of the graph",
            remedy="Pass a larger hops= if messages travel further than layers were counted. "
            "Statistics over all nodes (GraphNorm, PairNorm, global attention or pooling) couple "
            "the nodes; such a model can be asked about whole graphs only, see graph_samples.",
        )


class OverGraphs(OverFeatures):
    """One sample a graph; all of its nodes move."""

    def __init__(
        self, base: Classifier, graphs: list[Any], features: list[Tensor], call: Call
    ) -> None:
        self._graphs, self._features = graphs, features
        sizes = torch.tensor([len(x) for x in features])
        slots = torch.arange(int(sizes.max())).expand(len(sizes), -1)
        members = torch.where(slots < sizes[:, None], slots, -1).to(features[0].device)
        x = torch.stack([part[row.clamp(min=0)] for part, row in zip(features, members)])  # noqa: B905
        numbers = torch.arange(len(graphs), device=members.device)
        super().__init__(base, x, {"members": members, "graphs": numbers}, call)

    def copies(self) -> Copies:
        numbers = self.context["graphs"].tolist()
        data = geometric().data.Batch.from_data_list([self._graphs[n] for n in numbers])
        sample, slot = (self.members >= 0).nonzero(as_tuple=True)
        x = torch.cat([self._features[n] for n in numbers])
        return Copies(data, x, torch.arange(len(x), device=x.device), sample, slot)

    def answers(self, here: Copies, found: Any) -> Any:  # noqa: ARG002  # one row a graph already
        return found

    def space_name(self) -> str:
        return self._named("features of all nodes of the graph")


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
