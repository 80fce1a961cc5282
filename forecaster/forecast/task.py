"""The task of a batch prediction: what it makes of a table. Forecasts are here, classes in `classification`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from forecaster.errors import DataError
from forecaster.forecast.artifact import Artifact
from forecaster.forecast.forecast import none_forecast, outcome
from forecaster.forecast.future import audited
from forecaster.forecast.predictor import Predictor
from forecaster.forecast.result import Predicted
from forecaster.forecast.runner import blocks_of
from forecaster.forecast.totals import TotalRequest, totals_of
from forecaster.forecast.what_if import WhatIf, check_names, compared
from forecaster.forecast.window import ForecastWindow, check_samples
from forecaster.panel.findings import Finding
from forecaster.panel.known import Change
from forecaster.panel.panel import Only, Panel

if TYPE_CHECKING:
    from forecaster.panel.tree import HierarchyRequest


class BatchCounts(NamedTuple):
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

    def rows(self, panel: Panel) -> int:
        """Returns the number of rows as far as it is known before the work; 0 = unknown."""
        return 0

    def terms(self, panel: Panel) -> dict[str, Any]:
        """Returns what was asked for, by its name in messages."""

    def report(self, panel: Panel, totals: BatchCounts, findings: Sequence[Finding]) -> str:
        """Returns one line: how much was predicted, and how many have nothing and why."""

    def none_predicted(self, panel: Panel, totals: BatchCounts) -> DataError | None:
        """Returns the error where nothing was predicted."""

    def indivisible(self, panel: Panel) -> str:
        """Returns why blocks of series cannot be predicted apart; else nothing."""
        return ""


@dataclass(frozen=True)
class ForecastTask(Task):
    """Forecasts of a window."""

    window: ForecastWindow

    def audited(self, panel: Panel, artifact: Artifact, only: Only) -> tuple[Panel, list[Finding]]:
        return audited(panel, artifact, self.window, only)

    def predict(
        self, artifact: Artifact, device: str | None = None, lanes: int | None = None
    ) -> Callable[[Panel], Predicted]:
        return partial(self.made, Predictor(artifact, device, lanes))

    def made(self, predictor: Predictor, panel: Panel) -> Predicted:
        """Returns what is predicted of the series of a panel."""
        return predictor.forecast(panel, self.window)

    def rows(self, panel: Panel) -> int:
        return int(panel.present.sum()) * self.window.horizon * (self.window.num_samples or 1)

    def terms(self, panel: Panel) -> dict[str, Any]:
        window = self.window
        return {
            "cutoff": "own" if window.cutoff is None else panel.calendar.text(window.cutoff),
            "horizon": window.horizon,
            "samples": window.num_samples,
            "seed": window.seed,
            "levels": ", ".join(name for name, _ in window.columns) or None,
            "fill-known": window.fill,
        }

    def report(self, panel: Panel, totals: BatchCounts, findings: Sequence[Finding]) -> str:
        rows = totals.rows // (self.window.num_samples or 1)
        cutoffs = self.window.cutoffs(panel)
        return outcome(panel, cutoffs, totals.series, rows, totals.lost, findings)

    def none_predicted(self, panel: Panel, totals: BatchCounts) -> DataError | None:
        leads = self.window.horizon * (self.window.num_samples or 1)
        return none_forecast(panel, totals.lost, totals.rows // leads)


@dataclass(frozen=True)
class PathTask(ForecastTask):
    """What is made of the sample paths of a window, which are never kept."""

    samples: int
    """Paths of each series."""

    def audited(self, panel: Panel, artifact: Artifact, only: Only) -> tuple[Panel, list[Finding]]:
        check_samples(self.samples)
        panel, findings = super().audited(panel, artifact, only)
        self.check(panel, findings)
        return panel, findings

    def check(self, panel: Panel, findings: Sequence[Finding]) -> None:
        """Refuses a table, of which an audit has findings, that does not suit what is made."""

    def drawn_window(self, predictor: Predictor) -> ForecastWindow:
        """Returns the window; an autoregressive decoder draws with the forecast, not after."""
        if predictor.artifact.plan.model.decoder != "autoregressive":
            return self.window
        return replace(self.window, num_samples=self.samples)

    def rows(self, panel: Panel) -> int:
        return 0

    def terms(self, panel: Panel) -> dict[str, Any]:
        return super().terms(panel) | {"samples": self.samples}

    def none_predicted(self, panel: Panel, totals: BatchCounts) -> DataError | None:
        return none_forecast(panel, totals.lost, int(panel.present.sum()))


@dataclass(frozen=True)
class TotalTask(PathTask):
    """Totals of the forecasts of a window."""

    request: TotalRequest

    def check(self, panel: Panel, findings: Sequence[Finding]) -> None:
        self.request.check(panel, findings)

    def made(self, predictor: Predictor, panel: Panel) -> Predicted:
        window = self.drawn_window(predictor)
        forecasts = (predictor.forecast(part, window) for part in blocks_of(panel))
        return totals_of(panel, forecasts, self.request, self.samples, window.seed)

    def terms(self, panel: Panel) -> dict[str, Any]:
        return super().terms(panel) | asdict(self.request)

    def indivisible(self, panel: Panel) -> str:
        if self.request.within_series(panel):
            return ""
        return f"--sum {self.request.period} adds up series of several parts"


@dataclass(frozen=True)
class WhatIfTask(PathTask):
    """Forecasts of a window as the table is and with changes, or their totals."""

    changes: tuple[Change, ...]
    request: TotalRequest | None = None

    def audited(self, panel: Panel, artifact: Artifact, only: Only) -> tuple[Panel, list[Finding]]:
        for change in self.changes:
            change.check(panel.schema)
        return super().audited(panel, artifact, only)

    def check(self, panel: Panel, findings: Sequence[Finding]) -> None:
        check_names(panel, self.request, findings)

    def made(self, predictor: Predictor, panel: Panel) -> WhatIf[Any]:
        window = self.drawn_window(predictor)
        base, changed = (
            predictor.whole(panel, replace(window, changes=changes)) for changes in ((), self.changes)
        )
        found = compared(base, changed, self.changes, self.samples, window.seed)
        if (request := self.request) is None:
            return found
        return found.total(request.period, request.by, partial=request.partial)

    def terms(self, panel: Panel) -> dict[str, Any]:
        asked = {} if self.request is None else asdict(self.request)
        changes = ", ".join(map(str, self.changes))
        return super().terms(panel) | asked | {"what-if": changes}

    def indivisible(self, panel: Panel) -> str:
        return "--what-if forecasts the whole table twice, and writes both beside their difference"


@dataclass(frozen=True)
class HierarchyTask(PathTask):
    """Reconciled forecasts of the nodes of a hierarchy."""

    request: HierarchyRequest

    def check(self, panel: Panel, findings: Sequence[Finding]) -> None:
        self.request.check(panel, findings, self.window.cutoffs(panel))

    def made(self, predictor: Predictor, panel: Panel) -> Predicted:
        from forecaster.forecast.hierarchy import hierarchy_of  # it loads scipy's sparse matrices

        window = self.drawn_window(predictor)
        forecast = predictor.whole(panel, window)
        found = hierarchy_of(forecast, self.request, self.samples, window.seed)
        return replace(found, nodes=replace(found.nodes, paths=None))

    def terms(self, panel: Panel) -> dict[str, Any]:
        return super().terms(panel) | {"hierarchy": str(self.request.spec)}

    def indivisible(self, panel: Panel) -> str:
        return "--hierarchy reconciles the series of all parts"

    def report(self, panel: Panel, totals: BatchCounts, findings: Sequence[Finding]) -> str:
        line = super().report(panel, totals, findings)
        return line.replace(" series,", " nodes,", 1)
