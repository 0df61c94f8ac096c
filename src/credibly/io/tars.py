"""WebDataset: samples in tar files, a key for each; indexed once, then read by position."""

from __future__ import annotations

import re
import threading
from array import array
from bisect import bisect_right
from collections import Counter, OrderedDict
from collections.abc import Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from credibly._validation import require
from credibly.io.array_files import npy_array
from credibly.io.arrays import as_floats
from credibly.io.file_set import FileSet, each
from credibly.io.files import check_format, load_tensors, save_tensors
from credibly.io.images import ENDINGS, common_shape
from credibly.io.listing import Names, as_tensor, printable
from credibly.io.pixels import Mode, Shape, pixels_of, shape_of, size_pair
from credibly.io.source import Ids, Where
from credibly.io.tar_index import Member, Sample, TarShard
from credibly.types import CPU

OPEN = 4
"""Tar files that are held open."""

TRIED = 64
"""Samples whose shapes are compared when the shards are opened."""

MOST = 1 << 28
"""Bytes of the largest input that is read; a larger one is a row of NaN."""

INDEX = "inputs.safetensors"
_KIND, _VERSION = "credibly.tar index", "1"

IMAGES = tuple(ending[1:] for ending in ENDINGS)
PICKLES = ("pyd", "pkl", "pickle", "pth", "pt", "joblib")

_WHOLE = re.compile(r"0|-?[1-9][0-9]{0,17}")


