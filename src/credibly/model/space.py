"""The space in which inputs are moved: which parts move, at what cost, and within which bounds."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from credibly._validation import require
from credibly.errors import InvalidArgumentError
from credibly.types import CPU, Array, finite_rows, from_numpy, is_table, table_numbers

PerLeaf = Array | float | Mapping[str, Any] | None
"""One value for every feature, an array that broadcasts to a sample, or a mapping from leaves."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Space:
    """A metric on inputs: risk is the sum of ((x - x0) / scale)^2 over the features that may move.

    With several leaves, `scale`, `locked`, `tied` and `bounds` may be mappings from paths. The
    scales and bounds of locked features play no role.

    Attributes:
        vary: paths of the leaves of a nested input that may move, such as 'pixels' or 'text.0';
            None: the only floating leaf. All other leaves are passed to the model unchanged.
        scale: typical size of each feature, for example its standard deviation; moving a feature by
            its scale costs 1. None: 1 for all.
        locked: features that must not move: a boolean mask that broadcasts to a sample, or numbers
            or names of columns (the last axis). One-hot and categorical columns belong here.
        tied: whole numbers that broadcast to a sample: features with the same number >= 0 move
            together by the same multiple of their scales, such as all pixels of a channel, also
            across leaves; those with -1 move on their own.
        bounds: (low, high), each a number or an array that broadcasts to a sample.
        columns: names of the features of the last axis, for `locked`. A table may have its columns
            in any order; they are found by these names.

    Example:
        >>> import torch, credibly as cr
        >>> space = cr.Space(scale=[1.0, 10.0], locked=["sex"], columns=["sex", "age"])
        >>> clf = cr.Classifier(torch.nn.Linear(2, 3), space=space)
        >>> cr.bind(clf, torch.zeros(5, 2)).start.shape  # only the age moves
        torch.Size([5, 1])
    """

    vary: str | Sequence[str] | None = None
    scale: PerLeaf = None
    locked: Any = None
    tied: Any = None
    bounds: Any = None
    columns: Sequence[str] | None = None

    def __post_init__(self) -> None:
        names = [] if self.columns is None else [str(name) for name in self.columns]
        require(
            len(set(names)) == len(names),
            "columns",
            "names that tell the features apart",
            f"{len(names)} names, {len(set(names))} of them different",
            "Rename the columns, or lock them by number.",
        )
        paths = [""] if self.paths is None else self.paths
        require(
            all(isinstance(path, str) for path in paths) and 0 < len(paths) == len(set(paths)),
            "vary",
            "at least one path of a leaf, each once",
            repr(self.vary),
            "Leave it out where only one part of the input is floating; name the first of a tuple "
            "'0'.",
        )

    @staticmethod
    def standardised(x: Array, **settings: Any) -> Space:
        """A space whose scales are the standard deviations of `x` over samples.

        Features that are constant in `x` have no scale of their own and are locked. Rows of `x`
        with NaN or infinity are left out. `settings` are those of `Space`, without `scale`; a table
        brings the names of its columns, as text. Whole numbers in `locked` are places, not names.
        """
        sample = _finite_sample(x)
        if hasattr(x, "columns"):
            settings = {"columns": [str(name) for name in x.columns], **settings}
        spread = sample.std(0) if len(sample) > 1 else torch.zeros_like(sample[0])
        constant = ~(spread > 0)
        space = Space(locked=settings.pop("locked", None), **settings)
        path = (space.paths or [""])[0]
        mask = space.locked_mask(path, tuple(constant.shape)).reshape(constant.shape) | constant
        return Space(scale=torch.where(constant, 1.0, spread), locked=mask, **settings)

    @property
    def is_plain(self) -> bool:
        """Whether it changes nothing about what moves; names of columns do not count."""
        return not self._settings()

    def describe(self) -> str:
        """One line for settings and tables."""
        return f"Space({', '.join(self._settings())})"

    def _settings(self) -> list[str]:
        parts = [f"vary={self.vary!r}"] if self.vary is not None else []
        given = {name: getattr(self, name) for name in ("scale", "locked", "tied", "bounds")}
        return parts + [f"{name}={_short(v)}" for name, v in given.items() if v is not None]

    def scale_of(self, path: str, shape: tuple[int, ...]) -> Tensor:
        """Scales (D,) of a leaf whose samples have this shape; 1 where it is locked."""
        value = self._for("scale", path)
        flat = _spread("scale", path, 1.0 if value is None else value, shape, torch.float64)
        flat = torch.where(self.locked_mask(path, shape), 1.0, flat)
        bad = int((~((flat > 0) & torch.isfinite(flat))).sum())
        require(
            bad == 0,
            "scale",
            "positive finite numbers, the typical size of each feature",
            f"{bad} that are not",
            "Lock features that never change: Space(locked=...), or use Space.standardised(x).",
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
        # an array would turn a list of numbers and names into text
        columns = list(value) if _is_list(value) else listed.reshape(-1).tolist()
        plain = [c.item() if isinstance(c, np.generic | Tensor) else c for c in columns]
        chosen = [self._column(column, shape[-1]) for column in plain]
        require(
            not (len(plain) == shape[-1] > 2 and set(plain) <= {0, 1}),
            "locked",
            "a mask of True and False, or the numbers of columns",
            _short(value),
            "It looks like a mask of 1 and 0: pass mask.astype(bool), or each column number once.",
        )
        mask = torch.zeros(shape[-1:], dtype=torch.bool, device=CPU)
        mask[chosen] = True
        return mask.expand(shape).flatten()

    def tied_numbers(self, path: str, shape: tuple[int, ...]) -> Tensor:
        """Group numbers (D,) of a leaf; -1 for features that move on their own."""
        value = self._for("tied", path)
        return _spread("tied", path, -1 if value is None else value, shape, torch.long)

    def bounds_of(self, path: str, shape: tuple[int, ...]) -> tuple[Tensor, Tensor]:
        """Lowest and highest values (D,) of a leaf; infinite where there are no bounds."""
        value = self._for("bounds", path)
        pair = (-np.inf, np.inf) if value is None else value
        good = isinstance(pair, tuple | list) and len(pair) == 2
        remedy = "Use -inf and inf where there is no bound."
        require(good, "bounds", "(low, high), each a number or an array", _short(pair), remedy)
        low, high = (_spread("bounds", path, side, shape, torch.float64) for side in pair)
        bad = int((~(low < high) & ~self.locked_mask(path, shape)).sum())
        remedy = "Put a feature that must not move into `locked`."
        require(bad == 0, "bounds", "low < high", f"{bad} features where it is not", remedy)
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
        known = self.paths or [path]
        unknown = sorted(str(key) for key in value if key not in known)
        expected, remedy = f"settings for the leaves that vary, {known}", "Name the leaf in vary=."
        require(not unknown, name, expected, f"{unknown}", remedy)
        return value.get(path)

    @property
    def paths(self) -> list[str] | None:
        """The leaves that vary, where they were named."""
        if self.vary is None:
            return None
        return list(self.vary) if _is_list(self.vary) else [self.vary]  # type: ignore[list-item]


def _finite_sample(x: Array) -> Tensor:
    """The finite rows of a sample, in double precision (n, ...)."""
    try:
        given = table_numbers(x) if is_table(x) else x
        given = from_numpy(given) if isinstance(given, np.ndarray) else given
        place = given.device if isinstance(given, Tensor) else CPU
        sample = torch.as_tensor(given, dtype=torch.float64, device=place).detach()
    except (TypeError, ValueError, RuntimeError):
        sample = torch.zeros(0, device=CPU)
    if sample.dim() >= 2:
        sample = sample[finite_rows(sample)]
    require(
        sample.dim() >= 2 and len(sample) > 0,
        "x",
        "a sample of inputs (n, ...) of finite numbers",
        f"{type(x).__name__} of shape {tuple(getattr(x, 'shape', ()))}",
        "Pass an array with the sample axis first, such as the training inputs, or a table of "
        "numbers only.",
    )
    return sample


def _spread(name: str, path: str, value: Any, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """A value for every feature of a sample, flat (D,)."""
    try:
        # NumPy first: torch would read a plain 0.1 in single precision
        tensor = value if isinstance(value, Tensor) else from_numpy(np.array(value))
        tensor = tensor.detach().cpu()
        if _suits(tensor, dtype):
            return tensor.to(dtype).expand(shape).flatten()
        got = f"{tensor.dtype}"
    except (RuntimeError, TypeError, ValueError):
        got = _short(value)
    kind = {torch.bool: "a mask", torch.long: "whole numbers"}.get(dtype, "a number or an array")
    of = f", of {path!r}" if path else ""
    raise InvalidArgumentError(
        name,
        expected=f"{kind} that broadcasts to one sample, {shape}{of}",
        got=got,
        remedy="Leave out the sample axis: the space is the same for every sample. If the space is "
        "right, pass inputs of its size.",
    )


def _is_list(value: object) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)


def _suits(tensor: Tensor, dtype: torch.dtype) -> bool:
    """Whether a mask is boolean and a group number whole: nothing is rounded silently."""
    if dtype == torch.bool:
        return tensor.dtype == torch.bool
    whole = not tensor.is_floating_point() and not tensor.is_complex()
    return tensor.dtype != torch.bool and (whole or dtype != torch.long)


def _short(value: Any) -> str:
    """A value in a few characters; arrays by a digest, since thresholds belong to one metric."""
    if isinstance(value, Tensor | np.ndarray):
        listed = value.detach().cpu() if isinstance(value, Tensor) else np.asarray(value)
        numbers = repr(listed.tolist()).encode()
        return f"array{tuple(value.shape)} #{hashlib.sha256(numbers).hexdigest()[:8]}"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{k}: {_short(v)}" for k, v in value.items()) + "}"
    if isinstance(value, tuple):
        return "(" + ", ".join(_short(v) for v in value) + ")"
    return repr(value)
