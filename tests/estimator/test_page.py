"""The code on the page about scikit-learn runs, from top to bottom."""

import re
from pathlib import Path

import numpy as np

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "scikit-learn.md"


def test_every_block_of_the_page_runs(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    assert len(blocks) == 5
    names = {}
    for block in blocks:
        exec(compile(block, PAGE.name, "exec"), names)  # noqa: S102  # our own page
    assert "converged" in capsys.readouterr().out
    assert names["best"].predict_credibility(names["rows"]).shape == (20, 2)
    profile, locked = names["profile"], [name in names["locked"] for name in names["names"]]
    assert np.isfinite(profile.credibility.numpy()).all()
    moved = (profile.perturbed - profile.x0).numpy()
    assert sum(locked) == 2
    assert not moved[:, locked].any()
    assert moved[:, np.logical_not(locked)].all()
    assert (tmp_path / "encoded.csv").exists()
