"""What is recorded, as rows: which runs there are, and which one somebody means.

What comes in: a store. What goes out: runs, newest first, as people look at them. Promised: looking
makes no store; a run is named by an id, by the beginning of one, or by its name.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from forecaster.config import TrackingConfig
from forecaster.errors import ConfigError, ForecasterError
from forecaster.evaluation.comparison import MODEL
from forecaster.runs.tracking.identity import without_password
from forecaster.runs.tracking.store import client_class, first_line, probe, tracking_uri

if TYPE_CHECKING:
    from mlflow.entities import Run
    from mlflow.tracking import MlflowClient

_PAGE = 500
_SHOWN = 5  # candidates that a message names


@dataclass(frozen=True)
class Row:
    """A run, as a table shows it."""

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
    """It began, ISO 8601 in UTC."""
    state: str
    """running, finished, failed, killed or pruned."""

    @property
    def id(self) -> str:
        """The beginning of its id, enough to name it."""
        return self.run_id[:8]

    @property
    def began(self) -> str:
        """When, as the clock of this machine shows it."""
        return datetime.fromisoformat(self.when).astimezone().strftime("%Y-%m-%d %H:%M")


def has_store(uri: str) -> bool:
    """Whether there is a store, or a server that may have one."""
    return not uri.startswith("sqlite:///") or database(uri).is_file()


def database(uri: str) -> Path:
    """Returns the file of an SQLite store."""
    return Path(unquote(uri.removeprefix("sqlite:///"))).absolute()


@contextmanager
def opened_store(config: TrackingConfig) -> Iterator[MlflowClient]:
    """Yields a client of a store that is there; whatever it raises comes out as one line.

    Raises:
        ConfigError: the store is not there, or does not answer.
    """
    uri = tracking_uri(config)
    shown = without_password(uri)
    if not has_store(uri):
        raise ConfigError(f"MLflow store {shown}: there is none yet; forecaster fit makes it")
    away = probe(uri)
    if away:
        raise ConfigError(f"MLflow store {shown}: {away}")
    try:
        yield client_class()(tracking_uri=uri)
    except ForecasterError:
        raise
    except Exception as error:  # MLflow's and SQLAlchemy's errors are of many kinds
        raise ConfigError(f"MLflow store {shown}: {first_line(error)}") from error


def list_runs(
    config: TrackingConfig, experiment: str | None = None, limit: int = 20, trials: bool = False
) -> list[Row]:
    """Returns runs, newest first.

    Args:
        config: where the store is.
        experiment: those of one; None = of all.
        limit: how many at most.
        trials: also the single trials of sweeps.

    Raises:
        ConfigError: the store does not answer, or there is no such experiment.
    """
    rows: list[Row] = []
    with opened_store(config) as client:
        names = _experiments(client)
        if experiment is not None and experiment not in names.values():
            known = ", ".join(sorted(names.values()))
            raise ConfigError(f"--experiment {experiment}: there is none; the store has {known}")
        wanted = [key for key, name in names.items() if experiment in (None, name)]
        for run in _all_runs(client, wanted, min(_PAGE, 2 * limit)):
            if len(rows) == limit:
                break
            if trials or run.data.tags.get("kind") != "trial":
                rows.append(_row(run, names[run.info.experiment_id]))
    return rows


def find_run(client: MlflowClient, word: str) -> Run:
    """Returns the run that is meant by an id, the beginning of one, or a name.

    Raises:
        ConfigError: there is none, or several.
    """
    runs = list(_all_runs(client, list(_experiments(client)), _PAGE))
    exact = [run for run in runs if run.info.run_id == word]
    by_id = [run for run in runs if run.info.run_id.startswith(word.lower())]
    named = [run for run in runs if run.info.run_name == word]
    found = exact or named or by_id
    if len(found) == 1:
        return found[0]
    if found:
        raise ConfigError(f"run {word}: {len(found)} runs are called so: {_listed(found)}; give an id")
    near = [run for run in runs if word.lower() in (run.info.run_name or "").lower()] or runs
    said = f"; there are {_listed(near)}" if near else ""
    raise ConfigError(f"run {word}: there is none of that id, beginning of an id, or name{said}")


def _listed(runs: list[Run]) -> str:
    said = ", ".join(f"{run.info.run_id[:8]} ({run.info.run_name})" for run in runs[:_SHOWN])
    more = len(runs) - _SHOWN
    return f"{said} and {more} more" if more > 0 else said


def _experiments(client: MlflowClient) -> dict[str, str]:
    return {found.experiment_id: found.name for found in client.search_experiments(max_results=1000)}


def _all_runs(client: MlflowClient, experiments: list[str], page: int) -> Iterator[Run]:
    token: str | None = None
    order = ["attributes.start_time DESC"]
    while experiments:
        found = client.search_runs(experiments, "", max_results=page, order_by=order, page_token=token)
        yield from found
        token = found.token
        if not token:
            return


def _row(run: Run, experiment: str) -> Row:
    tags: dict[str, Any] = run.data.tags
    metrics: dict[str, float] = run.data.metrics
    kind = tags.get("kind") or ("backtest" if "backtest.refit" in run.data.params else "fit")
    stage = "backtest" if kind == "backtest" else "validation"
    used = run.inputs.dataset_inputs if run.inputs else []
    began = datetime.fromtimestamp(run.info.start_time / 1000, UTC)
    return Row(
        run_id=run.info.run_id,
        name=run.info.run_name,
        experiment=experiment,
        data=used[0].dataset.name if used else None,
        kind=kind,
        trials=int(tags["trials"]) if tags.get("trials", "").isdigit() else None,
        wql=metrics.get(f"{stage}/{MODEL}/WQL", metrics.get("best/WQL")),
        skill=metrics.get(f"{stage}/{MODEL}/skill"),
        when=began.isoformat(timespec="seconds"),
        state="pruned" if tags.get("state") == "pruned" else run.info.status.lower(),
    )
