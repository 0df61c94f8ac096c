"""From a template, results and pictures to one HTML file that needs no other."""

from __future__ import annotations

import base64
from collections.abc import Mapping

import jinja2
from markupsafe import Markup

from credibly.explore.built import digest, part, sign
from credibly.report.tables import number, with_interval
from credibly.version import __version__


def render(template: str, pictures: Mapping[str, bytes], **values: object) -> str:
    """Fill a template of this folder; PNG pictures become part of the page."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("credibly", "report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters.update(number=number, interval=with_interval, badge=badge)
    sources = {
        name: f"data:image/png;base64,{base64.b64encode(image).decode('ascii')}"
        for name, image in pictures.items()
    }
    found = environment.get_template(template)
    return found.render(
        pictures=sources,
        version=__version__,
        style=Markup(part("common.css")),  # noqa: S704  # our own
        policy=f"default-src 'none'; style-src {digest('common.css')}; img-src data:",
        **values,
    )


def badge(text: str) -> str:
    """A verdict with its sign and colour, as in the explorer; other text as it is."""
    drawn = sign(text)
    if not drawn:
        return text
    return Markup('<span class="badge {0}">{1}{0}</span>').format(text, Markup(drawn))  # noqa: S704  # our own
