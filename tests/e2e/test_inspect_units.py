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

PAGE = Path(__file__).parents[2] / "docs" / "command-line.md"


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


def test_one_row_and_like_units_say_nothing(table, capsys):
    frame = pd.DataFrame(table, columns=["a", "b", "c"])
    frame[:1].to_csv("one.csv", index=False)
    frame.assign(b=frame["b"] / 1e5).to_csv("like.csv", index=False)
    for name in ("one.csv", "like.csv"):
        assert inspect("pipeline.skops", name) == 0
        assert "columns spread" not in capsys.readouterr().err
