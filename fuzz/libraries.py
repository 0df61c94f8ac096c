"""Models of other libraries, small enough to be made in a moment; nothing is downloaded."""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import credibly as cr
from fuzz.subjects import CLASSES, FEATURES, Subject, network


def _data() -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    random = np.random.default_rng(0)
    y = np.arange(60) % CLASSES
    return random.normal(size=(60, FEATURES)) + y[:, None], y


def _estimator(kind: str) -> Any:
    from sklearn import (
        discriminant_analysis,
        gaussian_process,
        linear_model,
        naive_bayes,
        neural_network,
        pipeline,
        preprocessing,
        svm,
    )

    made = {
        "logistic": linear_model.LogisticRegression,
        "pipeline": lambda: pipeline.make_pipeline(
            preprocessing.StandardScaler(), linear_model.LogisticRegression()
        ),
        "normalised": lambda: pipeline.make_pipeline(
            preprocessing.Normalizer(), linear_model.LogisticRegression()
        ),
        "products": lambda: pipeline.make_pipeline(
            preprocessing.PolynomialFeatures(), linear_model.LogisticRegression()
        ),
        "splines": lambda: pipeline.make_pipeline(
            preprocessing.SplineTransformer(n_knots=4), linear_model.LogisticRegression()
        ),
        "mlp": lambda: neural_network.MLPClassifier((8,), max_iter=20, random_state=0),
        "svc": svm.SVC,
        "bayes": naive_bayes.GaussianNB,
        "quadratic": discriminant_analysis.QuadraticDiscriminantAnalysis,
        "process": gaussian_process.GaussianProcessClassifier,
    }
    with warnings.catch_warnings():  # that a small fit did not converge does not matter
        warnings.simplefilter("ignore")
        return made[kind]().fit(*_data())


def _twin(kind: str, dtype: torch.dtype) -> Subject:
    clf = cr.from_sklearn(_estimator(kind), dtype=dtype)
    rough = kind in ("mlp", "svc", "splines", "process")  # the last rounds more than others
    return Subject((FEATURES,), lambda x: (clf, x), rough=rough, mean=1.0)


class SkorchNet(nn.Module):
    """A module as skorch takes it."""

    def __init__(self) -> None:
        super().__init__()
        self.body = network(nn.Tanh, torch.float32)

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        found: Tensor = self.body(x)
        return found


def _skorch(dtype: torch.dtype) -> Subject:
    import skorch

    x, y = _data()
    net = skorch.NeuralNetClassifier(
        SkorchNet, criterion=nn.CrossEntropyLoss, max_epochs=1, train_split=None, verbose=0
    ).fit(x.astype(np.float32), y)
    net.module_.to(dtype)
    clf = cr.from_skorch(net)
    return Subject((FEATURES,), lambda x: (clf, x))


def _jax(dtype: torch.dtype) -> Subject:
    import jax

    jax.config.update("jax_enable_x64", True)
    matrix = np.random.default_rng(0).normal(size=(FEATURES, CLASSES))
    clf = cr.from_jax(lambda x: jax.numpy.tanh(x) @ matrix.astype(str(dtype)[6:]))
    return Subject((FEATURES,), lambda x: (clf, x), fixed=dtype)


def _text(dtype: torch.dtype) -> Subject:
    import transformers as tf

    torch.manual_seed(0)
    config = tf.DistilBertConfig(
        dim=8, n_heads=2, n_layers=1, hidden_dim=12, vocab_size=40, num_labels=CLASSES
    )
    clf = cr.from_transformers(tf.DistilBertForSequenceClassification(config).to(dtype).eval())

    def ask(x: Tensor) -> tuple[Any, ...]:
        return clf, {"input_ids": x, "attention_mask": (x > 0).long()}

    return Subject((5,), ask, floating=False, rough=True)


def _vision(dtype: torch.dtype) -> Subject:
    import transformers as tf

    torch.manual_seed(0)
    config = tf.ViTConfig(
        image_size=8, patch_size=4, num_channels=1, hidden_size=8, num_hidden_layers=1,
        num_attention_heads=2, intermediate_size=12, num_labels=CLASSES,
    )  # fmt: skip
    clf = cr.from_transformers(tf.ViTForImageClassification(config).to(dtype).eval())
    return Subject((1, 8, 8), lambda x: (clf, {"pixel_values": x}), rough=True)


class Messages(nn.Module):
    """A graph network for nodes, or with pooling for whole graphs."""

    def __init__(self, *, pooled: bool) -> None:
        super().__init__()
        from torch_geometric.nn import GCNConv

        self.conv, self.pooled = GCNConv(FEATURES, CLASSES), pooled

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor | None = None) -> Tensor:
        """Logits of nodes or of graphs."""
        from torch_geometric.nn import global_mean_pool

        found: Tensor = self.conv(torch.tanh(x), edge_index)
        return global_mean_pool(found, batch) if self.pooled else found  # type: ignore[no-any-return]


def _graphs(dtype: torch.dtype, *, moves: str | None) -> Subject:
    """Paths of three nodes: each a sample, or its middle node is one."""
    from torch_geometric.data import Batch, Data

    torch.manual_seed(0)
    clf = cr.Classifier(Messages(pooled=moves is None).to(dtype).eval())
    path = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])

    def ask(x: Tensor) -> tuple[Any, ...]:
        graphs = [Data(x=features, edge_index=path) for features in x]
        if moves is None:
            return (cr.graph_samples(clf, graphs),)
        whole = Batch.from_data_list(graphs)
        data = Data(x=whole.x, edge_index=whole.edge_index)
        return (cr.graph_nodes(clf, data, range(1, 3 * len(x), 3), moves=moves),)  # type: ignore[arg-type]

    return Subject((3, FEATURES), ask)


def there(name: str) -> bool:
    """Whether the library of a subject is installed."""
    return importlib.util.find_spec(PACKAGES[name]) is not None


_TWINS = (
    "logistic", "pipeline", "normalised", "products", "splines", "mlp", "svc", "bayes", "quadratic",
    "process",
)  # fmt: skip
LIBRARIES: dict[str, Callable[[torch.dtype], Subject]] = {
    **{f"sklearn {kind}": partial(_twin, kind) for kind in _TWINS},
    "skorch": _skorch,
    "jax": _jax,
    "text": _text,
    "vision": _vision,
    "nodes": partial(_graphs, moves="own"),
    "neighbourhoods": partial(_graphs, moves="neighbourhood"),
    "graphs": partial(_graphs, moves=None),
}
_OTHER = {"text": "transformers", "vision": "transformers"}
_OTHER |= dict.fromkeys(("nodes", "neighbourhoods", "graphs"), "torch_geometric")
PACKAGES = {name: _OTHER.get(name, name.split()[0]) for name in LIBRARIES}
