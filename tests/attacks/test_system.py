"""What a system says, and what an attack on it lowers, in plain Python."""

import math
from dataclasses import replace

import pytest
import torch

import credibly as cr
from credibly.attacks.system import Outcome, worst_verdict

GRID = torch.linspace(-2, 2, 5, dtype=torch.float64)
X = torch.cartesian_prod(GRID, GRID + 0.1, GRID - 0.2)
LABELS = torch.arange(len(X)) % 3
TARGET = (LABELS + 1) % 3


def score(profile):
    """A score that has nothing to do with the margin of the class."""
    return profile.credence[:, 2] - profile.credence[:, 0]


def naive_margin(values, label, target):
    if target is None:
        return values[label] - max(v for k, v in enumerate(values) if k != label)
    return max(v for k, v in enumerate(values) if k != target) - values[target]


def naive_goal(margin, trust, *, threshold, hinge, confidence):
    """First the class, to more than enough; once it is wrong, what the score lacks."""
    if margin >= 0:
        return margin + hinge
    missing = max(0.0, threshold - trust)
    if missing == 0:
        return margin
    return max(margin, -confidence) + hinge * missing / (1 + missing)


@pytest.mark.parametrize("targeted", [False, True])
@pytest.mark.parametrize(("hinge", "confidence"), [(1.0, 1.0), (3.0, 0.5)])
def test_the_goal_is_its_formula(targeted, hinge, confidence):
    clf, target = cr.Classifier(lambda x: x), TARGET if targeted else None
    system = cr.attacks.System.ranked(
        score=score, gamma=50.0, threshold=0.3, solver=cr.solvers.LBFGS(steps=1)
    )
    aware = replace(system, aware=True, hinge=hinge, confidence=confidence)
    plain, found = (s.judge(clf, X, LABELS, target=target) for s in (system, aware))
    logits = X.log_softmax(1).tolist()
    for n, values in enumerate(logits):
        margin = naive_margin(values, int(LABELS[n]), None if target is None else int(target[n]))
        trust = values[2] - values[0]
        goal = naive_goal(margin, trust, threshold=0.3, hinge=hinge, confidence=confidence)
        assert float(found.margin[n]) == pytest.approx(margin, abs=1e-12)
        assert float(plain.goal[n]) == pytest.approx(margin, abs=1e-12)
        assert float(found.goal[n]) == pytest.approx(goal, abs=1e-12)
        assert bool(found.accepted[n]) == (float(found.scores[n]) >= 0.3)
        assert bool(found.success[n]) == (bool(found.accepted[n]) and margin < 0)
    assert found.classes.tolist() == X.argmax(1).tolist()
    assert 0 < int(found.success.sum()) < len(X)


def test_every_wrong_class_is_a_lower_goal_than_any_right_one():
    clf = cr.Classifier(lambda x: x)
    system = cr.attacks.System.ranked(
        score=score, gamma=50.0, threshold=0.3, solver=cr.solvers.LBFGS(steps=1)
    )
    found = replace(system, aware=True).judge(clf, X, LABELS)
    wrong = found.margin < 0
    assert float(found.goal[wrong].max()) < float(found.goal[~wrong].min())


@pytest.mark.parametrize("size", [40, 124])
def test_chunks_change_no_verdict(size):
    clf = cr.Classifier(lambda x: x)
    system = cr.attacks.System.ranked(
        score=score, gamma=50.0, threshold=0.3, solver=cr.solvers.LBFGS(steps=1)
    )
    whole = system.judge(clf, X, LABELS, target=TARGET)
    parts = replace(system, chunk_size=size).judge(clf, X, LABELS, target=TARGET)
    for name in ("classes", "accepted", "scores", "margin", "goal", "success"):
        torch.testing.assert_close(getattr(parts, name), getattr(whole, name))


def test_of_classes_in_a_tie_the_one_that_is_answered_counts():
    clf = cr.Classifier(lambda x: x)
    x = torch.tensor([[1.0, 1.0, 0.0], [1.0, 1.0, 0.0], [0.0, 2.0, 2.0]], dtype=torch.float64)
    labels = torch.tensor([0, 1, 0])
    found = cr.attacks.System().judge(clf, x, labels)
    assert found.classes.tolist() == [0, 0, 1]
    assert found.margin.tolist()[:2] == [0.0, 0.0]
    assert found.success.tolist() == [False, True, True]
    wanted = cr.attacks.System().judge(clf, x, labels, target=torch.tensor([1, 0, 2]))
    assert wanted.margin.tolist() == [0.0, 0.0, 0.0]
    assert wanted.success.tolist() == [False, True, False]


def test_outputs_that_are_no_numbers_are_no_success():
    clf = cr.Classifier(lambda x: x)
    x = torch.tensor([[math.nan, 1.0], [0.0, 1.0]], dtype=torch.float64)
    found = cr.attacks.System().judge(clf, x, torch.tensor([1, 0]))
    assert found.success.tolist() == [False, True]
    assert not bool(cr.attacks.System().judge(clf, x[:1], torch.tensor([0])).success.any())


