"""The most probable classes and the others as one: against sums of probabilities."""

from decimal import Decimal, getcontext

import pytest
import torch
from torch import nn

import credibly as cr
from credibly.model.bind import bind
from credibly.model.features import LastHidden
from credibly.model.joined import Joined, keep_top
from credibly.model.losses import CustomLoss
from tests.reference import models

CLASSES = 30


def classifier(**settings):
    return cr.Classifier(models.smooth_network(classes=CLASSES), **settings)


def naive(clf, x, kept):
    """Losses (n, m + 1) from probabilities that are added one at a time."""
    rows = []
    for p, numbers in zip(clf.logits(x).detach().softmax(1), kept.tolist(), strict=True):
        rest = sum(float(p[k]) for k in range(len(p)) if k not in numbers)
        rows.append([*(float(p[k]) for k in numbers), rest])
    return -torch.tensor(rows, dtype=torch.float64).log()


@pytest.mark.parametrize("top", [1, 2, 7, CLASSES - 1])
def test_losses_are_those_of_added_probabilities(top):
    clf, x = classifier(), models.inputs()
    variable = bind(clf, x, top=top)
    elsewhere = x + 0.3 * models.inputs(seed=5)
    order = (-clf.logits(x)).argsort(1)
    assert torch.equal(variable.kept, order[:, :top])  # by x0, wherever the losses are taken
    for at in (x, elsewhere):
        losses = variable.losses(at).detach()
        assert losses.shape == (len(x), top + 1)
        assert torch.allclose(losses, naive(clf, at, variable.kept), rtol=1e-12, atol=1e-13)


def test_probabilities_of_models_that_return_them_are_added_too():
    net = models.smooth_network(classes=CLASSES)
    clf = cr.Classifier(lambda x: net(x).softmax(1), outputs="probabilities")
    x = models.inputs()
    variable = bind(clf, x, top=4)
    assert torch.allclose(variable.losses(x), naive(cr.Classifier(net), x, variable.kept))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_nothing_overflows_or_becomes_negative(dtype):
    logits = torch.tensor([[900.0, 0.0, -5.0, -900.0, 2.0], [-3.0, 80.0, 80.5, -80.0, 79.0]])
    clf, x = cr.Classifier(lambda x: x), logits.to(dtype)
    variable = Joined.of(bind(clf, x), torch.tensor([[2, 3], [0, 3]]), 5)
    getcontext().prec = 1000
    for row, numbers, found in zip(logits, variable.kept.tolist(), variable.losses(x), strict=True):
        powers = [Decimal(float(z)).exp() for z in row]
        parts = [powers[k] for k in numbers]
        parts.append(sum(powers) - sum(parts))
        exact = torch.tensor([float(-(part / sum(powers)).ln()) for part in parts])
        assert bool((found >= 0).all())
        assert torch.allclose(found.double(), exact.double(), rtol=1e-6, atol=1e-6)


def test_the_loss_of_the_others_is_not_convex_in_the_logits():
    z = torch.tensor([[0.0, 1.0, -1.0], [0.0, 0.0, 0.0], [0.0, -1.0, 1.0]])
    variable = Joined.of(bind(cr.Classifier(lambda x: x), z), torch.zeros(3, 1).long(), 3)
    left, middle, right = variable.losses(z)[:, 1].tolist()
    assert middle > (left + right) / 2


def test_the_gradient_and_its_derivative_are_those_of_differences():
    variable = bind(classifier(), models.inputs(2), top=3)
    x = models.inputs(2, seed=9).requires_grad_()
    assert torch.autograd.gradcheck(variable.losses, x)
    assert torch.autograd.gradgradcheck(variable.losses, x)


@pytest.mark.parametrize("head", [1, 2])
def test_two_classes_are_reordered_and_nothing_else(head):
    clf, x = models.affine_classifier(features=8, classes=head), models.inputs(20)
    variable = bind(clf, x, top=1)
    assert torch.equal(variable.kept[:, 0], clf.predict(x))
    every = clf.losses(x)
    reordered = every.gather(1, torch.cat([variable.kept, 1 - variable.kept], dim=1))
    assert torch.allclose(variable.losses(x), reordered, rtol=1e-13)
    assert len(set(variable.kept.flatten().tolist())) == 2


def test_a_tie_is_won_by_the_first_class():
    clf, x = cr.Classifier(lambda x: x), torch.tensor([[1.0, 2.0, 2.0, 2.0]])
    assert bind(clf, x, top=2).kept.tolist() == [[1, 2]]


def test_rows_without_losses_keep_no_class():
    net = models.smooth_network(classes=CLASSES)

    def model(x):
        return torch.where(x[:, :1] > 50, torch.nan, net(x))

    x = models.inputs()
    x[1, 2], x[4, 0] = torch.inf, 99.0
    variable = bind(cr.Classifier(model), x, top=3)
    assert (variable.kept < 0).any(1).tolist() == [False, True, False, False, True, False]
    assert bool((variable.kept[[1, 4]] == -1).all())
    nothing = bind(cr.Classifier(net), torch.full_like(x, torch.nan), top=3)
    assert nothing.total == CLASSES
    assert bool((nothing.kept == -1).all())


