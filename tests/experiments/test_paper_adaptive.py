"""Adaptive attacks beside the figures; and attacks in lower precision."""

import json

import pytest
import torch

from credibly.errors import InvalidArgumentError
from experiments.paper import adaptive, claims, draw, draw_accuracy, settings, statements
from experiments.paper.cache import Cache
from experiments.paper.stages import Line
from experiments.paper.world import World

NUMBERS = {"accuracy": [0.25, 0.1, 0.4], "images": 100, "attacks": ["A0", "A2", "A3", "A4"],
           "solver": "", "file": ""}  # fmt: skip
NAMES = ["pgd (A0)", "apgd-ce (A1)", "bpda (A2)", "implicit (A3)", "unrolled (A4)",
         "gauss-newton (A5)", "inverse map (A6)", "square (A7)", "scaled back (A8)"]  # fmt: skip


def table(path, *, sha="n", space="pixel", gamma=200.0, rates=None, images=10, without="?", **more):
    """A file as `experiments.adaptive --tables` writes it."""
    rates = {"0.01": 0.75} if rates is None else rates
    worst = {e: {"rate": r, "low": r - 0.15, "high": r + 0.15} for e, r in rates.items()}
    rows = {name: {e: None if without in name else {"rate": 0.5} for e in rates} for name in NAMES}
    block = {"system": "B", "norm": "linf", "images": images, "attacks": rows, "worst": worst}
    other = {**block, "system": "b", "worst": {e: {"rate": 1, "low": 1, "high": 1} for e in rates}}
    record = {
        "network_sha256": sha, "space": space, "gamma": gamma,
        "systems": {"gamma": gamma, "solver": "Hybrid"}, "tables": [other, block], **more,
    }  # fmt: skip
    path.write_text(json.dumps(record), "utf-8")
    return path


def figure():
    return settings.load("accuracy-cifar10")


def test_what_fits_is_the_complement_of_the_worst_case(tmp_path):
    tables = adaptive.read_tables([table(tmp_path / "adaptive-a.json")])
    found = adaptive.accuracies(tables, figure(), "n")
    row = found["pixel"]["0.01"]
    assert row["accuracy"] == pytest.approx([0.25, 0.1, 0.4])
    assert row["bare model"] == [0, 0, 0]
    assert (row["images"], row["file"]) == (10, "adaptive-a.json")
    assert row["attacks"] == [f"A{n}" for n in range(9)]
    assert found["pixel"]["0.02"] is found["normalised"]["0.01"] is None


@pytest.mark.parametrize(
    "change", [{"sha": "m"}, {"space": "normalised"}, {"gamma": 201.0}, {"rates": {"0.011": 0.5}}]
)
def test_another_reading_does_not_fit(tmp_path, change):
    tables = adaptive.read_tables([table(tmp_path / "adaptive-a.json", **change)])
    assert len(tables) == 1
    assert adaptive.accuracies(tables, figure(), "n")["pixel"]["0.01"] is None


def test_attacks_that_do_not_know_are_no_adaptive_result(tmp_path, capsys):
    tables = adaptive.read_tables([table(tmp_path / "a.json", without="A3")])
    assert adaptive.accuracies(tables, figure(), "n")["pixel"]["0.01"] is None
    assert "a.json, eps 0.01: ignored, because A3 was not run" in capsys.readouterr().out
    tables = adaptive.read_tables([table(tmp_path / "a.json", without="A1")])
    row = adaptive.accuracies(tables, figure(), "n")["pixel"]["0.01"]
    assert adaptive.label([row]) == "adaptive attacks (worst of A0, A2-A8)"


def test_of_several_the_largest_run_counts(tmp_path):
    files = [
        table(tmp_path / f"{name}.json", images=images, rates={"0.01": rate})
        for name, images, rate in (("a", 10, 0.8), ("b", 100, 0.3), ("c", 100, 0.5))
    ]
    row = adaptive.accuracies(adaptive.read_tables(files), figure(), "n")["pixel"]["0.01"]
    assert (row["file"], row["images"], row["accuracy"][0]) == ("c.json", 100, 0.5)


