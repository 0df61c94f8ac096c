"""Exported networks against ONNX Runtime, and their derivatives against the original's."""

import io
import warnings

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from skl2onnx import to_onnx
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import nn

import credibly as cr
from credibly.adapters.onnx.convert import to_torch
from credibly.adapters.onnx.graph import plain
from credibly.data.sample import load_sample
from credibly.errors import MissingExtraError, ModelError
from experiments.resnet18 import ResNet18
from tests.reference import onnx_graphs
from tests.reference.onnx_graphs import Transformer, export, table


@pytest.fixture(autouse=True)
def _torchvision(monkeypatch):
    onnx_graphs.stand_in_for_torchvision(monkeypatch)


def drawn(*shape, seed=0):
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed))


def by_runtime(path, x, output=0):
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return session.run(None, {session.get_inputs()[0].name: x.numpy()})[output]


NETWORKS = {
    "embedded": (lambda: load_sample().net, (1, 28, 28)),
    "resnet18": (lambda: ResNet18(channels=3, max_pool=True), (3, 16, 16)),
    "transformer": (Transformer, (1, 8, 8)),
}


@pytest.fixture(scope="module", params=NETWORKS)
def exported(request, tmp_path_factory):
    make, shape = NETWORKS[request.param]
    torch.manual_seed(1)
    net = make().eval()
    path = tmp_path_factory.mktemp("onnx") / "net.onnx"
    return net, export(net, drawn(2, *shape), path), drawn(5, *shape, seed=1)


def test_logits_and_derivatives_are_those_of_the_network(exported):
    net, path, x = exported
    loaded = cr.load_classifier(path)
    clf = loaded.classifier
    np.testing.assert_allclose(clf.logits(x), by_runtime(path, x), atol=1e-4, rtol=0)
    assert loaded.kind == "onnx"
    assert any("agree with ONNX Runtime" in note for note in loaded.notes)
    pulls = []
    for model in (net, clf.net):
        leaf = x.clone().requires_grad_()
        weights = torch.linspace(1, 2, 50)[: model(x[:1]).shape[1]]
        pulls += torch.autograd.grad((model(leaf) * weights).sum(), leaf)
    torch.testing.assert_close(pulls[1], pulls[0], atol=1e-5, rtol=1e-3)
    assert pulls[0].abs().max() > 0
    profile, expected = (cr.credibility(c, x[:2], gamma=50.0) for c in (clf, cr.Classifier(net)))
    torch.testing.assert_close(profile.credibility, expected.credibility, atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize("opset", [11, 13, 17, 18, 20])
def test_versions_of_the_operators(tmp_path, opset):
    """Torch exports 20 by default; onnx2torch knows most operators up to 17 only."""

    class Net(nn.Module):
        def forward(self, x):
            y = nn.functional.pad(x, (1, 1))
            a, b = nn.functional.gelu(y).split(3, 2)
            y = torch.cat([y[:, :, 1::2].flip(2), y[:, :, -3:]], 2)
            z = (a * (y[:, :, :3] >= 0.1)).mean((1, 2)) - b.amax((1, 2))
            return torch.stack([z, z.abs(), (x * x).sum((1, 2))], 1)

    path, x = tmp_path / "net.onnx", drawn(4, 2, 4) - 0.5
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(Net(), (x[:2],), path, dynamo=False, opset_version=opset,
                          input_names=["x"], dynamic_axes={"x": {0: "n"}})  # fmt: skip
    torch.testing.assert_close(cr.load_classifier(path).classifier.logits(x), Net()(x))


def fitted(last, classes):
    x, y = table(classes=classes)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it has not converged
        return make_pipeline(StandardScaler(), last).fit(x, y), x


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("kind", ["linear", "network"])
@pytest.mark.parametrize("zipmap", [True, False])
def test_pipelines_of_scikit_learn(tmp_path, kind, classes, zipmap):
    smooth = {"max_iter": 30, "activation": "tanh", "random_state": 0}
    last = LogisticRegression() if kind == "linear" else MLPClassifier((6,), **smooth)
    model, x = fitted(last, classes)
    graph, path = to_onnx(model, x[:1], options={"zipmap": zipmap}), tmp_path / "model.onnx"
    path.write_bytes(graph.SerializeToString())
    with pytest.raises(cr.errors.InvalidArgumentError, match="--outputs probabilities"):
        cr.load_classifier(path)
    loaded = cr.load_classifier(path, outputs="probabilities")
    clf = loaded.classifier
    np.testing.assert_allclose(
        clf.raw_outputs(torch.from_numpy(x)), model.predict_proba(x), atol=1e-5
    )
    assert clf.classes == (tuple(map(str, range(classes))) if zipmap else None)
    leaf = torch.from_numpy(x[:20]).requires_grad_()
    (pull,) = torch.autograd.grad(clf.raw_outputs(leaf)[:, 1].sum(), leaf)
    step = 0.01 * np.eye(5, dtype=np.float32)[2]
    slope = (model.predict_proba(x[:20] + step) - model.predict_proba(x[:20] - step))[:, 1] / 0.02
    np.testing.assert_allclose(pull[:, 2], slope, atol=2e-3)


def test_logits_before_a_softmax_are_offered_and_taken(tmp_path):
    model, x = fitted(MLPClassifier((6,), max_iter=30, random_state=0), 3)
    path = tmp_path / "model.onnx"
    path.write_bytes(to_onnx(model, x[:1]).SerializeToString())
    with pytest.raises(cr.errors.InvalidArgumentError, match="graph_output='add_result1'"):
        cr.load_classifier(path)
    clf = cr.load_classifier(path, graph_output="add_result1", outputs="logits").classifier
    logits = clf.logits(torch.from_numpy(x))
    np.testing.assert_allclose(logits.softmax(1), model.predict_proba(x), atol=1e-5)


def test_a_graph_in_double_precision(tmp_path):
    net = nn.Sequential(nn.Linear(4, 6), nn.Softplus(), nn.Linear(6, 3)).double()
    x = drawn(5, 4).double()
    clf = cr.load_classifier(export(net, x[:2], tmp_path / "net.onnx")).classifier
    assert clf.dtype == torch.float64
    torch.testing.assert_close(clf.logits(x), net(x), atol=1e-12, rtol=0)
    assert torch.autograd.gradcheck(clf.logits, x.requires_grad_())


@pytest.mark.parametrize("rows", [1, 2])
def test_a_fixed_batch(tmp_path, rows):
    """Of one row, it is run row by row; of more, it is refused."""
    net, x = Transformer().eval(), drawn(3, 1, 8, 8)
    path = export(net, x[:rows], tmp_path / "net.onnx", axes={})
    if rows > 1:
        with pytest.raises(ModelError, match=r"batches of 2 rows only.*dynamic_axes"):
            cr.load_classifier(path)
        return
    loaded = cr.load_classifier(path)
    torch.testing.assert_close(loaded.classifier.logits(x), net(x), atol=1e-5, rtol=1e-4)
    assert any("one by one" in note for note in loaded.notes)
    assert cr.credibility(loaded.classifier, x, gamma=20.0).status is not None


class Two(nn.Module):
    def forward(self, x):
        return x[:, :2], x[:, 1:] * 2


class Ids(nn.Module):
    def forward(self, x):
        return nn.functional.one_hot(x, 5).float().mean(1)


class Pair(nn.Module):
    def forward(self, x, y):
        return x + y


class Odd(nn.Module):
    def forward(self, x):
        return torch.cumsum(torch.det(x).reshape(-1, 1).expand(-1, 3), 1) + x.tril()[:, 2]


def test_of_several_outputs_one_is_named(tmp_path):
    x = drawn(4, 3)
    path = export(Two(), x[:2], tmp_path / "net.onnx", outputs=("first", "second"))
    with pytest.raises(cr.errors.InvalidArgumentError, match=r"'first', 'second'.*graph_output"):
        cr.load_classifier(path)
    found = cr.load_classifier(path, graph_output="second")
    torch.testing.assert_close(found.classifier.logits(x), x[:, 1:] * 2)
    other = cr.load_classifier(path, graph_output="first")
    assert found.fingerprint != other.fingerprint
    with pytest.raises(cr.errors.InvalidArgumentError, match="an output of the graph"):
        cr.load_classifier(path, graph_output="third")


def test_what_cannot_be_used_is_said(tmp_path):
    path = export(Ids(), torch.ones(2, 4, dtype=torch.long), tmp_path / "ids.onnx")
    with pytest.raises(ModelError, match=r"takes no floating numbers.*after the embedding"):
        cr.load_classifier(path)
    pair = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            Pair(), (drawn(2, 3), drawn(2, 3)), pair, dynamo=False, input_names=["a", "b"]
        )
    (tmp_path / "pair.onnx").write_bytes(pair.getvalue())
    with pytest.raises(ModelError, match="takes 2 inputs: 'a', 'b'"):
        cr.load_classifier(tmp_path / "pair.onnx")


