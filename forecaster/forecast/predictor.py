"""Artifact + panel → `Forecast`: locates the leads, runs the ensemble, keys the result.

The order of series changes no forecast, and nothing after the cutoff but known covariates does.

Axes: N window · H lead · C channel · Q quantile level.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby

import numpy as np
import torch
from torch import Tensor

from forecaster.errors import number_of
from forecaster.forecast.artifact import Artifact
from forecaster.forecast.bands import UNSCALED, Columns, further_levels, is_far
from forecaster.forecast.forecast import COLD, Forecast, joined, none_forecast
from forecaster.forecast.future import audited
from forecaster.forecast.paths import PathSource, path_keys
from forecaster.forecast.runner import Progress, Runner, batch_size, blocks_of
from forecaster.forecast.window import ForecastWindow, Leads, locate_leads, resolve_window
from forecaster.model.sampling import NUM_SAMPLES, Prediction
from forecaster.model.scaling import Scale
from forecaster.panel.arrays import Floats, Ints
from forecaster.panel.panel import NO_TIME, Only, Panel
from forecaster.windows.batch import Inputs
from forecaster.windows.store import WindowStore

_PATHS = 8192  # sample paths of a batch


class Predictor:
    """Forecasts with one artifact."""

    def __init__(self, artifact: Artifact, on: str | None = None, lanes: int | None = None):
        """Takes a model; device and batches in parallel as `Runner`."""
        self.artifact = artifact
        self._runner = Runner(artifact, on, lanes)

    def predict(
        self,
        panel: Panel,
        window: ForecastWindow,
        only: Only = None,
        progress: Progress | None = None,
    ) -> Forecast:
        """Returns the forecast of every series of a panel, or of some.

        Args:
            panel: opened with the artifact's schema.
            window: of `resolve_window`.
            only: names of the series to forecast.
            progress: called after each block of series.

        Raises:
            DataError: the audit finds errors, or a covariate known in advance is missing after the
                cutoff.
        """
        panel, found = audited(panel, self.artifact, window, only)
        forecast = self.whole(panel, window, progress)
        if error := none_forecast(panel, forecast.lost, sum(map(bool, forecast.status))):
            raise error
        return replace(forecast, findings=tuple(found))

    def whole(self, panel: Panel, window: ForecastWindow, progress: Progress | None = None) -> Forecast:
        """Returns the forecast of any number of series, block by block."""
        forecasts, done = [], 0
        for part in blocks_of(panel):
            forecasts.append(self.forecast(part, window))
            done += part.n_series
            if progress is not None:
                progress(done, panel.n_series)
        return joined(panel, forecasts)

    def forecast(self, panel: Panel, window: ForecastWindow) -> Forecast:
        """Returns the forecast of at most `BLOCK` neighbouring series, with a window of all series."""
        ((_, forecast),) = self._forecasts(panel, [window])
        return replace(forecast, panel=panel)

    def inputs(self, panel: Panel, cutoff: str = "own") -> tuple[list[str], Inputs]:
        """Returns the names of the series that can be forecast, and what the network reads of each.

        Args:
            panel: opened with the artifact's schema.
            cutoff: as of `resolve_window`.

        Raises:
            DataError: a covariate known in advance is missing after the cutoff.
        """
        window = resolve_window(self.artifact, panel, cutoff)
        panel, _ = audited(panel, self.artifact, window)
        leads = locate_leads(panel, self.artifact, window)
        chosen = leads.chosen
        store = WindowStore(
            leads.panel, self.artifact.plan.model, self.artifact.horizon, self.artifact.effects
        )
        batch = store.batch(chosen, None, leads.cutoff[chosen])
        return [panel.series_names[number] for number in chosen], batch.inputs

    def forecast_at(self, panel: Panel, cutoff: int) -> Forecast:
        """Returns the forecast of every series at one past cutoff (a time), with the truth."""
        return self.forecasts_at(panel, [cutoff])[0]

    def forecasts_at(
        self,
        panel: Panel,
        cutoffs: Sequence[int],
        horizon: int | None = None,
        num_samples: int | None = None,
        columns: Columns = (),
    ) -> list[Forecast]:
        """Returns `forecast_at` of each of some past cutoffs, whose windows share batches."""
        wanted = horizon or self.artifact.horizon
        if panel.regular:  # the rows that the last cutoff needs serve all of them
            farthest = max(wanted, self.artifact.horizon)
            panel = panel.reaching(np.full(panel.n_series, max(cutoffs)), farthest)
        windows = [
            ForecastWindow(wanted, cutoff, cutoff, num_samples, columns=columns) for cutoff in cutoffs
        ]
        forecasts = []
        for leads, forecast in self._forecasts(panel, windows):
            row = leads.rows[:, :wanted]
            truth = leads.panel.values[row, : panel.n_channels]
            forecasts.append(replace(forecast, actual=np.where(row[..., None] < 0, np.nan, truth)))
        return forecasts

    def _forecasts(
        self, panel: Panel, windows: Sequence[ForecastWindow]
    ) -> Iterator[tuple[Leads, Forecast]]:
        """Yields the forecast of each window; those of one panel, alike but for the cutoff, share batches."""
        located = [(locate_leads(panel, self.artifact, window), window) for window in windows]
        for _, group in groupby(located, key=lambda pair: id(pair[0].panel)):
            some = list(group)
            rows = np.concatenate([leads.cutoff[leads.chosen] for leads, _ in some])
            series = np.concatenate([leads.chosen for leads, _ in some])
            first, window = some[0]
            predicted = self._predict(first.panel, series, rows, first.rows.shape[1], window)
            begin = 0
            for leads, window in some:
                own = slice(begin, begin := begin + len(leads.chosen))
                part = Prediction(*(None if part is None else part[own] for part in predicted))  # type: ignore[arg-type]
                yield leads, self._with_paths(self._keyed(leads, window, part), window)

    def _with_paths(self, forecast: Forecast, window: ForecastWindow) -> Forecast:
        """Returns a forecast with its sample paths where these are wanted, and with what draws them."""
        if self.artifact.errors is None:
            return forecast
        forecast = replace(forecast, source=PathSource(self.artifact.errors, self._runner.ensemble))
        if window.num_samples is None:
            return forecast
        return replace(forecast, paths=forecast.draw(window.num_samples, window.seed))

    def quantiles(self, panel: Panel, series: Ints, cutoff: Ints, leads: int | None = None) -> Floats:
        """Returns [N, H, C, Q] quantiles at given cutoffs, data units.

        Args:
            panel: every cutoff has the model's horizon in rows after it.
            series: [N] number of the series.
            cutoff: [N] row of the last step that may be seen.
            leads: the first so many alone; None = all.
        """
        horizon = self.artifact.horizon
        window = ForecastWindow(leads or horizon, None, 0)
        if self.artifact.plan.model.decoder == "autoregressive":
            horizon = window.horizon  # patch after patch: what is not wanted need not be drawn
        predicted = self._predict(panel, series, cutoff, horizon, window)
        return predicted.quantiles.numpy()[:, :leads]

    def scales(self, panel: Panel, series: Ints, cutoff: Ints) -> Scale:
        """Returns location and scale of windows, [N, C] each, on the CPU; arguments as `quantiles`."""
        store = WindowStore(
            panel, self.artifact.plan.model, self.artifact.horizon, self.artifact.effects
        )
        size = batch_size(panel.n_channels * self.artifact.context_length)

        def scale(inputs: Inputs, part: slice) -> Scale:
            return Scale(*(unit.cpu() for unit in self._runner.ensemble.scale(inputs)))

        found = self._runner.run(scale, store, series, cutoff, size)
        return Scale(*(torch.cat(units) for units in zip(*found, strict=True)))

    def _predict(
        self, panel: Panel, series: Ints, cutoff: Ints, horizon: int, window: ForecastWindow
    ) -> Prediction:
        """Runs the ensemble at given cutoffs, batch by batch, over a horizon; the window may be shorter."""
        model, channels, num_samples = self.artifact.plan.model, panel.n_channels, window.num_samples
        store = WindowStore(panel, model, horizon, self.artifact.effects)
        further = further_levels(window.columns, model.quantile_levels)
        cells = channels * (model.context_length + horizon + model.pool.history_length)
        size, keys = batch_size(cells, channels), None
        if model.decoder == "autoregressive":
            size = max(1, _PATHS // (channels * (num_samples or NUM_SAMPLES)))
            keys = torch.from_numpy(path_keys(panel, series, panel.time[cutoff], window.seed))

        def predict(inputs: Inputs, part: slice) -> Prediction:
            key = None if keys is None else keys[part].to(self._runner.device)
            predicted = self._runner.ensemble.predict(inputs, key, num_samples, further)
            kept = predicted if num_samples else predicted._replace(paths=None)
            return Prediction(*(own if own is None else own.cpu() for own in kept))  # type: ignore[arg-type]

        found = self._runner.run(predict, store, series, cutoff, size, window.horizon)
        parts = (
            # By numpy: torch would wake threads for this, and on a busy machine wait for them.
            None if part[0] is None else torch.from_numpy(np.concatenate([*map(np.asarray, part)]))
            for part in zip(*found, strict=True)
        )
        return Prediction(*parts)  # type: ignore[arg-type]

    def _keyed(self, leads: Leads, window: ForecastWindow, predicted: Prediction) -> Forecast:
        """Returns the prediction of chosen series as the forecast of all of them."""
        panel, horizon, chosen = leads.panel, window.horizon, leads.chosen
        found = predicted.quantiles.numpy()
        finite = np.zeros((panel.n_series, panel.n_channels), dtype=np.bool_)
        finite[chosen] = np.isfinite(found).all(axis=(1, 3))
        finite &= leads.usable
        levels = self.artifact.plan.model.quantile_levels
        width = found[..., len(levels) - 1] - found[..., 0]

        def spread(part: Tensor | None, axis: int, band: Floats) -> Floats | None:
            """[chosen, …] → [series, …], NaN where there is no forecast; `axis` of the channels."""
            if part is None:
                return None
            whole = np.full((panel.n_series, *part.shape[1:]), np.nan)
            short = torch.from_numpy(_rounded(part.numpy(), band))
            whole[chosen] = self._runner.ensemble.bounded(short).numpy()
            np.moveaxis(whole, axis, 1)[~finite] = np.nan
            return whole

        quantiles = spread(predicted.quantiles, 2, width[..., None])
        mean = spread(predicted.mean, 2, width)
        paths = spread(predicted.paths, 3, width[:, None])
        assert quantiles is not None
        further = further_levels(window.columns, levels)
        few = np.zeros(finite.shape, np.int64)
        if predicted.few is not None:
            few[chosen] = predicted.few
        counted = (f"ok, {number_of(rows, 'observation')}" for rows in range(1, few.max() + 1))
        done = np.where(leads.cold[:, None], COLD, np.array(["ok", *counted])[few])
        if self._runner.ensemble.tail_factor is None and is_far(further, levels):
            done = np.char.add(done, UNSCALED)
        cutoff = window.cutoffs(panel)
        reasons = np.where(leads.usable, "the forecast is not finite", leads.reasons)
        return Forecast(
            panel=panel,
            series=np.arange(panel.n_series),
            cutoff=np.where(leads.cold & (cutoff == NO_TIME), window.latest, cutoff),
            time=leads.time[:, :horizon],
            quantiles=quantiles[:, :horizon, :, : len(levels)],
            levels=levels,
            artifact=self.artifact,
            window=window,
            columns=window.columns,
            further=quantiles[:, :horizon, :, len(levels) :] if window.columns else None,
            status=tuple(np.where(panel.present, np.where(finite, done, reasons), "").ravel().tolist()),
            mean=None if mean is None else mean[:, :horizon],
            paths=None if paths is None else paths[:, :, :horizon],
        )


def _rounded(cells: Floats, width: Floats) -> Floats:
    """Returns numbers without decimals below a ten-millionth of their band: networks compute no more."""
    with np.errstate(divide="ignore"):
        digits = np.ceil(7 - np.log10(width))
    sensible = np.abs(digits) < 40
    unit = 10.0 ** np.where(sensible, digits, 0)
    return np.where(sensible, np.round(cells * unit) / unit, cells)
