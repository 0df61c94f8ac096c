"""Ways to damage a file by what its format means: valid, but wrong."""

from __future__ import annotations

import io
import json
import re
import struct
import zipfile
import zlib

from fuzz.mutations import BYTES, EXTREMES, Mutation, Random, digits, odd_json


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
