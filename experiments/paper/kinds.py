"""The measurements of each kind of figure: a stage of numbers for one space."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from credibly.metrics.intervals import bootstrap
from experiments.paper import measures
from experiments.paper.cache import Cache, Content, Stage
from experiments.paper.measures import FEW, RESAMPLES, Numbers
from experiments.paper.settings import Figure
from experiments.paper.stages import Line
from experiments.paper.world import World

Found = dict[str, Mapping[str, Tensor]]
WHICH = ("softmax", "profile")
VERSION = 1
"""Of the measurements: raised when any of them changes."""


def measured(world: World, cache: Cache, figure: Figure, space: str) -> Stage:
    """Return the stage with all numbers of a figure in one space."""
    lines = {name: Line(world, cache, figure, name, space) for name in figure.networks}
    from experiments.paper.compromise import compromise
    from experiments.paper.readings import readings

    plan = {
        "compromise": compromise,
        "profiles": profiles,
        "filtering": filtering,
        "accuracy": accuracies,
        "readings": readings,
        "seeds": seeds,
    }[figure.kind]
    return plan(lines, figure)


def set_name(images: int, restarts: int) -> str:
    """Describe a set of images."""
    return f"{images} images, {restarts} restart{'s' * (restarts > 1)}"


@contextmanager
def one_thread() -> Iterator[None]:
    """Use one thread: resampling is thousands of small sorts, which threads slow down."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def measuring(
    lines: Mapping[str, Line],
    figure: Figure,
    stages: Mapping[str, Stage],
    numbers: Callable[[Found], Numbers],
    extra: Mapping[str, Any] | None = None,
) -> Stage:
    """Return a stage that turns solved sets into numbers."""
    line = next(iter(lines.values()))

    def compute() -> Content:
        found: Found = {name: line.cache.load(stage).tensors for name, stage in stages.items()}
        with one_thread():
            return Content({}, {"numbers": numbers(found)})

    settings = {
        "kind": figure.kind, "sets": list(stages), "resamples": [RESAMPLES, FEW], **(extra or {}),
    }  # fmt: skip
    label = f"measure {figure.name} {line.space}"
    return Stage("measure", label, VERSION, settings, tuple(stages.values()), compute)


def profiles(lines: Mapping[str, Line], figure: Figure) -> Stage:
    """Measure the sorted profiles of each network, and how much they changed."""
    stages, sizes = {}, sorted(set(figure.images))
    for name, line in lines.items():
        for images in sizes:
            stages[f"{name}/{images}"] = line.solve(images, gamma=figure.gammas[0])
        stages[f"{name}/test"] = line.predict()

    def numbers(found: Found) -> Numbers:
        each = {
            name: {f"{n} images": profile_numbers(found[f"{name}/{n}"]) for n in sizes}
            | {"accuracy": measures.mean_of(found[f"{name}/test"]["correct"])}
            for name in lines
        }
        names, least = list(lines), sizes[0]
        pairs = {
            f"{a} less {b}": profile_difference(found[f"{a}/{least}"], found[f"{b}/{least}"])
            for place, a in enumerate(names)
            for b in names[place + 1 :]
        }
        return {"networks": each, "differences": pairs}

    extra = {"quantiles": "of the second value, with intervals"}
    return measuring(lines, figure, stages, numbers, extra)


def profile_numbers(found: Mapping[str, Tensor]) -> Numbers:
    """Return means with intervals, bands of the sorted profiles, and some profiles to draw."""
    before, after = (measures.normalised(found[k][0]) for k in ("c0", "c"))
    quantiles = torch.tensor([0.05, 0.25, 0.5, 0.75, 0.95], dtype=torch.float64)
    drawn = torch.linspace(0, len(before) - 1, min(25, len(before))).long()

    def rounded(values: Tensor) -> list[list[float]]:
        return [[round(v, 3) for v in row] for row in values.tolist()]

    means = {k: measures.mean_of(v) for k, v in measures.movements(found).items()}
    spreads = {
        f"spread {when}": measures.as_list(bootstrap(measures.spread, values, n=measures.FEW))
        for when, values in (("before", before), ("after", after))
    }
    bands = {"before": before, "after": after}
    seconds = {
        f"second value {when}, {share:.0%}": measures.quantile_of(values[:, 1], share)
        for when, values in (("before", before), ("after", after))
        for share in (0.05, 0.5)
    }
    return {
        **means,
        **spreads,
        **seconds,
        "bands": {k: rounded(v.quantile(quantiles, dim=0)) for k, v in bands.items()},
        "samples": {k: rounded(v[drawn]) for k, v in bands.items()},
    }


