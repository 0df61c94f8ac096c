"""The figures that are published with the code belong to it and to one another."""

import json
import re
import shutil
from collections import Counter
from pathlib import Path

import pytest

from experiments.paper import claims, settings
from experiments.paper.files import read_figure, read_json

ROOT = Path(__file__).parents[2]
PUBLISHED = ROOT / "results" / "paper"


@pytest.mark.parametrize("name", settings.all_names())
def test_every_figure_was_made_by_the_settings_of_today(name):
    record = read_figure(PUBLISHED / f"{name}.json")
    assert record["settings"] == json.loads(json.dumps(settings.load(name).record()))
    for end in (".svg", ".png"):
        assert (PUBLISHED / f"{name}{end}").stat().st_size > 0


def test_the_verdicts_follow_from_the_figures_of_one_set_of_networks(tmp_path):
    for name in settings.names():
        shutil.copy(PUBLISHED / f"{name}.json", tmp_path)
    claims.write(tmp_path)
    fresh, published = (folder / "claims.json" for folder in (tmp_path, PUBLISHED))
    assert fresh.read_text("utf-8") == published.read_text("utf-8")
    assert "mixed_networks" not in read_json(published)


def test_a_network_is_the_same_in_every_figure():
    found: dict[str, set[str]] = {}
    for name in settings.all_names():
        for network, sha256 in read_figure(PUBLISHED / f"{name}.json")["networks"].items():
            found.setdefault(network, set()).add(sha256)
    assert all(len(sums) == 1 for sums in found.values())
    everything = [sha256 for sums in found.values() for sha256 in sums]
    assert len(set(everything)) == len(everything)


def test_the_page_counts_the_verdicts_rightly():
    judged = Counter(claim["verdict"] for claim in read_json(PUBLISHED / "claims.json")["claims"])
    said = re.search(
        r"of (\d+) claims (\d+) are reproduced, (\d+) partly and (\d+) refuted, "
        r"and one cannot be decided",
        (ROOT / "docs" / "reproduction.md").read_text("utf-8"),
    )
    counts = [judged[verdict] for verdict in ("reproduced", "partly", "refuted")]
    assert said is not None
    assert [int(number) for number in said.groups()] == [sum(judged.values()), *counts]
    assert judged["cannot be decided"] == 1
