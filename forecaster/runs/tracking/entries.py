"""What is logged, one entry at a time: plain data that can be sent at once, or kept and sent later.

What comes in: settings, points, tables, pictures. What goes out: an `Entry`, which JSON can hold, and
the calls that hand it to a store. Promised: an entry that arrives twice changes nothing — MLflow keeps
equal points, parameters, tags and files once.

    {"params": {"fit.steps": "20"}}
    {"metrics": [["train_loss", 0.31, 1767225600000, 10]]}     name, value, milliseconds, step
    {"tags": {"fingerprint": "..."}}
    {"dataset": {"name": ..., "digest": ..., "context": ...}}
    {"files": "/a/folder", "to": "model"}                      a folder's files, under a name or on top
    {"status": "FINISHED", "at": 1767225600000}                RUNNING opens a run again
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from forecaster.panel.schema import Schema

if TYPE_CHECKING:
    from mlflow.tracking import MlflowClient

Entry = dict[str, Any]
"""One thing to record, under the name of its kind."""
Point = tuple[str, float, int, int]
"""Name, value, milliseconds since 1970, step."""

_PARAM_LENGTH = 500  # some stores refuse longer values
_TAG_LENGTH = 5000
_BATCH = 100  # parameters, tags, and a tenth of the points, that every store takes in one call


def params_entry(settings: Mapping[str, Any]) -> Entry:
    """Returns nested settings as dotted parameters."""
    return {"params": {key: str(value)[:_PARAM_LENGTH] for key, value in _flatten(settings)}}


def dataset_entry(name: str, fingerprint: str, schema: Schema, context: str) -> Entry:
    """Returns a table by fingerprint and roles."""
    roles = json.dumps({"roles": {column: role for column, role, *_ in schema.rows()}})
    # A store keeps the first dataset of a digest: other roles of the same content need another one.
    told = hashlib.sha256(roles.encode()).hexdigest()
    return {
        "dataset": {
            "name": Path(name).name,
            "digest": f"{fingerprint[:16]}-{told[:8]}",
            "source_type": "local",
            "source": json.dumps({"uri": name}),
            "schema": roles,
            "profile": json.dumps({"fingerprint": fingerprint}),
        },
        "context": context,
    }


def send(client: MlflowClient, run_id: str, entry: Entry) -> None:
    """Hands an entry to a store."""
    from mlflow.entities import Dataset, DatasetInput, InputTag, Metric, Param, RunTag

    match entry:
        case {"params": told}:
            for some in _parts([Param(*param) for param in told.items()], _BATCH):
                client.log_batch(run_id, params=some)
        case {"metrics": told}:
            for some in _parts([Metric(*point) for point in told], 10 * _BATCH):
                client.log_batch(run_id, metrics=some)
        case {"tags": told}:
            tags = [RunTag(name, str(value)[:_TAG_LENGTH]) for name, value in told.items()]
            for some in _parts(tags, _BATCH):
                client.log_batch(run_id, tags=some)
        case {"dataset": told, "context": context}:
            used_for = [InputTag("mlflow.data.context", context)]
            client.log_inputs(run_id, [DatasetInput(Dataset(**told), used_for)])
        case {"files": folder, "to": name}:
            client.log_artifacts(run_id, str(folder), name)
        case {"status": "RUNNING"}:
            client.update_run(run_id, status="RUNNING")
        case {"status": status, "at": at}:
            client.set_terminated(run_id, status, at)


def _parts(things: list[Any], size: int) -> list[list[Any]]:
    return [things[start : start + size] for start in range(0, len(things), size)]


def _flatten(settings: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    flat: list[tuple[str, Any]] = []
    for key, value in settings.items():
        if isinstance(value, Mapping):
            flat += _flatten(value, f"{prefix}{key}.")
        else:
            flat.append((f"{prefix}{key}", value))
    return flat
