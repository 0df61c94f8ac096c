"""A connection to a Ray cluster, or the error that says why there is none, in bounded time."""

from __future__ import annotations

import logging
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from credibly._validation import require
from credibly.errors import InvalidArgumentError, WorkerError

KNOCK, HEALTH = 5.0, 30.0
"""Seconds for an address to answer, and for what is there to prove that it is Ray."""

OBJECTS = 128 << 20
"""Bytes that a cluster started here keeps for objects; the shards never pass through it."""

_OWN = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_worker_niceness": "0",  # by default 15: workers starve beside any other program
}
"""Settings of a cluster that is started for one run, where the environment has none."""


@contextmanager
def connected(
    ray: Any, address: str | None, wanted: Mapping[str, Any], cpus: float
) -> Iterator[None]:
    """Connect, or use the connection there is; one that was made here is closed again."""
    if ray.is_initialized():
        _require_usable(ray.get_runtime_context().gcs_address, address, wanted)
        yield
        return
    address = address or os.environ.get("RAY_ADDRESS") or "local"
    if address not in ("auto", "local"):
        _knock(address)
    options: dict[str, Any] = {"address": address, "log_to_driver": False}
    if address == "local":
        for name, value in _OWN.items():
            os.environ.setdefault(name, value)
        options |= {
            "num_cpus": cpus,
            "include_dashboard": False,
            "object_store_memory": OBJECTS,
        }
    if wanted:
        options["runtime_env"] = dict(wanted)
    try:
        with _signals_kept():
            ray.init(**options, logging_level=logging.ERROR, configure_logging=True)
    except Exception as error:
        raise _refused(address, error) from error
    try:
        yield
    finally:
        ray.shutdown()


@contextmanager
def _signals_kept() -> Iterator[None]:
    """Ray ends the process at SIGTERM in its own way; whoever handled it before, does so again."""
    main = threading.current_thread() is threading.main_thread()
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    except SystemExit as told:
        raise KeyboardInterrupt from told
    finally:
        if main and before is not None:
            signal.signal(signal.SIGTERM, before)


def _require_usable(connected_to: str, address: str | None, wanted: Mapping[str, Any]) -> None:
    """Refuse a cluster that is there already where another, or other code on it, is wanted."""
    if address not in (None, "auto", "local"):
        _knock(address)
        require(
            _machine(address) == _machine(connected_to),
            "address",
            f"{connected_to}, to which Ray is connected in this process",
            repr(address),
            "Leave it out to use that cluster, or call ray.shutdown() before.",
        )
    require(
        not wanted,
        "working_dir",
        "none where Ray is connected already",
        str(dict(wanted)),
        "Pass runtime_env to your ray.init, or let credibly connect.",
    )


def _machine(address: str) -> tuple[Any, ...]:
    host, _, port = address.rpartition(":")
    return socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM)[0][4][:2]


def _knock(address: str) -> None:
    """See whether a Ray head answers; Ray itself would try for minutes."""
    host, colon, port = address.rpartition(":")
    require(
        bool(colon and host) and port.isdecimal() and "://" not in address,
        "address",
        "HOST:PORT of the head of a Ray cluster, or 'auto'",
        repr(address),
        "`ray status` on the head shows it, usually port 6379. Ray's client (ray://) is not used: "
        "run this on the head, or with `ray job submit`.",
    )
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=KNOCK).close()
    except (OSError, OverflowError) as error:
        raise _unreachable(address, str(error)) from error
    command = [sys.executable, "-m", "ray.scripts.scripts", "health-check", "--address", address]
    try:
        done = subprocess.run(command, capture_output=True, timeout=HEALTH, check=False)  # noqa: S603
    except subprocess.TimeoutExpired as error:
        raise _unreachable(address, f"no answer of Ray in {HEALTH:g} s") from error
    if done.returncode:
        raise _unreachable(address, "something answers there, but it is no Ray of this version")


def _unreachable(address: str, reason: str) -> InvalidArgumentError:
    return InvalidArgumentError(
        "address",
        expected="the address of a Ray cluster that can be reached from here",
        got=f"{address} ({reason})",
        remedy="Check that it runs (`ray status` on its head), the port, and the firewall. "
        "Finished shards are kept.",
    )


def _refused(address: str, error: Exception) -> WorkerError:
    reason = " ".join(str(error).split())[:300]
    return WorkerError(
        f"Ray at {address} cannot be used: {type(error).__name__}: {reason}",
        remedy="Python and Ray must have the same versions on all machines, and a working_dir must "
        "not be larger than 500 MB. Finished shards are kept.",
    )