def test_unsupported_operators_are_all_named(tmp_path):
    path = export(Odd(), drawn(2, 3, 3), tmp_path / "odd.onnx")
    with pytest.raises(ModelError, match=r"odd\.onnx.*: Det, Trilu\. Export") as caught:
        cr.load_classifier(path)
    assert ".pt2" in caught.value.remedy


def test_a_wrong_conversion_is_refused(tmp_path, monkeypatch):
    path = export(nn.Linear(3, 2), drawn(2, 3), tmp_path / "net.onnx")
    right = to_torch
    monkeypatch.setattr(
        "credibly.io.onnx_files.to_torch",
        lambda found: nn.Sequential(right(found), nn.Linear(2, 2)),
    )
    with pytest.raises(ModelError, match="does not say what ONNX Runtime says"):
        cr.load_classifier(path)


def test_what_is_missing_is_named(tmp_path, monkeypatch):
    path = export(nn.Linear(3, 2), drawn(2, 3), tmp_path / "net.onnx")
    monkeypatch.setitem(__import__("sys").modules, "torchvision", None)
    with pytest.raises(MissingExtraError, match=r"torchvision.*credibly\[onnx\]"):
        cr.load_classifier(path)


def test_names_in_a_file_are_not_code(tmp_path):
    """torch.fx writes Python with the names of nodes in it."""
    path, mark = export(nn.Linear(3, 2), drawn(2, 3), tmp_path / "net.onnx"), tmp_path / "mark"
    model = onnx.load(path)
    for node in model.graph.node:
        node.name = f'a", 0) + open({str(mark)!r}, "w").close() or getattr(self, "b'
    model.graph.name = "'''"
    found = to_torch(plain(model, None))
    found(drawn(2, 3))
    assert not mark.exists()
    assert "open" not in found.code
