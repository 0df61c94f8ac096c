"""`fit` and `judge` as a person would type them, up to a kill in the middle."""

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
import pyarrow.parquet as pq
import pytest
import skops.io
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import credibly as cr
from credibly.cli.app import app

ROOT = Path(__file__).parents[2]
MODEL = """
import os, time
import torch
from torch import nn

class Slow(nn.Module):
    def __init__(self, seed=0):
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            self.layers = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2))

    def forward(self, x):
        time.sleep(float(os.environ.get("PAUSE", "0")))
        if bool((x > 1e6).any()):
            raise ValueError("out of my domain")
        return self.layers(x)

class Silent(Slow):
    def forward(self, x):
        return torch.where(x[:, :1] > -9, torch.nan, super().forward(x))

class Gaps(Slow):
    def forward(self, x):
        return torch.where(x[:, :1] > 2, torch.nan, super().forward(x))

def other():
    return Slow(1)

def halve(x):
    return x / 2
"""
OF_MODEL = ["--classes", "no,yes", "--dtype", "float64"]
KNOWN = ["model.py:Slow", "known.csv", "--id", "name", *OF_MODEL]
NEW = ["model.py:Slow", "new.csv", "--id", "name", *OF_MODEL]
SMALL = ["--chunk-size", "8", "--shard-size", "16"]


def credibly(*arguments):
    with pytest.raises(SystemExit) as caught:
        app(list(map(str, arguments)))
    return caught.value.code


def table(rows, seed):
    x = np.random.default_rng(seed).normal(size=(rows, 3))
    frame = pd.DataFrame(x, columns=["a", "b", "c"])
    frame["name"] = [f"n{k}" for k in range(rows)]
    return frame


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "model.py").write_text(MODEL)
    known = table(200, 0)
    clf = cr.load_classifier("model.py:Slow", dtype=torch.float64).classifier
    known["label"] = clf.predict(torch.tensor(known[["a", "b", "c"]].to_numpy())).numpy()
    known.to_csv("known.csv", index=False)
    new = table(90, 1)
    new.loc[17, "b"] = None
    new.loc[30, "a"] = 1e7
    new.loc[40, ["a", "b", "c"]] = 500.0
    new.to_csv("new.csv", index=False)
    return tmp_path


@pytest.fixture
def fitted(folder, capsys):
    assert credibly("fit", *KNOWN, "--drop", "label", "--out", "judge") == 0
    capsys.readouterr()
    return folder / "judge"


@pytest.mark.usefixtures("folder")
def test_fit_saves_a_judge_and_says_what_it_costs(capsys):
    assert credibly("fit", *KNOWN, "--labels", "label", "--out", "judge") == 0
    said = capsys.readouterr().out
    assert "Judge of 2 classes, fitted on 200 ordinary inputs with labels" in said
    assert "cost: 0.33 passes per input (a forward: .33); profile: never" in said
    assert "ordinary inputs called trust: 100.0% right" in said
    assert "saved in judge; use it with `credibly judge" in said
    loaded = cr.load_classifier("model.py:Slow", classes=["no", "yes"], dtype=torch.float64)
    judge = cr.Judge.load("judge", loaded)
    frame = pd.read_csv("known.csv")
    x = torch.tensor(frame[["a", "b", "c"]].to_numpy())
    expected = cr.Judge.fit(loaded, x, frame["label"])
    assert torch.equal(judge(x).trust, expected(x).trust)


