"""`inspect` and `score` as a person would type them, up to a kill in the middle."""

import json
import os
import re
import shlex
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
from safetensors.torch import save_file
from sklearn.linear_model import LogisticRegression

import credibly as cr
from credibly.cli import options
from credibly.cli.app import app

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
            self.layers = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2), nn.Dropout())

    def forward(self, x):
        time.sleep(float(os.environ.get("PAUSE", "0")))
        return self.layers(x)

def standardise(x):
    return (x - 1) / 2
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "model.py").write_text(MODEL)
    x = np.random.default_rng(0).normal(size=(90, 3))
    frame = pd.DataFrame(x, columns=["a", "b", "c"])
    frame.loc[17, "b"] = None
    frame["name"] = [f"n{k}" for k in range(90)]
    frame["label"] = 1
    frame.to_csv("x.csv", index=False)
    return tmp_path


ARGUMENTS = [
    "model.py:Slow", "x.csv", "--id", "name", "--drop", "label", "--classes", "no,yes",
    "--dtype", "float64", "--preprocess", "model.py:standardise",
]  # fmt: skip
SMALL = ["--chunk-size", "8", "--shard-size", "16"]


def credibly(*arguments):
    with pytest.raises(SystemExit) as caught:
        app(list(map(str, arguments)))
    return caught.value.code


@pytest.mark.usefixtures("folder")
def test_score_writes_one_row_an_input(capsys):
    assert credibly("score", *ARGUMENTS, "--out", "out.parquet", "--gamma", "0.5") == 0
    frame = pd.read_parquet("out.parquet")
    assert frame["id"].tolist() == [f"n{k}" for k in range(90)]
    assert frame["status"][17] == "non finite input"
    assert set(frame["predicted"].dropna()) <= {"no", "yes"}
    assert "1 non finite input" in capsys.readouterr().out


@pytest.mark.usefixtures("folder")
def test_inspect_tells_the_model_the_data_and_the_cost(capsys):
    assert credibly("inspect", *ARGUMENTS) == 0
    text = capsys.readouterr().out
    for words in (
        "Slow from model.py:Slow", "parameters   50", "2: no, yes", "float64", "evaluation",
        "was in training mode", "n0, n1, n2", "a, b, c", "set by the first rows",
        "passes per row", "for 90 rows",
    ):  # fmt: skip
        assert words in text, words
    assert len(re.findall(r"\b[0-9a-f]{64}\b", text)) == 2


@pytest.mark.usefixtures("folder")
def test_inspect_tells_what_goes_in_and_what_comes_out(capsys):
    Path("wide.py").write_text("def model():\n    return lambda x: 9 * x\n")
    x = np.eye(12)[np.repeat(np.arange(12), range(1, 13))] - 0.5
    np.save("x.npy", x)
    assert credibly("inspect", "wide.py:model", "x.npy") == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "values -0.5 to 0.5 in the first 78 rows" in text
    assert "predicted 11: 12, 10: 11, 9: 10, 8: 9, 7: 8, 6: 7, 5: 6, 4: 5, 4 more; 12 of 1" in text
    assert f"softmax {1 / (1 + 11 * np.exp(-9)):.3g} for the predicted class (median)" in text
    assert "checks passed predicted" in text
    Path("wide.py").write_text("def model():\n    return lambda x: 1 / 0 if x[-1, -1] > 0 else x\n")
    assert credibly("inspect", "wide.py:model", "x.npy", "--gamma", "1") == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "predicted the model fails on some of these rows (Zero" in text


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("largest", "least", "shape", "warned"),
    [
        (251.0, 0.0, (4, 1, 2, 2), True),
        (2.0, 0.0, (4, 2, 2), False),
        (251.0, 0.0, (4, 2, 2), True),
        (1.5, 0.0, (4, 1, 2, 2), False),
        (251.0, -1.0, (4, 1, 2, 2), False),
        (256.0, 0.0, (4, 1, 2, 2), False),
        (20.0, 0.0, (4, 4), False),
    ],
)
def test_images_that_were_not_scaled_are_noticed(capsys, largest, least, shape, warned):
    Path("flat.py").write_text("def model():\n    return lambda x: x.flatten(1)[:, :3] / 255\n")
    x = np.random.default_rng(0).uniform(0, 1, size=shape)
    x.flat[:2] = least, largest
    np.save("x.npy", x)
    assert credibly("inspect", "flat.py:model", "x.npy") == 0
    said = capsys.readouterr()
    words = f"warning: values reach {largest:.0f}: the model may expect 0 to 1"
    assert (words in said.err) is warned
    assert ("passed, 1 warning\n" in re.sub(" *\n", "\n", said.out)) is warned


