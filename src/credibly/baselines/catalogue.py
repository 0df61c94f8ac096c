"""All baselines by name, for studies."""

from __future__ import annotations

from collections.abc import Mapping

from credibly.baselines import feature_baselines as by_features
from credibly.baselines import input_baselines as by_input
from credibly.baselines import logit_baselines as by_logits
from credibly.baselines import ordinary_baselines as by_ordinary
from credibly.baselines.base import Baseline
from credibly.baselines.mode_baselines import NearestMode
from credibly.errors import ModelError
from credibly.model.classifier import Classifier
from credibly.model.structure import Nested
from credibly.model.variable import Variable


def all_baselines(
    *,
    gamma: float,
    temperature: float | None = None,
    eps: float = 0.0014,
    sigma: float = 0.1,
    votes: int = 100,
    dropout: bool = False,
    mode_step: float | None = None,
) -> dict[str, Baseline]:
    """Every baseline by name. Choose the settings on held-out data, never on test data.

    Args:
        gamma: that of the profile they are compared with, in the space of the inputs.
        temperature: for temperature scaling, from `TemperatureScaled.fit`; None leaves it out.
        eps: size of the input steps of ODIN and DOCTOR, in the units of the inputs.
        sigma: standard deviation of the noise votes, in the same units.
        votes: noise votes per sample; three cost a pass.
        dropout: whether the network has dropout layers, for Monte-Carlo dropout.
        mode_step: first step of the nearest mode, in the same units, for networks with a last
            hidden layer; None leaves it out.

    Example:
        >>> import torch, credibly as cr
        >>> clf = cr.Classifier(torch.nn.Linear(4, 3))
        >>> baselines = cr.baselines.all_baselines(gamma=10.0)
        >>> baselines["max softmax"](clf, torch.zeros(2, 4)).shape
        torch.Size([2])
    """
    found: dict[str, Baseline] = {
        "max softmax": by_logits.MaxSoftmax(),
        "logit margin": by_logits.LogitMargin(),
        "negative entropy": by_logits.NegativeEntropy(),
        "max logit": by_logits.MaxLogit(),
        "max logit p-norm": by_logits.MaxLogitPNorm(),
        "energy": by_logits.Energy(),
        "GEN": by_logits.GEN(),
        "DOCTOR": by_logits.Doctor(),
        "DOCTOR with step": by_input.DoctorWithStep(eps=eps),
        "DOCTOR beta with step": by_input.DoctorWithStep(
            doctor=by_logits.Doctor(variant="beta"), eps=eps
        ),
        "ODIN": by_input.ODIN(eps=eps),
        "credence ratio": by_logits.CredenceRatio(),
        "one gradient step": by_input.OneGradientStep(gamma=gamma),
        "one Gauss-Newton step": by_input.OneGaussNewtonStep(gamma=gamma),
        "noise vote": by_input.NoiseVote(sigma=sigma, votes=votes),
    }
    if temperature is not None:
        found["temperature scaling"] = by_logits.TemperatureScaled(temperature=temperature)
    if dropout:
        found["Monte-Carlo dropout"] = by_input.MonteCarloDropout()
    if mode_step is not None:
        found["nearest mode"] = NearestMode(step=mode_step)
    return found


def fitted_baselines(clf: Classifier | Variable, ordinary: Nested) -> Mapping[str, Baseline]:
    """Baselines of the last hidden layer by name, those that need it fitted to ordinary inputs.

    Those that the model does not allow are left out: all of them without a linear layer, and those
    of the last layer's weights where its outputs are not the logits.

    Args:
        clf: the classifier; it is left unchanged.
        ordinary: a few hundred inputs like those to come; labels are not needed.

    Example:
        >>> import torch, credibly as cr
        >>> clf = cr.Classifier(torch.nn.Linear(4, 3))
        >>> sorted(cr.baselines.fitted_baselines(clf, torch.randn(50, 4)))[:3]
        ['ASH', 'Mahalanobis', 'NCI']
    """
    try:
        return baselines_of(by_features.hidden_of(clf, ordinary))
    except ModelError:
        return {}


def baselines_of(hidden: by_features.Hidden) -> dict[str, by_features.FeatureBaseline]:
    """The same from what the last linear layer takes and gives for ordinary inputs."""
    found: dict[str, by_features.FeatureBaseline] = {
        "feature norm": by_features.FeatureNorm(),
        "Mahalanobis": by_ordinary.Mahalanobis.from_hidden(hidden),
        "nearest neighbours": by_ordinary.NearestNeighbours.from_hidden(hidden),
    }
    if hidden.weight is not None:
        found |= {
            "ASH": by_features.ASH(),
            "SCALE": by_features.SCALE(),
            "ReAct": by_ordinary.ReAct.from_hidden(hidden),
            "fDBD": by_ordinary.FDBD.from_hidden(hidden),
            "NCI": by_ordinary.NCI.from_hidden(hidden),
            "last-layer Laplace": by_ordinary.LastLayerLaplace.from_hidden(hidden),
        }
    return found
