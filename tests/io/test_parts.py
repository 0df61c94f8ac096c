"""Many files are one source: the same rows however they are split into files and row groups."""

import json
import os
from itertools import pairwise

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import credibly as cr
from credibly.io import file_set, table_files
from credibly.io.source import Watch
from credibly.io.sources import reopen_source

ROWS = 40
FRAME = pd.DataFrame(np.random.default_rng(0).normal(size=(ROWS, 2)), columns=["p", "q"])
FRAME["name"] = [f"row {n}" for n in range(ROWS)]
FRAME["y"] = np.arange(ROWS) % 3


def write(folder, cuts, groups=7, ending=".parquet"):
    """Write the rows to a file for each piece between cuts; some are empty."""
    ends = [0, *sorted(cuts), ROWS]
    for number, (start, stop) in enumerate(pairwise(ends)):
        place = folder / f"month={number // 3:02d}" / f"{number:03d}{ending}"
        place.parent.mkdir(parents=True, exist_ok=True)
        piece = FRAME[start:stop]
        if ending == ".parquet":
            piece.to_parquet(place, row_group_size=groups)
        elif ending == ".csv":
            piece.to_csv(place, index=False)
        else:
            np.save(place, piece[["p", "q"]].to_numpy())


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    cuts=st.lists(st.integers(0, ROWS), max_size=6),
    groups=st.integers(1, 9),
    ranges=st.lists(st.tuples(st.integers(0, ROWS), st.integers(0, ROWS + 5)).map(sorted)),
    named=st.booleans(),
)
def test_any_split_reads_back_as_the_rows_themselves(tmp_path_factory, cuts, groups, ranges, named):
    folder = tmp_path_factory.mktemp("split")
    write(folder, cuts, groups)
    how = {"id_column": "name"} if named else {"drop": ["name"]}
    source = cr.open_source(folder, label="y", **how)
    again = reopen_source(json.loads(json.dumps(source.reopen_spec())))
    assert len(source) == len(again) == ROWS
    for start, stop in [*ranges, (0, ROWS)]:
        rows = slice(start, stop)
        for one in (source, again):
            ids, x = one.read(start, stop)
            expected = FRAME["name"].tolist() if named else list(range(ROWS))
            assert ids == expected[rows]
            assert x.tolist() == FRAME[["p", "q"]].to_numpy()[rows].tolist()
            assert one.carried(start, stop) == {"label": FRAME["y"].tolist()[rows]}


@pytest.mark.parametrize("ending", [".csv", ".npy", ".parquet"])
def test_a_pattern_names_files_of_any_kind(tmp_path, ending):
    write(tmp_path, [5, 11, 30], ending=ending)
    how = {} if ending == ".npy" else {"drop": ["name", "y"]}
    source = cr.open_source(f"{tmp_path}/**/*{ending}", **how, limit=33)
    ids, x = source.read(3, 99)
    assert ids == list(range(3, 33))
    assert x.tolist() == FRAME[["p", "q"]].to_numpy()[3:33].tolist()
    assert source.describe()["files"] == 4
    only = cr.open_source(tmp_path / "month=01" / "00?.*", **how)
    assert only.read(0, 99)[1].tolist() == FRAME[["p", "q"]].to_numpy()[30:].tolist()


def test_ids_of_csv_files_have_one_type(tmp_path):
    (tmp_path / "a.csv").write_text("id,p\n1,2\n")
    (tmp_path / "b.csv").write_text("id,p\nx,3\n")
    source = cr.open_source(tmp_path / "*.csv", id_column="id")
    assert source.read(0, 2)[0] == ["1", "x"]
    assert source.id_type == "string"


