"""Each formula against its paper's, written for one sample at a time in plain Python."""

import math
from decimal import Decimal, getcontext

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import brentq, minimize_scalar
from torch import nn

import credibly as cr
from credibly import baselines as b
from tests.reference import models

ROWS = st.lists(
    st.lists(st.floats(-6, 6, width=32), min_size=4, max_size=4), min_size=1, max_size=5
)


def softmax(z, t=1.0):
    e = [math.exp((v - max(z)) / t) for v in z]
    return [v / sum(e) for v in e]


def naive_gen(z, gamma, top_m):
    p = sorted(softmax(z), reverse=True)[:top_m]
    return -sum(v**gamma * (1 - v) ** gamma for v in p)


def naive_doctor(z, t):
    g = sum(v * v for v in softmax(z, t))
    return -math.log((1 - g) / g)


def naive_norm(z, p):
    centred = [v - sum(z) / len(z) for v in z]
    length = sum(abs(v) ** p for v in centred) ** (1 / p)
    return max(centred) / length if length else 0.0


def odds(z, t=1.0):
    p = sorted(softmax(z, t))
    return math.log(p[-1] / sum(p[:-1]))


def naive_ratio(z):
    losses = sorted(-math.log(v) for v in softmax(z))
    return math.log(losses[1] / losses[0])


FORMULAS = {
    "max softmax": (b.MaxSoftmax(), odds),
    "margin": (b.LogitMargin(), lambda z: max(z) - sorted(z)[-2]),
    "entropy": (b.NegativeEntropy(), lambda z: sum(v * math.log(v) for v in softmax(z))),
    "max logit": (b.MaxLogit(), max),
    "p-norm": (b.MaxLogitPNorm(p=3.0), lambda z: naive_norm(z, 3.0)),
    "energy": (
        b.Energy(temperature=2.0),
        lambda z: 2 * math.log(sum(math.exp(v / 2) for v in z)),
    ),
    "GEN": (b.GEN(gamma=0.1, top_m=3), lambda z: naive_gen(z, 0.1, 3)),
    "GEN of all": (b.GEN(), lambda z: naive_gen(z, 0.1, 4)),
    "temperature": (b.TemperatureScaled(temperature=1.7), lambda z: odds(z, 1.7)),
    "DOCTOR": (b.Doctor(temperature=1.5), lambda z: naive_doctor(z, 1.5)),
    "DOCTOR beta": (b.Doctor(variant="beta"), odds),
    "c0": (b.CredenceRatio(), naive_ratio),
}


