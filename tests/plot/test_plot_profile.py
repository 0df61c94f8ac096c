"""A picture of one's own profile: what is drawn are the numbers of the profile."""

import itertools
import math
import subprocess
import sys
import warnings
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from matplotlib import pyplot as plt
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from torch import nn

import credibly as cr
from credibly.plot import style
from credibly.plot.view import as_picture, as_signal
from tests.reference import models

SOLVER = cr.solvers.LBFGS(steps=6)


def pictures(channels, *, height=6, width=9, classes=3, low=0.2, high=0.8, **settings):
    """A profile of three images, and their classifier."""
    g = models.generator(1)
    x = low + (high - low) * torch.rand(3, channels, height, width, generator=g).double()
    clf = models.affine_classifier(channels * height * width, classes, scale=0.3, **settings)
    return cr.credibility(clf, x, gamma=30.0, solver=SOLVER, bounds=(min(low, 0), max(high, 1)))


def table(features=30, **settings):
    clf = models.affine_classifier(features, 3, **settings)
    return clf, cr.credibility(clf, models.inputs(4, features=features), gamma=5.0, solver=SOLVER)


def bars(panel):
    """Lengths of the bars of a panel, one list per colour."""
    return [[bar.get_width() for bar in container] for container in panel.containers]


def labels(axis):
    return [label.get_text() for label in axis.get_ticklabels()]


def images(figure):
    return [np.asarray(panel.images[0].get_array()) for panel in figure.axes if panel.images]


def said(figure):
    return " ".join(figure.get_suptitle().split())


def test_a_grey_image_is_drawn_as_it_is():
    profile = pictures(1)
    figure = cr.plot_profile(profile, 1)
    before, after, gap = images(figure)
    np.testing.assert_array_equal(before, profile.x0[1, 0].numpy())
    np.testing.assert_array_equal(after, profile.perturbed[1, 0].numpy())
    np.testing.assert_allclose(gap, (profile.perturbed - profile.x0)[1, 0].numpy())
    for panel in figure.axes[:2]:
        assert panel.images[0].get_clim() == (0, 1)
        assert panel.images[0].get_cmap().name == "gray"  # bright is bright
        assert panel.get_xlabel() == ""
    assert figure.axes[2].images[0].get_clim() == pytest.approx((-abs(gap).max(), abs(gap).max()))


def test_bars_are_the_credibilities_before_and_after():
    profile = pictures(1, classes=4)
    before, after = bars(cr.plot_profile(profile, 2, classes=list("abcd")).axes[3])
    assert before == profile.credence[2].tolist()
    assert after == profile.credibility[2].tolist()
    assert labels(cr.plot_profile(profile, 2, classes=list("abcd")).axes[3].yaxis) == list("abcd")


@pytest.mark.parametrize("last", [False, True])
def test_colours_are_drawn_and_their_difference_is_that_of_the_largest_channel(last):
    profile = pictures(3)
    x0, moved = profile.x0, profile.perturbed
    if last:  # (n, h, w, 3) is an image, too
        profile = replace(profile, x0=x0.movedim(1, -1), perturbed=moved.movedim(1, -1))
    figure = cr.plot_profile(profile)
    before, after, gap = images(figure)
    assert before.shape == after.shape == (6, 9, 3)
    np.testing.assert_allclose(before, x0[0].permute(1, 2, 0).numpy())
    for i, j in itertools.product(range(6), range(9)):
        assert gap[i, j] == max((moved - x0)[0, :, i, j].tolist(), key=abs)
    assert figure.axes[2].get_title() == "difference, largest channel"


@pytest.mark.parametrize("channels", [1, 3])
def test_values_outside_0_and_1_are_stretched_and_this_is_said(channels):
    profile = pictures(channels, low=-2.0, high=3.0)
    both = torch.stack([profile.x0[0], profile.perturbed[0]])
    low, high = float(both.min()), float(both.max())
    figure = cr.plot_profile(profile)
    for panel in figure.axes[:2]:
        assert panel.get_xlabel() == f"drawn from {low:.3g} to {high:.3g}"
    drawn = np.stack(images(figure)[:2])
    if channels == 1:
        assert figure.axes[0].images[0].get_clim() == (low, high)
    else:
        assert (drawn.min(), drawn.max()) == pytest.approx((0, 1))


