"""Peak memory of `score` over files of few and of many rows, for every format.

    python -m benchmarks.memory                              # 100,000 and 1,000,000 rows
    python -m benchmarks.memory --rows 10000 300000 --formats parquet npz

Each number is the peak of a process of its own, in MB: the libraries alone take most of it. The
last columns are what the additional rows cost.
"""

from __future__ import annotations

import argparse
import re
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

COLUMNS = 20
FORMATS = ("npy", "npz", "safetensors", "csv", "parquet")


def write(path: Path, rows: int) -> None:
    """Write random numbers in the format of the name."""
    import numpy as np
    import pyarrow as pa
    import torch
    from pyarrow import csv, parquet
    from safetensors.torch import save_file

    x = np.random.default_rng(0).normal(size=(rows, COLUMNS))
    table = pa.table({f"x{k}": x[:, k] for k in range(COLUMNS)})
    if path.suffix == ".npy":
        np.save(path, x)
    elif path.suffix == ".npz":
        np.savez_compressed(path, x=x)
    elif path.suffix == ".safetensors":
        save_file({"x": torch.from_numpy(x)}, path)
    elif path.suffix == ".csv":
        csv.write_csv(table, path)
    else:
        parquet.write_table(table, path)  # one row group: the hardest to read in pieces


def score(path: Path, _: int) -> None:
    """Score every row, with one step each: it is reading and writing that is measured."""
    import torch

    import credibly as cr

    torch.manual_seed(0)
    clf = cr.Classifier(torch.nn.Linear(COLUMNS, 3).double().eval())
    solver = cr.solvers.GradientDescent(steps=1)
    cr.score(clf, path, path.with_suffix(".profiles"), gamma=1.0, solver=solver, chunk_size=1024)
    print(peak())


def peak() -> float:
    """Return the peak memory of this process in MB."""
    status = Path("/proc/self/status")
    if status.exists():  # the usage below may count what the parent process had
        found = re.search(r"VmHWM:\s+(\d+) kB", status.read_text("utf-8"))
        if found:
            return int(found[1]) / 1024
    unit = 1 << 20 if sys.platform == "darwin" else 1 << 10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit


def measure(name: str, rows: int) -> float:
    """Return the peak of scoring a file of so many rows."""
    with tempfile.TemporaryDirectory() as folder:
        for step in ("write", "score"):
            command = [sys.executable, "-m", "benchmarks.memory", step, f"{folder}/x.{name}"]
            done = subprocess.run(  # noqa: S603  # this very file
                [*command, "--rows", str(rows)], check=True, capture_output=True, text=True
            )
    return float(done.stdout)


def main() -> None:
    """Print the table, or do one step of it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("step", nargs="?", choices=("write", "score"))
    parser.add_argument("path", nargs="?", type=Path)
    parser.add_argument("--rows", type=int, nargs="+", default=[100_000, 1_000_000])
    parser.add_argument("--formats", nargs="+", default=FORMATS, choices=FORMATS)
    given = parser.parse_args()
    if given.step is not None:
        (write if given.step == "write" else score)(given.path, given.rows[0])
        return
    print(
        "MB at the peak " + "".join(f"{rows:>10} rows" for rows in given.rows) + "      more     %"
    )
    for name in given.formats:
        found = [measure(name, rows) for rows in given.rows]
        line = "".join(f"{mb:>15.0f}" for mb in found)
        more = found[-1] - found[0]
        print(f"{name:<15}{line}{more:>10.0f}{100 * more / found[0]:>6.1f}", flush=True)


if __name__ == "__main__":
    main()