def test_a_range_touches_only_its_row_groups(tmp_path, monkeypatch):
    monkeypatch.setattr(table_files, "BATCH", 5)  # rows that are decoded at once
    write(tmp_path, [20], groups=5)
    place = tmp_path / "month=00" / "001.parquet"
    meta, content = pq.ParquetFile(place).metadata, bytearray(place.read_bytes())
    for group in (0, 1, 3):  # all but that of the rows 30 to 35
        for column in range(meta.num_columns):
            chunk = meta.row_group(group).column(column)
            start = chunk.dictionary_page_offset or chunk.data_page_offset
            content[start : start + chunk.total_compressed_size] = bytes(
                chunk.total_compressed_size
            )
    place.write_bytes(content)
    source = cr.open_source(tmp_path, drop=["name", "y"])
    assert source.read(30, 35)[1].tolist() == FRAME[["p", "q"]].to_numpy()[30:35].tolist()
    with pytest.raises(cr.errors.FileFormatError, match=r"001\.parquet: not a readable table"):
        source.read(20, 25)


def test_going_far_ahead_skips_the_row_groups_between(tmp_path, monkeypatch):
    monkeypatch.setattr(table_files, "BATCH", 4)
    FRAME.to_parquet(tmp_path / "a.parquet", row_group_size=4)
    source = cr.open_source(tmp_path / "a.parquet", drop=["name", "y"])
    decoded = []
    features = source._features
    monkeypatch.setattr(
        source, "_features", lambda b, first: decoded.append(first) or features(b, first)
    )
    starts = []
    batches = source._file.batches
    monkeypatch.setattr(
        source._file, "batches", lambda c, start=0: starts.append(start) or batches(c, start)
    )
    source.read(0, 4)
    source.read(4, 6)  # the next group is read on
    source.read(36, 40)
    assert starts == [0, 36]


def differing(name, frame):
    def write_it(folder):
        FRAME.to_parquet(folder / "a.parquet")
        frame.to_parquet(folder / name)

    return write_it


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (differing("b.parquet", FRAME.drop(columns="q")), r"b\.parquet: lacks .*'q'.*a\.parquet"),
        (differing("b.parquet", FRAME.assign(z=1.0)), r"b\.parquet: has .*'z'.*a\.parquet"),
        (differing("b.parquet", FRAME.assign(q="x")), r"b\.parquet.*'q' holds 'x'"),
        (differing("b.parquet", FRAME.assign(name=1)), r"b\.parquet: .*types int64"),
        (differing("b.parquet", FRAME[:0].assign(z=1.0)), None),  # no rows, no harm
    ],
)
def test_a_file_that_differs_is_named(tmp_path, make, words):
    make(tmp_path)
    if words is None:
        assert len(cr.open_source(tmp_path, id_column="name", label="y")) == ROWS
        return
    with pytest.raises(cr.errors.FileFormatError, match=words):
        cr.open_source(tmp_path, id_column="name", label="y")


def test_arrays_that_differ_are_named(tmp_path):
    np.save(tmp_path / "a.npy", np.ones((3, 2)))
    np.save(tmp_path / "b.npy", np.ones((3, 4)))
    with pytest.raises(cr.errors.FileFormatError, match=r"b\.npy: holds shape \(4,\)"):
        cr.open_source(tmp_path / "*.npy")


def test_nothing_and_several_kinds_are_refused(tmp_path):
    with pytest.raises(cr.errors.FileFormatError, match="no file of a known kind matches"):
        cr.open_source(tmp_path / "*.parquet")
    FRAME.to_parquet(tmp_path / "a.parquet")
    FRAME.to_csv(tmp_path / "a.csv")
    with pytest.raises(cr.errors.FileFormatError, match=r"several kinds \(1 .*parquet"):
        cr.open_source(tmp_path / "a.*")
    assert len(cr.open_source(tmp_path, drop=["name", "y"])) == ROWS  # a.csv is a note beside it
    (tmp_path / "_SUCCESS.parquet").write_bytes(b"")
    (tmp_path / ".hidden.parquet").write_bytes(b"")
    assert len(cr.open_source(tmp_path, drop=["name", "y"])) == ROWS