def profile_difference(left: Mapping[str, Tensor], right: Mapping[str, Tensor]) -> Numbers:
    """Return means of the first less those of the second, on the same images."""
    a, b = measures.movements(left), measures.movements(right)
    found = {name: measures.mean_of(a[name] - b[name]) for name in a}

    def share(x: Tensor, y: Tensor) -> float:
        return float(y.mean() / x.mean())

    both = (a["normalised change"], b["normalised change"])
    ratio = bootstrap(share, *both, n=measures.RESAMPLES)
    return {**found, "normalised change, second over first": measures.as_list(ratio)}


def filtering(lines: Mapping[str, Line], figure: Figure) -> Stage:
    """Measure filtered accuracy against coverage, in every set and condition."""
    (line,) = lines.values()
    stages = _all_conditions(line, figure)

    def numbers(found: Found) -> Numbers:
        each = {
            name: {
                **filter_numbers(values),
                "drop": drops(found[f"{name.split('|')[0]}|clean"], values),
            }
            for name, values in found.items()
        }
        return _nested(each)

    extra = {"grid": list(measures.GRID), "overconfidence": "largest output less accuracy"}
    return measuring(lines, figure, stages, numbers, extra)


def drops(clean: Mapping[str, Tensor], attacked: Mapping[str, Tensor]) -> Numbers:
    """Return the accuracy lost to an attack, and how far softmax is ahead after it."""
    before = {which: measures.answers(clean, which).double().mean(0) for which in WHICH}
    after = {which: measures.answers(attacked, which).double().mean(0) for which in WHICH}
    return {which: measures.mean_of(before[which] - after[which]) for which in WHICH} | {
        "softmax ahead by": measures.mean_of(after["softmax"] - after["profile"])
    }


def filter_numbers(found: Mapping[str, Tensor]) -> Numbers:
    """Return curves of both classifiers, and where each regains the other's accuracy."""
    right = {which: measures.answers(found, which) for which in WHICH}
    scores = {which: found[f"{which}_score"] for which in WHICH}
    regain = {
        f"{a} for {b}": measures.coverage_to_regain(scores[a], right[a], right[b])
        for a, b in (WHICH, WHICH[::-1])
    }
    return {
        which: {
            **measures.curve(scores[which], right[which]),
            **measures.accuracy(right[which]),
        }
        for which in WHICH
    } | {
        "coverage": regain,
        "auroc difference": measures.auroc_difference(found),
        "overconfidence": measures.overconfidence(found),
    }


def accuracies(lines: Mapping[str, Line], figure: Figure) -> Stage:
    """Measure both classifiers with every image answered."""
    (line,) = lines.values()
    stages = _all_conditions(line, figure)

    def numbers(found: Found) -> Numbers:
        return _nested({name: both_accuracies(values) for name, values in found.items()})

    return measuring(lines, figure, stages, numbers)


def both_accuracies(found: Mapping[str, Tensor]) -> Numbers:
    """Return the accuracy of softmax and of the profile, with the worst case of each image."""
    return {which: measures.accuracy(measures.answers(found, which)) for which in WHICH}


def seeds(lines: Mapping[str, Line], figure: Figure) -> Stage:
    """Measure networks that differ only in their training seed."""
    images, restarts = figure.sets()[0]
    stages = {
        f"{name}|{condition}": stage
        for name, line in lines.items()
        for condition, stage in line.conditions(images, restarts).items()
    }

    def numbers(found: Found) -> Numbers:
        each = _nested({name: both_accuracies(values) for name, values in found.items()})
        conditions = next(iter(each.values()))
        over = {
            condition: {
                which: measures.spread_of(
                    torch.tensor([each[n][condition][which]["accuracy"][0] for n in each])
                )
                for which in WHICH
            }
            for condition in conditions
        }
        return {"networks": each, "over seeds": over}

    return measuring(lines, figure, stages, numbers)


def _all_conditions(line: Line, figure: Figure) -> dict[str, Stage]:
    return {
        f"{set_name(images, restarts)}|{condition}": stage
        for images, restarts in figure.sets()
        for condition, stage in line.conditions(images, restarts).items()
    }


def _nested(flat: Mapping[str, Any]) -> dict[str, Any]:
    """Turn 'a|b' -> value into a -> b -> value."""
    found: dict[str, Any] = {}
    for name, value in flat.items():
        first, second = name.split("|")
        found.setdefault(first, {})[second] = value
    return found
