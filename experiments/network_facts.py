"""List the facts of trained networks: recipe, accuracies, seconds and SHA-256.

    python -m experiments.network_facts checkpoints --out results/networks.json

The networks are too large for the repository. Figures name them by their SHA-256; the file says how
each was made and how accurate it is.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from credibly.errors import FileFormatError
from credibly.io.fingerprints import digest_of_file
from experiments import networks
from experiments.paper.files import write_json

NUMBERS = ("test_accuracy", "held_out_accuracy", "seconds")


def facts_of(path: Path) -> dict[str, Any]:
    """Read the facts of one file, with numbers as numbers."""
    said = networks.load(path).facts
    numbers = {name: float(said[name]) for name in NUMBERS if name in said}
    return {
        "sha256": digest_of_file(path),
        "recipe": json.loads(said.get("recipe", "null")),
        **numbers,
        "made_with": said.get("made_with"),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, help="of NAME-seedN.safetensors")
    parser.add_argument(
        "--out", type=Path, help="JSON file for all facts; without it they are only printed"
    )
    given = parser.parse_args(arguments)
    found = given.folder.glob("*-seed*.safetensors")
    paths = sorted(path for path in found if path.stem.rpartition("-seed")[2].isdigit())
    if not paths:
        parser.exit(1, f"error: no NAME-seedN.safetensors in {given.folder}: train some first\n")
    try:
        facts_by_name = {path.stem: facts_of(path) for path in paths}
    except FileFormatError as error:
        parser.exit(1, f"error: {error}\n")
    if given.out is not None:
        write_json(given.out, facts_by_name)
    for name, facts in facts_by_name.items():
        print(f"{name}: {100 * facts.get('test_accuracy', float('nan')):.2f} % of the test images")


if __name__ == "__main__":
    main()
