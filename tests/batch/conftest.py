"""A small model, a file with gaps, and a place for the result."""

import numpy as np
import pytest
from torch import nn

import credibly as cr
from tests.batch.settings import CLASSES, ROWS


@pytest.fixture
def clf():
    net = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3)).double().eval()
    return cr.Classifier(net, classes=CLASSES)


@pytest.fixture
def data(tmp_path):
    x = np.random.default_rng(0).normal(size=(ROWS, 4))
    x[5, 2] = np.nan
    x[6:8] = np.inf
    np.save(tmp_path / "x.npy", x)
    return tmp_path / "x.npy"


@pytest.fixture
def out(tmp_path):
    return tmp_path / "profiles.parquet"
