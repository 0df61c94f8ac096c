"""Nodes and graphs as samples: exact, independent of each other, padded without effect."""

import sys

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch_geometric import EdgeIndex
from torch_geometric.data import Batch, Data, HeteroData
from torch_geometric.nn import (
    APPNP,
    GCN,
    ChebConv,
    DirGNNConv,
    GATConv,
    GCNConv,
    GINConv,
    GINEConv,
    GraphNorm,
    SAGEConv,
    global_mean_pool,
)

import credibly as cr
from credibly.model.derivatives import losses_and_pull

NODES, FEATURES, CLASSES = 30, 4, 3


class Two(nn.Module):
    """Two layers of message passing with a smooth bend between them."""

    def __init__(self, first, second, between=None):
        super().__init__()
        self.first, self.second, self.between = first, second, between

    def forward(self, x, edge_index, *more):
        hidden = torch.tanh(self.first(x, edge_index, *more))
        if self.between is not None:
            hidden = self.between(hidden)
        return self.second(hidden, edge_index, *more)


def perceptron(inputs, outputs):
    return nn.Sequential(nn.Linear(inputs, 6), nn.Softplus(), nn.Linear(6, outputs))


def gcn():
    return Two(GCNConv(FEATURES, 8), GCNConv(8, CLASSES))


def weights(net, data):
    return net(data.x, data.edge_index, data.edge_weight)


def attributes(net, data):
    return net(data.x, data.edge_index, data.edge_attr)


def reverse():
    return Two(
        GCNConv(FEATURES, 8, flow="target_to_source"),
        GCNConv(8, CLASSES, flow="target_to_source"),
    )


def gine():
    return Two(
        GINEConv(perceptron(FEATURES, 8), edge_dim=2), GINEConv(perceptron(8, CLASSES), edge_dim=2)
    )


MODELS = {
    "GCN": (gcn, None),
    "GCN with edge weights": (gcn, weights),
    "GAT": (lambda: Two(GATConv(FEATURES, 8, dropout=0.5), GATConv(8, CLASSES)), None),
    "GAT with edge attributes": (
        lambda: Two(GATConv(FEATURES, 8, edge_dim=2), GATConv(8, CLASSES, edge_dim=2)),
        attributes,
    ),
    "GIN": (lambda: Two(GINConv(perceptron(FEATURES, 8)), GINConv(perceptron(8, CLASSES))), None),
    "GINE": (gine, attributes),
    "SAGE": (lambda: Two(SAGEConv(FEATURES, 8), SAGEConv(8, CLASSES, aggr="max")), None),
    "Chebyshev": (lambda: Two(ChebConv(FEATURES, 8, K=2), ChebConv(8, CLASSES, K=2)), None),
    "APPNP": (lambda: Two(GCNConv(FEATURES, CLASSES), APPNP(K=2, alpha=0.1)), None),
    "against the edges": (reverse, None),
    "both ways": (
        lambda: Two(DirGNNConv(SAGEConv(FEATURES, 8)), DirGNNConv(SAGEConv(8, CLASSES))),
        None,
    ),
    "a whole model": (lambda: GCN(FEATURES, 8, 2, CLASSES, norm="batch", act="tanh"), None),
}


def a_graph(seed=0, nodes=NODES, edges=60):
    """Directed, with self loops and double edges; the last two nodes have no edges at all."""
    g = torch.Generator().manual_seed(seed)
    ends = torch.randint(0, nodes - 2, (2, edges), generator=g)
    loops = torch.tensor([[3, 5, 5], [3, 5, 5]])
    edge_index = torch.cat([ends, loops], dim=1)
    count = edge_index.shape[1]
    return Data(
        x=torch.randn(nodes, FEATURES, generator=g, dtype=torch.float64),
        edge_index=edge_index,
        edge_weight=torch.rand(count, generator=g, dtype=torch.float64) + 0.1,
        edge_attr=torch.randn(count, 2, generator=g, dtype=torch.float64),
    )


def classifier(make=gcn, **settings):
    torch.manual_seed(0)
    return cr.Classifier(make().double().eval(), **settings)


@pytest.fixture(scope="module")
def solved():
    clf, data = classifier(), a_graph()
    bound = cr.graph_nodes(clf, data, moves="neighbourhood")
    return bound, cr.credibility(bound, gamma=0.1)


