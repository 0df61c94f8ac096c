"""The nearest mode against a closed form and a loop over single samples."""

import pytest
import torch
from torch import nn
from torch.nn.functional import cosine_similarity

import credibly as cr
from credibly import baselines as b
from tests.reference import models

X = models.inputs(5)


def two_layers():
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(8, 6), nn.Tanh(), nn.Linear(6, 3)).double().eval()


def test_on_a_linear_model_of_two_classes_every_step_goes_along_their_difference():
    torch.manual_seed(0)
    net = nn.Linear(8, 2).double()
    ahead = (net.weight[0] - net.weight[1]).detach()
    signs = (net(X)[:, :1] > net(X)[:, 1:]).double() * 2 - 1
    way = 0.3 * (1 + 0.75 + 0.5 + 0.25) * 8**0.5  # of root mean square 1 in eight dimensions
    modes = X + way * signs * ahead / ahead.norm()
    found = b.NearestMode(step=0.3, steps=4)(cr.Classifier(net), X)
    torch.testing.assert_close(found, cosine_similarity(X, modes))


def test_on_a_network_it_is_what_a_loop_over_samples_finds():
    net = two_layers()
    expected = []
    for x in X.unsqueeze(1):
        kept, now = int(net(x).argmax()), x.clone()
        for number in range(6):
            now = now.detach().requires_grad_(True)
            (slope,) = torch.autograd.grad(net(now).log_softmax(1)[0, kept], now)
            length = slope.square().mean().sqrt()
            now = now + 0.2 * (1 - number / 6) * slope / length
        ends = net[:2](x), net[:2](now)
        expected.append(float(cosine_similarity(*(end.detach() for end in ends))))
        there, here = (net(end.detach()).detach().softmax(1)[0, kept] for end in (now, x))
        assert bool(there > here)
    found = b.NearestMode(step=0.2, steps=6)(cr.Classifier(net), X, chunk_size=2)
    assert found.tolist() == pytest.approx(expected, abs=1e-12)


def test_a_class_that_is_certain_gives_a_number_still():
    net = nn.Linear(8, 2).double()
    found = b.NearestMode()(cr.Classifier(net), 1e4 * X)
    assert bool(found.isfinite().all())
    flat = nn.Linear(8, 2).double()
    nn.init.zeros_(flat.weight)
    assert b.NearestMode()(cr.Classifier(flat), X).tolist() == pytest.approx([1.0] * 5)


def test_each_step_costs_a_pass():
    net, runs = two_layers(), []
    net.register_forward_hook(lambda *_: runs.append(torch.is_grad_enabled()))
    counts = []
    for steps in (2, 5):
        runs.clear()
        b.NearestMode(steps=steps)(cr.Classifier(net), X)
        counts.append((len(runs), sum(runs)))
    (few, few_passes), (many, many_passes) = counts
    assert many - few == many_passes - few_passes == 3  # the rest checks the model and looks at it
    assert b.NearestMode(steps=5).passes(3) == pytest.approx(5 + 2 / 3)


def test_it_is_in_the_catalogue_where_a_step_is_given():
    assert "nearest mode" not in b.all_baselines(gamma=1.0)
    assert b.all_baselines(gamma=1.0, mode_step=0.1)["nearest mode"] == b.NearestMode(step=0.1)


def test_a_model_without_a_linear_layer_and_settings_that_do_not_fit_are_refused():
    with pytest.raises(cr.errors.ModelError, match="no linear layer"):
        b.NearestMode()(cr.Classifier(lambda x: x[:, :3]), X)
    with pytest.raises(ValueError, match="step"):
        b.NearestMode(step=0.0)
    with pytest.raises(ValueError, match="steps"):
        b.NearestMode(steps=0)