def test_it_takes_one_forward_of_each_row_that_can_be_used():
    clf, x = classifier(), models.inputs(7)
    x[2] = torch.nan
    seen = []
    watched = clf.with_net(lambda x: seen.append(len(x)) or clf.net(x))
    keep_top(bind(watched, x), 3, chunk_size=4)
    assert seen == [4, 2]


def test_samples_can_be_chosen_and_moved():
    clf, x = classifier(), models.inputs()
    variable = bind(clf, x, top=3)
    rows = torch.tensor([4, 1])
    assert torch.allclose(variable.select(rows).losses(x[rows]), variable.losses(x)[rows])
    moved = bind(variable, x + 1)
    assert torch.equal(moved.start, x + 1)
    assert torch.equal(moved.kept, variable.kept)  # of the same samples
    assert torch.equal(moved.losses(x), variable.losses(x))


def test_what_moves_is_that_of_the_variable_inside():
    net = models.smooth_network(classes=CLASSES)
    clf, x = cr.Classifier(net, module="1"), models.inputs()
    inner, variable = bind(clf, x), bind(clf, x, top=3)
    assert (variable.moves, inner.moves) == ("module", "module")
    assert variable.describe() == (
        "output of module '1'; the 3 most probable classes of each, the others as one"
    )
    expected = naive(cr.Classifier(net[2:]), inner.start + 0.1, variable.kept)
    assert torch.allclose(variable.losses(inner.start + 0.1), expected)
    space = cr.Space(scale=torch.arange(1, 9).double(), bounds=(-4.0, 4.0), locked=[0])
    inside, joined = (bind(classifier(space=space), x, top=top) for top in (None, 3))
    for one, other in zip(inside.limits((-3, 3)), joined.limits((-3, 3)), strict=True):
        assert torch.equal(one, other)
    assert torch.equal(inside.decode(inside.start), joined.decode(joined.start))
    assert torch.equal(inside.encode(x), joined.encode(x))
    assert torch.equal(inside.free_values(inside.start), joined.free_values(joined.start))


def test_parameters_can_be_what_moves():
    clf, x = classifier(), models.inputs(3)
    variable = bind(cr.vary_parameters(clf, x), top=2)
    assert variable.moves == "parameters"
    assert torch.allclose(variable.losses(variable.start), naive(clf, x, variable.kept))


def test_another_network_can_be_put_in_its_place():
    clf, x = classifier(), models.inputs(3)
    variable = bind(clf, x, top=2)
    logits, features = LastHidden.find(variable).forward(variable, x)
    assert logits.shape == (3, 3)
    assert torch.allclose(features, clf.net[:-1](x))


def test_baselines_are_about_every_class():
    clf, x = classifier(), models.inputs()
    score = cr.baselines.MaxSoftmax()
    assert torch.equal(score(bind(clf, x, top=2)), score(clf, x))


def test_it_may_be_bound_in_inference_mode():
    clf, x = classifier(), models.inputs()
    with torch.inference_mode():
        variable = bind(clf, x.clone(), top=3).select(slice(0, 4))
        profile = cr.credibility(variable, gamma=10.0, solver=cr.solvers.LBFGS(steps=3))
    assert torch.equal(profile.kept, bind(clf, x, top=3).kept[:4])


@pytest.mark.parametrize(
    ("top", "loss", "message"),
    [
        (0, "cross_entropy", "`top`: expected a whole number >= 1, got 0"),
        (2.5, "cross_entropy", "`top`: expected a whole number"),
        (True, "cross_entropy", "`top`: expected a whole number"),
        (CLASSES, "cross_entropy", "fewer than the 30 classes of the model, got 30. Leave it out"),
        (3, "logistic", "`top`: expected a model with cross-entropy.*got top=3 with Logistic"),
        (3, CustomLoss(lambda z: -z.log_softmax(1)), "`top`: expected a model with cross-entropy"),
    ],
)
def test_what_cannot_be_joined_is_refused(top, loss, message):
    clf, x = classifier(loss=loss), models.inputs()
    for use in (
        lambda: bind(clf, x, top=top),
        lambda: cr.auto_gamma(clf, x, top=top),
        lambda: cr.credibility(clf, x, gamma=1.0, top=top),
    ):
        with pytest.raises(cr.errors.InvalidArgumentError, match=message):
            use()


def test_classes_are_joined_only_once():
    variable = bind(classifier(), models.inputs(), top=3)
    with pytest.raises(cr.errors.InvalidArgumentError, match="bound with `top` before"):
        bind(variable, top=2)


def test_a_model_in_training_mode_is_refused_as_ever():
    net = nn.Sequential(nn.Linear(8, 5), nn.Dropout()).double()
    with pytest.raises(cr.errors.ModelError, match="eval"):
        bind(cr.Classifier(net), models.inputs(), top=2)
