"""What a Judge catches on a large image network, beside what one forward alone would.

    python -m experiments.judge --model NETWORK.safetensors --images TEST.npz
        --foreign MNIST=FILE.npz --foreign NAME=FILE.npz [--device cuda] [--out RESULT.json]

`images` and `labels` of TEST.npz are bytes and classes; the first 1000 images are the ordinary
inputs of the Judge, without labels, and the others are judged. Catch rates are at 1 and 5 % of
false alarms asked for; baselines have their thresholds from the same ordinary images. AURC is that
of trust over that of the largest softmax output. Profiles by nine passes and by a full solve are
compared by how well the smaller rank of `shift` and `gain` finds the outliers.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import credibly as cr
from credibly.attacks.pgd import PGD
from credibly.baselines import GEN, Energy, MaxSoftmax
from credibly.metrics import aurc, auroc
from credibly.study.corruptions import Corruption
from experiments import networks
from experiments.evidence_sets import inverted, noise, shuffled
from experiments.evidence_subject import resize
from experiments.images import read_images, read_npz

ORDINARY, OUTLIERS, ATTACKED, RATES = 1000, 400, 500, (0.01, 0.05)
BASELINES = {"max softmax": MaxSoftmax(), "energy": Energy(), "GEN": GEN()}


def outliers(like: Tensor, foreign: dict[str, Tensor]) -> dict[str, Tensor]:
    """Images that do not belong, in the shape of some that do."""
    return {
        "uniform noise": noise(like, uniform=True, seed=0),
        "Gaussian noise": noise(like, uniform=False, seed=0),
        "inverted": inverted(like),
        "shuffled patches": shuffled(like),
        **{
            name: resize(x[:OUTLIERS].cpu(), like[:1].cpu()).to(like) for name, x in foreign.items()
        },
    }


def labelled(clf: cr.Classifier, x: Tensor, y: Tensor) -> dict[str, tuple[Tensor, Tensor]]:
    """Clean, damaged and attacked images with their classes."""
    some, truth = x[:ATTACKED], y[:ATTACKED]
    found = {"clean": (x, y)}
    for kind, severity in (("gaussian noise", 3), ("gaussian blur", 3)):
        found[f"{kind} {severity}"] = (Corruption(kind, severity)(some.cpu()).to(x), truth)
    for eps in (0.002, 0.01, 0.03):
        step = min(0.005, eps / 2)
        attack = PGD(eps=eps, steps=50, step_size=step, bounds=(0.0, 1.0), chunk_size=500)
        found[f"PGD {eps:g}"] = (attack(clf, some, truth), truth)
    return found


def caught(p: Tensor) -> list[float]:
    """The share of alarms at each rate."""
    return [round(float((p <= rate).double().mean()), 4) for rate in RATES]


def by_baselines(clf: cr.Classifier, ordinary: Tensor, sets: dict[str, Tensor]) -> dict[str, Any]:
    """Catch rates of thresholds on one score, set by the same ordinary images."""
    result: dict[str, Any] = {}
    for name, baseline in BASELINES.items():
        known = baseline(clf, ordinary).cpu().sort().values
        result[name] = {
            kind: caught((1 + torch.searchsorted(known, baseline(clf, x).cpu(), right=True))
                         / (len(known) + 1))
            for kind, x in sets.items()
        }  # fmt: skip
    return result


def judged(judge: cr.Judge, sets: dict[str, Tensor]) -> dict[str, Any]:
    """Catch rates of a Judge, by its alarm and by the question of outliers alone, and its price."""
    result: dict[str, Any] = {}
    for kind, x in sets.items():
        found = judge(x)
        result[kind] = {
            "alarm": caught(found.p_ordinary),
            "outlier": caught(found.p_outlier),
            "passes": round(found.cost, 3),
        }
    return result


def grades(
    judge: cr.Judge, ordinary: Tensor, new: Tensor, sets: dict[str, Tensor]
) -> dict[str, dict[str, float]]:
    """AUROC of the smaller rank of shift and gain for each set, by grade of the solve."""
    clf, gamma, descent = judge.examiner.clf, judge.examiner.gamma, judge.examiner.descent
    assert descent is not None
    solvers: dict[str, Any] = {
        "solve": cr.solvers.Hybrid(),
        "decide, 9 passes": descent,
        "decide, 6 passes": replace(descent, steps=5),
    }
    result = {}
    for name, solver in solvers.items():

        def scores(x: Tensor, solver: Any = solver) -> tuple[Tensor, Tensor]:
            profile = cr.credibility(clf, x, gamma=gamma, solver=solver, chunk_size=1000)
            return cr.scores.shift(profile).cpu(), cr.scores.gain(profile).cpu()

        known = [part.sort().values for part in scores(ordinary)]

        def rank(x: Tensor, known: list[Tensor] = known, scores: Any = scores) -> Tensor:
            ranks = [torch.searchsorted(k, part) for k, part in zip(known, scores(x), strict=True)]
            return torch.stack(ranks).amin(0).double()

        belongs = rank(new)
        result[name] = {kind: round(auroc(-rank(x), -belongs), 4) for kind, x in sets.items()}
    return result


def measure(clf: cr.Classifier, x: Tensor, y: Tensor, foreign: dict[str, Tensor]) -> dict[str, Any]:
    """All numbers of one network."""
    ordinary, new, truth = x[:ORDINARY], x[ORDINARY:], y[ORDINARY:]
    strange = outliers(new[-OUTLIERS:], foreign)
    known = labelled(clf, new[:-OUTLIERS], truth[:-OUTLIERS])
    sets = strange | {name: pair[0] for name, pair in known.items()}
    result: dict[str, Any] = {"ordinary": ORDINARY, "rates": RATES}
    for use in ("doubtful", "always", "never"):
        judge = cr.Judge.fit(clf, ordinary, profile=use)  # type: ignore[arg-type]
        found = judged(judge, sets)
        clean = known["clean"][0]
        started = time.perf_counter()
        judge(clean)
        found["images per second"] = round(len(clean) / (time.perf_counter() - started), 1)
        found["relative AURC"] = {
            name: round(_relative(judge, clf, *pair), 3) for name, pair in known.items()
        }
        result[f"profile {use}"] = found
        if use == "always":
            by_grade = grades(judge, ordinary[:300], clean[:1000], strange)
    result["baselines"] = by_baselines(clf, ordinary, sets)
    result["AUROC by grade"] = by_grade
    return result


def _relative(judge: cr.Judge, clf: cr.Classifier, x: Tensor, y: Tensor) -> float:
    found = judge(x)
    right = found.predicted == y.cpu()
    return aurc(found.trust, right) / aurc(MaxSoftmax()(clf, x).cpu(), right)


def print_result(result: dict[str, Any], strange: list[str]) -> None:
    """Means over the sets of outliers, and a line per set."""
    for name, found in result.items():
        if not name.startswith("profile"):
            continue
        rates = {q: [sum(found[k][q][i] for k in strange) / len(strange) for i in (0, 1)]
                 for q in ("alarm", "outlier")}  # fmt: skip
        print(f"{name}: outliers caught by the alarm {rates['alarm'][0]:.3f} at 1 %, "
              f"{rates['alarm'][1]:.3f} at 5 % (question of outliers alone "
              f"{rates['outlier'][0]:.3f}, {rates['outlier'][1]:.3f}); false alarms "
              f"{found['clean']['alarm']}; {found['clean']['passes']:.2f} passes per clean image; "
              f"{found['images per second']} images/s")  # fmt: skip
        print(
            "  caught",
            {k: v["alarm"] for k, v in found.items() if isinstance(v, dict) and "alarm" in v},
        )
        print("  relative AURC", found["relative AURC"])
    for name, found in result["baselines"].items():
        means = [sum(found[k][i] for k in strange) / len(strange) for i in (0, 1)]
        print(f"{name}: {means[0]:.3f} at 1 %, {means[1]:.3f} at 5 %")
    for name, found in result["AUROC by grade"].items():
        mean = sum(found.values()) / len(found)
        print(f"{name}: AUROC {mean:.3f}, worst {min(found.values()):.3f}")


def main() -> None:
    """Measure one network, print and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--images", type=Path, required=True)
    parser.add_argument("--foreign", action="append", default=[])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    data = read_npz(given.images).to(given.device)
    pairs = [text.split("=", 1) for text in given.foreign]
    foreign = {name: read_images(Path(path)) for name, path in pairs}
    clf = cr.Classifier(networks.load(given.model, given.device).net)
    result = measure(clf, data.pixels, data.labels, foreign)
    print_result(result, list(outliers(data.pixels[:4], {n: x[:4] for n, x in foreign.items()})))
    if given.out is not None:
        device = torch.cuda.get_device_name() if given.device == "cuda" else "CPU"
        made = {"command": "python -m experiments.judge", "network": given.model.stem,
                "device": device, "torch": torch.__version__}  # fmt: skip
        given.out.write_text(json.dumps(made | result, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
