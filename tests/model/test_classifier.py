"""A trained model of any kind, seen as one callable."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from scipy.special import logsumexp
from torch import nn

from credibly.errors import InvalidArgumentError, ModelError
from credibly.model.classifier import Classifier
from credibly.model.losses import CrossEntropy, CustomLoss, Hinge


def _net(features=4, outputs=3, seed=0):
    torch.manual_seed(seed)
    net = nn.Sequential(nn.Linear(features, 6), nn.Tanh(), nn.Linear(6, outputs))
    return net.double().eval()


def _batch(*shape, seed=1):
    return torch.from_numpy(np.random.default_rng(seed).normal(size=shape))


def _cross_entropy_by_loops(logits):
    rows = logits.detach().numpy()
    return np.array([[logsumexp(row) - value for value in row] for row in rows])


@pytest.fixture(scope="module")
def program():
    """The network of `_net()`, exported for batches of any size."""
    batch = torch.export.Dim("batch", min=1)
    return torch.export.export(_net(), (_batch(3, 4),), dynamic_shapes=({0: batch},))


def test_a_module_is_called_as_it_is():
    net, x = _net(), _batch(5, 4)
    classifier = Classifier(net)
    assert classifier.net is net
    assert torch.equal(classifier.logits(x), net(x))
    expected = _cross_entropy_by_loops(net(x))
    np.testing.assert_allclose(classifier.losses(x).detach().numpy(), expected, rtol=1e-12)


def test_a_plain_function_is_a_model_too():
    weights, x = _batch(4, 3), _batch(5, 4)
    classifier = Classifier(lambda batch: batch @ weights)
    expected = _cross_entropy_by_loops(x @ weights)
    np.testing.assert_allclose(classifier.losses(x).numpy(), expected, rtol=1e-12)


@pytest.mark.parametrize("count", [1, 2, 7])
def test_an_exported_program_takes_batches_of_any_size(program, count):
    x = _batch(count, 4)
    found = Classifier(program).losses(x)
    torch.testing.assert_close(found, Classifier(_net()).losses(x), rtol=1e-12, atol=1e-14)


def test_an_exported_program_lets_gradients_through(program):
    x, twin = _batch(5, 4).requires_grad_(), _batch(5, 4).requires_grad_()
    Classifier(program).losses(x)[:, 1].sum().backward()
    Classifier(_net()).losses(twin)[:, 1].sum().backward()
    torch.testing.assert_close(x.grad, twin.grad, rtol=1e-12, atol=1e-14)


def test_an_exported_program_tells_its_precision(program):
    classifier = Classifier(program)
    assert (classifier.device, classifier.dtype) == (torch.device("cpu"), torch.float64)


def test_preprocess_comes_before_the_net():
    net, x = _net(), _batch(5, 1, 2, 2)
    classifier = Classifier(net, preprocess=lambda batch: (batch.flatten(1) - 0.5) / 0.25)
    assert torch.equal(classifier.logits(x), net((x.flatten(1) - 0.5) / 0.25))


def test_gradients_are_taken_before_preprocess():
    net, x = _net(), _batch(5, 1, 2, 2).requires_grad_()
    inside = ((x.detach().flatten(1) - 0.5) / 0.25).requires_grad_()
    classifier = Classifier(net, preprocess=lambda batch: (batch.flatten(1) - 0.5) / 0.25)
    classifier.losses(x)[:, 0].sum().backward()
    Classifier(net).losses(inside)[:, 0].sum().backward()
    torch.testing.assert_close(x.grad.flatten(1), inside.grad / 0.25, rtol=1e-12, atol=1e-14)


def test_class_names_are_kept_in_order():
    classifier = Classifier(_net(), classes=["cat", "dog", "fox"])
    assert classifier.classes == ("cat", "dog", "fox")
    assert [classifier.class_name(index) for index in range(3)] == ["cat", "dog", "fox"]


def test_classes_without_names_are_numbered():
    classifier = Classifier(_net())
    assert classifier.classes is None
    assert classifier.class_name(2) == "2"


def test_probabilities_give_the_losses_of_the_logits_behind_them():
    net, x = _net(), _batch(6, 4)
    classifier = Classifier(lambda batch: net(batch).softmax(dim=1), outputs="probabilities")
    shift = classifier.logits(x) - net(x)
    torch.testing.assert_close(shift, shift[:, :1].expand(-1, 3), rtol=0, atol=1e-12)
    torch.testing.assert_close(
        classifier.losses(x), Classifier(net).losses(x), rtol=1e-12, atol=1e-12
    )


def test_the_probability_of_a_binary_head_gives_back_its_logit():
    net, x = _net(outputs=1), _batch(6, 4)
    classifier = Classifier(lambda batch: net(batch).sigmoid(), outputs="probabilities")
    torch.testing.assert_close(classifier.logits(x), net(x), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(("row", "sure"), [([0.0, 1.0, 0.0], 1), ([1.0], 1), ([0.0], 0)])
def test_probabilities_of_zero_and_one_keep_losses_and_gradients_finite(row, sure):
    x = torch.tensor([row], dtype=torch.float64, requires_grad=True)
    losses = Classifier(lambda batch: batch, outputs="probabilities").losses(x)
    losses.sum().backward()
    assert bool(torch.isfinite(losses).all())
    assert bool(torch.isfinite(x.grad).all())
    assert losses[0, sure].item() == pytest.approx(0, abs=1e-12)
    assert losses.max().item() > 100


@pytest.mark.parametrize("loss", ["cross_entropy", "logistic", "hinge", "one_versus_rest_hinge"])
def test_a_single_logit_may_come_with_an_axis_or_without(loss):
    net, x = _net(outputs=1), _batch(6, 4)
    flat = Classifier(lambda batch: net(batch).squeeze(1), loss=loss)
    column = Classifier(net, loss=loss)
    assert flat.logits(x).shape == column.logits(x).shape == (6, 1)
    assert column.losses(x).shape == (6, 2)
    assert torch.equal(flat.losses(x), column.losses(x))


def test_a_single_logit_means_two_classes_of_opposite_sign():
    logit = np.random.default_rng(2).normal(size=6)
    losses = Classifier(lambda batch: batch).losses(torch.from_numpy(logit).unsqueeze(1))
    expected = np.stack([np.logaddexp(0, logit), np.logaddexp(0, -logit)], axis=1)
    np.testing.assert_allclose(losses.numpy(), expected, rtol=1e-12)


def test_a_thousand_classes_are_a_thousand_losses():
    net, x = _net(outputs=1000), _batch(2, 4)
    losses = Classifier(net).losses(x)
    assert losses.shape == (2, 1000)
    np.testing.assert_allclose(losses.detach(), _cross_entropy_by_loops(net(x)), rtol=1e-11)


def test_the_loss_may_be_named_or_brought():
    z = _batch(4, 3)
    by_name = Classifier(_net(), loss="hinge").losses_of(z)
    assert torch.equal(by_name, Classifier(_net(), loss=Hinge()).losses_of(z))
    assert Classifier(_net()).loss == CrossEntropy()


@pytest.mark.parametrize(
    ("returned", "kind", "hint"),
    [
        (lambda z: (z, z), "tuple", "found[0]"),
        (lambda z: SimpleNamespace(logits=z), "SimpleNamespace", "found.logits"),
        (lambda z: z.detach().numpy(), "ndarray", "must stay in torch"),
        (lambda _: None, "NoneType", "Pick the logits out"),
    ],
)
def test_outputs_that_are_not_a_tensor_are_refused_with_a_way_out(returned, kind, hint):
    net = _net()
    with pytest.raises(ModelError) as caught:
        Classifier(lambda x: returned(net(x))).logits(_batch(2, 4))
    assert f"returned a {kind}" in str(caught.value)
    assert hint in str(caught.value)


@pytest.mark.parametrize("shape", [(), (5,), (5, 3), (4, 3, 2), (4, 3, 1), (1, 4, 3)])
def test_outputs_of_the_wrong_shape_are_refused_with_the_shape(shape):
    with pytest.raises(ModelError) as caught:
        Classifier(lambda _: torch.zeros(shape)).logits(_batch(4, 4))
    assert f"returned shape {shape} for a batch of 4 samples" in str(caught.value)
    assert "one row per sample" in str(caught.value)


@pytest.mark.parametrize(
    "function", [lambda z: z.sum(dim=1), torch.mean, lambda z: z[:1], lambda z: z.unsqueeze(2)]
)
def test_a_loss_of_the_wrong_shape_is_refused(function):
    classifier = Classifier(_net(), loss=CustomLoss(function))
    with pytest.raises(InvalidArgumentError, match="without averaging") as caught:
        classifier.losses(_batch(4, 4))
    assert caught.value.argument == "loss"


def test_a_loss_that_is_not_a_tensor_is_refused():
    classifier = Classifier(_net(), loss=CustomLoss(lambda z: z.tolist()))
    with pytest.raises(InvalidArgumentError) as caught:
        classifier.losses(_batch(4, 4))
    assert caught.value.argument == "loss"
    assert "list" in caught.value.got


@pytest.mark.parametrize("wrong", [None, 3, {"weight": 1.0}, torch.zeros(2)], ids=repr)
def test_a_net_that_cannot_be_called_is_refused(wrong):
    with pytest.raises(InvalidArgumentError, match=r"nn\.Module, a function") as caught:
        Classifier(wrong)
    assert caught.value.argument == "net"
    assert caught.value.got == type(wrong).__name__


def test_a_preprocess_that_cannot_be_called_is_refused():
    with pytest.raises(InvalidArgumentError, match="got tuple") as caught:
        Classifier(_net(), preprocess=(0.5, 0.25))
    assert caught.value.argument == "preprocess"


@pytest.mark.parametrize(("wrong", "kind"), [("logits", "str"), (0, "int")])
def test_a_pick_that_cannot_be_called_is_refused(wrong, kind):
    with pytest.raises(InvalidArgumentError, match=rf"^`pick`.*got {kind}.*found\.logits"):
        Classifier(_net(), pick=wrong)


@pytest.mark.parametrize("wrong", ["probability", "log_probabilities", "", None], ids=repr)
def test_outputs_are_logits_or_probabilities_and_nothing_else(wrong):
    with pytest.raises(InvalidArgumentError, match="'logits' or 'probabilities'") as caught:
        Classifier(_net(), outputs=wrong)
    assert caught.value.argument == "outputs"
    assert caught.value.got == repr(wrong)


@pytest.mark.parametrize("precision", [torch.float32, torch.float64, torch.bfloat16])
def test_device_and_precision_are_those_of_the_parameters(precision):
    classifier = Classifier(_net().to(precision))
    assert (classifier.device, classifier.dtype) == (torch.device("cpu"), precision)
    assert Classifier(_net().to("meta")).device == torch.device("meta")


def test_a_net_without_parameters_is_known_by_its_floating_buffers():
    net = nn.Identity()
    net.register_buffer("steps", torch.zeros(1, dtype=torch.int64))
    assert Classifier(net).dtype is None
    net.register_buffer("mean", torch.zeros(1, dtype=torch.float64))
    assert (Classifier(net).device, Classifier(net).dtype) == (torch.device("cpu"), torch.float64)


def test_a_function_tells_neither_device_nor_precision():
    classifier = Classifier(torch.tanh)
    assert (classifier.device, classifier.dtype) == (None, None)


def test_device_and_precision_that_were_said_are_kept():
    classifier = Classifier(torch.tanh, device="meta", dtype=torch.float16)
    assert (classifier.device, classifier.dtype) == (torch.device("meta"), torch.float16)
    classifier = Classifier(_net(), device="cpu:0", dtype=torch.float16)
    assert (classifier.device, classifier.dtype) == (torch.device("cpu:0"), torch.float16)


def test_a_device_other_than_that_of_the_model_is_refused():
    with pytest.raises(InvalidArgumentError, match=r"^`device`: expected cpu.*got meta") as caught:
        Classifier(_net(), device="meta")
    assert "net.to('meta')" in caught.value.remedy


@pytest.mark.parametrize(("name", "value"), [("device", "gpu"), ("dtype", "float32")])
def test_what_is_no_device_or_precision_is_refused(name, value):
    with pytest.raises(InvalidArgumentError, match=f"^`{name}`.*got '{value}'.*Leave it out"):
        Classifier(_net(), **{name: value})


def test_the_text_of_a_classifier_names_model_loss_and_outputs():
    def my_model(x):
        return x

    text = repr(Classifier(my_model, loss="hinge", outputs="probabilities", device="cpu"))
    assert all(part in text for part in ("my_model", "Hinge", "'probabilities'", "cpu"))
    assert "Sequential" in repr(Classifier(_net()))
