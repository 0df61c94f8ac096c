"""The optional libraries for pictures and pages."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module

from credibly.errors import MissingExtraError


def require_report_extra(
    packages: Sequence[str] = ("matplotlib", "jinja2"), *, purpose: str = "A report with pictures"
) -> None:
    """Raise `MissingExtraError` unless all packages can be imported."""
    for package in packages:
        try:
            import_module(package)
        except ImportError as error:
            raise MissingExtraError(package=package, extra="report", purpose=purpose) from error
