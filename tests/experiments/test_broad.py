"""The broad evidence at a small scale, and its summary against hand-made rows."""

import json

import pytest
import torch

from experiments.broad.__main__ import main
from experiments.broad.measure import rank
from experiments.broad.summary import read, sets_of, summary, table


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
        assert row["price"]["Judge, one forward"] == pytest.approx(1 / 3, abs=1e-3)
        clean = row["failures"].get("clean")
        if clean is not None:  # it makes errors
            assert clean["confidence"] == pytest.approx(1.0)  # the candidate that is softmax
        assert 0 <= row["joint"]["Judge"][1] <= 1


def test_noise_is_far_from_digits_and_from_clothes(folder):
    for row in read(folder):
        if row["data"] in ("digits", "Fashion-MNIST"):
            assert row["caught"]["uniform noise"]["Judge"][0] > 0.9
            assert {"uniform noise", "inverted"} <= set(sets_of(row, "far"))


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
