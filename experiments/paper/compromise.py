"""Risk and |c+|^2 as gamma grows, and whether the trade-off holds for every image."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from experiments.paper import measures
from experiments.paper.cache import Stage
from experiments.paper.kinds import Found, measuring
from experiments.paper.measures import Numbers
from experiments.paper.settings import Figure
from experiments.paper.stages import Line


def compromise(lines: Mapping[str, Line], figure: Figure) -> Stage:
    """Measure each gamma, for each set of images."""
    (line,) = lines.values()
    gammas = [f"{gamma:g}" for gamma in figure.gammas]
    stages = {
        f"{images} images|{name}": line.solve(images, gamma=gamma)
        for images in figure.images
        for name, gamma in zip(gammas, figure.gammas, strict=True)
    }

    def numbers(found: Found) -> Numbers:
        return {
            f"{images} images": set_numbers({g: found[f"{images} images|{g}"] for g in gammas})
            for images in figure.images
        }

    return measuring(lines, figure, stages, numbers)


def set_numbers(found: Mapping[str, Mapping[str, Tensor]]) -> Numbers:
    """Measure one set by gamma, and the change from each gamma to the next."""
    each = {gamma: trade_off(values, float(gamma)) for gamma, values in found.items()}
    return {
        "gammas": {
            gamma: gamma_numbers(values) | measures.settled(found[gamma])
            for gamma, values in each.items()
        },
        "differences": {
            f"{b} less {a}": {
                "risk": measures.mean_of(each[b]["risk"] - each[a]["risk"]),
                "norm": measures.mean_of(each[b]["norm"] - each[a]["norm"]),
                "risk falls": measures.mean_of(each[b]["risk"] < each[a]["risk"]),
                "norm grows": measures.mean_of(each[b]["norm"] > each[a]["norm"]),
            }
            for a, b in zip(list(each), list(each)[1:], strict=False)
        },
    }


def trade_off(found: Mapping[str, Tensor], gamma: float) -> dict[str, Tensor]:
    """Return per image |x+ - x0|^2, |c+|^2, |c0|^2 and the slack of the trade-off."""
    before, after = (found[k][0].double().square().sum(1) for k in ("c0", "c"))
    risk = found["risk"][0].double()
    return {"risk": risk, "norm": after, "slack": (before - after) / gamma - risk, "before": before}


def gamma_numbers(values: Mapping[str, Tensor]) -> Numbers:
    """Return means with intervals, and quantiles to draw."""
    quantiles = torch.linspace(0, 1, 51, dtype=torch.float64)

    def shape(column: Tensor) -> list[float | None]:
        return [measures.number(v, 4) for v in column.quantile(quantiles).tolist()]

    return {
        "risk": measures.mean_of(values["risk"]),
        "distance": measures.mean_of(values["risk"].sqrt()),
        "norm": measures.mean_of(values["norm"]),
        "norm before": measures.mean_of(values["before"]),
        "trade-off holds": measures.number(float((values["slack"] >= 0).double().mean())),
        "least slack": measures.number(float(values["slack"].min())),
        "distance quantiles": shape(values["risk"].sqrt()),
        "norm quantiles": shape(values["norm"]),
    }
