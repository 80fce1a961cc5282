"""One MLflow run per fit or backtest.

What comes in: what was done and what came out of it. What goes out: a run with parameters, curves,
scores, the dataset's fingerprint, pictures and the artifact. Promised: tracking never breaks or delays
the work — the store is tried once, for three seconds, and a run that is lost is said to be lost.

Only this file and registry.py know MLflow.
"""

from __future__ import annotations

import http.client
import json
import logging
import os
import shutil
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from forecaster.config import TrackingConfig
from forecaster.forecast.artifact import Artifact
from forecaster.panel.schema import Schema

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from mlflow.tracking import MlflowClient

_PROBE_SECONDS = 3
_PARAM_LENGTH = 500  # some stores refuse longer values
_BATCH = 100  # parameters, and metrics, that every store takes in one call


class TrackedRun:
    """A run in a store, or none: without a client, or once a call has failed, calls do nothing."""

    def __init__(self, uri: str, client: MlflowClient | None = None, run_id: str = ""):
        self.uri, self.run_id = uri, run_id
        self.lost: str | None = None
        """Why the run, or the rest of it, could not be recorded."""
        self._client = client

    @property
    def recorded(self) -> bool:
        """True when all that was logged so far has reached the store."""
        return self._client is not None and self.lost is None

    def log_params(self, settings: Mapping[str, Any]) -> None:
        """Records nested settings as dotted parameters."""

        def send(client: MlflowClient) -> None:
            from mlflow.entities import Param

            flat = [Param(key, str(value)[:_PARAM_LENGTH]) for key, value in _flatten(settings)]
            for start in range(0, len(flat), _BATCH):
                client.log_batch(self.run_id, params=flat[start : start + _BATCH])

        self._try(send)

    def log_metrics(self, points: list[tuple[str, float, int, int]]) -> None:
        """Records (name, value, milliseconds since 1970, step) points in as few calls as possible."""

        def send(client: MlflowClient) -> None:
            from mlflow.entities import Metric

            metrics = [Metric(*point) for point in points]
            for start in range(0, len(metrics), 10 * _BATCH):
                client.log_batch(self.run_id, metrics=metrics[start : start + 10 * _BATCH])

        self._try(send)

    def log_tags(self, tags: Mapping[str, str]) -> None:
        """Records tags: versions, commit, fingerprint."""

        def send(client: MlflowClient) -> None:
            from mlflow.entities import RunTag

            client.log_batch(self.run_id, tags=[RunTag(*tag) for tag in tags.items()])

        self._try(send)

    def log_dataset(self, name: str, fingerprint: str, schema: Schema, context: str) -> None:
        """Records a table by fingerprint; its rows stay where they are.

        Args:
            name: what the table is called.
            fingerprint: of its panel.
            schema: the roles of its columns.
            context: what it was used for, as "training".
        """

        def send(client: MlflowClient) -> None:
            from mlflow.entities import Dataset, DatasetInput, InputTag

            roles = {column: role for column, role, *_ in schema.rows()}
            dataset = Dataset(
                name=Path(name).name,
                digest=fingerprint[:16],
                source_type="local",
                source=json.dumps({"uri": name}),
                schema=json.dumps({"roles": roles}),
                profile=json.dumps({"fingerprint": fingerprint}),
            )
            tags = [InputTag("mlflow.data.context", context)]
            client.log_inputs(self.run_id, [DatasetInput(dataset, tags)])

        self._try(send)

    def log_figure(self, figure: Figure, name: str) -> None:
        """Records a picture."""
        self._try(lambda client: client.log_figure(self.run_id, figure, name))

    def log_folder(self, folder: Path, name: str) -> None:
        """Records all files of a folder."""
        self._try(lambda client: client.log_artifacts(self.run_id, str(folder), name))

    def close(self, status: str = "FINISHED") -> None:
        """Ends the run: "FINISHED", "FAILED" or "KILLED"."""
        self._try(lambda client: client.set_terminated(self.run_id, status))

    def _try(self, send: Callable[[MlflowClient], None]) -> None:
        if self._client is None or self.lost is not None:
            return
        try:
            send(self._client)
        except Exception as error:  # whatever a store does, the forecast matters more
            self.lost = _first_line(error)


@contextmanager
def open_run(config: TrackingConfig, name: str) -> Iterator[TrackedRun]:
    """Yields an open run and closes it with what became of the work: finished, failed or killed.

    Args:
        config: where, and whether at all. A store that cannot be reached gives a run that says so.
        name: of the run.
    """
    run = _start(config, name)
    try:
        yield run
    except BaseException as error:
        run.close("KILLED" if isinstance(error, KeyboardInterrupt) else "FAILED")
        raise
    run.close()


