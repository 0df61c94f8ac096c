"""Good files of every kind that is read, how each is read, and what damages it best."""

from __future__ import annotations

import json
import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file

import credibly as cr
from credibly.decide.rules import load_rule
from credibly.io.labels import read_labels
from credibly.study.study_result import StudyResult
from fuzz import formats, work
from fuzz.mutations import Mutation, json_text


@dataclass(frozen=True)
class Kind:
    """A kind of file.

    Attributes:
        make: writes good files into a folder.
        read: reads them, as far as a user would; what it returns is compared where `exact`.
        own: damage that knows the format, by the end of the name.
        files: a pattern of the names of those that are damaged.
        exact: whether a success must give the very result of the good files.
        slow: whether it is tried less often.
        heavy: whether it needs a large library, and so is left out where time is short.
    """

    make: Callable[[Path], None]
    read: Callable[[Path], Any]
    own: Mapping[str, Mutation]
    files: str = "*"
    exact: bool = False
    slow: bool = False
    heavy: bool = False


def _rows(name: str, **how: Any) -> Callable[[Path], None]:
    def read(folder: Path) -> None:
        source = cr.open_source(folder / name, **how)
        source.fingerprint()
        source.describe()
        for start in (0, 8, max(0, len(source) - 4), 0):  # onwards, the end, and back
            ids, x = source.read(start, start + 8)
            assert len(ids) == len(x)  # noqa: S101

    return read


def _labels(name: str, key: str | None = None) -> Callable[[Path], None]:
    def read(folder: Path) -> None:
        read_labels(folder / name, key, classes=work.CLASSES)

    return read


def _save(name: str, **arrays: Any) -> Callable[[Path], None]:
    def make(folder: Path) -> None:
        path = folder / name
        given = arrays or {"x": work.inputs()}
        if name.endswith(".npy"):
            np.save(path, next(iter(given.values())))
        elif name.endswith(".npz"):
            np.savez_compressed(path, **given)
        else:
            save_file({key: torch.from_numpy(value.copy()) for key, value in given.items()}, path)

    return make


def _text(separator: str) -> Callable[[Path], None]:
    def make(folder: Path) -> None:
        work._save_csv(folder)  # noqa: SLF001
        if separator == "\t":
            text = (folder / "x.csv").read_text()
            (folder / "x.tsv").write_text(text.replace(",", "\t"))
            (folder / "x.csv").unlink()

    return make


def _named(folder: Path) -> None:
    lines = ["row,label", *(f"{k},{work.CLASSES[k % 3]}" for k in range(12))]
    (folder / "y.csv").write_text("\n".join(lines) + "\n")


