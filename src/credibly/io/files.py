"""Files that are written completely or not at all, and readers that name a damaged file."""

from __future__ import annotations

import errno
import io
import json
import os
import stat
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from credibly.errors import CrediblyError, FileFormatError, OutputError
from credibly.io.array_files import safetensors_content

TEMPORARY = "*.[0-9]*-[0-9]*.tmp"
"""The names of files that are being written, by process and thread."""

RUN_AGAIN = "Make room or choose another place, then run it again."


@contextmanager
def writing(path: str | Path, remedy: str = RUN_AGAIN) -> Iterator[None]:
    """Turn an error of the file system into an `OutputError` that names the file."""
    try:
        yield
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        reason = "the disk is full" if full else error.strerror or str(error)
        raise OutputError(f"{path} cannot be written: {reason}", remedy=remedy) from error


@contextmanager
def whole_file(
    path: str | Path, *, replace: bool = True, remedy: str = RUN_AGAIN
) -> Iterator[Path]:
    """Give a temporary name to write to, which becomes `path` once everything is on the disk.

    If writing fails, the old file stays as it was and no temporary file remains. A replaced file
    keeps its mode, and a link keeps pointing to it. A pipe, or a file that may not be replaced, is
    written directly. With `replace=False` an existing file stays: of several processes that write
    the same file, the first wins.
    """
    with writing(path, remedy):
        if replace and _is_written_directly(Path(path)):
            yield Path(path)
            return
        target = Path(path).resolve()
        aside = target.with_name(f"{target.name}.{os.getpid()}-{threading.get_ident()}.tmp")
        try:
            yield aside
            with aside.open("rb+") as file:
                os.fsync(file.fileno())
            if replace:
                _replace(aside, target)
            else:
                _keep_first(aside, target)
        finally:
            aside.unlink(missing_ok=True)


def _is_written_directly(path: Path) -> bool:
    """Whether it is a pipe, a write-protected file, or in a folder without write permission."""
    if not path.is_file():
        return path.exists()
    target = path.resolve()
    return not (os.access(target, os.W_OK) and os.access(target.parent, os.W_OK))


def _replace(aside: Path, target: Path) -> None:
    if target.exists():
        aside.chmod(stat.S_IMODE(target.stat().st_mode))
    aside.replace(target)


def _keep_first(aside: Path, target: Path) -> None:
    try:
        os.link(aside, target)
    except FileExistsError:
        pass
    except OSError:  # a file system without hard links
        if not target.exists():
            aside.replace(target)


def write_json(path: str | Path, content: Mapping[str, Any], *, replace: bool = True) -> None:
    """Write a JSON file completely or not at all; see `whole_file`."""
    text = json_text(content)
    with whole_file(path, replace=replace) as place:
        place.write_text(text, encoding="utf-8")


def json_text(content: Mapping[str, Any]) -> str:
    """Return the text of a JSON file."""
    return json.dumps(content, indent=2) + "\n"


def read_json(path: str | Path, kind: str, version: int) -> dict[str, Any]:
    """Read a JSON file whose fields `format` and `format_version` are `kind` and `version`."""
    with _reading(path, "a JSON file"):
        content = json.loads(Path(path).read_text("utf-8"))
    if not isinstance(content, dict):
        raise FileFormatError(
            f"{path}: not a {kind!r} file; it is a JSON {type(content).__name__}."
        )
    check_format(path, content, kind, version)
    return content


MADE_BY = {
    "credibly.verdicts": " Verdicts of `credibly judge` are decisions already.",
    "credibly.profile": " Profiles come from `credibly score`.",
}
"""What a file is that somebody took for another one."""


@contextmanager
def reading(path: str | Path) -> Iterator[None]:
    """Whatever the content of a damaged file leads to is an error that names the file."""
    try:
        yield
    except (ArithmeticError, AttributeError, LookupError, MemoryError, RuntimeError, TypeError,
            ValueError, CrediblyError) as error:  # fmt: skip
        raise FileFormatError(f"{path}: cannot be read ({error!r}).") from error


def check_format(path: str | Path, marks: Mapping[str, Any], kind: str, version: object) -> None:
    """Refuse a file whose fields or metadata name another format, or another version of it."""
    if marks.get("format") != kind:
        found = marks.get("format")
        raise FileFormatError(
            f"{path}: not a {kind!r} file; its format is {found!r}.{MADE_BY.get(str(found), '')}"
        )
    if str(marks.get("format_version")) != str(version):
        remedy = "Make the file again." if _is_older(marks, version) else "Install a newer one."
        raise FileFormatError(
            f"{path}: format version {marks.get('format_version')!r}; this credibly reads "
            f"{version}. {remedy}"
        )


def _is_older(marks: Mapping[str, Any], version: object) -> bool:
    own, found = str(version), str(marks.get("format_version"))
    return own.isdecimal() and found.isdecimal() and int(found) < int(own)


def save_tensors(
    tensors: Mapping[str, Tensor], path: str | Path, *, metadata: Mapping[str, str]
) -> None:
    """Write a safetensors file completely or not at all, with the usual permissions.

    `safetensors.torch.save_file` would replace a pipe, and allow only the owner to read the file.
    """
    with whole_file(path) as place:
        place.write_bytes(tensors_content(tensors, metadata))


def tensors_content(tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> bytes:
    """Return the bytes of a safetensors file."""
    return bytes(save(dict(tensors), dict(metadata)))


def load_tensors(path: str | Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Read all tensors of a safetensors file in the order of their names, and its metadata.

    The file is read, not mapped: a mapped file that another program cuts short would end the
    process, even long after it was loaded. For a moment this takes twice the size of the file.
    """
    with _reading(path):
        content = Path(path).read_bytes()
        tensors = dict(sorted(load(content).items()))  # else another order in every process
        header = safetensors_content(io.BytesIO(content), len(content))
    return tensors, header.get("__metadata__") or {}


def load_metadata(path: str | Path) -> dict[str, str]:
    """Read only the metadata of a safetensors file."""
    with _reading(path), Path(path).open("rb") as file:
        header = safetensors_content(file, os.fstat(file.fileno()).st_size)
        return {str(name): str(value) for name, value in (header.get("__metadata__") or {}).items()}


@contextmanager
def _reading(path: str | Path, kind: str = "a readable safetensors file") -> Iterator[None]:
    """Turn whatever a file can do wrong into a `FileFormatError` that names it."""
    try:
        yield
    except OSError as error:
        raise FileFormatError(f"{path}: cannot be read ({error.strerror or error}).") from error
    except (SafetensorError, ValueError, RuntimeError, KeyError, AttributeError) as error:
        # also bad JSON or encoding, types that torch does not have, and metadata that are none
        raise FileFormatError(f"{path}: not {kind} ({error}).") from error
