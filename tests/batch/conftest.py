"""A small model, a file with gaps, and a place for the result."""

import logging
import os
from functools import partial

import numpy as np
import pytest
from torch import nn

import credibly as cr
from tests.batch.elsewhere import load
from tests.batch.settings import CLASSES, ROWS
from tests.object_store import ENVIRONMENT as CREDENTIALS


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


@pytest.fixture(scope="session")
def ray_here():
    """A Ray of this process of tests: four workers at most, no dashboard, nothing left behind."""
    ray = pytest.importorskip("ray")
    os.environ.setdefault("RAY_worker_niceness", "0")  # else tests wait for workers
    ray.init(
        address="local",
        num_cpus=4,
        include_dashboard=False,
        object_store_memory=80 << 20,
        log_to_driver=False,
        logging_level=logging.ERROR,
        runtime_env={"env_vars": {**CREDENTIALS, "OMP_NUM_THREADS": "1"}},
    )
    yield ray
    ray.shutdown()


@pytest.fixture
def loaded(tmp_path):
    """From the name of a model in a file to the loaded model; facts for it are set in the file."""
    return partial(load, tmp_path, os.getpid())
