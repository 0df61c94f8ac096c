"""The gate that every request goes through: who asks, under which number, and what came of it."""

from __future__ import annotations

import asyncio
import hmac
import logging
import re
import secrets
import time
from collections.abc import Iterable
from http import HTTPStatus
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from credibly.serve.logs import note, of_exception
from credibly.serve.refusal import RefusedError, encoded, refused, unready
from credibly.serve.service import Service

OPEN = ("/v2/health/live", "/v2/health/ready")
"""What may be asked without a token: it says nothing but yes or no."""

DEADLINE = b"x-deadline-ms"
"""The header with the milliseconds that a request may take."""

GONE = 499
"""In logs and counts: the client went away."""

_PORT = re.compile(r":\d*$")
_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")


class Gate:
    """Checks, numbers, counts and logs every request.

    Args:
        app: what answers.
        service: whose metrics are counted.
        token: what must be sent as `Authorization: Bearer TOKEN`; None asks for nothing.
        hosts: names in `Host` that are answered, against rebinding of names, and of the pages
            whose scripts may ask; None answers all.
    """

    def __init__(
        self, app: ASGIApp, service: Service, token: str | None, hosts: frozenset[str] | None
    ) -> None:
        self.app, self.service, self.hosts = app, service, hosts
        self.token = None if token is None else token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers: dict[bytes, bytes] = dict(scope["headers"])
        asked = headers.get(b"x-request-id", b"").decode("latin-1")
        call = Call(asked if _NAME.fullmatch(asked) else secrets.token_hex(8), send, self.service)
        state = scope.setdefault("state", {})
        state.update(facts=call.facts, id=call.id)
        self.service.open += 1
        try:
            self._check_host(scope["headers"], headers.get(b"origin"))
            self._check_token(scope["path"], headers.get(b"authorization", b""))
            if scope["method"] == "POST":  # before any work: most of what a crowd asks is refused
                state["due"] = self._due(headers.get(DEADLINE))
                self.service.check_room(1, state["due"])
            await self.app(scope, receive, call.send)
        except RefusedError as refusal:
            await call.refuse(refusal)
        except asyncio.CancelledError:  # the time to end is over, and a body had not come whole
            await call.refuse(unready(ending=True))
        except Exception as error:  # noqa: BLE001  # it is logged, and the client hears of it
            call.facts |= of_exception(error)
            text = f"The service failed. Its log says why, under the id {call.id}."
            await call.refuse(RefusedError(HTTPStatus.INTERNAL_SERVER_ERROR, text))
        finally:
            self.service.open -= 1
            self._count(scope, call)

    def _check_host(self, headers: Iterable[tuple[bytes, bytes]], origin: bytes | None) -> None:
        """Whom the client believes to ask, and the page whose script asks."""
        hosts = [value for name, value in headers if name == b"host"]
        if len(hosts) > 1:
            raise RefusedError(HTTPStatus.BAD_REQUEST, "Send the header Host once.")
        if self.hosts is None:
            return
        if _host_of(b"".join(hosts)) not in self.hosts:
            text = "This service answers to names of this machine only."
            raise RefusedError(HTTPStatus.FORBIDDEN, text)
        if origin is not None and _host_of(origin.rpartition(b"//")[2]) not in self.hosts:
            text = "This service answers to pages of this machine only."
            raise RefusedError(HTTPStatus.FORBIDDEN, text)

    def _check_token(self, path: str, given: bytes) -> None:
        if self.token is None or path in OPEN:
            return
        scheme, _, token = given.partition(b" ")
        if scheme.lower() != b"bearer" or not hmac.compare_digest(token.strip(), self.token):
            text = "Send the header Authorization: Bearer TOKEN with the token of this service."
            raise RefusedError(HTTPStatus.UNAUTHORIZED, text)

    def _due(self, given: bytes | None) -> float:
        """When the answer should be there."""
        settings = self.service.settings
        if given is None:
            return time.monotonic() + settings.deadline
        most = round(1000 * settings.longest)
        if not given.isdigit() or len(given) > 8 or not 0 < int(given) <= most:
            expected, got = f"a whole number of milliseconds from 1 to {most}", repr(given)[1:40]
            raise refused("X-Deadline-Ms", expected, got, "Leave it out for the default.")
        return time.monotonic() + int(given) / 1000

    def _count(self, scope: Scope, call: Call) -> None:
        """Addresses that nothing answers may hold anything: they are not written down."""
        place = getattr(scope.get("route"), "path", None) or _place(scope["path"])
        seconds = time.monotonic() - call.begun
        metrics = self.service.metrics
        if call.status == GONE:
            metrics.cancelled.inc()
        metrics.requests.labels(place, str(call.status)).inc()
        metrics.seconds.labels(place).observe(seconds)
        quiet = place in (*OPEN, "/metrics")
        quiet |= call.status == HTTPStatus.TOO_MANY_REQUESTS  # of which there may be very many
        level = logging.ERROR if call.status == HTTPStatus.INTERNAL_SERVER_ERROR else logging.INFO
        note(
            "request", logging.DEBUG if quiet else level, id=call.id,
            method=scope["method"][:16], place=place, status=call.status,
            ms=round(1000 * seconds, 2), **call.facts,
        )  # fmt: skip


def _host_of(given: bytes) -> str:
    """A name without its port."""
    return _PORT.sub("", given.decode("latin-1").lower())


def _place(path: str) -> str:
    """The name of an address that was refused before it was looked up."""
    if path == "/v1/judge":
        return path
    known = path.startswith("/v2/models/") and path.endswith("/infer")
    return "/v2/models/{name}/infer" if known else "other"


class Call:
    """One request on its way.

    Attributes:
        id: its number, which the client may choose.
        status: what it was answered with.
        facts: what the log says of it.
    """

    def __init__(self, name: str, send: Send, service: Service) -> None:
        self.id, self._send, self._service = name, send, service
        self.begun = time.monotonic()
        self.status, self.started = GONE, False
        self.facts: dict[str, Any] = {}

    async def send(self, message: Message) -> None:
        """Send on, with the number of the request."""
        if message["type"] == "http.response.start":
            self.status, self.started = int(message["status"]), True
            headers = dict(message["headers"]) | {b"x-request-id": self.id.encode()}
            if self._service.draining:
                headers[b"connection"] = b"close"
            message["headers"] = list(headers.items())
        await self._send(message)

    async def refuse(self, refusal: RefusedError) -> None:
        """Answer with a refusal, unless an answer has begun."""
        if self.started:
            return
        headers, content = encoded(refusal)
        pairs = [(name.encode(), value.encode()) for name, value in headers.items()]
        status = int(refusal.status)
        await self.send({"type": "http.response.start", "status": status, "headers": pairs})
        await self.send({"type": "http.response.body", "body": content})
