"""What known covariates and the calendar do to one channel of one series, in the words of a planner.

Axes: n level of a term, or point of its curve · k column of a term.
"""

from __future__ import annotations

from calendar import day_abbr, day_name, month_name
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from math import floor, log10
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from forecaster.errors import number_of
from forecaster.forecast.result import Result
from forecaster.panel.calendar import DAY, Calendar
from forecaster.panel.frames import PolarsFrame
from forecaster.panel.panel import Panel
from forecaster.windows.effect_columns import REACH, Dates, Term
from forecaster.windows.effects import LARGEST, Effects

if TYPE_CHECKING:
    from matplotlib.figure import Figure
else:
    from forecaster.lazy import Figure

Floats = NDArray[np.float64]
_DEVIATIONS = 1.6449  # of a normal distribution, that hold 90 %
_MOST_NAMED = 7  # levels of a term in the report, else the highest and the lowest
_POINTS = 100  # of a curve
_LARGEST_STEP = 100.0  # of a number whose effect is that of a unit
_YEAR = np.arange("2023-01-01", "2024-01-01", dtype="M8[D]").astype(np.int64)  # without 29 February
_PLAIN_PAIRS = {("0", "1"), ("false", "true"), ("no", "yes")}
_STEPS = {
    "1h": "hour", "1d": "day", "1b": "day", "1w": "week", "1mo": "month", "1moe": "month", "1q": "quarter",
    "1qe": "quarter", "1y": "year", "1ye": "year",
}  # fmt: skip
_PLAIN = {
    "days to its end": "days to the end of the month",
    "business days to its end": "business days to the end of the month",
}


@dataclass(frozen=True)
class TermEffect:
    """The effect of a covariate, or of a part of the calendar, in % or in units of the target."""

    name: str
    """As "promo" or "weekday"."""
    kind: Literal["covariate", "words", "calendar"]
    """Effects of words and of the calendar are counted from their mean."""
    levels: tuple[str, ...]
    """[n] as "promo", "1 day before promo", "price, each unit above 2", "Monday"."""
    effect: Floats
    """[n, 3] effect, and the ends of its interval."""
    x: Floats
    """[n] values of a number; none = it has levels alone."""
    curve: Floats
    """[n, 3] effect there, counted from the mean in the series, and the ends of its interval, which is 0 wide
    there."""

    @property
    def certain(self) -> bool:
        """Whether the interval of some level excludes 0."""
        return bool((self.effect[:, 1] * self.effect[:, 2] > 0).any())

    @property
    def ends(self) -> list[tuple[str, Floats]]:
        """The highest and the lowest level."""
        places = (self.effect[:, 0].argmax(), self.effect[:, 0].argmin())
        words = ("highest", "lowest")
        return [
            (f"{word} {self.levels[place]}", self.effect[place])
            for word, place in zip(words, places, strict=True)
        ]

    @property
    def all(self) -> list[tuple[str, Floats]]:
        """Each level with its effect; of a curve over the year the ends."""
        return self.ends if self.name == "year" else [*zip(self.levels, self.effect, strict=True)]


@dataclass(frozen=True, repr=False)
class EffectReport(Result):
    """Effects behind the forecast of one channel of one series, with intervals of 90 %.

    Effects are those beside all others: a promotion on Saturdays is no Saturday. Their intervals take as known
    how large the noise is, and how far the effects of a term are spread.
    """

    panel: Panel
    """The series."""
    channel: int
    """Number of the channel."""
    unit: str
    """% where effects are factors, else the name of the target, whose units they have."""
    terms: tuple[TermEffect, ...]
    """Of covariates, then of the calendar."""
    without: tuple[str, ...]
    """Known covariates that have no effect."""

    @property
    def rows(self) -> PolarsFrame:
        """A polars frame with a row per level of each term."""
        rows = [(term.name, *level) for term in self.terms for level in term.all]
        names, levels, effects = zip(*rows, strict=True) if rows else ((), (), np.zeros((0, 3)))
        effect, low, high = np.array(effects).T
        channel = np.full(len(rows), self.channel)
        columns = {
            "channel": [self.panel.schema.target[self.channel]] * len(rows),
            "term": names,
            "level": levels,
            "effect": effect,
            "low": low,
            "high": high,
            "unit": [self.unit] * len(rows),
        }
        return self.panel.with_results(self.panel.ids(np.zeros_like(channel), channel), columns)

    @property
    def report(self) -> str:
        """A line per effect, and per covariate without one; of the calendar what is clear."""
        lines = [line for term in self.terms for line in self._lines(term)]
        lines += [f"no effect found: {name}" for name in self.without]
        return "\n".join(lines) or "no effects found"

    def plot(self) -> Figure:
        """Returns a figure with a panel per covariate and part of the calendar."""
        from forecaster.forecast.effect_plots import plot_effects

        return plot_effects(self)

    def _lines(self, term: TermEffect) -> Iterator[str]:
        levels = term.all if len(term.levels) <= _MOST_NAMED else term.ends
        if not term.certain:
            if term.kind != "calendar":
                yield f"no clear effect: {term.name}"
        elif term.kind == "covariate":
            yield from (f"{name}: {self.text(effect)}" for name, effect in levels)
        else:
            listed = ", ".join(f"{name} {self.text(effect)}" for name, effect in levels)
            yield f"{term.name}: {listed}"

    def text(self, effect: Floats) -> str:
        """Returns an effect [3] with its interval, as "+47 % (43 to 51)"."""
        _, low, high = effect.tolist()
        # Two digits of an interval: those of 8 have no decimals, those of 0.8 one.
        decimals = max(0, -floor(log10((high - low) / 3))) if high > low else 0
        point, low, high = (effect.round(decimals) + 0.0).tolist()  # no −0
        percent = " %" * (self.unit == "%")
        said = f"{point:+,.{decimals}f}{percent} ({low:,.{decimals}f} to {high:,.{decimals}f})"
        return said.replace("-", "\N{MINUS SIGN}")


