"""Every public call gives the same on another device, whatever torch's default device is.

`pytest tests/device --device cuda` runs the calls on a GPU. Without one they run on the CPU while
the default device is 'meta': a tensor that is made there instead of beside the inputs cannot be
computed with, so the same mistakes show.
"""

import pytest
import torch

import credibly as cr
from credibly.baselines import all_baselines
from credibly.study.corruptions import KINDS
from tests.reference import models

GAMMA = 30.0
LABELS = torch.tensor([0, 1, 2, 3, 4, 0])


def network(device):
    with torch.device("cpu"):
        net = models.smooth_network()
    return net.to(device)


def smooth(device, **settings):
    return cr.Classifier(network(device), **settings)


def inputs(device, count=6):
    with torch.device("cpu"):
        x = models.inputs(count)
    return x.to(device)


def profile_of(device, count=6, **settings):
    return cr.credibility(smooth(device), inputs(device, count), gamma=GAMMA, **settings)


def solved_by(solver):
    return lambda device: profile_of(device, solver=solver).perturbed


def in_a_space(device):
    scale = torch.linspace(0.5, 2, 8, device="cpu")
    clf = smooth(device, space=cr.Space(scale=scale, locked=[3], bounds=(-9.0, 9.0)))
    return cr.credibility(clf, inputs(device), gamma=GAMMA).perturbed


def at_a_module(device):
    clf = smooth(device, module="1")
    return cr.credibility(clf, inputs(device), gamma=GAMMA).credibility


def over_parameters(device):
    variable = cr.vary_parameters(smooth(device), inputs(device))
    return cr.credibility(variable, gamma=GAMMA).credibility


def gradients(device):
    profile = profile_of(device)
    x0 = profile.x0.clone().requires_grad_()
    attached = cr.attached_credibility(smooth(device), profile, x0=x0)
    (found,) = torch.autograd.grad(attached.square().sum(), x0)
    return found


def constrained(device):
    credences = profile_of(device).credibility - 0.1
    return cr.theory.solve_constrained(smooth(device), inputs(device), credences).risk


def tradeoff(device):
    return cr.theory.check_tradeoff(smooth(device), profile_of(device)).worst()


def assumption(device):
    return cr.theory.check_assumption_2(smooth(device), profile_of(device), directions=4).fraction


def decided(device):
    profile = profile_of(device, 40)
    rule = cr.SelectiveClassifier.for_coverage(smooth(device), profile, 0.5)
    return rule.decide(profile).accepted


def judged(device):
    labels = smooth(device).predict(inputs(device, 200))
    judge = cr.Judge.fit(smooth(device), inputs(device, 200), labels)
    new = inputs(device, 20)
    new[3:5] *= 50.0
    new[7] = torch.nan
    found = judge(new)
    assert found[[4, 3]].verdicts == (cr.Verdict.OUTLIER,) * 2
    numbers = (found.codes, found.trust, found.p_ordinary, found.p_wrong, found.passes)
    return torch.cat([values.double().nan_to_num(-1.0) for values in numbers])


def in_sets(device):
    profile = profile_of(device, 40)
    labels = profile.credence.argmax(1)
    return cr.ConformalSets.fit(smooth(device), profile, labels).sets(profile)


def attacked(attack):
    def call(device):
        return attack(smooth(device), inputs(device), LABELS.to(device))

    return call


def baseline(name):
    return lambda device: all_baselines(gamma=GAMMA, temperature=2.0)[name](
        smooth(device), inputs(device)
    )


def corrupted(kind):
    def call(device):
        with torch.device("cpu"):
            images = torch.rand(2, 1, 8, 8, generator=models.generator(3), dtype=torch.float64)
        return cr.study.Corruption(kind, 3)(images.to(device))

    return call


