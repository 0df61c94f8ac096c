"""`accelerate`: the same classifier, faster, with what was done and what was not on record."""

from __future__ import annotations

from copy import copy, deepcopy
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from credibly._validation import require
from credibly.model.batches import check_batch, check_classifier
from credibly.model.classifier import Classifier
from credibly.model.derivatives import logits_only, losses_and_pull, undisturbed
from credibly.model.folding import FUSE, folded
from credibly.model.recorded import COMPILED_SIZES, SIZES, Recorder
from credibly.model.threads import seconds_of
from credibly.model.variable import Inputs
from credibly.model.watched import Watched
from credibly.types import Model, finite_rows

SAMPLE = 64
"""Inputs on which both networks are compared, at most."""

ROUNDING = 1000.0
"""Differences of logits in units of the precision that reordering sums explains."""

SAME_CLASSES, DRAFT_ERROR = 0.98, 0.1
"""A draft must give so many inputs the same class, and logits within this share of their spread."""

WORTH_IT = 1.3
"""How much faster a draft must be on the CPU."""


TENSOR_FLOAT = 2.0**-11
"""The precision in which a GPU convolves float32 numbers, if torch lets it."""


class HalfPrecision(nn.Module):
    """A copy of a network that runs in bfloat16 where autocast does, whatever is around it.

    The weights of its large layers are stored in bfloat16: autocast would convert those of a frozen
    network anew in every pass.
    """

    def __init__(self, net: nn.Module, device: str) -> None:
        super().__init__()
        self.net, self.device = deepcopy(net).requires_grad_(False), device
        for part in self.net.modules():
            if type(part) in FUSE:
                part.to(torch.bfloat16)
        self.train(net.training)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        with torch.autocast(self.device, torch.bfloat16):
            return self.net(*args, **kwargs)


