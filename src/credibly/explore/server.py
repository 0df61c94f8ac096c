"""The explorer of a Parquet file, served on loopback: the page, ranges of the file, details, marks.

Nobody else on the machine knows the token in the address. A page of another site cannot read
anything: the name in `Host` must be that of loopback (no DNS rebinding), and marks are taken only
from the page itself.
"""

from __future__ import annotations

import json
import re
import secrets
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from credibly.errors import CrediblyError, OutputError
from credibly.explore.built import policy
from credibly.explore.marking import MarkStore
from credibly.explore.page import as_json, render
from credibly.io.source import stamp_of

MOST_BODY = 10_000
"""Bytes of a request with a mark, at most."""

_RANGE = re.compile(r"bytes=(\d+)-(\d+)")

DetailOf = Callable[[int], dict[str, Any]]
"""From the number of a row to what the detail pane shows."""


class _RefusedError(Exception):
    """A request that is answered with a status and a sentence."""

    def __init__(self, status: HTTPStatus, text: str) -> None:
        super().__init__(text)
        self.status = status


@dataclass(frozen=True, eq=False)
class Explored:
    """What is served.

    Attributes:
        verdicts: the Parquet file.
        rows: how many it has.
        facts: what the page says whatever the rows are.
        detail: describes one row; None if there is no model and no input.
        marks: where marks are kept; None if the file's folder cannot be written.
        token: the first part of every address.
    """

    verdicts: Path
    rows: int
    facts: dict[str, Any]
    detail: DetailOf | None = None
    marks: MarkStore | None = None
    token: str = field(default_factory=lambda: secrets.token_urlsafe(24))

    def __post_init__(self) -> None:
        object.__setattr__(self, "_stamp", stamp_of(self.verdicts))
        object.__setattr__(self, "_lock", threading.Lock())

    def check(self) -> None:
        """Refuse to go on with another file than at the start."""
        try:
            changed = stamp_of(self.verdicts) != self._stamp  # type: ignore[attr-defined]
        except OSError:
            changed = True
        if changed:
            text = f"{self.verdicts.name} changed. Start `credibly explore` again."
            raise _RefusedError(HTTPStatus.CONFLICT, text)

    def page(self) -> str:
        """The page, with the marks as they are now."""
        data = {
            **self.facts,
            "parquet": "verdicts.parquet",
            "bytes": self.verdicts.stat().st_size,
            "details": self.detail is not None,
            "marking": self.marks is not None,
            "marks": [] if self.marks is None else self.marks.listed(),
            "stale": 0 if self.marks is None else self.marks.stale,
        }
        return render(data, title=f"credibly: {self.verdicts.name}", connect="'self'")

    @cached_property
    def detail_text(self) -> Callable[[int], str]:
        """The detail of a row as JSON; the last ones are remembered."""
        describe, lock = self.detail, self._lock  # type: ignore[attr-defined]

        @lru_cache(maxsize=256)
        def text(row: int) -> str:
            assert describe is not None  # noqa: S101  # the caller looked
            with lock:  # one at a time: the model already uses all cores it may
                return as_json(describe(row))

        return text


