"""How much memory a table takes when it is read, and how much there is.

What comes in: a table as the caller names it. What goes out: bytes, by the size of its files.
"""

from __future__ import annotations

import os
from pathlib import Path

from forecaster.panel.reading.files import find_files, parquet_cells
from forecaster.panel.stores.store import is_store

SHARE = 0.5
"""Of the free memory that a table may need."""
_TEXT, _PACKED, _CELL = 4, 16, 40
"""Bytes of memory per byte of a text file, of a packed one, and per cell of a columnar one."""


def table_memory(table: object) -> float:
    """Returns the bytes that reading a table takes; 0 for a frame, a store or an address."""
    return sum(map(_file_memory, files_of(table)))


def free_memory() -> float:
    """Returns the bytes that this process may still take: of the machine, or of its control group."""
    pages = {name: os.sysconf(name) for name in ("SC_PAGE_SIZE", "SC_PHYS_PAGES", "SC_AVPHYS_PAGES")}
    free = float(pages["SC_PAGE_SIZE"] * pages["SC_AVPHYS_PAGES"])
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        free = 1024 * next(float(line.split()[1]) for line in lines if line.startswith("MemAvailable"))
        group = Path("/sys/fs/cgroup")
        most = (group / "memory.max").read_text(encoding="ascii").strip()
        if most != "max":
            free = min(
                free, float(most) - float((group / "memory.current").read_text(encoding="ascii"))
            )
    except (OSError, StopIteration):  # another system, or no limit
        pass
    return free


def files_of(table: object) -> list[Path]:
    """Returns the files of a table; none of one that is a frame or comes from afar."""
    if not isinstance(table, str | Path) or "://" in str(table) or is_store(table):
        return []
    return [Path(file.name) for file in find_files(str(table))[0]]


def _file_memory(file: Path) -> float:
    cells = parquet_cells(file)
    if cells is not None:
        return _CELL * cells
    text = file.name.lower().endswith((".csv", ".tsv", ".tab", ".txt"))
    return file.stat().st_size * (_TEXT if text else _PACKED)
