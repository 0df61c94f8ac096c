import re

import numpy as np
import pytest
import torch
from torch import nn

from credibly import Classifier, Space, Status, credibility
from credibly.errors import InvalidArgumentError
from tests.reference import models


def mask(space, shape=(4,), path=""):
    return space.locked_mask(path, shape).tolist()


@pytest.mark.parametrize(
    "locked",
    [
        [1, 3], (1, -1), np.array([1, 3]), torch.tensor([3, 1]), [3, 1, 1],
        [False, True, False, True], np.array([False, True, False, True]),
        torch.tensor([False, True, False, True]), [np.bool_(False), np.bool_(True)] * 2,
        ["b", "d"], np.array(["b", "d"]),
    ],
    ids=repr,
)  # fmt: skip
def test_features_are_locked_by_number_name_or_mask(locked):
    assert mask(Space(locked=locked, columns="abcd")) == [False, True, False, True]


@pytest.mark.parametrize("locked", [2, np.int64(2), "c", torch.tensor(2)], ids=repr)
def test_a_single_column_needs_no_list(locked):
    assert mask(Space(locked=locked, columns=["a", "b", "c", "d"])) == [False, False, True, False]


def test_columns_are_those_of_the_last_axis_and_masks_broadcast():
    assert mask(Space(locked=[0]), (2, 3)) == [True, False, False] * 2
    rows = torch.tensor([[True], [False]])
    assert mask(Space(locked=rows), (2, 3)) == [True] * 3 + [False] * 3


def test_scales_broadcast_and_those_of_locked_features_do_not_matter():
    space = Space(scale=torch.tensor([2.0, 0.0, torch.nan, -1.0]), locked=[1, 2, 3])
    assert space.scale_of("", (4,)).tolist() == [2.0, 1.0, 1.0, 1.0]
    assert Space(scale=[[3.0], [4.0]]).scale_of("", (2, 2)).tolist() == [3.0, 3.0, 4.0, 4.0]
    assert Space(scale=0.1).scale_of("", (1,)).tolist() == [0.1]  # not rounded to single
    parameter = torch.nn.Parameter(torch.ones(4))
    assert not Space(scale=parameter).scale_of("", (4,)).requires_grad


@pytest.mark.parametrize("settings", [{}, {"scale": [1.0, 2.0, 3.0]}, {"tied": [0, 0, -1]}])
@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
def test_a_number_that_is_not_finite_breaks_no_bounds_and_affects_no_other_row(settings, bad):
    torch.manual_seed(0)
    clf = Classifier(nn.Linear(3, 3).double(), space=Space(bounds=(0, 1), **settings))
    x = torch.rand(4, 3, dtype=torch.float64)
    x[1, 2] = bad
    profile = credibility(clf, x, gamma=2.0)
    alone = credibility(clf, x[[0, 2, 3]], gamma=2.0)
    assert profile.status[1] is Status.NON_FINITE_INPUT
    torch.testing.assert_close(profile[[0, 2, 3]].perturbed, alone.perturbed)


def test_bounds_of_locked_features_do_not_matter():
    low, high = Space(bounds=([0.0, 5.0], [1.0, 5.0]), locked=[1]).bounds_of("", (2,))
    assert low.tolist() == [0.0, 5.0]
    assert high.tolist() == [1.0, 5.0]


def test_settings_by_leaf():
    space = Space(vary=["a", "b"], scale={"a": 2.0}, locked={"b": [0]})
    assert space.scale_of("a", (1,)).tolist() == [2.0]
    assert space.scale_of("b", (1,)).tolist() == [1.0]
    assert mask(space, (2,), "a") == [False, False]
    assert mask(space, (2,), "b") == [True, False]


def test_standardised_takes_the_deviations_of_a_sample():
    x = np.random.default_rng(0).normal(size=(50, 3)) * [1.0, 10.0, 0.0]
    space = Space.standardised(x, locked=[0], bounds=(-9.0, 9.0))
    assert np.allclose(space.scale_of("", (3,))[1], x[:, 1].std(ddof=1), rtol=1e-12)
    assert mask(space, (3,)) == [True, False, True]
    assert space.bounds == (-9.0, 9.0)
    images = torch.randn(8, 2, 3, dtype=torch.float64)
    assert torch.equal(Space.standardised(images).scale_of("", (2, 3)), images.std(0).flatten())


def test_standardised_leaves_out_rows_that_are_not_finite():
    x = torch.randn(20, 2, dtype=torch.float64)
    with_gaps = torch.cat([x, torch.tensor([[torch.nan, 0.0], [0.0, torch.inf]])])
    scale = Space.standardised(with_gaps).scale_of("", (2,))
    assert torch.equal(scale, x.std(0))


def test_standardised_knows_the_leaf_that_varies():
    x = torch.randn(9, 2, dtype=torch.float64)
    space = Space.standardised(x, vary="table", locked={"table": [1]})
    assert mask(space, (2,), "table") == [False, True]


def test_a_space_describes_itself_in_one_line():
    space = Space(vary="a", scale=torch.ones(3), bounds=(0.0, np.ones(3)), locked=["sex"])
    text = space.describe()
    array = r"array\(3,\) #[0-9a-f]{8}"
    assert re.fullmatch(
        rf"Space\(vary='a', scale={array}, locked=\['sex'\], bounds=\(0.0, {array}\)\)", text
    )


