"""The runs of an MLflow store as rows of a table."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from forecaster.config import TrackingConfig
from forecaster.errors import ConfigError
from forecaster.runs.tracking import opened_store

if TYPE_CHECKING:
    from mlflow.entities import Run


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
    with opened_store(config) as client:
        names = {found.experiment_id: found.name for found in client.search_experiments()}
        if experiment is not None and experiment not in names.values():
            known = ", ".join(sorted(names.values()))
            raise ConfigError(f"--experiment {experiment}: there is none; the store has {known}")
        wanted = [key for key, name in names.items() if experiment in (None, name)]
        chosen = "" if trials else "tags.kind != 'trial'"
        runs = client.search_runs(
            wanted, chosen, max_results=min(limit, 50_000), order_by=["attributes.start_time DESC"]
        )
        return [_row(run, names[run.info.experiment_id]) for run in runs]


def _row(run: Run, experiment: str) -> RunRow:
    tags: dict[str, Any] = run.data.tags
    metrics: dict[str, float] = run.data.metrics
    kind = tags.get("kind", "fit")
    stage = "backtest" if kind == "backtest" else "validation"
    used = run.inputs.dataset_inputs if run.inputs else []
    began = datetime.fromtimestamp(run.info.start_time / 1000, UTC)
    return RunRow(
        run_id=run.info.run_id,
        name=run.info.run_name,
        experiment=experiment,
        data=used[0].dataset.name if used else None,
        kind=kind,
        trials=int(tags["trials"]) if tags.get("trials", "").isdigit() else None,
        wql=metrics.get(f"{stage}/forecaster/WQL", metrics.get("best/WQL")),
        skill=metrics.get(f"{stage}/forecaster/skill"),
        when=began.isoformat(timespec="seconds"),
        state="pruned" if tags.get("state") == "pruned" else run.info.status.lower(),
    )
