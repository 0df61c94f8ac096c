"""The lowest supported versions: `python -m tests.lowest` installs them and tests with them.

Every library that pyproject.toml names gets the lowest version that it allows, in an environment
of its own (build/lowest); only torch is that of constraints.txt. What the tests need besides is
new. Warnings are no errors here: old libraries warn of each other. `--resolve` only asks whether
such versions exist together. Needs uv, and a package index.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "build" / "lowest"
EXTRAS = ("standard", "attacks", "conformal", "datasets", "graph", "serve", "skorch", "text")
TOOLS = (
    "cvxpy>=1.6",
    "httpx>=0.27",
    "hypothesis>=6.100",
    "ipykernel>=6.29",
    "nbclient>=0.10",
    "psutil>=5.9",
    "pytest>=8.3,<9.1",
    "pytest-xdist>=3.6",
    "pyyaml>=6",
    "scipy>=1.14",
    "statsmodels>=0.14",
)
PARTS = (
    "adapters/sklearn",
    "adapters/test_graphs.py",
    "adapters/test_skorch.py",
    "adapters/test_transformers.py",
    "attacks",
    "baselines",
    "cli",
    "data",
    "decide",
    "e2e/test_command_line.py",
    "e2e/test_judge_command.py",
    "estimator",
    "explore",
    "io",
    "metrics",
    "plot",
    "profile",
    "report",
    "study",
    "test_notebook.py",
)
LEFT_OUT = (
    "io/test_onnx_files.py",  # JAX, Ray and ONNX move too fast for old versions
    "io/test_places.py", "io/test_store_sources.py", "io/test_tars.py",  # S3 with its stand-in
    "estimator/test_page.py",  # pandas 2 has None where scikit-learn wants NaN
)  # fmt: skip

UNLIKELY = "not equal_knots and not m.onnx and not verdicts_of_the_judge_in_python"
"""Not the package's: other NaN of splines whose knots are all equal, ONNX, and a comparison to the
last digit that hangs on how pandas lays out its memory."""


class UvError(Exception):
    """What uv said."""


def uv(*arguments: str) -> None:
    """Run uv in the root of the repository."""
    command = [sys.executable, "-m", "uv", *arguments]
    done = subprocess.run(command, cwd=ROOT, check=False, stderr=subprocess.PIPE, text=True)  # noqa: S603
    if done.returncode:
        raise UvError(done.stderr)


def resolve(pins: Path, extras: tuple[str, ...] = EXTRAS) -> None:
    """Write the lowest versions of everything, as requirements."""
    pins.parent.mkdir(parents=True, exist_ok=True)
    wanted = [part for name in extras for part in ("--extra", name)]
    uv(
        "pip", "compile", "pyproject.toml", *wanted, "--resolution", "lowest-direct",
        "--override", "constraints.txt", "--python-version", "3.11",
        "--no-header", "--no-annotate", "--quiet", "--output-file", str(pins),
    )  # fmt: skip


def install(pins: Path, folder: Path) -> Path:
    """An environment with these versions; returns its Python."""
    uv("venv", "--quiet", "--clear", "--python", sys.executable, str(folder))
    python = folder / "bin" / "python"
    uv(
        "pip", "install", "--quiet", "--python", str(python), "--requirement", str(pins),
        "--constraint", str(pins), "--editable", ".", *TOOLS,
    )  # fmt: skip
    return python


def run_tests(python: Path, parts: tuple[str, ...], workers: int) -> int:
    """Run these parts of the suite; the exit code of pytest."""
    left_out = [part for name in LEFT_OUT for part in ("--ignore", f"tests/{name}")]
    command = [
        str(python),
        "-m",
        "pytest",
        "-q",
        "-n",
        str(workers),
        "-o",
        "filterwarnings=default",
        "--disable-warnings",
        "-p",
        "no:cacheprovider",
        *left_out,
        "-k",
        UNLIKELY,
        *(f"tests/{part}" for part in parts),
    ]
    env = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.run(command, cwd=ROOT, env=env, check=False).returncode  # noqa: S603


def main() -> int:
    """Resolve, install, test."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--resolve", action="store_true", help="only find the versions")
    parser.add_argument("--workers", type=int, default=2, help="that test at the same time")
    parser.add_argument("parts", nargs="*", help="of the suite; a good part of it by default")
    given = parser.parse_args()
    pins = FOLDER.with_suffix(".txt")
    resolve(pins)
    if given.resolve:
        print(pins.read_text("utf-8"), end="")  # noqa: T201
        return 0
    return run_tests(install(pins, FOLDER), tuple(given.parts) or PARTS, given.workers)


if __name__ == "__main__":
    sys.exit(main())
