"""Numbers of the tables against direct calls of the metrics, on made-up rows."""

import json
import math

import pytest
import torch

import credibly as cr
from credibly import metrics
from credibly.decide.scores import SCORES
from credibly.metrics.intervals import bootstrap, paired_difference
from credibly.study import Rows
from experiments import evidence_columns as columns
from experiments.evidence_choose import choose
from experiments.evidence_columns import BASELINES, DEFAULT, PAIR, SOFTMAX, Scale
from experiments.evidence_detection import detection
from experiments.evidence_failures import Draws, failures, some_of
from experiments.evidence_tables import short

PLAN = Draws(resamples=60, seed=3)
NAMES = [*SCORES, *BASELINES.values(), *(n for n in columns.OWN.values() if n not in SCORES)]


def made_up(kind, count, seed, *, error=0.2):
    """Scores that know a little of what is right."""
    g = torch.Generator().manual_seed(seed)
    wrong, other = (torch.rand(count, generator=g) < share for share in (error, 1.5 * error))
    scores = {
        name: torch.randn(count, generator=g, dtype=torch.float64) * (1 + n) - wrong.double()
        for n, name in enumerate(NAMES)
    }
    labels = torch.full((count,), -1) if kind == "outliers" else torch.zeros(count).long()
    facts = {"median passes": 90.0, "without a profile": 0.0}
    return Rows(kind, labels, wrong.long(), other.long(), scores, facts)


@pytest.fixture(scope="module")
def held():
    return {
        "held-out": made_up("ordinary", 80, 0),
        "contrast 2": made_up("shifted", 30, 1),
        "contrast 4": made_up("shifted", 30, 2),
        "PGD 0.001": made_up("attacked", 40, 3),
        "uniform noise": made_up("outliers", 20, 4),
    }


@pytest.fixture(scope="module")
def rows():
    return {
        "clean": made_up("ordinary", 120, 5),
        "contrast 1": made_up("shifted", 30, 6),
        "rotation 2": made_up("shifted", 30, 7),
        "rotation 5": made_up("shifted", 30, 8),
        "PGD 0.001": made_up("attacked", 40, 9),
        "PGD 0.03": made_up("attacked", 40, 10, error=0.9),
        "MNIST": made_up("outliers", 25, 11),
    }


@pytest.fixture(scope="module")
def scale(held):
    return Scale.of(held["held-out"])


@pytest.fixture(scope="module")
def found(rows, scale):
    return failures(rows, scale, PLAN)


def default_of(part, held):
    """`failure_score` by hand, with the spreads of the held-out images."""
    total = 0.0
    for name, share in (("softmax_ratio", 1.0), ("predicted_ratio", 0.5)):
        low, high = torch.quantile(
            held["held-out"].scores[name], torch.tensor([0.25, 0.75]).double()
        )
        total = total + share * part.scores[name] / (high - low)
    return total


def test_group_means_and_their_differences(rows, held, found):
    names = ["contrast 1", "rotation 2"]
    group = found["groups"]["damaged, severity 1-2"]
    assert group["sets"] == 2
    by_hand = [cr.metrics.aurc(default_of(rows[n], held), rows[n].correct) for n in names]
    assert group["aurc"][DEFAULT] == pytest.approx(sum(by_hand) / 2)
    best = [cr.metrics.aurc(rows[n].scores["ratio"], rows[n].credible_correct) for n in names]
    assert group["aurc"]["most credible class"] == pytest.approx(sum(best) / 2)

    def gap(index):
        pick = index.long()
        areas = [
            cr.metrics.aurc(default_of(rows[n], held)[pick], rows[n].correct[pick])
            - cr.metrics.aurc(rows[n].scores[BASELINES[SOFTMAX]][pick], rows[n].correct[pick])
            for n in names
        ]
        return sum(areas) / 2

    # one draw of images serves both sets and both scores
    whole = bootstrap(gap, torch.arange(30.0), n=PLAN.resamples, seed=PLAN.seed)
    expected = [whole.value, whole.low, whole.high]
    assert group["differences"][f"{DEFAULT} less {SOFTMAX}"] == pytest.approx(expected, abs=1e-6)


