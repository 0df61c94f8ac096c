"""Faster copies of a network, with what was done and what was not on record."""

from __future__ import annotations

from copy import copy, deepcopy
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from credibly._validation import require
from credibly.model.batches import check_batch
from credibly.model.checks import check_model
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

TIMED = 16
"""Inputs on which a CPU tries what is faster, at most."""

WORTH_IT, WORTH_ANOTHER_LAYOUT = 1.3, 1.1
"""How much faster a draft, and another layout, must be on a CPU."""


DRAFTED = "steps of decision-grade solves in bfloat16"
"""What `notes` say of a draft."""

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


def faster_copy(clf: Classifier, x: Tensor, *, draft: bool, compiled: bool) -> Classifier:
    """`credibly.accelerate` without its look at decisions."""
    if not isinstance(clf.net, nn.Module) or clf.space is not None or clf.module is not None:
        return _noted(clf, clf.net, ("nothing done: only plain inputs of an nn.Module",))
    given = check_batch(clf, x, "x")
    some = given[finite_rows(given)][:SAMPLE]
    remedy = "Pass a few ordinary inputs."
    require(len(some) > 0, "x", "an input without NaN or infinity", f"none in {len(given)}", remedy)
    with undisturbed(Inputs(clf, some)) as variable:
        before = _logits(variable).double()
        fast = _noted(clf, *_tried(clf, clf.net, variable.start, before))
        fast = _with_draft(fast, variable.start, before) if draft else fast
        fast = _with_recorder(fast, compiled=compiled) if variable.start.is_cuda else fast
    return _watching(fast)


def _logits(variable: Inputs) -> Tensor:
    """Those of your own network; where it fails, the error says what to do."""
    try:
        return logits_only(variable, variable.start)
    except Exception:
        check_model(variable)
        raise


def _tried(
    clf: Classifier, net: nn.Module, x: Tensor, logits: Tensor
) -> tuple[nn.Module, tuple[str, ...]]:
    """A faster network, or the same one if it fails or gives other logits; and what was done."""
    found, words = _faster(net)
    why = _differs(clf, found, x, logits)
    if why is not None:
        return net, (f"nothing done: the faster network {why}",)
    found, more = _laid_out(clf, found, x, logits)
    return found, words + more


def _differs(clf: Classifier, net: nn.Module, x: Tensor, logits: Tensor) -> str | None:
    """How another network fails, or differs by more than rounding; None if it does neither."""
    try:
        after = logits_only(Inputs(clf.with_net(net), x), x).double()
    except Exception as error:  # noqa: BLE001  # such as a forward that reads what was folded
        return f"fails ({type(error).__name__}: {error})"
    gap = _relative(logits, after)
    return None if gap <= _rounding(x) else f"differs by {gap:.1g} of the logits"


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
    return found, (f"{count} batch norm{'s' if count != 1 else ''} folded",)


def _laid_out(
    clf: Classifier, net: nn.Module, x: Tensor, logits: Tensor
) -> tuple[nn.Module, tuple[str, ...]]:
    """The network with the channels of its convolutions last, where that is faster."""
    if not any(isinstance(part, nn.Conv2d) for part in net.modules()):
        return net, ()
    other = deepcopy(net).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    why = _differs(clf, other, x, logits)
    if why is None and not x.is_cuda:
        gain = _gain(clf.with_net(net), clf.with_net(other), x[:TIMED])
        why = None if gain >= WORTH_ANOTHER_LAYOUT else f"is {gain:.2f} times as fast here"
    if why is None:
        return other, ("channels last",)
    return net, (f"channels-last layout left out: it {why}",)


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
    gain = 1.0 if x.is_cuda else _gain(clf, drafted, x[:TIMED])
    if not x.is_cuda and gain < WORTH_IT:
        return _noted(clf, clf.net, (f"no draft in bfloat16: {gain:.2f} times as fast here",))
    fast = _noted(clf, clf.net, (DRAFTED,))
    fast.draft = drafted.net
    return fast


def noted(clf: Classifier, *notes: str) -> Classifier:
    """The same classifier, with more to say of it."""
    return _watching(_noted(clf, clf.net, notes))


def without_draft(clf: Classifier, why: str) -> Classifier:
    """The classifier whose draft was tried and does not serve."""
    found = copy(clf)
    found.draft, found.watched = None, None
    found.notes = tuple(n for n in clf.notes if n != DRAFTED)
    return noted(found, f"no draft in bfloat16: {why}")


def _relative(one: Tensor, other: Tensor) -> float:
    """The largest difference of logits (n, m), in units of their spread."""
    spread = (one.amax() - one.amin()).clamp(min=1e-12)
    return float((one - other).abs().max() / spread)


def _gain(clf: Classifier, other: Classifier, x: Tensor) -> float:
    """How many times as fast the second one is; passes alternate, the best of three counts."""
    best = [float("inf"), float("inf")]
    for _ in range(3):
        for number, one in enumerate((clf, other)):
            work = partial(losses_and_pull, Inputs(one, x), x, torch.clone)
            best[number] = min(best[number], seconds_of(work))
    return best[0] / best[1]
