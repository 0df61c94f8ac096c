"""What a Judge promises, by simulation: error rates of what is accepted, and false alarms."""

import math

import pytest
import torch
from torch import nn

import credibly as cr
from credibly.decide import thresholds
from credibly.decide.alarm import QUESTIONS
from credibly.decide.judge_facts import Asked
from credibly.decide.learn import Learned, thresholds_of
from credibly.decide.recipe import TrustRecipe
from tests.reference import models

CONFIDENCE = TrustRecipe({"confidence": 1.0}, 0.0, {"confidence": 1.0})


class Population:
    """Inputs of a model that is right in 94 %, whose score tells something about where."""

    def __init__(self, count=200_000, *, classes=1, errors=0.06):
        g = models.generator(0)
        self.score = torch.randn(count, generator=g, dtype=torch.float64)
        chance = torch.sigmoid(-2.5 * self.score - 5.0)  # its AUROC is .92
        chance = chance * errors / chance.mean()
        self.right = torch.rand(count, generator=g, dtype=torch.float64) >= chance
        self.predicted = torch.randint(0, classes, (count,), generator=g)
        uniform = torch.rand(count, generator=g, dtype=torch.float64)
        self.strange = -uniform.log()

    def learned(self, rows):
        """What a Judge knows of some of them, whose strangeness has nothing to do with errors."""
        own = dict.fromkeys(QUESTIONS, self.strange[rows])
        signals = {"confidence": self.score[rows]}
        return Learned(None, None, own, CONFIDENCE, signals, self.predicted[rows], rows, rows, ())

    def errors(self, least, learned):
        """Errors among what is accepted at these thresholds without alarm, and how much that is."""
        calm = self.strange <= learned.own["either"].quantile(0.99)
        accepted = (self.score >= least[self.predicted]) & calm
        share = float(accepted.double().mean())
        return float((~self.right[accepted]).double().mean()) if share else 0.0, share


def asked(error_rate, confidence, *, by_class=False):
    return Asked(
        false_alarms=0.01, error_rate=error_rate, confidence=confidence, by_class=by_class,
        doubted=0.1, profile="never", gamma="auto", features=None, chunk_size=256,
    )  # fmt: skip


def test_of_what_is_accepted_no_more_is_wrong_than_promised():
    """200 labels, 5 % with confidence 90 %, a model of 94 %, after the alarms."""
    everyone, draws = Population(), 400
    assert float(everyone.right.double().mean()) == pytest.approx(0.94, abs=0.002)
    refused = violated = 0
    covered = []
    for seed in range(draws):
        rows = torch.randint(0, 200_000, (200,), generator=models.generator(seed + 1))
        learned = everyone.learned(rows)
        labels = torch.where(everyone.right[rows], 0, 1)
        try:
            least = thresholds_of(learned, labels, asked(0.05, 0.9), 2)
        except cr.errors.InvalidArgumentError:
            refused += 1
            continue
        wrong, share = everyone.errors(least, learned)
        violated += wrong > 0.05
        covered.append(share)
    assert refused <= 0.05 * draws
    assert violated <= 0.1 * draws
    assert sum(covered) / len(covered) > 0.8


def test_the_error_rate_is_kept_for_every_class_at_once():
    everyone, draws = Population(classes=3), 200
    violated, never = 0, 0
    for seed in range(draws):
        rows = torch.randint(0, 200_000, (900,), generator=models.generator(seed + 1))
        learned = everyone.learned(rows)
        labels = torch.where(everyone.right[rows], learned.predicted, 3)
        wanted = asked(0.05, 0.9, by_class=True)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("warnings.warn", lambda *_, **__: None)  # of classes never accepted
            least = thresholds_of(learned, labels, wanted, 3)
        never += int(least.isinf().sum())
        worst = 0.0
        for k in range(3):
            only = torch.full((3,), math.inf, dtype=torch.float64)
            only[k] = least[k]
            worst = max(worst, everyone.errors(only, learned)[0])
        violated += worst > 0.05
    assert violated <= 0.1 * draws
    assert never <= 0.1 * 3 * draws


def test_a_class_without_labels_enough_is_never_accepted_and_named():
    everyone = Population(classes=3)
    rows = torch.arange(400)
    learned = everyone.learned(rows)
    learned.predicted[:] = torch.where(rows < 5, 2, rows % 2)
    labels = learned.predicted.clone()
    with pytest.warns(cr.errors.CrediblyWarning, match=r"classes \[2\].*never accepted"):
        least = thresholds_of(learned, labels, asked(0.05, 0.9, by_class=True), 3)
    assert least.isinf().tolist() == [False, False, True]


