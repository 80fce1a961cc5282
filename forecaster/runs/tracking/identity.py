"""Which run is meant, whatever a store calls it: found again by a key of our own, or made.

What comes in: an `Identity`. What goes out: the store's run id. Promised: a key has one run, however
often and from however many processes it is asked for, also when the process that made it was killed
before it could note the id.
"""

from __future__ import annotations

import hashlib
import time
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

from forecaster.runs.tracking.store import experiment_id

if TYPE_CHECKING:
    from mlflow.tracking import MlflowClient

KEY = "forecaster.key"
"""Tag that holds a run's key."""
PARENT = "mlflow.parentRunId"
"""Tag by which MLflow nests runs."""


@dataclass(frozen=True)
class Identity:
    """A run before, and beside, the store's own id for it."""

    name: str
    """What people read."""
    experiment: str
    """It lies in."""
    key: str = field(default_factory=lambda: uuid4().hex)
    """Unlike any other run's."""
    started: int = field(default_factory=lambda: int(time.time() * 1000))
    """Milliseconds since 1970."""
    tags: dict[str, str] = field(default_factory=dict)
    """That it has from the beginning."""
    parent: Identity | None = None
    """The run that this one is nested in."""

    def to_dict(self) -> dict[str, Any]:
        """Returns what `read` takes."""
        return asdict(self)

    @classmethod
    def known(cls, key: str, name: str, experiment: str, tags: dict[str, str]) -> Identity:
        """Returns the identity of a run with a key, or of a new one where that is ""."""
        new = cls(name, experiment, tags=tags)
        return replace(new, key=key) if key else new

    @classmethod
    def read(cls, told: dict[str, Any]) -> Identity:
        """Returns the identity that `to_dict` wrote."""
        parent = told.get("parent")
        return cls(**{**told, "parent": None if parent is None else cls.read(parent)})


def sweep_identity(experiment: str, study: str, storage: str) -> Identity:
    """Returns the parent run of a study: the same one from every process that names it so.

    Args:
        experiment: MLflow's.
        study: name of the study.
        storage: where the study is kept; a password in it is left out.
    """
    place = without_password(storage)
    key = hashlib.sha256(f"{study}\n{place}".encode()).hexdigest()[:32]
    return Identity(study, experiment, key, tags={"kind": "sweep", "study": study, "storage": place})


def found_run(client: MlflowClient, experiment: str, key: str) -> str | None:
    """Returns the id of the run with a key, the oldest where two processes made one at a time."""
    runs = client.search_runs(
        [experiment], f"tags.`{KEY}` = '{key}'", order_by=["attributes.start_time"], max_results=10
    )
    return min(((run.info.start_time, run.info.run_id) for run in runs), default=(0, None))[1]


def ensured_run(client: MlflowClient, identity: Identity, uri: str, fresh: bool = False) -> str:
    """Returns the id of a run, made if it is not there.

    Args:
        client: of the store.
        identity: whose run.
        uri: of the store.
        fresh: nobody has asked for this key before.
    """
    experiment = experiment_id(client, identity.experiment, uri)
    found = None if fresh else found_run(client, experiment, identity.key)
    if found is not None:
        return found
    tags = {
        "mlflow.source.name": "forecaster",
        "mlflow.source.type": "LOCAL",
        **identity.tags,
        KEY: identity.key,
    }
    if identity.parent is not None:
        tags[PARENT] = ensured_run(client, identity.parent, uri)
    made = client.create_run(experiment, identity.started, tags, identity.name).info.run_id
    if fresh:
        return str(made)
    kept = found_run(client, experiment, identity.key) or made
    if kept != made:  # another process was quicker
        client.delete_run(made)
    return str(kept)


def known_points(client: MlflowClient, run_id: str) -> frozenset[tuple[str, int]]:
    """Returns names and steps of the points that a run has."""
    names = client.get_run(run_id).data.metrics
    return frozenset(
        (name, point.step) for name in names for point in client.get_metric_history(run_id, name)
    )


def without_password(address: str) -> str:
    """Returns an address that may be shown."""
    if "://" not in address or "@" not in address:
        return address
    parts = urlsplit(address)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
