"""The settings of a figure, from its TOML file."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import credibly as cr
from credibly.errors import FileFormatError, InvalidArgumentError
from credibly.solve.base import Solver

FOLDER = Path(__file__).parent / "figures"
BESIDE = FOLDER / "beside"
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
    """What one figure is made of.

    Attributes:
        name: also of the files it becomes.
        kind: which measurement and picture.
        networks: names of checkpoint files without their ending.
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
        attack_precision: of the layers while attacking, 'float32' or 'bfloat16'; what is found is
            float32 and is judged in it.
        solver: its name and settings.
        chunk: images computed at a time.
        tf32: whether convolutions may use TF32 where the device has it.
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
        """The solver itself."""
        rest = {name: value for name, value in self.solver.items() if name != "name"}
        return SOLVERS[self.solver["name"]](**rest)

    def attacks(self) -> list[tuple[float, float]]:
        """Pairs of eps and step size."""
        return list(zip(self.eps, self.step_sizes, strict=True))

    def sets(self) -> list[tuple[int, int]]:
        """Pairs of a number of images and a number of restarts."""
        return list(zip(self.images, self.restarts, strict=True))

    def record(self) -> dict[str, Any]:
        """The settings as JSON holds them."""
        return asdict(self)


def names() -> list[str]:
    """The paper's figures, in the order in which they are made."""
    return _names_in(FOLDER)


def names_beside() -> list[str]:
    """Figures beyond the paper's: made where they are named, and no claim is judged by them."""
    return _names_in(BESIDE)


def all_names() -> list[str]:
    """Both."""
    return names() + names_beside()


def _names_in(folder: Path) -> list[str]:
    order = {kind: place for place, kind in enumerate(KINDS)}
    found = {path.stem: tomllib.loads(path.read_text("utf-8")) for path in folder.glob("*.toml")}
    return sorted(found, key=lambda name: (order[found[name]["kind"]], name))


def load(name: str, *, small: bool = False, change: Mapping[str, Any] | None = None) -> Figure:
    """The settings of a figure, at the small scale where asked, with changes on top."""
    path = (BESIDE if name in names_beside() else FOLDER) / f"{name}.toml"
    if not path.exists():
        raise InvalidArgumentError(
            "figure", expected=" or ".join(all_names()), got=repr(name), remedy="Check the name."
        )
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
    if value not in known:
        raise InvalidArgumentError(
            name, expected=" or ".join(known), got=repr(value), remedy="Correct the TOML file."
        )


def _as_many(name: str, values: tuple[Any, ...], of: str, others: tuple[Any, ...]) -> None:
    if len(values) != len(others):
        raise InvalidArgumentError(
            name,
            expected=f"as many numbers as `{of}`, {len(others)}",
            got=f"{len(values)}",
            remedy="Correct the TOML file.",
        )