@pytest.mark.usefixtures("folder")
def test_inspect_without_data_asks_for_it(capsys):
    assert credibly("inspect", "model.py:Slow") == 0
    assert "Name a file of inputs" in capsys.readouterr().out


def test_a_run_that_is_killed_goes_on_and_ends_with_the_same_file(folder):
    command = ["score", *ARGUMENTS, *SMALL, "--gamma", "auto", "--out"]
    assert credibly(*command, "whole.parquet") == 0
    path = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    run = subprocess.Popen(  # noqa: S603
        [sys.executable, "-c", "from credibly.cli import main; main()", *command, "out.parquet"],
        env={**os.environ, "PAUSE": "0.02", "OMP_NUM_THREADS": "1", "PYTHONPATH": path},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    second = folder / "out.parquet.parts" / "part-000001.parquet"
    while run.poll() is None and not second.exists():
        time.sleep(0.01)
    run.send_signal(signal.SIGKILL)
    assert run.wait() == -signal.SIGKILL
    assert not Path("out.parquet").exists()
    assert len(list(second.parent.glob("part-*.parquet"))) < 6
    assert credibly(*command, "out.parquet") == 0
    assert Path("out.parquet").read_bytes() == Path("whole.parquet").read_bytes()
    assert not second.parent.exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["score", "model.py:Slow", "x.csv", "--out", "o.parquet"], "'name' holds 'n0'"),
        (["score", *ARGUMENTS, "--out", "no/o.parquet"], "does not exist"),
        (["score", *ARGUMENTS, "--out", "o.parquet", "--gamma", "big"], "a number or 'auto'"),
        (["score", *ARGUMENTS, "--out", "o.parquet", "--gamma", "-1"], "positive finite"),
        (["score", *ARGUMENTS, "--out", "o.parquet", "--effort", "0"], "`effort`"),
        (["score", *ARGUMENTS, "--out", "o.parquet", "--loss", "l2"], "one of cross_entropy"),
        (["score", *ARGUMENTS, "--out", "o.parquet", "--size", "8"], "only columns, drop"),
        (["score", *ARGUMENTS, "--out", "o.parquet", "--device", "moon"], "device"),
        (["inspect", *ARGUMENTS, "--columns", "a,z"], "columns of x.csv: a, b, c"),
        (["inspect", "model.py:Fast"], "has no attribute 'Fast'"),
        (["inspect", "model.onnx"], "model.onnx: no such file"),
        (["inspect", "model.py:Slow", "nowhere.csv"], "no such file"),
        (["inspect", "model.py:Slow", "--weights", "w.pt"], "safetensors.torch.save_file"),
        (["inspect", "model.py:Slow", "--weights", "w.safetensors"], "w.safetensors: no such file"),
        (["inspect", "model.py:Absent", "--weights", "w.safetensors"], "no such file"),
        (
            ["inspect", "model.py:Slow", "spaced.csv"],
            "(--drop 'the name'), name it as the id (--id",
        ),
        (["inspect", "model.py:Slow", "x.csv", "--columns", "a,b"], "batch of shape (2, 2)"),
        (["sample", "--out", "no/sample.npz"], "cannot be written"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(folder, capsys, arguments, words):
    (folder / "spaced.csv").write_text("a,the name\n1,bob\n")
    assert credibly(*arguments) == 2
    text = capsys.readouterr().err.strip()
    assert words in text
    assert text.startswith("error:")
    assert len(text.splitlines()) == 1
    assert list(folder.glob("o.parquet*")) == []


@pytest.mark.usefixtures("folder")
def test_a_changed_setting_is_named_and_restart_begins_anew(capsys, monkeypatch):
    from credibly.batch import shards

    command = ["score", *ARGUMENTS, *SMALL, "--out", "o.parquet"]
    with monkeypatch.context() as patch:
        patch.setattr(shards.Shards, "merge", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        assert credibly(*command, "--gamma", "1") == 130
    assert "continues from here" in capsys.readouterr().out
    assert credibly(*command, "--gamma", "2") == 2
    assert "gamma was 1.0 and is now 2.0" in capsys.readouterr().err
    assert credibly(*command, "--gamma", "2", "--restart") == 0
    assert credibly(*command, "--gamma", "2") == 2
    assert "--overwrite" in capsys.readouterr().err
    assert credibly(*command, "--gamma", "3", "--overwrite") == 0


@pytest.mark.usefixtures("folder")
def test_a_run_goes_on_however_the_model_is_spelled_and_says_what_of_it_differs(
    capsys, monkeypatch
):
    from credibly.batch import shards

    rest = [*ARGUMENTS[1:-2], *SMALL, "--gamma", "1", "--out", "o.parquet"]
    with monkeypatch.context() as patch:
        patch.setattr(shards.Shards, "merge", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        assert credibly("score", "model.py:Slow", *rest) == 130
    capsys.readouterr()
    Path("model.py").write_text(MODEL + "\n# another\n")
    assert credibly("score", "model.py:Slow", *rest) == 2
    said = capsys.readouterr().err
    assert re.search(r"settings: model code was \w{12} and is now \w{12}\. Use", said), said
    Path("model.py").write_text(MODEL.replace("manual_seed(0)", "manual_seed(1)"))
    assert credibly("score", "model.py:Slow", *rest) == 2
    said = capsys.readouterr().err
    assert re.search(r"model code was \w+ and is now \w+; model weights was \w+ and is", said), said
    Path("model.py").write_text(MODEL)
    try:
        assert credibly("score", "model:Slow", *rest) == 0
    finally:
        sys.modules.pop("model", None)


@pytest.mark.usefixtures("folder")
def test_effort_is_that_of_the_solver_and_part_of_the_settings(capsys, monkeypatch):
    from credibly.batch import shards

    command = ["score", *ARGUMENTS, *SMALL, "--gamma", "0.5", "--out", "o.parquet"]
    with monkeypatch.context() as patch:
        patch.setattr(shards.Shards, "merge", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        assert credibly(*command, "--effort", "0.5") == 130
    assert credibly(*command) == 2
    assert "solver was Hybrid(effort=0.5" in capsys.readouterr().err
    assert credibly(*command, "--effort", "0.5") == 0
    stored = json.loads(pq.read_schema("o.parquet").metadata[b"settings"])
    assert stored["settings"]["solver"] == repr(cr.solvers.Hybrid(effort=0.5))


def test_advice_names_options_and_not_python():
    every = "\n".join(status.advice for status in cr.Status)
    said = options.as_options(every)
    assert "--effort 4" in said
    assert "Hybrid" not in said
    assert "solver" not in said
    assert "a larger --effort" in said


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("replace it with overwrite=True (--overwrite).", "replace it with --overwrite."),
        ("Pass size=(height, width) (--size HxW) and", "Pass --size HxW and"),
        ("pass trusted=['a.b', 'c'] (--trust a.b --trust c).", "pass --trust a.b --trust c."),
        ("and mode='grey' (--mode grey), or 'rgb'.", "and --mode grey, or 'rgb'."),
        ("a smaller chunk_size (--chunk-size) if", "a smaller --chunk-size if"),
        ("say Classifier(..., outputs='p') (--outputs p); or", "say --outputs p; or"),
        ("ones (--weights F, in Python weights=...), or", "ones (--weights F), or"),
        ("Convert both: net.float() and x.float(). A", "Pass --dtype float32. A"),
        ("Solve with gamma=0.5, or leave out gamma='auto'", None),
        ("Name the classes (--classes), or leave it out (--drop NAME)", None),
        ("`gamma`: expected a positive finite number", None),
    ],
)
def test_messages_name_options_and_not_python(message, expected):
    special = message.replace("gamma=0.5", "--gamma 0.5").replace("gamma='auto'", "--gamma auto")
    assert options.as_options(message) == (special if expected is None else expected)


@pytest.mark.usefixtures("folder")
def test_errors_of_the_command_line_name_no_python(capsys, monkeypatch):
    from credibly.batch import shards

    command = ["score", *ARGUMENTS, *SMALL, "--out", "o.parquet", "--gamma"]
    with monkeypatch.context() as patch:
        patch.setattr(shards.Shards, "merge", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        assert credibly(*command, "1") == 130
    capsys.readouterr()
    assert credibly(*command, "2") == 2
    assert capsys.readouterr().err.endswith("or drop its rows with --restart.\n")
    assert credibly(*command, "1") == 0
    assert credibly(*command, "1") == 2
    assert capsys.readouterr().err.endswith("or replace it with --overwrite.\n")


@pytest.mark.usefixtures("folder")
def test_a_stalled_row_is_told_of_the_option(capsys):
    Path("kinked.py").write_text(
        "import torch\ndef model():\n"
        "    return lambda x: torch.cat([x[:, :1].abs(), -x[:, 1:2].abs()], 1) * 9\n"
    )
    np.save("k.npy", np.random.default_rng(1).normal(size=(6, 2)))
    assert credibly("score", "kinked.py:model", "k.npy", "--out", "o.parquet") == 0
    said = capsys.readouterr().out
    assert " stalled: " in said
    assert "--effort 4 searches" in said


@pytest.mark.usefixtures("folder")
def test_probabilities_are_told_of_the_option(capsys):
    Path("sure.py").write_text(
        "import torch\ndef model():\n    return lambda x: torch.softmax(x, 1)\n"
    )
    command = ["inspect", "sure.py:model", "x.csv", "--columns", "a,b,c"]
    assert credibly(*command) == 0
    assert capsys.readouterr().err.count("say --outputs probabilities;") == 1
    assert credibly(*command, "--outputs", "probabilities") == 0
    assert "probabilities" not in capsys.readouterr().err


@pytest.mark.usefixtures("folder")
def test_weights_bounds_limit_and_images(capsys):
    from PIL import Image

    Path("images").mkdir()
    for k in range(6):
        Image.fromarray(np.full((1, 3), 40 * k, np.uint8)).save(f"images/{k}.png")
    Path("images/9.png").write_bytes(b"broken")
    Path("net.py").write_text(
        "from torch import nn\ndef make(): return nn.Sequential(nn.Flatten(), nn.Linear(3, 2))\n"
    )
    save_file({"1.weight": torch.eye(3)[:2], "1.bias": torch.zeros(2)}, "w.safetensors")
    Path("names.txt").write_text("left\nright\n")
    options = ["--weights", "w.safetensors", "--classes", "names.txt", "--bounds", "0", "1"]
    assert credibly("score", "net:make", "images", *options, "--out", "o.parquet") == 0
    frame = pd.read_parquet("o.parquet")
    assert frame["id"].tolist() == [*(f"{k}.png" for k in range(6)), "9.png"]
    assert frame["status"].tolist()[-1] == "unreadable file"
    assert frame.iloc[-1][["credibility.left", "credence.left", "risk"]].isna().all()
    said = capsys.readouterr().out
    assert "1 unreadable file: The file could not be read as an image" in said
    assert "NaN or infinity" not in said
    assert credibly("inspect", "net:make", "images", *options, "--limit", "2", "--size", "1x3") == 0
    assert "rows         2" in capsys.readouterr().out
    assert credibly("inspect", "net:make", "images") == 2
    assert "random, not trained. Pass the trained ones (--weights" in capsys.readouterr().err


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    "command",
    [
        ["inspect", "model.py:Slow", "x.csv", "--drop", "name"],
        ["score", "model.py:Slow", "x.csv", "--id", "name", "--out", "o.parquet"],
        ["evaluate", "model.py:Slow", "x.csv", "--drop", "name", "--labels", "y.npy", "--out", "o"],
        ["score", "array.skops", "x.csv", "--id", "name", "--out", "o.parquet"],
    ],
)
def test_a_label_among_the_features_is_named(capsys, command):
    np.save("y.npy", np.zeros(90, int))
    x = np.random.default_rng(0).normal(size=(20, 3))
    skops.io.dump(LogisticRegression().fit(x, x[:, 0] > 0), "array.skops")
    assert credibly(*command) == 2
    said = capsys.readouterr().err
    assert "it was given 4 columns as features: 'a', 'b', 'c', 'label'. If one of them" in said
    assert "(--drop NAME), or name the features (--columns a,b). " in said
    assert "4" in said.partition("; it was")[0]


def test_other_faults_of_a_model_say_nothing_of_columns(folder, capsys):
    (folder / "noisy.py").write_text(
        "import torch\ndef model():\n    return lambda x: x + torch.rand_like(x)\n"
    )
    assert credibly("inspect", "noisy.py:model", "x.csv", "--columns", "a,b,c") == 2
    assert "columns" not in capsys.readouterr().err


def test_the_pages_of_the_command_line_run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    text = (ROOT / "docs" / "reference" / "command-line.md").read_text("utf-8")
    blocks = re.findall(r"```(sh|python)\n(.*?)```", text, re.DOTALL)
    assert len(blocks) == 16
    for language, code in blocks:
        file = re.match(r"# (\w+\.py)\n", code)
        if file:
            Path(file[1]).write_text(code, "utf-8")
            continue
        if language == "python":
            exec(compile(code, "command-line.md", "exec"), {})  # noqa: S102  # our own page
            continue
        for line in code.splitlines():
            assert credibly(*shlex.split(line)[1:]) == 0
    sys.modules.pop("my_net")
    printed = capsys.readouterr().out
    assert "ankle boot" in printed
    assert "8 rows in few.parquet, gamma 200" in printed
    assert "\n200.0\n" in printed
    assert "100 rows in known.parquet, gamma 540\n" in printed
    assert "evaluation/index.html" in printed
    assert "Judge of 10 classes, fitted on 300 ordinary inputs with labels" in printed
    summaries = re.findall(r"```text\n(.*?)```", text, re.DOTALL)
    assert len(summaries) == 2
    for line in "".join(summaries).splitlines():
        assert without_numbers(line.partition(":")[0]) in without_numbers(printed)


def without_numbers(text):
    """Other machines round otherwise, and may decide otherwise at the border."""
    return re.sub(r"\s*\d[\d.]*", " #", text)


@pytest.mark.usefixtures("folder")
def test_a_file_of_which_no_row_has_a_profile_is_written_and_is_no_success(capsys):
    np.save("nothing.npy", np.full((4, 3), np.nan))
    settings = ("--dtype", "float64", "--gamma", "0.5", "--out", "out.parquet")
    assert credibly("score", "model.py:Slow", "nothing.npy", *settings) == 1
    assert "no row has a profile" in capsys.readouterr().out
    assert pd.read_parquet("out.parquet")["status"].tolist() == ["non finite input"] * 4


FULL = """
import resource, sys
import numpy as np, torch
import credibly as cr
from credibly.cli import main

clf = cr.Classifier(torch.nn.Linear(4, 3).double())
profile = cr.credibility(clf, np.random.default_rng(0).normal(size=(200, 4)), gamma=1.0)
flag = cr.OutlierFlag.fit(clf, profile, false_alarms=0.1)  # all rules are saved alike
resource.setrlimit(resource.RLIMIT_FSIZE, (300, 300))  # no file may become longer
for write in (
    lambda: profile.save("p.safetensors"),
    lambda: profile.to_parquet("p.parquet"),
    lambda: flag.save("flag.json"),
):
    try:
        write()
    except cr.errors.OutputError as error:
        assert "cannot be written" in str(error)
    else:
        sys.exit("nothing was said")
sys.argv = ["credibly", "sample", "--out", "sample.npz", "--overwrite"]
main()
"""


@pytest.mark.skipif(sys.platform == "win32", reason="limits are those of POSIX")
def test_a_full_disk_is_told_by_all_that_write_and_old_files_survive(tmp_path):
    names = ["flag.json", "p.parquet", "p.safetensors", "sample.npz"]
    for name in names:
        (tmp_path / name).write_text("old")
    path = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-c", FULL],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2, done.stderr
    assert "sample.npz cannot be written" in done.stderr
    assert "Traceback" not in done.stderr
    assert sorted(file.name for file in tmp_path.iterdir()) == names
    assert all((tmp_path / name).read_text() == "old" for name in names)


def test_a_damaged_file_is_one_line_and_exit_code_2(folder, capsys):
    (folder / "x.npy").write_bytes(b"\x93NUMPY\x01\x00\x08\x00{'a': ([\n")
    assert credibly("score", "model.py:Slow", "x.npy", "--out", "o.parquet") == 2
    shown = capsys.readouterr().err
    assert shown.startswith("error: x.npy: not a readable npy file")
    assert "Traceback" not in shown
