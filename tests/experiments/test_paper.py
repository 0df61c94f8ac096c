"""The reproduction end to end, with the embedded network, and its cache."""

import json
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from safetensors.torch import load_file

from credibly.errors import FileFormatError, InvalidArgumentError
from credibly.io.run_folder import RunFolder
from experiments import paper
from experiments.paper import command, settings
from experiments.paper.cache import Cache, Content, Stage, read
from experiments.paper.kinds import measured
from experiments.paper.world import MissingInputError, World

QUICK = {"restarts": [2], "solver": {"name": "lbfgs", "steps": 5}}  # the rest as in --small
SHORT = {"eps": [0.02, 0.04], "step_sizes": [0.01, 0.01]}
CHANGES = {
    "compromise": {"restarts": [1]},
    "profiles": {"restarts": [1]},
    "filtering": {"images": [200, 24], "restarts": [2, 1], **SHORT},
    "accuracy": {"images": [200, 24], "restarts": [2, 1], **SHORT},
    "seeds": {"restarts": [1], **SHORT},
    "readings": {"restarts": [1], **SHORT, "lengths": [2, 4], "primal_steps": [0.01]},
}
LOAD = settings.load


def quick(name, *, small=False, change=None):
    kind = LOAD(name, small=small).kind
    return LOAD(name, small=small, change={**QUICK, **CHANGES[kind], **(change or {})})


