"""Record work in MLflow: the store, one run per piece of work, what a run holds.

A store that fails never stops or delays the work: it is probed once, for three seconds. If it does not
answer, or fails later, the run is logged with the same client to a SQLite store in the
data folder of the user, from which `forecaster runs sync` copies it.

Only this file and `registry` use MLflow.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import logging
import os
import re
import shutil
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit, urlunsplit

from forecaster.config import TrackingConfig, flatten
from forecaster.errors import ConfigError, first_line
from forecaster.fitting.processes import is_gone, this_process
from forecaster.lazy import Figure

if TYPE_CHECKING:
    from mlflow.entities import Run
    from mlflow.tracking import MlflowClient

    from forecaster.evaluation.backtest import Backtest
    from forecaster.evaluation.class_backtest import ClassBacktest
    from forecaster.forecast.artifact import Artifact
    from forecaster.panel.schema import Schema

Point = tuple[str, float, int, int]
"""Name, value, milliseconds since 1970, step."""

PARENT = "mlflow.parentRunId"
NOTE = "mlflow.note.content"
"""Tag whose text MLflow shows as the description of a run."""
DIGEST = "forecaster.digest"
"""Tag of a run: of the model that it fitted."""
_KEY = "forecaster.key"  # finds the run of a study again
_SYNC_TO = "forecaster.sync_to"  # the store that a local run was meant for
_CONTINUES = "forecaster.continues"  # id of the run there that this one continues
_COPIED_TO = "forecaster.copied_to"  # id of the finished copy
_COPY_OF = "forecaster.copy_of"  # in the copy: id of the local run
_PROCESS = "forecaster.process"

_HEADLINE = re.compile("WQL|skill|coverage_[0-9]+|log_loss|accuracy")
FIRST = "1. "
"""Begins the names of metrics that are to be the first columns: digits sort before all others."""
_EXPERIMENT = f"""The + behind the last column of the list shows metrics. First come those of the model, on
validation windows or in the backtest: `{FIRST}WQL` (lower is better), `{FIRST}coverage_80` (the share of actuals in
the 80 % band), `{FIRST}skill` (against seasonal naive: 0 = as good, 1 = without error). The description of a run is
its verdict.

More columns worth showing (Columns, then search):

- metric `validation/seasonal_naive/WQL`
- tags `kind` (fit, update, monitor, backtest, sweep, trial), `fingerprint` (of the table), `trials` and
  `best.trial` of a sweep
- parameters `horizon`, `model.width`, `fit.steps`