@pytest.mark.parametrize("moves", ["own", "neighbourhood"])
@pytest.mark.parametrize("name", MODELS)
def test_outputs_are_those_on_the_whole_graph(name, moves):
    make, call = MODELS[name]
    clf, data = classifier(make), a_graph()
    default = call or (lambda net, graph: net(graph.x, graph.edge_index))
    bound = cr.graph_nodes(clf, data, moves=moves, call=call)
    with torch.no_grad():
        whole = default(clf.net, data)
        assert torch.allclose(bound.raw_outputs(bound.start), whole, atol=1e-12)


@pytest.mark.parametrize("name", MODELS)
def test_moved_neighbourhoods_give_what_the_whole_graph_gives_when_moved_so(name):
    make, call = MODELS[name]
    clf, data = classifier(make), a_graph()
    default = call or (lambda net, graph: net(graph.x, graph.edge_index))
    nodes = [0, 3, 5, 17, NODES - 1]
    bound = cr.graph_nodes(clf, data, nodes, moves="neighbourhood", call=call)
    moved = bound.values + torch.randn_like(bound.values)
    with torch.no_grad():
        found = bound.raw_outputs(bound.encode(moved))
        for row, node in enumerate(nodes):
            other = data.clone()
            real = bound.members[row] >= 0
            other.x[bound.members[row, real]] = moved[row, real]
            assert torch.allclose(found[row], default(clf.net, other)[node], atol=1e-12)


@given(
    st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7)), max_size=25),
    st.lists(st.integers(0, 7), min_size=1, max_size=6),
    st.sampled_from([0, 1, 2, 3]),
)
def test_any_graph_any_nodes_any_number_of_layers(edges, nodes, layers):
    edge_index = torch.tensor(edges, dtype=torch.long).reshape(-1, 2).T.contiguous()
    data = Data(x=torch.randn(8, FEATURES, dtype=torch.float64), edge_index=edge_index)
    convolutions = [GCNConv(FEATURES, FEATURES).double() for _ in range(layers)]

    def net(x, edge_index):
        for layer in convolutions:
            x = torch.tanh(layer(x, edge_index))
        return x

    bound = cr.graph_nodes(cr.Classifier(net), data, nodes, moves="neighbourhood", hops=layers)
    with torch.no_grad():
        whole = net(data.x, data.edge_index)[nodes]
        assert torch.allclose(bound.raw_outputs(bound.start), whole, atol=1e-12)


def test_moved_own_features_give_what_the_whole_graph_gives_when_moved_so():
    clf, data = classifier(), a_graph()
    nodes = torch.tensor([5, 0, 5, 12])  # one of them twice, with other moves
    bound = cr.graph_nodes(clf, data, nodes)
    moved = bound.values + torch.randn_like(bound.values)
    with torch.no_grad():
        found = bound.raw_outputs(moved)
        for row, node in enumerate(nodes.tolist()):
            other = data.clone()
            other.x[node] = moved[row]
            expected = clf.net(other.x, other.edge_index)[node]
            assert torch.allclose(found[row], expected, atol=1e-12)


def test_a_sample_does_not_feel_the_moves_of_its_neighbours():
    bound = cr.graph_nodes(classifier(), a_graph(), moves="neighbourhood")
    with torch.no_grad():
        before = bound.raw_outputs(bound.start)
        moved = bound.start.clone()
        moved[7] += 1.0
        changed = (bound.raw_outputs(moved) - before).abs().amax(1) > 0
    assert changed.nonzero().flatten().tolist() == [7]


def test_gradients_are_those_of_finite_differences():
    bound = cr.graph_nodes(classifier(), a_graph(), [1, 4, NODES - 1], moves="neighbourhood")
    x, step = bound.start, 1e-6
    multipliers = torch.rand(3, CLASSES, dtype=torch.float64)
    pull = losses_and_pull(bound, x, lambda _: multipliers).pull
    with torch.no_grad():
        for column in range(x.shape[1]):
            move = torch.zeros_like(x)
            move[:, column] = step
            ahead, behind = bound.losses(x + move), bound.losses(x - move)
            slope = ((ahead - behind) * multipliers).sum(1) / (2 * step)
            assert torch.allclose(pull[:, column], slope, atol=1e-8)