def test_spaces_with_other_numbers_describe_themselves_otherwise():
    scales = [torch.ones(3), np.ones(3), 2 * torch.ones(3), torch.tensor([1.0, 1.0, 2.0])]
    texts = [Space(scale=scale).describe() for scale in scales]
    assert texts[0] == texts[1]
    assert len(set(texts)) == 3
    names = [Space(locked=np.array([name]), columns=["b", "d"]).describe() for name in "bd"]
    assert names[0] != names[1]
    assert Space().describe() == "Space()"
    assert Space(scale={"a": 2.0}).describe() == "Space(scale={a: 2.0})"


SHAPE = (3,)


@pytest.mark.parametrize(
    ("ask", "argument", "match"),
    [
        (lambda: Space(scale=[1.0, 0.0, 2.0]).scale_of("", SHAPE), "scale", "1 that are not.*Lock"),
        (lambda: Space(scale=torch.nan).scale_of("", SHAPE), "scale", "3 that are not"),
        (lambda: Space(scale=torch.ones(2)).scale_of("", SHAPE), "scale", "sample axis"),
        (lambda: Space(scale="big").scale_of("a", SHAPE), "scale", "of 'a'.*'big'"),
        (lambda: Space(locked=[3]).locked_mask("", SHAPE), "locked", "below 3.*got 3"),
        (lambda: Space(locked=["a"]).locked_mask("", SHAPE), "locked", "'a'.*columns="),
        (lambda: Space(locked=["z"], columns="abc").locked_mask("", SHAPE), "locked", "one of"),
        (lambda: Space(locked=["a"], columns="ab").locked_mask("", SHAPE), "locked", "2 columns"),
        (lambda: Space(locked=[0.5]).locked_mask("", SHAPE), "locked", "got 0.5"),
        (lambda: Space(locked=[True, False]).locked_mask("", SHAPE), "locked", "a mask"),
        (lambda: Space(tied=[0.0, 0.0, 1.0]).tied_numbers("", SHAPE), "tied", "whole numbers"),
        (lambda: Space(tied=torch.ones(3, dtype=bool)).tied_numbers("", SHAPE), "tied", "whole"),
        (lambda: Space(bounds=3.0).bounds_of("", SHAPE), "bounds", r"\(low, high\).*-inf"),
        (lambda: Space(bounds=(1.0, 0.0)).bounds_of("", SHAPE), "bounds", "3 features.*locked"),
        (lambda: Space(bounds=(0.0, torch.nan)).bounds_of("", SHAPE), "bounds", "3 features"),
        (lambda: Space(scale={"b": 1.0}, vary="a").scale_of("a", SHAPE), "scale", "'b'.*vary="),
        (lambda: Space(vary=[]), "vary", "at least one path"),
        (lambda: Space(vary=["a", "a"]), "vary", "each once"),
        (lambda: Space(vary=[1]), "vary", "path of a leaf"),
        (lambda: Space.standardised(torch.ones(3)), "x", r"\(n, \.\.\.\)"),
        (lambda: Space.standardised("table"), "x", "str.*table of numbers"),
        (lambda: Space.standardised(torch.full((3, 2), torch.nan)), "x", "finite"),
    ],
)
def test_what_makes_no_space_is_refused(ask, argument, match):
    with pytest.raises(InvalidArgumentError, match=match) as caught:
        ask()
    assert caught.value.argument == argument


def test_numbers_and_names_of_columns_may_stand_in_one_list():
    space = Space(locked=[0, "c"], columns=["a", "b", "c"])
    assert space.locked_mask("", (3,)).tolist() == [True, False, True]


@pytest.mark.parametrize("given", [[1, 0, 0, 1], np.array([1, 0, 0, 1]), torch.ones(4).int()])
def test_a_mask_of_zeros_and_ones_is_not_taken_for_column_numbers(given):
    with pytest.raises(InvalidArgumentError, match=r"^`locked`.*looks like a mask"):
        Space(locked=given).locked_mask("", (4,))


def test_read_only_arrays_draw_no_warning():
    scale = np.array([1.0, 2.0])
    scale.flags.writeable = False  # as the values of a pandas Series are
    assert Space(scale=scale).scale_of("", (2,)).tolist() == [1.0, 2.0]


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: Space(columns=["a", "a"]), "^`columns`.*2 names, 1"),
        (lambda: Space(vary=3), "^`vary`.*3"),
        (lambda: Classifier(nn.Linear(2, 2), space={"scale": 2.0}), "^`space`.*dict"),
        (lambda: Classifier(nn.Sequential(nn.Linear(2, 2)), module=0), "^`module`.*got 0"),
    ],
)
def test_careless_settings_are_named(make, match):
    with pytest.raises(InvalidArgumentError, match=match):
        make()


def test_names_alone_change_nothing_of_what_moves():
    net, x = models.smooth_network(features=3, classes=3), models.inputs(4, 3)
    named = credibility(Classifier(net, space=Space(columns=["a", "b", "c"])), x, gamma=9.0)
    plain = credibility(Classifier(net), x, gamma=9.0)
    assert named.settings.space == plain.settings.space == "inputs"
    torch.testing.assert_close(named.credibility, plain.credibility)
    with pytest.raises(InvalidArgumentError, match="2 of them different"):
        Space(columns=[1, "1", "b"])
