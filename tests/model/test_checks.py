"""Each check lets good models pass, and refuses bad ones with what to do about it."""

import numpy as np
import pytest
import torch
from torch import nn

from credibly.errors import CrediblyWarning, InvalidArgumentError, ModelError
from credibly.model import checks
from credibly.model.classifier import Classifier
from credibly.model.losses import CustomLoss
from credibly.model.variable import Inputs

X = torch.from_numpy(np.random.default_rng(0).normal(size=(3, 4)))
IMAGES = torch.from_numpy(np.random.default_rng(1).normal(size=(3, 2, 4, 4)))
SERIES = torch.from_numpy(np.random.default_rng(2).normal(size=(3, 5, 4)))


def _linear(seed=0, outputs=3):
    torch.manual_seed(seed)
    return nn.Linear(4, outputs).double()


def _export(count, **options):
    return torch.export.export(_linear(), (X[:1].repeat(count, 1),), **options)


class Recurrent(nn.Module):
    def __init__(self, **options):
        super().__init__()
        torch.manual_seed(0)
        self.lstm = nn.LSTM(4, 3, num_layers=2, **options).double()

    def forward(self, x):
        return self.lstm(x)[0][:, -1]


def check_model(clf, x):
    checks.check_model(Inputs(clf, x))


def _refusal(model, x=X, *, kind=ModelError, **options):
    with pytest.raises(kind) as caught:
        check_model(Classifier(model, **options), x)
    return caught.value


@pytest.mark.parametrize("loss", ["cross_entropy", "logistic", "hinge", "one_versus_rest_hinge"])
@pytest.mark.parametrize("outputs", [1, 2, 3])
def test_a_plain_network_is_accepted(loss, outputs):
    check_model(Classifier(_linear(outputs=outputs).eval(), loss=loss), X)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("count", [1, 3])
def test_a_plain_network_is_accepted_inside_modes_without_gradients(mode, count):
    net = _linear()
    with mode():
        check_model(Classifier(net), X[:count].clone())


@pytest.mark.parametrize(
    ("layer", "name"),
    [
        (nn.Dropout(0.5), "Dropout"),
        (nn.AlphaDropout(0.5), "AlphaDropout"),
        (nn.BatchNorm1d(3).double(), "BatchNorm1d"),
    ],
)
def test_layers_that_are_random_or_mix_samples_in_training_mode_are_refused(layer, name):
    net = nn.Sequential(_linear(), layer)
    error = _refusal(net.train())
    assert f"training mode: 1 ({name})" in str(error)
    assert "net.eval()" in error.remedy
    assert all(module.training for module in net.modules())
    check_model(Classifier(net.eval()), X)


def test_one_layer_left_in_training_mode_is_found():
    net = nn.Sequential(_linear(), nn.Sequential(nn.Dropout(0.5))).eval()
    net[1][0].train()
    assert "1.0 (Dropout)" in str(_refusal(net))


def test_training_mode_without_such_layers_is_accepted():
    net = nn.Sequential(_linear(), nn.LayerNorm(3).double()).train()
    check_model(Classifier(net), X)
    assert all(module.training for module in net.modules())


def test_a_recurrent_network_with_dropout_is_refused_in_training_mode_only():
    net = Recurrent(batch_first=True, dropout=0.5)
    error = _refusal(net.train(), SERIES)
    assert "lstm (LSTM)" in str(error)
    assert "net.eval()" in error.remedy
    check_model(Classifier(net.eval()), SERIES)
    check_model(Classifier(Recurrent(batch_first=True).train()), SERIES)


@pytest.mark.parametrize("first_row", [0.0, torch.nan])
def test_a_random_model_is_refused(first_row):
    error = _refusal(lambda x: torch.cat([0 * x[:1] + first_row, torch.randn_like(x[1:])]))
    assert "the model is random" in str(error)
    assert "Switch its randomness off" in error.remedy


