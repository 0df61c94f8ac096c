"""The first page runs as it stands: its Python from top to bottom, then its commands."""

import re
import shlex
from pathlib import Path

import pytest
import torch
from torch import nn

from credibly.cli.app import app

PAGE = (Path(__file__).parents[2] / "README.md").read_text("utf-8")
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```", PAGE, flags=re.DOTALL | re.MULTILINE)


def names_of_a_reader():
    """What the page says is the reader's own: a network of two classes and its inputs."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
        return {"net": net, "ordinary": torch.randn(200, 4), "new": torch.randn(5, 4)}


def test_the_first_page_runs_as_it_stands(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names = names_of_a_reader()
    for kind, block in BLOCKS:
        if kind == "python":
            exec(block, names)  # noqa: S102  # our own page
    (shown,) = [block for kind, block in BLOCKS if kind == "text"]
    said = capsys.readouterr().out
    assert shown in said
    assert len(names["found"].verdicts) == 5
    (commands,) = [block for kind, block in BLOCKS if "credibly sample" in block]
    for line in commands.splitlines():
        _, *arguments = shlex.split(line, comments=True)
        limits = {"inspect": "8", "score": "8", "fit": "120", "judge": "8"}
        if arguments[0] in limits:
            arguments += ["--limit", limits[arguments[0]]]  # the rest is the same
        with pytest.raises(SystemExit) as caught:
            app(arguments)
        assert caught.value.code == 0, (line, capsys.readouterr().err)
    assert len(Path("decisions.csv").read_text("utf-8").splitlines()) == 9
