"""What identifies a model or a file: SHA-256, so that results can be traced to what made them."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import fields
from pathlib import Path

import numpy as np
from torch import Tensor, nn

from credibly.model.classifier import Classifier
from credibly.model.space import Space


def digest_of_file(path: str | Path) -> str:
    """SHA-256 of a file's bytes, in hex; the file is streamed."""
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def digest_of_parts(parts: Iterable[tuple[str, str]]) -> str:
    """SHA-256 over named digests or words, in the order given."""
    total = hashlib.sha256()
    for name, value in parts:
        total.update(f"{len(name)}:{name}={len(value)}:{value};".encode())
    return total.hexdigest()


def digest_of_tensor(tensor: Tensor) -> str:
    """SHA-256 over the type, the shape and every value of a tensor."""
    flat = tensor.detach().cpu().contiguous().flatten()
    content = flat.view(-1).numpy().tobytes() if _numpy_has(flat) else _bits(flat)
    words = f"{tensor.dtype}{tuple(tensor.shape)}"
    return hashlib.sha256(words.encode() + content).hexdigest()


def digest_of_module(net: nn.Module) -> str:
    """SHA-256 over the kind of module and every parameter and buffer, by name."""
    kind = f"{short_module_name(type(net).__module__)}.{type(net).__qualname__}"
    tensors = [(name, digest_of_tensor(t)) for name, t in net.state_dict().items() if _is_plain(t)]
    return digest_of_parts([("kind", kind), *tensors])


FROM_FILE = "_credibly_"
"""How the names of modules begin that were loaded from a file: then a digest of its path."""


def short_module_name(module: str) -> str:
    """The last part of a module's name, the same whether it was imported or loaded from a file."""
    return re.sub(f"^{FROM_FILE}[0-9a-f]{{12}}_", "", module.rpartition(".")[2])


def digest_of_classifier(classifier: Classifier) -> str | None:
    """Fingerprint of the weights inside, or None where the model is a function without any."""
    if not isinstance(classifier.net, nn.Module):
        return None
    return digest_of_module(classifier.net)


def digest_of_space(space: Space) -> str:
    """SHA-256 over every setting of a space, with all values of its arrays."""
    return digest_of_parts((f.name, _words(getattr(space, f.name))) for f in fields(space))


def quick_digest(classifier: Classifier) -> str:
    """A short name for the model's weights, from some values of every tensor: cheap to repeat.

    Copies in a higher precision or on another device have the same. It tells trained models apart,
    not forgeries: a change of few weights may go unseen, and so does one of a function of the same
    name, or of a layer that has no weights.
    """
    net = classifier.net
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
    """What `quick_digest` gave, with a word on what it tells apart."""
    return digest if digest.startswith("function ") else f"one of the weights {digest}"


_SOME = 32
"""About so many values of every tensor tell one set of weights from another."""


def _is_plain(value: object) -> bool:
    return isinstance(value, Tensor) and not value.is_meta


def _words(value: object) -> str:
    """A setting in words that tell it from others; arrays by their content."""
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{key}: {_words(part)}' for key, part in value.items())}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(_words(part) for part in value)}]"
    if isinstance(value, Tensor):
        return digest_of_tensor(value)
    if hasattr(value, "__array__"):
        return f"array {np.asarray(value).tolist()}"
    return repr(value)


def _numpy_has(flat: Tensor) -> bool:
    try:
        flat[:0].numpy()
    except TypeError:
        return False
    return True


def _bits(flat: Tensor) -> bytes:
    """Bytes of types that NumPy does not know, such as bfloat16."""
    from torch import uint8

    return flat.view(uint8).numpy().tobytes()
