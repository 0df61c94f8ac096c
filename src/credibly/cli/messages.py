"""Messages of the library in terms of the command line."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from credibly.cli.console import print_error
from credibly.errors import CrediblyWarning

_IN_PYTHON = {
    "Hybrid(effort=4)": "--effort 4",
    "use a solver with more steps, or Hybrid()": "pass a larger --effort",
    ", in Python weights=...": "",
    "outputs='probabilities'": "--outputs probabilities",
    "gamma='auto'": "--gamma auto",
    "Convert both: net.float() and x.float()": "Pass --dtype float32",
    "`net`: expected": "MODEL: expected",
    "`ordinary`: expected": "ordinary inputs: expected",
    "`source`: expected": "DATA: expected",
    "`path`: expected": "DATA: expected",
    "leave error_rate out": "leave out --error-rate",
}

_BOTH = re.compile(
    r"""(?: \w+ \( [^()]* \)                                       # Classifier(...)
          | \w+ = (?: \[ [^]]* \] | \( [^)]* \) | '[^']*' | \w+ )  # overwrite=True
          | \w+ _ \w+ )                                           # chunk_size
        [ ] \( (-- [^)]+) \)                                      # (--option)""",
    re.VERBOSE,
)
"""Messages name the Python argument and, in brackets, the option."""


_SPREADS = re.compile(r"(?<=columns spread) by \S+ to [^:]+")
"""Numbers that differ from set to set in what is otherwise one warning."""


_NAMES = re.compile(
    r"`?\b(id_column|chunk_size|shard_size|working_dir|graph_output|(?:gpus|cpus)_per_worker)\b`?(?!=)"
)
"""Arguments whose options have another name."""

_NUMBERS = re.compile(r"\b(gamma|scale|size|limit)=(?=\d)")

_PATH = re.compile(r"\b(?:Posix|Windows)Path\(('[^']*'|\"[^\"]*\")\)")


def as_options(message: str) -> str:
    """A message of the library with options instead of Python arguments."""
    message = _BOTH.sub(r"\1", message)
    for python, option in _IN_PYTHON.items():
        message = message.replace(python, option)
    message = _NAMES.sub(lambda found: _option(found[1]), message)
    return _PATH.sub(r"\1", _NUMBERS.sub(r"--\1 ", message))


def _option(name: str) -> str:
    return "--id" if name == "id_column" else f"--{name.replace('_', '-')}"


@contextmanager
def plain_warnings() -> Iterator[list[str]]:
    """Print each of credibly's warnings once, as a line; yields those that were printed."""
    shown: list[str] = []

    def show(message: Warning | str, *_: object, **__: object) -> None:
        text = f"warning: {as_options(str(message))}"
        kind = _SPREADS.sub("", text)
        if kind not in shown:  # the filter of `warnings` is reset when other code changes filters
            shown.append(kind)
            print_error(text, "yellow")

    with warnings.catch_warnings():
        warnings.simplefilter("once", CrediblyWarning)
        warnings.showwarning = show
        yield shown
