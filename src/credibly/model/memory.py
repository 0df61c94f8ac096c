"""As many samples at a time as fit into memory: found by one pass, halved where it was too many."""

from __future__ import annotations

import ctypes
import gc
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import Literal, TypeVar

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks

from credibly._validation import chunk_size as check_chunk_size
from credibly.model.cuda_graphs import give_back
from credibly.model.derivatives import losses_and_pull
from credibly.model.recorded import forget_recordings
from credibly.model.variable import Variable
from credibly.types import finite_rows

Found = TypeVar("Found")
ChunkSize = int | Literal["auto"]

MOST = {"cpu": 128, "cuda": 2048}
"""Samples solved at a time from which more bring nothing, by device."""

MOST_JUDGED = {"cpu": 256, "cuda": 4096}
"""The same where nearly all of it is one forward."""

MOST_COMPARED = {"cpu": 512, "cuda": 4096}
"""The same where each is compared with some hundred others."""

FEW = 16
"""So few samples are tried without asking first."""

SHARE, BESIDE = 0.4, 4.0
"""Share of the free memory that is used, and all memory of a pass over what autograd keeps."""

_NO_MEMORY = ("can't allocate memory", "not enough memory", "out of memory")


def check_size(size: object) -> None:
    """Accept a positive whole number, or 'auto'."""
    if size != "auto":
        check_chunk_size(size)


def resolve_size(
    size: ChunkSize, variable: Variable, limits: Mapping[str, int] = MappingProxyType(MOST)
) -> int:
    """The number itself; for 'auto' what fits into memory, by one pass of one sample."""
    if size != "auto":
        return size
    most = limits.get(variable.start.device.type, limits["cpu"])
    usable = finite_rows(variable.start).nonzero().squeeze(1)[:1]
    if len(variable) <= FEW or len(usable) == 0:
        return most
    needed = BESIDE * bytes_of_a_pass(variable.select(usable))
    fit = SHARE * free_bytes(variable.start.device) / max(needed, 1.0)  # may be infinite
    return max(1, int(min(most, fit)))


def size_here(size: int, device: torch.device | None) -> int:
    """What 'auto' found elsewhere, on this device: its most, if only that of the other was met."""
    most = MOST_JUDGED.get("cpu" if device is None else device.type, MOST_JUDGED["cpu"])
    return most if size in MOST_JUDGED.values() else min(size, most)


def most_compared(device: torch.device) -> int:
    """Samples that are compared with some hundred others at a time."""
    return MOST_COMPARED.get(device.type, MOST_COMPARED["cpu"])


def bytes_of_a_pass(variable: Variable) -> int:
    """What autograd keeps between forward and backward, parameters left out."""
    net = variable.net
    own = {p.data_ptr() for p in net.parameters()} if isinstance(net, nn.Module) else set()
    kept: dict[int, int] = {}

    def note(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if tensor.data_ptr() not in own:
            size = min(tensor.nbytes, storage.nbytes())  # a view may belong to a larger one
            kept[storage.data_ptr()] = max(size, kept.get(storage.data_ptr(), 0))
        return tensor

    with saved_tensors_hooks(note, lambda tensor: tensor):
        losses_and_pull(variable, variable.start, torch.clone)
    return sum(kept.values()) + 4 * variable.start.nbytes


def free_bytes(device: torch.device) -> float:
    """Memory that can still be had; infinite where the system does not say."""
    if device.type == "cuda":
        spare = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return float(torch.cuda.mem_get_info(device)[0] + spare)
    try:
        return float(os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    except (ValueError, OSError, AttributeError):
        return float("inf")


def in_chunks(count: int, size: int, work: Callable[[slice], Found]) -> Iterator[Found]:
    """`work` on at most `size` rows at a time; half as many where memory runs out."""
    first = 0
    while first < count:
        rows = slice(first, min(first + size, count))
        try:
            found = work(rows)
        except Exception as error:
            if not is_out_of_memory(error) or rows.stop - rows.start <= 1:
                raise
            size = max(1, (rows.stop - rows.start) // 2)
        else:
            yield found
            first = rows.stop
            continue
        _give_back()  # outside of the handler, whose traceback holds what was allocated


def is_out_of_memory(error: Exception) -> bool:
    """Whether fewer samples at a time may help."""
    words = str(error).lower()
    known = isinstance(error, torch.OutOfMemoryError | MemoryError)
    return known or (isinstance(error, RuntimeError) and any(w in words for w in _NO_MEMORY))


def trim() -> None:
    """Give freed memory back to the system, where the C library can (glibc); it keeps most.

    Batches of many sizes leave gaps of many sizes, so a long process grows without it.
    """
    with suppress(OSError, AttributeError, TypeError):  # TypeError: no such handle on Windows
        ctypes.CDLL(None).malloc_trim(0)


def _give_back() -> None:
    forget_recordings()
    gc.collect()
    give_back()
    trim()
