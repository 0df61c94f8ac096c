"""Mistakes people really make, and the one clear answer each gets."""

import math

import numpy as np
import pytest
import torch
from torch import nn

import credibly as cr
from tests.reference import models

X = models.inputs(3)
NET = models.smooth_network()
CLF = cr.Classifier(NET)


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"bounds": (0,)}, "bounds"),
        ({"bounds": 0.5}, "bounds"),
        ({"bounds": "ab"}, "bounds"),
        ({"bounds": (None, 1)}, "bounds"),
        ({"bounds": (-9, 9, 3)}, "bounds"),
        ({"progress": "yes"}, "progress"),
        ({"progress": None}, "progress"),
        ({"chunk_size": 2.5}, "chunk_size"),
    ],
)
def test_settings_of_the_wrong_kind_are_refused_by_name(settings, name):
    with pytest.raises(cr.errors.InvalidArgumentError, match=f"`{name}`"):
        cr.credibility(CLF, X, gamma=1.0, **settings)


@pytest.mark.parametrize("weights", ["abc", [1, 2, 3, 4, "x"], {"a": 1}])
def test_weights_that_are_no_numbers_are_refused(weights):
    with pytest.raises(cr.errors.InvalidArgumentError, match="`weights`"):
        cr.credibility(CLF, X, weights=weights)


@pytest.mark.parametrize("gamma", [np.array([1.0, 2.0, 3.0]), [1.0], "200", 1e400])
def test_gammas_that_are_not_one_number_are_refused(gamma):
    with pytest.raises(cr.errors.InvalidArgumentError, match="`gamma`"):
        cr.credibility(CLF, X, gamma=gamma)


@pytest.mark.parametrize("gamma", [1e-50, 1e39])
def test_gammas_that_single_precision_cannot_hold_are_refused(gamma):
    clf = cr.Classifier(models.smooth_network().float())
    with pytest.raises(cr.errors.InvalidArgumentError, match=r"`gamma`.*float32 can hold"):
        cr.credibility(clf, X.float(), gamma=gamma)


@pytest.mark.parametrize("gamma", [np.float32(30), np.int64(30), torch.tensor(30.0), 30])
def test_numbers_of_any_library_are_taken(gamma):
    assert cr.credibility(CLF, X, gamma=gamma, chunk_size=np.int64(2)).gamma == 30.0


@pytest.mark.parametrize(
    "make",
    [
        lambda: cr.solvers.LBFGS(tolerance="3"),
        lambda: cr.solvers.LBFGS(patience=1.5),
        lambda: cr.solvers.LBFGS(steps=True),
        lambda: cr.solvers.Hybrid(effort="x"),
        lambda: cr.solvers.Hybrid(tolerance=2),
        lambda: cr.solvers.ArrowHurwicz(primal_step="a"),
        lambda: cr.solvers.GradientDescent(step=None),
    ],
)
def test_solver_settings_of_the_wrong_kind_say_what_to_do(make):
    with pytest.raises(cr.errors.InvalidArgumentError, match="Leave it out for the default"):
        make()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_refused_before_any_work(dtype):
    clf = cr.Classifier(nn.Linear(8, 3).to(dtype))
    with pytest.raises(cr.errors.InvalidArgumentError, match=r"`x`.*float32"):
        cr.credibility(clf, X.to(dtype), gamma=1.0)


def test_a_model_may_compute_in_another_precision_than_its_inputs():
    single = models.smooth_network().float()
    low = cr.credibility(cr.Classifier(lambda x: single(x.float())), X, gamma=30.0)
    assert low.credibility.dtype == torch.float64
    exact = cr.credibility(CLF, X, gamma=30.0)
    assert torch.allclose(low.credibility, exact.credibility, atol=1e-2)
    high = cr.credibility(cr.Classifier(lambda x: single(x).double()), X.float(), gamma=30.0)
    assert high.credibility.dtype == torch.float32


@pytest.mark.parametrize("classes", ["abcde", ["a", "a", "b", "c", "d"], {"a", "b"}, 3])
def test_class_names_must_be_a_sequence_of_different_names(classes):
    with pytest.raises(cr.errors.InvalidArgumentError, match="`classes`"):
        cr.Classifier(NET, classes=classes)


def test_class_names_become_strings():
    assert cr.Classifier(NET, classes=range(5)).class_name(3) == "3"