def test_the_title_says_the_classes_and_the_distance():
    profile = pictures(1, classes=3)
    for n in range(3):
        first, last = int(profile.credence[n].argmax()), int(profile.credibility[n].argmax())
        probability = profile.credence[n].exp()[first] / profile.credence[n].exp().sum()
        distance = math.dist(profile.x0[n].flatten(), profile.perturbed[n].flatten())
        ahead = "still ahead at x+" if first == last else f"class {last} ahead at x+"
        expected = f"class {first} at x0, {100 * probability:.1f} % by softmax; {ahead}; "
        assert said(cr.plot_profile(profile, n)).startswith(expected)
        assert f"|x+ - x0| = {distance:.3g}," in said(cr.plot_profile(profile, n))


def test_another_class_ahead_is_named():
    profile = pictures(1, classes=2)
    before, after = torch.tensor([[-0.01, -5.0]] * 3), torch.tensor([[-3.0, -0.1]] * 3)
    swapped = replace(profile, credence=before, credibility=after)
    text = said(cr.plot_profile(swapped, classes=["cat", "dog"]))
    assert text.startswith("cat at x0, 99.0 % by softmax; dog ahead at x+; ")


def test_other_losses_have_no_softmax():
    text = said(cr.plot_profile(pictures(1, loss="hinge")))
    assert "softmax" not in text
    assert "at x0, credibility -" in text


def test_of_many_classes_the_ten_best_are_shown_also_the_one_ahead_at_x0():
    profile = pictures(1, classes=100)
    fit, credible = profile.credence.clone(), profile.credibility.clone()
    fit[0, 77], credible[0, 77] = -1e-3, -1e3  # first before, last after
    panel = cr.plot_profile(replace(profile, credence=fit, credibility=credible)).axes[3]
    shown = [int(name) for name in labels(panel.yaxis)]
    assert len(shown) == 10
    assert 77 in shown
    assert int(credible[0].argmax()) == shown[0]
    assert shown == sorted(shown, key=lambda k: -credible[0, k])
    assert bars(panel) == [fit[0, shown].tolist(), credible[0, shown].tolist()]
    assert "best 10 of 100" in panel.get_title(loc="left")


def test_the_features_that_moved_most_stand_first_with_both_values():
    _, profile = table(30)
    panel, right, classes = order_of(cr.plot_profile(profile, 3))
    move = (profile.perturbed - profile.x0)[3]
    expected = sorted(range(30), key=lambda k: -abs(float(move[k])))[:10]
    assert labels(panel.yaxis) == [f"feature {k}" for k in expected]
    assert bars(panel)[0] == move[expected].tolist()
    for k, text in zip(expected, labels(right.yaxis), strict=True):
        before, after = (float(word) for word in text.split(" → "))
        assert before == pytest.approx(float(profile.x0[3, k]), rel=1e-3)
        assert after == pytest.approx(float(profile.perturbed[3, k]), rel=1e-3)
        assert before != after
    assert len(bars(classes)) == 2


def order_of(figure):
    """Features, their values, classes."""
    panel, classes, right = figure.axes
    return panel, right, classes


def test_a_small_move_of_a_large_value_is_visible_and_none_is_said_to_be_none():
    profile = replace(
        table(3)[1][:1],
        x0=torch.tensor([[123456.0, 1.0, 0.0]]).double(),
        perturbed=torch.tensor([[123456.5, 1.0, -2e-9]]).double(),
    )
    _, right, _ = order_of(cr.plot_profile(profile))
    assert labels(right.yaxis) == ["123456 → 123456.5", "1, unchanged", "0 → -2e-09"]


def names(count):
    return [f"column {k}" for k in range(count)]


