"""Datasets that `datasets` has saved give the rows that `datasets` itself reads."""

import io
import json
import pickle

import datasets
import numpy as np
import pyarrow as pa
import pytest
import torch
from PIL import Image

import credibly as cr
from credibly.io import arrow_files
from credibly.io.source import Watch
from credibly.io.sources import reopen_source

ROWS = 23
RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(ROWS, 2, 3)).astype(np.float32)
PIXELS = RANDOM.integers(0, 256, size=(ROWS, 4, 5, 3), dtype=np.uint8)
NAMES = [f"n{k}" for k in range(ROWS)]
CLASSES = ["cat", "dog", "owl"]


def png(pixels):
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "png")
    return {"bytes": file.getvalue(), "path": None}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    found = tmp_path_factory.mktemp("saved")
    kinds = datasets.Features({
        "array": datasets.Array2D((2, 3), "float32"),
        "nested": datasets.List(datasets.List(datasets.Value("float32"))),
        "bytes": datasets.List(datasets.Value("uint8"), length=3),
        "image": datasets.Image(),
        "p": datasets.Value("float64"),
        "q": datasets.Value("int32"),
        "name": datasets.Value("string"),
        "label": datasets.ClassLabel(names=CLASSES),
    })  # fmt: skip
    columns = {
        "array": X, "nested": X.tolist(), "bytes": PIXELS[:, 0, 0].tolist(),
        "image": [png(p) for p in PIXELS], "p": X[:, 0, 0].tolist(), "q": list(range(ROWS)),
        "name": NAMES, "label": [k % 3 for k in range(ROWS)],
    }  # fmt: skip
    data = datasets.Dataset.from_dict(columns, features=kinds)
    datasets.disable_progress_bars()
    data.save_to_disk(found / "all", num_shards=3)
    datasets.DatasetDict({"test": data}).save_to_disk(found / "splits")
    return found


HOW = {"id_column": "name", "label": "label"}


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ({"key": "array"}, X),
        ({"key": "nested"}, X),
        ({"key": "bytes", "scale": 255}, PIXELS[:, 0, 0] / 255),
        ({"key": "image"}, PIXELS.transpose(0, 3, 1, 2) / np.float32(255)),
        ({"columns": ["q", "p"]}, np.stack([np.arange(ROWS), X[:, 0, 0]], 1)),
    ],
)
def test_the_rows_are_those_of_the_library(folder, how, expected):
    reread = datasets.load_from_disk(folder / "all")
    assert np.array_equal(np.asarray(reread["array"]), X)  # what it gives, too
    source = cr.open_source(folder / "all", **how, **HOW)
    again = reopen_source(json.loads(json.dumps(source.reopen_spec())))
    travelled = pickle.loads(pickle.dumps(source))  # noqa: S301
    assert source.shape == expected.shape[1:]
    for one in (source, again, travelled):
        assert len(one) == ROWS
        for start, stop in ((0, 99), (3, 9), (7, 8), (20, 22), (5, 5)):
            ids, x = one.read(start, stop)
            rows = slice(start, min(stop, ROWS))
            assert ids == reread["name"][rows]
            np.testing.assert_allclose(x.numpy(), expected[rows], rtol=1e-6)
            assert one.carried(start, stop) == {"label": reread["label"][rows]}
    assert (source.id_type, source.label_type) == ("string", "int64")


def test_numbers_alone_are_a_table_in_the_order_of_the_model(tmp_path):
    data = datasets.Dataset.from_dict({"q": [1, 2], "p": [0.5, None], "y": ["a", "b"]})
    data.save_to_disk(tmp_path / "table")
    source = cr.open_source(tmp_path / "table", label="y")
    assert source.columns == ("q", "p")
    assert np.array_equal(source.read(0, 2)[1], [[1, 0.5], [2, np.nan]], equal_nan=True)
    clf = cr.Classifier(torch.nn.Linear(2, 3).double().eval(), space=cr.Space(columns=["p", "q"]))
    cr.score(clf, source, tmp_path / "out.parquet", gamma=1.0)
    ordered = source.for_model(clf)
    assert ordered.read(0, 1)[1].tolist() == [[0.5, 1]]
    assert reopen_source(ordered.reopen_spec()).read(0, 1)[1].tolist() == [[0.5, 1]]


def test_a_broken_image_and_a_missing_one_are_rows_of_nan(tmp_path):
    cells = [png(PIXELS[0]), {"bytes": b"no image", "path": None}, None]
    kinds = datasets.Features({"image": datasets.Image()})
    datasets.Dataset.from_dict({"image": cells}, features=kinds).save_to_disk(tmp_path / "d")
    source = cr.open_source(tmp_path / "d", mode="grey", size=2)
    assert (source.shape, source.files) == ((1, 2, 2), True)
    x = source.read(0, 3)[1]
    assert torch.isfinite(x).flatten(1).all(1).tolist() == [True, False, False]


