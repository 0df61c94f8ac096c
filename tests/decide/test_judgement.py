"""What a Judge found: words, tables, parts of it, and profiles."""

import math

import pandas as pd
import pytest
import torch

import credibly as cr
from credibly.decide.examine import SHOWN
from credibly.decide.judgement import Judgement
from tests.reference import models

Verdict = cr.Verdict
NAMES = ("ant", "bee", "cat")


@pytest.fixture(scope="module")
def clf():
    return cr.Classifier(models.smooth_network(classes=3), classes=NAMES)


@pytest.fixture(scope="module")
def judge(clf):
    x = models.inputs(200, seed=3)
    labels = clf.net(x).argmax(1)
    labels[::9] = (labels[::9] + 1) % 3
    return cr.Judge.fit(clf, x, labels, profile="doubtful", chunk_size=16)


@pytest.fixture(scope="module")
def new():
    x = models.inputs(50, seed=4)
    x[5] *= 100
    x[6, 2] = 1e4
    x[7, 1] = math.nan
    return x


@pytest.fixture(scope="module")
def found(judge, new):
    return judge(new)


def equal(one, other):
    for name, value in vars(one).items():
        if isinstance(value, torch.Tensor):
            torch.testing.assert_close(value, getattr(other, name), equal_nan=True)
    assert one.verdicts == other.verdicts
    assert list(one.reasons) == list(other.reasons)
    assert one.classes == other.classes
    assert one.signals.keys() == other.signals.keys()


def test_reasons_are_sentences(found):
    assert len(found.reasons) == 50
    for verdict, reason in zip(found.verdicts, found.reasons, strict=True):
        assert reason.startswith(f"{verdict}: ")
        assert len(reason) < 150
    assert "column 2, 1e+04, lies outside" in found.reasons[6]
    assert found.reasons[7].endswith("holds NaN or infinity")
    assert found.reasons[-1] == found.reasons[49]
    assert found.reasons[6 - 50] == found.reasons[6]
    for outside in (50, -51):
        with pytest.raises(IndexError):
            found.reasons[outside]


def test_the_share_in_a_reason_is_that_of_ordinary_inputs(judge):
    """Surer than 80 % of ordinary inputs is a rank among 200 of them."""
    x = models.inputs(20, seed=8)
    found = judge(x)
    for k, verdict in enumerate(found.verdicts):
        if verdict in (Verdict.TRUST, Verdict.DOUBTFUL):
            below = float((judge.ordinary_trust < found.trust[k]).double().mean())
            doubtful = verdict is Verdict.DOUBTFUL
            words = f"less sure than {1 - below:.0%}" if doubtful else f"surer than {below:.0%}"
            assert f"{verdict}: {words} of ordinary inputs" in found.reasons[k]


def test_the_summary_counts_every_verdict_and_says_what_to_do(judge, found):
    lines = found.summary().splitlines()
    assert lines[0].startswith(f"50 inputs, {found.cost:.2f} passes each")
    assert sum(int(line.split()[0]) for line in lines[1:]) == 50
    for line in lines[1:]:
        verdict = Verdict(line.split()[1])
        assert verdict.advice in line
        right = judge.facts.shares_right.get(verdict.value)
        assert (right is None) or f"{right:.1%} are right" in line
    assert repr(found).startswith("Judgement(50 inputs: ")
    assert "1 unusable" in repr(found)
    text = judge.summary()
    assert "3 classes, fitted on 200 ordinary inputs with labels" in text
    assert "false alarms 1.00% (proved: at most 2.00% on average)" in text
    assert repr(judge).startswith("Judge(200 ordinary inputs, 3 classes; false alarms 0.01; ")


def test_a_table_has_everything(found):
    frame = found.to_pandas()
    assert len(frame) == 50
    assert frame["verdict"].tolist() == [v.value for v in found.verdicts]
    assert frame["accepted"].tolist() == found.accepted.tolist()
    for k in range(50):
        predicted = NAMES[int(found.predicted[k])] if k != 7 else None
        row = {name: None if pd.isna(value) else value for name, value in frame.loc[k].items()}
        assert row["predicted"] == predicted
        assert row["class"] == (predicted if found.accepted[k] else None)
        assert row["reason"] == (None if found.accepted[k] else found.reasons[k])
    for name in ("trust", "p_ordinary", "p_outlier", "p_tampered", "p_wrong", "passes"):
        pd.testing.assert_series_equal(
            frame[name], pd.Series(getattr(found, name).numpy(), name=name)
        )
    assert {f"signal.{name}" for name in found.signals} <= {*frame.columns}


