"""Forecasts of any origin beside a model's, or without one, over the same cells.

Axes: N window (a series at one cutoff) · n row · H lead · C channel · Q quantile level.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from forecaster.config import ModelConfig
from forecaster.errors import ConfigError, DataError
from forecaster.evaluation.backtest import (
    NO_FORECAST,
    Backtest,
    actual_of,
    other_forecast,
    score_forecasts,
)
from forecaster.evaluation.comparison import EXPERT_OF, MODEL, shared_actual
from forecaster.forecast.bands import further_levels
from forecaster.forecast.forecast import Forecast
from forecaster.panel.arrays import Floats
from forecaster.panel.findings import Finding
from forecaster.panel.forecast_rows import OtherForecasts
from forecaster.panel.panel import NO_TIME, Panel


def check_taken(names: Sequence[str], taken: Sequence[str]) -> None:
    """Refuses names of rows that others have, or that are given twice."""
    known = {MODEL, *EXPERT_OF, *taken}
    for place, name in enumerate(names):
        if name in known or name.startswith("expert ") or name in names[:place]:
            raise ConfigError(
                f"--others {name}: that row is there already; give the file, or the mapping, another name"
            )


@dataclass
class OtherModel:
    """Rows of forecasts that are scored beside a model."""

    name: str
    rows: OtherForecasts
    cells: int = 0
    """Forecast by the model, with an actual, so far."""
    given: int = 0
    """Of these, forecast here too."""

    def check_cutoffs(self, cutoffs: Sequence[int], panel: Panel) -> None:
        """Raises DataError where no row has one of the cutoffs that are scored."""
        if not np.isin(self.rows.cutoff, cutoffs).any():
            text, own = panel.calendar.text, self.rows.cutoff
            raise DataError(
                f"{self.rows.name}: none of its cutoffs is scored: found {text(own.min())} to "
                f"{text(own.max())}, expected some of {', '.join(map(text, cutoffs[:3]))}"
                f"{', …' if len(cutoffs) > 3 else ''}; see --windows and --stride"
            )

    def beside(self, forecast: Forecast) -> Forecast:
        """Returns the same windows as forecast here, and counts their cells."""
        quantiles = placed(self.rows, forecast, forecast.levels)
        further = placed(self.rows, forecast, further_levels(forecast.columns, forecast.levels))
        actual = actual_of(forecast)
        scored = np.isfinite(shared_actual(actual, {MODEL: forecast.quantiles}))
        self.cells += int(scored.sum())
        self.given += int((scored & np.isfinite(shared_actual(actual, {self.name: quantiles}))).sum())
        return other_forecast(forecast, quantiles, further)

    def finding(self) -> Finding:
        """Returns how many cells were forecast here: all models are scored on these alone.

        Raises:
            DataError: there are none.
        """
        text = f"{self.name} forecasts {self.given:,} of {self.cells:,} cells"
        if not self.given:
            raise DataError(
                f"{self.rows.name}: {text}; compare its times and channels with the table's"
            )
        if self.rows.foreign:
            text += f"; {self.rows.foreign:,} of its rows are of series that are not scored"
        if self.given == self.cells:
            return Finding("note", "others", text, "")
        advice = "all models are scored on the cells that all of them forecast"
        return Finding("warning", "others", text, advice, count=self.cells - self.given)


def placed(rows: OtherForecasts, forecast: Forecast, levels: Sequence[float]) -> Floats:
    """[N, H, C, Q] rows at the cutoffs and times of a forecast of all series; NaN where there is none."""
    at_cutoff = np.flatnonzero(rows.cutoff == forecast.cutoff[rows.series])
    same = forecast.time[rows.series[at_cutoff]] == rows.time[at_cutoff, None]  # [n, H]
    hit = same.any(axis=1)
    row, lead = at_cutoff[hit], same[hit].argmax(axis=1)
    quantiles = np.full((*forecast.time.shape, forecast.panel.n_channels, len(levels)), np.nan)
    places = {round(level, 9): place for place, level in enumerate(rows.levels)}
    for number, level in enumerate(levels):
        if (place := places.get(round(level, 9))) is not None:
            quantiles[rows.series[row], lead, rows.channel[row], number] = rows.values[row, place]
    return quantiles


def score_others(panel: Panel, rows_by_name: Mapping[str, OtherForecasts]) -> Backtest:
    """Returns the scores of forecasts without a model; "forecaster" is the one that others are compared with.

    Args:
        panel: history and actuals.
        rows_by_name: of each row of the summary, "forecaster" among them.

    Raises:
        DataError: leads are not known, or nothing is forecast by all.
    """
    rows = rows_by_name[MODEL]
    if not rows.lead.all():
        raise DataError(f"{rows.name}: expected a column 'lead', for the table is irregular")
    # Without quantiles of its own it has no WQL, beside baselines that have one.
    levels = rows.levels if len(rows.levels) > 1 else ModelConfig().quantile_levels
    others = [OtherModel(name, own) for name, own in rows_by_name.items() if name != MODEL]
    made = []
    for cutoff in np.unique(rows.cutoff).tolist():
        forecast = _forecast_at(panel, rows, cutoff, levels)
        made.append({MODEL: forecast} | {other.name: other.beside(forecast) for other in others})
    backtest = replace(score_forecasts(made), notes=tuple(other.finding() for other in others))
    if not backtest.scored and rows.cutoff.max() < panel.time.min():
        raise DataError(
            f"{panel.name}: expected the actuals with the history before the cutoff "
            f"{panel.calendar.text(rows.cutoff.max())}, found none; "
            "scales and seasonal naive come from it, so give all rows of the table"
        )
    if not backtest.scored:
        raise DataError(
            f"{rows.name}: none of its {len(rows.series):,} rows has an actual; compare its times with the table's"
        )
    return backtest


def _forecast_at(
    panel: Panel, rows: OtherForecasts, cutoff: int, levels: tuple[float, ...]
) -> Forecast:
    """The rows of one cutoff, with the truth."""
    own = rows.cutoff == cutoff
    series, horizon = np.arange(panel.n_series), int(rows.lead.max())
    time = np.full((panel.n_series, horizon), NO_TIME)
    if panel.regular:
        time[:] = panel.calendar.shift(cutoff, np.arange(1, horizon + 1))
    time[rows.series[own], rows.lead[own] - 1] = rows.time[own]
    owner = np.repeat(series, horizon)
    row = panel.rows_until(time.ravel(), owner) - 1
    there = (row >= panel.indptr[owner]) & (panel.time[row] == time.ravel())
    actual = np.where(there[:, None], panel.values[row, : panel.n_channels], np.nan)
    forecast = Forecast(
        panel=panel,
        series=series,
        cutoff=np.full(panel.n_series, cutoff),
        time=time,
        quantiles=np.empty(0),
        levels=levels,
        status=(),
        actual=actual.reshape(*time.shape, -1),
    )
    quantiles = placed(rows, forecast, levels)
    given = np.isfinite(quantiles[..., levels.index(0.5)]).any(axis=1)  # [N, C]
    status = np.where(panel.present, np.where(given, "ok", NO_FORECAST), "")
    return replace(forecast, quantiles=quantiles, status=tuple(status.ravel().tolist()))