class TarShards(FileSet):
    """Samples of tar files in the order of the files; ids are the keys.

    A sample without the input, or with one that cannot be read, is a row of NaN.
    """

    id_type: Literal["int64", "string"] = "string"
    files = True

    def __init__(
        self,
        path: Where,
        root: Where,
        names: Sequence[str],
        *,
        key: str | None = None,
        label: str | None = None,
        size: int | tuple[int, int] | None = None,
        mode: Mode | None = None,
        scale: float | None = None,
        limit: int | None = None,
        known: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        self.path, self.kind, self.label = path, "tar files", label
        self._root, self._names = root, list(known.get("names", names))
        self.size, self.mode, self.scale = size_pair(size), mode, scale
        self._lock = threading.Lock()
        self._held: OrderedDict[int, TarShard] = OrderedDict()
        self._refuse_pickles(key, label)
        self._inputs = None if key is None else tuple(key.lower().split(";"))
        if "index" in known:
            self._load(Path(known["index"]), tuple(known["inputs"]))
        else:
            self._index()
        self._limit(len(self._keys), limit)
        self.shape: Shape = tuple(known.get("shape") or self._common_shape())

    def options(self) -> dict[str, object]:
        return {
            "input": ";".join(self._inputs or ()),
            "size": None if self.size is None else list(self.size),
            "mode": self.mode,
            "scale": self.scale,
            "files": len(self._names),
        }

    def reopen_spec(self, folder: Path | None = None) -> dict[str, Any]:
        """See `Source.reopen_spec`; with a folder the index is written into it."""
        spec = super().reopen_spec(folder)
        if folder is not None:
            self._save(folder / INDEX)
            spec["known"] = {
                "kind of files": ".tar",
                "names": self._names,
                "inputs": self._inputs,
                "shape": list(self.shape),
                "index": str((folder / INDEX).absolute()),
            }
        return spec

    def _refuse_pickles(self, key: str | None, label: str | None) -> None:
        for name, value in (("key", key), ("label", label)):
            asked = set((value or "").lower().replace(":", ";").split(";"))
            remedy = "Reading it would execute code that is in it. Write .npy, .png or .json."
            wanted = "an ending of members that hold no pickles"
            require(not asked & set(PICKLES), name, wanted, repr(value), remedy)

    def _index(self) -> None:
        """Find every sample, and read its label."""
        keys: list[str] = []
        labels: list[str | None] = []
        self._offsets, self._sizes, counts = array("q"), array("q"), []
        for samples, found in each(self._look_at, range(len(self._names)), afar=self.is_afar):
            self._inputs = self._inputs or self._choose(samples)
            counts.append(len(samples))
            keys += samples
            labels += found
            for sample in samples.values():
                member = self._input_of(sample)
                self._offsets.append(member.offset)
                self._sizes.append(member.size)
        self._keys, self._starts = Names.of(keys), array("q", accumulate(counts, initial=0))
        self._words = labels if self.label is not None else []
        if self.label is not None:
            self._check_labels()

    def _look_at(self, number: int) -> tuple[dict[str, Sample], list[str | None]]:
        shard = TarShard(self._where(number))
        try:
            samples = shard.samples()
            if self.label is None:
                return samples, []
            ending, colon, field = self.label.partition(":")
            key = field if colon else None
            if ending == "json" and not colon:
                key = ""
            found = [shard.label(sample.get(ending.lower()), key) for sample in samples.values()]
        finally:
            shard.close()
        return samples, found

    def _choose(self, samples: Mapping[str, Sample]) -> tuple[str, ...] | None:
        """The ending of the inputs, if there is only one kind; images are one kind."""
        if not samples:
            return None
        endings = Counter(ending for sample in samples.values() for ending in sample)
        images = tuple(ending for ending in endings if ending in IMAGES)
        arrays = tuple(ending for ending in endings if ending == "npy")
        listed = ", ".join(sorted(endings))
        require(
            bool(images) != bool(arrays),
            "key",
            f"the ending of the inputs, one of {listed}",
            "none",
            "Images (png, jpg, ...) or npy would be taken by themselves, if there is one kind.",
        )
        return images or arrays

    def _input_of(self, sample: Sample) -> Member:
        found = [sample[ending] for ending in self._inputs or () if ending in sample]
        return found[0] if len(found) == 1 else Member(-1, 0)

    def _check_labels(self) -> None:
        given = [word for word in self._words if word is not None]
        require(
            bool(given),
            "label",
            "an ending of members with classes, such as cls, or a field of JSON, such as "
            "json:label",
            repr(self.label),
            f"No sample of {self.path} has it.",
        )
        whole = len(given) == len(self._words) and all(map(_WHOLE.fullmatch, given))
        self.label_type = "int64" if whole else "string"

    def _labels(self, start: int, stop: int) -> list[Any]:
        words = self._words[start:stop]
        return [int(w or 0) for w in words] if self.label_type == "int64" else list(words)

    def _take(self, start: int, stop: int) -> tuple[Ids, Tensor]:
        rows = [self._input(number) for number in range(start, stop)]
        wide = any(row is not None and row.dtype == torch.float64 for row in rows)
        kind = torch.float64 if wide else torch.float32
        x = torch.full((len(rows), *self.shape), torch.nan, dtype=kind, device=CPU)
        for place, row in zip(x, rows, strict=True):
            if row is not None and row.shape == place.shape:
                place.copy_(row)
        return [printable(self._keys[number]) for number in range(start, stop)], x

    def _input(self, number: int) -> Tensor | None:
        content = self._content(number)
        if (self._inputs or ("",))[0] in IMAGES:
            return pixels_of(content, self.mode, self.size)
        try:
            _, values = npy_array(content)
        except Exception:  # noqa: BLE001  # a damaged array costs only itself
            return None
        x = as_floats(np.array(values))
        return x if self.scale is None else x / self.scale

    def _content(self, number: int) -> bytes:
        """The bytes of an input, none if there is none or if it is too large."""
        member = Member(self._offsets[number], self._sizes[number])
        if member.offset < 0 or member.size > MOST:
            return b""
        shard = bisect_right(self._starts, number) - 1
        with self._lock:
            opened = self._held.pop(shard, None) or TarShard(self._where(shard))
            self._held[shard] = opened
            while len(self._held) > OPEN:
                self._held.popitem(last=False)[1].close()
            return opened.read(member)

    def _common_shape(self) -> Shape:
        tried = range(min(TRIED, len(self)))
        return common_shape(self.path, ((self._keys[n], self._shape(n)) for n in tried))

    def _shape(self, number: int) -> Shape | None:
        content = self._content(number)
        if (self._inputs or ("",))[0] in IMAGES:
            require(self.scale is None, "scale", "none with images", repr(self.scale), "Leave it.")
            return shape_of(content, self.mode, self.size)
        try:
            header, _ = npy_array(content)
        except Exception:  # noqa: BLE001  # a damaged array costs only itself
            return None
        if header.kind == "whole":
            require(
                self.scale is not None,
                "scale",
                "a number to divide the whole numbers by, as the model was trained",
                f"none, for {header.dtype} in {printable(self._keys[number])}",
                "Pass scale=255 (--scale 255) for bytes that become [0, 1], or scale=1.",
            )
        return header.shape

    def _save(self, path: Path) -> None:
        """Write the index."""
        words = Names.of(f"+{word}" if word is not None else "" for word in self._words)
        tensors = {
            "keys": _bytes(self._keys.content),
            "key ends": as_tensor(self._keys.ends),
            "labels": _bytes(words.content),
            "label ends": as_tensor(words.ends),
            "offsets": as_tensor(self._offsets),
            "sizes": as_tensor(self._sizes),
            "starts": as_tensor(array("q", self._starts)),
        }
        save_tensors(tensors, path, metadata={"format": _KIND, "format_version": _VERSION})

    def _load(self, path: Path, inputs: tuple[str, ...]) -> None:
        """Read what `_save` wrote."""
        tensors, marks = load_tensors(path)
        check_format(path, marks, _KIND, _VERSION)
        raw = {name: tensor.numpy().tobytes() for name, tensor in tensors.items()}
        self._inputs = inputs
        self._keys = Names(raw["keys"], array("q", raw["key ends"]))
        words = Names(raw["labels"], array("q", raw["label ends"]))
        self._words = [word[1:] if word else None for word in words]
        self._offsets, self._sizes = array("q", raw["offsets"]), array("q", raw["sizes"])
        self._starts = array("q", raw["starts"])
        if self.label is not None:
            self._check_labels()


def _bytes(content: bytes) -> Tensor:
    return torch.frombuffer(bytearray(content or b"\0"), dtype=torch.uint8)
