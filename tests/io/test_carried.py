"""Labels are carried from any source into the output; sources are opened again from plain data."""

import json

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image

import credibly as cr
from credibly.io.sources import reopen_source

ROWS = 23
VALUES = np.random.default_rng(0).normal(size=(ROWS, 3))
CLASSES = np.random.default_rng(1).integers(0, 3, ROWS)
WORDS = [["cat", "dog", "owl"][k] for k in CLASSES]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("labelled")
    np.savez(path / "a.npz", x=VALUES, y=CLASSES)
    frame = pd.DataFrame(VALUES, columns=["p", "q", "r"])
    frame["number"], frame["word"], frame["real"] = CLASSES, WORDS, CLASSES / 2
    frame.loc[4, "word"] = None
    frame.to_csv(path / "a.csv", index=False)
    frame.to_parquet(path / "a.parquet", row_group_size=7)
    for n, word in enumerate(WORDS):
        (path / "images" / word).mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((2, 3), n, np.uint8)).save(path / "images" / word / f"{n:03d}.png")
    return path


OPTIONS = [
    ("a.npz", {"label": "y"}),
    ("a.csv", {"label": "number", "drop": ["word", "real"]}),
    ("a.csv", {"label": "word", "drop": ["number", "real"]}),
    ("a.parquet", {"label": "number", "columns": ["r", "p"]}),
    ("a.parquet", {"label": "word", "id_column": "number", "drop": ["real"]}),
    ("a.parquet", {"label": "real", "drop": ["number", "word"]}),
    ("images", {"label": "folder"}),
]
NULLED = [*WORDS[:4], None, *WORDS[5:]]
EXPECTED = {
    "y": CLASSES.tolist(), "number": CLASSES.tolist(), "word": NULLED,
    "real": (CLASSES / 2).tolist(), "folder": sorted(WORDS),
}  # fmt: skip


@pytest.mark.parametrize(("name", "how"), OPTIONS)
def test_labels_belong_to_the_rows_that_were_read(folder, name, how):
    source = cr.open_source(folder / name, **how)
    expected = EXPECTED[how["label"]]
    for start, stop in [(0, 5), (5, 11), (20, 99), (3, 9)]:
        source.read(start, stop)
        assert source.carried(start, stop) == {"label": expected[start:stop]}
    assert source.carried(1, 8) == {"label": expected[1:8]}  # not just read
    assert source.carried(30, 40) == {"label": []}
    kinds = {int: "int64", float: "double", str: "string"}
    assert source.carried_types == {"label": kinds[type(expected[0])]}


@pytest.mark.parametrize(("name", "how"), OPTIONS)
def test_a_source_is_opened_again_from_json(folder, monkeypatch, name, how):
    monkeypatch.chdir(folder)
    source = cr.open_source(name, **how, limit=17)
    monkeypatch.chdir("/")
    again = reopen_source(json.loads(json.dumps(source.reopen_spec())))
    monkeypatch.chdir(folder)
    ids, x = source.read(2, 9)
    found, y = again.read(2, 9)
    assert found == ids
    torch.testing.assert_close(x, y, rtol=0, atol=0)
    assert again.carried(2, 9) == source.carried(2, 9)
    assert (len(again), again.shape, again.id_type) == (17, source.shape, source.id_type)
    assert again.carried_types == source.carried_types
    assert again.describe() == source.describe()
    assert again.fingerprint() == source.fingerprint()


def test_columns_in_the_order_of_the_model_stay_so(folder):
    clf = cr.Classifier(lambda x: x, space=cr.Space(columns=["r", "p", "q"]))
    source = cr.open_source(folder / "a.parquet", drop=["number", "word", "real"]).for_model(clf)
    again = reopen_source(source.reopen_spec())
    torch.testing.assert_close(again.read(0, 9)[1], torch.from_numpy(VALUES[:9, [2, 0, 1]]))


@pytest.mark.parametrize(("name", "how"), OPTIONS)
def test_labels_stand_beside_the_ids_of_the_output(folder, tmp_path, name, how):
    source = cr.open_source(folder / name, **how)
    width = int(np.prod(source.shape))
    net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(width, 3)).double().eval()
    out = tmp_path / "out.parquet"
    cr.score(cr.Classifier(net), source, out, gamma=1.0, chunk_size=4, shard_size=8)
    table = pq.read_table(out)
    assert table.column_names[:2] == ["id", "label"]
    assert table["label"].to_pylist() == EXPECTED[how["label"]]
    assert str(table["label"].type) == source.carried_types["label"]
    assert len(cr.Profile.from_parquet(out)) == ROWS


@pytest.mark.filterwarnings("ignore:.*are copies of others")
def test_without_a_label_nothing_is_carried(folder, tmp_path):
    source = cr.open_source(folder / "a.npz")
    assert source.carried(0, 5) == {}
    assert "label" not in source.describe()
    judge = cr.Judge.fit(torch.nn.Linear(3, 2).double(), VALUES.repeat(10, 0))
    cr.judge_file(judge, source, tmp_path / "v.parquet")
    assert "label" not in pq.read_schema(tmp_path / "v.parquet").names
    labelled = cr.open_source(folder / "a.npz", label="y")
    cr.judge_file(judge, labelled, tmp_path / "w.parquet", chunk_size=7)
    assert pq.read_table(tmp_path / "w.parquet")["label"].to_pylist() == CLASSES.tolist()


@pytest.mark.parametrize(
    ("name", "how", "words"),
    [
        ("a.npz", {"label": "z"}, "x .*; y "),
        ("a.npz", {"label": "x", "key": "x"}, "must not be the array of inputs"),
        ("a.csv", {"label": "z"}, "p, q, r, number, word, real"),
        ("images", {"label": "word"}, "'folder'"),
    ],
)
def test_a_label_that_is_not_there_is_named(folder, name, how, words):
    with pytest.raises(cr.errors.InvalidArgumentError, match=f"(?s)`label`.*{words}"):
        cr.open_source(folder / name, **how)


def test_an_image_in_no_folder_has_no_class(tmp_path):
    Image.new("L", (2, 2)).save(tmp_path / "a.png")
    (tmp_path / "0").mkdir()
    Image.new("L", (2, 2)).save(tmp_path / "0" / "b.png")
    with pytest.raises(cr.errors.FileFormatError, match=r"a\.png is in no folder"):
        cr.open_source(tmp_path, label="folder")  # before any work
    assert cr.open_source(tmp_path, label="folder", limit=1).carried(0, 1) == {"label": ["0"]}
