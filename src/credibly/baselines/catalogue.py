"""All baselines under one name, and by name for studies."""

from __future__ import annotations

from credibly.baselines.base import Baseline, LogitBaseline
from credibly.baselines.input_baselines import (
    ODIN,
    DoctorWithStep,
    MonteCarloDropout,
    NoiseVote,
    OneGaussNewtonStep,
    OneGradientStep,
    TwoSided,
)
from credibly.baselines.logit_baselines import (
    GEN,
    CredenceRatio,
    Doctor,
    Energy,
    LogitMargin,
    MaxLogit,
    MaxLogitPNorm,
    MaxSoftmax,
    NegativeEntropy,
    TemperatureScaled,
)

__all__ = [
    "GEN",
    "ODIN",
    "Baseline",
    "Doctor",
    "DoctorWithStep",
    "Energy",
    "CredenceRatio",
    "LogitBaseline",
    "LogitMargin",
    "MaxLogit",
    "MaxLogitPNorm",
    "MaxSoftmax",
    "MonteCarloDropout",
    "NegativeEntropy",
    "NoiseVote",
    "OneGaussNewtonStep",
    "OneGradientStep",
    "TemperatureScaled",
    "TwoSided",
    "all_baselines",
]


def all_baselines(
    *,
    gamma: float,
    temperature: float | None = None,
    eps: float = 0.0014,
    sigma: float = 0.1,
    votes: int = 100,
    dropout: bool = False,
) -> dict[str, Baseline]:
    """Every baseline by name. Choose the settings on held-out data, never on test data.

    Args:
        gamma: of the profile they are compared with, in the space of the inputs.
        temperature: of temperature scaling, from `TemperatureScaled.fit`; None leaves it out.
        eps: of the input steps of ODIN and DOCTOR, in the units of the inputs.
        sigma: of the noise votes, likewise.
        votes: noise votes a sample; three cost a pass.
        dropout: whether the network has dropout layers, for Monte-Carlo dropout.
    """
    found: dict[str, Baseline] = {
        "max softmax": MaxSoftmax(),
        "logit margin": LogitMargin(),
        "negative entropy": NegativeEntropy(),
        "max logit": MaxLogit(),
        "max logit p-norm": MaxLogitPNorm(),
        "energy": Energy(),
        "GEN": GEN(),
        "DOCTOR": Doctor(),
        "DOCTOR with step": DoctorWithStep(eps=eps),
        "DOCTOR beta with step": DoctorWithStep(doctor=Doctor(variant="beta"), eps=eps),
        "ODIN": ODIN(eps=eps),
        "credence ratio": CredenceRatio(),
        "one gradient step": OneGradientStep(gamma=gamma),
        "one Gauss-Newton step": OneGaussNewtonStep(gamma=gamma),
        "noise vote": NoiseVote(sigma=sigma, votes=votes),
    }
    if temperature is not None:
        found["temperature scaling"] = TemperatureScaled(temperature=temperature)
    if dropout:
        found["Monte-Carlo dropout"] = MonteCarloDropout()
    return found
