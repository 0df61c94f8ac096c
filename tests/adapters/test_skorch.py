"""Nets of skorch as they are: what they predict is what is solved."""

import numpy as np
import pytest
import torch
from torch import nn

import credibly as cr
from tests.reference.soundness import check_profile

skorch = pytest.importorskip("skorch")


class Net(nn.Module):
    def __init__(self, *, outputs=3, last=None, extra=False):
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(4, 8), nn.Tanh(), nn.Dropout(0.2), nn.Linear(8, outputs)
        )
        self.last, self.extra = last, extra

    def forward(self, x):
        found = self.body(x)
        found = found if self.last is None else self.last(found)
        return (found, x) if self.extra and not self.training else found


def softmax(x):
    return torch.softmax(x, 1)


def data(classes=3):
    generator = np.random.default_rng(0)
    y = np.arange(60) % classes
    return generator.normal(size=(60, 4)) + y[:, None], y


def fitted(kind=skorch.NeuralNetClassifier, *, y=None, **settings):
    X, numbers = data()
    net = kind(Net, max_epochs=5, lr=0.2, train_split=None, verbose=0, **settings)
    return net.fit(X.astype(np.float32), numbers if y is None else y), X


CASES = {
    "logits": {"criterion": nn.CrossEntropyLoss},
    "probabilities": {"module__last": softmax},
    "several outputs": {"criterion": nn.CrossEntropyLoss, "module__extra": True},
    "a nonlinearity of one's own": {
        "criterion": nn.CrossEntropyLoss,
        "predict_nonlinearity": lambda z: torch.softmax(z / 2, 1),
    },
}


@pytest.mark.parametrize("case", CASES)
def test_the_profile_starts_at_what_skorch_predicts(case):
    net, X = fitted(**CASES[case])
    assert net.module_.training  # no validation: fit leaves the module in training mode
    clf = cr.from_skorch(net)
    assert net.module_.training  # and it is left so
    expected = net.predict_proba(X.astype(np.float32))
    net.module_.train()
    profile = cr.credibility(clf, X.astype(np.float32), gamma="auto")
    assert np.allclose(profile.credence.exp().numpy(), expected, atol=1e-5)
    assert clf.classes == ("0", "1", "2")


def test_in_double_precision_it_is_solved_as_any_network():
    net, X = fitted(**CASES["logits"])
    net.module_.double()
    check_profile(cr.from_skorch(net), X[:5])


def column(x):
    return x.squeeze(1)


def probability(x):
    return torch.sigmoid(x).squeeze(1)


@pytest.mark.parametrize("last", [None, column, probability])
def test_binary_nets(last):
    criterion = nn.BCELoss if last is probability else nn.BCEWithLogitsLoss
    y = (np.arange(60) % 3 == 1).astype(np.float32)
    net, X = fitted(
        skorch.NeuralNetBinaryClassifier, y=y, criterion=criterion,
        module__outputs=1, module__last=last,
    )  # fmt: skip
    profile = cr.credibility(cr.from_skorch(net), X.astype(np.float32), gamma="auto")
    expected = net.predict_proba(X.astype(np.float32))
    assert np.allclose(profile.credence.exp().numpy(), expected, atol=1e-5)


def test_later_training_does_not_change_the_classifier():
    net, X = fitted(**CASES["logits"])
    clf, x = cr.from_skorch(net), torch.from_numpy(X[:3]).float()
    before = clf.logits(x)
    net.partial_fit(X.astype(np.float32), data()[1])
    assert torch.equal(clf.logits(x), before)


def test_names_and_submodules():
    net, X = fitted(**CASES["logits"], classes=["cat", "dog", "fish"])
    clf = cr.from_skorch(net, module="body.1")
    profile = cr.credibility(clf, torch.from_numpy(X[:3]).float(), gamma="auto")
    assert clf.classes == ("cat", "dog", "fish")
    assert profile.perturbed.shape == (3, 8)


def test_bad_nets_are_refused_in_words():
    with pytest.raises(cr.errors.ModelError, match=r"not fitted.*net\.fit"):
        cr.from_skorch(skorch.NeuralNetClassifier(Net))
    with pytest.raises(cr.errors.InvalidArgumentError, match="got Net"):
        cr.from_skorch(Net())
    with pytest.raises(cr.errors.InvalidArgumentError, match="the class NeuralNetClassifier"):
        cr.from_skorch(skorch.NeuralNetClassifier)
    with pytest.raises(cr.errors.InvalidArgumentError, match="NeuralNetRegressor"):
        cr.from_skorch(skorch.NeuralNetRegressor(Net).initialize())
    odd = skorch.NeuralNetClassifier(Net, criterion=nn.MultiMarginLoss).initialize()
    with pytest.raises(cr.errors.ModelError, match="MultiMarginLoss"):
        cr.from_skorch(odd)
