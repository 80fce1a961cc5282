"""One MLflow run per fit or backtest.

What comes in: what was done and what came out of it. What goes out: a run with parameters, curves,
scores, the dataset's fingerprint, pictures and the artifact. Promised: tracking never breaks or delays
the work — the store is tried once, for three seconds, and a run that is lost is said to be lost.

Only the rooms tracking and registry know MLflow.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from forecaster.config import TrackingConfig
from forecaster.panel.schema import Schema
from forecaster.runs.tracking.store import client_class, experiment_id, first_line, probe, tracking_uri

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from mlflow.tracking import MlflowClient

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
            self.lost = first_line(error)


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
    run.lost = probe(uri)
    if run.lost:
        return run
    try:
        client = client_class()(tracking_uri=uri)
        experiment = experiment_id(client, config.experiment, uri)
        tags = {"mlflow.source.name": "forecaster", "mlflow.source.type": "LOCAL"}
        made = client.create_run(experiment, run_name=name, tags=tags)
    except Exception as error:  # whatever a store does, the forecast matters more
        run.lost = first_line(error)
        return run
    return TrackedRun(uri, client, made.info.run_id)


def _flatten(settings: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    flat: list[tuple[str, Any]] = []
    for key, value in settings.items():
        if isinstance(value, Mapping):
            flat += _flatten(value, f"{prefix}{key}.")
        else:
            flat.append((f"{prefix}{key}", value))
    return flat
