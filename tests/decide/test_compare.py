import math

import pytest
import torch
from torch import nn

import credibly as cr
from credibly.decide.compare import FIRMER, MEASURES, Comparison
from tests.reference import models


class Steeper(nn.Module):
    """The same outputs at the given inputs, four times as steep around each of them."""

    def __init__(self, net, x):
        super().__init__()
        self.net = net
        self.register_buffer("x", x)

    def forward(self, z):
        own = self.x[torch.cdist(z, self.x).argmin(1)]
        return self.net(own + 4 * (z - own))


@pytest.fixture(scope="module")
def plain():
    return models.smooth_network(classes=3)


def test_the_steeper_copy_holds_its_predictions_less(plain):
    x = models.inputs(60)
    flat, steep = cr.Classifier(plain), cr.Classifier(Steeper(plain, x))
    found = cr.compare({"flat": flat, "steep": steep}, x, gamma=100.0)
    assert found.differences["class kept"][("flat", "steep")].low > 0
    assert found.differences["trust"][("flat", "steep")].low > 0
    assert found.differences["relative shift"][("flat", "steep")].high < 0
    assert found.differences["gain"][("flat", "steep")].high < 0
    assert "flat - steep" in found.summary()
    assert "(flat is firmer)" in found.summary()


@pytest.mark.parametrize(("count", "few"), [(2, True), (9, True), (10, False)])
def test_so_few_samples_tell_nothing_apart(plain, count, few):
    x = models.inputs(count + 1)
    x[0] = math.nan  # solved ones count
    flat, steep = cr.Classifier(plain), cr.Classifier(Steeper(plain, x[1:]))
    found = cr.compare({"flat": flat, "steep": steep}, x, gamma=100.0)
    assert found.samples == count
    assert any(
        gap.low * gap.high > 0 for gaps in found.differences.values() for gap in gaps.values()
    )
    assert ("(apart)" in found.summary()) != few
    assert ("(flat is firmer)" in found.summary()) != few
    assert ("fewer than 10 inputs: the intervals mean nothing" in found.summary()) == few


def test_the_same_model_twice_differs_by_exactly_nothing(plain):
    models_ = {name: cr.Classifier(plain) for name in "abc"}
    found = cr.compare(models_, models.inputs(20))
    assert isinstance(found, Comparison)
    assert found.models == ("a", "b", "c")
    assert len(set(found.gammas.values())) == 1
    for by_pair in found.differences.values():
        assert set(by_pair) == {("a", "b"), ("a", "c"), ("b", "c")}
        for gap in by_pair.values():
            assert (gap.low, gap.value, gap.high) == (0.0, 0.0, 0.0)
    assert "apart" not in found.summary()
    assert "firmer)" not in found.summary()


def test_different_gammas_are_said_first_and_can_hide_the_result(plain):
    x = models.inputs(60)
    both = {"flat": cr.Classifier(plain), "steep": cr.Classifier(Steeper(plain, x))}
    own = cr.compare(both, x, gamma="auto")
    first, second, *_ = own.summary().splitlines()
    assert not own.same_gamma
    for words in ("not comparable: the gammas differ", "pass one number for all models"):
        assert words in first
    for name, gamma in own.gammas.items():
        assert f"{name} {gamma:.4g}" in first
        assert f"{name} {gamma:.4g}" in second
    assert second.startswith("60 inputs; gamma: flat ")
    same = cr.compare(both, x, gamma=own.gammas["flat"])
    assert same.same_gamma
    assert same.summary().startswith("60 inputs; gamma: flat ")
    assert "gammas differ" not in same.summary()
    pair = ("flat", "steep")  # it looks as firm, since moving costs sixteen times as much for it
    assert own.gammas["steep"] == pytest.approx(16 * own.gammas["flat"], rel=1e-3)
    assert own.differences["relative shift"][pair].value == pytest.approx(0, abs=1e-3)
    assert same.differences["relative shift"][pair].high < -0.05
    assert "flat is firmer" not in own.summary()
    assert "steep is firmer" not in own.summary()


