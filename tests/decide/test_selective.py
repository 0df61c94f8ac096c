import copy
import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch

import credibly as cr
from credibly.decide import scores, thresholds
from credibly.decide.selective import Abstention
from credibly.io.fingerprints import quick_digest
from tests.reference import models

GAMMA = 30.0


@pytest.fixture(scope="module")
def clf():
    return cr.Classifier(models.smooth_network(classes=3), classes=("a", "b", "c"))


@pytest.fixture(scope="module")
def profile(clf):
    return cr.credibility(clf, models.inputs(400), gamma=GAMMA)


@pytest.fixture(scope="module")
def labels(profile):
    """Right, except for the samples of the smallest scores and a few others."""
    truth = profile.credence.argmax(1)
    doubtful = cr.scores.failure_score(profile)(profile).argsort()[:60]
    truth[doubtful] = (truth[doubtful] + 1) % 3
    return truth


@pytest.mark.parametrize("coverage", [0.05, 0.5, 0.9, 1, np.float32(0.25), torch.tensor(0.75)])
@pytest.mark.parametrize("score", [None, "margin", cr.scores.outlier_score()])
def test_a_coverage_is_met_on_the_sample_itself(clf, profile, coverage, score, tmp_path):
    chosen = cr.SelectiveClassifier.for_coverage(clf, profile, coverage, score=score)
    decision = chosen.decide(profile)
    assert decision.coverage == pytest.approx(math.ceil(400 * float(coverage) - 1e-6) / 400)
    assert decision.accepted.tolist() == [c is not cr.ABSTAINED for c in decision.classes]
    chosen.save(tmp_path / "rule.json")
    assert cr.SelectiveClassifier.load(tmp_path / "rule.json") == chosen


def test_answers_are_the_models_classes_or_the_most_credible(clf, profile):
    model = cr.SelectiveClassifier.for_coverage(clf, profile, 1.0)
    credible = cr.SelectiveClassifier.for_coverage(clf, profile, 1.0, answer="credible")
    assert list(model.decide(profile).classes) == profile.credence.argmax(1).tolist()
    assert list(credible.decide(profile).classes) == profile.credibility.argmax(1).tolist()
    assert model.decide(profile).classes != credible.decide(profile).classes


def test_a_risk_is_kept_and_recorded(clf, profile, labels):
    chosen = cr.SelectiveClassifier.for_error_rate(clf, profile, labels, 0.05, confidence=0.9)
    decision = chosen.decide(profile)
    assert 1 - decision.accuracy(labels) <= 0.05
    assert 0.5 < decision.coverage < 1
    assert chosen.origin == {
        "rule": "error_rate",
        "error_rate": 0.05,
        "confidence": 0.9,
        "samples": 400,
    }
    assert "right among the answered" in decision.summary(labels)
    with pytest.raises(cr.errors.InvalidArgumentError, match=r"At least .* accepted samples"):
        cr.SelectiveClassifier.for_error_rate(clf, profile[:20], labels[:20], 0.01)


def test_a_risk_counts_the_answers_that_will_be_given(clf, profile):
    credible = profile.credibility.argmax(1)
    everything = cr.SelectiveClassifier.for_error_rate(
        clf, profile, credible, 0.05, answer="credible", score="ratio"
    )
    assert everything.threshold == thresholds.EVERYTHING
    assert everything.decide(profile).coverage == 1.0


@pytest.mark.parametrize("shape", ["short", "single", "column", "empty"])
def test_labels_must_be_one_a_sample(clf, profile, labels, shape):
    bad = {
        "short": labels[1:], "single": labels[:1], "column": labels[:, None], "empty": labels[:0],
    }[shape]  # fmt: skip
    with pytest.raises(
        cr.errors.InvalidArgumentError, match=r"`labels`.*one whole number per sample, 400"
    ):
        cr.SelectiveClassifier.for_error_rate(clf, profile, bad, 0.05)
    decision = cr.SelectiveClassifier.for_coverage(clf, profile, 0.5).decide(profile)
    with pytest.raises(cr.errors.InvalidArgumentError, match="`labels`"):
        decision.accuracy(bad)


def test_the_papers_rule_by_hand(clf, profile, tmp_path):
    alpha = 0.4
    rule = cr.SelectiveClassifier.for_alpha(clf, profile[:1], alpha)
    decision = rule.decide(profile)
    expected = []
    for row in profile.credibility.tolist():
        first, second = sorted(abs(c) for c in row)[:2]
        accepted = first <= (1 - alpha) * second
        expected.append(row.index(max(row)) if accepted else cr.ABSTAINED)
    assert list(decision.classes) == expected
    assert 0 < decision.coverage < 1
    rule.save(tmp_path / "rule.json")
    assert cr.SelectiveClassifier.load(tmp_path / "rule.json").decide(profile).classes == tuple(
        expected
    )


