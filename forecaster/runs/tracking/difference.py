"""How two runs differ: in data, config, versions, scores.

What comes in: two runs of a store. What goes out: a line per thing that is not equal. Promised: what is
not listed is equal.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from forecaster.config import TrackingConfig
from forecaster.runs.tracking.listing import find_run, opened_store

if TYPE_CHECKING:
    from mlflow.entities import Run

Part = Literal["data", "config", "versions", "scores"]
PARTS: tuple[Part, ...] = ("data", "config", "versions", "scores")


@dataclass(frozen=True)
class Difference:
    """One thing in which two runs differ."""

    part: Part
    name: str
    first: str | float | None
    """Of the first run; None = it has none."""
    second: str | float | None
    """Of the second."""

    @property
    def change(self) -> float | None:
        """Second − first, of scores that both have."""
        if isinstance(self.first, float) and isinstance(self.second, float):
            return self.second - self.first
        return None


@dataclass(frozen=True)
class Comparison:
    """Two runs side by side."""

    names: tuple[str, str]
    """Id and name of each."""
    differences: tuple[Difference, ...]
    """In the order of `PARTS`."""


def compare_runs(config: TrackingConfig, first: str, second: str) -> Comparison:
    """Returns how two runs differ.

    Args:
        config: where the store is.
        first: id, beginning of an id, or name of a run.
        second: of the other.

    Raises:
        ConfigError: the store does not answer, or a run is not known, or several are meant.
    """
    with opened_store(config) as client:
        runs = [find_run(client, word) for word in (first, second)]
    one, other = (_parts(run) for run in runs)
    found = [
        Difference(part, name, one[part].get(name), other[part].get(name))
        for part in PARTS
        for name in {**one[part], **other[part]}
        if one[part].get(name) != other[part].get(name)
    ]
    a, b = (f"{run.info.run_id[:8]} {run.info.run_name}" for run in runs)
    return Comparison((a, b), tuple(found))


def _parts(run: Run) -> Mapping[Part, dict[str, Any]]:
    tags, metrics = run.data.tags, run.data.metrics
    versions = {name: tags[name] for name in sorted(tags) if name.startswith("version.")}
    versions = {name.removeprefix("version."): version for name, version in versions.items()}
    if "mlflow.source.git.commit" in tags:
        versions["git commit"] = tags["mlflow.source.git.commit"]
    return {
        "data": _data(run),
        "config": dict(sorted(run.data.params.items())),
        "versions": versions,
        # Others are ends of curves: they depend on when a fit was stopped.
        "scores": {name: float(metrics[name]) for name in sorted(metrics) if "/" in name},
    }


def _data(run: Run) -> dict[str, Any]:
    told: dict[str, Any] = {}
    for entry in run.inputs.dataset_inputs if run.inputs else []:
        dataset = entry.dataset
        told["table"] = dataset.name
        told["fingerprint"] = run.data.tags.get("fingerprint", dataset.digest)[:16]
        roles = json.loads(dataset.schema or "{}").get("roles", {})
        told |= {f"column {column}": role for column, role in roles.items()}
    if "parent.fingerprint" in run.data.tags:
        told["started from weights fitted to"] = run.data.tags["parent.fingerprint"][:16]
    return told
