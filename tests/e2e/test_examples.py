"""Code that people copy from the pages runs and prints what the pages say."""

import re
from importlib import import_module
from pathlib import Path

import pytest
import torch

import credibly as cr

ROOT = Path(__file__).parents[2]


def test_the_example_of_the_readme_prints_what_it_says(capsys):
    text = (ROOT / "README.md").read_text("utf-8")
    code, output = re.search(r"```python\n(.*?)```\n\n```text\n(.*?)```", text, re.DOTALL).groups()
    exec(compile(code, "README.md", "exec"), {})  # noqa: S102  # our own page
    assert capsys.readouterr().out.strip() == output.strip()


def test_the_outline_of_the_readme_runs_on_a_network_of_ones_own(capsys):
    text = (ROOT / "README.md").read_text("utf-8")
    (code,) = re.findall(r"```python\n(net\.eval.*?)```", text, re.DOTALL)
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(12, 8), torch.nn.Tanh())
    net.append(torch.nn.Linear(8, 2))
    inputs = torch.randn(200, 3, 2, 2)
    known = {"cr": cr, "net": net, "held_out": inputs[1:], "image": inputs[0]}
    exec(compile(code, "README.md", "exec"), known)  # noqa: S102  # our own page
    assert capsys.readouterr().out.startswith(known["verdict"].value)


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