def accelerate(
    clf: Classifier, x: Tensor, *, draft: bool = True, compiled: bool = False
) -> Classifier:
    """The same classifier on a faster copy of its network; yours stays as it is.

    Batch norms are folded into the layers before them, parameters are frozen, and on a GPU
    convolutions get the channels-last layout. With a `draft`, the steps of decision-grade profiles
    (`effort='decide'`, `Judge`) run in bfloat16, and x0 and x+ are evaluated in full precision at
    the end. Both are tried on `x` first; what changes the logits by more than rounding does, or
    does not help, is left out. `notes` of the result say what was done, and why something was not.

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
    if not isinstance(clf.net, nn.Module) or clf.space is not None or clf.module is not None:
        return _noted(clf, clf.net, ("nothing done: only plain inputs of an nn.Module",))
    given = check_batch(clf, x, "x")
    some = given[finite_rows(given)][:SAMPLE]
    remedy = "Pass a few ordinary inputs."
    require(len(some) > 0, "x", "an input without NaN or infinity", f"none in {len(given)}", remedy)
    with undisturbed(Inputs(clf, some)) as variable:
        before = logits_only(variable, variable.start).double()
        fast = _noted(clf, *_tried(clf, clf.net, variable.start, before))
        fast = _with_draft(fast, variable.start, before) if draft else fast
        fast = _with_recorder(fast, compiled=compiled) if variable.start.is_cuda else fast
    return _watching(fast)


def _tried(
    clf: Classifier, net: nn.Module, x: Tensor, logits: Tensor
) -> tuple[nn.Module, tuple[str, ...]]:
    """A faster network, or the same one if it fails or gives other logits; and what was done."""
    found, words = _faster(net)
    try:
        after = logits_only(Inputs(clf.with_net(found), x), x).double()
    except Exception as error:  # noqa: BLE001  # such as a forward that reads what was folded
        why = f"the faster network fails ({type(error).__name__}: {error})"
        return net, (f"nothing done: {why}",)
    gap = _relative(logits, after)
    if not gap <= _rounding(x):
        return net, (f"nothing done: the faster network differs by {gap:.1g} of the logits",)
    return found, words


def _watching(clf: Classifier) -> Classifier:
    """The classifier, which refuses to answer once the weights that it copied have changed."""
    copied = clf.net is not clf.original or clf.draft is not None or clf.recorder is not None
    if copied and isinstance(clf.original, nn.Module):
        clf.watched = Watched(clf.original)
    return clf


def _with_recorder(clf: Classifier, *, compiled: bool) -> Classifier:
    """The classifier with decision-grade descents recorded."""
    words = "compiled and recorded" if compiled else "recorded"
    found = _noted(clf, clf.net, (f"decision-grade descents are {words} as CUDA graphs",))
    found.recorder = Recorder(sizes=COMPILED_SIZES if compiled else SIZES, compiles=compiled)
    return found


def _rounding(x: Tensor) -> float:
    """Differences of logits, in units of their spread, that another order of sums explains."""
    rough = x.is_cuda and x.dtype == torch.float32 and torch.backends.cudnn.allow_tf32
    return 8 * TENSOR_FLOAT if rough else ROUNDING * torch.finfo(x.dtype).eps


def _noted(clf: Classifier, net: Model, notes: tuple[str, ...]) -> Classifier:
    found = copy(clf)
    found.net, found.notes = net, (*clf.notes, *notes)
    return found


def _faster(net: nn.Module) -> tuple[nn.Module, tuple[str, ...]]:
    """A copy of the network, and what was done."""
    try:
        found, count = folded(net)
    except Exception as error:  # noqa: BLE001  # a network that cannot be copied stays as it is
        return net, (f"nothing done: the network cannot be copied ({type(error).__name__})",)
    words = [f"{count} batch norm{'s' if count != 1 else ''} folded"]
    flat = any(isinstance(part, nn.Conv2d) for part in found.modules())
    if flat and any(p.is_cuda for p in found.parameters()):
        found = found.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        words.append("channels last")
    return found, tuple(words)


def _with_draft(clf: Classifier, x: Tensor, logits: Tensor) -> Classifier:
    """The classifier with a network in bfloat16 for the steps of decision-grade solves."""
    assert isinstance(clf.net, nn.Module)  # noqa: S101  # asked before
    if x.dtype != torch.float32:
        return _noted(clf, clf.net, (f"no draft in bfloat16: inputs are {x.dtype}",))
    try:
        drafted = clf.with_net(HalfPrecision(clf.net, x.device.type))
        found = logits_only(Inputs(drafted, x), x).double()
        losses_and_pull(Inputs(drafted, x), x, torch.clone)
    except Exception as error:  # noqa: BLE001  # an operation that half precision does not have
        return _noted(clf, clf.net, (f"no draft in bfloat16: {type(error).__name__}: {error}",))
    same = float((found.argmax(1) == logits.argmax(1)).double().mean())
    off = _relative(logits, found)
    if same < SAME_CLASSES or not off <= DRAFT_ERROR:
        why = f"{1 - same:.1%} of the classes change and logits differ by {off:.1%}"
        return _noted(clf, clf.net, (f"no draft in bfloat16: {why}",))
    gain = 1.0 if x.is_cuda else _gain(clf, drafted, x)
    if not x.is_cuda and gain < WORTH_IT:
        return _noted(clf, clf.net, (f"no draft in bfloat16: {gain:.2f} times as fast here",))
    fast = _noted(clf, clf.net, ("steps of decision-grade solves in bfloat16",))
    fast.draft = drafted.net
    return fast


def _relative(one: Tensor, other: Tensor) -> float:
    """The largest difference of logits (n, m), in units of their spread."""
    spread = (one.amax() - one.amin()).clamp(min=1e-12)
    return float((one - other).abs().max() / spread)


def _gain(clf: Classifier, drafted: Classifier, x: Tensor) -> float:
    """How many times as fast the second one is; passes alternate, the best of three counts."""
    best = [float("inf"), float("inf")]
    for _ in range(3):
        for number, one in enumerate((clf, drafted)):
            work = partial(losses_and_pull, Inputs(one, x), x, torch.clone)
            best[number] = min(best[number], seconds_of(work))
    return best[0] / best[1]
