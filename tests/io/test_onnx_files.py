"""ONNX files that are damaged or hostile, or whose weights stand in other files."""

import hypothesis
import numpy as np
import onnx
import pytest
import torch
from hypothesis import strategies
from onnx import helper, numpy_helper
from torch import nn

import credibly as cr
from credibly.errors import CrediblyError, FileFormatError
from credibly.io.onnx_files import read_onnx
from tests.reference import onnx_graphs
from tests.reference.onnx_graphs import export

X = torch.linspace(-1, 1, 12).reshape(3, 4)


@pytest.fixture(autouse=True)
def _torchvision(monkeypatch):
    onnx_graphs.stand_in_for_torchvision(monkeypatch)


@pytest.fixture(scope="module")
def content(tmp_path_factory):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    return export(net, X[:2], tmp_path_factory.mktemp("onnx") / "net.onnx").read_bytes()


@pytest.fixture
def split(content, tmp_path):
    """A model whose weights stand in weights.bin, and the entry of the first one."""
    model = onnx.load_model_from_string(content)
    place = tmp_path / "model" / "net.onnx"
    place.parent.mkdir()
    onnx.save(model, place, save_as_external_data=True, location="weights.bin", size_threshold=0)
    return place, onnx.load(place, load_external_data=False)


def test_weights_beside_the_file(split, content, tmp_path):
    place, _ = split
    (tmp_path / "one.onnx").write_bytes(content)
    found, one = cr.load_classifier(place), cr.load_classifier(tmp_path / "one.onnx")
    torch.testing.assert_close(found.classifier.logits(X), one.classifier.logits(X))
    weights = place.parent / "weights.bin"
    data = bytearray(weights.read_bytes())
    data[1] ^= 1
    weights.write_bytes(data)
    assert cr.load_classifier(place).fingerprint != found.fingerprint


@pytest.mark.parametrize(
    ("location", "words"),
    [
        ("../secret.bin", "outside its folder"),
        ("/etc/hostname", "outside its folder"),
        ("link.bin", "outside its folder"),
        ("inside/../weights.bin", "outside its folder"),
        ("", "outside its folder"),
        ("absent.bin", "no such file"),
    ],
)
def test_weights_elsewhere_are_refused(split, tmp_path, location, words):
    place, model = split
    (tmp_path / "secret.bin").write_bytes(bytes(10_000))
    (place.parent / "inside").mkdir()
    (place.parent / "link.bin").symlink_to(tmp_path / "secret.bin")
    for entry in model.graph.initializer[0].external_data:
        if entry.key == "location":
            entry.value = location
    place.write_bytes(model.SerializeToString())
    with pytest.raises(FileFormatError, match=words):
        cr.load_classifier(place)


@pytest.mark.parametrize(
    ("key", "value"), [("offset", "-4"), ("offset", "999999"), ("length", "3"), ("length", "x")]
)
def test_wrong_places_of_weights_are_refused(split, key, value):
    place, model = split
    for entry in model.graph.initializer[0].external_data:
        if entry.key == key:
            entry.value = value
    place.write_bytes(model.SerializeToString())
    with pytest.raises(FileFormatError, match=r"net\.onnx"):
        cr.load_classifier(place)


def graph_of(nodes, weights, dims=("n", 4)):
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", 1, list(dims))],
        [helper.make_tensor_value_info("y", 1, ["n", "m"])], weights,
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


def test_a_small_file_that_asks_for_much_is_refused(tmp_path):
    huge = numpy_helper.from_array(np.zeros((4, 3), np.float32), "w")
    huge.dims[:] = [10**9, 10**9]
    many = numpy_helper.from_array(np.array([10**6, 10**6], np.int64), "shape")
    for nodes, weights in (
        ([helper.make_node("MatMul", ["x", "w"], ["y"])], [huge]),
        ([helper.make_node("ConstantOfShape", ["shape"], ["c"]),
          helper.make_node("MatMul", ["x", "c"], ["y"])], [many]),
    ):  # fmt: skip
        path = tmp_path / "net.onnx"
        path.write_bytes(graph_of(nodes, weights).SerializeToString())
        with pytest.raises(FileFormatError, match=r"net\.onnx"):
            cr.load_classifier(path)


