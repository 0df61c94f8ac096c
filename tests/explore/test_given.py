"""`credibly explore` of a file: what is refused at the start, and what the page is told."""

import json
import re
import socket

import numpy as np
import pandas as pd
import pytest
import torch
from typer.testing import CliRunner

import credibly as cr
from credibly.cli import options as o
from credibly.cli.app import app
from credibly.cli.exploring import Given, server_of, write_page
from credibly.explore.detail import spread

ROWS = 40


@pytest.fixture(scope="module")
def judged(tmp_path_factory):
    """A table of numbers, some far away, judged by a Judge; and its folder."""
    folder = tmp_path_factory.mktemp("judged")
    torch.manual_seed(0)
    (folder / "model.py").write_text(
        "import torch, credibly as cr\ntorch.manual_seed(0)\n"
        "model = cr.Classifier(torch.nn.Linear(4, 3), classes=['a', 'b', 'c'])\n",
        "utf-8",
    )
    clf = cr.load_classifier(f"{folder}/model.py:model").classifier
    judge = cr.Judge.fit(clf, torch.randn(200, 4))
    judge.save(folder / "judge")
    x = torch.randn(ROWS, 4)
    x[:6] *= 40
    np.save(folder / "x.npy", x.numpy())
    cr.judge_file(judge, folder / "x.npy", folder / "verdicts.parquet")
    return folder


def opened(verdicts, **given):
    names = ("inputs", "model", "judge", "words")
    return Given.open(
        verdicts, **{name: given.get(name) for name in names},
        of_model=o.ModelOptions(), of_data=o.DataOptions(),
    )  # fmt: skip


def data_of(text):
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    return json.loads(found[1])


def frame_of(judged):
    return pd.read_parquet(judged / "verdicts.parquet")


def test_the_page_is_told_the_classes(judged, tmp_path):
    given = opened(judged / "verdicts.parquet")
    assert given.facts()["classes"] == ["a", "b", "c"]
    frame_of(judged).to_parquet(tmp_path / "v.parquet")  # without what the file said of its Judge
    assert opened(tmp_path / "v.parquet").facts()["classes"] is None
    known = opened(
        tmp_path / "v.parquet",
        inputs=judged / "x.npy", model=f"{judged}/model.py:model", judge=judged / "judge",
    )  # fmt: skip
    assert known.facts()["classes"] == ["a", "b", "c"]


def test_classes_without_names_are_their_numbers(tmp_path):
    judge = cr.Judge.fit(torch.nn.Linear(3, 4), torch.randn(150, 3))
    np.save(tmp_path / "x.npy", torch.randn(5, 3).numpy())
    cr.judge_file(judge, tmp_path / "x.npy", tmp_path / "v.parquet")
    assert opened(tmp_path / "v.parquet").facts()["classes"] == ["0", "1", "2", "3"]
    page = judge(torch.randn(5, 3)).explore(details=0)
    assert data_of(page.html)["classes"] == ["0", "1", "2", "3"]


def test_a_page_and_a_judgement_show_the_same_rows_in_full(judged, tmp_path):
    given = opened(
        judged / "verdicts.parquet",
        inputs=judged / "x.npy", model=f"{judged}/model.py:model", judge=judged / "judge",
    )  # fmt: skip
    write_page(given, tmp_path / "page.html", 4)
    data = data_of((tmp_path / "page.html").read_text("utf-8"))
    ours = {int(row) for row, about in data["details"].items() if "classes" in about}
    found = given.judge(torch.from_numpy(np.load(judged / "x.npy")))
    theirs = data_of(found.explore(details=4).html)["details"]
    assert ours == {int(row) for row, about in theirs.items() if "classes" in about}
    frame = frame_of(judged)
    assert len(set(frame.verdict[list(ours)])) == frame.verdict.nunique() > 1
    assert "4 inputs in full, the least trusted of each verdict" in data["advice_detail"]


