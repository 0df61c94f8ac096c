"""Whole numbers as labels: counted from 0, or names of classes."""

import numpy as np
import pytest

import credibly as cr
from credibly.data.labels import read_labels


def read(folder, values, classes):
    np.save(folder / "y.npy", values)
    return read_labels(folder / "y.npy", None, classes=classes).tolist()


@pytest.mark.parametrize(
    ("values", "classes", "expected"),
    [
        ([1, 2, 2], ["1", "2"], [0, 1, 1]),
        ([-1, 1], ["-1", "1"], [0, 1]),
        ([3.0, 7.0, 7.0], ["7.0", "3.0"], [1, 0, 0]),
        ([0, 1, 2], ["1", "2", "3"], [0, 1, 2]),  # 0 is no name: they are counted
        ([0, 1, 1], ["0", "1"], [0, 1, 1]),
        ([0, 1, 1], ["no", "yes"], [0, 1, 1]),
        ([0, 2], 3, [0, 2]),
        (["2", "0", "1"], ["2", "1", "0"], [0, 2, 1]),  # words are names
    ],
)
def test_numbers_count_the_classes_unless_only_names_fit(tmp_path, values, classes, expected):
    assert read(tmp_path, np.array(values), classes) == expected


@pytest.mark.parametrize(("values", "classes"), [([1, 4], ["1", "2"]), ([5, 5], ["no", "yes"])])
def test_numbers_that_are_neither_are_refused(tmp_path, values, classes):
    with pytest.raises(cr.InvalidArgumentError, match="classes from 0 to 1"):
        read(tmp_path, np.array(values), classes)


def test_numbers_that_may_be_either_are_counted_with_a_warning(tmp_path):
    with pytest.warns(cr.CrediblyWarning, match="from 1 to 2 were taken as counted from 0"):
        assert read(tmp_path, np.array([1, 2, 2]), ["1", "2", "3"]) == [1, 2, 2]


def test_of_many_columns_the_likely_ones_are_named_first(tmp_path):
    names = [*(f"pixel{k}" for k in range(60)), "TrueClass", "weight", "y", "last"]
    np.savez(tmp_path / "d.npz", **{name: np.zeros(2, int) for name in names})
    with pytest.raises(cr.InvalidArgumentError) as caught:
        read_labels(tmp_path / "d.npz", "labels", classes=2)
    said = str(caught.value)
    assert "one of TrueClass, y, last, pixel0, pixel1, " in said
    assert "and 56 more in d.npz, got 'labels'" in said
    assert f"--labels {tmp_path / 'd.npz'}:NAME" in said
