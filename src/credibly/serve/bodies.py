"""Bodies of requests, read whole and bounded: each of them, all together, and in time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from http import HTTPStatus
from typing import Any, Self

from fastapi import Request
from starlette.requests import ClientDisconnect

from credibly.serve.refusal import RefusedError, too_large
from credibly.serve.service import GoneError, Service

PATIENCE = 30.0
"""Seconds in which a body must have come."""


class Held:
    """A body, counted among those that are held until it is let go."""

    def __init__(self, service: Service) -> None:
        self._service, self._size = service, 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.let_go()

    def let_go(self) -> None:
        """Count it no more."""
        self._service.held -= self._size
        self._size = 0

    async def read(self, request: Request) -> bytes:
        """The whole body; more than is taken is refused, and what still comes is thrown away."""
        length = request.headers.get("content-length", "")
        if length.isdecimal() and int(length) > self._service.body:
            raise self._too_large()
        parts: list[bytes] = []
        seen, end = 0, time.monotonic() + PATIENCE
        stream = request.stream()
        while (part := await _next(stream, end)) is not None:
            seen += len(part)
            self._hold(len(part), seen)
            parts.append(part)
        return b"".join(parts)

    def _hold(self, size: int, seen: int) -> None:
        service = self._service
        if seen > service.body:
            raise self._too_large()
        if service.held + size > service.settings.bodies:
            text = "Too many requests are being read. Ask again later."
            raise RefusedError(HTTPStatus.TOO_MANY_REQUESTS, text, retry_after=1)
        service.held += size
        self._size += size

    def _too_large(self) -> RefusedError:
        remedy = "Send fewer rows, or bytes instead of JSON."
        return too_large("The body", f"{self._service.body} bytes", remedy)


async def _next(stream: Any, end: float) -> bytes | None:
    """The next part of a body; None at its end."""
    try:
        async with asyncio.timeout(max(0.001, end - time.monotonic())):
            return bytes(await anext(stream))
    except StopAsyncIteration:
        return None
    except TimeoutError as error:
        text = f"The body did not come within {PATIENCE:g} seconds."
        raise RefusedError(HTTPStatus.REQUEST_TIMEOUT, text) from error
    except ClientDisconnect as error:
        raise GoneError from error


def gone_of(request: Request) -> Callable[[], Any]:
    """Waits until the client has gone away; the body must have been read."""

    async def gone() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    return gone


def check_kind(kind: str, known: Sequence[str]) -> None:
    """Refuse another kind of body."""
    if kind not in known and not (kind.startswith("image/") and "image/*" in known):
        remedy = f"Send {', '.join(known)}."
        given = f"'{kind[:60]}'" if kind.isascii() and kind.isprintable() and kind else "none"
        text = f"Bodies of this Content-Type ({given}) are not read. {remedy}"
        raise RefusedError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, text, about={"remedy": remedy})
