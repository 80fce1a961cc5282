"""The runs of an MLflow store as rows of a table."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from forecaster.config import TrackingConfig
from forecaster.errors import ConfigError
from forecaster.runs.tracking import (
    COPIED_TO,
    SYNC_TO,
    check_store,
    database,
    local_store,
    opened_store,
    pending,
    tracking_uri,
)

_RUNS = """
select run_uuid, runs.name, experiments.name, start_time, status,
  (select datasets.name from inputs join datasets on dataset_uuid = source_id
   where destination_id = run_uuid limit 1),
  (select json_group_object(key, value) from tags where tags.run_uuid = runs.run_uuid),
  (select json_group_object(key, value) from latest_metrics
   where latest_metrics.run_uuid = runs.run_uuid and not is_nan)
from runs join experiments using (experiment_id)
where runs.lifecycle_stage = 'active' and experiments.lifecycle_stage = 'active'
  and (:experiment is null or experiments.name = :experiment)
  and (:trials or run_uuid in (select run_uuid from tags where key = 'kind' and value <> 'trial'))
order by start_time desc, run_uuid limit :limit
"""
_PENDING = """
select count(*) from tags join runs using (run_uuid) where lifecycle_stage = 'active' and key = :to
  and run_uuid not in (select run_uuid from tags where key = :copied)
"""


@dataclass(frozen=True)
class RunRow:
    """A run as a row of a table."""

    run_id: str
    name: str
    experiment: str
    data: str | None
    """Name of its table."""
    kind: str
    """fit, backtest, sweep or trial."""
    trials: int | None
    """Of a sweep, those that have ended."""
    wql: float | None
    """On the validation windows, of the backtest, or the best of a sweep."""
    skill: float | None
    """Against seasonal naive: 0 = as good, 1 = without error."""
    when: str
    """Start, ISO 8601 in UTC."""
    state: str
    """running, finished, failed, killed or pruned."""


def list_runs(
    config: TrackingConfig, experiment: str | None = None, limit: int = 20, trials: bool = False
) -> list[RunRow]:
    """Returns runs, newest first; single trials of sweeps only with `trials`.

    Raises:
        ConfigError: the store does not answer, or has no such experiment.
    """
    uri = tracking_uri(config)
    check_store(uri)
    known = _read(uri, "select name from experiments where lifecycle_stage = 'active'")
    if known is not None:
        _check_experiment(experiment, [name for (name,) in known])
        values = {"experiment": experiment, "trials": trials, "limit": limit}
        return [
            _row(row, json.loads(tags), json.loads(metrics))
            for *row, tags, metrics in _read(uri, _RUNS, **values) or ()
        ]
    with opened_store(config) as client:
        names = {found.experiment_id: found.name for found in client.search_experiments()}
        _check_experiment(experiment, names.values())
        wanted = [key for key, name in names.items() if experiment in (None, name)]
        chosen = "" if trials else "tags.kind != 'trial'"
        order = ["attributes.start_time DESC"]
        found = client.search_runs(wanted, chosen, max_results=min(limit, 50_000), order_by=order)
        rows = []
        for run in found:
            info, used = run.info, run.inputs.dataset_inputs if run.inputs else []
            data = used[0].dataset.name if used else None
            own = (info.run_id, info.run_name, names[info.experiment_id], info.start_time, info.status)
            rows.append(_row((*own, data), run.data.tags, run.data.metrics))
        return rows


def count_pending() -> int:
    """Returns how many runs of the local store wait for another one."""
    found = _read(local_store(), _PENDING, to=SYNC_TO, copied=COPIED_TO)
    return len(pending()) if found is None else int(found[0][0])


def _read(uri: str, query: str, **values: object) -> list[Any] | None:
    """Returns rows of an SQLite store; None = of any other.

    Read as a file, for MLflow takes seconds to import.
    """
    file = database(uri)
    if file is None:
        return None
    try:
        with closing(sqlite3.connect(f"file:{quote(str(file))}?mode=ro", uri=True)) as store:
            return store.execute(query, values).fetchall()
    except sqlite3.Error:  # tables of another release of MLflow, or no store: it knows
        return None


def _check_experiment(wanted: str | None, known: Iterable[str]) -> None:
    if wanted is not None and wanted not in known:
        listed = ", ".join(sorted(known))
        raise ConfigError(f"--experiment {wanted}: there is none; the store has {listed}")


def _row(run: Sequence[Any], tags: Mapping[str, str], metrics: Mapping[str, float]) -> RunRow:
    run_id, name, experiment, start, status, data = run
    kind = tags.get("kind", "fit")
    stage = "backtest" if kind == "backtest" else "validation"
    return RunRow(
        run_id=run_id,
        name=name,
        experiment=experiment,
        data=data,
        kind=kind,
        trials=int(tags["trials"]) if tags.get("trials", "").isdigit() else None,
        wql=metrics.get(f"{stage}/forecaster/WQL", metrics.get("best/WQL")),
        skill=metrics.get(f"{stage}/forecaster/skill"),
        when=datetime.fromtimestamp(start / 1000, UTC).isoformat(timespec="seconds"),
        state="pruned" if tags.get("state") == "pruned" else status.lower(),
    )
