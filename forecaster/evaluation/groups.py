"""Windows of a backtest sorted by what they have in common: metrics by series, lead, cutoff or channel.

What comes in: forecasts and their tallies. What goes out: a frame of metrics in the caller's kind, and
the interval of a skill, which needs to know which windows share a cutoff or a series.

Axes: N window (a series at one cutoff) · G group · K cutoff · S series.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from forecaster.errors import ConfigError, DataError
from forecaster.evaluation.bootstrap import Skill, paired_skills
from forecaster.evaluation.tally import Floats, Tally, names_of
from forecaster.forecast.forecast import Forecast
from forecaster.panel.frames import frame_of, to_kind
from forecaster.panel.panel import NO_TIME, Panel

Int64 = NDArray[np.int64]

Axis = Literal["series", "lead", "cutoff", "channel"]
"""What metrics can be told apart by."""


def table_by(forecasts: Sequence[Forecast], tallies: Mapping[str, Tally], axis: str) -> Any:
    """Returns a row per group and model with the metrics of its cells, as the caller's kind of frame.

    Args:
        forecasts: the windows.
        tallies: by model, over these windows.
        axis: one of `Axis`.

    Raises:
        ConfigError: there is no such axis.
        DataError: a key column has the name of a metric.
    """
    panel = forecasts[0].panel
    keys, scores = _grouped(forecasts, tallies, axis)
    names = names_of(scores.values())
    first = next(iter(scores.values()))
    models, groups = list(scores), len(first["cells"])
    each = np.repeat(np.arange(groups), len(models))
    made: dict[str, Any] = {"model": models * groups}
    for name in names:
        made[name] = np.stack([mine[name] for mine in scores.values()], axis=1).ravel()
    for name in keys:
        if name in made:
            raise DataError(f"{panel.name}: column '{name}' is also a result's; rename it")
    columns = {name: key[each] for name, key in keys.items()} | made
    return to_kind(frame_of(columns).fill_nan(None), panel.kind)


def skills_over(
    forecasts: Sequence[Forecast], tallies: Mapping[str, Tally], rival: str
) -> dict[str, Skill]:
    """Returns the skill of each model over one of them in WQL, with its bootstrap interval.

    Args:
        forecasts: the windows.
        tallies: by model, of these windows.
        rival: a model of them.
    """
    series, cutoff = _windows(forecasts)
    times, number = np.unique(cutoff, return_inverse=True)
    owners, owner = np.unique(series, return_inverse=True)
    shape = (len(times), len(owners))

    def grid(tally: Tally) -> Floats:
        sums = tally.windows["pinball"].sum(axis=1)
        cell = number * shape[1] + owner
        return np.bincount(cell, sums, shape[0] * shape[1]).reshape(shape).astype(np.float64)

    losses = {name: grid(mine) for name, mine in tallies.items()}
    return paired_skills(losses, losses[rival], _overlap(forecasts, times[times != NO_TIME]))


def truth_of(forecast: Forecast) -> NDArray[np.float32]:
    """Returns [N, H, C] what followed."""
    assert forecast.actual is not None  # a backtest's forecasts have it
    return forecast.actual


def rows_at(panel: Panel, series: Int64, time: Int64) -> Int64:
    """Returns [N] the last row of each window's series with time <= the given.

    Where there is none it is the row before the series' first.

    Args:
        panel: of the series.
        series: [N] numbers.
        time: [N] times.
    """
    low, high = panel.indptr[series].copy(), panel.indptr[series + 1].copy()
    while (left := np.flatnonzero(low < high)).size:
        middle = (low[left] + high[left]) // 2
        later = panel.time[middle] > time[left]
        high[left[later]] = middle[later]
        low[left[~later]] = middle[~later] + 1
    return low - 1


def _grouped(
    forecasts: Sequence[Forecast], tallies: Mapping[str, Tally], axis: str
) -> tuple[dict[str, Any], dict[str, dict[str, Floats]]]:
    """Returns the key columns of the groups, and by model the metrics of each group."""
    panel, horizon = forecasts[0].panel, forecasts[0].time.shape[1]
    if axis == "lead":
        lead = np.arange(1, horizon + 1, dtype=np.int32)
        return {"lead": lead}, {name: mine.by_lead() for name, mine in tallies.items()}
    if axis == "channel":
        targets = np.array(panel.schema.target, dtype=object)
        return {"channel": targets}, {name: mine.by_channel() for name, mine in tallies.items()}
    if axis not in get_args(Axis):
        raise ConfigError(f"by {axis!r}: expected one of {', '.join(get_args(Axis))}")
    series, cutoff = _windows(forecasts)
    found, group = np.unique(series if axis == "series" else cutoff, return_inverse=True)
    keys: dict[str, Any] = {"cutoff": panel.stamps(found, "cutoff")} if axis == "cutoff" else {}
    if axis == "series":
        keys = {name: panel.keys[name][found] for name in panel.keys.columns}
        keys = keys or {"series": np.array(panel.labels, dtype=object)[found]}
    return keys, {name: mine.by_group(group, len(found)) for name, mine in tallies.items()}


def _windows(forecasts: Sequence[Forecast]) -> tuple[Int64, Int64]:
    """[N] series and [N] cutoff of all windows."""
    return (
        np.concatenate([one.series for one in forecasts]),
        np.concatenate([one.cutoff for one in forecasts]),
    )


def _overlap(forecasts: Sequence[Forecast], times: Int64) -> int:
    """Returns how many neighbouring cutoffs forecast a common step."""
    if len(times) < 2:
        return 1
    gap = int(forecasts[0].panel.calendar.steps(times[:-1], times[1:]).min())
    horizon: int = forecasts[0].time.shape[1]
    return -(-horizon // max(1, gap))
