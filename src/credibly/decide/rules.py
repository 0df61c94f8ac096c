"""Rules of any kind, from their files."""

from __future__ import annotations

import json
from pathlib import Path

from credibly.decide.conformal import ConformalSets
from credibly.decide.flag import OutlierFlag
from credibly.decide.rule import Rule
from credibly.decide.selective import SelectiveClassifier
from credibly.errors import FileFormatError

RULES: tuple[type[Rule], ...] = (SelectiveClassifier, OutlierFlag, ConformalSets)


def load_rule(path: str | Path) -> Rule:
    """Read the rule in a file that the `save` of any of them wrote. Nothing in it is executed."""
    if not Path(path).is_file():
        raise FileFormatError(f"{path}: no such file. A rule is written by its save(...).")
    try:
        content = json.loads(Path(path).read_text("utf-8"))
    except OSError as error:
        raise FileFormatError(f"{path}: cannot be read ({error.strerror or error}).") from error
    except (ValueError, RecursionError) as error:
        raise FileFormatError(f"{path}: not a JSON file ({error}).") from error
    for kind in RULES:
        if isinstance(content, dict) and content.get("format") == kind.format:
            return kind.load(path)
    names = ", ".join(kind.__name__ for kind in RULES)
    raise FileFormatError(f"{path}: not a file that the save of {names} wrote.")