def test_a_model_that_fixes_its_own_seed_is_accepted():
    seed = torch.Generator().manual_seed
    check_model(Classifier(lambda x: x + torch.randn(1, 4, generator=seed(0))), X)


def test_the_global_generator_is_not_advanced_by_a_random_model():
    torch.manual_seed(7)
    before = torch.get_rng_state()
    _refusal(lambda x: x + torch.randn_like(x))
    assert torch.equal(torch.get_rng_state(), before)
    torch.randn(1)
    assert not torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize(
    "couple",
    [
        lambda x: x - x.mean(dim=0),
        lambda x: x.softmax(dim=0),
        lambda x: x + x.flip(0),
        lambda x: x.cumsum(dim=0),
    ],
    ids=["mean", "softmax", "neighbour", "running sum"],
)
@pytest.mark.parametrize("count", [1, 2, 3])
def test_samples_coupled_through_the_batch_are_refused(couple, count):
    net = _linear()
    error = _refusal(lambda x: net(couple(x)), X[:count])
    assert "coupled through the batch" in str(error)
    assert "statistics over the batch" in error.remedy


@pytest.mark.parametrize(
    "x", [X[:1].repeat(3, 1), 0 * X, 0 * X[:1]], ids=["equal", "blank", "one blank"]
)
def test_coupled_samples_are_refused_though_the_first_ones_are_alike(x):
    net = _linear()
    assert "coupled" in str(_refusal(lambda batch: net(batch - batch.mean(dim=0)), x))


def test_batch_norm_without_running_statistics_is_refused_in_evaluation_mode():
    norm = nn.BatchNorm2d(2, track_running_stats=False).double()
    net = nn.Sequential(norm, nn.Flatten(), nn.Linear(32, 3).double()).eval()
    assert "coupled through the batch" in str(_refusal(net, IMAGES))


def test_a_recurrent_network_that_reads_the_samples_as_time_is_refused():
    error = _refusal(Recurrent(batch_first=False).eval(), SERIES)
    assert "coupled through the batch" in str(error)


def test_an_exported_program_with_a_dynamic_batch_is_accepted():
    program = _export(3, dynamic_shapes=({0: torch.export.Dim("batch", min=1)},))
    check_model(Classifier(program), X)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_an_exported_program_of_fixed_batch_size_is_refused(count):
    error = _refusal(_export(count), X)
    assert "failed on a batch of shape" in str(error)
    assert "dynamic batch dimension" in error.remedy


def test_a_model_that_fails_is_refused_with_its_own_complaint():
    error = _refusal(_linear(), X[:, :3])
    assert "failed on a batch of shape (2, 3)" in str(error)
    assert "RuntimeError" in str(error)
    assert "batches of any size" in error.remedy
    assert "unpack" not in error.remedy
    assert "torch.export" not in error.remedy
    assert isinstance(error.__cause__, RuntimeError)


def test_a_model_that_returns_a_tuple_is_told_so_and_not_that_it_failed():
    net = _linear()
    assert "returned a tuple" in str(_refusal(lambda x: (net(x), x)))


@pytest.mark.parametrize("bad_rows", [[0], [1], [2], [0, 1, 2]])
def test_a_row_that_the_model_turns_into_nan_is_left_to_its_own_status(bad_rows):
    net, x = _linear(), X.abs() + 1
    x[bad_rows, 0] = -1.0

    def model(batch):
        return net(batch) + batch[:, :1].sqrt()

    assert bool(torch.isnan(model(x)[bad_rows]).all())
    check_model(Classifier(model), x)


def test_samples_that_are_not_finite_are_not_shown_to_the_model():
    net, seen = _linear(), []

    def model(batch):
        seen.append(bool(torch.isfinite(batch).all()))
        return net(batch)

    x = X.clone()
    x[0, 1], x[1, 2] = torch.nan, torch.inf
    check_model(Classifier(model), x)
    assert seen
    assert all(seen)
    seen.clear()
    check_model(Classifier(model), torch.full_like(X, torch.nan))
    assert not seen


