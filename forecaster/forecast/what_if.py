"""What-if: forecasts of a table as it is and with other known covariates, and their difference.

    path of the difference = changed path − base path, both by the same random numbers
    forecast, quantile     = of these paths
    mean                   = difference of the means

So what changes nothing differs by exactly 0, and what both forecasts have in common widens no band.

Axes: N series · S path · H lead · C channel · Q quantile level.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from typing import Any, Generic, TypeVar

import numpy as np

from forecaster.arguments import typed
from forecaster.forecast.forecast import DONE, Forecast, joined
from forecaster.forecast.plots import (
    BAND,
    TITLE,
    TRUTH,
    VALUES,
    axis_times,
    draw_band,
    panel_grid,
    series_title,
    shared_legend,
    tidy,
)
from forecaster.forecast.result import Result
from forecaster.forecast.totals import TotalRequest, Totals, past_totals, totals_of
from forecaster.lazy import Figure
from forecaster.panel.findings import Finding
from forecaster.panel.frames import PolarsFrame
from forecaster.panel.groups import check_results
from forecaster.panel.known import Change, by_scenario
from forecaster.panel.panel import Only, Panel

Kind = TypeVar("Kind", Forecast, Totals)
_MARKED = 12  # points of a line that are few enough to be marked
_HISTORY = 2  # in horizons
_ROWS = 3  # series and channels, or groups


@dataclass(frozen=True, repr=False)
class WhatIf(Result, Generic[Kind]):
    """Forecasts, or totals, of a table as it is and with other known covariates, and the difference."""

    base: Kind
    changed: Kind
    difference: Kind
    changes: tuple[Change, ...]
    """Of known covariates after the cutoff, in their order."""
    samples: int
    """Paths that the difference is taken of."""
    seed: int
    findings: tuple[Finding, ...] = ()
    """What the audit of the table found, worst first."""

    @property
    def parts(self) -> dict[str, Kind]:
        """Base, changed and difference, by the word in rows."""
        return {"base": self.base, "what-if": self.changed, "difference": self.difference}

    @property
    def panel(self) -> Panel:
        """The table as it is."""
        return self.base.panel

    @cached_property
    def rows(self) -> PolarsFrame:
        """A polars frame with three rows, of base, what-if and difference, for each of the base."""
        return by_scenario({name: part.rows for name, part in self.parts.items()})

    @property
    def lost(self) -> tuple[int, str]:
        """How many series and channels have no difference, and the most frequent reason."""
        return self.difference.lost

    @property
    def report(self) -> str:
        """One line: that of the base, the changes, and by how much they move the sum of the forecasts."""
        points = [
            part.median if part.mean is None else part.mean for part in (self.base, self.difference)
        ]
        before, by = (float(np.nansum(cells)) for cells in points)
        # Six significant digits, without an exponent.
        before, by = (float(f"{total:.6g}") for total in (before, by))
        moved = f"{by:+,.15g} in all, from {before:,.15g}" if by else "no forecast changes"
        return f"{self.base.report}; with {', '.join(map(str, self.changes))}: {moved}"

    @typed
    def total(
        self: WhatIf[Forecast],
        sum: str,
        by: str | Sequence[str] | None = None,
        *,
        partial: bool = False,
    ) -> WhatIf[Totals]:
        """Returns forecasts and differences summed over periods; see `Forecast.total`.

        Raises:
            ConfigError: the table has no such columns or periods.
            DataError: a column is named like one of the result.
        """
        request = TotalRequest.of(sum, by, partial)
        check_names(self.panel, request, self.findings)

        def totals(parts: Iterator[Forecast]) -> Totals:
            return totals_of(self.panel, parts, request, self.samples, self.seed)

        differences = _differences(self.base, self.changed, self.samples, self.seed)
        return WhatIf(
            base=totals(self.base.blocks()),
            changed=totals(self.changed.blocks()),
            difference=totals(differences),
            changes=self.changes,
            samples=self.samples,
            seed=self.seed,
            findings=self.findings,
        )

    @typed
    def plot(self, only: Only = None) -> Figure:
        """Returns a figure of both and their difference; a row per series and channel, or group, at most three.

        Args:
            only: names of series (several key columns joined with "/"); None = the first few.

        Raises:
            DataError: there is no such series.
        """
        rows = list(islice(_rows(self, only), _ROWS))
        figure, axes = panel_grid(2 * len(rows))
        order = np.argsort(self.base.levels)
        levels = tuple(self.base.levels[place] for place in order)
        changes = ", ".join(map(str, self.changes))
        for row, left, right in zip(rows, axes[::2], axes[1::2], strict=False):
            title, past, history, time, quantiles = row
            past, time = (axis_times(self.panel, part) for part in (past, time))
            base, changed, difference = (cells[:, order] for cells in quantiles)  # [H, Q]
            few = len(time) <= _MARKED
            left.plot(past, history, color=VALUES, linewidth=1.1, label="history")
            for cells, color, name in ((base, BAND, "base"), (changed, TRUTH, "what-if")):
                median = cells[:, levels.index(0.5)]
                left.plot(time, median, color=color, marker="o" if few else None, ms=3, label=name)
            right.axhline(0.0, color=VALUES, linewidth=0.8)
            draw_band(right, time, difference, levels)
            if few:
                right.vlines(time, difference[:, 0], difference[:, -1], color=BAND)
            for axis, text in ((left, title), (right, f"difference: {changes}")):
                axis.set_title(text, **TITLE)
                tidy(axis, dates=not self.panel.calendar.integer)
        shared_legend(figure, axes[0])
        return figure


def compared(
    base: Forecast, changed: Forecast, changes: tuple[Change, ...], samples: int, seed: int
) -> WhatIf[Forecast]:
    """Returns two forecasts of the same cells, and the difference of their paths.

    Raises:
        ConfigError: the model draws no paths.
    """
    found = _differences(base, changed, samples, seed)
    difference = joined(base.panel, [replace(part, paths=None, source=None) for part in found])
    return WhatIf(base, changed, difference, changes, samples, seed)


def check_names(panel: Panel, request: TotalRequest | None, findings: Sequence[Finding]) -> None:
    """Raises where the result cannot have its columns, or a total not be made: see `TotalRequest.check`."""
    by = () if request is None else request.by or ()
    check_results(panel, ["scenario"], "--what-if", by)
    if request is not None:
        request.check(panel, findings)


def _differences(whole: Forecast, other: Forecast, samples: int, seed: int) -> Iterator[Forecast]:
    """Yields the differences of neighbouring series, with their paths."""
    for base, changed in zip(whole.blocks(), other.blocks(), strict=True):
        paths = changed.draw(samples, seed) - base.draw(samples, seed)  # [N, S, H, C]
        quantiles = np.moveaxis(np.quantile(paths, whole.all_levels, axis=1), 0, -1)  # [N, H, C, Q]
        status = [
            after if before.startswith(DONE) else before
            for before, after in zip(base.status, changed.status, strict=True)
        ]
        yield replace(
            base.with_quantiles(quantiles),
            mean=None if base.mean is None or changed.mean is None else changed.mean - base.mean,
            paths=paths,
            status=tuple(status),
        )


def _rows(found: WhatIf[Any], only: Only) -> Iterator[tuple[Any, ...]]:
    """Yields title, times and values of the history, times and quantiles of base, what-if and difference."""
    base, panel = found.base, found.panel
    if not isinstance(base, Forecast):
        for group in dict.fromkeys(base.group.tolist()):
            own = base.group == group
            quantiles = [part.quantiles[own] for part in found.parts.values()]
            yield base.groups.names[group], *past_totals(base, group), base.period[own], quantiles
        return
    for number in panel.numbers(only).tolist():
        rows = slice(*panel.indptr[number : number + 2])
        seen = np.flatnonzero(panel.time[rows] <= base.cutoff[number])[-_HISTORY * base.time.shape[1] :]
        for channel in np.flatnonzero(panel.present[number]).tolist():
            title = series_title(panel, number, channel)
            history = panel.values[rows, channel][seen]
            quantiles = [part.quantiles[number, :, channel] for part in found.parts.values()]
            yield title, panel.time[rows][seen], history, base.time[number], quantiles
