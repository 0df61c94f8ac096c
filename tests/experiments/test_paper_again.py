"""A run of one's own against the published one."""

import json
import re
from pathlib import Path

import pytest

from experiments.paper import again, settings
from experiments.paper.files import write_json

ROOT = Path(__file__).parents[2]


def figure(numbers, **more):
    record = {"kind": "seeds", "settings": {"images": [5]}, "networks": {"net": "a"}}
    return record | {"results": numbers} | more


def folder_of(path, numbers, verdict="reproduced", scale="full", **more):
    write_json(path / "seeds.json", figure(numbers, **more))
    claims = [{"claim": "grows", "verdict": verdict}] if verdict else []
    write_json(path / "claims.json", {"scale": scale, "claims": claims})
    return path


def row(tmp_path, here, **more):
    there = {"pixel": {"risk": [1.0, 0.8, 1.4], "fit": [2.0, 1.0, 3.0], "curve": [1.0, 2.0]}}
    published = folder_of(tmp_path / "published", there)
    said, _ = again.compared("seeds", published, folder_of(tmp_path / "again", here, **more))
    return said


def test_differences_are_told_in_half_widths_of_the_published_interval(tmp_path):
    here = {"pixel": {"risk": [1.6, 1.5, 1.7], "fit": [2.0, 1.5, 2.5], "curve": [3.0, 2.0]}}
    said = row(tmp_path, here)
    assert said == "| seeds | 1 of 2 | 2 | 2 | pixel, risk: 1, 1.6 |"


@pytest.mark.parametrize(
    ("here", "within"), [(0.79, False), (0.8, True), (1.35, True), (1.41, False), (None, False)]
)
def test_an_interval_that_reaches_further_to_one_side_is_taken_as_it_is(here, within):
    assert again.Pair("risk", (1.0, 0.8, 1.4), here).within == within


@pytest.mark.parametrize("here", [{}, {"pixel": None}, {"pixel": {"risk": [None] * 3}}])
def test_a_number_that_the_other_run_lacks_counts_as_not_within(tmp_path, here):
    said = row(tmp_path, {"normalised": {"risk": [1.0, 0.8, 1.4]}, **here})
    assert said == "| seeds | 0 of 2 | inf | inf | pixel, fit: 2, none |"


def test_rows_that_the_other_run_lacks_are_named_by_their_own_name():
    rows = [{"name": name, "accuracy": [0.5, 0.4, 0.6]} for name in ("first", "second")]
    found = list(again.pairs({"rows": rows}, {"rows": rows[:1]}))
    assert [pair.words() for pair in found] == [
        "rows (first), accuracy: 0.5, 0.5",
        "rows (second), accuracy: 0.5, none",
    ]


def test_a_number_of_no_width_agrees_with_itself_alone():
    same = again.Pair("share", (1.0, 1.0, 1.0), 1.0)
    other = again.Pair("share", (1.0, 1.0, 1.0), 0.999)
    assert same.away == 0
    assert other.away == float("inf")


def test_lists_that_are_no_intervals_are_not_compared_as_such():
    record = {"gammas": [100.0, 200.0, 400.0], "open": [None, None, None], "pair": [1.0, 2.0]}
    assert list(again.pairs(record, record)) == []
    rows = {"rows": [{"accuracy": [0.5, 0.4, 0.6]}]}
    assert [pair.name for pair in again.pairs(rows, rows)] == ["rows 0, accuracy"]


def test_what_was_read_from_tables_of_attackers_does_not_count(tmp_path):
    here = {"pixel": {"fit": [2.0, 1.5, 2.5]}}
    known = {"adaptive": {"risk": [1.0, 0.0, 2.0]}}
    one, other = (folder_of(tmp_path / name, {**here, **known}) for name in ("one", "other"))
    assert "| 1 of 1 |" in again.compared("seeds", one, other)[0]


def test_other_settings_are_not_compared_and_other_networks_are_named(tmp_path):
    here = {"pixel": {"fit": [2.0, 1.5, 2.5], "risk": [1.0, 0.8, 1.4]}}
    assert "other settings (images)" in row(tmp_path, here, settings={"images": [6]})
    assert "| other data |" in row(tmp_path, here, data_sha256="1")
    assert row(tmp_path, here, networks={"net": "b"}).startswith("| seeds (other networks) | 2 of")


def test_verdicts_that_differ_are_named(tmp_path):
    one = folder_of(tmp_path / "one", {})
    other = folder_of(tmp_path / "other", {}, "refuted")
    assert again.verdicts(one, one) == ["1 of 1 verdicts are the same."]
    first, second = again.verdicts(one, other)
    assert first == "0 of 1 verdicts are the same."
    assert second == "- grows: reproduced, and refuted here"
    none = folder_of(tmp_path / "none", {}, None, scale="small")
    assert again.verdicts(one, none) == [
        "0 of 1 verdicts are the same.",
        "The scales differ: full; and here small.",
        "- grows: reproduced, and not judged here",
    ]


def test_a_folder_that_is_not_there_or_no_folder_is_refused_in_words(tmp_path, capsys):
    published = str(folder_of(tmp_path / "published", {}))
    (tmp_path / "file").write_text("")
    for name in ("nowhere", "file"):
        with pytest.raises(SystemExit, match="1"):
            again.main([str(tmp_path / name), "--published", published])
        said = capsys.readouterr().err
        assert name in said
        assert "Make the figures first" in said


@pytest.mark.parametrize("content", ["[]", '{"claims": [1], "scale": "full"}', "{}", "no JSON"])
def test_claims_of_something_else_are_refused_in_words(tmp_path, capsys, content):
    published = folder_of(tmp_path / "published", {})
    (tmp_path / "claims.json").write_text(content)
    with pytest.raises(SystemExit, match="1"):
        again.main([str(tmp_path), "--published", str(published)])
    assert "Delete it and make the figure" in capsys.readouterr().err


def test_missing_figures_are_named(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    (tmp_path / "claims.json").write_text(json.dumps({"scale": "full", "claims": []}))
    again.main([str(tmp_path)])
    assert capsys.readouterr().out.count("not there") == len(settings.names())


def test_the_second_run_that_is_published_agrees_as_the_page_says(monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    again.main(["results/paper-again"])
    said = capsys.readouterr().out
    assert "29 of 29 verdicts are the same." in said
    counts = [(int(a), int(b)) for a, b in re.findall(r"\| (\d+) of (\d+) \|", said)]
    assert len(counts) == len(settings.names())
    assert all(within == everything for within, everything in counts)
    page = (ROOT / "docs" / "explanation" / "reproduction.md").read_text("utf-8")
    total = sum(everything for _, everything in counts)
    equal = re.search(rf"^{total} of {total} numbers .*, (\d+) are equal\.$", said, re.MULTILINE)
    assert equal is not None
    assert f"all {total:,} numbers" in page
    assert f"{int(equal[1]):,} of them are equal" in page