def test_a_name_with_brackets_that_exists_is_no_pattern(tmp_path):
    FRAME.to_parquet(tmp_path / "a[1].parquet")
    assert len(cr.open_source(tmp_path / "a[1].parquet", drop=["name", "y"])) == ROWS


def test_a_file_that_changes_is_noticed_where_it_is_read(tmp_path):
    write(tmp_path, [20])
    source = cr.open_source(tmp_path, drop=["name", "y"])
    watch, second = Watch(source), tmp_path / "month=00" / "001.parquet"
    watch.look(0, ROWS)
    FRAME[20:].assign(p=0.0).to_parquet(second)
    watch.look(0, 20)  # not of these rows
    with pytest.raises(cr.errors.FileFormatError, match="changed while it was read"):
        watch.look(15, 25)
    second.unlink()
    with pytest.raises(cr.errors.FileFormatError, match=r"001\.parquet: cannot be read"):
        watch.compare()


def test_a_run_over_files_is_that_over_one_table(tmp_path):
    write(tmp_path / "many", [9, 9, 25])
    FRAME.to_parquet(tmp_path / "one.parquet")
    clf = cr.Classifier(torch.nn.Linear(2, 3).double().eval(), space=cr.Space(columns=["q", "p"]))
    for name, data in (("a", tmp_path / "many"), ("b", tmp_path / "one.parquet")):
        source = cr.open_source(data, id_column="name", label="y")
        cr.score(clf, source, tmp_path / name, gamma=1.0, chunk_size=8, shard_size=16)
    a, b = (pd.read_parquet(tmp_path / name) for name in "ab")
    pd.testing.assert_frame_equal(a, b)
    assert a["label"].tolist() == FRAME["y"].tolist()


def test_files_of_a_folder_that_are_only_touched_are_the_same(tmp_path, monkeypatch):
    write(tmp_path, [9, 20])
    source = cr.open_source(tmp_path, drop=["name"])
    watch = Watch(source)
    for path in tmp_path.rglob("*.parquet"):
        path.touch()
    watch.look(0, ROWS)
    assert source.fingerprint() == watch.digest
    monkeypatch.setattr(file_set, "READ_AGAIN", 10)  # as if they were too many bytes
    before = source.fingerprint()
    next(tmp_path.rglob("*.parquet")).touch()
    assert source.fingerprint() != before


def test_a_change_of_bytes_that_no_time_tells_is_found(tmp_path):
    write(tmp_path, [9])
    source = cr.open_source(tmp_path, drop=["name"])
    watch, path = Watch(source), next(tmp_path.rglob("*.parquet"))
    times, content = path.stat(), bytearray(path.read_bytes())
    content[200] ^= 1
    path.write_bytes(content)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    with pytest.raises(cr.errors.FileFormatError, match="changed while it was read"):
        watch.compare()


def test_each_file_is_opened_once(tmp_path, monkeypatch):
    write(tmp_path, [9, 20])
    opened, whole = [], table_files.TableFile.__init__
    monkeypatch.setattr(
        table_files.TableFile, "__init__", lambda self, p: opened.append(p) or whole(self, p)
    )
    cr.open_source(tmp_path, drop=["name"])
    assert len(opened) == 3


def test_what_is_read_is_known_by_file_and_by_folder(tmp_path):
    write(tmp_path / "in", [9, 20])
    (tmp_path / "link").symlink_to(tmp_path / "in")
    inside = tmp_path / "in" / "month=00"
    for name in ("in", "in/**/*.parquet", "link"):
        source = cr.open_source(tmp_path / name, drop=["name"])
        for path in (tmp_path, tmp_path / "in", tmp_path / "link", inside, inside / "001.parquet"):
            assert source.reads(path)
        for path in (tmp_path / "in" / "other", inside / "001.parquet.parts", tmp_path / "i"):
            assert not source.reads(path)