def test_a_group_of_one_is_the_paired_bootstrap(rows, held, found):
    clean = rows["clean"]
    for other in (SOFTMAX, columns.MARGIN, columns.P_NORM):
        gap = paired_difference(
            cr.metrics.aurc, default_of(clean, held), clean.scores[BASELINES[other]], clean.correct,
            n=PLAN.resamples, seed=PLAN.seed,
        )  # fmt: skip
        numbers = found["groups"]["clean"]["differences"][f"{DEFAULT} less {other}"]
        assert numbers == pytest.approx([gap.value, gap.low, gap.high], abs=1e-6)


def test_all_metrics_of_both_systems(rows, held, found):
    clean = rows["clean"]
    table = found["sets"]["clean"]
    softmax = clean.scores[BASELINES[SOFTMAX]]
    for name, score, right in (
        (DEFAULT, default_of(clean, held), clean.correct),
        ("B", clean.scores["ratio"], clean.credible_correct),
    ):
        numbers = table["B"] if name == "B" else table["A"][name]
        for metric, function in {
            "aurc": metrics.aurc,
            "augrc": metrics.augrc,
            "e_aurc": metrics.e_aurc,
            "auroc": metrics.failure_auroc,
            "fpr95": metrics.failure_fpr_at_tpr,
            "coverage at 99 % accuracy": metrics.coverage_at_accuracy,
            **{
                f"accuracy at {c:g}": lambda s, r, c=c: float(metrics.accuracy_at_coverage(s, r, c))
                for c in (1.0, 0.95, 0.9, 0.8, 0.7, 0.5)
            },
        }.items():
            value, gap, low, high = numbers[metric]
            assert value == pytest.approx(function(score, right)), metric
            assert gap == pytest.approx(value - function(softmax, clean.correct)), metric
            assert low <= high
    area = table["A"][DEFAULT]["auroc"][0]
    right = table["accuracy"]["model"]
    expected = (1 - area) * right * (1 - right) + (1 - right) ** 2 / 2
    assert table["A"][DEFAULT]["augrc"][0] == pytest.approx(expected)
    assert all(v == 0 for m in table["A"][SOFTMAX].values() for v in m[1:])


def test_the_small_set_is_a_seeded_choice(rows):
    clean = rows["clean"]
    few = some_of(clean, 10, seed=1)
    order = torch.randperm(120, generator=torch.Generator().manual_seed(1))[:10]
    assert torch.equal(few.scores["shift"], clean.scores["shift"][order])
    assert torch.equal(few.correct, clean.correct[order])


def test_outliers_and_tampering(rows, held, scale):
    clean, mnist = rows["clean"].scores, rows["MNIST"].scores
    table = detection(rows, "outliers", columns.outlier_columns, scale, PLAN)
    assert list(table) == ["MNIST"]
    one = table["MNIST"]["scores"]["shift (default)"]
    whole = bootstrap(
        cr.metrics.auroc,
        -mnist["shift"],
        -clean["shift"],
        n=PLAN.resamples,
        seed=PLAN.seed,
        paired=False,
    )
    assert one["auroc"] == pytest.approx([whole.value, whole.low, whole.high], abs=1e-6)
    assert one["aupr"] == pytest.approx(metrics.aupr(-mnist["shift"], -clean["shift"]))
    assert one["aupr, clean as positive"] == pytest.approx(
        metrics.aupr(clean["shift"], mnist["shift"])
    )
    assert one["fpr95"] == pytest.approx(metrics.fpr_at_tpr(-mnist["shift"], -clean["shift"]))
    gap, low, high = table["MNIST"]["default less"]["energy"]
    energy = cr.metrics.auroc(-mnist["energy (baseline)"], -clean["energy (baseline)"])
    assert gap == pytest.approx(whole.value - energy)
    assert low <= gap <= high
    middle = held["held-out"].scores["shift"].quantile(0.5)  # not that of the test images
    tampered = detection(rows, "attacked", columns.tamper_columns, scale, PLAN)["PGD 0.03"]
    far, near = ((p.scores["shift"] - middle).abs() for p in (rows["PGD 0.03"], rows["clean"]))
    value = tampered["scores"]["two-sided shift"]["auroc"][0]
    assert value == pytest.approx(cr.metrics.auroc(far, near))
    assert "two-sided shift + elasticity + softmax_ratio (default)" in tampered["scores"]


