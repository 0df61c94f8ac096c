"""`python -m experiments.paper`."""

from __future__ import annotations

import sys

from experiments.paper.command import main

if __name__ == "__main__":
    sys.exit(main())