def test_rows_are_spread_over_the_verdicts():
    trust = {0: 0.5, 1: 0.1, 2: 0.9, 3: float("nan"), 4: 0.2, 5: 0.3}
    verdicts = ["trust", "outlier", "trust", "unusable", "outlier", "outlier"]
    assert spread(trust, verdicts, 3) == [1, 0, 4]
    assert spread(trust, verdicts, 9) == [1, 0, 4, 2, 5]


def test_a_packing_that_the_page_cannot_read_is_refused(judged, tmp_path):
    frame_of(judged).to_parquet(tmp_path / "v.parquet", compression="zstd")
    given = opened(tmp_path / "v.parquet")
    with pytest.raises(cr.errors.FileFormatError, match=r"packed by ZSTD.*--html.*snappy"):
        server_of(given, 0)
    write_page(given, tmp_path / "page.html", 0)


def test_a_port_in_use_is_said(judged):
    with socket.socket() as busy:
        busy.bind(("127.0.0.1", 0))
        busy.listen()
        port = busy.getsockname()[1]
        with pytest.raises(cr.errors.OutputError, match=rf"port {port} cannot be used.*--port"):
            server_of(opened(judged / "verdicts.parquet"), port)


def test_a_missing_file_of_words_is_said(judged, tmp_path):
    command = ["explore", f"{judged}/verdicts.parquet", "--words", f"{tmp_path}/words.txt"]
    error = CliRunner().invoke(app, [*command, "--no-browser"]).exception
    assert isinstance(error, cr.errors.FileFormatError)
    assert "words.txt: no readable file of words" in str(error)


def test_lists_dates_and_missing_values_are_written(judged, tmp_path):
    frame = frame_of(judged)
    frame["tags"] = [[1, 2]] * ROWS
    frame["when"] = pd.Series([pd.Timestamp("2024-01-02"), pd.NaT] * (ROWS // 2))
    frame["flag"] = pd.array([True, None] * (ROWS // 2), dtype="boolean")
    frame["mark"] = "theirs"
    frame.to_parquet(tmp_path / "v.parquet")
    given = opened(tmp_path / "v.parquet")
    assert given.extra == ["tags", "when", "flag"]
    write_page(given, tmp_path / "page.html", 0)
    data = data_of((tmp_path / "page.html").read_text("utf-8"))
    columns = {column["name"]: column["values"] for column in data["columns"]}
    assert columns["tags"][0] == "[1 2]"
    assert columns["when"][:2] == ["2024-01-02 00:00:00", None]
    assert columns["flag"][:2] == ["True", None]
    assert "mark" not in columns


@pytest.mark.parametrize("name", ["verdicts.parquet", "x.npy"])
def test_a_page_does_not_replace_what_it_is_made_of(judged, name):
    content = (judged / name).read_bytes()
    command = ["explore", judged / "verdicts.parquet", "--inputs", judged / "x.npy"]
    command += ["--html", judged / name, "--overwrite"]
    error = CliRunner().invoke(app, [str(word) for word in command]).exception
    assert isinstance(error, cr.errors.OutputError)
    assert "is, or lies in, what is read" in str(error)
    assert (judged / name).read_bytes() == content


def test_a_folder_of_files_is_shown_as_one(judged, tmp_path):
    loaded = cr.load_classifier(f"{judged}/model.py:model")
    judge = cr.Judge.load(judged / "judge", loaded)
    cr.judge_file(judge, judged / "x.npy", tmp_path / "v", folder=True, chunk_size=8, shard_size=8)
    parts = opened(tmp_path / "v", inputs=judged / "x.npy")
    whole = opened(judged / "verdicts.parquet", inputs=judged / "x.npy")
    pd.testing.assert_frame_equal(parts.file.read().to_pandas(), whole.file.read().to_pandas())
    assert parts.facts()["classes"] == ["a", "b", "c"]
    assert str(tmp_path / "v.marks.csv") in parts.marks_note()
    server_of(parts, 0).server_close()
    write_page(parts, tmp_path / "page.html", 3)
    assert "credibly: v" in (tmp_path / "page.html").read_text()
    (tmp_path / "v" / "part-000001.parquet").unlink()
    with pytest.raises(cr.errors.FileFormatError, match=r"part-000001\.parquet is missing"):
        opened(tmp_path / "v")
