"""The broad evidence at a small scale, and its summary against hand-made rows."""

import json

import pytest
import torch

from experiments.broad.__main__ import add_to, main
from experiments.broad.depths import layers_at
from experiments.broad.digits import digits
from experiments.broad.image_sets import mimic
from experiments.broad.rows import file_name, put
from experiments.broad.summary import read, sets_of, summary, table
from experiments.broad.values import rank


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    out = tmp_path_factory.mktemp("broad")
    main(["--small", "--out", str(out)])
    return out


def test_every_network_has_a_file_with_the_command(folder):
    rows = read(folder)
    assert len(rows) == 8
    assert {row["role"] for row in rows} == {"choose", "confirm"}
    for row in rows:
        assert row["command"] == "python -m experiments.broad"
        assert 0 <= row["caught"]["clean"]["Judge"][0] <= row["caught"]["clean"]["Judge"][1] <= 1
        assert row["price"]["Judge"] == pytest.approx(1 / 3, abs=1e-3)
        assert row["price"]["Judge, every profile"] > 9
        assert 0 <= row["joint"]["Judge"][1] <= 1


def test_noise_is_far_from_digits_and_from_clothes(folder):
    for row in read(folder):
        if row["data"] in ("digits", "Fashion-MNIST"):
            assert row["caught"]["uniform noise"]["Judge"][0] > 0.9
            assert {"uniform noise", "inverted"} <= set(sets_of(row, "far"))


def test_an_attacker_who_knows_is_measured_on_images(folder):
    of_images = [row for row in read(folder) if row["data"] in ("digits", "Fashion-MNIST")]
    assert of_images
    for row in of_images:
        (name,) = sets_of(row, "knows")
        assert name.startswith("who knows")
        assert 0 <= row["fooled"][name] <= 1
        assert row["fooled"].keys() >= {"clean"}


def test_a_mimic_stays_in_the_ball_and_comes_nearer():
    x, goal = torch.rand(4, 1, 2, 2), torch.full((4, 4), 0.5)
    far = lambda images: (images.flatten(1) - goal).square().sum(1)  # noqa: E731
    found = mimic(lambda images: images.flatten(1), x, goal, 0.1, 20)
    assert float((found - x).abs().max()) <= 0.1 + 1e-6
    expected = x + (goal.reshape(x.shape) - x).clamp(-0.1, 0.1)  # the nearest point of the ball
    torch.testing.assert_close(far(found), far(expected), atol=2e-3, rtol=0.0)


def test_the_aims_are_those_of_the_networks_that_confirm(folder, capsys):
    main(["--summary", str(folder)])
    told = capsys.readouterr().out.split("### Aims")[1]
    confirming = [row for row in read(folder) if row["role"] == "confirm"]
    tested = sum(row["test"] for row in confirming)
    alarms = sum(row["caught"]["clean"]["Judge"][0] * row["test"] for row in confirming)
    assert f"{alarms / tested:.2%} of {tested} inputs" in told
    assert "who knows" in told
    assert "trusted though wrong" in told


def test_methods_are_added_to_files_and_what_is_there_stays(folder, tmp_path):
    (row,) = (row for row in read(folder) if row["name"].startswith("digits") and
              row["role"] == "confirm")  # fmt: skip
    without = json.loads(json.dumps(row))
    del without["price"]["nearest mode"]
    for sets in ("failures", "caught", "auroc"):
        for found in without[sets].values():
            found.pop("nearest mode", None)
    without["caught"]["clean"]["Mahalanobis"] = [0.125, 0.25]  # is not measured again
    path = tmp_path / file_name(row["name"])
    put(without, path)
    (subject,) = digits(small=True, only="confirm")
    assert add_to(tmp_path, subject, "cpu") == json.loads(path.read_text())
    found = json.loads(path.read_text())
    assert found["added"]["same network"]
    assert found["added"]["accuracy"] == row["accuracy"]
    assert {"nearest mode", "predicted ratio, half way"} <= set(found["added"]["methods"])
    assert found["caught"]["clean"]["Mahalanobis"] == [0.125, 0.25]
    assert found["caught"]["clean"]["nearest mode"] == row["caught"]["clean"]["nearest mode"]
    assert found["failures"]["clean"].items() > row["failures"]["clean"].items()
    assert found["price"]["predicted ratio, mean of depths"] == 36  # at the input and three layers
    other = tmp_path / "other"
    other.mkdir()
    assert add_to(other, subject, "cpu") is None  # a network that was not measured


def test_layers_are_counted_from_the_first_one_with_weights():
    net = torch.nn.Sequential(
        torch.nn.Flatten(), torch.nn.Linear(4, 4), torch.nn.Tanh(), torch.nn.Linear(4, 4),
        torch.nn.Tanh(), torch.nn.Linear(4, 4), torch.nn.Tanh(), torch.nn.Linear(4, 2),
    )  # fmt: skip
    names = layers_at(net, torch.zeros(1, 2, 2))
    assert names == {"half way": "3", "three quarters": "5", "last hidden layer": "6"}
    assert layers_at(torch.nn.Linear(4, 2), torch.zeros(1, 4)) == {}
    assert layers_at(lambda x: x, torch.zeros(1, 4)) == {}
    one = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 2))
    assert layers_at(one, torch.zeros(1, 4)) == {"last hidden layer": "0"}


def test_the_summary_has_both_roles_and_every_method(folder):
    text = summary(read(folder))
    assert "## Networks that choose" in text
    assert "## Networks that confirm" in text
    for name in (
        "Judge, with labels",
        "max softmax",
        "Mahalanobis",
        "ensemble",
        "shift",
        "nearest mode",
    ):
        assert f"| {name} |" in text


def test_means_are_over_networks_and_say_where_some_are_missing():
    row = {
        "caught": {"clean": {"max softmax": [0.0, 0.1], "b": [0.0, 0.0]},
                   "noise": {"max softmax": [0.2, 0.4], "b": [1.0, 1.0]},
                   "x10": {"max softmax": [0.5, 0.5]}},
        "failures": {"clean": {"max softmax": 1.0}}, "auroc": {}, "joint": {}, "price": {},
    }  # fmt: skip
    other = json.loads(json.dumps(row))
    other["caught"]["noise"] = {"max softmax": [0.4, 0.8]}
    lines = table([row, other]).splitlines()
    first, second = (
        next(line for line in lines if f"| {n} |" in line) for n in ("max softmax", "b")
    )
    assert "| 0.300 | 0.600 |" in first
    assert "| 1.000* | 1.000* |" in second


def test_ranks_are_conformal():
    known = torch.tensor([1.0, 2.0, 3.0]).double()
    found = rank(known, torch.tensor([0.0, 2.0, 9.0]).double())
    assert found.tolist() == [0.25, 0.75, 1.0]
