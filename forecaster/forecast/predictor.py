"""Artifact + panel → `Forecast`.

What comes in: a saved model and a table of the same columns. What goes out: quantiles at any cutoff of
any series. Promised: nothing after the cutoff but what is known in advance changes a forecast; the
order of series does not; neither Lightning nor MLflow nor Optuna is loaded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import groupby

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from forecaster.forecast.ahead import BLOCK, Ahead, Task, check_known, reach, settle
from forecaster.forecast.artifact import Artifact
from forecaster.forecast.forecast import Forecast, joined
from forecaster.forecast.paths import NO_PATHS, Draws, path_keys
from forecaster.model.sampling import NUM_SAMPLES, Prediction
from forecaster.model.scaling import Scale
from forecaster.model.threads import cores, run_parallel
from forecaster.panel.audit import check_panel
from forecaster.panel.findings import refuse_errors
from forecaster.panel.panel import Panel
from forecaster.windows.index import Int64
from forecaster.windows.store import WindowStore

_BATCH = 256  # channel-windows per pass: large enough to be fast, small enough for the cache
_CELLS = 1 << 18  # of all channel-windows of a pass together: long contexts go in smaller passes
_PATHS = 8192  # of all channel-windows of a pass together

Progress = Callable[[int, int], None]
"""Called with (series done, series wanted)."""


class Predictor:
    """Forecasts with one artifact."""

    def __init__(self, artifact: Artifact, device: str = "cpu", lanes: int | None = None):
        """Takes a model to a device.

        Args:
            artifact: the model.
            device: as torch names it.
            lanes: batches that are worked on at a time; None = as many as there are cores. It changes
                no forecast.
        """
        self.artifact = artifact
        self._device = device
        self._lanes = lanes or (cores() if device == "cpu" else 1)
        self._ensemble = artifact.ensemble.eval().to(device)

    def predict(
        self,
        panel: Panel,
        cutoff: str = "own",
        horizon: int | None = None,
        progress: Progress | None = None,
        draws: Draws = NO_PATHS,
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
        task = settle(self.artifact, panel, cutoff, horizon, draws)
        found = check_panel(panel)
        refuse_errors(found)
        check_known(panel, self.artifact, task)
        forecasts, total = [], panel.n_series
        for start in range(0, total, BLOCK):
            stop = min(start + BLOCK, total)
            forecasts.append(self.forecast(panel.between(start, stop), task))
            if progress is not None:
                progress(stop, total)
        return replace(joined(panel, forecasts), findings=tuple(found))

    def forecast(self, panel: Panel, task: Task) -> Forecast:
        """Returns the forecast of the series of a panel, which may be some neighbours of many.

        Args:
            panel: of at most `BLOCK` series, for the same bits wherever they are forecast.
            task: settled over all series.
        """
        horizon = max(task.horizon, self.artifact.horizon)
        ahead = reach(panel, task, self.artifact.context_length, horizon)
        forecast = self._forecast(ahead, task)
        return replace(forecast, panel=panel)

    def forecast_at(self, panel: Panel, cutoff: int) -> Forecast:
        """Returns the forecast of every series at one past cutoff, with the truth that followed.

        Args:
            panel: with rows after the cutoff.
            cutoff: time of the last step that may be seen.
        """
        return self.forecasts_at(panel, [cutoff])[0]

    def forecasts_at(
        self,
        panel: Panel,
        cutoffs: Sequence[int],
        horizon: int | None = None,
        draws: Draws = NO_PATHS,
    ) -> list[Forecast]:
        """Returns `forecast_at` of each of some past cutoffs, whose windows share batches.

        Args:
            panel: with rows after the cutoffs.
            cutoffs: times of the last steps that may be seen.
            horizon: leads wanted; None = as trained.
            draws: paths to keep.
        """
        wanted, length = horizon or self.artifact.horizon, self.artifact.context_length
        horizon = max(wanted, self.artifact.horizon)
        if panel.regular:  # the rows that the last cutoff needs serve all of them
            panel = panel.reaching(np.full(panel.n_series, max(cutoffs)), horizon)
        tasks = [Task(wanted, cutoff, cutoff, draws) for cutoff in cutoffs]
        aheads = [reach(panel, task, length, horizon) for task in tasks]
        forecasts: list[Forecast] = []
        for _, group in groupby(aheads, key=lambda ahead: id(ahead.panel)):
            some = list(group)
            chosen = [np.flatnonzero(ahead.usable) for ahead in some]
            rows = [ahead.at[series] for ahead, series in zip(some, chosen, strict=True)]
            asked = np.concatenate(chosen), np.concatenate(rows)
            said = self._predict(some[0].panel, *asked, horizon, draws)
            ends = np.cumsum([len(series) for series in chosen])
            for ahead, end, series in zip(some, ends, chosen, strict=True):
                own = slice(end - len(series), end)
                mean, paths = (None if part is None else part[own] for part in (said.mean, said.paths))
                part = Prediction(said.quantiles[own], mean, paths)
                task = tasks[len(forecasts)]
                row = ahead.rows[:, :wanted]
                truth = ahead.panel.values[row, : panel.n_channels]
                truth = np.where(row[..., None] < 0, np.nan, truth)
                forecasts.append(
                    replace(self._placed(ahead, task, chosen=series, said=part), actual=truth)
                )
        return forecasts

    def quantiles(
        self, panel: Panel, series: Int64, cutoff: Int64, leads: int | None = None
    ) -> NDArray[np.float32]:
        """Returns [N, H, C, Q] quantiles at given cutoffs, data units.

        Args:
            panel: every cutoff has the model's horizon in rows after it.
            series: [N] number of the series.
            cutoff: [N] row of the last step that may be seen.
            leads: the first so many alone; None = all.
        """
        horizon = self.artifact.horizon
        if leads is not None and self.artifact.config.model.decoder == "autoregressive":
            horizon = leads  # patch after patch: what is not wanted need not be drawn
        return self._predict(panel, series, cutoff, horizon).quantiles.numpy()[:, :leads]

    def scales(self, panel: Panel, series: Int64, cutoff: Int64) -> Scale:
        """Returns the units that windows are scaled by, [N, C] each, on the processor.

        Args:
            panel, series, cutoff: as in `quantiles`.
        """
        store = self._store(panel, self.artifact.horizon)

        def one(start: int) -> Scale:
            part = slice(start, start + _BATCH)
            inputs = store.batch(series[part], None, cutoff[part]).inputs.to(self._device)
            return Scale(*(unit.cpu() for unit in self._ensemble.scale(inputs)))

        found = [one(start) for start in range(0, max(1, len(series)), _BATCH)]
        return Scale(*(torch.cat(units) for units in zip(*found, strict=True)))

    def _store(self, panel: Panel, horizon: int) -> WindowStore:
        codes = np.arange(1, panel.n_channels + 1)  # by place: a table may call its columns otherwise
        return WindowStore(panel, self.artifact.context_length, horizon, codes)

    def _predict(
        self, panel: Panel, series: Int64, cutoff: Int64, horizon: int, draws: Draws = NO_PATHS
    ) -> Prediction:
        """What the ensemble says at given cutoffs; the paths of it only where they are to be kept."""
        model, channels = self.artifact.config.model, panel.n_channels
        store = self._store(panel, horizon)
        cells = channels * (self.artifact.context_length + horizon)
        size, keys = max(1, min(_BATCH // channels, _CELLS // cells)), None
        if model.decoder == "autoregressive":
            size = max(1, _PATHS // (channels * (draws.samples or NUM_SAMPLES)))
            keys = torch.from_numpy(path_keys(panel, series, panel.time[cutoff], draws.seed))

        def say(start: int) -> Prediction:
            part = slice(start, start + size)
            inputs = store.batch(series[part], None, cutoff[part]).inputs.to(self._device)
            key = None if keys is None else keys[part].to(self._device)
            said = self._ensemble.predict(inputs, key, draws.samples)
            kept = said if draws.samples else said._replace(paths=None)
            return Prediction(*(own if own is None else own.cpu() for own in kept))  # type: ignore[arg-type]

        found = list(run_parallel(say, range(0, len(series), size), self._lanes))
        if not found:
            return Prediction(torch.empty(0, horizon, channels, len(model.quantile_levels)), None, None)
        quantiles, mean, paths = (
            # By numpy: torch would wake threads for this, and on a busy machine wait for them.
            None if part[0] is None else torch.from_numpy(np.concatenate([*map(np.asarray, part)]))
            for part in zip(*found, strict=True)
        )
        assert quantiles is not None
        return Prediction(quantiles, mean, paths)

    def _forecast(self, ahead: Ahead, task: Task) -> Forecast:
        chosen = np.flatnonzero(ahead.usable)
        farthest = ahead.rows.shape[1]
        said = self._predict(ahead.panel, chosen, ahead.at[chosen], farthest, task.draws)
        return self._placed(ahead, task, chosen, said)

    def _placed(self, ahead: Ahead, task: Task, chosen: Int64, said: Prediction) -> Forecast:
        """Returns what was said of chosen series as the forecast of all of them."""
        panel, horizon = ahead.panel, task.horizon
        finite = np.zeros(panel.n_series, dtype=np.bool_)
        finite[chosen] = np.isfinite(said.quantiles.numpy()).all(axis=(1, 2, 3))

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
            cutoff=task.cutoffs(panel),
            time=ahead.time[:, :horizon],
            quantiles=quantiles[:, :horizon],
            levels=self.artifact.config.model.quantile_levels,
            status=tuple(np.where(finite, "ok", reasons).tolist()),
            mean=None if mean is None else mean[:, :horizon],
            paths=None if paths is None else paths[:, :, :horizon],
        )
