"""Parts of a result become one file: Parquet files in order in, one CSV or Parquet file out.

Promised: memory for a few parts only; the bytes of the result depend on the rows alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import polars as pl

_ROW_GROUP = 1 << 17
"""Rows that a reader has to hold; fixed, so that the same rows give the same bytes."""


def merge_parts(files: Sequence[Path], out: Path, suffix: str) -> None:
    """Writes the rows of Parquet files of the same columns, in order, to one file.

    Args:
        files: at least one.
        out: the file.
        suffix: ".csv" or ".parquet".

    Raises:
        OSError: it cannot be written.
    """
    if suffix == ".parquet":
        scan = pl.scan_parquet(list(files), hive_partitioning=False, glob=False)
        scan.sink_parquet(out, row_group_size=_ROW_GROUP, maintain_order=True)
        return
    with out.open("wb") as target:
        for number, file in enumerate(files):
            pl.read_parquet(file, hive_partitioning=False, glob=False).write_csv(
                target, include_header=number == 0
            )