def _start(config: TrackingConfig, name: str) -> TrackedRun:
    uri = tracking_uri(config)
    run = TrackedRun(uri)
    if not config.enabled:
        return run
    run.lost = _probe(uri)
    if run.lost:
        return run
    try:
        client = _client_class()(tracking_uri=uri)
        experiment = _experiment(client, config.experiment, uri)
        tags = {"mlflow.source.name": "forecaster", "mlflow.source.type": "LOCAL"}
        made = client.create_run(experiment, run_name=name, tags=tags)
    except Exception as error:  # whatever a store does, the forecast matters more
        run.lost = _first_line(error)
        return run
    return TrackedRun(uri, client, made.info.run_id)


def tracking_uri(config: TrackingConfig) -> str:
    """Returns where runs go: the config's store, MLFLOW_TRACKING_URI, or SQLite in this folder."""
    default = f"sqlite:///{Path.cwd() / 'mlflow.db'}"
    return config.uri or os.environ.get("MLFLOW_TRACKING_URI") or default


def where_to_look(uri: str) -> str:
    """Returns what shows the runs of a store: its address, or the shell line that serves it."""
    if uri.startswith("http"):
        return uri
    beside = Path(sys.executable).with_name("mlflow")
    # In an environment that is not activated the bare name would not be found.
    command = "mlflow" if shutil.which("mlflow") or not beside.exists() else str(beside)
    return f"{command} ui --backend-store-uri {uri}"


def log_artifact(run: TrackedRun, artifact: Artifact, folder: Path) -> None:
    """Records everything a finished fit left behind, curves apart.

    Args:
        run: an open run.
        artifact: as saved.
        folder: where it was saved.
    """
    run.log_params(artifact.config.model_dump(mode="json", exclude={"tracking"}))
    run.log_dataset(artifact.data, artifact.fingerprint, artifact.schema, "training")
    commit = artifact.versions.get("git_commit")
    tags = {f"version.{name}": version for name, version in artifact.versions.items()}
    tags["fingerprint"] = artifact.fingerprint
    if artifact.parent is not None:
        tags["parent.fingerprint"] = artifact.parent["fingerprint"]
        tags["parent.until"] = artifact.parent["until"]
    if commit:
        tags["mlflow.source.git.commit"] = tags.pop("version.git_commit")
    run.log_tags(tags)
    scores = artifact.metrics.get("validation", {}).get("scores", {})
    run.log_metrics(score_points(scores, "validation"))
    run.log_folder(folder, "model")


def score_points(
    scores: Mapping[str, Mapping[str, float]], stage: str
) -> list[tuple[str, float, int, int]]:
    """Returns scores by model as metric points: "validation/forecaster/WQL"."""
    now = int(time.time() * 1000)
    return [
        (f"{stage}/{model.replace(' ', '_')}/{name}", value, now, 0)
        for model, mine in scores.items()
        for name, value in mine.items()
    ]


def curve_points(artifact: Artifact) -> list[tuple[str, float, int, int]]:
    """Returns the loss curves that an artifact keeps, for a run that is logged after the fact."""
    now = int(time.time() * 1000)
    curves = artifact.metrics.get("curves", {})
    return [(name, value, now, step) for name, curve in curves.items() for step, value in curve]


def _experiment(client: MlflowClient, name: str, uri: str) -> str:
    found = client.get_experiment_by_name(name)
    if found is not None:
        return str(found.experiment_id)
    location = None
    if uri.startswith("sqlite:///"):
        # MLflow's own default is relative to whatever folder a process happens to run in.
        location = str(Path(uri.removeprefix("sqlite:///")).absolute().parent / "mlartifacts")
    return str(client.create_experiment(name, artifact_location=location))


def _probe(uri: str) -> str | None:
    """Returns why a server does not answer; None when it does, or when there is no server to ask."""
    if not uri.startswith(("http://", "https://")):
        return None
    # MLflow itself retries for minutes.
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "10")
    try:
        with urllib.request.urlopen(f"{uri.rstrip('/')}/health", timeout=_PROBE_SECONDS):
            return None
    except urllib.error.HTTPError:
        return None  # it answers; whether it lets us in is for MLflow to find out
    except (OSError, ValueError, http.client.HTTPException) as error:
        return _first_line(getattr(error, "reason", None) or error)


def _client_class() -> Any:
    """Returns MLflow's client, quiet: it reports its own migrations and calls home otherwise."""
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    from mlflow.tracking import MlflowClient

    # After the import, which sets levels of its own.
    for name in ("mlflow", "alembic"):
        logging.getLogger(name).setLevel(logging.WARNING)
    return MlflowClient


def _flatten(settings: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    flat: list[tuple[str, Any]] = []
    for key, value in settings.items():
        if isinstance(value, Mapping):
            flat += _flatten(value, f"{prefix}{key}.")
        else:
            flat.append((f"{prefix}{key}", value))
    return flat


def _first_line(error: object) -> str:
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0]