def test_features_have_the_names_of_a_table_a_list_or_a_classifier():
    clf, profile = table(6)
    space = cr.Space(columns=names(6))
    named = models.affine_classifier(6, 3, space=space)
    frame = pd.DataFrame(profile.x0.numpy(), columns=names(6))
    for given in ({"inputs": frame}, {"features": names(6)}, {"features": named}):
        assert labels(cr.plot_profile(profile, **given).axes[0].yaxis) == names(6)
    assert labels(cr.plot_profile(profile, features=clf).axes[0].yaxis)[0] == "feature 0"


def test_features_of_a_fitted_scikit_learn_model_have_their_names():
    from sklearn.linear_model import LogisticRegression

    frame = pd.DataFrame(models.inputs(40, features=4).numpy(), columns=names(4))
    model = LogisticRegression().fit(frame, np.arange(40) % 2)
    clf = cr.from_sklearn(model)
    profile = cr.credibility(clf, models.inputs(2, features=4), gamma=1.0, solver=SOLVER)
    assert labels(cr.plot_profile(profile, features=clf).axes[0].yaxis) == names(4)


def test_with_the_scales_of_a_space_features_are_compared_in_them():
    scale = torch.logspace(-4, 4, 12).double()
    clf = models.affine_classifier(12, 3, space=cr.Space(scale=scale))
    profile = cr.credibility(clf, models.inputs(2, features=12), gamma=5.0, solver=SOLVER)
    figure = cr.plot_profile(profile, features=clf)
    units = (profile.perturbed - profile.x0)[0] / scale
    expected = units.abs().argsort(descending=True)[:10].tolist()
    assert labels(figure.axes[0].yaxis) == [f"feature {k}" for k in expected]
    assert bars(figure.axes[0])[0] == units[expected].tolist()
    assert f"{float(units.norm()):.3g} in the scales of the space" in said(figure)


def test_flattened_pictures_are_drawn_in_the_form_of_the_inputs():
    profile = pictures(1)
    flat = replace(profile, x0=profile.x0.flatten(1), perturbed=profile.perturbed.flatten(1))
    for form in ((3, 6, 9), (3, 1, 6, 9)):  # with and without channels
        before, after, _ = images(cr.plot_profile(flat, 2, inputs=np.zeros(form)))
        np.testing.assert_array_equal(before, profile.x0[2, 0].numpy())
        np.testing.assert_array_equal(after, profile.perturbed[2, 0].numpy())


def test_of_sequences_a_sentence_says_how_far_they_moved():
    clf = models.affine_classifier(4 * 5, 3)
    x = models.inputs(2, features=20).reshape(2, 4, 5)
    profile = cr.credibility(clf, x, gamma=5.0, solver=SOLVER)
    figure = cr.plot_profile(profile, 1)
    move = (profile.perturbed - profile.x0)[1]
    assert len(figure.axes) == 1
    assert "20 numbers in the shape (4, 5)" in said(figure)
    assert f"by {float(move.norm()):.3g} in all" in said(figure)
    assert f"the largest change is {float(move.abs().max()):.3g}." in said(figure)
    assert len(images(cr.plot_profile(profile, 1, inputs=x))) == 3  # the caller says: pictures


@pytest.mark.parametrize("last", [False, True], ids=["channels first", "channels last"])
def test_of_signals_the_channel_that_moved_most_is_drawn_before_and_after(last):
    clf = models.affine_classifier(2 * 40, 3)
    x = models.inputs(3, features=80).reshape(3, *((40, 2) if last else (2, 40)))
    profile = cr.credibility(clf, x, gamma=5.0, solver=SOLVER)
    both, difference, _ = cr.plot_profile(profile, 1).axes
    before, after = profile.x0[1], profile.perturbed[1]
    before, after = (before.T, after.T) if last else (before, after)
    row = int((after - before).norm(dim=1).argmax())
    assert both.get_title("left") == f"x0 and x+, channel with index {row}, which moved most"
    for line, values in zip(both.lines, (before, after), strict=True):
        np.testing.assert_array_equal(line.get_ydata(), values[row].numpy())
    move = difference.lines[1].get_ydata()
    np.testing.assert_allclose(move, (after - before)[row].numpy(), atol=1e-15)


