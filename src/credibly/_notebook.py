"""What a notebook shows: small tables in HTML, and a bar while something is computed.

Colours are the notebook's own, so that light and dark ones can be read; the text is escaped.
"""

from __future__ import annotations

import html
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from time import monotonic
from typing import Any

MOST = 5
"""Rows that are shown of many."""

EVERY = 0.1  # seconds between two pictures of a bar
_CELL = "text-align:{};padding:.2em .7em;vertical-align:top"
_QUIET = "opacity:.75;font-size:.92em"


class Html(str):
    """Text that is HTML already; other text is escaped."""

    __slots__ = ()


def number(value: float, digits: int = 3) -> str:
    """A number with a few digits; a dash for NaN."""
    return "-" if math.isnan(value) else f"{value:.{digits}g}"


def percent(share: float) -> str:
    """A share in percent; a dash for NaN."""
    return "-" if math.isnan(share) else f"{share:.1%}"


def block(title: str, *parts: str) -> str:
    """A heading and what stands below it."""
    body = "".join(_escaped(part) for part in parts)
    return f'<div style="max-width:60em"><p><b>{html.escape(title)}</b></p>{body}</div>'


def note(text: str) -> Html:
    """A quiet sentence."""
    return Html(f'<p style="{_QUIET}">{html.escape(text)}</p>')


def table(columns: Sequence[str], rows: Sequence[Sequence[str]], *, words: int = 1) -> Html:
    """Rows of text below the names of columns; the first `words` columns are left-aligned."""
    align = ["left" if k < words else "right" for k in range(len(columns))]
    head = "".join(
        f'<th scope="col" style="{_CELL.format(side)}">{_escaped(name)}</th>'
        for name, side in zip(columns, align, strict=True)
    )
    body = "".join(
        "<tr>"
        + "".join(
            f'<td style="{_CELL.format(side)}">{_escaped(cell)}</td>'
            for cell, side in zip(row, align, strict=True)
        )
        + "</tr>"
        for row in rows
    )
    return Html(
        f'<table style="border-collapse:collapse;margin:.4em 0"><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table>"
    )


def facts(pairs: Sequence[tuple[str, str]]) -> Html:
    """Names and what they are."""
    rows = "".join(
        f'<tr><th scope="row" style="{_CELL.format("left")};font-weight:normal;opacity:.75">'
        f'{_escaped(name)}</th><td style="{_CELL.format("left")}">{_escaped(value)}</td></tr>'
        for name, value in pairs
    )
    return Html(
        f'<table style="border-collapse:collapse;margin:.4em 0"><tbody>{rows}</tbody></table>'
    )


def bar(share: float) -> Html:
    """A share between 0 and 1 as a bar."""
    wide = 0.0 if math.isnan(share) else 100 * min(1.0, max(0.0, share))
    return Html(
        '<span style="display:inline-block;width:7em;height:.55em;border-radius:2px;'
        'background:rgba(128,128,128,.25)"><span style="display:block;height:100%;'
        f'border-radius:2px;background:currentColor;opacity:.6;width:{wide:.1f}%"></span></span>'
    )


def _escaped(text: str) -> str:
    return text if isinstance(text, Html) else html.escape(text)


def display_of() -> Callable[..., Any] | None:
    """The `display` of a running notebook; None elsewhere, also in IPython's terminal."""
    known = sys.modules.get("IPython")
    shell = None if known is None else known.get_ipython()
    if shell is None or not hasattr(shell, "kernel"):
        return None
    from IPython.display import display

    show: Callable[..., Any] = display
    return show


@contextmanager
def notebook_bar(display: Callable[..., Any], what: str) -> Iterator[Callable[[float], None]]:
    """A bar in a notebook, which needs no widgets; afterwards a line with the time it took."""
    started, last = monotonic(), -math.inf
    handle = display(_Shown(_moving(what, 0.0)), display_id=True)

    def tick(share: float) -> None:
        nonlocal last
        if monotonic() - last >= EVERY:
            last = monotonic()
            handle.update(_Shown(_moving(what, share)))

    ending = "stopped after"
    try:
        yield tick
        ending = "done in"
    finally:
        text = f"{what}: {ending} {monotonic() - started:.1f} s"
        handle.update(_Shown(note(text), text))


def _moving(what: str, share: float) -> Html:
    name = html.escape(what, quote=True)
    return Html(
        f'<progress style="width:20em;vertical-align:middle" max="1" value="{share:.4f}" '
        f'aria-label="{name}"></progress> <span>{name}, {share:.0%}</span>'
    )


class _Shown:
    """Something with two forms: for a notebook, and as text."""

    def __init__(self, shown: Html, text: str = "") -> None:
        self._shown, self._text = shown, text

    def _repr_html_(self) -> str:
        return self._shown

    def __repr__(self) -> str:
        return self._text