`forecaster runs` prints these for the newest runs."""
"""Description of a new experiment."""
opened_runs: ContextVar[list[TrackedRun] | None] = ContextVar("opened_runs", default=None)
"""Collects the runs that are opened, in their order; None = nothing does."""
_PROBE_SECONDS = 3
_REFUSALS = {"INVALID_PARAMETER_VALUE", "RESOURCE_ALREADY_EXISTS", "BAD_REQUEST"}


def local_store() -> str:
    """Returns the SQLite store in the data folder of this user."""
    if sys.platform == "darwin":
        data = Path.home() / "Library" / "Application Support"
    else:
        data = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share")
    return f"sqlite:///{data / 'forecaster' / 'mlflow.db'}"


def tracking_uri(config: TrackingConfig) -> str:
    """Returns the store of the config, of MLFLOW_TRACKING_URI, or of this user."""
    return config.uri or os.environ.get("MLFLOW_TRACKING_URI") or local_store()


def runs_page(experiment: str) -> str:
    """Returns where the pages of a server list the runs of an experiment; others show language models first."""
    return f"#/experiments/{experiment}/runs?workflowType=machine_learning"


def last_page(config: TrackingConfig) -> str:
    """Returns the page of the experiment of the last run of a store; empty without runs."""
    with opened_store(config) as client:
        ids = [one.experiment_id for one in client.search_experiments()]
        runs = client.search_runs(ids, order_by=["attributes.start_time DESC"], max_results=1)
    return runs_page(runs[0].info.experiment_id) if runs else ""


def where_to_look(uri: str, experiment: str = "") -> str:
    """Returns what shows the runs of a store: the page of an experiment, or the command that serves it."""
    if uri.startswith("http"):
        return f"{uri.rstrip('/')}/{runs_page(experiment)}" if experiment else uri
    # In an environment that is not activated the bare name would not be found.
    beside = Path(sys.executable).with_name("forecaster")
    command = "forecaster" if shutil.which("forecaster") or not beside.exists() else str(beside)
    return f"{command} ui" if uri == tracking_uri(TrackingConfig()) else f"{command} ui --uri {uri}"


def database(uri: str) -> Path | None:
    """Returns the file of an SQLite store; None for any other store."""
    if not uri.startswith("sqlite:///"):
        return None
    return Path(unquote(uri.removeprefix("sqlite:///"))).absolute()


def check_store(uri: str, create: bool = False) -> None:
    """Raises ConfigError if a store does not answer or, unless it may be created, does not exist."""
    shown, file = without_password(uri), database(uri)
    if not create and file is not None and not file.is_file():
        raise ConfigError(f"MLflow store {shown}: it does not exist; forecaster fit creates it")
    if away := probe(uri):
        raise ConfigError(f"MLflow store {shown}: {away}")


@contextmanager
def opened_store(config: TrackingConfig, create: bool = False) -> Iterator[MlflowClient]:
    """Yields a client of a store, which is only made on `create`; errors become a ConfigError."""
    uri = tracking_uri(config)
    check_store(uri, create)
    try:
        yield connect(uri)
    except Exception as error:
        package = type(error).__module__.partition(".")[0]
        if package not in ("mlflow", "sqlalchemy") and not isinstance(error, OSError):
            raise
        raise ConfigError(f"MLflow store {without_password(uri)}: {first_line(error)}") from error


def _remove_empty(uri: str) -> None:
    """Removes the database that SQLite created before its first write failed."""
    file = database(uri)
    if file is not None and file.is_file() and not file.stat().st_size:
        file.unlink()


def in_memory(uri: str) -> bool:
    """Returns whether an SQLite database ends with its process: no file is named."""
    return re.fullmatch(r"sqlite(\+\w+)?://(/|/?:memory:)?(\?.*)?", uri) is not None


def probe(uri: str) -> str | None:
    """Returns why a store is of no use: a server that does not answer, a database in memory; else None."""
    if in_memory(uri):
        return "it is in memory and ends with this process; name a file, as sqlite:///mlflow.db"
    if not uri.startswith(("http://", "https://")):
        return None
    # MLflow itself retries for minutes.
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "10")
    try:
        with urllib.request.urlopen(f"{uri.rstrip('/')}/health", timeout=_PROBE_SECONDS):
            return None
    except urllib.error.HTTPError:
        return None  # it answers; MLflow finds out about permissions
    except (OSError, ValueError, http.client.HTTPException) as error:
        return first_line(getattr(error, "reason", None) or error)


def connect(uri: str) -> MlflowClient:
    """Returns a client without MLflow's telemetry, migration logs and progress bars."""
    if uri == local_store():
        Path(uri.removeprefix("sqlite:///")).parent.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    os.environ.setdefault("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")
    from mlflow.tracking import MlflowClient

    # After the import, which sets levels of its own.
    quiet = {"mlflow": logging.WARNING, "alembic": logging.WARNING}
    quiet["mlflow.store.db.utils"] = logging.CRITICAL  # a failed store is one line here, no traceback
    for name, level in quiet.items():
        logging.getLogger(name).setLevel(level)
    return MlflowClient(tracking_uri=uri)


def experiment_id(client: MlflowClient, name: str, uri: str) -> str:
    """Returns the id of an experiment, created if missing; files of a SQLite store lie beside it."""
    found = client.get_experiment_by_name(name)
    if found is not None:
        return str(found.experiment_id)
    file = database(uri)
    # MLflow's own default is relative to whatever directory a process happens to run in.
    location = None if file is None else str(file.parent / "mlartifacts")
    made = str(client.create_experiment(name, artifact_location=location))
    client.set_experiment_tag(made, NOTE, f"[Runs]({runs_page(made)})\n\n{_EXPERIMENT}")
    return made


def without_password(address: str) -> str:
    """Returns an address without user and password."""
    if "://" not in address or "@" not in address:
        return address
    parts = urlsplit(address)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


