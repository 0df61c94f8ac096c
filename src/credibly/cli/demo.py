"""`credibly demo`: profiles of the embedded sample, and a page about them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from credibly.cli.console import print_table, print_text, show_progress

if TYPE_CHECKING:
    from credibly.data.sample import Sample
    from credibly.report.demo_judge import JudgeDemo
    from credibly.report.demo_page import DemoResults

GAMMAS = (100.0, 200.0, 400.0)
MAIN = 200.0
FEW = 300
"""Images for the other values of gamma, which only show what it does."""


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
    """Judge the embedded images and others, solve profiles, and write a page about them."""
    from credibly._extras import require_report_extra

    require_report_extra()
    with _one_thread():
        _run(out, images, pictures=pictures)


@contextmanager
def _one_thread() -> Iterator[None]:
    """Work this small gains little from more threads, and loses much beside other busy programs."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _run(out: Path, images: int, *, pictures: bool) -> None:
    from credibly.data.sample import load_sample
    from credibly.report import demo_judge, demo_page

    print_text("A Judge of a small residual network, fitted on 400 images of clothes.\n")
    sample = load_sample()
    judged = demo_judge.judge_images(sample)
    print_text(judged.judge.summary() + "\n")
    print_table(demo_judge.verdicts_table(judged, wide=False))
    print_text(
        f"Of the trusted ordinary images {judged.right:.1%} are right, of as many by softmax "
        f"{judged.softmax_right:.1%}, of all {judged.all_right:.1%}.\n"
        "'Tampered' is where only the network's confidence is unusual. These attacked images keep "
        "it ordinary; of what the attack leaves, some are found to be outliers."
    )
    print_text(
        f"\nSolving credibility profiles of {images} Fashion-MNIST test images"
        f"{f', and of {FEW} of them for two other values of gamma' if images > FEW else ''}.\n"
    )
    results = _solve(sample, images, judged)
    print_table(demo_page.coverage_table(results))
    print_text(f"{demo_page.NOTE}\n")
    print_table(demo_page.extremes_table(results))
    print_text(results.profile.summary())
    total = sum(results.seconds.values())
    print_text(f"  {total:.0f} s for three gamma, {results.cost()}")
    page = _write(out, results, pictures=pictures)
    print_text(f"\nPage: {page}  (open it in a browser; it links to explorer.html beside it)")


def _solve(sample: Sample, images: int, judged: JudgeDemo) -> DemoResults:
    import torch

    from credibly.model.classifier import Classifier
    from credibly.profile.credibility import credibility
    from credibly.report.demo_page import DemoResults

    clf = Classifier(sample.net, classes=sample.classes)
    profiles, seconds = {}, {}
    for gamma in GAMMAS:
        count = images if gamma == MAIN else min(images, FEW)
        with show_progress(f"gamma {gamma:g}", count, "images") as tick:
            start = time.perf_counter()
            profiles[gamma] = credibility(clf, sample.images[:count], gamma=gamma, progress=tick)
            seconds[gamma] = time.perf_counter() - start
    return DemoResults(
        profiles, MAIN, sample.labels[:images], seconds, sample.test_accuracy,
        torch.get_num_threads(), judged,
    )  # fmt: skip


def _write(out: Path, results: DemoResults, *, pictures: bool) -> Path:
    from credibly.io.files import writing
    from credibly.report import demo_page

    page, images = out / "index.html", demo_page.pictures(results)
    with writing(out):
        out.mkdir(parents=True, exist_ok=True)
        page.write_text(demo_page.render(results, images), encoding="utf-8")
        for name, image in images.items() if pictures else ():
            (out / f"{name}.png").write_bytes(image)
        results.profile.save(out / "profiles.safetensors")
        results.judged.explore().save(out / "explorer.html")
    return page
