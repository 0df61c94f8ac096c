"""The built page: its script and its style, as `make explorer` wrote them from `web/`."""

from __future__ import annotations

import base64
import hashlib
import json
from functools import cache
from importlib.resources import files

PARTS = ("explorer.js", "explorer.css", "common.css", "verdicts.json", "LICENSES.txt")
"""What is built: the page, style and signs that all pages share, licences of what is inside."""


@cache
def part(name: str) -> str:
    """The text of a built file."""
    return files("credibly.explore").joinpath("built", name).read_text("utf-8")


def sign(verdict: str) -> str:
    """The sign of a verdict, as SVG in the colour of the text around it; none for other words."""
    shape = json.loads(part("verdicts.json")).get(verdict)
    if shape is None:
        return ""
    size = 'width="0.8em" height="0.8em" viewBox="0 0 12 12" fill="currentColor"'
    return f'<svg {size} fill-rule="evenodd" aria-hidden="true"><path d="{shape}"/></svg>'


@cache
def digest(name: str) -> str:
    """What a content policy calls a built file that stands inside a page."""
    found = hashlib.sha256(part(name).encode("utf-8")).digest()
    return f"'sha256-{base64.b64encode(found).decode('ascii')}'"


def policy(*, connect: str) -> str:
    """What the page may do: run this one script, ask `connect` for data, and nothing else."""
    return "; ".join(
        [
            "default-src 'none'",
            f"script-src {digest('explorer.js')}",
            f"style-src {digest('explorer.css')}",
            "img-src data: blob:",
            f"connect-src {connect}",
            "base-uri 'none'",
            "form-action 'none'",
        ]
    )
