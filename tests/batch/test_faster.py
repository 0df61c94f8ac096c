"""Runs over files use a faster copy of the model on a GPU; here the CPU stands in for it."""

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

import credibly as cr
from credibly.batch import first_rows


@pytest.fixture
def folder(tmp_path):
    x = np.random.default_rng(0).normal(size=(40, 1, 6, 6)).astype(np.float32)
    x[3, 0, 2, 2] = np.nan
    np.save(tmp_path / "x.npy", x)
    return tmp_path


def network():
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(64, 3)
    )
    with torch.no_grad():
        net(torch.randn(50, 1, 6, 6))
        net[1].running_mean += 0.3
    return net.eval()


@pytest.fixture
def copies(monkeypatch):
    """The faster copies that were made."""
    found, real = [], first_rows.accelerate

    def noted(clf, x):
        found.append((real(clf, x), x))
        return found[-1][0]

    monkeypatch.setattr(first_rows, "accelerate", noted)
    return found


def test_verdicts_are_those_of_the_model_itself(folder, copies, monkeypatch):
    ordinary = torch.randn(120, 1, 6, 6, generator=torch.Generator().manual_seed(1))
    judge = cr.Judge.fit(network(), ordinary, profile="doubtful")
    cr.judge_file(judge, folder / "x.npy", folder / "plain.parquet")
    assert not copies
    monkeypatch.setattr(first_rows, "FASTER_ON", ("cpu",))
    cr.judge_file(judge, folder / "x.npy", folder / "quick.parquet", chunk_size=16)
    ((copy, seen),) = copies  # once, whatever the number of chunks
    assert copy.notes[0] == "1 batch norm folded"
    assert len(seen) == 39  # those on which the model runs
    plain, quick = (pd.read_parquet(folder / f"{name}.parquet") for name in ("plain", "quick"))
    for column in ("class", "verdict", "status"):
        assert plain[column].equals(quick[column])
    assert np.allclose(plain["trust"], quick["trust"], atol=1e-4, equal_nan=True)


def test_profiles_are_those_of_the_model_itself(folder, copies, monkeypatch):
    settings = {"gamma": 5.0, "solver": cr.solvers.LBFGS(steps=3)}
    cr.score(cr.Classifier(network()), folder / "x.npy", folder / "plain.parquet", **settings)
    monkeypatch.setattr(first_rows, "FASTER_ON", ("cpu",))
    cr.score(cr.Classifier(network()), folder / "x.npy", folder / "quick.parquet", **settings)
    assert len(copies) == 1
    one, other = (
        cr.Profile.from_parquet(folder / f"{name}.parquet").credibility
        for name in ("plain", "quick")
    )
    assert torch.allclose(one, other, atol=1e-3, equal_nan=True)


def test_a_copy_that_the_user_made_is_taken_as_it_is(folder, copies, monkeypatch):
    monkeypatch.setattr(first_rows, "FASTER_ON", ("cpu",))
    own = cr.accelerate(cr.Classifier(network()), torch.randn(9, 1, 6, 6))
    cr.score(own, folder / "x.npy", folder / "x.parquet", gamma=5.0,
             solver=cr.solvers.LBFGS(steps=2))  # fmt: skip
    assert not copies