def test_inputs_that_raise_an_alarm_do_not_count_for_the_error_rate():
    everyone = Population()
    rows = torch.arange(300)
    learned = everyone.learned(rows)
    labels = torch.where(everyone.right[rows], 0, 1)
    calm = learned.codes(torch.ones(300, dtype=torch.bool), 0.01) == 0
    assert int((~calm).sum()) == 3  # 1 % of them
    least = thresholds_of(learned, labels, asked(0.05, 0.9), 2)
    # two recipes of trust are tried, each at half of the error
    expected = thresholds.for_error_rate(learned.trust[calm], labels[calm] == 0, 0.05, 0.95)
    assert least.tolist() == [expected] * 2
    doubted = thresholds_of(learned, None, asked(None, 0.9), 2)
    assert float((learned.trust < doubted[0]).double().mean()) == pytest.approx(0.1, abs=0.004)


def rule(x):
    """Classes by one column, with errors near the border."""
    return (x[:, 0] + 0.3 * x[:, 1] > 0).long()


@pytest.mark.filterwarnings("ignore:the model is right on:credibly.errors.CrediblyWarning")
def test_a_judge_keeps_its_error_rate_on_new_inputs():
    """From end to end: a linear model of one column, of which a second one is the truth."""
    net = nn.Linear(4, 2).double().eval()
    with torch.no_grad():
        net.weight.copy_(torch.tensor([[-2.0, 0, 0, 0], [2.0, 0, 0, 0]]))
        net.bias.zero_()
    violated, coverage = 0, []
    new = torch.randn(4000, 4, generator=models.generator(99), dtype=torch.float64)
    truth = rule(new)
    for seed in range(12):
        x = torch.randn(300, 4, generator=models.generator(seed), dtype=torch.float64)
        judge = cr.Judge.fit(net, x, rule(x), error_rate=0.05, confidence=0.9, profile="never")
        found = judge(new)
        violated += 1 - found.accuracy(truth) > 0.05
        coverage.append(float(found.accepted.double().mean()))
        assert judge.facts.shares_right["trust"] >= 0.95
        assert "at most 5.00% of what is accepted is wrong" in judge.summary()
    assert violated <= 3  # of 12 at 10 %: more has a chance of 2.6 %
    assert sum(coverage) / 12 > 0.6
    wrong = 1 - rule(x)
    with pytest.raises(cr.errors.InvalidArgumentError, match=r"promise an error rate of 0\.05"):
        cr.Judge.fit(net, x, wrong, error_rate=0.05, profile="never")


def test_false_alarms_of_a_whole_judge_with_heavy_tails():
    """Also where the strangest of the ordinary inputs may be set aside."""
    net = models.smooth_network(5, 3, width=12)
    rates = []
    for seed in range(20):
        g = models.generator(seed)
        squares = torch.randn(400, 5, 2, generator=g, dtype=torch.float64).square().sum(2)
        x = torch.randn(400, 5, generator=g, dtype=torch.float64) / (squares / 2).sqrt()
        found = cr.Judge.fit(net, x[:100], false_alarms=0.05)(x[100:])
        rates.append(float(((found.codes == 2) | (found.codes == 3)).double().mean()))
    mean = sum(rates) / len(rates)
    assert mean <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / 101 / 20 + 0.05 * 0.95 / 6000)
    assert mean >= 0.02


def test_what_is_more_likely_wrong_than_right_is_never_trusted():
    """A model that is wrong wherever it is unsure."""
    net = nn.Linear(2, 2).double().eval()
    with torch.no_grad():
        net.weight.copy_(torch.tensor([[-1.0, 0], [1.0, 0]]))
        net.bias.zero_()
    x = torch.randn(400, 2, generator=models.generator(3), dtype=torch.float64)
    predicted = net(x).argmax(1)
    sure = x[:, 0].abs() > 0.5
    labels = torch.where(sure, predicted, 1 - predicted)  # wrong where it is unsure
    judge = cr.Judge.fit(net, x[:250], labels[:250])
    found = judge(x[250:])
    trusted = torch.tensor([verdict == "trust" for verdict in found.verdicts])
    assert bool((found.p_wrong[trusted] < 0.5).all())
    assert float(sure[250:][trusted].double().mean()) > 0.95
    plain = cr.Judge.fit(net, x[:250])(x[250:])  # without labels nothing tells
    assert sum(v == "trust" for v in plain.verdicts) > 1.5 * int(trusted.sum())
