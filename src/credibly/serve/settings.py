"""What bounds a service in time and memory."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

from credibly._validation import positive, require, whole

MEGA = 1 << 20

CHARACTERS = 25
"""Of a number in JSON, at most, if it is written in full."""

PARSED = 24
"""Bytes of Python objects that one byte of JSON can become."""

DECODED = 12
"""Bytes that one pixel of an image takes while it is decoded, at most: measured 8 to 10."""

PER_CONNECTION = 128 << 10
"""Bytes that a connection may hold in buffers: what uvicorn reads ahead, and the socket's own."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Limits of a service.

    Attributes:
        name: of the model, in addresses.
        batch: rows solved at a time, at most; None: as many as a quarter of the deadline allows.
        rows: of one request, at most.
        queue: rows that wait, at most.
        wait: seconds that the solver waits for more rows, at most; it does so only where the last
            batch held several requests.
        deadline: seconds after which a request should be answered, where it does not say so.
        longest: seconds that a request may ask for.
        body: bytes of one request; None: what `rows` rows take in JSON.
        bodies: bytes of all requests that are being read.
        connections: how many may be open.
        pixels: of all images of a request, before they are resized.
        resize: whether images are resized to the size of the ordinary ones.
        scale: what whole numbers are divided by; None refuses them.
        bounds: the smallest and largest number that is taken; None takes all.
        drain: seconds for what was accepted, once the service is told to stop.
        threads: of the solver; None: what is fastest when it starts.
    """

    name: str = "judge"
    batch: int | None = None
    rows: int = 64
    queue: int = 512
    wait: float = 0.005
    deadline: float = 2.0
    longest: float = 60.0
    body: int | None = None
    bodies: int = 64 * MEGA
    connections: int = 2048
    pixels: int = 16_000_000
    resize: bool = False
    scale: float | None = None
    bounds: tuple[float, float] | None = None
    drain: float = 30.0
    threads: int | None = None

    def __post_init__(self) -> None:
        plain = self.name.replace("-", "").replace("_", "").replace(".", "").isalnum()
        remedy = "It is part of addresses, for example --name shoes."
        good = plain and self.name.isascii()
        require(good, "name", "letters, digits, '-', '_' and '.'", repr(self.name), remedy)
        for field in fields(self):
            value = getattr(self, field.name)
            if field.type in ("int", "int | None") and value is not None:
                whole(field.name, value)
            elif field.type in ("float", "float | None") and value is not None:
                _number(field.name, value)
        good = self.queue >= self.rows
        require(good, "queue", "at least the rows of a request", f"{self.queue}", "Enlarge it.")
        if self.bounds is not None:
            good = self.bounds[0] < self.bounds[1]
            require(good, "bounds", "LOW below HIGH", f"{self.bounds}", "For example 0 1.")

    def body_of(self, shape: tuple[int, ...] | None) -> int:
        """Bytes that one request may have."""
        if self.body is not None:
            return self.body
        needed = 8 * MEGA if shape is None else self.rows * math.prod(shape) * CHARACTERS
        return min(max(needed, MEGA), self.bodies)


def _number(name: str, value: float) -> None:
    if name == "wait" and value == 0:
        return
    positive(name, value)


@dataclass(frozen=True)
class Memory:
    """Bytes that a service may take beside the model, at most.

    Attributes:
        bodies: of requests that are being read, and one of them in Python's objects.
        images: of one request, while they are decoded.
        queue: of rows that wait, and of their copies in a batch.
        batch: of a pass of the model over a batch, about.
        connections: of their buffers.
    """

    bodies: int
    images: int
    queue: int
    batch: int
    connections: int

    @classmethod
    def of(
        cls, settings: Settings, *, row: int, body: int, a_pass: int, batch: int, images: bool
    ) -> Memory:
        """From the bytes of a row, of the largest body and of a pass over one row."""
        return cls(
            bodies=settings.bodies + PARSED * body,
            images=DECODED * settings.pixels if images else 0,
            queue=row * (settings.queue + 2 * max(batch, settings.rows)),
            batch=a_pass * max(batch, settings.rows),
            connections=PER_CONNECTION * settings.connections,
        )

    @property
    def total(self) -> int:
        """All of it."""
        return sum(vars(self).values())

    def __str__(self) -> str:
        parts = ", ".join(f"{name} {value / MEGA:.0f} MB" for name, value in vars(self).items())
        return f"at most about {self.total / MEGA:.0f} MB beside the model ({parts})"
