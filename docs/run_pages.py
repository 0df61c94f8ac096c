"""Run the tutorials: `python -m docs.run_pages` checks them, `--write` refreshes what they show.

A page is run as a reader would: its `python` blocks in one session and its `bash` blocks in a
shell, from top to bottom, in an empty folder. What a block prints stands in the `text` block
after it. A picture that a block writes is shown by the link with its name. A `bash` block that
starts with "# in another terminal" runs until the end of the page.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
TUTORIALS = ROOT / "docs" / "tutorials"
OTHER_TERMINAL = "# in another terminal"
NEAR, NEAR_COUNT, SHARE = 0.03, 2.0, 0.1
"""Numbers of two machines agree within a tenth, or this much; counts within two."""

_FENCE = re.compile(r"^```(\w+)\n(.*?)^```\n", re.DOTALL | re.MULTILINE)
_NUMBER = re.compile(r"(?<![\w.])-?\d+(?:,\d{3})*(?:\.\d+)?(?:e[-+]?\d+)?(?![\w])")
_PICTURE = re.compile(r"!\[[^\]]*\]\(([^)\s]+\.png)\)")


@dataclass(frozen=True)
class Block:
    """One block of code of a page, and the output that the page shows for it.

    Attributes:
        kind: 'python' or 'bash'.
        code: what runs.
        shown: the text below it; '' if there is none.
        code_end: the place in the page after the code.
        end: the place after the output.
    """

    kind: str
    code: str
    shown: str
    code_end: int
    end: int


def blocks_of(page: str) -> list[Block]:
    """The blocks that run, each with the output that stands right below it."""
    fences = list(_FENCE.finditer(page))
    found = []
    for fence, after in zip(fences, [*fences[1:], None], strict=True):
        if fence[1] not in ("python", "bash"):
            continue
        below = after is not None and after[1] == "text"
        if below and after is not None and not page[fence.end() : after.start()].strip():
            found.append(Block(fence[1], fence[2], after[2], fence.end(), after.end()))
        else:
            found.append(Block(fence[1], fence[2], "", fence.end(), fence.end()))
    return found


def run_page(page: str, folder: Path) -> Iterator[tuple[Block, str]]:
    """Run a page in a folder; each block with what it printed."""
    names: dict[str, Any] = {"__name__": "__tutorial__"}
    others: list[subprocess.Popen[str]] = []
    try:
        with contextlib.chdir(folder), _own_modules(folder):
            for block in blocks_of(page):
                if block.kind == "python":
                    yield block, _run_python(block.code, names)
                elif block.code.startswith(OTHER_TERMINAL):
                    others.append(_start(block.code))
                    yield block, ""
                else:
                    yield block, _run_shell(block.code)
    finally:
        for process in others:
            process.terminate()
            process.wait(30)


@contextlib.contextmanager
def _own_modules(folder: Path) -> Iterator[None]:
    """Let the page import files that it writes, as Python does in a folder, and forget them."""
    known = set(sys.modules)
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))
        for name in set(sys.modules) - known:
            if str(getattr(sys.modules[name], "__file__", "")).startswith(str(folder)):
                del sys.modules[name]


def _run_python(code: str, names: dict[str, Any]) -> str:
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        exec(compile(code, "<tutorial>", "exec"), names)  # noqa: S102  # our own pages
    return said.getvalue()


def _shell(code: str) -> tuple[list[str], dict[str, str]]:
    """The command of a block, with this Python's programs first, and its environment."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return ["bash", "-euc", code], os.environ | {"PATH": path, "COLUMNS": "100"}


def _run_shell(code: str) -> str:
    command, env = _shell(code)
    done = subprocess.run(  # noqa: S603
        command, env=env, check=False, capture_output=True, text=True, timeout=120
    )
    if done.returncode:
        raise RuntimeError(f"{code}\nended with {done.returncode}: {done.stderr}{done.stdout}")
    return done.stdout


