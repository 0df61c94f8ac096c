"""One Judge from end to end: what it says, what it leaves alone, what it refuses."""

import copy
import math
import threading
import warnings

import pytest
import torch
from torch import nn

import credibly as cr
from credibly.decide.judgement import Judgement
from credibly.decide.ordinary import MOST
from tests.reference import models

Verdict = cr.Verdict


@pytest.fixture(scope="module")
def net():
    return models.smooth_network(classes=3)


@pytest.fixture(scope="module")
def judge(net):
    x = models.inputs(300, seed=3)
    labels = net(x).argmax(1)
    labels[::9] = (labels[::9] + 1) % 3
    return cr.Judge.fit(cr.Classifier(net, classes=("ant", "bee", "cat")), x, labels)


@pytest.fixture(scope="module")
def mixed():
    """Ordinary inputs, two far away, one broken."""
    x = models.inputs(60, seed=4)
    x[5] *= 100
    x[6, 2] = 1e4
    x[7, 1] = math.nan
    return x


def same(one, other, *, atol=0.0):
    for name in ("predicted", "trust", "p_outlier", "p_tampered", "p_ordinary", "p_wrong",
                 "passes", "codes"):  # fmt: skip
        torch.testing.assert_close(
            getattr(one, name), getattr(other, name), atol=atol, rtol=0, equal_nan=True
        )
    assert one.verdicts == other.verdicts
    assert list(one.reasons) == list(other.reasons)


def test_every_verdict_follows_from_the_numbers(judge, mixed):
    found = judge(mixed)
    assert len(found) == 60
    assert [found.verdicts[k] for k in (5, 6, 7)] == [Verdict.OUTLIER, Verdict.OUTLIER,
                                                      Verdict.UNUSABLE]  # fmt: skip
    with torch.no_grad():
        logits = judge.examiner.clf.net(mixed.nan_to_num(0.0))
    for k, verdict in enumerate(found.verdicts):
        if k == 7:
            assert int(found.predicted[k]) == -1
            continue
        assert int(found.predicted[k]) == int(logits[k].argmax())
        trusted = float(found.trust[k]) >= float(judge.thresholds[found.predicted[k]])
        alarmed = float(found.p_ordinary[k]) <= 0.01
        assert (verdict in (Verdict.OUTLIER, Verdict.TAMPERED)) == alarmed
        assert (verdict is Verdict.TRUST) == (trusted and not alarmed)
        assert (verdict is Verdict.DOUBTFUL) == (not trusted and not alarmed)
        if alarmed:
            assert (verdict is Verdict.OUTLIER) == (float(found.p_outlier[k]) <= 0.01)
    assert {Verdict.TRUST, Verdict.DOUBTFUL} <= {*found.verdicts}


def test_no_abstention_can_be_mistaken_for_a_class(judge, mixed):
    found = judge(mixed)
    for k, answer in enumerate(found.classes):
        assert (answer is cr.ABSTAINED) == (found.verdicts[k] is not Verdict.TRUST)
        assert answer is cr.ABSTAINED or answer == int(found.predicted[k])
    assert not isinstance(cr.ABSTAINED, int)
    assert found.accepted.tolist() == [v is Verdict.TRUST for v in found.verdicts]


def test_numbers_are_p_values_chances_and_nan_where_unusable(judge, mixed):
    found = judge(mixed)
    for name in ("p_outlier", "p_tampered", "p_ordinary", "p_wrong", "trust"):
        values = getattr(found, name)
        assert values.isnan().nonzero().flatten().tolist() == [7]
        if name != "trust":
            assert bool(((values > 0) & (values <= 1))[~values.isnan()].all())
    for name in ("p_outlier", "p_ordinary"):  # nothing ordinary is as strange as the far ones
        assert getattr(found, name)[[5, 6]].tolist() == pytest.approx([1 / 301] * 2)
    order = found.trust.nan_to_num(-1e9).argsort()[1:]
    assert bool((found.p_wrong[order].diff() <= 1e-12).all())  # more trust, fewer errors


def test_a_broken_row_does_not_affect_others(judge, mixed):
    found, alone = judge(mixed), judge(mixed[torch.arange(60) != 7])
    same(found[[k for k in range(60) if k != 7]], alone, atol=1e-9)


def test_one_by_one_is_the_same_as_a_batch(judge, mixed):
    found = judge(mixed)
    same(Judgement.concatenate([judge(mixed[k : k + 1]) for k in range(60)]), found, atol=1e-6)


