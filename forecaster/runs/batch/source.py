"""A table to forecast → a panel, in memory where it fits comfortably, else mapped from a store.

What comes in: whatever `predict` takes. What goes out: its panel, and the store that other processes
can open. A file that would need more than half of the memory that is free is converted first, to a
store beside the result that goes with the parts; until then a second start finds it again.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from forecaster.atomic import atomic_file
from forecaster.config import DataConfig, config_from
from forecaster.errors import ConfigError
from forecaster.forecast.artifact import Artifact
from forecaster.forecast.batch.parts import SHARED
from forecaster.forecast.batch.plan import open_for
from forecaster.panel.convert import convert_table
from forecaster.panel.frames import find_files, parquet_cells
from forecaster.panel.panel import Panel
from forecaster.panel.schema import Schema
from forecaster.panel.store import is_store, write_store

_STORE, _STAMP, _MODEL = SHARED
_TEXT, _PACKED, _CELL = 4, 16, 40
"""Bytes of memory per byte of a text file, of a packed one, and per cell of a columnar one."""
_UNROLLED = 4
"""How many times as many where rows are whole series: each cell becomes a row."""
_SHARE = 0.5
"""Of the free memory that a table may need."""
_TOLD = ("time", "series", "target", "known", "past", "static", "categorical", "freq", "layout")
"""Fields of the schema that a conversion has to be told."""


@dataclass(frozen=True)
class Source:
    """A table to forecast, as the caller names it."""

    data: object
    """Path, glob, URL, frame or store."""
    future: object | None = None
    """Covariates known in advance."""
    covariates: object | None = None
    """A second table."""
    roles: Mapping[str, Any] = field(default_factory=dict)
    """Columns that are called otherwise, and how the table is read."""

    def panel(self, artifact: Artifact) -> Panel:
        """Returns the panel, in memory unless the table is a store."""
        return open_for(artifact, self.data, self.future, self.covariates, self.roles)

    def reading(self, artifact: Artifact) -> DataConfig:
        """Returns how the table is read: as the model's was, unless something else was said."""
        told = config_from(None, None, self.roles).data
        return artifact.config.replaced(data=told.model_dump(include=set(self.roles))).data


def opened(artifact: Artifact, source: Source, folder: Path, *, alone: bool) -> tuple[Panel, str]:
    """Returns the panel of a table, and the store it lies in; none where it is in memory.

    Args:
        artifact: the model.
        source: the table.
        folder: for a store of a table that is too large for the memory.
        alone: whether no other process works for the same result.

    Raises:
        ConfigError: the table would have to be converted, and others would do so too.
        DataError: it cannot be understood.
    """
    if is_store(source.data):
        return source.panel(artifact), str(source.data)
    need, free = needed_memory(source, artifact.schema), free_memory()
    if need <= _SHARE * free:
        return source.panel(artifact), ""
    if not alone:
        raise ConfigError(
            f"{source.data}: needs some {need / 1e9:.1f} GB in memory, {free / 1e9:.1f} are free: "
            "convert it once with forecaster convert, and let every shard read the store"
        )
    store = _converted(artifact, source, folder)
    return open_for(artifact, store, None, None, source.roles), str(store)


def shared(
    artifact: Artifact, source: Source, panel: Panel, store: str, folder: Path
) -> tuple[str, str]:
    """Returns the folders of model and panel for other processes, written if need be.

    Args:
        artifact: the model.
        source: the table.
        panel: of the table.
        store: that it lies in, if any.
        folder: for what has to be written.
    """
    artifact.save(folder / _MODEL)
    if not store:
        store = str(folder / _STORE)
        write_store(panel, Path(store), source.reading(artifact))
    return str((folder / _MODEL).resolve()), str(Path(store).resolve())


def needed_memory(source: Source, schema: Schema) -> float:
    """Returns the bytes that reading tables takes, by the size of their files; 0 for a frame.

    Args:
        source: the table, and what is joined to it.
        schema: of the model.
    """
    more = _UNROLLED if schema.layout == "rows" else 1
    joined = sum(map(_file_memory, (*_files(source.future), *_files(source.covariates))))
    return more * sum(map(_file_memory, _files(source.data))) + joined


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


def _converted(artifact: Artifact, source: Source, folder: Path) -> Path:
    """Returns the store of a table, made now unless an earlier start left it whole."""
    store, stamp = folder / _STORE, folder / _STAMP
    reading = _as_declared(
        artifact.schema.renamed(config_from(None, None, source.roles).data), source.reading(artifact)
    )
    found = json.dumps([_stamps(source), reading.model_dump(mode="json")], sort_keys=True)
    if is_store(store) and stamp.is_file() and stamp.read_text(encoding="utf-8") == found:
        return store
    folder.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(store, ignore_errors=True)
    convert_table(source.data, store, reading, covariates=source.covariates, future=source.future)
    with atomic_file(stamp) as partial:
        partial.write_text(found, encoding="utf-8")
    return store


def _as_declared(schema: Schema, reading: DataConfig) -> DataConfig:
    """Returns how to read a table in which a model's columns are not looked for, but known."""
    told = {name: getattr(schema, name) for name in _TOLD} | {"holidays": schema.holidays}
    return reading.model_copy(update={**told, "time": schema.time or "row"})


def _files(table: object) -> list[Path]:
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


def _stamps(source: Source) -> list[tuple[str, int, int]]:
    """Returns name, size and time of change of every file that a table is read from."""
    tables = (source.data, source.future, source.covariates)
    names = [file for table in tables for file in _files(table)]
    return [(str(name.resolve()), name.stat().st_size, name.stat().st_mtime_ns) for name in names]