def test_what_cannot_be_read_is_ignored_with_a_line(tmp_path, capsys):
    old = table(tmp_path / "adaptive-old.json", sha=None)
    odd = table(tmp_path / "adaptive-odd.json", tables=[{"system": "B"}])
    cut = tmp_path / "adaptive-cut.json"
    cut.write_text("{", "utf-8")
    listed = tmp_path / "adaptive-listed.json"
    listed.write_text("[]", "utf-8")
    assert adaptive.read_tables([old, odd, cut, listed]) == []
    lines = capsys.readouterr().out.splitlines()
    assert "adaptive-old.json does not name its network's SHA-256 and space" in lines[0]
    assert "adaptive-odd.json is not an adaptive table" in lines[1]
    assert [line.endswith(": ignored") for line in lines] == [True] * 4


def test_tables_without_their_network_are_ignored(tmp_path, capsys):
    old, fresh = (table(tmp_path / f"adaptive-{name}.json") for name in ("a", "b"))
    record = json.loads(old.read_text("utf-8"))
    del record["network_sha256"], record["space"], record["gamma"]
    old.write_text(json.dumps(record), "utf-8")
    found = adaptive.read_tables(adaptive.found_files(None, tmp_path))
    assert [one.file for one in found] == [fresh.name]
    (line,) = capsys.readouterr().out.splitlines()
    assert "adaptive-a.json" in line
    assert "does not name its network" in line


def test_files_come_from_names_and_folders(tmp_path):
    one, two = table(tmp_path / "adaptive-a.json"), table(tmp_path / "other.json")
    assert adaptive.found_files([tmp_path]) == [one]
    assert adaptive.found_files([two, tmp_path]) == [two, one]
    assert adaptive.found_files(None, tmp_path / "none") == []
    assert adaptive.found_files([]) == []
    with pytest.raises(InvalidArgumentError, match="files or folders"):
        adaptive.found_files([tmp_path / "none"])


@pytest.mark.parametrize(
    ("attacks", "words"),
    [(range(9), "A0-A8"), ((0, 2, 3, 4, 7), "A0, A2-A4, A7"), ((2,), "A2")],
)
def test_attacks_are_named_by_runs(attacks, words):
    row = {"attacks": [f"A{n}" for n in attacks]}
    assert adaptive.name_attacks([row, {"attacks": [f"A{n}" for n in range(9)]}]) == words


def record_of(adaptive):
    """A filtering figure with one set and the numbers that the claims read."""
    which = {"accuracy": [0.5] * 3, "restarts": [0.5], "right": [5], "images": 10,
             "mean": [0.5] * 50, "auroc": [0.7] * 3}  # fmt: skip
    coverage = {"mean": 0.4, "most": 0.5, "first": [0.4, 0.3, 0.5]}
    one = {
        "softmax": which, "profile": which, "auroc difference": [0.1] * 3,
        "overconfidence": [0.1] * 3,
        "drop": {"softmax": [0.1] * 3, "profile": [0.1] * 3, "softmax ahead by": [0.1] * 3},
        "coverage": {"softmax for profile": coverage, "profile for softmax": coverage},
    }  # fmt: skip
    sets = {"10 images": dict.fromkeys(("clean", "0.01", "0.02", "0.03"), one)}
    results = {"pixel": sets, "normalised": sets} | ({"adaptive": adaptive} if adaptive else {})
    settings = {"eps": [0.01, 0.02, 0.03], "networks": ["net"], "gammas": [200.0], "dataset": "d"}
    return {"settings": settings, "results": results}


def test_claims_of_robustness_carry_the_adaptive_numbers():
    record = record_of({"pixel": {"0.01": NUMBERS, "0.03": None}, "normalised": {}})
    found = [claim.record() for claim in statements.cifar10_claims({statements.CIFAR: record})]
    by_name = {claim["claim"]: claim for claim in found}
    assert by_name["drops at .01"]["adaptive"] == {"pixel": NUMBERS, "normalised": None}
    assert by_name["left at .03"]["adaptive"] == {"pixel": None, "normalised": None}
    assert "adaptive" not in by_name["lower at full coverage, CIFAR-10"]
    assert set(by_name["drops at .01"]["readings"]) == {
        "pixel, 10 images", "normalised, 10 images",
    }  # fmt: skip
    text = claims.markdown(found, "full")
    words = "pixel, adaptive attacks (worst of A0, A2-A4): c+ keeps 0.25 [0.1, 0.4] of 100 images"
    assert text.count(words) == 3
    assert text.count(f"pixel, {adaptive.NOT_RUN} and eps") == 2
    assert all(line.count("|") == 5 for line in text.splitlines()[2:])