def test_members_are_the_nodes_within_two_steps():
    data = a_graph()
    bound = cr.graph_nodes(classifier(), data, moves="neighbourhood")
    adjacency = torch.eye(NODES)
    adjacency[data.edge_index[1], data.edge_index[0]] = 1
    reached = (adjacency @ adjacency) > 0
    for row in range(NODES):
        members = bound.members[row][bound.members[row] >= 0]
        assert members[0] == row
        assert sorted(members.tolist()) == reached[row].nonzero().flatten().tolist()


def test_padding_has_no_gradient_never_moves_and_costs_nothing(solved):
    bound, profile = solved
    padding = bound.members < 0
    assert bool(padding.any())
    pull = losses_and_pull(bound, bound.start, torch.clone).pull.reshape(profile.x0.shape)
    assert float(pull[padding].abs().max()) == 0
    assert torch.equal(profile.perturbed[padding], profile.x0[padding])
    real = (profile.perturbed - profile.x0)[~padding].square().sum()
    assert float(profile.risk.sum()) == pytest.approx(float(real), rel=1e-12)
    junk = torch.where(padding[..., None], 9.0, profile.perturbed)
    assert torch.allclose(bound.encode(junk), bound.encode(profile.perturbed))


def test_padding_is_held_in_the_search_around_an_answer(solved):
    bound, _ = solved
    low, high = bound.limits((-8.0, 8.0))
    padding = (bound.members < 0)[..., None].expand(-1, -1, FEATURES).flatten(1)
    assert torch.equal(low[padding], high[padding])
    assert bool((high - low)[~padding].min() > 15)


def test_the_certificate_and_the_inequality_hold_on_a_smooth_model(solved):
    bound, _ = solved
    profile = cr.credibility(bound, gamma=0.1, solver=cr.solvers.LBFGS())
    found = cr.certify(bound, None, profile.perturbed, gamma=0.1)
    assert bool(found.holds(tolerance=1e-6, improvement=0.0).all())
    assert bool((profile.risk > 0).all())
    assert bool(cr.theory.check_tradeoff(bound, profile).holds(tolerance=1e-12).all())


def test_an_answer_that_is_not_one_is_refuted(solved):
    bound, profile = solved
    halfway = (profile.x0 + profile.perturbed) / 2
    assert not bool(cr.certify(bound, profile.x0, halfway, gamma=0.1).holds().any())


def test_more_that_moves_is_never_worse(solved):
    _, profile = solved
    own = cr.credibility(cr.graph_nodes(classifier(), a_graph()), gamma=0.1)
    wide = profile.certificate.objective
    assert bool((wide <= own.certificate.objective + 1e-9).all())
    assert own.x0.shape == (NODES, FEATURES)
    # with nothing to hear, the neighbourhood of a node is the node
    lonely = slice(NODES - 2, NODES)
    assert torch.allclose(own.credibility[lonely], profile.credibility[lonely], atol=1e-6)


@pytest.mark.parametrize("moves", ["own", "neighbourhood"])
def test_chunks_change_nothing(moves):
    bound = cr.graph_nodes(classifier(), a_graph(), range(12), moves=moves)
    whole = cr.credibility(bound, gamma=0.1)
    parts = cr.credibility(bound, gamma=0.1, chunk_size=5)
    assert torch.allclose(whole.credibility, parts.credibility, atol=1e-8)


def test_samples_are_chosen_by_slice_mask_and_numbers():
    bound = cr.graph_nodes(classifier(), a_graph(), moves="neighbourhood")
    with torch.no_grad():
        every = bound.raw_outputs(bound.start)
        mask = torch.arange(NODES) % 3 == 0
        for rows in (slice(4, 9), mask, torch.tensor([8, 2, 2])):
            part = bound.select(rows)
            assert torch.allclose(part.raw_outputs(part.start), every[rows], atol=1e-14)
            assert torch.equal(part.nodes, torch.arange(NODES)[rows])


def test_path_and_automatic_gamma_work_without_inputs():
    bound = cr.graph_nodes(classifier(), a_graph(), [0, 1, 2])
    profile = cr.credibility(bound, gamma="auto")
    assert profile.gamma > 0
    path = cr.credibility_path(bound, None, [0.1, 0.2], solver=cr.solvers.LBFGS())
    assert path.risk.shape == (2, 3)


def test_nodes_may_be_a_mask_a_list_or_an_array():
    clf, data = classifier(), a_graph()
    mask = torch.zeros(NODES, dtype=torch.bool)
    mask[[2, 6]] = True
    for nodes in (mask, [2, 6], torch.tensor([2, 6]).numpy(), mask.tolist()):
        assert cr.graph_nodes(clf, data, nodes).nodes.tolist() == [2, 6]


