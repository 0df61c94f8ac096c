"""Ways to damage a file: by bytes, and by what its format means."""

from __future__ import annotations

import io
import json
import re
import struct
import zipfile
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np

Random = np.random.Generator
Mutation = Callable[[Random, bytes], bytes]

EXTREMES = (0, 1, 2, 127, 255, 256, 65535, 2**31 - 1, 2**32 - 1, 2**40, 2**63 - 1, 2**64 - 1)
ODD: tuple[Any, ...] = (
    None, True, -1, 0, 2**31, 2**63, 10**400, 1e308, float("nan"), float("inf"), "", "x", "nan", [],
    {}, [[]], {"a": 1}, [1, 2], "\ud800", "torch.float64", [None], "\u0000",
)  # fmt: skip


def _place(random: Random, data: bytes) -> int:
    """A place in a file; headers and ends are more interesting than the middle."""
    size = max(len(data), 1)
    where = random.integers(3)
    if where == 0:
        return int(random.integers(min(size, 300)))
    return int(random.integers(size) if where == 1 else max(0, size - 1 - random.integers(300)))


def flip(random: Random, data: bytes) -> bytes:
    """Change a few bytes."""
    changed = bytearray(data)
    for _ in range(int(random.integers(1, 9))):
        if changed:
            changed[_place(random, data)] ^= 1 << int(random.integers(8))
    return bytes(changed)


def truncate(random: Random, data: bytes) -> bytes:
    """Keep the beginning."""
    return data[: _place(random, data)]


def remove(random: Random, data: bytes) -> bytes:
    """Leave out a piece."""
    at = _place(random, data)
    return data[:at] + data[at + int(random.integers(1, 200)) :]


def repeat(random: Random, data: bytes) -> bytes:
    """Write a piece twice."""
    at = _place(random, data)
    piece = data[at : at + int(random.integers(1, 400))]
    return data[:at] + piece * int(random.integers(2, 5)) + data[at:]


def move(random: Random, data: bytes) -> bytes:
    """Copy a piece of the file over another place."""
    start, at = _place(random, data), _place(random, data)
    piece = data[start : start + int(random.integers(1, 200))]
    return data[:at] + piece + data[at + len(piece) :]


def noise(random: Random, data: bytes) -> bytes:
    """Random bytes, zeros or ones over a piece."""
    at, size = _place(random, data), int(random.integers(1, 64))
    piece = (random.bytes(size), bytes(size), b"\xff" * size)[random.integers(3)]
    return data[:at] + piece + data[at + size :]


def extreme(random: Random, data: bytes) -> bytes:
    """A number of a binary header becomes 0, the largest, or one off."""
    width = (1, 2, 4, 8)[random.integers(4)]
    value = EXTREMES[random.integers(len(EXTREMES))] % 256**width
    at = _place(random, data)
    return data[:at] + value.to_bytes(width, "little") + data[at + width :]


def digits(random: Random, data: bytes) -> bytes:
    """A number written in digits becomes another."""
    found = list(re.finditer(rb"-?\d+(\.\d+)?", data[:20000]))
    if not found:
        return flip(random, data)
    at = found[random.integers(len(found))]
    new = (b"0", b"-1", b"99999999999", b"1e999", b"", b"9" * 400, b"nan", b"7", b'"x"')
    return data[: at.start()] + new[random.integers(len(new))] + data[at.end() :]


def nothing(random: Random, data: bytes) -> bytes:
    """An empty file, or one of zeros."""
    return bytes(len(data)) if random.random() < 0.5 else b""


BYTES: tuple[Mutation, ...] = (
    flip, flip, truncate, remove, repeat, move, noise, extreme, extreme, digits, digits, nothing,
)  # fmt: skip


