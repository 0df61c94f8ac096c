"""`credibly inspect`: what a model and its data are, and what `score` would do with them."""

from __future__ import annotations

import warnings
from collections import Counter
from typing import TYPE_CHECKING, Literal

from rich.console import Console
from rich.table import Table
from rich.text import Text

from credibly.cli import options as o
from credibly.cli.spread import spread
from credibly.errors import CrediblyWarning, ModelError

if TYPE_CHECKING:
    from torch import Tensor

    from credibly.io.models import LoadedClassifier
    from credibly.io.sources import Ids, Source
    from credibly.model.classifier import Classifier
    from credibly.types import Bounds

SHOWN = 8
"""Classes that are named, the most frequent ones."""

LEAST_OF_BYTES = {3: 16.0, 4: 1.5}
"""By dimensions, a largest value that pixels of 0 to 1 hardly have; three may also be sequences."""

TRIED = 16
"""Rows that are solved for an estimate of passes and time."""


@spread()
def inspect(
    model: o.Model,
    data: o.MaybeData = None,
    *,
    gamma: o.Gamma = "auto",
    bounds: o.BoundsPair = None,
    of_model: o.ModelOptions,
    of_data: o.DataOptions,
) -> None:
    """Say what MODEL is; with DATA, check the model on it and estimate the cost of `score`."""
    from credibly.batch.chunks import AUTO_ROWS

    console = Console(highlight=False)
    with o.plain_warnings() as shown:
        loaded = of_model.load(model)
        _print(console, "model", _about_model(loaded))
        if data is None:
            console.print("Name a file of inputs, too, and the model is checked on it.")
            return
        source = of_data.open(data).for_model(loaded.classifier)
        ids, x = source.read(0, AUTO_ROWS)
        order = _about_order(loaded.classifier, source)
        _print(console, "data", {**_about_data(source, ids), **order, "values": _about_values(x)})
        _compare_spreads(loaded.classifier, x)
        tried = _tried(loaded.classifier, source, o.as_gamma(gamma), bounds)
        answers = _about_answers(loaded.classifier, x)
        checks = f"passed{_counted(len(shown))}"
        _print(console, "score", {"checks": checks, **answers, **tried})


def _print(console: Console, title: str, facts: dict[str, str]) -> None:
    table = Table(box=None, show_header=False, title=title, title_justify="left")
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in facts.items():
        table.add_row(name, Text(value))
    console.print(table)


def _about_model(loaded: LoadedClassifier) -> dict[str, str]:
    from torch import nn

    clf = loaded.classifier
    facts = {"kind": loaded.kind, "what": loaded.description}
    if isinstance(clf.net, nn.Module):
        parts = sum(1 for module in clf.net.modules() if next(module.children(), None) is None)
        facts |= {
            "parameters": f"{sum(p.numel() for p in clf.net.parameters()):,}",
            "modules": str(parts),
            "mode": _mode(clf),
        }
    if loaded.kind == "torch.export":
        facts["mode"] = "as it was exported"
    names = clf.classes
    return {
        **facts,
        "classes": "not named" if names is None else f"{len(names)}: {', '.join(names)}",
        "outputs": clf.outputs,
        "loss": repr(clf.loss),
        "precision": str(clf.dtype or "as the inputs").removeprefix("torch."),
        "device": str(clf.device or "as the inputs"),
        "fingerprint": loaded.fingerprint,
        **{f"note {number}": note for number, note in enumerate(loaded.notes, 1)},
    }


def _mode(clf: Classifier) -> str:
    """Training or evaluation; a wrapper around a network is often in the other mode, in vain."""
    from torch import nn

    from credibly.model.batches import check_evaluation_mode

    assert isinstance(clf.net, nn.Module)  # noqa: S101  # asked only of modules
    if not any(module.training for module in clf.net.modules()):
        return "evaluation"
    try:
        check_evaluation_mode(clf)
    except ModelError:
        return "training"
    return "evaluation (some parts are in training mode, but no dropout and no batch norm)"


def _about_data(source: Source, ids: Ids) -> dict[str, str]:
    facts = {name: _words(value) for name, value in source.describe().items()}
    return {**facts, "first ids": _words(ids[:3]), "fingerprint": source.fingerprint()}