def test_a_space_scales_and_locks_features():
    scale = torch.tensor([1.0, 2.0, 0.5, 1.0], dtype=torch.float64)
    space = cr.Space(scale=scale, locked=[3])
    clf, data = classifier(space=space), a_graph()
    bound = cr.graph_nodes(clf, data, [0, 1, 2], moves="neighbourhood")
    profile = cr.credibility(bound, gamma=0.05)
    move = profile.perturbed - profile.x0
    assert float(move[..., 3].abs().max()) == 0
    risk = (move / scale).square().flatten(1).sum(1)
    assert torch.allclose(profile.risk, risk, rtol=1e-9)
    assert profile.settings.space.startswith("features of the nodes within 2 hops, Space(scale")
    assert bool(cr.certify(bound, None, profile.perturbed, gamma=0.05).holds().all())


def test_padding_keeps_bounds_that_do_not_contain_zero():
    data = a_graph()
    data.x = data.x.abs() + 1
    bound = cr.graph_nodes(classifier(), data, moves="neighbourhood")
    profile = cr.credibility(bound, gamma=0.1, bounds=(1.0, 9.0), solver=cr.solvers.LBFGS(steps=5))
    assert float(profile.perturbed.min()) >= 1


def test_preprocess_and_pick_are_used():
    data = a_graph()
    net = gcn().double().eval()
    clf = cr.Classifier(
        lambda x, edge_index: (net(x, edge_index),),
        preprocess=lambda x: x / 2, pick=lambda found: found[0],
    )  # fmt: skip
    bound = cr.graph_nodes(clf, data, hops=2)
    with torch.no_grad():
        expected = net(data.x / 2, data.edge_index)
        assert torch.allclose(bound.raw_outputs(bound.start), expected, atol=1e-12)


def test_a_node_with_nan_costs_only_those_who_hear_it():
    data = a_graph()
    data.x[0, 0] = torch.nan
    bound = cr.graph_nodes(classifier(), data)
    profile = cr.credibility(bound, gamma=0.1, solver=cr.solvers.LBFGS(steps=3))
    hears = (cr.graph_nodes(classifier(), a_graph(), moves="neighbourhood").members == 0).any(1)
    assert profile.status[0] is cr.Status.NON_FINITE_INPUT
    assert torch.equal(~profile.credibility.isfinite().all(1), hears)


def test_what_the_graph_holds_beside_features_comes_along():
    data = a_graph()
    data.shift = torch.randn(NODES, CLASSES, dtype=torch.float64)
    data.name = "a graph"

    def call(net, graph):
        assert graph.name == "a graph"
        return net(graph.x, graph.edge_index) + graph.shift

    bound = cr.graph_nodes(classifier(), data, call=call)
    with torch.no_grad():
        expected = call(bound.net, data)
        assert torch.allclose(bound.raw_outputs(bound.start), expected, atol=1e-12)


def test_the_model_is_left_as_found_and_inference_mode_is_fine():
    clf = classifier()
    before = {name: tensor.clone() for name, tensor in clf.net.state_dict().items()}
    with torch.inference_mode():
        bound = cr.graph_nodes(clf, a_graph(), [0, 1], moves="neighbourhood")
        cr.credibility(bound, gamma=0.1, solver=cr.solvers.LBFGS(steps=3))
    assert all(torch.equal(before[name], now) for name, now in clf.net.state_dict().items())
    assert all(parameter.grad is None for parameter in clf.net.parameters())


def test_edges_may_be_an_edge_index_or_none_at_all():
    clf, data = classifier(), a_graph()
    expected = cr.graph_nodes(clf, data)
    data.edge_index = EdgeIndex(data.edge_index, sparse_size=(NODES, NODES))
    with torch.no_grad():
        found = cr.graph_nodes(clf, data)
        both = [bound.raw_outputs(bound.start) for bound in (found, expected)]
        assert torch.allclose(*both, atol=1e-12)
    data.edge_index = torch.zeros(2, 0, dtype=torch.long)
    assert cr.graph_nodes(clf, data, moves="neighbourhood").values.shape == (NODES, 1, FEATURES)


