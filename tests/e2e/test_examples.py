"""Code that people copy from the pages runs and prints what the pages say."""

from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


EXAMPLES = sorted(path.stem for path in (ROOT / "examples").glob("*.py") if path.stem[0] != "_")


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_example_runs_and_draws_on_small_data(name, tmp_path, capsys):
    import_module(f"examples.{name}").main(tmp_path, small=True)
    assert len(capsys.readouterr().out.splitlines()) >= 3
    assert [path.suffix for path in tmp_path.iterdir()] == [".png"]


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_gallery_shows_every_example(name):
    pages = "".join(path.read_text("utf-8") for path in (ROOT / "docs").rglob("*.md"))
    assert f"examples.{name}" in pages
