"""What `credibly explore` shows: rows of a Parquet file and, where they are given, their inputs."""

from __future__ import annotations

import atexit
import json
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from credibly._extras import require_table_extra
from credibly._validation import require
from credibly.batch.formats import VERDICTS
from credibly.batch.parts import FINAL
from credibly.cli import options as o
from credibly.decide.drift_verdicts import files_of
from credibly.decide.exploring import ALONE, OF_THE_PAGE, Words, detail_of, facts, tokens_of
from credibly.decide.judge import Judge
from credibly.errors import FileFormatError
from credibly.explore.detail import Found, Inputs, input_alone, inputs_alone, spread
from credibly.explore.marking import MarkStore
from credibly.explore.page import render
from credibly.explore.server import Explored, Server
from credibly.explore.table import MOST_ROWS, columns_of
from credibly.io.files import whole_file
from credibly.io.marks import marks_place
from credibly.io.sources import Source
from credibly.plot.view import Features

OWN = frozenset({
    "id", "verdict", "predicted", "class", "accepted", "trust", "p_ordinary", "p_outlier",
    "p_tampered", "p_wrong", "passes", "reason", "status", "label",
})  # fmt: skip
"""Columns that have their place in the page."""

PACKED = frozenset({"SNAPPY", "UNCOMPRESSED"})
"""How columns may be packed for the page to read them."""

NO_MODEL = "To see what would change the model's mind, pass --inputs, --model and --judge."


