"""P-values of a Judge: by a plain loop, and their promise by simulation."""

import math

import numpy as np
import pytest
import torch
from torch import nn

import credibly as cr
from credibly.decide.alarm import FOLDS, QUESTIONS, Alarm, Scales
from credibly.decide.examine import Examiner
from credibly.decide.recipe import (
    BLEND,
    DOUBTFUL,
    FROM_PROFILE,
    HELD_BACK,
    OUTLIER,
    PRIORITY,
    UNUSUAL,
    affordable,
)
from credibly.decide.signals import Glance, Typicality, of_logits, of_profile
from credibly.model.features import LastHidden
from credibly.solve.fixed import FixedDescent
from tests.reference import models

USES = ("always", "doubtful", "never")
RATES = (0.01, 0.05, 0.1)


def made_up(count, seed=0):
    """Signals that are related to each other, some with ties, one constant."""
    g = models.generator(seed)
    base = torch.randn(count, 2, generator=g, dtype=torch.float64)
    names = [*OUTLIER, "confidence", "elasticity"]
    found = {
        name: base @ torch.randn(2, generator=g, dtype=torch.float64)
        + torch.randn(count, generator=g, dtype=torch.float64) ** 3
        for name in names
    }
    found["range"] = found["range"].round().clamp(min=0)
    found["statistics"] = torch.zeros(count, dtype=torch.float64)
    return found


def surprise_by_hand(scale, value):
    if math.isnan(value):
        return -math.inf
    if value > scale.knots[-1]:
        return scale.rises[-1] + (value - scale.knots[-1]) * scale.slope
    return float(np.interp(value, scale.knots, scale.rises))


def surprises_by_hand(scales, signals, row, *, forward=False):
    """The surprise of every signal of one input, for both questions."""
    names = [n for n in signals if not (forward and n in FROM_PROFILE)]
    one = {name: float(signals[name][row]) for name in names}
    outlier = [
        surprise_by_hand(scale, OUTLIER[name] * one[name])
        for name, scale in scales.strange.items()
        if name in one
    ]
    tampered = []
    for name, parts in UNUSUAL.items():
        if name in scales.unusual and all(part in one for part in parts):
            far = sum(
                abs(one[part] - scales.middles[part][0]) / scales.middles[part][1] for part in parts
            )
            tampered.append(surprise_by_hand(scales.unusual[name], math.log1p(far)))
    return outlier, tampered


def blend_by_hand(surprises):
    return BLEND * math.log(sum(math.exp(s / BLEND) for s in surprises))


def by_hand(scales, signals, row):
    outlier, tampered = surprises_by_hand(scales, signals, row, forward=True)
    if blend_by_hand(outlier + tampered) < scales.gate:
        signals = {
            name: values if name not in FROM_PROFILE else values * math.nan
            for name, values in signals.items()
        }
    outlier, tampered = surprises_by_hand(scales, signals, row)
    strange = surprise_by_hand(scales.blended, blend_by_hand(outlier))
    unusual = max(0.0, *tampered) if tampered else 0.0
    either = max(strange, unusual - HELD_BACK)
    return {"outlier": strange, "tampered": unusual, "either": either}


@pytest.mark.parametrize("use", USES)
def test_p_values_are_those_of_a_loop(use):
    ordinary, new = made_up(60), made_up(12, seed=1)
    alarm, own = Alarm.fit(ordinary, use, rate=0.1)
    if use == "never":
        ordinary, new = (
            {n: v for n, v in signals.items() if n not in FROM_PROFILE}
            for signals in (ordinary, new)
        )
    unusual = {f"unusual {n}" for n, parts in UNUSUAL.items() if {*parts} <= ordinary.keys()}
    used = {*ordinary, *unusual}
    assert affordable(used, 60, 0.1) == used & {*PRIORITY}  # all of them
    part = torch.randperm(60, generator=models.generator(0)) % FOLDS
    p_values = alarm.p_values(new)
    known = [None] * 60
    for k in range(FOLDS):
        others = {name: values[part != k] for name, values in ordinary.items()}
        scales = Scales.fit(others, use, used & {*PRIORITY})
        assert scales.as_json() == alarm.parts[k].as_json()
        for row in (part == k).nonzero().flatten().tolist():
            known[row] = by_hand(scales, ordinary, row)
    for question in QUESTIONS:
        expected = [found[question] for found in known]
        np.testing.assert_allclose(own[question], expected, atol=1e-9)
        for row in range(12):
            here = [by_hand(scales, new, row)[question] for scales in alarm.parts]
            above = sum(known[i][question] >= here[int(part[i])] - 1e-12 for i in range(60))
            assert float(p_values[question][row]) == pytest.approx((1 + above) / 61)
    assert all(bool(((p > 0) & (p <= 1)).all()) for p in p_values.values())
    assert "statistics" not in alarm.whole.strange


