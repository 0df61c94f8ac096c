"""A network within a given time, on a few random images."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from experiments.broad import timed
from experiments.broad.image_sets import COLOUR, few
from experiments.broad.images import COLOUR_NET, TESTS, TRAININGS, Spec
from experiments.broad.rows import merged
from experiments.broad.summary import summary

CLASSES = 3


def tiny(classes):
    return nn.Sequential(
        nn.Conv2d(3, 4, 3, stride=2), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(),
        nn.Linear(36, classes),
    )  # fmt: skip


SPEC = Spec(
    "tiny", "CIFAR-10", tiny, replace(COLOUR_NET, batch=20), replace(few(COLOUR), count=20, far=20),
    role="confirm", members=0,
)  # fmt: skip


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    draw = np.random.default_rng(0)
    for name, count in ((TESTS["CIFAR-10"], 340), (TRAININGS["CIFAR-10"], 60)):
        labels = draw.integers(0, CLASSES, count, dtype=np.uint8)
        noise = draw.integers(0, 90, (count, 8, 8, 3), dtype=np.uint8)
        np.savez(folder / name, images=noise + 80 * labels[:, None, None, None], labels=labels)
    return folder


@pytest.fixture(autouse=True)
def few_ordinary_images(monkeypatch):
    monkeypatch.setattr("experiments.broad.images.ORDINARY", 110)


def run(data, out, seconds):
    clock = timed.Clock(seconds)
    timed.run(SPEC, data, out, device="cpu", training=0.2, clock=clock, command="this")
    (path,) = out.glob("*.json")
    return json.loads(path.read_text())


def test_both_groups_are_measured_where_there_is_time(data, tmp_path, capsys):
    stored = run(data, tmp_path, 600.0)
    assert stored["command"] == "this"
    assert stored["name"] == "CIFAR-10, tiny"
    assert stored["training images"] == 60
    assert stored["epochs"] >= 1
    assert stored["caught"]["clean"].keys() >= {"Judge", "Mahalanobis", "nearest mode", "shift"}
    assert stored["costly on"]["clean"] == stored["test"] == 60
    assert list(stored["stages"].values()) == sorted(stored["stages"].values())
    assert "costly methods on 100%" in capsys.readouterr().out
    assert "| nearest mode |" in summary([stored])


def test_where_there_is_none_the_cheap_methods_are_written(data, tmp_path, monkeypatch, capsys):
    def measure(subject, *, parts, say, **_):
        say("the first set")
        say("the second set")
        return {"name": subject.name, "parts": list(parts)}

    monkeypatch.setattr(timed, "measure", measure)
    stored = run(data, tmp_path, 0.0)
    assert stored["parts"] == ["forwards"]
    told = capsys.readouterr().out
    assert told.count("the second set") == 1
    assert "stopped after: the first set" in told


def test_timing_a_step_leaves_the_network_as_it_was(data):
    torch.manual_seed(0)
    train = timed.read_npz(data / TRAININGS["CIFAR-10"])
    step, net = timed.prepared(SPEC, train, 0, "cpu")
    once = timed.runner(step)
    before = {name: value.clone() for name, value in net.state_dict().items()}
    assert timed.seconds_of(step, once) > 0
    for name, value in net.state_dict().items():
        assert torch.equal(value, before[name])


def test_fewer_images_are_the_first_of_each_set(data):
    net = tiny(CLASSES).eval()
    subject = timed.subject_of(data, SPEC, net, (), "cpu")
    fewer = timed.smaller(replace(subject, far={"noise": torch.rand(400, 3, 8, 8)}), 0.5)
    assert len(fewer.test) == len(fewer.labels) == 60  # all of them: fewer than the least
    assert len(fewer.far["noise"]) == 200
    some = timed.smaller(replace(subject, test=torch.arange(300), labels=torch.arange(300)), 0.1)
    assert some.test.tolist() == some.labels.tolist() == list(range(timed.LEAST))


def test_only_networks_on_cifar_are_known():
    assert timed.spec_of("DenseNet169").data == "CIFAR-10"
    with pytest.raises(Exception, match=r"expected one of .*ResNet20-like.*, got 'LeNet'"):
        timed.spec_of("LeNet")


def test_merging_keeps_what_is_there():
    row = merged({"a": {"x": 1, "y": {"p": 2}}, "b": 3}, {"a": {"x": 9, "y": {"q": 4}}, "c": 5})
    assert row == {"a": {"x": 1, "y": {"p": 2, "q": 4}}, "b": 3, "c": 5}
