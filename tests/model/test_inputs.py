"""A batch of inputs is checked once, at the edge, with a message that says what to do."""

import numpy as np
import pytest
import torch
from torch import nn

import credibly as cr
from credibly.errors import InvalidArgumentError
from credibly.model.bind import bind
from credibly.model.classifier import Classifier
from credibly.types import finite_rows
from tests.reference import models

VALUES = np.random.default_rng(0).normal(size=(3, 2, 4))


@pytest.fixture
def classifier():
    return Classifier(nn.Linear(4, 3).double())


def as_inputs(clf, x, **options):
    return bind(clf, x, **options).start


def _refusal(classifier, x, **options):
    with pytest.raises(InvalidArgumentError) as caught:
        as_inputs(classifier, x, **options)
    return caught.value


def test_a_tensor_is_taken_as_it_is(classifier):
    x = torch.from_numpy(VALUES)
    found = as_inputs(classifier, x)
    assert torch.equal(found, x)
    assert found.data_ptr() == x.data_ptr()


def test_the_batch_that_is_given_back_is_detached(classifier):
    x = torch.from_numpy(VALUES).requires_grad_()
    assert not as_inputs(classifier, x).requires_grad
    assert x.requires_grad


@pytest.mark.parametrize(
    "shape", [(1, 1), (3, 4), (1, 4), (2, 3, 4), (2, 1, 3, 4), (1, 1, 1, 1, 1)]
)
def test_any_number_of_axes_after_the_first_is_accepted(classifier, shape):
    assert as_inputs(classifier, torch.zeros(shape, dtype=torch.float64)).shape == shape


@pytest.mark.parametrize("shape", [(), (4,), (1,), (0,)])
def test_a_batch_without_a_sample_axis_is_refused(classifier, shape):
    error = _refusal(classifier, torch.zeros(shape, dtype=torch.float64))
    assert error.argument == "x"
    assert f"shape {shape}" in error.got
    assert "x[None]" in error.remedy


@pytest.mark.parametrize("shape", [(0, 4), (0, 1, 28, 28), (3, 0)])
def test_an_empty_batch_is_refused(classifier, shape):
    error = _refusal(classifier, torch.zeros(shape, dtype=torch.float64))
    assert f"shape {shape}" in error.got
    assert "at least one sample" in error.expected


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int64, torch.bool, torch.complex128])
def test_inputs_that_are_not_floating_are_refused_with_the_way_to_convert(classifier, dtype):
    error = _refusal(classifier, torch.ones(2, 4).to(dtype))
    assert error.got == str(dtype)
    assert "x.float() / 255" in error.remedy


@pytest.mark.parametrize("dtype", [torch.float32])
def test_inputs_of_another_precision_are_refused_with_both_precisions(classifier, dtype):
    error = _refusal(classifier, torch.ones(2, 4, dtype=dtype))
    assert error.got == str(dtype)
    assert "torch.float64" in error.expected
    assert "x.to(torch.float64)" in error.remedy
    assert "x.astype('float64')" in error.remedy


@pytest.mark.parametrize("half", [torch.float16, torch.bfloat16])
def test_half_precision_is_refused_once_and_not_after_advice_to_convert_to_it(half):
    net = nn.Linear(4, 3).to(half)
    for x in (torch.ones(2, 4), torch.ones(2, 4, dtype=half)):
        error = _refusal(Classifier(net), x)
        assert str(half) in error.got
        assert "net.float() and x.float()" in error.remedy
    inside = Classifier(net, dtype=torch.float32, preprocess=lambda batch: batch.to(half))
    profile = cr.credibility(inside, torch.randn(2, 4), gamma=1.0)  # as the message says
    assert profile.credibility.dtype == torch.float32


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_function_takes_any_floating_precision(dtype):
    x = torch.ones(2, 4, dtype=dtype)
    assert as_inputs(Classifier(torch.tanh), x).dtype == dtype


def test_inputs_on_another_device_are_refused_with_both_devices(classifier):
    error = _refusal(classifier, torch.ones(2, 4, dtype=torch.float64, device="meta"))
    assert error.got == "meta"
    assert "cpu" in error.expected
    assert "x.to('cpu')" in error.remedy