def test_an_abstention_is_no_number_and_no_class():
    absent = cr.ABSTAINED
    assert isinstance(absent, Abstention)
    assert copy.deepcopy(absent) is absent
    assert all(absent != k for k in (-1, 0, 1, "abstained", None, True, math.nan))
    assert not bool((np.arange(3) == absent).any())
    for use in (
        lambda: int(absent),
        lambda: float(absent),
        lambda: [1, 2][absent],
        lambda: torch.arange(3)[absent],
        lambda: np.arange(3)[absent],
        lambda: absent < 1,
        lambda: absent + 1,
        lambda: torch.tensor([0, absent]),
        lambda: np.array([0, absent], dtype=np.int64),
        lambda: np.array([0, absent]).argmax(),
        lambda: max(0, absent),
    ):
        with pytest.raises((TypeError, IndexError, RuntimeError, ValueError)):
            use()


def test_samples_without_a_profile_are_never_answered(clf):
    x = models.inputs(30)
    x[3] = math.nan
    x[5, 0] = math.inf
    holes = cr.credibility(clf, x, gamma=GAMMA)
    everything = [
        cr.SelectiveClassifier.for_coverage(clf, holes, 1.0),
        cr.SelectiveClassifier.for_coverage(clf, holes, 1.0, answer="credible", score="ratio"),
        cr.SelectiveClassifier.for_alpha(clf, holes, 1e-9),
        cr.SelectiveClassifier(
            thresholds.EVERYTHING, cr.scores.outlier_score(), "model", settings=holes.settings
        ),
    ]
    for rule in everything:
        decision = rule.decide(holes)
        assert [n for n, c in enumerate(decision.classes) if c is cr.ABSTAINED] == [3, 5]
        assert "2 of them without a profile" in decision.summary()
        assert decision.named()[3] == "abstained"
        assert decision.named()[0] in ("a", "b", "c")


def test_no_answer_has_no_accuracy(profile, labels):
    never = cr.SelectiveClassifier(
        1e300, cr.scores.outlier_score(), "model", settings=profile.settings
    )
    decision = never.decide(profile)
    assert decision.coverage == 0
    assert math.isnan(decision.accuracy(labels))


def others(clf, x):
    """Profiles that a threshold must refuse, each for one reason."""
    changed = cr.Classifier(models.smooth_network(classes=3, seed=1), classes=clf.classes)
    hinge = cr.Classifier(clf.net, classes=clf.classes, loss="hinge")
    return {
        "model": cr.credibility(changed, x, gamma=GAMMA),
        "gamma": cr.credibility(clf, x, gamma=1.01 * GAMMA),
        "solver": cr.credibility(clf, x, gamma=GAMMA, solver=cr.solvers.LBFGS()),
        "loss": cr.credibility(hinge, x, gamma=GAMMA),
        "bounds": cr.credibility(clf, x, gamma=GAMMA, bounds=(-9.0, 9.0)),
        "space": cr.credibility(
            cr.Classifier(clf.net, classes=clf.classes, module="0"), x, gamma=GAMMA
        ),
    }


def test_profiles_of_other_settings_are_refused(clf, profile):
    rule = cr.SelectiveClassifier.for_coverage(clf, profile, 0.5)
    for name, other in others(clf, models.inputs(3)).items():
        with pytest.raises(cr.errors.InvalidArgumentError, match=f"the {name} the threshold"):
            rule.decide(other)
    stranger = cr.Classifier(models.smooth_network(classes=3, seed=1))
    with pytest.raises(cr.errors.InvalidArgumentError, match="this very classifier"):
        cr.SelectiveClassifier.for_coverage(stranger, profile, 0.5)
    with pytest.raises(cr.errors.InvalidArgumentError, match="`clf`"):
        cr.SelectiveClassifier.for_coverage(profile, clf, 0.5)
    with pytest.raises(cr.errors.InvalidArgumentError, match="`answer`"):
        cr.SelectiveClassifier.for_coverage(clf, profile, 0.5, answer="both")


@pytest.mark.parametrize("bad", [0.0, 1.5, -1, True, math.nan, "half"])
def test_bad_shares_are_refused(clf, profile, labels, bad):
    choose = cr.SelectiveClassifier
    with pytest.raises(cr.errors.InvalidArgumentError, match="`coverage`"):
        choose.for_coverage(clf, profile, bad)
    with pytest.raises(cr.errors.InvalidArgumentError, match="`error_rate`"):
        choose.for_error_rate(clf, profile, labels, bad)
    with pytest.raises(cr.errors.InvalidArgumentError, match="`confidence`"):
        choose.for_error_rate(clf, profile, labels, 0.05, confidence=bad)
    with pytest.raises(cr.errors.InvalidArgumentError, match="`alpha`"):
        choose.for_alpha(clf, profile, bad)


def test_a_loaded_rule_decides_the_same(clf, profile, labels, tmp_path):
    rule = cr.SelectiveClassifier.for_error_rate(clf, profile, labels, 0.1)
    rule.save(tmp_path / "rule.json")
    again = cr.SelectiveClassifier.load(tmp_path / "rule.json")
    assert again == rule
    assert again.decide(profile).classes == rule.decide(profile).classes
    text = (tmp_path / "rule.json").read_text("utf-8")
    json.loads(text, parse_constant=pytest.fail)  # plain JSON: neither NaN nor Infinity


