"""The folder of a saved model: its file names, and checks that load nothing heavy."""

from __future__ import annotations

from pathlib import Path

from forecaster.errors import ArtifactError
from forecaster.files import check_replaceable

CONTRACT, PLAN, METRICS = "contract.json", "plan.json", "metrics.json"
LOSSES, FORECAST, REPORT = "loss.png", "forecast.png", "report.html"
"""Names of the pictures and the page that a fit adds to its model."""
FILES = (
    r"(contract|plan|config|metrics)\.json|(member-\d+|calibration|series)\.safetensors|card\.md"
    rf"|{LOSSES}|{FORECAST}|{REPORT}"
)
"""Pattern of the names in the folder of a model, those of format 1 included."""


def check_target(path: Path, overwrite: bool) -> None:
    """Raises before a fit what saving to `path` would raise after it.

    Raises:
        OutputError: the folder cannot be written, holds something else, or is there already.
    """
    check_replaceable(path, CONTRACT, holds=FILES, overwrite=overwrite)


def check_saved(folder: Path, name: str = CONTRACT) -> None:
    """Raises ArtifactError unless a folder holds a file of a saved model."""
    if not (folder / name).exists():
        found = f"{name} is missing"
        if not folder.is_dir():
            found = "it is a file" if folder.is_file() else "there is no such folder"
        raise ArtifactError(
            f"{folder}: not a saved model: {found}; expected a folder written by forecaster fit --out"
        )
