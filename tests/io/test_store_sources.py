"""Inputs of every kind are read from an S3 server as from a disk; errors come soon and help."""

import io
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from safetensors.torch import save

import credibly as cr
from credibly.io import source as source_module
from credibly.io import store_file, stores
from credibly.io.source import Watch
from credibly.io.sources import reopen_source
from credibly.io.stores import place_of
from tests.object_store import s3_server

ROWS = 19
VALUES = np.random.default_rng(0).normal(size=(ROWS, 2))
FRAME = pd.DataFrame(VALUES, columns=["p", "q"]).assign(y=np.arange(ROWS) % 3)


def content(write):
    file = io.BytesIO()
    write(file)
    return file.getvalue()


def png(n):
    return content(lambda f: Image.fromarray(np.full((2, 3), n, np.uint8)).save(f, "png"))


FILES = {
    "a.npy": content(lambda f: np.save(f, VALUES)),
    "a.npz": content(lambda f: np.savez_compressed(f, x=VALUES, y=FRAME["y"])),
    "a.safetensors": save({"x": torch.from_numpy(VALUES)}),
    "a.csv": FRAME.to_csv(index=False).encode(),
    "a.parquet": FRAME.to_parquet(row_group_size=5),
    "many/k=1/a.parquet": FRAME[:11].to_parquet(row_group_size=4),
    "many/k=2/b.parquet": FRAME[11:].to_parquet(),
    **{f"images/{'cat' if n < 7 else 'dog'}/{n:02d}.png": png(n) for n in range(ROWS)},
}
OPTIONS = {
    "a.npy": {},
    "a.npz": {"label": "y"},
    "a.safetensors": {},
    "a.csv": {"label": "y"},
    "a.parquet": {"label": "y"},
    "many": {"label": "y"},
    "many/**/*.parquet": {"label": "y"},
    "many/**": {"label": "y"},
    "many/k=[12]/?.parquet": {"label": "y"},
    "images": {"label": "folder"},
}


@pytest.fixture(scope="module")
def store():
    with s3_server("bucket") as url:
        for name, data in FILES.items():
            (place_of("s3://bucket/in") / name).write_whole(data)
        yield url


@pytest.fixture(scope="module")
def local(tmp_path_factory):
    folder = tmp_path_factory.mktemp("local")
    for name, data in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return folder


@pytest.mark.usefixtures("store")
@pytest.mark.parametrize("name", OPTIONS)
def test_a_store_gives_the_rows_of_the_disk(local, tmp_path, name):
    here = cr.open_source(local / name, **OPTIONS[name])
    there = cr.open_source(f"s3://bucket/in/{name}", **OPTIONS[name])
    spec = json.loads(json.dumps(there.reopen_spec(tmp_path)))
    for source in (there, reopen_source(spec)):
        assert (len(source), source.shape, source.kind) == (ROWS, here.shape, here.kind)
        for start, stop in [(0, 6), (6, 13), (2, 4), (17, 99)]:
            ids, x = source.read(start, stop)
            expected, y = here.read(start, stop)
            assert ids == expected
            torch.testing.assert_close(x, y, rtol=0, atol=0)
            assert source.carried(start, stop) == here.carried(start, stop)
    watch = Watch(there)
    watch.look(0, 5)
    watch.compare()


@pytest.mark.usefixtures("store")
def test_a_path_object_names_a_store_as_well(local, tmp_path):
    clf = cr.Classifier(torch.nn.Linear(2, 3).double().eval())
    a = cr.score(clf, Path("s3://bucket/in/a.npy"), tmp_path / "a.parquet", gamma=1.0)
    cr.score(clf, local / "a.npy", tmp_path / "b.parquet", gamma=1.0)
    assert a.rows == ROWS
    both = [pd.read_parquet(tmp_path / f"{name}.parquet") for name in "ab"]
    pd.testing.assert_frame_equal(*both)
    judge = cr.Judge.fit(clf, np.random.default_rng(1).normal(size=(200, 2)))
    assert (
        len(judge("s3://bucket/in/many/k=1/*.parquet".replace("many/k=1/*.parquet", "a.npy"))) == 19
    )


