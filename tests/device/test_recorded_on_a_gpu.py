"""On a GPU: recorded descents give what others give, and never wait for the GPU on the way."""

import pytest
import torch

import credibly as cr
from credibly.data.sample import load_sample
from credibly.model.variable import Inputs
from credibly.problem.fit_risk import FitRiskProblem

DESCENT = cr.solvers.FixedDescent(radius=0.6)


@pytest.fixture
def on_gpu(device):
    if device.type != "cuda":
        pytest.skip("needs a GPU: pytest tests/device --device cuda")
    return load_sample().net.to(device), load_sample().images.to(device)


@pytest.mark.parametrize("compiled", [False, True])
def test_a_replayed_descent_is_the_first_one(on_gpu, compiled):
    net, images = on_gpu
    clf = cr.accelerate(cr.Classifier(net), images[:64], compiled=compiled)
    settings = {"gamma": 200.0, "solver": DESCENT}
    first, second, third = (cr.credibility(clf, images[:100], **settings) for _ in range(3))
    assert torch.equal(second.credibility, third.credibility)
    near = (first.credibility - second.credibility).abs().flatten().quantile(0.95)
    assert float(near) < 0.1  # other sizes of batches, and bfloat16 steps
    assert torch.allclose(first.credence, second.credence, atol=1e-2)
    plain = cr.credibility(cr.Classifier(net), images[:100], **settings)
    ratio = second.certificate.objective.median() / plain.certificate.objective.median()
    assert float(ratio) == pytest.approx(1.0, abs=0.02)


def test_a_descent_never_waits_for_the_gpu(on_gpu):
    net, images = on_gpu
    x = images[:32].contiguous()
    weights = torch.full((10,), 200.0, device=x.device)
    problem = FitRiskProblem(Inputs(cr.Classifier(net), x), weights)
    DESCENT.run(problem)
    torch.cuda.set_sync_debug_mode("error")
    try:
        DESCENT.run(problem)
    finally:
        torch.cuda.set_sync_debug_mode("default")
