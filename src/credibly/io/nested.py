"""Columns of lists, of lists of lists, or of tensors, as arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from credibly.errors import FileFormatError


def array_of(column: Any) -> NDArray[Any]:
    """Return the values (n, ...) of an Arrow column; rows without a value are NaN.

    Lists of one row may be nested, and must be as long as those of the others.
    """
    import pyarrow as pa

    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if isinstance(array, pa.ChunkedArray):  # of an extension type, or without chunks
        array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], array.type)
    if isinstance(array.type, pa.FixedShapeTensorType):
        return np.asarray(array.to_numpy_ndarray())
    if isinstance(array.type, pa.BaseExtensionType):
        return _of_extension(array)
    if pa.types.is_list(array.type) or pa.types.is_large_list(array.type):
        return _of_lists(array)
    if pa.types.is_fixed_size_list(array.type):
        return _of_lists(array.cast(pa.large_list(array.type.value_type)))
    return _of_numbers(array)


def _of_lists(array: Any) -> NDArray[Any]:
    from pyarrow import compute

    kept = array.drop_null()
    lengths = compute.unique(compute.list_value_length(kept)).to_pylist()
    if len(lengths) > 1:
        raise FileFormatError(f"lists of several lengths ({lengths[0]} and {lengths[1]})")
    inner = array_of(kept.flatten())
    found = inner.reshape(len(kept), *(lengths or [0]), *inner.shape[1:])
    if len(kept) == len(array):
        return found
    rows = np.full((len(array), *found.shape[1:]), np.nan)
    rows[array.is_valid().to_numpy(zero_copy_only=False)] = found
    return rows


def _of_numbers(array: Any) -> NDArray[Any]:
    import pyarrow as pa

    kind = array.type
    if pa.types.is_boolean(kind):
        return _of_numbers(array.cast(pa.uint8()))
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        raise FileFormatError(f"values of the type {kind}, which are no numbers")
    if array.null_count:
        array = array.cast(pa.float64(), safe=False)
    return np.asarray(array.to_numpy(zero_copy_only=False))


def _of_extension(array: Any) -> NDArray[Any]:
    """Tensors of other libraries, which know how to become arrays: Ray's, those of `datasets`."""
    found = array.to_numpy(zero_copy_only=False)
    return np.stack(list(found)) if found.dtype == object else np.asarray(found)