def arguments(folder, *more):
    return ["--small", "--cache", str(folder / "cache"), "--out", str(folder / "out"), *more]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Every figure of the small scale: 200 images, ten steps of PGD, and a few of the solver."""
    folder = tmp_path_factory.mktemp("paper")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(settings, "load", quick)
        assert command.main(arguments(folder)) == 0
    return folder


@pytest.fixture
def quick_settings(monkeypatch):
    monkeypatch.setattr(settings, "load", quick)


def test_every_figure_becomes_numbers_and_pictures(made):
    for name in settings.names():
        record = json.loads((made / "out" / f"{name}.json").read_text())
        assert record["figure"] == name
        assert set(record["results"]) - {"adaptive"} == {"pixel", "normalised"}
        shown = ("accuracy", "filtering", "readings", "seeds")
        assert ("adaptive" in record["results"]) == (record["kind"] in shown)
        assert record["passes"] > 0
        assert record["seconds"] > 0
        assert {"python", "torch", "credibly", "device"} == set(record["made_with"][0])
        assert len(record["data_sha256"]) == 64
        assert set(record["networks"]) == set(record["settings"]["networks"])
        for ending, start in ((".png", b"\x89PNG"), (".svg", b"<?xml")):
            picture = (made / "out" / f"{name}{ending}").read_bytes()
            assert picture.startswith(start)
            assert len(picture) < 200_000


def test_the_claims_are_judged_and_a_small_scale_is_named_so(made):
    found = json.loads((made / "out" / "claims.json").read_text())
    assert found["scale"].startswith("small")
    assert "reproduced if every reading holds" in found["rule"]
    kinds = {"reproduced", "partly", "refuted", "cannot be decided"}
    assert {claim["verdict"] for claim in found["claims"]} <= kinds
    by_name = {claim["claim"]: claim for claim in found["claims"]}
    assert by_name["trade-off"]["verdict"] == "reproduced"
    readings = by_name["drops at .01"]["readings"]
    assert "pixel, 200 images, 2 restarts" in readings
    assert "normalised, 24 images, 1 restart" in readings


def test_the_numbers_of_a_figure_are_those_of_its_solved_sets(made):
    record = json.loads((made / "out" / "accuracy-cifar10.json").read_text())
    sets = record["results"]["pixel"]["200 images, 2 restarts"]
    assert list(sets) == ["clean", "0.02", "0.04"]
    world, cache = World(), Cache(made / "cache")
    stage = measured(world, cache, quick("accuracy-cifar10", small=True), "pixel").earlier[1]
    found = load_file(cache.path(stage))
    for which, name in (("softmax", "c0"), ("profile", "c")):
        right = (found[name].argmax(2) == found["labels"]).double()
        assert sets["0.02"][which]["accuracy"][0] == pytest.approx(float(right.mean()), rel=1e-5)
        worst = float(right.amin(0).mean())
        assert sets["0.02"][which]["worst_case"][0] == pytest.approx(worst, rel=1e-5)
    for which in ("softmax", "profile"):
        left = [numbers[which]["accuracy"][0] for numbers in sets.values()]
        assert left == sorted(left, reverse=True)
        assert left[0] > left[-1] + 0.1


@pytest.mark.usefixtures("quick_settings")
def test_a_second_run_computes_nothing_and_writes_the_same_bytes(made, capsys):
    before = {path.name: path.read_bytes() for path in (made / "out").iterdir()}
    assert command.main(arguments(made)) == 0
    lines = capsys.readouterr().out.splitlines()
    assert sum(line.startswith("  cached  measure") for line in lines) >= len(settings.names())
    assert not [line for line in lines if re.match(r" *[\d.]+ s  ", line)]
    after = {path.name: path.read_bytes() for path in (made / "out").iterdir()}
    assert before == after


@pytest.mark.parametrize(
    ("change", "computed"),
    [
        ({"steps": 3}, {"attack": 2, "solve": 2, "measure": 1}),
        ({"gammas": [50.0]}, {"solve": 3, "measure": 1}),
        ({"attack_seed": 7}, {"attack": 2, "solve": 2, "measure": 1}),
        ({"seed": 7}, {"choose": 1, "attack": 2, "solve": 3, "measure": 1}),
        ({"eps": [0.02, 0.05]}, {"attack": 1, "solve": 1, "measure": 1}),
        ({"name": None}, {}),
    ],
)
def test_a_changed_setting_computes_what_depends_on_it(made, change, computed):
    base = {"images": [16], "restarts": [2]}
    world, cache = World(), Cache(made / "cache")
    cache.load(measured(world, cache, quick("filtering-cifar10", small=True, change=base), "pixel"))
    cache.computed.clear()
    change = {k: v for k, v in change.items() if v is not None}
    other = quick("filtering-cifar10", small=True, change={**base, **change})
    cache.load(measured(world, cache, other, "pixel"))
    assert {name: cache.computed.count(name) for name in cache.computed} == computed


@pytest.mark.parametrize("damage", ["flipped", "cut", "emptied", "exchanged"])
def test_a_damaged_file_is_computed_again_with_a_line(tmp_path, capsys, damage):
    def stage(number):
        return Stage("one", f"stage {number}", 1, {"n": number}, (), lambda: content)

    content = Content({"x": torch.arange(6.0)}, {"passes": 3})
    cache = Cache(tmp_path)
    cache.load(stage(1)), cache.load(stage(2))
    path = cache.path(stage(1))
    whole = path.read_bytes()
    broken = {
        "flipped": whole[:-1] + bytes([whole[-1] ^ 1]),
        "cut": whole[:-4],
        "emptied": b"",
        "exchanged": cache.path(stage(2)).read_bytes(),
    }[damage]
    path.write_bytes(broken)
    again = cache.load(stage(1))
    assert f"{path.name} is damaged" in capsys.readouterr().out
    assert again.tensors["x"].tolist() == [0, 1, 2, 3, 4, 5]
    assert cache.computed == ["one", "one", "one"]
    read(path, stage(1).key)
    assert sorted(p.suffix for p in tmp_path.iterdir()) == [".json"] + [".safetensors"] * 2


def test_processes_that_share_a_folder_compute_a_stage_once(tmp_path):
    def compute():
        time.sleep(0.2)
        return Content({"x": torch.arange(3.0)})

    def work(cache):
        found = cache.load(Stage("one", "a stage", 1, {}, (), compute))
        assert found.tensors["x"].tolist() == [0, 1, 2]

    caches = [Cache(tmp_path) for _ in range(3)]  # locks of files, so threads stand for processes
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(work, caches))
    assert sorted(name for cache in caches for name in cache.computed) == ["one"]


def test_a_cache_removes_what_a_killed_run_left_and_refuses_other_folders(tmp_path):
    stage = Stage("one", "a stage", 1, {}, (), Content)
    ended = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"],
                           capture_output=True, text=True, check=True).stdout.strip()  # fmt: skip
    left = tmp_path / f"one-0123.safetensors.{ended}-1.tmp"
    left.write_bytes(b"half")
    Cache(tmp_path).load(stage)
    assert not left.exists()
    other = RunFolder(tmp_path / "study", kind="credibly.study")
    other.begin({})
    with pytest.raises(FileFormatError, match=r"its format is 'credibly\.study'"):
        Cache(other.path).load(stage)


def test_cost_counts_a_shared_stage_once(tmp_path):
    cache = Cache(tmp_path)
    first = Stage("a", "a", 1, {}, (), lambda: Content({}, {"passes": 5}))
    middle = [
        Stage("b", f"b{n}", 1, {"n": n}, (first,), lambda: Content(cache.load(first).tensors))
        for n in (1, 2)
    ]
    last = Stage(
        "c", "c", 1, {}, middle, lambda: Content({}, {"n": [cache.load(m) and 1 for m in middle]})
    )
    cost = cache.load(last).facts["cost"]
    assert len(cost) == 4
    assert sum(passes for _, passes in cost.values()) == 5


def test_one_figure_at_the_true_small_scale(tmp_path, capsys):
    assert command.main(arguments(tmp_path, "--figure", "profiles-fashion-mnist")) == 0
    record = json.loads((tmp_path / "out" / "profiles-fashion-mnist.json").read_text())
    found = record["results"]["normalised"]["networks"]["embedded"]
    assert found["accuracy"][0] == pytest.approx(0.942, abs=1e-3)
    assert len(found["200 images"]["bands"]["after"]) == 5
    assert "solve embedded pixel clean, gamma 200, 200 images x 1" in capsys.readouterr().out


@pytest.mark.parametrize("name", settings.names())
def test_the_small_scale_is_200_images_and_ten_steps(name):
    figure = settings.load(name, small=True)
    assert figure.images == (200,)
    assert not figure.eps or figure.steps == 10


@pytest.mark.usefixtures("quick_settings")
def test_a_part_of_the_spaces_fills_the_cache_only(made, tmp_path, capsys):
    out = ["--out", str(tmp_path), "--figure", "compromise", "--spaces", "pixel"]
    assert command.main([*arguments(made), *out]) == 0
    assert "nothing written" in capsys.readouterr().out
    assert not (tmp_path / "compromise.json").exists()


def test_pictures_are_drawn_from_json_alone(made, tmp_path):
    for name in ("readings", "seeds"):
        (tmp_path / f"{name}.json").write_bytes((made / "out" / f"{name}.json").read_bytes())
    assert command.main(["--draw", "--out", str(tmp_path)]) == 0
    for name in ("readings.svg", "seeds.png"):
        assert (tmp_path / name).read_bytes() == (made / "out" / name).read_bytes()
    assert not (tmp_path / "compromise.svg").exists()


def test_drawing_without_json_says_what_to_do_first(tmp_path, capsys):
    assert command.main(["--draw", "--out", str(tmp_path)]) == 1
    assert "no figure's JSON is in" in capsys.readouterr().out
    assert command.main(["--draw", "--out", str(tmp_path), "--figure", "seeds"]) == 1
    assert "seeds.json is not there" in capsys.readouterr().out


@pytest.mark.usefixtures("quick_settings")
def test_without_matplotlib_there_is_json_and_a_line(made, tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.delitem(sys.modules, "experiments.paper.draw", raising=False)
    monkeypatch.delattr(paper, "draw", raising=False)
    assert command.main([*arguments(made), "--out", str(tmp_path), "--figure", "compromise"]) == 0
    assert "matplotlib is not installed" in capsys.readouterr().out
    assert {path.suffix for path in tmp_path.iterdir()} == {".json"}


def test_figures_whose_networks_are_missing_are_skipped_with_a_line(tmp_path, capsys):
    given = ["--cache", str(tmp_path / "c"), "--out", str(tmp_path / "o")]
    assert command.main([*given, "--checkpoints", str(tmp_path)]) == 1, "nothing at all was made"
    out = capsys.readouterr().out
    assert "compromise: skipped, cifar10-resnet18-seed0.safetensors not in" in out
    assert "not made: compromise" in out
    assert command.main([*given, "--figure", "seeds"]) == 1
    assert "--checkpoints, which was not given" in capsys.readouterr().out


def test_missing_inputs_say_what_to_pass(tmp_path):
    with pytest.raises(MissingInputError, match="Pass --checkpoints FOLDER"):
        World().network("cifar10-resnet18-seed0")
    with pytest.raises(MissingInputError, match=r"x\.safetensors is not in"):
        World(tmp_path).network_sha256("x")
    with pytest.raises(MissingInputError, match="pass --cifar10 FOLDER"):
        World().images("cifar10")
    with pytest.raises(MissingInputError, match="is not a folder"):
        World(folders={"fashion-mnist": tmp_path / "none"}).images("fashion-mnist")


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"colour": 1}, FileFormatError, "unknown keys"),
        ({"eps": [0.1]}, InvalidArgumentError, "as many numbers as `eps`"),
        ({"restarts": [1, 2, 3]}, InvalidArgumentError, "as many numbers as `images`"),
        ({"spaces": ["polar"]}, InvalidArgumentError, "pixel or normalised"),
        ({"solver": {"name": "magic"}}, InvalidArgumentError, "hybrid"),
        ({"kind": "pie"}, InvalidArgumentError, "compromise"),
        ({"attack_precision": "float8"}, InvalidArgumentError, "float32 or bfloat16"),
    ],
)
def test_wrong_settings_are_refused(change, error, words):
    with pytest.raises(error, match=words):
        settings.load("filtering-cifar10", change=change)


def test_figures_beyond_the_papers_are_made_by_name_alone():
    further = settings.further_names()
    assert further
    assert not set(further) & set(settings.names())
    assert command.parsed([]).figure is None
    assert command.parsed(["--figure", *further]).figure == further
    assert all(settings.load(name, small=True).dataset == "embedded" for name in further)


def test_an_unknown_figure_is_refused():
    with pytest.raises(InvalidArgumentError, match="filtering-cifar10"):
        settings.load("pie")


def test_the_papers_own_settings_are_in_the_files():
    cifar = settings.load("filtering-cifar10")
    assert cifar.attacks() == [(0.01, 0.005), (0.02, 0.01), (0.03, 0.01)]
    assert (cifar.steps, cifar.gammas, cifar.sets()) == (100, (200.0,), [(1000, 10), (10000, 1)])
    assert settings.load("compromise").gammas == (100.0, 200.0, 400.0)
    assert settings.load("filtering-fashion-mnist").eps == (0.02, 0.04, 0.06)
    for pair in ("cifar10", "fashion-mnist"):  # so that both read the same stages
        left, right = (
            settings.load(f"{kind}-{pair}").record() for kind in ("filtering", "accuracy")
        )
        assert {k for k in left if left[k] != right[k]} == {"name", "kind"}


@pytest.mark.usefixtures("quick_settings")
def test_an_adaptive_table_is_joined_without_computing_anything(made, tmp_path, capsys):
    numbers = {"rate": 0.75, "low": 0.6, "high": 0.9}
    names = [f"attack (A{n})" for n in range(9)]
    block = {"system": "B", "norm": "linf", "images": 40, "worst": {"0.02": numbers},
             "attacks": {name: {"0.02": numbers} for name in names}}  # fmt: skip
    record = {"network_sha256": World().network_sha256("embedded"), "space": "normalised",
              "gamma": 200.0, "systems": {"solver": "Hybrid"}, "tables": [block]}  # fmt: skip
    (tmp_path / "adaptive-one.json").write_text(json.dumps(record))
    name, more = "accuracy-cifar10", ["--out", str(tmp_path), "--adaptive", str(tmp_path)]
    assert command.main([*arguments(made), *more, "--figure", name]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert not [line for line in lines if re.match(r" *[\d.]+ s  ", line)]
    results = json.loads((tmp_path / f"{name}.json").read_text())["results"]
    assert results["adaptive"]["normalised"]["0.02"]["accuracy"] == [0.25, 0.1, 0.4]
    assert results["adaptive"]["pixel"] == {"0.02": None, "0.04": None}
    assert "adaptive attacks (worst of A0-A8), 40 images" in (tmp_path / f"{name}.svg").read_text()