class TrackedRun:
    """A run in an MLflow store; without one, calls do nothing. Picklable: a worker can log to it."""

    def __init__(self, uri: str = "", experiment: str = "", name: str = "", tags: Any = None):
        self.uri = uri
        """The store that holds the run."""
        self.run_id = ""
        self.page = ""
        """Shows the run, or the command that does."""
        self.recorded = False
        """Whether the run is logged, to whichever store."""
        self.founded = False
        """Whether it is the first of its store."""
        self.lost: str | None = None
        """Why the run, or the rest of it, is not in the store that was asked for."""
        self._wanted, self._experiment, self._name = uri, experiment, name
        self._tags: dict[str, str] = dict(tags or {})
        self._known: frozenset[tuple[str, int]] = frozenset()  # names and steps already in the store
        self._local = local_store()
        self._client: MlflowClient | None = None

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_client": None}

    @property
    def wanted(self) -> str:
        """The store that was asked for, as it may be shown."""
        return without_password(self._wanted)

    @property
    def about(self) -> dict[str, str] | None:
        """Its id and its store, as they may be shown; None = it is not recorded."""
        known = {"run_id": self.run_id, "tracking_uri": without_password(self.uri)}
        return known if self.recorded else None

    def open(self, run_id: str = "") -> None:
        """Creates the run, or reopens the one with an id or with the same key."""
        away = probe(self.uri)
        try:
            if away:
                raise ConnectionError(away)
            self._begin(run_id)
        except Exception as error:  # whatever a store raises, the work matters more
            self._fall_back(error, run_id)

    def nested(self, name: str, tags: Mapping[str, str]) -> TrackedRun:
        """Returns a new run under this one."""
        child = TrackedRun(self.uri, self._experiment, name, {**tags, PARENT: self.run_id})
        child._wanted, child.lost, child._client = self._wanted, self.lost, self._client
        if self.recorded:
            if self.lost:
                child._mark_local()
            child.open()
        return child

    def nest_under(self, digest: str) -> None:
        """Puts the run under that of the fit of a model, known by its digest, where the store has it."""
        if not self.recorded:
            return
        with suppress(Exception):  # the store may be away by now, which the next call says
            client = self._client = self._client or connect(self.uri)
            if (fitted := run_of(client, digest)) is not None:
                client.set_tag(self.run_id, PARENT, fitted.info.run_id)

    def close_nested(self, run_id: str, reason: str) -> None:
        """Closes the run of a trial whose process has ended."""
        if self.recorded and run_id:
            with suppress(Exception):  # the run may be in a store that is away
                client = connect(self.uri)
                client.set_tag(run_id, "state", "failed")
                client.set_tag(run_id, "reason", reason)
                client.set_terminated(run_id, "FAILED")

    def log_params(self, settings: Mapping[str, Any]) -> None:
        """Logs nested settings as dotted parameters."""
        self._log("params", ((name, str(value)) for name, value in flatten(settings).items()))

    def log_metrics(self, points: list[Point]) -> None:
        """Logs points; those that a reopened run has are skipped."""
        self._log("metrics", (point for point in points if (point[0], point[3]) not in self._known))

    def log_tags(self, tags: Mapping[str, str]) -> None:
        """Logs tags: versions, commit, fingerprint."""
        self._log("tags", ((name, str(value)) for name, value in tags.items()))

    def log_dataset(self, name: str, fingerprint: str, schema: Schema, context: str) -> None:
        """Logs fingerprint and roles of a table, not its rows; `context` is "training" or similar."""
        if not self.recorded:
            return
        from mlflow.entities import Dataset, DatasetInput, InputTag

        roles = json.dumps({"roles": {column: role for column, role, *_ in schema.rows()}})
        # A store keeps the first dataset of a digest: other roles of the same content need another one.
        digest = f"{fingerprint[:16]}-{hashlib.sha256(roles.encode()).hexdigest()[:8]}"
        dataset = Dataset(
            name=Path(name).name,
            digest=digest,
            source_type="local",
            source=json.dumps({"uri": name}),
            schema=roles,
            profile=json.dumps({"fingerprint": fingerprint}),
        )
        used_for = [InputTag("mlflow.data.context", context)]
        self._call("log_inputs", [DatasetInput(dataset, used_for)])

    def log_figure(self, figure: Figure, name: str) -> None:
        """Logs a picture; it is drawn first, so that no fault of it is one of the store."""
        if self.recorded:
            with tempfile.TemporaryDirectory() as scratch:
                figure.savefig(path := Path(scratch) / name)
                self._call("log_artifact", str(path))

    def log_text(self, text: str, name: str) -> None:
        """Logs a text file."""
        self._call("log_text", text, name)

    def log_model(self, folder: Path) -> None:
        """Logs all files of the folder of a model."""
        self._call("log_artifacts", str(folder), "model")

    def close(self, status: str = "FINISHED") -> None:
        """Ends the run: "FINISHED", "FAILED" or "KILLED"."""
        self._call("set_terminated", status)

    def _log(self, kind: str, rows: Iterable[tuple[Any, ...]]) -> None:
        if self.recorded:
            from mlflow.entities import Metric, Param, RunTag

            entity: Any = {"params": Param, "metrics": Metric, "tags": RunTag}[kind]
            self._call("log_batch", **{kind: [entity(*row) for row in rows]})

    def _call(self, method: str, *args: Any, **named: Any) -> None:
        """Calls a method of the client for this run; a failure moves the run to the local store."""
        while self.recorded:
            try:
                self._client = self._client or connect(self.uri)
                getattr(self._client, method)(self.run_id, *args, **named)
                return
            except Exception as error:  # as in `open`
                self._fall_back(error, self.run_id)

    def _begin(self, run_id: str) -> None:
        """Creates or reopens the run in the store `uri`."""
        file = database(self.uri)
        self.founded = file is not None and not file.exists()
        client = self._client = self._client or connect(self.uri)
        experiment = experiment_id(client, self._experiment, self.uri)
        self.page = where_to_look(self.uri, experiment)
        key = self._tags.get(_KEY)
        known = find_tagged(client, experiment, _KEY, key) if key else _find(client, run_id)
        if known is not None:
            self.run_id = known.info.run_id
            client.update_run(self.run_id, status="RUNNING")
            self._known = frozenset(
                (name, point.step)
                for name in known.data.metrics
                for point in client.get_metric_history(self.run_id, name)
            )
        else:
            tags = {"mlflow.source.name": "forecaster", "mlflow.source.type": "LOCAL", **self._tags}
            self.run_id = client.create_run(experiment, tags=tags, run_name=self._name).info.run_id
        self.recorded = True

    def _fall_back(self, error: Exception, run_id: str = "") -> None:
        """Continues in the local store after a failure, if that is not the one that failed."""
        self.lost, self.recorded, self._client = self.lost or first_line(error), False, None
        _remove_empty(self.uri)
        if self.uri == self._local:
            return
        self.uri = self._local
        self._mark_local(run_id)
        try:
            self._begin(run_id)
        except Exception as second:  # as in `open`
            _remove_empty(self.uri)
            self.lost += f"; nor is it in {self._local}: {first_line(second)}"

    def _mark_local(self, continues: str = "") -> None:
        self._tags |= {_SYNC_TO: self.wanted, _PROCESS: this_process()}
        if continues:
            self._tags[_CONTINUES] = continues


