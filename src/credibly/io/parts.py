"""Many files of one format as one source: rows in the order of the files, which are opened late."""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import torch
from torch import Tensor

from credibly.errors import FileFormatError
from credibly.io.columns import in_order_of_model, list_names
from credibly.io.file_set import FileSet, each
from credibly.io.source import (
    Ids,
    Kept,
    NoRowsError,
    Plain,
    Source,
    Where,
)  # fmt: skip
from credibly.io.table_files import TableFile
from credibly.io.tables import Table
from credibly.model.batches import column_names
from credibly.model.classifier import Classifier

OPEN = 4
"""Files that are held open."""

IdType = Literal["int64", "string"]

Opener = Callable[..., Source]
"""From a file, its options and what is known of it to a source."""


class Parts(FileSet):
    """Files of one format, one after the other.

    Each is looked at once, for its rows and columns; what a run needs of them is a few numbers.

    Attributes:
        columns: of tables: the features.
    """

    def __init__(
        self,
        path: Where,
        root: Where,
        names: Sequence[str],
        open_part: Opener,
        *,
        limit: int | None = None,
        known: Mapping[str, Any] = MappingProxyType({}),
        **options: Any,
    ) -> None:
        self.path, self.label = path, options.get("label")
        self._root, self._open, self._limited = root, open_part, limit
        self._options = options
        self._forget()
        if "parts" not in known:
            known = self._look(list(names))
        self._names: list[str] = list(known["parts"])
        self._rows_of: list[int] = list(known["rows_of"])
        self._starts = [0, *accumulate(self._rows_of)]
        self.kind, self.shape = known["kind"], tuple(known["shape"])
        self.id_type, self.label_type = known["types"]
        self._how: dict[str, object] = dict(known["how"])
        if "columns" in self._how:
            self.columns: tuple[str, ...] = tuple(known["how"]["columns"])
        self._limit(self._starts[-1], limit)

    def _forget(self) -> None:
        self._lock, self._kept = threading.Lock(), Kept()
        self._held: OrderedDict[int, Source] = OrderedDict()

    def options(self) -> dict[str, object]:
        own = {"columns": list(self.columns)} if hasattr(self, "columns") else {}
        return {**self._how, **own, "files": len(self._names)}

    def reopen_spec(self, folder: Path | None = None) -> dict[str, Any]:
        spec = super().reopen_spec(folder)
        if hasattr(self, "columns"):
            spec["options"] |= {"columns": list(self.columns), "drop": []}
        return spec

    def _known(self) -> dict[str, Any]:
        return {
            "kind of files": Path(self._names[0]).suffix.lower(),
            "parts": self._names,
            "rows_of": self._rows_of,
            "kind": self.kind,
            "shape": list(self.shape),
            "types": [self.id_type, self.label_type],
            "how": {k: v for k, v in self.options().items() if k != "files"},
        }

    def for_model(self, clf: Classifier) -> Source:
        names = column_names(clf)
        if names is None or not hasattr(self, "columns"):
            return self
        ordered = copy(self)
        first = TableFile(self._where(0)).names
        ordered.columns = in_order_of_model(self.path, first, self.columns, names)
        ordered._forget()  # noqa: SLF001  # its own copy
        return ordered

    def _look(self, names: list[str]) -> dict[str, Any]:
        """Look at every file, until there are rows enough, and compare it with the first one."""
        seen = each(self._look_at, names, afar=self.is_afar)
        first: _Look | None = None
        parts: list[str] = []
        rows: list[int] = []
        for name, look in zip(names, seen, strict=True):
            if look is None:  # no rows
                continue
            first = look if first is None else first.joined(look, self._options)
            parts.append(name)
            rows.append(look.rows)
            if self._limited is not None and sum(rows) >= self._limited:
                break
        if first is None:
            raise FileFormatError(f"{self.path}: holds no rows.")
        return {
            "parts": parts,
            "rows_of": rows,
            "kind": f"{first.kind} files",
            "shape": first.shape,
            "types": first.types,
            "how": first.how,
        }

    def _look_at(self, name: str) -> _Look | None:
        where = self._root / name
        try:
            part = self._open(where, **self._options, limit=self._limited)
        except NoRowsError:
            return None
        names = part.names if isinstance(part, Table) else None
        types = (part.id_type, part.label_type)
        return _Look(where, len(part), part.kind, part.shape, types, part.options(), names)

    def _part(self, number: int) -> Source:
        """A file, opened; the last few stay open."""
        with self._lock:
            part = self._held.pop(number, None)
            if part is None:
                part = self._open(self._where(number), **self._options_of(number))
            self._held[number] = part
            while len(self._held) > OPEN:
                self._held.popitem(last=False)
            return part

    def _options_of(self, number: int) -> dict[str, Any]:
        if not hasattr(self, "columns"):
            return self._options
        known = {"rows": self._rows_of[number], "types": (self.id_type, self.label_type)}
        return {**self._options, "columns": self.columns, "drop": (), "known": known}

    def _ranges(self, start: int, stop: int) -> Iterator[tuple[Source, int, int]]:
        """The files in which rows are, and from where to where in each."""
        while start < stop:
            number = bisect_right(self._starts, start) - 1
            begin, end = self._starts[number], min(stop, self._starts[number + 1])
            yield self._part(number), start - begin, end - begin
            start = end

    def _take(self, start: int, stop: int) -> tuple[Ids, Tensor]:
        ids: list[Any] = []
        labels: list[Any] = []
        parts: list[Tensor] = []
        for part, first, last in self._ranges(start, stop):
            found, x = part.read(first, last)
            ids += found
            labels += part.carried(first, last).get("label", ())
            parts.append(x)
        if self.label is not None:
            self._kept.keep(start, stop, labels)
        if self._options.get("id_column") is None:
            ids = list(range(start, stop))
        return ids, torch.cat(parts) if parts else self._part(0).read(0, 0)[1]

    def _labels(self, start: int, stop: int) -> list[Any]:
        kept = self._kept.take(start, stop)
        if kept is not None:
            return kept
        ranges = self._ranges(start, stop)
        return [label for part, a, b in ranges for label in part.carried(a, b)["label"]]


