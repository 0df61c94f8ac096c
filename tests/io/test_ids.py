"""Ids are of the same type in every kind of table."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import credibly as cr


def table(path, ids):
    frame = pd.DataFrame({"id": ids, "a": np.arange(float(len(ids)))})
    if path.suffix == ".parquet":
        frame.to_parquet(path)
    else:
        frame.to_csv(path, index=False, sep="\t" if path.suffix == ".tsv" else ",")
    return path


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".parquet"])
def test_whole_numbers_are_numbers(tmp_path, suffix):
    ids = [7, 0, -3, 10**17 + 1]
    source = cr.open_source(table(tmp_path / f"x{suffix}", ids), id_column="id")
    assert source.id_type == "int64"
    assert source.read(0, 9)[0] == ids
    assert source.read(2, 3)[0] == ids[2:3]


@pytest.mark.parametrize("odd", ["007", "-0", "+1", "1.0", " 1", "1e3", "x", None, "9" * 19])
def test_one_that_is_written_in_another_way_keeps_all_as_text(tmp_path, odd):
    path = table(tmp_path / "x.csv", ["1", "2", odd])
    source = cr.open_source(path, id_column="id")
    assert source.id_type == "string"
    assert source.read(0, 3)[0] == ["1", "2", odd]
    assert cr.open_source(path, id_column="id", limit=2).read(0, 3)[0] == [1, 2]


def test_a_late_word_among_many_numbers_counts(tmp_path):
    ids = [str(k) for k in range(200_000)]
    path = table(tmp_path / "x.csv", [*ids, "last"])
    assert cr.open_source(path, id_column="id").read(199_999, 200_001)[0] == ["199999", "last"]


def test_scores_of_both_kinds_of_table_can_be_joined(tmp_path):
    found = {}
    for suffix in (".csv", ".parquet"):
        source = cr.open_source(table(tmp_path / f"x{suffix}", [12, 5, 9]), id_column="id")
        out = tmp_path / f"out{suffix}.parquet"
        cr.score(cr.Classifier(lambda x: x @ x.new_tensor([[1.0, -1.0]])), source, out, gamma=1.0)
        found[suffix] = pd.read_parquet(out)
    joined = found[".csv"].merge(found[".parquet"], on="id")
    assert len(joined) == 3
    assert found[".csv"]["id"].dtype == np.int64


def typed(path, **columns):
    arrays = {"a": pa.array([1.0, 2.0]), **columns}
    pq.write_table(pa.table(arrays), path)
    return path


@pytest.mark.parametrize("role", ["id_column", "label"])
def test_numbers_of_64_bits_without_a_sign_are_text(tmp_path, role):
    large = [5, 2**63 + 7]
    path = typed(tmp_path / "x.parquet", u=pa.array(large, pa.uint64()))
    source, out = cr.open_source(path, columns=["a"], **{role: "u"}), tmp_path / "out.parquet"
    cr.score(cr.Classifier(lambda x: x @ x.new_tensor([[1.0, -1.0]])), source, out, gamma=1.0)
    column = "id" if role == "id_column" else "label"
    assert pd.read_parquet(out)[column].tolist() == [str(number) for number in large]


def test_labels_of_64_bits_without_a_sign_are_text_in_arrays(tmp_path):
    np.savez(tmp_path / "x.npz", x=np.ones((2, 3)), y=np.array([5, 2**63 + 7], np.uint64))
    source = cr.open_source(tmp_path / "x.npz", label="y")
    assert source.carried_types == {"label": "string"}
    assert source.carried(0, 2) == {"label": ["5", str(2**63 + 7)]}


@pytest.mark.parametrize("role", ["id_column", "label"])
@pytest.mark.parametrize("kind", [pa.list_(pa.int64()), pa.struct({"k": pa.int64()})])
def test_a_column_without_one_value_per_row_is_refused_at_opening(tmp_path, role, kind):
    path = typed(tmp_path / "x.parquet", odd=pa.array([None, None], kind))
    words = rf"`{role}`: expected a column with one number or text per row, got 'odd'"
    with pytest.raises(cr.errors.InvalidArgumentError, match=words):
        cr.open_source(path, columns=["a"], **{role: "odd"})


@pytest.mark.parametrize("role", ["id_column", "label"])
def test_bytes_that_are_not_utf_8_are_written_in_hex(tmp_path, role):
    path = typed(tmp_path / "x.parquet", b=pa.array([b"\xff1", None], pa.binary()))
    source = cr.open_source(path, columns=["a"], **{role: "b"})
    ids, _ = source.read(0, 2)
    found = ids if role == "id_column" else source.carried(0, 2)["label"]
    assert found == ["\\xff1", None]


@pytest.mark.parametrize("kind", [pa.timestamp("us"), pa.decimal128(9, 2), pa.date32(), pa.null()])
def test_other_values_become_text(tmp_path, kind):
    path = typed(tmp_path / "x.parquet", t=pa.array([None, None], kind))
    assert cr.open_source(path, columns=["a"], id_column="t").read(0, 2)[0] == [None, None]