@pytest.mark.parametrize("name", FORMULAS)
@given(rows=ROWS)
def test_formulas_are_those_of_the_papers(name, rows):
    baseline, formula = FORMULAS[name]
    found = baseline.of_logits(torch.tensor(rows, dtype=torch.float64))
    assert found.dtype == torch.float64
    assert found.tolist() == pytest.approx([formula(row) for row in rows], rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("name", [n for n in FORMULAS if n != "p-norm"])
def test_scores_still_differ_where_softmax_is_one(name):
    margins = torch.tensor([20.0, 50.0, 100.0, 300.0])
    logits = torch.zeros(4, 3)
    logits[:, 0] = margins  # float32, as a network gives them
    score = FORMULAS[name][0].of_logits(logits)
    assert bool((score.diff() > 0).all()), score


def test_small_numbers_are_right_to_full_precision():
    getcontext().prec = 60
    e = [Decimal(50).exp(), Decimal(1), Decimal(1)]
    p = [v / sum(e) for v in e]
    z = torch.tensor([[50.0, 0.0, 0.0]])
    g = sum(v * v for v in p)
    expected = {
        "max softmax": (p[0] / (1 - p[0])).ln(),
        "entropy": sum(v * v.ln() for v in p),
        "DOCTOR": -((1 - g) / g).ln(),
        "c0": (p[1].ln() / p[0].ln()).ln(),
        "GEN": -sum((v * (1 - v)) ** Decimal("0.1") for v in p),
    }
    others = {"DOCTOR": b.Doctor()}
    for name, value in expected.items():
        baseline = others.get(name, FORMULAS[name][0])
        assert float(baseline.of_logits(z)) == pytest.approx(float(value), rel=1e-13), name


def test_the_norm_is_that_of_any_size_of_logits():
    z = torch.randn(5, 4, dtype=torch.float64)
    score = b.MaxLogitPNorm(p=7.0).of_logits
    torch.testing.assert_close(score(1e200 * z), score(z))
    torch.testing.assert_close(score(z + 3), score(z))
    assert score(torch.ones(1, 4)).tolist() == [0.0]


def test_called_on_a_classifier_they_give_what_they_give_on_its_logits():
    net = models.smooth_network()
    clf, x = cr.Classifier(net), models.inputs(7)
    x[3, 2] = math.nan
    for baseline, _ in FORMULAS.values():
        found = baseline(clf, x, chunk_size=2)
        expected = baseline.of_logits(net(x).detach())
        assert bool(found[3].isnan())
        good = torch.arange(7) != 3
        torch.testing.assert_close(found[good], expected[good])
        assert baseline.passes(5) == pytest.approx(1 / 3)


def test_the_rule_on_c0_uses_the_loss_of_the_classifier():
    net, x = models.smooth_network(), models.inputs(6)
    for loss in ("cross_entropy", "logistic", "hinge"):
        clf = cr.Classifier(net, loss=loss)
        best, second = clf.losses(x).detach().sort(1).values[:, :2].unbind(1)
        torch.testing.assert_close(b.CredenceRatio()(clf, x), (second / best).log())


def test_two_perfect_fits_are_worth_nothing():
    clf = cr.Classifier(lambda x: x, loss="one_versus_rest_hinge")
    x = torch.tensor([[2.0, 3.0, -1.0], [2.0, 0.5, -1.0]], dtype=torch.float64)
    assert b.CredenceRatio()(clf, x).tolist() == [0.0, math.inf]


def test_a_binary_head_of_one_logit_has_two_classes():
    head = nn.Linear(3, 1).double().eval()
    x = models.inputs(5, features=3)
    z = head(x).detach()
    both = torch.cat([torch.zeros_like(z), z], dim=1)
    for baseline in (b.MaxSoftmax(), b.NegativeEntropy(), b.Doctor()):
        found = baseline(cr.Classifier(head), x)
        torch.testing.assert_close(found, baseline.of_logits(both))


def test_which_class_of_a_binary_head_comes_first_is_worth_nothing():
    head = nn.Linear(3, 1).double().eval()
    x, turned = models.inputs(40, features=3), nn.Linear(3, 1).double().eval()
    turned.load_state_dict({name: -value for name, value in head.state_dict().items()})
    size = head(x).detach().squeeze(1).abs()
    for name, (baseline, _) in FORMULAS.items():
        found = baseline(cr.Classifier(head), x)
        torch.testing.assert_close(found, baseline(cr.Classifier(turned), x), msg=name)
    torch.testing.assert_close(b.MaxLogit()(cr.Classifier(head), x), size / 2)
    expected = (size / 2).exp().add((-size / 2).exp()).log()
    torch.testing.assert_close(b.Energy()(cr.Classifier(head), x), expected)


@pytest.mark.parametrize("true_temperature", [0.4, 1.0, 3.0])
def test_the_fitted_temperature_is_that_of_scipy(true_temperature):
    g = torch.Generator().manual_seed(0)
    clean = 2 * torch.randn(3000, 5, generator=g, dtype=torch.float64)
    labels = torch.multinomial(clean.softmax(1), 1, generator=g).squeeze(1)
    logits = true_temperature * clean + 7.0

    def mean_loss(t):
        return float(nn.functional.cross_entropy(logits / t, labels))

    best = minimize_scalar(mean_loss, bounds=(0.05, 20), options={"xatol": 1e-9}).x
    found = b.TemperatureScaled.fit(logits, labels).temperature
    assert found == pytest.approx(best, rel=1e-5)
    assert found == pytest.approx(true_temperature, rel=0.1)


def test_no_temperature_is_invented():
    logits = torch.eye(3).double()
    with pytest.raises(cr.errors.InvalidArgumentError, match="no finite temperature"):
        b.TemperatureScaled.fit(logits, torch.tensor([0, 1, 2]))
    with pytest.raises(cr.errors.InvalidArgumentError, match="no finite temperature"):
        b.TemperatureScaled.fit(logits, torch.tensor([1, 2, 0]))
    for labels in (torch.tensor([0, 1]), torch.tensor([0, 1, 3]), torch.rand(3)):
        with pytest.raises(cr.errors.InvalidArgumentError, match="`labels`"):
            b.TemperatureScaled.fit(logits, labels)
    with pytest.raises(cr.errors.InvalidArgumentError, match="`logits`"):
        b.TemperatureScaled.fit(logits * math.nan, torch.tensor([0, 1, 2]))


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda: b.MaxLogitPNorm(p=0), "p"),
        (lambda: b.Energy(temperature=-1.0), "temperature"),
        (lambda: b.GEN(gamma=math.nan), "gamma"),
        (lambda: b.GEN(top_m=0), "top_m"),
        (lambda: b.TemperatureScaled(temperature=math.inf), "temperature"),
        (lambda: b.Doctor(variant="gamma"), "variant"),
        (lambda: b.MaxSoftmax().of_logits(torch.zeros(3, 1)), "logits"),
        (lambda: b.MaxLogit().of_logits(torch.zeros(3)), "logits"),
        (
            lambda: b.MaxSoftmax()(cr.Classifier(nn.Identity()), torch.zeros(2, 3), chunk_size=0),
            "chunk_size",
        ),
        (lambda: b.MaxSoftmax()(nn.Identity(), torch.zeros(2, 3)), "clf"),
    ],
)
def test_bad_settings_are_refused(make, name):
    with pytest.raises(cr.errors.InvalidArgumentError, match=f"`{name}`"):
        make()


