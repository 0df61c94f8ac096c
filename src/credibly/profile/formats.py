"""What the name of a file promises, and what its first bytes are."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from credibly.errors import FileFormatError, InvalidArgumentError

Format = Literal[".safetensors", ".parquet"]

_WRITTEN_BY = {
    ".safetensors": "profile.save({name!r})",
    ".parquet": "profile.to_parquet({name!r})",
    ".csv": "profile.to_pandas().to_csv({name!r})",
    ".tsv": "profile.to_pandas().to_csv({name!r}, sep='\\t')",
    ".txt": "profile.to_pandas().to_csv({name!r})",
    ".json": "profile.to_pandas().to_json({name!r})",
    ".html": "profile.to_pandas().to_html({name!r})",
    ".xlsx": "profile.to_pandas().to_excel({name!r})",
    ".feather": "profile.to_pandas().to_feather({name!r})",
}
"""What writes a profile, or its table, under a name."""

_OTHERS = frozenset(
    {".npz", ".npy", ".pt", ".pth", ".pkl", ".pickle", ".h5", ".hdf5", ".zip", ".onnx", ".mat"}
)
"""Names that promise a file of some other program."""

_STARTS = {
    b"PAR1": "a Parquet file, which Profile.from_parquet reads if Profile.to_parquet or "
    "`credibly score` wrote it",
    b"PK\x03\x04": "a ZIP archive, as .npz, .pt and .xlsx files are",
    b"\x93NUMPY": "an array of NumPy",
    b"\x80": "a pickle, which is never opened",
    b"{": "a JSON file; rules have a load of their own, such as SelectiveClassifier.load",
}
"""What files are, by their first bytes."""


def check_name(path: str | Path, own: Format) -> None:
    """Refuse names that promise another format than `own`, and folders that are not there."""
    path = Path(path)
    suffix = path.suffix.lower()
    if suffix != own and (suffix in _WRITTEN_BY or suffix in _OTHERS):
        other = _WRITTEN_BY.get(suffix, "").format(name=str(path))
        raise InvalidArgumentError(
            "path",
            expected=f"a name that ends in {own}, or has no ending",
            got=f"{str(path)!r}, which promises another format",
            remedy=f"Name it {path.with_suffix(own).name!r}"
            + (f", or write that format: {other}." if other else "."),
        )
    if path.is_dir():
        raise InvalidArgumentError(
            "path",
            expected="the name of a file to write",
            got=f"{str(path)!r}, a folder",
            remedy=f"Name a file in it, such as {str(path / ('profile' + own))!r}.",
        )
    if not path.parent.is_dir():
        message = f"{path}: the folder {path.parent} does not exist; make it first."
        raise FileNotFoundError(message)


def not_a_profile(path: str | Path, error: Exception) -> FileFormatError:
    """What to say about a file that `Profile.load` cannot read."""
    with Path(path).open("rb") as file:
        start = file.read(8)
    found = f"not a readable safetensors file ({error})"
    if start[4:] != bytes(4):  # a damaged one of ours begins with a small number of eight bytes
        words = (words for begin, words in _STARTS.items() if start.startswith(begin))
        found = next(words, found)
    return FileFormatError(
        f"{path}: {found}. Profile.load wants a safetensors file that Profile.save wrote; for "
        "inputs, solve their profile: credibility(clf, x, gamma=...)."
    )
