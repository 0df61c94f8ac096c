"""How `credibly inspect` describes the mode of a module."""

from torch import nn

import credibly as cr
from credibly.cli.inspect import _mode


def mode(net):
    return _mode(cr.Classifier(net), net)


def test_a_wrapper_in_training_mode_around_a_network_that_is_not_is_no_training():
    net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(), nn.Linear(4, 2)).eval()
    wrapper = nn.Sequential(net)  # itself in training mode, as every new module
    assert wrapper.training
    assert mode(net) == "evaluation"
    assert mode(wrapper).startswith("evaluation (some parts")
    assert mode(wrapper.train()) == "training"
