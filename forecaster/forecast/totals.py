"""Totals: forecasts summed over periods and groups of series, with the bands of their summed sample paths.

    path of a total    = sum of the paths of its cells
    forecast, quantile = of the paths of the total
    mean               = sum of the means of its cells

Sums are kept a block of series at a time, and only for groups that later blocks add to: so memory does not
grow with the number of series.

Axes: N series · S path · H lead · C channel · R total (group and period) · Q quantile level.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from forecaster.errors import ConfigError, DataError, number_of
from forecaster.forecast.bands import Columns, quantile_columns
from forecaster.forecast.plots import (
    BAND,
    PANELS,
    TITLE,
    VALUES,
    axis_times,
    panel_grid,
    shared_legend,
    tidy,
)
from forecaster.forecast.result import Result
from forecaster.lazy import Figure
from forecaster.panel.arrays import Array, Bools, Floats, Ints
from forecaster.panel.calendar import Calendar, parse_freq
from forecaster.panel.findings import Finding
from forecaster.panel.frames import PolarsFrame
from forecaster.panel.groups import Groups, check_alike, check_by, group_series
from forecaster.panel.panel import Panel

if TYPE_CHECKING:
    from forecaster.forecast.forecast import Forecast

PATHS = 200
"""Sample paths that are summed."""
HORIZON = "horizon"
_RESULTS = ("period", "steps", "series", "channel", "forecast", "mean", "status")
_PAST = 12  # past totals at most
_UNITS = {"", "min", "h", "d", "w", "mo", "moe", "q", "qe", "y", "ye"}


@dataclass(frozen=True)
class TotalRequest:
    """What is summed."""

    period: str
    """W, MS, QS or another frequency, or "horizon": all leads."""
    by: tuple[str, ...] | None = None
    """Columns of the groups; ("all",) = one group, None = each series by itself."""
    partial: bool = False
    """Sum the rest where some series of a group have no forecast."""

    @classmethod
    def of(cls, period: str, by: str | Sequence[str] | None, partial: bool) -> TotalRequest:
        """Returns the request of options as a caller gives them.

        Raises:
            ConfigError: there is no such period.
        """
        try:
            unit = "" if period == HORIZON else Calendar(parse_freq(period), None, False).unit
        except DataError:
            unit = "none"
        if unit not in _UNITS:
            raise ConfigError(f"--sum {period}: expected W, MS, QS, another period, or horizon")
        names = [by] if isinstance(by, str) else by
        return cls(period, None if names is None else tuple(filter(None, names)), partial)

    def check(self, panel: Panel, findings: Sequence[Finding]) -> None:
        """Refuses periods, groups and names of columns that do not suit a table, of which an audit has findings.

        Raises:
            ConfigError: rows are numbered, steps are longer than the period, or a column is not known.
            DataError: a column is named like one of the result, or series of a group have unlike steps.
        """
        check_by(panel, self.by, _RESULTS)
        if not self.within_series(panel):
            check_alike(panel, findings, "--sum")
        if self.period == HORIZON:
            return
        if panel.calendar.integer:
            raise ConfigError(
                f"--sum {self.period}: rows of {panel.name} have whole numbers instead of times; expected "
                "horizon"
            )
        if self._calendar(panel).step < 0.99 * panel.calendar.shortest:
            raise ConfigError(
                f"--sum {self.period}: shorter than a step of {panel.name}, {panel.calendar.freq}; expected "
                "a longer period, or horizon"
            )

    def within_series(self, panel: Panel) -> bool:
        """Whether each group is one series of the table, so that blocks of series can be summed apart."""
        return len(set(self.groups(panel).number.max(axis=1))) == panel.n_series

    def groups(self, panel: Panel) -> Groups:
        """Returns the groups of a panel."""
        return group_series(panel, self.by)

    def starts(self, panel: Panel, time: Ints) -> Ints:
        """Returns the first time of the period of each time; 0 of the horizon."""
        if self.period == HORIZON:
            return np.zeros_like(time)
        return self._calendar(panel).period(time.reshape(-1))[0].reshape(time.shape)

    def _calendar(self, panel: Panel) -> Calendar:
        return Calendar(parse_freq(self.period), panel.calendar.time_zone, False)


@dataclass(frozen=True)
class _Sums:
    """Totals as far as they are summed; each array has an entry per total."""

    group: Ints
    start: Ints
    """First time of the period."""
    paths: Floats
    """[R, S] sums of the cells with a forecast."""
    mean: Floats
    summed: Ints
    """Series with a forecast."""
    lost: Ints
    """Series without one."""
    first_lost: Ints
    """Number of the first of these; large = none."""
    steps: Ints
    """Most steps of a series."""
    first: Ints
    """Earliest first time of a series."""
    last_first: Ints
    """Latest first time of a series."""
    cut: Bools
    """Whether the period reaches beyond the horizon of a series."""

    def reduced(self) -> _Sums:
        """Returns one entry per group and period, in this order."""
        order = np.lexsort((self.start, self.group))
        group, start = self.group[order], self.start[order]
        begin = np.flatnonzero(np.diff(group, prepend=-1) | np.diff(start, prepend=-1))

        def over(kind: np.ufunc, *names: str) -> dict[str, Any]:
            return {name: kind.reduceat(getattr(self, name)[order], begin, axis=0) for name in names}

        return _Sums(
            group=group[begin],
            start=start[begin],
            **over(np.add, "paths", "mean", "summed", "lost"),
            **over(np.minimum, "first_lost", "first"),
            **over(np.maximum, "steps", "last_first", "cut"),
        )

    def select(self, chosen: Bools) -> _Sums:
        """Returns some of the totals."""
        return _Sums(**{name: values[chosen] for name, values in vars(self).items()})

    def with_more(self, other: _Sums) -> _Sums:
        """Returns both, reduced."""
        both = {
            name: np.concatenate([values, vars(other)[name]]) for name, values in vars(self).items()
        }
        return _Sums(**both).reduced()


@dataclass(frozen=True, repr=False)
class Totals(Result):
    """Sums of forecasts over periods, by group of series."""

    panel: Panel
    """History, names and calendar."""
    request: TotalRequest
    groups: Groups
    group: Ints
    """[R] number of the group."""
    period: Ints
    """[R] first time of the period; of the horizon, the time of the first lead."""
    steps: Ints
    """[R] steps summed of each series, the most."""
    series: Ints
    """[R] how many series are summed."""
    mean: Floats
    """[R] data units; NaN = no total."""
    quantiles: Floats
    """[R, Q] data units; NaN = no total."""
    levels: tuple[float, ...]
    """[Q] quantile levels."""
    columns: Columns
    """Of the quantiles in rows."""
    status: NDArray[np.object_]
    """[R] "ok", "partial" where the horizon does not fill the period, or which series lack a forecast."""
    lost: tuple[int, str]
    """How many series and channels have no forecast, and the most frequent reason."""
    findings: tuple[Finding, ...] = ()
    """What the audit of the table found, worst first."""

    @property
    def median(self) -> Floats:
        """[R] the point forecast, data units."""
        return self.quantiles[:, self.levels.index(0.5)]

    @cached_property
    def rows(self) -> PolarsFrame:
        """A polars frame with a row per group and period, in that order."""
        of_level = dict(zip(self.levels, self.quantiles.T, strict=True))
        columns = {name: of_level[level] for name, level in self.columns}
        return self.groups.frame(
            self.group,
            self.period,
            steps=self.steps,
            series=self.series,
            forecast=self.median,
            mean=self.mean,
            **columns,
            status=self.status,
        )

    @property
    def report(self) -> str:
        """One line: how many totals, of how many groups, and how many are incomplete."""
        line = f"{number_of(len(self.group), 'total')} of {number_of(len(set(self.group)), 'group')}"
        missing = int(np.isnan(self.mean).sum())
        return line + f"; {missing:,} missing: {self.lost[1]}" * (missing > 0)

    def plot(self) -> Figure:
        """Returns a figure of past totals, forecasts and outermost bands; a panel per group, at most six."""
        shown = list(dict.fromkeys(self.group.tolist()))[:PANELS]
        figure, axes = panel_grid(len(shown))
        integer = self.panel.calendar.integer
        for axis, group in zip(axes, shown, strict=False):
            rows = np.flatnonzero(self.group == group)
            past, sums = past_totals(self, group)
            time = np.append(past, self.period[rows])
            width = 0.7 * float(np.median(np.diff(time))) if len(time) > 1 else 1.0
            start, starts = (axis_times(self.panel, part) for part in (self.period[rows], past))
            bar = width if integer else np.timedelta64(int(width), "us")
            axis.bar(starts, sums, bar, color=VALUES, alpha=0.45, label="history")
            partial = np.array(["partial" in status for status in self.status[rows]])
            for chosen, alpha, label in (
                (~partial, 0.75, "forecast"),
                (partial, 0.35, "forecast, partial period"),
            ):
                if chosen.any():
                    heights = self.median[rows][chosen]
                    axis.bar(start[chosen], heights, bar, color=BAND, alpha=alpha, label=label)
            outermost = [int(np.argmin(self.levels)), int(np.argmax(self.levels))]
            low, high = self.quantiles[rows][:, outermost].T
            share = f"{100 * float(np.ptp(self.levels)):.0f} % band"
            axis.vlines(start, low, high, color=VALUES, linewidth=1.6, label=share)
            axis.set_title(self.groups.names[group], **TITLE)
            tidy(axis, dates=not integer)
        shared_legend(figure, axes[0])
        return figure


def totals_of(
    panel: Panel, parts: Iterable[Forecast], request: TotalRequest, count: int = PATHS, seed: int = 0
) -> Totals:
    """Returns the totals of forecasts.

    Args:
        panel: of all series.
        parts: forecasts of neighbouring series, in the order of the panel.
        request: what is summed; checked.
        count: sample paths.
        seed: of the paths.
    """
    groups = request.groups(panel)
    there = groups.number >= 0
    last = np.full(groups.sizes.shape, -1)  # last series of each group
    np.maximum.at(last, groups.number[there], np.nonzero(there)[0])
    open_sums: _Sums | None = None
    done: list[dict[str, Array]] = []
    lost = Counter[str]()
    stop = 0
    for forecast in parts:
        begin, stop = stop, stop + len(forecast.time)
        paths = forecast.draw(count, seed)
        sums = _sums_of(forecast, paths, groups.number[begin:stop], begin, request)
        sums = sums if open_sums is None else open_sums.with_more(sums)
        finished = last[sums.group] < stop
        done.append(_finished(sums.select(finished), forecast, groups, request))
        open_sums = sums.select(~finished)
        series, reason = forecast.lost
        lost[reason] += series
    rows: dict[str, Any] = {name: np.concatenate([part[name] for part in done]) for name in done[0]}
    order = np.lexsort((rows["period"], rows["group"]))
    return Totals(
        panel=panel,
        request=request,
        groups=groups,
        levels=forecast.all_levels,
        columns=forecast.columns or quantile_columns(forecast.levels),
        lost=(lost.total(), max(lost, key=lost.__getitem__)),
        **{name: values[order] for name, values in rows.items()},
    )


def _sums_of(
    forecast: Forecast, paths: Floats, group: Ints, first_series: int, request: TotalRequest
) -> _Sums:
    """Returns the sums of paths [N, S, H, C] of series in groups [N, C]."""
    panel, time = forecast.panel, forecast.time
    horizon = time.shape[1]
    start = request.starts(panel, time)  # [N, H]
    cut = np.zeros(start.shape, np.bool_)
    if request.period != HORIZON:
        # A period begins before the first lead, or ends after the last, where a neighbouring step is in it.
        for lead, step in ((0, -1), (-1, 1)):
            beside = request.starts(panel, panel.calendar.shift(time[:, lead], step))
            cut |= start == beside[:, None]
    # The leads of a series in one period follow each other: runs of cells [N · H].
    new = np.diff(start, axis=1, prepend=0) != 0
    new[:, 0] = True
    begin = np.flatnonzero(new)
    opened = ~forecast.closed
    steps = np.add.reduceat(opened.ravel(), begin, dtype=np.int64)
    mean = paths.mean(axis=1) if forecast.mean is None else forecast.mean  # [N, H, C]
    mean = np.where(opened[..., None], mean, 0.0)
    path_sums, mean_sums = (
        np.add.reduceat(cells.reshape(start.size, *cells.shape[2:]), begin, axis=0)
        for cells in (paths.transpose(0, 2, 3, 1), mean)
    )  # [run, C, S], [run, C]
    run, channel = np.nonzero(group[begin // horizon] >= 0)
    cell, series = begin[run], begin[run] // horizon
    usable = forecast.usable[series, channel]
    return _Sums(
        group=group[series, channel],
        start=start.ravel()[cell],
        paths=np.where(usable[:, None], path_sums[run, channel], 0.0),
        mean=np.where(usable, mean_sums[run, channel], 0.0),
        summed=usable.astype(np.int64),
        lost=(~usable).astype(np.int64),
        first_lost=np.where(usable, np.iinfo(np.int64).max, first_series + series),
        steps=steps[run],
        first=time.ravel()[cell],
        last_first=time.ravel()[cell],
        cut=cut.ravel()[cell],
    ).reduced()


def _finished(
    sums: _Sums, forecast: Forecast, groups: Groups, request: TotalRequest
) -> dict[str, Array]:
    """Returns the arrays of `Totals` for some totals."""
    missing = (sums.summed == 0) | ((sums.lost > 0) & (not request.partial))
    quantiles = np.quantile(sums.paths, forecast.all_levels, axis=1).T
    quantiles[missing] = np.nan
    lacks = forecast.lacks(several=False), forecast.lacks(several=True)
    status = [
        _status(sums, row, groups, request.partial) + lacks[int(count > 1)]
        for row, count in enumerate(sums.summed)
    ]
    return {
        "group": sums.group,
        "period": sums.first if request.period == HORIZON else sums.start,
        "steps": sums.steps,
        "series": sums.summed,
        "mean": np.where(missing, np.nan, sums.mean),
        "quantiles": quantiles,
        "status": np.array(status, dtype=object),
    }


def _status(sums: _Sums, row: int, groups: Groups, partial: bool) -> str:
    """What is to be said of one total."""
    said, lost, summed = [], int(sums.lost[row]), int(sums.summed[row])
    if lost:
        name = groups.panel.series_names[int(sums.first_lost[row])]
        what = "without" if partial and summed else "no forecast of"
        said.append(f"{what} {lost:,} of {lost + summed:,} series, as {name}")
    unlike = sums.first[row] != sums.last_first[row]
    unlike |= lost + summed < groups.sizes[sums.group[row]]
    if sums.cut[row] or unlike:
        said.append("partial" + ", from unlike cutoffs" * bool(unlike))
    return "; ".join(said) or "ok"


def past_totals(totals: Totals, group: int) -> tuple[Ints, Floats]:
    """Returns the first times and the sums of past periods of a group in which every cell is observed."""
    panel, request = totals.panel, totals.request
    series, channel = np.nonzero(totals.groups.number == group)
    first = int(totals.period[totals.group == group].min())
    times, values = [], []
    for number, column in zip(series, channel, strict=True):
        rows = slice(int(panel.indptr[number]), int(panel.indptr[number + 1]))
        before = panel.time[rows] < first
        times.append(panel.time[rows][before])
        values.append(panel.values[rows, column][before])
    time, value = np.concatenate(times), np.concatenate(values)
    if not len(time):
        return time, value
    if request.period == HORIZON:
        steps = int(totals.steps[totals.group == group].max())
        back = panel.calendar.steps(time, int(time.max()))  # 0 of the last step
        start = panel.calendar.shift(int(time.max()), -(back // steps + 1) * steps + 1)
    else:
        start = request.starts(panel, time)
    periods, place = np.unique(start, return_inverse=True)
    sums = np.bincount(place, value)
    count = np.bincount(place)
    # Months differ in length; of a horizon, the first may be cut short, or a series begin within.
    enough = count.max() * (1.0 if request.period == HORIZON else 0.8)
    whole = (count >= enough) & np.isfinite(sums)
    return periods[whole][-_PAST:], sums[whole][-_PAST:]
