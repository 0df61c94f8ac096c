"""Connections: the head of a request is bounded in size and time, and so is their number."""

from __future__ import annotations

import asyncio
import time
from http import HTTPStatus
from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from credibly.serve.refusal import RefusedError, encoded, too_many_connections

HEAD = 64 << 10
"""Bytes of the head of a request, at most."""

HEADERS = 100
"""Headers of a request, at most."""

HEAD_SECONDS = 10.0
"""Seconds in which the head of a request must have come."""

IDLE_SECONDS = 30.0
"""Seconds for which a connection is kept after an answer."""

LINGER = 1.0
"""Seconds for which a refused connection stays open, so that the client can read why."""

_MALFORMED = RefusedError(HTTPStatus.BAD_REQUEST, "This is not a request in HTTP/1.1.")
_LATE = RefusedError(
    HTTPStatus.REQUEST_TIMEOUT, f"The head did not come within {HEAD_SECONDS:g} seconds."
)
_LONG = RefusedError(
    HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE,
    f"The head of a request may have {HEAD >> 10} KB and {HEADERS} headers. Send less.",
)


class Connection(HttpToolsProtocol):
    """A connection of uvicorn that does not wait for ever, nor for heads without end.

    Where more are open than `limit_concurrency`, the one that has kept the service waiting for the
    longest is closed. Only if all of them wait for the service is the new one refused: silent
    clients cannot keep others out.
    """

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        # uvicorn's own limit answers 503 as long as so many are open, whatever they do
        self.most, self.limit_concurrency = self.limit_concurrency, None
        self.waits_since: float | None = time.monotonic()
        self._refused = False
        self._unread = 0  # bytes since something of a request was whole
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Count it, and make room for it."""
        super().connection_made(transport)
        self._expect(HEAD_SECONDS)
        if self.most is not None and len(self.connections) > self.most:
            self._make_room()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget it."""
        self._expect(None)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read on, never more at a time than a head may have: the parser keeps it until the end."""
        while data and not (self._refused or self.transport.is_closing()):
            room = HEAD - self._unread
            piece, data = data[:room], data[room:]
            self._unread += len(piece)
            super().data_received(piece)
            if self._unread >= HEAD:
                self._refuse(_LONG)

    def on_message_begin(self) -> None:
        """The head of a request begins."""
        super().on_message_begin()
        if self.cycle is None or self.cycle.response_complete:
            self._expect(HEAD_SECONDS)

    def on_header(self, name: bytes, value: bytes) -> None:
        """One more header, of the head or behind a body in parts."""
        if len(self.headers) >= HEADERS:
            raise OverflowError  # the parser ends, and uvicorn has it answered as malformed
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """The head is whole."""
        self._unread = 0
        self._expect(None)
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """A piece of a body."""
        self._unread = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """The request is whole: now the client waits."""
        self._unread = 0
        if not self.cycle.response_complete:
            self.waits_since = None
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Wait for the next request, or for the rest of one that was refused early."""
        super().on_response_complete()
        if self.cycle.response_complete:
            self.waits_since = time.monotonic()
            self._expect(IDLE_SECONDS)

    def send_400_response(self, _msg: str) -> None:
        """Refuse what cannot be read, as JSON."""
        self._refuse(_LONG if self.headers and len(self.headers) >= HEADERS else _MALFORMED)

    def _make_room(self) -> None:
        """Close the connection that is waited for the longest."""
        others = [c for c in self.connections if isinstance(c, Connection) and c is not self]
        waiting = [
            (other.waits_since, id(other), other)
            for other in others
            if other.waits_since is not None and not other.transport.is_closing()
        ]
        if waiting:
            min(waiting)[2].transport.close()
        elif len(others) >= (self.most or 0):
            self._refuse(too_many_connections())

    def _expect(self, seconds: float | None) -> None:
        """Something must happen within so many seconds; None: no longer."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if seconds is None else self.loop.call_later(seconds, self._late)

    def _late(self) -> None:
        if self._unread and not self._refused:
            self._refuse(_LATE)
        else:
            self.transport.close()

    def _refuse(self, refusal: RefusedError) -> None:
        """Answer without the application; what still comes is thrown away for a moment."""
        if self._refused or self.transport.is_closing():
            return
        self._refused = True
        headers, content = encoded(refusal)
        pairs = {**headers, "connection": "close"}.items()
        lines = [f"{name}: {value}\r\n".encode() for name, value in pairs]
        self.transport.write(b"".join([STATUS_LINE[refusal.status], *lines, b"\r\n", content]))
        self._expect(LINGER)
