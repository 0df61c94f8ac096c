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
