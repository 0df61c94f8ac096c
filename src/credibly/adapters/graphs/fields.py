"""Receptive fields of nodes, many at a time, in plain torch.

A node of a copy is named by one number, its key: sample times number of nodes plus node. Sorted
keys keep the order of the nodes inside each sample, and so the order of its edges.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Fields:
    """The nodes that the output at each of n nodes can depend on.

    Attributes:
        sample: to which sample a member belongs (M,).
        node: its number in the whole graph (M,).
        slot: its place among the members of its sample (M,): the node itself is at 0, nearer
            nodes come first, then lower numbers.
    """

    sample: Tensor
    node: Tensor
    slot: Tensor

    def table(self, count: int) -> Tensor:
        """Node numbers (count, S), -1 where a sample has fewer members than the largest."""
        width = int(self.slot.max()) + 1
        members = torch.full((count, width), -1, dtype=torch.long, device=self.node.device)
        members[self.sample, self.slot] = self.node
        return members


@dataclass(frozen=True, eq=False)
class Union:
    """Copies of the surroundings of n nodes, side by side, with no edge between two copies.

    Attributes:
        node: numbers in the whole graph of the nodes of the union (V,).
        edge: numbers in the whole graph of its edges (W,).
        edge_index: the edges in numbers of the union (2, W).
        place: where in the union each member of the fields is (M,).
    """

    node: Tensor
    edge: Tensor
    edge_index: Tensor
    place: Tensor


class Surroundings:
    """The edges of one graph, sorted so that those of any node are found at once.

    Args:
        edge_index: sources and targets (2, E).
        count: number of nodes.
        forward: whether messages flow from sources to targets.
        backward: whether they flow from targets to sources.
    """

    def __init__(
        self, edge_index: Tensor, count: int, *, forward: bool = True, backward: bool = False
    ) -> None:
        self.edge_index, self.count = edge_index, count
        self.forward, self.backward = forward, backward
        self._ends = [_sorted_by(edge_index[end], count) for end in (0, 1)]

    def fields(self, nodes: Tensor, hops: int) -> Fields:
        """All nodes whose messages reach `nodes` (n,) in at most so many steps."""
        new = torch.arange(len(nodes), device=nodes.device) * self.count + nodes
        keys, levels = new, [new]
        for _ in range(hops):
            reached = torch.unique(torch.cat(self._senders(new)))
            new = reached[~torch.isin(reached, keys)]
            keys = torch.cat([keys, new])
            levels.append(new)
        return self._in_slots(levels)

    def union(self, fields: Fields) -> Union:
        """A copy for each sample of its field and of every edge that touches it.

        Edges that leave the field bring nodes from one hop further. Nothing they send can arrive
        in time, but with them every node of the field has all of its edges: what layers make of
        the degrees of nodes is then also right at the border.
        """
        wide = fields.sample * self.count + fields.node
        size = self.edge_index.shape[1]
        found = []
        for end in (0, 1):
            owner, edge = self._touching(end, fields.node)
            found.append(fields.sample[owner] * size + edge)
        edges = torch.unique(torch.cat(found))
        sample, edge = edges // max(size, 1), edges % max(size, 1)
        ends = sample * self.count + self.edge_index[:, edge]
        keys = torch.unique(torch.cat([wide, ends.flatten()]))
        return Union(
            keys % self.count, edge, torch.searchsorted(keys, ends), torch.searchsorted(keys, wide)
        )

    def _senders(self, keys: Tensor) -> list[Tensor]:
        """Keys of the nodes that send something to those with the given keys."""
        base, node = keys // self.count * self.count, keys % self.count
        found = []
        for used, near in ((self.forward, 1), (self.backward, 0)):
            if used:
                owner, edge = self._touching(near, node)
                found.append(base[owner] + self.edge_index[1 - near, edge])
        return found

    def _touching(self, end: int, nodes: Tensor) -> tuple[Tensor, Tensor]:
        """Edges that have one of `nodes` at this end, and at which of them (positions)."""
        order, begin = self._ends[end]
        counts = begin[nodes + 1] - begin[nodes]
        owner = torch.arange(len(nodes), device=nodes.device).repeat_interleave(counts)
        ahead = (counts.cumsum(0) - counts)[owner]
        place = torch.arange(len(owner), device=nodes.device) - ahead
        return owner, order[begin[nodes][owner] + place]

    def _in_slots(self, levels: list[Tensor]) -> Fields:
        keys = torch.cat(levels)
        sample, order = (keys // self.count).sort(stable=True)  # the levels stay in order
        counts = torch.bincount(sample)
        first = (counts.cumsum(0) - counts)[sample]
        slot = torch.arange(len(sample), device=sample.device) - first
        return Fields(sample, keys[order] % self.count, slot)


def _sorted_by(ends: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Edge numbers in the order of their ends, and where those of each node begin (N + 1,)."""
    order = ends.argsort(stable=True)
    begin = torch.zeros(count + 1, dtype=torch.long, device=ends.device)
    begin[1:] = torch.bincount(ends, minlength=count).cumsum(0)
    return order, begin
