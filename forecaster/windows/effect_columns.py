"""Columns of the effects regression: what the date and the known covariates of a row say.

A term is a group of columns that share a variance, so that one without evidence vanishes as a whole.

    number     as it is, and bent at quantiles; by time of day where steps are finer than a day
    event      of two values; and, as terms of their own, by hour, up to three steps around it, within a week or two
               before it, and from the second step on that it lasts, the third, …
               both at weekends and by time of the year, too
    category   a column per word
    holiday    a column per name and day, from three before to three after, and per week or two before
    calendar   time of day, weekday, date of a month from both ends, year: by the name of the term

Axes: n row · k column of a term.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np

from forecaster.panel.arrays import Bools, Codes, Floats, Ints
from forecaster.panel.calendar import DAY, MONTHS, Calendar, first_days, months_of
from forecaster.panel.holidays import named_holidays
from forecaster.panel.panel import Panel
from forecaster.panel.periods import find_periods
from forecaster.panel.schema import holiday_columns
from forecaster.windows.index import even_draw

Kind = Literal[
    "number", "bent", "event", "around", "lasting", "category", "missing", "holiday", "calendar"
]
REACH = 3
"""Steps before and after an event that have columns of their own."""
AHEAD = (7, 14)
"""Steps before an event, all of which have one column more: what it does grows as it comes near."""
_KNOTS = (0.1, 0.3, 0.5, 0.7, 0.9)  # quantiles at which the effect of a number may bend
_USUAL = (
    0.3  # share of the values of a number that are the same, from which on the others are looked at
)
_WAVES = 4  # harmonics of the year, of which a season has some
_WEEKS = 16  # harmonics of the year in all: down to three weeks
_CLOCK_WAVES = 2  # harmonics of the day that the effect of a number follows
_SLOTS = 96  # of a day at most: quarter hours
_FEWEST_EVENTS, _FEWEST_WEEKENDS = 3, 8  # days of which show what an event does there
_FEWEST_OF_YEAR, _TWO_YEARS = 8, 730  # events, and days
_LASTING = (*range(1, 8), 10, 14)  # steps since an event began, from which on its effect may change
_SATURDAY = 5  # days after Monday
_LAST_DAYS = 4  # business days of a month
_LAST_OF_MONTH = "business days to its end"
_DAYS_OF_QUARTER = "days to the end of a quarter"
_LAST_OF_QUARTER = "business days to the end of a quarter"
_LAST_WEEKDAY = "last weekday of the month"
_ENDS = frozenset({_LAST_OF_MONTH, _DAYS_OF_QUARTER, _LAST_OF_QUARTER, _LAST_WEEKDAY})
"""Of whose columns most dates have none."""
_GONE = 10  # half-lives after which nothing is left
_MOST_WORDS = 100
_DRAWN = 1 << 20  # rows, by whose values a number is scaled
_FAR = 1.0  # ranges of the middle 98 % beyond which a number is drawn in
_WRONG = 100.0  # widths of the bounds
_SEASONS = 3  # that have a term
_SAME_TURNS = 0.75  # a line of a spectrum, and its leak
_TINY = 1e-12


@dataclass(frozen=True)
class Term:
    """A group of columns, and what standardises it."""

    name: str
    """For people: that of the covariate, or the part of the calendar."""
    kind: Kind
    column: str = ""
    """Of the table that was learned from; empty = the calendar."""
    place: int = 0
    """Of the column among `Panel.values`, or of a category among `Panel.codes`: tables may rename it."""
    bounds: tuple[float, float] = (0.0, 0.0)
    """Of a number or an event; those farther out are drawn in."""
    mean: float = 0.0
    """Of a number; of an event the value, of a category the number of the word, that it mostly has."""
    spread: float = 1.0
    knots: tuple[float, ...] = ()
    """Values at which the effect of a number bends, or steps since an event began, from which on it changes."""
    by_clock: bool = False
    """Whether the effect follows the time of day."""
    at_weekends: bool = False
    """Whether it counts at weekends alone: a holiday on a Sunday changes little."""
    by_year: bool = False
    """Whether the effect follows the year, around its mean."""
    words: int = 0
    """Of a category; 2 of an event that is one."""
    country: str = ""
    """Of holidays."""
    names: tuple[str, ...] = ()
    """Of holidays, that have had columns of their own."""
    period: float = 0.0
    """In steps, that was found in the rows."""
    lag: int = 0
    """Rows before, whose value counts, or less than 0 later; of a past covariate at least a horizon."""
    half_life: float = 0.0
    """Steps in which half of what the values before do is gone; 0 = that value alone counts."""

    def size(self, calendar: Calendar) -> int:
        """Returns k, the number of columns."""
        if self.kind == "calendar":
            return self._of_dates(Dates(calendar, np.zeros(1, np.int64))).shape[1]
        if self.kind == "around":
            return 2 * REACH + len(AHEAD)
        if self.kind == "lasting":
            return len(self.knots)
        if self.kind == "holiday":
            return len(self.names) * (2 * REACH + 1 + len(AHEAD))
        if self.kind == "category":
            return self.words
        if self.by_year:
            return 2
        if self.kind == "event" and self.by_clock:
            return _hours_of(calendar)
        return max(1, len(self.knots)) * (1 + 2 * _CLOCK_WAVES * self.by_clock)

    @property
    def is_detail(self) -> bool:
        """Whether it says by how much a covariate does more at some hour or on some day than in the mean."""
        by_hour = self.kind == "event" and self.by_clock
        apart = self.kind in ("around", "lasting", "holiday")
        return by_hour or self.at_weekends or self.by_year or apart

    @property
    def is_doubtful(self) -> bool:
        """Whether most tables have nothing of it: dates, and an effect that is another at weekends or in June."""
        return self.is_of_dates or self.by_year or (self.kind == "number" and self.at_weekends)

    @property
    def source(self) -> tuple[int, bool]:
        """Its column in a panel: the number, and whether among the codes."""
        return self.place, self.words > 0

    @property
    def looks_ahead(self) -> bool:
        """Whether its columns at a row depend on later rows."""
        return self.kind == "around" or self.lag < 0

    @property
    def is_of_event(self) -> bool:
        """Whether its effect is one of what mostly does not happen: events, holidays, words."""
        return self.kind in ("event", "around", "lasting", "holiday", "category")

    @property
    def is_of_dates(self) -> bool:
        """Whether it is of the calendar, and no season repeats it, as dates of a month or of a year."""
        return self.kind == "calendar" and self.name in _OF_DATES

    def from_usual(self, coefficients: Floats) -> Floats:
        """Returns [..., k] coefficients counted from what is mostly there, as those of events are."""
        if self.kind != "category":
            return coefficients
        usual = int(self.mean)
        return coefficients - coefficients[..., usual : usual + 1]

    @property
    def counted_from_mean(self) -> bool:
        """Whether people read effects less their mean: of words, and where each date has one of the columns."""
        calendar = self.kind == "calendar" and self.name in _CODES
        return self.kind == "category" or (calendar and self.name not in _ENDS)

    def at_dates(self, clock: Dates, coefficients: Floats) -> Floats:
        """Returns [..., n] the effect of a term of the calendar, by coefficients [..., k]."""
        coded = self._code(clock)
        if coded is None:
            return coefficients @ self._of_dates(clock).T
        nothing = np.zeros_like(coefficients[..., :1])  # at code −1
        return np.concatenate([coefficients, nothing], axis=-1)[..., coded[0]]

    def _code(self, clock: Dates) -> tuple[Ints, int] | None:
        """[n] the column of a term of the calendar that is 1, and their number; None = they are numbers."""
        if self.period:
            whole = round(self.period)
            fits = whole == self.period <= _SLOTS
            return (clock.row % whole, whole) if fits else None
        coded = _CODES.get(self.name)
        return None if coded is None else coded(clock)

    def _of_dates(self, clock: Dates) -> Floats:
        """[n, k] columns of a term of the calendar."""
        coded = self._code(clock)
        if coded is not None:
            return _one_hot(*coded)
        if self.period:
            return waves(clock.row / self.period, min(_WAVES, int(self.period / 2)))
        return _NUMBERS[self.name](clock)

    def name_in(self, panel: Panel) -> str:
        """Returns the name of the column in a panel."""
        names = panel.schema.code_columns if self.words else panel.schema.columns
        return names[self.place]

    def columns(self, panel: Panel, rows: slice, clock: Dates) -> Floats:
        """Returns [n, k] the columns at neighbouring rows of one series; 0 where nothing is known."""
        if self.kind == "category":
            return _one_hot(panel.codes[rows, self.place] - 1, self.words)
        if self.kind == "calendar":
            return self._of_dates(clock)
        if self.kind == "holiday":
            return clock.holidays(self.country, self.names)
        values = self.values(panel, rows)
        if self.kind == "missing":
            return np.isnan(values)[:, None].astype(np.float64)
        number = self._believed(values)
        if self.half_life:
            number = self.mean + decaying(np.nan_to_num(number - self.mean), self.half_life)
        if self.at_weekends:
            number = np.where(clock.weekday >= _SATURDAY, number, self.mean)
        if self.kind == "around":
            return _around((number - self.mean) / self.spread)
        if self.kind == "lasting":
            return _lasting(np.nan_to_num((number - self.mean) / self.spread), self.knots)
        if self.kind == "bent":
            parts = [np.maximum(number - knot, 0.0) for knot in self.knots]
            centers = [max(self.mean - knot, 0.0) for knot in self.knots]
        else:
            parts, centers = [number], [self.mean]
        found = np.nan_to_num((np.stack(parts, axis=1) - centers) / self.spread)
        if self.by_year:
            return found * waves(clock.year, 1)
        if not self.by_clock:
            return found
        if self.kind == "event":
            return found * _one_hot(*_hour_of_day(clock))
        by_time = waves(clock.time_of_day, _CLOCK_WAVES)
        return np.concatenate([found, *(found * wave[:, None] for wave in by_time.T)], axis=1)

    def values(self, panel: Panel, rows: slice) -> Floats:
        """[n] of its column, so many rows before; of two words 0 and 1."""
        if self.words:
            return shifted(_numbers(panel.codes[rows, self.place]), self.lag)
        return shifted(panel.values[rows, self.place], self.lag)

    def _believed(self, values: Floats) -> Floats:
        """Numbers drawn in to the bounds; those a hundred times as far are missing, as a wrong decimal mark is."""
        low, high = self.bounds
        reach = _WRONG * (high - low)
        wrong = (values < low - reach) | (values > high + reach)
        return np.where(wrong, np.nan, values.clip(low, high))


def covariate_terms(panel: Panel) -> Iterator[Term]:
    """Yields the terms of the known covariates of a panel that vary, by all its rows."""
    schema, calendar = panel.schema, panel.calendar
    by_clock = not calendar.integer and calendar.step < DAY
    days = _days_of(panel)
    weekends = days // 7 if calendar.step <= DAY else 0
    for name in schema.known_numeric:
        place = schema.columns.index(name)
        values = panel.values[:, place]
        low, high = _ends(values)
        if low >= high:
            continue
        if _are_two(values, low, high):
            yield from _events(Term(name, "event", name, place, (low, high)), panel, values)
        else:
            seen = drawn(values)
            number = replace(number_term(name, place, seen), by_clock=by_clock)
            yield number
            knots = _knots(seen.clip(*number.bounds))
            yield replace(number, name=f"bends of {name}", kind="bent", knots=knots)
            plain = replace(number, by_clock=False)
            if weekends >= _FEWEST_WEEKENDS:
                yield replace(plain, name=f"{name} at weekends", at_weekends=True)
            if days >= _TWO_YEARS:
                yield replace(plain, name=f"{name} by time of the year", by_year=True)
        if np.isnan(values).any():
            yield Term(f"{name} missing", "missing", name, place)
    for name, country in zip(holiday_columns(schema.holidays), schema.holidays, strict=True):
        if calendar.step <= DAY and not calendar.integer:
            place, names = schema.columns.index(name), Dates(calendar, panel.time).names_of(country)
            yield Term(f"{name} by name", "holiday", name, place, country=country, names=names)
    for name in schema.known_category:
        words, place = len(schema.categories[name]), schema.code_columns.index(name)
        if words == 2:
            event = Term(name, "event", name, place, (0.0, 1.0), words=words)
            yield from _events(event, panel, _numbers(panel.codes[:, place]))
        elif 2 < words <= _MOST_WORDS:
            codes = panel.codes[:, place]
            usual = int(np.bincount(codes[codes > 0] - 1, minlength=words).argmax())
            yield Term(name, "category", name, place, mean=usual, words=words)


def _days_of(panel: Panel) -> int:
    """The days from the first row of a panel to its last; 0 of numbered rows."""
    if panel.calendar.integer or panel.n_rows == 0:
        return 0
    return int(np.ptp(panel.time)) // DAY


def _numbers(codes: Codes) -> Floats:
    """[n] 0 of the first word of a category, 1 of the second; NaN where there is none."""
    return np.where(codes > 0, codes - 1.0, np.nan)


def _events(event: Term, panel: Panel, values: Floats) -> Iterator[Term]:
    """Yields the term of an event, and of what it may do beside its mean effect, if it was seen often enough."""
    low, high = event.bounds
    usual = high if np.sum(values == high) > np.sum(values == low) else low
    event = replace(event, mean=usual, spread=high - low)
    yield event
    happens = np.isin(values, event.bounds) & (values != usual)
    calendar, runs = panel.calendar, np.diff(happens).sum() / 2
    if runs < _FEWEST_EVENTS:
        return
    if panel.regular:
        yield replace(event, name=f"days around {event.name}", kind="around")
        begun = _steps_since(happens, panel.indptr)
        seen = np.bincount(begun[happens], minlength=max(_LASTING) + 1)
        knots = tuple(knot for knot in _LASTING if seen[knot] >= _FEWEST_EVENTS)
        if knots:
            yield replace(event, name=f"{event.name} as it lasts", kind="lasting", knots=knots)
    if runs >= _FEWEST_OF_YEAR and _days_of(panel) >= _TWO_YEARS:
        yield replace(event, name=f"{event.name} by time of the year", by_year=True)
    if calendar.integer or calendar.step > DAY:
        return
    finer = calendar.step < DAY
    if finer:
        yield replace(event, name=f"{event.name} by hour", by_clock=True)
    dates = Dates(calendar, panel.time[happens])
    weekends = np.unique(dates.day[dates.weekday >= _SATURDAY])
    if _FEWEST_WEEKENDS <= len(weekends) < len(np.unique(dates.day)):
        yield replace(event, name=f"{event.name} at weekends", at_weekends=True)
        if finer:
            name = f"{event.name} at weekends by hour"
            yield replace(event, name=name, by_clock=True, at_weekends=True)


def number_term(name: str, place: int, seen: Floats) -> Term:
    """Returns the term of a number, by its values."""
    bounds = _bounds(seen)
    believed = seen.clip(*bounds)
    mean, spread = float(believed.mean()), float(believed.std()) + _TINY
    return Term(name, "number", name, place, bounds, mean, spread)


def _knots(values: Floats) -> tuple[float, ...]:
    """Returns where the effect of a number may bend: quantiles of its values.

    Where a number mostly is the same, as what is spent on advertising is 0, it bends there, and among the others.
    """
    seen, counts = np.unique(values, return_counts=True)
    usual = seen[counts.argmax()]
    if counts.max() < _USUAL * len(values):
        return tuple(np.unique(np.quantile(values, _KNOTS)).tolist())
    knots = np.quantile(values[values != usual], _KNOTS)
    return tuple(np.unique([usual, *knots]).tolist())


def adstock_term(term: Term, half_life: float) -> Term:
    """Returns the term of what the steps before leave, half of it after so many steps."""
    name = f"{term.name} before, half-life of {half_life:g} steps"
    return replace(term, name=name, lag=1, half_life=half_life)


def shifted(values: Floats, lag: int) -> Floats:
    """Returns [n] values so many rows before, or less than 0 later; NaN where there are none."""
    if lag == 0:
        return values
    found = np.full(len(values), np.nan)
    if lag > 0:
        found[lag:] = values[:-lag]
    else:
        found[:lag] = values[-lag:]
    return found


def drawn(values: Floats) -> Floats:
    """Returns [m] what is known of values at so many rows at most: a column may be larger than memory."""
    some = values[even_draw(len(values), _DRAWN)]
    return some[~np.isnan(some)]


def _ends(values: Floats) -> tuple[float, float]:
    """The least and the largest value that is known; ∞ and −∞ where none is."""
    low = np.fmin.reduce(values, initial=np.inf)
    high = np.fmax.reduce(values, initial=-np.inf)
    return float(low), float(high)


def _are_two(values: Floats, low: float, high: float) -> bool:
    """Whether a column has no values between its ends."""
    seen = drawn(values)
    if ((seen != low) & (seen != high)).any():
        return False
    return bool(((values == low) | (values == high) | np.isnan(values)).all())


def _bounds(seen: Floats) -> tuple[float, float]:
    """Ends of what is believed: a range of the middle 98 % beyond it; all, where that is one value."""
    low, high = np.quantile(seen, (0.01, 0.99))
    if low == high:
        return float(seen.min()), float(seen.max())
    reach = _FAR * (high - low)
    return float(low - reach), float(high + reach)


def _around(event: Floats) -> Floats:
    """[n, k] an event up to three rows earlier, then up to three rows later, then within so many rows later."""
    most = max(AHEAD)
    padded = np.pad(np.nan_to_num(event), most)
    windows = np.lib.stride_tricks.sliding_window_view(padded, 2 * most + 1)  # [n, rows around]
    near = np.delete(windows[:, most - REACH : most + REACH + 1], REACH, axis=1)
    later = windows[:, most + 1 :]
    coming = [np.sign(later[:, :reach].sum(axis=1)) for reach in AHEAD]  # all of one sign
    return np.column_stack([near, *coming])


def _lasting(event: Floats, knots: Sequence[float]) -> Floats:
    """[n, k] an event from so many steps on since it began."""
    begun = _steps_since(event != 0, [0, len(event)])
    return event[:, None] * (begun[:, None] >= np.array(knots))


def _steps_since(happens: Bools, indptr: Ints | Sequence[int]) -> Ints:
    """[n] steps since the run of an event began that a row is in; −1 where there is none."""
    row = np.arange(len(happens))
    begins = happens.copy()
    begins[1:] &= ~happens[:-1]
    first = np.array(indptr[:-1])
    first = first[first < len(happens)]
    begins[first] = happens[first]
    begun = np.maximum.accumulate(np.where(begins, row, 0))
    return np.where(happens, row - begun, -1)


def decaying(values: Floats, half_life: float) -> Floats:
    """[n] (1 − d) Σ dᵏ values of k rows before, d = 2^(−1 / half-life): adstock.

    Source: Broadbent, "One way TV advertisements work" (1979).
    """
    kept = 0.5 ** (1 / half_life)
    weights = (1 - kept) * kept ** np.arange(_GONE * half_life)
    return np.convolve(values, weights)[: len(values)]


def readings(terms: Sequence[Term], calendar: Calendar, met: Bools) -> Floats:
    """Returns [K, K] what people read off the coefficients of terms: a row a reading.

    Of a number and its bends the slope below the first bend, and above each; of words and of parts of the calendar
    the effect less the mean of the term; of all else the coefficient.

    Args:
        terms: K columns in all.
        calendar: of their table.
        met: [K] columns that are not 0 everywhere, as a weekday that is closed.
    """
    stops = np.cumsum([term.size(calendar) for term in terms])
    found = np.eye(stops[-1])
    lines: dict[str, int] = {}
    for term, start, stop in zip(terms, [0, *stops], stops, strict=False):
        rows = slice(start, stop)
        if term.kind == "number" and not term.is_detail:
            lines[term.column] = start
        elif term.kind == "bent":
            rows = slice(start, start + len(term.knots))
            found[rows, rows] = np.tri(len(term.knots))
            if term.column in lines:
                found[rows, lines[term.column]] = 1
        elif term.counted_from_mean:
            found[rows, rows] -= met[rows] / max(1, met[rows].sum())
    return found


# The calendar


class Dates:
    """The parts of the dates of some rows."""

    def __init__(self, calendar: Calendar, time: Ints):
        """Takes the times of rows."""
        self.calendar, self.time = calendar, time
        self._holidays: dict[tuple[str, tuple[str, ...]], Floats] = {}
        local = time if calendar.integer else calendar.wall_clock(time)
        self.day, self._since_midnight = np.divmod(local, DAY)
        self.month = months_of(self.day)
        self.first, self.next = first_days(self.month), first_days(self.month + 1)
        self.weekday = (self.day + 3) % 7
        slots = min(_SLOTS, max(1, round(DAY / calendar.step)))
        self.slots = slots
        self.slot = self._since_midnight * slots // DAY

    @cached_property
    def time_of_day(self) -> Floats:
        """[n] in [0, 1)."""
        return self._since_midnight / DAY

    @cached_property
    def year(self) -> Floats:
        """[n] days since 1 January over 365.25."""
        return self.day_of_year / 365.25

    def names_of(self, country: str) -> tuple[str, ...]:
        """Returns the names of the holidays that fall on these dates."""
        named = named_holidays(country, *self._years)
        return tuple(name for name, days in named.items() if np.isin(days, self.day).any())

    def holidays(self, country: str, names: tuple[str, ...]) -> Floats:
        """Returns [n, k] 1 on the days of each holiday, and so many days around it, one after the other."""
        if (country, names) not in self._holidays:
            named = named_holidays(country, *self._years)
            shifts = range(-REACH, REACH + 1)
            columns = []
            for name in names:
                days = np.asarray(named.get(name, []), np.int64)
                columns += [np.isin(self.day - shift, days) for shift in shifts]
                columns += [_is_before(self.day, days, reach) for reach in AHEAD]
            found = np.stack([np.zeros(len(self.day)), *columns], axis=1)[:, 1:]
            self._holidays[country, names] = found
        return self._holidays[country, names]

    @cached_property
    def _years(self) -> tuple[int, int]:
        """The first and the last year that holidays near these dates may lie in."""
        months = months_of(np.array([self.day.min() - REACH, self.day.max() + max(AHEAD)]))
        first, last = months // 12 + 1970
        return int(first), int(last)

    @cached_property
    def day_of_year(self) -> Ints:
        january = first_days(self.month // 12 * 12)
        return self.day - january

    @cached_property
    def row(self) -> Ints:
        """[n] steps since 1970."""
        return self.calendar.steps(0, self.time)


def _is_before(day: Ints, events: Ints, reach: int) -> Bools:
    """Returns [n] whether an event comes within so many days of a day."""
    events = np.sort(events)
    first = np.searchsorted(events, day, side="right")  # that comes after it
    coming = np.append(events, np.iinfo(np.int64).max)[first]
    return np.asarray(coming <= day + reach)


def _one_hot(code: Ints | Codes, count: int) -> Floats:
    """[n, count] 1 at a code; nothing where it is outside."""
    return (code[:, None] == np.arange(count)).astype(np.float64)


def waves(turn: Floats, count: int, first: int = 1) -> Floats:
    """Returns [n, 2·] sines, then cosines, of harmonics up to a count; a turn is 1."""
    angle = 2 * np.pi * turn[:, None] * np.arange(first, count + 1)
    return np.concatenate([np.sin(angle), np.cos(angle)], axis=1)


def _hours_of(calendar: Calendar) -> int:
    """The parts of a day, 24 at most, whose effects may differ."""
    return min(24, max(1, round(DAY / calendar.step)))


def _hour_of_day(clock: Dates) -> tuple[Ints, int]:
    hours = _hours_of(clock.calendar)
    return clock.slot * hours // clock.slots, hours


def _hour_of_week(clock: Dates) -> tuple[Ints, int]:
    hour, hours = _hour_of_day(clock)
    return clock.weekday * hours + hour, 7 * hours


def _business_days_left(clock: Dates) -> tuple[Ints, int]:
    left = np.busday_count(clock.day.astype("M8[D]"), clock.next.astype("M8[D]"))
    return np.where((clock.weekday < _SATURDAY) & (left <= _LAST_DAYS), left - 1, -1), _LAST_DAYS


def _days_left_of_quarter(clock: Dates) -> tuple[Ints, int]:
    left = clock.next - 1 - clock.day
    return np.where((clock.month % 3 == 2) & (left < 7), left, -1), 7


def _business_days_left_of_quarter(clock: Dates) -> tuple[Ints, int]:
    code, count = _business_days_left(clock)
    return np.where(clock.month % 3 == 2, code, -1), count


def _weekday_of_month(clock: Dates) -> tuple[Ints, int]:
    """As the third Friday."""
    return (clock.day - clock.first) // 7 * 7 + clock.weekday, 35


def _last_weekday(clock: Dates) -> tuple[Ints, int]:
    """As the last Sunday."""
    return np.where(clock.next - clock.day <= 7, clock.weekday, -1), 7


def _working_days(clock: Dates) -> Floats:
    count = np.busday_count(clock.first.astype("M8[D]"), clock.next.astype("M8[D]"))
    return np.asarray(count[:, None] - 21.0, np.float64)


_CODES: dict[str, Callable[[Dates], tuple[Ints, int]]] = {
    "time of day": lambda clock: (clock.slot, clock.slots),
    "weekday": lambda clock: (clock.weekday, 7),
    "time of day at weekends": lambda clock: (
        np.where(clock.weekday >= _SATURDAY, clock.slot, -1),
        clock.slots,
    ),
    "hour of the week": _hour_of_week,
    "day of the month": lambda clock: (clock.day - clock.first, 31),
    "days to its end": lambda clock: (clock.next - 1 - clock.day, 31),
    _LAST_OF_MONTH: _business_days_left,
    _DAYS_OF_QUARTER: _days_left_of_quarter,
    _LAST_OF_QUARTER: _business_days_left_of_quarter,
    "weekday of the month": _weekday_of_month,
    _LAST_WEEKDAY: _last_weekday,
    "day of the year": lambda clock: (np.minimum(clock.day_of_year, 364), 365),
    "week of the year": lambda clock: (np.minimum(clock.day_of_year // 7, 51), 52),
    "month": lambda clock: (clock.month % 12, 12),
    "season": lambda clock: (clock.row % clock.calendar.season_length, clock.calendar.season_length),
}
"""By term the column that is 1, −1 where none is, and how many there are."""
_NUMBERS: dict[str, Callable[[Dates], Floats]] = {
    "year": lambda clock: waves(clock.year, _WAVES),
    "weeks of the year": lambda clock: waves(clock.year, _WEEKS, first=_WAVES + 1),
    "working days": _working_days,
}
_OF_DATES = _ENDS | {
    "day of the month",
    "days to its end",
    "weekday of the month",
    "working days",
    "day of the year",
}
CALENDAR_PARTS = frozenset({*_CODES, *_NUMBERS})
"""Names of the terms of a calendar."""


def period_terms(panel: Panel) -> Iterator[Term]:
    """Yields the terms of periods: those of the calendar, or found in the rows of a panel."""
    calendar, targets = panel.calendar, panel.values[:, : panel.n_channels]
    periods: tuple[float, ...] = calendar.periods
    if not periods and panel.regular and not calendar.integer:
        periods = tuple(period.exact for period in find_periods(targets, panel.indptr, hidden=True))
        rows = int(np.diff(panel.indptr).max())
        periods = tuple(one for one in periods if not _is_part(one, calendar.season_length, rows))
    for period in periods:
        if period != calendar.season_length and period >= 2:
            yield Term(f"every {period:,.5g} steps", "calendar", period=float(period))


def _is_part(period: float, season: int, rows: int) -> bool:
    """Whether so many rows hardly tell a period from the season, or from a harmonic of it."""
    times = round(season / period)
    turns = rows * abs(1 / period - times / season)
    return times > 0 and rows >= _SEASONS * season and turns < _SAME_TURNS


def calendar_terms(calendar: Calendar, rows: int) -> Iterator[Term]:
    """Yields the terms of a calendar that so many rows can show."""
    season, step = calendar.season_length, calendar.step
    days = rows * step / DAY
    if calendar.integer:
        names = {"season": 1 < season <= rows // 2}
    elif step < DAY:
        names = {
            "time of day": days >= 3,
            "weekday": days >= 15,
            "time of day at weekends": days >= 15,
            "hour of the week": days >= 29,
        }
    elif step <= 4 * DAY:
        names = {
            "weekday": rows >= 10,
            "day of the month": rows >= 90,
            "days to its end": rows >= 90,
            _LAST_OF_MONTH: rows >= 90,
            _DAYS_OF_QUARTER: rows >= 365,
            _LAST_OF_QUARTER: rows >= 365,
            "weekday of the month": rows >= 180,
            _LAST_WEEKDAY: rows >= 180,
            "year": days >= 730,
            "weeks of the year": days >= 730,
            "day of the year": days >= 1095,
        }
    elif step <= 8 * DAY:
        names = {"year": rows >= 104, "week of the year": rows >= 156}
    else:
        names = {
            "month": rows >= 15 and step < 100 * DAY,
            "working days": rows >= 36 and calendar.unit in MONTHS,
        }
    for name, shown in names.items():
        if shown:
            yield Term(name, "calendar")
