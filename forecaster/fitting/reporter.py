"""What a fit reports while it runs."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

from forecaster.config import FitPlan
from forecaster.evaluation.backtest import Backtest
from forecaster.forecast.artifact import Artifact
from forecaster.model.transfer import Part
from forecaster.panel.panel import Panel
from forecaster.windows.split import Split


class Reporter:
    """Receives the reports of a fit; this one is silent."""

    def notice(self, text: str) -> None:
        """Reports a line."""

    def stage(self, doing: str) -> AbstractContextManager[None]:
        """Reports what is done inside, and its seconds, where it takes some."""
        return nullcontext()

    def warm_start(self, panel: Panel, split: Split, old: Artifact, parts: list[Part]) -> None:
        """Reports, before the first training, what of the artifact it starts from is carried over."""

    def budget(self, fit: FitPlan) -> None:
        """Reports, before the first training, the steps that the time budget allows on this machine."""

    def validation(self, backtest: Backtest) -> None:
        """Reports the forecasts of the validation windows and their scores."""

    def held_out(self, artifact: Artifact, panel: Panel, split: Split) -> None:
        """Reports the model before its experts are solved on all rows, and which windows it has not seen."""


SILENT = Reporter()
