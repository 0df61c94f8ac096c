"""The settings of a figure, from its TOML file."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import credibly as cr
from credibly._validation import require
from credibly.errors import FileFormatError
from credibly.solve.base import Solver

FOLDER = Path(__file__).parent / "figures"
FURTHER = FOLDER / "further"
SPACES = ("pixel", "normalised")
PRECISIONS = ("float32", "bfloat16")
KINDS = ("compromise", "profiles", "filtering", "accuracy", "readings", "seeds")
SOLVERS: dict[str, Callable[..., Solver]] = {
    "hybrid": cr.solvers.Hybrid,
    "lbfgs": cr.solvers.LBFGS,
    "arrow-hurwicz": cr.solvers.ArrowHurwicz,
}


@dataclass(frozen=True, kw_only=True)
class Figure:
    """The settings of one figure.

    Attributes:
        name: of the figure and its files.
        kind: of measurement and picture.
        networks: names of checkpoint files without suffix.
        dataset: 'cifar10', 'fashion-mnist' or 'embedded'.
        spaces: units of gamma, eps and steps: 'pixel', 'normalised'.
        gammas: weights of the risk.
        eps: radii of the attacks.
        step_sizes: of the attacks, one for each eps.
        steps: of the attacks.
        images: sizes of the sets of images, drawn at random from the test set.
        restarts: of the attacks, one number for each set.
        seed: of the random choice of images.
        attack_seed: of the random starts of the attacks.
        attack_precision: of the layers while attacking, 'float32' or 'bfloat16'; the result is
            float32 and is judged in float32.
        solver: its name and settings.
        chunk: images per batch.
        tf32: whether convolutions may use TF32.
        lengths: steps of Algorithm 1 at which it is read ('readings').
        primal_steps: its step sizes.
        starts: its first multipliers.
    """

    name: str
    kind: str
    networks: tuple[str, ...]
    dataset: str
    spaces: tuple[str, ...] = SPACES
    gammas: tuple[float, ...] = (200.0,)
    eps: tuple[float, ...] = ()
    step_sizes: tuple[float, ...] = ()
    steps: int = 100
    images: tuple[int, ...] = (1000,)
    restarts: tuple[int, ...] = (1,)
    seed: int = 0
    attack_seed: int = 0
    attack_precision: str = "float32"
    solver: Mapping[str, Any]
    chunk: int = 2500
    tf32: bool = True
    lengths: tuple[int, ...] = ()
    primal_steps: tuple[float, ...] = ()
    starts: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _one_of("kind", self.kind, KINDS)
        for space in self.spaces:
            _one_of("spaces", space, SPACES)
        _one_of("attack_precision", self.attack_precision, PRECISIONS)
        _one_of("solver", self.solver.get("name"), tuple(SOLVERS))
        _as_many("step_sizes", self.step_sizes, "eps", self.eps)
        _as_many("restarts", self.restarts, "images", self.images)

    def make_solver(self) -> Solver:
        """Return the solver."""
        rest = {name: value for name, value in self.solver.items() if name != "name"}
        return SOLVERS[self.solver["name"]](**rest)

    def attacks(self) -> list[tuple[float, float]]:
        """Return pairs of eps and step size."""
        return list(zip(self.eps, self.step_sizes, strict=True))

    def sets(self) -> list[tuple[int, int]]:
        """Return pairs of a number of images and a number of restarts."""
        return list(zip(self.images, self.restarts, strict=True))

    def record(self) -> dict[str, Any]:
        """Return the settings for JSON."""
        return asdict(self)


def names() -> list[str]:
    """Return the paper's figures, in the order in which they are made."""
    return _names_in(FOLDER)


def further_names() -> list[str]:
    """Return further figures: made only by name, and not used for claims."""
    return _names_in(FURTHER)


def all_names() -> list[str]:
    """Return both."""
    return names() + further_names()


def _names_in(folder: Path) -> list[str]:
    order = {kind: place for place, kind in enumerate(KINDS)}
    found = {path.stem: tomllib.loads(path.read_text("utf-8")) for path in folder.glob("*.toml")}
    return sorted(found, key=lambda name: (order[found[name]["kind"]], name))


def load(name: str, *, small: bool = False, change: Mapping[str, Any] | None = None) -> Figure:
    """Read the settings of a figure, at the small scale if asked, with changes."""
    path = (FURTHER if name in further_names() else FOLDER) / f"{name}.toml"
    require(path.exists(), "figure", " or ".join(all_names()), repr(name), "Check the name.")
    values = tomllib.loads(path.read_text("utf-8"))
    less = values.pop("small", {})
    values = {**values, **(less if small else {}), **(change or {})}
    known = {f.name for f in fields(Figure)}
    unknown = sorted(set(values) - known)
    if unknown:
        raise FileFormatError(f"{path.name}: unknown keys {unknown}; known are {sorted(known)}.")
    frozen: dict[str, Any] = {
        key: tuple(v) if isinstance(v, list) else v for key, v in values.items()
    }
    return Figure(name=name, **frozen)


def _one_of(name: str, value: object, known: tuple[str, ...]) -> None:
    require(value in known, name, " or ".join(known), repr(value), "Correct the TOML file.")


def _as_many(name: str, values: tuple[Any, ...], of: str, others: tuple[Any, ...]) -> None:
    expected = f"as many numbers as `{of}`, {len(others)}"
    same = len(values) == len(others)
    require(same, name, expected, f"{len(values)}", "Correct the TOML file.")