class Server(ThreadingHTTPServer):
    """Serves one file on loopback until it is shut down.

    Args:
        explored: what is served.
        port: 0 takes a free one.
    """

    daemon_threads = True

    def __init__(self, explored: Explored, port: int = 0) -> None:
        try:
            super().__init__(("127.0.0.1", port), _Handler)
        except OSError as error:
            problem = f"port {port} cannot be used: {error.strerror or error}"
            remedy = "Choose another --port, or leave it out to take a free one."
            raise OutputError(problem, remedy=remedy) from error
        self.explored = explored
        number = self.server_address[1]
        self.hosts = (f"127.0.0.1:{number}", f"localhost:{number}")
        self.url = f"http://{self.hosts[0]}/{explored.token}/"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Stay quiet where a browser only went away."""
        if not isinstance(sys.exception(), ConnectionError | TimeoutError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "credibly", ""
    disable_nagle_algorithm = True  # else the end of an answer waits for 40 ms
    wbufsize = -1
    timeout = 60
    server: Server

    def log_message(self, *_: Any) -> None:
        """Stay quiet."""

    def do_GET(self) -> None:
        self._answer(self._get)

    def do_POST(self) -> None:
        self._answer(self._post)

    def _answer(self, work: Callable[[str], tuple[HTTPStatus, str, bytes, dict[str, str]]]) -> None:
        try:
            found = work(self._place())
        except (_RefusedError, CrediblyError) as refused:
            self.close_connection = True  # what was sent may not have been read
            status = getattr(refused, "status", HTTPStatus.UNPROCESSABLE_ENTITY)
            found = status, "text/plain; charset=utf-8", str(refused).encode(), {}
        self._send(*found)

    def _place(self) -> str:
        """The address behind the token; anything else is not found, whatever is wrong with it."""
        if self.headers.get("Host", "") not in self.server.hosts:
            raise _RefusedError(HTTPStatus.FORBIDDEN, "This server answers on loopback only.")
        start, path = f"/{self.server.explored.token}/", self.path.partition("?")[0]
        # compared without telling by the time it takes how much of the token was right
        if not secrets.compare_digest(path[: len(start)].encode(), start.encode()):
            raise _RefusedError(HTTPStatus.NOT_FOUND, "Not found.")
        return path[len(start) :]

    def _get(self, place: str) -> tuple[HTTPStatus, str, bytes, dict[str, str]]:
        explored = self.server.explored
        if place == "":
            explored.check()
            text = explored.page().encode("utf-8")
            return HTTPStatus.OK, "text/html; charset=utf-8", text, _page_headers()
        if place == "verdicts.parquet":
            return self._range(explored)
        row = re.fullmatch(r"api/row/(\d{1,12})", place)
        if row is None or explored.detail is None or int(row[1]) >= explored.rows:
            raise _RefusedError(HTTPStatus.NOT_FOUND, "Not found.")
        explored.check()
        try:
            found = explored.detail_text(int(row[1]))
        except CrediblyError:
            raise
        except Exception as error:  # a model may raise anything
            said = f"the model failed on this row with {type(error).__name__}: {error}"
            raise _RefusedError(HTTPStatus.INTERNAL_SERVER_ERROR, said) from error
        return HTTPStatus.OK, "application/json", found.encode("utf-8"), {}

    def _range(self, explored: Explored) -> tuple[HTTPStatus, str, bytes, dict[str, str]]:
        """The asked bytes of the file; it is never sent as a whole."""
        explored.check()
        size = explored.verdicts.stat().st_size
        asked = _RANGE.fullmatch(self.headers.get("Range", ""))
        first, last = (int(asked[1]), min(int(asked[2]), size - 1)) if asked else (1, 0)
        if first > last:
            raise _RefusedError(
                HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE, "Ask for a range of bytes."
            )
        with explored.verdicts.open("rb") as file:
            file.seek(first)
            content = file.read(last - first + 1)
        more = {"Content-Range": f"bytes {first}-{last}/{size}", "Accept-Ranges": "bytes"}
        return HTTPStatus.PARTIAL_CONTENT, "application/octet-stream", content, more

    def _post(self, place: str) -> tuple[HTTPStatus, str, bytes, dict[str, str]]:
        marks = self.server.explored.marks
        if place != "api/marks" or marks is None:
            raise _RefusedError(HTTPStatus.NOT_FOUND, "Not found.")
        own = {f"http://{host}" for host in self.server.hosts}
        kind = self.headers.get("Content-Type", "").partition(";")[0]
        if self.headers.get("Origin") not in own or kind != "application/json":
            raise _RefusedError(HTTPStatus.FORBIDDEN, "Marks are taken from the page only.")
        self.server.explored.check()
        row, mark = _read_mark(self._body())
        if not marks.put(row, mark):
            raise _RefusedError(HTTPStatus.BAD_REQUEST, "Expected the number of a row and a mark.")
        return HTTPStatus.NO_CONTENT, "application/json", b"", {}

    def _body(self) -> bytes:
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal() or int(length) > MOST_BODY:
            raise _RefusedError(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "Too long, or of unknown length."
            )
        return self.rfile.read(int(length))

    def _send(self, status: HTTPStatus, kind: str, body: bytes, more: dict[str, str]) -> None:
        self.send_response(status)
        headers = {
            "Content-Type": kind,
            "Content-Length": str(len(body)),
            "Cache-Control": "no-store",
            "X-Content-Type-Options": "nosniff",
            "Referrer-Policy": "no-referrer",
            "Cross-Origin-Resource-Policy": "same-origin",
            "Cross-Origin-Opener-Policy": "same-origin",
            **more,
        }
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)
        self.wfile.flush()


def _page_headers() -> dict[str, str]:
    return {"Content-Security-Policy": policy(connect="'self'") + "; frame-ancestors 'none'"}


def _read_mark(body: bytes) -> tuple[Any, Any]:
    try:
        found = json.loads(body)
        return found["row"], found["mark"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise _RefusedError(HTTPStatus.BAD_REQUEST, "Expected JSON with row and mark.") from error
