"""Artifact + panel → `Forecast`.

What comes in: a saved model and a table of the same columns. What goes out: quantiles at any cutoff of
any series. Promised: nothing after the cutoff but what is known in advance changes a forecast; the
order of series does not; neither Lightning nor MLflow nor Optuna is loaded.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

from forecaster.errors import ConfigError, DataError
from forecaster.forecast.artifact import Artifact
from forecaster.forecast.forecast import Forecast
from forecaster.model.threads import spare_threads
from forecaster.panel.panel import MISSING, NO_TIME, Panel
from forecaster.windows.index import Int64
from forecaster.windows.store import WindowStore

_BATCH = 1024  # channel-windows per pass: large enough to be fast, small enough for a laptop

Progress = Callable[[int, int], None]
"""Called with (forecasts made, forecasts wanted)."""


class Predictor:
    """Forecasts with one artifact."""

    def __init__(self, artifact: Artifact):
        self.artifact = artifact
        self._ensemble = artifact.ensemble.eval()

    def predict(
        self,
        panel: Panel,
        cutoff: str = "own",
        horizon: int | None = None,
        progress: Progress | None = None,
    ) -> Forecast:
        """Returns the forecast of every series of a panel.

        Args:
            panel: opened with the artifact's schema.
            cutoff: "own" = each series from its own last observed target; "last" = all from the
                latest of these; or a date.
            horizon: leads wanted, at most the trained ones; a shorter forecast is an exact prefix.
            progress: told how far the work is.

        Raises:
            ConfigError: the horizon is longer than the trained one.
            DataError: a covariate known in advance is missing after the cutoff.
        """
        trained = self.artifact.horizon
        if horizon is not None and not 1 <= horizon <= trained:
            raise ConfigError(
                f"horizon {horizon}: this model forecasts 1 to {trained} steps; "
                f"fit one with --horizon {horizon} to reach further"
            )
        wanted = horizon or trained
        times = cutoff_times(panel, cutoff)
        ahead = _reach(panel, times, self.artifact)
        _check_known(panel, ahead, wanted)
        return self._forecast(ahead, times, wanted, progress)

    def forecast_at(self, panel: Panel, cutoff: int) -> Forecast:
        """Returns the forecast of every series at one past cutoff, with the truth that followed.

        Args:
            panel: with rows after the cutoff.
            cutoff: time of the last step that may be seen.
        """
        times = np.full(panel.n_series, cutoff, dtype=np.int64)
        ahead = _reach(panel, times, self.artifact)
        forecast = self._forecast(ahead, times, self.artifact.horizon, None)
        truth = ahead.panel.values[ahead.rows, : panel.n_channels]
        return replace(forecast, actual=np.where(ahead.rows[..., None] < 0, np.nan, truth))

    def quantiles(
        self, panel: Panel, series: Int64, cutoff: Int64, progress: Progress | None = None
    ) -> NDArray[np.float32]:
        """Returns [N, H, C, Q] quantiles at given cutoffs, data units.

        Args:
            panel: every cutoff has the model's horizon in rows after it.
            series: [N] number of the series.
            cutoff: [N] row of the last step that may be seen.
            progress: told how far the work is.
        """
        artifact = self.artifact
        codes = np.arange(1, panel.n_channels + 1)  # by place: a table may call its columns otherwise
        store = WindowStore(panel, artifact.context_length, artifact.horizon, codes)
        levels = len(artifact.config.model.quantile_levels)
        result = np.empty((len(series), artifact.horizon, panel.n_channels, levels), np.float32)
        size = max(1, _BATCH // panel.n_channels)
        with torch.inference_mode(), spare_threads():
            for start in range(0, len(series), size):
                part = slice(start, start + size)
                batch = store.batch(series[part], None, cutoff[part])
                result[part] = self._ensemble(batch.inputs).numpy()
                if progress is not None:
                    progress(min(start + size, len(series)), len(series))
        return result

    def _forecast(
        self, ahead: _Ahead, times: Int64, horizon: int, progress: Progress | None
    ) -> Forecast:
        panel = ahead.panel
        levels = self.artifact.config.model.quantile_levels
        shape = (panel.n_series, self.artifact.horizon, panel.n_channels, len(levels))
        quantiles = np.full(shape, np.nan, dtype=np.float32)
        chosen = np.flatnonzero(ahead.usable)
        quantiles[chosen] = self.quantiles(panel, chosen, ahead.at[chosen], progress)
        finite = np.isfinite(quantiles).all(axis=(1, 2, 3))
        quantiles[~finite] = np.nan
        broken = "the forecast is not finite: values beyond float32"
        reasons = np.where(ahead.usable, broken, ahead.reasons)
        return Forecast(
            panel=panel,
            series=np.arange(panel.n_series),
            cutoff=times,
            time=ahead.time[:, :horizon],
            quantiles=quantiles[:, :horizon],
            levels=levels,
            status=tuple(np.where(finite, "ok", reasons).tolist()),
        )


@dataclass(frozen=True)
class _Ahead:
    """Where the leads of every series lie."""

    panel: Panel
    """With the horizon's rows after every cutoff."""
    at: Int64
    """[series] row of the cutoff; the row before its first for a series that begins later."""
    rows: Int64
    """[series, H] row of each lead; -1 where a series has not begun."""
    time: Int64
    """[series, H] time of each lead."""
    usable: NDArray[np.bool_]
    """[series] whether there is something to forecast from."""
    reasons: NDArray[np.str_]
    """[series] why there is not."""