def odd_json(random: Random, value: Any) -> Any:
    """Replace, remove or rename one part of a JSON value, at any depth."""
    if isinstance(value, dict) and value and random.random() < 0.85:
        name = list(value)[random.integers(len(value))]
        changed, how = dict(value), random.random()
        part = changed.pop(name)
        if how > 0.15:
            new = name if how > 0.2 else "renamed"
            changed[new] = odd_json(random, part)
        return changed
    if isinstance(value, list) and value and random.random() < 0.7:
        changed = list(value)
        at = int(random.integers(len(changed)))
        how = random.random()
        if how < 0.2:
            return changed + changed
        if how < 0.4:
            del changed[at]
            return changed
        changed[at] = odd_json(random, changed[at])
        return changed
    return ODD[random.integers(len(ODD))]


def deep_json(random: Random, data: bytes) -> bytes:  # noqa: ARG001
    """Brackets in brackets, more than a parser takes."""
    return b"[" * 100_000


def json_text(random: Random, data: bytes) -> bytes:
    """A valid JSON file with an odd part."""
    changed = odd_json(random, json.loads(data))
    return json.dumps(changed).encode("utf-8", "surrogatepass")


def safetensors(random: Random, data: bytes) -> bytes:
    """Another header before the same bytes."""
    (size,) = struct.unpack("<Q", data[:8])
    header, body = json.loads(data[8 : 8 + size]), data[8 + size :]
    marks = header.get("__metadata__", {})
    inner = [name for name, text in marks.items() if text.startswith("{")]
    if inner and random.random() < 0.5:
        name = inner[random.integers(len(inner))]
        marks[name] = json.dumps(odd_json(random, json.loads(marks[name])))
    else:
        header = odd_json(random, header)
    text = json.dumps(header).encode("utf-8", "surrogatepass")
    told = len(text) if random.random() < 0.9 else EXTREMES[random.integers(len(EXTREMES))]
    return struct.pack("<Q", told % 2**64) + text + body


def npy(random: Random, data: bytes) -> bytes:
    """Another header before the same numbers."""
    size = struct.unpack("<H", data[8:10])[0]
    text, body = data[10 : 10 + size].decode("latin-1"), data[10 + size :]
    kinds = (
        "<f8",
        "<f4",
        ">f8",
        "|O",
        "<i8",
        "|b1",
        "<c16",
        "|S3",
        "<U7",
        "|V8",
        "<f2",
        "<M8[s]",
        "f9",
    )
    shapes = (
        "(4, -1)", "(99999999999, 4)", "(2**60, 4)", "()", "(0,)", "(0, 4)", "(23, 4, 1)",
        "(23.0, 4)", "(4, 23)", "(1, 1, 1, 1)", "(9223372036854775807, 9223372036854775807)",
        "'x'", "(True, 2)",
    )  # fmt: skip
    what = random.integers(4)
    if what == 0:
        text = re.sub(r"'descr': '[^']*'", f"'descr': '{kinds[random.integers(len(kinds))]}'", text)
    elif what == 1:
        text = re.sub(r"\(.*\)", shapes[random.integers(len(shapes))], text)
    elif what == 2:
        text = text.replace("False", "True")
    else:
        text = digits(random, text.encode()).decode("latin-1")
    encoded = text.encode("latin-1", "replace")
    return data[:8] + struct.pack("<H", len(encoded) % 65536) + encoded + body


def zipped(inner: dict[str, Mutation]) -> Mutation:
    """Damage inside an archive whose sums are right, or an archive that lies about its members."""

    def mutate(random: Random, data: bytes) -> bytes:
        if random.random() < 0.4:
            return _lie(random, data)
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = {name: archive.read(name) for name in archive.namelist()}
        name = list(members)[random.integers(len(members))]
        own = [change for ending, change in inner.items() if name.endswith(ending)]
        changes = (*own * 4, *BYTES)
        members[name] = changes[random.integers(len(changes))](random, members[name])
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
            for member, content in members.items():
                archive.writestr(member, content)
        return packed.getvalue()

    return mutate