@pytest.mark.usefixtures("store")
def test_a_range_of_an_array_is_read_by_few_bytes(monkeypatch):
    place, read = place_of("s3://bucket/large.npy"), []
    place.write_whole(content(lambda f: np.save(f, np.zeros((400, 1000)))))
    monkeypatch.setattr(store_file, "RANGE", 1 << 12)
    readinto = store_file.StoreFile.readinto
    monkeypatch.setattr(
        store_file.StoreFile,
        "readinto",
        lambda self, buffer: read.append(found := readinto(self, buffer)) or found,
    )
    x = cr.open_source("s3://bucket/large.npy").read(100, 110)[1]
    assert x.shape == (10, 1000)
    assert sum(read) < 10 * 8000 + (1 << 17)  # of 3.2 million


@pytest.mark.usefixtures("store")
def test_an_object_that_changes_is_noticed(monkeypatch):
    place = place_of("s3://bucket/changing.npy")
    place.write_whole(content(lambda f: np.save(f, VALUES)))
    watch = Watch(cr.open_source("s3://bucket/changing.npy"))
    place.write_whole(content(lambda f: np.save(f, VALUES[:9])))
    watch.look(0, 5)  # it was asked a moment ago
    monkeypatch.setattr(source_module, "PAUSE", 0.0)
    with pytest.raises(cr.errors.FileFormatError, match="changed while it was read"):
        watch.look(0, 5)
    with pytest.raises(cr.errors.FileFormatError, match="changed while it was read"):
        watch.compare()


@pytest.mark.usefixtures("store")
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("bucket/nothing.npy", "no such file"),
        ("bucket/in/*.txt", "no file of a known kind"),
        ("nobody/a.npy", "no such file"),
        ("nobody/*.npy", "Check the name of the bucket|no file"),
        ("bucket/in/a.npy/*.npy", "no such file|no file|cannot be read"),
        ("bucket/in", "several kinds"),
    ],
)
def test_what_is_not_there_is_named(name, words):
    with pytest.raises(cr.errors.FileFormatError, match=words):
        cr.open_source(f"s3://{name}")


def test_a_server_that_does_not_answer_is_an_error_soon(monkeypatch):
    monkeypatch.setattr(stores, "ATTEMPTS", 1)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "x")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "y")
    server = "?endpoint_override=127.0.0.1:1&scheme=http&region=there"
    for name in ("a.npy", "*.parquet", "images"):
        with pytest.raises(cr.errors.FileFormatError, match=r"not reachable.*AWS_ENDPOINT_URL"):
            cr.open_source(f"s3://bucket/{name}{server}")


@pytest.mark.usefixtures("store")
def test_a_store_that_fails_midway_is_an_error_and_not_a_broken_image(monkeypatch):
    source = cr.open_source("s3://bucket/in/images", size=4, mode="grey")

    def refused(*_):
        message = "When reading: AWS Error ACCESS_DENIED during GetObject"
        raise OSError(message)

    monkeypatch.setattr(store_file.StoreFile, "readinto", refused_in(refused))
    with pytest.raises(cr.errors.FileFormatError, match=r"refused.*AWS_ACCESS_KEY_ID"):
        source.read(0, 3)


def refused_in(call):
    def readinto(self, buffer):
        with self._reading():
            return call(buffer)

    return readinto


def test_any_file_system_of_fsspec_is_read():
    place = place_of("memory://inputs")
    (place / "a.npy").write_whole(FILES["a.npy"])
    (place / "t" / "a.parquet").write_whole(FILES["a.parquet"])
    assert cr.open_source("memory://inputs/a.npy").read(3, 5)[1].tolist() == VALUES[3:5].tolist()
    source = cr.open_source("memory://inputs/t/*.parquet", label="y")
    assert source.read(3, 5)[1].tolist() == VALUES[3:5].tolist()