def test_a_head_of_one_logit_has_two_classes():
    clf = classifier(lambda: Two(GCNConv(FEATURES, 8), GCNConv(8, 1)))
    bound = cr.graph_nodes(clf, a_graph(), [0, 1], call=lambda net, d: net(d.x, d.edge_index)[:, 0])
    profile = cr.credibility(bound, gamma=0.1, solver=cr.solvers.LBFGS(steps=3))
    assert profile.credibility.shape == (2, 2)


# --- whole graphs ---------------------------------------------------------------------------------


class Pooled(nn.Module):
    def __init__(self, norm=None):
        super().__init__()
        self.body, self.norm = gcn(), norm

    def forward(self, x, edge_index, batch):
        hidden = self.body(x, edge_index)
        return global_mean_pool(hidden if self.norm is None else self.norm(hidden, batch), batch)


def some_graphs():
    return [a_graph(seed, nodes, 2 * nodes) for seed, nodes in enumerate((9, 6, 12))]


@pytest.mark.parametrize("norm", [None, GraphNorm(CLASSES)], ids=["plain", "norm over a graph"])
def test_graphs_are_samples_with_all_nodes_moving(norm):
    clf = classifier(lambda: Pooled(norm))
    found = cr.graph_samples(clf, some_graphs())
    assert found.values.shape == (3, 12, FEATURES)
    moved = found.values + torch.randn_like(found.values)
    with torch.no_grad():
        outputs = found.raw_outputs(found.encode(moved))
        for row, data in enumerate(some_graphs()):
            x = moved[row, : data.num_nodes]
            alone = clf.net(x, data.edge_index, torch.zeros(len(x), dtype=torch.long))
            assert torch.allclose(outputs[row], alone[0], atol=1e-12)


def test_profiles_of_graphs_are_certified_and_padding_stays():
    bound = cr.graph_samples(classifier(Pooled), some_graphs())
    profile = cr.credibility(bound, gamma=0.01, chunk_size=2)
    assert bool(cr.certify(bound, None, profile.perturbed, gamma=0.01).holds(tolerance=1e-6).all())
    padding = bound.members < 0
    assert int(padding.sum()) == 3 + 6
    assert torch.equal(profile.perturbed[padding], profile.x0[padding])
    assert profile.settings.space == "features of all nodes of the graph"
    batch = cr.graph_samples(classifier(Pooled), Batch.from_data_list(some_graphs()))
    assert torch.allclose(cr.credibility(batch, gamma=0.01).credibility, profile.credibility)


def test_graphs_of_other_kinds_are_refused():
    clf = classifier(Pooled)
    for wrong in ([], a_graph(), 3):
        with pytest.raises(
            cr.errors.InvalidArgumentError, match=r"For a single graph pass \[data\]"
        ):
            cr.graph_samples(clf, wrong)
    wide = a_graph()
    wide.x = wide.x.repeat(1, 2)
    with pytest.raises(cr.errors.InvalidArgumentError, match="the same features"):
        cr.graph_samples(clf, [a_graph(), wide])
    with pytest.raises(cr.errors.InvalidArgumentError, match=r"graphs\[1\].x"):
        cr.graph_samples(clf, [a_graph(), Data(edge_index=a_graph().edge_index)])


def test_a_model_that_forgets_the_batch_is_told():
    clf = cr.Classifier(lambda x, edge_index, batch: x.mean(0, keepdim=True))  # noqa: ARG005
    with pytest.raises(cr.errors.ModelError, match="one row per sample"):
        cr.credibility(cr.graph_samples(clf, some_graphs()), gamma=1.0)


# --- bad input ------------------------------------------------------------------------------------


def changed(**parts):
    data = a_graph()
    for name, value in parts.items():
        setattr(data, name, value)
    return data


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (changed(x=None), "Give the nodes features"),
        (changed(x=torch.ones(NODES, 4, dtype=torch.long)), "floating-point"),
        (changed(x=a_graph().x.float()), "precision torch.float64"),
        (changed(edge_index=None), "to_edge_index"),
        (changed(edge_index=torch.eye(NODES).to_sparse()), "to_edge_index"),
        (changed(edge_index=torch.tensor([[0], [NODES]])), f"from 0 to {NODES - 1}"),
        (HeteroData(), "to_homogeneous"),
        ({"x": 1}, "to_homogeneous"),
    ],
)
def test_graphs_that_cannot_be_used_are_refused(data, words):
    with pytest.raises(cr.errors.InvalidArgumentError, match=words):
        cr.graph_nodes(classifier(), data)


