"""Options that the commands share, and how words become settings."""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.console import Console

from credibly.errors import CrediblyWarning, InvalidArgumentError

if TYPE_CHECKING:
    from credibly.io.models import LoadedClassifier
    from credibly.io.sources import Source

_MODEL = "The model"
_DATA = "The data"

Model = Annotated[
    str,
    typer.Argument(
        help="package.module:attribute, path/to/file.py:attribute, or a .skops, .pt2, .pkl, "
        ".pickle or .joblib file."
    ),
]
Data = Annotated[Path, typer.Argument(help="File or folder of inputs.")]
MaybeData = Annotated[Path | None, typer.Argument(help="File or folder of inputs.")]
Weights = Annotated[
    Path | None,
    typer.Option(help="Weights (.safetensors) for the module.", rich_help_panel=_MODEL),
]
Outputs = Annotated[
    Literal["logits", "probabilities"] | None,
    typer.Option(help="What the model returns; logits by default.", rich_help_panel=_MODEL),
]
Loss = Annotated[
    str | None,
    typer.Option(
        help="cross_entropy, logistic, hinge or one_versus_rest_hinge.", rich_help_panel=_MODEL
    ),
]
Classes = Annotated[
    str | None,
    typer.Option(
        help="Names of the classes, separated by commas, or a text file of a name a line.",
        rich_help_panel=_MODEL,
    ),
]
Preprocess = Annotated[
    str | None,
    typer.Option(help="module:attribute of a function of a batch.", rich_help_panel=_MODEL),
]
Dtype = Annotated[
    Literal["float32", "float64"] | None,
    typer.Option(help="Precision to convert the model to.", rich_help_panel=_MODEL),
]
Device = Annotated[
    str | None, typer.Option(help="Where to compute: cpu, cuda, ...", rich_help_panel=_MODEL)
]
Trust = Annotated[
    list[str] | None,
    typer.Option(help="A type that a .skops file may hold. Repeatable.", rich_help_panel=_MODEL),
]
UnsafePickle = Annotated[
    bool,
    typer.Option(
        "--unsafe-pickle",
        help="Open .pkl, .pickle, .joblib and .pt2 files. THIS EXECUTES CODE in the file: whoever "
        "made it can do anything you can. Only for files you trust.",
        rich_help_panel=_MODEL,
    ),
]
Key = Annotated[
    str | None,
    typer.Option(help="Array of an .npz or .safetensors file.", rich_help_panel=_DATA),
]
Columns = Annotated[
    list[str] | None,
    typer.Option(help="Feature columns of a table, by commas.", rich_help_panel=_DATA),
]
Drop = Annotated[
    list[str] | None,
    typer.Option(help="Columns that are no features, by commas.", rich_help_panel=_DATA),
]
Id = Annotated[
    str | None,
    typer.Option("--id", help="Column that names the rows.", rich_help_panel=_DATA),
]
Scale = Annotated[
    float | None,
    typer.Option(help="Divide arrays by this, e.g. 255 for bytes.", rich_help_panel=_DATA),
]
Size = Annotated[
    str | None,
    typer.Option(help="Resize images: HEIGHTxWIDTH or one number.", rich_help_panel=_DATA),
]
Mode = Annotated[
    Literal["grey", "rgb"] | None,
    typer.Option(help="Take images as grey or rgb.", rich_help_panel=_DATA),
]
Limit = Annotated[
    int | None, typer.Option(min=1, help="Only the first rows.", rich_help_panel=_DATA)
]
Gamma = Annotated[
    str,
    typer.Option(help="How dear it is to move the input: a number, or 'auto'."),
]
BoundsPair = Annotated[
    tuple[float, float] | None,
    typer.Option(metavar="LOW HIGH", help="Smallest and largest value of a feature."),
]
Effort = Annotated[
    float,
    typer.Option(
        metavar="NUMBER",
        help="Scales the length of a solve: 0.5 is quicker, 4 goes a little lower.",
    ),
]
ChunkSize = Annotated[int, typer.Option(min=1, help="Rows solved at a time.")]


@dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """What a command asks about the model."""

    weights: Weights = None
    outputs: Outputs = None
    loss: Loss = None
    classes: Classes = None
    preprocess: Preprocess = None
    dtype: Dtype = None
    device: Device = None
    trust: Trust = None
    unsafe_pickle: UnsafePickle = False

    def load(self, spec: str) -> LoadedClassifier:
        """The model that the options describe; modules in the working folder can be named."""
        import torch

        from credibly.io.models import load_classifier

        if str(Path.cwd()) not in sys.path:
            sys.path.insert(0, str(Path.cwd()))  # as `python -m` does
        return load_classifier(
            spec,
            trusted=True if self.unsafe_pickle else tuple(self.trust or ()),
            classes=_class_names(self.classes),
            dtype=None if self.dtype is None else getattr(torch, self.dtype),
            weights=self.weights,
            outputs=self.outputs,
            loss=self.loss,
            preprocess=self.preprocess,
            device=self.device,
        )


@dataclass(frozen=True, kw_only=True)
class DataOptions:
    """What a command asks about the data."""

    key: Key = None
    columns: Columns = None
    drop: Drop = None
    id_column: Id = None
    scale: Scale = None
    size: Size = None
    mode: Mode = None
    limit: Limit = None

    def open(self, path: Path) -> Source:
        """The data that the options describe."""
        from credibly.io.sources import open_source

        return open_source(
            path,
            columns=_split(self.columns) or None,
            drop=_split(self.drop),
            size=_size(self.size),
            key=self.key,
            id_column=self.id_column,
            scale=self.scale,
            mode=self.mode,
            limit=self.limit,
        )


def as_gamma(text: str) -> float | Literal["auto"]:
    """A number, or 'auto'."""
    if text.lower() == "auto":
        return "auto"
    try:
        return float(text)
    except ValueError as error:
        raise InvalidArgumentError(
            "gamma", expected="a number or 'auto'", got=repr(text), remedy="For example 200."
        ) from error


_IN_PYTHON = {
    "use Hybrid(effort=4)": "pass --effort 4",
    "use a solver of more steps, or Hybrid()": "pass a larger --effort",
    ", in Python weights=...": "",
    "outputs='probabilities'": "--outputs probabilities",
    "gamma='auto'": "--gamma auto",
    "Convert both: net.float() and x.float()": "Pass --dtype float32",
}

_BOTH = re.compile(
    r"""(?: \w+ \( [^()]* \)                                       # Classifier(...)
          | \w+ = (?: \[ [^]]* \] | \( [^)]* \) | '[^']*' | \w+ )  # overwrite=True
          | \w+ _ \w+ )                                           # chunk_size
        [ ] \( (-- [^)]+) \)                                      # (--option)""",
    re.VERBOSE,
)
"""How messages name what is set in Python and, behind it, its option."""


def as_options(message: str) -> str:
    """What the library says in the words of the command line."""
    message = _BOTH.sub(r"\1", message)
    for python, option in _IN_PYTHON.items():
        message = message.replace(python, option)
    return re.sub(r"\bgamma=(?=\d)", "--gamma ", message)


@contextmanager
def plain_warnings() -> Iterator[list[str]]:
    """Print each of credibly's warnings once, as a line; gives those that were printed."""
    shown: list[str] = []

    def show(message: Warning | str, *_: object, **__: object) -> None:
        text = f"warning: {as_options(str(message))}"
        if text in shown:  # the filter forgets, whenever other code changes filters
            return
        shown.append(text)
        Console(stderr=True).print(text, style="yellow", markup=False, soft_wrap=True)

    with warnings.catch_warnings():
        warnings.simplefilter("once", CrediblyWarning)
        warnings.showwarning = show
        yield shown


def _split(values: list[str] | None) -> list[str]:
    return [name for value in values or [] for name in value.split(",") if name]


def _class_names(text: str | None) -> list[str] | None:
    if text is None:
        return None
    if "," not in text:  # one name alone is none: there are two classes at least
        if not Path(text).is_file():
            raise InvalidArgumentError(
                "classes",
                expected="names separated by commas, or a text file of a name a line",
                got=f"{text!r}, which is no file and one name only",
                remedy="Look at the path, or pass all names: --classes cat,dog.",
            )
        lines = Path(text).read_text("utf-8").splitlines()
        return [line.strip() for line in lines if line.strip()]
    return [name.strip() for name in text.split(",")]


def _size(text: str | None) -> int | tuple[int, int] | None:
    if text is None:
        return None
    numbers = text.lower().split("x")
    if not all(number.isdecimal() for number in numbers) or len(numbers) > 2:
        raise InvalidArgumentError(
            "size", expected="HEIGHTxWIDTH or one number", got=repr(text), remedy="E.g. 224x224."
        )
    height, width = int(numbers[0]), int(numbers[-1])
    return height, width
