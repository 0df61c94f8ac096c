"""The space in which inputs are moved: which parts, how dear, how far, and what stays."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from credibly.errors import InvalidArgumentError
from credibly.types import CPU, Array, from_numpy, is_table, table_numbers

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
            together by the same multiple of their scales, such as all pixels of a channel, also
            across leaves; those with -1 move on their own.
        bounds: (low, high), each a number or an array that broadcasts to a sample.
        columns: names of the features of the last axis, for `locked`. The columns of a table are
            found by them, in whatever order it has them.

    With several leaves, `scale`, `locked`, `tied` and `bounds` may be mappings from paths. The
    scales and bounds of locked features play no role.
    """

    vary: str | Sequence[str] | None = None
    scale: PerLeaf = None
    locked: Any = None
    tied: Any = None
    bounds: Any = None
    columns: Sequence[str] | None = None

    def __post_init__(self) -> None:
        different = {str(name) for name in self.columns or ()}
        if self.columns is not None and len(different) < len(self.columns):
            raise InvalidArgumentError(
                "columns",
                expected="names that tell the features apart",
                got=f"{len(self.columns)} names, {len(different)} of them different",
                remedy="Rename the columns, or lock them by number.",
            )
        paths = self.paths
        if paths is None:
            return
        if not paths or len(set(paths)) < len(paths) or not all(isinstance(p, str) for p in paths):
            raise InvalidArgumentError(
                "vary",
                expected="at least one path of a leaf, each once",
                got=repr(self.vary),
                remedy="Leave it out where only one part of the input is floating; name the first "
                "of a tuple '0'.",
            )

    @staticmethod
    def standardised(x: Array, **settings: Any) -> Space:
        """A space whose scales are the standard deviations of `x` over samples.

        Features that never change in `x` have no scale of their own and are locked. Rows of `x`
        with NaN or infinity are left out. `settings` are those of `Space`, without `scale`; a table
        brings the names of its columns, as text. Whole numbers in `locked` are places, not names.
        """
        sample = _table(x)
        if hasattr(x, "columns"):
            settings = {"columns": [str(name) for name in x.columns], **settings}
        spread = sample.std(0) if len(sample) > 1 else torch.zeros_like(sample[0])
        constant = ~(spread > 0)
        given = settings.pop("locked", None)
        space = Space(locked=given, **settings)
        path = (space.paths or [""])[0]
        mask = space.locked_mask(path, tuple(constant.shape)).reshape(constant.shape) | constant
        return Space(scale=torch.where(constant, 1.0, spread), locked=mask, **settings)

    @property
    def is_plain(self) -> bool:
        """Whether nothing of what moves, or how far, is said; names of columns change neither."""
        return all(
            value is None for value in (self.vary, self.scale, self.locked, self.tied, self.bounds)
        )

    def describe(self) -> str:
        """One line for settings and tables."""
        parts = [f"vary={self.vary!r}"] if self.vary is not None else []
        for name in ("scale", "locked", "tied", "bounds"):
            value = getattr(self, name)
            if value is not None:
                parts.append(f"{name}={_short(value)}")
        return f"Space({', '.join(parts)})"

    def scale_of(self, path: str, shape: tuple[int, ...]) -> Tensor:
        """Scales (D,) of a leaf whose samples have this shape; 1 where it is locked."""
        value = self._for("scale", path)
        flat = _spread("scale", path, 1.0 if value is None else value, shape, torch.float64)
        flat = torch.where(self.locked_mask(path, shape), 1.0, flat)
        bad = ~((flat > 0) & torch.isfinite(flat))
        if bool(bad.any()):
            raise InvalidArgumentError(
                "scale",
                expected="positive finite numbers, the typical size of each feature",
                got=f"{int(bad.sum())} that are not",
                remedy="Lock features that never change: Space(locked=...), or use "
                "Space.standardised(sample).",
            )
        return flat

    def locked_mask(self, path: str, shape: tuple[int, ...]) -> Tensor:
        """Which features (D,) of a leaf may not move."""
        value = self._for("locked", path)
        if value is None:
            return torch.zeros(shape, dtype=torch.bool, device=CPU).flatten()
        listed = value.cpu().numpy() if isinstance(value, Tensor) else np.asarray(value)
        if listed.dtype == bool:
            return _spread("locked", path, listed, shape, torch.bool)
        # a list keeps numbers beside names, which an array would turn into words
        columns = list(value) if _is_list(value) else listed.reshape(-1).tolist()
        plain = [c.item() if isinstance(c, np.generic | Tensor) else c for c in columns]
        chosen = [self._column(column, shape[-1]) for column in plain]
        if len(plain) == shape[-1] > 2 and set(plain) <= {0, 1}:
            raise InvalidArgumentError(
                "locked",
                expected="a mask of True and False, or the numbers of columns",
                got=_short(value),
                remedy="It looks like a mask of 1 and 0: pass mask.astype(bool). As column numbers "
                "name each once.",
            )
        mask = torch.zeros(shape[-1:], dtype=torch.bool, device=CPU)
        mask[chosen] = True
        return mask.expand(shape).flatten()

    def tied_numbers(self, path: str, shape: tuple[int, ...]) -> Tensor:
        """Group numbers (D,) of a leaf; -1 for features that move on their own."""
        value = self._for("tied", path)
        return _spread("tied", path, -1 if value is None else value, shape, torch.long)

    def bounds_of(self, path: str, shape: tuple[int, ...]) -> tuple[Tensor, Tensor] | None:
        """Lowest and highest values (D,) of a leaf."""
        value = self._for("bounds", path)
        if value is None:
            return None
        if not isinstance(value, tuple | list) or len(value) != 2:
            raise InvalidArgumentError(
                "bounds",
                expected="(low, high), each a number or an array",
                got=_short(value),
                remedy="Use -inf and inf where there is no bound.",
            )
        low, high = (_spread("bounds", path, side, shape, torch.float64) for side in value)
        bad = ~(low < high) & ~self.locked_mask(path, shape)
        if bool(bad.any()):
            raise InvalidArgumentError(
                "bounds",
                expected="low < high for every feature",
                got=f"{int(bad.sum())} features where it is not",
                remedy="A feature that must not move belongs into `locked`.",
            )
        return low, high

    def _column(self, column: object, count: int) -> int:
        names = list(self.columns) if self.columns is not None else []
        if isinstance(column, str) and column in names and len(names) == count:
            return names.index(column)
        if isinstance(column, int) and -count <= column < count:
            return column % count
        known = f"names of {len(names)} columns" if len(names) != count else f"one of {names}"
        raise InvalidArgumentError(
            "locked",
            expected=f"a mask, or column numbers below {count}" + (f", or {known}" * bool(names)),
            got=repr(column),
            remedy=f"Give the names of all {count} features as columns=[...] to lock by name.",
        )

    def _for(self, name: str, path: str) -> Any:
        """The setting `name` of one leaf."""
        value = getattr(self, name)
        if not isinstance(value, Mapping):
            return value
        unknown = set(value) - set(self.paths or [path])
        if unknown:
            raise InvalidArgumentError(
                name,
                expected=f"settings for the leaves that vary, {self.paths or [path]}",
                got=f"{sorted(map(str, unknown))}",
                remedy="Name the leaf in vary=... too.",
            )
        return value.get(path)

    @property
    def paths(self) -> list[str] | None:
        """The leaves that vary, where they were named."""
        if self.vary is None:
            return None
        return list(self.vary) if _is_list(self.vary) else [self.vary]  # type: ignore[list-item]


