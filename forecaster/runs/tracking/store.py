"""The MLflow store: where it is, whether it answers, how it is looked at.

What comes in: the tracking section of a config. What goes out: a client, or the reason why there is
none. Promised: a store that is away costs three seconds at most, once.
"""

from __future__ import annotations

import http.client
import logging
import os
import shutil
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

from forecaster.config import TrackingConfig

if TYPE_CHECKING:
    from mlflow.tracking import MlflowClient

_PROBE_SECONDS = 3


def tracking_uri(config: TrackingConfig) -> str:
    """Returns where runs go: the config's store, MLFLOW_TRACKING_URI, or SQLite in this folder."""
    default = f"sqlite:///{Path.cwd() / 'mlflow.db'}"
    return config.uri or os.environ.get("MLFLOW_TRACKING_URI") or default


def where_to_look(uri: str) -> str:
    """Returns what shows the runs of a store: its address, or the shell line that serves it."""
    if uri.startswith("http"):
        return uri
    # In an environment that is not activated the bare name would not be found.
    beside = Path(sys.executable).with_name("forecaster")
    command = "forecaster" if shutil.which("forecaster") or not beside.exists() else str(beside)
    return f"{command} ui" if uri == tracking_uri(TrackingConfig()) else f"{command} ui --uri {uri}"


def artifacts_folder(uri: str) -> Path:
    """Returns where the files of an SQLite store lie: beside it."""
    return Path(uri.removeprefix("sqlite:///")).absolute().parent / "mlartifacts"


def probe(uri: str) -> str | None:
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
        return first_line(getattr(error, "reason", None) or error)


def client_class() -> Any:
    """Returns MLflow's client, quiet: it reports its own migrations and calls home otherwise."""
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    from mlflow.tracking import MlflowClient

    # After the import, which sets levels of its own.
    for name in ("mlflow", "alembic"):
        logging.getLogger(name).setLevel(logging.WARNING)
    return MlflowClient


def experiment_id(client: MlflowClient, name: str, uri: str) -> str:
    """Returns the id of an experiment, made if it is not there; its files lie beside a local store."""
    found = client.get_experiment_by_name(name)
    if found is not None:
        return str(found.experiment_id)
    location = None
    if uri.startswith("sqlite:///"):
        # MLflow's own default is relative to whatever folder a process happens to run in.
        location = str(artifacts_folder(uri))
    return str(client.create_experiment(name, artifact_location=location))


def first_line(error: object) -> str:
    """Returns what an error says, in one line."""
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0]
