"""The files in a form, taken apart in memory: nothing is written to the disk."""

from __future__ import annotations

from typing import Any

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from credibly.serve.refusal import RefusedError, refused, too_large

LONGEST = 1 << 16
"""Bytes of the headers of a part, at most."""


class Parts:
    """What the parser tells, one call after the other.

    Args:
        most: files that are taken.
    """

    def __init__(self, most: int) -> None:
        self.most, self.files, self.ended = most, list[bytearray](), False
        self._name, self._value, self._is_file = bytearray(), bytearray(), False

    def on_part_begin(self) -> None:
        """Forget what the last part was."""
        self._is_file = False

    def on_header_field(self, data: bytes, start: int, end: int) -> None:
        """A piece of the name of a header."""
        self._name += data[start:end]

    def on_header_value(self, data: bytes, start: int, end: int) -> None:
        """A piece of its value."""
        self._value += data[start:end]
        if len(self._value) + len(self._name) > LONGEST:
            raise too_large("A header of a form", f"{LONGEST} bytes", "Send a shorter name.")

    def on_header_end(self) -> None:
        """Only parts with a name of a file are files."""
        if self._name.lower() == b"content-disposition":
            self._is_file |= b"filename" in parse_options_header(bytes(self._value))[1]
        self._name, self._value = bytearray(), bytearray()

    def on_headers_finished(self) -> None:
        """Begin a file."""
        if self._is_file:
            if len(self.files) >= self.most:
                raise too_large("A form", f"{self.most} files", "Send several requests.")
            self.files.append(bytearray())

    def on_part_data(self, data: bytes, start: int, end: int) -> None:
        """A piece of it."""
        if self._is_file:
            self.files[-1] += data[start:end]

    def on_end(self) -> None:
        """The form is whole."""
        self.ended = True


def files_of(kind: str, content: bytes, most: int) -> list[bytes]:
    """The files in a form whose Content-Type is `kind`; at most so many."""
    boundary = parse_options_header(kind)[1].get(b"boundary")
    if not boundary:
        raise _broken()
    parts = Parts(most)
    names = ("part_begin", "header_field", "header_value", "header_end", "headers_finished",
             "part_data", "end")  # fmt: skip
    callbacks: Any = {f"on_{name}": getattr(parts, f"on_{name}") for name in names}
    try:
        parser = MultipartParser(boundary, callbacks)
        parser.write(content)
        parser.finalize()
    except FormParserError as error:
        raise _broken() from error
    if not parts.ended:
        raise _broken()
    return [bytes(file) for file in parts.files]


def _broken() -> RefusedError:
    remedy = "Send multipart/form-data with files, as curl --form file=@image.png does."
    return refused("body", "a form", "something that cannot be read as a form", remedy)