def _table(x: Array) -> Tensor:
    """The finite rows of a sample, in double precision (n, ...)."""
    try:
        given = table_numbers(x) if is_table(x) else x
        given = from_numpy(given) if isinstance(given, np.ndarray) else given
        place = given.device if isinstance(given, Tensor) else CPU
        sample = torch.as_tensor(given, dtype=torch.float64, device=place).detach()
    except (TypeError, ValueError, RuntimeError):
        sample = torch.zeros(0, device=CPU)
    if sample.dim() >= 2:
        sample = sample[torch.isfinite(sample).flatten(1).all(1)]
    if sample.dim() < 2 or len(sample) == 0:
        raise InvalidArgumentError(
            "x",
            expected="a sample of inputs (n, ...) of finite numbers",
            got=f"{type(x).__name__} of shape {tuple(getattr(x, 'shape', ()))}",
            remedy="Pass an array with the sample axis first, such as the training inputs, or a "
            "table of numbers only.",
        )
    return sample


def _spread(name: str, path: str, value: Any, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """A value for every feature of a sample, flat (D,)."""
    try:
        # by way of NumPy: torch would read a plain 0.1 in single precision
        tensor = value if isinstance(value, Tensor) else from_numpy(np.array(value))
        tensor = tensor.detach().cpu()
        if _suits(tensor, dtype):
            return tensor.to(dtype).expand(shape).flatten()
        got = f"{tensor.dtype}"
    except (RuntimeError, TypeError, ValueError):
        got = _short(value)
    kind = {torch.bool: "a mask", torch.long: "whole numbers"}.get(dtype, "a number or an array")
    raise InvalidArgumentError(
        name,
        expected=f"{kind} that broadcasts to one sample, {shape}"
        + (f", of {path!r}" if path else ""),
        got=got,
        remedy="Leave out the sample axis: the space is the same for every sample.",
    )


def _is_list(value: object) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)


def _suits(tensor: Tensor, dtype: torch.dtype) -> bool:
    """A mask is boolean and a group number is whole; nothing is rounded in silence."""
    if dtype == torch.bool:
        return tensor.dtype == torch.bool
    whole = not tensor.is_floating_point() and not tensor.is_complex()
    return tensor.dtype != torch.bool and (whole or dtype != torch.long)


def _short(value: Any) -> str:
    if isinstance(value, Tensor | np.ndarray):
        listed = value.detach().cpu() if isinstance(value, Tensor) else np.asarray(value)
        numbers = repr(listed.tolist()).encode()
        # arrays of the same shape are told apart: thresholds of one metric are not for another
        return f"array{tuple(value.shape)} #{hashlib.sha256(numbers).hexdigest()[:8]}"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{k}: {_short(v)}" for k, v in value.items()) + "}"
    if isinstance(value, tuple):
        return "(" + ", ".join(_short(v) for v in value) + ")"
    return repr(value)
