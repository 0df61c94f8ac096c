"""WebDataset shards: any split gives the same rows, and a hostile tar costs an error, no more."""

import io
import json
import tarfile

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

import credibly as cr
from credibly.io import tars
from credibly.io.source import Watch
from credibly.io.sources import reopen_source
from credibly.io.stores import place_of
from tests.object_store import s3_server

ROWS = 17
VALUES = np.random.default_rng(0).normal(size=(ROWS, 2, 2)).astype(np.float32)
KEYS = [f"s/{n:04d}" for n in range(ROWS)]


def content(write):
    file = io.BytesIO()
    write(file)
    return file.getvalue()


def npy(value):
    return content(lambda f: np.save(f, value))


def image(n, kind="png"):
    return content(lambda f: Image.fromarray(np.full((2, 3), n, np.uint8)).save(f, kind))


def sample(n):
    about = {"label": int(n % 4), "name": ["cat", "dog"][n % 2], "more": {"a": [1]}}
    return {
        "npy": npy(VALUES[n]), "png": image(n), "cls": str(n % 3).encode(),
        "json": json.dumps(about).encode(), "pyd": b"cos\nsystem\n",
    }  # fmt: skip


def write(path, members, form=tarfile.PAX_FORMAT):
    with tarfile.open(path, "w", format=form) as archive:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return path


def shards(folder, cuts, endings=("npy", "cls", "json")):
    ends = [0, *sorted(cuts), ROWS]
    for number in range(len(ends) - 1):
        rows = range(ends[number], ends[number + 1])
        members = [(f"{KEYS[n]}.{e}", sample(n)[e]) for n in rows for e in endings]
        write(
            folder / f"{number:03d}.tar",
            members,
            (tarfile.PAX_FORMAT, tarfile.GNU_FORMAT)[number % 2],
        )


@settings(max_examples=15)
@given(
    cuts=st.lists(st.integers(0, ROWS), max_size=4),
    ranges=st.lists(st.tuples(st.integers(0, ROWS), st.integers(0, ROWS + 5)).map(sorted)),
)
def test_any_split_reads_back_as_the_samples_themselves(tmp_path_factory, cuts, ranges):
    folder = tmp_path_factory.mktemp("shards")
    shards(folder, cuts)
    source = cr.open_source(folder, label="cls")
    again = reopen_source(json.loads(json.dumps(source.reopen_spec(folder))))
    for start, stop in [*ranges, (0, ROWS)]:
        for one in (source, again):
            ids, x = one.read(start, stop)
            assert ids == KEYS[start:stop]
            assert x.tolist() == VALUES[start:stop].tolist()
            assert one.carried(start, stop) == {"label": [n % 3 for n in range(ROWS)][start:stop]}
    assert again.carried_types == {"label": "int64"}
    assert again.fingerprint() == source.fingerprint()


@pytest.mark.parametrize(
    ("label", "expected"),
    [
        ("json:label", [n % 4 for n in range(ROWS)]),
        ("json:name", [["cat", "dog"][n % 2] for n in range(ROWS)]),
        ("cls", [n % 3 for n in range(ROWS)]),
    ],
)
def test_labels_are_members_or_fields(tmp_path, label, expected):
    shards(tmp_path, [5])
    source = cr.open_source(tmp_path / "*.tar", label=label)
    assert source.carried(0, 99) == {"label": expected}
    source.read(3, 6)
    assert source.carried(3, 6) == {"label": expected[3:6]}


def test_images_are_read_as_from_a_folder(tmp_path):
    shards(tmp_path, [], ["png", "cls"])
    ids, x = cr.open_source(tmp_path / "000.tar").read(4, 7)
    assert ids == KEYS[4:7]
    assert x.shape == (3, 1, 2, 3)
    torch.testing.assert_close(x[:, 0, 0, 0], torch.arange(4, 7).float() / 255)
    small = cr.open_source(tmp_path, size=5, mode="rgb").read(0, 1)[1]
    assert small.shape == (1, 3, 5, 5)


