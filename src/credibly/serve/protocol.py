"""The Open Inference Protocol (version 2): tensors by name, in JSON or as bytes behind it."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from credibly.serve.answers import Answer, Explained
from credibly.serve.intake import Intake
from credibly.serve.plain_json import array_of, flag, parsed
from credibly.serve.refusal import in_words, refused, too_large

JSON_LENGTH = "inference-header-content-length"
"""The header that says where the JSON ends and the bytes begin."""

INPUT = "input"

_TYPES = {
    "BOOL": "?", "UINT8": "u1", "UINT16": "<u2", "UINT32": "<u4", "UINT64": "<u8", "INT8": "i1",
    "INT16": "<i2", "INT32": "<i4", "INT64": "<i8", "FP16": "<f2", "FP32": "<f4", "FP64": "<f8",
}  # fmt: skip

_NAMES = {torch.float32: "FP32", torch.float64: "FP64"}

PLAIN = {
    "class": "INT64", "class_name": "BYTES", "verdict": "BYTES", "accepted": "BOOL",
    "trust": "FP64", "p_ordinary": "FP64", "p_outlier": "FP64", "p_tampered": "FP64",
    "p_wrong": "FP64", "passes": "FP64", "reason": "BYTES", "stage": "BYTES", "complete": "BOOL",
    "incomplete": "BYTES",
}  # fmt: skip
"""Outputs of one value per row, and their types."""

OF_PROFILE = ("credibility", "credence", "risk", "perturbed")
"""Outputs that are sent only where they are named: they need a profile."""


@dataclass(frozen=True, eq=False)
class Asked:
    """A request in the protocol.

    Attributes:
        rows: the inputs.
        id: of the request, sent back.
        outputs: names of the outputs -> whether they are sent as bytes.
    """

    rows: Tensor
    id: str | None
    outputs: dict[str, bool]

    @property
    def profile(self) -> bool:
        """Whether profiles are needed."""
        return any(name in self.outputs for name in OF_PROFILE)


def read(content: bytes, json_length: str | None, intake: Intake) -> Asked:
    """Read a request; `json_length` is the header of that name."""
    head, tail = _cut(content, json_length)
    found = parsed(head)
    tensors = found.get("inputs")
    if not isinstance(tensors, list) or len(tensors) != 1 or not isinstance(tensors[0], dict):
        remedy = (
            f'Send "inputs": [{{"name": "{INPUT}", "shape": ..., "datatype": ..., "data": ...}}].'
        )
        raise refused("inputs", "a list with one tensor", in_words(tensors), remedy)
    rows, rest = _tensor(tensors[0], tail, intake)
    if rest:
        remedy = "The sizes in binary_data_size must add up to what follows the JSON."
        raise refused("body", "no more bytes than the input has", f"{len(rest)} more", remedy)
    name = found.get("id")
    if name is not None and not isinstance(name, str):
        raise refused("id", "text", in_words(name), "Leave it out.")
    return Asked(rows, name, _outputs(found, intake))


def _cut(content: bytes, json_length: str | None) -> tuple[bytes, bytes]:
    """The JSON, and the bytes behind it."""
    if json_length is None:
        return content, b""
    plain = json_length.isascii() and json_length.isdecimal() and len(json_length) < 12
    if not plain or int(json_length) > len(content):
        remedy = "It is the length of the JSON in bytes; what follows are the tensors."
        expected = f"a whole number up to {len(content)}, the length of the body"
        raise refused("Inference-Header-Content-Length", expected, repr(json_length)[:40], remedy)
    return content[: int(json_length)], content[int(json_length) :]


def _tensor(given: Mapping[str, Any], tail: bytes, intake: Intake) -> tuple[Tensor, bytes]:
    """The rows, and the bytes that are left."""
    name, shape, kind = given.get("name"), given.get("shape"), given.get("datatype")
    if name != INPUT:
        raise refused("inputs[0].name", repr(INPUT), repr(name)[:80], "Give it that name.")
    whole = isinstance(shape, list) and 0 < len(shape) <= 16 and all(map(_is_size, shape))
    if not whole:
        got = repr(shape)[:80] if isinstance(shape, list) else in_words(shape)
        remedy = "Name every size, for example [1, 3]."
        raise refused("inputs[0].shape", "1 to 16 whole numbers from 0 on", got, remedy)
    if not isinstance(kind, str) or kind not in _TYPES:
        remedy = "Send FP32, or what /v2/models/NAME says."
        raise refused("inputs[0].datatype", " or ".join(_TYPES), repr(kind)[:40], remedy)
    size = _parameters(given, "inputs[0]").get("binary_data_size")
    assert isinstance(shape, list)  # noqa: S101  # just checked
    if size is None:
        return intake.of_array(_of_data(given, shape, kind)), tail
    return _of_bytes(size, shape, kind, tail, intake)


def _of_data(given: Mapping[str, Any], shape: list[int], kind: str) -> NDArray[Any]:
    """Numbers in JSON, flat or nested."""
    data = given.get("data")
    if not isinstance(data, list):
        remedy = 'Send "data", or binary_data_size and the bytes behind the JSON.'
        raise refused("inputs[0].data", "a list", in_words(data), remedy)
    found = array_of(data, "inputs[0].data")
    if found.size != math.prod(shape):
        remedy = "Send as many numbers as the shape says, flat or nested."
        raise refused("inputs[0].data", f"{math.prod(shape)} numbers", f"{found.size}", remedy)
    target = np.dtype(_TYPES[kind])
    if found.dtype.kind == "f" and target.kind != "f":
        raise refused("inputs[0].data", f"whole numbers, {kind}", "fractions", "Send FP32.")
    if target.kind in "iu" and found.size:
        least, most = np.iinfo(target).min, np.iinfo(target).max
        if found.min() < least or found.max() > most:
            got = f"{found.min()} to {found.max()}"
            raise refused("inputs[0].data", f"{least} to {most}, {kind}", got, "Send FP32.")
    with np.errstate(all="ignore"):  # what does not fit becomes infinite, and is unusable
        return found.reshape(shape).astype(_TYPES[kind])


def _of_bytes(
    size: Any, shape: list[int], kind: str, tail: bytes, intake: Intake
) -> tuple[Tensor, bytes]:
    layout = np.dtype(_TYPES[kind])
    needed = math.prod(shape) * layout.itemsize
    if not _is_size(size) or size != needed or size > len(tail):
        expected = f"{needed}, for {shape} of {kind}, and as many bytes behind the JSON"
        got = f"{size!r:.40} and {len(tail)} bytes"
        remedy = "Send the header Inference-Header-Content-Length with the length of the JSON."
        raise refused("inputs[0].parameters.binary_data_size", expected, got, remedy)
    values = np.frombuffer(tail[:needed], layout).reshape(shape)
    return intake.of_array(values), tail[needed:]


def _outputs(found: Mapping[str, Any], intake: Intake) -> dict[str, bool]:
    """Which outputs, and which of them as bytes."""
    every = flag(_parameters(found, "body"), "binary_data_output")
    wanted = found.get("outputs")
    if wanted is None or wanted == []:
        return dict.fromkeys(PLAIN, every)
    known = (*PLAIN, *OF_PROFILE)
    if not isinstance(wanted, list) or not all(isinstance(part, dict) for part in wanted):
        remedy = 'For example [{"name": "verdict"}].'
        raise refused("outputs", "a list of objects with a name", in_words(wanted), remedy)
    if len(wanted) > len(known):
        raise too_large("The list of outputs", f"{len(known)}", "Name each once.")
    asked = {}
    for part in wanted:
        name = part.get("name")
        if not isinstance(name, str) or name not in known:
            remedy = "Leave `outputs` out for all that one forward tells."
            raise refused("outputs", " or ".join(known), repr(name)[:80], remedy)
        own = _parameters(part, f"outputs {name}")
        asked[name] = flag(own, "binary_data") if "binary_data" in own else every
    if "perturbed" in asked and intake.shape is None:
        remedy = "What moves is not the input: ask for credibility and risk."
        raise refused("outputs", "outputs that this model has", "'perturbed'", remedy)
    return asked


def write(name: str, asked: Asked, answer: Answer, intake: Intake) -> tuple[bytes, int | None]:
    """The body of an answer, and the length of its JSON if bytes follow it."""
    outputs, tail = [], b""
    for output, binary in asked.outputs.items():
        shape, kind, values = _values(output, answer, intake)
        entry: dict[str, Any] = {"name": output, "shape": shape, "datatype": kind}
        if binary:
            content = _as_bytes(values, kind)
            entry["parameters"] = {"binary_data_size": len(content)}
            tail += content
        else:
            entry["data"] = _as_json(values)
        outputs.append(entry)
    about = {"complete": answer.complete}
    found = {"model_name": name, "outputs": outputs, "parameters": about}
    if asked.id is not None:
        found["id"] = asked.id
    head = json.dumps(found, allow_nan=False).encode()
    binary = any(asked.outputs.values())
    return head + tail, len(head) if binary else None


def _values(output: str, answer: Answer, intake: Intake) -> tuple[list[int], str, Any]:
    """Shape, type and values of an output."""
    if output in PLAIN:
        return [len(answer)], PLAIN[output], answer.columns[output]
    shape = {"risk": (), "perturbed": intake.shape}.get(output)
    found = [answer.explained.get(row) for row in range(len(answer))]
    if shape is None:
        shape = next((p.profile.credibility.shape[1:] for p in found if p is not None), (0,))
    values = np.full((len(answer), *shape), np.nan)
    for row, part in enumerate(found):
        if part is not None:
            values[row] = _part(part, output, tuple(shape))
    kind = _NAMES.get(intake.dtype, "FP32")
    return list(values.shape), kind, values.astype(_TYPES[kind])


def _part(part: Explained, output: str, shape: tuple[int, ...]) -> Any:
    value: Tensor = getattr(part.profile, output)
    return value[0].detach().cpu().double().reshape(shape).numpy()


def _as_json(values: Any) -> list[Any]:
    flat = values.ravel() if isinstance(values, np.ndarray) else values
    plain = [float(str(v)) if isinstance(v, np.floating) else v for v in flat]
    return [None if isinstance(v, float) and not math.isfinite(v) else v for v in plain]


def _as_bytes(values: Any, kind: str) -> bytes:
    if kind != "BYTES":
        return np.asarray(values).astype(_TYPES[kind]).tobytes()
    texts = [("" if value is None else str(value)).encode() for value in values]
    return b"".join(struct.pack("<I", len(text)) + text for text in texts)


def datatypes(intake: Intake) -> list[str]:
    """What a tensor of inputs may hold, the model's own type first."""
    own = "INT64" if intake.whole else _NAMES.get(intake.dtype, "FP32")
    kinds = "iu" if intake.whole else "fiu" if intake.settings.scale is not None else "f"
    return [own, *(n for n, t in _TYPES.items() if np.dtype(t).kind in kinds and n != own)]


def describe(name: str, intake: Intake, classes: int) -> dict[str, Any]:
    """What `/v2/models/NAME` says."""
    row = [-1] if intake.shape is None else list(intake.shape)
    outputs = [{"name": n, "datatype": t, "shape": [-1]} for n, t in PLAIN.items()]
    shapes: dict[str, Sequence[int]] = {"risk": [-1], "perturbed": [-1, *row]}
    for output in OF_PROFILE:
        if output != "perturbed" or intake.shape is not None:
            shape = list(shapes.get(output, [-1, classes]))
            outputs.append(
                {"name": output, "datatype": _NAMES.get(intake.dtype, "FP32"), "shape": shape}
            )
    return {
        "name": name,
        "platform": "credibly_judge",
        "inputs": [{"name": INPUT, "datatype": datatypes(intake)[0], "shape": [-1, *row]}],
        "outputs": outputs,
    }


def _parameters(given: Mapping[str, Any], of: str) -> Mapping[str, Any]:
    found = given.get("parameters")
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise refused(f"{of}.parameters", "an object", in_words(found), "Leave it out.")
    return found


def _is_size(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 31
