"""One MLflow run per piece of work.

What comes in: what was done and what came out of it. What goes out: a run with parameters, curves,
scores, the dataset's fingerprint, pictures and the artifact. Promised: tracking never breaks or delays
the work — a store is asked once, for three seconds; from its first failure on everything is kept in the
working directory, for `forecaster runs sync`.

Only the rooms tracking and registry know MLflow.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from forecaster.config import TrackingConfig
from forecaster.panel.schema import Schema
from forecaster.runs.tracking.entries import Entry, Point, dataset_entry, params_entry, send
from forecaster.runs.tracking.identity import Identity, ensured_run, known_points
from forecaster.runs.tracking.spool import Spool, spool_folder
from forecaster.runs.tracking.store import client_class, first_line, probe, tracking_uri

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from mlflow.tracking import MlflowClient


class TrackedRun:
    """A run in a store, in the spool, or — without an identity — nowhere: then calls do nothing."""

    def __init__(self, uri: str, identity: Identity | None = None):
        self.uri, self.identity = uri, identity
        self.run_id = ""
        """The store's, once it has one."""
        self.lost: str | None = None
        """Why the run, or the rest of it, could not be recorded in the store."""
        self.dropped: str | None = None
        """Why it could not be kept for later either."""
        self._known: frozenset[tuple[str, int]] = frozenset()  # names and steps of points in the store
        self._base = spool_folder()  # before the work can change the directory
        self._client: MlflowClient | None = None
        self._spool: Spool | None = None

    @property
    def key(self) -> str:
        """Its name among all runs, known before a store has seen it; "" when nothing is recorded."""
        return "" if self.identity is None else self.identity.key

    @property
    def recorded(self) -> bool:
        """Whether what is logged has a place: the store, or the spool."""
        return self.identity is not None and self.dropped is None

    @property
    def kept(self) -> Path | None:
        """Where it waits for its store, or the rest of it."""
        return None if self._spool is None or self.dropped else self._spool.folder

    def open(self, client: MlflowClient | None = None, fresh: bool = True) -> None:
        """Begins the run in its store; without a client the store is asked first.

        Args:
            client: of a store that answers.
            fresh: nobody has begun this run before.
        """
        assert self.identity is not None
        self.lost = None if client else probe(self.uri)
        if self.lost is None:
            try:
                client = client or client_class()(tracking_uri=self.uri)
                self.run_id = ensured_run(client, self.identity, self.uri, fresh)
                self._client = client
            except Exception as error:  # whatever a store does, the forecast matters more
                self.lost = first_line(error)
        if self.lost is not None:
            self._keep([])

    def reopen(self) -> None:
        """Says that a run which may have been closed goes on; points it has are not logged again."""
        self._log({"status": "RUNNING"})
        if self._client is not None and self.lost is None:
            try:
                self._known = known_points(self._client, self.run_id)
            except Exception as error:  # whatever a store does, the forecast matters more
                self.lost = first_line(error)

    def log_params(self, settings: Mapping[str, Any]) -> None:
        """Records nested settings as dotted parameters."""
        self._log(params_entry(settings))

    def log_metrics(self, points: list[Point]) -> None:
        """Records points in as few calls as possible."""
        new = [point for point in points if (point[0], point[3]) not in self._known]
        if new:
            self._log({"metrics": new})

    def log_tags(self, tags: Mapping[str, str]) -> None:
        """Records tags: versions, commit, fingerprint."""
        self._log({"tags": dict(tags)})

    def log_dataset(self, name: str, fingerprint: str, schema: Schema, context: str) -> None:
        """Records a table by fingerprint; its rows stay where they are.

        Args:
            name: what the table is called.
            fingerprint: of its panel.
            schema: the roles of its columns.
            context: what it was used for, as "training".
        """
        self._log(dataset_entry(name, fingerprint, schema, context))

    def log_figure(self, figure: Figure, name: str) -> None:
        """Records a picture."""
        if self.recorded:
            with tempfile.TemporaryDirectory() as folder:
                figure.savefig(Path(folder) / name)
                self._log({"files": folder, "to": None})

    def log_text(self, text: str, name: str) -> None:
        """Records a file of text."""
        if self.recorded:
            with tempfile.TemporaryDirectory() as folder:
                (Path(folder) / name).write_text(text, encoding="utf-8")
                self._log({"files": folder, "to": None})

    def log_folder(self, folder: Path, name: str) -> None:
        """Records all files of a folder."""
        self._log({"files": str(folder), "to": name})

    def close(self, status: str = "FINISHED") -> None:
        """Ends the run: "FINISHED", "FAILED" or "KILLED"."""
        self._log({"status": status, "at": int(time.time() * 1000)})
        if self._spool is not None:
            self._spool.close()

    def _log(self, entry: Entry) -> None:
        if self._client is not None and self.lost is None:
            try:
                return send(self._client, self.run_id, entry)
            except Exception as error:  # whatever a store does, the forecast matters more
                self.lost = first_line(error)
        if self.recorded:
            self._keep([entry])

    def _keep(self, entries: list[Entry]) -> None:
        assert self.identity is not None
        try:
            if self._spool is None:
                self._spool = Spool(self._base, self.identity, self.uri)
            for entry in entries:
                self._spool.add(entry)
        except (OSError, ValueError) as error:
            self.dropped = first_line(error)
            with suppress(OSError):
                if self._spool is not None:
                    self._spool.close()


@contextmanager
def open_run(
    config: TrackingConfig, name: str, key: str = "", kind: str = "fit"
) -> Iterator[TrackedRun]:
    """Yields an open run and closes it with what became of the work: finished, failed or killed.

    Args:
        config: where, and whether at all. Where a store cannot be reached, the run is kept for later.
        name: of the run.
        key: `TrackedRun.key` of a run that goes on; "" = a new one.
        kind: of the work, as a tag: "fit" or "backtest".
    """
    run = TrackedRun(tracking_uri(config))
    if config.enabled:
        identity = Identity.known(key, name, config.experiment, {"kind": kind})
        run = TrackedRun(run.uri, identity)
        run.open(fresh=not key)
        if key:
            run.reopen()
    try:
        yield run
    except BaseException as error:
        run.close(ending(error))
        raise
    run.close()


def ending(error: BaseException) -> str:
    """Returns the status of a run that an error ended: killed where somebody asked for the end."""
    return "KILLED" if isinstance(error, (KeyboardInterrupt, SystemExit)) else "FAILED"
