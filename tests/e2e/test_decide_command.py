"""`decide` as a person would type it: from `score` and a saved rule to one row a sample."""

import json
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
import torch
from typer.testing import CliRunner

import credibly as cr
from credibly.cli.app import app
from credibly.decide import rules

MODEL = """
import torch
from torch import nn

def net(seed=0):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 3)).double()

def other():
    return net(1)
"""
CLASSES = ["no", "yes, or so", "[may be]"]
SCORE = ["--id", "name", "--classes", "names.txt", "--gamma", "0.5", "--effort", "0.5"]
BAD = 7


def credibly(*arguments):
    with pytest.raises(SystemExit) as caught:
        app(list(map(str, arguments)))
    return caught.value.code


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder with 60 known and 40 new profiles, and a rule of each kind."""
    folder = tmp_path_factory.mktemp("decide")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(sys, "path", list(sys.path))
        Path("model.py").write_text(MODEL)
        Path("names.txt").write_text("\n".join(CLASSES))
        for name, rows, seed in (("known", 60, 0), ("new", 40, 1)):
            x = 2 * np.random.default_rng(seed).normal(size=(rows, 3))
            frame = pd.DataFrame(x, columns=["a", "b", "c"])
            frame["name"] = [f"{name} {k}" for k in range(rows)]
            if name == "new":
                frame.loc[BAD, "b"] = None
            frame.to_csv(f"{name}.csv", index=False)
            assert credibly("score", "model.py:net", f"{name}.csv", *SCORE, "--out",
                            f"{name}.parquet") == 0  # fmt: skip
        save_rules(cr.Profile.from_parquet("known.parquet"))
    return folder


def save_rules(known):
    clf = cr.load_classifier("model.py:net", classes=CLASSES).classifier
    labels = known.credence.argmax(1).where(torch.arange(60) % 5 > 0, torch.arange(60) % 3)
    cr.SelectiveClassifier.for_coverage(clf, known, 0.6).save("rule.json")
    cr.SelectiveClassifier.for_alpha(clf, known, 0.2).save("alpha.json")
    cr.OutlierFlag.fit(clf, known, false_alarms=0.3).save("flag.json")
    cr.ConformalSets.fit(clf, known, labels, confidence=0.8).save("sets.json")


@pytest.fixture
def folder(made, tmp_path, monkeypatch):
    """The folder that was made, to work in; what is written goes elsewhere."""
    monkeypatch.chdir(made)
    return tmp_path


def read(path):
    if path.suffix == ".parquet":
        return pd.read_parquet(path)
    return pd.read_csv(path, keep_default_na=False, na_values=[""])


def decided(rule, out, *more):
    assert credibly("decide", "new.parquet", "--rule", rule, "--out", out, *more) == 0
    frame = read(out)
    assert frame["id"].tolist() == [f"new {k}" for k in range(40)]
    assert frame["status"].tolist() == pd.read_parquet("new.parquet")["status"].tolist()
    assert frame["status"][BAD] == "non finite input"
    assert frame.loc[BAD, ["predicted", "class", "class_number"]].isna().all()
    assert not frame["accepted"][BAD]
    answered = frame[frame["accepted"]]
    assert answered["class"].tolist() == [CLASSES[int(k)] for k in answered["class_number"]]
    assert frame.loc[~frame["accepted"], ["class", "class_number"]].isna().all(axis=None)
    assert 0 < len(answered) < 39, "nothing is tested"
    return frame


@pytest.fixture
def new(folder):  # noqa: ARG001  # the working folder
    return cr.Profile.from_parquet("new.parquet")


@pytest.mark.parametrize("ending", ["csv", "parquet"])
@pytest.mark.parametrize("rule", ["rule.json", "alpha.json"])
def test_a_selective_rule_answers_or_abstains(folder, new, capsys, rule, ending):
    frame = decided(rule, folder / f"out.{ending}")
    expected = cr.SelectiveClassifier.load(rule).decide(new)
    assert frame["accepted"].tolist() == expected.accepted.tolist()
    assert ["abstained" if pd.isna(c) else c for c in frame["class"]] == expected.named()
    np.testing.assert_allclose(frame["score"], expected.scores.numpy(), rtol=1e-14)
    predicted = pd.read_parquet("new.parquet")["predicted"]
    assert frame["predicted"].fillna("").tolist() == predicted.fillna("").tolist()
    said = capsys.readouterr().out
    answered = int(expected.accepted.sum())
    assert f"40 rows in {folder / 'out'}.{ending}, decided by {rule} (Selective" in said
    assert f"{answered:>6} answered\n{39 - answered:>6} abstained\n" in said
    assert "     1 unusable: 1 non finite input\n" in said
    assert f"abstains: score below {expected.threshold:.4g}" in said


def test_a_flag_answers_what_is_not_flagged(folder, new):
    frame = decided("flag.json", folder / "out.parquet")
    flag = cr.OutlierFlag.load("flag.json")
    shift = (new.credibility - new.credence).norm(dim=1)
    np.testing.assert_allclose(frame["score"], shift.numpy())
    assert frame["flagged"].tolist() == (~(shift >= flag.threshold)).tolist()
    assert (frame["accepted"] == ~frame["flagged"]).all()


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_of_sets_those_of_one_class_are_answers(folder, new, ending):
    frame = decided("sets.json", folder / f"out.{ending}")
    found = [json.loads(s) if ending == "csv" else list(s) for s in frame["set"]]
    assert found == cr.ConformalSets.load("sets.json").named(new)
    assert frame["set_size"].tolist() == [len(s) for s in found]
    assert found[BAD] == CLASSES  # nothing is known that rules one out
    for one, accepted, name in zip(found, frame["accepted"], frame["class"], strict=True):
        assert accepted == (len(one) == 1)
        assert not accepted or one == [name]


def test_a_parquet_file_says_what_it_was_decided_by_and_keeps_its_types(folder):
    decided("rule.json", folder / "out.parquet")
    schema = pq.read_schema(folder / "out.parquet")
    assert schema.metadata[b"rule"].decode() == Path("rule.json").read_text()
    assert json.loads(schema.metadata[b"profile"])["weights"] == [0.5] * 3
    kinds = {name: str(schema.field(name).type) for name in schema.names}
    assert kinds == {
        "id": "string", "predicted": "string", "class": "string", "class_number": "int64",
        "accepted": "bool", "score": "double", "status": "string",
    }  # fmt: skip


def test_profiles_that_were_written_in_python_have_row_numbers(folder, new):
    new.to_parquet(folder / "own.parquet")
    out = folder / "out.csv"
    assert credibly("decide", folder / "own.parquet", "--rule", "rule.json", "--out", out) == 0
    assert read(out)["id"].tolist() == list(range(40))


def test_no_rows_are_no_error(folder, new, capsys):
    new[:0].to_parquet(folder / "none.parquet")
    for rule in ("rule.json", "flag.json", "sets.json"):
        out = folder / f"{rule}.parquet"
        assert credibly("decide", folder / "none.parquet", "--rule", rule, "--out", out) == 0
        assert len(read(out)) == 0
    assert "0 answered" in capsys.readouterr().out


def test_a_finished_file_is_replaced_only_if_told(folder, capsys):
    out = folder / "out.csv"
    decided("rule.json", out)
    before = out.read_bytes()
    assert credibly("decide", "new.parquet", "--rule", "flag.json", "--out", out) == 2
    assert "exists already. Choose another name, or replace it with --overwrite" in (
        capsys.readouterr().err
    )
    assert out.read_bytes() == before
    decided("flag.json", out, "--overwrite")
    assert [path.name for path in folder.iterdir()] == ["out.csv"]


def test_what_is_read_is_never_replaced(folder, new, capsys):
    own = folder / "own.parquet"
    new.to_parquet(own)
    before = own.read_bytes()
    assert credibly("decide", own, "--rule", "rule.json", "--out", own, "--overwrite") == 2
    assert "is a file that is read" in capsys.readouterr().err
    assert own.read_bytes() == before


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (["--gamma", "0.7"], "with, 0.5, got 0.7. Solve with --gamma 0.5"),
        (["--effort", "1"], "the solver the threshold was chosen with, Hybrid(effort=0.5"),
        (["--bounds", "-9", "9"], "the bounds the threshold was chosen with, None, got (-9.0, 9.0"),
        (None, "the model the threshold was chosen with, one of the weights "),
    ],
)
def test_profiles_of_other_settings_are_refused_in_clear_words(folder, capsys, change, words):
    model = "model.py:other" if change is None else "model.py:net"
    other, out = folder / "other.parquet", folder / "out.csv"
    arguments = [*SCORE, *(change or []), "--limit", "3", "--out", other]
    assert credibly("score", model, "known.csv", *arguments) == 0
    capsys.readouterr()
    for rule in ("rule.json", "flag.json", "sets.json"):
        assert credibly("decide", other, "--rule", rule, "--out", out) == 2
        assert_one_line(capsys, words)
    assert not out.exists()


def assert_one_line(capsys, words):
    text = capsys.readouterr().err.strip()
    assert text.startswith("error:")
    assert len(text.splitlines()) == 1
    assert words in text, text


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (("nowhere.parquet", "rule.json", "o.csv"), "nowhere.parquet: no such file"),
        (("known.csv", "rule.json", "o.csv"), "known.csv: not a readable Parquet file"),
        ((".", "rule.json", "o.csv"), "a folder, expected a Parquet file"),
        (("plain.parquet", "rule.json", "o.csv"), "without the settings of a profile"),
        (("new.parquet", "nowhere.json", "o.csv"), "nowhere.json: no such file"),
        (("new.parquet", ".", "o.csv"), "no such file"),
        (("new.parquet", "names.txt", "o.csv"), "names.txt: not a JSON file"),
        (("new.parquet", "new.parquet", "o.csv"), "new.parquet: not a JSON file"),
        (("new.parquet", "list.json", "o.csv"), "list.json: not a file that the save of Selective"),
        (("new.parquet", "strange.json", "o.csv"), "strange.json: not a file that the save of"),
        (("new.parquet", "damaged.json", "o.csv"), "damaged.json: cannot be read"),
        (("new.parquet", "rule.json", "o.xlsx"), "ends neither in .csv nor in .parquet"),
        (("new.parquet", "rule.json", "no/o.csv"), "does not exist. Make it first"),
        (("new.parquet", "rule.json", "folder.csv"), "is a folder"),
        (
            ("new.parquet", "judge", "o.csv"),
            "judge: a Judge, not a rule. Use it with `credibly judge`",
        ),
        (("verdicts.parquet", "rule.json", "o.csv"), "Verdicts of `credibly judge` are decisions"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(folder, capsys, given, words):
    profiles, rule, out = given
    pd.DataFrame({"x": [1.0]}).to_parquet("plain.parquet")
    Path("list.json").write_text("[1]")
    Path("strange.json").write_text('{"format": "credibly.other"}')
    content = json.loads(Path("rule.json").read_text())
    Path("damaged.json").write_text(json.dumps({**content, "threshold": None}))
    (folder / "folder.csv").mkdir()
    Path("judge").mkdir(exist_ok=True)
    Path("judge/judge.json").write_text("{}")
    marked = pq.read_table("plain.parquet").replace_schema_metadata({"format": "credibly.verdicts"})
    pq.write_table(marked, "verdicts.parquet")
    assert credibly("decide", profiles, "--rule", rule, "--out", folder / out) == 2
    assert_one_line(capsys, words)
    assert [path.name for path in folder.iterdir()] == ["folder.csv"]


def test_a_disk_that_refuses_leaves_nothing_behind(folder, capsys, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    for ending in ("csv", "parquet"):
        out = folder / f"o.{ending}"
        assert credibly("decide", "new.parquet", "--rule", "rule.json", "--out", out) == 2
        assert_one_line(capsys, "cannot be written: the disk is full")
    assert list(folder.iterdir()) == []


def test_the_help_names_the_kinds_of_rules():
    result = CliRunner().invoke(app, ["decide", "--help"], env={"COLUMNS": "120"})
    words = " ".join(result.output.replace("│", " ").split())
    for rule in rules.RULES:
        assert rule.__name__ in words


def test_every_rule_that_can_be_saved_can_be_loaded():
    assert set(rules.RULES) == set(rules.Rule.__subclasses__())
    assert len({rule.format for rule in rules.RULES}) == len(rules.RULES)