SYSTEM = cr.attacks.System.most_credible(gamma=GAMMA, solver=cr.solvers.LBFGS(steps=20))
SETTINGS = {"eps": 0.1, "steps": 3, "system": SYSTEM}
CALLS = {
    "hybrid": solved_by(cr.solvers.Hybrid()),
    "lbfgs": solved_by(cr.solvers.LBFGS()),
    "gauss-newton, dense": solved_by(cr.solvers.GaussNewton(jacobian="dense")),
    "gauss-newton, free": solved_by(cr.solvers.GaussNewton(jacobian="free")),
    "descent": solved_by(cr.solvers.GradientDescent(steps=50)),
    "arrow-hurwicz": solved_by(cr.solvers.ArrowHurwicz(steps=50)),
    "auto gamma": lambda device: torch.tensor(
        cr.auto_gamma(smooth(device), inputs(device)), device="cpu"
    ),
    "path": lambda device: (
        cr.credibility_path(
            smooth(device), inputs(device), [10.0, 30.0], solver=cr.solvers.LBFGS()
        ).credibility
    ),
    "certify": lambda device: (
        cr.certify(
            smooth(device), inputs(device), inputs(device) + 0.1, gamma=GAMMA, gradient_samples=3
        ).tradeoff
    ),
    "bounds": lambda device: profile_of(device, bounds=(-9.0, 9.0)).perturbed,
    "most probable classes": lambda device: profile_of(device, top=2).credibility,
    "their ranking": lambda device: profile_of(device, top=2).ranking(),
    "their predictions": lambda device: profile_of(device, 16, top=2, effort="decide").predicted,
    "their gamma": lambda device: torch.tensor(
        cr.auto_gamma(smooth(device), inputs(device), top=2), device="cpu"
    ),
    "their trade-off": lambda device: cr.theory.check_tradeoff(
        smooth(device), profile_of(device, top=2)
    ).holds(),
    "space": in_a_space,
    "module": at_a_module,
    "parameters": over_parameters,
    "gradients": gradients,
    "constrained": constrained,
    "trade-off": tradeoff,
    "assumption 2": assumption,
    "selective": decided,
    "judge": judged,
    "conformal sets": in_sets,
    **{
        name: attacked(attack)
        for name, attack in {
            "PGD": cr.attacks.PGD(**SETTINGS),
            "BPDA": cr.attacks.BPDA(**SETTINGS),
            "implicit": cr.attacks.ImplicitGradient(**SETTINGS),
            "unrolled": cr.attacks.Unrolled(**SETTINGS),
            "surrogate": cr.attacks.Surrogate(**SETTINGS),
            "inverse map": cr.attacks.InverseMap(**SETTINGS),
            "square": cr.attacks.Square(**SETTINGS),
        }.items()
    },
    **{kind: corrupted(kind) for kind in KINDS},
    **{name: baseline(name) for name in all_baselines(gamma=GAMMA, temperature=2.0)},
    **{
        f"score {name}": lambda device, name=name: cr.scores.SCORES[name](profile_of(device))
        for name in cr.scores.SCORES
    },
}


@pytest.mark.parametrize("name", CALLS)
def test_the_same_on_another_device(name, device):
    expected = CALLS[name]("cpu")
    with torch.device("cpu" if device.type != "cpu" else "meta"):
        found = CALLS[name](device)
    if found.is_floating_point():
        torch.testing.assert_close(found.cpu(), expected.cpu(), atol=1e-6, rtol=1e-6)
    else:
        assert torch.equal(found.cpu(), expected.cpu())


def test_results_stay_where_the_inputs_are(device):
    profile = profile_of(device)
    for name in ("credibility", "credence", "risk", "x0", "perturbed", "multipliers", "passes"):
        assert getattr(profile, name).device.type == device.type, name


def test_a_profile_is_saved_and_read(device, tmp_path):
    profile = profile_of(device)
    profile.save(tmp_path / "profile.safetensors")
    again = cr.Profile.load(tmp_path / "profile.safetensors")
    assert torch.equal(again.credibility, profile.credibility.cpu())


def test_a_file_is_scored(device, tmp_path):
    import numpy as np

    x = models.inputs(20)
    np.save(tmp_path / "x.npy", x.numpy())
    report = cr.score(smooth(device), tmp_path / "x.npy", tmp_path / "out.parquet", gamma=GAMMA)
    assert report.rows == 20
    again = cr.Profile.from_parquet(tmp_path / "out.parquet")
    expected = cr.credibility(smooth("cpu"), x, gamma=GAMMA)
    assert torch.allclose(again.credibility, expected.credibility, atol=1e-6)