def _start(code: str) -> subprocess.Popen[str]:
    command, env = _shell(f"exec {code.removeprefix(OTHER_TERMINAL).strip()}")
    quiet = subprocess.DEVNULL
    return subprocess.Popen(command, env=env, text=True, stdout=quiet, stderr=quiet)  # noqa: S603


def differences(shown: str, said: str) -> str:
    """What differs between the output that a page shows and what was printed; '' if nothing.

    Spaces at will, numbers within a tolerance; a line of "..." stands for any lines.
    """
    expected, got = _lines(shown), _lines(said)
    if "..." not in expected:
        return _differ(expected, got)
    cut = expected.index("...")
    head, tail = expected[:cut], expected[cut + 1 :]
    return _differ(head, got[:cut]) or _differ(tail, got[len(got) - len(tail) :])


def _lines(text: str) -> list[str]:
    return [" ".join(line.split()) for line in text.strip().splitlines()]


def _differ(expected: list[str], got: list[str]) -> str:
    if len(expected) != len(got):
        return f"{len(expected)} lines, not {len(got)}:\n" + "\n".join(got)
    for one, other in zip(expected, got, strict=True):
        if _NUMBER.sub("0", one) != _NUMBER.sub("0", other):
            return f"{one!r}, not {other!r}"
        pairs = zip(_NUMBER.findall(one), _NUMBER.findall(other), strict=True)
        if not all(near(left, right) for left, right in pairs):
            return f"{one!r}, not {other!r}"
    return ""


def near(shown: str, said: str) -> bool:
    """Whether two numbers as text agree, as far as two machines can be asked to."""
    one, other = (float(text.replace(",", "")) for text in (shown, said))
    least = NEAR if "." in shown else NEAR_COUNT
    return abs(one - other) <= max(least, SHARE * abs(one))


def pictures_of(page: str) -> list[str]:
    """Links to pictures, as the page has them."""
    return _PICTURE.findall(page)


def faults_of(path: Path, folder: Path, *, drawn: bool = True) -> list[str]:
    """What a page shows that running it does not give; its pictures too, if it draws them."""
    page = path.read_text("utf-8")
    found = []
    for block, said in run_page(page, folder):
        if fault := differences(block.shown, said):
            found.append(f"{path.name}, after\n{block.code}shows {fault}")
    links = pictures_of(page) if drawn else []
    missing = [link for link in links if not (folder / Path(link).name).is_file()]
    return found + [f"{path.name} shows {link}, which no block writes" for link in missing]


def rewrite(path: Path, folder: Path) -> None:
    """Run a page, and put what it printed and drew into it."""
    page, parts, at = path.read_text("utf-8"), [], 0
    for block, said in run_page(page, folder):
        keep = not differences(block.shown, said) if "..." in block.shown else block.shown == said
        output = f"\n```text\n{said.rstrip()}\n```\n" if said.strip() else ""
        parts += [page[at : block.code_end], page[block.code_end : block.end] if keep else output]
        at = block.end
    path.write_text("".join([*parts, page[at:]]), "utf-8")
    for link in pictures_of(page):
        if (folder / Path(link).name).is_file():
            shutil.copyfile(folder / Path(link).name, path.parent / link)


def main() -> int:
    """Check the pages that are named, or all; with `--write` refresh them."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # small models, beside other work
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pages", nargs="*", help="tutorials such as images, or README.md; all")
    parser.add_argument("--write", action="store_true", help="put in what runs print and draw")
    given, faults = parser.parse_args(), []
    named = [
        ROOT / name if name.endswith(".md") else TUTORIALS / f"{name}.md" for name in given.pages
    ]
    chosen = named or sorted(TUTORIALS.glob("*.md"))
    for path in chosen:
        start = time.perf_counter()
        with tempfile.TemporaryDirectory() as folder:
            if given.write:
                rewrite(path, Path(folder))
            else:
                faults += faults_of(path, Path(folder), drawn=path.parent == TUTORIALS)
        print(f"{path.stem}: {time.perf_counter() - start:.1f} s")
    print(*faults, sep="\n")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
