"""A Judge is fitted from the marks of a person as from labels of the same rows."""

import pytest
import torch

import credibly as cr
from credibly.io.marks import Marked, write_marks


@pytest.fixture
def case(tmp_path):
    torch.manual_seed(0)
    net = torch.nn.Linear(4, 3)
    clf = cr.Classifier(net, classes=["a", "b", "c"])
    x = torch.randn(400, 4)
    predicted = net(x).argmax(1).tolist()
    marks, labels = {}, {}
    for row in range(0, 360, 2):
        wrong = row % 10 == 0
        mark = "does not belong" if row % 26 == 0 else "wrong" if wrong else "right"
        marks[row] = Marked(str(row), "abc"[predicted[row]], mark)
        if mark != "does not belong":
            labels[row] = (predicted[row] + 1) % 3 if wrong else predicted[row]
    path = tmp_path / "verdicts.parquet.marks.csv"
    write_marks(path, marks)
    return clf, x, path, labels


def test_marks_are_labels_of_the_marked_rows(case):
    clf, x, path, labels = case
    rows = torch.tensor(list(labels))
    expected = cr.Judge.fit(clf, x[rows], torch.tensor(list(labels.values())))
    new = torch.randn(50, 4)
    for data in (x, torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x), batch_size=37)):
        judge = cr.Judge.fit(clf, data, path)
        assert judge.facts.samples == len(labels)
        assert judge.facts.shares_right == expected.facts.shares_right
        for name in ("codes", "p_outlier", "p_wrong"):
            assert torch.equal(getattr(judge(new), name), getattr(expected(new), name)), name


def test_broken_rows_keep_their_numbers(case):
    clf, x, path, labels = case
    row = list(labels)[7]
    x[row, 0] = torch.nan
    with pytest.warns(cr.errors.CrediblyWarning, match=f"numbers {row}"):
        judge = cr.Judge.fit(clf, x, path)
    assert judge.facts.left_out == (row,)


def test_marks_of_other_data_are_refused(case):
    clf, x, path, _ = case
    with pytest.raises(cr.errors.InvalidArgumentError, match=r"row 35\d, marked, got 100"):
        cr.Judge.fit(clf, x[:100], path)
    write_marks(path, {3: Marked("3", "a", "does not belong")})
    with pytest.raises(cr.errors.InvalidArgumentError, match="right and wrong, got none"):
        cr.Judge.fit(clf, x, path)
