import re
from pathlib import Path

import pytest

import credibly as cr

TEXT = (Path(__file__).parents[2] / "docs" / "decisions.md").read_text("utf-8")


def test_the_examples_of_the_page_run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names = {}
    for code in re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL):  # each goes on from the last
        exec(compile(code, "decisions.md", "exec"), names)  # noqa: S102  # our own page
    assert "answered" in capsys.readouterr().out
    assert len(names["verdicts"]) == 20
    assert 0.3 < names["decision"].coverage <= 1
    assert names["sets"].shape == (20, 10)
    assert names["trust"].shape == names["switch"].shape == (20,)
    assert not names["flag"].flag(names["new"]).all()
    assert (tmp_path / "profile.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("verdict", list(cr.Verdict))
def test_the_page_names_every_verdict(verdict):
    assert f"`{verdict.name}`" in TEXT
