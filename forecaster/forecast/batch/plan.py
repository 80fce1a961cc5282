"""What a batch forecast is made of, so that any process anywhere can make any part of it.

What comes in: a model, a panel, and what was asked of every series. What goes out: a `Plan`, which is
plain JSON, and the terms that all parts of one result agree on. Series in the panel's order, which is
that of their keys, form blocks of `BLOCK`; a part holds one block.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

from forecaster.config import config_from
from forecaster.forecast.ahead import BLOCK, Task
from forecaster.forecast.artifact import Artifact, load_artifact
from forecaster.forecast.paths import Draws
from forecaster.forecast.predictor import Predictor
from forecaster.panel.build import open_panel
from forecaster.panel.panel import Panel


@dataclass(frozen=True)
class Plan:
    """All that a process needs to make parts."""

    parts: str
    """Folder of the parts."""
    task: Task
    """What is asked of every series."""
    n_series: int
    """Of the whole panel."""
    model: str = ""
    """Folder of the model, where other processes are to load it."""
    store: str = ""
    """Folder of the panel as a store, where other processes are to open it."""
    roles: Mapping[str, Any] = field(default_factory=dict)
    """What was said of the table's columns and of how it is read."""

    @property
    def n_blocks(self) -> int:
        """Parts of the whole result."""
        return -(-self.n_series // BLOCK)

    def series_of(self, number: int) -> tuple[int, int]:
        """Returns the first series of a block, and the one after its last."""
        return number * BLOCK, min((number + 1) * BLOCK, self.n_series)

    def to_json(self) -> str:
        """Returns the plan as text."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Plan:
        """Returns the plan that `to_json` wrote."""
        told = json.loads(text)
        task = told.pop("task")
        return cls(**told, task=Task(**(task | {"draws": Draws(**task["draws"])})))

    def opened(self, device: str = "cpu", lanes: int | None = None) -> tuple[Predictor, Panel]:
        """Returns the model on a device and the panel, in a process that has neither.

        Args:
            device: as torch names it.
            lanes: batches worked on at a time; None = as many as there are cores.
        """
        artifact = load_artifact(self.model)
        panel = open_for(artifact, self.store, None, None, self.roles)
        return Predictor(artifact, device, lanes), panel


def open_for(
    artifact: Artifact,
    data: object,
    future: object | None,
    covariates: object | None,
    roles: Mapping[str, Any],
) -> Panel:
    """Returns a table opened with a model's roles, categories and frequency.

    Args:
        artifact: the model.
        data: path, glob, frame or store.
        future: covariates known in advance.
        covariates: a second table, joined on series and time.
        roles: columns that are called otherwise in this table, in the model's order.
    """
    told = config_from(None, None, roles).data
    schema = artifact.schema.renamed(told)
    # What the fit was told holds, unless this table is said to be written otherwise.
    reading = artifact.config.replaced(data=told.model_dump(include=set(roles))).data
    return open_panel(data, reading, schema=schema, covariates=covariates, future=future)


def terms(artifact: Artifact, panel: Panel, task: Task, device: str) -> dict[str, Any]:
    """Returns what two parts of one result have to agree on, by the name it has in messages.

    Args:
        artifact: the model.
        panel: all series.
        task: what is asked of each.
        device: what kind forecasts them; another rounds otherwise.
    """
    text = panel.calendar.text
    return {
        "format": 1,
        "model": digest_of(artifact),
        "data": _digest(panel.fingerprint(), _without_reasons(panel)),
        "series": panel.n_series,
        "block": BLOCK,
        "cutoff": "own" if task.cutoff is None else text(task.cutoff),
        "horizon": task.horizon,
        "samples": task.draws.samples,
        "seed": task.draws.seed,
        "device": torch.device(device).type,
        "torch": torch.__version__,
    }


def digest_of(artifact: Artifact) -> str:
    """Returns a sha256 of all of a model that its forecasts depend on."""
    digest = hashlib.sha256()
    for name, weight in sorted(artifact.ensemble.state_dict().items()):
        digest.update(name.encode())
        digest.update(weight.detach().cpu().contiguous().numpy().tobytes())
    settings = artifact.config.model_dump(mode="json")
    columns = artifact.schema.to_dict() | {"reasons": None}
    made_of = {name: settings[name] for name in ("model", "target")}
    said = (artifact.ensemble.weights, asdict(artifact.shape), made_of, columns)
    digest.update(_digest(*said).encode())
    return digest.hexdigest()


def _without_reasons(panel: Panel) -> dict[str, Any]:
    return panel.schema.to_dict() | {"reasons": None}


def _digest(*parts: Any) -> str:
    text = json.dumps(parts, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def folder_of(out: Path) -> Path:
    """Returns where the parts of a file lie."""
    return out.with_name(f"{out.name}.parts")
