"""Effects: what covariates known in advance and the calendar add to the targets of a table.

    remainder = y − effect                forecast = that of the remainder + effect
    remainder = y · exp(−effect)          forecast = that of the remainder · exp(effect)         as factors

Those of covariates, and of dates that no season repeats, are taken out of a panel before its windows are cut, and
put back on forecasts: experts know nothing of them. With those of the other parts of the calendar they forecast
twice, with and without (`Inputs.without_calendar`).

Axes: S series · C channel · K column.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

import numpy as np

from forecaster.panel.arrays import Bools, Codes, Floats, Ints, empty_beside, text_hashes
from forecaster.panel.calendar import Calendar
from forecaster.panel.panel import Panel
from forecaster.windows.effect_columns import Dates, Term, readings
from forecaster.windows.factors import CLOSED, LARGEST, SHUT

_MOST_DETERMINED = 0.8
_DOUBTFUL, _MOST_DOUBTFUL = 2.0, 1 / 3
"""Variance of an effect over that of the noise, from which a cell says little of others; their largest share."""
_OF_NORMAL = 1.4826  # a standard deviation over the median distance
_TINY = 1e-6
_MOST_CELLS = 1 << 20  # of series of the same dates at a time


@dataclass(frozen=True)
class Effects:
    """Terms and their coefficients."""

    terms: tuple[Term, ...]
    """Of covariates, of dates that no season repeats, and of the other parts of the calendar."""
    hashes: Ints
    """[S] of the names of the series that have coefficients of their own."""
    own: Floats
    """[S, C, K] data units, or logarithms of factors."""
    shared: Floats
    """[C, K] of any other series."""
    of_static: Floats
    """[C, J, M, K] what is added to those of other series by code of static J; 0 of an unknown one."""
    deviation: Floats
    """[S, C, K] standard deviations of what is read off `own` (see `readings`), in its units; NaN = no rows."""
    determined: Floats
    """[S, C, 2] share of the rows of a series that coefficients fit by themselves: of covariates, and of all."""
    variation: Floats
    """[C, D] variance of the effect of each covariate's terms from one time to the next, over its square."""
    multiplies: Bools
    """[C] whether effects are factors."""
    noise: Floats
    """[S, C] variance of a step of what the effects of covariates leave, its unit squared; NaN = not known, or
    most effects of the series vary by far more."""
    center: Floats
    """[S, C, 2] mean effect of numbers, and of the calendar, in each series; NaN = it had no rows."""
    calendar_ratio: Floats
    """[C] mean change from row to row of what the calendar leaves, over that of the targets."""

    @property
    def n_channels(self) -> int:
        """C."""
        return len(self.multiplies)

    @property
    def declared(self) -> tuple[Term, ...]:
        """The terms of covariates."""
        return tuple(term for term in self.terms if term.kind != "calendar")

    @property
    def of_dates(self) -> tuple[Term, ...]:
        """The terms of dates of a month or of a year, which no season repeats."""
        return tuple(term for term in self.terms if term.is_of_dates)

    @property
    def calendar(self) -> tuple[Term, ...]:
        """The terms of all other parts of the calendar, which experts follow by themselves."""
        ours = (term for term in self.terms if term.kind == "calendar")
        return tuple(term for term in ours if not term.is_of_dates)

    @property
    def look_ahead(self) -> bool:
        """Whether the effect at a row depends on covariates of later rows."""
        return any(term.looks_ahead for term in self.terms)

    @property
    def are_taken_out(self) -> bool:
        """Whether any are taken out of a panel before its windows are cut."""
        return bool(self.declared or self.of_dates)

    @cached_property
    def _place(self) -> dict[int, int]:
        return {name: number for number, name in enumerate(self.hashes.tolist())}

    def places(self, panel: Panel) -> Ints:
        """Returns [series] the number of each series of a panel among those with coefficients; −1 = none."""
        hashes = text_hashes(panel.series_names).tolist()
        return np.array([self._place.get(name, -1) for name in hashes], np.int64)

    def read(self, panel: Panel, channel: int) -> tuple[Bools, Floats, Floats]:
        """Returns [K] what is read off the coefficients of a series (see `readings`).

        Of a series that the table did not have the deviation is that between series, too.

        Args:
            panel: of this series alone.
            channel: number of the channel.

        Returns:
            Which columns are not 0 everywhere, readings, and their standard deviations, in units of `own`.
        """
        own, deviation = self.own[:, channel], self.deviation[:, channel]
        met = np.asarray(own.any(axis=0))
        reading = readings(self.terms, panel.calendar, met)
        place = self.places(panel)[0]
        if place >= 0 and not np.isnan(deviation[place]).any():
            return met, reading @ own[place], deviation[place]
        between = (own @ reading.T).std(axis=0)
        return (
            met,
            reading @ self._every(panel)[0, channel],
            np.hypot(between, np.nanmedian(deviation, axis=0)),
        )

    def error_ratios(self, panel: Panel) -> Floats:
        """Returns [series, C, 3] errors of new rows over those of rows that were seen, and `calendar_ratio`.

        ratio = √((1 + p) / (1 − p)),   p the share of the rows that coefficients fit by themselves
        """
        places = self.places(panel)
        share = np.where(places[:, None, None] < 0, 0.0, self.determined[places])
        share = share.clip(0.0, _MOST_DETERMINED)
        seen = np.sqrt((1 + share) / (1 - share))
        of_table = np.broadcast_to(self.calendar_ratio[:, None], (len(seen), self.n_channels, 1))
        return np.concatenate([seen, of_table], axis=2)

    def of(self, panel: Panel, without: str | None = None) -> Floats:
        """Returns [row, C] the effect of covariates and of dates: data units, or logarithms of factors.

        That of numbers is counted from its mean in the series: prices that differ between series are their levels.

        Args:
            panel: with the columns of the table that was learned from.
            without: a covariate that is left out, by its name in the panel.
        """
        effect = empty_beside(panel.values, (panel.n_rows, self.n_channels), np.float64)
        if not self.declared:
            for _, rows, of_series in self._calendar_parts(panel, self.of_dates):
                effect[rows] = self._bounded(of_series).reshape(-1, self.n_channels)
            return effect
        centers = self._center(self.places(panel), 0)
        for series, rows, numbers, others in self._parts(panel, without):
            center = np.where(np.isnan(centers[series]), numbers.mean(axis=0), centers[series])
            effect[rows] = self._bounded(numbers - center + others)
        return effect

    def variance(self, panel: Panel) -> Floats | None:
        """Returns [row, C] the variance of the effect of covariates from one time to the next, its unit squared.

        variance = Σ κ_c · (effect of covariate c)²        None where no effect varies
        """
        if not self.variation.any():
            return None
        total = empty_beside(panel.values, (panel.n_rows, self.n_channels), np.float64)
        coefficients = self._coefficients(panel)
        for series, rows, clock in dated(panel):
            effects: dict[tuple[int, bool], Floats] = {}
            variations = {}
            for number, (term, part) in enumerate(zip(self.declared, coefficients, strict=False)):
                variation = self.variation[:, number]
                if variation.any():
                    own = term.from_usual(part[series])
                    effect = np.einsum("nk,ck->nc", term.columns(panel, rows, clock), own)
                    effects[term.source] = effects.get(term.source, 0.0) + effect
                    variations[term.source] = variation
            parts = (variations[column] * effect**2 for column, effect in effects.items())
            total[rows] = sum(parts)
        return total

    def of_calendar(self, panel: Panel) -> Floats:
        """Returns [row, C] the effect of the calendar at each row, counted from its mean in the series."""
        effect = empty_beside(panel.values, (panel.n_rows, self.n_channels), np.float64)
        for places, rows, of_series in self._calendar_parts(panel, self.calendar):
            centers = self._center(places, 1)[:, None]
            centers = np.where(np.isnan(centers), of_series.mean(axis=1, keepdims=True), centers)
            effect[rows] = self._bounded(of_series - centers).reshape(-1, self.n_channels)
        return effect

    def centered(self, panel: Panel) -> Effects:
        """Returns the same, with the mean effects and the changes in the panel that was learned from."""
        center = np.full((panel.n_series, self.n_channels, 2), np.nan)
        noise = np.full((panel.n_series, self.n_channels), np.nan)
        places = self.places(panel)
        for series, rows, numbers, others in self._parts(panel, None):
            mean = numbers.mean(axis=0)
            center[places[series], :, 0] = mean
            values = panel.values[rows, : self.n_channels]
            noise[places[series]] = self._noise(self._left(values, numbers - mean + others))
        variance = self.variance(panel)
        if variance is not None:
            for series, (start, stop) in enumerate(pairwise(panel.indptr)):
                is_doubtful = variance[start:stop] > _DOUBTFUL * noise[places[series]]
                many = is_doubtful.sum(axis=0) >= _MOST_DOUBTFUL * (stop - start)
                noise[places[series], many] = np.nan
        changes = np.zeros((2, self.n_channels))
        for some, rows, of_series in self._calendar_parts(panel, self.calendar):
            center[some, :, 1] = of_series.mean(axis=1)
            values = panel.values[rows, : self.n_channels].reshape(of_series.shape)
            for place, part in enumerate((self._left(values, of_series), values)):
                changes[place] += np.nansum(np.abs(np.diff(part, axis=1)), axis=(0, 1))
        left, whole = changes
        ratio = np.divide(left, whole, out=np.ones_like(whole), where=whole > 0)
        return replace(self, noise=noise, center=center, calendar_ratio=ratio.clip(_TINY, 1.0))

    def _noise(self, left: Floats) -> Floats:
        """[C] half the variance of the changes from row to row [n, C]: that of noise, were there nothing else."""
        values = np.where(self.multiplies, np.log(np.where(left > 0, left, np.nan)), left)
        changes = np.abs(np.diff(values, axis=0))
        found = np.full(self.n_channels, np.nan)
        known = np.isfinite(changes).any(axis=0)
        found[known] = (_OF_NORMAL * np.nanmedian(changes[:, known], axis=0)) ** 2 / 2
        return found

    def _center(self, places: Ints, part: int) -> Floats:
        """[s, C]"""
        return np.where(places[:, None] < 0, np.nan, self.center[places, :, part])

    def _bounded(self, effect: Floats) -> Floats:
        """Returns an effect of at most `LARGEST` where it multiplies, and −`LARGEST` where that leaves nothing."""
        most = np.where(self.multiplies, LARGEST, np.inf)
        is_shut = self.multiplies & (effect < SHUT)
        return np.where(is_shut, -most, effect.clip(-most, most))

    def _every(self, panel: Panel) -> Floats:
        """[series, C, K] of each series of a panel."""
        places = self.places(panel)
        others = self.shared + of_statics(self.of_static, panel.static_codes)
        return np.where(places[:, None, None] < 0, others, self.own[places])

    def _coefficients(self, panel: Panel) -> list[Floats]:
        """[series, C, k] of each term."""
        ends = np.cumsum([term.size(panel.calendar) for term in self.terms])
        return np.split(self._every(panel), ends[:-1], axis=2)

    def _parts(self, panel: Panel, without: str | None) -> Iterator[tuple[int, slice, Floats, Floats]]:
        """Yields the number of each series, its rows, and the effects [n, C] of numbers and of all else.

        Of what is taken out of panels; of nothing where no covariate has an effect.
        """
        if not self.declared:
            return
        coefficients = self._coefficients(panel)
        for series, rows, clock in dated(panel):
            numbers, others = np.zeros((2, rows.stop - rows.start, self.n_channels))
            for term, part in zip((*self.declared, *self.of_dates), coefficients, strict=False):
                if term.is_of_dates:
                    others += term.at_dates(clock, part[series]).T
                    continue
                if term.name_in(panel) == without:
                    continue
                columns = term.columns(panel, rows, clock)
                of_kind = numbers if term.kind in ("number", "bent") else others
                # Not by BLAS, whose rounding depends on the number of rows.
                of_kind += np.einsum("nk,ck->nc", columns, part[series])
            yield series, rows, numbers, others

    def _calendar_parts(
        self, panel: Panel, terms: Sequence[Term]
    ) -> Iterator[tuple[Ints, slice, Floats]]:
        """Yields places [s] of neighbouring series of the same dates, their rows, and the effects [s, n, C]."""
        if not terms:
            return
        places = self.places(panel)
        coefficients = dict(zip(self.terms, self._coefficients(panel), strict=True))
        for series, rows, clock in alike(panel):
            of_terms = (term.at_dates(clock, coefficients[term][series]) for term in terms)
            total = np.asarray(sum(of_terms))  # [s, C, n]
            yield places[series], rows, np.moveaxis(total, 2, 1)

    def removed(self, panel: Panel, effect: Floats, variance: Floats | None = None) -> Panel:
        """Returns the panel with what an effect [row, C] leaves of its targets.

        Where its variance is far above the noise of a series, a cell says little of the others: NaN.
        """
        values = empty_beside(panel.values, panel.values.shape, np.float64)
        values[:] = panel.values
        targets = values[:, : panel.n_channels]
        for start in range(0, panel.n_rows, _MOST_CELLS):
            rows = slice(start, start + _MOST_CELLS)
            targets[rows] = self._left(targets[rows], effect[rows])
        if variance is not None:
            places = self.places(panel)
            noise = np.where(places[:, None] < 0, np.nan, self.noise[places])
            for series, (start, stop) in enumerate(pairwise(panel.indptr)):
                is_doubtful = variance[start:stop] > _DOUBTFUL * noise[series]
                targets[start:stop][is_doubtful] = np.nan
        return replace(panel, values=values)

    def _left(self, values: Floats, effect: Floats) -> Floats:
        """Returns what an effect [..., C] leaves of values, as at the top of this file; NaN of closed days.

        Where a factor leaves next to nothing, no value shows what there would have been.
        """
        logarithm = np.where(self.multiplies, effect, 0.0)
        left = values * np.exp(-logarithm) - np.where(self.multiplies, 0.0, effect)
        return np.where(logarithm < CLOSED, np.nan, left)

    def of_covariates(self, calendar: Calendar) -> Effects | None:
        """Returns those of covariates alone; None = none."""
        return self._of(self.declared, calendar) if self.declared else None

    def of_remainder(self, calendar: Calendar) -> Effects | None:
        """Returns those of the calendar, for a panel that the others were taken out of; None = none."""
        if not self.calendar:
            return None
        found = self._of(self.calendar, calendar)
        return replace(
            found,
            variation=self.variation[:, :0],
            noise=np.full_like(self.noise, np.nan),
            determined=self.determined * [0.0, 1.0],
        )

    def _of(self, terms: Sequence[Term], calendar: Calendar) -> Effects:
        """The same of neighbouring terms alone."""
        sizes = [term.size(calendar) for term in self.terms]
        kept = np.repeat([term in terms for term in self.terms], sizes)
        return replace(
            self,
            terms=tuple(terms),
            own=self.own[..., kept],
            shared=self.shared[..., kept],
            of_static=self.of_static[..., kept],
            deviation=self.deviation[..., kept],
        )


