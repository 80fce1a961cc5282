"""List the runs of an MLflow store, and compare two of them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal

from forecaster.config import TrackingConfig
from forecaster.errors import ConfigError, ForecasterError
from forecaster.runs.tracking import check_store, connect, first_line, tracking_uri, without_password

if TYPE_CHECKING:
    from mlflow.entities import Run
    from mlflow.tracking import MlflowClient

Part = Literal["data", "config", "versions", "scores"]
PARTS: tuple[Part, ...] = ("data", "config", "versions", "scores")

_PAGE = 500
_SHOWN = 5  # candidates that a message names


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


@dataclass(frozen=True)
class Difference:
    """One thing in which two runs differ; None = a run lacks it."""

    part: Part
    name: str
    first: str | float | None
    second: str | float | None

    @property
    def change(self) -> float | None:
        """Second − first, of scores that both have."""
        if isinstance(self.first, float) and isinstance(self.second, float):
            return self.second - self.first
        return None


@contextmanager
def opened_store(config: TrackingConfig) -> Iterator[MlflowClient]:
    """Yields a client of an existing store; its errors become a ConfigError of one line."""
    uri = tracking_uri(config)
    check_store(uri)
    try:
        yield connect(uri)
    except ForecasterError:
        raise
    except Exception as error:  # MLflow's and SQLAlchemy's errors are of many kinds
        raise ConfigError(f"MLflow store {without_password(uri)}: {first_line(error)}") from error


def list_runs(
    config: TrackingConfig, experiment: str | None = None, limit: int = 20, trials: bool = False
) -> list[RunRow]:
    """Returns runs, newest first; single trials of sweeps only with `trials`.

    Raises:
        ConfigError: the store does not answer, or has no such experiment.
    """
    rows: list[RunRow] = []
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


def compare_runs(
    config: TrackingConfig, first: str, second: str
) -> tuple[tuple[str, str], list[Difference]]:
    """Returns id and name of two runs, and all in which they differ, in the order of `PARTS`.

    Args:
        config: where the store is.
        first: id, beginning of an id, or name of a run.
        second: of the other.

    Raises:
        ConfigError: the store does not answer, or a run is unknown or ambiguous.
    """
    with opened_store(config) as client:
        runs = [_find_run(client, word) for word in (first, second)]
    one, other = (_parts(run) for run in runs)
    found = [
        Difference(part, name, one[part].get(name), other[part].get(name))
        for part in PARTS
        for name in {**one[part], **other[part]}
        if one[part].get(name) != other[part].get(name)
    ]
    a, b = (f"{run.info.run_id[:8]} {run.info.run_name}" for run in runs)
    return (a, b), found


def _find_run(client: MlflowClient, word: str) -> Run:
    runs = list(_all_runs(client, list(_experiments(client)), _PAGE))
    exact = [run for run in runs if run.info.run_id == word]
    by_id = [run for run in runs if run.info.run_id.startswith(word.lower())]
    named = [run for run in runs if run.info.run_name == word]
    found = exact or named or by_id
    if len(found) == 1:
        return found[0]
    if found:
        raise ConfigError(f"run {word}: {len(found)} runs have that name: {_listed(found)}; give an id")
    near = [run for run in runs if word.lower() in (run.info.run_name or "").lower()] or runs
    known = f"; there are {_listed(near)}" if near else ""
    raise ConfigError(f"run {word}: there is none of that id, beginning of an id, or name{known}")


def _listed(runs: list[Run]) -> str:
    listed = ", ".join(f"{run.info.run_id[:8]} ({run.info.run_name})" for run in runs[:_SHOWN])
    more = len(runs) - _SHOWN
    return f"{listed} and {more} more" if more > 0 else listed


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


def _parts(run: Run) -> Mapping[Part, dict[str, Any]]:
    tags, metrics = run.data.tags, run.data.metrics
    versions = {name: tags[name] for name in sorted(tags) if name.startswith("version.")}
    versions = {name.removeprefix("version."): version for name, version in versions.items()}
    if "mlflow.source.git.commit" in tags:
        versions["git commit"] = tags["mlflow.source.git.commit"]
    data: dict[str, Any] = {}
    for entry in run.inputs.dataset_inputs if run.inputs else []:
        data["table"] = entry.dataset.name
        data["fingerprint"] = tags.get("fingerprint", entry.dataset.digest)[:16]
        roles = json.loads(entry.dataset.schema or "{}").get("roles", {})
        data |= {f"column {column}": role for column, role in roles.items()}
    if "parent.fingerprint" in tags:
        data["warm start from weights fitted to"] = tags["parent.fingerprint"][:16]
    return {
        "data": data,
        "config": dict(sorted(run.data.params.items())),
        "versions": versions,
        # Other metrics are ends of curves: they depend on when a fit was stopped.
        "scores": {name: float(metrics[name]) for name in sorted(metrics) if "/" in name},
    }
