"""From a template, results and pictures to one HTML file that needs no other."""

from __future__ import annotations

import base64
from collections.abc import Mapping

import jinja2

from credibly.report.tables import number, with_interval
from credibly.version import __version__


def render(template: str, pictures: Mapping[str, bytes], **values: object) -> str:
    """Fill a template of this folder; PNG pictures become part of the page."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("credibly", "report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters.update(number=number, interval=with_interval)
    sources = {
        name: f"data:image/png;base64,{base64.b64encode(image).decode('ascii')}"
        for name, image in pictures.items()
    }
    found = environment.get_template(template)
    return found.render(pictures=sources, version=__version__, **values)
