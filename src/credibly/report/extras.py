"""The libraries that pictures and pages need, or a clear word that they are missing."""

from __future__ import annotations

from importlib import import_module

from credibly.errors import MissingExtraError


def require_report_extra() -> None:
    """Raise `MissingExtraError` unless matplotlib and jinja2 can be imported."""
    for package in ("matplotlib", "jinja2"):
        try:
            import_module(package)
        except ImportError as error:
            raise MissingExtraError(
                package=package, extra="report", purpose="A report with pictures"
            ) from error
