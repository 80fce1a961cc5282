"""Learns the effects of a table: what covariates, holidays and the calendar do to its targets.

    rows ─▶ columns of covariates and of the calendar ─▶ mixed regression of y, or of log y ─▶ coefficients

Targets that are all positive may have factors in the place of summands, where the likelihood of y is larger
so; counts with zeros have them always, by weighted regressions (quasi-Poisson).

Axes: S series · C channel · U unit, a channel of a series · K column · n row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal, NamedTuple

import numpy as np

from forecaster.fitting.leading import carried_terms, leading_terms
from forecaster.fitting.regression import NOTHING, Solution, Unit, deviations, fitted, solve
from forecaster.fitting.varying import variations
from forecaster.model.channels import few_categories
from forecaster.model.hardware import torch_threads
from forecaster.panel.arrays import Bools, Codes, Floats, Ints, text_hashes
from forecaster.panel.panel import Panel
from forecaster.windows.effect_columns import (
    Term,
    calendar_terms,
    covariate_terms,
    period_terms,
    readings,
)
from forecaster.windows.effects import Effects, alike, dated, of_statics
from forecaster.windows.index import even_draw

Scale = Literal["sum", "factor", "count"]
_UNITS, _FEWEST_UNITS = 256, 8  # solved at a time; variances are learned from so many
_CELLS = 1 << 23  # of columns at a time, 8 bytes each
_WORK = 1 << 26  # of units with designs of their own: units times columns³
_MOST_COLUMNS = 100  # of a term, where each series has a design of its own
_MOST_ROWS = 20_000  # of a series, its last ones
_ZEROS = 0.1  # share of a channel's values that makes it one of counts
_TURNS = 6  # of weighted regressions
_MOST_LOG = 30.0  # of the mean of a count
_ROBUST_TURNS = 3
_BLOCKS = 8  # of a series by itself
_BLOCK_ROWS = 250  # at least
_FEWEST_BLOCKS = 3  # that show how coefficients change
_CHANGING = 0.1  # variance between blocks to begin with, over that of the noise
_FAR = 5.0  # robust deviations
_OF_NORMAL = 1.4826  # a standard deviation over the median distance
_TINY = 1e-12
_SHORT = 3  # rows of a unit that show no scale
_LEAST = 0.1  # of a level, what an effect leaves


class _Cells(NamedTuple):
    """The rows of a unit before any transformation."""

    y: Floats
    """[n] data units; NaN = missing."""
    columns: Floats
    """[n, K]"""
    time: Ints
    """[n]"""
    offset: Floats
    """[n] what is taken off before, in the units of the regression."""
    scale: float
    """Data units of one of z, where effects are summands."""


@dataclass(frozen=True)
class _Learned:
    """The regression of some units."""

    kind: Scale
    units: Sequence[Unit]
    solution: Solution
    scale: Floats
    """[U, 1] data units of one of z; 1 of logarithms of factors."""
    cost: float
    """Negative log likelihood of a value, but for a constant."""
    share: float
    """Scale over mean of a unit; 0 where values may be negative."""

    def scaled(self, cells: _Cells) -> _Cells:
        """Returns cells with the scale of the others, where they are too few to show one.

        y = level + scale · effect = level · (1 + share · effect)
        """
        observed = np.isfinite(cells.y)
        if observed.sum() > _SHORT:
            return cells
        effect = (cells.columns @ self.solution.shared)[observed].mean()
        level = np.nanmean(cells.y) / max(1 + self.share * effect, _LEAST)
        return cells._replace(scale=float(self.share * level or np.median(self.scale)))

    @property
    def shown(self) -> Bools:
        """[G] which terms the rows show at all."""
        found = self.solution
        return np.maximum(found.shared_variance / found.noise.mean(), found.own_variance) > NOTHING


@torch_threads(1)
def learn_effects(panel: Panel, horizon: int, alone: bool = False) -> Effects | None:
    """Returns the effects of the known covariates of a panel and of the calendar on its targets, by all its rows.

    All are in one regression, so that a promotion on Saturdays is no Saturday. None where nothing has an effect.
    Past covariates that lead the targets by the horizon are known, too.

    Args:
        panel: the rows that may be read.
        horizon: steps.
        alone: whether an expert forecasts by itself: it has no effects of the calendar, as naive is naive.
    """
    known = [*covariate_terms(panel)]
    declared = (*known, *carried_terms(panel, known), *leading_terms(panel, horizon))
    terms = (
        *declared,
        *sorted(_calendar_terms(panel, declared), key=lambda term: not term.is_of_dates),
    )
    if not terms or (panel.last_observed < 0).all():
        return None
    found = _Coefficients(panel, terms)
    channels = range(panel.n_channels)
    # Series of a channel lean on each other; of a single series its channels do.
    for table in [[*channels]] if panel.n_series == 1 else [[channel] for channel in channels]:
        found.learn(table)
    effects = found.effects(len(declared))
    return effects.of_covariates(panel.calendar) if alone and effects else effects


class _Coefficients:
    """What is learned of a panel, table by table: channels whose units lean on each other."""

    def __init__(self, panel: Panel, terms: Sequence[Term]):
        self.panel, self.terms = panel, terms
        sizes = [term.size(panel.calendar) for term in terms]
        self.group = np.repeat(np.arange(len(terms)), sizes)
        """[K] number of each column's term."""
        series, channels, columns = panel.n_series, panel.n_channels, len(self.group)
        observed = ~np.isnan(panel.values[:, :channels])
        self.seen = np.stack([observed[a:b].sum(axis=0) for a, b in pairwise(panel.indptr)])
        """[S, C] observed rows."""
        self.own, self.determined, self.deviation = np.full((3, series, channels, columns), np.nan)
        """[S, C, K] coefficients of units, how much their rows determine them, and their deviations."""
        self.expected = np.zeros((series, channels, columns))
        """[S, C, K] of a unit before its rows are read."""
        self.shared, self.multiplies = np.zeros((channels, columns)), np.zeros(channels, bool)
        self.of_static = np.zeros((channels, *_sizes_of_statics(panel.static_codes), columns))
        self.shown = np.zeros(len(terms), bool)
        """[G] which terms the rows of any table show."""
        self.variation = np.zeros((channels, len(terms)))
        """[C, G] of the effects of events."""
        self.at_a_time = _UNITS
        """Units; fewer where each has many columns of its own."""
        declared = [term for term in terms if term.kind != "calendar"]
        if not _of_one_design(panel, declared):
            rows = min(panel.n_rows // series + 1, _MOST_ROWS)
            most = _CELLS // (rows * columns)
            self.at_a_time = int(np.clip(most, _FEWEST_UNITS, _UNITS))

    def learn(self, table: Sequence[int]) -> None:
        """Learns the coefficients of the units of some channels; of none where no value is beside another."""
        units = self._units(table)
        lasting = [unit for unit in units if self.seen[unit] > _SHORT]
        lasting = lasting or [unit for unit in units if self.seen[unit] > 1]
        if not lasting:
            return
        most = max(_FEWEST_UNITS, _WORK // len(self.group) ** 3)
        some = [lasting[number] for number in even_draw(len(lasting), min(most, self.at_a_time))]
        cells = _cells(self.panel, self.terms, some)
        season = self.panel.calendar.season_length
        doubtful = np.array([term.is_doubtful for term in self.terms])
        learned = _learned(cells, self.group, season, doubtful)
        self.variation[table] = _variation(self.terms, self.group, learned)
        if len(units) == 1:
            kept = [term.kind == "calendar" or term.is_detail for term in self.terms]
            changing = ~np.array(kept)
            learned = _of_last_rows(self.group, learned, season, changing)
        self.shown |= learned.shown
        found = learned.solution
        reading = readings(self.terms, self.panel.calendar, np.asarray(found.coefficients.any(axis=0)))
        deviation = found.uncertainty(reading) * learned.scale
        self._put(some, (found.coefficients * learned.scale, found.determined, deviation))
        self._solve(sorted({*units} - {*some}), learned, reading)
        self.shared[table] = np.median(self.own[tuple(np.transpose(units))], axis=0)
        self.expected[:, table] = self.shared[table]
        self.multiplies[table] = learned.kind != "sum"
        within = self._of_statics(table)
        if self.of_static[table].any():
            # Series lean on those alike by their statics, from which they differ less.
            closer = replace(found, own_variance=found.own_variance * within)
            self._solve(units, replace(learned, solution=closer), reading, self.expected)

    def effects(self, declared: int) -> Effects | None:
        """Returns the effects, the first terms of which are of covariates; None where rows show none."""
        kept = self.shown[self.group]
        if not kept.any():
            return None
        taken_out = declared + sum(term.is_of_dates for term in self.terms)
        determined = np.nan_to_num(self.determined)
        freedom = [
            determined[..., kept & some].sum(axis=2) / np.maximum(self.seen, 1)
            for some in (self.group < taken_out, np.ones_like(kept))
        ]
        # A series without a value has what those alike have.
        own = np.where(np.isnan(self.own), self.expected, self.own)
        return Effects(
            terms=tuple(term for term, there in zip(self.terms, self.shown, strict=True) if there),
            hashes=text_hashes(self.panel.series_names),
            own=own[..., kept],
            shared=self.shared[:, kept],
            of_static=self.of_static[..., kept],
            deviation=self.deviation[..., kept],
            variation=self.variation[:, :declared][:, self.shown[:declared]],
            determined=np.stack(freedom, axis=2),
            multiplies=self.multiplies,
            noise=np.full(self.seen.shape, np.nan),
            center=np.zeros((*self.seen.shape, 2)),
            calendar_ratio=np.ones(len(self.shared)),
        ).centered(self.panel)

    def _units(self, table: Sequence[int]) -> list[tuple[int, int]]:
        """The units of channels with a value, by level: neither names nor order change a sum by rounding."""
        units = [(number, channel) for number in range(self.panel.n_series) for channel in table]
        levels = {unit: _level(self.panel, *unit) for unit in units if self.panel.present[unit]}
        by_level = sorted((level, unit) for unit, level in levels.items() if not np.isnan(level))
        return [unit for _, unit in by_level]

    def _of_statics(self, table: Sequence[int]) -> Floats:
        """Adds to what is expected what series alike by their statics share.

        Returns:
            [G] the share of the variance within a term that is left.
        """
        codes = self.panel.static_codes
        apart = np.nan_to_num(self.own[:, table] - self.shared[table])
        known = np.nan_to_num(self.determined[:, table]) * self.seen[:, table, None]
        self.of_static[table], within = _of_static(codes, apart, known, self.group)
        self.expected[:, table] += of_statics(self.of_static[table], codes)
        return within

    def _solve(
        self,
        units: Sequence[tuple[int, int]],
        learned: _Learned,
        reading: Floats,
        expected: Floats | None = None,
    ) -> None:
        """Solves units by themselves, block by block; `expected`: [S, C, K] of those alike."""
        for start in range(0, len(units), self.at_a_time):
            some = units[start : start + self.at_a_time]
            alike_ones = None if expected is None else np.stack([expected[unit] for unit in some])
            cells = [learned.scaled(one) for one in _cells(self.panel, self.terms, some)]
            self._put(some, _own(cells, self.group, learned, reading, alike_ones))

    def _put(self, units: Sequence[tuple[int, int]], parts: tuple[Floats, Floats, Floats]) -> None:
        """Puts [U, K] coefficients, how much they are determined, and deviations of units."""
        for whole, rows in zip((self.own, self.determined, self.deviation), parts, strict=True):
            for unit, row in zip(units, rows, strict=True):
                whole[unit] = row


def _sizes_of_statics(codes: Codes) -> tuple[int, int]:
    """Returns how many statics there are, and how many codes at most, the unknown one too."""
    return codes.shape[1], 1 + max(_few_codes(codes), default=0)


def _few_codes(codes: Codes) -> tuple[int, ...]:
    return few_categories(tuple(codes.max(axis=0, initial=0).tolist()))


def _of_static(codes: Codes, own: Floats, known: Floats, group: Ints) -> tuple[Floats, Floats]:
    """Returns the mean coefficients of series by code of each static, one static after the other.

    Of n series of a code, in each group of columns:

        kept = between / (between + within / n)     variances of means of codes and of series, but for chance

    A static with less than two series a code says nothing.

    Args:
        codes: [S, J]; less than 1 = unknown.
        own: [S, C, K] distances from those of the table.
        known: [S, C, K] rows of a series that fit each, its weight.
        group: [K] number of each column's term.

    Returns:
        [C, J, M, K], and [G] the share of the variance of a group that is left.
    """
    found = np.zeros((own.shape[1], *_sizes_of_statics(codes), len(group)))
    left = own.copy()
    for static, size in enumerate(_few_codes(codes)):
        is_code = (codes[:, static] == np.arange(1, size + 1)[:, None]) * 1.0  # [M, S]
        spare = len(codes) - is_code.any(axis=1).sum()  # series more than means
        if size == 0 or spare < len(codes) / 2:
            continue
        weight = np.einsum("ms,sck->mck", is_code, known).clip(min=_TINY)
        mean = np.einsum("ms,sck->mck", is_code, known * left) / weight
        rest = left - np.einsum("ms,mck->sck", is_code, mean)
        within = _by_term(known * rest**2, group) / np.maximum(_by_term(known, group), _TINY)
        within *= len(codes) / spare
        chance = within / is_code.sum(axis=1).clip(min=1)[:, None]  # [M, G]
        squares = np.stack([_by_term(one[None] ** 2, group) for one in mean])
        squares = squares / (own.shape[1] * np.bincount(group))
        between = (squares - chance).mean(axis=0).clip(min=0)
        whole = between + chance
        kept = np.divide(between, whole, out=np.zeros_like(chance), where=whole > 0)
        found[:, static, 1 : size + 1] = np.moveaxis(mean * kept[:, None, group], 0, 1)
        left = left - of_statics(found[:, static, None], codes[:, static, None])
    whole, rest = (_by_term(known * part**2, group) for part in (own, left))
    return found, np.divide(rest, whole, out=np.ones_like(whole), where=whole > 0)


def _by_term(cells: Floats, group: Ints) -> Floats:
    """[S, C, K] → [G] sums."""
    return np.bincount(group, cells.sum(axis=(0, 1))).astype(np.float64)


def _calendar_terms(panel: Panel, declared: Sequence[Term]) -> list[Term]:
    """The terms of the calendar that the rows can show."""
    rows = int((panel.last_observed - panel.first_observed).max()) + 1
    terms = [*calendar_terms(panel.calendar, rows), *period_terms(panel)]
    if panel.n_series == 1 or _of_one_design(panel, declared):
        return terms
    return [term for term in terms if term.size(panel.calendar) <= _MOST_COLUMNS]


def _of_one_design(panel: Panel, declared: Sequence[Term]) -> bool:
    """Whether all series have the same columns, and none a gap."""
    series, *_ = next(alike(panel))
    same_dates = series == slice(0, panel.n_series)
    return same_dates and not declared and not np.isnan(panel.values[:, : panel.n_channels]).any()


def _level(panel: Panel, number: int, channel: int) -> float:
    """The mean of a channel of a series; NaN of none."""
    values = panel.values[panel.indptr[number] : panel.indptr[number + 1], channel]
    values = values[~np.isnan(values)]
    return float(values.mean()) if len(values) else np.nan


def _cells(panel: Panel, terms: Sequence[Term], units: Sequence[tuple[int, int]]) -> list[_Cells]:
    numbers = np.unique([number for number, _ in units])
    some = panel.some(numbers)
    some = some.cut(np.maximum(some.indptr[:-1], some.indptr[1:] - _MOST_ROWS), some.indptr[1:])
    declared = [term for term in terms if term.kind != "calendar"]
    of_dates = terms[len(declared) :]
    designs: dict[int, tuple[slice, Floats, Ints]] = {}
    last, dates = None, np.zeros((0, 0))
    for place, rows, clock in dated(some):
        # Columns of dates alone are those of all series of the same dates.
        if clock is not last:
            nothing = np.zeros((len(clock.time), 0))
            dates = np.concatenate(
                [nothing, *(term.columns(some, rows, clock) for term in of_dates)], axis=1
            )
        last, columns = clock, dates
        if declared:
            own = [term.columns(some, rows, clock) for term in declared]
            columns = np.concatenate([*own, dates], axis=1)
        designs[place] = rows, columns, clock.time
    found = []
    for number, channel in units:
        rows, columns, time = designs[int(np.searchsorted(numbers, number))]
        y = some.values[rows, channel]
        found.append(_Cells(y, columns, time, np.zeros(len(y)), _scale(y)))
    return found


def _transformed(cells: _Cells, kind: Scale, eta: Floats | None = None) -> tuple[Unit, float]:
    """Returns a unit of the regression, and the data units of one of its own; `eta`: log of the mean of counts."""
    y, offset = cells.y, cells.offset
    if kind == "sum":
        return Unit(y / cells.scale - offset, cells.columns, cells.time), cells.scale
    if kind == "factor":
        with np.errstate(divide="ignore", invalid="ignore"):
            return Unit(np.log(y) - offset, cells.columns, cells.time), 1.0
    if eta is None:
        level = np.nanmean(y) / np.exp(offset).mean()
        eta = np.log(max(float(level), _TINY)) + offset
    eta = eta.clip(-_MOST_LOG, _MOST_LOG)
    mean = np.exp(eta)
    return Unit(eta + (y - mean) / mean - offset, cells.columns, cells.time, mean), 1.0


def _scale(y: Floats) -> float:
    """The standard deviation of what is observed; 1 of a constant."""
    spread = float(np.nanstd(y))
    return spread if spread > 0 else 1.0


def _learned(cells: Sequence[_Cells], group: Ints, season: int, doubtful: Bools) -> _Learned:
    """The regression of some units; terms that are doubtful [G] count where they are beyond chance."""
    values = np.concatenate([one.y for one in cells])
    values = values[~np.isnan(values)]
    zeros = (values == 0).mean()
    if values.min() == 0 < values.max() and (zeros >= _ZEROS or _whole(values)):
        return _of_counts(cells, group, doubtful)
    summands = _of_kind(cells, group, "sum", season, doubtful)
    if values.min() <= 0:
        return summands
    factors = _of_kind(cells, group, "factor", season, doubtful, summands.solution)
    return min(summands, factors, key=lambda one: one.cost)


def _of_last_rows(group: Ints, whole: _Learned, season: int, changing: Bools) -> _Learned:
    """The regression of the last rows of a series, which lean on those before.

    Blocks of rows are units with noise and, in terms that change [G], coefficients of their own.
    """
    (unit,) = whole.units
    count = min(_BLOCKS, len(unit.z) // _BLOCK_ROWS)
    if count < _FEWEST_BLOCKS or whole.kind == "count" or not changing.any():
        return whole
    (fit,) = fitted([unit], whole.solution)
    near = _drawn_in(unit, fit)
    pieces = (np.array_split(part, count) for part in near[:3])
    blocks = [Unit(*piece) for piece in zip(*pieces, strict=True)]
    if min(np.isfinite(block.z).sum() for block in blocks) < _BLOCK_ROWS // 2:
        return whole
    start = replace(
        whole.solution,
        noise=np.repeat(whole.solution.noise, count),
        own_variance=np.where(changing, _CHANGING, 0.0),
    )
    found = solve(blocks, group, start=start, season=season)
    return replace(whole, solution=found.of_last())


def _of_kind(
    cells: Sequence[_Cells],
    group: Ints,
    kind: Scale,
    season: int,
    doubtful: Bools,
    before: Solution | None = None,
) -> _Learned:
    """The regression of a kind; `before`: of another, whose variances it begins with."""
    units, scales = zip(*(_transformed(one, kind) for one in cells), strict=True)
    if before is None:
        found = solve(units, group, season=season)
    else:
        spread = [_scale(one.z) ** 2 for one in units]
        mean = float(np.mean(spread))
        start = replace(
            before, noise=before.noise * spread, shared_variance=before.shared_variance * mean
        )
        found = solve(units, group, start=start, xx=before.sums.xx, season=season)
    near: Sequence[Unit] = units
    for _ in range(_ROBUST_TURNS):
        near = [*map(_drawn_in, units, fitted(near, found))]
        if all(one is unit for one, unit in zip(near, units, strict=True)):
            break
        found = solve(near, group, found.phi, start=found, xx=found.sums.xx)
    gone = doubtful & ~found.beyond_chance(group)
    if gone.any():
        found = solve(near, group, found.phi, start=found.without(gone), xx=found.sums.xx)
    scale = np.array(scales)
    # The density of y is that of z times dz/dy.
    stretch = np.log(scale) if kind == "sum" else [np.nanmean(np.log(one.y)) for one in cells]
    cost = float(np.mean(np.log(found.noise) / 2 + stretch))
    positive = all(np.nanmin(one.y) > 0 for one in cells)
    means = [np.nanmean(one.y) if positive else np.inf for one in cells]
    share = float(np.median(scale / means))
    return _Learned(kind, units, found, scale[:, None], cost, share)


def _of_counts(cells: Sequence[_Cells], group: Ints, doubtful: Bools) -> _Learned:
    units, found = [_transformed(one, "count")[0] for one in cells], None
    # Whole numbers vary at least as much as those of a Poisson distribution: fewer leave noise to be fitted.
    whole = all(_whole(one.y) for one in cells)
    least = np.array([_least_dispersion(one.y, whole) for one in cells])
    for turn in range(_TURNS):
        phi = found.phi if found is not None and turn > 1 else None
        found = solve(units, group, phi, start=found, least_noise=least)
        units = _reweighted(cells, units, found)
        if turn == _TURNS - 2:
            found = found.without(doubtful & ~found.beyond_chance(group))
    assert found is not None
    return _Learned("count", units, found, np.ones((len(units), 1)), 0.0, 0.0)


def _least_dispersion(y: Floats, whole: bool) -> float:
    """The least variance over mean of a count.

    Of a rare one that without effects: effects that are fitted to 36 demands in 730 days leave little of it, and
    then show themselves for certain, up to factors of 50.
    """
    mean = np.nanmean(y)
    least = 1.0 if whole else _TINY
    return least if mean >= 1 or mean == 0 else max(least, float(np.nanvar(y) / mean))


def _whole(values: Floats) -> bool:
    return bool((np.isnan(values) | (values == np.round(values))).all())


def _reweighted(cells: Sequence[_Cells], units: Sequence[Unit], found: Solution) -> list[Unit]:
    """Returns units of counts whose weights are the means that a solution expects.

    Of rare counts these are means of the table: with the deviations of a unit in its own weights, 20 demands in
    200 rows had effects of ± 2 in the logarithm where there were none.
    """
    frequent = np.array([np.nanmean(one.y) >= 1 for one in cells])
    found = replace(found, own=found.own * frequent[:, None])
    pairs = zip(cells, fitted(units, found), strict=True)
    return [_transformed(one, "count", fit + one.offset)[0] for one, fit in pairs]


def _variation(terms: Sequence[Term], group: Ints, learned: _Learned) -> Floats:
    """Returns [G] the variance of the effect of each event from one time to the next, over its square."""
    events = sorted({term.source for term in terms if term.is_of_event})
    if not events:
        return np.zeros(len(terms))
    found, units = learned.solution, learned.units
    of_term = [events.index(term.source) if term.is_of_event else -1 for term in terms]
    event = np.array(of_term)[group]  # [K]
    members = (event[:, None] == np.arange(len(events))) * 1.0  # [K, E]
    ends = np.cumsum(np.bincount(group, minlength=len(terms)))[:-1]
    parts = zip(terms, np.split(found.coefficients, ends, axis=1), strict=True)
    own = np.concatenate([term.from_usual(part) for term, part in parts], axis=1)  # [U, K]
    effects = [unit.columns @ (members * one[:, None]) for unit, one in zip(units, own, strict=True)]
    variation = np.append(variations(units, effects, found), 0.0)  # of no event
    return variation[of_term]


def _own(
    cells: Sequence[_Cells],
    group: Ints,
    learned: _Learned,
    reading: Floats,
    expected: Floats | None,
) -> tuple[Floats, Floats, Floats]:
    """Returns [U, K] coefficients of units of a table, how much their rows determine them, and deviations.

    `expected`: [U, K] data units, before a unit's own rows are read; None = those of the table.
    Groups in which the units of the table do not differ are those of the table. Deviations of readings are those
    of b and of d by themselves: a unit that takes back an error in b is known better than they say.
    """
    found, kind = learned.solution, learned.kind
    own = np.zeros((len(cells), len(group)))
    variance = ((reading @ found.covariance) * reading).sum(axis=1)
    deviation = np.tile(np.sqrt(np.maximum(variance, 0.0)), (len(cells), 1))
    determined = np.tile(found.of_table, (len(cells), 1))
    scale = np.array([one.scale if kind == "sum" else 1.0 for one in cells])[:, None]
    mean = np.tile(found.shared, (len(cells), 1)) if expected is None else expected / scale
    differ = np.flatnonzero(found.own_variance[group] > NOTHING)
    if len(differ):
        # Of the same dates the same object, so that they share a design.
        parts = {id(one.columns): one.columns[:, differ] for one in cells}
        near = []
        for one, of_one in zip(cells, mean, strict=True):
            offset = one.columns @ of_one
            near.append(one._replace(columns=parts[id(one.columns)], offset=offset))
        alone = replace(
            found,
            shared=np.zeros(len(differ)),
            of_table=found.of_table[differ],
            covariance=np.zeros((len(differ), len(differ))),
        )
        alone = _deviations(near, group[differ], kind, alone)
        own[:, differ], determined[:, differ] = alone.own, alone.determined
        deviation = np.hypot(deviation, alone.uncertainty(reading[:, differ]))
    return (mean + own) * scale, determined, deviation * scale


def _deviations(cells: Sequence[_Cells], group: Ints, kind: Scale, found: Solution) -> Solution:
    """Returns a solution with the deviations of units; far cells are drawn in once."""
    units = [_transformed(one, kind)[0] for one in cells]
    found = deviations(units, group, found)
    if kind == "count":
        for _ in range(_TURNS - 1):
            units = _reweighted(cells, units, found)
            found = deviations(units, group, found)
        return found
    near = [*map(_drawn_in, units, fitted(units, found))]
    return deviations(near, group, found, found.sums.xx)


def _drawn_in(unit: Unit, fit: Floats) -> Unit:
    """Returns a unit whose cells far from a fit are drawn in, or itself where there is none.

    A distance beyond five robust deviations counts as five: Huber, "Robust estimation of a location parameter"
    (1964).
    """
    missed = unit.z - fit
    spread = _OF_NORMAL * np.nanmedian(np.abs(missed))
    reach = _FAR * spread
    if spread == 0 or not (np.abs(missed) > reach).any():
        return unit
    return unit._replace(z=fit + missed.clip(-reach, reach))