def growing(node, *weights, before=()):
    """Adds to the input the largest number of what a node makes."""
    nodes = [
        *before, helper.make_node("ReduceSum", ["x"], ["r"], keepdims=0), node,
        helper.make_node("ReduceMax", ["e"], ["q"], keepdims=0),
        helper.make_node("Add", ["x", "q"], ["y"]),
    ]  # fmt: skip
    return graph_of(nodes, [numpy_helper.from_array(np.array(v), name) for name, v in weights])


CAST = helper.make_node("Cast", ["s"], ["si"], to=7)
EXPAND = helper.make_node("Expand", ["r", "si"], ["e"], name="grow")
SECRET = helper.make_node("Cast", ["x"], ["si"], to=7)  # sizes that come with the input


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (growing(EXPAND, ("s", np.float32([2e4, 2e4])), before=[CAST]), "20000x20000"),
        (growing(helper.make_node("Tile", ["x", "si"], ["e"]), ("s", np.float32([2e4, 2e4])),
                 before=[CAST]), "20000x[0-9]+"),
        (growing(helper.make_node("Range", ["a", "s", "b"], ["e"]), ("a", np.int64(0)),
                 ("s", np.int64(10**9)), ("b", np.int64(1))), "1000000000"),
        (growing(EXPAND, before=[SECRET, helper.make_node("Identity", ["x"], ["z"])]),
         r"'grow' \(Expand\) makes 'e' of a size that cannot be told"),
    ],
)  # fmt: skip
def test_sizes_are_computed_before_they_are_believed(tmp_path, model, words):
    """Shape inference alone does not see through a cast of fractions, nor into the input."""
    path = tmp_path / "net.onnx"
    path.write_bytes(model.SerializeToString())
    with pytest.raises(FileFormatError, match=rf"net\.onnx.*{words}"):
        read_onnx(path)


def test_sizes_that_follow_from_the_rows_are_taken(tmp_path):
    """As exporters write them, in the versions before and after sizes of axes became inputs."""
    net = nn.Sequential(nn.Conv2d(1, 2, 3, 2), Grow())
    for version in (12, 17):
        path = tmp_path / f"net{version}.onnx"
        export(net, torch.randn(1, 1, 9, 9), path, version=version)
        x = torch.randn(3, 1, 9, 9)
        found = cr.load_classifier(path).classifier.logits(x)
        torch.testing.assert_close(found, net(x), rtol=1e-4, atol=1e-5)


class Grow(nn.Module):
    """Resizes and repeats by sizes that it reads from its input."""

    def forward(self, x):
        large = nn.functional.interpolate(x, size=(2 * x.shape[2], 2 * x.shape[3]))
        return large.expand(x.shape[0], 2, *large.shape[2:]).mean((2, 3))


@pytest.mark.parametrize("cut", [0, 1, 10, 100, -1])
def test_a_cut_file_is_refused(content, tmp_path, cut):
    (tmp_path / "net.onnx").write_bytes(content[:cut])
    with pytest.raises(FileFormatError, match=r"net\.onnx: not a valid ONNX file"):
        read_onnx(tmp_path / "net.onnx")


@hypothesis.given(
    places=strategies.lists(strategies.integers(0, 10**6), min_size=1, max_size=8),
    value=strategies.integers(0, 255),
)
@hypothesis.settings(
    max_examples=60,
    suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture],
)
def test_damaged_bytes_are_read_or_refused(content, tmp_path, places, value):
    data = bytearray(content)
    for place in places:
        data[place % len(data)] = value
    path = tmp_path / "net.onnx"
    path.write_bytes(data)
    try:
        cr.load_classifier(path)
    except CrediblyError as error:
        assert "net.onnx" in str(error) or "`" in str(error)  # noqa: PT017


def test_the_option_is_for_these_files_only():
    with pytest.raises(cr.errors.InvalidArgumentError, match=r"only with an \.onnx file"):
        cr.load_classifier("credibly.data.sample:classifier", graph_output="y")
