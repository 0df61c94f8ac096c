"""`accelerate`: the same classifier, faster; what would decide otherwise is left out."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass

import torch
from torch import Tensor

from credibly.decide.examine import problem_of
from credibly.decide.scores import gain, shift
from credibly.errors import InvalidArgumentError
from credibly.model.batches import check_batch, check_classifier
from credibly.model.classifier import Classifier
from credibly.model.derivatives import undisturbed
from credibly.model.fast import faster_copy, noted, without_draft
from credibly.model.variable import Inputs
from credibly.problem.weights import found_gamma
from credibly.profile.credibility import settings_of
from credibly.profile.decision import decision_profile
from credibly.profile.profile import Profile
from credibly.solve.fixed import FixedDescent
from credibly.types import finite_rows

DECIDED = {"cpu": 32, "cuda": 64}
"""Inputs at most that are decided both ways; each takes some 30 passes."""

MOVED, CHANGED = 0.1, 0.05
"""A rank that moves by more than a tenth of the inputs, and by more than one place, is another
decision. A draft may change so many more of them than another order of the inputs does."""


def accelerate(
    clf: Classifier, x: Tensor, *, draft: bool = True, compiled: bool = False
) -> Classifier:
    """The same classifier on a faster copy of its network; yours stays as it is.

    Batch norms are folded into the layers before them, parameters are frozen, and convolutions get
    the channels-last layout: on a GPU, and on a CPU where it is faster when it is tried. With a
    `draft`, the steps of decision-grade profiles (`effort='decide'`, `Judge`) run in bfloat16, and
    x0 and x+ are evaluated in full precision at the end. All is tried on `x` first. What changes
    the logits by more than rounding does, a draft that changes many more decisions than another
    order of the inputs does, and what does not help are left out. `notes` of the result say what
    was done, and why something was not.

    On a GPU the whole of a decision-grade descent is recorded as a CUDA graph when a size of batch
    comes for the second time, and replayed from then on: one launch for all its kernels.

    The copy keeps the weights of now. Once those of your network change, it refuses to answer.

    Args:
        clf: a classifier whose `net` is a module; others are returned as they are.
        x: a few ordinary inputs, to compare both networks on; at most 64 are used.
        draft: whether decision-grade solves may run in bfloat16.
        compiled: on a GPU, whether networks inside such recordings run through torch.compile: half
            as fast again, after some ten seconds of compiling for each of four sizes of batches.

    Example:
        >>> import torch, credibly as cr
        >>> net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8)).eval()
        >>> fast = cr.accelerate(cr.Classifier(net), torch.randn(20, 4), draft=False)
        >>> print(fast.notes[0])
        1 batch norm folded
    """
    clf = check_classifier(clf)
    fast = faster_copy(clf, x, draft=draft, compiled=compiled)
    if fast.draft is None:
        return fast
    given = check_batch(clf, x, "x")
    some = given[finite_rows(given)][: DECIDED.get(given.device.type, DECIDED["cpu"])]
    found = _changes(clf, fast, some)
    if found.decisions <= found.by_order + CHANGED:
        return noted(fast, f"with them {found.classes:.1%} of the classes ahead at x+ change")
    why = f"{found.decisions:.1%} of the decisions change, and {found.by_order:.1%} by reordering"
    return without_draft(fast, why)


@dataclass(frozen=True)
class _Changes:
    """Shares of inputs that a draft changes.

    Attributes:
        decisions: with another rank in `shift` or `gain`, by which a Judge decides.
        by_order: the same where the inputs come in another order, without a draft.
        classes: with another class ahead at x+, where classes are close together.
    """

    decisions: float = 0.0
    by_order: float = 0.0
    classes: float = 0.0


def _changes(clf: Classifier, fast: Classifier, x: Tensor) -> _Changes:
    """What the draft of the faster classifier changes."""
    with undisturbed(Inputs(clf, x)) as variable:
        try:
            gamma = found_gamma(variable)
        except InvalidArgumentError:  # nothing moves, so there is nothing to decide
            return _Changes()
        x = variable.start
        plain, drafted = _decide(clf, x, gamma), _decide(fast, x, gamma)
        halves = [_decide(clf, part, gamma) for part in x.flip(0).tensor_split(2) if len(part)]
        other = Profile.concatenate(halves).select(torch.arange(len(x) - 1, -1, -1))
        ahead = plain.credibility.argmax(1) != drafted.credibility.argmax(1)
        return _Changes(_moved(plain, drafted), _moved(plain, other), float(ahead.double().mean()))


def _decide(clf: Classifier, x: Tensor, gamma: float) -> Profile:
    """Decision-grade profiles, nothing of which is recorded."""
    own = copy(clf)
    own.recorder = None
    problem, descent = problem_of(Inputs(own, x), gamma), FixedDescent()
    settings = settings_of(problem, repr(descent), None)
    return decision_profile(problem, descent, settings, chunk_size=len(x))


def _moved(one: Profile, other: Profile) -> float:
    """Share of the inputs with another rank in `shift` or `gain`."""
    changed = torch.zeros(len(one), dtype=torch.bool, device=one.x0.device)
    for score in (shift, gain):
        known = score(one)
        ranks = [torch.searchsorted(known.sort().values, v).double() for v in (known, score(other))]
        changed |= (ranks[0] - ranks[1]).abs() > max(1.0, MOVED * len(known))
    return float(changed.double().mean())
