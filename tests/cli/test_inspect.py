"""What `credibly inspect` says in words: durations, and the mode of a module."""

import pytest
from torch import nn

import credibly as cr
from credibly.cli.inspect import _duration, _mode


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.0123, "0.012 s"),
        (2.14, "2.1 s"),
        (99.7, "100 s"),
        (103.0, "100 s"),
        (118.0, "120 s"),
        (150.0, "2.5 minutes"),
        (9000.0, "2.5 hours"),
        (864000.0, "10.0 days"),
    ],
)
def test_a_duration_has_no_powers_of_ten(seconds, words):
    assert _duration(seconds) == words


def test_a_wrapper_in_training_mode_around_a_network_that_is_not_is_no_training():
    net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(), nn.Linear(4, 2)).eval()
    wrapper = nn.Sequential(net)  # itself in training mode, as every new module
    assert wrapper.training
    assert _mode(cr.Classifier(net)) == "evaluation"
    assert _mode(cr.Classifier(wrapper)).startswith("evaluation (some parts")
    assert _mode(cr.Classifier(wrapper.train())) == "training"
