"""Rolling cutoffs: forecasts made then, compared with what followed.

What comes in: a panel, the cutoffs, and a function `forecast_at(cutoff)`. What goes out: a row per
(series, cutoff, channel, lead) with the truth beside it, and scores of the model and of seasonal naive
over the same cells. Promised: baselines are always in the table; no cell is dropped in silence.

Axes: N forecast (series at one cutoff) · H lead · C channel · Q quantile level.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forecaster.errors import DataError
from forecaster.evaluation import metrics
from forecaster.evaluation.baselines import seasonal_naive
from forecaster.forecast.forecast import Forecast
from forecaster.forecast.writer import write_rows
from forecaster.panel.panel import Panel
from forecaster.panel.read import frame_of, to_kind

MODEL = "forecaster"
NAIVE = "seasonal naive"

Scores = dict[str, float]


@dataclass(frozen=True, repr=False)
class Backtest:
    """Forecasts of a known past, with their scores."""

    forecasts: tuple[Forecast, ...]
    """One per cutoff, each with the truth that followed."""
    scores: dict[str, Scores]
    """By model: MAE, RMSE, MASE, sMAPE, WQL, coverage, and the skill against seasonal naive."""
    scored: int
    """Cells (series, cutoff, channel, lead) that were scored."""
    unscored: int
    """Cells without a truth or without a forecast: in the rows, not in the scores."""

    def __repr__(self) -> str:
        return f"Backtest({len(self.forecasts)} cutoffs: {MODEL} {self.verdict})"

    @property
    def rows(self) -> Any:
        """A polars frame with a row per (cutoff, series, channel, lead)."""
        return reduce(lambda above, below: above.vstack(below), (f.rows for f in self.forecasts))

    @property
    def frame(self) -> Any:
        """The rows as the kind of frame the caller came with (a file gives polars)."""
        return to_kind(self.rows, self.forecasts[0].panel.kind)

    @property
    def summary(self) -> Any:
        """A row per model with its scores, as the kind of frame the caller came with."""
        columns: dict[str, list[Any]] = {"model": list(self.scores)}
        for name in self.scores[MODEL]:
            columns[name] = [scores[name] for scores in self.scores.values()]
        return to_kind(frame_of(columns), self.forecasts[0].panel.kind)

    @property
    def verdict(self) -> str:
        """One sentence that says whether the model is worth having."""
        mine, naive = self.scores[MODEL], self.scores[NAIVE]
        word, skill = compared(mine["WQL"], naive["WQL"]), mine["skill"]
        if word == "loses to" and naive["WQL"] == 0:
            said = f"loses to seasonal naive: its WQL is {mine['WQL']:.4g}, that of seasonal naive 0"
        elif word in ("beats", "loses to"):
            direction = "lower" if skill > 0 else "higher"
            said = f"{word} seasonal naive: its WQL is {abs(100 * skill):.1f} % {direction}"
        else:
            return f"{word} seasonal naive"
        if word == "beats" and mine["MASE"] > naive["MASE"]:
            # Better bands can hide worse medians.
            said += f", but its MASE is {100 * (mine['MASE'] / naive['MASE'] - 1):.1f} % higher"
        return said

    def write(self, path: str | Path) -> None:
        """Writes the rows to a .csv or .parquet file, whole or not at all.

        Raises:
            OutputError: the suffix is neither, or the file cannot be written.
        """
        write_rows(self.rows, Path(path))

    def plot(self, series: str | None = None) -> Any:
        """Returns a figure of the last cutoff's forecast with the truth.

        Args:
            series: the key of one series; None = the first few.
        """
        return self.forecasts[-1].plot(series)


def compared(wql: float, naive: float) -> str:
    """Returns "beats", "matches", "loses to", or what to say where the truth is all zeros."""
    if np.isnan(wql) or np.isnan(naive):
        return "cannot be compared (its WQL is not defined) with"
    return "beats" if wql < naive else "matches" if wql == naive else "loses to"


def rolling_cutoffs(panel: Panel, windows: int, horizon: int, stride: int | None = None) -> list[int]:
    """Returns the times of cutoffs, rising; the last leaves exactly one horizon of truth.

    Args:
        panel: the table.
        windows: how many cutoffs.
        horizon: steps forecast at each.
        stride: steps between cutoffs; None = the horizon, so that windows do not overlap.

    Raises:
        DataError: the table does not reach back to the first cutoff.
    """
    last = panel.last_observed
    if (last < 0).all():
        raise DataError(f"{panel.name}: no target is observed, nothing to compare forecasts with")
    end = int(panel.time[last[last >= 0]].max())
    spacing = stride or horizon
    reach = horizon + spacing * (windows - 1)
    past = panel.calendar.before(end, reach)
    begin = int(panel.time.min())
    if past[0] <= begin:
        raise DataError(
            f"{panel.name}: {windows} windows of horizon {horizon} reach back to "
            f"{panel.calendar.text(int(past[0]))}, the table begins at {panel.calendar.text(begin)}; "
            "use fewer --windows"
        )
    return [int(time) for time in past[: -horizon + 1 or None : spacing]]


def run_backtest(
    panel: Panel, cutoffs: Sequence[int], forecast_at: Callable[[int], Forecast]
) -> Backtest:
    """Returns forecasts and scores at rolling cutoffs.

    Args:
        panel: the whole table.
        cutoffs: times of the last steps that may be seen, rising.
        forecast_at: makes the forecast of all series at a cutoff, with the truth beside it.
    """
    forecasts = tuple(forecast_at(cutoff) for cutoff in cutoffs)
    levels = forecasts[0].levels
    actual, model, naive, scale = [], [], [], []
    for cutoff, forecast in zip(cutoffs, forecasts, strict=True):
        assert forecast.actual is not None
        at = forecast.panel.row_at(cutoff)
        rivals, scales = naive_at(forecast.panel, forecast.series, at, forecast.time.shape[1], levels)
        actual.append(forecast.actual)
        model.append(forecast.quantiles)
        naive.append(rivals)
        scale.append(scales)
    scores, scored = score_models(
        np.concatenate(actual),
        {MODEL: np.concatenate(model), NAIVE: np.concatenate(naive)},
        levels,
        np.concatenate(scale),
    )
    cells = sum(forecast.time.size * panel.n_channels for forecast in forecasts)
    return Backtest(forecasts, scores, scored, cells - scored)


def naive_at(
    panel: Panel,
    series: NDArray[np.int64],
    cutoff: NDArray[np.int64],
    horizon: int,
    levels: tuple[float, ...],
) -> tuple[NDArray[np.float32], NDArray[np.float64]]:
    """Returns seasonal naive quantiles [N, H, C, Q] and MASE scales [N, C] at given cutoffs.

    Args:
        panel: the table.
        series: [N] number of each series.
        cutoff: [N] row of the last step that may be seen; one before its series' first = no history.
        horizon: leads.
        levels: quantile levels.
    """
    values = panel.values[:, : panel.n_channels]
    season = panel.calendar.season_length
    at = np.maximum(cutoff, panel.indptr[series] - 1)
    quantiles = seasonal_naive(values, panel.indptr, at, series, horizon, season, levels)
    return quantiles, metrics.mase_scales(values, panel.indptr, at, season, series)


def score_models(
    actual: NDArray[np.float32],
    quantiles: dict[str, NDArray[np.float32]],
    levels: tuple[float, ...],
    scale: NDArray[np.float64],
) -> tuple[dict[str, Scores], int]:
    """Returns each model's scores over the cells that all models forecast, and how many these are.

    Args:
        actual: [N, H, C] the truth, NaN = missing.
        quantiles: by model, [N, H, C, Q]; "seasonal naive" among them.
        levels: quantile levels.
        scale: [N, C] in-sample seasonal error, the denominator of MASE.
    """
    everywhere = np.logical_and.reduce([np.isfinite(q).all(axis=-1) for q in quantiles.values()])
    shared = np.where(everywhere, actual, np.nan).transpose(0, 2, 1)  # [N, C, H]
    scored = int(np.isfinite(shared).sum())
    scores = {
        name: _scores(shared, q.transpose(0, 2, 1, 3), levels, scale) for name, q in quantiles.items()
    }
    for mine in scores.values():
        mine["skill"] = metrics.skill(mine["WQL"], scores[NAIVE]["WQL"])
    return scores, scored


def _scores(
    actual: NDArray[np.float32],
    quantiles: NDArray[np.float32],
    levels: tuple[float, ...],
    scale: NDArray[np.float64],
) -> Scores:
    median = quantiles[..., levels.index(0.5)]
    share = round(100 * (levels[-1] - levels[0]))
    # A series that never varied has no MASE; it still counts everywhere else.
    usable = np.where(scale > 0, scale, np.nan)
    return {
        "MAE": metrics.mae(actual, median),
        "RMSE": metrics.rmse(actual, median),
        "MASE": metrics.mase(actual, median, usable),
        "sMAPE": metrics.smape(actual, median),
        "WQL": metrics.wql(actual, quantiles, levels),
        f"coverage_{share}": metrics.coverage(actual, quantiles[..., 0], quantiles[..., -1]),
    }