def test_a_score_in_single_precision_is_compared_in_double():
    clf, x = cr.Classifier(lambda x: x), torch.eye(2, dtype=torch.float64)
    tenth = torch.tensor(0.1, dtype=torch.float32)  # a little above 0.1
    system = cr.attacks.System.ranked(
        score=lambda profile: tenth.expand(len(profile)),
        gamma=5.0,
        solver=cr.solvers.LBFGS(steps=1),
    )
    for more, answered in ((1e-9, True), (2e-9, False)):
        judged = replace(system, threshold=0.1 + more).judge(clf, x, torch.tensor([0, 1]))
        assert judged.accepted.tolist() == [answered] * 2


def outcome(success, goal):
    nothing = torch.zeros(len(goal))
    goal = torch.tensor(goal, dtype=torch.float64)
    return Outcome(nothing, nothing, None, goal, goal, torch.tensor(success))


def test_the_worst_is_a_success_first_and_then_the_lowest_goal():
    nan = math.nan
    one = outcome([False, True, True, False, False], [-5.0, 3.0, 1.0, 1.0, nan])
    two = outcome([True, True, True, False, False], [4.0, 2.0, 2.0, 0.5, 7.0])
    assert worst_verdict([one, two]).tolist() == [1, 1, 0, 1, 1]
    assert worst_verdict([two, one]).tolist() == [0, 0, 1, 0, 0]


@pytest.mark.parametrize(("given", "expected"), [(None, 2.5 * 0.3 / 8), (0.7, 0.7)])
def test_steps_are_as_long_as_said(given, expected):
    attack = cr.attacks.PGD(eps=0.3, steps=8, step_size=given)
    assert attack.step_length == pytest.approx(expected)


def test_the_named_systems_are_what_they_say():
    solver = cr.solvers.LBFGS(steps=3)
    assert cr.attacks.System.bare() == cr.attacks.System(decision="model")
    credible = cr.attacks.System.most_credible(gamma=7.0, solver=solver)
    assert credible == cr.attacks.System(decision="profile", gamma=7.0, solver=solver)
    ranked = cr.attacks.System.ranked(score=score, gamma=7.0, threshold=0.5, solver=solver)
    assert ranked == cr.attacks.System(
        decision="model", score=score, gamma=7.0, threshold=0.5, solver=solver
    )


def test_the_deployed_solver_is_the_one_of_the_system():
    clf = cr.Classifier(lambda x: x)
    for solver in (cr.solvers.LBFGS(steps=1), cr.solvers.LBFGS(steps=30)):
        system = cr.attacks.System.most_credible(gamma=5.0, solver=solver)
        expected = cr.credibility(clf, X[:9], gamma=5.0, solver=solver).credibility
        torch.testing.assert_close(system.profile(clf, X[:9]).credibility, expected)
        values = system.judge(clf, X[:9], LABELS[:9])
        own = expected.gather(1, LABELS[:9, None])[:, 0]
        rest = expected.scatter(1, LABELS[:9, None], -math.inf).amax(1)
        torch.testing.assert_close(values.margin, own - rest)


@pytest.mark.parametrize("count", [len(X) - 1, len(X) + 1])
def test_classes_of_other_inputs_are_refused(count):
    clf = cr.Classifier(torch.nn.Linear(3, 3).double())
    classes = torch.arange(count) % 3
    with pytest.raises(
        cr.errors.InvalidArgumentError, match=f"labels.*one whole number per sample, {len(X)}, got"
    ):
        cr.attacks.System.bare().judge(clf, X, classes)
    with pytest.raises(cr.errors.InvalidArgumentError, match="target"):
        cr.attacks.System.bare().judge(clf, X, LABELS, target=classes)


def test_an_attack_in_place_of_a_function_of_eps_is_refused():
    clf = cr.Classifier(torch.nn.Linear(3, 3).double())
    given = {
        "attacks": {"pgd": cr.attacks.PGD(eps=0.1)},
        "radii": [0.1],
        "system": cr.attacks.System.bare(),
    }
    with pytest.raises(cr.errors.InvalidArgumentError, match=r"got a PGD as 'pgd'.*lambda eps"):
        cr.attacks.run_attacks(clf, X, LABELS, **given)


@pytest.mark.parametrize(
    ("wrong", "got"), [(3, "3 for sample"), (-1, "-1 for sample"), (0.5, "float")]
)
def test_numbers_that_are_no_classes_are_refused_by_a_system(wrong, got):
    clf = cr.Classifier(torch.nn.Linear(3, 3).double())
    classes = torch.tensor([*LABELS[1:].tolist(), wrong])
    with pytest.raises(cr.errors.InvalidArgumentError, match=f"`labels`.*got .*{got}"):
        cr.attacks.System.bare().judge(clf, X, classes)
    with pytest.raises(cr.errors.InvalidArgumentError, match="target"):
        cr.attacks.System.bare().judge(clf, X, LABELS, target=classes)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, torch.int32])
def test_whole_numbers_of_any_size_are_labels_to_a_system(dtype):
    clf, kind = cr.Classifier(torch.nn.Linear(3, 3).double()), cr.attacks.System.bare()
    expected = kind.judge(clf, X, LABELS)
    assert torch.equal(kind.judge(clf, X, LABELS.to(dtype)).success, expected.success)
