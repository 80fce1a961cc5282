"""The page about a fit or a backtest: what it is told beside forecasts and truth.

What comes in: what was done and found. What goes out: a `Backtest` that knows how it came about, or the
page of a fit's validation windows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from forecaster.evaluation.backtest import Backtest, score_forecasts
from forecaster.evaluation.report.origin import Origin
from forecaster.evaluation.report.page import page_of
from forecaster.evaluation.rivals import CHEAP
from forecaster.forecast.artifact import Artifact
from forecaster.forecast.forecast import Forecast
from forecaster.panel.findings import Finding
from forecaster.panel.panel import Panel

REPORT = "report.html"
"""What the page is called in a model's folder and among a run's files."""


def validation_page(
    artifact: Artifact,
    panel: Panel,
    findings: Sequence[Finding],
    said: Sequence[Mapping[str, Forecast]],
) -> str | None:
    """Returns the page about the validation windows of a fit; None where there were none.

    Args:
        artifact: what was fitted.
        panel: what it was fitted to.
        findings: of the audit.
        said: by model, the forecasts of the validation windows.
    """
    if not said:
        return None
    command = f"forecaster fit {_name(panel)} --config config.yaml --out MODEL"
    # No date: the folder of a model that was resumed is that of one that was not, byte by byte.
    origin = Origin(artifact, command, panel.fingerprint(), tuple(findings), validation=True, date=None)
    # Baselines that cost something are left to backtests.
    return page_of(replace(score_forecasts(said, CHEAP), origin=origin))


def with_origin(
    backtest: Backtest, artifact: Artifact, panel: Panel, findings: Sequence[Finding], options: str
) -> Backtest:
    """Returns a backtest that knows how it came about.

    Args:
        backtest: as scored.
        artifact: what forecast its last cutoff.
        panel: the whole table.
        findings: of the audit.
        options: what to tell the command beside model and table.
    """
    command = f"forecaster backtest MODEL {_name(panel)} {options}"
    return replace(backtest, origin=Origin(artifact, command, panel.fingerprint(), tuple(findings)))


def _name(panel: Panel) -> str:
    return Path(panel.name).name if panel.kind == "file" else "DATA"