@pytest.mark.parametrize(
    "change",
    [
        {"format": "credibly.judge"},
        {"format_version": 2},
        {"threshold": "high"},
        {"threshold": math.nan},
        {"threshold": None},
        {"threshold": 10**400},
        {"score": []},
        {"score": {"kind": "plain", "name": "eval"}},
        {"answer": "both"},
        {"settings": {}},
        {"settings": []},
        {"origin": 3},
    ],
)
def test_files_of_other_content_are_refused(clf, profile, tmp_path, change):
    path = tmp_path / "rule.json"
    cr.SelectiveClassifier.for_coverage(clf, profile, 0.5).save(path)
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(cr.errors.FileFormatError, match=r"rule\.json"):
        cr.SelectiveClassifier.load(path)


@pytest.mark.parametrize("name", ["weights", "solver", "model", "bounds"])
def test_files_with_wrong_settings_are_refused(clf, profile, tmp_path, name):
    path = tmp_path / "rule.json"
    cr.SelectiveClassifier.for_coverage(clf, profile, 0.5).save(path)
    content = json.loads(path.read_text())
    content["settings"][name] = [{"a": 1}]
    path.write_text(json.dumps(content))
    with pytest.raises(cr.errors.FileFormatError):
        cr.SelectiveClassifier.load(path)


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b"\xff\xfe", b"[" * 100000])
def test_files_that_are_no_json_are_refused(tmp_path, content):
    path = tmp_path / "rule.json"
    path.write_bytes(content)
    with pytest.raises(cr.errors.FileFormatError, match=r"rule\.json"):
        cr.SelectiveClassifier.load(path)


def test_the_quick_digest_tells_models_apart_and_copies_not():
    net = models.smooth_network().float()
    digest = quick_digest(cr.Classifier(net))
    assert quick_digest(cr.Classifier(copy.deepcopy(net))) == digest
    assert quick_digest(cr.Classifier(copy.deepcopy(net).double())) == digest
    other = copy.deepcopy(net)
    with torch.no_grad():
        other[4].bias += 1e-3
    assert quick_digest(cr.Classifier(other)) != digest
    assert quick_digest(cr.Classifier(models.smooth_network(seed=3))) != digest
    assert quick_digest(cr.Classifier(models.affine)) == "function affine"


def test_a_profile_says_which_model_and_space_it_is_of(clf, profile, tmp_path):
    assert profile.settings.model == quick_digest(clf)
    assert profile.settings.space == "inputs"
    profile.save(tmp_path / "p.safetensors")
    assert cr.Profile.load(tmp_path / "p.safetensors").settings == profile.settings
    x = models.inputs(2)
    spaces = [
        cr.Space(locked=[0]),
        cr.Space(locked=[1]),
        cr.Space(scale=2.0),
        cr.Space(scale=torch.full((8,), 2.0)),
        cr.Space(scale=torch.full((8,), 3.0)),
        cr.Space(scale=np.arange(1.0, 9.0)),
    ]
    found = [cr.credibility(cr.Classifier(clf.net, space=s), x, gamma=GAMMA) for s in spaces]
    assert {p.settings.model for p in found} == {quick_digest(clf)}
    assert len({p.settings.space for p in found}) == 6


def test_scores_of_low_precision_do_not_blur_the_threshold(clf, profile):
    class Coarse(cr.scores.TrustScore):
        def __call__(self, profile):
            return scores.margin(profile).float()

        def as_json(self):
            return {}

    truth = profile.credence.argmax(1).clone()
    order = scores.margin(profile).argsort()
    truth[order[:100]] = (truth[order[:100]] + 1) % 3
    rule = cr.SelectiveClassifier.for_error_rate(clf, profile, truth, 0.1, score=Coarse())
    values = scores.margin(profile).float().double()
    left_out = math.nextafter(rule.threshold, -math.inf)
    assert left_out in values.tolist()
    one = int((values == left_out).nonzero()[0])
    assert rule.decide(profile).classes[one] is cr.ABSTAINED
    assert replace(rule, threshold=left_out).decide(profile).classes[one] is not cr.ABSTAINED


def test_names_of_classes_in_another_order_are_refused_and_no_names_are_not(clf, profile):
    rule = cr.SelectiveClassifier.for_coverage(clf, profile, 0.5)
    x = models.inputs(3)
    turned = cr.Classifier(clf.net, classes=list(reversed(clf.classes)))
    with pytest.raises(cr.errors.InvalidArgumentError, match=f"{clf.classes[0]!r} for 0, got"):
        rule.decide(cr.credibility(turned, x, gamma=GAMMA))
    nameless = cr.credibility(cr.Classifier(clf.net), x, gamma=GAMMA)
    own = cr.credibility(clf, x, gamma=GAMMA)
    assert torch.equal(rule.decide(nameless).accepted, rule.decide(own).accepted)
