"""The last hidden layer: found by what runs last, and seen without touching the network."""

import pytest
import torch
from torch import nn
from torch.nn import functional

import credibly as cr
from credibly.model.features import LastHidden
from tests.reference import models


class Residual(nn.Module):
    """Convolutions with a shortcut, a pool and a linear head."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(1, 4, 3, padding=1)
        self.block = nn.Sequential(nn.Conv2d(4, 4, 3, padding=1), nn.ReLU())
        self.head = nn.Linear(4, 3)

    def forward(self, x):
        x = self.stem(x)
        return self.head((x + self.block(x)).mean((2, 3)))


class Backwards(nn.Module):
    """The layer that is defined last runs first, and one does not run at all."""

    def __init__(self):
        super().__init__()
        self.last = nn.Linear(6, 3)
        self.unused = nn.Linear(6, 3)
        self.first = nn.Linear(5, 6)

    def forward(self, x):
        return self.last(self.first(x).tanh())


class Sequence(nn.Module):
    """A head on every position, averaged afterwards."""

    def __init__(self):
        super().__init__()
        self.body = nn.Linear(2, 6)
        self.head = nn.Linear(6, 3)

    def forward(self, x):
        return self.head(self.body(x).tanh()).mean(1)


class Flattened(nn.Module):
    """The head sees the positions of all samples in one list of rows."""

    def __init__(self):
        super().__init__()
        self.body = nn.Linear(8, 8)
        self.head = nn.Linear(2, 3)

    def forward(self, x):
        return self.head(self.body(x).reshape(-1, 2)).reshape(len(x), 4, 3).sum(1)


class ByName(nn.Module):
    """The head is called by the name of its argument."""

    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(5, 6), nn.Linear(6, 3)

    def forward(self, x):
        return self.head(input=self.body(x).tanh())


def image(count=7):
    return torch.randn(count, 1, 6, 6, generator=models.generator(0), dtype=torch.float64)


def table(*shape):
    return torch.randn(7, *shape, generator=models.generator(0), dtype=torch.float64)


def of_sequential(net, x):
    return net[:-1](x)


def of_residual(net, x):
    x = net.stem(x)
    return (x + net.block(x)).mean((2, 3))


CASES = {
    "sequential": (lambda: models.smooth_network(5), "4", of_sequential, table(5)),
    "residual": (Residual, "head", of_residual, image()),
    "backwards": (Backwards, "last", lambda net, x: net.first(x).tanh(), table(5)),
    "sequence": (Sequence, "head", lambda net, x: net.body(x).tanh().mean(1), table(4, 2)),
    "flattened": (Flattened, "body", lambda _, x: x, table(8)),
    "by name": (ByName, "body", lambda _, x: x, table(5)),
}


@pytest.mark.parametrize("name", CASES)
def test_the_input_of_the_last_linear_layer_is_found(name):
    make, expected, features, x = CASES[name]
    net = make().double().eval()
    variable = cr.bind(cr.Classifier(net), x)
    hidden = LastHidden.find(variable)
    assert hidden.name == expected
    logits, found = hidden.forward(variable, x)
    with torch.no_grad():
        torch.testing.assert_close(logits, net(x))
        torch.testing.assert_close(found, features(net, x))
    assert not found.requires_grad
    for part in net.modules():
        assert not part._forward_hooks
        assert not part._forward_pre_hooks


def test_a_transformer_has_the_features_of_its_head():
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)

    class Text(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
            self.head = nn.Linear(8, 3)

        def forward(self, x):
            return self.head(self.body(x)[:, 0])

    net, x = Text().double().eval(), table(4, 8)
    variable = cr.bind(cr.Classifier(net), x)
    hidden = LastHidden.find(variable)
    assert hidden.name == "head"
    with torch.no_grad():
        torch.testing.assert_close(hidden.forward(variable, x)[1], net.body(x)[:, 0])


class Convolutions(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(1, 4, 3)
        self.last = nn.Conv2d(4, 3, 4)

    def forward(self, x):
        return self.last(functional.relu(self.first(x))).flatten(1)


def test_models_without_a_linear_layer_have_none():
    for net, x in (
        (Convolutions().double().eval(), image()),
        (lambda x: x[:, :3] ** 2, table(5)),
        (nn.Identity(), table(5)),
    ):
        assert LastHidden.find(cr.bind(cr.Classifier(net), x)) is None


def test_the_channels_of_a_named_convolution_are_averaged_over_positions():
    net, x = Convolutions().double().eval(), image()
    clf = cr.Classifier(net)
    logits, found = LastHidden.of(clf, "last").forward(cr.bind(clf, x), x)
    with torch.no_grad():
        torch.testing.assert_close(found, functional.relu(net.first(x)).mean((2, 3)))
        torch.testing.assert_close(logits, net(x))


def test_layers_that_cannot_be_used_are_refused():
    clf = cr.Classifier(Backwards().double().eval())
    with pytest.raises(cr.errors.InvalidArgumentError, match=r"`features`.*'lst'.*named_modules"):
        LastHidden.of(clf, "lst")
    with pytest.raises(cr.errors.InvalidArgumentError, match=r"`features`.*submodule"):
        LastHidden.of(cr.Classifier(lambda x: x), "0")
    x = table(5)
    with pytest.raises(cr.errors.InvalidArgumentError, match=r"'unused' does not.*not called"):
        LastHidden.of(clf, "unused").forward(cr.bind(clf, x), x)
    flat, wide = cr.Classifier(Flattened().double().eval()), table(8)
    with pytest.raises(cr.errors.InvalidArgumentError, match=r"\(28, 2\) for 7 samples"):
        LastHidden.of(flat, "head").forward(cr.bind(flat, wide), wide)