def test_two_kinds_of_inputs_need_a_key(tmp_path):
    shards(tmp_path, [], ["png", "npy"])
    with pytest.raises(cr.errors.InvalidArgumentError, match=r"`key`.*npy, png"):
        cr.open_source(tmp_path)
    assert cr.open_source(tmp_path, key="npy").shape == (2, 2)
    assert cr.open_source(tmp_path, key="png;jpg").shape == (1, 2, 3)


@pytest.mark.parametrize("option", [{"key": "pyd"}, {"label": "pyd"}, {"label": "pkl:x"}])
def test_pickles_are_refused(tmp_path, option):
    shards(tmp_path, [], ["npy", "pyd"])
    with pytest.raises(cr.errors.InvalidArgumentError, match="would execute code"):
        cr.open_source(tmp_path, **option)
    assert len(cr.open_source(tmp_path)) == ROWS  # beside the inputs they are not opened


def test_an_array_of_objects_is_not_unpickled(tmp_path):
    objects = content(lambda f: np.save(f, np.array([{}], dtype=object), allow_pickle=True))
    write(tmp_path / "a.tar", [("a.npy", npy(VALUES[0])), ("b.npy", objects), ("c.npy", b"")])
    _, x = cr.open_source(tmp_path).read(0, 3)
    assert x.isnan().flatten(1).all(1).tolist() == [False, True, True]


def test_whole_numbers_need_a_scale(tmp_path):
    write(tmp_path / "a.tar", [("a.npy", npy(np.full((2, 2), 51, np.uint8)))])
    with pytest.raises(cr.errors.InvalidArgumentError, match="--scale 255"):
        cr.open_source(tmp_path)
    assert cr.open_source(tmp_path, scale=255).read(0, 1)[1].unique().tolist() == [
        pytest.approx(0.2)
    ]


def test_a_broken_or_missing_input_costs_only_itself(tmp_path):
    members = [
        ("a.png", image(1)), ("b.png", b"nothing"), ("c.cls", b"1"), ("d.png", image(4)),
        ("e.png", content(lambda f: Image.new("L", (9, 9)).save(f, "png"))),
    ]  # fmt: skip
    write(tmp_path / "a.tar", members)
    with pytest.raises(cr.errors.FileFormatError, match="the images differ: a is"):
        cr.open_source(tmp_path)
    write(tmp_path / "a.tar", members[:4])
    ids, x = cr.open_source(tmp_path).read(0, 9)
    assert ids == ["a", "b", "c", "d"]
    assert x.isnan().flatten(1).any(1).tolist() == [False, True, True, False]


def test_a_huge_member_is_not_read(tmp_path, monkeypatch):
    monkeypatch.setattr(tars, "MOST", 1000)
    big = npy(np.zeros((2, 2, 100)))
    write(tmp_path / "a.tar", [("a.npy", npy(VALUES[0])), ("b.npy", big)])
    assert cr.open_source(tmp_path).read(0, 2)[1].isnan().flatten(1).any(1).tolist() == [
        False,
        True,
    ]


def special(kind):
    def make(path):
        write(path, [("a.npy", npy(VALUES[0]))])
        with tarfile.open(path, "a") as archive:
            info = tarfile.TarInfo("b.npy")
            info.type, info.linkname = kind, "/etc/passwd"
            archive.addfile(info)

    return make


def changed(change):
    def make(path):
        write(path, [(f"{n}.npy", npy(VALUES[n])) for n in range(4)])
        path.write_bytes(change(path.read_bytes()))

    return make


def named(*names):
    return lambda path: write(path, [(name, npy(VALUES[0])) for name in names])


def long_header(path):
    info = tarfile.TarInfo("a.npy")
    info.pax_headers = {"comment": "x" * (2 << 20)}
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as archive:
        archive.addfile(info)


