"""The rows of a large table, dealt into parts of whole series.

What comes in is a scan and the roles of its columns; what goes out are parts that fit in memory, in
the order of the series' keys, the rows of each in the table's order. Every part is a file beside the
result (an external sort by series); a table whose channels become series is parted by columns.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import polars as pl

from forecaster.panel.calendar import Times
from forecaster.panel.scan import Scan
from forecaster.panel.schema import Names, Schema
from forecaster.panel.table import Table

_PART, _ROW = "\0part", "\0row"
_BATCH = 100_000
"""Rows read at a time."""
_MOST_FILES = 500
"""Parts written at a time; systems allow a thousand open files."""
_CHUNKS = 64
"""Places of a table that a sample comes from."""


@dataclass(frozen=True)
class Dealt:
    """The parts of a table."""

    scan: Scan
    columns: Names
    """Those with a role."""
    files: tuple[tuple[Path, tuple[int, ...]], ...]
    """One per part, with the bytes of each frame in it; none where columns are parted, or nothing."""
    melted: tuple[Names, ...]
    """The channels of each part, where channels become series."""

    @property
    def _kinds(self) -> Any:
        kinds = self.scan.frame.collect_schema()
        return {_ROW: pl.UInt32} | {name: kinds[name] for name in self.columns}

    def __len__(self) -> int:
        return len(self.files) or len(self.melted) or 1

    def table(self, number: int) -> Table:
        """Returns the rows of a part, with their numbers in the whole table."""
        if not self.files:
            channels = {name for group in self.melted for name in group}
            own = set(self.melted[number]) if self.melted else set()
            columns = [name for name in self.columns if name not in channels or name in own]
            frame = self.scan.frame.select(columns).collect(engine="streaming")
            return Table(frame, self.scan.name, "file")
        frame = _piled(*self.files[number]).cast(self._kinds)
        return Table(frame.drop(_ROW), self.scan.name, "file", numbers=frame[_ROW])

    def roles(self, schema: Schema, number: int) -> Schema:
        """Returns the schema of a part."""
        return replace(schema, melted=self.melted[number]) if self.melted else schema


def sample_of(scan: Scan, cells: int) -> Table:
    """Returns rows from places spread over a table, in their order."""
    width = len(scan.frame.collect_schema())
    every = -(-scan.n_rows // _CHUNKS)
    rows = max(1, cells // width // _CHUNKS)
    here = (pl.col(_ROW) % every < rows).arg_true()
    batches = scan.frame.with_row_index(_ROW).collect_batches(chunk_size=_BATCH, maintain_order=True)
    # Gathered, not filtered: a filter that keeps all would keep the reader's memory too.
    frames = [batch[batch.select(here).to_series()].drop(_ROW) for batch in batches]
    return Table(pl.concat(frames, rechunk=True), scan.name, "file")


def deal(
    scan: Scan, schema: Schema, folder: Path, cells: int, progress: Callable[[int, int], None]
) -> Dealt:
    """Writes the rows of a table to files, one per part.

    Args:
        scan: the table.
        schema: roles of its columns.
        folder: for the files.
        cells: of a part; a longer series is a part of its own.
        progress: called with (rows dealt, rows in all).

    Raises:
        OSError: the disk is full.
    """
    kinds = scan.frame.collect_schema()
    targets = schema.melted or schema.target
    keys = () if schema.melted else schema.series
    roles = (schema.time, *keys, *targets, *schema.past, *schema.known, *schema.static)
    columns = tuple(name for name in kinds if name in roles)
    if not keys:
        # Series are numbered in the order of their keys.
        size = max(1, cells // scan.n_rows - (len(columns) - len(targets)))
        channels = sorted(schema.melted)
        groups = [tuple(channels[at : at + size]) for at in range(0, len(channels), size)]
        return Dealt(scan, columns, (), tuple(groups))
    # Categories as text: their codes differ from batch to batch, and series are sorted by text.
    plain = scan.frame.select(columns).with_columns(pl.col(pl.Categorical, pl.Enum).cast(pl.String))
    counts = plain.group_by(keys).agg(pl.len().cast(pl.Int64)).collect(engine="streaming").sort(keys)
    rows = max(cells // len(columns), -(-scan.n_rows // _MOST_FILES), 1)
    before = counts["len"].cum_sum() - counts["len"]
    index = counts.select(keys).with_columns(((before // rows).rank("dense") - 1).alias(_PART))
    files = tuple(folder / f"part-{number}" for number in range(index[_PART].n_unique()))
    done = 0
    with ExitStack() as stack:
        piles = [stack.enter_context(_Pile(file)) for file in files]
        batches = plain.with_row_index(_ROW, 1).collect_batches(chunk_size=_BATCH, maintain_order=True)
        for batch in batches:
            placed = batch.join(index, on=keys, how="left", nulls_equal=True, maintain_order="left")
            shares = placed.partition_by(_PART, as_dict=True, include_key=False, maintain_order=True)
            for (number,), share in shares.items():
                piles[number].add(share)
            done += batch.height
            progress(done, scan.n_rows)
    parts = [(file, tuple(pile.sizes)) for file, pile in zip(files, piles, strict=True)]
    return Dealt(scan, columns, tuple(parts), ())


class Layouts(Sequence[tuple[Times, Times]]):
    """Times of all parts and the first row of each series, read when they are asked for."""

    def __init__(self, files: Sequence[Path]):
        self._files = files

    def __len__(self) -> int:
        return len(self._files)

    def __getitem__(self, number: int) -> tuple[Times, Times]:  # type: ignore[override]
        with np.load(self._files[number]) as arrays:
            return arrays["time"], arrays["indptr"]


class _Pile:
    """A file that frames of the same columns are added to."""

    def __init__(self, path: Path):
        self._file = path.open("wb")
        self.sizes: list[int] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()

    def add(self, frame: pl.DataFrame) -> None:
        """Adds rows."""
        # Not by Arrow's own writer: the library's memory pool alone is larger than a part.
        buffer = io.BytesIO()
        frame.write_ipc_stream(buffer)
        self._file.write(buffer.getbuffer())
        self.sizes.append(buffer.tell())


def _piled(path: Path, sizes: Sequence[int]) -> pl.DataFrame:
    with path.open("rb") as file:
        frames = [pl.read_ipc_stream(io.BytesIO(file.read(size))) for size in sizes]
    return pl.concat(frames, rechunk=True)
