"""Ordinary inputs that are copies, answers that are probabilities, error rates by class."""

import warnings

import numpy as np
import pytest
import torch

import credibly as cr


def drawn(count, seed=0):
    return torch.randn(count, 4, generator=torch.Generator().manual_seed(seed))


def net(outputs=3, *more):
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(4, outputs), *more).eval()


def test_copies_of_one_input_are_refused():
    with pytest.raises(cr.errors.InvalidArgumentError, match="200 copies of one input"):
        cr.Judge.fit(net(), drawn(1).repeat(200, 1))


@pytest.mark.parametrize(("copies", "told"), [(100, "50 of 200"), (40, None)])
def test_many_copies_are_warned_of(copies, told):
    x = drawn(200)
    x[: copies // 2] = x[copies // 2 : copies]
    with warnings.catch_warnings():
        warnings.simplefilter("error", cr.errors.CrediblyWarning)
        if told is None:
            cr.Judge.fit(net(), x)
            return
    with pytest.warns(cr.errors.CrediblyWarning, match=f"{told} ordinary inputs are copies"):
        cr.Judge.fit(net(), x)


def test_different_inputs_with_one_answer_are_no_copies():
    """A network that saturates, or looks at one column only."""
    x = drawn(200)
    x[:, 0] = 1.0
    first = torch.nn.Linear(4, 3)
    torch.nn.init.zeros_(first.weight)
    first.weight.data[:, 0] = torch.tensor([1.0, 2.0, 3.0])
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*copies")
        cr.Judge.fit(first.eval(), x, gamma=1.0)


def test_one_output_between_0_and_1_is_hardly_a_logit():
    with pytest.warns(cr.errors.CrediblyWarning, match="one output lies in .* outputs='prob"):
        cr.Judge.fit(net(1, torch.nn.Sigmoid()), drawn(200))
    with warnings.catch_warnings():
        warnings.simplefilter("error", cr.errors.CrediblyWarning)
        cr.Judge.fit(net(1), drawn(200))
        clf = cr.Classifier(net(1, torch.nn.Sigmoid()), outputs="probabilities")
        cr.Judge.fit(clf, drawn(200))


def test_an_error_rate_by_class_that_no_class_allows_is_refused():
    x, clf = drawn(150), cr.Classifier(net())
    labels = clf.predict(x)
    with pytest.raises(cr.errors.InvalidArgumentError, match="at least 96 labelled"):
        cr.Judge.fit(clf, x, labels, error_rate=0.05, by_class=True)
    with pytest.raises(cr.errors.InvalidArgumentError, match="or leave by_class out"):
        cr.Judge.fit(clf, x, labels, by_class=True)


def test_classes_that_are_never_accepted_are_named():
    x, clf = drawn(600), cr.Classifier(net(), classes=["a", "b", "c"])
    labels = clf.predict(x)
    rare = int(labels.bincount().argmin())
    labels[labels == rare] = (rare + 1) % 3
    with pytest.warns(cr.errors.CrediblyWarning, match=rf"classes \[{rare}\].*are needed"):
        judge = cr.Judge.fit(clf, x, labels, error_rate=0.2, by_class=True)
    assert "with confidence 95%, for each class" in judge.summary()
    assert f"never accepted: {clf.class_name(rare)} " in judge.summary()


@pytest.mark.parametrize("shape", [(4,), (1, 6, 6)])
def test_the_ordinary_inputs_themselves_are_known_again(tmp_path, shape):
    x = torch.randn(300, *shape)
    clf = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(x[0].numel(), 3)).eval()
    judge = cr.Judge.fit(clf, x[:200])
    np.save(tmp_path / "x.npy", x[:200].numpy())
    np.save(tmp_path / "new.npy", x[180:].numpy())
    with pytest.warns(cr.errors.CrediblyWarning, match="are those that the Judge was fitted on"):
        cr.judge_file(judge, tmp_path / "x.npy", tmp_path / "v.parquet")
    with warnings.catch_warnings():
        warnings.simplefilter("error", cr.errors.CrediblyWarning)
        cr.judge_file(judge, tmp_path / "new.npy", tmp_path / "w.parquet")


def test_rows_of_a_table_of_few_values_are_not_taken_for_the_ordinary_ones(tmp_path):
    x = torch.randint(0, 2, (400, 4)).float()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*copies")
        judge = cr.Judge.fit(torch.nn.Linear(4, 3).eval(), x[:200])
        warnings.simplefilter("error", cr.errors.CrediblyWarning)
        np.save(tmp_path / "x.npy", x[200:].numpy())
        cr.judge_file(judge, tmp_path / "x.npy", tmp_path / "v.parquet")