def test_odd_devices_and_precisions_are_refused():
    with pytest.raises(cr.errors.InvalidArgumentError, match="`device`"):
        cr.Classifier(NET, device="nonsense")
    with pytest.raises(cr.errors.InvalidArgumentError, match="`dtype`"):
        cr.Classifier(NET, dtype="float32")
    with pytest.raises(cr.errors.InvalidArgumentError, match=r"`x`.*to_dense"):
        cr.credibility(CLF, X.to_sparse(), gamma=1.0)


def test_a_model_that_rounds_draws_a_warning_and_ends_without_gradient():
    clf = cr.Classifier(lambda x: NET(x).mul(50).round())
    with pytest.warns(cr.errors.CrediblyWarning, match="rounding"):
        profile = cr.credibility(clf, X, gamma=1.0)
    assert set(profile.status) == {cr.Status.NO_GRADIENT}


@pytest.mark.filterwarnings("ignore:two inputs give different outputs")  # they are flat as well
def test_probabilities_rounded_to_zero_draw_a_warning():
    clf = cr.Classifier(lambda x: (NET(x) * 4000).softmax(1), outputs="probabilities")
    with pytest.warns(cr.errors.CrediblyWarning, match="Pass the logits instead"):
        cr.credibility(clf, X, gamma=1e6)


def test_separate_sigmoids_are_probabilities_of_a_one_versus_rest_loss():
    labels = cr.Classifier(lambda x: NET(x).sigmoid(), outputs="probabilities", loss="logistic")
    direct = cr.Classifier(NET, loss="logistic")
    one, two = (cr.credibility(c, X, gamma=30.0).credibility for c in (labels, direct))
    assert torch.allclose(one, two, atol=1e-6)


def test_a_loss_of_ones_own_gets_the_single_output_as_it_is():
    def squared(z):
        return torch.cat([z.square(), (z - 3).square()], dim=1)

    clf = cr.Classifier(lambda x: NET(x)[:, :1], loss=cr.losses.CustomLoss(squared))
    profile = cr.credibility(clf, X, gamma=30.0)
    assert profile.credibility.shape == (3, 2)
    assert "squared" in profile.settings.loss
    assert "0x" not in profile.settings.loss


@pytest.mark.parametrize("settings", [{"sample": 0}, {"sample": 2.5}, {"chunk_size": 0}])
def test_auto_gamma_checks_its_counts(settings):
    with pytest.raises(cr.errors.InvalidArgumentError, match=f"`{next(iter(settings))}`"):
        cr.auto_gamma(CLF, X, **settings)


def test_a_gradient_that_is_not_finite_at_x0_returns_x0():
    clf = cr.Classifier(lambda x: NET(x) + x.abs().sqrt()[:, :5])
    x = X.clone()
    x[1, 2] = 0.0
    profile = cr.credibility(clf, x, gamma=1.0)
    assert profile.status[1] is cr.Status.NON_FINITE_MODEL
    assert torch.equal(profile.perturbed[1], x[1])
    assert not math.isnan(float(profile.risk[1]))


@pytest.mark.parametrize(
    ("gamma", "words"),
    [
        ("200", "without quotes: gamma=200."),
        (" 1e3 ", "without quotes: gamma=1e3."),
        ("Auto", "lower case: gamma='auto'"),
        ("AUTO ", "lower case: gamma='auto'"),
        ("median", "'auto' finds one"),
    ],
)
def test_a_gamma_in_words_is_told_how_to_write_it(gamma, words):
    with pytest.raises(cr.errors.InvalidArgumentError, match="or 'auto'") as caught:
        cr.credibility(CLF, X, gamma=gamma)
    assert words in caught.value.remedy


def convolution():
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.Flatten(), nn.Linear(4 * 36, 3)).eval()


def test_a_forgotten_sample_axis_is_named():
    x = torch.randn(1, 8, 8)
    with pytest.raises(cr.errors.ModelError, match=r"x of shape \(1, 8, 8\)") as caught:
        cr.credibility(cr.Classifier(convolution()), x, gamma=1.0)
    assert "works on x[None]" in caught.value.remedy
    assert len(cr.credibility(cr.Classifier(convolution()), x[None], gamma=1.0)) == 1


def test_a_forgotten_channel_axis_is_named():
    x = torch.randn(5, 8, 8)
    with pytest.raises(cr.errors.ModelError, match=r"x of shape \(5, 8, 8\)") as caught:
        cr.credibility(cr.Classifier(convolution()), x, gamma=1.0)
    assert "x[:, None]: pass that if these are 5 samples" in caught.value.remedy


