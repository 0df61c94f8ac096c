"""Options that commands share, written once as dataclasses."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_type_hints

import typer

from credibly.cli.messages import as_options, plain_warnings
from credibly.errors import InvalidArgumentError, OutputError

if TYPE_CHECKING:
    from credibly.io.models import LoadedClassifier
    from credibly.io.sources import Source


__all__ = ["as_options", "plain_warnings"]


def _model(help: str, *names: str) -> Any:  # noqa: A002  # typer's word
    return typer.Option(*names, help=help, rich_help_panel="The model")


def _data(help: str, *names: str, **more: Any) -> Any:  # noqa: A002
    return typer.Option(*names, help=help, rich_help_panel="The data", **more)


Model = Annotated[
    str,
    typer.Argument(
        help="package.module:attribute, path/to/file.py:attribute, or an .onnx, .skops, .pt2, "
        ".pkl, .pickle or .joblib file."
    ),
]


def _named(text: str) -> Path:
    """An empty name would be the working folder."""
    if not text:
        raise typer.BadParameter("expected a file, a folder or a pattern, got an empty name.")
    return Path(text)


Data = Annotated[
    Path,
    typer.Argument(help="File, folder or pattern of inputs, here or in a store.", parser=_named),
]
MaybeData = Annotated[
    Path | None,
    typer.Argument(help="File, folder or pattern of inputs, here or in a store.", parser=_named),
]
Gamma = Annotated[
    str,
    typer.Option(metavar="NUMBER|auto", help="Cost of moving the input: a number, or 'auto'."),
]
BoundsPair = Annotated[
    tuple[float, float] | None,
    typer.Option(metavar="LOW HIGH", help="Smallest and largest value of a feature: 0 1."),
]
Effort = Annotated[
    float,
    typer.Option(
        metavar="NUMBER", help="Length of a solve: 0.5 is quicker, 4 finds slightly lower minima."
    ),
]
ChunkSize = Annotated[int, typer.Option(min=1, help="Rows solved at a time.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace a finished output.")]


@dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """Options about the model."""

    weights: Annotated[Path | None, _model("Weights (.safetensors) for the module.")] = None
    outputs: Annotated[
        Literal["logits", "probabilities"] | None,
        _model("What the model returns; logits by default."),
    ] = None
    loss: Annotated[
        str | None, _model("cross_entropy, logistic, hinge or one_versus_rest_hinge.")
    ] = None
    classes: Annotated[
        str | None, _model("Names of the classes, separated by commas, or a file of one per line.")
    ] = None
    preprocess: Annotated[
        str | None, _model("module:attribute of a function that is applied to each batch.")
    ] = None
    dtype: Annotated[
        Literal["float32", "float64"] | None, _model("Precision to convert the model to.")
    ] = None
    device: Annotated[str | None, _model("Where to compute: cpu, cuda, ...")] = None
    graph_output: Annotated[
        str | None, _model("Output of an .onnx graph, or a value inside it, to use.")
    ] = None
    trust: Annotated[
        list[str] | None, _model("A type that a .skops file may hold. Repeatable.")
    ] = None
    unsafe_pickle: Annotated[
        bool,
        _model(
            "Open .pkl, .pickle, .joblib and .pt2 files. THIS EXECUTES CODE in the file, with "
            "your rights. Only for files you trust.",
            "--unsafe-pickle",
        ),
    ] = False

    def load(self, spec: str) -> LoadedClassifier:
        """Load the model; modules in the working folder are found."""
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
            graph_output=self.graph_output,
        )


@dataclass(frozen=True, kw_only=True)
class DataOptions:
    """Options about the data."""

    key: Annotated[str | None, _data("Array of an .npz or .safetensors file.")] = None
    columns: Annotated[
        list[str] | None, _data("Feature columns of a table, separated by commas.")
    ] = None
    drop: Annotated[
        list[str] | None, _data("Columns that are not features, separated by commas.")
    ] = None
    id_column: Annotated[str | None, _data("Column that names the rows.", "--id")] = None
    label: Annotated[
        str | None,
        _data("Column of the true classes, carried into the output; 'folder' for images."),
    ] = None
    scale: Annotated[float | None, _data("Divide arrays by this, e.g. 255 for bytes.")] = None
    size: Annotated[str | None, _data("Resize images: HEIGHTxWIDTH or one number.")] = None
    mode: Annotated[Literal["grey", "rgb"] | None, _data("Convert images to grey or rgb.")] = None
    limit: Annotated[int | None, _data("Use only the first rows.", min=1)] = None

    def open(self, path: Path) -> Source:
        """Open the data."""
        from credibly.io.sources import open_source

        return open_source(
            path,
            columns=_split(self.columns) or None,
            drop=_split(self.drop),
            size=_size(self.size),
            key=self.key,
            id_column=self.id_column,
            label=self.label,
            scale=self.scale,
            mode=self.mode,
            limit=self.limit,
        )


def is_table(path: Path) -> bool:
    """Whether a file has named columns."""
    return path.suffix.lower() in (".csv", ".tsv", ".parquet")


def without_id(how: DataOptions, path: Path) -> DataOptions:
    """The same options for another file: only tables have a column of ids."""
    return how if is_table(path) else replace(how, id_column=None)


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


def _split(values: list[str] | None) -> list[str]:
    return [name for value in values or [] for name in value.split(",") if name]


def _class_names(text: str | None) -> list[str] | None:
    if text is None:
        return None
    from credibly._validation import require

    if "," in text:
        return [name.strip() for name in text.split(",")]
    require(
        Path(text).is_file(),
        "classes",
        "names separated by commas, or a text file with one name per line",
        f"{text!r}, which is not a file",
        "Check the path, or pass all names: --classes cat,dog.",
    )
    lines = Path(text).read_text("utf-8").splitlines()
    return [line.strip() for line in lines if line.strip()]


def _size(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    from credibly._validation import require

    numbers = text.lower().split("x")
    good = all(number.isdecimal() for number in numbers) and len(numbers) <= 2
    require(good, "size", "HEIGHTxWIDTH or one number", repr(text), "For example 224x224.")
    return int(numbers[0]), int(numbers[-1])


Command = Callable[..., None]


def spread(command: Command) -> Command:
    """Let a command take dataclasses of options; typer sees their fields instead."""
    signature = inspect.signature(command, eval_str=True)
    parts: list[inspect.Parameter] = []
    groups: dict[str, type] = {}
    for name, parameter in signature.parameters.items():
        kind = parameter.annotation
        if isinstance(kind, type) and is_dataclass(kind):
            groups[name] = kind
            parts += _parameters(kind)
        else:
            parts.append(parameter)

    @wraps(command)
    def flat(**values: Any) -> None:
        for name, kind in groups.items():
            values[name] = kind(**{p.name: values.pop(p.name) for p in _parameters(kind)})
        command(**values)

    flat.__signature__ = signature.replace(parameters=parts)  # type: ignore[attr-defined]
    flat.__annotations__ = {p.name: p.annotation for p in parts} | {"return": None}
    return flat


def _parameters(kind: Any) -> list[inspect.Parameter]:
    hints = get_type_hints(kind, include_extras=True)
    keyword = inspect.Parameter.KEYWORD_ONLY
    return [
        inspect.Parameter(f.name, keyword, default=f.default, annotation=hints[f.name])
        for f in fields(kind)
    ]


def check_free(out: Path, *, overwrite: bool) -> None:
    """Refuse to replace what is there, unless that was asked for."""
    if out.exists() and not overwrite:
        remedy = "Choose another name, or replace it with --overwrite."
        raise OutputError(f"{out} exists already", remedy=remedy)
