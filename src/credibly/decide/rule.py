"""What all rules share: the settings they belong to, their files, and their answers in one form."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, ClassVar, Self

from torch import Tensor

from credibly.decide.scores import without_profile
from credibly.decide.settings import describe_settings, read_settings, refuse_other_settings
from credibly.decide.trust_scores import TrustScore
from credibly.errors import FileFormatError
from credibly.io.files import read_json, write_json
from credibly.profile.profile import Profile, Settings

VERSION = 1
"""Of the format of all rules."""

Classes = tuple[int | None, ...]


@dataclass(frozen=True, eq=False)
class Answers:
    """What a rule says about every sample, in one form for all kinds of rules.

    Attributes:
        predicted: the class of the model (N,), None where its losses are NaN.
        classes: the class that is answered (N,), None where there is no answer.
        unusable: samples (N,) without a profile; these are never answered.
        columns: what this kind of rule says in addition, N values each.
        notes: how it came out, in a few words.
    """

    predicted: Classes
    classes: Classes
    unusable: tuple[bool, ...]
    columns: Mapping[str, Sequence[Any]]
    notes: str

    @property
    def accepted(self) -> tuple[bool, ...]:
        """Which samples got an answer."""
        return tuple(k is not None for k in self.classes)

    @property
    def counts(self) -> Counter[str]:
        """How many samples were answered, were abstained on, or are unusable."""
        rows = zip(self.accepted, self.unusable, strict=True)
        return Counter(
            "unusable" if bad else "answered" if yes else "abstained" for yes, bad in rows
        )


@dataclass(frozen=True, repr=False)
class Rule(ABC):
    """Decides about every sample of a profile, by thresholds that were set on other samples.

    Attributes:
        settings: those of the profiles it was made from; profiles of others are refused.
    """

    format: ClassVar[str]
    readers: ClassVar[Mapping[str, Callable[[Any], Any]]]
    """For each field, how its value is read from JSON."""

    settings: Settings = field(kw_only=True)

    @abstractmethod
    def answers(self, profile: Profile) -> Answers:
        """What the rule says about every sample; profiles of other settings are refused."""

    @abstractmethod
    def __str__(self) -> str:
        """The rule in a few words."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self}; {describe_settings(self.settings)})"

    def check(self, profile: Profile) -> None:
        """Refuse profiles of other settings than those the rule was made with."""
        refuse_other_settings(self.settings, profile)

    def save(self, path: str | Path) -> None:
        """Write a JSON file; see `load`."""
        own = {field.name: _as_json(getattr(self, field.name)) for field in fields(self)}
        write_json(path, {"format": self.format, "format_version": VERSION, **own})

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read what `save` wrote. Nothing in the file is executed."""
        content = read_json(path, cls.format, VERSION)
        readers = {"settings": read_settings, **cls.readers}
        try:
            return cls(**{name: read(content[name]) for name, read in readers.items()})
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise FileFormatError(f"{path}: cannot be read ({error!r}).") from error


def make_answers(
    profile: Profile, classes: Classes, columns: Mapping[str, Sequence[Any]], notes: str
) -> Answers:
    """Answers to the samples of a profile."""
    known = ~profile.credence.isnan().any(1).cpu()
    unusable = tuple(without_profile(profile).cpu().tolist())
    return Answers(predicted_where(known, profile), classes, unusable, columns, notes)


def predicted_where(rows: Tensor, profile: Profile) -> Classes:
    """The class of the model in these rows, None in the others."""
    pairs = zip(profile.predicted.tolist(), rows.tolist(), strict=True)
    return tuple(int(k) if yes else None for k, yes in pairs)


def _as_json(value: Any) -> Any:
    if isinstance(value, TrustScore):
        return value.as_json()
    if isinstance(value, tuple):
        return [_as_json(part) for part in value]
    return value.as_json() if isinstance(value, Settings) else value
