"""Profiles on disk: safetensors for everything, Parquet for tables. Never pickle."""

from __future__ import annotations

import json
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING

from safetensors import SafetensorError, safe_open

from credibly.errors import FileFormatError, MissingExtraError
from credibly.io.tensor_files import save_tensors
from credibly.io.whole_files import whole_file
from credibly.profile.certificate import Certificate
from credibly.profile.formats import check_name, not_a_profile
from credibly.profile.profile import Profile, Settings
from credibly.solve.status import Status

if TYPE_CHECKING:
    import pandas as pd
    from torch import Tensor

FORMAT = "credibly.profile"
FORMAT_VERSION = 1

_TENSORS = (
    "credibility", "credence", "risk", "x0", "perturbed", "multipliers", "steps", "passes", "codes",
)  # fmt: skip
_CERTIFICATE = tuple(f.name for f in fields(Certificate))

IN_TABLES = ("objective", "relative_stationarity", "decrease")
"""Numbers of the certificate that tables have, too."""


def save_profile(profile: Profile, path: str | Path) -> None:
    """Write every tensor and the settings."""
    check_name(path, ".safetensors")
    tensors = {name: getattr(profile, name) for name in _TENSORS}
    tensors |= {f"certificate.{name}": getattr(profile.certificate, name) for name in _CERTIFICATE}
    save_tensors(
        {name: tensor.contiguous().cpu().clone() for name, tensor in tensors.items()},
        path,
        metadata=metadata_of(profile.settings),
    )


def load_profile(path: str | Path) -> Profile:
    """Read and check a file of `save_profile`."""
    if Path(path).is_dir():
        raise FileFormatError(f"{path}: a folder, where a file of a profile was expected.")
    try:
        with safe_open(path, "pt") as file:
            settings = settings_in(file.metadata() or {}, path)
            expected = {*_TENSORS, *(f"certificate.{name}" for name in _CERTIFICATE)}
            missing = expected - set(file.keys())
            if missing:
                raise FileFormatError(f"{path}: the tensors {sorted(missing)} are missing.")
            tensors = {name: file.get_tensor(name) for name in expected}
    except SafetensorError as error:
        raise not_a_profile(path, error) from error
    _check_shapes(tensors, settings, path)
    certificate = Certificate(*(tensors[f"certificate.{name}"] for name in _CERTIFICATE))
    own = {name: tensors[name] for name in _TENSORS}
    return Profile(**own, certificate=certificate, settings=settings)


def _check_shapes(tensors: dict[str, Tensor], settings: Settings, path: str | Path) -> None:
    count, classes = len(tensors["codes"]), len(settings.weights)
    for name, tensor in tensors.items():
        wide = name in ("credibility", "credence", "multipliers")
        inputs = name in ("x0", "perturbed")
        good = tensor.shape[:1] == (count,) and (
            inputs or tuple(tensor.shape[1:]) == ((classes,) if wide else ())
        )
        if not good:
            raise FileFormatError(
                f"{path}: {name} has shape {tuple(tensor.shape)}, which does not go with "
                f"{count} samples of {classes} classes."
            )
    codes = tensors["codes"]
    if bool(((codes < min(Status)) | (codes > max(Status))).any()):
        raise FileFormatError(f"{path}: unknown status codes {sorted(set(codes.tolist()))}.")


def metadata_of(settings: Settings | None) -> dict[str, str]:
    """What a file says about itself; without settings only its format."""
    return {
        "format": FORMAT,
        "format_version": str(FORMAT_VERSION),
        **({} if settings is None else {"settings": json.dumps(asdict(settings))}),
    }


def settings_in(metadata: dict[str, str], path: str | Path) -> Settings:
    """The settings in the metadata of a file, checked."""
    if metadata.get("format") != FORMAT:
        raise FileFormatError(
            f"{path}: not a credibly profile; its metadata says format "
            f"{metadata.get('format')!r} where {FORMAT!r} should stand."
        )
    if metadata.get("format_version") != str(FORMAT_VERSION):
        raise FileFormatError(
            f"{path}: format version {metadata.get('format_version')!r}; this credibly reads "
            f"{FORMAT_VERSION}. Install a newer one."
        )
    try:
        values = json.loads(metadata["settings"])
        return Settings(
            weights=tuple(float(w) for w in values["weights"]),
            solver=str(values["solver"]),
            loss=str(values["loss"]),
            dtype=str(values["dtype"]),
            classes=None if values["classes"] is None else tuple(map(str, values["classes"])),
            bounds=None if values["bounds"] is None else tuple(map(float, values["bounds"])),  # type: ignore[arg-type]
            space=str(values.get("space", "inputs")),
            model=str(values.get("model", "")),
            version=str(values["version"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise FileFormatError(f"{path}: the settings cannot be read ({error!r}).") from error


def to_pandas(profile: Profile) -> pd.DataFrame:
    """One row a sample."""
    try:
        import pandas as pd
    except ImportError as error:
        raise MissingExtraError(
            package="pandas", extra="table", purpose="A table of a profile"
        ) from error
    names = [profile.class_name(k) for k in range(profile.credibility.shape[1])]
    ranking = profile.ranking()[:, 0].tolist()
    columns: dict[str, object] = {
        "predicted": [
            names[k] for k in profile.credence.nan_to_num(-float("inf")).argmax(1).tolist()
        ],
        "most_credible": [names[k] for k in ranking],
        "status": [status.label for status in profile.status],
        "risk": profile.risk.cpu().numpy(),
        "passes": profile.passes.cpu().numpy(),
    }
    for k, name in enumerate(names):
        columns[f"credibility.{name}"] = profile.credibility[:, k].cpu().numpy()
    for k, name in enumerate(names):
        columns[f"credence.{name}"] = profile.credence[:, k].cpu().numpy()
    for name in IN_TABLES:
        columns[f"certificate.{name}"] = getattr(profile.certificate, name).cpu().numpy()
    frame = pd.DataFrame(columns)
    unknown = ~profile.usable.cpu().numpy() & profile.credibility.isnan().any(1).cpu().numpy()
    frame.loc[unknown, ["predicted", "most_credible"]] = None
    return frame


def write_parquet(profile: Profile, path: str | Path) -> None:
    """The same table as Parquet, the settings in the file's metadata."""
    check_name(path, ".parquet")
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise MissingExtraError(
            package="pyarrow", extra="table", purpose="A Parquet file of a profile"
        ) from error
    table = pa.Table.from_pandas(to_pandas(profile), preserve_index=False)
    metadata = {**(table.schema.metadata or {}), **metadata_of(profile.settings)}
    with whole_file(path) as place:
        pq.write_table(table.replace_schema_metadata(metadata), place)
