"""The inputs of a judgement, kept so that their profiles can be solved when they are asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from credibly.decide.examine import Examiner
from credibly.decide.signals import Typicality
from credibly.model.derivatives import undisturbed
from credibly.model.variable import Variable
from credibly.profile.profile import Profile


@dataclass(frozen=True, eq=False)
class KeptInputs:
    """The inputs of a judgement, by reference, and how to solve their profiles.

    Attributes:
        examiner: of the Judge.
        variables: what was judged, in chunks.
        rows: the number of an input in the judgement -> its chunk, and its number there.
        typicality: the ordinary inputs of the Judge.
    """

    examiner: Examiner
    variables: tuple[Variable, ...]
    rows: dict[int, tuple[int, int]]
    typicality: Typicality | None = None

    def variable_of(self, index: int) -> Variable | None:
        """One input; None if it was not kept."""
        if index not in self.rows:
            return None
        chunk, row = self.rows[index]
        return self.variables[chunk].select(slice(row, row + 1))

    def profile_of(self, index: int) -> Profile:
        """Solve one profile."""
        chunk, row = self.rows[index]
        with undisturbed(self.variables[chunk].select(slice(row, row + 1))) as one:
            return self.examiner.shown_profile(one)

    def profiles_of(self, rows: Sequence[int]) -> dict[int, Profile]:
        """Solve the profiles of some inputs together, which is quicker than one by one."""
        places: dict[int, list[int]] = {}
        for row in rows:
            places.setdefault(self.rows[row][0], []).append(row)
        found: dict[int, Profile] = {}
        for chunk, here in places.items():
            start = self.variables[chunk].start
            index = torch.tensor([self.rows[row][1] for row in here], device=start.device)
            with undisturbed(self.variables[chunk].select(index)) as some:
                profile = self.examiner.shown_profile(some)
            found |= {row: profile[k] for k, row in enumerate(here)}
        return found

    def select(self, index: Tensor) -> KeptInputs:
        """Those of the chosen inputs."""
        chosen = enumerate(index.tolist())
        return replace(self, rows={k: self.rows[n] for k, n in chosen if n in self.rows})

    @classmethod
    def concatenate(cls, parts: Sequence[tuple[int, KeptInputs | None]]) -> KeptInputs | None:
        """Those of many judgements, each with its length; None if one of them kept none."""
        kept = [(size, part) for size, part in parts if part is not None]
        if len(kept) < len(parts) or not kept:
            return None
        variables: list[Variable] = []
        rows: dict[int, tuple[int, int]] = {}
        start = 0
        for size, part in kept:
            first = len(variables)
            rows |= {start + n: (first + c, r) for n, (c, r) in part.rows.items()}
            variables += part.variables
            start += size
        return replace(kept[0][1], variables=tuple(variables), rows=rows)
