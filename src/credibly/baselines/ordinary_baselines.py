"""Baselines that compare the last hidden layer with that of ordinary inputs.

Each is made by `fit(clf, ordinary)`. The inputs are like those to come; labels are not needed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from credibly._validation import labels as check_labels
from credibly._validation import positive, real_number, require, share, whole
from credibly.baselines.feature_baselines import FeatureBaseline, Hidden, hidden_of
from credibly.baselines.logit_baselines import Energy
from credibly.model.classifier import Classifier
from credibly.model.logits import log_odds
from credibly.model.structure import Nested
from credibly.model.variable import Variable
from credibly.types import Labels, norm

TINY = 1e-12


@dataclass(frozen=True, kw_only=True)
class ReAct(FeatureBaseline):
    """Energy after features are cut at a threshold (Sun, Guo and Li 2021).

    Attributes:
        threshold: features beyond it are set to it.

    Example:
        >>> import torch, credibly as cr
        >>> clf, ordinary = cr.Classifier(torch.nn.Linear(4, 3)), torch.randn(50, 4)
        >>> cr.baselines.ReAct.fit(clf, ordinary)(clf, torch.zeros(2, 4)).shape
        torch.Size([2])
    """

    threshold: float

    @classmethod
    def fit(cls, clf: Classifier | Variable, ordinary: Nested, *, percentile: float = 0.9) -> ReAct:
        """The threshold above which the share 1 - `percentile` of ordinary features lies."""
        return cls.from_hidden(hidden_of(clf, ordinary), percentile=percentile)

    @classmethod
    def from_hidden(cls, hidden: Hidden, *, percentile: float = 0.9) -> ReAct:
        """See `fit`."""
        share("percentile", percentile)
        values = hidden.features.flatten().sort().values
        place = percentile * (len(values) - 1)
        low, high = values[math.floor(place)], values[math.ceil(place)]
        return cls(threshold=float(low + (place - math.floor(place)) * (high - low)))

    def of_hidden(self, hidden: Hidden) -> Tensor:
        return Energy().of_logits(hidden.head(hidden.features.clamp(max=self.threshold)))


@dataclass(frozen=True, kw_only=True, eq=False)
class FDBD(FeatureBaseline):
    """Mean distance of the features to the decision boundaries (Liu and Qin 2024).

    Divided by their distance from the mean of ordinary features. Example: see `ReAct`.

    Attributes:
        mean: of ordinary features (d,).
    """

    mean: Tensor

    @classmethod
    def fit(cls, clf: Classifier | Variable, ordinary: Nested) -> FDBD:
        """From ordinary inputs."""
        return cls.from_hidden(hidden_of(clf, ordinary))

    @classmethod
    def from_hidden(cls, hidden: Hidden) -> FDBD:
        """See `fit`."""
        return cls(mean=hidden.features.mean(0))

    def of_hidden(self, hidden: Hidden) -> Tensor:
        logits, weights = hidden.head(hidden.features), hidden.class_weights
        best, index = logits.max(1, keepdim=True)
        apart = torch.cdist(weights, weights, compute_mode="donot_use_mm_for_euclid_dist")
        apart.fill_diagonal_(1.0)  # of a class to itself: no distance counts there
        total = ((best - logits) / apart[index.squeeze(1)]).sum(1)
        far = norm(hidden.features - self.mean.to(logits)).clamp(min=TINY)
        return total / ((logits.shape[1] - 1) * far)


@dataclass(frozen=True, kw_only=True, eq=False)
class NCI(FeatureBaseline):
    """How well centred features align with the weights of their class (Liu and Qin 2025).

    <w, h - mean> / |h - mean| + alpha |h|_1 for the weights w of the predicted class.
    Example: see `ReAct`.

    Attributes:
        mean: of ordinary features (d,).
        alpha: the share of the features' size.
    """

    mean: Tensor
    alpha: float = 0.001

    @classmethod
    def fit(cls, clf: Classifier | Variable, ordinary: Nested, *, alpha: float = 0.001) -> NCI:
        """From ordinary inputs; the authors choose `alpha` on validation outliers."""
        return cls.from_hidden(hidden_of(clf, ordinary), alpha=alpha)

    @classmethod
    def from_hidden(cls, hidden: Hidden, *, alpha: float = 0.001) -> NCI:
        """See `fit`."""
        number = real_number(alpha)
        good = number is not None and 0 <= number < math.inf
        require(good, "alpha", "a number that is not negative", repr(alpha), "0 leaves it out.")
        return cls(mean=hidden.features.mean(0), alpha=float(alpha))

    def of_hidden(self, hidden: Hidden) -> Tensor:
        weights = hidden.class_weights[hidden.head(hidden.features).argmax(1)]
        centred = hidden.features - self.mean.to(weights)
        aligned = (centred * weights).sum(1) / norm(centred).clamp(min=TINY)
        return aligned + self.alpha * hidden.features.abs().sum(1)


@dataclass(frozen=True, kw_only=True, eq=False)
class Mahalanobis(FeatureBaseline):
    """Minus the distance to the nearest class by a common covariance (Lee et al. 2018).

    The covariance is shrunk as Ledoit and Wolf (2004) do: a few hundred inputs do not tell all of
    it. Example: see `ReAct`.

    Attributes:
        means: of the features of each class that occurs (K', d).
        root: that makes their residuals uncorrelated (d, d).
    """

    means: Tensor
    root: Tensor

    @classmethod
    def fit(
        cls, clf: Classifier | Variable, ordinary: Nested, labels: Labels | None = None
    ) -> Mahalanobis:
        """From ordinary inputs; without labels the classes are those the model predicts."""
        return cls.from_hidden(hidden_of(clf, ordinary), labels)

    @classmethod
    def from_hidden(cls, hidden: Hidden, labels: Labels | None = None) -> Mahalanobis:
        """See `fit`."""
        h, classes = hidden.features, hidden.logits.argmax(1)
        if labels is not None:
            classes = check_labels(labels, *hidden.logits.shape).to(h.device)
        present, place = torch.unique(classes, return_inverse=True)
        member = functional.one_hot(place, len(present)).to(h)
        means = (member.T @ h) / member.sum(0).unsqueeze(1)
        values, vectors = torch.linalg.eigh(shrunk_covariance(h - means[place]))
        return cls(means=means, root=vectors / values.clamp(min=TINY).sqrt())

    def of_hidden(self, hidden: Hidden) -> Tensor:
        root = self.root.to(hidden.features)
        points, means = hidden.features @ root, self.means.to(root) @ root
        far = torch.cdist(points, means, compute_mode="donot_use_mm_for_euclid_dist")
        return -far.amin(1)


def shrunk_covariance(residuals: Tensor) -> Tensor:
    """The covariance (d, d) of rows (n, d) around zero, shrunk towards a multiple of the unit."""
    count, size = residuals.shape
    plain = residuals.T @ residuals / count
    scale = plain.diagonal().mean()
    unit = scale * torch.eye(size).to(plain)
    away = (plain - unit).square().sum()
    squares = residuals.square()
    spread = ((squares.T @ squares) / count - plain.square()).sum() / count
    weight = float((spread / away).clamp(0, 1)) if float(away) > 0 else 1.0
    return (1 - weight) * plain + weight * unit


@dataclass(frozen=True, kw_only=True, eq=False)
class NearestNeighbours(FeatureBaseline):
    """Minus the distance to the k-th nearest ordinary input (Sun et al. 2022).

    Between features of length one. Example: see `ReAct`.

    Attributes:
        points: ordinary features of length one (n, d).
        k: which neighbour is measured.
    """

    points: Tensor
    k: int = 5

    @classmethod
    def fit(cls, clf: Classifier | Variable, ordinary: Nested, *, k: int = 5) -> NearestNeighbours:
        """From ordinary inputs."""
        return cls.from_hidden(hidden_of(clf, ordinary), k=k)

    @classmethod
    def from_hidden(cls, hidden: Hidden, *, k: int = 5) -> NearestNeighbours:
        """See `fit`."""
        points = functional.normalize(hidden.features, dim=1)
        whole("k", k, remedy="5 suits a few hundred inputs.")
        fits = k <= len(points)
        require(fits, "k", f"at most {len(points)}, the ordinary inputs", f"{k}", "Pass more.")
        return cls(points=points, k=int(k))

    def of_hidden(self, hidden: Hidden) -> Tensor:
        points = functional.normalize(hidden.features, dim=1)
        exact = "donot_use_mm_for_euclid_dist"
        far = torch.cdist(points, self.points.to(points), compute_mode=exact)
        return -far.kthvalue(self.k, dim=1).values


@dataclass(frozen=True, kw_only=True, eq=False)
class LastLayerLaplace(FeatureBaseline):
    """Softmax under a Gaussian posterior of the last layer's weights (Kristiadi et al. 2020).

    The curvature is the Kronecker-factored Gauss-Newton matrix of ordinary inputs, which needs no
    labels; probabilities are those of the probit approximation, as log odds of the largest.
    Example: see `ReAct`.

    Attributes:
        inputs: eigenvectors (d + 1, d + 1) and eigenvalues (d + 1,) of the features' second moment.
        outputs: the same of the curvature by the logits (K, K), (K,).
        precision: of the prior.
    """

    inputs: tuple[Tensor, Tensor]
    outputs: tuple[Tensor, Tensor]
    precision: float = 1.0

    @classmethod
    def fit(
        cls,
        clf: Classifier | Variable,
        ordinary: Nested,
        *,
        precision: float = 1.0,
        trained_on: int | None = None,
    ) -> LastLayerLaplace:
        """From ordinary inputs, which stand for `trained_on` training inputs (by default, n)."""
        hidden = hidden_of(clf, ordinary)
        return cls.from_hidden(hidden, precision=precision, trained_on=trained_on)

    @classmethod
    def from_hidden(
        cls, hidden: Hidden, *, precision: float = 1.0, trained_on: int | None = None
    ) -> LastLayerLaplace:
        """See `fit`."""
        positive("precision", precision, "1 is usual; the weight decay times n if it is known.")
        h, p = _with_bias(hidden.features), hidden.head(hidden.features).softmax(1)
        count = len(h) if trained_on is None else whole("trained_on", trained_on)
        moment = h.T @ h / len(h)
        curvature = count * (torch.diag(p.mean(0)) - p.T @ p / len(p))
        inputs, outputs = (torch.linalg.eigh(part) for part in (moment, curvature))
        return cls(
            inputs=(inputs.eigenvectors, inputs.eigenvalues.clamp(min=0)),
            outputs=(outputs.eigenvectors, outputs.eigenvalues.clamp(min=0)),
            precision=float(precision),
        )

    def of_hidden(self, hidden: Hidden) -> Tensor:
        logits = hidden.head(hidden.features)
        return log_odds(logits / (1 + math.pi / 8 * self.variances(hidden.features)).sqrt())

    def variances(self, features: Tensor) -> Tensor:
        """Of each logit (n, K)."""
        (u, a), (v, b) = (
            tuple(t.to(features) for t in part) for part in (self.inputs, self.outputs)
        )
        squares = (_with_bias(features) @ u).square()
        along = squares @ (1 / (torch.outer(a, b) + self.precision))
        return along @ v.square().T


def _with_bias(features: Tensor) -> Tensor:
    return functional.pad(features, (0, 1), value=1.0)