@contextmanager
def open_run(
    config: TrackingConfig, name: str, run_id: str = "", kind: str = "fit", key: str = ""
) -> Iterator[TrackedRun]:
    """Yields an open run and closes it as finished, failed or killed.

    Args:
        config: where, and whether at all.
        name: of the run.
        run_id: of a run to reopen; "" = a new one.
        kind: of the work, as a tag: "fit", "update", "monitor", "backtest" or "sweep".
        key: a run with the same key is reopened.
    """
    tags = {"kind": kind}
    if key:
        tags[_KEY] = hashlib.sha256(key.encode()).hexdigest()[:32]
    run = TrackedRun(tracking_uri(config), config.experiment, name, tags)
    if config.enabled:
        run.open(run_id)
        if (opened := opened_runs.get()) is not None:
            opened.append(run)
    try:
        yield run
    except BaseException as error:
        # Ctrl-C and SIGTERM kill, all else fails.
        run.close("KILLED" if isinstance(error, KeyboardInterrupt | SystemExit) else "FAILED")
        raise
    run.close()


def log_artifact(run: TrackedRun, artifact: Artifact[Any], folder: Path, verdict: str) -> None:
    """Logs config, dataset, versions, scores, verdict and the saved files of a fitted model."""
    run.log_params(artifact.plan.model_dump(mode="json"))
    run.log_dataset(artifact.data, artifact.fingerprint, artifact.schema, "training")
    tags = {f"version.{name}": version for name, version in artifact.versions.items()}
    tags |= {"fingerprint": artifact.fingerprint, DIGEST: identity_of(artifact), NOTE: verdict}
    if artifact.parent is not None:
        tags |= {f"parent.{name}": artifact.parent[name] for name in ("fingerprint", "until")}
    if artifact.versions.get("git_commit"):
        tags["mlflow.source.git.commit"] = tags.pop("version.git_commit")
    run.log_tags(tags)
    scores = artifact.metrics.get("validation", {}).get("scores", {})
    run.log_metrics(score_points(scores, "validation"))
    run.log_model(folder)


