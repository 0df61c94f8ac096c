"""The broad evidence at a small scale, and its summary against hand-made rows."""

import json

import pytest
import torch

from experiments.broad.__main__ import main
from experiments.broad.image_sets import mimic
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


def test_the_summary_has_both_roles_and_every_method(folder):
    text = summary(read(folder))
    assert "## Networks that choose" in text
    assert "## Networks that confirm" in text
    for name in ("Judge, with labels", "max softmax", "Mahalanobis", "ensemble", "shift"):
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
