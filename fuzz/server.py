"""Work in forks of a process that has loaded everything: a crash, a kill or a limit costs one fork.

Started as `python -m fuzz.server`, it reads requests, one JSON object per line, and forks for each.
The lines of the fork are passed on as they come, then how it ended.
"""

from __future__ import annotations

import json
import os
import resource
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib import import_module
from typing import Any, Self, TextIO

from fuzz.tally import ROOT

QUICK = (
    "fuzz.files", "fuzz.work", "credibly.batch.score", "credibly.profile.parquet",
    "credibly.study.summary", "pandas", "pyarrow.csv", "pyarrow.parquet", "PIL.PngImagePlugin",
    "PIL.JpegImagePlugin", "credibly.study.study", "torch._dynamo", "pyarrow.dataset",
)  # fmt: skip
SLOW = "sklearn.linear_model", "sklearn.pipeline", "skops.io", "credibly.io.model_archives"
"""Loaded once for all forks; what is not listed is loaded by each."""

HANG = "hang"
"""How a fork ended that said nothing for too long, and was killed."""


def python_path() -> str:
    """This folder, then the caller's: forks must try the same package."""
    return os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))


class Forks:
    """The client: starts the server, sends requests, and gives what their forks say."""

    def __init__(self, *, quick: bool = False) -> None:
        environment = {**os.environ, "PYTHONPATH": python_path(), "OMP_NUM_THREADS": "1"}
        environment |= {"MALLOC_ARENA_MAX": "2", "PYTHONHASHSEED": "0"}
        command = [sys.executable, "-m", "fuzz.server", *(["--quick"] if quick else [])]
        self._process = subprocess.Popen(  # noqa: S603
            command,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            text=True, env=environment, cwd=ROOT,
        )  # fmt: skip

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()
        self._process.wait()

    def call(self, function: str, argument: Any, *, silence: float = 30.0) -> Iterator[Any]:
        """What `function` ('module:name') yields in a fork; the last item is how it ended."""
        assert self._process.stdin is not None  # noqa: S101
        assert self._process.stdout is not None  # noqa: S101
        request = {"function": function, "argument": argument, "silence": silence}
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        for line in self._process.stdout:
            if not line.strip():
                continue
            try:
                answer = json.loads(line)
            except ValueError:  # a line of a fork that died while it wrote
                continue
            yield answer
            if isinstance(answer, dict) and "ended" in answer:
                return
        message = "the server of forks ended"
        raise RuntimeError(message)


def limit_memory(more: int) -> None:
    """Allow this process so many bytes more than it has."""
    with open("/proc/self/statm") as file:  # noqa: PTH123
        pages = int(file.read().split()[0])
    most = pages * resource.getpagesize() + more
    resource.setrlimit(resource.RLIMIT_AS, (most, most))


def _child(request: dict[str, Any], out: TextIO) -> None:
    """In the fork: run the function, and never come back."""
    module, _, name = request["function"].partition(":")
    code = 1
    try:
        for said in getattr(import_module(module), name)(request["argument"]):
            out.write(json.dumps(said) + "\n")
            out.flush()
        code = 0
    finally:
        os._exit(code)


def _serve(request: dict[str, Any]) -> None:
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        with os.fdopen(writing, "w") as out:
            _child(request, out)
    os.close(writing)
    hanging = False
    with os.fdopen(reading, "rb", buffering=0) as said:
        while True:
            if not select.select([said], [], [], request["silence"])[0]:
                os.kill(pid, signal.SIGKILL)
                hanging = True
                break
            piece = said.read(65536)
            if not piece:
                break
            sys.stdout.write(piece.decode())
            sys.stdout.flush()
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    sys.stdout.write("\n" + json.dumps({"ended": HANG if hanging else code}) + "\n")
    sys.stdout.flush()


def die(_: object) -> Iterator[None]:
    """Exit in the middle of something."""
    yield None
    os._exit(9)


def sleep(_: object) -> Iterator[None]:
    """Say nothing for too long."""
    yield None
    time.sleep(60)


def flood(_: object) -> Iterator[int]:
    """Take more memory than is allowed."""
    limit_memory(1 << 28)
    yield len(bytearray(1 << 29))


def load_once(*, quick: bool) -> None:
    """Load what the forks will need, and compute nothing: threads would not survive a fork."""
    for name in (*QUICK, *(() if quick else SLOW)):
        import_module(name)


def main() -> None:
    """Load what the forks need, then serve until the input ends."""
    import torch

    torch.set_num_threads(1)
    load_once(quick="--quick" in sys.argv)
    for line in sys.stdin:
        _serve(json.loads(line))


if __name__ == "__main__":
    main()
