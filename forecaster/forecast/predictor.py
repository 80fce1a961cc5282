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
from torch import Tensor

from forecaster.errors import ConfigError, DataError
from forecaster.forecast.artifact import Artifact
from forecaster.forecast.forecast import Forecast
from forecaster.forecast.paths import Draws, path_keys
from forecaster.model.paths import Outlook
from forecaster.model.threads import spare_threads
from forecaster.panel.arrays import blocks
from forecaster.panel.audit import check_panel
from forecaster.panel.finding import refuse_errors
from forecaster.panel.panel import MISSING, NO_TIME, Panel
from forecaster.windows.index import Int64
from forecaster.windows.store import WindowStore

_BATCH = 1024  # channel-windows per pass: large enough to be fast, small enough for a laptop
_PATHS = 8192  # of all channel-windows of a pass together
_ALL = Draws()

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
        draws: Draws = _ALL,
    ) -> Forecast:
        """Returns the forecast of every series of a panel.

        Args:
            panel: opened with the artifact's schema.
            cutoff: "own" = each series from its own last observed target; "last" = all from the
                latest of these; or a date.
            horizon: leads wanted; fewer than the trained ones are an exact prefix, more need an
                autoregressive decoder.
            progress: told how far the work is.
            draws: paths to keep, which need an autoregressive decoder.

        Raises:
            ConfigError: the horizon is longer than the model can reach, or it cannot draw paths.
            DataError: the audit finds errors, or a covariate known in advance is missing after the
                cutoff.
        """
        wanted = self.artifact.horizon if horizon is None else horizon
        _check_reach(self.artifact, wanted)
        _check_draws(self.artifact, draws)
        found = check_panel(panel)
        refuse_errors(found)
        times = cutoff_times(panel, cutoff)
        # A shorter forecast is the beginning of the trained one: the last patch is read whole.
        ahead = _reach(panel, times, self.artifact, max(wanted, self.artifact.horizon))
        _check_known(panel, ahead, wanted)
        forecast = self._forecast(ahead, times, wanted, progress, draws)
        return replace(forecast, findings=tuple(found))

    def forecast_at(self, panel: Panel, cutoff: int) -> Forecast:
        """Returns the forecast of every series at one past cutoff, with the truth that followed.

        Args:
            panel: with rows after the cutoff.
            cutoff: time of the last step that may be seen.
        """
        times = np.full(panel.n_series, cutoff, dtype=np.int64)
        ahead = _reach(panel, times, self.artifact, self.artifact.horizon)
        forecast = self._forecast(ahead, times, self.artifact.horizon)
        truth = ahead.panel.values[ahead.rows, : panel.n_channels]
        return replace(forecast, actual=np.where(ahead.rows[..., None] < 0, np.nan, truth))

    def quantiles(self, panel: Panel, series: Int64, cutoff: Int64) -> NDArray[np.float32]:
        """Returns [N, H, C, Q] quantiles at given cutoffs, data units.

        Args:
            panel: every cutoff has the model's horizon in rows after it.
            series: [N] number of the series.
            cutoff: [N] row of the last step that may be seen.
        """
        return self._outlook(panel, series, cutoff, self.artifact.horizon).quantiles.numpy()

    def _outlook(
        self,
        panel: Panel,
        series: Int64,
        cutoff: Int64,
        horizon: int,
        progress: Progress | None = None,
        draws: Draws = _ALL,
    ) -> Outlook:
        """What the ensemble says at given cutoffs; the paths of it only where they are to be kept."""
        model, channels = self.artifact.config.model, panel.n_channels
        codes = np.arange(1, channels + 1)  # by place: a table may call its columns otherwise
        store = WindowStore(panel, self.artifact.context_length, horizon, codes)
        size, keys = max(1, _BATCH // channels), None
        if model.decoder == "autoregressive":
            size = max(1, _PATHS // (channels * (draws.samples or model.paths)))
            keys = torch.from_numpy(path_keys(panel, series, panel.time[cutoff], draws.seed))
        found: list[Outlook] = []
        with torch.inference_mode(), spare_threads():
            for start in range(0, len(series), size):
                part = slice(start, start + size)
                inputs = store.batch(series[part], None, cutoff[part]).inputs
                key = None if keys is None else keys[part]
                said = self._ensemble.outlook(inputs, key, draws.samples)
                found.append(said if draws.samples else said._replace(paths=None))
                if progress is not None:
                    progress(min(start + size, len(series)), len(series))
        if not found:
            return Outlook(torch.empty(0, horizon, channels, len(model.quantile_levels)), None, None)
        quantiles, mean, paths = (
            None if part[0] is None else torch.cat(part) for part in zip(*found, strict=True)
        )
        assert quantiles is not None
        return Outlook(quantiles, mean, paths)

    def _forecast(
        self,
        ahead: _Ahead,
        times: Int64,
        horizon: int,
        progress: Progress | None = None,
        draws: Draws = _ALL,
    ) -> Forecast:
        panel, reach = ahead.panel, ahead.rows.shape[1]
        chosen = np.flatnonzero(ahead.usable)
        said = self._outlook(panel, chosen, ahead.at[chosen], reach, progress, draws)
        finite = np.zeros(panel.n_series, dtype=np.bool_)
        finite[chosen] = said.quantiles.isfinite().all(dim=3).all(dim=2).all(dim=1).numpy()

        def spread(part: Tensor | None) -> NDArray[np.float32] | None:
            """[usable, …] → [series, …], NaN where there is no forecast."""
            if part is None:
                return None
            whole = np.full((panel.n_series, *part.shape[1:]), np.nan, dtype=np.float32)
            whole[chosen] = part.numpy()
            whole[~finite] = np.nan
            return whole

        quantiles, mean, paths = (spread(part) for part in said)
        assert quantiles is not None
        broken = "the forecast is not finite: values beyond float32"
        reasons = np.where(ahead.usable, broken, ahead.reasons)
        return Forecast(
            panel=panel,
            series=np.arange(panel.n_series),
            cutoff=times,
            time=ahead.time[:, :horizon],
            quantiles=quantiles[:, :horizon],
            levels=self.artifact.config.model.quantile_levels,
            status=tuple(np.where(finite, "ok", reasons).tolist()),
            mean=None if mean is None else mean[:, :horizon],
            paths=None if paths is None else paths[:, :, :horizon],
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


def _check_reach(artifact: Artifact, wanted: int) -> None:
    """Refuses a horizon that the model was not made for."""
    trained, model = artifact.horizon, artifact.config.model
    if model.decoder != "autoregressive" and not 1 <= wanted <= trained:
        raise ConfigError(
            f"horizon {wanted}: this model forecasts 1 to {trained} steps; "
            f"fit one with --horizon {wanted} to reach further, or with model.decoder autoregressive"
        )
    if wanted < 1:
        raise ConfigError(f"horizon {wanted}: expected 1 or more steps")
    for member in artifact.ensemble.members:
        covered = member.longest_horizon
        if covered is not None and wanted > covered:  # type: ignore[operator]
            raise ConfigError(
                f"horizon {wanted}: the learned positions of this model cover {covered} steps; fit one "
                f"with --horizon {wanted}, or with other model.positions, to reach further"
            )


def _check_draws(artifact: Artifact, draws: Draws) -> None:
    """Refuses paths of a model that has none."""
    if draws.samples is None:
        return
    if draws.samples < 1:
        raise ConfigError(f"samples {draws.samples}: expected 1 or more paths")
    if artifact.config.model.decoder != "autoregressive":
        raise ConfigError(
            f"samples {draws.samples}: this model's decoder is direct: it says how each lead is "
            "distributed by itself, not how leads go together; fit one with "
            "--set model.decoder=autoregressive to draw paths"
        )


def _reach(panel: Panel, times: Int64, artifact: Artifact, horizon: int) -> _Ahead:
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
    first, last = panel.first_observed, panel.last_observed
    ever = (first >= 0) & (first <= at)
    begin = np.maximum(panel.indptr[:-1], at - length + 1)
    usable = ever & (last >= begin)
    # A series that goes on after its cutoff may have been silent before it.
    unsure = np.flatnonzero(usable & (last > at))
    for part in blocks(len(unsure), length * panel.n_channels):
        series = unsure[part]
        rows = np.maximum(at[series, None] - np.arange(length), begin[series, None])
        seen = panel.values[rows, : panel.n_channels]
        usable[series] = (seen == seen).any(axis=(1, 2))
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