def test_a_signal_of_one_channel_needs_no_number_and_a_hidden_one_is_none():
    x = models.inputs(2, features=30)[:, None]
    net = nn.Sequential(nn.Conv1d(1, 2, 3), nn.Flatten(), nn.Linear(56, 3)).double().eval()
    profile = cr.credibility(cr.Classifier(net), x, gamma=5.0, solver=SOLVER)
    assert cr.plot_profile(profile).axes[0].get_title("left") == "x0 and x+"
    clf, flat = table()
    assert len(cr.plot_profile(flat, features=clf).axes) == 3  # bars, their values and classes
    drawn = cr.plot_profile(flat, 2, inputs=flat.x0[:, None]).axes[0].lines[0].get_ydata()
    np.testing.assert_array_equal(drawn, flat.x0[2].numpy())
    hidden = cr.credibility(cr.Classifier(net, module="0"), x, gamma=5.0, solver=SOLVER)
    figure = cr.plot_profile(hidden)
    assert len(figure.axes) == 1
    assert "output of module '0': 56 numbers in the shape (2, 28)" in said(figure)


@pytest.mark.parametrize(
    ("shape", "drawn"),
    [((1, 16), (1, 16)), ((16, 1), (1, 16)), ((1, 15), None), ((12, 96), (12, 96)),
     ((12, 95), None), ((96, 12), (12, 96)), ((17, 999), None), ((40,), None), ((1, 1, 40), None)],
)  # fmt: skip
def test_what_counts_as_a_signal(shape, drawn):
    found = as_signal(torch.zeros(shape))
    assert (None if found is None else tuple(found.shape)) == drawn


def test_what_moves_inside_a_model_is_shown_beside_the_picture_that_went_in():
    net = nn.Sequential(nn.Flatten(), nn.Linear(12, 7), nn.Tanh(), nn.Linear(7, 3)).double()
    x = torch.rand(3, 1, 3, 4, dtype=torch.float64)
    clf = cr.Classifier(net.eval(), module="1")
    profile = cr.credibility(clf, x, gamma=1.0, solver=SOLVER)
    figure = cr.plot_profile(profile, 1, inputs=x)
    np.testing.assert_array_equal(images(figure)[0], x[1, 0].numpy())
    assert labels(figure.axes[1].yaxis) == [f"feature {k}" for k in range(7)]
    varied = cr.credibility(cr.vary_parameters(clf_of(net), x), gamma=1.0, solver=SOLVER)
    assert "parameters" in said(cr.plot_profile(varied))


def clf_of(net):
    return cr.Classifier(net)


def test_the_moving_parts_of_nested_inputs_are_shown_as_features():
    matrix = models.affine(6, 3)[0]
    space = cr.Space(vary=["a", "b"])
    clf = cr.Classifier(lambda x: torch.cat([x["a"], x["b"]], 1) @ matrix.T, space=space)
    x = {"a": models.inputs(2, features=2), "b": models.inputs(2, features=4)}
    profile = cr.credibility(clf, x, gamma=5.0, solver=SOLVER)
    move = (profile.perturbed - profile.x0)[0]
    assert bars(cr.plot_profile(profile).axes[0]) == [move.tolist()]


def test_a_sample_without_a_profile_is_said_to_have_none():
    x = models.inputs(3, features=6)
    x[1, 2] = math.nan
    profile = cr.credibility(models.affine_classifier(6, 3), x, gamma=5.0, solver=SOLVER)
    figure = cr.plot_profile(profile, 1)
    style.png(figure)
    assert said(figure).startswith("No profile (non finite input): The input holds NaN")
    flat = cr.credibility(cr.Classifier(lambda x: 0 * x), x[:1], gamma=5.0, solver=SOLVER)
    assert "(no gradient: no search)" in said(cr.plot_profile(flat))


