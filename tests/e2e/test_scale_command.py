"""`score --engine ray` as a person would type it; options that do not fit are refused."""

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pandas as pd
import psutil
import pytest

from credibly.cli.app import app

pytestmark = pytest.mark.xdist_group("ray")

MODEL = """
from helpers import make

def net():
    return make()
"""

HELPERS = """
import torch
from torch import nn

def make():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Linear(4, 3).double()
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "model.py").write_text(MODEL)
    (tmp_path / "code" / "helpers.py").write_text(HELPERS)
    np.save(tmp_path / "x.npy", np.random.default_rng(0).normal(size=(20, 4)))
    return tmp_path


RUN = ["score", "model.py:net", "../x.npy", "--gamma", "2", "--chunk-size", "4"]


def refused(capsys, *options):
    with pytest.raises(SystemExit) as caught:
        app([*RUN, "--out", "out.parquet", *options])
    assert caught.value.code == 2
    return capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--workers", "2"], "--workers belongs"),
        (["--gpus-per-worker", "1", "--address", "auto"], "--address and --gpus-per-worker"),
        (["--engine", "spark"], "spark"),
        (["--engine", "ray", "--address", "127.0.0.1:1"], "Check that it runs"),
        (["--engine", "ray", "--address", "cluster"], "HOST:PORT"),
        (["--engine", "ray", "--working-dir", "nowhere"], "nowhere"),
    ],
)
def test_options_that_cannot_be_are_refused_in_terms_of_options(folder, capsys, options, words):
    os.chdir(folder / "code")
    assert words in " ".join(refused(capsys, *options).split())
    assert not (folder / "code" / "out.parquet.parts").exists()


def test_code_that_is_sent_along_is_found_by_the_workers(folder):
    command = [
        sys.executable, "-m", "credibly", *RUN, "--engine", "ray", "--workers", "1",
        "--working-dir", ".", "--out", "../there/", "--status", "../status.json",
    ]  # fmt: skip
    done = subprocess.run(  # noqa: S603
        command, cwd=folder / "code", capture_output=True, text=True, check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "20 rows in ../there" in done.stdout
    assert pd.read_parquet(folder / "there")["id"].tolist() == list(range(20))
    assert '"workers": 1' in (folder / "status.json").read_text()
    left = [p for p in psutil.process_iter(["cwd"]) if f"{folder}/code" == p.info["cwd"]]
    assert left == []


SLOW = """
import time
import torch
from torch import nn

class Slow(nn.Linear):
    def forward(self, x):
        time.sleep(0.003)
        return super().forward(x)

def net():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return Slow(4, 3).double()
"""


@pytest.mark.parametrize("name", [signal.SIGTERM, signal.SIGINT])
def test_a_run_that_is_told_to_stop_says_so_and_can_be_continued(folder, name):
    (folder / "model.py").write_text(SLOW)
    command = [
        sys.executable, "-m", "credibly", "score", "model.py:net", "x.npy", "--gamma", "2",
        "--chunk-size", "1", "--shard-size", "1", "--out", "there/", "--status", "status.json",
    ]  # fmt: skip
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True) as run:  # noqa: S603
        while not list(folder.glob("there/part-*.parquet")):
            time.sleep(0.01)
        run.send_signal(name)
        said, _ = run.communicate(timeout=60)
    assert run.returncode == 128 + name
    assert "the same command continues from here" in said
    assert json.loads((folder / "status.json").read_text())["state"] == "stopped"
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)  # noqa: S603
    assert done.returncode == 0, done.stderr
    assert len(pd.read_parquet(folder / "there")) == 20
