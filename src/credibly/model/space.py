"""The space in which inputs are moved: which parts, how dear, how far, and what stays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from credibly.errors import InvalidArgumentError
from credibly.types import Array

PerLeaf = Array | float | Mapping[str, Any] | None
"""One value for every feature, an array that broadcasts to a sample, or a mapping from leaves."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Space:
    """A metric on inputs: risk is the sum of ((x - x0) / scale)^2 over the features that may move.

    Attributes:
        vary: paths of the leaves of a nested input that may move, such as 'pixels' or 'text.0';
            None: the only floating leaf. All else passes through to the model untouched.
        scale: typical size of each feature, for example its standard deviation; moving a feature by
            its scale costs 1. None: 1 for all.
        locked: features that must not move: a boolean mask that broadcasts to a sample, or numbers
            or names of columns (the last axis). One-hot and categorical columns belong here.
        tied: whole numbers that broadcast to a sample: features with the same number >= 0 move
            together by the same multiple of their scales, such as all pixels of a channel; those
            with -1 move on their own.
        bounds: (low, high), each a number or an array that broadcasts to a sample.
        columns: names of the features of the last axis, for `locked`.

    With several leaves, `scale`, `locked`, `tied` and `bounds` may be mappings from paths.
    """

    vary: str | Sequence[str] | None = None
    scale: PerLeaf = None
    locked: Any = None
    tied: Any = None
    bounds: Any = None
    columns: Sequence[str] | None = None

    @staticmethod
    def standardised(x: Array, **settings: Any) -> Space:
        """A space whose scales are the standard deviations of `x` over samples.

        Features that never change in `x` have no scale of their own and are locked.
        """
        sample = torch.as_tensor(x, dtype=torch.float64).detach()
        spread = sample.std(0) if len(sample) > 1 else torch.zeros_like(sample[0])
        constant = ~(spread > 0)
        given = settings.pop("locked", None)
        space = Space(locked=given, **settings)
        mask = space.locked_mask("", tuple(sample.shape[1:])) | constant
        return Space(scale=torch.where(constant, 1.0, spread), locked=mask, **settings)

    def describe(self) -> str:
        """One line for settings and tables."""
        parts = [f"vary={self.vary!r}"] if self.vary is not None else []
        for name in ("scale", "locked", "tied", "bounds"):
            value = getattr(self, name)
            if value is not None:
                parts.append(f"{name}={_short(value)}")
        return f"Space({', '.join(parts)})"

    def scale_of(self, path: str, shape: tuple[int, ...]) -> Tensor:
        """Scales (D,) of a leaf whose samples have this shape."""
        value = self._for(self.scale, path)
        flat = _spread("scale", path, 1.0 if value is None else value, shape, torch.float64)
        if not bool(((flat > 0) & torch.isfinite(flat)).all()):
            raise InvalidArgumentError(
                "scale",
                expected="positive finite numbers, the typical size of each feature",
                came=f"{int((~((flat > 0) & torch.isfinite(flat))).sum())} that are not",
                remedy="Lock features that never change: Space(locked=...), or use "
                "Space.standardised(sample).",
            )
        return flat

    def locked_mask(self, path: str, shape: tuple[int, ...]) -> Tensor:
        """Which features (D,) of a leaf may not move."""
        value = self._for(self.locked, path)
        if value is None:
            return torch.zeros(shape, dtype=torch.bool).flatten()
        if isinstance(value, Tensor | np.ndarray) and torch.as_tensor(value).dtype == torch.bool:
            return _spread("locked", path, value, shape, torch.bool)
        listed = [value] if isinstance(value, str | int) else list(value)
        if listed and all(isinstance(item, bool) for item in listed):
            return _spread("locked", path, np.array(listed), shape, torch.bool)
        mask = torch.zeros(shape[-1:], dtype=torch.bool)
        for column in listed:
            mask[self._column(column, shape[-1])] = True
        return mask.expand(shape).flatten()

    def tied_numbers(self, path: str, shape: tuple[int, ...]) -> Tensor:
        """Group numbers (D,) of a leaf; -1 for features that move on their own."""
        value = self._for(self.tied, path)
        return _spread("tied", path, -1 if value is None else value, shape, torch.long)

    def bounds_of(self, path: str, shape: tuple[int, ...]) -> tuple[Tensor, Tensor] | None:
        """Lowest and highest values (D,) of a leaf."""
        value = self._for(self.bounds, path)
        if value is None:
            return None
        if not isinstance(value, tuple | list) or len(value) != 2:
            raise InvalidArgumentError(
                "bounds",
                expected="(low, high), each a number or an array",
                came=repr(value),
                remedy="Use -inf and inf where there is no bound.",
            )
        low, high = (_spread("bounds", path, side, shape, torch.float64) for side in value)
        if not bool((low < high).all()):
            raise InvalidArgumentError(
                "bounds",
                expected="low < high for every feature",
                came=f"{int((low >= high).sum())} features where it is not",
                remedy="A feature that must not move belongs into `locked`.",
            )
        return low, high

    def _column(self, column: object, count: int) -> int:
        names = list(self.columns) if self.columns is not None else []
        if isinstance(column, str) and column in names:
            return names.index(column)
        if isinstance(column, int | np.integer) and -count <= int(column) < count:
            return int(column) % count
        raise InvalidArgumentError(
            "locked",
            expected=f"column numbers below {count}" + (f" or one of {names}" if names else ""),
            came=repr(column),
            remedy="Give the names of all features as columns=[...] to lock by name.",
        )

    def _for(self, value: Any, path: str) -> Any:
        if not isinstance(value, Mapping):
            return value
        unknown = set(value) - set(self.paths or [path])
        if unknown:
            raise InvalidArgumentError(
                "Space",
                expected=f"settings for the leaves that vary, {self.paths or [path]}",
                came=f"{sorted(unknown)}",
                remedy="Name the leaf in vary=... too.",
            )
        return value.get(path)

    @property
    def paths(self) -> list[str] | None:
        """The leaves that vary, where they were named."""
        if self.vary is None:
            return None
        return [self.vary] if isinstance(self.vary, str) else list(self.vary)


def _spread(name: str, path: str, value: Any, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """A value for every feature of a sample, flat (D,)."""
    tensor = torch.as_tensor(value)
    if dtype != torch.bool or tensor.dtype == torch.bool:
        try:
            return tensor.to(dtype).cpu().expand(shape).flatten()
        except RuntimeError:
            pass
    raise InvalidArgumentError(
        name,
        expected=f"a {'mask' if dtype == torch.bool else 'number or an array'} that broadcasts to "
        f"one sample, {shape}" + (f", of {path!r}" if path else ""),
        came=f"shape {tuple(tensor.shape)} of {tensor.dtype}",
        remedy="Leave out the sample axis: the space is the same for every sample.",
    )


def _short(value: Any) -> str:
    if isinstance(value, Tensor | np.ndarray):
        return f"array{tuple(value.shape)}"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{k}: {_short(v)}" for k, v in value.items()) + "}"
    if isinstance(value, tuple):
        return "(" + ", ".join(_short(v) for v in value) + ")"
    return repr(value)