def test_every_row_says_which_way_is_firmer_and_the_test_models_agree(plain):
    x = models.inputs(60)
    both = {"flat": cr.Classifier(plain), "steep": cr.Classifier(Steeper(plain, x))}
    found = cr.compare(both, x, gamma=100.0)
    header, *rows = found.summary().splitlines()[1:]
    assert header.split("  ")[0] == "measure"
    for name in (*both, "flat - steep"):
        assert name in header
    assert [row.split("  ")[0] for row in rows] == [*MEASURES, "same class"]
    for measure, row in zip(MEASURES, rows, strict=False):
        gap = found.differences[measure]["flat", "steep"]
        assert str(found.means[measure]["flat"]) in row
        assert row.index(str(found.means[measure]["steep"])) == header.index("steep")
        side = FIRMER.get(measure)
        if side is None:
            assert row.endswith(f"{gap} (apart)")
        else:
            assert f"  {side}  " in row
            assert row.endswith(f"{gap} (flat is firmer)")
            assert gap.low > 0 if side == "higher" else gap.high < 0


def test_the_share_of_equal_predictions_is_that_of_the_models(plain):
    x = models.inputs(40)
    x[7] = math.nan  # not solved by either, and not counted
    other = models.smooth_network(classes=3, seed=5)
    found = cr.compare({"a": cr.Classifier(plain), "b": cr.Classifier(other)}, x, gamma=50.0)
    rows = [n for n in range(40) if n != 7]
    same = (plain(x).argmax(1) == other(x).argmax(1))[rows].double().mean()
    share = found.agreement["a", "b"]
    assert share.value == pytest.approx(float(same))
    assert 0 < share.low < share.value < share.high < 1
    assert found.summary().endswith(str(share))


def test_classes_of_the_same_name_are_the_same_class(plain):
    x, turned = models.inputs(20), [2, 0, 1]
    names = ["cat", "dog", "owl"]
    clf = cr.Classifier(plain, classes=names)
    other = cr.Classifier(lambda z: plain(z)[:, turned], classes=[names[k] for k in turned])
    found = cr.compare({"a": clf, "b": other}, x, gamma=50.0)
    assert found.agreement["a", "b"].value == 1
    unnamed = cr.Classifier(lambda z: plain(z)[:, turned])
    assert cr.compare({"a": clf, "b": unnamed}, x, gamma=50.0).agreement["a", "b"].value == 0


def test_progress_runs_once_from_nothing_to_all(plain):
    shares = []
    several = {name: cr.Classifier(plain) for name in "abc"}
    cr.compare(several, models.inputs(12), gamma=50.0, chunk_size=4, progress=shares.append)
    assert shares == sorted(shares)
    assert len(shares) >= 9
    assert shares[-1] == pytest.approx(1.0)
    with pytest.raises(cr.errors.InvalidArgumentError, match=r"^`progress`"):
        cr.compare(several, models.inputs(12), gamma=50.0, progress="bar")


def test_the_repr_is_short(plain):
    clf = cr.Classifier(plain)
    found = cr.compare({"a": clf, "b": clf}, models.inputs(12), gamma=30.0)
    assert repr(found) == "Comparison(12 inputs; gamma: a 30, b 30)"


def test_means_are_over_the_samples_that_both_could_solve(plain):
    x = models.inputs(12)
    x[4] = math.nan
    found = cr.compare(
        {"a": cr.Classifier(plain), "b": cr.Classifier(models.smooth_network(classes=3, seed=1))},
        x,
        gamma=30.0,
    )
    good = torch.arange(12) != 4
    profile = cr.credibility(cr.Classifier(plain), x[good], gamma=30.0)
    assert found.means["risk"]["a"].value == pytest.approx(float(profile.risk.mean()), rel=1e-6)
    for by_model in found.means.values():
        for mean in by_model.values():
            assert mean.low <= mean.value <= mean.high
    assert found.gammas == {"a": 30.0, "b": 30.0}


