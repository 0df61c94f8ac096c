"""A model on its way to another process: what it was loaded from, or the model itself."""

from __future__ import annotations

import tempfile
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from credibly._validation import require
from credibly.decide.judge import Judge
from credibly.errors import ModelError
from credibly.io.images import INDEX
from credibly.io.loaded import LoadedClassifier, Parts, Wanted
from credibly.io.models import load_classifier
from credibly.io.places import Place
from credibly.io.sources import Source, reopen_source
from credibly.model.classifier import Classifier
from credibly.model.views import View


@dataclass(frozen=True)
class PackedModel:
    """What another process makes the classifier of.

    A model that `load_classifier` found travels as its name and options, and is loaded again where
    it is used; it must then be the same. Any other travels as it is.

    Attributes:
        spec: what was loaded; None for a live model.
        wanted: the options of `load_classifier`.
        parts: names and digests of what it was made of.
        live: the classifier itself.
    """

    spec: str | None
    wanted: Wanted | None
    parts: Parts
    live: Classifier | None

    @staticmethod
    def of(clf: Classifier, loaded: LoadedClassifier | None) -> PackedModel:
        """Pack a classifier, by what it was loaded from if that is known."""
        if loaded is not None and loaded.origin is not None:
            spec, wanted = loaded.origin
            return PackedModel(spec, wanted, loaded.parts, None)
        # recordings, and copies in half precision, belong to the device of this process
        return PackedModel(None, None, (), clf.with_net(clf.original))

    def open(self, device: str | None) -> LoadedClassifier | Classifier:
        """Load it, and move it to a device where one is given."""
        if self.spec is None or self.wanted is None:
            assert self.live is not None  # noqa: S101  # one of both is there
            return moved(self.live, device, copied=True)
        loaded = load_classifier(self.spec, **vars(self.wanted))
        if loaded.parts != self.parts:
            known = dict(self.parts)
            other = [name for name, value in loaded.parts if known.get(name) != value]
            raise ModelError(
                f"{self.spec} is another model here than where the run was started: its "
                f"{' and '.join(other) or 'parts'} differ",
                remedy="Give all machines the same files (--working-dir DIR sends a folder).",
            )
        return replace(loaded, classifier=moved(loaded.classifier, device))


def moved(clf: Classifier, device: str | None, *, copied: bool = False) -> Classifier:
    """Return the classifier on a device; one without a module stays where it is.

    With `copied`, the module that was passed is not moved itself: it may be the caller's own.
    """
    if device is None or not isinstance(clf.net, nn.Module):
        return clf
    if clf.device is not None and clf.device.type == torch.device(device).type:
        return clf
    try:
        net = (deepcopy(clf.net) if copied else clf.net).to(device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = (str(error).splitlines() or [""])[0]
        raise ModelError(
            f"the model cannot be moved to {device}: {reason}",
            remedy="Ask for no GPU per worker, or for workers on machines with one.",
        ) from error
    other = clf.with_net(net)
    other.device = torch.device(device)
    return other


@dataclass(frozen=True)
class PackedSource:
    """What another process opens a source by; one that nobody opened by name travels as it is.

    Attributes:
        spec: what `reopen_source` takes.
        live: the source itself.
        index: where the list of many files was written, so that nobody lists them again.
    """

    spec: dict[str, Any]
    live: Source | None
    index: Place | None = None

    @staticmethod
    def of(source: Source, home: Place) -> PackedSource:
        """Pack a source; `home` is the folder of the run, which all processes see."""
        if not source.spec:
            return PackedSource({}, source)
        with tempfile.TemporaryDirectory() as folder:
            spec = source.reopen_spec(Path(folder))
            file = Path(folder) / INDEX
            if not file.exists():
                return PackedSource(spec, None)
            (home / INDEX).upload(file)
        return PackedSource(spec, None, home / INDEX)

    def open(self, clf: Classifier) -> Source:
        """Open it, with its columns in the order of the model."""
        if self.live is not None:
            return self.live.for_model(clf)
        if self.index is None:
            return reopen_source(self.spec).for_model(clf)
        with tempfile.TemporaryDirectory() as folder:  # read whole, wherever it is
            file = Path(folder) / INDEX
            file.write_bytes(self.index.read_whole())
            known = {**self.spec["known"], "index": str(file)}
            return reopen_source({**self.spec, "known": known}).for_model(clf)


@dataclass(frozen=True)
class PackedJudge:
    """What another process makes a Judge of: the files it would be saved as, and the model.

    Attributes:
        model: the network.
        files: by name.
        views: functions are not in the files.
    """

    model: PackedModel
    files: dict[str, bytes]
    views: tuple[View, ...]

    @staticmethod
    def of(judge: Judge, loaded: LoadedClassifier | None) -> PackedJudge:
        """Pack a Judge."""
        with tempfile.TemporaryDirectory() as folder:
            judge.save(folder)
            files = {path.name: path.read_bytes() for path in Path(folder).iterdir()}
        model = PackedModel.of(judge.examiner.clf, loaded)
        return PackedJudge(model, files, judge.examiner.views)

    @staticmethod
    def from_folder(folder: str | Path, model: PackedModel) -> PackedJudge:
        """Pack a Judge that was saved."""
        good = Path(folder).is_dir()
        require(good, "judge", "a Judge, or the folder it was saved in", repr(str(folder)),
                "Judge.fit(...).save(FOLDER) or `credibly fit` writes it.")  # fmt: skip
        files = {path.name: path.read_bytes() for path in Path(folder).iterdir() if path.is_file()}
        return PackedJudge(model, files, ())

    def with_model(self, model: PackedModel) -> PackedJudge:
        """Return the same for a model that was packed by its name."""
        return replace(self, model=model)

    def open(self, device: str | None) -> Judge:
        """Load the network and the Judge."""
        with tempfile.TemporaryDirectory() as folder:
            for name, content in self.files.items():
                (Path(folder) / name).write_bytes(content)
            return Judge.load(folder, self.model.open(device), views=self.views)
