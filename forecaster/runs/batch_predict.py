"""Forecasts of whole tables, of any size, into files."""

from __future__ import annotations

import json
import os
import queue
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any

from forecaster.arguments import BATCH
from forecaster.config import DataConfig, config_from
from forecaster.errors import ConfigError, ForecasterError, OutputError
from forecaster.files import atomic_file
from forecaster.forecast.artifact import Artifact
from forecaster.forecast.forecast import Forecast, outcome
from forecaster.forecast.parts import (
    SHARED,
    PartitionJob,
    Partitions,
    PartRecord,
    counts_of,
    folder_of,
    forecast_block,
    open_for,
    rows_of,
    terms,
    write_part,
)
from forecaster.forecast.predictor import Predictor, Progress, check_known, resolve_window
from forecaster.forecast.writer import check_format, write_rows
from forecaster.model.threads import cores
from forecaster.panel.audit import check_panel
from forecaster.panel.convert import convert_table
from forecaster.panel.findings import Finding, refuse_errors
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


_WORKER = "forecaster.runs.batch_worker"


def devices_of(count: int | None) -> list[str]:
    """Returns the names of devices, one per process: GPUs where the machine has any, else CPUs.

    Args:
        count: how many; None = the CPU, in this process.

    Raises:
        ConfigError: there are fewer GPUs.
    """
    import torch

    if count is None:
        return ["cpu"]
    if count < 1:
        raise ConfigError(f"devices {count}: expected 1 or more")
    gpus = torch.cuda.device_count()
    if not gpus:
        return ["cpu"] * count
    if count > gpus:
        raise ConfigError(f"devices {count}: this machine has {gpus} GPUs")
    return [f"cuda:{number}" for number in range(count)]


def made_by_devices(
    plan: PartitionJob, todo: list[int], devices: list[str]
) -> Iterator[tuple[int, PartRecord]]:
    """Yields the number and record of every block as its part appears.

    Args:
        plan: with a model and a store that other processes can open.
        todo: numbers of the blocks to make.
        devices: of the processes.

    Raises:
        ForecasterError: a process ended before its work.
    """
    told: queue.Queue[tuple[int, str]] = queue.Queue()
    with ExitStack() as stack:
        workers = []
        for place, device in enumerate(devices):
            mine = todo[place :: len(devices)]
            if mine:
                errors = stack.enter_context(tempfile.TemporaryFile("w+"))
                worker = _started(plan, mine, device, len(devices), errors)
                stack.callback(_ended, worker)
                workers.append((worker, errors))
                number = len(workers) - 1
                threading.Thread(target=_listen, args=(worker, number, told), daemon=True).start()
        left = len(todo)
        while left:
            which, line = told.get()
            if not line:
                raise _fault(*workers[which], which)
            number, record = json.loads(line)
            yield number, PartRecord(**record)
            left -= 1


