"""What `verify_output` found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from credibly.io.places import Place

SHOWN = 20
"""Problems that a summary lists."""

AGAIN = "Run the same command again"

FOREIGN = "does not belong to it"

Count = tuple[int, int]
"""How many of how many."""


@dataclass(frozen=True)
class Verification:
    """Whether an output is all there and whole.

    Attributes:
        path: the output.
        state: 'whole', 'damaged' or 'unfinished'.
        rows: that are there and whole; of a damaged file those that could be read.
        files: that are there and whole.
        problems: what is wrong, one line each.
        remedy: what to run; empty if nothing is wrong.
        note: what else there is to say.

    Example: see `verify_output`.
    """

    path: Path | Place
    state: str
    rows: int
    files: int
    problems: tuple[str, ...] = ()
    remedy: str = ""
    note: str = ""

    @property
    def is_whole(self) -> bool:
        """Whether everything is there, and as it was written."""
        return self.state == "whole"

    def summary(self) -> str:
        """Return a few lines to print."""
        files = "1 file" if self.files == 1 else f"{self.files} files"
        lines = [f"{self.path}: {self.state}, {self.rows} rows in {files}"]
        lines += [f"  {problem}" for problem in self.problems[:SHOWN]]
        if len(self.problems) > SHOWN:
            lines.append(f"  and {len(self.problems) - SHOWN} more")
        return "\n".join([*lines, *filter(None, (self.note, self.remedy))])

    @staticmethod
    def of_file(path: Path | Place, rows: int, problems: Sequence[str]) -> Verification:
        """Of a single file."""
        if not problems:
            return Verification(path, "whole", rows, 1)
        remedy = (
            f"{AGAIN} with --overwrite (overwrite=True), if score or judge wrote it: all rows are "
            "made again."
        )
        return Verification(path, "damaged", rows, 1, tuple(problems), remedy)

    @staticmethod
    def of_folder(
        path: Path | Place,
        rows: int,
        files: Count,
        problems: Sequence[str],
        *,
        reopened: bool,
        listed: bool = True,
    ) -> Verification:
        """Of a folder of files that was finished; without its list it cannot stay so."""
        if not problems:
            return Verification(path, "whole", rows, files[1])
        again = files[1] - files[0]
        makes = f"makes {again} of {files[1]} files again" if again else "makes only its list again"
        remedy = f"{AGAIN} with --overwrite (overwrite=True): all rows are made again."
        if (again or not listed) and reopened:
            remedy = f"It is an interrupted run now. {AGAIN}: it {makes}."
        elif again or not listed:
            remedy = (
                f"`credibly verify {path} --reopen` (reopen=True) makes an interrupted run of it; "
                f"the same command then {makes}."
            )
        elif all(problem.endswith(FOREIGN) for problem in problems):
            remedy = "Remove what does not belong to it: readers of the folder would read it."
        return Verification(path, "damaged", rows, files[0], tuple(problems), remedy)

    @staticmethod
    def of_parts(
        path: Path | Place,
        rows: Count,
        shards: Count,
        problems: Sequence[str],
        seen: Mapping[str, object],
    ) -> Verification:
        """Of a run that is not finished, of which a status was seen last."""
        (done, all_rows), (finished, count) = rows, shards
        lines = (f"{finished} of {count} shards are finished, {done} of {all_rows} rows", *problems)
        note = ""
        if seen:
            note = f"The run was {seen.get('state')} at {seen.get('time')} ({seen.get('engine')})."
        remedy = f"{AGAIN}, unless it is running: it makes the other {count - finished} shards."
        if finished == count:
            remedy = f"{AGAIN}: all rows are there, and it makes the output of them."
        return Verification(path, "unfinished", done, finished, lines, remedy, note)

    def to_be_replaced(self, parts: str) -> Verification:
        """The same, where an interrupted run was to replace the output."""
        note = f"An interrupted run is to replace it ({parts}): finish it, or remove these parts."
        return replace(self, note=note)
