"""Digests of models and files, so that results can be traced to what made them."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import fields
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from credibly.errors import FileFormatError
from credibly.model.classifier import Classifier
from credibly.model.space import Space


def digest_of_file(path: str | Path) -> str:
    """Return the SHA-256 of a file's bytes, in hex; the file is streamed."""
    try:
        with Path(path).open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise FileFormatError(f"{path}: cannot be read ({error.strerror}).") from error


def digest_of_parts(parts: Iterable[tuple[str, str]]) -> str:
    """Return the SHA-256 over named digests or words, in the order given."""
    total = hashlib.sha256()
    for name, value in parts:  # a name of a file may hold bytes that are not UTF-8
        words = f"{len(name)}:{name}={len(value)}:{value};"
        total.update(words.encode("utf-8", "surrogateescape"))
    return total.hexdigest()


def digest_of_tensor(tensor: Tensor) -> str:
    """Return the SHA-256 over the type, the shape and every value of a tensor."""
    flat = tensor.detach().cpu().contiguous().flatten()
    try:
        content = flat.numpy().tobytes()
    except TypeError:  # a type that NumPy does not know, such as bfloat16
        content = flat.view(torch.uint8).numpy().tobytes()
    words = f"{tensor.dtype}{tuple(tensor.shape)}"
    return hashlib.sha256(words.encode() + content).hexdigest()


def digest_of_module(net: nn.Module) -> str:
    """Return the SHA-256 over the class of a module and its parameters and buffers, by name."""
    kind = f"{short_module_name(type(net).__module__)}.{type(net).__qualname__}"
    tensors = [(name, digest_of_tensor(t)) for name, t in net.state_dict().items() if _is_plain(t)]
    return digest_of_parts([("kind", kind), *tensors])


FROM_FILE = "_credibly_"
"""Prefix of the names of modules loaded from a file; a digest of its path follows."""


def short_module_name(module: str) -> str:
    """Return the last part of a module's name, the same if it was loaded from a file."""
    return re.sub(f"^{FROM_FILE}[0-9a-f]{{12}}_", "", module.rpartition(".")[2])


def name_of_callable(function: object) -> str | None:
    """Return the qualified name of a function, or of the class of an object; None for None."""
    if function is None:
        return None
    function = getattr(function, "func", function)  # inside functools.partial
    known = function if hasattr(function, "__qualname__") else type(function)
    module = short_module_name(getattr(known, "__module__", None) or "")
    return f"{module}.{getattr(known, '__qualname__', '')}"


def digest_of_classifier(classifier: Classifier) -> str | None:
    """Return a digest of the weights, or None if the model is a function without any."""
    net = classifier.original
    return digest_of_module(net) if isinstance(net, nn.Module) else None


def digest_of_space(space: Space) -> str:
    """Return the SHA-256 over every setting of a space, with all values of its arrays."""
    return digest_of_parts((f.name, _words(getattr(space, f.name))) for f in fields(space))


def quick_digest(classifier: Classifier) -> str:
    """Return a short digest of some values of every tensor, which is cheap to compute.

    Copies in a higher precision or on another device have the same digest. It tells trained models
    apart, but may miss a change of few weights, of a function, or of a layer without weights.
    """
    net = classifier.original
    if not isinstance(net, nn.Module):
        return f"function {getattr(net, '__qualname__', type(net).__qualname__)}"
    parts = []
    for name, tensor in net.state_dict().items():
        if _is_plain(tensor):
            flat = tensor.detach().flatten()
            some = flat[:: max(1, len(flat) // _SOME)][: 2 * _SOME].double().cpu()
            parts.append((name, f"{tuple(tensor.shape)}{some.numpy().tobytes().hex()}"))
    return digest_of_parts(parts)[:16]


def in_words(digest: str) -> str:
    """Return a result of `quick_digest` in words, for error messages."""
    return digest if digest.startswith("function ") else f"one of the weights {digest}"


_SOME = 32
"""About this many values of every tensor go into a quick digest."""


def _is_plain(value: object) -> bool:
    return isinstance(value, Tensor) and not value.is_meta


def _words(value: object) -> str:
    """Return a setting in words that tell it from others; arrays by their content."""
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{key}: {_words(part)}' for key, part in value.items())}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(_words(part) for part in value)}]"
    if isinstance(value, Tensor):
        return digest_of_tensor(value)
    if hasattr(value, "__array__"):
        return f"array {np.asarray(value).tolist()}"
    return repr(value)