def test_older_figures_say_that_nothing_was_run():
    assert adaptive.notes(record_of(None)) == "adaptive attacks: not run for this network"
    part = adaptive.notes(record_of({"pixel": {"0.01": NUMBERS}})).splitlines()
    words = part[0].replace("\N{NO-BREAK SPACE}", " ")
    assert "100 images, ε = 0.01: c⁺ is right on 25 % (10-40); not run at ε = 0.02" in words
    assert part[1] == "normalised: adaptive attacks: not run for this network"


def test_the_bare_model_is_shown_beside_the_profile():
    numbers = NUMBERS | {"bare model": [0.5, 0.3, 0.7]}
    text = adaptive.notes(record_of({"pixel": {"0.01": numbers}})).replace(
        "\N{NO-BREAK SPACE}", " "
    )
    assert "on 25 % (10-40); the bare model on 50 % (30-70)" in text.replace("\n", " ")


@pytest.mark.parametrize("kind", ["accuracy", "filtering"])
def test_pictures_show_them_or_say_that_there_are_none(tmp_path, kind):
    for name, rows in (("with", {"pixel": {"0.01": NUMBERS}}), ("without", None)):
        record = record_of(rows) | {"figure": name, "kind": kind}
        sets = record["results"]["pixel"]["10 images"].values()
        for numbers in sets:
            for which in ("softmax", "profile"):
                curve = {"mean": [0.5] * 50, "least": [0.4] * 50, "most": [0.6] * 50}
                numbers[which] = numbers[which] | curve | {"worst_case": [0.4] * 3}
        draw.picture(record, tmp_path)
        text = (tmp_path / f"{name}.svg").read_text("utf-8")
        assert ("adaptive attacks (worst of A0, A2-A4)" in text) == (rows is not None)
        assert adaptive.NOT_RUN in text


def test_of_several_networks_the_first_is_named():
    record = record_of({"pixel": {"0.01": NUMBERS}})
    record["settings"]["networks"] = ["seed0", "seed1"]
    first, second = adaptive.notes(record).splitlines()
    assert first.startswith("seed0, pixel, adaptive attacks")
    assert second == "seed0, normalised: adaptive attacks: not run for this network"


def test_pictures_name_networks_and_scale():
    record = record_of(None)
    assert draw.subject(record) == "net, gamma = 200."
    small = {**record, "settings": {**record["settings"], "dataset": "embedded"}}
    assert "nothing here is about the paper" in draw.subject(small)


@pytest.mark.parametrize(("most", "words"), [(0.0, "does not reach that at any coverage"),
                                             (0.1, "gives up 95 % of the images")])  # fmt: skip
def test_what_is_never_reached_is_not_called_given_up(most, words):
    numbers = {"softmax": {"accuracy": [0.4]}, "profile": {"accuracy": [0.6]},
               "coverage": {"softmax for profile": {"mean": most / 2, "most": most}}}  # fmt: skip
    assert words in draw_accuracy._regain_words("pixel", {"clean": {}, "0.01": numbers})


def test_attacks_in_lower_precision_are_stages_of_their_own(tmp_path):
    world, cache = World(), Cache(tmp_path)
    changed = {"steps": 5, "images": [12], "restarts": [1], "chunk": 64}
    lines = {
        name: Line(world, cache, settings.load("accuracy-cifar10", small=True, change=change),
                   "embedded", "normalised")
        for name, change in (
            ("default", changed),
            ("float32", changed | {"attack_precision": "float32"}),
            ("bfloat16", changed | {"attack_precision": "bfloat16"}),
        )
    }  # fmt: skip
    stages = {name: line.attack(12, 1, 0.3, 0.1) for name, line in lines.items()}
    assert stages["default"].key == stages["float32"].key != stages["bfloat16"].key
    assert len({line.choose(12).key for line in lines.values()}) == 1
    assert len({line.solve(12, gamma=200.0).key for line in lines.values()}) == 1
    found = {name: cache.load(stage).tensors["x"] for name, stage in stages.items()}
    x, labels = lines["default"].inputs(12)
    low, high = world.network("embedded").box("normalised")
    for values in found.values():
        assert values.dtype == torch.float32
        assert float((values.double() - x.double()).abs().max()) <= 0.3
        assert low[0] <= float(values.min()) <= float(values.max()) <= high[0]
    assert not torch.equal(found["float32"], found["bfloat16"])
    clf = lines["default"].classifier()  # both do what they are for, judged in float32
    rates = {k: float((clf.losses(v[0]).argmin(1) != labels).double().mean())
             for k, v in found.items()}  # fmt: skip
    assert rates["bfloat16"] >= rates["float32"] - 0.2 > 0.2
