"""Whatever holds inputs and whatever classifies: one Judge says the same."""

import math
from collections import Counter

import numpy as np
import pytest
import scipy.sparse
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

import credibly as cr
from credibly.model.generators import _INNERMOST
from tests.reference import models

Verdict = cr.Verdict
KNOWN, NEW = models.inputs(150, seed=3), models.inputs(30, seed=4)


@pytest.fixture(scope="module")
def net():
    return models.smooth_network(classes=3)


@pytest.fixture(scope="module")
def labels(net):
    return net(KNOWN).argmax(1)


@pytest.fixture(scope="module")
def judge(net, labels):
    return cr.Judge.fit(net, KNOWN, labels)


class Pairs(Dataset):
    """A dataset of torch by place."""

    def __init__(self, x, y):
        self.x, self.y = x, y

    def __len__(self):
        return len(self.x)

    def __getitem__(self, k):
        return self.x[k], int(self.y[k])


class Streamed(IterableDataset):
    """A dataset of torch without places and without a length."""

    def __init__(self, x):
        self.x = x

    def __iter__(self):
        return iter(self.x)


class Table:
    """What a dataset of Hugging Face is: columns by name, and tensors only on demand."""

    def __init__(self, columns, *, tensors=False):
        self.columns_, self.tensors = columns, tensors

    @property
    def column_names(self):
        return list(self.columns_)

    def with_format(self, kind):
        assert kind == "torch"
        return Table(self.columns_, tensors=True)

    def __len__(self):
        return len(next(iter(self.columns_.values())))

    def __getitem__(self, k):
        convert = torch.as_tensor if self.tensors else lambda v: v.tolist()
        return {name: convert(values[k]) for name, values in self.columns_.items()}


def forms(x, y, folder):
    """The same inputs in many forms; whether they bring labels; whether they are one batch."""
    path = folder / "x.npy"
    np.save(path, x.numpy())
    return {
        "array": (x.numpy, None, True),
        "backwards array": (lambda: x.flip(0).numpy()[::-1], None, True),
        "tensor dataset": (lambda: TensorDataset(x), None, False),
        "loader of inputs": (lambda: DataLoader(TensorDataset(x), batch_size=32), None, False),
        "loader of pairs": (lambda: DataLoader(TensorDataset(x, y), batch_size=7), True, False),
        "dataset of pairs": (lambda: Pairs(x, y), True, False),
        "iterable dataset": (lambda: Streamed(x), None, False),
        "columns": (lambda: Table({"x": x, "label": y}), True, False),
        "named columns": (lambda: Table({"x": x, "truth": y}), "truth", False),
        "generator": (lambda: (part for part in x.split(40)), None, False),
        "iterator of pairs": (lambda: iter(list(zip(x.split(40), y.split(40), strict=True))), True,
                              False),
        "path": (lambda: path, None, False),
        "text of a path": (lambda: str(path), None, False),
        "bound": (lambda: cr.bind(cr.Classifier(models.smooth_network(classes=3)), x), None, True),
    }  # fmt: skip


NAMES = [
    "array", "backwards array", "tensor dataset", "loader of inputs", "loader of pairs",
    "dataset of pairs", "iterable dataset", "columns", "named columns", "generator",
    "iterator of pairs", "path", "text of a path", "bound",
]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_inputs_of_every_form_are_the_same(name, net, labels, judge, tmp_path):
    make, beside, single = forms(KNOWN, labels, tmp_path)[name]
    again = cr.Judge.fit(net, make(), beside if beside is not None else labels)
    expected = judge(NEW)
    found = again(NEW)
    torch.testing.assert_close(found.trust, expected.trust, atol=1e-6, rtol=1e-6)
    torch.testing.assert_close(found.p_wrong, expected.p_wrong, atol=1e-6, rtol=1e-6)
    assert found.verdicts == expected.verdicts
    whole = judge(KNOWN)
    if name == "named columns":
        return  # when judging, only columns of the usual names are known to be labels
    streamed = judge(make())
    # the threshold is the trust of one of these inputs, which rounding may put on either side
    clear = (whole.trust - judge.thresholds[whole.predicted]).abs() > 1e-9
    assert int((~clear).sum()) <= 1
    assert torch.equal(streamed.codes[clear], whole.codes[clear])
    torch.testing.assert_close(streamed.trust, whole.trust, atol=1e-6, rtol=1e-6)
    assert (streamed.inputs is not None) == single  # a profile can be solved when it is asked for


