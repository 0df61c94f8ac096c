"""`credibly demo`: the main job on the embedded sample, for people with a minute."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import Progress, TaskID
from rich.table import Table

if TYPE_CHECKING:
    from credibly.report.demo_page import DemoResults

GAMMAS = (100.0, 200.0, 400.0)
MAIN = 200.0


def demo(
    *,
    out: Annotated[
        Path, typer.Option(help="Folder for the page and the profiles; made if needed.")
    ] = Path("credibly-demo"),
    images: Annotated[
        int, typer.Option(min=20, max=1000, help="How many of the embedded images to solve.")
    ] = 1000,
    pictures: Annotated[
        bool, typer.Option("--pictures", help="Also write each figure as a PNG file.")
    ] = False,
) -> None:
    """Solve profiles of 1000 embedded images and write a page about them."""
    from credibly.report.extras import require_report_extra

    require_report_extra()
    console = Console(highlight=False)
    console.print(
        "[bold]How much should you trust this prediction?[/]\n"
        f"Solving credibility profiles of {images} Fashion-MNIST test images "
        "on a small residual network, for three values of gamma.\n"
    )
    results = _solve(images)
    _print(console, results)
    page = _write(out, results, pictures=pictures)
    console.print(
        f"\nPage: [bold]{escape(str(page))}[/]  (open it in a browser; everything is inside)"
    )


def _solve(images: int) -> DemoResults:
    import torch

    from credibly.data.sample import load_sample
    from credibly.model.classifier import Classifier
    from credibly.profile.credibility import credibility
    from credibly.report.demo_page import DemoResults

    sample = load_sample()
    clf = Classifier(sample.net, classes=sample.classes)
    x, profiles, seconds = sample.images[:images], {}, {}
    with Progress(transient=True) as bar:
        for gamma in GAMMAS:
            task = bar.add_task(f"gamma {gamma:g}", total=1.0)
            start = time.perf_counter()
            tick = partial(_tick, bar, task)
            profiles[gamma] = credibility(clf, x, gamma=gamma, progress=tick)
            seconds[gamma] = time.perf_counter() - start
    return DemoResults(
        profiles, MAIN, sample.labels[:images], seconds, sample.test_accuracy,
        torch.get_num_threads(),
    )  # fmt: skip


def _tick(bar: Progress, task: TaskID, share: float) -> None:
    bar.update(task, completed=share)


def _print(console: Console, results: DemoResults) -> None:
    table = Table(title="Accuracy when answering only the most trusted share")
    table.add_column("share answered")
    curves = results.curves()
    for name in curves:
        table.add_column(name, justify="right")
    for share in (1.0, 0.9, 0.8, 0.7, 0.5):
        table.add_row(f"{share:.0%}", *(f"{curve.at(share):.1%}" for curve in curves.values()))
    console.print(table)
    console.print(results.verdict() + "\n")
    _print_extremes(console, results)
    console.print(results.profile.summary(), markup=False)
    total = sum(results.seconds.values())
    console.print(f"  {total:.0f} s for three gamma, {results.cost()}")


def _print_extremes(console: Console, results: DemoResults) -> None:
    from credibly.decide import scores

    trust, profile = scores.predicted_ratio(results.profile), results.profile
    table = Table(title="The most and the least credible predictions")
    for column in ("image", "predicted", "truth", "softmax", "most credible at x+", "trust"):
        table.add_column(
            column, justify="right" if column in ("image", "softmax", "trust") else "left"
        )
    most, least = results.extremes()
    for n in [*most[:4], *least[:4]]:
        predicted = int(results.predicted[n])
        table.add_row(
            str(n),
            profile.class_name(predicted),
            profile.class_name(int(results.labels[n])),
            f"{float(profile.credence[n].max().exp()):.1%}",
            profile.class_name(int(profile.credibility[n].argmax())),
            f"{float(trust[n]):.3f}",
        )
    console.print(table)


def _write(out: Path, results: DemoResults, *, pictures: bool) -> Path:
    from credibly.report import demo_page

    out.mkdir(parents=True, exist_ok=True)
    page, images = out / "index.html", demo_page.pictures(results)
    page.write_text(demo_page.render(results, images), encoding="utf-8")
    for name, image in images.items() if pictures else ():
        (out / f"{name}.png").write_bytes(image)
    results.profile.save(out / "profiles.safetensors")
    return page
