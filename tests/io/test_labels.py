"""Whole numbers as labels: counted from 0, or names of classes."""

import numpy as np
import pytest
import torch

import credibly as cr
from credibly.io.labels import numbered, read_labels


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
    with pytest.raises(cr.errors.InvalidArgumentError, match="classes from 0 to 1"):
        read(tmp_path, np.array(values), classes)


def test_numbers_that_may_be_either_are_names_with_a_warning(tmp_path):
    with pytest.warns(cr.errors.CrediblyWarning, match="from 1 to 2 were taken as names"):
        assert read(tmp_path, np.array([1, 2, 2]), ["1", "2", "3"]) == [0, 1, 1]


def test_the_first_of_many_arrays_are_named(tmp_path):
    names = [*(f"pixel{k}" for k in range(60)), "last"]
    np.savez(tmp_path / "d.npz", **{name: np.zeros(2, int) for name in names})
    with pytest.raises(cr.errors.InvalidArgumentError) as caught:
        read_labels(tmp_path / "d.npz", "labels", classes=2)
    said = str(caught.value)
    assert "one of 'pixel0', 'pixel1', " in said
    assert "and 53 more in d.npz, got 'labels'" in said
    assert f"--labels {tmp_path / 'd.npz'}:NAME" in said


def test_missing_labels_are_counted_and_the_first_is_named(tmp_path):
    with pytest.raises(
        cr.errors.FileFormatError, match=r"2 of 4 labels are missing, or not whole .* row 1"
    ):
        read(tmp_path, np.array([0.0, np.nan, 1.0, np.nan]), 2)
    (tmp_path / "t.csv").write_text("a,label\n1,0\n2,1\n3,\n")
    with pytest.raises(
        cr.errors.FileFormatError, match=r"1 of 3 labels is missing, first in row 2 .*out"
    ):
        read_labels(tmp_path / "t.csv", "label", classes=2)
    with pytest.raises(
        cr.errors.InvalidArgumentError, match=r"got -1 in .* Leave out rows without a la"
    ):
        read(tmp_path, np.array([0, -1, 1]), 2)


@pytest.mark.parametrize(
    ("labels", "classes", "expected"),
    [
        (np.array([1.0, 2.0]), ["1", "2", "3"], [0, 1]),
        ([0.0, 1.0], None, [0, 1]),
        (torch.tensor([2.0, 0.0]), ["a", "b", "c"], [2, 0]),
        (np.array(["b", "a"], object), ["a", "b"], [1, 0]),
    ],
)
@pytest.mark.filterwarnings("ignore:labels from 1 to 2")
def test_labels_of_every_type_become_numbers(labels, classes, expected):
    assert np.asarray(numbered(labels, classes)).tolist() == expected


@pytest.mark.parametrize("classes", [None, ["a", "b"]])
@pytest.mark.parametrize("labels", [[0.0, np.nan, np.nan], ["a", None, np.nan]])
def test_missing_labels_in_memory_are_counted(labels, classes):
    with pytest.raises(cr.errors.InvalidArgumentError, match="got 2 of 3 missing, first at 1"):
        numbered(np.array(labels, object) if "a" in labels else labels, classes)