class _Read(NamedTuple):
    """A term with what is read off its coefficients, in the units of these."""

    term: Term
    met: NDArray[np.bool_]
    """[k]"""
    value: Floats
    """[k]"""
    deviation: Floats
    """[k]"""


def effect_report(effects: Effects | None, panel: Panel, channel: int) -> EffectReport:
    """Returns the effects of a model on a channel of the only series of a panel."""
    declared = panel.schema.known_numeric + panel.schema.known_category
    name = panel.schema.target[channel]
    if effects is None:
        return EffectReport(panel, channel, name, (), declared)
    factors = bool(effects.multiplies[channel])
    ends = np.cumsum([term.size(panel.calendar) for term in effects.terms])[:-1]
    parts = (np.split(part, ends) for part in effects.read(panel, channel))
    read = [_Read(*one) for one in zip(effects.terms, *parts, strict=True)]
    found = []
    # The terms of a covariate are neighbours.
    for _, group in groupby(read, lambda one: one.term.column or one.term.name):
        first, *others = group
        if first.term.kind == "calendar":
            found.append(_of_calendar(first, panel, factors))
        else:
            found.append(_of_covariate([first, *others], panel, factors))
    without = tuple(one for one in declared if one not in {term.name for term in found})
    return EffectReport(panel, channel, "%" if factors else name, tuple(found), without)


def _shown(value: Floats, deviation: Floats, factors: bool) -> Floats:
    """[n, 3] effects and the ends of their intervals, in % or units of the target."""
    reach = _DEVIATIONS * deviation
    effect = np.stack([value, value - reach, value + reach], axis=1)
    return 100 * np.expm1(effect.clip(-LARGEST, LARGEST)) if factors else effect


def _of_calendar(read: _Read, panel: Panel, factors: bool) -> TermEffect:
    term, met, value, deviation = read
    if term.name == "year":
        days = Dates(panel.calendar, panel.calendar.instant(_YEAR * DAY))
        waves = term.columns(panel, slice(0), days)  # [365, k], nearly orthogonal
        value, deviation = waves @ value, np.sqrt(waves**2 @ deviation**2)
        met = np.ones(len(waves), bool)
    count = len(value)
    levels = [_LEVELS[term.name](n, count) for n in np.flatnonzero(met).tolist()]
    name, effect = _PLAIN.get(term.name, term.name), _shown(value, deviation, factors)[met]
    return TermEffect(name, "calendar", tuple(levels), effect, np.zeros(0), np.zeros((0, 3)))


def _of_covariate(group: Sequence[_Read], panel: Panel, factors: bool) -> TermEffect:
    """The effect of the terms of a covariate: a number and its bends, an event and the steps around, or words."""
    of_kind = {one.term.kind: one for one in group}
    term = group[0].term
    name = term.name_in(panel)
    x, curve = np.zeros(0), np.zeros((0, 3))
    levels: list[str] = []
    parts = []
    if "number" in of_kind or "bent" in of_kind:
        line = _Line.of(of_kind.get("number"), of_kind.get("bent"))
        values = panel.values[:, term.place]
        values = values[~np.isnan(values)].clip(*term.bounds)
        kept = line.met(values)
        names = np.array(line.levels(name), object)
        levels += names[kept].tolist()
        parts.append(_shown(line.slope * line.step, line.deviation * line.step, factors)[kept])
        x, value, deviation = line.curve(values)
        curve = _shown(value, deviation, factors)
    for one in group:
        effect = _shown(one.value, one.deviation, factors)
        if one.term.kind == "category":
            words = panel.schema.categories[name]
            if len(words) > 2:
                return TermEffect(name, "words", words, effect, x, curve)
            levels.append(_instead(name, *words))
            parts.append(_shown(2 * one.value, 2 * one.deviation, factors)[1:])
        if one.term.kind == "around":
            certain = effect[:, 1] * effect[:, 2] > 0
            names = np.array(_around(name, panel.calendar), object)
            levels += names[certain].tolist()
            parts.append(effect[certain])
        elif one.term.kind == "event":
            levels.append(_instead(name, *map(_number, one.term.bounds)))
            parts.append(effect)
        elif one.term.kind == "missing":
            levels.append(f"{name} missing")
            parts.append(effect)
    return TermEffect(name, "covariate", tuple(levels), np.concatenate(parts), x, curve)


