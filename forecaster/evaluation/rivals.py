"""What stands beside a model in every table, and the scores of all over the same cells.

What comes in: a panel and pairs (series, cutoff); then quantiles by model. What goes out: the quantiles
of baselines and the scales of scaled metrics; then a tally and scores per model. Promised: all models
are scored over the cells that all of them forecast.

Axes: N window (a series at one cutoff) · H lead · C channel · Q quantile level.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from forecaster.evaluation import metrics
from forecaster.evaluation.baselines import drift, naive, seasonal_naive
from forecaster.evaluation.ets import ets
from forecaster.evaluation.scales import Scales, mase_scales, rmsse_scales
from forecaster.evaluation.tally import Scores, Tally, tally
from forecaster.panel.panel import Panel

MODEL = "forecaster"
NAIVE = "seasonal naive"
ETS = "ETS"
RIDGE = "ridge"

CHEAP = (NAIVE, "naive", "drift")
"""Baselines that cost next to nothing."""
BASELINES = (*CHEAP, ETS)
"""All that need no fit."""

Quantiles = NDArray[np.float32]


class Rivals(NamedTuple):
    """What a model's forecasts are held against."""

    quantiles: dict[str, Quantiles]
    """By baseline, [N, H, C, Q] data units; NaN where a channel has no past."""
    scales: Scales
    """Of the windows."""


def rivals_at(
    panel: Panel,
    series: NDArray[np.int64],
    cutoff: NDArray[np.int64],
    horizon: int,
    levels: Sequence[float],
    names: Iterable[str] = BASELINES,
) -> Rivals:
    """Returns the baselines' forecasts and the scales at given cutoffs.

    Args:
        panel: the table.
        series: [N] number of each series.
        cutoff: [N] row of the last step that may be seen; one before its series' first = no history.
        horizon: leads.
        levels: quantile levels.
        names: of the baselines.
    """
    values, indptr = panel.values[:, : panel.n_channels], panel.indptr
    season = panel.calendar.season_length
    at = np.maximum(cutoff, indptr[series] - 1)
    told = (values, indptr, at, series, horizon)
    made = {
        NAIVE: lambda: seasonal_naive(*told, season, levels),
        "naive": lambda: naive(*told, levels),
        "drift": lambda: drift(*told, levels),
        ETS: lambda: ets(*told, season, levels),
    }
    scales = Scales(
        mase_scales(values, indptr, at, season, series), rmsse_scales(values, indptr, at, 1, series)
    )
    return Rivals({name: made[name]() for name in names}, scales)


def tallies_of(
    actual: NDArray[np.float32],
    quantiles: Mapping[str, Quantiles],
    levels: Sequence[float],
    scales: Scales,
    paths: NDArray[np.float32] | None = None,
) -> dict[str, Tally]:
    """Returns each model's tally over the cells that all models forecast.

    Args:
        actual: [N, H, C] the truth, NaN = missing.
        quantiles: by model, [N, H, C, Q].
        levels: quantile levels.
        scales: of the windows.
        paths: [N, S, H, C] the draws of "forecaster", where there are any.
    """
    everywhere = np.logical_and.reduce([np.isfinite(q).all(axis=-1) for q in quantiles.values()])
    shared = np.where(everywhere, actual, np.nan)
    return {
        name: tally(shared, said, levels, scales, paths if name == MODEL else None)
        for name, said in quantiles.items()
    }


def score_models(
    actual: NDArray[np.float32],
    quantiles: Mapping[str, Quantiles],
    levels: Sequence[float],
    scales: Scales,
) -> tuple[dict[str, Scores], int]:
    """Returns each model's scores over the cells that all models forecast, and how many these are.

    Args:
        actual: [N, H, C] the truth, NaN = missing.
        quantiles: by model, [N, H, C, Q]; "seasonal naive" among them.
        levels: quantile levels.
        scales: of the windows.
    """
    tallies = tallies_of(actual, quantiles, levels, scales)
    scores = {name: mine.overall() for name, mine in tallies.items()}
    for mine in scores.values():
        mine["skill"] = metrics.skill(mine["WQL"], scores[NAIVE]["WQL"])
    return scores, int(tallies[NAIVE].windows["cells"].sum())
