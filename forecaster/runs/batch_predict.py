"""Batch prediction: forecasts or classes of every series of a table of any size, written to a file or in parts.

Memory is bounded by blocks of 1,024 series; a table that needs more than half of the free memory is
first converted to a store. A call that was killed resumes when it is repeated. Shards, devices, engines
and restarts change no byte of the result.
"""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import psutil

from forecaster.config import config_from
from forecaster.errors import ConfigError, OutputError, check_count, is_count
from forecaster.files import check_writable, only_writer, write_text
from forecaster.fitting.processes import Child, Parent, ready
from forecaster.forecast.artifact import Artifact
from forecaster.forecast.model_folder import reading_with
from forecaster.forecast.parts import (
    SHARED,
    PartitionJob,
    Partitions,
    PartRecord,
    rows_of,
    terms,
    write_part,
)
from forecaster.forecast.plots import PANELS
from forecaster.forecast.result import Predicted
from forecaster.forecast.runner import Progress
from forecaster.forecast.saved_model import save_artifact
from forecaster.forecast.source import Source
from forecaster.forecast.task import BatchCounts, Task
from forecaster.forecast.what_if import WhatIf
from forecaster.forecast.writer import ROWS, check_sheet, check_suffix, folder_of, write_rows
from forecaster.model.hardware import cores, cuda_count, device
from forecaster.panel.convert import convert_table
from forecaster.panel.findings import Finding, check_paths
from forecaster.panel.frames import find_files, parquet_cells
from forecaster.panel.panel import Panel
from forecaster.panel.pivoted import check_storable
from forecaster.panel.schema import Schema
from forecaster.panel.store import is_store, write_store

Engine = Callable[[PartitionJob, list[int]], Iterator[tuple[int, PartRecord]]]
"""Makes the parts of blocks elsewhere, and yields their records as they are finished."""

_MAKE_PARTS = "forecaster.runs.batch_predict:make_parts"
_STORE, _STAMP, _MODEL = SHARED
_TEXT, _PACKED, _CELL = 4, 16, 40
"""Bytes of memory per byte of a text file, of a compressed one, and per cell of a columnar one."""
_ROW_PER_SERIES = 4
"""Factor of tables with one row per series: each cell becomes a row."""
_FREE_SHARE = 0.5
"""Of the free memory that a table may need."""


@dataclass(frozen=True)
class BatchResult:
    """What a batch prediction wrote."""

    path: Path
    """The file, or the folder of the parts."""
    whole: bool
    """Whether all parts are there."""
    made: int
    """Parts made by this call."""
    there: int
    """Parts that existed before."""
    n_blocks: int
    """Parts of the whole result."""
    report: str
    """One line: how many forecasts, from when, which series had none."""
    findings: tuple[Finding, ...]
    """Of the audit of the table, worst first."""
    first: Callable[[], Predicted]
    """Predicts the first few series again, for a plot."""


