"""The first page and the page on profiles run as they stand, and say what was measured."""

import re
import shlex
from pathlib import Path

import pytest

from credibly.cli.app import app
from docs import run_pages

ROOT = Path(__file__).parents[2]
FIRST = ROOT / "README.md"
PROFILES = ROOT / "docs" / "how-to" / "profiles.md"


def test_the_first_page_runs_as_it_stands(tmp_path):
    assert run_pages.faults_of(FIRST, tmp_path, drawn=False) == []
    assert (tmp_path / "verdicts.html").stat().st_size > 200_000
    assert (tmp_path / "judge" / "judge.json").is_file()


def test_the_first_page_is_short():
    """A reader sees within a minute what it does for him."""
    assert len(FIRST.read_text("utf-8").split()) < 900


def test_the_first_page_says_what_the_evidence_says():
    first = " ".join(FIRST.read_text("utf-8").split())
    evidence = " ".join((ROOT / "docs/explanation/evidence.md").read_text("utf-8").split())
    said = first[first.index("Which inputs do not belong") :]
    told = evidence[evidence.index("In short") :]
    shares = [re.findall(r"\d+(?= %)", text)[:6] for text in (said, told)]
    counts = [re.search(r"[Oo]n (\w+) held-out networks", text)[1] for text in (said, told)]
    assert sorted(shares[0]) == sorted(shares[1])
    assert counts[0] == counts[1]


@pytest.mark.filterwarnings("default")
def test_the_page_on_profiles_runs_with_its_commands(tmp_path, monkeypatch, capsys):
    assert run_pages.faults_of(PROFILES, tmp_path, drawn=False) == []
    monkeypatch.chdir(tmp_path)
    page = PROFILES.read_text("utf-8")
    (commands,) = re.findall(r"^```\n(credibly sample.*?)^```", page, re.DOTALL | re.MULTILINE)
    for line in commands.splitlines():
        _, *arguments = shlex.split(line, comments=True)
        if arguments[0] in {"inspect", "score"}:
            arguments += ["--limit", "8"]  # the rest is the same
        with pytest.raises(SystemExit) as caught:
            app(arguments)
        assert caught.value.code == 0, (line, capsys.readouterr().err)
    assert len(Path("decisions.csv").read_text("utf-8").splitlines()) == 9
