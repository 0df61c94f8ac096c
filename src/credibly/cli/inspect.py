"""`credibly inspect`: what a model and its data are, and what `score` would do with them."""

from __future__ import annotations

import warnings
from collections import Counter
from typing import TYPE_CHECKING, Any, Literal

from credibly.cli import options as o
from credibly.cli.console import duration, print_table, print_text
from credibly.errors import CrediblyWarning, ModelError
from credibly.report.tables import Table

if TYPE_CHECKING:
    from torch import Tensor

    from credibly.io.models import LoadedClassifier
    from credibly.io.sources import Source
    from credibly.model.classifier import Classifier
    from credibly.types import Bounds

SHOWN = 8  # classes that are named, the most frequent ones
TRIED = 16  # rows that are solved to estimate passes and time
LEAST_OF_BYTES = {3: 16.0, 4: 1.5}  # by dimensions; above it values are hardly in [0, 1]


@o.spread
def inspect(
    model: o.Model,
    data: o.MaybeData = None,
    *,
    gamma: o.Gamma = "auto",
    bounds: o.BoundsPair = None,
    of_model: o.ModelOptions,
    of_data: o.DataOptions,
) -> None:
    """Describe MODEL; with DATA, check the model on it and estimate the cost of `score`."""
    from credibly.batch.rows import AUTO_ROWS

    with o.plain_warnings() as shown:
        loaded = of_model.load(model)
        clf = loaded.classifier
        print_table(Table.of_facts(_about_model(loaded), "model"))
        if data is None:
            print_text("Name a file of inputs, too, to check the model on it.")
            return
        source = of_data.open(data).for_model(clf)
        ids, x = source.read(0, AUTO_ROWS)
        print_table(Table.of_facts(_about_data(clf, source, list(ids[:3]), x), "data"))
        _warn_of_spreads(clf, x)
        tried = _try(clf, source, o.as_gamma(gamma), bounds)
        answers = _about_answers(clf, x)
        counted = f", {len(shown)} warning{'s'[: len(shown) > 1]}" if shown else ""
        print_table(Table.of_facts({"checks": f"passed{counted}", **answers, **tried}, "score"))


def _about_model(loaded: LoadedClassifier) -> dict[str, object]:
    from torch import nn

    clf = loaded.classifier
    facts: dict[str, object] = {"kind": loaded.kind, "what": loaded.description}
    if isinstance(clf.net, nn.Module):
        parts = sum(1 for module in clf.net.modules() if next(module.children(), None) is None)
        exported = loaded.kind == "torch.export"
        facts |= {
            "parameters": f"{sum(p.numel() for p in clf.net.parameters()):,}",
            "modules": parts,
            "mode": "as it was exported" if exported else _mode(clf, clf.net),
        }
    names = clf.classes
    return {
        **facts,
        "classes": "not named" if names is None else f"{len(names)}: {', '.join(names)}",
        "outputs": clf.outputs,
        "loss": repr(clf.loss),
        "precision": str(clf.dtype or "as the inputs").removeprefix("torch."),
        "device": clf.device or "as the inputs",
        "fingerprint": loaded.fingerprint,
        **{f"note {number}": note for number, note in enumerate(loaded.notes, 1)},
    }


def _mode(clf: Classifier, net: Any) -> str:
    """Training or evaluation; a wrapper in training mode alone changes nothing."""
    from credibly.model.batches import check_evaluation_mode

    if not any(module.training for module in net.modules()):
        return "evaluation"
    try:
        check_evaluation_mode(clf)
    except ModelError:
        return "training"
    return "evaluation (some parts are in training mode, but no dropout and no batch norm)"


def _about_data(clf: Classifier, source: Source, ids: list[Any], x: Tensor) -> dict[str, object]:
    """Also the order of columns and the range of values, which can be wrong without an error."""
    from credibly.model.batches import column_names

    facts = {**source.describe(), "first ids": ids, "fingerprint": source.fingerprint()}
    if "columns" in source.options():
        named = column_names(clf) is not None
        facts["order"] = "of the model, by name" if named else "of the file: the model has no names"
    finite = x[x.isfinite()]
    if not len(finite):
        return {**facts, "values": "no numbers"}
    low, high = float(finite.min()), float(finite.max())
    if low >= 0 and LEAST_OF_BYTES.get(x.dim(), 255) < high <= 255:
        _warn(f"values reach {high:.4g}: the model may expect 0 to 1 (--scale 255 divides them)")
    return {**facts, "values": f"{low:.4g} to {high:.4g} in the first {len(x)} rows"}


def _warn_of_spreads(clf: Classifier, x: Tensor) -> None:
    """Warn of unlike units also for a model that does not say that it takes columns."""
    from credibly.model.batches import unlike_spreads

    plain = clf.module is None and (clf.space is None or clf.space.is_plain)
    said = unlike_spreads(x) if x.dim() == 2 and plain else None
    if said is not None:
        _warn(said)


def _warn(text: str) -> None:
    warnings.warn(text, CrediblyWarning, stacklevel=3)


def _about_answers(clf: Classifier, x: Tensor) -> dict[str, object]:
    """The predictions for the first rows: look twice if they are all one class, or never sure."""
    import torch

    from credibly.model.bind import bind
    from credibly.model.derivatives import losses_only
    from credibly.model.losses import CrossEntropy
    from credibly.types import finite_rows

    usable = x[finite_rows(x)].to(device=clf.device, dtype=clf.dtype)
    if not len(usable):
        return {}
    try:
        parts = [bind(clf, part) for part in torch.split(usable, 64)]
        losses = torch.cat([losses_only(part, part.start) for part in parts])
    except Exception as error:  # noqa: BLE001  # a model may raise anything; `score` goes on
        return {"predicted": f"the model fails on some of these rows ({type(error).__name__})"}
    counts = Counter(losses.argmin(1).tolist())
    named = ", ".join(f"{clf.class_name(k)}: {count}" for k, count in counts.most_common(SHOWN))
    more = f", {len(counts) - SHOWN} more" if len(counts) > SHOWN else ""
    facts: dict[str, object] = {
        "predicted": f"{named}{more}; {len(counts)} of {losses.shape[1]} classes"
    }
    if isinstance(clf.loss, CrossEntropy):
        largest = (-losses.amin(1)).exp().median()
        facts["softmax"] = f"{float(largest):.3g} for the predicted class (median)"
    return facts


def _try(
    clf: Classifier, source: Source, gamma: float | Literal["auto"], bounds: Bounds | None
) -> dict[str, object]:
    """Check the model and solve a few rows, to estimate what `score` would cost."""
    from credibly.batch.score import first_look

    look, took = first_look(clf, source, gamma=gamma, bounds=bounds, rows=TRIED)
    seconds, usable = took / len(look), look.passes[look.usable]
    passes = f"{float(usable.median()):.0f} (median)" if len(usable) else "none was solved"
    kind = "set by the first rows" if gamma == "auto" else "as given"
    return {
        "classes": look.credibility.shape[1],
        "gamma": f"{look.settings.weights_in_words().removeprefix('gamma ')}, {kind}",
        "passes per row": f"{passes}, of {len(look)} rows tried",
        "time": f"about {duration(seconds * len(source))} for {len(source)} rows "
        f"({float(f'{1000 * seconds:.3g}'):g} ms per row here; larger chunks are usually quicker)",
    }