def predict_to(
    artifact: Artifact[Any],
    out: Path,
    source: Source,
    task_of: Callable[[Panel], Task],
    parts: bool,
    shard: str | tuple[int, int] | None,
    devices: int | None,
    restart: bool,
    engine: Engine | None,
    overwrite: bool,
    progress: Progress | None,
) -> BatchResult:
    """Writes forecasts or classes of every series of a table; see `Forecaster.predict_to` for the options.

    Args:
        artifact: the model.
        out: file for the forecasts.
        source: the table.
        task_of: returns what is predicted of a panel.
        parts, shard, devices, restart, engine, overwrite, progress: as the caller declared them.

    Raises:
        ConfigError: the model does not support the horizon or sample paths, or devices are missing.
        DataError: the table does not fit the model, or a known covariate is missing.
        OutputError: something cannot be written, or parts of another result are there.
    """
    check_suffix(out, ROWS)
    check_paths(*source.tables)
    folder = folder_of(out)
    # With a folder of parts this goes on with a call that was allowed to write there.
    check_writable(out, *source.tables, overwrite=overwrite or parts or folder.exists())
    number, of = _checked(shard)
    names, alone, partitions = _device_names(devices), of == 1, Partitions(folder)
    with ExitStack() as stack:

        @cache
        def claim() -> None:
            """Takes the folder of parts, which no other process may write meanwhile."""
            held = folder / f".{number}-of-{of}.lock"
            stack.enter_context(only_writer(out, held, "predict"))
            stack.enter_context(_nothing_left(folder, alone=alone))

        if folder.exists():
            partitions.check()
            claim()
        if restart:
            partitions.clear()
        whole, store = _opened(artifact, source, folder, claim, alone=alone)
        task = task_of(whole)
        panel, findings = task.audited(whole, artifact, source.only)
        if not parts:
            check_sheet(out, task.rows(panel))
        job = PartitionJob(str(folder.resolve()), task, panel.n_series, source)
        divided = parts or shard or engine or len(names) > 1
        kept: Predicted | None = None
        if reason := task.indivisible(panel):
            if divided:
                given = {"shard": shard, "parts": parts, "engine": engine, "devices": devices}
                flags = ", ".join(f"--{name}" for name, value in given.items() if value)
                raise ConfigError(f"{flags}: {reason}; leave it out")
            job = replace(job, block=max(1, panel.n_series))
        if job.n_blocks == 1 and not divided and not folder.exists():
            predicted = task.predict(artifact, names[0])(panel)
            kept = predicted if reason else None
            rows = rows_of(predicted)
            records, before = [PartRecord.of(predicted, rows.height)], 0
            if error := task.none_predicted(panel, _totals(records)):
                raise error
            write_rows(rows, out, panel.as_text)
        else:
            claim()
            blocks = range(number - 1, job.n_blocks, of)
            common = terms(artifact, panel, task, names[0])
            finished = partitions.begin(common, blocks)
            before, todo = len(finished), [block for block in blocks if block not in finished]
            made: Iterator[tuple[int, PartRecord]]
            if not todo or (engine is None and len(names) == 1):
                predict = task.predict(artifact, names[0])
                made = ((block, write_part(predict, panel, block, job)) for block in todo)
            else:
                shared = _shared(artifact, source, panel, store, folder, job)
                made = engine(shared, todo) if engine else _made_by_processes(shared, todo, names)
            total = sum(stop - start for start, stop in map(job.series_of, blocks))
            for block, record in made:
                finished[block] = record
                if progress is not None:
                    progress(sum(own.series for own in finished.values()), total)
            records = [finished[block] for block in blocks]
            if len(records) == job.n_blocks and shard is None:
                if error := task.none_predicted(panel, _totals(records)):
                    partitions.remove()
                    raise error
                if parts:
                    partitions.leave(common, records)
                else:
                    partitions.merge(out, job.n_blocks, panel.as_text)
    return BatchResult(
        path=out if alone and not parts else folder,
        whole=alone,
        made=len(records) - before,
        there=before,
        n_blocks=job.n_blocks,
        report=kept.report
        if isinstance(kept, WhatIf)
        else task.report(panel, _totals(records), findings),
        findings=tuple(findings),
        first=lambda: kept or task.predict(artifact)(panel.some(panel.numbers()[:PANELS])),
    )


def _device_names(count: int | None) -> list[str]:
    """Returns one device per process: GPUs where the machine has any, else CPUs."""
    check_count(count, "devices")
    count = count or 1
    if 0 < cuda_count() < count:
        raise ConfigError(f"devices {count}: this machine has {cuda_count()} GPUs")
    return [device(number) for number in range(count)]


