"""What a search is: everything a worker has to know, as plain data.

What comes in: the caller's options, resolved once. What goes out: one frozen `SweepPlan`, written to a
file for worker processes and read back equal.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from forecaster.config import Config, parse_config

Sampler = Literal["tpe", "gp", "random"]
Pruner = Literal["asha", "hyperband", "none"]
Metric = Literal["WQL", "MASE", "MSE", "MAE", "RMSE", "sMAPE"]

SAMPLERS: tuple[str, ...] = get_args(Sampler)
PRUNERS: tuple[str, ...] = get_args(Pruner)
METRICS: tuple[str, ...] = get_args(Metric)


@dataclass(frozen=True)
class SweepPlan:
    """One search, as JSON could tell it."""

    study: str
    """Name of the study."""
    storage: str
    """Where its trials are kept: path of a journal file, or an address that Optuna takes."""
    source: str
    """The table: path, glob, address, or folder of a store."""
    config: Mapping[str, Any]
    """Settings that every trial starts from, with the horizon and the roles of columns; trial 0 has
    them as they are."""
    space: Mapping[str, Any]
    """The search space, as its YAML file says it."""
    fingerprint: str
    """Of the table until `until`."""
    metrics: tuple[Metric, ...] = ("WQL",)
    """What is made small; several give a Pareto study."""
    trials: int = 50
    """Trials in all: finished, pruned and failed ones, those of earlier calls included."""
    sampler: Sampler = "tpe"
    """Proposes settings."""
    pruner: Pruner = "asha"
    """Stops trials that fall behind; only where there is one metric."""
    seed: int = 0
    """Of the sampler."""
    workers: int = 1
    """Processes on this machine."""
    timeout_seconds: float | None = None
    """No trial begins later than this; None = never too late."""
    until: str | None = None
    """Date after which rows are a holdout that no trial sees."""
    future: str | None = None
    """Table of the covariates known in advance."""
    covariates: str | None = None
    """Second table, joined on series and time."""
    parent_run: str | None = None
    """Id of the tracked run that holds those of the trials; None = nothing is tracked."""

    @property
    def settings(self) -> Config:
        """The config that every trial starts from."""
        return parse_config(self.config, source="config")

    @property
    def identity(self) -> dict[str, str]:
        """What two calls must share to work on one study: by name, short texts to compare and to show.

        How many trials, which sampler and pruner, how long and with how many workers may differ.
        """
        searched = {name: part for name, part in self.config.items() if name != "tracking"}
        return {
            "metric": ", ".join(self.metrics),
            "horizon": str(self.config.get("horizon")),
            "space": _digest(self.space),
            "data": self.fingerprint[:16],
            "until": self.until or "the end of the table",
            "config": _digest(searched),
        }

    def write(self, path: Path) -> None:
        """Writes the plan as JSON."""
        path.write_text(json.dumps(asdict(self), indent=1), encoding="utf-8")


def read_plan(path: Path) -> SweepPlan:
    """Returns the plan that `SweepPlan.write` wrote."""
    told = json.loads(path.read_text(encoding="utf-8"))
    return SweepPlan(**told | {"metrics": tuple(told["metrics"])})


def _digest(told: Mapping[str, Any]) -> str:
    text = json.dumps(told, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