def test_few_inputs_allow_only_some_signals():
    ordinary = made_up(150)
    some, all_of_them = (Alarm.fit(ordinary, "always", rate)[0].whole for rate in (0.01, 0.1))
    assert {*some.strange, *some.unusual} == {"correlations", "range", "inputs"}  # 2 % of 151
    assert {*all_of_them.strange} == {*OUTLIER} - {"statistics"}  # which does not vary
    assert {*all_of_them.unusual} == {*UNUSUAL}
    assert affordable({"range", "shift", "energy"}, 20, 0.01) == {"range", "energy"}  # at least two


def test_a_quarter_is_looked_at_again():
    ordinary = made_up(2000)
    for use, share in (("always", 1.0), ("doubtful", DOUBTFUL), ("never", 0.0)):
        scales = Scales.fit(ordinary, use, PRIORITY)
        again = scales.look_again(ordinary).double().mean()
        assert float(again) == pytest.approx(share, abs=0.005)


def test_signals_of_a_profile_do_not_count_where_one_forward_settles():
    ordinary = made_up(400)
    scales = Scales.fit(ordinary, "doubtful", PRIORITY)
    settled = ~scales.look_again(ordinary)
    other = dict(ordinary)
    for name in FROM_PROFILE:
        other[name] = torch.where(settled, 1e9, ordinary[name])
    for question in QUESTIONS:
        assert torch.equal(
            scales.strangeness(other)[question], scales.strangeness(ordinary)[question]
        )
    for name in ("shift", "gain"):
        other[name] = torch.full_like(ordinary[name], -1e9)
    found = scales.strangeness(other)["outlier"]
    assert bool((found[~settled] > 100).all())
    assert bool((found[settled] < 100).all())


def test_scales_survive_json_with_infinite_gates():
    for use in USES:
        scales = Scales.fit(made_up(80), use, PRIORITY)
        again = Scales.from_json(scales.as_json())
        assert again == scales or vars(again) == vars(scales)


def test_inputs_of_which_nothing_varies_are_not_strange():
    same = {name: torch.ones(50, dtype=torch.float64) for name in made_up(1)}
    alarm, own = Alarm.fit(same, "doubtful", rate=0.1)
    assert bool((own["either"] == 0).all())
    assert alarm.p_values({n: v[:2] for n, v in same.items()})["either"].tolist() == [1.0, 1.0]


def gaussian(count, g):
    return torch.randn(count, 5, generator=g, dtype=torch.float64)


def heavy_tailed(count, g):
    """Student's t with two degrees of freedom: the variance is infinite."""
    squares = torch.randn(count, 5, 2, generator=g, dtype=torch.float64).square().sum(2)
    return gaussian(count, g) / (squares / 2).sqrt()


def with_ties(count, g):
    """Two binary columns, one of few whole numbers, two real ones."""
    x = gaussian(count, g)
    x[:, :2] = (x[:, :2] > 0.8).double()
    x[:, 2] = x[:, 2].round()
    return x


def linear():
    return nn.Sequential(nn.Linear(5, 3)).double().eval()


def perceptron():
    return models.smooth_network(5, 3, width=12)


POOL = 4000
CASES = [
    (linear, gaussian), (perceptron, gaussian), (linear, heavy_tailed), (perceptron, heavy_tailed),
    (linear, with_ties), (perceptron, with_ties),
]  # fmt: skip


