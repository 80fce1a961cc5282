"""A batch forecast from start to finish: opened, settled, shared out, made, put together.

What comes in: a model, a table, what is asked of every series, and where the rows go. What goes out:
one file, or its parts. Promised: memory is bounded by blocks of series; a start that was killed is
continued by the same call; shards, devices and restarts change no byte of the result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from forecaster.arguments import BATCH
from forecaster.errors import ConfigError
from forecaster.forecast.ahead import check_known, settle
from forecaster.forecast.artifact import Artifact
from forecaster.forecast.batch.parts import Parts, Record, write_part
from forecaster.forecast.batch.plan import Plan, folder_of, terms
from forecaster.forecast.forecast import Forecast, outcome
from forecaster.forecast.paths import NO_PATHS, Draws
from forecaster.forecast.predictor import Predictor, Progress
from forecaster.forecast.writer import check_format
from forecaster.panel.audit import check_panel
from forecaster.panel.finding import Finding, refuse_errors
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
    panel, store = opened(artifact, source, folder, alone=of == 1)
    task = settle(artifact, panel, asked.cutoff, asked.horizon, asked.draws)
    found = check_panel(panel)
    refuse_errors(found)
    check_known(panel, artifact, task)
    plan = Plan(str(folder.resolve()), task, panel.n_series, roles=dict(source.roles))
    parts, mine = Parts(folder, plan.n_blocks), range(shard - 1, plan.n_blocks, of)
    agreed = terms(artifact, panel, task, devices[0])
    records = parts.begin(agreed, mine)
    there = len(records)
    todo = [number for number in mine if number not in records]
    if todo and (delivery.engine or len(devices) > 1):
        model, store = shared(artifact, source, panel, store, folder)
        plan = replace(plan, model=model, store=store)
        makers = (
            delivery.engine(plan, todo) if delivery.engine else made_by_devices(plan, todo, devices)
        )
    else:
        makers = _made_here(Predictor(artifact, devices[0]), panel, plan, todo)
    total = sum(stop - start for start, stop in map(plan.series_of, mine))
    for number, record in makers:
        records[number] = record
        progress(sum(own.series for own in records.values()), total)
    path = _finished(parts, delivery, agreed, records, alone=of == 1)
    return Delivered(
        path=path,
        whole=of == 1,
        made=len(todo),
        there=there,
        n_blocks=plan.n_blocks,
        report=_report(panel, plan, mine, records, found),
        findings=tuple(found),
        first=lambda: Predictor(artifact).forecast(panel.between(0, min(6, panel.n_series)), task),
    )


def _checked(shard: tuple[int, int] | None) -> tuple[int, int]:
    number, of = shard or (1, 1)
    if not 1 <= number <= of:
        raise ConfigError(f"shard {number}/{of}: expected 1/{max(of, 1)} to {max(of, 1)}/{max(of, 1)}")
    return number, of


def _made_here(
    predictor: Predictor, panel: Panel, plan: Plan, todo: Iterable[int]
) -> Iterator[tuple[int, Record]]:
    for number in todo:
        yield number, write_part(predictor, panel, number, plan)


def _finished(
    parts: Parts,
    delivery: Delivery,
    agreed: Mapping[str, object],
    records: Mapping[int, Record],
    *,
    alone: bool,
) -> Path:
    """Returns the file, or the folder of the parts, brought to its last state."""
    if alone and not delivery.parts:
        parts.merge(delivery.out)
        return delivery.out
    if alone:
        parts.leave(agreed, [records[number] for number in sorted(records)])
    return parts.folder


def _report(
    panel: Panel, plan: Plan, mine: range, records: Mapping[int, Record], found: Iterable[Finding]
) -> str:
    own = [records[number] for number in sorted(records)]
    lost = [record for record in own if record.without_forecast]
    cutoffs = plan.task.cutoffs(panel)
    n_series = sum(record.series for record in own)
    return outcome(
        panel,
        cutoffs,
        rows=n_series * plan.task.horizon * panel.n_channels,
        n_series=n_series,
        lost=(sum(record.without_forecast for record in lost), lost[0].reason if lost else ""),
        findings=found,
    )
