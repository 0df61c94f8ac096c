"""Tables for docs/scores.md from the parts of a study that experiments/evidence.py made.

python -m experiments.evidence_tables FOLDER --out results/evidence-NAME.json
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from credibly.decide.bootstrap import Interval, bootstrap, paired_difference
from credibly.decide.metrics import aurc, auroc, fpr_at_tpr
from credibly.evaluate.study import Rows, read_study

DEFAULT = "softmax and profile (default)"
RIVALS = {
    "max softmax": "max softmax (rival)",
    "logit margin": "logit margin (rival)",
    "max logit, p-norm": "max logit p-norm (rival)",
    "DOCTOR": "DOCTOR (rival)",
    "energy": "energy (rival)",
    "GEN": "GEN (rival)",
    "ODIN": "ODIN (rival)",
}
OWN = {
    "predicted ratio": "predicted_ratio",
    "margin at x+": "margin",
    "shift": "shift",
    "gain": "gain",
    "risk": "risk",
    "one Gauss-Newton step": "one Gauss-Newton step (rival)",
}


def main() -> None:
    """Print the tables, and write the numbers as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    rows = read_study(given.folder)
    study = json.loads((given.folder / "study.json").read_text("utf-8"))
    found = {
        "study": {key: study[key] for key in ("model", "solver", "gamma")},
        "sets": {name: facts(part) for name, part in rows.items()},
        "failures": failures(rows),
        "outliers": detection(rows, "outliers", one_sided()),
        "tampering": detection(rows, "attacked", two_sided()),
    }
    if given.out is not None:
        given.out.parent.mkdir(parents=True, exist_ok=True)
        given.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def facts(part: Rows) -> dict[str, float]:
    """Size and accuracies of a set."""
    known = {"images": len(part.labels), "passes": part.facts["median passes"]}
    if part.kind != "outliers":
        known["right"] = float(part.correct.double().mean())
        known["most credible right"] = float(part.credible_correct.double().mean())
    return known


def default_score(rows: Mapping[str, Rows], part: Rows) -> Tensor:
    """`failure_score`, balanced by the ordinary set."""
    clean, total = ordinary(rows), torch.zeros(len(part.labels), dtype=torch.float64)
    for name, share in (("softmax_ratio", 1.0), ("predicted_ratio", 0.5)):
        total = total + share * part.scores[name] / spread(clean.scores[name])
    return total


def failures(rows: Mapping[str, Rows]) -> dict[str, object]:
    """AURC x 1000 by score and set, and the default against the two softmax rules, paired."""
    labelled = {name: part for name, part in rows.items() if part.kind != "outliers"}
    groups = {
        "clean": [n for n, p in labelled.items() if p.kind == "ordinary"],
        "damaged, severity 1-2": [
            n for n, p in labelled.items() if p.kind == "shifted" and n[-1] in "12"
        ],
        "damaged, severity 3-5": [
            n for n, p in labelled.items() if p.kind == "shifted" and n[-1] in "345"
        ],
    } | {name: [name] for name in ("PGD 0.001", "PGD 0.002", "PGD 0.004") if name in labelled}
    scores = {DEFAULT: None, **RIVALS, **OWN}
    table: dict[str, dict[str, float]] = {}
    print("\nAURC x 1000, the model's class kept\n| score | " + " | ".join(groups) + " |")
    print("|---|" + "---|" * len(groups))
    for title, name in scores.items():
        table[title] = {
            group: area([(values(rows, labelled[n], name), labelled[n].correct) for n in names])
            for group, names in groups.items()
        }
        print(f"| {title} | " + " | ".join(f"{v:.1f}" for v in table[title].values()) + " |")
    second = {
        group: area([(labelled[n].scores["ratio"], labelled[n].credible_correct) for n in names])
        for group, names in groups.items()
    }
    print(
        "| most credible class, by ratio (the paper) | "
        + " | ".join(f"{v:.1f}" for v in second.values())
        + " |"
    )
    return {"aurc": table, "system B": second, "differences": differences(rows, labelled, groups)}


