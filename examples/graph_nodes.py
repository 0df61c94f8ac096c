"""Nodes of a graph as samples: which predictions of a graph network deserve trust?

python -m examples.graph_nodes [--out FOLDER] [--seed NUMBER]

Communities have more edges inside than between them and weak features; a GCN of two layers is
trained on a few labelled nodes. The other nodes get two profiles: one moves their own features, the
other those of all nodes that influence them.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv

import credibly as cr
from credibly.decide.scores import predicted_ratio, softmax_ratio
from credibly.metrics import error_coverage

COMMUNITIES, FEATURES, LABELLED = 4, 16, 15
INSIDE, BETWEEN = 3.2, 2.6
"""Mean number of neighbours of a node in its own community and in all others together."""


class Net(nn.Module):
    """Two graph convolutions."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = GCNConv(FEATURES, 32), GCNConv(32, COMMUNITIES)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Logits of every node."""
        hidden = torch.relu(self.first(x, edge_index))
        hidden = nn.functional.dropout(hidden, 0.5, self.training)
        outputs: Tensor = self.second(hidden, edge_index)
        return outputs


def main(out: Path | None = None, *, small: bool = False, seed: int = 0) -> None:
    """Print how trust finds errors and where neighbourhoods move; draw it if a folder is given."""
    torch.manual_seed(seed)
    data = communities(size=24 if small else 120)
    clf = cr.Classifier(trained(data))
    asked = (~data.train_mask).nonzero().squeeze(1)
    wide = cr.graph_nodes(clf, data, asked, moves="neighbourhood")
    profiles = {
        "own features": cr.credibility(cr.graph_nodes(clf, data, asked), gamma="auto"),
        "neighbourhood": cr.credibility(wide, gamma="auto"),
    }
    right, alike = (
        profiles["own features"].credence.argmax(1) == data.y[asked],
        homophily(data)[asked],
    )
    print(
        f"{len(asked)} nodes; the network is right for {right.double().mean():.1%}: for "
        f"{right[alike > 0.5].double().mean():.1%} where most neighbours are alike, for "
        f"{right[alike <= 0.5].double().mean():.1%} elsewhere"
    )
    scores = {f"trust, {name}": predicted_ratio(p) for name, p in profiles.items()}
    scores["softmax"] = softmax_ratio(profiles["own features"]).double()
    print("score                 AUROC of errors   right among the most trusted half")
    for name, score in scores.items():
        half = error_coverage(score, right).accuracy_at(0.5)
        print(f"{name:<22}{cr.metrics.failure_auroc(score, right):>15.3f}{half:>36.1%}")
    shares = movement(data, wide.members, profiles["neighbourhood"])
    degree = torch.bincount(data.edge_index[1], minlength=len(data.y))[asked]
    own, first, second = shares.mean(0).tolist()
    print(f"where a neighbourhood moves: {own:.0%} of the risk at the node itself, {first:.0%} one "
          f"hop away, {second:.0%} two")  # fmt: skip
    if out is not None:
        trust = scores["trust, own features"]
        draw(out, trust, right=right, alike=alike, shares=shares, degree=degree)


def communities(size: int) -> Data:
    """Make an undirected stochastic block model with Gaussian features."""
    labels = torch.arange(COMMUNITIES).repeat_interleave(size)
    same = labels[:, None] == labels
    chance = torch.where(same, INSIDE / size, BETWEEN / (size * (COMMUNITIES - 1)))
    drawn = torch.rand_like(chance).triu(1).where(torch.ones_like(same).triu(1), 1.0) < chance
    edges = drawn.nonzero().T
    means = 0.35 * torch.randn(COMMUNITIES, FEATURES)
    train = torch.zeros_like(labels, dtype=torch.bool)
    for k in range(COMMUNITIES):
        train[k * size : k * size + min(LABELLED, size // 2)] = True
    return Data(
        x=means[labels] + torch.randn(len(labels), FEATURES),
        edge_index=torch.cat([edges, edges.flip(0)], dim=1),
        y=labels,
        train_mask=train,
    )


def trained(data: Data) -> Net:
    """Train a network for two hundred steps, and set it to eval mode."""
    net = Net()
    optimiser = torch.optim.Adam(net.parameters(), lr=0.01, weight_decay=5e-3)
    for _ in range(200):
        optimiser.zero_grad()
        outputs = net(data.x, data.edge_index)[data.train_mask]
        nn.functional.cross_entropy(outputs, data.y[data.train_mask]).backward()
        optimiser.step()
    return net.eval()


def homophily(data: Data) -> Tensor:
    """Return the share of neighbours of a node's own community (N,); 1 without neighbours."""
    source, target = data.edge_index
    alike = (data.y[source] == data.y[target]).double()
    total = torch.bincount(target, minlength=len(data.y))
    found = torch.zeros(len(data.y), dtype=torch.float64).index_add(0, target, alike)
    return torch.where(total > 0, found / total.clamp(min=1), 1.0)


def movement(data: Data, members: Tensor, profile: cr.Profile) -> Tensor:
    """Return shares (n, 3) of the risk at the node, at its neighbours, and two hops away."""
    linked = torch.zeros(len(data.y), len(data.y), dtype=torch.bool)
    linked[data.edge_index[0], data.edge_index[1]] = True
    cost = (profile.perturbed - profile.x0).square().sum(2)
    near = linked[members.clamp(min=0), members[:, :1]] & (members >= 0)
    near[:, 0] = False
    total = cost.sum(1)
    own, first = cost[:, 0], torch.where(near, cost, 0.0).sum(1)
    return torch.stack([own, first, total - own - first], dim=1) / total[:, None]


def draw(
    out: Path, trust: Tensor, *, right: Tensor, alike: Tensor, shares: Tensor, degree: Tensor
) -> None:
    """Draw trust by the share of alike neighbours, and the movement by degree."""
    from credibly.plot.style import PROFILE, QUIET, SHADES, SOFTMAX, panels, png, tidy

    out.mkdir(parents=True, exist_ok=True)
    figure, (left, bars) = panels(2, width=10.0, height=4.4)
    shifted = alike + 0.012 * torch.randn(len(alike), dtype=alike.dtype)
    for name, which, colour in (("right", right, PROFILE), ("wrong", ~right, SOFTMAX)):
        left.scatter(
            shifted[which], trust[which], s=11, alpha=0.65, linewidths=0, color=colour,
            label=f"prediction is {name}",
        )  # fmt: skip
    left.axhline(0, color=QUIET, linewidth=0.8)
    tidy(
        left,
        title="Most errors are nodes among strangers; some are trusted",
        x="share of its neighbours that are of the node's own community",
        y="trust: lead of the predicted class at x+",
    )
    groups = [(0, 1), (2, 3), (4, 5), (6, 7), (8, 99)]
    names = ["0-1", "2-3", "4-5", "6-7", "8+"]
    floor = torch.zeros(len(groups), dtype=shares.dtype)
    inside = [(degree >= low) & (degree <= high) for low, high in groups]
    for column, name in enumerate(("the node itself", "its neighbours", "two hops away")):
        height = torch.stack([shares[rows, column].mean().nan_to_num(0.0) for rows in inside])
        bars.bar(names, height, bottom=floor, color=SHADES[2 - column], label=name)
        floor = floor + height
    tidy(
        bars,
        title="Moving all it hears: the more neighbours, the less its own",
        x="number of neighbours of the node",
        y="mean share of the risk",
    )
    bars.legend(fontsize=8, frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=3)
    left.legend(fontsize=8, frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=2)
    (out / "gallery-graphs.png").write_bytes(png(figure))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    main(given.out, seed=given.seed)