def of_statics(of_static: Floats, codes: Codes) -> Floats:
    """Returns [series, C, K] what statics add to the coefficients of series, by their codes [series, J]."""
    total = np.zeros((len(codes), len(of_static), of_static.shape[3]))
    for static, own in enumerate(np.moveaxis(of_static, 1, 0)):  # [C, M, K]
        code = codes[:, static]
        known = np.where((code > 0) & (code < own.shape[1]), code, 0)
        total += np.moveaxis(own[:, known], 0, 1)
    return total


def without_effects(panel: Panel, effects: Effects | None) -> Panel:
    """Returns what effects that are taken out, if there are any, leave of a panel."""
    if effects is None or not effects.are_taken_out:
        return panel
    return effects.removed(panel, effects.of(panel), effects.variance(panel))


def alike(panel: Panel) -> Iterator[tuple[slice, slice, Dates]]:
    """Yields numbers, rows and dates of neighbouring series of the same dates, so many cells at a time."""
    starts = np.flatnonzero(np.diff(panel.indptr))
    while len(starts):
        first = int(starts[0])
        time = panel.time[panel.indptr[first] : panel.indptr[first + 1]]
        most = max(1, _MOST_CELLS // len(time))
        count = 1
        for number in starts[1:most]:
            other = panel.time[panel.indptr[number] : panel.indptr[number + 1]]
            if number != first + count or not np.array_equal(time, other):
                break
            count += 1
        last = first + count
        rows = slice(int(panel.indptr[first]), int(panel.indptr[last]))
        yield slice(first, last), rows, Dates(panel.calendar, time)
        starts = starts[count:]


def dated(panel: Panel) -> Iterator[tuple[int, slice, Dates]]:
    """Yields number, rows and dates of each series with rows; of equal dates in a row the same object."""
    for series, _, clock in alike(panel):
        for number in range(series.start, series.stop):
            yield number, slice(int(panel.indptr[number]), int(panel.indptr[number + 1])), clock