def test_one_name_a_class_is_accepted_and_other_numbers_are_refused():
    check_model(Classifier(_linear(), classes=list("abc")), X)
    check_model(Classifier(_linear(outputs=1), classes=["no", "yes"]), X)
    for names in (["a", "b"], ["a", "b", "c", "d"]):
        error = _refusal(_linear(), kind=InvalidArgumentError, classes=names)
        assert error.argument == "classes"
        assert "3 names" in error.expected
        assert error.got == f"{len(names)} names"
        assert "order of the model's outputs" in error.remedy


def test_a_loss_of_a_single_class_or_below_zero_is_refused():
    error = _refusal(_linear(), loss=CustomLoss(lambda z: z[:, :1].square()))
    assert "At least two classes" in error.remedy
    loss = CustomLoss(lambda z: z.square() - 0.25)
    error = _refusal(lambda x: 0 * x, kind=InvalidArgumentError, loss=loss)
    assert error.argument == "loss"
    assert "-0.25" in error.got


@pytest.mark.parametrize("outputs", [1, 3])
def test_probabilities_are_accepted_where_they_were_declared(outputs):
    net = _linear(outputs=outputs)
    squash = torch.sigmoid if outputs == 1 else lambda z: z.softmax(dim=1)
    check_model(Classifier(lambda x: squash(net(x)), outputs="probabilities"), X)


@pytest.mark.parametrize(
    "squash", [lambda z: z, torch.sigmoid, lambda z: 3 * z.softmax(dim=1) - 2 / 3]
)
def test_logits_declared_as_probabilities_are_refused(squash):
    net = _linear()
    error = _refusal(lambda x: squash(net(x)), outputs="probabilities")
    first = [round(value, 4) for value in squash(net(X))[0].tolist()]
    assert str(first) in str(error)
    assert "leave out outputs='probabilities'" in error.remedy


def test_probabilities_taken_as_logits_are_accepted_with_a_warning():
    net = _linear()
    with pytest.warns(CrediblyWarning, match="outputs='probabilities'"):
        check_model(Classifier(lambda x: net(x).softmax(dim=1)), X)


def test_many_outputs_of_a_sigmoid_are_hardly_logits():
    net = _linear(outputs=6)
    with pytest.warns(CrediblyWarning, match=r"lies in \[0, 1\]\. .* from a sigmoid"):
        check_model(Classifier(lambda x: net(x).sigmoid()), X)
    check_model(Classifier(lambda x: net(x).sigmoid()[:, :3]), X)  # too few to tell


@pytest.mark.parametrize("kind", [torch.log_softmax, lambda z, dim: 3 * z.softmax(dim) - 2 / 3])
def test_logits_that_are_no_probabilities_bring_no_warning(kind):
    net = _linear()
    check_model(Classifier(lambda x: kind(net(x), dim=1)), X)


def test_a_single_output_between_zero_and_one_may_be_a_logit():
    net = _linear(outputs=1)
    check_model(Classifier(lambda x: net(x).sigmoid()), X)


def test_parameters_made_in_inference_mode_are_refused():
    with torch.inference_mode():
        net = _linear()
    error = _refusal(net)
    assert "'weight' was created inside torch.inference_mode" in str(error)
    assert "outside of inference_mode" in error.remedy


def test_other_tensors_made_in_inference_mode_are_refused_too():
    net = nn.Module()
    with torch.inference_mode():
        weights = torch.ones(4, 3, dtype=torch.float64)
        net.register_buffer("weights", weights)
    net.forward = lambda x: x @ net.weights
    for model in (net, lambda x: x @ weights):
        assert "inference" in str(_refusal(model))


def test_a_model_that_cuts_the_gradient_is_refused():
    for trainable in (False, True):
        net = _linear().requires_grad_(trainable)
        error = _refusal(net, preprocess=torch.detach)
        assert "no gradient reaches the input" in str(error)
        assert ".detach()" in error.remedy


