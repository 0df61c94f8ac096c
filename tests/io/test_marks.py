"""Marks: written whole, read back, refused where they are not marks, and labels from them."""

import hypothesis
import pytest
from hypothesis import strategies as st

import credibly as cr
from credibly.io.marks import (
    MARKS,
    Marked,
    is_marks,
    labels_from_marks,
    marks_place,
    read_marks,
    write_marks,
)

TEXT = st.text(st.characters(codec="utf-8"), max_size=8)


@hypothesis.given(
    st.dictionaries(st.integers(0, 10**6), st.builds(Marked, TEXT, TEXT, st.sampled_from(MARKS)))
)
def test_what_is_written_is_read_back(tmp_path_factory, marks):
    path = tmp_path_factory.mktemp("marks") / "v.parquet.marks.csv"
    write_marks(path, marks)
    assert read_marks(path) == marks


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "got none"),
        ("row,mark\n1,right\n", "expected the columns row, id, predicted, mark"),
        ("row,id,predicted,mark\n1,1,cat,perhaps\n", r"line 2: .*got '1' and 'perhaps'"),
        ("row,id,predicted,mark\n-1,1,cat,right\n", r"line 2: .*'-1'"),
        ("row,id,predicted,mark\n1,1\n", "line 2"),
    ],
)
def test_other_files_are_refused_by_line(tmp_path, text, message):
    path = tmp_path / "x.marks.csv"
    path.write_text(text, "utf-8")
    with pytest.raises(cr.errors.FileFormatError, match=message):
        read_marks(path)


def test_missing_and_binary_files_are_named(tmp_path):
    path = tmp_path / "x.marks.csv"
    with pytest.raises(cr.errors.FileFormatError, match=r"x\.marks\.csv"):
        read_marks(path)
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(cr.errors.FileFormatError, match=r"x\.marks\.csv"):
        read_marks(path)


def test_labels_are_right_where_marked_so_and_another_class_where_wrong():
    marks = {
        3: Marked("a", "cat", "right"), 5: Marked("b", "cat", "wrong"),
        6: Marked("c", "dog", "wrong"), 9: Marked("d", "dog", "does not belong"),
    }  # fmt: skip
    assert labels_from_marks(marks, ("cat", "dog")) == {3: 0, 5: 1, 6: 0}
    assert labels_from_marks({1: Marked("a", "2", "right")}, None) == {1: 2}
    with pytest.raises(cr.errors.InvalidArgumentError, match="class 'cat' in row 3"):
        labels_from_marks(marks, ("dog", "cow"))


def test_the_file_is_beside_the_verdicts(tmp_path):
    place = marks_place(tmp_path / "verdicts.parquet")
    assert place == tmp_path / "verdicts.parquet.marks.csv"
    assert is_marks(place)
    assert is_marks(str(place))
    assert not is_marks("label")
    assert not is_marks(None)
