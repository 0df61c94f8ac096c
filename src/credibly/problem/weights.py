"""Where the weights W come from: a number, K numbers, class priors, or the model itself."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Literal

import torch
from torch import Tensor

from credibly import _validation as check
from credibly._validation import as_numbers, real_number, require
from credibly.model.bind import bind
from credibly.model.checks import check_model
from credibly.model.classifier import Classifier
from credibly.model.derivatives import losses_only, squared_pulls, undisturbed
from credibly.model.joined import check_top, keep_top
from credibly.model.memory import in_chunks
from credibly.model.structure import Nested
from credibly.model.variable import Variable
from credibly.types import CPU, Array, finite_rows

BACKWARDS, MOST_EACH, LEAST_EACH = 128, 8, 2
"""Backwards of the automatic gamma: so many are shared out among the inputs, at most eight for each
and at least two."""

FEW_FEATURES, EXACT_CLASSES = 64, 32
"""Up to so many numbers per input a few directions can mislead, and backwards are cheap: there are
as many directions as classes, up to so many."""

SAMPLE = 64  # inputs at most that the automatic gamma is found from
LOOKED_AT = 64  # samples at most, before weights are refused as too small
ROOM = 4  # times the objective must be finite: a solver computes with it
DIGITS = 4  # of the automatic gamma, so that the printed number is the number used


def resolve_weights(
    variable: Variable,
    *,
    gamma: float | Literal["auto"] | None,
    weights: Array | Sequence[float] | None,
    chunk_size: int = SAMPLE,
) -> Tensor:
    """The weights w (K,) in the precision and on the device of what moves."""
    require(
        (gamma is None) != (weights is None),
        "gamma",
        "exactly one of gamma and weights",
        "both" if gamma is not None else "neither",
        "Pass gamma=200.0 (one number), gamma='auto', or weights=<K numbers>.",
    )
    require(
        weights is None or variable.kept_classes is None,
        "weights",
        "gamma, one number for all classes, together with `top`",
        "weights per class",
        "Pass gamma: with `top`, other classes are asked about from sample to sample.",
    )
    losses, x0 = _first_losses(variable), variable.start
    if weights is not None:  # detached: a profile is attached by attached_credibility
        w, name = as_numbers(weights, "weights", x0).detach(), "weights"
    else:
        found = partial(found_gamma, variable, chunk_size=min(chunk_size, SAMPLE))
        number = found() if _is_auto(gamma) else positive_gamma(gamma)
        w, name = losses.new_full(losses.shape, number, dtype=torch.float64).to(x0), "gamma"
    return _checked(w, name, losses, lambda: _some_losses(variable))


def check_gamma(gamma: object, dtype: torch.dtype | None = None) -> None:
    """Refuse a gamma that is neither 'auto' nor a positive number, before there are inputs.

    With `dtype`, the number must also be usable in that precision.
    """
    if not _is_auto(gamma):
        exact = torch.tensor([positive_gamma(gamma)], dtype=torch.float64, device=CPU)
        w = exact.to(dtype or exact.dtype)
        _checked(w, "gamma", torch.ones_like(w))


def same_gamma(one: object, other: object, dtype: torch.dtype | None = None) -> bool:
    """Whether two gammas, numbers or 'auto', are equal in the precision in which they are used."""
    numbers = real_number(one), real_number(other)
    if None in numbers:
        return one == other
    left, right = torch.tensor(numbers, dtype=torch.float64, device=CPU).to(dtype or torch.float64)
    return bool(left == right)


def auto_gamma(
    clf: Classifier | Variable,
    x: Nested = None,
    *,
    kappa: float = 1.0,
    sample: int = SAMPLE,
    chunk_size: int = SAMPLE,
    top: int | None = None,
) -> float:
    """Gamma from the model alone: kappa times the median of tr(A A^T) / K, to four digits.

    A = dl/dx are the gradients of the K losses; where they are many, fixed random sums of them: two
    to eight for each input, up to 32 where inputs are small. With kappa = 1 the weights balance the
    model's own sensitivity, halfway between "nothing moves" and "everything is fitted". No labels
    are needed. Rescaling the inputs by a divides gamma by a^2, so that the profile stays the same.

    Args:
        clf: the classifier.
        x: inputs as in `credibility`; None for a classifier that is bound to its inputs.
        kappa: how risk-averse to be; larger moves inputs less.
        sample: most inputs to use; they are evenly spaced.
        chunk_size: inputs handled at a time.
        top: of the profiles that it is for; see `credibility`.

    Example:
        >>> import torch, credibly as cr
        >>> clf = cr.Classifier(lambda x: x @ torch.tensor([[2.0, -2.0], [1.0, 0.0]]))
        >>> cr.auto_gamma(clf, torch.zeros(5, 2))
        4.25
    """
    with undisturbed(bind(clf, x)) as variable:
        if top is not None:
            check_top(top, variable.loss)
        check_model(variable)
        return found_gamma(variable, kappa=kappa, sample=sample, chunk_size=chunk_size, top=top)


def found_gamma(
    variable: Variable,
    *,
    kappa: float = 1.0,
    sample: int = SAMPLE,
    chunk_size: int = SAMPLE,
    top: int | None = None,
) -> float:
    """`auto_gamma` for a model that was checked before."""
    kappa = check.positive("kappa", kappa)
    for name, count in (("sample", sample), ("chunk_size", chunk_size)):
        check.whole(name, count, remedy="64 is enough.")
    x0 = variable.start
    usable = finite_rows(x0).nonzero().squeeze(1)
    require(
        len(usable) > 0,
        "x",
        "at least one sample without NaN or infinity, to find gamma",
        f"{len(x0)} samples, none of them finite",
        "Clean the inputs, or pass gamma as a number.",
    )
    few = min(sample, len(usable))
    rows = torch.linspace(0, len(usable) - 1, few, dtype=torch.float64, device=x0.device)
    chosen = variable.select(usable[rows.round().long()])
    asked = chosen if top is None else keep_top(chosen, top, chunk_size=chunk_size)
    narrow = x0[0].numel() <= FEW_FEATURES
    directions, shares = _directions(few, class_count(asked), narrow=narrow)

    def energies_of(places: slice) -> Tensor:
        part, asked_of = asked.select(places), directions[places].to(x0)
        squares = squared_pulls(part, part.start, asked_of.unbind(1))
        return torch.stack(squares, dim=1) @ shares.to(x0)

    energies = torch.cat(list(in_chunks(few, chunk_size, energies_of)))
    finite = energies[torch.isfinite(energies)].double()
    median = float(finite.quantile(0.5)) if len(finite) else math.nan
    require(
        median > 0 and math.isfinite(median),
        "gamma",
        "losses that change with the input, to find gamma='auto'",
        f"a median squared gradient of {median}",
        "Pass gamma as a number.",
    )
    return float(f"{kappa * median:.{DIGITS}g}")


def prior_weights(priors: Sequence[float] | Tensor, *, gamma: float) -> Tensor:
    """Weights (K,) for known class frequencies; uniform priors give gamma for all.

    In the Bayesian reading c_k ~ N(0, w_k / 2t): w_k says how far below zero c_k is expected. A
    classifier that knows only the frequencies p has losses -log p_k, so w_k is gamma (log p_k)^2 /
    mean_j (log p_j)^2: a low credibility costs less for a rare class.

    Example: pass the result as `weights` of `credibility`.
    """
    p = as_numbers(priors, "priors", torch.zeros(0, dtype=torch.float64, device=CPU))
    good = p.dim() == 1 and len(p) > 1 and bool(((p > 0) & (p < 1)).all())
    require(
        good and abs(float(p.sum()) - 1) <= 1e-6,
        "priors",
        "K >= 2 frequencies strictly between 0 and 1 that sum to one",
        f"{p.tolist()}" + (f", a sum of {float(p.sum()):.6g}" if good else ""),
        "Divide the counts of the classes by their total; give unseen ones a small positive share.",
    )
    surprise = p.log().square()
    return positive_gamma(gamma) * surprise / surprise.mean()


def class_count(variable: Variable) -> int:
    """The number of classes K, by a forward of one sample."""
    return len(_first_losses(variable))


def positive_gamma(value: object, name: str = "gamma") -> float:
    """A positive finite number; for a word that is nearly right the error says what to write."""
    number = real_number(value)
    good = number is not None and math.isfinite(number) and number > 0
    expected = "a positive finite number" + (" or 'auto'" if name == "gamma" else "")
    require(good, name, expected, repr(value), _gamma_remedy(value, name))
    return number or 0.0


def _gamma_remedy(value: object, name: str) -> str:
    word = value.strip() if isinstance(value, str) else ""
    if name == "gamma" and word.lower() == "auto":
        return "Write it in lower case: gamma='auto'."
    try:
        float(word)
    except ValueError:
        return (
            "It is the cost of moving the input; 'auto' finds one for gamma, and `weights` takes "
            "one number per class."
        )
    return f"Write it without quotes: {'gamma=' if name == 'gamma' else ''}{word}."


def _is_auto(gamma: object) -> bool:
    return isinstance(gamma, str) and gamma == "auto"


def _directions(inputs: int, classes: int, *, narrow: bool) -> tuple[Tensor, Tensor]:
    """Directions (n, m, K) in the losses, and shares (m,): tr(A A^T) / K = sum share |A^T d|^2.

    With m = K the sum is exact. Else the first direction is that of all losses together, along
    which those of a network change most; the others are orthogonal to it and to each other, and
    drawn for each input by itself with a fixed seed. On image networks of ten classes two
    directions tell the median of 64 inputs as well as all ten do (docs/explanation/speed.md). The
    fewer dimensions A has, the more one random direction misleads, so `narrow` inputs get more.
    """
    most = EXACT_CLASSES if narrow else max(LEAST_EACH, min(MOST_EACH, BACKWARDS // inputs))
    each = min(classes, most)
    if each == classes:
        whole = torch.eye(classes, dtype=torch.float64, device=CPU)
        return whole.expand(inputs, -1, -1), whole.new_full((classes,), 1 / classes)
    generator = torch.Generator(CPU).manual_seed(0)
    drawn = torch.randn(inputs, classes, each, generator=generator, dtype=torch.float64, device=CPU)
    drawn[:, :, 0] = 1.0
    shares = drawn.new_full((each,), (classes - 1) / (each - 1) / classes)
    shares[0] = 1 / classes
    return torch.linalg.qr(drawn).Q.mT, shares


def _first_losses(variable: Variable) -> Tensor:
    """Losses (K,) of the first finite sample, or at zeros if there is none."""
    x = variable.start
    finite = finite_rows(x).nonzero().squeeze(1)
    first = torch.cat([finite, finite.new_zeros(1)])[:1]
    return losses_only(variable.select(first), x[first].nan_to_num(0.0, 0.0, 0.0))[0]


def _some_losses(variable: Variable) -> Iterator[Tensor]:
    """Losses (K,) of some finite samples, evenly spaced, without those on which the model fails."""
    finite = finite_rows(variable.start).nonzero().squeeze(1)
    for row in torch.split(finite[:: max(1, len(finite) // LOOKED_AT)], 1):
        with suppress(Exception):  # its status will tell
            yield losses_only(variable.select(row), variable.start[row])[0]


def _checked(
    w: Tensor, name: str, losses: Tensor, others: Callable[[], Iterable[Tensor]] = tuple
) -> Tensor:
    """The weights, unless they are not K positive numbers or make the objective infinite.

    One sample is enough to accept them; if its objective is infinite, `others` are looked at.
    """
    require(
        w.shape == losses.shape and bool((torch.isfinite(w) & (w > 0)).all()),
        name,
        f"positive weights that {w.dtype} can hold, one for each of {len(losses)} classes",
        f"{sorted(set(w.tolist()))}" if w.shape == losses.shape else f"shape {tuple(w.shape)}",
        "A larger weight makes the loss of a class matter less. If the numbers are right, rescale "
        "the inputs or use float64; for equal weights pass gamma.",
    )
    require(
        not _overflows(losses, w) or any(not _overflows(other, w) for other in others()),
        name,
        f"numbers by which losses can be divided in {w.dtype}",
        f"{float(w.min()):.4g}, too small: loss^2 / {name} is infinite in this precision",
        "Pass a larger one, rescale the inputs (gamma has the unit of (loss / input)^2), or use "
        "float64.",
    )
    return w


def _overflows(losses: Tensor, w: Tensor) -> bool:
    """Whether dividing by the weights makes the objective of a sample infinite."""
    squares = losses.square()  # if they are infinite themselves, the weights are not to blame
    most = (squares / w).sum() * ROOM
    return bool(squares.isfinite().all()) and not bool(most.isfinite())