def test_judge_writes_the_verdicts_of_the_judge_in_python(fitted, capsys):
    assert credibly("judge", *NEW, "--judge", "judge", "--out", "v.parquet", *SMALL) == 0
    said = capsys.readouterr()
    found = pd.read_parquet("v.parquet")
    assert found["id"].tolist() == [f"n{k}" for k in range(90)]
    odd = {17: "non finite input", 30: "model failed"}
    assert found["status"].tolist() == [odd.get(n, "judged") for n in range(90)]
    assert found["verdict"][40] == "outlier"
    loaded = cr.load_classifier("model.py:Slow", classes=["no", "yes"], dtype=torch.float64)
    judge = cr.Judge.load(fitted, loaded)
    x = torch.tensor(pd.read_csv("new.csv")[["a", "b", "c"]].to_numpy())
    for first in range(0, 90, 8):
        rows = slice(first, first + 8)
        if first == 24:  # the model raises on one of them
            continue
        expected = judge(x[rows]).to_pandas()
        pd.testing.assert_frame_equal(
            found[expected.columns][rows].reset_index(drop=True), expected,
            check_exact=True, check_dtype=False,
        )  # fmt: skip
    assert f"{found['verdict'].eq('trust').sum():>6} trust (" in said.out
    assert "1 model failed: the model raised an exception on it" in said.out
    assert re.search(r"90 rows in v\.parquet, \d\.\d\d passes each", said.out)
    assert "rows/s" in said.out
    stored = json.loads(pq.read_schema("v.parquet").metadata[b"settings"])
    assert {"model weights", "model code", "judge", "data"} <= stored["settings"].keys()


