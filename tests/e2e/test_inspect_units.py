"""`credibly inspect` on tables whose columns are in units of different sizes."""

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import skops.io
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from credibly.cli.app import app

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "command-line.md"


def inspect(*arguments):
    with pytest.raises(SystemExit) as caught:
        app(["inspect", *arguments])
    return caught.value.code


@pytest.fixture
def table(tmp_path, monkeypatch):
    """A pipeline on a column of metres, one of micrometres and one that never varies."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    x = np.random.default_rng(0).normal(size=(60, 3)) * [1.0, 1e6, 0.0]
    y = (x[:, 0] + x[:, 1] / 1e6 > 0).astype(int)
    skops.io.dump(make_pipeline(StandardScaler(), LogisticRegression()).fit(x, y), "pipeline.skops")
    pd.DataFrame(x, columns=["a", "b", "c"]).to_csv("ordinary.csv", index=False)
    return x


@pytest.mark.usefixtures("table")
def test_unlike_units_are_noticed_and_the_page_has_the_remedy(capsys):
    assert inspect("pipeline.skops", "ordinary.csv") == 0
    warned = capsys.readouterr().err
    assert re.search(r"warning: columns spread by 1\.1 to 8\.19e\+05: distances", warned)
    (code,) = re.findall(r"```py\n(# spaced\.py\n.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    Path("spaced.py").write_text(code, "utf-8")
    pd.read_csv("ordinary.csv").assign(c=lambda f: f.index % 2).to_csv("ordinary.csv", index=False)
    assert inspect("spaced:model", "ordinary.csv") == 0
    assert "columns spread" not in capsys.readouterr().err


def test_the_warning_comes_once_whatever_the_model_takes(table, capsys):
    net = "from torch import nn\n\n\ndef make():\n    return nn.Linear(3, 2).double()\n"
    Path("plain.py").write_text(
        f"import torch\n{net}".replace("return", "torch.manual_seed(0)\n    return")
    )
    np.save("x.npy", table)
    for model, data in (
        ("pipeline.skops", "ordinary.csv"),
        ("pipeline.skops", "x.npy"),
        ("plain:make", "ordinary.csv"),
    ):
        assert inspect(model, data) == 0
        said = capsys.readouterr()
        assert said.err.count("columns spread by") == 1
        assert "passed, 1 warning" in " ".join(said.out.split())


def test_of_one_row_the_scaler_knows_the_units_and_like_units_say_nothing(table, capsys):
    frame = pd.DataFrame(table, columns=["a", "b", "c"])
    frame[:1].to_csv("one.csv", index=False)
    frame.assign(b=frame["b"] / 1e5).to_csv("like.csv", index=False)
    skops.io.dump(LogisticRegression().fit(table[:, :1], table[:, 0] > 0), "bare.skops")
    frame[["a"]][:1].to_csv("bare.csv", index=False)
    for model, name, warned in (
        ("pipeline", "one", True), ("pipeline", "like", False), ("bare", "bare", False),
    ):  # fmt: skip
        assert inspect(f"{model}.skops", f"{name}.csv") == 0
        assert ("columns spread" in capsys.readouterr().err) is warned
