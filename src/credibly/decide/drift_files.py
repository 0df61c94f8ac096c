"""A watch on disk: one safetensors file with its counts, its bets and its settings."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from credibly._validation import require, share, whole
from credibly.decide.drift_bets import SHARES, Bets, Ranks
from credibly.decide.drift_engine import Engine, Stream, WatchSettings
from credibly.errors import FileFormatError
from credibly.io.files import check_format, load_tensors, reading, save_tensors
from credibly.io.fingerprints import in_words

FORMAT, VERSION = "credibly.drift", 1


@dataclass(frozen=True, eq=False)
class Content:
    """What is in the file."""

    tensors: Mapping[str, Tensor]
    metadata: Mapping[str, str]


def content_of(engine: Engine) -> Content:
    """What `save` writes; later changes of the engine do not change it."""
    streams = [engine.whole, *engine.classes.values()]
    counts = np.stack([stream.ranks.counts for stream in streams])
    which, places = np.nonzero(counts)
    tensors = {
        "which": which,
        "places": places,
        "counts": counts[which, places],
        "classes": np.array([-1, *engine.classes], np.int64),
        "seen": np.array([stream.bets.count for stream in streams], np.int64),
        "since": np.array([stream.since or 0 for stream in streams], np.int64),
        "logs": np.stack([stream.bets.logs for stream in streams]),
        "totals": np.array([engine.mean, engine.peak]),
        "inputs": np.array([engine.seen, engine.unusable, engine.since or 0], np.int64),
    }
    return Content(
        {name: torch.from_numpy(np.ascontiguousarray(value)) for name, value in tensors.items()},
        {
            "format": FORMAT,
            "format_version": str(VERSION),
            "settings": json.dumps(asdict(engine.settings)),
        },
    )


def save(content: Content, path: str | Path) -> None:
    """Write the file, whole or not at all."""
    save_tensors(content.tensors, path, metadata=content.metadata)


def load(path: Path, judge: str) -> Engine:
    """Read what `save` wrote, for the Judge with this digest."""
    tensors, metadata = load_tensors(path)
    check_format(path, metadata, FORMAT, VERSION)
    with reading(path):
        settings = _settings(json.loads(metadata["settings"]))
    require(
        settings.judge == judge,
        "judge",
        f"the Judge that the watch in {path} was begun with, {in_words(settings.judge)}",
        in_words(judge),
        "Load that Judge, or begin to watch anew with this one.",
    )
    with reading(path):
        return _engine(settings, {name: value.numpy() for name, value in tensors.items()})


def _settings(content: dict[str, Any]) -> WatchSettings:
    found = WatchSettings(**content)
    share("false_alarms", found.false_alarms)
    whole("seed", found.seed, least=0)
    whole("ordinary", found.ordinary)
    whole("classes", found.classes, least=2)
    whole("reference", found.reference, least=0)
    texts = isinstance(found.judge, str) and isinstance(found.compared, str)
    if not isinstance(found.by_class, bool) or not texts:
        raise FileFormatError("expected the settings of a watch")
    return found


def _engine(settings: WatchSettings, parts: Mapping[str, Any]) -> Engine:
    """An engine from arrays, which may be anything."""
    _check(settings, parts)
    classes, engine = parts["classes"].tolist(), Engine.begin(settings)
    table = np.zeros((len(classes), settings.ordinary + 2), np.int64)
    table[parts["which"], parts["places"]] = parts["counts"]
    streams = [
        Stream(
            Ranks(counts, between=k < 0 and not settings.reference),
            Bets(logs, int(seen)),
            int(since) or None,
        )
        for k, counts, logs, seen, since in zip(
            classes, table, parts["logs"], parts["seen"], parts["since"], strict=True
        )
    ]
    engine.whole, engine.classes = streams[0], dict(zip(classes[1:], streams[1:], strict=True))
    engine.mean, engine.peak = map(float, parts["totals"])
    engine.seen, engine.unusable = map(int, parts["inputs"][:2])
    engine.since = int(parts["inputs"][2]) or None
    _check_counts(engine)
    return engine


def _check(settings: WatchSettings, parts: Mapping[str, Any]) -> None:
    """Refuse arrays that do not belong together, before anything as large as they say is made."""
    classes, rows = parts["classes"], len(parts["which"])
    count = len(classes)
    shapes = {
        "which": (rows,), "places": (rows,), "counts": (rows,), "classes": (count,),
        "seen": (count,), "since": (count,), "logs": (count, len(SHARES)), "totals": (2,),
        "inputs": (3,),
    }  # fmt: skip
    real = {"logs", "totals"}
    good = all(
        parts[name].shape == shape
        and parts[name].dtype == (np.float64 if name in real else np.int64)
        for name, shape in shapes.items()
    )
    if not good or not count or classes[0] != -1:
        raise FileFormatError("expected the arrays of a watch")
    inside = (
        bool((parts["which"] >= 0).all() and (parts["which"] < count).all())
        and bool((parts["places"] >= 1).all() and (parts["places"] <= settings.ordinary + 1).all())
        and all(bool((parts[name] >= 0).all()) for name in ("counts", "seen", "since", "inputs"))
        and len(set(classes.tolist())) == count <= settings.classes + 1
        and bool((classes[1:] >= 0).all() and (classes[1:] < settings.classes).all())
    )
    sane = not bool(np.isnan(parts["logs"]).any() or (parts["logs"] == math.inf).any())
    if not inside or not sane or not np.isfinite(parts["totals"]).all():
        raise FileFormatError("expected counts, classes and bets that are possible")


def _check_counts(engine: Engine) -> None:
    """Every input that was ranked is counted where it stands."""
    reference, ranked = engine.settings.reference, engine.seen - engine.unusable
    streams = list(engine.classes.values())
    known = engine.whole.ranks.seen == reference + ranked and engine.whole.bets.count == ranked
    if engine.settings.by_class:
        known &= sum(stream.bets.count for stream in streams) == ranked
        known &= sum(stream.ranks.seen for stream in streams) == reference + ranked
    if not known or engine.unusable > engine.seen:
        raise FileFormatError("expected as many ranks as inputs")