def test_a_run_that_is_killed_goes_on_and_ends_with_the_same_file(fitted):
    command = ["judge", *NEW, "--judge", "judge", *SMALL, "--out"]
    assert credibly(*command, "whole.parquet") == 0
    path = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    run = subprocess.Popen(  # noqa: S603
        [sys.executable, "-c", "from credibly.cli import main; main()", *command, "out.parquet"],
        env={**os.environ, "PAUSE": "0.05", "OMP_NUM_THREADS": "1", "PYTHONPATH": path},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    second = fitted.parent / "out.parquet.parts" / "part-000001.parquet"
    while run.poll() is None and not second.exists():
        time.sleep(0.01)
    run.send_signal(signal.SIGKILL)
    assert run.wait() == -signal.SIGKILL
    assert not Path("out.parquet").exists()
    assert len(list(second.parent.glob("part-*.parquet"))) < 6
    assert credibly(*command, "out.parquet") == 0
    assert Path("out.parquet").read_bytes() == Path("whole.parquet").read_bytes()
    assert not second.parent.exists()


@pytest.mark.usefixtures("fitted")
def test_another_judge_does_not_continue_a_run(capsys, monkeypatch):
    from credibly.batch import shards

    command = ["judge", *NEW, "--judge", "judge", *SMALL, "--out", "v.parquet"]
    with monkeypatch.context() as patch:
        patch.setattr(shards.Shards, "merge", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        assert credibly(*command) == 130
    assert "continues from here" in capsys.readouterr().out
    options = ["--drop", "label", "--doubted", "0.2", "--out", "judge", "--overwrite"]
    assert credibly("fit", *KNOWN, *options) == 0
    capsys.readouterr()
    assert credibly(*command) == 2
    assert re.search(r"judge was \w{12} and is now \w{12}\. .*--restart", capsys.readouterr().err)
    assert credibly(*command, "--restart") == 0
    assert credibly(*command) == 2
    assert "--overwrite" in capsys.readouterr().err
    assert credibly(*command, "--overwrite") == 0


OUT = ["--out", "new"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([*KNOWN, "--out", "judge"], "judge exists already. Choose another name, or replace it"),
        ([*KNOWN, "--out", "model.py"], "model.py is a file. A Judge is a folder"),
        ([*KNOWN, "--out", "no/judge"], "the folder no does not exist. Make it first."),
        ([*KNOWN, *OUT], "it was given 4 columns as features: 'a', 'b', 'c', 'label'"),
        (["model.py:Slow", "absent.csv", *OUT], "absent.csv: no such file"),
        ([*KNOWN, *OUT, "--labels", "absent"], "'label'"),
        ([*KNOWN, *OUT, "--labels", "few.npy", "--drop", "label"], "200, one for each row"),
        ([*KNOWN, *OUT, "--error-rate", "0.1"], "`labels`: expected true classes for an error"),
        ([*KNOWN, *OUT, "--by-class"], "or leave out --by-class"),
        (
            [*KNOWN, *OUT, "--labels", "label", "--limit", "50", "--error-rate", "0.01"],
            "ordinary inputs: expected at least 99 usable inputs for false alarms of 0.01, got 50",
        ),
        (
            [*KNOWN, *OUT, "--labels", "label", "--error-rate", "0.001"],
            "`labels`: expected at least 3793 labels",
        ),
        ([*KNOWN, *OUT, "--drop", "label", "--false-alarms", "5"], "5 % is 0.05"),
        ([*KNOWN, *OUT, "--drop", "label", "--features", "absent"], "the name of a submodule"),
        ([*KNOWN, *OUT, "--gamma", "big"], "a number or 'auto'"),
        (["model.py:Slow", "new.csv", "--drop", "name", *OUT, "--false-alarms", "0.02"],
         "the model failed on some of new.csv with ValueError: out of my domain"),
    ],
)  # fmt: skip
def test_what_cannot_be_fitted_is_one_line_and_exit_code_2(fitted, capsys, *, arguments, words):
    np.save("few.npy", np.zeros(20, int))
    before = {path.name: path.read_bytes() for path in fitted.iterdir()}
    assert credibly("fit", *arguments) == 2
    text = capsys.readouterr().err.strip()
    assert words in text
    assert text.startswith("error:")
    assert len(text.splitlines()) == 1
    assert {path.name: path.read_bytes() for path in fitted.iterdir()} == before
    assert not Path("new").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["model.py:other", *NEW[1:]], "MODEL: expected the network the Judge in judge was fitted"),
        ([*NEW, "--preprocess", "model.py:halve"], "got preprocess 'model.halve' and not None"),
        ([*NEW, "--judge", "absent"], "absent: not the folder of a Judge; it has no judge.json"),
        ([*NEW, "--judge", "damaged"], "judge.json"),
        ([*NEW, "--judge", "mixed"], "not the file that judge.json was saved with"),
        (["model.py:Slow", "wide.npy"], "DATA: expected inputs of the shape of the ordinary ones"),
        (["model.py:Slow", "absent.csv"], "absent.csv: no such file"),
        ([*NEW, "--out", "old.parquet"], "old.parquet exists already"),
        ([*NEW, "--out", "v.csv"], "the result is always a Parquet file"),
        ([*NEW, "--out", "new.csv"], "new.csv"),
    ],
)
def test_what_cannot_be_judged_is_one_line_and_exit_code_2(fitted, capsys, arguments, words):
    np.save("wide.npy", np.zeros((5, 7)))
    Path("old.parquet").write_bytes(b"somebody's")
    for name in ("damaged", "mixed"):
        Path(name).mkdir()
        for path in fitted.iterdir():
            Path(name, path.name).write_bytes(path.read_bytes())
    Path("damaged/judge.json").write_text("{")
    tensors = Path("mixed/judge.safetensors")
    tensors.write_bytes(tensors.read_bytes()[:-8] + bytes(8))
    data = Path("new.csv").read_bytes()
    assert credibly("judge", "--judge", "judge", "--out", "v.parquet", *arguments) == 2
    text = capsys.readouterr().err.strip()
    assert words in text
    assert text.startswith("error:")
    assert len(text.splitlines()) == 1
    assert Path("old.parquet").read_bytes() == b"somebody's"
    assert Path("new.csv").read_bytes() == data
    assert list(Path().glob("v.*")) == []


def test_broken_ordinary_inputs_are_named_once(folder, capsys):
    known = pd.read_csv("known.csv")
    known.loc[[3, 60], "b"] = None
    known.to_csv("known.csv", index=False)
    assert credibly("fit", *KNOWN, "--labels", "label", "--out", "judge") == 0
    said = capsys.readouterr()
    assert said.err.count("2 of the ordinary inputs hold NaN or infinity and were left out") == 1
    assert "numbers 3, 60" in said.err
    assert "fitted on 198 ordinary inputs" in said.out
    assert sorted(path.name for path in (folder / "judge").iterdir()) == [
        "judge.json",
        "judge.safetensors",
    ]


