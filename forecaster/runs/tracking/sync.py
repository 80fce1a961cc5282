"""What waits for its store is sent: exactly once, and in the order in which it was logged.

What comes in: the spool. What goes out: runs in a store, with the times at which they ran and under
their parents. Promised: a run has one copy in a store, and a point one place, however often sending was
cut off and begun again; only what has arrived is removed.

At the worst, sending is cut off between an entry's arrival and the note of it; that entry is then sent
twice, and MLflow keeps equal points, parameters, tags and files once.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from forecaster.runs.tracking.entries import send
from forecaster.runs.tracking.identity import ensured_run, without_password
from forecaster.runs.tracking.spool import Waiting, spool_folder, waiting
from forecaster.runs.tracking.store import client_class, first_line, probe

if TYPE_CHECKING:
    from mlflow.tracking import MlflowClient

_REFUSALS = {"INVALID_PARAMETER_VALUE", "RESOURCE_ALREADY_EXISTS", "BAD_REQUEST"}


@dataclass
class Synced:
    """What became of a sync."""

    sent: dict[str, int] = field(default_factory=dict)
    """Runs that arrived, by store."""
    away: dict[str, tuple[int, str]] = field(default_factory=dict)
    """Runs still waiting for a store, and why it did not take them."""
    busy: int = 0
    """Runs that a living process still writes."""
    refused: list[str] = field(default_factory=list)
    """Entries that a store answered and will never take, with its reason."""


def pending(base: Path | None = None) -> int:
    """Returns how many runs wait in the working directory."""
    return len(waiting(spool_folder() if base is None else base))


def sync(uri: str | None = None, base: Path | None = None) -> Synced:
    """Sends what waits, and removes what has arrived.

    Args:
        uri: the store; None = the one each run was meant for.
        base: the spool; None = that of the working directory.
    """
    base = spool_folder() if base is None else base
    result = Synced()
    stores: dict[str, Any] = {}
    for run in waiting(base):
        target = uri or run.uri
        if target not in stores:
            stores[target] = probe(target) or client_class()(tracking_uri=target)
        with run.claimed() as mine:
            if not mine:
                result.busy += 1
                continue
            if not isinstance(stores[target], str):
                try:
                    _send(stores[target], run, target, result)
                except Exception as error:  # a store can fail in any way; what it did not take stays
                    stores[target] = first_line(error)
            shown = without_password(target)
            if isinstance(stores[target], str):
                count, _ = result.away.get(shown, (0, ""))
                result.away[shown] = (count + 1, stores[target])
            else:
                run.remove()
                result.sent[shown] = result.sent.get(shown, 0) + 1
    if base.is_dir() and not any(base.iterdir()):
        base.rmdir()
    return result


def _send(client: MlflowClient, run: Waiting, uri: str, result: Synced) -> None:
    run_id = ensured_run(client, run.identity, uri)
    entries, begun = run.entries(), run.sent()
    for number, entry in enumerate(entries):
        if number < begun:
            continue
        try:
            send(client, run_id, entry)
        except Exception as error:
            if getattr(error, "error_code", None) not in _REFUSALS:
                raise
            result.refused.append(f"{run.identity.name}: {first_line(error)}")
        run.note_sent(number + 1)
    is_sweep = run.identity.tags.get("kind") == "sweep"
    if not is_sweep and not any("status" in entry for entry in entries):
        # Its process was killed: nobody else will ever close it.
        send(client, run_id, {"status": "FAILED", "at": int(time.time() * 1000)})
