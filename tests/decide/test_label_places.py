"""Labels that lie in files: beside the inputs, in a file of their own, or as names of folders."""

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

import credibly as cr
from credibly.cli.app import app

MODEL = """
import torch, credibly as cr

def net(shape=()):
    torch.manual_seed(0)
    layers = [torch.nn.Linear(4, 3).double()] if not shape else [
        torch.nn.Flatten(), torch.nn.Linear(64, 3)]
    return cr.Classifier(torch.nn.Sequential(*layers).eval(), classes=["a", "b", "c"])

def images():
    return net((8, 8))
"""
COUNT = 150


def labelled(clf, x):
    y = clf.predict(x).numpy()
    y[::9] = (y[::9] + 1) % 3
    return y


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """The same inputs and labels in several forms."""
    folder = tmp_path_factory.mktemp("labels")
    (folder / "model.py").write_text(MODEL)
    clf = cr.load_classifier(f"{folder}/model.py:net").classifier
    draw = np.random.default_rng(0)
    x = draw.normal(size=(COUNT, 4))
    y = labelled(clf, torch.from_numpy(x))
    np.save(folder / "x.npy", x)
    np.save(folder / "y.npy", y)
    np.savez(folder / "xy.npz", x=x, y=y)
    (folder / "table").mkdir()
    for k in range(3):
        rows = slice(50 * k, 50 * k + 50)
        frame = pd.DataFrame(x[rows], columns=list("pqrs"))
        frame["kind"] = np.array(list("abc"))[y[rows]]
        frame.to_parquet(folder / "table" / f"{k}.parquet")
    pictures = draw.integers(0, 256, (COUNT, 8, 8), dtype=np.uint8)
    clf = cr.load_classifier(f"{folder}/model.py:images").classifier
    known = labelled(clf, torch.from_numpy(pictures[:, None] / 255).float())
    for k, (picture, label) in enumerate(zip(pictures, known, strict=True)):
        (folder / "png" / "abc"[label]).mkdir(parents=True, exist_ok=True)
        Image.fromarray(picture).save(folder / "png" / "abc"[label] / f"{k}.png")
    return folder


@pytest.mark.parametrize(
    ("data", "labels"),
    [
        ("x.npy", "y.npy"), ("xy.npz", "y"), ("xy.npz", "xy.npz:y"), ("table", "kind"),
        ("table/*.parquet", "kind"),
    ],
)  # fmt: skip
def test_labels_are_found_wherever_they_lie(place, monkeypatch, data, labels):
    monkeypatch.chdir(place)
    clf = cr.load_classifier("model.py:net").classifier
    expected = cr.Judge.fit(clf, np.load("x.npy"), np.load("y.npy")).facts.shares_right
    assert cr.Judge.fit(clf, data, labels).facts.shares_right == expected
    command = ["fit", "model.py:net", data, "--labels", labels, "--out", "judge", "--overwrite"]
    assert CliRunner().invoke(app, command).exit_code == 0
    assert cr.Judge.load("judge", clf).facts.shares_right == expected


@pytest.mark.parametrize("option", ["--labels", "--label"])
def test_folders_name_the_classes_of_images(place, monkeypatch, option):
    monkeypatch.chdir(place)
    clf = cr.load_classifier("model.py:images").classifier
    judge = cr.Judge.fit(clf, "png", "folder")
    assert 0.7 < judge.facts.shares_right["trust"] < 1
    command = ["fit", "model.py:images", "png", option, "folder", "--out", "j", "--overwrite"]
    assert CliRunner().invoke(app, command).exit_code == 0
    assert cr.Judge.load("j", clf).facts.shares_right == judge.facts.shares_right


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["table", "--labels", "color"], "p, q, r, s, kind, got 'color'"),
        (["table", "--labels", "kind", "--label", "kind"], "--labels or --label, got both"),
        (["x.npy", "--labels", "none.npy"], "none.npy: no such file of labels"),
    ],
)
def test_labels_that_are_not_there_are_named(place, monkeypatch, given, words):
    monkeypatch.chdir(place)
    error = CliRunner().invoke(app, ["fit", "model.py:net", *given, "--out", "none"]).exception
    assert isinstance(error, cr.errors.CrediblyError)
    assert words in str(error)
