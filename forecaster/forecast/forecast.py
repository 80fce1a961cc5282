"""`Forecast`: quantiles of each series and lead, keyed in the caller's own names.

One row per (series, cutoff, channel, lead), nothing dropped, nothing twice; a series that could not be
forecast keeps its rows, empty, with the reason in `status`; so does a channel.

Axes: N forecast (one series at one cutoff) · S sample path · H lead · C channel · Q quantile level.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from forecaster.arguments import typed
from forecaster.errors import ConfigError, DataError, check_count
from forecaster.forecast.bands import (
    UNSCALED,
    Columns,
    further_levels,
    quantile_columns,
)
from forecaster.forecast.result import Result
from forecaster.lazy import AnyFrame, Figure
from forecaster.panel.arrays import Array, Bools, Floats, Ints
from forecaster.panel.findings import Finding
from forecaster.panel.frames import PolarsFrame, to_kind
from forecaster.panel.panel import NO_TIME, Only, Panel

if TYPE_CHECKING:
    from forecaster.forecast.artifact import Artifact
    from forecaster.forecast.hierarchy import Hierarchy
    from forecaster.forecast.paths import PathSource
    from forecaster.forecast.totals import Totals
    from forecaster.forecast.window import ForecastWindow
else:
    from forecaster.lazy import Artifact, ForecastWindow, Hierarchy, PathSource, Totals

_NO_PATHS = "this forecast has no sample paths: request them, predict(samples=200)"
PATH_BLOCK = 256
"""Forecasts whose paths are drawn at a time."""
COLD = "cold"
"""Status of a forecast of a series without history."""
DONE = ("ok", COLD)
"""How the status of a forecast begins."""
_APART = ", series drawn apart"
"""Ends the status of a sum over series whose paths an autoregressive decoder draws one by one."""


@dataclass(frozen=True, repr=False)
class Forecast(Result):
    """Quantiles of the future, or of a past that is known by now."""

    panel: Panel
    """History, names and calendar; for pictures also the truth where it is there."""
    series: Ints
    """[N] number of the series in the panel."""
    cutoff: Ints
    """[N] time of the cutoff; NO_TIME = no forecast."""
    time: Ints
    """[N, H] time of each lead."""
    quantiles: Floats
    """[N, H, C, Q] data units, rising along Q; NaN = no forecast."""
    levels: tuple[float, ...]
    """[Q] quantile levels."""
    status: tuple[str, ...]
    """[N · C] "ok", "ok, 1 observation" (a history that does not show how far values spread, see `Experts.few`),
    "cold" (forecast without history, from statics and known covariates), any of them followed by `UNSCALED`, or
    why there is no forecast: of each series and channel, in this order; "" = the series has no such channel."""
    actual: Floats | None = None
    """[N, H, C] the truth, data units, NaN = missing; only in a backtest."""
    mean: Floats | None = None
    """[N, H, C] data units, NaN = no forecast; None where the model has no mean."""
    paths: Floats | None = None
    """[N, S, H, C] sample paths, data units, NaN = no forecast; None unless requested."""
    source: PathSource | None = None
    """Draws sample paths; None where the model has none, or its decoder draws them itself."""
    artifact: Artifact | None = None
    """The model; None where the quantiles came from elsewhere."""
    window: ForecastWindow | None = None
    """What it was asked for."""
    findings: tuple[Finding, ...] = ()
    """What the audit of the table found, worst first."""
    columns: Columns = ()
    """Of the quantiles in rows; () = a column of each of `levels`."""
    further: Floats | None = None
    """[N, H, C, F] quantiles at the levels of `columns` that are not in `levels`; None without `columns`."""

    @property
    def median(self) -> Floats:
        """[N, H, C] the point forecast, data units."""
        return self.quantiles[..., self.levels.index(0.5)]

    @property
    def usable(self) -> Bools:
        """[N, C] whether there is a forecast."""
        return np.asarray(np.isfinite(self.quantiles).all(axis=(1, 3)))

    @property
    def all_levels(self) -> tuple[float, ...]:
        """Levels of `quantiles`, then those of `further`."""
        return self.levels + further_levels(self.columns, self.levels)

    @property
    def all_quantiles(self) -> Floats:
        """[N, H, C, Q] the quantiles at all levels."""
        if self.further is None:
            return self.quantiles
        return np.concatenate([self.quantiles, self.further], axis=-1)

    def with_quantiles(self, quantiles: Floats) -> Forecast:
        """Returns the forecast with quantiles [N, H, C, Q] at all levels."""
        fitted = len(self.levels)
        further = quantiles[..., fitted:] if self.columns else None
        return replace(self, quantiles=quantiles[..., :fitted], further=further)

    @property
    def shown(self) -> dict[str, Floats]:
        """[N, H, C] the quantiles of each column."""
        every = dict(zip(self.all_levels, np.moveaxis(self.all_quantiles, -1, 0), strict=True))
        columns = self.columns or quantile_columns(self.levels)
        return {name: every[level] for name, level in columns}

    @property
    def rows(self) -> PolarsFrame:
        """A polars frame with a row per (series, cutoff, channel, lead), in that order."""
        values = {"forecast": self.median}
        if self.mean is not None:
            values["mean"] = self.mean
        values |= self.shown
        if self.actual is not None:
            values["actual"] = self.actual
        return self.keyed({name: cells[:, None] for name, cells in values.items()})

    @property
    def sample_rows(self) -> PolarsFrame:
        """A polars frame with a row per (series, cutoff, channel, sample, lead), in that order.

        Raises:
            ConfigError: no paths were drawn.
        """
        if self.paths is None:
            raise ConfigError(_NO_PATHS)
        return self.keyed({"value": self.paths}, numbered=True)

    def draw(self, count: int, seed: int = 0) -> Floats:
        """Returns [N, S, H, C] sample paths in data units: those that were kept, else so many new ones.

        Raises:
            ConfigError: the model has none.
        """
        if self.paths is not None:
            return self._open_only(self.paths)
        if self.source is None:
            raise ConfigError(_NO_PATHS)
        return self._open_only(self.source.draw(self, count, seed))

    @property
    def closed(self) -> Bools:
        """[N, H] whether a lead is on a weekday on which the series has no values; sums leave it out."""
        return self.panel.closed_at(self.series, self.time)

    def _open_only(self, paths: Floats) -> Floats:
        return np.where(self.closed[:, None, :, None], 0.0, paths) if self.panel.closed.any() else paths

    def lacks(self, several: bool) -> str:
        """Returns what ends the status of sums of paths; `several` = over series or channels."""
        if self.source is None:
            return _APART * several
        scarce = self.source.scarce
        far = any(status.endswith(UNSCALED) for status in self.status)
        return f", {scarce}" * bool(scarce) + UNSCALED * far

    def keyed(self, values: Mapping[str, Array], numbered: bool = False) -> PolarsFrame:
        """Returns the rows of arrays [N, S, H, C] by column; `numbered` = with the number of the sample."""
        n, samples, horizon, channels = next(iter(values.values())).shape
        each = channels * samples * horizon
        columns: dict[str, Array] = {
            "lead": np.tile(np.arange(1, horizon + 1, dtype=np.int32), n * channels * samples),
            "channel": np.tile(np.repeat(np.arange(channels), samples * horizon), n),
        }
        if numbered:
            sample = np.repeat(np.arange(samples, dtype=np.int32), horizon)
            columns["sample"] = np.tile(sample, n * channels)
        columns |= {name: cells.transpose(0, 3, 1, 2).reshape(-1) for name, cells in values.items()}
        status = np.array(self.status, dtype=object)
        if numbered and self.source is not None and (scarce := self.source.scarce):
            ok = [one.startswith("ok") for one in self.status]
            status[ok] += f", {scarce}"
        columns["status"] = np.repeat(status, samples * horizon)
        if self.panel.closed.any():
            closed = np.repeat(self.closed, channels * samples, axis=0).reshape(-1)
            columns["status"][closed & (columns["status"] != "")] = "closed"
            columns |= {
                name: np.where(closed, np.nan, columns[name]) for name in values if name != "\0at"
            }
        return self.panel.frame(
            np.repeat(self.series, each),
            np.repeat(self.time, channels * samples, axis=0).reshape(-1),
            cutoff=np.repeat(self.cutoff, each),
            **columns,
        )

    @typed
    def total(
        self,
        sum: str,
        by: str | Sequence[str] | None = None,
        *,
        samples: int | None = None,
        seed: int = 0,
        partial: bool = False,
    ) -> Totals:
        """Returns the forecasts summed over periods, with bands of summed sample paths.

        Args:
            sum: W (weeks from Monday to Sunday), MS, QS or another period, or "horizon".
            by: key columns and static covariates of the groups, or "all"; None = each series by itself.
            samples: paths to sum, where none were kept; None = 200.
            seed: of the paths.
            partial: sum the rest of a group where some of its series have no forecast.

        Raises:
            ConfigError: the model draws no paths, or the table has no such columns or periods.
            DataError: a column is named like one of the result, or series of a group have unlike steps.

        Example:
            >>> model.predict("sales.csv").total("W", by="region").frame   # doctest: +SKIP
        """
        from forecaster.forecast.totals import PATHS, TotalRequest, totals_of

        check_count(samples, "samples", " paths")
        request = TotalRequest.of(sum, by, partial)
        request.check(self.panel, self.findings)
        return replace(
            totals_of(self.panel, self.blocks(), request, samples or PATHS, seed),
            findings=self.findings,
        )

    @typed
    def hierarchy(
        self,
        hierarchy: object,
        reconcile: Literal["mint", "wls", "bottom-up"] | None = None,
        *,
        samples: int | None = None,
        seed: int = 0,
    ) -> Hierarchy:
        """Returns the forecasts of all sums of series in a hierarchy, reconciled so that they add up.

        Args:
            hierarchy: key columns and static covariates, as "State/Region*Purpose", where `/` nests and `*`
                crosses; or a table, file or frame, with the columns child and parent.
            reconcile: how; None = mint up to 2,000 nodes, wls above.
            samples: paths to reconcile, which are then kept; None = 200, which are not.
            seed: of the paths.

        Raises:
            ConfigError: the model draws no paths, or the table has no such columns.
            DataError: the hierarchy is none, or the series have unlike cutoffs or steps.

        Example:
            >>> model.predict("sales.csv").hierarchy("region/store").frame   # doctest: +SKIP
        """
        from forecaster.forecast.hierarchy import hierarchy_of
        from forecaster.panel.tree import HierarchyRequest

        check_count(samples, "samples", " paths")
        request = HierarchyRequest.of(hierarchy, reconcile)
        request.check(self.panel, self.findings, self.cutoff)
        return hierarchy_of(self, request, samples, seed)

    def blocks(self) -> Iterator[Forecast]:
        """Yields neighbouring forecasts, as many at a time as have paths that fit in memory."""
        for start in range(0, len(self.time), PATH_BLOCK):
            yield self.between(start, start + PATH_BLOCK)

    def between(self, first: int, last: int) -> Forecast:
        """Returns some neighbouring forecasts."""
        names = ("series", "cutoff", "time", "quantiles", "further", "actual", "mean", "paths")
        parts: dict[str, Any] = {name: getattr(self, name) for name in names}
        parts = {name: part[first:last] for name, part in parts.items() if part is not None}
        channels = self.panel.n_channels
        return replace(self, **parts, status=self.status[first * channels : last * channels])

    @property
    def samples(self) -> AnyFrame:
        """The rows of the sample paths as the kind of frame of the input.

        Raises:
            ConfigError: no paths were drawn.
        """
        return to_kind(self.sample_rows, self.panel.kind, self.panel.original)

    @property
    def lost(self) -> tuple[int, str]:
        """How many series and channels have no forecast, and the most frequent reason."""
        failed = Counter(status for status in self.status if status and not status.startswith(DONE))
        return failed.total(), failed.most_common(1)[0][0] if failed else ""

    @property
    def report(self) -> str:
        """One line: how many forecasts, from when, which series had none, and unknown categories."""
        n_series, rows = len(self.time), cells_of(self)
        return outcome(self.panel, self.cutoff, n_series, rows, self.lost, self.findings)

    def wide(self) -> AnyFrame:
        """Returns a row per time and a column per series and channel (several keys joined with "/"): the medians.

        Raises:
            DataError: a series has the name of the time column, or of another series.
        """
        times = [*self.panel.schema.time_parts] or [self.panel.schema.time or "time"]
        several = self.panel.n_channels > 1 and not self.panel.schema.pivots
        keys = [*self.panel.schema.key_columns, *(["channel"] if several else [])]
        # Times may be text in the caller's format, which does not sort as time does.
        medians = self.median[:, None]
        at = np.broadcast_to(self.time[:, None, :, None], medians.shape)
        number = np.arange(medians[:, :, 0].size).reshape(len(medians), 1, 1, -1)
        number = np.broadcast_to(number, medians.shape)
        rows = self.keyed({"forecast": medians, "\0at": at, "\0number": number})
        keys = keys or ["channel"]
        found = rows.unique("\0number", maintain_order=True).select(keys)
        names = [*map("/".join, found.cast(dict.fromkeys(keys, str)).rows())]
        name, count = Counter([*times, *names]).most_common(1)[0]
        if count > 1:
            raise DataError(
                f"{self.panel.name}: wide() would have two columns '{name}': rename the "
                + ("time column, or that series" if name in times else "keys of these series")
            )
        # A time column may be called 0, as the number of a series is, or "at".
        hidden = {name: f"\0time {name}" for name in times}
        index = ["\0at", *hidden.values()]
        wide = rows.rename(hidden).pivot(on="\0number", index=index, values="forecast")
        wide.columns = ["\0at", *times, *names]
        # A series may be called like a column of ids.
        original = self.panel.original
        dtypes = {name: dtype for name, dtype in original.dtypes.items() if name in times}
        original = original._replace(dtypes=dtypes)
        return to_kind(wide.sort("\0at").drop("\0at"), self.panel.kind, original)

    @typed
    def plot(self, only: Only = None) -> Figure:
        """Returns a figure of history, median and bands; a panel per series and channel, at most six.

        Args:
            only: names of series (several key columns joined with "/"); None = the first few.

        Raises:
            DataError: there is no such series.
        """
        from forecaster.forecast.plots import PANELS, plot_forecast

        wanted = self.panel.numbers(only)
        shown = wanted[np.isin(wanted, self.series)][:PANELS]
        return plot_forecast(self, np.nonzero(shown[:, None] == self.series)[1])


def known_forecast(
    panel: Panel,
    series: Ints,
    cutoff: Ints,
    quantiles: Floats,
    levels: tuple[float, ...],
) -> Forecast:
    """Returns quantiles [N, H, C, Q] at past cutoffs (rows [N]) as a forecast, with the truth."""
    rows = cutoff[:, None] + np.arange(1, quantiles.shape[1] + 1)
    return Forecast(
        panel=panel,
        series=series,
        cutoff=panel.time[cutoff],
        time=panel.time[rows],
        quantiles=quantiles,
        levels=levels,
        status=("ok",) * (len(series) * panel.n_channels),
        actual=panel.values[rows, : panel.n_channels],
    )


def cells_of(forecast: Forecast) -> int:
    """Returns the number of leads of all series and channels, without channels that a series lacks."""
    return forecast.time.shape[1] * sum(map(bool, forecast.status))


def none_forecast(panel: Panel, lost: tuple[int, str], count: int) -> DataError | None:
    """Returns the error where none of `count` series and channels has a forecast; `lost` as of `Forecast`."""
    if lost[0] < max(1, count):
        return None
    which = f"none of {count:,} series has a" if count > 1 else f"series {panel.series_names[0]} has no"
    return DataError(
        f"{panel.name}: {which} forecast: {lost[1]}; give the history up to the cutoff, or choose another"
    )


def outcome(
    panel: Panel,
    cutoff: Ints,
    n_series: int,
    rows: int,
    lost: tuple[int, str],
    findings: Iterable[Finding],
) -> str:
    """Returns one line: how many forecasts, from when, which had none, and unknown categories.

    Args:
        panel: of the series.
        cutoff: times of the cutoffs; NO_TIME = no forecast.
        n_series, rows: of the output.
        lost: how many series have no forecast, and the most frequent reason.
        findings: of the audit.
    """
    text = panel.calendar.text
    line = f"{n_series:,} series, {rows:,} rows"
    placed = cutoff[cutoff != NO_TIME]
    if len(placed):
        latest = placed.max()
        line += f", from {text(int(latest))}"
        earlier = int((placed < latest).sum())
        if earlier:
            line += f" ({earlier:,} series end earlier and are forecast from their own end)"
    if lost[0]:
        line += f"; {lost[0]:,} without a forecast: {lost[1]}"
    unknown = [finding.text for finding in findings if finding.rule == "unknown-category"]
    return "; ".join([line, *unknown])


def joined(panel: Panel, forecasts: Sequence[Forecast]) -> Forecast:
    """Returns the forecast of a panel from those of its neighbouring series, in their order."""
    first = forecasts[0]
    arrays: dict[str, Any] = {
        name: np.concatenate([getattr(part, name) for part in forecasts])
        for name in ("cutoff", "time", "quantiles", "further", "mean", "paths")
        if getattr(first, name) is not None
    }
    status = tuple(status for part in forecasts for status in part.status)
    return replace(first, panel=panel, series=np.arange(panel.n_series), status=status, **arrays)
