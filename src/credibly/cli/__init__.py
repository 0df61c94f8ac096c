"""The command line: one file a command."""

from __future__ import annotations

import sys


def main() -> None:
    """Entry point of the `credibly` command."""
    try:
        from credibly.cli.app import app
    except ImportError as error:
        sys.exit(
            f"The command line needs {error.name!r}, which is not installed. "
            "Install it with: pip install 'credibly[all]'"
        )
    app()
