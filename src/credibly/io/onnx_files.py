"""ONNX files: read with suspicion, brought into plain form, converted to torch."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from credibly._extras import load_extra
from credibly._validation import require
from credibly.adapters.onnx.agreement import compare
from credibly.adapters.onnx.convert import PURPOSE, to_torch
from credibly.adapters.onnx.graph import Plain, plain
from credibly.adapters.onnx.sizes import refuse_giants
from credibly.errors import CrediblyError, FileFormatError, ModelError
from credibly.io.fingerprints import digest_of_file
from credibly.io.loaded import LoadedClassifier, Wanted
from credibly.io.python_models import move, wrap

MOST = 2**31 - 1
"""Bytes of a graph with its weights: what protobuf can hold."""


def load_onnx(path: Path, wanted: Wanted) -> LoadedClassifier:
    """Load an ONNX file. Nothing in it is executed but the operators of its graph."""
    model, parts = read_onnx(path)
    try:
        found = plain(model, wanted.graph_output)
        outputs = _kind_of_outputs(found, wanted)
        net = to_torch(found)
        notes = [_about(found), compare(found, net), *_rows(found, path)]
    except ModelError as error:
        raise ModelError(f"{path}: {error.problem}", remedy=error.remedy) from error
    net = move(net, wanted)
    asked = wanted.with_defaults(outputs=outputs, classes=found.classes)
    classifier, more = wrap(net, asked)
    return LoadedClassifier(
        classifier,
        "onnx",
        f"ONNX graph of {len(found.model.graph.node) - 1} nodes from {path.name}",
        (*parts, ("output", found.output), *more),
        tuple(note for note in notes if note),
    )


def _kind_of_outputs(found: Plain, wanted: Wanted) -> Any:
    """What the graph returns: asked for where it ends in probabilities, never guessed."""
    other = "" if found.before is None else (
        f", or take the logits before it: graph_output={found.before!r} "
        f"(--graph-output {found.before})"
    )  # fmt: skip
    require(
        found.probabilities is None or wanted.outputs is not None,
        "outputs",
        "what the graph returns to be said",
        f"none, and its output {found.output!r} comes from {found.probabilities}",
        f"Pass outputs='probabilities' (--outputs probabilities){other}.",
    )
    return wanted.outputs


def _about(found: Plain) -> str:
    return f"its output {found.output!r} is used"


def _rows(found: Plain, path: Path) -> Iterator[str]:
    if found.batch is None:
        return
    if found.batch > 1:
        raise ModelError(
            f"{path} was exported for batches of {found.batch} rows only",
            remedy="Export it with an open batch axis: torch.onnx.export(net, (x,), path, "
            "dynamic_axes={'x': {0: 'n'}}, input_names=['x']).",
        )
    yield (
        "it was exported for batches of one row, so rows are run one by one, which is slow; "
        "export it with an open batch axis (dynamic_axes={'x': {0: 'n'}})"
    )


def read_onnx(path: Path) -> tuple[Any, tuple[tuple[str, str], ...]]:
    """A valid ModelProto with all its weights, and the digests of the files it came from."""
    onnx = load_extra("onnx", extra="onnx", purpose=PURPOSE)
    _refuse_larger(path, path.stat().st_size)
    try:
        model = onnx.load_model_from_string(path.read_bytes())
        files = _bring_external(onnx, path, model)
        _refuse_larger(path, model.ByteSize())
        onnx.checker.check_model(model)
        if len(model.functions):
            inliner = load_extra("onnx.inliner", extra="onnx", purpose=PURPOSE)
            model = inliner.inline_local_functions(model)
        model = onnx.shape_inference.infer_shapes(model, data_prop=True)
    except CrediblyError:
        raise
    except Exception as error:
        reason = " ".join(str(error).split())[:200]
        raise FileFormatError(
            f"{path}: not a valid ONNX file ({type(error).__name__}: {reason})."
        ) from error
    try:
        refuse_giants(model)
    except ModelError as error:
        raise FileFormatError(f"{path}: {error}") from error
    digests = [("file", digest_of_file(path))]
    digests += [(f"external {p.name}", digest_of_file(p)) for p in sorted(files)]
    return model, tuple(digests)


def _refuse_larger(path: Path, size: int) -> None:
    if size > MOST:
        raise FileFormatError(
            f"{path}: {size} bytes with its weights, but protobuf holds at most 2 GB. Export the "
            "network with torch.export to a .pt2 file."
        )


def _bring_external(onnx: Any, path: Path, model: Any) -> set[Path]:
    """Read weights that stand in other files, which must be in the folder of the model."""
    files = set()
    for tensor in _tensors(model):
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            entries = {entry.key: entry.value for entry in tensor.external_data}
            place = _beside(path, entries.get("location", ""))
            tensor.raw_data = _stretch(onnx, path, place, tensor, entries)
            tensor.data_location = onnx.TensorProto.DEFAULT
            tensor.ClearField("external_data")
            files.add(place)
    return files


def _tensors(message: Any) -> Iterator[Any]:
    """Every tensor of a message, however deep."""
    for field, value in message.ListFields():
        if field.message_type is None:
            continue
        for part in [value] if hasattr(value, "ListFields") else list(value):
            if field.message_type.name == "TensorProto":
                yield part
            elif hasattr(part, "ListFields"):
                yield from _tensors(part)


def _beside(path: Path, location: str) -> Path:
    """The file of external data, which may not lie outside the folder of the model."""
    folder, relative = path.resolve().parent, Path(location)
    place = (folder / relative).resolve()
    inside = bool(location) and not relative.is_absolute() and place.is_relative_to(folder)
    if not inside or ".." in relative.parts or not place.is_file():
        why = "no such file" if inside and ".." not in relative.parts else "outside its folder"
        raise FileFormatError(
            f"{path}: its weights are in {location!r}: {why}. They must lie beside the model."
        )
    return place


def _stretch(onnx: Any, path: Path, place: Path, tensor: Any, entries: dict[str, str]) -> bytes:
    """The bytes of one tensor in a file of external data."""
    held = place.stat().st_size
    start = int(entries.get("offset", 0))
    length = int(entries.get("length", held - start))
    kind = onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type)
    expected = math.prod(tensor.dims) * kind.itemsize
    good = start >= 0 and length == expected and start + length <= held and min(
        tensor.dims, default=1) >= 0  # fmt: skip
    if not good:
        raise FileFormatError(
            f"{path}: weight {tensor.name!r} of shape {tuple(tensor.dims)} needs {expected} bytes, "
            f"but has {length} from byte {start} on of {place.name}, which holds {held}."
        )
    with place.open("rb") as file:
        file.seek(start)
        return file.read(length)
