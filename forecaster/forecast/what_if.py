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
from typing import TYPE_CHECKING, Generic, TypeVar

import numpy as np

from forecaster.arguments import typed
from forecaster.errors import DataError
from forecaster.forecast.bands import further_levels
from forecaster.forecast.forecast import PATH_BLOCK, Forecast, joined
from forecaster.forecast.result import Result
from forecaster.forecast.totals import TotalRequest, Totals, totals_of
from forecaster.panel.findings import Finding
from forecaster.panel.frames import PolarsFrame
from forecaster.panel.known import Change, by_scenario
from forecaster.panel.panel import Only, Panel

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Kind = TypeVar("Kind", Forecast, Totals)
SCENARIOS = ("base", "what-if", "difference")


@dataclass(frozen=True, repr=False)
class Scenarios(Result, Generic[Kind]):
    """Forecasts, or totals, as the table is and with changes, and the difference."""

    base: Kind
    changed: Kind
    difference: Kind
    changes: tuple[Change, ...]
    """Of the known covariates after the cutoff, in their order."""

    @property
    def parts(self) -> dict[str, Kind]:
        """Base, changed and difference, by the word in rows."""
        return dict(zip(SCENARIOS, (self.base, self.changed, self.difference), strict=True))

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
    def findings(self) -> tuple[Finding, ...]:
        """What the audit of the table found, worst first."""
        return self.base.findings

    @property
    def report(self) -> str:
        """One line: that of the base, the changes, and by how much they move the sum of the forecasts."""
        before, by = (
            float(np.nansum(part.median if part.mean is None else part.mean))
            for part in (self.base, self.difference)
        )
        moved = f"{by:+,.6g} in all, from {before:,.6g}" if by else "no forecast changes"
        return f"{self.base.report}; with {', '.join(map(str, self.changes))}: {moved}"


@dataclass(frozen=True, repr=False)
class WhatIf(Scenarios[Forecast]):
    """Forecasts of a table as it is and with other known covariates, and their difference."""

    samples: int
    """Paths that the difference is taken of."""
    seed: int

    @typed
    def total(
        self, sum: str, by: str | Sequence[str] | None = None, *, partial: bool = False
    ) -> WhatIfTotals:
        """Returns forecasts and differences summed over periods; see `Forecast.total`.

        Raises:
            ConfigError: the table has no such columns or periods.
            DataError: a column is named like one of the result.
        """
        request = TotalRequest.of(sum, by, partial)
        request.check(self.panel)
        check_names(self.panel, request)
        blocks = (
            (base for base, _ in self._pairs()),
            (changed for _, changed in self._pairs()),
            (difference(*pair, self.samples, self.seed) for pair in self._pairs()),
        )
        base, changed, by_difference = (
            replace(
                totals_of(self.panel, parts, request, self.samples, self.seed), findings=self.findings
            )
            for parts in blocks
        )
        return WhatIfTotals(base, changed, by_difference, self.changes)

    def _pairs(self) -> Iterator[tuple[Forecast, Forecast]]:
        return _pairs(self.base, self.changed)

    @typed
    def plot(self, only: Only = None) -> Figure:
        """Returns a figure of both forecasts and their difference; a row per series and channel, at most three.

        Args:
            only: names of series (several key columns joined with "/"); None = the first few.

        Raises:
            DataError: there is no such series.
        """
        from forecaster.forecast.what_if_plot import plot_forecasts

        return plot_forecasts(self, self.panel.numbers(only))


class WhatIfTotals(Scenarios[Totals]):
    """Totals of a table as it is and with other known covariates, and their differences."""

    def plot(self) -> Figure:
        """Returns a figure of both totals and their difference; a row per group, at most three."""
        from forecaster.forecast.what_if_plot import plot_totals

        return plot_totals(self)


def compared(
    base: Forecast, changed: Forecast, changes: tuple[Change, ...], samples: int, seed: int
) -> WhatIf:
    """Returns two forecasts of the same cells, and the difference of their paths.

    Raises:
        ConfigError: the model draws no paths.
    """
    parts = [
        replace(difference(*pair, samples, seed), paths=None, source=None)
        for pair in _pairs(base, changed)
    ]
    return WhatIf(base, changed, joined(base.panel, parts), changes, samples, seed)


def _pairs(base: Forecast, changed: Forecast) -> Iterator[tuple[Forecast, Forecast]]:
    """Yields both forecasts of neighbouring series: their paths are drawn a block at a time."""
    for start in range(0, len(base.time), PATH_BLOCK):
        yield base.between(start, start + PATH_BLOCK), changed.between(start, start + PATH_BLOCK)


def difference(base: Forecast, changed: Forecast, samples: int, seed: int) -> Forecast:
    """Returns the difference of two forecasts of the same cells, with its paths."""
    paths = changed.draw(samples, seed) - base.draw(samples, seed)  # [N, S, H, C]
    levels = base.levels + further_levels(base.columns, base.levels)
    quantiles = np.moveaxis(np.quantile(paths, levels, axis=1), 0, -1)  # [N, H, C, Q]
    fitted = len(base.levels)
    means = base.mean, changed.mean
    return replace(
        base,
        quantiles=quantiles[..., :fitted],
        further=quantiles[..., fitted:] if base.columns else None,
        mean=None if means[0] is None or means[1] is None else means[1] - means[0],
        paths=paths,
        status=tuple(
            own if own != "ok" else other
            for own, other in zip(base.status, changed.status, strict=True)
        ),
    )


def check_names(panel: Panel, request: TotalRequest | None) -> None:
    """Raises a DataError where a column of the result would be named like the one of scenarios."""
    schema = panel.schema
    own = {*schema.key_columns, *schema.time_parts, schema.time, *schema.target_columns}
    if "scenario" in own | {*((request and request.by) or ())}:
        raise DataError(f"{panel.name}: column 'scenario' is also a result's of --what-if; rename it")