def _made_by_processes(
    job: PartitionJob, todo: list[int], devices: list[str]
) -> Iterator[tuple[int, PartRecord]]:
    """Yields number and record of each block; device j of n makes blocks j, j + n, … of `todo`."""
    lanes = max(1, cores() // len(devices))
    left: dict[Child, int] = {}
    with ExitStack() as stack:
        for which, device in enumerate(devices[: len(todo)]):
            child = Child(_MAKE_PARTS, f"the process of device {which}")
            stack.callback(child.end)
            blocks = todo[which :: len(devices)]
            child.send((job, blocks, device, lanes))
            left[child] = len(blocks)
        while any(left.values()):
            for child in ready(child for child, blocks in left.items() if blocks):
                try:
                    result = child.receive()
                except EOFError:
                    raise OutputError(
                        f"{child.failure()}; finished parts are kept; rerun the command to continue"
                    ) from None
                yield result
                left[child] -= 1


def make_parts(parent: Parent) -> None:
    """Makes the parts of some blocks in a child process, and sends their records."""
    job, blocks, device, lanes = parent.receive()
    predict, panel = job.opened(device, lanes)
    for block in blocks:
        parent.send((block, write_part(predict, panel, block, job)))


def _opened(
    artifact: Artifact[Any], source: Source, folder: Path, claim: Callable[[], None], *, alone: bool
) -> tuple[Panel, str]:
    """Returns the panel of a table, and the store it lies in; "" where it is in memory.

    A table too large for memory is converted to a store in `folder`, unless shards would all do so;
    `claim` is called before.
    """
    if is_store(source.data):
        return source.panel(artifact), str(source.data)
    need, free = needed_memory(source, artifact.schema), free_memory()
    if need <= _FREE_SHARE * free:
        return source.panel(artifact), ""
    check_storable(artifact.schema, str(source.data))
    if not alone:
        raise ConfigError(
            f"{source.data}: needs some {need / 1e9:.1f} GB in memory, {free / 1e9:.1f} are free: "
            "convert it once with forecaster convert, and let every shard read the store"
        )
    claim()
    store = _converted(artifact, source, folder)
    return Source(store, roles=source.roles).panel(artifact), str(store)


def _shared(
    artifact: Artifact[Any], source: Source, panel: Panel, store: str, folder: Path, job: PartitionJob
) -> PartitionJob:
    """Returns the job with folders of model and panel that other processes can open."""
    save_artifact(artifact, folder / _MODEL)
    if not store:
        store = str(folder / _STORE)
        write_store(panel, Path(store), reading_with(artifact.plan.data, source.roles))
        source = replace(source, only=None)  # the panel is of the series wanted
    stored = replace(source, data=str(Path(store).resolve()), future=None, covariates=None)
    return replace(job, model=str((folder / _MODEL).resolve()), source=stored)


def needed_memory(source: Source, schema: Schema) -> float:
    """Returns the bytes that reading tables takes, by the size of their files; 0 for a frame."""
    factor = _ROW_PER_SERIES if schema.layout == "rows" else 1
    joined = sum(map(_file_memory, (*_files(source.future), *_files(source.covariates))))
    return factor * sum(map(_file_memory, _files(source.data))) + joined


def free_memory() -> float:
    """Returns the free bytes of the machine, or of the control group of this process."""
    free = float(psutil.virtual_memory().available)
    group = Path("/sys/fs/cgroup")
    with suppress(OSError, ValueError):  # another system, or no limit
        most, used = (
            float((group / name).read_text("ascii")) for name in ("memory.max", "memory.current")
        )
        free = min(free, most - used)
    return free


def _converted(artifact: Artifact[Any], source: Source, folder: Path) -> Path:
    """Returns the store of a table, converted now unless an interrupted call finished it."""
    store, stamp = folder / _STORE, folder / _STAMP
    renamed = artifact.read_schema.renamed(config_from(None, None, source.roles).data)
    reading = reading_with(artifact.plan.data, source.roles)
    own: dict[str, Any] = {"series": renamed.key_columns, "target": renamed.target_columns}
    own |= {"freq": None} if reading.resample else {}  # that of the schema is that of the periods
    reading = reading.model_copy(update=renamed.settings() | own)
    found = json.dumps([_stamps(source), reading.model_dump(mode="json")], sort_keys=True)
    if is_store(store) and stamp.is_file() and stamp.read_text(encoding="utf-8") == found:
        return store
    folder.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(store, ignore_errors=True)
    others: Any = {"covariates": source.covariates, "future": source.future}
    convert_table(source.data, store, reading, **others, decimals=artifact.schema.decimals)
    write_text(stamp, found)
    return store


def _files(table: object) -> list[Path]:
    """Returns the local files of a table; none for a frame or a URL."""
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
    """Returns name, size and modification time of every file that a table is read from."""
    names = [file for table in source.tables for file in _files(table)]
    return [(str(name.resolve()), name.stat().st_size, name.stat().st_mtime_ns) for name in names]


@contextmanager
def _nothing_left(folder: Path, *, alone: bool) -> Iterator[None]:
    """Removes the folder of parts after a failure, unless a part in it is finished."""
    try:
        yield
    except BaseException:
        if alone and not any(folder.glob("part-*.json")):
            with suppress(OutputError):  # another folder of that name
                Partitions(folder).remove()
        raise


def _checked(shard: str | tuple[int, int] | None) -> tuple[int, int]:
    if shard is None:
        return 1, 1
    parts: Any = shard
    if isinstance(shard, str):
        parts = tuple(int(part) if part.isdecimal() else 0 for part in shard.split("/"))
    if not (
        isinstance(parts, tuple) and [*map(is_count, parts)] == [True] * 2 and parts[0] <= parts[1]
    ):
        raise ConfigError(f"shard {shard!r}: expected K/N or (K, N) with K from 1 to N, as 2/8")
    return parts[0], parts[1]


def _totals(records: list[PartRecord]) -> BatchCounts:
    reasons = Counter[str]()
    for record in records:
        reasons[record.reason] += record.without_forecast
    lost = reasons.total(), max(reasons, key=reasons.__getitem__, default="")
    series = sum(record.series for record in records)
    rows = sum(record.rows for record in records)
    return BatchCounts(series, rows, lost)
