"""`credibly evaluate`: how well scores rank the errors of a model and flag unusual inputs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from credibly.cli import options as o
from credibly.cli.console import print_table, print_text, resumable
from credibly.errors import FileFormatError, OutputError

FEWEST_RESAMPLES = 100


@o.spread
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
        typer.Option(metavar="NORM:EPS", help="Add attacked inputs, e.g. linf:0.01. Repeatable."),
    ] = None,
    corruptions: Annotated[
        bool, typer.Option("--corruptions", help="Add corrupted images; pixels in [0, 1].")
    ] = False,
    outliers: Annotated[
        list[Path] | None, typer.Option(help="Add a file of inputs of no class. Repeatable.")
    ] = None,
    gamma: o.Gamma = "auto",
    bounds: o.BoundsPair = None,
    effort: o.Effort = 1.0,
    chunk_size: o.ChunkSize = 128,
    resamples: Annotated[int, typer.Option(help="Of the bootstrap; at least 100.")] = 1000,
    of_model: o.ModelOptions,
    of_data: o.DataOptions,
) -> None:
    """Compare scores of trust for a model; an interrupted run continues when started again."""
    from credibly._extras import require_report_extra
    from credibly.cli import evaluation
    from credibly.cli.labels import LabelPlace
    from credibly.solve.gradient_descent import Hybrid
    from credibly.study.study import Study

    require_report_extra()
    _check(data, out, resamples)
    place = LabelPlace.find(labels, data, of_data)
    with o.plain_warnings(), resumable():
        loaded = of_model.load(model)
        clf = loaded.classifier
        ordinary = evaluation.read_inputs(data, place.how, clf)
        y, count = evaluation.read_classes(clf, ordinary, place)
        sets = evaluation.attacked_sets(clf, ordinary.x, y, attack or (), bounds)
        foreign = [
            evaluation.read_inputs(path, o.without_id(of_data, path), clf)
            for path in outliers or ()
        ]
        sets |= evaluation.outlier_sets(foreign, ordinary)
        sets |= evaluation.corrupted_sets(ordinary.x, y) if corruptions else {}
        study = Study(
            clf=clf, gamma=o.as_gamma(gamma), solver=Hybrid(effort=effort), bounds=bounds,
            baselines=evaluation.baselines(), chunk_size=chunk_size,
        )  # fmt: skip
        run = evaluation.EvaluationRun(study, sets, loaded, ordinary, y, count, foreign)
        findings, tables = run.write(out, resamples=resamples)
    print_text("\n".join(findings))
    for table in tables:
        print_table(table)
    for name in ("index.html", "result.json", "scores.parquet"):
        print_text(str(out / name))


def _check(data: Path, out: Path, resamples: int) -> None:
    """Report errors that need nothing to be read."""
    from credibly._validation import require

    if not data.exists():
        raise FileFormatError(f"{data}: no such file or folder.")
    if out.exists() and not out.is_dir():
        raise OutputError(
            f"{out} is a file, but a folder is needed", remedy="Choose another name for --out."
        )
    require(
        resamples >= FEWEST_RESAMPLES,
        "resamples",
        f"at least {FEWEST_RESAMPLES}",
        str(resamples),
        "Intervals from fewer resamples are unreliable; 1000 is usual.",
    )