def test_progress_is_that_of_the_inputs(judge, tmp_path):
    np.save(tmp_path / "x.npy", KNOWN.numpy())
    for data in (KNOWN, DataLoader(TensorDataset(KNOWN), batch_size=40), TensorDataset(KNOWN)):
        told = []
        judge(data, progress=told.append)
        assert told[-1] == 1.0
        assert told == sorted(told)
    told = []
    judge(DataLoader(TensorDataset(KNOWN), batch_size=30), progress=told.append)
    assert told == pytest.approx([0.2, 0.4, 0.6, 0.8, 1.0])
    told = []
    judge(tmp_path / "x.npy", progress=told.append)  # the letters of a path are not inputs
    assert told == []


@pytest.mark.parametrize("empty", [iter([]), DataLoader(TensorDataset(KNOWN[:0])), iter(())])
def test_nothing_to_look_at_is_refused(net, judge, empty):
    with pytest.raises(cr.errors.InvalidArgumentError, match="at least one batch"):
        judge(empty)
    with pytest.raises(cr.errors.InvalidArgumentError, match="at least one batch"):
        cr.Judge.fit(net, empty)


def counted(outputs):
    """A function that counts its calls."""
    seen = Counter()

    def function(x):
        seen["calls"] += 1
        return outputs(x)

    return function, seen


def test_too_few_are_refused_before_the_model_runs(net, labels):
    function, seen = counted(net)
    cases = [
        ({"ordinary": KNOWN[:98]}, r"`ordinary`.*at least 99.*0\.01.*98.*0\.0102 is possible"),
        ({"ordinary": KNOWN, "false_alarms": 0.001}, r"at least 999.*150"),
        ({"ordinary": KNOWN, "error_rate": 0.05}, r"`labels`.*at least 74.*none"),
        ({"ordinary": KNOWN[:100], "labels": labels[:100], "error_rate": 0.02},
         r"`labels`.*at least 188 labels.*100"),
    ]  # fmt: skip
    for given, words in cases:
        with pytest.raises(cr.errors.InvalidArgumentError, match=words):
            cr.Judge.fit(function, **given)
    for bad in ({"profile": "often"}, {"doubted": 1.5}, {"false_alarms": 0}, {"gamma": -1.0},
                {"error_rate": 5}, {"confidence": 1.0}, {"chunk_size": 0}):  # fmt: skip
        (name,) = bad
        with pytest.raises(cr.errors.InvalidArgumentError, match=f"`{name}`"):
            cr.Judge.fit(function, KNOWN, labels, **bad)
    with pytest.raises(cr.errors.InvalidArgumentError, match="`labels`"):
        cr.Judge.fit(function, KNOWN, labels[:149])
    with pytest.raises(cr.errors.InvalidArgumentError, match=r"inputs alone.*\(inputs, labels\)"):
        cr.Judge.fit(function, DataLoader(TensorDataset(KNOWN)), labels=True)
    assert seen["calls"] == 0
    cr.Judge.fit(function, KNOWN, labels)
    assert seen["calls"] > 0


def test_labels_and_layers_that_do_not_exist_are_refused(net, labels):
    with pytest.raises(cr.errors.InvalidArgumentError, match=r"classes from 0 to 2.*3"):
        cr.Judge.fit(net, KNOWN, labels + 1)
    with pytest.raises(cr.errors.InvalidArgumentError, match=r"`features`.*'head'"):
        cr.Judge.fit(net, KNOWN, features="head")
    judge = cr.Judge.fit(net, KNOWN, features="2")
    assert judge.examiner.hidden.name == "2"
    assert "features that enter layer '2'" in judge.summary()
    assert "features" not in cr.Judge.fit(net, KNOWN, features=None)(NEW).signals


@pytest.mark.filterwarnings("ignore:the model is right on:credibly.errors.CrediblyWarning")
@pytest.mark.parametrize("loader", [False, True])
def test_several_labels_per_input_are_refused_with_the_remedy(net, loader):
    several = (models.inputs(150, 3) > 0).double()
    for clf in (net, cr.Classifier(net, loss="logistic")):
        data = DataLoader(TensorDataset(KNOWN, several), batch_size=50) if loader else KNOWN
        with pytest.raises(
            cr.errors.InvalidArgumentError,
            match=r"\(150, 3\).*one Judge per label.*pick=lambda z: z\[:, k:k\+1\]",
        ):
            cr.Judge.fit(clf, data, True if loader else several)
    for k in range(3):  # the remedy works
        one = cr.Classifier(net, pick=lambda z, k=k: z[:, k : k + 1])
        judge = cr.Judge.fit(one, KNOWN, several[:, k].long())
        found = judge(NEW)
        assert found.predicted.tolist() == (net(NEW)[:, k] > 0).long().tolist()
        assert judge.facts.classes == 2