def test_inputs_on_the_device_that_was_said_are_accepted():
    x = torch.ones(2, 4, device="meta")
    assert as_inputs(Classifier(torch.tanh, device="meta"), x).device.type == "meta"
    assert as_inputs(Classifier(torch.tanh), x).device.type == "meta"
    assert _refusal(Classifier(torch.tanh, device="meta"), torch.ones(2, 4)).got == "cpu"


def test_the_processor_is_one_device_with_or_without_a_number():
    classifier = Classifier(nn.Linear(4, 3), device="cpu:0")
    assert as_inputs(classifier, torch.ones(2, 4)).shape == (2, 4)


def test_a_numpy_array_becomes_a_tensor(classifier):
    found = as_inputs(classifier, VALUES)
    assert found.dtype == torch.float64
    np.testing.assert_array_equal(found.numpy(), VALUES)


@pytest.mark.parametrize(
    "array", [VALUES[:, ::-1], VALUES.T, VALUES[::2], np.asfortranarray(VALUES)]
)
def test_a_numpy_array_may_lie_in_memory_as_it_likes(classifier, array):
    np.testing.assert_array_equal(as_inputs(classifier, array).numpy(), array)


def test_a_numpy_array_may_be_read_only(classifier):
    array = VALUES.copy()
    array.flags.writeable = False
    np.testing.assert_array_equal(as_inputs(classifier, array).numpy(), array)


def test_a_numpy_array_is_checked_like_a_tensor(classifier):
    assert _refusal(classifier, VALUES.astype(np.float32)).got == "torch.float32"
    assert _refusal(classifier, VALUES.astype(np.uint8)).got == "torch.uint8"
    assert "(4,)" in _refusal(classifier, VALUES[0, 0]).got
    assert "(0, 2, 4)" in _refusal(classifier, VALUES[:0]).got


@pytest.mark.parametrize(
    "array",
    [
        np.array([["a", "b"]]),
        np.zeros((2, 4), dtype="datetime64[s]"),
        np.zeros((2, 4), dtype=[("height", "f8"), ("width", "f8")]),
    ],
    ids=["text", "dates", "records"],
)
def test_a_numpy_array_that_cannot_become_a_tensor_is_refused(classifier, array):
    error = _refusal(classifier, array)
    assert error.argument == "x"
    assert str(array.dtype) in error.got


def test_a_numpy_array_of_objects_is_refused(classifier):
    ragged = np.empty((2, 1), dtype=object)
    ragged[0, 0], ragged[1, 0] = [1.0], [1.0, 2.0]
    error = _refusal(classifier, ragged)
    assert "array of object" in error.got
    assert "Stack samples" in error.remedy


@pytest.mark.parametrize("wrong", [[[1.0, 2.0]], ((1.0,),), None, 3.0, "x"], ids=repr)
def test_anything_but_a_tensor_or_an_array_is_refused(classifier, wrong):
    error = _refusal(classifier, wrong)
    assert error.argument == "x"
    assert error.got == type(wrong).__name__
    assert "torch.stack" in error.remedy


def test_a_list_of_samples_is_refused_with_the_way_to_stack_them(classifier):
    error = _refusal(classifier, [torch.ones(4), torch.ones(4)])
    assert "2 floating tensors" in error.got
    assert "torch.stack(x)" in error.remedy


@pytest.mark.parametrize(
    "wrong", [nn.Linear(4, 3), torch.tanh, None], ids=["module", "function", "None"]
)
def test_a_bare_model_is_refused_with_the_way_to_wrap_it(wrong):
    error = _refusal(wrong, torch.ones(2, 4))
    assert error.argument == "clf"
    assert error.got == type(wrong).__name__
    assert "credibly.Classifier(net)" in error.remedy


@pytest.mark.parametrize("bad", [[1.0], torch.ones(4), torch.ones(2, 4), torch.ones(2, 4).int()])
def test_the_message_uses_the_name_of_the_argument(classifier, bad):
    error = _refusal(classifier, bad, name="x0")
    assert str(error).startswith("`x0`: ")
    assert "x." not in error.remedy.replace("x0.", "")


def test_rows_with_nan_or_infinity_are_told_apart():
    x = torch.zeros(5, 1, 2, 3)
    x[1, 0, 1, 2] = torch.nan
    x[2, 0, 0, 0] = torch.inf
    x[4, 0, 0, 1] = -torch.inf
    assert finite_rows(x).tolist() == [True, False, False, True, False]


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_a_model_without_numbers_says_load_the_weights(device):
    clf = Classifier(nn.Linear(4, 3, device="meta").eval())
    with pytest.raises(InvalidArgumentError, match=r"holds numbers.*load_state_dict"):
        as_inputs(clf, torch.zeros(2, 4, device=device))