def pool_of(net, draw):
    """Inputs, what one forward tells of them, and the signals of their profiles."""
    x = draw(POOL, models.generator(7))
    clf = cr.Classifier(net())
    variable = cr.bind(clf, x)
    gamma = cr.auto_gamma(clf, x[:200])
    descent = FixedDescent(radius=1.0)
    examiner = Examiner(clf, gamma, descent, LastHidden.find(variable), None, 4000)
    seen = examiner.glance(variable)
    return variable, seen, of_logits(seen) | of_profile(examiner.profile(variable))


def rates_of(pool, size, use, typical, *, rows, rate):
    """Shares of new inputs whose p-value is at most each rate, for one draw."""
    _, _, signals = pool
    known, new = rows[:size], rows[size:]
    alarm, _ = Alarm.fit({n: v[known] for n, v in signals.items()} | typical[0], use, rate)
    asked = {n: v[new] for n, v in signals.items()} | typical[1]
    again = alarm.whole.look_again(asked)
    asked = {
        n: torch.where(again, v, torch.nan) if n in FROM_PROFILE else v for n, v in asked.items()
    }
    p = alarm.p_values(asked)["either"]
    return [float((p <= asked + 1e-12).double().mean()) for asked in RATES]


@pytest.mark.parametrize(("size", "draws"), [(100, 30), (300, 15)])
def test_false_alarms_are_as_rare_as_promised(size, draws):
    """For linear and other networks, heavy tails and ties, with and without the cascade."""
    found = {use: [] for use in USES}
    for number, (net, draw) in enumerate(CASES):
        pool = pool_of(net, draw)
        variable, seen, _ = pool
        of_case = {use: [] for use in USES}
        for turn in range(draws):
            g = models.generator(1000 * number + turn)
            rows = torch.randperm(POOL, generator=g)[: size + 150]
            ordinary, new = seen.select(rows[:size]), seen.select(rows[size:])
            typicality = Typicality.fit(ordinary, variable)
            typical = typicality.of_own(ordinary), typicality.of_new(new)
            for use in USES:
                rate = RATES[turn % 3]
                of_case[use].append(rates_of(pool, size, use, typical, rows=rows, rate=rate))
        for use in USES:
            check_rates(of_case[use], 4.0, (net.__name__, draw.__name__, use))
            found[use] += of_case[use]
    for use in USES:
        check_rates(found[use], 3.0, use)


def check_rates(rates, errors, where):
    values = np.array(rates)
    mean, error = values.mean(0), values.std(0, ddof=1) / math.sqrt(len(values))
    assert (mean <= RATES + errors * error).all(), (where, mean, error)
    assert (mean >= np.array(RATES) / 3).all(), (where, mean)  # and it is not never


def test_settled_inputs_cost_a_forward_and_others_nine_passes_more():
    net, x = perceptron(), gaussian(200, models.generator(3))
    new = gaussian(100, models.generator(4))
    new[7] = math.nan
    costs = {}
    for use in USES:
        judge = cr.Judge.fit(net, x, profile=use)
        found = judge(new)
        assert float(found.passes[7]) == 0.0
        costs[use] = found.passes[torch.arange(100) != 7]
        assert found.cost == pytest.approx(float(found.passes.mean()))
        assert judge.facts.cost == pytest.approx(
            1 / 3 + {"always": 9, "never": 0, "doubtful": 9 * DOUBTFUL}[use], abs=0.05
        )
    assert torch.allclose(costs["always"], torch.tensor(1 / 3 + 9).double())
    assert torch.allclose(costs["never"], torch.tensor(1 / 3).double())
    cheap = costs["doubtful"] < 1
    assert 50 < int(cheap.sum()) < 95
    assert torch.allclose(costs["doubtful"][cheap], torch.tensor(1 / 3).double())
    assert torch.allclose(costs["doubtful"][~cheap], torch.tensor(1 / 3 + 9).double())


def test_glances_can_be_joined_and_chosen():
    pool = Glance(torch.arange(12.0).reshape(6, 2), None, torch.arange(6.0)[:, None])
    parts = [pool.select(torch.tensor([0, 1])), pool.select(torch.tensor([2, 3, 4, 5]))]
    assert torch.equal(Glance.concatenate(parts).logits, pool.logits)
    assert Glance.concatenate(parts).features is None
