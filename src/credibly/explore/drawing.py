"""Small pictures as PNG inside a page, without a library for pictures."""

from __future__ import annotations

import base64
import struct
import zlib

import torch
from torch import Tensor

MOST_SIDE = 256
"""Larger pictures are shown at this size."""

RED, BLUE, WHITE = (178.0, 24.0, 43.0), (33.0, 102.0, 172.0), (247.0, 247.0, 247.0)
"""Of differences: up, down and none."""


def png(pixels: Tensor) -> str:
    """Bytes (h, w, 1 or 3) as the address of a PNG inside a page."""
    height, width, channels = pixels.shape
    rows = torch.zeros(  # each begins with a filter
        height, 1 + width * channels, dtype=torch.uint8, device=pixels.device
    )
    rows[:, 1:] = pixels.reshape(height, -1).to(torch.uint8)
    header = struct.pack(">IIBBBBB", width, height, 8, 0 if channels == 1 else 2, 0, 0, 0)
    body = zlib.compress(rows.numpy().tobytes(), 6)
    content = b"\x89PNG\r\n\x1a\n" + b"".join(
        _chunk(kind, data) for kind, data in ((b"IHDR", header), (b"IDAT", body), (b"IEND", b""))
    )
    return f"data:image/png;base64,{base64.b64encode(content).decode('ascii')}"


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def picture(pixels: Tensor, low: float, high: float) -> str:
    """Pixels (h, w, 1 or 3), of which `low` is black and `high` is white."""
    scaled = (fit(pixels) - low) / ((high - low) or 1.0)
    return png((scaled.nan_to_num(0.0).clamp(0, 1) * 255).round())


def difference(move: Tensor, limit: float) -> str:
    """At every pixel (h, w, channels) the channel that moved most: blue is less, red is more."""
    move = fit(move)
    most = move.gather(-1, move.abs().argmax(-1, keepdim=True)) / (limit or 1.0)
    white, red, blue = (move.new_tensor(color) for color in (WHITE, RED, BLUE))
    end = torch.where(most > 0, red, blue)
    return png((white + (end - white) * most.abs().clamp(0, 1)).round())


def fit(pixels: Tensor) -> Tensor:
    """Pixels (h, w, channels) at most so large, by means of blocks."""
    step = -(-max(pixels.shape[:2]) // MOST_SIDE)
    if step <= 1:
        return pixels
    chosen = torch.nn.functional.avg_pool2d(pixels.movedim(-1, 0)[None], step, ceil_mode=True)
    return chosen[0].movedim(0, -1)
