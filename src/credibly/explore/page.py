"""One self-contained HTML file: the built script, its style, and the data as JSON."""

from __future__ import annotations

import html
import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from credibly.explore.built import part, policy
from credibly.io.files import whole_file

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="referrer" content="no-referrer">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<div id="app"><noscript>The explorer needs JavaScript; it loads nothing else.</noscript></div>
<script type="application/json" id="data">{data}</script>
<script>{script}</script>
</body>
</html>
"""

HEIGHT = 860
"""Of the frame in a notebook, in pixels."""


@dataclass(frozen=True, repr=False)
class Explorer:
    """The explorer of some verdicts, as one HTML page; a notebook shows it.

    Attributes:
        html: the whole page, which loads nothing from elsewhere.
        rows: how many it shows.

    Example: see `Judgement.explore`.
    """

    html: str
    rows: int

    def save(self, path: str | Path) -> Path:
        """Write the page, completely or not at all, and return its path."""
        with whole_file(path) as place:
            place.write_text(self.html, encoding="utf-8")
        return Path(path)

    def _repr_html_(self) -> str:
        """A frame of its own: neither page can reach into the other."""
        return (
            f'<iframe title="credibly explorer" sandbox="allow-scripts allow-downloads" '
            f'style="width:100%;height:{HEIGHT}px;border:0" '
            f'srcdoc="{html.escape(self.html, quote=True)}"></iframe>'
        )

    def __repr__(self) -> str:
        size = len(self.html) / 1e6
        return f"Explorer({self.rows} rows, {size:.1f} MB; save it with .save('page.html'))"


def render(data: dict[str, Any], *, title: str, connect: str = "'none'") -> str:
    """The page of some data; it may ask `connect` for more."""
    return _PAGE.format(
        title=html.escape(title),
        policy=html.escape(policy(connect=connect), quote=False),
        style=part("explorer.css"),
        script=part("explorer.js"),
        data=as_json(data),
    )


def as_json(data: Any) -> str:
    """JSON that may stand inside a script element: nothing in it ends the element or the text."""
    text = json.dumps(_plain(data), ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _plain(value: Any) -> Any:
    """The value without NaN and infinity, which JSON does not have: null, and the words of JS."""
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, dict):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value