@pytest.mark.parametrize(
    "nodes", [[NODES], [-1], [], [0.5], torch.ones(3, dtype=torch.bool), "all", [[1, 2]], 3.5]
)
def test_nodes_that_are_none_are_refused(nodes):
    with pytest.raises(cr.errors.InvalidArgumentError, match="`nodes`"):
        cr.graph_nodes(classifier(), a_graph(), nodes)


@pytest.mark.parametrize(
    ("settings", "name"),
    [({"hops": -1}, "hops"), ({"hops": 1.5}, "hops"), ({"moves": "all"}, "moves")],
)
def test_settings_are_checked(settings, name):
    with pytest.raises(cr.errors.InvalidArgumentError, match=f"`{name}`"):
        cr.graph_nodes(classifier(), a_graph(), **settings)


def test_hops_must_be_told_where_no_layer_tells():
    net = classifier().net
    hidden = cr.Classifier(lambda x, edges: net(x, edges) + 0)
    with pytest.raises(cr.errors.InvalidArgumentError, match="Pass hops=2"):
        cr.graph_nodes(hidden, a_graph())
    assert cr.graph_nodes(hidden, a_graph(), hops=2).hops == 2


def test_too_few_hops_are_noticed_and_too_many_are_fine():
    with pytest.raises(cr.errors.ModelError, match="larger hops="):
        cr.graph_nodes(classifier(), a_graph(), hops=1)
    with pytest.raises(
        cr.errors.ModelError, match="larger hops="
    ):  # K=4 reaches three hops, unsaid
        cr.graph_nodes(classifier(lambda: ChebConv(FEATURES, CLASSES, K=4)), a_graph())
    assert cr.graph_nodes(classifier(), a_graph(), hops=4).hops == 4


def test_statistics_over_all_nodes_are_noticed():
    clf = classifier(lambda: Two(GCNConv(FEATURES, 8), GCNConv(8, CLASSES), GraphNorm(8)))
    with pytest.raises(cr.errors.ModelError, match="couple the nodes"):
        cr.graph_nodes(clf, a_graph())


def test_a_model_in_training_mode_is_refused():
    clf = classifier()
    clf.net.first.train()
    with pytest.raises(cr.errors.ModelError, match=r"first \(GCNConv\).*net.eval\(\)"):
        cr.graph_nodes(clf, a_graph())


def test_a_random_model_is_refused():
    net = classifier().net
    clf = cr.Classifier(lambda x, edge_index: nn.functional.dropout(net(x, edge_index), 0.5))
    with pytest.raises(cr.errors.ModelError, match="random"):
        cr.graph_nodes(clf, a_graph(), hops=2)


def test_a_layer_that_remembers_a_graph_is_refused():
    clf = classifier(lambda: Two(GCNConv(FEATURES, 8, cached=True), GCNConv(8, CLASSES)))
    with pytest.raises(cr.errors.ModelError, match="cached=False"):
        cr.graph_nodes(clf, a_graph())


def test_a_failing_call_names_the_way_to_call():
    with pytest.raises(cr.errors.ModelError, match=r"TypeError.*Say how to call it"):
        cr.graph_nodes(classifier(), a_graph(), call=lambda net, data: net(data))


def test_spaces_and_classifiers_that_do_not_fit_are_refused():
    with pytest.raises(cr.errors.InvalidArgumentError, match="`vary`"):
        cr.graph_nodes(classifier(space=cr.Space(vary="edge_attr")), a_graph())
    tied = classifier(space=cr.Space(tied=[0, 0, -1, -1]))
    with pytest.raises(cr.errors.InvalidArgumentError, match="`tied`"):
        cr.graph_nodes(tied, a_graph(), moves="neighbourhood")
    assert cr.graph_nodes(tied, a_graph()).start.shape == (NODES, 3)
    for wrong in (gcn(), classifier(module="first"), cr.graph_nodes(classifier(), a_graph())):
        with pytest.raises(cr.errors.InvalidArgumentError, match="`clf`"):
            cr.graph_nodes(wrong, a_graph())


def test_a_missing_library_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch_geometric", None)
    with pytest.raises(cr.errors.MissingExtraError, match=r"credibly\[graph\]"):
        cr.graph_nodes(cr.Classifier(lambda x: x), None)
