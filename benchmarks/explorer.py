"""How fast the explorer is in Chromium: `python -m benchmarks.explorer [--out FILE]`.

Prints the time to an interactive page, the frames per second while a threshold is dragged and the
time of a detail with its counterfactual, solved for the embedded network; medians of three rounds.
"""

from __future__ import annotations

import argparse
import math
import os
import platform
import statistics
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from playwright.sync_api import sync_playwright
from pyarrow import parquet

import credibly as cr
from credibly.batch.judge import VERDICTS
from credibly.cli import options as o
from credibly.cli.exploring import Given, server_of
from credibly.data.sample import classifier, load_sample
from credibly.explore.built import part
from credibly.explore.server import Server
from credibly.io.files import write_json
from tests.browser.conftest import QUIET, find_chromium

GROUP_ROWS = 6000
"""Rows in a group of the file, about what `judge_file` writes."""

ROUNDS = 3
"""Times that everything is measured; the medians count."""

INTERACTIVE = "performance.getEntriesByName('interactive')[0]?.startTime"
FRAMES = """() => new Promise((done) => {
  const times = []
  const look = (now) => {
    times.push(now)
    globalThis.dragging ? requestAnimationFrame(look) : done(times)
  }
  globalThis.dragging = true
  requestAnimationFrame(look)
})"""


def write_verdicts(path: Path, rows: int) -> None:
    """Write verdicts of many rows as `judge_file` does: some are real, the others near them."""
    sample, draw = load_sample(), np.random.default_rng(0)
    judge = cr.Judge.fit(classifier(), sample.images[:400], sample.labels[:400])
    images = torch.cat([sample.images[400:900], 1 - sample.images[400:500]])
    frame = judge(images, keep=False).to_pandas()
    frame["status"] = "judged"
    size = math.ceil(rows / GROUP_ROWS)
    with parquet.ParquetWriter(
        path, _table(frame, 0, 1, draw).schema, **VERDICTS.writing
    ) as writer:
        for group in range(size):
            count = min(GROUP_ROWS, rows - group * GROUP_ROWS)
            writer.write_table(_table(frame, group * GROUP_ROWS, count, draw))


def _table(frame: Any, first: int, count: int, draw: np.random.Generator) -> Any:
    found = frame.iloc[draw.integers(len(frame), size=count)].reset_index(drop=True)
    for name in ("trust", *(column for column in found if column.startswith("signal."))):
        found[name] += draw.normal(scale=0.05, size=count)
    for name in ("p_ordinary", "p_outlier", "p_tampered", "p_wrong"):
        found[name] = np.clip(found[name] * np.exp(draw.normal(scale=0.1, size=count)), 1e-4, 1)
    found.insert(0, "id", np.arange(first, first + count))
    return pa.Table.from_pandas(found, preserve_index=False)


@contextmanager
def serving(server: Server) -> Iterator[str]:
    """Run a server in a thread; gives its address."""
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    try:
        yield server.url
    finally:
        server.shutdown()
        server.server_close()


def until(page: Any, expression: str) -> None:
    """Wait until something holds; playwright's own way evaluates text, which pages forbid."""
    for _ in range(6000):
        if page.evaluate(expression):
            return
        page.wait_for_timeout(10)
    message = f"{expression} did not hold within a minute"
    raise TimeoutError(message)


def many_rows(page: Any, url: str) -> dict[str, float]:
    """The time until the page can be used, and frames while its threshold is dragged."""
    page.goto(url)
    until(page, INTERACTIVE)
    found = {"interactive (s)": page.evaluate(INTERACTIVE) / 1000}
    page.wait_for_selector("[role=row][aria-rowindex='2']")
    page.wait_for_timeout(500)
    drawn = "performance.getEntriesByName('scatter').at(-1).duration"
    found["scatter drawn (ms)"] = page.evaluate(drawn)
    for name, filtered in (
        ("drag (frames/s)", False),
        ("drag, rows filtered by it (frames/s)", True),
    ):
        if filtered:
            page.get_by_role("button", name="refused").click()
        found[name] = _frames(page)
    return found


def _frames(page: Any) -> float:
    box = page.locator(".u-over").bounding_box()
    middle = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + 0.3 * box["width"], middle)
    page.mouse.down()
    page.evaluate(f"() => {{ globalThis.frames_ = ({FRAMES})() }}")
    for step in range(60):
        page.mouse.move(box["x"] + (0.3 + 0.01 * step) * box["width"], middle)
    times = page.evaluate("() => { globalThis.dragging = false; return globalThis.frames_ }")
    page.mouse.up()
    return 1000 * (len(times) - 1) / (times[-1] - times[0])


def details(page: Any, url: str) -> dict[str, float]:
    """The time from the choice of a row to its detail on the screen, for rows never seen."""
    page.goto(url)
    until(page, INTERACTIVE)
    for _ in range(12):
        seen = page.evaluate("performance.getEntriesByName('detail').length")
        page.keyboard.press("ArrowDown")
        until(page, f"performance.getEntriesByName('detail').length > {seen}")
    times = page.evaluate("performance.getEntriesByName('detail').map((one) => one.duration)")[2:]
    return {"detail, median (ms)": statistics.median(times), "detail, largest (ms)": max(times)}


def real_rows(folder: Path) -> Given:
    """Some images, judged and with their model."""
    sample = load_sample()
    judge = cr.Judge.fit(classifier(), sample.images[:400], sample.labels[:400])
    judge.save(folder / "judge")
    np.save(folder / "x.npy", sample.images[400:600].numpy())
    cr.judge_file(judge, folder / "x.npy", folder / "few.parquet")
    return Given.open(
        folder / "few.parquet", inputs=folder / "x.npy", model="credibly.data.sample:classifier",
        judge=folder / "judge", words=None, of_model=o.ModelOptions(), of_data=o.DataOptions(),
    )  # fmt: skip


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--out", type=Path, help="also write the numbers as JSON")
    given = parser.parse_args()
    size = sum(len(part(name).encode()) for name in ("explorer.js", "explorer.css"))
    found = {"bundle (kB)": size / 1000, **measured(given.rows)}
    for what, value in found.items():
        print(f"{what:<40} {value:8.1f}")
    if given.out is not None:
        write_json(
            given.out, {"command": "python -m benchmarks.explorer", **found, "machine": machine()}
        )


def machine() -> dict[str, Any]:
    """Where it was measured, and how busy that was."""
    load = round(os.getloadavg()[0], 1)
    return {"processor": platform.machine(), "cores": os.cpu_count(), "load average": load}


def measured(rows: int) -> dict[str, float]:
    """Everything that is measured in the browser, by name."""
    found: dict[str, float] = {"rows": rows}
    with tempfile.TemporaryDirectory() as name, sync_playwright() as playwright:
        folder = Path(name)
        write_verdicts(folder / "many.parquet", rows)
        found["file (MB)"] = (folder / "many.parquet").stat().st_size / 1e6
        many = Given.open(
            folder / "many.parquet", inputs=None, model=None, judge=None, words=None,
            of_model=o.ModelOptions(), of_data=o.DataOptions(),
        )  # fmt: skip
        path = find_chromium(playwright)
        browser = playwright.chromium.launch(executable_path=path, args=list(QUIET))
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        for measure, given in ((many_rows, many), (details, real_rows(folder))):
            rounds = []
            for _ in range(ROUNDS):  # each server is new: it remembers details
                with serving(server_of(given, 0)) as url:
                    rounds.append(measure(page, url))
            found |= {what: statistics.median(one[what] for one in rounds) for what in rounds[0]}
        browser.close()
    return found


if __name__ == "__main__":
    main()
