"""`evaluate` as a person would type it, up to a kill in the middle."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import skops.io
from sklearn.linear_model import LogisticRegression

from credibly.cli.app import app
from credibly.study import StudyResult

ROOT = Path(__file__).parents[2]
MODEL = """
import os, time
import torch
from torch import nn

class Slow(nn.Module):
    def __init__(self):
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.layers = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2))

    def forward(self, x):
        time.sleep(float(os.environ.get("PAUSE", "0")))
        return self.layers(x)

def moving(**what):
    from credibly import Classifier
    return Classifier(Slow().double().eval(), classes=["no", "yes"], **what)

def spaced():
    from credibly import Space
    return moving(space=Space(scale=2.0))

def layered():
    return moving(module="layers.0")
"""
BASE = ["model.py:Slow", "x.csv", "--labels", "truth", "--classes", "no,yes", "--dtype", "float64"]
QUICK = ["--resamples", "100", "--gamma", "auto"]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "model.py").write_text(MODEL)
    x = np.random.default_rng(0).normal(size=(40, 3))
    frame = pd.DataFrame(x, columns=["a", "b", "c"])
    frame["truth"] = np.where(x[:, 0] > 0, "yes", "no")
    frame.to_csv("x.csv", index=False)
    np.save("far.npy", 5 + x[:12])
    np.save("y.npy", (x[:, 0] > 0).astype(np.uint8))
    np.save("wide.npy", np.ones((4, 5)))
    return tmp_path


def credibly(*arguments):
    with pytest.raises(SystemExit) as caught:
        app(list(map(str, arguments)))
    return caught.value.code


def numbers(folder):
    return json.loads((folder / "result.json").read_text("utf-8"))


MORE = ["--attack", "linf:0.05", "--attack", "l2:0.2", "--outliers", "far.csv"]


def test_a_run_that_is_killed_goes_on_and_ends_with_the_same_result(folder, capsys):
    pd.DataFrame(np.load("far.npy"), columns=["a", "b", "c"]).to_csv("far.csv", index=False)
    command = ["evaluate", *BASE, *QUICK, *MORE, "--out"]
    assert credibly(*command, "whole") == 0
    path = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    run = subprocess.Popen(  # noqa: S603
        [sys.executable, "-c", "from credibly.cli import main; main()", *command, "killed"],
        env={**os.environ, "PAUSE": "0.005", "OMP_NUM_THREADS": "1", "PYTHONPATH": path},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    out = folder / "killed"
    while run.poll() is None and not (out / "ordinary.safetensors").exists():
        time.sleep(0.005)
    run.send_signal(signal.SIGKILL)
    assert run.wait() == -signal.SIGKILL
    kept = (out / "ordinary.safetensors").stat().st_mtime_ns
    assert len(list(out.glob("*.safetensors"))) < 4
    assert not (out / "result.json").exists()
    assert credibly(*command, "killed") == 0
    assert (out / "ordinary.safetensors").stat().st_mtime_ns == kept
    for name in ("result.json", "scores.parquet"):
        assert (out / name).read_bytes() == (folder / "whole" / name).read_bytes(), name
    found = numbers(out)
    kinds = {name: part["kind"] for name, part in found["sets"].items()}
    assert kinds == {
        "ordinary": "ordinary",
        "PGD linf 0.05": "attacked",
        "PGD l2 0.2": "attacked",
        "outliers far": "outliers",
    }
    assert found["settings"]["data"]["columns"] == ["a", "b", "c"]
    assert {path.name for path in out.iterdir() if path.suffix != ".safetensors"} == {
        "index.html", "result.json", "scores.parquet", "study.json", "evaluation.json",
        "alarms.json",
    }  # fmt: skip
    page = (out / "index.html").read_text("utf-8")
    assert page.count('src="data:image/png;base64,') == 4
    assert page.index("What a Judge says") < page.index("What to use")
    alarms = (out / "alarms.json").read_bytes()
    assert credibly(*command, "killed") == 0  # once more: counted already
    assert (out / "alarms.json").read_bytes() == alarms
    assert "Called not ordinary" in capsys.readouterr().out


@pytest.mark.usefixtures("folder")
def test_labels_from_numbers_and_from_names_agree(capsys):
    base = ["evaluate", "model.py:Slow", "x.csv", "--drop", "truth", *QUICK, "--limit", "20"]
    assert credibly("evaluate", *BASE, *QUICK, "--limit", "20", "--out", "named") == 0
    assert "The model is right on" in capsys.readouterr().out
    assert credibly(*base, "--dtype", "float64", "--labels", "y.npy", "--out", "numbered") == 0
    one, two = numbers(Path("named"))["sets"], numbers(Path("numbered"))["sets"]
    assert one == two
    assert one["ordinary"]["samples"] == 20


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("column", ["grade", "rating"])
def test_whole_numbers_that_are_names_of_classes_are_taken_by_name(column):
    frame = pd.read_csv("x.csv").assign(grade=lambda f: 1 + (f["a"] > 0) + (f["b"] > 1))
    frame["rating"] = frame["grade"].astype(float)
    frame.drop(columns="truth").to_csv("graded.csv", index=False)
    features = frame[["a", "b", "c"]]
    skops.io.dump(LogisticRegression(C=1e3).fit(features, frame[column]), "m.skops")
    options = ["--labels", column, "--resamples", "100", "--gamma", "1", "--out", "o"]
    unused = {"grade": "rating", "rating": "grade"}[column]
    assert credibly("evaluate", "m.skops", "graded.csv", "--drop", unused, *options) == 0
    assert numbers(Path("o"))["sets"]["ordinary"]["accuracy"]["model"] > 0.9


@pytest.mark.usefixtures("folder")
def test_labels_in_another_order_are_noticed(capsys):
    model = "credibly.data.sample:classifier"
    assert credibly("sample", "--out", "sample.npz", "--images", "24") == 0
    with np.load("sample.npz") as arrays:
        np.save("wrong.npy", (arrays["labels"] + 1) % 10)
        np.save("right.npy", arrays["labels"])
    capsys.readouterr()
    base = ["evaluate", model, "sample.npz", "--gamma", "200", "--resamples", "100", "--labels"]
    for name in ("wrong", "right"):
        assert credibly(*base, f"{name}.npy", "--out", name) == 0
        said = " ".join(capsys.readouterr().out.split())
        words = "A guess, or always the most common class, could do as well"
        assert (words in said) is (name == "wrong")
        page = Path(name, "index.html").read_text("utf-8")
        assert (words in page) is (name == "wrong")


@pytest.mark.usefixtures("folder")
def test_the_embedded_sample_needs_no_more_than_a_folder():
    model = "credibly.data.sample:classifier"
    assert credibly("sample", "--out", "sample.npz", "--images", "24") == 0
    options = ["--gamma", "200", "--bounds", "0", "1", "--resamples", "100", "--out", "o"]
    assert credibly("evaluate", model, "sample.npz", *options) == 0
    found = numbers(Path("o"))
    assert found["sets"]["ordinary"]["samples"] == 24
    assert found["sets"]["ordinary"]["accuracy"]["model"] > 0.7
    assert found["settings"]["bounds"] == [0.0, 1.0]


@pytest.mark.usefixtures("folder")
def test_a_folder_of_other_data_is_refused(capsys):
    command = ["evaluate", *BASE, *QUICK, "--limit", "12", "--out", "o"]
    assert credibly(*command) == 0
    pd.read_csv("x.csv").iloc[::-1].to_csv("x.csv", index=False)
    assert credibly(*command) == 2
    said = capsys.readouterr().err
    assert re.search(r"other settings: data was \w{12} and is now \w{12}; labels was ", said)


@pytest.mark.usefixtures("folder")
def test_a_radius_beyond_the_inputs_is_doubted(capsys):
    x = pd.read_csv("x.csv").drop(columns="truth")
    spans = x.max() - x.min()
    reach = {"linf": spans.max(), "l2": np.sqrt((spans**2).sum())}
    for norm, largest in reach.items():
        for factor in (0.99, 1.01):
            out, radius = f"{norm}{factor}", f"{norm}:{factor * largest}"
            command = ["evaluate", *BASE, "--gamma", "1", "--resamples", "100", "--out", out]
            assert credibly(*command, "--attack", radius) == 0
            said = capsys.readouterr().err
            assert ("larger than the range of the ordinary inputs" in said.replace("\n", " ")) is (
                factor > 1
            ), radius


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("width", [40, 53, 61, 80])
def test_no_line_is_wider_than_the_terminal(capsys, monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    assert credibly("evaluate", *BASE, *QUICK, "--out", "o") == 0
    said = capsys.readouterr().out
    assert "What to use" in said
    tables = [line for line in said.splitlines() if line.startswith(("│", "┃"))]
    assert tables
    assert max(map(len, tables)) <= width


@pytest.mark.usefixtures("folder")
def test_another_spelling_of_the_model_is_no_other_model(capsys):
    rest = [*BASE[1:], *QUICK, "--limit", "12", "--out", "o"]
    assert credibly("evaluate", "model.py:Slow", *rest) == 0
    try:
        assert credibly("evaluate", "model:Slow", *rest) == 0
    finally:
        sys.modules.pop("model", None)
    capsys.readouterr()
    Path("model.py").write_text(MODEL + "\n# another\n")
    assert credibly("evaluate", "model.py:Slow", *rest) == 2
    assert "model code was" in capsys.readouterr().err
    Path("model.py").write_text(MODEL.replace("manual_seed(0)", "manual_seed(1)"))
    assert credibly("evaluate", "model.py:Slow", *rest) == 2
    assert "model" in capsys.readouterr().err


@pytest.mark.usefixtures("folder")
def test_another_effort_is_refused(capsys):
    command = ["evaluate", *BASE, *QUICK, "--limit", "12", "--out", "o"]
    assert credibly(*command, "--effort", "0.5") == 0
    assert numbers(Path("o"))["settings"]["solver"].startswith("Hybrid(effort=0.5")
    assert credibly(*command) == 2
    assert "solver was Hybrid(effort=0.5" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([*BASE, "--effort", "-1"], "`effort`"),
        ([*BASE, "--attack", "max:1"], "NORM:EPS"),
        ([*BASE, "--attack", "linf:much"], "NORM:EPS"),
        (["model.py:spaced", *BASE[1:4], "--attack", "linf:1"], "a Classifier with a space. Leave"),
        (["model.py:layered", *BASE[1:4], "--attack", "l2:1"], "with module='layers.0'. Leave"),
        ([*BASE, "--gamma", "big"], "a number or 'auto'"),
        ([*BASE, "--gamma", "-1"], "a positive finite number"),
        ([*BASE, "--gamma", "nan"], "a positive finite number"),
        ([*BASE, "--resamples", "99"], "at least 100, got 99"),
        ([BASE[0], "missing.npz"], "missing.npz: no such file or folder"),
        ([BASE[0], "missing.npz", "--labels", "y.npy"], "missing.npz: no such file or folder"),
        ([*BASE[:2], "--labels", "missing.npy"], "missing.npy: no such file"),
        ([*BASE, "--corruptions"], "pixels in [0, 1]"),
        ([*BASE, "--outliers", "wide.npy"], "inputs of shape (3,)"),
        ([*BASE, "--outliers", "nothing.npy"], "nothing.npy: none of its 4 rows can be used"),
        ([*BASE, "--bounds", "0", "1"], "inputs span"),
        ([BASE[0], "far.npy"], "Pass --labels and a file"),
        ([BASE[0], "images"], "Pass --labels and a file"),
        ([*BASE[:2], "--labels", "nothing"], "one of 'a', 'b', 'c', 'truth'"),
        ([*BASE[:2], "--labels", "no.npy:y"], "no.npy: no such file"),
        ([*BASE[:2], "--labels", "no:y"], "a file, FILE:KEY"),
        ([*BASE[:2], "--labels", "truth"], "'no', 'yes' in x.csv"),
        ([*BASE[:2], "--labels", "truth", "--classes", "no,maybe"], "'yes' in x.csv"),
        ([*BASE[:2], "--labels", "far.npy"], "shape (12, 3)"),
        ([*BASE[:2], "--labels", "few.npy", "--drop", "truth"], "40, one for each row"),
        ([*BASE[:2], "--labels", "large.npy", "--drop", "truth"], "classes from 0 to 1"),
        ([*BASE[:2], "--labels", "half.npy", "--drop", "truth"], "not whole numbers"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(folder, capsys, arguments, words):
    (folder / "images").mkdir()
    np.save("few.npy", np.zeros(7, int))
    np.save("large.npy", np.full(40, 2))
    np.save("half.npy", np.full(40, 0.5))
    np.save("nothing.npy", np.full((4, 3), np.nan))
    assert credibly("evaluate", *arguments, "--out", "o") == 2
    text = capsys.readouterr().err.strip()
    assert words in text
    assert text.startswith("error:")
    assert len(text.splitlines()) == 1
    assert not (folder / "o").exists()


def test_a_gamma_that_the_inputs_cannot_use_leaves_nothing_behind(folder, capsys):
    single = [*BASE[:-2], "--dtype", "float32", "--resamples", "100", "--out", "o"]
    for gamma in ("1e-60", "1e60"):
        assert credibly("evaluate", *single, "--gamma", gamma) == 2
        assert "that torch.float32 can hold" in capsys.readouterr().err
        assert not (folder / "o").exists()


def test_another_gamma_is_refused_before_anything_is_written(folder, capsys):
    command = ["evaluate", *BASE, "--resamples", "100", "--limit", "8", "--out", "o", "--gamma"]
    assert credibly(*command, "2") == 0
    before = {p.name: p.read_bytes() for p in (folder / "o").iterdir()}
    assert credibly(*command, "3", "--outliers", "far.npy") == 2
    assert "asked gamma was 2.0 and is now 3.0" in capsys.readouterr().err
    assert {p.name: p.read_bytes() for p in (folder / "o").iterdir()} == before


def test_a_file_in_place_of_the_folder_is_refused_and_kept(folder, capsys):
    (folder / "o").write_text("mine")
    assert credibly("evaluate", *BASE, *QUICK, "--out", "o") == 2
    assert "o is a file, but a folder is needed" in capsys.readouterr().err
    assert (folder / "o").read_text() == "mine"


@pytest.mark.usefixtures("folder")
def test_a_log_hears_how_many_inputs_of_all_sets_are_done(capsys, monkeypatch):
    monkeypatch.setattr("credibly.cli.console.EVERY", 0.0)
    assert credibly("evaluate", *BASE, *QUICK, "--out", "logged", "--chunk-size", "20") == 0
    lines = capsys.readouterr().err.splitlines()
    assert any(line.startswith("20 of 40 inputs, ") for line in lines)
    assert lines[-1].startswith("40 of 40 inputs, ")
    more = ["--attack", "linf:0.05", "--out", "logged", "--chunk-size", "20"]
    assert credibly("evaluate", *BASE, *QUICK, *more) == 0
    lines = capsys.readouterr().err.splitlines()
    going, attacking, *_, solved, half = lines
    assert going == "continuing: 40 of 80 inputs were finished before"
    assert attacking == "attacking: PGD linf 0.05"
    assert solved.startswith("80 of 80 inputs, ")
    assert half.startswith("1 of 2 sets with intervals, ")


@pytest.mark.usefixtures("folder")
def test_an_image_that_is_no_number_does_not_stop_the_damage_of_others(capsys):
    x = np.random.default_rng(1).uniform(size=(6, 1, 8, 8))
    x[2, 0, 3, 3] = np.nan
    np.savez("images.npz", images=x, labels=np.arange(6) % 2)
    Path("flat.py").write_text(
        "from torch import nn\nimport torch\ntorch.manual_seed(0)\n"
        "net = nn.Sequential(nn.Flatten(), nn.Linear(64, 2)).double().eval()\n"
    )
    command = ["evaluate", "flat.py:net", "images.npz", "--key", "images", "--corruptions"]
    assert credibly(*command, "--gamma", "1", "--resamples", "100", "--out", "o") == 0
    capsys.readouterr()
    sets = numbers(Path("o"))["sets"]
    assert len(sets) == 31
    assert {(part["samples"], part["left_out"]) for part in sets.values()} == {(5, 1)}


def test_ids_name_the_rows_of_every_set(folder, capsys):
    frame = pd.read_csv("x.csv")
    frame.insert(0, "patient", [100 + k for k in range(len(frame))])
    frame.to_csv("named.csv", index=False)
    far = pd.DataFrame(np.load("far.npy"), columns=["a", "b", "c"]).assign(patient=range(12))
    far.to_csv("far.csv", index=False)
    command = ["evaluate", "model.py:Slow", "named.csv", *BASE[2:], *QUICK, "--attack", "linf:0.05"]
    assert credibly(*command, "--id", "patient", "--outliers", "far.csv", "--out", "named") == 0
    table = pd.read_parquet("named/scores.parquet")
    for kind, rows in table.groupby("set", observed=True):
        expected = range(12) if kind == "outliers far" else frame["patient"]
        assert rows["id"].tolist() == list(expected), kind
    assert numbers(folder / "named")["settings"]["data"]["id_column"] == "patient"
    assert StudyResult.load("named").rows["ordinary"].labels.shape == (40,)
    frame.assign(patient=[f"p{k}" for k in frame["patient"]]).to_csv("named.csv", index=False)
    both = ["--id", "patient", "--outliers", "far.npy", "--out", "words"]
    assert credibly(*command, *both) == 0
    table = pd.read_parquet("words/scores.parquet").set_index("set")
    assert table.loc["ordinary", "id"].tolist()[:2] == ["p100", "p101"]
    assert table.loc["outliers far", "id"].tolist()[:2] == ["0", "1"]
    assert credibly(*command, "--id", "nobody", "--out", "o") == 2
    assert "'nobody'" in capsys.readouterr().err
    assert credibly("evaluate", *BASE, *QUICK, "--out", "without") == 0
    assert "id" not in pd.read_parquet("without/scores.parquet")


@pytest.mark.usefixtures("folder")
def test_unlike_units_are_noticed_once_for_all_sets(capsys):
    frame = pd.read_csv("x.csv").assign(c=lambda f: 1e4 * f["c"])
    frame.to_csv("unlike.csv", index=False)
    (3 * frame[["a", "b", "c"]]).to_csv("wide.csv", index=False)
    model = LogisticRegression().fit(frame[["a", "b", "c"]], frame["truth"])
    skops.io.dump(model, "m.skops")
    options = ["--labels", "truth", "--outliers", "wide.csv", *QUICK, "--out", "o"]
    assert credibly("evaluate", "m.skops", "unlike.csv", *options) == 0
    assert capsys.readouterr().err.count("columns spread by") == 1