def read_only(array):
    array = array.copy()
    array.flags.writeable = False
    return array


def swapped(array):
    """The same numbers in the other order of bytes, as FITS and many network formats have."""
    return array.astype(array.dtype.newbyteorder())


UNUSUAL = pytest.mark.parametrize("unusual", [read_only, swapped], ids=["read-only", "swapped"])


@UNUSUAL
def test_arrays_that_torch_would_not_take_are_the_same_numbers(unusual):
    clf, x = cr.Classifier(models.smooth_network()), models.inputs(4)
    array = unusual(x.numpy())
    expected = cr.credibility(clf, x, gamma=30.0)
    found = cr.credibility(clf, array, gamma=30.0)
    assert torch.equal(found.credibility, expected.credibility)
    assert cr.auto_gamma(clf, array) == cr.auto_gamma(clf, x)
    answer = unusual(expected.perturbed.numpy())
    made = cr.certify(clf, array, answer, gamma=30.0, probes=2)
    assert torch.equal(
        made.objective, cr.certify(clf, x, expected.perturbed, gamma=30.0, probes=2).objective
    )
    nested = cr.Classifier(lambda d: clf.net(d["x"]), dtype=torch.float64)
    assert torch.equal(
        cr.credibility(nested, {"x": array}, gamma=30.0).credence,
        cr.credibility(nested, {"x": x}, gamma=30.0).credence,
    )


@UNUSUAL
def test_settings_may_be_such_arrays_too(unusual):
    clf, x = cr.Classifier(models.smooth_network(classes=3)), models.inputs(4)
    weights = np.array([20.0, 30.0, 40.0])
    expected = cr.credibility(clf, x, weights=torch.from_numpy(weights))
    assert torch.equal(cr.credibility(clf, x, weights=unusual(weights)).risk, expected.risk)
    c = expected.credibility
    made = cr.certify(clf, x, expected.perturbed, weights=unusual(weights), probes=0,
                      credences=unusual(c.numpy()))  # fmt: skip
    assert bool(made.feasibility.eq(0).all())
    spread = cr.Space.standardised(unusual(x.numpy())).scale
    assert torch.equal(spread, cr.Space.standardised(x).scale)
    scale = np.linspace(1.0, 2.0, 8)
    space = cr.Space(scale=unusual(scale))
    assert torch.equal(space.scale_of("", (8,)), torch.from_numpy(scale))
    inputs = cr.study.InputSet(unusual(x.numpy()), unusual(np.arange(4)), "ordinary")
    assert torch.equal(inputs.load(), x)
    correct, shares = unusual(np.array([1, 0, 1, 1])), unusual(np.array([0.5, 1.0]))
    found = cr.metrics.accuracy_at_coverage(unusual(np.arange(4.0)), correct, shares)
    assert found.tolist() == [1.0, 0.75]


class TwoArguments(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = models.smooth_network(features=8, classes=3)

    def forward(self, left, right):
        return self.net(left) + self.net(right)


def test_a_model_of_several_arguments_is_told_to_be_unpacked():
    left, right = models.inputs(4), models.inputs(4, seed=1)
    both, net = {"left": left, "right": right}, TwoArguments().eval()
    space = cr.Space(vary="left")
    with pytest.raises(cr.errors.ModelError, match="unpack=True, space="):
        cr.credibility(cr.Classifier(net, space=space), both, gamma=1.0)
    by_name = cr.credibility(cr.Classifier(net, unpack=True, space=space), both, gamma=1.0)
    in_order = cr.Classifier(net, unpack=True, space=cr.Space(vary="0"))
    by_place = cr.credibility(in_order, (left, right), gamma=1.0)
    assert torch.equal(by_name.credibility, by_place.credibility)
    with pytest.raises(cr.errors.InvalidArgumentError, match="first of a tuple '0'"):
        cr.Space(vary=0)


def test_a_graph_is_sent_to_the_functions_for_graphs():
    class Data:
        edge_index = None

    with pytest.raises(cr.errors.InvalidArgumentError, match=r"graph_nodes\(clf, data\)"):
        cr.credibility(cr.Classifier(models.smooth_network()), Data(), gamma=1.0)
