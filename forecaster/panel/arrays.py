"""Arrays with an entry per row of a panel, handled in blocks: memory stays bounded, mapped or not.

What is derived from a mapped array is mapped too, from an unnamed file beside it, so that no panel
needs more memory than a few blocks.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forecaster.errors import OutputError

Array = NDArray[Any]
Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Codes = NDArray[np.int32]
"""Of categories."""

BLOCK_CELLS = 1 << 16
"""Cells handled at a time: an array of them stays in the processor's cache, and memory that was just
freed takes the next. Blocks sixteen times as large are two to three times as slow."""
PART_CELLS = 1 << 20
"""Cells of neighbouring series handled at a time, where much is done with them."""


def blocks(n_rows: int, columns: int = 1) -> Iterator[slice]:
    """Yields the rows of an array in order, `BLOCK_CELLS` cells at a time."""
    step = max(1, BLOCK_CELLS // max(1, columns))
    for start in range(0, n_rows, step):
        yield slice(start, min(start + step, n_rows))


def owners(indptr: Ints, rows: slice | None = None) -> Ints:
    """Returns the series of each row, or of those of a block: int64 [row]."""
    if rows is None:
        return np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
    first = int(np.searchsorted(indptr, rows.start, side="right")) - 1
    last = int(np.searchsorted(indptr, rows.stop, side="left"))
    begins = np.clip(indptr[first : last + 1], rows.start, rows.stop)
    return np.repeat(np.arange(first, last), begins[1:] - begins[:-1])


def rows_before(indptr: Ints, end: Ints, columns: int) -> Iterator[Ints]:
    """Yields the rows of all series before an end of their own, block by block."""
    for rows in blocks(int(indptr[-1]), columns):
        yield rows.start + np.flatnonzero(np.arange(rows.start, rows.stop) < end[owners(indptr, rows)])


def empty_beside(array: Array, shape: tuple[int, ...], dtype: Any) -> Array:
    """Returns a new array in RAM, or beside a mapped array in an unnamed file, as `empty_mapped`."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    if not isinstance(array, np.memmap) or size == 0:
        return np.empty(shape, dtype)
    home: Path | None = Path(str(array.filename)).parent
    return empty_mapped(shape, dtype, home if os.access(str(home), os.W_OK) else None)


def empty_mapped(shape: tuple[int, ...], dtype: Any, home: Path | None = None) -> Array:
    """Returns a new array of at least one cell in an unnamed file.

    Raises:
        OutputError: there is no room for the file.
    """
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    try:
        with tempfile.NamedTemporaryFile(dir=home, prefix=".panel-") as file:
            # Room is taken now: a mapped file that outgrows the disk kills the process.
            os.posix_fallocate(file.fileno(), 0, size)
            return np.memmap(file.name, dtype=dtype, mode="r+", shape=shape)
    except OSError as error:
        raise OutputError(
            f"{home or tempfile.gettempdir()}: a copy of {size / 1e9:.1f} GB cannot be written "
            f"({error.strerror}); make room"
        ) from error


def add_to(digest: Any, array: Array) -> None:
    """Adds an array to a hash, block by block; every NaN counts as the same."""
    for rows in blocks(len(array), array[:1].size):
        block = np.ascontiguousarray(array[rows])
        if block.dtype == np.float64:
            # Many bit patterns are NaN.
            block = np.where(np.isnan(block), np.nan, block)
        digest.update(block.data)


def text_hashes(texts: Sequence[str]) -> Ints:
    """Returns an int64 of each text, the same on every machine."""
    digests = [blake2b(text.encode(), digest_size=8).digest() for text in texts]
    return np.frombuffer(b"".join(digests), dtype="<i8").astype(np.int64)


def resized(begin: Ints, length: Ints, indptr: Ints, *arrays: tuple[Array, Any]) -> list[Array]:
    """Returns arrays in which each series has other rows: some of its own, then empty ones.

    Args:
        begin: [series] first row kept.
        length: [series] rows kept.
        indptr: [series + 1] first row of each series in the result; at least `length` rows each.
        arrays: [row, column] or [row] each, and what its empty rows hold.
    """
    n_rows = int(indptr[-1])
    results = [empty_beside(array, (n_rows, *array.shape[1:]), array.dtype) for array, _ in arrays]
    shift, end = begin - indptr[:-1], indptr[:-1] + length
    for rows in blocks(n_rows, max(array[:1].size for array, _ in arrays)):
        series = owners(indptr, rows)
        own = np.flatnonzero(np.arange(rows.start, rows.stop) < end[series])
        source = own + rows.start + shift[series[own]]
        for result, (array, empty) in zip(results, arrays, strict=True):
            block = result[rows]
            block[:] = empty
            block[own] = array.take(source, axis=0)
    return results
