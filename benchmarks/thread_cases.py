"""What threads ask a model about, in `benchmarks.threads`: one function per kind of question."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

import credibly as cr
from benchmarks.thread_networks import (
    SAMPLES,
    Attention,
    InAFunction,
    InASet,
    Masked,
    Words,
    numbers,
    ready,
    smooth,
    tokens,
)

GAMMA = 20.0
FEW = cr.solvers.LBFGS(steps=6)

Ask = Callable[[int], Tensor]
"""From the number of a sample to what was found about it."""


def profile(clf: Any, x: Any = None, solver: Any = FEW) -> Tensor:
    """What a profile says, as one row of numbers."""
    found = cr.credibility(clf, x, gamma=GAMMA, solver=solver)
    return torch.cat([found.credibility.flatten(), found.perturbed.flatten(), found.risk])


def of_batch(clf: cr.Classifier, x: Tensor, solver: Any = FEW) -> Ask:
    """One row of a batch at a time."""
    return lambda n: profile(clf, x[n : n + 1], solver)


def inputs() -> Ask:
    """Plain inputs."""
    return of_batch(cr.Classifier(smooth()), numbers(8))


def space() -> Ask:
    """A part of nested inputs, in a metric."""
    net, x, rest = smooth(), numbers(5), numbers(3)
    moving = cr.Space(vary="a", scale=2.0, locked=[0])
    clf = cr.Classifier(lambda x: net(torch.cat([x["a"], x["b"]], 1)), space=moving)
    return lambda n: profile(clf, {"a": x[n : n + 1], "b": rest[n : n + 1]})


def module() -> Ask:
    """The output of a submodule."""
    return of_batch(cr.Classifier(ready(Words()), module="words"), tokens())


def hidden_module() -> Ask:
    """The output of a submodule of a network that cannot be copied."""
    return of_batch(cr.Classifier(ready(InASet()), module="words"), tokens())


def masked_module() -> Ask:
    """The output of a submodule that leaves something behind."""
    return of_batch(cr.Classifier(ready(Masked()), module="words"), tokens())


def last_layer() -> Ask:
    """The parameters of the last layer."""
    clf, x = cr.Classifier(smooth()), numbers(8)
    return lambda n: profile(cr.vary_parameters(clf, x[n : n + 1]))


def parameters() -> Ask:
    """Other parameters."""
    clf, x = cr.Classifier(smooth()), numbers(8)
    return lambda n: profile(cr.vary_parameters(clf, x[n : n + 1], "0"))


def hidden_parameters() -> Ask:
    """Parameters that are used by a function."""
    clf, x = cr.Classifier(ready(InAFunction())), tokens()
    return lambda n: profile(cr.vary_parameters(clf, x[n : n + 1], "tail.0"))


def exported() -> Ask:
    """Parameters of a torch.export program."""
    sizes = [{0: torch.export.Dim.DYNAMIC}]
    clf = cr.Classifier(torch.export.export(smooth(), (numbers(8),), dynamic_shapes=sizes))
    x = numbers(8)
    return lambda n: profile(cr.vary_parameters(clf, x[n : n + 1], "0"))


def all_at_once() -> Ask:
    """One network, of which something else moves from sample to sample."""
    net, x = ready(Words()), tokens()
    clf, at_words, at_front = (cr.Classifier(net, module=name) for name in (None, "words", "front"))
    ways: list[Callable[[Tensor], Any]] = [
        lambda row: cr.bind(at_words, row),
        lambda row: cr.vary_parameters(clf, row),
        lambda row: cr.bind(at_front, row),
        lambda row: cr.vary_parameters(clf, row, ["tail.0", "words"]),
    ]
    return lambda n: profile(ways[n % len(ways)](x[n : n + 1]))


def second_derivatives() -> Ask:
    """Gauss-Newton by products through attention, whose fused kernels are off meanwhile."""
    clf, x = cr.Classifier(ready(Attention())), numbers(8)
    products = cr.solvers.GaussNewton(steps=2, jacobian="free")
    return of_batch(clf, x, products)


def dropout() -> Ask:
    """Monte-Carlo dropout and profiles of the same network, in turns."""
    net = ready(nn.Sequential(nn.Linear(8, 16), nn.Dropout(0.5), nn.Softplus(), nn.Linear(16, 4)))
    clf, x, scored = cr.Classifier(net), numbers(8), cr.baselines.MonteCarloDropout(samples=5)
    return lambda n: profile(clf, x[n : n + 1]) if n % 2 else scored(clf, x[n : n + 1])


def deepfool() -> Ask:
    """An attack of a library that calls backward."""
    clf, x = cr.Classifier(smooth()), numbers(8)

    def attack(n: int) -> Tensor:
        found = cr.attacks.minimum_norm_attacks(
            clf, x[n : n + 1], bounds=(-9.0, 9.0), attacks="deepfool"
        )
        return found["deepfool"]

    return attack


def _graph(seed: int) -> Any:
    from torch_geometric.data import Data

    drawn = torch.Generator().manual_seed(seed)
    edges = torch.randint(0, SAMPLES, (2, 20), generator=drawn)
    return Data(x=torch.randn(SAMPLES, 4, generator=drawn).double(), edge_index=edges)


def _gcn(classes: int = 3) -> Any:
    from torch_geometric.nn import GCN

    return GCN(4, 8, 2, classes, act="tanh")


def nodes() -> Ask:
    """Features of nodes of one graph."""
    clf, data = cr.Classifier(ready(_gcn())), _graph(0)
    return lambda n: profile(cr.graph_nodes(clf, data, [n]))


def graphs() -> Ask:
    """Features of whole graphs."""
    from torch_geometric.nn import global_mean_pool

    class Pooled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = _gcn()

        def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
            found: Tensor = global_mean_pool(self.body(x, edge_index), batch)
            return found

    clf, listed = cr.Classifier(ready(Pooled())), [_graph(n) for n in range(SAMPLES)]
    return lambda n: profile(cr.graph_samples(clf, [listed[n]]))


def _transformer(kind: str) -> Ask:
    import transformers

    ends = {"bos_token_id": 1, "eos_token_id": 1}
    known = {"vocab_size": 40, "num_labels": 3, "pad_token_id": 0}
    small: dict[str, dict[str, Any]] = {
        "DistilBert": {"dim": 8, "n_heads": 2, "n_layers": 1, "hidden_dim": 8},
        "GPT2": {"n_embd": 8, "n_head": 2, "n_layer": 1, "n_positions": 8} | ends,
    }
    config = getattr(transformers, f"{kind}Config")(**small[kind], **known)
    net = getattr(transformers, f"{kind}ForSequenceClassification")(config)
    clf, ids = cr.from_transformers(ready(net)), tokens(2, 40, 5)
    return lambda n: profile(
        clf, {"input_ids": ids[n : n + 1], "attention_mask": torch.ones(1, 5).long()}
    )


def distilbert() -> Ask:
    """A text model of transformers."""
    return _transformer("DistilBert")


def gpt2() -> Ask:
    """Another, which looks at its own configuration in every call."""
    return _transformer("GPT2")


def skorch() -> Ask:
    """A net of skorch, of which a hidden layer moves."""
    from skorch import NeuralNetClassifier

    net = NeuralNetClassifier(smooth(), criterion=nn.CrossEntropyLoss).initialize()
    return of_batch(cr.from_skorch(net, module="0"), numbers(8))


def jax() -> Ask:
    """A function of JAX, in single precision."""
    import jax as library

    weight = numbers(4)[:, :4].float().numpy()
    clf = cr.from_jax(lambda x: library.numpy.tanh(x @ weight))
    return of_batch(clf, numbers(8).float())


def sklearn() -> Ask:
    """The twin of a model of scikit-learn."""
    from sklearn.linear_model import LogisticRegression

    x = numbers(6)
    return of_batch(cr.from_sklearn(LogisticRegression().fit(x, [0, 1, 2, 0, 1, 2, 0, 1])), x)


CASES = (
    inputs, space, module, hidden_module, masked_module, last_layer, parameters, hidden_parameters,
    exported, all_at_once, second_derivatives, dropout, deepfool, nodes, graphs, distilbert, gpt2,
    skorch, jax, sklearn,
)  # fmt: skip

ROUNDING = {second_derivatives: 1e-12}
"""Where a bit may differ: fused attention is off for all threads while one of them needs it off."""
