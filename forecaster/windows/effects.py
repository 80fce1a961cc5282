"""Effects of covariates known in advance: taken out of a panel before its windows are cut, put back on forecasts.

    remainder = y − effect                forecast = that of the remainder + effect
    remainder = y · exp(−effect)          forecast = that of the remainder · exp(effect)         as factors

Axes: S series · C channel · K column.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from forecaster.panel.arrays import Bools, Floats, Ints, empty_beside, text_hashes
from forecaster.panel.panel import Panel
from forecaster.windows.effect_columns import Dates, Term

_LARGEST = 20.0  # a logarithm of a factor
_MOST_DETERMINED = 0.8


@dataclass(frozen=True)
class Effects:
    """Terms and their coefficients."""

    terms: tuple[Term, ...]
    hashes: Ints
    """[S] of the names of the series that have coefficients of their own."""
    own: Floats
    """[S, C, K] data units, or logarithms of factors."""
    shared: Floats
    """[C, K] of any other series."""
    determined: Floats
    """[S, C] share of the rows of a series that coefficients fit by themselves."""
    multiplies: Bools
    """[C] whether effects are factors."""
    center: Floats
    """[S, C] mean effect of numbers in each series; NaN = it had no rows."""

    @cached_property
    def _place(self) -> dict[int, int]:
        return {name: number for number, name in enumerate(self.hashes.tolist())}

    def places(self, panel: Panel) -> Ints:
        """Returns [series] the number of each series of a panel among those with coefficients; −1 = none."""
        hashes = text_hashes(panel.series_names).tolist()
        return np.array([self._place.get(name, -1) for name in hashes], np.int64)

    def inflation(self, panel: Panel) -> Floats:
        """Returns [series, C] errors of new rows over those of rows that coefficients have seen.

        inflation = √((1 + p) / (1 − p)),   p the share of the rows that coefficients fit by themselves
        """
        share = np.zeros((panel.n_series, self.determined.shape[1]))
        places = self.places(panel)
        share[places >= 0] = self.determined[places[places >= 0]]
        share = share.clip(0.0, _MOST_DETERMINED)
        return np.sqrt((1 + share) / (1 - share))

    def of(self, panel: Panel, without: str | None = None) -> Floats:
        """Returns [row, C] the effect at each row: data units, or logarithms of factors.

        That of numbers is counted from its mean in the series: prices that differ between series are their levels.

        Args:
            panel: with the columns of the table that was learned from.
            without: a covariate that is left out, by its name in the panel.
        """
        effect = empty_beside(panel.values, (panel.n_rows, len(self.multiplies)), np.float64)
        most = np.where(self.multiplies, _LARGEST, np.inf)
        for place, rows, numbers, others in self._parts(panel, without):
            center = self.center[place] if place >= 0 else np.full(len(most), np.nan)
            center = np.where(np.isnan(center), numbers.mean(axis=0), center)
            effect[rows] = (numbers - center + others).clip(-most, most)
        return effect

    def centered(self, panel: Panel) -> Effects:
        """Returns the same, with the mean effect of numbers in each series of the panel that was learned from."""
        center = np.full((panel.n_series, len(self.multiplies)), np.nan)
        for place, _, numbers, _ in self._parts(panel, None):
            center[place] = numbers.mean(axis=0)
        return replace(self, center=center)

    def _parts(self, panel: Panel, without: str | None) -> Iterator[tuple[int, slice, Floats, Floats]]:
        """Yields the place of each series, its rows, and the effects [n, C] of numbers and of all else."""
        places = self.places(panel)
        ends = np.cumsum([term.size(panel.calendar) for term in self.terms])
        for number, rows, clock in dated(panel):
            place = int(places[number])
            coefficients = self.shared if place < 0 else self.own[place]  # [C, K]
            parts = np.split(coefficients.T, ends[:-1])
            numbers, others = np.zeros((2, rows.stop - rows.start, len(self.multiplies)))
            for term, part in zip(self.terms, parts, strict=True):
                if term.name_in(panel) == without:
                    continue
                columns = term.columns(panel, rows, clock)
                of_kind = numbers if term.kind in ("number", "bent") else others
                # Not by BLAS, whose rounding depends on the number of rows.
                of_kind += np.einsum("nk,kc->nc", columns, part)
            yield place, rows, numbers, others

    def removed(self, panel: Panel, effect: Floats) -> Panel:
        """Returns the panel with what an effect [row, C] leaves of its targets."""
        values = empty_beside(panel.values, panel.values.shape, np.float64)
        values[:] = panel.values
        targets = values[:, : panel.n_channels]
        targets *= np.exp(-np.where(self.multiplies, effect, 0.0))
        targets -= np.where(self.multiplies, 0.0, effect)
        return replace(panel, values=values)


def without_effects(panel: Panel, effects: Effects | None) -> Panel:
    """Returns what effects, if there are any, leave of a panel."""
    return panel if effects is None else effects.removed(panel, effects.of(panel))


def dated(panel: Panel) -> Iterator[tuple[int, slice, Dates]]:
    """Yields number, rows and dates of each series with rows; of equal dates in a row the same object."""
    clock = Dates(panel.calendar, np.zeros(0, np.int64))
    for number in range(panel.n_series):
        rows = slice(int(panel.indptr[number]), int(panel.indptr[number + 1]))
        if rows.start == rows.stop:
            continue
        time = panel.time[rows]
        if not np.array_equal(time, clock.time):
            clock = Dates(panel.calendar, time)
        yield number, rows, clock
