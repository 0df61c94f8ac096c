"""Inputs from anything that yields them: a batch, a loader, a dataset, an iterator, a file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from credibly._validation import plain_tensor, require
from credibly.adapters.sklearn.twin import from_sklearn
from credibly.adapters.skorch import from_skorch
from credibly.adapters.transformers import from_transformers
from credibly.io.loaded import LoadedClassifier
from credibly.io.python_models import is_estimator
from credibly.io.sources import Source, open_source
from credibly.model.batches import refuse_sparse
from credibly.model.classifier import Classifier
from credibly.model.variable import Variable
from credibly.types import from_numpy, is_table

LABELS = ("labels", "label")
"""What the classes are called in the mappings of a dataset."""

LabelName = str | Literal[True] | None
"""How labels come beside inputs: by this name, surely by the usual ones, or perhaps."""


@dataclass(frozen=True)
class Batch:
    """Inputs as `bind` takes them, and their classes if they came along."""

    inputs: Any
    labels: Any = None


def as_classifier(net: Any) -> Classifier:
    """A classifier of a module, a function or a fitted model of another library."""
    found = net.classifier if isinstance(net, LoadedClassifier) else net
    found = found.clf if isinstance(found, Variable) else getattr(found, "classifier_", found)
    if isinstance(found, Classifier):
        return found
    if isinstance(found, nn.Module) and hasattr(found, "main_input_name"):
        return from_transformers(found)
    if hasattr(found, "module_") and hasattr(found, "get_params"):
        return from_skorch(found)
    if is_estimator(found):
        return from_sklearn(found)
    return Classifier(found)


def batches_of(
    clf: Classifier, data: Any, *, size: int, labels: LabelName = None
) -> Iterator[Batch]:
    """Yield the batches of anything that holds inputs, on the device of the model.

    Args:
        clf: the classifier that will take them.
        data: one batch as `credibility` takes it, a `DataLoader`, a dataset (torch's, or of Hugging
            Face), an iterator of batches, a `Source` or the path of one. Pairs of inputs and labels
            are taken apart.
        size: samples in a batch, where the data do not come in batches.
        labels: the name of the labels, where samples are mappings; True where the second of a pair
            is labels whatever it looks like.
    """
    refuse_sparse(data, "x")
    found = False
    for item in _items(clf, data, size):
        found = True
        yield _taken_apart(clf, item, labels)
    require(found, "x", "at least one batch", f"an empty {type(data).__name__}", "Check the data.")


def _items(clf: Classifier, data: Any, size: int) -> Iterator[Any]:
    if isinstance(data, str | Path):
        data = open_source(data)
    if isinstance(data, Source):
        source = data.for_model(clf)
        for first in range(0, len(source), size):
            inputs = source.read(first, first + size)[1]
            yield Batch(inputs, source.carried(first, first + size).get("label"))
    elif is_batch(data):
        yield data
    elif _is_dataset(data):
        yield from DataLoader(_in_torch(data), batch_size=size)
    else:
        yield from data


def is_batch(data: Any) -> bool:
    """Whether this is one batch, and not something that yields batches or samples."""
    if isinstance(data, str | Path | Source | DataLoader):
        return False
    plain = isinstance(data, Mapping | list | tuple | Variable) or hasattr(data, "dtype")
    return plain or is_table(data) or not (_is_dataset(data) or hasattr(data, "__iter__"))


def length_of(data: Any) -> int | None:
    """How many samples there are, where that is known before they are read."""
    if isinstance(data, DataLoader):
        data = data.dataset
    if isinstance(data, str | Path | Mapping | list | tuple) or not hasattr(data, "__len__"):
        return None
    if hasattr(data, "toarray"):  # sparse, which is refused when it is read
        return None
    return len(data)


def _is_dataset(data: Any) -> bool:
    indexed = hasattr(data, "__getitem__") and hasattr(data, "__len__")
    return indexed or isinstance(data, Dataset) or hasattr(data, "column_names")


def _in_torch(dataset: Any) -> Any:
    """A dataset of Hugging Face gives tensors only if asked to."""
    return dataset.with_format("torch") if hasattr(dataset, "with_format") else dataset


def _taken_apart(clf: Classifier, item: Any, name: LabelName) -> Batch:
    labels = None
    if isinstance(item, Batch):
        item, labels = item.inputs, item.labels
    elif isinstance(item, Mapping):
        item = dict(item)
        for key in (name,) if isinstance(name, str) else LABELS:
            if key in item and (name is not None or _are_labels(item[key], None)):
                labels = item.pop(key)
        item = _alone(clf, item, list(item.values()))
    elif isinstance(item, list | tuple) and not hasattr(item, "_fields"):
        if len(item) == 2 and (name is True or _are_labels(item[1], item[0])):
            item, labels = item
        else:
            item = _alone(clf, item, list(item))
    return Batch(_placed(clf, item), labels)


def _alone(clf: Classifier, item: Any, parts: list[Any]) -> Any:
    """The only part, as of a `TensorDataset` of inputs, unless the model wants it by its place."""
    plain = not clf.unpack and clf.space is None and clf.module is None
    return parts[0] if len(parts) == 1 and plain else item


def _are_labels(value: Any, inputs: Any) -> bool:
    whole = isinstance(value, Tensor | np.ndarray) and "float" not in str(value.dtype)
    alike = inputs is None or not hasattr(inputs, "shape") or len(inputs) == len(value)
    return whole and value.ndim == 1 and alike


def _placed(clf: Classifier, inputs: Any) -> Any:
    """Arrays and tensors where the model is and, if they are floating, in its precision."""
    if isinstance(inputs, np.ndarray) and inputs.dtype != object:
        inputs = from_numpy(inputs)
    if isinstance(inputs, Tensor):
        dtype = clf.dtype if inputs.is_floating_point() else None
        return inputs.to(device=clf.device, dtype=dtype)
    if isinstance(inputs, Mapping):
        return {name: _placed(clf, part) for name, part in inputs.items()}
    if isinstance(inputs, list | tuple) and not hasattr(inputs, "_fields"):
        return type(inputs)(_placed(clf, part) for part in inputs)
    return inputs


def joined_labels(batches: list[Batch]) -> Tensor | NDArray[Any] | None:
    """The labels of all batches, if each has some; those of a file may be words."""
    if any(batch.labels is None for batch in batches):
        return None
    if any(isinstance(batch.labels, list) for batch in batches):
        return np.concatenate([np.array(batch.labels, object) for batch in batches])
    return torch.cat([plain_tensor(batch.labels, "labels").cpu() for batch in batches])