def _instead(name: str, low: str, high: str) -> str:
    """Names the effect of the second of two values."""
    return name if (low, high) in _PLAIN_PAIRS else f"{name} {high} instead of {low}"


def _around(name: str, calendar: Calendar) -> list[str]:
    """Names of the columns of the steps around an event."""
    step = _STEPS.get(calendar.freq.partition("-")[0], "step")
    after = [f"{number_of(n, step)} after {name}" for n in range(REACH, 0, -1)]
    return after + [f"{number_of(n, step)} before {name}" for n in range(1, REACH + 1)]


class _Line(NamedTuple):
    """The effect of a number: a line with bends."""

    knots: tuple[float, ...]
    """Where it bends."""
    slope: Floats
    """[knots + 1] of a unit of the number."""
    deviation: Floats
    """[knots + 1]"""
    has_first: bool
    """Whether it is a line below its first knot, too."""
    step: float
    """Of the number, whose effect is told: 1, or a power of ten near to how far it is spread."""

    @classmethod
    def of(cls, number: _Read | None, bent: _Read | None) -> _Line:
        """Returns the line of the two terms, of which one may be missing."""
        knots = bent.term.knots if bent else ()
        slope, deviation = np.zeros((2, len(knots) + 1))
        spread = 1.0
        for one, place in ((number, slice(0, 1)), (bent, slice(1, None))):
            if one is not None:
                spread = one.term.spread
                # Behind these are how they follow the time of day: their mean over it is 0.
                count = max(1, len(one.term.knots))
                slope[place] = one.value[:count] / spread
                deviation[place] = one.deviation[:count] / spread
        step = 10.0 ** floor(log10(spread))
        unit = 1.0 if 1 / _LARGEST_STEP < step < _LARGEST_STEP else step
        return cls(knots, slope, deviation, number is not None, unit)

    def levels(self, name: str) -> list[str]:
        """Returns the names of the slopes."""
        unit = f"{name}, each {'unit' if self.step == 1 else _number(self.step)}"
        if not self.knots:
            return [unit]
        ends = [*map(_number, self.knots)]
        between = [f"{unit} from {a} to {b}" for a, b in pairwise(ends)]
        return [f"{unit} below {ends[0]}", *between, f"{unit} above {ends[-1]}"]

    def met(self, values: Floats) -> NDArray[np.bool_]:
        """Returns [knots + 1] which slopes lie between values [·] of a series."""
        ends = np.array([-np.inf, *self.knots, np.inf])
        met = (ends[:-1] < values.max(initial=-np.inf)) & (values.min(initial=np.inf) < ends[1:])
        met[0] &= self.has_first
        return met

    def curve(self, values: Floats) -> tuple[Floats, Floats, Floats]:
        """Returns points, effects counted from that of the mean of values [·], and deviations.

        Deviations are the sums of those of the slopes between, the largest that they can be.
        """
        if len(np.unique(values)) < 2:
            return np.zeros(0), np.zeros(0), np.zeros(0)
        x = np.linspace(values.min(), values.max(), _POINTS)
        middle = (x[1:] + x[:-1]) / 2
        place = np.searchsorted(self.knots, middle)
        effect, deviation = (
            np.append(0.0, np.cumsum(part[place] * np.diff(x))) for part in (self.slope, self.deviation)
        )
        mean = values.mean()
        effect, deviation = (part - np.interp(mean, x, part) for part in (effect, deviation))
        return x, effect, np.abs(deviation)


def _number(value: float) -> str:
    return f"{float(f'{value:.3g}'):,.10g}".replace("-", "\N{MINUS SIGN}")


def _clock(turn: float) -> str:
    minutes = round(turn * 1440)
    return f"{minutes // 60:02}:{minutes % 60:02}"


def _date(day: int) -> str:
    """The name of a day of a year without 29 February, from 0 on."""
    date = np.datetime64(int(_YEAR[day]), "D").item()
    return f"{date.day} {month_name[date.month]}"


def _days_left(left: int, days: str) -> str:
    return f"{number_of(left, days)} before the last" if left else f"the last {days}"


_LEVELS: dict[str, Callable[[int, int], str]] = {
    "time of day": lambda n, count: _clock(n / count),
    "weekday": lambda n, _: day_name[n],
    "time of day at weekends": lambda n, count: _clock(n / count),
    "hour of the week": lambda n, count: f"{day_abbr[7 * n // count]} {_clock(7 * n / count % 1)}",
    "day of the month": lambda n, _: f"day {n + 1}",
    "days to its end": lambda n, _: _days_left(n, "day"),
    "business days to its end": lambda n, _: _days_left(n, "business day"),
    "year": lambda n, _: _date(n),
    "day of the year": lambda n, _: _date(n),
    "week of the year": lambda n, _: f"week {n + 1}",
    "month": lambda n, _: month_name[n + 1],
    "working days": lambda _, __: "each working day",
    "season": lambda n, _: f"step {n + 1}",
}
"""Names of the levels of the terms of a calendar, by number and count."""