def test_a_model_that_returns_labels_is_refused():
    net = _linear()
    assert "int64" in str(_refusal(lambda x: net(x).argmax(dim=1)))


@pytest.mark.parametrize(
    "write", [lambda x: x.clamp_(0, 1), lambda x: x.sub_(0.5)], ids=["once", "again and again"]
)
def test_a_model_that_writes_into_its_input_is_refused(write):
    net, x = _linear(), X.clone()
    assert "in place" in str(_refusal(lambda batch: net(write(batch)), x))
    assert torch.equal(x, X)


def _convolution(channels, side):
    """A small network of images (n, channels, side, side)."""
    torch.manual_seed(0)
    size = 2 * (side - 2) ** 2
    return nn.Sequential(nn.Conv2d(channels, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(size, 3))


@pytest.mark.parametrize(
    ("channels", "shape", "code"),
    [
        (3, (5, 8, 8, 3), "x.permute(0, 3, 1, 2)"),
        (3, (5, 192), "x.reshape(-1, 3, 8, 8)"),
        (1, (5, 64), "x.reshape(-1, 1, 8, 8)"),
        (1, (5, 8, 8), "x[:, None]"),
        (3, (3, 8, 8), "x[None]"),
    ],
)
def test_images_in_another_shape_are_refused_with_the_reshaping_that_works(channels, shape, code):
    net, x = _convolution(channels, 8), torch.rand(shape)
    error = _refusal(net, x)
    assert f"It works on {code}: " in error.remedy
    namespace = {"x": x}
    reshaped = eval(code, namespace)  # noqa: S307  # the very words of the message
    check_model(Classifier(net), reshaped)


def test_flat_inputs_are_named_for_a_network_that_takes_them():
    net = nn.Linear(64, 3)
    assert "x.flatten(1)" in _refusal(net, torch.rand(5, 1, 8, 8)).remedy


def test_no_reshaping_is_named_where_none_works():
    assert "It works on" not in _refusal(_convolution(3, 8), torch.rand(5, 2, 9, 9)).remedy


BYTES = torch.randint(0, 256, (4, 3, 8, 8), generator=torch.Generator().manual_seed(0)).float()


@pytest.mark.parametrize("x", [BYTES, BYTES[:1], 255 * (BYTES > 99).float()])
def test_images_of_bytes_bring_a_warning(x):
    with pytest.warns(CrediblyWarning, match=r"from 0 to 25.*preprocess=lambda x: x / 255"):
        check_model(Classifier(_convolution(3, 8)), x)


@pytest.mark.parametrize(
    "x",
    [
        BYTES / 255,
        BYTES - 128,
        BYTES % 10,
        BYTES + 0.5,
        (BYTES > 99).float(),
        torch.ones(2, 3, 8, 8),
        torch.arange(96.0).reshape(2, 3, 4, 4).repeat(1, 1, 2, 2),
        300 + BYTES,
    ],
    ids=["scaled", "centred", "small", "halves", "binary", "ones", "counted", "larger"],
)
def test_other_images_bring_no_warning(x, recwarn):
    check_model(Classifier(_convolution(3, 8)), x)
    assert not recwarn.list


def test_no_warning_of_bytes_where_a_preprocess_rescales_or_inputs_are_no_images(recwarn):
    check_model(Classifier(_convolution(3, 8), preprocess=lambda x: x / 255), BYTES)
    check_model(Classifier(nn.Linear(192, 3)), BYTES.flatten(1))
    assert not recwarn.list


def test_an_instance_norm_that_keeps_statistics_is_refused_in_training_mode():
    norm = nn.InstanceNorm2d(2, track_running_stats=True)
    net = nn.Sequential(nn.Conv2d(1, 2, 3), norm, nn.Flatten(), nn.Linear(18, 3)).double().train()
    before = norm.running_mean.clone()
    assert "training mode: 1 (InstanceNorm2d)" in str(_refusal(net))
    assert torch.equal(norm.running_mean, before)
    check_model(Classifier(net.eval()), torch.rand(4, 1, 5, 5).double())
