"""The attacks of the adaptive table.

PGD, APGD, Square on the bare model and the inverse map do not depend on the attacked system: their
inputs are made once for each norm and eps and judged by every system. The others attack one system
by its own goal. Where a system can refuse (A and T), they know its threshold (A8); without it they
would attack the bare model, as the row `pgd on the margin` does.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from torch import Tensor

import credibly as cr
from credibly.attacks.ball import Box
from credibly.attacks.transfer import Kind
from credibly.errors import InvalidArgumentError
from experiments.adaptive_inputs import Nearest, Restarts, ScaledBack, Targets
from experiments.adaptive_nearest import CarliniWagner, DeepFool

RADII = {"linf": (0.01, 0.02, 0.03), "l2": (0.1, 0.25, 0.5)}
LARGE = {
    "pixel": {"linf": 0.3, "l2": 10.0}, "normalised": {"linf": 1.2, "l2": 40.0},
}  # fmt: skip
"""Radii at which every class can be reached, by space: no system may withstand them."""

SYSTEMS = "bBAT"
LONGER = 4
"""How many times more steps the sanity checks take."""

NEAREST: dict[str, DeepFool | CarliniWagner] = {
    "deepfool (nearest)": DeepFool(),
    "carlini-wagner (nearest)": CarliniWagner(),
}
BLACK_BOX = "square"
LIBRARIES = {"apgd": "pyautoattack"}
Settings = dict[str, Any]


@dataclass(frozen=True)
class Subject:
    """What is attacked: a network, test images, and the systems set up on held-out images.

    Attributes:
        clf: the classifier of inputs in a space.
        x: images (n, ...) in the units of that space.
        labels: their classes.
        systems: by letter, with thresholds.
        sha256: of the network's file.
        other: an independently trained network, or None.
        bounds: of the inputs.
        other_sha256: of the other network's file.
    """

    clf: cr.Classifier
    x: Tensor
    labels: Tensor
    systems: Mapping[str, cr.attacks.System]
    sha256: str
    other: cr.Classifier | None = None
    bounds: Box = (0.0, 1.0)
    other_sha256: str | None = None


@dataclass(frozen=True)
class Job:
    """Inputs that are made once, and the systems that judge them.

    Attributes:
        attack: its name in the table.
        norm: 'linf', 'l2' or 'none'.
        eps: radius; 0 where there is none.
        systems: letters of the judging systems.
        settings: must not differ between runs in one folder.
        find: makes candidates (c, n, ...).
        early: whether to start with it, because it takes long.
        gamma: of the profile that the inputs depend on, or None; a folder has only one.
    """

    attack: str
    norm: str
    eps: float
    systems: str
    settings: Settings
    find: Callable[[], Tensor]
    early: bool = False
    gamma: float | None = None

    @property
    def library(self) -> str | None:
        """The other package that makes the inputs, or None."""
        return next((name for part, name in LIBRARIES.items() if part in self.attack), None)

    @property
    def shared(self) -> bool:
        """Whether several systems judge the same inputs."""
        return len(self.systems) > 1


def jobs(subject: Subject, given: argparse.Namespace) -> list[Job]:
    """Return all jobs of a command line."""
    solving = [letter for letter in given.systems if letter != "b"]
    judges = SYSTEMS if ranks(given.systems) else "bB" if solving else "b"
    found = [Job("clean", "none", 0.0, judges, {}, lambda: subject.x[None])]
    for name, at_pixels in NEAREST.items():
        nearest = replace(at_pixels, bounds=subject.bounds)
        settings = {"name": type(nearest).__name__, **asdict(nearest)}
        make = Nearest(nearest, subject.clf, subject.x, subject.labels)
        found.append(Job(name, "none", 0.0, judges, settings, make, early=True))
    for norm in given.norm:
        for eps in given.radii or RADII[norm]:
            found += _shared(subject, given, norm, eps, judges)
            for letter in solving:
                found += _own(subject, given, norm, eps, letter)
        if given.sanity:
            found += _sanity(subject, given, norm, judges)
    refuse_unknown(given.attacks or [], [job.attack for job in found])
    wanted = (job for job in found if given.attacks is None or _named(job.attack, given.attacks))
    return [replace(job, settings={"space": given.space, **job.settings}) for job in wanted]


def refuse_unknown(wanted: Sequence[str], known: Sequence[str]) -> None:
    """Refuse parts of names that are in no name."""
    unknown = [part for part in wanted if not any(part in name for name in known)]
    if unknown:
        raise InvalidArgumentError(
            "--attacks",
            expected=f"parts of the names {'; '.join(dict.fromkeys(known))}",
            got=", ".join(unknown),
            remedy="Check the names, and whether --systems and --transfer-model add them.",
        )


def ranks(systems: str) -> bool:
    """Return whether some of the systems have thresholds, which held-out images set."""
    return not set(systems) <= set("bB")


def describe(attack: cr.attacks.Attack) -> Settings:
    """Return the settings of an attack as plain values, without the batch size."""
    skipped = ("system", "chunk_size", "surrogate", "eps", "norm")
    values = {f.name: getattr(attack, f.name) for f in fields(attack) if f.name not in skipped}
    return {"name": type(attack).__name__} | {
        name: list(value) if isinstance(value, tuple)
        else value if value is None or isinstance(value, (int, float, str)) else repr(value)
        for name, value in values.items()
    }  # fmt: skip


def _common(subject: Subject, given: argparse.Namespace, norm: str, eps: float) -> Settings:
    return {
        "eps": eps, "norm": norm, "bounds": subject.bounds, "seed": given.seed,
        "chunk_size": given.chunk_size,
    }  # fmt: skip


def _shared(
    subject: Subject, given: argparse.Namespace, norm: str, eps: float, judges: str
) -> Iterator[Job]:
    """Yield A0, A1 and A7 on the bare model, and A6, whose inputs depend on gamma alone."""
    common = _common(subject, given, norm, eps)
    clf, x, y = subject.clf, subject.x, subject.labels
    size = eps / 10 if norm == "l2" else min(0.005 if eps <= 0.01 else 0.01, eps / 2)
    plain: dict[str, cr.attacks.Attack] = {
        "pgd (A0)": cr.attacks.PGD(
            **common, steps=given.pgd_steps, step_size=size, restarts=given.pgd_restarts
        ),
        "pgd on the margin (A0)": cr.attacks.PGD(
            **common, steps=given.pgd_steps, loss="goal", keep="best"
        ),
        "square on the model (A7)": cr.attacks.Square(**common, steps=given.model_queries),
    }
    if judges != "b":
        plain["inverse map (A6)"] = cr.attacks.InverseMap(
            **common, steps=given.steps, system=subject.systems["B"]
        )
    for name, attack in plain.items():
        find = Restarts(attack, clf, x, y)
        gamma = None if attack.system is None else attack.system.gamma
        yield Job(name, norm, eps, judges, describe(attack), find, gamma=gamma)
    if judges != "b":
        once = replace(plain["pgd (A0)"], restarts=1)
        back = ScaledBack(once, clf, x, y)
        yield Job("pgd, scaled back (A8)", norm, eps, judges, describe(once), back)
    for title, source in (("", None), ("transferred ", subject.other)):
        if title and source is None:
            continue
        kinds: dict[str, Kind] = {"apgd-ce": "ce", "apgd-dlr-t": "dlr-targeted"}
        for name, kind in kinds.items():
            one = cr.attacks.TransferAPGD(
                **common, steps=given.apgd_steps, surrogate=source, kinds=(kind,)
            )
            settings = describe(one) | (_origin(subject, given) if source else {})
            find = Targets(one, clf, x, y)
            yield Job(f"{title}{name} (A1)", norm, eps, judges, settings, find)


def _origin(subject: Subject, given: argparse.Namespace) -> Settings:
    """Return the name of the other network, and its SHA-256, since names are reused."""
    return {"from": given.transfer_model.stem, "from SHA-256": subject.other_sha256}


def _own(
    subject: Subject, given: argparse.Namespace, norm: str, eps: float, letter: str
) -> Iterator[Job]:
    """Yield A2 to A5 and A7 on one system, with A8 if it can refuse."""
    for name, attack in _adaptive(subject, given, norm, eps, letter).items():
        find = Restarts(attack, subject.clf, subject.x, subject.labels)
        yield Job(name, norm, eps, letter, describe(attack), find)


def _adaptive(
    subject: Subject, given: argparse.Namespace, norm: str, eps: float, letter: str
) -> dict[str, cr.attacks.Attack]:
    system = subject.systems[letter]
    refuses = system.score is not None
    system = replace(system, aware=refuses)
    common = {**_common(subject, given, norm, eps), "system": system}
    more = {**common, "steps": given.steps, "restarts": given.restarts}
    deep = {**more, "chunk_size": given.deep_chunk_size}
    found: dict[str, cr.attacks.Attack] = {
        "bpda (A2": cr.attacks.BPDA(**more),
        "implicit, full (A3": cr.attacks.ImplicitGradient(**more, accuracy=1e-3),
        "implicit, outputs (A3": cr.attacks.ImplicitGradient(**more, curvature="outputs"),
        "unrolled 20 (A4": cr.attacks.Unrolled(**deep, length=20, rate=0.02),
        "unrolled 5 (A4": cr.attacks.Unrolled(**deep, length=5, rate=0.05),
        "gauss-newton (A5": cr.attacks.Surrogate(**deep),
        "square on the system (A7": cr.attacks.Square(**common, steps=given.queries),
    }
    if letter == "A":  # the score of T needs a profile
        found["pgd, profile left out (A0"] = cr.attacks.PGD(**common, steps=given.pgd_steps)
    return {f"{name}{', A8' * refuses})": attack for name, attack in found.items()}


def _sanity(
    subject: Subject, given: argparse.Namespace, norm: str, judges: str
) -> Iterator[Job]:  # fmt: skip
    """Yield the jobs of the sanity checks: more steps at the smallest eps, and a large eps."""
    least, large = min(given.radii or RADII[norm]), LARGE[given.space][norm]
    for job in _shared(subject, given, norm, large, judges):
        if job.attack in ("pgd on the margin (A0)", "inverse map (A6)"):
            yield job
    for letter in given.systems:
        if letter == "b":
            short: cr.attacks.Attack = cr.attacks.PGD(
                **_common(subject, given, norm, least),
                steps=given.pgd_steps,
                loss="goal",
                keep="best",
            )
            name = "pgd on the margin (A0)"
        else:
            name, short = _probe(_adaptive(subject, given, norm, least, letter))
            name, far = _probe(_adaptive(subject, given, norm, large, letter))
            find = Restarts(far, subject.clf, subject.x, subject.labels)
            yield Job(name, norm, large, letter, describe(far), find)
        longer = replace(short, steps=LONGER * short.steps)
        find = Restarts(longer, subject.clf, subject.x, subject.labels)
        title = f"{name}, {LONGER} times the steps"
        yield Job(title, norm, least, letter, describe(longer), find, early=True)


def _probe(attacks: Mapping[str, cr.attacks.Attack]) -> tuple[str, cr.attacks.Attack]:
    """Pick the implicit gradient by outputs, on ReLU networks the strongest adaptive attack."""
    return next(item for item in attacks.items() if item[0].startswith("implicit, outputs"))


def _named(attack: str, wanted: list[str]) -> bool:
    return attack == "clean" or any(part in attack for part in wanted)