def _started(
    plan: PartitionJob, mine: list[int], device: str, shares: int, errors: IO[str]
) -> subprocess.Popen[str]:
    worker = subprocess.Popen(
        [sys.executable, "-m", _WORKER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=errors,
        text=True,
    )
    assert worker.stdin is not None
    order = {
        "plan": plan.to_json(),
        "blocks": mine,
        "device": device,
        "lanes": max(1, cores() // shares),
    }
    with suppress(BrokenPipeError):  # it died at once: whoever listens to it says so
        worker.stdin.write(json.dumps(order) + "\n")
        worker.stdin.flush()  # and left open: its end tells the worker that this process is gone
    return worker


def _listen(worker: subprocess.Popen[str], number: int, told: queue.Queue[tuple[int, str]]) -> None:
    assert worker.stdout is not None
    for line in worker.stdout:
        told.put((number, line))
    told.put((number, ""))


def _fault(worker: subprocess.Popen[str], errors: IO[str], which: int) -> ForecasterError:
    code = worker.wait()
    errors.seek(0)
    lines = errors.read().strip().splitlines()
    reason = lines[-1] if lines else f"exit status {code}"
    return OutputError(
        f"device {which}: its process ended ({reason}); finished parts stay: the same command goes on"
    )


def _ended(worker: subprocess.Popen[str]) -> None:
    worker.kill()
    worker.wait()
    for pipe in (worker.stdin, worker.stdout):
        if pipe is not None:
            with suppress(BrokenPipeError):  # of what a dead worker never read
                pipe.close()


_SHARING = ("parts", "shard", "devices", "restart", "engine")
Engine = Callable[[PartitionJob, list[int]], Iterator[tuple[int, PartRecord]]]
"""Makes the parts of blocks wherever it likes, and yields their records as they are there."""


@dataclass(frozen=True)
class ForecastRequest:
    """What is asked of every series."""

    cutoff: str = "own"
    """"own", "last" or a date."""
    horizon: int | None = None
    """Leads; None = as trained."""
    num_samples: int | None = None
    """Sample paths to write instead of quantiles."""
    seed: int = 0
    """Of the sample paths."""


@dataclass(frozen=True)
class Delivery:
    """Where the rows go, and who makes them."""

    out: Path
    """.csv or .parquet file."""
    parts: bool = False
    """Whether they stay in parts, beside `out`."""
    shard: tuple[int, int] | None = None
    """(k, n), k from 1: make only the parts whose number leaves k - 1 when divided by n."""
    devices: int | None = None
    """Processes, each with its own GPU or its share of the cores; None = this one, on the CPU."""
    restart: bool = False
    """Whether to begin anew where parts are there already."""
    engine: Engine | None = None
    """Who makes the parts in the place of this machine."""


@dataclass(frozen=True)
class Delivered:
    """What a batch forecast came to."""

    path: Path
    """The file, or the folder of the parts."""
    whole: bool
    """Whether all parts are there."""
    made: int
    """Partitions that were made now."""
    there: int
    """Partitions that were there already."""
    n_blocks: int
    """Partitions of the whole result."""
    report: str
    """One line: how many forecasts, from when, which series had none."""
    findings: tuple[Finding, ...]
    """What the audit of the table found, worst first."""
    first: Callable[[], Forecast]
    """Forecasts the first few series again, for a picture."""


def delivered(artifact: Artifact, out: Path, data: object, options: Mapping[str, Any]) -> Delivered:
    """Writes the forecast of every series of a table, as Python's face is told to.

    Args:
        artifact: the model.
        out: .csv or .parquet file.
        data: the table.
        options: fields of `BatchOptions`.

    Raises:
        ForecasterError: see `run_predict`.
    """
    sharing = {name: options[name] for name in _SHARING if name in options}
    roles = {name: value for name, value in options.items() if name not in BATCH}
    source = Source(data, options.get("future"), options.get("covariates"), roles)
    progress = options.get("progress") or (lambda done, total: None)
    asked = ForecastRequest(
        options.get("cutoff", "own"),
        options.get("horizon"),
        options.get("samples"),
        options.get("seed", 0),
    )
    return run_predict(artifact, source, asked, Delivery(out, **sharing), progress)


def run_predict(
    artifact: Artifact,
    source: Source,
    asked: ForecastRequest,
    delivery: Delivery,
    progress: Progress,
) -> Delivered:
    """Writes the forecast of every series of a table.

    Args:
        artifact: the model.
        source: the table.
        asked: of every series.
        delivery: where the rows go.
        progress: told how far the work is.

    Raises:
        ConfigError: the model cannot reach that far, has no paths, or there are no such devices.
        DataError: the table does not fit the model, or a known covariate is missing.
        OutputError: something cannot be written, or parts of another result are there.
    """
    check_format(delivery.out)
    shard, of = _checked(delivery.shard)
    devices = devices_of(delivery.devices)
    folder = folder_of(delivery.out)
    if delivery.restart:
        Partitions(folder, 0).remove()
    with _nothing_left(folder, alone=of == 1):
        panel, store = opened(artifact, source, folder, alone=of == 1)
        task = resolve_window(
            artifact, panel, asked.cutoff, asked.horizon, asked.num_samples, asked.seed
        )
        found = check_panel(panel)
        refuse_errors(found)
        check_known(panel, artifact, task)
        plan = PartitionJob(str(folder.resolve()), task, panel.n_series, roles=dict(source.roles))
        work = _Work(artifact, source, panel, store, plan, devices, delivery)
        mine = range(shard - 1, plan.n_blocks, of)
        records, there = work.done_at_once() if work.is_small else work.done_in_parts(mine, progress)
    return Delivered(
        path=delivery.out if of == 1 and not delivery.parts else folder,
        whole=of == 1,
        made=len(records) - there,
        there=there,
        n_blocks=plan.n_blocks,
        report=_report(panel, plan, records, found),
        findings=tuple(found),
        first=lambda: Predictor(artifact).forecast(panel.between(0, min(6, panel.n_series)), task),
    )


@dataclass(frozen=True)
class _Work:
    """A batch forecast whose table is open."""

    artifact: Artifact
    source: Source
    panel: Panel
    store: str
    plan: PartitionJob
    devices: list[str]
    delivery: Delivery

    @property
    def is_small(self) -> bool:
        """Whether there is but one part, and nobody who would share in it."""
        asked = self.delivery
        shared_out = asked.parts or asked.shard or asked.engine or len(self.devices) > 1
        return self.plan.n_blocks == 1 and not shared_out and not Path(self.plan.parts).exists()

    def done_at_once(self) -> tuple[list[PartRecord], int]:
        """Writes the file of a table of one block."""
        forecast = forecast_block(Predictor(self.artifact, self.devices[0]), self.panel, 0, self.plan)
        rows = rows_of(forecast)
        write_rows(rows, self.delivery.out)
        return [PartRecord("", *counts_of(forecast), rows.height, "")], 0

    def done_in_parts(self, mine: range, progress: Progress) -> tuple[list[PartRecord], int]:
        """Makes the parts that are not there, and puts all together if all are mine.

        Returns:
            The records of my parts, and how many of them were there.
        """
        parts = Partitions(Path(self.plan.parts), self.plan.n_blocks)
        agreed = terms(self.artifact, self.panel, self.plan.task, self.devices[0])
        records = parts.begin(agreed, mine)
        there = len(records)
        sizes = [stop - start for start, stop in map(self.plan.series_of, mine)]
        for number, record in self._made([number for number in mine if number not in records]):
            records[number] = record
            progress(sum(own.series for own in records.values()), sum(sizes))
        in_order = [records[number] for number in mine]
        if len(in_order) == self.plan.n_blocks and self.delivery.shard is None:
            if self.delivery.parts:
                parts.leave(agreed, in_order)
            else:
                parts.merge(self.delivery.out)
        return in_order, there

    def _made(self, todo: list[int]) -> Iterator[tuple[int, PartRecord]]:
        engine, devices = self.delivery.engine, self.devices
        if not todo or (engine is None and len(devices) == 1):
            predictor = Predictor(self.artifact, devices[0])
            for number in todo:
                yield number, write_part(predictor, self.panel, number, self.plan)
            return
        folder = Path(self.plan.parts)
        model, store = shared(self.artifact, self.source, self.panel, self.store, folder)
        plan = replace(self.plan, model=model, store=store)
        yield from engine(plan, todo) if engine else made_by_devices(plan, todo, devices)


@contextmanager
def _nothing_left(folder: Path, *, alone: bool) -> Iterator[None]:
    """Takes the folder of parts away after a failure, unless a part in it is finished."""
    try:
        yield
    except BaseException:
        if alone and not any(folder.glob("part-*.json")):
            with suppress(OutputError):  # it is somebody else's
                Partitions(folder, 0).remove()
        raise


def _checked(shard: tuple[int, int] | None) -> tuple[int, int]:
    number, of = shard or (1, 1)
    if not 1 <= number <= of:
        raise ConfigError(f"shard {number}/{of}: expected K/N with K from 1 to N, as 2/8")
    return number, of


def _report(
    panel: Panel, plan: PartitionJob, records: list[PartRecord], found: Iterable[Finding]
) -> str:
    lost = [record for record in records if record.without_forecast]
    n_series = sum(record.series for record in records)
    return outcome(
        panel,
        plan.task.cutoffs(panel),
        n_series=n_series,
        rows=n_series * plan.task.horizon * panel.n_channels,
        lost=(sum(record.without_forecast for record in lost), lost[0].reason if lost else ""),
        findings=found,
    )
