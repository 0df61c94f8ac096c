"""The service on a socket: started by uvicorn, ended by SIGTERM once it has answered."""

from __future__ import annotations

import asyncio
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import ip_address
from pathlib import Path

import uvicorn
from starlette.types import ASGIApp

from credibly._validation import require
from credibly.errors import OutputError
from credibly.serve.connections import IDLE_SECONDS, Connection
from credibly.serve.service import Service
from credibly.serve.warming import model_failed

SHORTEST = 16
"""Characters of a token, at least."""

BACKLOG = 1024
"""Connections that wait to be accepted, at most."""

LOOPBACK = frozenset({"127.0.0.1", "localhost", "[::1]"})
"""Names in `Host` by which a service on loopback is asked."""


class Server(uvicorn.Server):
    """Refuses new requests when it is told to stop, and answers what was accepted."""

    def __init__(self, config: uvicorn.Config, service: Service) -> None:
        super().__init__(config)
        self.service = service

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Drain, then stop as uvicorn does; a second signal does not wait."""
        end = self.service.drain()
        last = end - self.service.sending
        while (  # noqa: ASYNC110  # as uvicorn itself waits
            self.service.open and time.monotonic() < last and not self.force_exit
        ):
            await asyncio.sleep(0.02)
        self.service.hurry()
        left = max(0.1, end - time.monotonic())
        self.config.timeout_graceful_shutdown = left  # type: ignore[assignment]  # of seconds
        await super().shutdown(sockets)

    async def on_tick(self, counter: int) -> bool:
        """End also where the model cannot be used."""
        return await super().on_tick(counter) or self.service.broken is not None


def bound_socket(host: str, port: int) -> socket.socket:
    """A socket that listens; port 0 takes a free one."""
    found = None
    try:
        family, _, _, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        # named TCP, so that asyncio sends at once what is written: else answers wait for 40 ms
        found = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind(address)
        found.listen(BACKLOG)  # who asks before uvicorn accepts has to wait, and is not refused
    except OSError as error:
        if found is not None:
            found.close()
        raise OutputError(
            f"{host}:{port} cannot be listened on ({error.strerror or error})",
            remedy="Choose another --port (0 takes a free one), or another --host.",
        ) from error
    return found


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach it."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def read_token(file: Path | None, given: str | None) -> str | None:
    """The token of a file, or of the environment; None if there is neither."""
    if file is not None:
        try:
            given = file.read_text("utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise OutputError(
                f"{file} cannot be read ({type(error).__name__})",
                remedy="Write a token into it: openssl rand -hex 32 > token.",
            ) from error
    if given is None:
        return None
    good = len(given) >= SHORTEST and given.isascii() and given.isprintable() and " " not in given
    remedy = "Make one: openssl rand -hex 32 > token."
    expected = f"at least {SHORTEST} characters of ASCII without spaces"
    require(good, "token", expected, f"{len(given)} characters", remedy)
    return given


def check_who_may_ask(host: str, token: str | None, *, forced: bool) -> None:
    """Refuse to be open to a network without a token, unless that is forced."""
    require(
        token is not None or forced or is_loopback(host),
        "token",
        f"a token for {host}, which other machines can reach",
        "none",
        "Pass --token-file, or set CREDIBLY_TOKEN; --without-token lets everybody ask.",
    )


def server_of(app: ASGIApp, service: Service) -> Server:
    """A server that is not running yet."""
    config = uvicorn.Config(
        app, log_config=None, access_log=False, server_header=False, lifespan="on", ws="none",
        http=Connection, limit_concurrency=service.settings.connections,
        timeout_keep_alive=round(IDLE_SECONDS), backlog=BACKLOG, proxy_headers=False,
    )  # fmt: skip
    return Server(config, service)


def serve(app: ASGIApp, service: Service, listening: socket.socket) -> None:
    """Answer until a signal comes, or the model turns out to be of no use."""
    with _quiet_end():
        server_of(app, service).run([listening])
    if service.broken is not None:
        raise model_failed(service.broken) from service.broken
    if service.unsaved is not None:
        raise service.unsaved


@contextmanager
def _quiet_end() -> Iterator[None]:
    """Uvicorn raises the signal again after it has stopped; that is then no error."""
    before = {
        name: signal.signal(name, lambda *_: None) for name in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield
    finally:
        for name, handler in before.items():
            signal.signal(name, handler)
