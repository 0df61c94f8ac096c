"""`credibly evaluate`: how well scores rank the failures of a model and flag strange inputs."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn

from credibly.cli import options as o
from credibly.cli.progress import line, showing
from credibly.cli.spread import spread
from credibly.errors import FileFormatError, InvalidArgumentError, OutputError

if TYPE_CHECKING:
    from credibly.cli.evaluation import Evaluation
    from credibly.study.study_result import StudyResult

FEWEST_RESAMPLES = 100
"""Of the bootstrap, for intervals that people read."""


@spread(without={"id_column"})
def evaluate(
    model: o.Model,
    data: Annotated[Path, typer.Argument(help="File or folder of ordinary inputs.")],
    *,
    labels: Annotated[
        str | None,
        typer.Option(
            help="True classes: a file, FILE:KEY, or an array or column of DATA.",
            show_default="labels of DATA",
        ),
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for the page, the numbers and the rows.")],
    attack: Annotated[
        list[str] | None,
        typer.Option(metavar="NORM:EPS", help="Also attacked inputs, e.g. linf:0.01. Repeatable."),
    ] = None,
    corruptions: Annotated[
        bool, typer.Option("--corruptions", help="Also damaged images; pixels in [0, 1].")
    ] = False,
    outliers: Annotated[
        list[Path] | None, typer.Option(help="Also a file of inputs of no class. Repeatable.")
    ] = None,
    gamma: o.Gamma = "auto",
    bounds: o.BoundsPair = None,
    effort: o.Effort = 1.0,
    chunk_size: o.ChunkSize = 128,
    resamples: Annotated[int, typer.Option(help="Of the bootstrap; at least 100.")] = 1000,
    of_model: o.ModelOptions,
    of_data: o.DataOptions,
) -> None:
    """Compare scores of trust on a model; started again, it goes on where it was."""
    from credibly.cli.evaluation import Evaluation, read_inputs
    from credibly.io.labels import label_place, raw_labels
    from credibly.report.extras import require_report_extra

    require_report_extra()
    _check(data, out, resamples)
    place = label_place(labels, data)
    raw_labels(*place)  # what is wrong with them is said first
    own = [place[1]] if place[0] == data and place[1] else []
    tabular = data.suffix.lower() in (".csv", ".tsv", ".parquet")
    unlabelled = replace(of_data, drop=[*(of_data.drop or []), *own]) if tabular else of_data
    console = Console(highlight=False)
    with o.plain_warnings():
        loaded = of_model.load(model)
        ordinary = read_inputs(data, unlabelled, loaded.classifier)
        foreign = [read_inputs(path, of_data, loaded.classifier) for path in outliers or ()]
        work = Evaluation.of(
            loaded, ordinary, place, attacks=attack or (), corruptions=corruptions,
            outliers=foreign, gamma=o.as_gamma(gamma), bounds=bounds, effort=effort,
            chunk_size=chunk_size,
            limited=of_data.limit is not None,
        )  # fmt: skip
        result = _run(work, out, resamples, console)
    _print(console, result, out)


def _check(data: Path, out: Path, resamples: int) -> None:
    """What can be said before anything is read."""
    if not data.exists():
        raise FileFormatError(f"{data}: no such file or folder.")
    if out.exists() and not out.is_dir():
        raise OutputError(
            f"{out} is a file, and a folder is wanted", remedy="Choose another name for --out."
        )
    if resamples < FEWEST_RESAMPLES:
        raise InvalidArgumentError(
            "resamples",
            expected=f"at least {FEWEST_RESAMPLES}",
            got=f"{resamples}",
            remedy="The ends of intervals from fewer are chance; 1000 is usual.",
        )


def _run(work: Evaluation, out: Path, resamples: int, console: Console) -> StudyResult:
    try:
        return work.run(out, resamples=resamples, bar=_bar, tell=line)
    except KeyboardInterrupt:
        console.print("\nstopped; the same command goes on where it was", markup=False)
        raise typer.Exit(130) from None


def _print(console: Console, result: StudyResult, out: Path) -> None:
    from credibly.report.study_view import NO_BREAK, StudyView, unbroken

    for sentence in StudyView(result).sentences():
        wrapped = textwrap.fill(  # rich would part a number from its unit
            unbroken(sentence), console.width, initial_indent="- ", subsequent_indent="  ",
            break_long_words=False, break_on_hyphens=False,
        )  # fmt: skip
        console.print(wrapped.replace(NO_BREAK, " "), markup=False, soft_wrap=True)
    for name in ("index.html", "result.json", "scores.parquet"):
        console.print(str(out / name), markup=False, soft_wrap=True)


def _bar(doing: str, total: int, what: str) -> AbstractContextManager[Callable[[float], None]]:
    columns = (TextColumn(doing), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    return showing(total, what, columns)