def test_a_temperature_is_fitted_to_lists_and_arrays_too():
    g = torch.Generator().manual_seed(3)
    logits = 3 * torch.randn(40, 3, generator=g, dtype=torch.float64)
    labels = logits.argmax(1)
    labels[::3] = 0
    expected = b.TemperatureScaled.fit(logits, labels)
    assert b.TemperatureScaled.fit(logits.tolist(), labels.tolist()) == expected
    assert b.TemperatureScaled.fit(logits.numpy(), labels.numpy()) == expected
    for junk in (None, "words", [["a", "b"]], [[1.0, 2.0], [1.0]]):
        with pytest.raises(cr.errors.InvalidArgumentError, match=r"^`logits`"):
            b.TemperatureScaled.fit(junk, [0])


def test_losses_of_single_precision_outputs_are_taken_in_double():
    outputs = torch.tensor([[12.0, -14.0, -13.5], [0.3, 20.0, -19.0]])  # float32
    single, double = cr.Classifier(lambda x: x, loss="logistic"), outputs.double()
    found = b.CredenceRatio()(single, outputs)
    torch.testing.assert_close(found, b.CredenceRatio()(single, double), rtol=1e-12, atol=0)


def test_the_fitted_temperature_is_the_root_that_brent_finds():
    g = torch.Generator().manual_seed(5)
    z = 3 * torch.randn(60, 4, generator=g, dtype=torch.float64)
    labels = torch.multinomial((0.4 * z).softmax(1), 1, generator=g).squeeze(1)

    def slope(beta):
        p = (beta * z).softmax(1)
        return float(((p * z).sum(1) - z[torch.arange(60), labels]).mean())

    expected = 1 / brentq(slope, 1e-3, 10.0, xtol=1e-14)
    found = b.TemperatureScaled.fit(z, labels).temperature
    assert found == pytest.approx(expected, rel=1e-9)


def test_a_temperature_may_be_far_from_that_of_the_logits():
    # with p = 51 / 100 right, beta is the log odds of p
    z = torch.tensor([[1.0, 0.0]]).double().expand(100, 2)
    labels = (torch.arange(100) >= 51).long()
    found = b.TemperatureScaled.fit(z, labels).temperature
    assert found == pytest.approx(1 / math.log(51 / 49), rel=1e-9)


def test_no_samples_fit_no_temperature():
    with pytest.raises(cr.errors.InvalidArgumentError, match="`logits`"):
        b.TemperatureScaled.fit(torch.zeros(0, 3), torch.zeros(0).long())
