"""Which files of the package a call goes through, in the order in which it first enters them.

python -m benchmarks.walk            # credibility(...) of two inputs, and `score` of a small file
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import numpy as np
import torch

import credibly as cr

PACKAGE = Path(cr.__file__).parent


def files_of(call: Callable[[], object]) -> list[str]:
    """The files whose functions run, each once, in order."""
    seen: dict[str, None] = {}

    def note(frame: FrameType, event: str, _: object) -> None:
        path = Path(frame.f_code.co_filename)
        module_body = frame.f_code.co_name == "<module>"
        if event == "call" and not module_body and path.is_relative_to(PACKAGE):
            seen.setdefault(str(path.relative_to(PACKAGE)))

    call()  # once before, so that no class body of a module loaded on the way is counted
    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
    return list(seen)


def returns_to(folder: str, files: list[str]) -> int:
    """How often the walk comes back to a folder that it had left."""
    visits = [name.split("/")[0] == folder for name in files]
    entries = sum(now and not before for before, now in zip([False, *visits], visits, strict=False))
    return max(0, entries - 1)


def show(title: str, files: list[str]) -> None:
    """One line per file."""
    print(f"{title}: {len(files)} files, {returns_to('model', files)} returns to model/")
    for name in files:
        print(f"  {name}")


def main() -> None:
    """Print both walks."""
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
    clf, x = cr.Classifier(net), torch.randn(6, 4)
    show("credibility(...)", files_of(lambda: cr.credibility(clf, x, gamma=1.0)))
    with tempfile.TemporaryDirectory() as folder:
        data, out = Path(folder) / "x.npy", Path(folder) / "profiles.parquet"
        np.save(data, x.numpy())
        show("score(...)", files_of(lambda: cr.score(clf, data, out, gamma=1.0, overwrite=True)))


if __name__ == "__main__":
    main()