def claims(path):
    """A header that promises a terabyte."""
    info = tarfile.TarInfo("a.npy")
    info.size = 1 << 40
    path.write_bytes(info.tobuf(tarfile.GNU_FORMAT) + b"\0" * 2048)


def test_a_tar_that_is_cut_anywhere_is_refused(tmp_path):
    path = write(tmp_path / "a.tar", [(f"{n}.npy", npy(VALUES[n])) for n in range(3)])
    content = path.read_bytes()
    end = max(k for k in range(0, len(content), 512) if any(content[k : k + 512])) + 512
    for length in range(512, end + 1, 512):  # as copies break off, between blocks
        path.write_bytes(content[:length])
        with pytest.raises(
            cr.errors.FileFormatError, match=r"end mark: cut short|ends before|end of"
        ):
            cr.open_source(path)
    path.write_bytes(content[: end + 512])  # one block of zeros is enough
    assert len(cr.open_source(path)) == 3


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (changed(lambda b: b + b), "more follows its end mark.*tar --concatenate"),
        (changed(lambda b: b + b"x"), "more follows its end mark"),
        (special(tarfile.SYMTYPE), "'b.npy' is a link"),
        (special(tarfile.LNKTYPE), "'b.npy' is a link"),
        (special(tarfile.FIFOTYPE), "'b.npy' is a link or no plain file"),
        (named("../a.npy"), "leads out of its folder"),
        (named("x/../../a.npy"), "leads out of its folder"),
        (named("/etc/a.npy"), "leads out of its folder"),
        (named("a.npy", "a.npy"), "'a.npy' is in it twice"),
        (named("README"), "holds no rows"),
        (changed(lambda b: b[: 3 * 1024 + 100]), "ends before|unexpected end|damaged header"),
        (changed(lambda b: b[:1024] + b"x" * 512 + b[1536:]), "damaged header|not a readable"),
        (changed(lambda _: b""), "not a readable tar"),
        (changed(lambda _: b"nonsense" * 200), "not a readable tar"),
        (long_header, "not a readable tar file .a header of"),
        (claims, "unexpected end|ends before its member"),
    ],
)
def test_a_hostile_tar_is_an_error_that_names_it(tmp_path, make, words):
    make(tmp_path / "a.tar")
    with pytest.raises((cr.errors.FileFormatError, cr.errors.InvalidArgumentError), match=words):
        cr.open_source(tmp_path / "a.tar")


def test_a_run_is_resumed_and_a_change_is_noticed(tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    shards(folder, [6, 11])
    source = cr.open_source(folder, label="cls")
    net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(4, 3)).eval()
    clf, out = cr.Classifier(net), tmp_path / "out.parquet"
    cr.score(clf, source, out, gamma=1.0, chunk_size=4, shard_size=8)
    frame = pd.read_parquet(out)
    assert frame["id"].tolist() == KEYS
    assert frame["label"].tolist() == [n % 3 for n in range(ROWS)]
    watch = Watch(source)
    write(folder / "001.tar", [(f"{KEYS[6]}.npy", npy(VALUES[0]))])
    watch.look(0, 6)
    with pytest.raises(cr.errors.FileFormatError, match="changed while it was read"):
        watch.look(5, 7)


def test_shards_in_a_store_are_read_in_ranges(tmp_path):
    shards(tmp_path, [6])
    with s3_server("bucket"):
        for path in tmp_path.iterdir():
            (place_of("s3://bucket/in") / path.name).upload(path)
        for name in ("s3://bucket/in", "s3://bucket/in/*.tar"):
            source = cr.open_source(name, label="cls")
            ids, x = source.read(4, 9)
            assert ids == KEYS[4:9]
            assert x.tolist() == VALUES[4:9].tolist()
        assert len(cr.open_source("s3://bucket/in/001.tar")) == ROWS - 6
