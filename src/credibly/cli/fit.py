"""`credibly fit`: a Judge for a model, from ordinary inputs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from credibly.cli import options as o
from credibly.cli.console import print_text, show_progress
from credibly.errors import CrediblyError, ModelError, OutputError

if TYPE_CHECKING:
    from torch import Tensor

    from credibly.cli.labels import LabelPlace
    from credibly.decide.judge import Judge
    from credibly.io.models import LoadedClassifier
    from credibly.io.sources import Source


@o.spread
def fit(
    model: o.Model,
    ordinary: Annotated[
        Path,
        typer.Argument(help="File or folder of inputs like those to come, not of the training."),
    ],
    *,
    out: Annotated[Path, typer.Option(help="The folder to write.")],
    labels: Annotated[
        str | None,
        typer.Option(
            metavar="FILE|COLUMN",
            help="True classes: a file, FILE:KEY, an array or column of ORDINARY ('folder' for "
            "images in folders of classes), or the marks that `explore` kept (.marks.csv).",
        ),
    ] = None,
    false_alarms: Annotated[
        float, typer.Option(help="Chance that an ordinary input raises an alarm, at most.")
    ] = 0.01,
    error_rate: Annotated[
        float | None, typer.Option(help="Of what is accepted at most this share is wrong.")
    ] = None,
    confidence: Annotated[float, typer.Option(help="With which the error rate is kept.")] = 0.95,
    by_class: Annotated[
        bool, typer.Option("--by-class", help="Keep the error rate for each predicted class.")
    ] = False,
    doubted: Annotated[
        float, typer.Option(help="Without an error rate: share of ordinary inputs to doubt.")
    ] = 0.1,
    profile: Annotated[
        Literal["doubtful", "always", "never"],
        typer.Option(help="Which inputs are looked at with a profile."),
    ] = "never",
    gamma: o.Gamma = "auto",
    features: Annotated[
        str,
        typer.Option(
            metavar="NAME|auto|none",
            help="Layer whose inputs are compared; by default the last linear one.",
        ),
    ] = "auto",
    chunk_size: Annotated[
        int | None, typer.Option(min=1, help="Inputs handled at a time; by default what fits.")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a Judge.")] = False,
    of_model: o.ModelOptions,
    of_data: o.DataOptions,
) -> None:
    """Learn what is ordinary for MODEL, and save a Judge for `judge`."""
    from credibly.cli.labels import LabelPlace, check_marks
    from credibly.io.marks import is_marks

    settings = {
        "false_alarms": false_alarms, "error_rate": error_rate, "confidence": confidence,
        "by_class": by_class, "doubted": doubted, "profile": profile, "gamma": o.as_gamma(gamma),
        "features": None if features == "none" else features, "chunk_size": chunk_size or "auto",
    }  # fmt: skip
    _check(out, labels or of_data.label, error_rate, by_class=by_class, overwrite=overwrite)
    of_data, labels = _beside(ordinary, labels, of_data)
    marks = labels if is_marks(labels) else None
    place = None if labels is None or marks else LabelPlace.find(labels, ordinary, of_data)
    with o.plain_warnings():
        source = (of_data if place is None else place.how).open(ordinary)
        loaded = of_model.load(model)
        source = source.for_model(loaded.classifier)
        if marks is not None:
            check_marks(Path(marks), source)
        if of_data.label is None:
            known: Any = marks or _read(place, loaded, source)
        else:
            known = True
        fitted = _fit(loaded, source, known, settings)
        fitted.save(out)
    print_text(fitted.summary())
    print_text(f"saved in {out}; use it with `credibly judge MODEL DATA --judge {out} --out ...`")


def _check(
    out: Path, labels: str | None, error_rate: float | None, *, by_class: bool, overwrite: bool
) -> None:
    """Report errors that need nothing to be read."""
    from credibly._validation import require

    if not out.parent.is_dir():
        raise OutputError(f"{out}: the folder {out.parent} does not exist", remedy="Make it first.")
    if out.exists() and not out.is_dir():
        raise OutputError(f"{out} is a file", remedy="A Judge is a folder: choose another name.")
    o.check_free(out, overwrite=overwrite)
    promised = f"true classes for an error rate of {error_rate}"
    remedy = "Pass --labels and a file or column, or leave out --error-rate."
    require(error_rate is None or labels is not None, "labels", promised, "none", remedy)
    remedy = "Pass --error-rate, or leave out --by-class."
    require(not by_class or error_rate is not None, "error_rate", "a share", "none", remedy)


def _beside(
    ordinary: Path, labels: str | None, of_data: o.DataOptions
) -> tuple[o.DataOptions, str | None]:
    """Labels that the source brings along, by --label or, of several files, by --labels."""
    from credibly._validation import require
    from credibly.io.labels import names_a_file
    from credibly.io.marks import is_marks

    both = labels is not None and of_data.label is not None
    require(not both, "labels", "--labels or --label", "both", "They mean the same here.")
    if labels is None or is_marks(labels) or names_a_file(labels) or ordinary.is_file():
        return of_data, labels
    return replace(of_data, label=labels), None


def _read(place: LabelPlace | None, loaded: LoadedClassifier, source: Source) -> Tensor | None:
    """Read the labels, if there are any; a model without names of classes is asked for them."""
    if place is None:
        return None
    from credibly.batch.first_rows import first_rows
    from credibly.batch.rows import Rows
    from credibly.decide.examine import classes_of
    from credibly.types import finite_rows

    def count() -> int:
        rows = Rows(clf=loaded.classifier, source=source, chunk=1, shard=1)
        with first_rows(rows) as first:
            finite = finite_rows(first.variable.start)
            return classes_of(first.variable.select(finite) if finite.any() else first.variable)

    return place.read(loaded.classifier, len(source), count)


def _fit(
    loaded: LoadedClassifier,
    source: Source,
    labels: Tensor | str | Literal[True] | None,
    settings: dict[str, Any],
) -> Judge:
    from credibly.batch.first_rows import naming_columns
    from credibly.decide.judge import Judge
    from credibly.decide.ordinary import MOST

    count = min(len(source), MOST)
    try:
        with (
            show_progress("looking", count, "ordinary inputs") as tick,
            naming_columns(getattr(source, "columns", None)),
        ):
            tick(0.0)  # nothing was finished before
            return Judge.fit(loaded, source, labels, progress=tick, **settings)
    except CrediblyError:
        raise
    except Exception as error:  # a model may raise anything
        reason = (str(error).splitlines() or [""])[0]
        raise ModelError(
            f"the model failed on some of {source.path} with {type(error).__name__}: {reason}",
            remedy="Leave out the inputs that it cannot take: they are not ordinary ones.",
        ) from error