def log_scores(
    run: TrackedRun, artifact: Artifact[Any], backtest: Backtest | ClassBacktest, verdict: str
) -> None:
    """Logs the settings of a model, the table it was scored on, the scores of a backtest and its verdict."""
    panel = backtest.panel
    run.log_params(artifact.plan.model_dump(mode="json"))
    run.log_dataset(panel.name, panel.fingerprint(), panel.schema, "evaluation")
    run.log_metrics(score_points(backtest.scores, "backtest"))
    run.log_tags({NOTE: verdict})


def score_points(scores: Mapping[str, Mapping[str, float]], stage: str) -> list[Point]:
    """Returns scores by model as metric points: "validation/forecaster/WQL", and again those to see first."""
    mine = scores.get("forecaster", {})
    named = {f"{FIRST}{name}": mine[name] for name in mine if _HEADLINE.fullmatch(name)}
    for model, by_name in scores.items():
        named |= {f"{stage}/{model.replace(' ', '_')}/{name}": by_name[name] for name in by_name}
    now = int(time.time() * 1000)
    return [(name, value, now, 0) for name, value in named.items()]


def identity_of(artifact: Artifact[Any]) -> str:
    """Returns a digest of a model and its scores, equal before and after it is saved."""
    from forecaster.forecast.parts import digest_of

    identity = digest_of(artifact) + json.dumps(artifact.metrics)
    return hashlib.sha256(identity.encode()).hexdigest()


@dataclass
class Synced:
    """The result of a sync."""

    sent: dict[str, int] = field(default_factory=dict)
    """Copied runs by store."""
    away: dict[str, tuple[int, str]] = field(default_factory=dict)
    """Runs not copied, by store, with its error."""
    busy: int = 0
    """Runs that a living process still writes."""
    refused: list[str] = field(default_factory=list)
    """What a store refused, with its reason; it is left out."""


def pending() -> list[Run]:
    """Returns the runs of the local store to copy to another one, oldest first."""
    uri = local_store()
    file = database(uri)
    if file is None or not file.is_file():
        return []
    client = connect(uri)
    ids = [found.experiment_id for found in client.search_experiments()]
    order = ["attributes.start_time"]
    runs = client.search_runs(ids, f"tags.`{_SYNC_TO}` LIKE '%'", order_by=order, max_results=50000)
    return [run for run in runs if _COPIED_TO not in run.data.tags]


def sync(uri: str | None = None) -> Synced:
    """Copies local runs to the store they were meant for; interrupted, it can be repeated.

    Args:
        uri: the store; None = the one that each run was meant for.
    """
    result = Synced()
    for run in pending():
        tags = run.data.tags
        target = uri or tags[_SYNC_TO]
        shown = without_password(target)
        if run.info.status == "RUNNING" and is_gone(tags.get(_PROCESS, "")) is False:
            result.busy += 1
            continue
        count, reason = result.away.get(shown, (0, None))
        if reason is None and (reason := probe(target)) is None:
            try:
                _copy(connect(local_store()), run, connect(target), target, result.refused)
            except Exception as error:  # a store can fail in any way; the run stays in the local one
                reason = first_line(error)
        if reason is None:
            result.sent[shown] = result.sent.get(shown, 0) + 1
        else:
            result.away[shown] = (count + 1, reason)
    return result