def test_parts_are_what_they_are_parts_of(found, new, judge):
    for rows in (slice(3, 20), [49, 0, 7, 6], torch.tensor([6, 6]), slice(0, 0)):
        part = found[rows]
        index = torch.arange(50)[rows].tolist()
        assert part.verdicts == tuple(found.verdicts[k] for k in index)
        assert list(part.reasons) == [found.reasons[k] for k in index]
        torch.testing.assert_close(part.trust, found.trust[rows], equal_nan=True)
        torch.testing.assert_close(
            part.signals["range"], found.signals["range"][rows], equal_nan=True
        )
    assert found[6].verdicts == (found.verdicts[6],)
    assert found[-1].verdicts == (found.verdicts[49],)
    assert found[torch.arange(50) < 5].verdicts == found.verdicts[:5]
    with pytest.raises(IndexError):
        found[50]
    equal(Judgement.concatenate([found[:13], found[13:14], found[14:]]), found)
    equal(Judgement.concatenate([judge(part) for part in new.split(16)]), found)
    assert len(list(found)) == 50


def test_profiles_are_those_of_the_inputs_that_needed_one(found, new):
    needed = (found.passes > 1).nonzero().flatten().tolist()
    assert 0 < len(needed) < 49
    assert found.profiled.tolist() == needed
    for k in needed:
        profile = found.profile_of(k)
        assert len(profile) == 1
        torch.testing.assert_close(profile.x0[0], new[k])
        assert float(found.signals["shift"][k]) == pytest.approx(
            float((profile.credibility - profile.credence).norm())
        )
    backwards = found[list(range(49, -1, -1))]
    first = needed[0]
    assert torch.equal(backwards.profile_of(49 - first).x0, found.profile_of(first).x0)
    settled = next(k for k in range(50) if k not in needed)
    assert found[[settled]].profile is None
    torch.testing.assert_close(found[[settled]].profile_of(0).x0[0], new[settled])
    for bad in (7, 99, "0", True):
        with pytest.raises(cr.errors.InvalidArgumentError, match="`index`: expected"):
            found.profile_of(bad)


def test_profiles_are_kept_only_on_demand(judge, new):
    assert judge(iter([new])).profile is None
    assert judge(iter([new]), keep=True).profile is not None
    none = judge(new, keep=False)
    assert none.profile is None
    with pytest.raises(cr.errors.InvalidArgumentError, match=r"an input that was kept, got 5"):
        none.profile_of(5)


def test_a_profile_that_no_verdict_needed_is_solved_when_it_is_asked_for(clf, new):
    judge = cr.Judge.fit(clf, models.inputs(200, seed=3), chunk_size=16)
    found = judge(new)
    assert found.profile is None
    gamma = judge.examiner.gamma
    for k in (0, 5, 49, -1):
        profile = found.profile_of(k)
        again = cr.credibility(clf, new[k][None], gamma=gamma, solver=SHOWN)
        torch.testing.assert_close(profile.credibility, again.credibility)
    rows = [48, 5, 20]
    part = Judgement.concatenate([found[rows], found[:3]])
    torch.testing.assert_close(part.profile_of(1).x0[0], new[5])
    torch.testing.assert_close(part.profile_of(4).x0[0], new[1])


def test_what_is_shown_of_a_linear_model_is_where_f_is_smallest():
    x = models.inputs(220, seed=3)
    clf = cr.Classifier(torch.nn.Linear(8, 2).double())
    judge = cr.Judge.fit(clf, x[:200])
    found = judge(x[200:])
    exact = cr.credibility(
        clf, x[200:], gamma=judge.examiner.gamma, solver=cr.solvers.GaussNewton()
    )
    for k in range(20):
        shown = found.profile_of(k)
        gap = (shown.perturbed - exact.perturbed[k]).norm()
        assert gap <= 0.01 * exact.risk[k].sqrt()
        assert shown.credibility.argmax() == exact.credibility[k].argmax()


def test_accuracy_is_that_of_what_is_accepted(found):
    labels = found.predicted.clamp(min=0)
    labels[found.accepted.nonzero()[0]] += 1
    accepted = int(found.accepted.sum())
    assert found.accuracy(labels % 3) == pytest.approx(1 - 1 / accepted)
    assert math.isnan(found[[7]].accuracy([0]))
    with pytest.raises(cr.errors.InvalidArgumentError, match="`labels`"):
        found.accuracy(labels[:3])
