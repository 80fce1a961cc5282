"""The task of a batch prediction: what it makes of a table. Forecasts are here, classes in `classification`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, Protocol

from forecaster.errors import DataError
from forecaster.forecast.artifact import Artifact
from forecaster.forecast.forecast import Forecast, none_forecast, outcome
from forecaster.forecast.future import audited
from forecaster.forecast.predictor import Predictor
from forecaster.forecast.result import Predicted
from forecaster.forecast.window import ForecastWindow
from forecaster.panel.findings import Finding
from forecaster.panel.panel import Only, Panel


class Totals(NamedTuple):
    """What a batch prediction wrote."""

    series: int
    rows: int
    lost: tuple[int, str]
    """How many series and channels have nothing predicted, and the most frequent reason."""


class Task(Protocol):
    """What is predicted of each block of series; other processes receive it."""

    def audited(self, panel: Panel, artifact: Any, only: Only) -> tuple[Panel, list[Finding]]:
        """Returns the panel of the series to predict, and findings; raises a DataError for errors."""

    def predict(
        self, artifact: Any, device: str | None = None, lanes: int | None = None
    ) -> Callable[[Panel], Predicted]:
        """Returns the function that predicts the series of a panel; `lanes` = concurrent batches."""

    def terms(self, panel: Panel) -> dict[str, Any]:
        """Returns what was asked for, by its name in messages."""

    def report(self, panel: Panel, totals: Totals, findings: Sequence[Finding]) -> str:
        """Returns one line: how much was predicted, and how many have nothing and why."""

    def none_predicted(self, panel: Panel, totals: Totals) -> DataError | None:
        """Returns the error where nothing was predicted."""


@dataclass(frozen=True)
class ForecastTask:
    """Forecasts of a window."""

    window: ForecastWindow

    def audited(self, panel: Panel, artifact: Artifact, only: Only) -> tuple[Panel, list[Finding]]:
        return audited(panel, artifact, self.window, only)

    def predict(
        self, artifact: Artifact, device: str | None = None, lanes: int | None = None
    ) -> Callable[[Panel], Forecast]:
        return partial(Predictor(artifact, device, lanes).forecast, window=self.window)

    def terms(self, panel: Panel) -> dict[str, Any]:
        window = self.window
        return {
            "cutoff": "own" if window.cutoff is None else panel.calendar.text(window.cutoff),
            "horizon": window.horizon,
            "samples": window.num_samples,
            "seed": window.seed,
            "levels": ", ".join(name for name, _ in window.columns) or None,
        }

    def report(self, panel: Panel, totals: Totals, findings: Sequence[Finding]) -> str:
        rows = totals.rows // (self.window.num_samples or 1)
        cutoffs = self.window.cutoffs(panel)
        return outcome(panel, cutoffs, totals.series, rows, totals.lost, findings)

    def none_predicted(self, panel: Panel, totals: Totals) -> DataError | None:
        leads = self.window.horizon * (self.window.num_samples or 1)
        return none_forecast(panel, totals.lost, totals.rows // leads)
