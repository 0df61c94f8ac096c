"""The sample that ships with the package is what it says it is."""

from importlib.resources import files

import pytest
import torch
from torch import nn

from credibly.data.sample import CLASSES, load_sample
from credibly.model.checks import check_model
from credibly.model.classifier import Classifier
from credibly.model.variable import Inputs


@pytest.fixture(scope="module")
def sample():
    return load_sample()


def test_a_thousand_grey_images_of_28_by_28_pixels(sample):
    assert sample.images.shape == (1000, 1, 28, 28)
    assert sample.images.dtype == torch.float32


def test_pixels_lie_between_zero_and_one_and_use_the_whole_range(sample):
    assert float(sample.images.min()) == 0.0
    assert float(sample.images.max()) == 1.0
    levels = sample.images * 255
    torch.testing.assert_close(levels, levels.round(), rtol=0, atol=1e-4)


def test_the_images_differ(sample):
    assert len(sample.images.flatten(1).unique(dim=0)) > 990


def test_labels_name_one_of_ten_classes_and_every_class_appears(sample):
    assert sample.labels.shape == (1000,)
    assert sample.labels.dtype == torch.int64
    assert sample.labels.unique().tolist() == list(range(10))
    assert int(sample.labels.bincount().min()) > 50


def test_the_ten_classes_have_ten_names(sample):
    assert sample.classes == CLASSES
    assert len(set(sample.classes)) == 10


def test_the_network_gives_ten_finite_logits(sample):
    logits = sample.net(sample.images[:8])
    assert logits.shape == (8, 10)
    assert bool(torch.isfinite(logits).all())


def test_the_network_is_in_evaluation_mode_and_frozen(sample):
    assert not any(module.training for module in sample.net.modules())
    assert not any(parameter.requires_grad for parameter in sample.net.parameters())
    assert all(bool(torch.isfinite(parameter).all()) for parameter in sample.net.parameters())


def test_the_norms_are_folded_into_the_convolutions(sample):
    assert not any(isinstance(module, nn.BatchNorm2d) for module in sample.net.modules())


def test_the_network_is_right_on_91_images_in_a_hundred(sample):
    with torch.no_grad():
        found = sample.net(sample.images).argmax(dim=1)
    assert float((found == sample.labels).float().mean()) >= 0.91


def test_the_accuracy_on_all_test_images_is_told(sample):
    assert isinstance(sample.test_accuracy, float)
    assert 0.91 <= sample.test_accuracy <= 0.97


def test_the_weights_take_little_room():
    weights = files("credibly.data") / "embedded" / "weights.safetensors"
    assert 0 < len(weights.read_bytes()) <= 1_200_000


def test_the_network_passes_the_checks_of_the_package(sample):
    check_model(Inputs(Classifier(sample.net, classes=sample.classes), sample.images[:2]))


def test_two_loads_are_equal_and_apart(sample):
    other = load_sample()
    with torch.no_grad():
        other.images.zero_()
        next(other.net.parameters()).zero_()
    again = load_sample()
    assert torch.equal(again.images, sample.images)
    pairs = zip(again.net.parameters(), sample.net.parameters(), strict=True)
    assert all(torch.equal(*pair) for pair in pairs)