def _copy(source: MlflowClient, run: Run, target: MlflowClient, uri: str, refused: list[str]) -> None:
    """Copies a run. A repeated call adds nothing: MLflow keeps equal points, tags and files once."""
    from mlflow.entities import Param, RunTag
    from mlflow.exceptions import MlflowException

    local_id, tags = run.info.run_id, dict(run.data.tags)
    continues, parent = tags.get(_CONTINUES), tags.get(PARENT)
    if parent:  # copied before, if it is a local run
        local_parent = _find(source, parent)
        tags[PARENT] = (
            parent if local_parent is None else local_parent.data.tags.get(_COPIED_TO, parent)
        )
    for name in (_SYNC_TO, _CONTINUES, _PROCESS):
        tags.pop(name, None)
    name = source.get_experiment(run.info.experiment_id).name
    experiment = experiment_id(target, name, uri)
    found = _find(target, continues) if continues else None
    found = found or find_tagged(target, experiment, _COPY_OF, local_id)
    if found is None and _KEY in tags:
        found = find_tagged(target, experiment, _KEY, tags[_KEY])
    if found is None:
        created = tags | {_COPY_OF: local_id}
        found = target.create_run(experiment, run.info.start_time, created, run.info.run_name)
    run_id = found.info.run_id

    def send(method: str, *args: Any, **named: Any) -> None:
        try:
            getattr(target, method)(run_id, *args, **named)
        except MlflowException as error:
            if error.error_code not in _REFUSALS:
                raise
            refused.append(f"{run.info.run_name}: {first_line(error)}")

    send("log_batch", params=[Param(*param) for param in run.data.params.items()])
    send("log_batch", tags=[RunTag(*tag) for tag in tags.items()])
    for metric in run.data.metrics:
        send("log_batch", metrics=source.get_metric_history(local_id, metric))
    if run.inputs and run.inputs.dataset_inputs:
        send("log_inputs", run.inputs.dataset_inputs)
    if source.list_artifacts(local_id):
        with tempfile.TemporaryDirectory() as scratch:
            send("log_artifacts", source.download_artifacts(local_id, "", scratch))
    status = "FAILED" if run.info.status == "RUNNING" else run.info.status  # its process was killed
    send("set_terminated", status, run.info.end_time)
    source.set_tag(local_id, _COPIED_TO, run_id)


def find_tagged(client: MlflowClient, experiment: str, tag: str, value: str) -> Run | None:
    """Returns the oldest run with a tag."""
    order = ["attributes.start_time"]
    runs = client.search_runs([experiment], f"tags.`{tag}` = '{value}'", order_by=order, max_results=1)
    return runs[0] if runs else None


def run_of(client: MlflowClient, digest: str) -> Run | None:
    """Returns the run that fitted the model of a digest; none is known of one fitted without tracking."""
    every = [one.experiment_id for one in client.search_experiments()]
    runs = client.search_runs(every, f"tags.`{DIGEST}` = '{digest}'", max_results=1)
    return runs[0] if runs else None


def _find(client: MlflowClient, run_id: str) -> Run | None:
    from mlflow.exceptions import MlflowException

    try:
        return client.get_run(run_id) if run_id else None
    except MlflowException as error:
        if error.error_code != "RESOURCE_DOES_NOT_EXIST":
            raise
        return None


# The runs of a store as rows of a table.


@dataclass(frozen=True)
class RunRow:
    """A run as a row of a table."""

    run_id: str
    name: str
    experiment: str
    data: str | None
    """Name of its table."""
    kind: str
    """fit, update, monitor, backtest, sweep or trial."""
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
    check_store(tracking_uri(config))
    with opened_store(config) as client:
        names = {found.experiment_id: found.name for found in client.search_experiments()}
        if experiment is not None and experiment not in names.values():
            listed = ", ".join(sorted(names.values()))
            raise ConfigError(f"--experiment {experiment}: there is none; the store has {listed}")
        experiments = [key for key, name in names.items() if experiment in (None, name)]
        kinds = "" if trials else "tags.kind != 'trial'"
        order = ["attributes.start_time DESC"]
        runs = client.search_runs(experiments, kinds, max_results=min(limit, 50_000), order_by=order)
    return [_row(run, names[run.info.experiment_id]) for run in runs]


def _row(run: Run, experiment: str) -> RunRow:
    info, tags, metrics = run.info, run.data.tags, run.data.metrics
    datasets = run.inputs.dataset_inputs if run.inputs else []
    kind = tags.get("kind", "fit")
    stage = "backtest" if kind == "backtest" else "validation"
    return RunRow(
        run_id=info.run_id,
        name=info.run_name,
        experiment=experiment,
        data=datasets[0].dataset.name if datasets else None,
        kind=kind,
        trials=int(tags["trials"]) if tags.get("trials", "").isdigit() else None,
        wql=metrics.get(f"{stage}/forecaster/WQL", metrics.get("best/WQL")),
        skill=metrics.get(f"{stage}/forecaster/skill"),
        when=datetime.fromtimestamp(info.start_time / 1000, UTC).isoformat(timespec="seconds"),
        state="pruned" if tags.get("state") == "pruned" else info.status.lower(),
    )