def _table(folder: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns = {name: work.inputs()[:, k] for k, name in enumerate("abcd")}
    pq.write_table(pa.table(columns), folder / "x.parquet", row_group_size=10)


def _images(folder: Path) -> None:
    from PIL import Image

    random = np.random.default_rng(0)
    for k in range(3):
        pixels = random.integers(0, 255, (8, 8, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"{k}.png")
        Image.fromarray(pixels).save(folder / f"{k}.jpg")


def _read_profile(folder: Path) -> None:
    found = cr.Profile.load(folder / "profile.safetensors")
    _use(found)
    assert len(found.x0) == len(found)  # noqa: S101


def _use(found: cr.Profile) -> None:
    """What everybody does with a profile."""
    found.summary()
    found.to_pandas()
    str(found.settings.gamma)
    for score in cr.scores.SCORES.values():
        score(found)


def _read_table_of_profiles(folder: Path) -> None:
    _use(cr.Profile.from_parquet(next(folder.glob("*.parquet"))))


def _rules(folder: Path) -> None:
    found, clf = work.profile(), work.classifier()
    cr.OutlierFlag.fit(clf, found, false_alarms=0.1).save(folder / "flag.json")
    cr.SelectiveClassifier.for_coverage(clf, found, 0.8).save(folder / "selective.json")
    settings = json.loads((folder / "flag.json").read_text())["settings"]
    sets = {
        "format": "credibly.conformal", "format_version": 1, "threshold": 0.7, "confidence": 0.8,
        "probabilities": "softmax", "method": "lac", "samples": 300, "settings": settings,
    }  # fmt: skip
    (folder / "sets.json").write_text(json.dumps(sets))


def _read_rules(folder: Path) -> None:
    found = work.profile()
    for path in sorted(folder.glob("*.json")):
        rule = load_rule(path)
        assert str(rule)  # noqa: S101
        assert repr(rule)  # noqa: S101
        rule.answers(found)


def _judge(folder: Path) -> None:
    x = torch.from_numpy(np.random.default_rng(0).normal(size=(40, 4)))
    cr.Judge.fit(work.classifier(), x, torch.arange(40) % 3, false_alarms=0.1).save(folder)


def _read_judge(folder: Path) -> None:
    judge = cr.Judge.load(folder, work.classifier())
    assert judge.summary()  # noqa: S101
    found = judge(torch.from_numpy(work.inputs()))
    assert found.summary()  # noqa: S101
    assert len(found.to_pandas()) == len(found)  # noqa: S101


def _read_study(folder: Path) -> None:
    found = cr.study.read_study(folder / "study")
    cr.study.summarise(found, resamples=2)
    StudyResult.load(folder / "study")


def _model(folder: Path) -> None:
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler
    from skops import io

    x = np.nan_to_num(work.inputs(), posinf=1.0)
    model = make_pipeline(StandardScaler(), LogisticRegression()).fit(x, np.arange(len(x)) % 3)
    io.dump(model, folder / "model.skops")


def _read_model(folder: Path) -> None:
    clf = cr.load_classifier(folder / "model.skops").classifier
    cr.credibility(clf, torch.ones(2, 4, dtype=torch.float64), gamma=1.0, solver=work.SOLVER)


def _program(folder: Path) -> None:
    (folder / "model.pt2").write_bytes(b"PK\x03\x04" + bytes(60))


def _stopped(folder: Path) -> None:
    """A run that was stopped after two of three parts."""
    work._save_x(folder)  # noqa: SLF001

    def stop(share: float) -> None:
        if share > 0.8:
            raise KeyboardInterrupt

    try:
        work.score(folder, progress=stop)
    except KeyboardInterrupt:
        return


def _continue(folder: Path) -> bytes:
    """The rows; what the metadata say of the run may differ with its manifest."""
    import pyarrow.parquet as pq

    work.score(folder)
    table = pq.read_table(folder / "out.parquet")
    return b"".join(bytes(part) for batch in table.to_batches() for part in _buffers(batch))


def _buffers(batch: Any) -> list[Any]:
    return [part for column in batch.columns for part in column.buffers() if part is not None]


_JSON = {".json": json_text}
_TENSORS = {".safetensors": formats.safetensors}
_PARQUET = {".parquet": formats.parquet}
_ZIP = formats.zipped({".npy": formats.npy, ".json": json_text})
_ALL = {**_JSON, **_TENSORS, **_PARQUET}
_NAMES = np.array(["red", "green", "blue"] * 4)

KINDS: Mapping[str, Kind] = {
    "npy": Kind(_save("x.npy"), _rows("x.npy"), {".npy": formats.npy}),
    "bytes.npy": Kind(
        _save("x.npy", x=np.arange(92, dtype=np.uint8).reshape(23, 4)),
        _rows("x.npy", scale=255), {".npy": formats.npy},
    ),
    "npz": Kind(_save("x.npz"), _rows("x.npz"), {".npz": _ZIP}),
    "safetensors": Kind(_save("x.safetensors"), _rows("x.safetensors"), _TENSORS),
    "csv": Kind(_text(","), _rows("x.csv"), {".csv": formats.text_table}),
    "csv with ids": Kind(
        _text(","), _rows("x.csv", id_column="a"), {".csv": formats.text_table}
    ),
    "tsv": Kind(_text("\t"), _rows("x.tsv"), {".tsv": formats.text_table}),
    "parquet": Kind(_table, _rows("x.parquet"), _PARQUET),
    "parquet with ids": Kind(_table, _rows("x.parquet", id_column="b"), _PARQUET),
    "images": Kind(_images, _rows(""), {".png": formats.png}),
    "images resized": Kind(_images, _rows("", size=8, mode="grey"), {".png": formats.png}),
    "labels.npy": Kind(
        _save("y.npy", y=np.arange(12) % 3), _labels("y.npy"), {".npy": formats.npy}
    ),
    "labels.npz": Kind(
        _save("y.npz", labels=_NAMES, x=work.inputs()), _labels("y.npz"), {".npz": _ZIP}
    ),
    "labels.csv": Kind(_named, _labels("y.csv", "label"), {".csv": formats.text_table}),
    "rules": Kind(_rules, _read_rules, _JSON),
    "judge": Kind(_judge, _read_judge, {**_JSON, **_TENSORS}),
    "profile": Kind(work.WORK["profile.save"].do, _read_profile, _TENSORS),
    "profile table": Kind(work.WORK["to_parquet"].do, _read_table_of_profiles, _PARQUET),
    "study": Kind(work.study, _read_study, _ALL, "study/*", slow=True),
    "study again": Kind(work.study, work.study, _ALL, "study/*", slow=True),
    "skops": Kind(_model, _read_model, {".skops": _ZIP}, heavy=True),
    "pt2": Kind(_program, lambda f: cr.load_classifier(f / "model.pt2"), {}),  # type: ignore[arg-type, return-value]
    "run": Kind(_stopped, _continue, _ALL, "out.parquet.parts/*", exact=True, slow=True),
}  # fmt: skip


def make_all(argument: Mapping[str, Any]) -> Iterator[str]:
    """Write good files of every kind, each in a folder of its own; they must be readable."""
    warnings.simplefilter("ignore")
    for name, kind in KINDS.items():
        if kind.heavy and argument["quick"]:
            continue
        folder = good(Path(argument["root"]), name)
        folder.mkdir()
        kind.make(folder)
        with tempfile.TemporaryDirectory() as place:
            shutil.copytree(folder, place, dirs_exist_ok=True)
            try:
                kind.read(Path(place))
            except cr.errors.FileFormatError:
                if name != "pt2":  # which nobody trusts
                    raise
        yield name


def good(root: Path, name: str) -> Path:
    """The folder of a kind."""
    return root / str(list(KINDS).index(name))