def test_a_table_has_no_inputs_to_draw(tmp_path):
    _, profile = table(6)
    profile.to_parquet(tmp_path / "p.parquet")
    with pytest.raises(cr.errors.NotStoredError, match="has no `x0`"):
        cr.plot_profile(cr.Profile.from_parquet(tmp_path / "p.parquet"))
    profile.save(tmp_path / "p.safetensors")
    assert isinstance(cr.plot_profile(cr.Profile.load(tmp_path / "p.safetensors")), Figure)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"index": 4}, "a sample, 0 to 3, got 4"),
        ({"index": -5}, "got -5"),
        ({"index": 1.0}, "got 1.0"),
        ({"classes": ["a", "b"]}, "3 names, one per class, got 2"),
        ({"classes": "abc"}, "got 'abc'"),
        ({"features": ["a"]}, "6 names, one per feature"),
        ({"features": "abcdef"}, "got 'abcdef'"),
        ({"features": 6}, "got a value of type int. Pass a list of names"),
        (
            {"features": SimpleNamespace(classifier=models.affine_classifier(6, 3))},
            "Pass the classifier inside it: model.classifier.",
        ),
        ({"inputs": pd.DataFrame(np.zeros((4, 2)))}, "6 names, one per feature"),
        ({"inputs": torch.zeros(3, 6)}, "of the 4 samples of the profile, got shape (3, 6)"),
        ({"inputs": torch.zeros(4)}, "got shape (4,)"),
        ({"inputs": [1, 2]}, "got a list"),
        ({"inputs": np.array([["a"] * 6] * 4)}, "got an array of <U1"),
        ({"inputs": torch.zeros(4, 8)}, "pictures, or as many numbers per sample as moved, 6"),
    ],
)
def test_bad_arguments_are_named(given, words):
    _, profile = table(6)
    with pytest.raises(cr.errors.InvalidArgumentError) as caught:
        cr.plot_profile(profile, **given)
    assert words in str(caught.value)
    assert caught.value.argument in (*given, "features")


def test_what_is_no_profile_and_an_empty_one_are_refused():
    with pytest.raises(cr.errors.InvalidArgumentError, match="`profile`: expected a profile"):
        cr.plot_profile(torch.zeros(2, 3))
    with pytest.raises(cr.errors.InvalidArgumentError, match="got an empty profile"):
        cr.plot_profile(table(6)[1][:0])


def test_the_last_sample_is_minus_one():
    _, profile = table(6)
    assert said(cr.plot_profile(profile, -1)) == said(cr.plot_profile(profile, 3))


def test_nothing_global_is_left_behind():
    before = plt.get_fignums()
    assert isinstance(cr.plot_profile(pictures(1)), Figure)
    assert plt.get_fignums() == before


def test_without_matplotlib_the_extra_is_named():
    code = (
        "import sys; sys.modules['matplotlib'] = None; import torch, credibly as cr; "
        "p = cr.credibility(cr.Classifier(lambda x: x), torch.randn(2, 3), gamma=1.0); "
        "cr.plot_profile(p)"
    )
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert "MissingExtraError: A picture of a profile needs the package 'matplotlib'" in done.stderr
    assert "credibly[report]" in done.stderr


LONG = "a class with a very long name, $5 or $10, kind {}"


SHAPES = {
    "grey": (1, 28, 28), "wide": (1, 10, 60), "tall": (3, 60, 10), "colour": (3, 32, 32),
    "table": (30,), "few": (2,), "signal": (12, 500), "other": (5, 6),
}  # fmt: skip


@pytest.mark.parametrize("kind", SHAPES)
@pytest.mark.parametrize("named", [False, True])
def test_no_words_overlap_or_leave_the_figure(kind, named):
    shape = SHAPES[kind]
    count = 100 if kind == "colour" else 2 if kind == "few" else 12
    size, classes = math.prod(shape), [LONG.format(k) for k in range(count)]
    clf = models.affine_classifier(size, count, scale=0.1)
    profile = cr.credibility(clf, torch.rand(1, *shape).double(), gamma=9.0, solver=SOLVER)
    features = [f"measured {k}: " + 9 * "long words " for k in range(size)] if named else None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        figure = cr.plot_profile(profile, features=features, classes=classes if named else None)
        FigureCanvasAgg(figure).draw()
    assert_apart(figure)


