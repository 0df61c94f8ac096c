"""Where the weights W come from: a number, K numbers, class priors, or the model itself."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from credibly.errors import InvalidArgumentError
from credibly.model.checks import check_model
from credibly.model.classifier import Classifier
from credibly.model.derivatives import loss_jacobian, losses_only, sketched_trace, undisturbed
from credibly.model.inputs import enter, finite_rows
from credibly.model.structure import Nested
from credibly.types import CPU, Array, from_numpy, real_number, whole_number

EXACT_CLASSES = 32
"""Up to so many classes the automatic gamma uses the whole Jacobian, above it a sketch."""

DIGITS = 4
"""Of the automatic gamma, so that what is printed is the number itself and can be typed again."""

PROBES = 16
"""Random-sign probes of the sketch; their seed is fixed, so the number is repeatable."""


def resolve_weights(
    classifier: Classifier,
    x0: Tensor,
    *,
    gamma: float | Literal["auto"] | None,
    weights: Array | Sequence[float] | None,
) -> Tensor:
    """Give w (K,) in the precision and on the device of `x0`; exactly one source is allowed."""
    if (gamma is None) == (weights is None):
        raise InvalidArgumentError(
            "gamma",
            expected="exactly one of gamma and weights",
            got="both" if gamma is not None else "neither",
            remedy="Pass gamma=200.0 (one number), gamma='auto', or weights=<K numbers>.",
        )
    losses = _first_losses(classifier, x0)
    if weights is not None:
        w = _vector(weights, len(losses), x0)
    else:
        if isinstance(gamma, str) and gamma == "auto":
            gamma = _auto(classifier, x0)
        w = _in_precision([positive(gamma, "gamma")] * len(losses), "gamma", x0)
    _check_objective(losses, w, "gamma" if weights is None else "weights")
    return w


def check_gamma(gamma: object, dtype: torch.dtype | None = None) -> None:
    """A gamma is 'auto' or a positive number, which can be said before there are inputs.

    Where the precision of the inputs is known, it must be able to hold the number.
    """
    if not (isinstance(gamma, str) and gamma == "auto"):
        number = positive(gamma, "gamma")
        if dtype is not None:
            _in_precision([number], "gamma", torch.zeros(0, dtype=dtype, device=CPU))


def same_gamma(one: object, other: object, dtype: torch.dtype | None = None) -> bool:
    """Whether two gammas, numbers or 'auto', are one in the precision in which they are used."""
    numbers = real_number(one), real_number(other)
    if None in numbers:
        return one == other
    exact = torch.tensor(numbers, dtype=torch.float64, device=CPU)
    left, right = exact.to(dtype or torch.float64).tolist()
    return bool(left == right)


def auto_gamma(
    clf: Classifier, x: Nested = None, *, kappa: float = 1.0, sample: int = 64, chunk_size: int = 64
) -> float:
    """Gamma from the model alone: kappa times the median of tr(A A^T) / K, to four digits.

    A = dl/dx are the gradients of the K losses. With kappa = 1 the weights balance the model's own
    sensitivity, halfway between "nothing moves" and "everything is fitted". No labels are needed,
    and rescaling the input space by a divides gamma by a^2, so that the profile stays the same (up
    to the rounding of gamma, which lets it be typed again).

    Args:
        clf: the classifier.
        x: inputs as in `credibility`; of more than `sample`, evenly spaced ones are used. Leave it
            out for a classifier that is bound to its inputs.
        kappa: how risk-averse to be; larger moves inputs less.
        sample: most inputs looked at.
        chunk_size: inputs handled at a time.
    """
    clf, x0 = enter(clf, x)
    with undisturbed(x0) as x0:
        check_model(clf, x0)
        return _auto(clf, x0, kappa=kappa, sample=sample, chunk_size=chunk_size)


def _auto(
    clf: Classifier, x0: Tensor, *, kappa: float = 1.0, sample: int = 64, chunk_size: int = 64
) -> float:
    for name, count in (("sample", sample), ("chunk_size", chunk_size)):
        if whole_number(count) is None or count < 1:
            raise InvalidArgumentError(
                name, expected="a whole number >= 1", got=repr(count), remedy="64 is plenty."
            )
    usable = finite_rows(x0).nonzero().squeeze(1)
    if len(usable) == 0:
        raise InvalidArgumentError(
            "x",
            expected="at least one sample without NaN or infinity to set gamma by",
            got=f"{len(x0)} samples, none of them finite",
            remedy="Clean the inputs, or pass gamma as a number.",
        )
    few = min(sample, len(usable))
    rows = torch.linspace(0, len(usable) - 1, few, dtype=torch.float64, device=x0.device)
    chosen = usable[rows.round().long()]
    energies = torch.cat(
        [_mean_energy(clf.select(part), x0[part]) for part in torch.split(chosen, chunk_size)]
    )
    finite = energies[torch.isfinite(energies)].double()
    median = float(finite.quantile(0.5)) if len(finite) else math.nan
    if not (median > 0 and math.isfinite(median)):
        raise InvalidArgumentError(
            "gamma",
            expected="losses that change with the input, to set gamma='auto' by",
            got=f"a median squared gradient of {median}",
            remedy="Pass gamma as a number.",
        )
    return float(f"{positive(kappa, 'kappa') * median:.{DIGITS}g}")


def prior_weights(priors: Sequence[float] | Tensor, *, gamma: float) -> Tensor:
    """Weights (K,) that know how frequent the classes are; uniform priors give gamma for all.

    The prior of the Bayesian reading is c_k ~ N(0, w_k / 2t): w_k is how far below zero c_k is
    expected. A classifier that knows only the frequencies p has losses -log p_k, so
    w_k = gamma (log p_k)^2 / mean_j (log p_j)^2: rare classes may be incredible at less cost.
    """
    p = as_numbers(priors, "priors", torch.zeros(0, dtype=torch.float64, device=CPU))
    if p.dim() != 1 or len(p) < 2 or not bool(((p > 0) & (p < 1)).all()):
        raise InvalidArgumentError(
            "priors",
            expected="K >= 2 frequencies strictly between 0 and 1",
            got=f"{p.tolist()}",
            remedy="Count the classes; give unseen ones a small positive share.",
        )
    if abs(float(p.sum()) - 1) > 1e-6:
        raise InvalidArgumentError(
            "priors",
            expected="frequencies that sum to one",
            got=f"a sum of {float(p.sum()):.6g}",
            remedy="Divide the counts by their total.",
        )
    surprise = p.log().square()
    return positive(gamma, "gamma") * surprise / surprise.mean()


def _mean_energy(classifier: Classifier, x: Tensor) -> Tensor:
    """tr(A A^T) / K (n,)."""
    count = class_count(classifier, x)
    if count <= EXACT_CLASSES:
        return loss_jacobian(classifier, x)[1].square().sum(dim=(1, 2)) / count
    generator = torch.Generator(CPU).manual_seed(0)
    signs = torch.randint(0, 2, (PROBES, count), generator=generator, device=CPU) * 2 - 1
    return sketched_trace(classifier, x, signs.to(x)) / count


def class_count(classifier: Classifier, x: Tensor) -> int:
    """The number of classes K, by a forward of one sample."""
    return len(_first_losses(classifier, x))


def _first_losses(classifier: Classifier, x: Tensor) -> Tensor:
    """Losses (K,) of the first sample without NaN or infinity; of zeros where there is none."""
    finite = finite_rows(x).nonzero().squeeze(1)
    first = torch.cat([finite, finite.new_zeros(1)])[:1]
    probe = x[first].nan_to_num(0.0, 0.0, 0.0)
    return losses_only(classifier.select(first), probe)[0]


def _check_objective(losses: Tensor, w: Tensor, name: str) -> None:
    """Refuse weights so small that the objective of a sample is infinite, whatever the model."""
    squares = losses.square()  # infinite by themselves they speak of the sample, not of the weights
    if bool(squares.isfinite().all()) and not bool((squares / w).sum().isfinite()):
        raise _too_small(float(w.min()), name, w.dtype)


def _too_small(weight: float, name: str, dtype: torch.dtype) -> InvalidArgumentError:
    return InvalidArgumentError(
        name,
        expected=f"numbers by which losses can be divided in {dtype}",
        got=f"{weight:.4g}, too small: loss^2 / {name} is infinite in this precision",
        remedy="Pass a larger one, rescale the inputs (gamma has the unit of (loss / input)^2), or "
        "use float64.",
    )


def positive(value: object, name: str) -> float:
    """A positive finite number as a float, or an error that knows usual slips."""
    number = real_number(value)
    if number is None or not math.isfinite(number) or number <= 0:
        raise InvalidArgumentError(
            name,
            expected="a positive finite number" + (" or 'auto'" if name == "gamma" else ""),
            got=repr(value),
            remedy=_spelling(value, name)
            or "It weighs loss against movement of the input; 'auto' finds one for gamma, and "
            "`weights` takes one number a class.",
        )
    return number


def _spelling(value: object, name: str) -> str | None:
    """What to write instead of a word that was nearly right."""
    if not isinstance(value, str):
        return None
    if name == "gamma" and value.strip().lower() == "auto":
        return "Write it in lower case: gamma='auto'."
    try:
        float(value)
    except ValueError:
        return None
    return f"Write it without quotes: {'gamma=' if name == 'gamma' else ''}{value.strip()}."


def as_numbers(values: object, name: str, like: Tensor) -> Tensor:
    """A tensor in the precision and on the device of `like`, or a clear error."""
    try:
        given = from_numpy(values) if isinstance(values, np.ndarray) else values
        return torch.as_tensor(given, dtype=like.dtype, device=like.device)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InvalidArgumentError(
            name, expected="numbers", got=repr(values)[:80], remedy="Pass a list or a tensor."
        ) from error


def _in_precision(values: list[float], name: str, like: Tensor) -> Tensor:
    """The values as they are in the precision of `like`, refused where it cannot hold them."""
    w = torch.tensor(values, dtype=torch.float64, device=like.device).to(like)
    if not bool((torch.isfinite(w) & (w > 0)).all()):
        raise InvalidArgumentError(
            name,
            expected=f"numbers that {like.dtype} can hold",
            got=f"{values[0]:.4g}",
            remedy="Rescale the inputs, or use float64.",
        )
    if not bool(w.reciprocal().isfinite().all()):
        raise _too_small(values[0], name, like.dtype)
    return w


def _vector(weights: Array | Sequence[float], count: int, x0: Tensor) -> Tensor:
    w = as_numbers(weights, "weights", x0).detach()  # a profile is attached by attached_credibility
    if w.shape != (count,):
        raise InvalidArgumentError(
            "weights",
            expected=f"{count} numbers, one a class",
            got=f"shape {tuple(w.shape)}",
            remedy="For the same weight everywhere pass gamma instead.",
        )
    if not bool((torch.isfinite(w) & (w > 0)).all()):
        raise InvalidArgumentError(
            "weights",
            expected="positive finite numbers",
            got=f"{w.tolist()}",
            remedy="A larger weight makes a class's loss matter less; it cannot be zero.",
        )
    return w