def _about_order(clf: Classifier, source: Source) -> dict[str, str]:
    """Whose order the columns of a table have: a wrong one is noticed by nobody but the reader."""
    from credibly.model.tables import column_names

    if "columns" not in source.options():
        return {}
    named = column_names(clf) is not None
    return {"order": "of the model, by name" if named else "of the file: the model knows no names"}


def _about_values(x: Tensor) -> str:
    """The range of the inputs; images that nobody divided by 255 give a warning."""
    finite = x[x.isfinite()]
    if not len(finite):
        return "none is a number"
    low, high = float(finite.min()), float(finite.max())
    if low >= 0 and LEAST_OF_BYTES.get(x.dim(), 255) < high <= 255:
        warnings.warn(
            f"values reach {high:.4g}: the model may expect 0 to 1 (--scale 255 divides them)",
            CrediblyWarning,
            stacklevel=2,
        )
    return f"{low:.4g} to {high:.4g} in the first {len(x)} rows"


def _compare_spreads(clf: Classifier, x: Tensor) -> None:
    """Warn of columns in units so unlike that a movement is one of the smallest unit alone."""
    if x.dim() != 2 or clf.space is not None or clf.module is not None:
        return
    from credibly.model.tables import unlike_spreads

    unlike = unlike_spreads(x)
    if unlike is not None:
        warnings.warn(
            f"columns spread by {unlike[0]:.3g} to {unlike[1]:.3g}: distances are in the units of "
            "the file, so that columns of large units hardly move. A factory that returns a "
            "Classifier with space=Space.standardised(x) measures them alike "
            "(docs/command-line.md, Units)",
            CrediblyWarning,
            stacklevel=2,
        )


def _about_answers(clf: Classifier, x: Tensor) -> dict[str, str]:
    """What the model says of the first rows: all of one class, or never sure, is worth a look."""
    import torch

    from credibly.model.derivatives import losses_only
    from credibly.model.inputs import enter, finite_rows
    from credibly.model.losses import CrossEntropy

    usable = x[finite_rows(x)].to(device=clf.device, dtype=clf.dtype)
    if not len(usable):
        return {}
    try:
        losses = torch.cat([losses_only(*enter(clf, part)) for part in torch.split(usable, 64)])
    except Exception as error:  # noqa: BLE001  # a model may raise anything; `score` goes on
        return {"predicted": f"the model fails on some of these rows ({type(error).__name__})"}
    counts = Counter(losses.argmin(1).tolist())
    named = ", ".join(f"{clf.class_name(k)}: {count}" for k, count in counts.most_common(SHOWN))
    more = f", {len(counts) - SHOWN} more" if len(counts) > SHOWN else ""
    facts = {"predicted": f"{named}{more}; {len(counts)} of {losses.shape[1]} classes"}
    if isinstance(clf.loss, CrossEntropy):
        largest = (-losses.amin(1)).exp().median()
        facts["softmax"] = f"{float(largest):.3g} in the median, of the predicted class"
    return facts


def _counted(warned: int) -> str:
    return f", {warned} warning{'s'[: warned > 1]}" if warned else ""


def _words(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value[:12])) + (", ..." if len(value) > 12 else "")
    return "-" if value in (None, "") else str(value)


def _tried(
    clf: Classifier, source: Source, gamma: float | Literal["auto"], bounds: Bounds | None
) -> dict[str, str]:
    """Check the model and solve a few rows: what `score` would do to all of them."""
    from credibly.batch.score import first_look

    look, took = first_look(clf, source, gamma=gamma, bounds=bounds, rows=TRIED)
    seconds = took / len(look)
    usable = look.passes[look.usable]
    passes = f"{float(usable.median()):.0f} in the median" if len(usable) else "none was solved"
    kind = "set by the first rows" if gamma == "auto" else "as given"
    return {
        "classes": str(look.credibility.shape[1]),
        "gamma": f"{look.settings.weights_in_words().removeprefix('gamma ')}, {kind}",
        "passes a row": f"{passes}, of {len(look)} rows tried",
        "time": f"about {_duration(seconds * len(source))} for {len(source)} rows "
        f"({float(f'{1000 * seconds:.3g}'):g} ms a row here; larger chunks are usually quicker)",
    }


def _duration(seconds: float) -> str:
    for unit, length in (("days", 86400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.1f} {unit}"
    return f"{float(f'{seconds:.2g}'):g} s"  # two digits, and 100 instead of 1e+02
