"""The figures that are published with the code belong to it and to one another."""

import hashlib
import json
import re
import shutil
from collections import Counter
from dataclasses import fields
from pathlib import Path

import pytest

from experiments import network_facts, networks
from experiments.paper import claims, settings
from experiments.paper.files import read_figure, read_json
from experiments.recipes import RECIPES, Recipe

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


def test_the_networks_of_the_figures_are_those_whose_making_is_recorded():
    record = read_json(ROOT / "results" / "networks.json")
    used = set()
    for name in settings.all_names():
        figure = read_figure(PUBLISHED / f"{name}.json")
        for network, sha256 in figure["networks"].items():
            assert record[network]["sha256"] == sha256
            used.add(network)
        if figure["kind"] == "profiles":
            for network, numbers in next(iter(figure["results"].values()))["networks"].items():
                assert record[network]["test_accuracy"] == pytest.approx(numbers["accuracy"][0])
    assert used == set(record)
    for network, facts in record.items():
        name, seed = network.rsplit("-seed", 1)
        said = {**facts["recipe"], "left_out": tuple(facts["recipe"]["left_out"])}
        assert said.pop("seed") == int(seed)
        known = {field.name for field in fields(Recipe)}  # older files have fewer, by default
        assert (
            Recipe(**{key: value for key, value in said.items() if key in known}) == RECIPES[name]
        )


def test_facts_of_networks_are_what_their_files_say(tmp_path, capsys):
    net = networks.build("resnet18, max-pool", channels=1, classes=3)
    facts = {"arch": "resnet18, max-pool", "mean": "0.5", "std": "0.2", "test_accuracy": "0.5",
             "recipe": '{"epochs": 2}', "seconds": "7"}  # fmt: skip
    networks.save(tmp_path / "some-seed13.safetensors", net, facts)
    network_facts.main([str(tmp_path)])
    assert [path.name for path in tmp_path.iterdir()] == ["some-seed13.safetensors"]
    network_facts.main([str(tmp_path), "--out", str(tmp_path / "facts.json")])
    assert capsys.readouterr().out == 2 * "some-seed13: 50.00 % of the test images\n"
    found = read_json(tmp_path / "facts.json")["some-seed13"]
    content = (tmp_path / "some-seed13.safetensors").read_bytes()
    assert found["sha256"] == hashlib.sha256(content).hexdigest()
    assert (found["recipe"], found["seconds"], found["test_accuracy"]) == ({"epochs": 2}, 7, 0.5)


@pytest.mark.parametrize("content", [None, b"no network"])
def test_a_folder_without_networks_is_refused_in_words(tmp_path, capsys, content):
    if content is not None:
        (tmp_path / "some-seed0.safetensors").write_bytes(content)
    with pytest.raises(SystemExit, match="1"):
        network_facts.main([str(tmp_path), "--out", str(tmp_path / "facts.json")])
    assert "error: " in capsys.readouterr().err
    assert not (tmp_path / "facts.json").exists()


def test_the_page_counts_the_verdicts_rightly():
    judged = Counter(claim["verdict"] for claim in read_json(PUBLISHED / "claims.json")["claims"])
    said = re.search(
        r"of (\d+) claims (\d+) are reproduced, (\d+) partly and (\d+) refuted, "
        r"and one cannot be decided",
        (ROOT / "docs" / "explanation" / "reproduction.md").read_text("utf-8"),
    )
    counts = [judged[verdict] for verdict in ("reproduced", "partly", "refuted")]
    assert said is not None
    assert [int(number) for number in said.groups()] == [sum(judged.values()), *counts]
    assert judged["cannot be decided"] == 1