def _reach(panel: Panel, times: Int64, artifact: Artifact) -> _Ahead:
    horizon = artifact.horizon
    located = times != NO_TIME
    # A series without a cutoff still gets rows in the output; their times follow the latest one.
    latest = times[located].max() if located.any() else panel.time.max()
    cutoff = np.where(located, times, latest)
    panel = panel.reaching(cutoff, horizon)
    lead = np.arange(1, horizon + 1)
    last = panel.row_at(cutoff)
    at = np.where(last < 0, panel.indptr[:-1] - 1, last)
    rows = at[:, None] + lead
    unbegun = np.flatnonzero(last < 0)
    time = panel.time[np.minimum(rows, panel.n_rows - 1)]
    if len(unbegun):
        time[unbegun] = panel.calendar.shift(cutoff[unbegun, None], lead)
        for step in range(horizon):
            wanted = cutoff.copy()
            wanted[unbegun] = time[unbegun, step]
            found = panel.row_at(wanted)[unbegun]
            rows[unbegun, step] = np.where(panel.time[found] == wanted[unbegun], found, -1)
    return _Ahead(panel, at, rows, time, *_usable(panel, at, artifact.context_length))


def _usable(panel: Panel, at: Int64, length: int) -> tuple[NDArray[np.bool_], NDArray[np.str_]]:
    observed = ~np.isnan(panel.values[:, : panel.n_channels]).all(axis=1)
    seen = np.concatenate([[0], np.cumsum(observed)])  # observed rows before each row
    begin = panel.indptr[:-1]
    ever = seen[at + 1] > seen[begin]
    usable = ever & (seen[at + 1] > seen[np.maximum(begin, at - length + 1)])
    reasons = np.where(
        ever,
        f"no target observed in the {length} steps before the cutoff",
        "no target observed before the cutoff",
    )
    return usable, reasons


def _check_known(panel: Panel, ahead: _Ahead, horizon: int) -> None:
    """Refuses a future whose known covariates are not all given, where there is a forecast."""
    schema = panel.schema
    rows, time = ahead.rows[:, :horizon], ahead.time[:, :horizon]
    for name in schema.known:
        if name in schema.categorical:
            empty = ahead.panel.codes[rows, schema.code_columns.index(name)] == MISSING
        else:
            empty = np.isnan(ahead.panel.values[rows, schema.columns.index(name)])
        missing = empty & ahead.usable[:, None]
        if missing.any():
            series, lead = np.argwhere(missing)[0]
            raise DataError(
                f"{panel.name}: '{name}' is known in advance, but has no value for series "
                f"{panel.labels[series]} at {panel.calendar.text(int(time[series, lead]))} "
                f"(lead {lead + 1} of {horizon}); {missing.any(axis=1).sum()} of {panel.n_series} "
                "series lack some: give them with --future FILE, or shorten --horizon"
            )


def cutoff_times(panel: Panel, cutoff: str) -> Int64:
    """Returns [series] the time of each series' cutoff, NO_TIME where it has no observed target.

    Args:
        panel: the table.
        cutoff: "own" = the series' last observed target; "last" = the latest of these, for all; or
            a date, for all.

    Raises:
        DataError: the date cannot be read.
    """
    last = panel.last_observed
    own = np.where(last >= 0, panel.time[last], NO_TIME)
    if cutoff == "own":
        return own
    common = int(own.max()) if cutoff == "last" else panel.calendar.parse(cutoff)
    return np.full(panel.n_series, common, dtype=np.int64)