def seen(axis):
    """Labels of the ticks in view: matplotlib keeps others, and does not draw them."""
    low, high = sorted(axis.get_view_interval())
    ticks = [tick for tick in axis.get_major_ticks() if low - 1e-9 <= tick.get_loc() <= high + 1e-9]
    return [label for tick in ticks for label in (tick.label1, tick.label2)]


def assert_apart(figure):
    """All words lie inside the figure, and those of different places do not touch."""
    boxes = {}
    frame = figure.bbox
    for n, panel in enumerate(figure.axes):
        texts = [panel.title, panel._left_title, panel.xaxis.label, *panel.texts]
        texts += [*seen(panel.xaxis), *seen(panel.yaxis)]
        for m, text in enumerate(texts):
            if text.get_text() and text.get_visible():
                boxes[n, m] = text.get_window_extent()
    boxes["title", 0] = figure._suptitle.get_window_extent()
    for place, box in boxes.items():
        inside = (box.x0, box.y0, frame.width - box.x1, frame.height - box.y1)
        assert min(inside) > -1, place
    for (one, first), (other, second) in itertools.combinations(boxes.items(), 2):
        assert not first.padded(-1).overlaps(second.padded(-1)), (one, other)


def test_labels_from_outside_are_one_line_and_no_formula():
    assert style.plain("a\n b") == "a b"
    assert style.plain("$x_1$") == r"\$x_1\$"
    assert style.plain("abcdefghij" * 4, 10) == "abcde…ghij"
    assert len(style.plain("x" * 99)) == 30


@pytest.mark.parametrize(
    ("shape", "drawn"),
    [((1, 4, 5), (4, 5, 1)), ((3, 4, 5), (4, 5, 3)), ((4, 5, 3), (4, 5, 3)), ((4, 5, 1), (4, 5, 1)),
     ((2, 4, 5), None), ((4, 5), None), ((6,), None), ((1, 1, 4, 5), None)],
)  # fmt: skip
def test_what_counts_as_a_picture(shape, drawn):
    found = as_picture(torch.zeros(shape))
    assert (None if found is None else tuple(found.shape)) == drawn


def test_names_that_are_cut_alike_are_told_apart_by_their_numbers():
    names = [f"a very long class name, number {k}, with more words" for k in range(3)]
    short = style.plain_names([*names, "short", names[0], "short"])
    assert [name[:3] for name in short] == ["0: ", "1: ", "2: ", "sho", "4: ", "sho"]
    assert all(len(name) <= 30 for name in short)
    panel = cr.plot_profile(pictures(1), classes=names).axes[3]
    assert len(set(labels(panel.yaxis))) == 3


def test_a_table_in_another_order_than_the_model_names_nothing_wrongly():
    net = models.smooth_network(features=3, classes=3)
    clf = cr.Classifier(net, space=cr.Space(columns=["a", "b", "c"]))
    table = pd.DataFrame(models.inputs(4, 3).numpy(), columns=["a", "b", "c"])
    profile = cr.credibility(clf, table[["c", "a", "b"]], gamma=5.0)
    cr.plot_profile(profile, 1, inputs=table)
    with pytest.raises(cr.errors.InvalidArgumentError, match="another order: c, a, b"):
        cr.plot_profile(profile, 1, inputs=table[["c", "a", "b"]])


def test_signals_that_were_brought_are_drawn_as_curves():
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 3)).eval()
    signals = torch.randn(2, 2, 32)
    profile = cr.credibility(cr.Classifier(net), signals, gamma=5.0)
    for inputs in (None, signals):
        figure = cr.plot_profile(profile, 0, inputs=inputs)
        assert not images(figure)