def test_no_axis_is_advised_where_none_helps():
    with pytest.raises(cr.errors.ModelError, match="RuntimeError") as caught:
        cr.credibility(CLF, X[:, :3], gamma=1.0)
    assert "None" not in caught.value.remedy


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (lambda x: {"features": x, "logits": NET(x)}, 'found["logits"]'),
        (lambda x: {"loss": x.sum(), "scores": NET(x)}, 'found["scores"]'),
        (lambda x: {0: NET(x)}, "found[0]"),
        (lambda x: NET(x).detach().numpy(), "must stay in torch to be differentiated"),
        (lambda x: (NET(x), x), "found[0]"),
    ],
)
def test_a_model_that_returns_no_tensor_is_told_how_to_give_one(model, words):
    with pytest.raises(cr.errors.ModelError, match="expected a tensor of outputs") as caught:
        cr.credibility(cr.Classifier(model), X, gamma=1.0)
    assert words.replace('"', "'") in caught.value.remedy
    assert "loss" not in str(caught.value) or "'loss', 'scores'" in str(caught.value)


def test_weights_and_paths_are_no_models():
    with pytest.raises(cr.errors.InvalidArgumentError, match="into your module first"):
        cr.Classifier(NET.state_dict())
    with pytest.raises(cr.errors.InvalidArgumentError, match="load_classifier"):
        cr.Classifier("net.pt")


def test_profiles_that_do_not_go_together_name_only_what_differs():
    one, other = (cr.credibility(CLF, X, gamma=gamma) for gamma in (30.0, 31.0))
    with pytest.raises(cr.errors.InvalidArgumentError) as caught:
        cr.Profile.concatenate([one, one, other])
    text = f"{caught.value.expected} | {caught.value.got}"
    assert "gamma 30 for 5 classes" in text
    assert "gamma 31 for 5 classes in part 2" in text
    assert "Hybrid" not in text
    assert "CrossEntropy" not in text
    third = cr.credibility(CLF, X, gamma=30.0, solver=cr.solvers.LBFGS(steps=3))
    with pytest.raises(cr.errors.InvalidArgumentError, match=r"solver Hybrid.*solver LBFGS"):
        cr.Profile.concatenate([one, third])


def test_a_missing_library_can_be_installed_in_three_ways():
    text = str(cr.errors.MissingExtraError(package="mapie", extra="conformal", purpose="Sets"))
    for command in ("'credibly[conformal]'", "'.[conformal]'", "mapie"):
        assert f"pip install {command}" in text


@pytest.mark.parametrize(
    "use",
    [
        lambda clf, _: cr.auto_gamma(clf, X),
        cr.attached_credibility,
        lambda clf, profile: cr.theory.check_tradeoff(clf, profile, directions=1),
        lambda clf, profile: cr.theory.check_assumption_2(clf, profile, directions=1),
        lambda clf, _: cr.attacks.minimum_norm_attacks(
            clf, X, bounds=(-9.0, 9.0), attacks=["deepfool"]
        ),
    ],
    ids=["auto_gamma", "attached", "tradeoff", "assumption 2", "minimum norm"],
)
def test_a_model_in_training_mode_is_refused_everywhere_and_left_as_found(use):
    norm = nn.BatchNorm1d(NET[0].in_features, dtype=torch.float64)
    net = nn.Sequential(norm, nn.Dropout(0.5), NET)
    clf = cr.Classifier(net.eval())
    profile = cr.credibility(clf, X, gamma=30.0, solver=cr.solvers.LBFGS(steps=3))
    net.train()
    before = {name: value.clone() for name, value in net.state_dict().items()}
    with pytest.raises(cr.errors.ModelError, match=r"training mode.*Call net\.eval\(\) first"):
        use(clf, profile)
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())


def test_numbers_that_require_gradients_leave_no_graph_in_the_answers():
    w = torch.full((5,), 9.0, dtype=torch.float64, requires_grad=True)
    profile = cr.credibility(CLF, X, weights=w)
    duals, c = (
        part.clone().requires_grad_() for part in (profile.multipliers, profile.credibility)
    )
    certificate = cr.certify(
        CLF, X, profile.perturbed, weights=w, multipliers=duals, credences=c, gradient_samples=2
    )
    solution = cr.theory.solve_constrained(CLF, X, c - 0.1)
    for answer in (profile, profile.certificate, certificate, solution):
        tensors = [value for value in vars(answer).values() if isinstance(value, torch.Tensor)]
        assert tensors
        assert not any(tensor.requires_grad for tensor in tensors)
