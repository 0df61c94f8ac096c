"""Tables for docs/explanation/scores.md, from the parts of a study by experiments/evidence.py.

python -m experiments.evidence_tables FOLDER --out results/evidence-NAME.json
python -m experiments.evidence_tables FOLDER --choose

With --choose, candidates for the defaults are ranked on the held-out sets only. Otherwise the test
sets are measured, with all scales from the held-out slice.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from credibly.study.rows import Rows, study_settings
from experiments.evidence_choose import choose
from experiments.evidence_chosen import folder as chosen_folder
from experiments.evidence_columns import Scale, outlier_columns, read_parts, tamper_columns
from experiments.evidence_detection import detection
from experiments.evidence_failures import Draws, failures


def main(words: Sequence[str] | None = None) -> None:
    """Print the tables, and write the numbers as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--choose", action="store_true", help="rank candidates, on held-out sets")
    parser.add_argument("--resamples", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(words)
    rows, held, scale = read_parts(given.folder)
    plan = Draws(given.resamples, given.seed)
    tables = choose(held, scale) if given.choose else measured(rows, scale, plan)
    found = {"study": about(given.folder, plan), **tables}
    if given.out is not None:
        given.out.parent.mkdir(parents=True, exist_ok=True)
        given.out.write_text(json.dumps(short(found), allow_nan=False) + "\n", encoding="utf-8")


def measured(rows: Mapping[str, Rows], scale: Scale, plan: Draws) -> dict[str, Any]:
    """Measure the test sets."""
    return {
        "sets": {name: facts(part) for name, part in rows.items()},
        "failures": failures(rows, scale, plan),
        "outliers": detection(rows, "outliers", outlier_columns, scale, plan),
        "tampering": detection(rows, "attacked", tamper_columns, scale, plan),
    }


def about(folder: Path, plan: Draws) -> dict[str, Any]:
    """Return what was studied, and how the intervals were drawn."""
    study = study_settings(folder)
    begun = chosen_folder(folder).read()
    chosen = {**begun["resolved"], **begun["settings"]}
    known = {key: study[key] for key in ("model", "solver", "gamma", "baselines")}
    return {**known, "chosen on held-out": chosen, "resamples": plan.resamples, "seed": plan.seed}


def facts(part: Rows) -> dict[str, Any]:
    """Return the size and the accuracies of a set."""
    known: dict[str, Any] = {
        "kind": part.kind,
        "images": len(part.labels),
        "passes": part.facts["median passes"],
        "without a profile": part.facts["without a profile"],
    }
    if part.kind != "outliers":
        known["right"] = float(part.correct.double().mean())
        known["most credible right"] = float(part.credible_correct.double().mean())
    return known


def short(value: Any) -> Any:
    """Round to five digits, and replace infinity and NaN by None."""
    if isinstance(value, Mapping):
        return {name: short(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [short(part) for part in value]
    if isinstance(value, float):
        return float(f"{value:.5g}") if math.isfinite(value) else None
    return value


if __name__ == "__main__":
    main()