@dataclass(frozen=True, eq=False)
class Given:
    """The verdicts, and what is known of their inputs.

    Attributes:
        verdicts: the Parquet file, or a folder of them.
        served: the Parquet file; of a folder a copy that joins its files.
        file: the same, opened by pyarrow.
        source: of the inputs.
        judge: for the model.
        vocabulary: the word of each token.
    """

    verdicts: Path
    served: Path
    file: Any
    source: Source | None
    judge: Judge | None
    vocabulary: tuple[str, ...] | None

    @classmethod
    def open(
        cls,
        verdicts: Path,
        *,
        inputs: Path | None,
        model: str | None,
        judge: Path | None,
        words: Path | None,
        of_model: o.ModelOptions,
        of_data: o.DataOptions,
    ) -> Given:
        """Open everything that was named; what does not fit together is refused."""
        _check_together(inputs, model, judge)
        served = _joined(verdicts) if verdicts.is_dir() else verdicts
        file = _opened(served, verdicts)
        source = None if inputs is None else of_data.open(inputs)
        known = None if words is None else _vocabulary(words)
        fitted = None
        if model is not None and judge is not None and source is not None:
            loaded = of_model.load(model)
            fitted = Judge.load(judge, loaded)
            source = source.for_model(loaded.classifier)
        found = cls(verdicts, served, file, source, fitted, known)
        found.check_rows()
        return found

    @property
    def rows(self) -> int:
        """How many verdicts there are."""
        return int(self.file.metadata.num_rows)

    def check_rows(self) -> None:
        """Refuse inputs that are not those that were judged, as far as that is quick to see."""
        if self.source is None:
            return
        rows = len(self.source)
        remedy = "Pass the file that was judged, with the same options."
        require(rows == self.rows, "inputs", f"{self.rows} rows, as judged", f"{rows}", remedy)
        for row in {0, rows // 2, rows - 1}:
            own, judged = self.source.read(row, row + 1)[0][0], self.about(row)[0]
            require(str(own) == judged, "inputs", f"the id {judged} in row {row}", f"{own}", remedy)

    @cached_property
    def _words(self) -> Any:
        return self.file.read(columns=["id", "predicted"])

    def about(self, row: int) -> tuple[str, str]:
        """The id and the class of a row, as text."""
        pair = (self._words.column(name)[row].as_py() for name in ("id", "predicted"))
        first, second = ("" if value is None else str(value) for value in pair)
        return first, second

    def _told(self, name: bytes) -> Any:
        """What the file says of its Judge; None if another program wrote the file anew."""
        try:
            return json.loads((self.file.schema_arrow.metadata or {}).get(name, b"null"))
        except ValueError:
            return None

    @cached_property
    def facts_of_judge(self) -> dict[str, Any]:
        """What the Judge knew, as the file tells it."""
        told = self._told(b"judge")
        return told if isinstance(told, dict) else {}

    @property
    def classes(self) -> list[str] | None:
        """The names of all classes, in the order of their numbers, if anything tells them."""
        if self.judge is not None:
            clf, count = self.judge.examiner.clf, self.judge.facts.classes
            return [clf.class_name(k) for k in range(count)]
        names, number = self._told(b"classes"), self.facts_of_judge.get("classes")
        if isinstance(names, list):
            return [str(name) for name in names]
        return [str(k) for k in range(number)] if isinstance(number, int) else None

    def facts(self) -> dict[str, Any]:
        """What the page says whatever the rows are."""
        shares = self.facts_of_judge.get("shares_right", {})
        told = facts(shares, self.verdicts.name, self.classes)
        return {**told, "advice_detail": NO_MODEL, "extra": self.extra}

    @property
    def extra(self) -> list[str]:
        """Columns of numbers and words that a Judge does not write."""
        names = self.file.schema_arrow.names
        own = OWN | {*OF_THE_PAGE}
        return [name for name in names if name not in own and not name.startswith("signal.")][:6]

    @property
    def features(self) -> Features:
        """The names of columns that the file of inputs knows."""
        columns = getattr(self.source, "columns", None)
        return Features(None if columns is None else tuple(map(str, columns)))

    def detail(self, row: int) -> Found:
        """Describe one row: with a Judge by a profile that is solved now, else only the input."""
        assert self.source is not None  # noqa: S101  # else it is not called
        x = self.source.read(row, row + 1)[1]
        if self.judge is None:
            return input_alone(x[0], self.features)
        clf = self.judge.examiner.clf
        found = self.judge(x.to(device=clf.device, dtype=clf.dtype), keep=True)
        about = detail_of(found, 0, words=self._words_of(found))
        here, told = str(found.verdicts[0]), self._verdicts.column("verdict")[row].as_py()
        if here != told:
            about["differs"] = (
                f"The Judge calls this input {here} now, the file says {told}: perhaps the "
                "inputs, the model or the Judge are not those that made the file."
            )
        return about

    @cached_property
    def _verdicts(self) -> Any:
        return self.file.read(columns=["verdict"])

    def _words_of(self, found: Any) -> Words | None:
        """The words of a text, from its tokens."""
        kept = None if found.inputs is None else found.inputs.variable_of(0)
        ids = None if kept is None else tokens_of(kept)
        if self.vocabulary is None or ids is None:
            return None
        return [[None if k is None else self._word(k) for k in ids]]

    def _word(self, number: int) -> str:
        known = self.vocabulary or ()
        return known[number] if 0 <= number < len(known) else f"#{number}"

    def marks_note(self) -> str:
        """Where marks are kept, in a line."""
        return f"Marks are kept in {marks_place(self.verdicts)}.\n"


def _vocabulary(path: Path) -> tuple[str, ...]:
    try:
        return tuple(path.read_text("utf-8").splitlines())
    except (OSError, ValueError) as error:
        raise FileFormatError(
            f"{path}: no readable file of words, one per line ({error})."
        ) from error


def _check_together(inputs: Path | None, model: str | None, judge: Path | None) -> None:
    both = (model is None) == (judge is None)
    got = "only --judge" if model is None else "only --model"
    require(both, "model, judge", "both, or neither", got, "A counterfactual needs both.")
    remedy = "Pass --inputs and the data that was judged."
    require(model is None or inputs is not None, "inputs", "the inputs", "none", remedy)


def _joined(folder: Path) -> Path:
    """The files of a folder as one, which is removed when the program ends."""
    pa = require_table_extra("Reading verdicts")
    from pyarrow import parquet

    own = tempfile.TemporaryDirectory()
    atexit.register(own.cleanup)
    place, schema = Path(own.name, f"{folder.resolve().name}.parquet"), None
    options = {**FINAL, **VERDICTS.writing}
    try:
        with ExitStack() as open_files:
            for name in files_of(folder):
                file = open_files.enter_context(parquet.ParquetFile(name))
                if schema is None:
                    schema = file.schema_arrow
                    writer = parquet.ParquetWriter(place, schema, **options)
                    open_files.enter_context(writer)
                for batch in file.iter_batches():
                    writer.write_batch(batch.replace_schema_metadata(schema.metadata))
    except (OSError, ValueError, pa.ArrowException) as error:
        raise FileFormatError(f"{folder}: its files cannot be joined ({error}).") from error
    return place


def _opened(file_path: Path, verdicts: Path) -> Any:
    """The Parquet file, if it holds verdicts."""
    pyarrow = require_table_extra("Reading verdicts")
    if not file_path.exists():
        raise FileFormatError(
            f"{verdicts}: no such file. Write one with: credibly judge ... --out."
        )
    try:
        file = pyarrow.parquet.ParquetFile(file_path, page_checksum_verification=True)
    except (OSError, pyarrow.ArrowException) as error:
        raise FileFormatError(f"{verdicts}: not a readable Parquet file ({error}).") from error
    lacking = {"id", "verdict", "predicted", "trust"} - set(file.schema_arrow.names)
    if lacking:
        raise FileFormatError(
            f"{verdicts}: no file of verdicts; it has no column {', '.join(sorted(lacking))}. "
            "`credibly judge MODEL DATA --judge JUDGE --out verdicts.parquet` writes one."
        )
    return file


def _check_readable(given: Given) -> None:
    """Refuse what the page could not unpack: its reader knows two ways of packing."""
    about = given.file.metadata
    groups = [about.row_group(k) for k in range(about.num_row_groups)]
    used = {group.column(k).compression for group in groups for k in range(about.num_columns)}
    if others := sorted(used - PACKED):
        raise FileFormatError(
            f"{given.verdicts}: packed by {', '.join(others)}, which the page cannot read. Pass "
            '--html page.html, or write it anew with compression="snappy".'
        )


def server_of(given: Given, port: int) -> Server:
    """A server of the rows, which is not running yet."""
    _check_readable(given)
    marks = MarkStore(marks_place(given.verdicts), given.rows, given.about)
    detail = None if given.source is None else given.detail
    return Server(Explored(given.served, given.rows, given.facts(), detail, marks), port)


def _alone(given: Given) -> Inputs:
    """The inputs as the file has them, as many as a page has room for."""
    if given.source is None:
        return {}
    source, size = given.source, 256
    parts = ((start, source.read(start, start + size)[1]) for start in range(0, given.rows, size))
    rows = ((start + k, x) for start, part in parts for k, x in enumerate(part))
    return inputs_alone(rows, given.features, "" if given.judge is None else ALONE)


def write_page(given: Given, out: Path, details: int) -> int:
    """Write the rows as one page; returns its size in bytes."""
    require(
        given.rows <= MOST_ROWS,
        "html",
        f"at most {MOST_ROWS} rows in one page",
        f"{given.rows} in {given.verdicts.name}",
        "Leave out --html: the server has room for millions.",
    )
    frame = given.file.read().to_pandas().drop(columns=[*OF_THE_PAGE], errors="ignore")
    trust = dict(enumerate(frame["trust"].tolist()))
    chosen = [] if given.source is None else spread(trust, frame["verdict"].tolist(), details)
    data = {
        **given.facts(),
        "rows": given.rows,
        "columns": columns_of(frame.drop(columns=["class", "accepted"], errors="ignore")),
        "details": {
            **(_alone(given) if chosen else {}),
            **{row: given.detail(row) for row in chosen},
        },
    }
    if chosen:
        data["advice_detail"] = (
            f"The page shows {len(chosen)} inputs in full, the least trusted of each verdict."
        )
    text = render(data, title=f"credibly: {given.verdicts.name}")
    with whole_file(out) as place:
        place.write_text(text, encoding="utf-8")
    return len(text.encode("utf-8"))