def test_only_the_batches_of_the_rows_are_read(folder, monkeypatch):
    source, seen = cr.open_source(folder / "all", key="array"), []
    read = arrow_files.ArrowFile.read
    monkeypatch.setattr(
        arrow_files.ArrowFile,
        "read",
        lambda self, n, c: seen.append(self.path.name) or read(self, n, c),
    )
    source.read(9, 12)
    assert seen == ["data-00001-of-00003.arrow"]


def test_a_file_that_changes_is_noticed(folder, tmp_path):
    data = datasets.Dataset.from_dict({"p": [1.0, 2.0]})
    data.save_to_disk(tmp_path / "d")
    watch = Watch(cr.open_source(tmp_path / "d"))
    file = next((tmp_path / "d").glob("*.arrow"))
    file.write_bytes(file.read_bytes() + b"\0")
    with pytest.raises(cr.errors.FileFormatError, match="changed while it was read"):
        watch.look(0, 2)
    assert folder.exists()


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({}, "`key`: expected a column of arrays or images: array, nested, bytes, image"),
        ({"key": "picture"}, "'picture'"),
        ({"key": "name"}, "'name' holds .*no numbers"),
        ({"key": "bytes"}, "`scale`"),
        ({"columns": ["p"], "scale": 2.0}, "`scale`"),
        ({"columns": ["r"]}, "columns of all"),
    ],
)
def test_what_cannot_be_taken_is_named(folder, how, words):
    with pytest.raises(cr.errors.CrediblyError, match=words):
        cr.open_source(folder / "all", **how)


def test_several_splits_and_damaged_files_are_named(folder, tmp_path):
    with pytest.raises(cr.errors.FileFormatError, match=r"several splits.*splits/test"):
        cr.open_source(folder / "splits")
    assert len(cr.open_source(folder / "splits" / "test", key="array")) == ROWS
    data = datasets.Dataset.from_dict({"p": list(np.zeros(5000))})
    data.save_to_disk(tmp_path / "d")
    file = next((tmp_path / "d").glob("*.arrow"))
    content = file.read_bytes()
    file.write_bytes(content[: len(content) // 2])
    with pytest.raises(cr.errors.FileFormatError, match=r"\.arrow: not a readable Arrow stream"):
        cr.open_source(tmp_path / "d")
    (tmp_path / "d" / "state.json").write_text("{}")
    with pytest.raises(cr.errors.FileFormatError, match="not that of a saved dataset"):
        cr.open_source(tmp_path / "d")


def test_rows_of_unlike_lengths_are_named(tmp_path):
    datasets.Dataset.from_dict({"x": [[1.0, 2.0], [3.0]]}).save_to_disk(tmp_path / "d")
    with pytest.raises(cr.errors.FileFormatError, match="'x' holds lists of several lengths"):
        cr.open_source(tmp_path / "d")


def test_a_store_is_refused_with_what_to_do():
    from credibly.io.stores import place_of

    place = place_of("memory://dataset")
    (place / "state.json").write_whole(b"{}")
    (place / "dataset_info.json").write_whole(b"{}")
    with pytest.raises(cr.errors.FileFormatError, match=r"from a disk only.*to_parquet"):
        cr.open_source("memory://dataset")


def test_only_the_batches_that_hold_the_rows_are_looked_at(tmp_path, monkeypatch):
    data = datasets.Dataset.from_dict({"p": [float(k) for k in range(40)]})
    data.save_to_disk(tmp_path / "d", num_shards=2)
    for path in sorted((tmp_path / "d").glob("*.arrow")):
        with pa.OSFile(str(path)) as file:
            table = pa.ipc.open_stream(file).read_all()
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, table.schema) as writer:
            writer.write_table(table, max_chunksize=3)

    class Unscanned(list):
        def __iter__(self):
            message = "all batches were looked at"
            raise AssertionError(message)

    source, read = cr.open_source(tmp_path / "d"), []
    for file in source._files:
        file.batches = Unscanned(file.batches)
    whole = arrow_files.ArrowFile.read
    monkeypatch.setattr(
        arrow_files.ArrowFile,
        "read",
        lambda self, number, columns: read.append(number) or whole(self, number, columns),
    )
    for start, stop, batches in [(4, 7, [1, 2]), (19, 21, [6, 0]), (3, 6, [1]), (39, 50, [6])]:
        read.clear()
        assert source.read(start, stop)[1][:, 0].tolist() == list(range(40))[start:stop]
        assert read == batches
