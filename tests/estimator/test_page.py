"""The code on the page about scikit-learn runs, from top to bottom."""

import re
from pathlib import Path

import numpy as np

PAGE = Path(__file__).parents[2] / "docs" / "scikit-learn.md"


def test_every_block_of_the_page_runs(capsys):
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    assert len(blocks) == 3
    names = {}
    for block in blocks:
        exec(compile(block, PAGE.name, "exec"), names)  # noqa: S102  # our own page
    assert "converged" in capsys.readouterr().out
    assert names["best"].predict_credibility(names["rows"]).shape == (20, 2)
    assert np.isfinite(names["profile"].credibility.numpy()).all()