def test_another_range_is_an_alarm_that_names_the_value():
    net = nn.Sequential(nn.Flatten(), nn.Linear(36, 8), nn.Tanh(), nn.Linear(8, 3)).double().eval()
    images = torch.rand(220, 1, 6, 6, generator=models.generator(0), dtype=torch.float64)
    judge = cr.Judge.fit(net, images[:200])
    found = judge(255 * images[200:])
    assert {*found.verdicts} == {Verdict.OUTLIER}
    assert all(reason.startswith("outlier: its largest value, 2") for reason in found.reasons)
    assert all("lies outside 0.8933 to 0.9999" in reason for reason in found.reasons)
    assert Counter(judge(images[200:]).verdicts)[Verdict.OUTLIER] <= 2
    with pytest.raises(cr.errors.InvalidArgumentError, match="Resize"):
        judge(torch.rand(3, 1, 9, 4, dtype=torch.float64))


def test_other_precisions_are_read_in_that_of_the_model(judge):
    single = models.smooth_network(classes=3).float()
    fitted = cr.Judge.fit(single, KNOWN.numpy())
    for x in (NEW, NEW.numpy(), NEW.float(), NEW.float().numpy()):
        assert fitted(x).verdicts == fitted(NEW).verdicts
    assert fitted(NEW).predicted.tolist() == judge(NEW).predicted.tolist()


def test_inputs_far_beyond_floats_do_not_break_it(judge):
    new = NEW.clone()
    new[0], new[1], new[2, 3] = 1e300, -1e200, 1e18
    found = judge(new)
    assert not found.accepted[:3].any()
    assert math.isfinite(found.cost)
    assert found[3:].verdicts == judge(NEW[3:]).verdicts


class Failing(nn.Module):
    """A network that fails when it is told to."""

    def __init__(self, inner):
        super().__init__()
        self.inner, self.fails = inner, False

    def forward(self, x):
        if self.fails:
            raise RuntimeError("no more")
        return self.inner(x)


def test_a_judgement_that_fails_leaves_no_generator_kept(net):
    """Its traceback may live on, and the generator of the chunks with it."""
    failing = Failing(net).eval()
    judge = cr.Judge.fit(failing, KNOWN)
    failing.fails = True
    with pytest.raises(RuntimeError, match="no more") as caught:
        judge(NEW)
    assert _INNERMOST.get() is None
    assert caught.value.__traceback__ is not None


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda x: x[:, 0], r"pass x\[:, None\]"),
        (lambda x: x.flatten(1), r"pass x\.reshape\(-1, 1, 6, 6\)"),
        (lambda x: x.expand(-1, 3, 6, 6), "number of channels"),
        (lambda x: x[:, :, :, :5], "Resize them"),
        (lambda x: x[0], r"pass x\[None\]"),
    ],
)
def test_inputs_of_another_shape_are_told_how_to_be_passed(change, words):
    x = torch.rand(150, 1, 6, 6)
    net = torch.nn.Sequential(torch.nn.AdaptiveAvgPool2d(1), Summed()).eval()
    judge = cr.Judge.fit(net, x, features=None)
    with pytest.raises(cr.errors.InvalidArgumentError, match=words):
        judge(change(x))


class Summed(torch.nn.Module):
    """Takes inputs of any shape."""

    def forward(self, x):
        flat = x.reshape(len(x), -1).mean(1, keepdim=True)
        return torch.cat([5 * flat, -flat], 1)


def test_sparse_inputs_are_told_to_be_dense():
    x = torch.randn(150, 4)
    judge = cr.Judge.fit(torch.nn.Linear(4, 3), x)
    sparse = scipy.sparse.csr_matrix(x.numpy())
    for work in (judge, lambda given: cr.Judge.fit(torch.nn.Linear(4, 3), given)):
        with pytest.raises(cr.errors.InvalidArgumentError, match=r"sparse csr_matrix.*x\.toarray"):
            work(sparse)
