"""What is done to the shards of a run, by whichever engine: read ahead, solve, write behind."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from credibly.batch.formats import Record
from credibly.batch.overlap import WriteBehind, read_ahead
from credibly.batch.parts import PartWriter
from credibly.batch.rows import Read, Rows, read_rows
from credibly.io.places import Place
from credibly.io.source import Watch

Table = Any


class Maker(ABC):
    """Makes the table of a chunk."""

    @property
    @abstractmethod
    def rows(self) -> Rows:
        """What is read, and the model."""

    @abstractmethod
    def table(self, read: Read) -> Table:
        """Return the table of a chunk that was read."""

    @abstractmethod
    def packed(self, home: Place) -> Packed:
        """Return the same for another process; `home` is the folder of the run."""


class Packed(ABC):
    """A `Maker` on its way: plain data, and what loads the model where it arrives."""

    @abstractmethod
    def unpack(self, device: str | None) -> Maker:
        """Load the model, to another device where one is given."""


@dataclass(frozen=True)
class Piece:
    """A chunk of a shard.

    Attributes:
        number: of the shard.
        first: number of the first row.
        stop: number of the row after the last one.
        last: whether the shard ends with it.
    """

    number: int
    first: int
    stop: int
    last: bool


@dataclass(frozen=True)
class Plan:
    """Numbered shards of numbered rows.

    Attributes:
        rows: of the source.
        shard: rows in a shard.
        chunk: rows in a chunk.
    """

    rows: int
    shard: int
    chunk: int

    def sizes(self) -> list[int]:
        """Return the rows of each shard."""
        return [min(self.shard, self.rows - k) for k in range(0, self.rows, self.shard)]

    def pieces(self, number: int) -> Iterator[Piece]:
        """Return the chunks of a shard."""
        begin = number * self.shard
        end = min(begin + self.shard, self.rows)
        for first in range(begin, end, self.chunk):
            stop = min(first + self.chunk, end)
            yield Piece(number, first, stop, stop == end)


@dataclass(frozen=True)
class Work:
    """Everything that makes shards of the rows.

    Attributes:
        plan: which rows are in which shard.
        maker: of tables.
        writer: of shards.
        watch: over the input.
    """

    plan: Plan
    maker: Maker
    writer: PartWriter
    watch: Watch

    def run(
        self,
        numbers: Iterable[int | None],
        *,
        solved: Callable[[int, float], object],
        done: Callable[[Record], object],
    ) -> None:
        """Make the shards of these numbers.

        Args:
            numbers: of the shards; None is passed over.
            solved: called after every chunk with its rows and the seconds of solving it.
            done: called from another thread with the record of every shard.
        """
        tables: list[Table] = []
        pieces = (piece for n in numbers for piece in ((None,) if n is None else self._pieces(n)))
        writing = WriteBehind[tuple[int, list[Table]]](lambda item: done(self._write(*item)))
        with writing as write, closing(read_ahead(pieces, self._read)) as found:
            for item in found:
                if item is None:
                    write.check()  # else its error would wait for the next shard
                    continue
                piece, read = item
                begin = perf_counter()
                tables.append(self.maker.table(read))
                seconds = perf_counter() - begin
                if piece.last:
                    write((piece.number, tables))
                    tables = []
                solved(len(read), seconds)

    def _pieces(self, number: int) -> Iterator[Piece]:
        return self.plan.pieces(number)

    def _read(self, piece: Piece | None) -> tuple[Piece, Read] | None:
        """Read a chunk; an input that has changed meanwhile is refused."""
        if piece is None:
            return None
        read = read_rows(self.maker.rows, piece.first, piece.stop)
        self.watch.look(piece.first, piece.stop)
        return piece, read

    def _write(self, number: int, tables: list[Table]) -> Record:
        return self.writer.write(number, number * self.plan.shard, tables)
