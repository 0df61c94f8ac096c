"""How far a study is, counted in inputs."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from torch import Tensor

from credibly.solve.loop import Tick
from credibly.study.input_set import InputSet, labels_of


def sizes_of(sets: Mapping[str, InputSet]) -> dict[str, int]:
    """How many inputs each set has; of outliers that are not made yet, the mean of the others."""
    known = {
        name: len(part.inputs) if isinstance(part.inputs, Tensor) else len(labels_of(part, 0))
        for name, part in sets.items()
    }
    counted = [size for size in known.values() if size]
    usual = max(1, round(sum(counted) / max(1, len(counted))))
    return {name: size or usual for name, size in known.items()}


def ticks_of(
    tick: Tick | None, sets: Mapping[str, InputSet], missing: Collection[str]
) -> dict[str, Tick]:
    """A function of the share of each missing set that is done; the other sets are said to be."""
    if tick is None:
        return {}
    sizes = sizes_of(sets)
    total = sum(sizes.values())
    done = total - sum(sizes[name] for name in missing)
    tick(done / total)
    found = {}
    for name in missing:
        found[name] = _scaled(tick, done, sizes[name], total)
        done += sizes[name]
    return found


def _scaled(tick: Tick, base: int, size: int, total: int) -> Tick:
    return lambda share: tick((base + size * share) / total)