def _lie(random: Random, data: bytes) -> bytes:
    """Another size, method or sum of a member, in the directory or before the member."""
    signs = [(m.start(), m.group()) for m in re.finditer(rb"PK\x01\x02|PK\x03\x04", data)]
    at, sign = signs[random.integers(len(signs))]
    fields = {"method": (8, 2), "sum": (14, 4), "packed": (18, 4), "size": (22, 4), "name": (26, 2)}
    offset, width = list(fields.values())[random.integers(len(fields))]
    offset += 2 if sign == b"PK\x01\x02" else 0
    value = (EXTREMES[random.integers(len(EXTREMES))]) % 256**width
    return data[: at + offset] + value.to_bytes(width, "little") + data[at + offset + width :]


def text_table(random: Random, data: bytes) -> bytes:
    """Another cell, line, separator or encoding."""
    lines = data.split(b"\n")
    at = int(random.integers(len(lines)))
    cells = lines[at].split(b",")
    new = (
        b"word", b"", b"1e999", b'"', b'"a,b"', b"\x00", b"\xff\xfe", b"1,5", b"NaN", b"-inf",
        b"0x10", b"9" * 500, b"true", b" 1 ", "\uff11".encode(), b"1_0", b"2020-01-01",
        b"a" * 70000,
    )  # fmt: skip
    what = random.integers(6)
    if what <= 2:
        cells[random.integers(len(cells))] = new[random.integers(len(new))]
        lines[at] = b",".join(cells)
    elif what == 3:
        lines[at] = lines[int(random.integers(len(lines)))] + b"," + lines[at]
    elif what == 4:
        del lines[at]
    else:
        marks = (b";", b"\t", b"\r", b"\n", b",,")
        return data.replace(b",", marks[random.integers(len(marks))])
    return (b"\xef\xbb\xbf" if random.random() < 0.1 else b"") + b"\n".join(lines)


def parquet(random: Random, data: bytes) -> bytes:
    """A readable table with other columns, types, rows or metadata."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pq.read_table(io.BytesIO(data))
    at = int(random.integers(table.num_columns))
    name, marks = table.column_names[at], dict(table.schema.metadata or {})
    what = random.integers(8)
    if what == 0:
        table = table.drop_columns([name])
    elif what == 1:
        table = table.append_column(name, table.column(at))
    elif what == 2:
        kinds = (
            pa.string(),
            pa.float16(),
            pa.int64(),
            pa.bool_(),
            pa.binary(),
            pa.null(),
            pa.date32(),
        )
        kind = kinds[random.integers(len(kinds))]
        table = table.set_column(at, name, pa.nulls(len(table), kind))
    elif what == 3:
        table = table.slice(int(random.integers(len(table))), int(random.integers(3)))
    elif what == 4:
        words = pa.array([str(value) for value in table.column(at).to_pylist()])
        table = table.set_column(at, name, words)
    elif what == 5:
        lists = pa.array([[1.0]] * len(table))
        table = table.set_column(at, name, lists)
    elif what == 6:
        table = table.rename_columns([*table.column_names[:at], "", *table.column_names[at + 1 :]])
    elif marks:
        key = list(marks)[random.integers(len(marks))]
        try:
            marks[key] = json.dumps(odd_json(random, json.loads(marks[key]))).encode(
                "utf-8", "replace"
            )
        except ValueError:
            marks[key] = BYTES[random.integers(len(BYTES))](random, marks[key])
        table = table.replace_schema_metadata(marks)
    out = io.BytesIO()
    pq.write_table(table, out)
    return out.getvalue()


def png(random: Random, data: bytes) -> bytes:
    """Another size, depth or kind of pixels, with the right sum."""
    header = bytearray(data[16:29])
    what = random.integers(4)
    if what < 2:
        value = (0, 1, 7, 9000, 30000, 2**31 - 1)[random.integers(6)]
        header[4 * what : 4 * what + 4] = struct.pack(">I", value)
    else:
        header[6 + what] = int(random.integers(20))
    fixed = struct.pack(">I", zlib.crc32(b"IHDR" + bytes(header)))
    return data[:16] + bytes(header) + fixed + data[33:]
