"""What must hold of a profile, whatever the architecture, asked by other means."""

import torch

import credibly as cr
from credibly.model.derivatives import losses_and_pull, losses_only


def check_gradient(bound, *, directions=6, step=1e-6):
    """The pull of the squared losses against central differences along random directions."""
    x = bound.start
    pull = losses_and_pull(bound, x, lambda losses: 2 * losses).pull
    generator = torch.Generator().manual_seed(0)
    for _ in range(directions):
        v = torch.randn(x.shape, generator=generator, dtype=torch.float64)
        ahead, behind = (losses_only(bound, x + s * v).square().sum(1) for s in (step, -step))
        slope = (pull * v).flatten(1).sum(1)
        assert torch.allclose((ahead - behind) / (2 * step), slope, rtol=1e-4, atol=1e-6)
    return pull


def check_profile(clf, x, *, smooth=True, gamma="auto"):
    """Solve, and check status, decrease, fixed point and stationarity; gives the profile."""
    bound = cr.bind(clf, x)
    check_gradient(bound)
    profile = cr.credibility(clf, x, gamma=gamma)
    assert bool(profile.usable.all()), profile.status
    assert bool((profile.risk > 0).all())
    before, after = (
        v.square().sum(1) / profile.gamma for v in (profile.credence, profile.credibility)
    )
    assert bool((profile.risk <= before - after).all())
    certificate = cr.certify(bound, profile.x0, profile.perturbed, gamma=profile.gamma, probes=8)
    assert bool((certificate.fixed_point <= 1e-9).all())
    assert torch.allclose(certificate.objective, profile.risk + after)
    assert bool((certificate.tradeoff <= 0.05).all()), certificate.tradeoff
    converged = profile.codes == cr.Status.CONVERGED
    assert bool((profile.certificate.relative_stationarity[converged] < 1e-6).all())
    if smooth and not bool(converged.all()):  # a longer search must end where the gradient vanishes
        longer = cr.solvers.LBFGS(steps=3000, patience=None, tolerance=1e-7)
        profile = cr.credibility(clf, x, gamma=profile.gamma, solver=longer)
        assert float(profile.certificate.relative_stationarity.max()) < 1e-3
    return profile
