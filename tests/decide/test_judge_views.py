"""Views that keep the class: trust is that of their mean, and they are asked for again."""

import pytest
import torch

import credibly as cr
from credibly.baselines import TestTimeAugmentation
from tests.reference import models

KNOWN, NEW = models.inputs(200, seed=3), models.inputs(40, seed=4)


def nudged(x):
    return x + 0.05


def turned(x):
    return -x


@pytest.fixture(scope="module")
def net():
    return models.smooth_network(classes=3)


def test_trust_is_that_of_the_mean_over_views(net):
    judge = cr.Judge.fit(net, KNOWN, views=[nudged])
    found = judge(NEW)
    expected = TestTimeAugmentation(views=(nudged,))(cr.Classifier(net), NEW)
    torch.testing.assert_close(found.signals["views"], expected.double())
    assert "views" in judge.recipe.shares
    assert "confidence" not in judge.recipe.shares
    assert found.cost == pytest.approx(2 / 3)  # two forwards
    assert judge.facts.cost == pytest.approx(2 / 3)


def test_views_are_named_in_the_file_and_asked_for(net, tmp_path):
    judge = cr.Judge.fit(net, KNOWN, views=[nudged])
    judge.save(tmp_path / "judge")
    again = cr.Judge.load(tmp_path / "judge", net, views=[nudged])
    torch.testing.assert_close(again(NEW).trust, judge(NEW).trust)
    for views in ([], [turned], [nudged, nudged]):
        with pytest.raises(cr.errors.InvalidArgumentError, match=r"`views`.*nudged"):
            cr.Judge.load(tmp_path / "judge", net, views=views)


def test_views_that_turn_the_class_are_warned_of(net):
    with pytest.warns(cr.errors.CrediblyWarning, match="may not keep the class"):
        cr.Judge.fit(net, KNOWN, views=[turned])


@pytest.mark.parametrize(
    ("views", "message"),
    [
        (nudged, "functions of a batch"),
        ([1], "functions of a batch"),
        ([lambda x: x[:, :2]], r"views of the shape"),
        ([lambda _: None], r"views of the shape .*NoneType"),
    ],
)
def test_bad_views_are_named(net, views, message):
    with pytest.raises(cr.errors.InvalidArgumentError, match=message):
        cr.Judge.fit(net, KNOWN, views=views)
