"""`credibly inspect`: what a model and its data are, and what `score` would do with them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from rich.console import Console
from rich.table import Table
from rich.text import Text

from credibly.cli import options as o
from credibly.cli.spread import spread

if TYPE_CHECKING:
    from credibly.data.sources import Source
    from credibly.model.classifier import Classifier
    from credibly.model.files import LoadedClassifier
    from credibly.types import Bounds

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
    console = Console(highlight=False)
    with o.plain_warnings():
        loaded = of_model.load(model)
        _print(console, "model", _about_model(loaded))
        if data is None:
            console.print("Name a file of inputs, too, and the model is checked on it.")
            return
        source = of_data.open(data).for_model(loaded.classifier)
        _print(console, "data", _about_data(source))
        tried = _tried(loaded.classifier, source, o.as_gamma(gamma), bounds)
        _print(console, "score", tried)


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
            "mode": "training" if any(m.training for m in clf.net.modules()) else "evaluation",
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


def _about_data(source: Source) -> dict[str, str]:
    ids, _ = source.read(0, 3)
    facts = {name: _words(value) for name, value in source.describe().items()}
    return {**facts, "first ids": _words(ids), "fingerprint": source.fingerprint()}


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
        "checks": "passed",
        "classes": str(look.credibility.shape[1]),
        "gamma": f"{look.settings.weights_in_words().removeprefix('gamma ')}, {kind}",
        "passes a row": f"{passes}, of {len(look)} rows tried",
        "time": f"about {_duration(seconds * len(source))} for {len(source)} rows "
        f"({1000 * seconds:.3g} ms a row here; larger chunks are usually quicker)",
    }


def _duration(seconds: float) -> str:
    for unit, length in (("days", 86400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.1f} {unit}"
    return f"{seconds:.2g} s"
