"""How forecasts and scores came about: what a reader needs to judge them and to make them again."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass, field
from datetime import UTC, datetime

from forecaster.forecast.artifact import Artifact
from forecaster.panel.findings import Finding


@dataclass(frozen=True, repr=False)
class Origin:
    """What was done, with which model, on which table, where and when."""

    artifact: Artifact
    """The model; of several that were fitted on the way, the last."""
    command: str
    """What makes the same scores again, with MODEL and DATA for paths."""
    fingerprint: str
    """Of the table that was scored."""
    findings: tuple[Finding, ...] = ()
    """Of the audit of that table, worst first."""
    validation: bool = False
    """Whether the windows are those that watched a training, not those of a backtest."""
    date: str | None = field(default_factory=lambda: f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC")
    """When it was done; None = not said."""

    @property
    def machine(self) -> str:
        """What it was done on, in words."""
        return (
            f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores, "
            f"Python {platform.python_version()}"
        )
