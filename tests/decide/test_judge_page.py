import re
from pathlib import Path

import pytest

import credibly as cr

TEXT = (Path(__file__).parents[2] / "docs" / "how-to" / "judge.md").read_text("utf-8")


def test_the_example_of_the_page_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names = {}
    (code,) = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    exec(compile(code, "judge.md", "exec"), names)  # noqa: S102  # our own page
    said = capsys.readouterr().out
    assert "passes per input (a forward: .33)" in said
    assert said.splitlines()[-1].startswith("outlier: ")
    assert len(names["found"]) == 33
    assert names["judge"].facts.samples == 334


@pytest.mark.parametrize("verdict", list(cr.Verdict))
def test_the_page_names_every_verdict(verdict):
    assert f"`{verdict.name}`" in TEXT
