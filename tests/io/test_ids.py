"""Ids are of the same type in every kind of table."""

import numpy as np
import pandas as pd
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
