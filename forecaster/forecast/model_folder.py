"""The folder of a saved model: its file names, and checks that load nothing heavy."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from forecaster.config import DataConfig, Plan, config_from, parse_plan
from forecaster.errors import ArtifactError, ConfigError, ForecasterError, is_count
from forecaster.files import check_replaceable

if TYPE_CHECKING:
    from forecaster.panel.panel import Only, Panel

CONTRACT, PLAN, METRICS = "contract.json", "plan.json", "metrics.json"
LOSSES, FORECAST, REPORT = "loss.png", "forecast.png", "report.html"
"""Names of the pictures and the page that a fit adds to its model."""
_PARTS = r"(contract|plan|metrics)\.json|(member-\d+|errors|series|effects)\.safetensors"
FILES = rf"{_PARTS}|card\.md|{LOSSES}|{FORECAST}|{REPORT}"
"""Pattern of the names in the folder of a model."""

_SMALL = 1 << 26
"""Bytes of a file that is read in about the time that torch takes to load."""


def check_target(path: Path, overwrite: bool) -> None:
    """Raises before a fit what saving to `path` would raise after it.

    Raises:
        OutputError: the folder cannot be written, holds something else, or is there already.
    """
    check_replaceable(path, CONTRACT, holds=FILES, overwrite=overwrite)


def is_model(path: str) -> bool:
    """Whether a path names a model, a damaged one too; all other paths are those of tables."""
    folder = Path(path)
    return path.startswith("models:/") or (
        folder.is_dir() and any(re.fullmatch(_PARTS, file.name) for file in folder.iterdir())
    )


def check_saved(folder: Path, name: str = CONTRACT) -> None:
    """Raises ArtifactError unless a folder holds a file of a saved model."""
    if not (folder / name).exists():
        found = f"{name} is missing"
        if not folder.is_dir():
            found = "it is a file" if folder.is_file() else "there is no such folder"
        raise ArtifactError(
            f"{folder}: not a saved model: {found}; expected a folder written by forecaster fit --out"
        )


def reading_with(fitted: DataConfig, roles: Mapping[str, Any]) -> DataConfig:
    """Returns how a table is read: as that of the fit was, unless `roles` declare otherwise."""
    declared = config_from(None, None, roles).data
    return fitted.model_copy(update={name: getattr(declared, name) for name in roles})


def check_leads(plan: Plan, wanted: int) -> None:
    """Raises ConfigError where a model forecasts fewer steps."""
    trained = plan.horizon
    if plan.model.decoder != "autoregressive" and not (is_count(wanted) and wanted <= trained):
        hint = (
            f"; fit one with --horizon {wanted} to reach further, or with model.decoder autoregressive"
        )
        raise ConfigError(
            f"horizon {wanted!r}: this model forecasts 1 to {trained} steps{hint * is_count(wanted)}"
        )


def early_panel(
    folder: Path,
    data: object,
    *,
    only: Only,
    cutoff: str,
    horizon: int | None,
    roles: Mapping[str, Any],
    **others: Any,
) -> Panel | None:
    """Returns the panel of a small table, once horizon, series and cutoff suit a saved model.

    None: a large table, a classifier, or a folder whose fault is found when it is loaded.

    Raises:
        ConfigError: the horizon is too long for the model.
        DataError: the table does not fit the model, has no such series, or ends before the cutoff.
    """
    try:
        contract, settings = (json.loads((folder / name).read_bytes()) for name in (CONTRACT, PLAN))
    except (OSError, ValueError):
        return None

    from forecaster.panel.build import open_panel
    from forecaster.panel.schema import Schema
    from forecaster.panel.store import is_store

    try:
        schema, plan = Schema.from_dict(contract["columns"]), parse_plan(settings, PLAN)
    except (KeyError, TypeError, ValueError, ForecasterError):
        return None
    if schema.label is not None:
        return None
    check_leads(plan, plan.horizon if horizon is None else horizon)
    file = Path(str(data))
    if is_store(data) or not file.is_file() or file.stat().st_size > _SMALL:
        return None
    schema = schema.renamed(config_from(None, None, roles).data)
    panel = open_panel(data, reading_with(plan.data, roles), schema=schema, **others)
    panel.only(only)
    panel.cutoff_at(cutoff)
    return panel
