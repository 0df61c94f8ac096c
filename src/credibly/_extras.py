"""Optional libraries, loaded when they are first needed."""

from __future__ import annotations

import warnings
from importlib import import_module
from typing import Any

from credibly.errors import MissingExtraError

_PACKAGES = {"sklearn": "scikit-learn", "PIL": "pillow", "torch_geometric": "torch-geometric"}
"""Libraries whose package has another name."""


def load_extra(module: str, *, extra: str, purpose: str) -> Any:
    """A module of an optional library, or the error that says how to install it.

    Warnings of the library at its own import are not the caller's.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import_module(module.partition(".")[0])  # the library itself may be missing or blocked
            return import_module(module)
    except ImportError as error:
        name = module.partition(".")[0]
        package = _PACKAGES.get(name, name)
        raise MissingExtraError(package=package, extra=extra, purpose=purpose) from error


def require_table_extra(purpose: str = "A Parquet file of profiles", *, pandas: bool = True) -> Any:
    """Return pyarrow with its `parquet`, or say that it or pandas is missing."""
    load_extra("pyarrow.parquet", extra="table", purpose=purpose)
    if pandas:
        load_extra("pandas", extra="table", purpose=purpose)
    return import_module("pyarrow")


def require_report_extra() -> None:
    """Say so if a library for pictures and pages is missing."""
    for library in ("matplotlib", "jinja2"):
        load_extra(library, extra="report", purpose="A report with pictures")
