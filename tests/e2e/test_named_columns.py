"""A model that knows the names of its columns finds them, whatever order they stand in."""

import json
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
import skops.io
import torch
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import credibly as cr
from credibly.cli.app import app

NAMES = ["petal length", "b", "a"]  # in no order that a file might have by chance
X = pd.DataFrame(
    np.random.default_rng(0).normal(size=(60, 3)) * [1, 3, 0.3] + [4, 0, 1], columns=NAMES
)
Y = pd.Series(np.where(X["petal length"] - X["b"] + 5 * X["a"] > 9, "yes", "no"))


@pytest.fixture(scope="module")
def model():
    scaled = make_column_transformer((StandardScaler(), ["a", NAMES[0]]), remainder="passthrough")
    return make_pipeline(scaled, LogisticRegression()).fit(X, Y)


@pytest.fixture
def folder(tmp_path, monkeypatch, model):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    skops.io.dump(model, "model.skops")
    other = X[["a", NAMES[0], "b"]]
    other.to_csv("x.csv", index=False)
    other.to_parquet("x.parquet", index=False, row_group_size=20)
    other.assign(id=[f"n{k}" for k in range(60)], truth=Y).to_csv("more.csv", index=False)
    return tmp_path


def credibly(*arguments):
    with pytest.raises(SystemExit) as caught:
        app(list(map(str, arguments)))
    return caught.value.code


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("data", "options"),
    [
        ("x.csv", []),
        ("x.parquet", ["--chunk-size", "16"]),
        ("x.csv", ["--columns", f"b,{NAMES[0]},a"]),
        ("more.csv", ["--id", "id", "--drop", "truth"]),
    ],
)
def test_score_answers_as_the_model_does(model, data, options):
    assert credibly("score", "model.skops", data, *options, "--gamma", "1", "--out", "o.pq") == 0
    frame = pd.read_parquet("o.pq")
    expected = model.predict_log_proba(X)
    np.testing.assert_allclose(
        frame[["credence.no", "credence.yes"]], expected, rtol=1e-9, atol=1e-12
    )
    assert frame["predicted"].tolist() == model.predict(X).tolist()
    stored = json.loads(pq.read_schema("o.pq").metadata[b"settings"])
    assert stored["settings"]["data columns"] == NAMES


@pytest.mark.usefixtures("folder")
def test_score_in_python_does_the_same(model):
    cr.score(cr.from_sklearn(model), "x.csv", "o.pq", gamma=1.0)
    found = pd.read_parquet("o.pq")[["credence.no", "credence.yes"]]
    np.testing.assert_allclose(found, model.predict_log_proba(X), rtol=1e-9, atol=1e-12)


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("bare", [False, True], ids=["network", "twin of an array"])
def test_the_names_of_a_space_are_as_good_as_those_of_a_fit(bare):
    space = cr.Space.standardised(X)
    if bare:
        clf = cr.from_sklearn(LogisticRegression().fit(X.to_numpy(), Y), space=space)
    else:
        net = torch.nn.Linear(3, 2, dtype=torch.float64)
        clf = cr.Classifier(net, classes=["no", "yes"], space=space)
    cr.score(clf, "x.csv", "o.pq", gamma=1.0)
    expected = cr.credibility(clf, X.to_numpy(), gamma=1.0)
    frame = pd.read_parquet("o.pq")
    np.testing.assert_array_equal(frame[["credence.no", "credence.yes"]], expected.credence)
    np.testing.assert_array_equal(frame["risk"], expected.risk)
    X.assign(number=1.0).to_csv("more.csv", index=False)
    with pytest.raises(cr.errors.InvalidArgumentError, match=r"'number' in more.csv, too"):
        cr.score(clf, "more.csv", "p.pq", gamma=1.0)


@pytest.mark.usefixtures("folder")
def test_evaluate_and_inspect_do_the_same(model, capsys):
    far = X[::-1][["b", "a", NAMES[0]]] + 1.0
    far.to_csv("far.csv", index=False)
    X[["a", "b", NAMES[0]]].assign(truth=Y).to_csv("x.csv", index=False)
    more = ["--outliers", "far.csv", "--gamma", "1", "--resamples", "100", "--out", "o"]
    assert credibly("evaluate", "model.skops", "x.csv", "--labels", "truth", *more) == 0
    found = json.loads(Path("o/result.json").read_text("utf-8"))
    right = float((model.predict(X) == Y).mean())
    assert found["sets"]["ordinary"]["accuracy"]["model"] == pytest.approx(right)
    assert found["settings"]["data"]["columns"] == NAMES
    rows = cr.study.read_study("o")["outliers far"]
    assert rows.predicted.tolist() == (model.predict(far[NAMES]) == "yes").astype(int).tolist()
    assert credibly("inspect", "model.skops", "x.csv", "--drop", "truth") == 0
    said = capsys.readouterr().out
    assert f"{NAMES[0]}, b, a" in said
    assert "of the model, by name" in said
    skops.io.dump(LogisticRegression().fit(X.to_numpy(), Y), "bare.skops")
    assert credibly("inspect", "bare.skops", "x.csv", "--drop", "truth") == 0
    assert "of the file: the model has no names" in capsys.readouterr().out
    np.save("x.npy", X)
    assert credibly("inspect", "bare.skops", "x.npy") == 0
    assert "knows no names" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("table", "options", "words"),
    [
        (X[[NAMES[0], "a"]], [], "x.csv, which lacks 'b'"),
        (X.assign(d=1, e=2), [], "'d', 'e' in x.csv, too"),
        (X.assign(**{"the label": 1}), [], "--drop 'the label'"),
        (X, ["--drop", "b"], "not as features (--drop, --id, --columns, --labels), 'b'"),
        (X, ["--columns", "a,b"], "not as features (--drop, --id, --columns, --labels), 'petal l"),
        (X.rename(columns={"a": "A"}), [], "x.csv, which lacks 'a'"),
    ],
)
def test_other_columns_are_refused_by_name(folder, capsys, table, options, words):
    table.to_csv("x.csv", index=False)
    assert credibly("score", "model.skops", "x.csv", *options, "--out", "o.pq") == 2
    text = capsys.readouterr().err.strip()
    assert words in text
    assert len(text.splitlines()) == 1
    assert list(folder.glob("o.pq*")) == []


@pytest.mark.usefixtures("folder")
def test_a_model_without_names_takes_the_order_of_the_file():
    bare = LogisticRegression().fit(X.to_numpy(), Y)
    cr.score(cr.from_sklearn(bare), "x.csv", "o.pq", gamma=1.0)
    found = pd.read_parquet("o.pq")[["credence.no", "credence.yes"]]
    other = bare.predict_log_proba(X[["a", NAMES[0], "b"]].to_numpy())
    np.testing.assert_allclose(found, other, rtol=1e-9, atol=1e-12)


@pytest.mark.usefixtures("folder")
def test_a_source_that_was_read_from_is_not_disturbed(model):
    source = cr.open_source("x.parquet")
    before = source.read(5, 30)[1]
    ordered = source.for_model(cr.from_sklearn(model))
    np.testing.assert_array_equal(ordered.read(5, 30)[1], X[NAMES].to_numpy()[5:30])
    assert source.read(5, 30)[1].equal(before)
    assert not before.equal(ordered.read(5, 30)[1])
