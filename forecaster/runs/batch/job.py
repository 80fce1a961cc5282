"""A batch forecast from start to finish: opened, settled, shared out, made, put together.

What comes in: a model, a table, what is asked of every series, and where the rows go. What goes out:
one file, or its parts. Promised: memory is bounded by blocks of series; a start that was killed is
continued by the same call; shards, devices and restarts change no byte of the result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from forecaster.errors import ConfigError, OutputError
from forecaster.forecast.ahead import check_known, settle
from forecaster.forecast.artifact import Artifact
from forecaster.forecast.batch.parts import (
    Parts,
    Record,
    counts_of,
    forecast_block,
    rows_of,
    write_part,
)
from forecaster.forecast.batch.plan import Plan, folder_of, terms
from forecaster.forecast.forecast import Forecast, outcome
from forecaster.forecast.paths import NO_PATHS, Draws
from forecaster.forecast.predictor import Predictor, Progress
from forecaster.forecast.writer import check_format, write_rows
from forecaster.panel.audit import check_panel
from forecaster.panel.findings import Finding, refuse_errors
from forecaster.panel.panel import Panel
from forecaster.runs.batch.devices import devices_of, made_by_devices
from forecaster.runs.batch.source import Source, opened, shared

_SHARING = ("parts", "shard", "devices", "restart", "engine")
Engine = Callable[[Plan, list[int]], Iterator[tuple[int, Record]]]
"""Makes the parts of blocks wherever it likes, and yields their records as they are there."""


@dataclass(frozen=True)
class Asked:
    """What is asked of every series."""

    cutoff: str = "own"
    """"own", "last" or a date."""
    horizon: int | None = None
    """Leads; None = as trained."""
    draws: Draws = NO_PATHS
    """Paths to write instead of quantiles."""


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
    """Parts that were made now."""
    there: int
    """Parts that were there already."""
    n_blocks: int
    """Parts of the whole result."""
    report: str
    """One line: how many forecasts, from when, which series had none."""
    findings: tuple[Finding, ...]
    """What the audit of the table found, worst first."""
    first: Callable[[], Forecast]
    """Forecasts the first few series again, for a picture."""


def delivered(
    artifact: Artifact, out: Path, data: object, options: Mapping[str, Any], roles: Mapping[str, Any]
) -> Delivered:
    """Writes the forecast of every series of a table, as Python's face is told to.

    Args:
        artifact: the model.
        out: .csv or .parquet file.
        data: the table.
        options: those of `Forecaster.predict_to`.
        roles: fields of `DataConfig`.

    Raises:
        ForecasterError: see `run_predict`.
    """
    sharing = {name: options[name] for name in _SHARING if name in options}
    source = Source(data, options.get("future"), options.get("covariates"), roles)
    draws = Draws(options.get("samples"), options.get("seed", 0))
    progress = options.get("progress") or (lambda done, total: None)
    asked = Asked(options.get("cutoff", "own"), options.get("horizon"), draws)
    return run_predict(artifact, source, asked, Delivery(out, **sharing), progress)


def run_predict(
    artifact: Artifact,
    source: Source,
    asked: Asked,
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
        Parts(folder, 0).remove()
    with _nothing_left(folder, alone=of == 1):
        panel, store = opened(artifact, source, folder, alone=of == 1)
        task = settle(artifact, panel, asked.cutoff, asked.horizon, asked.draws)
        found = check_panel(panel)
        refuse_errors(found)
        check_known(panel, artifact, task)
        plan = Plan(str(folder.resolve()), task, panel.n_series, roles=dict(source.roles))
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
    plan: Plan
    devices: list[str]
    delivery: Delivery

    @property
    def is_small(self) -> bool:
        """Whether there is but one part, and nobody who would share in it."""
        asked = self.delivery
        shared_out = asked.parts or asked.shard or asked.engine or len(self.devices) > 1
        return self.plan.n_blocks == 1 and not shared_out and not Path(self.plan.parts).exists()

    def done_at_once(self) -> tuple[list[Record], int]:
        """Writes the file of a table of one block."""
        forecast = forecast_block(Predictor(self.artifact, self.devices[0]), self.panel, 0, self.plan)
        rows = rows_of(forecast)
        write_rows(rows, self.delivery.out)
        return [Record("", *counts_of(forecast), rows.height, "")], 0

    def done_in_parts(self, mine: range, progress: Progress) -> tuple[list[Record], int]:
        """Makes the parts that are not there, and puts all together if all are mine.

        Returns:
            The records of my parts, and how many of them were there.
        """
        parts = Parts(Path(self.plan.parts), self.plan.n_blocks)
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

    def _made(self, todo: list[int]) -> Iterator[tuple[int, Record]]:
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
                Parts(folder, 0).remove()
        raise


def _checked(shard: tuple[int, int] | None) -> tuple[int, int]:
    number, of = shard or (1, 1)
    if not 1 <= number <= of:
        raise ConfigError(f"shard {number}/{of}: expected K/N with K from 1 to N, as 2/8")
    return number, of


def _report(panel: Panel, plan: Plan, records: list[Record], found: Iterable[Finding]) -> str:
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