@dataclass(frozen=True)
class _Look:
    """What the files must have in common, and the rows of one."""

    where: Where
    rows: int
    kind: str
    shape: tuple[int, ...]
    types: tuple[IdType, Plain]
    how: dict[str, object]
    names: list[str] | None

    def joined(self, other: _Look, options: Mapping[str, Any]) -> _Look:
        """The same, if another file agrees; whole numbers in one CSV may be words in the next."""
        if self.names is not None and other.names is not None:
            named = bool(options.get("columns"))
            self._compare_columns(other, self.names, other.names, named=named)
        elif (self.shape, self.how) != (other.shape, other.how):
            raise self._differs(other, f"holds {other.words()}, and {self.words()}")
        if self.types == other.types:
            return self
        if self.kind == "parquet":
            got, expected = (" and ".join(look.types) for look in (other, self))
            raise self._differs(other, f"has ids and labels of the types {got}, and {expected}")
        ids: IdType = self.types[0] if self.types[0] == other.types[0] else "string"
        label: Plain = self.types[1] if self.types[1] == other.types[1] else "string"
        return replace(self, types=(ids, label))

    def words(self) -> str:
        """What is in it."""
        facts = {"shape": self.shape, **self.how}
        return ", ".join(f"{k} {v}" for k, v in facts.items() if v is not None)

    def _compare_columns(
        self, other: _Look, own: list[str], names: list[str], *, named: bool
    ) -> None:
        lacks = [name for name in own if name not in names]
        more = [] if named else [name for name in names if name not in own]
        if lacks or more:
            verb, which = ("lacks", lacks) if lacks else ("has", more)
            raise self._differs(other, f"{verb} the columns {list_names(which)}, unlike those")

    def _differs(self, other: _Look, how: str) -> FileFormatError:
        return FileFormatError(
            f"{other.where}: {how} in {self.where.name}. All files must have the same columns, "
            "shapes and types: name the features (--columns), leave the file out of the pattern, "
            "or write it again."
        )