def differences(
    rows: Mapping[str, Rows], labelled: Mapping[str, Rows], groups: Mapping[str, list[str]]
) -> dict[str, object]:
    """The default less each softmax rule, with 95 % intervals, on clean and attacked sets."""
    found: dict[str, object] = {}
    print("\ndefault less rival, AURC x 1000 (95 %)")
    for group, names in groups.items():
        if len(names) > 1:
            continue
        part = labelled[names[0]]
        for title in ("max softmax", "logit margin"):
            gap = paired_difference(
                aurc, default_score(rows, part), part.scores[RIVALS[title]], part.correct
            )
            found[f"{group}, {title}"] = [1000 * v for v in (gap.value, gap.low, gap.high)]
            print(f"{group}, {title}: {words(gap, 1000)}")
    return found


def one_sided() -> dict[str, str]:
    """Scores for outliers: flagged where small."""
    return {"shift (default)": "shift", "gain": "gain", **RIVALS}


def two_sided() -> dict[str, str]:
    """Scores for tampering: flagged where unlike ordinary; elasticity where small."""
    named = {"shift": "shift", "gain": "gain", "elasticity": "elasticity", **RIVALS}
    return {f"two-sided {title}": f"two {name}" for title, name in named.items()} | {
        "elasticity, one side": "elasticity"
    }


def detection(
    rows: Mapping[str, Rows], kind: str, scores: Mapping[str, str]
) -> dict[str, dict[str, object]]:
    """AUROC against the ordinary set, with 95 % intervals, and FPR at 95 % TPR."""
    clean = ordinary(rows)
    parts = {name: part for name, part in rows.items() if part.kind == kind}
    print(f"\nAUROC against clean images: {kind}\n| score | " + " | ".join(parts) + " |")
    print("|---|" + "---|" * len(parts))
    found: dict[str, dict[str, object]] = {}
    for title, name in scores.items():
        line = []
        for set_name, part in parts.items():
            foreign, usual = flagged(clean, part, name), flagged(clean, clean, name)
            area = bootstrap(auroc, foreign, usual, n=200)
            miss = float(fpr_at_tpr(foreign, usual))
            found.setdefault(title, {})[set_name] = [area.value, area.low, area.high, miss]
            line.append(f"{area.value:.3f} ({area.low:.3f}-{area.high:.3f})")
        print(f"| {title} | " + " | ".join(line) + " |")
    return found


def flagged(clean: Rows, part: Rows, name: str) -> Tensor:
    """How suspicious each sample is."""
    if name.startswith("two "):
        own = name.removeprefix("two ")
        return (part.scores[own] - clean.scores[own].quantile(0.5)).abs()
    return -part.scores[name]


def values(rows: Mapping[str, Rows], part: Rows, name: str | None) -> Tensor:
    """A score of a set; None is the default."""
    return default_score(rows, part) if name is None else part.scores[name]


def ordinary(rows: Mapping[str, Rows]) -> Rows:
    """The reference set."""
    return next(part for part in rows.values() if part.kind == "ordinary")


def spread(score: Tensor) -> float:
    """The range between the quartiles."""
    low, high = score.quantile(torch.tensor([0.25, 0.75], dtype=score.dtype)).tolist()
    return high - low


def area(pairs: list[tuple[Tensor, Tensor]]) -> float:
    """AURC x 1000 of scores and whether each is right, the mean over sets."""
    return 1000 * sum(aurc(score, correct) for score, correct in pairs) / len(pairs)


def words(interval: Interval, factor: float) -> str:
    """A number with its interval."""
    value, low, high = (factor * v for v in (interval.value, interval.low, interval.high))
    return f"{value:+.2f} ({low:+.2f} to {high:+.2f})"


if __name__ == "__main__":
    main()