def test_chunks_of_which_nothing_is_usable_join_the_others(net):
    x, new = models.inputs(200, seed=3), models.inputs(24)
    for settings in ({"profile": "doubtful"}, {"features": None}, {"profile": "always"}):
        judge = cr.Judge.fit(net, x, chunk_size=8, **settings)
        whole = judge(new)
        for rows in (slice(0, 8), slice(8, 16), slice(16, 24)):
            holes = new.clone()
            holes[rows] = math.inf
            found = judge(holes)
            assert found.signals.keys() == whole.signals.keys()
            good = [k for k in range(24) if k not in range(24)[rows]]
            same(found[good], whole[good])
            assert {*found[rows].verdicts} == {Verdict.UNUSABLE}
            assert list(found.to_pandas().columns) == list(whole.to_pandas().columns)
        nothing = judge(torch.full((3, 8), math.nan).double())
        assert nothing.signals.keys() == whole.signals.keys()
        assert nothing.cost == 0.0


def test_inputs_for_which_the_model_gives_no_numbers_are_unusable():
    class Root(nn.Module):
        def forward(self, x):
            return torch.stack([x.sum(1), (x[:, 0] + 5).sqrt(), x[:, 1]], 1)

    x = models.inputs(200)
    new = models.inputs(9, seed=5)
    new[4, 0] = -6.0  # the root of a negative number
    found = cr.Judge.fit(Root().eval(), x)(new)
    assert found.verdicts[4] is Verdict.UNUSABLE
    assert found.verdicts.count(Verdict.UNUSABLE) == 1
    assert float(found.passes[4]) == pytest.approx(1 / 3)


def test_the_model_is_left_as_it_was_found(mixed):
    net = nn.Sequential(nn.Linear(8, 6), nn.BatchNorm1d(6), nn.Dropout(0.5), nn.Linear(6, 3))
    net = net.double().eval()
    net[3].weight.requires_grad_(False)
    net[0].train()
    before = copy.deepcopy(net.state_dict())
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    judge = cr.Judge.fit(net, models.inputs(150))
    judge(mixed)
    assert torch.equal(torch.rand(3), expected)
    assert [part.training for part in net] == [True, False, False, False]
    assert [p.requires_grad for p in net.parameters()] == [True, True, True, True, False, True]
    assert all(p.grad is None for p in net.parameters())
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
    assert all(not part._forward_hooks for part in net.modules())


def test_inference_mode_and_autocast_change_nothing(net, judge, mixed):
    expected = judge(mixed)
    with torch.inference_mode():
        same(judge(mixed.clone()), expected)
    single = copy.deepcopy(net).float()
    x, new = models.inputs(150).float(), mixed.float()
    plain = cr.Judge.fit(single, x)
    with torch.autocast("cpu", torch.bfloat16):
        found = cr.Judge.fit(single, x)
        same(found(new), plain(new))


def test_threads_judge_as_one_does(judge, mixed):
    parts, found = mixed.split(15), [None] * 4

    def work(k):
        for _ in range(3):
            found[k] = judge(parts[k])

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for k in range(4):
        same(found[k], judge(parts[k]))


def test_broken_ordinary_inputs_are_left_out_and_named(net):
    x = models.inputs(120)
    x[[3, 70]] = math.nan
    with pytest.warns(cr.errors.CrediblyWarning, match=r"2 of the ordinary.*NaN.*numbers 3, 70$"):
        judge = cr.Judge.fit(net, x)
    assert judge.facts.left_out == (3, 70)
    assert judge.facts.samples == 118
    good = cr.Judge.fit(net, x[[k for k in range(120) if k not in (3, 70)]])
    same(judge(models.inputs(20)), good(models.inputs(20)), atol=1e-9)


@pytest.mark.parametrize("make", [models.smooth_network, models.relu_network])
def test_gross_garbage_among_the_ordinary_is_set_aside_and_named(make):
    net, x = make(), models.inputs(300)
    x[0] = math.inf
    rows = [4, 100, 101, 200, 299]
    x[rows] *= 1e6
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        judge = cr.Judge.fit(net, x)
    words = [str(w.message) for w in said if w.category is cr.errors.CrediblyWarning]
    assert any("unlike the others" in w and "4, 100, 101, 200, 299" in w for w in words)
    assert judge.facts.left_out == (0, *rows)
    found = judge(torch.cat([x[rows], models.inputs(5)[:, :] * 20]))
    assert all(v in (Verdict.OUTLIER, Verdict.TAMPERED) for v in found.verdicts)
    assert "left out: 6" in judge.summary()


def test_no_more_than_some_thousand_are_used(net):
    x = models.inputs(MOST + 300)
    labels = net(x).argmax(1)
    judge = cr.Judge.fit(net, x, labels, profile="never")
    assert judge.facts.samples == MOST
    assert judge.facts.labelled
    with pytest.raises(cr.errors.InvalidArgumentError, match="`labels`"):
        cr.Judge.fit(net, x, labels[:300])
