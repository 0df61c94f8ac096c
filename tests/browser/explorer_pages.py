"""Pages of verdicts that tests of the explorer look at."""

import threading
from contextlib import contextmanager

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

import credibly as cr
from credibly.cli import options as o
from credibly.cli.exploring import Given, server_of
from credibly.explore.page import render
from credibly.explore.table import columns_of

CLASSES = ["coat", "bag", "boot"]
ROWS = 60


def verdicts(**more):
    """Verdicts of a model that is right on the first 45 of 60 rows."""
    draw = np.random.default_rng(0)
    truth = draw.integers(3, size=ROWS)
    told = np.where(np.arange(ROWS) < 45, truth, (truth + 1) % 3)
    frame = pd.DataFrame({
        "id": [f"photo {k}" for k in range(ROWS)],
        "verdict": ["trust"] * 40 + ["doubtful"] * 20,
        "predicted": [CLASSES[k] for k in told],
        "trust": np.linspace(2, -1, ROWS) + 1 / 3,
        "p_outlier": draw.uniform(0.01, 1, ROWS),
        "p_wrong": np.repeat([0.1, 0.4, 0.9], 20),
        "passes": 1 / 3,
        "signal.energy": draw.normal(size=ROWS),
    })  # fmt: skip
    return frame.assign(truth=truth, **more)


@contextmanager
def explored(given):
    server = server_of(given, 0)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield server.url
    finally:
        server.shutdown()
        server.server_close()


@contextmanager
def served(folder, frame, classes=CLASSES):
    table = pa.Table.from_pandas(frame.drop(columns="truth"), preserve_index=False)
    told = {} if classes is None else {"classes": str(classes).replace("'", '"')}
    path = folder / "v.parquet"
    pq.write_table(table.replace_schema_metadata(told), path)
    given = Given.open(
        path, inputs=None, model=None, judge=None, words=None,
        of_model=o.ModelOptions(), of_data=o.DataOptions(),
    )  # fmt: skip
    with explored(given) as url:
        yield url, given


def go(page, url):
    page.goto("about:blank")  # else only the part behind # would change
    page.goto(url)
    page.locator(".row").first.wait_for()


def by_hand(folder, frame, **more):
    """The address of a page of this frame, without a server."""
    data = {"title": "v", "version": "0", "rows": len(frame), "details": {}, "classes": CLASSES}
    data["columns"] = columns_of(frame)
    (folder / "page.html").write_text(render({**data, **more}, title="v"), "utf-8")
    return (folder / "page.html").as_uri()


def reading(page):
    return page.locator(".reading-of").inner_text().replace("\n", " ")


def shown(page):
    return int(page.locator(".total").inner_text().split()[0].replace(",", ""))


def opened(folder, model, **data):
    return Given.open(
        folder / "verdicts.parquet", inputs=folder / "x.npy", model=model, judge=folder / "judge",
        words=folder / "words.txt" if (folder / "words.txt").exists() else None,
        of_model=o.ModelOptions(), of_data=o.DataOptions(**data),
    )  # fmt: skip


def judged(folder, judge, x, scale=None):
    folder.mkdir(exist_ok=True)
    judge.save(folder / "judge")
    np.save(folder / "x.npy", x)
    source = cr.open_source(folder / "x.npy", scale=scale)
    cr.judge_file(judge, source, folder / "verdicts.parquet")
    return folder
