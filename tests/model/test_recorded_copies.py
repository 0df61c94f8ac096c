"""Recordings of one classifier are not those of a copy that asks something else."""

import copy
import pickle

import pytest
import torch
from torch import nn

import credibly as cr
from credibly.batch.packed import PackedModel
from credibly.model.losses import resolve_loss
from credibly.model.recorded import Recorder
from tests.reference import models

DESCENT = cr.solvers.FixedDescent(radius=0.5)


class Frozen:
    """Like a graph, it does the work as it was when it was recorded, on whatever is passed."""

    def __init__(self):
        self.made = 0

    def __call__(self, work, _):
        self.made += 1
        return work


@pytest.mark.filterwarnings("ignore:every row of the model's output")  # that is what is declared
@pytest.mark.parametrize("name", ["net", "preprocess", "loss", "pick", "outputs"])
def test_a_copy_that_asks_something_else_has_other_recordings(name):
    other = {
        "net": models.smooth_network(seed=5), "preprocess": lambda x: 3 * x,
        "pick": lambda z: 2 * z, "loss": resolve_loss("logistic"), "outputs": "probabilities",
    }  # fmt: skip
    net = nn.Sequential(models.smooth_network(), nn.Softmax(1))
    clf = cr.Classifier(net if name == "outputs" else net[0])
    clf.recorder = Recorder(sizes=(4,), record=Frozen())
    changed = copy.copy(clf)
    setattr(changed, name, other[name])
    assert changed.recorder is clf.recorder
    plain = copy.copy(changed)
    plain.recorder = None
    x, settings = models.inputs(4), {"gamma": 30.0, "solver": cr.solvers.LBFGS(steps=2)}
    for solver in (DESCENT, settings["solver"]):
        one, two, expected = (
            [cr.credibility(c, x, gamma=30.0, solver=solver) for _ in range(2)][-1]
            for c in (clf, changed, plain)
        )
        assert not torch.allclose(one.credence, expected.credence)
        assert torch.allclose(two.credibility, expected.credibility)


@pytest.mark.parametrize("again", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])  # noqa: S301
def test_copies_record_anew(again):
    clf, x = cr.Classifier(models.smooth_network()), models.inputs(4)
    clf.recorder = Recorder(sizes=(4,), compiles=True)
    clf.recorder.run("key", lambda given, _: given, (x,))
    found = again(clf)
    assert found.recorder is not clf.recorder
    assert (found.recorder.sizes, found.recorder.compiles) == ((4,), True)
    assert len(clf.recorder._met) == 1
    assert len(found.recorder._met) == 0
    assert torch.equal(found.losses(x), clf.losses(x))


def test_another_process_gets_neither_recordings_nor_drafts():
    clf = cr.Classifier(models.smooth_network())
    clf.recorder, clf.draft = Recorder(), clf.net
    packed = PackedModel.of(clf, None).live
    assert packed.net is clf.net
    assert packed.recorder is packed.draft is None
