"""The measures, the attack and the rule of the claims, against naive oracles."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import credibly as cr
from experiments.paper import claims, compromise, kinds, measures, statements, statements_profiles
from experiments.paper.claims import Statement, judged, verdict
from experiments.paper.readings import softmax_distance


def made_up(restarts=3, images=40, classes=5, seed=0):
    """A solved set of random numbers, with ties among the scores."""
    g = torch.Generator().manual_seed(seed)
    c0, c = (-torch.rand(restarts, images, classes, generator=g).double() for _ in range(2))
    coarse = [(10 * torch.rand(restarts, images, generator=g)).round().double() for _ in range(2)]
    return {
        "c0": c0, "c": c, "labels": torch.randint(classes, (images,), generator=g),
        "softmax_score": coarse[0], "profile_score": coarse[1],
        "risk": torch.rand(restarts, images, generator=g),
        "objective": torch.ones(restarts, images),
    }  # fmt: skip


def naive_filtered(score, correct, coverage):
    """Keep from the best score down until the share is answered; ties stay together."""
    pairs = sorted(zip(score.tolist(), correct.tolist(), strict=True), reverse=True)
    kept = []
    for value in sorted({s for s, _ in pairs}, reverse=True):
        kept += [right for s, right in pairs if s == value]
        if len(kept) >= coverage * len(pairs) - 1e-9:
            break
    return sum(kept) / len(kept)


def test_filtered_accuracy_is_that_of_a_loop():
    found = made_up()
    correct, score = measures.answers(found, "profile"), found["profile_score"]
    curve = measures.curve(score, correct)
    for place, coverage in enumerate(measures.GRID):
        each = [naive_filtered(s, c, coverage) for s, c in zip(score, correct, strict=True)]
        assert curve["mean"][place] == pytest.approx(sum(each) / len(each), abs=1e-4)
        assert curve["least"][place] == pytest.approx(min(each), abs=1e-4)
        assert curve["most"][place] == pytest.approx(max(each), abs=1e-4)


def test_the_answers_are_those_of_each_classifier():
    found = made_up()
    for which, name in (("softmax", "c0"), ("profile", "c")):
        for r, row in enumerate(measures.answers(found, which)):
            for n, right in enumerate(row.tolist()):
                values = found[name][r, n].tolist()
                assert right == (values.index(max(values)) == int(found["labels"][n]))


def test_no_answer_is_a_wrong_answer():
    found = made_up()
    found["labels"][:] = 0  # the largest of NaN is the first
    found["c"][1, 7] = math.nan
    found["c"][1, 8, 2] = math.nan
    assert measures.answers(found, "profile")[1, 7:9].tolist() == [False, False]


def test_accuracy_has_the_range_over_restarts_and_the_worst_case_of_each_image():
    correct = torch.tensor([[1, 1, 0, 0], [1, 0, 1, 0]], dtype=torch.bool)
    found = measures.accuracy(correct)
    assert found["accuracy"][0] == 0.5
    assert found["restarts"] == [0.5, 0.5]
    assert found["right"] == [2, 2]
    assert found["worst_case"][0] == 0.25


def test_the_interval_of_a_mean_is_that_of_resampled_means():
    values = torch.rand(30, generator=torch.Generator().manual_seed(1)).double()
    means = []
    for weights in measures.resamples(30).tolist():
        assert sum(weights) == 30
        drawn = [v for v, times in zip(values.tolist(), weights, strict=True) for _ in range(times)]
        means.append(sum(drawn) / 30)
    value, low, high = measures.mean_of(values)
    assert value == pytest.approx(float(values.mean()), rel=1e-5)
    share = sum(low <= m <= high for m in means) / len(means)
    assert 0.94 <= share <= 0.96


def test_coverage_to_regain_is_the_most_that_a_loop_can_answer():
    found = made_up(seed=3)
    soft, prof = measures.answers(found, "softmax"), measures.answers(found, "profile")
    score = found["softmax_score"]
    naive = []
    for s, c, o in zip(score, soft, prof, strict=True):
        shares = [k / 40 for k in range(1, 41)]
        steps = {sum(v >= t for v in s.tolist()) / 40 for t in set(s.tolist())}
        good = [k for k in shares if k in steps
                and naive_filtered(s, c, k) >= float(o.double().mean()) - 1e-9]  # fmt: skip
        naive.append(max(good, default=0))
    got = measures.coverage_to_regain(score, soft, prof)
    assert got["mean"] == pytest.approx(sum(naive) / 3, rel=1e-5)
    assert (got["least"], got["most"]) == pytest.approx((min(naive), max(naive)), rel=1e-5)


def test_nothing_is_given_up_to_match_a_classifier_that_is_always_wrong():
    wrong = torch.zeros(1, 10, dtype=torch.bool)
    score = torch.arange(10.0).double()[None]
    assert measures.coverage_to_regain(score, wrong, wrong)["mean"] == 1


def test_profiles_are_sorted_and_stretched_one_by_one():
    found = measures.normalised(torch.tensor([[-3.0, -1.0, -2.0], [-5.0, -5.0, -5.0]]))
    assert found.tolist() == [[1.0, 0.5, 0.0], [0.0, 0.0, 0.0]]


def test_how_near_to_stationary_the_solver_ended():
    values = torch.tensor([[0.0, 0.1, 0.2, 0.3, math.nan]])
    found = measures.settled({"stationarity": values})["stationarity"]
    assert found == {"median": pytest.approx(0.15), "95 %": pytest.approx(0.285)}


def test_the_trade_off_is_checked_image_by_image():
    found = {
        "c0": torch.tensor([[[-3.0, -4.0], [-3.0, -4.0]]]),
        "c": torch.tensor([[[-3.0, 0.0], [-3.0, 0.0]]]),
        "risk": torch.tensor([[0.07, 0.09]]),
    }
    slack = compromise.trade_off(found, 200.0)["slack"]
    assert slack.tolist() == pytest.approx([16 / 200 - 0.07, 16 / 200 - 0.09], abs=1e-6)
    assert compromise.gamma_numbers(compromise.trade_off(found, 200.0))["trade-off holds"] == 0.5


def test_drops_are_paired_by_image():
    clean, attacked = made_up(restarts=1, seed=1), made_up(seed=2)
    attacked["labels"] = clean["labels"]
    found = kinds.drops(clean, attacked)
    before = measures.answers(clean, "softmax").double().mean()
    after = measures.answers(attacked, "softmax").double().mean()
    assert found["softmax"][0] == pytest.approx(float(before - after), rel=1e-4)


def test_a_number_that_is_not_defined_becomes_null():
    assert measures.number(math.nan) is None
    assert measures.number(0.1234567) == 0.123457


@given(st.lists(st.floats(0, 1), min_size=50, max_size=50))
def test_the_largest_dip_is_that_of_all_pairs(curve):
    pairs = [(c, v) for c, v in zip(measures.GRID, curve, strict=True) if c >= 0.1]
    naive = max(max(0.0, v - w) for c, v in pairs for d, w in pairs if d <= c)
    assert statements.largest_dip(curve) == pytest.approx(naive)


def linear(classes=3, features=12):
    g = torch.Generator().manual_seed(0)
    weight = torch.randn(features, classes, generator=g, dtype=torch.float64)
    return weight, cr.Classifier(lambda x: x.flatten(1) @ weight, dtype=torch.float64)


def test_the_attack_keeps_the_bounds_of_each_channel():
    weight, clf = linear()
    low, high = (-1.0, -0.5, -0.2), (1.0, 0.4, 0.3)
    x = torch.stack([torch.linspace(a, b, 4, dtype=torch.float64).reshape(2, 2)
                     for a, b in zip(low, high, strict=True)])[None].repeat(2, 1, 1, 1)  # fmt: skip
    labels = torch.tensor([0, 2])
    box = (low, high)
    attack = cr.attacks.PGD(
        eps=0.3, step_size=0.1, steps=7, bounds=box, random_start=False, restarts=1
    )
    found = attack.all_restarts(clf, x, labels)[0]
    least, most = (torch.tensor(v).double().reshape(3, 1, 1) for v in (low, high))
    y = x.clone()
    for _ in range(7):
        p = (y.flatten(1) @ weight).softmax(1)
        p[torch.arange(2), labels] -= 1
        y = y + 0.1 * (p @ weight.T).reshape(y.shape).sign()
        y = torch.minimum(torch.maximum(y, x - 0.3), x + 0.3)
        y = torch.minimum(torch.maximum(y, least), most)
    assert torch.allclose(found, y, atol=1e-12)
    assert bool((found == most).any())
    started = cr.attacks.PGD(eps=0.3, step_size=0.1, steps=3, bounds=box, restarts=4)
    many = started.all_restarts(clf, x, labels)
    assert many.shape == (4, 2, 3, 2, 2)
    assert bool(((many >= least - 1e-12) & (many <= most + 1e-12)).all())
    assert bool(((many - x).abs() <= 0.3 + 1e-12).all())


@pytest.mark.parametrize(
    ("value", "least", "most", "strict", "state"),
    [
        ([0.78, 0.75, 0.81], 0.73, 0.83, False, "true"),
        ([0.82, 0.79, 0.85], 0.73, 0.83, False, "true"),  # a number with a tolerance
        ([0.85, 0.82, 0.88], 0.73, 0.83, False, "open"),
        ([0.90, 0.87, 0.93], 0.73, 0.83, False, "false"),
        ([0.10, 0.05, 0.15], 0.0, math.inf, True, "true"),
        ([0.10, -0.05, 0.25], 0.0, math.inf, True, "open"),  # a bound needs the whole interval
        ([-0.10, -0.25, 0.05], 0.0, math.inf, True, "open"),
        ([-0.10, -0.25, -0.05], 0.0, math.inf, True, "false"),
        ([0.0, 0.0, 0.0], 0.0, math.inf, True, "false"),
        ([1.0, 1.0, 1.0], -math.inf, 1.0, False, "true"),
        ([3.0, None, None], -math.inf, 1.0, False, "false"),
        ([None, None, None], 0.0, 1.0, False, "open"),
    ],
)
def test_a_statement_is_true_false_or_open(value, least, most, strict, state):
    assert Statement("", value, least, most, strict=strict).state() == state


TRUE, FALSE, OPEN = (Statement("", [v, lo, hi], 0.0) for v, lo, hi in
                     ((1, 1, 1), (-1, -1, -1), (1, -1, 2)))  # fmt: skip


@pytest.mark.parametrize(
    ("parts", "reading"),
    [
        ([TRUE, TRUE], "holds"), ([FALSE], "fails"), ([FALSE, OPEN], "fails"), ([OPEN], "open"),
        ([TRUE, FALSE], "partly"), ([TRUE, OPEN], "partly"),
    ],
)  # fmt: skip
def test_a_reading_is_judged_by_its_statements(parts, reading):
    assert judged(parts) == reading


@pytest.mark.parametrize(
    ("readings", "expected"),
    [
        (["holds", "holds"], "reproduced"), (["fails", "fails"], "refuted"),
        (["holds", "fails"], "partly"), (["partly"], "partly"), (["fails", "open"], "refuted"),
        (["partly", "fails"], "partly"),
        (["open", "open"], "cannot be decided"), ([], "cannot be decided"),
    ],
)  # fmt: skip
def test_a_claim_is_judged_by_its_readings(readings, expected):
    assert verdict(readings) == expected


def conditions(softmax_drop, profile_drop):
    """The numbers of one reading, as far as the claim about drops reads them."""
    drop = {"softmax": [softmax_drop] * 3, "profile": [profile_drop] * 3}
    return {"clean": {}, "0.01": {"drop": drop}}


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ((0.78, 0.17), (0.76, 0.2), "reproduced"),
        ((0.3, 0.5), (0.1, 0.6), "refuted"),
        ((0.78, 0.17), (0.1, 0.6), "partly"),
        ((0.78, 0.6), (0.78, 0.6), "partly"),
    ],
)
def test_the_claim_about_drops_is_judged_from_the_numbers(one, other, expected):
    record = {
        "results": {"pixel": {"a": conditions(*one)}, "normalised": {"a": conditions(*other)}}
    }
    claim = claims.Claim("", "", "", statements._readings(record, statements._drops))
    assert claim.record()["verdict"] == expected


def test_overconfidence_is_the_mean_confidence_less_the_accuracy():
    found = made_up()
    naive = []
    for row in found["c0"].tolist():
        for n, values in enumerate(row):
            right = values.index(max(values)) == int(found["labels"][n])
            naive.append(math.exp(max(values)) - right)
    value = measures.overconfidence(found)[0]
    assert value == pytest.approx(sum(naive) / len(naive), rel=1e-5)
    assert len(naive) == 120


def test_claims_without_numbers_cannot_be_decided_and_the_table_says_so():
    found = [claim.record() for claim in statements.all_claims({})]
    assert {claim["verdict"] for claim in found} == {"cannot be decided"}
    assert len({claim["claim"] for claim in found}) == len(found) >= 26
    table = claims.markdown(found, "full").splitlines()
    rows = [line.replace("\\|", "") for line in table if line.startswith("|")]
    assert all(line.count("|") == 5 for line in rows)


def test_the_nearest_reading_counts_both_classifiers():
    def rows(*distances):
        return [{"name": f"r{n}", "distance": d, "accuracy": {}} for n, d in enumerate(distances)]

    results = {
        "pixel": {"softmax distance": 0.3, "rows": rows(0.0, 0.2)},
        "normalised": {"softmax distance": 0.1, "rows": rows(0.15, 0.5)},
    }
    found = statements.nearest_readings({"readings": {"results": results}}, count=3)
    assert [(row["space"], row["reading"]) for row in found] == [
        ("normalised", "r0"), ("pixel", "r0"), ("pixel", "r1"),
    ]  # fmt: skip
    assert [row["distance"] for row in found] == pytest.approx([0.25, 0.3, 0.5])
    right = {"clean": torch.tensor([1.0, 1.0]), "0.01": torch.tensor([1.0, 0.0]),
             "0.03": torch.tensor([0.0, 0.0])}  # fmt: skip
    assert softmax_distance(right) == pytest.approx(0.28)


def test_the_difference_of_two_spreads_has_an_interval():
    less = statements_profiles._less
    assert less([3, 2.7, 3.4], [1, 0.7, 1.4]) == pytest.approx([2, 1.5, 2.5])
    assert less([3, 2.7, 3.4], [None, None, None]) == [None] * 3


def test_a_quantile_lies_in_its_interval_and_the_interval_near_that_of_order_statistics():
    values = torch.randn(400, generator=torch.Generator().manual_seed(3)).double()
    value, low, high = measures.quantile_of(values, 0.05)
    assert value == pytest.approx(float(values.quantile(0.05)), rel=1e-5)
    # distribution-free: the ranks between which a binomial count of smaller values falls
    ordered = values.sort().values
    assert float(ordered[8]) <= low <= value <= high <= float(ordered[32])
