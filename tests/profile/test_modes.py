"""Modes and defaults of torch that a caller may have set, and which must change no answer."""

import pytest
import torch

import credibly as cr
from tests.reference import models

X = models.inputs(2).float()
NET = models.smooth_network(classes=33).float()  # enough classes for the sketch of auto_gamma
SPACE = cr.Space(scale=0.5, locked=[1], tied=[0, -1, 0, -1, -1, 1, 1, -1], bounds=(-9.0, 9.0))
WAYS = {
    "inputs": cr.Classifier(NET),
    "space": cr.Classifier(NET, space=SPACE),
    "module": cr.Classifier(NET, module="1"),
}
SOLVED = {name: cr.credibility(clf, X, gamma=9.0) for name, clf in WAYS.items()}

DOORS = {
    "credibility": lambda clf, _: cr.credibility(clf, X, gamma=9.0).perturbed,
    "auto_gamma": lambda clf, _: torch.as_tensor(cr.auto_gamma(clf, X), device="cpu"),
    "certify": lambda clf, profile: (
        cr.certify(
            clf,
            X if isinstance(clf, cr.Classifier) else None,
            profile.perturbed,
            gamma=9.0,
            gradient_samples=3,
        ).hull
    ),
    "solve_constrained": lambda clf, profile: (
        cr.theory.solve_constrained(clf, X, profile.credibility - 1.0).risk
    ),
    "credibility_path": lambda clf, _: cr.credibility_path(clf, X, [9.0, 12.0]).switching_gamma(),
    "check_tradeoff": lambda clf, profile: cr.theory.check_tradeoff(clf, profile).worst(),
    "attached_credibility": lambda clf, profile: cr.attached_credibility(
        clf, profile, curvature="outputs"
    ).detach(),
}
MODES = {
    "inference": torch.inference_mode,
    "elsewhere": lambda: torch.device("meta"),  # numbers made there without need cannot be used
    "autocast": lambda: torch.autocast("cpu", dtype=torch.bfloat16),
}


# what is attached runs in the caller's training step, under its autocast, as its other losses do
CASES = [
    (door, mode)
    for door in DOORS
    for mode in MODES
    if (door, mode) != ("attached_credibility", "autocast")
]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("door", "mode"), CASES)
def test_modes_of_the_caller_change_no_answer(door, way, mode):
    clf, profile = WAYS[way], SOLVED[way]
    if way == "module" and door in ("certify", "check_tradeoff", "attached_credibility"):
        clf = cr.bind(clf, X)
    expected = DOORS[door](clf, profile)
    with MODES[mode]():
        found = DOORS[door](clf, profile)
    assert torch.equal(found, expected)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("layer", ["4", "2"])
def test_nor_that_over_parameters(layer, mode):
    def solved():
        bound = cr.vary_parameters(WAYS["inputs"], X, layer)
        return cr.credibility(bound, gamma=9.0, solver=cr.solvers.LBFGS(steps=5)).perturbed

    expected = solved()
    with MODES[mode]():
        found = solved()
    assert torch.equal(found, expected)


def test_spaces_and_weights_do_not_lie_on_the_default_device():
    x = models.inputs(5)
    plain = cr.Space.standardised(x), cr.prior_weights([0.2, 0.3, 0.5], gamma=2.0)
    with torch.device("meta"):
        found = cr.Space.standardised(x), cr.prior_weights([0.2, 0.3, 0.5], gamma=2.0)
    assert torch.equal(found[0].scale, plain[0].scale)
    assert torch.equal(found[1], plain[1])