def test_a_sample_without_a_profile_is_left_out_for_all(rows, scale):
    clean = rows["clean"]
    gaps = {name: values.clone() for name, values in clean.scores.items()}
    gaps["predicted_ratio"][4] = math.nan
    holed = Rows("ordinary", clean.labels, clean.predicted, clean.credible, gaps, clean.facts)
    table = failures({"clean": holed}, scale, Draws(resamples=5))
    kept = torch.arange(120) != 4
    area = cr.metrics.aurc(clean.scores[BASELINES[SOFTMAX]][kept], clean.correct[kept])
    assert table["groups"]["clean"]["samples"] == table["sets"]["clean"]["samples"] == 119
    assert table["groups"]["clean"]["aurc"][SOFTMAX] == pytest.approx(area)
    assert table["sets"]["clean"]["A"][SOFTMAX]["aurc"][0] == pytest.approx(area)


def test_candidates_are_ranked_on_held_out_sets(held, scale):
    found = choose(held, scale)
    clean = held["held-out"]
    one = found["failures"]["softmax_ratio + 0.5 predicted_ratio"]
    assert one["aurc"]["clean"] == pytest.approx(
        cr.metrics.aurc(default_of(clean, held), clean.correct)
    )
    assert one["less default"] == [0, 0, 0]
    base = found["failures"]["max_softmax"]
    ratios = [one["aurc"][g] / base["aurc"][g] for g in base["aurc"]]
    assert set(base["aurc"]) == {
        "clean", "damaged, severity 1-2", "damaged, severity 3-5", "PGD 0.001",
    }  # fmt: skip
    assert one["mean ratio"] == pytest.approx(sum(ratios) / 4)
    assert len(found["failures"]) == 4 * 7
    noise, usual = (held[n].scores for n in ("uniform noise", "held-out"))
    value = found["outliers"]["energy"]["auroc"]["uniform noise"]
    assert value == pytest.approx(
        cr.metrics.auroc(-noise["energy (baseline)"], -usual["energy (baseline)"])
    )
    assert set(found["tampering"]["two-sided gain"]["auroc"]) == {"PGD 0.001"}


def test_damaged_sets_of_other_images_are_refused(rows, scale):
    odd = {**rows, "rotation 1": made_up("shifted", 31, 12)}
    with pytest.raises(cr.errors.InvalidArgumentError, match=r"same images.*30, 31"):
        failures(odd, scale, PLAN)


def test_missing_parts_are_named(rows, tmp_path):
    with pytest.raises(cr.errors.FileFormatError, match="no part of a study"):
        columns.read_parts(tmp_path)
    with pytest.raises(cr.errors.FileFormatError, match="expected one ordinary set"):
        columns.ordinary({"MNIST": rows["MNIST"]})


def test_numbers_are_short_and_json():
    given = {"a": [1 / 3, math.nan], "b": (math.inf, 2), PAIR: {"c": 12345.678}}
    expected = {"a": [0.33333, None], "b": [None, 2], PAIR: {"c": 12346.0}}
    assert short(given) == expected
    assert json.loads(json.dumps(short(given), allow_nan=False)) == expected