def test_other_losses_and_spaces_are_said_first_and_nobody_is_called_firmer(plain):
    x = models.inputs(30)
    clf, steep = cr.Classifier(plain), Steeper(plain, x)
    scale = torch.full((8,), 3.0, dtype=torch.float64)
    others = {
        "the loss differs (a CrossEntropy(), b Hinge(": cr.Classifier(
            steep, loss=cr.losses.Hinge()
        ),
        "the space differs (a inputs, b ": cr.Classifier(steep, space=cr.Space(scale=scale)),
    }
    assert (
        "a is firmer" in cr.compare({"a": clf, "b": cr.Classifier(steep)}, x, gamma=9.0).summary()
    )
    for words, other in others.items():
        found = cr.compare({"a": clf, "b": other}, x, gamma=9.0)
        assert len(found.unlike) == 1
        assert found.summary().startswith(f"warning: not comparable: {words}")
        assert "(apart)" in found.summary()
        assert not any(f"{name} is firmer" in found.summary() for name in "ab")


def test_hidden_features_of_two_models_have_no_common_unit(plain):
    other = models.smooth_network(classes=3, seed=1)
    inner = [cr.Classifier(net, module="0") for net in (plain, other)]
    found = cr.compare({"a": inner[0], "b": inner[1]}, models.inputs(12), gamma=30.0)
    assert "inside each model" in found.summary().splitlines()[0]
    same = cr.compare({"a": inner[0], "b": inner[0]}, models.inputs(12), gamma=30.0)
    assert same.unlike == ()


def test_features_that_two_models_share_are_one_question(plain):
    *features, _ = plain
    head = models.smooth_network(classes=3, seed=1)[-1]
    both = (plain, torch.nn.Sequential(*features, head))
    inner = {name: cr.Classifier(net, module="0") for name, net in zip("ab", both, strict=True)}
    found = cr.compare(inner, models.inputs(12), gamma=30.0)
    assert found.unlike == ()


def test_inputs_that_are_left_out_are_counted(plain):
    x = models.inputs(12)
    x[4] = math.nan
    both = {"a": cr.Classifier(plain), "b": cr.Classifier(plain)}
    found = cr.compare(both, x, gamma=30.0)
    assert (found.samples, found.left_out) == (11, 1)
    assert found.summary().startswith("11 inputs (1 left out: not solved for all); gamma: a 30")


def test_what_cannot_be_compared_is_refused(plain):
    clf, x = cr.Classifier(plain), models.inputs(4)
    for bad in ({}, {"a": clf}, [clf, clf], None):
        with pytest.raises(cr.errors.InvalidArgumentError, match="`models`"):
            cr.compare(bad, x)
    with pytest.raises(cr.errors.InvalidArgumentError, match="same classes"):
        cr.compare({"a": clf, "b": cr.Classifier(models.smooth_network(classes=4))}, x, gamma=1.0)
    with pytest.raises(cr.errors.InvalidArgumentError, match="that was solved"):
        cr.compare({"a": clf, "b": clf}, torch.full((3, 8), math.nan).double(), gamma=1.0)
    with pytest.raises((cr.errors.InvalidArgumentError, cr.errors.ModelError)):
        cr.compare({"a": clf, "b": "resnet"}, x, gamma=1.0)
    with pytest.raises(cr.errors.InvalidArgumentError, match="`level`"):
        cr.compare({"a": clf, "b": clf}, x, gamma=1.0, level=95)


def scaled(net, factor):
    return cr.Classifier(lambda x: factor * net(x))


def test_logits_that_are_merely_scaled_are_said_to_decide(plain):
    models_ = {"as it is": cr.Classifier(plain), "doubled": scaled(plain, 2.0)}
    found = cr.compare(models_, models.inputs(20), gamma=100.0)
    assert found.sizes["doubled"] > 1.25 * found.sizes["as it is"]
    expected = (-cr.Classifier(plain).losses(models.inputs(20)).detach()).norm(dim=1).mean()
    assert found.sizes["as it is"] == pytest.approx(float(expected))
    assert "losses of doubled are" in found.summary()
    alike = {"as it is": cr.Classifier(plain), "a little": scaled(plain, 1.01)}
    assert "losses of" not in cr.compare(alike, models.inputs(20), gamma=100.0).summary()


def test_other_names_for_the_same_outputs_are_no_disagreement(plain):
    pair = {
        "numbers": cr.Classifier(plain, classes=["0", "1", "2"]),
        "floats": cr.Classifier(plain, classes=["0.0", "1.0", "2.0"]),
    }
    found = cr.compare(pair, models.inputs(12), gamma=100.0)
    assert found.agreement["numbers", "floats"].value == 1.0
