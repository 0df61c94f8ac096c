"""Profiles in safetensors files, which hold everything. Never pickle."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from credibly._validation import require
from credibly.errors import FileFormatError, OutputError
from credibly.io.files import check_format, load_tensors, save_tensors
from credibly.model.joined import UNKNOWN
from credibly.model.variable import Moves
from credibly.profile.certificate import Certificate
from credibly.profile.settings import Settings
from credibly.solve.status import Status

if TYPE_CHECKING:
    from torch import Tensor

    from credibly.profile.profile import Profile

FORMAT, FORMAT_VERSION = "credibly.profile", "1"

_WIDE = ("credibility", "credence", "multipliers")
_INPUTS = ("x0", "perturbed")
_FLAT = ("risk", "steps", "passes", "codes")
_CERTIFICATE = "certificate."

_OTHER_FORMATS = (
    ".safetensors", ".parquet", ".csv", ".tsv", ".txt", ".json", ".html", ".xlsx", ".feather",
    ".npz", ".npy", ".pt", ".pth", ".pkl", ".pickle", ".h5", ".hdf5", ".zip", ".onnx", ".mat",
)  # fmt: skip


def check_name(path: str | Path, own: Literal[".safetensors", ".parquet"]) -> None:
    """Refuse names of other formats than `own`, folders, and names in a missing folder."""
    path = Path(path)
    suffix = path.suffix.lower()
    require(
        suffix == own or suffix not in _OTHER_FORMATS,
        "path",
        f"a name that ends in {own}, or has no ending",
        f"{str(path)!r}, the name of another format",
        f"Name it {path.with_suffix(own).name!r}. profile.save(...) writes safetensors, "
        "profile.to_parquet(...) Parquet, and profile.to_pandas() gives a table for other formats.",
    )
    require(
        not path.is_dir(),
        "path",
        "the name of a file to write",
        f"{str(path)!r}, a folder",
        f"Name a file in it, such as {str(path / ('profile' + own))!r}.",
    )
    if not path.parent.is_dir():
        problem = f"{path}: the folder {path.parent} does not exist"
        raise OutputError(problem, remedy="Make it first.")


def save_profile(profile: Profile, path: str | Path) -> None:
    """Write every tensor and the settings."""
    check_name(path, ".safetensors")
    tensors = {name: getattr(profile, name) for name in (*_WIDE, *_INPUTS, *_FLAT)}
    if profile.kept is not None:
        tensors["kept"] = profile.kept
    for f in fields(Certificate):
        tensors[_CERTIFICATE + f.name] = getattr(profile.certificate, f.name)
    plain = {name: tensor.contiguous().cpu().clone() for name, tensor in tensors.items()}
    save_tensors(plain, path, metadata=metadata_of(profile.settings))


def load_parts(path: str | Path) -> dict[str, Any]:
    """Read and check a file of `save_profile`: the fields of a `Profile`."""
    if Path(path).is_dir():
        raise FileFormatError(f"{path}: a folder, expected a file that Profile.save wrote.")
    try:
        with Path(path).open("rb") as file:
            parquet = file.read(4) == b"PAR1"
    except OSError as error:
        raise FileFormatError(f"{path}: cannot be read ({error.strerror or error}).") from error
    if parquet:
        raise FileFormatError(f"{path}: a Parquet table; read it with Profile.from_parquet.")
    try:
        tensors, metadata = load_tensors(path)
    except FileFormatError as error:
        message = f"{error} Profile.load reads what Profile.save wrote."
        raise FileFormatError(message) from error
    settings = settings_in(metadata, path)
    numbers = [f.name for f in fields(Certificate)]
    expected = {*_WIDE, *_INPUTS, *_FLAT, *(_CERTIFICATE + name for name in numbers)}
    kept = () if settings.top is None else ("kept",)
    if missing := {*expected, *kept} - set(tensors):
        raise FileFormatError(f"{path}: the tensors {sorted(missing)} are missing.")
    _check_shapes(tensors, settings, path)
    certificate = Certificate(**{name: tensors[_CERTIFICATE + name] for name in numbers})
    own = {name: tensors[name] for name in (*_WIDE, *_INPUTS, *_FLAT, *kept)}
    return {**own, "certificate": certificate, "settings": settings}


def _check_shapes(tensors: dict[str, Tensor], settings: Settings, path: str | Path) -> None:
    count, classes = tensors["codes"].numel(), len(settings.weights)
    widths = dict.fromkeys(_WIDE, (classes,)) | {"kept": (settings.top or 0,)}
    for name, tensor in tensors.items():
        row = tuple(tensor.shape[1:]) if name in _INPUTS else widths.get(name, ())
        if tuple(tensor.shape) != (count, *row):
            raise FileFormatError(
                f"{path}: {name} has shape {tuple(tensor.shape)}, which does not fit {count} "
                f"samples of {classes} classes."
            )
    codes = set(tensors["codes"].tolist())
    if tensors["codes"].is_floating_point() or not codes <= set(Status):
        raise FileFormatError(f"{path}: unknown status codes {sorted(codes, key=str)[:5]}.")
    if settings.top is not None:
        check_kept(tensors["kept"], settings, path)


def check_kept(kept: Tensor, settings: Settings, path: str | Path) -> None:
    """Refuse what are not numbers of classes, all different, or -1 for all of a sample."""
    known = str(kept.dtype) == "torch.int64"
    if known:
        unknown = (kept == UNKNOWN).all(1)
        inside = ((kept >= 0) & (kept < (settings.class_count or 0))).all(1)
        ordered = kept.sort(dim=1).values
        known = bool((unknown | (inside & (ordered.diff(dim=1) != 0).all(1))).all())
    if not known:
        raise FileFormatError(f"{path}: the classes that were kept are not numbers of classes.")


def read_count(value: Any) -> int | None:
    """A number of classes in a file, or None; a `TypeError` for what is neither."""
    whole = isinstance(value, int) and not isinstance(value, bool) and 0 < value < 2**31
    if value is not None and not whole:
        message = f"expected a number of classes, got {value!r}"
        raise TypeError(message)
    return value  # type: ignore[no-any-return]  # an int, or None


def metadata_of(settings: Settings) -> dict[str, str]:
    """The metadata of a file with profiles of these settings."""
    content = json.dumps(settings.as_json())
    return {"format": FORMAT, "format_version": FORMAT_VERSION, "settings": content}


def settings_in(metadata: Mapping[str, str], path: str | Path) -> Settings:
    """The settings in the metadata of a file."""
    check_format(path, metadata, FORMAT, FORMAT_VERSION)
    try:
        settings = _as_settings(json.loads(metadata["settings"]))
    except (KeyError, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise FileFormatError(f"{path}: the settings cannot be read ({error!r}).") from error
    if wrong := settings.check_classes():
        raise FileFormatError(f"{path}: {wrong}.")
    return settings


def _as_settings(values: dict[str, Any]) -> Settings:
    """Settings from their JSON form; a `TypeError` or `ValueError` for what is none."""
    values["weights"] = tuple(map(float, values["weights"]))
    if values["bounds"] is not None:
        low, high = map(float, values["bounds"])
        values["bounds"] = low, high
    if values["classes"] is not None:
        values["classes"] = tuple(values["classes"])
    words = [values[name] for name in ("solver", "loss", "dtype", "space", "model", "version")]
    if not all(isinstance(word, str) for word in (*words, *(values["classes"] or ()))):
        message = "expected text"
        raise TypeError(message)
    "".join((*words, *(values["classes"] or ()))).encode()  # an error for what is not text either
    get_args(Moves).index(values["moves"])  # a ValueError for any other word
    for name in ("top", "class_count"):  # older files have none
        values[name] = read_count(values.get(name))
    return Settings(**values)