@pytest.mark.usefixtures("folder")
def test_inputs_without_an_answer_are_named_too(capsys):
    of_data = ["known.csv", "--columns", "a,b,c"]
    options = ["--dtype", "float64", "--gamma", "1", "--out", "judge"]
    assert credibly("fit", "model.py:Silent", *of_data, *options) == 2
    assert "error: ordinary inputs: expected at least 99 usable inputs" in capsys.readouterr().err
    x = pd.read_csv("known.csv")["a"]
    lost = x.index[x > 2].tolist()
    assert credibly("fit", "model.py:Gaps", *of_data, *options) == 0
    said = capsys.readouterr()
    shown = ", ".join(map(str, lost[:10]))
    assert f"{len(lost)} of the ordinary inputs make the model give NaN or infinity" in said.err
    assert f"numbers {shown}" in said.err
    assert f"left out: {len(lost)} broken or strange inputs" in said.out


@pytest.mark.usefixtures("folder")
def test_a_promise_on_errors_by_class_and_other_options(capsys):
    options = ["--error-rate", "0.2", "--confidence", "0.8", "--by-class", "--profile", "never"]
    more = ["--gamma", "2", "--features", "none", "--false-alarms", "0.02", "--chunk-size", "32"]
    assert credibly("fit", *KNOWN, "--labels", "label", "--out", "judge", *options, *more) == 0
    said = capsys.readouterr().out
    assert (
        "false alarms 2.00% (proved: at most 4.00% on average); "
        "at most 20.00% of what is accepted is wrong" in said
    )
    assert "cost: 0.33 passes per input (a forward: .33); profile: never" in said
    assert "compares: inputs alone; gamma 2" in said
    assert credibly("judge", *NEW, "--judge", "judge", "--out", "v.parquet") == 0
    assert pd.read_parquet("v.parquet")["passes"].max() == pytest.approx(1 / 3)


@pytest.mark.usefixtures("folder")
def test_a_pipeline_takes_its_columns_by_name_and_in_its_own_units(capsys):
    known, new = pd.read_csv("known.csv"), pd.read_csv("new.csv").drop(index=30)
    for frame in (known, new):
        frame["b"] *= 1000
    known.to_csv("known.csv", index=False)
    new[["name", "c", "b", "a"]].to_csv("new.csv", index=False)
    pipeline = make_pipeline(StandardScaler(), LogisticRegression())
    skops.io.dump(pipeline.fit(known[["a", "b", "c"]], known["label"]), "model.skops")
    options = ["--id", "name", "--labels", "label", "--out", "judge"]
    assert credibly("fit", "model.skops", "known.csv", *options) == 0
    command = ["model.skops", "new.csv", "--id", "name", "--judge", "judge"]
    assert credibly("judge", *command, "--out", "v.parquet") == 0
    found = pd.read_parquet("v.parquet")
    assert found["verdict"][39] == "outlier"
    assert (found["verdict"] == "trust").mean() > 0.7
    known_x = known[["a", "b", "c"]]
    judge = cr.Judge.fit(pipeline, known_x, known["label"])
    rows = new[["a", "b", "c"]].drop(index=17)
    expected = judge(rows).to_pandas()
    kept = [n for n in range(89) if n != 17]
    np.testing.assert_allclose(found["trust"][kept], expected["trust"], rtol=1e-6)
    capsys.readouterr()


@pytest.mark.usefixtures("fitted")
def test_a_file_without_a_usable_row_is_written_and_is_no_success(capsys):
    np.save("nothing.npy", np.full((4, 3), np.nan))
    command = ["judge", "model.py:Slow", "nothing.npy", *OF_MODEL, "--judge", "judge"]
    assert credibly(*command, "--out", "v.parquet") == 1
    assert "no row could be judged" in capsys.readouterr().out
    assert pd.read_parquet("v.parquet")["status"].tolist() == ["non finite input"] * 4
