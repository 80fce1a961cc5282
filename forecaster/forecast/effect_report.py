"""What known covariates and the calendar do to one channel of one series, in the words of a planner.

Axes: n level of a term, or point of its curve · k column of a term.
"""

from __future__ import annotations

from calendar import day_abbr, day_name, month_name
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from math import floor, log10
from typing import Literal, NamedTuple

import numpy as np

from forecaster.errors import number_of
from forecaster.forecast.plots import BAND, TITLE, VALUES, WIDTH, tidy
from forecaster.forecast.result import Result
from forecaster.lazy import Axes, Figure, FigureBase
from forecaster.panel.arrays import Bools, Floats
from forecaster.panel.calendar import DAY
from forecaster.panel.frames import PolarsFrame
from forecaster.panel.panel import Panel
from forecaster.windows.effect_columns import AHEAD, REACH, Dates, Term, waves
from forecaster.windows.effects import Effects
from forecaster.windows.factors import LARGEST

Kind = Literal["covariate", "words", "calendar"]
_DEVIATIONS = 1.6449  # of a normal distribution, that hold 90 %
_SURE = 2.8  # deviations, that chance exceeds once in 200 times
_MOST_NAMED = 7  # levels of a term in the report, else the highest and the lowest
_POINTS = 100  # of a curve
_MOST_TICKS = 5
_MOST_BARS = 12  # levels, else a curve
_COLUMNS, _HEIGHT = 3, 2.1  # panels beside each other, inches of one
_YEARS = {"year", "weeks of the year"}  # terms of waves
_YEAR = np.arange("2023-01-01", "2024-01-01", dtype="M8[D]")  # without 29 February
_ORDINALS = ("first", "second", "third", "fourth", "fifth")
_SWITCHES = {("0", "1"), ("false", "true"), ("no", "yes")}
_STEPS = {"1h": "hour", "1d": "day", "1b": "day", "1w": "week", "1mo": "month", "1moe": "month"}
_PLAIN = {
    "days to its end": "day of the month from its end",
    "business days to its end": "business day of the month from its end",
    "days to the end of a quarter": "day of the quarter from its end",
    "business days to the end of a quarter": "business day of the quarter from its end",
}


@dataclass(frozen=True)
class TermEffect:
    """The effect of a covariate, or of a part of the calendar, in % or in units of the target."""

    name: str
    """As "promo" or "weekday"."""
    kind: Kind
    """Effects of words and of the calendar are counted from their mean."""
    levels: list[str]
    """[n] as "promo", "1 day before promo", "price, each unit above 2", "Monday"."""
    effect: Floats
    """[n, 3] effect, and the ends of its interval."""
    x: Floats
    """[n] values of a number; none = it has levels alone."""
    curve: Floats
    """[n, 3] effect there and the ends of its interval, counted from that of the mean in the series."""

    @property
    def certain(self) -> bool:
        """Whether the interval of some level excludes 0."""
        return bool(_certain(self.effect).any())

    def named(self, most: int) -> list[tuple[str, Floats]]:
        """Returns levels with their effects [3]: of more than so many the highest and the lowest."""
        if len(self.levels) <= most:
            return [*zip(self.levels, self.effect, strict=True)]
        order = self.effect[:, 0].argsort()
        ends = {"highest": order[-1], "lowest": order[0]}
        return [(f"{word} {self.levels[place]}", self.effect[place]) for word, place in ends.items()]


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
        """A polars frame with a row per level of each term; of the year the highest and the lowest day."""
        rows = [
            (term.name, level, *effect.tolist())
            for term in self.terms
            for level, effect in term.named(1 if term.name in _YEARS else len(term.levels))
        ]
        channel = np.full(len(rows), self.channel)
        columns = zip(*rows, strict=True) if rows else [()] * 5
        found = dict(zip(("term", "level", "effect", "low", "high"), columns, strict=True))
        found["unit"] = (self.unit,) * len(rows)
        names = np.array(self.panel.schema.target)[channel]
        keys = self.panel.ids(np.zeros_like(channel), channel)
        return self.panel.with_results(keys, {"channel": names} | found)

    @property
    def report(self) -> str:
        """A line per effect, and per covariate without one; of the calendar what is clear."""
        lines = [self._line(term) for term in self.terms if term.certain]
        unclear = [one.name for one in self.terms if not one.certain and one.kind != "calendar"]
        lines += [f"no clear effect: {name}" for name in unclear]
        lines += [f"no effect found: {name}" for name in self.without]
        return "\n".join(lines) or "no effects found"

    def plot(self) -> Figure:
        """Returns a figure with a panel per covariate and part of the calendar."""
        from forecaster.forecast.plain_figure import PlainFigure

        figure = PlainFigure(figsize=(WIDTH, self.height), dpi=110, layout="constrained")
        self.draw(figure)
        return figure

    @property
    def height(self) -> float:
        """Inches that the drawing needs."""
        return _HEIGHT * max(1, -(-len(self._panels) // _COLUMNS)) + 0.3

    def draw(self, figure: FigureBase) -> None:
        """Draws a panel per covariate and part of the calendar; covariates of two values share one."""
        unit = "%" if self.unit == "%" else f"units of {self.unit}"
        figure.suptitle(f"Effects in {unit}, intervals of 90 %", fontsize=10, x=0.01, ha="left")
        panels = self._panels
        rows = max(1, -(-len(panels) // _COLUMNS))
        axes = figure.subplots(rows, _COLUMNS, squeeze=False).ravel()
        for axis in axes[len(panels) :]:
            axis.set_visible(False)
        for axis, (name, along, effect) in zip(axes, panels, strict=False):
            tidy(axis)
            axis.set_title(name, **TITLE)
            if isinstance(along, list) and len(along) <= _MOST_BARS:
                _draw_bars(axis, along, effect)
            else:
                _draw_curve(axis, along, effect)

    @cached_property
    def _panels(self) -> list[tuple[str, list[str] | Floats, Floats]]:
        """Titles, levels or values of a number, and effects [n, 3] of panels."""
        found: list[tuple[str, list[str] | Floats, Floats]] = []
        covariates = [term for term in self.terms if term.kind == "covariate"]
        switches = [
            pair
            for term in covariates
            for pair in term.named(_MOST_BARS)
            if not pair[0].startswith(f"{term.name}, each unit")
        ]
        if switches:
            names, effects = zip(*switches[:_MOST_BARS], strict=True)
            found.append(("known covariates", [*names], np.array(effects)))
        curves = (term for term in covariates if len(np.unique(term.x)) > 1)
        found += [(term.name, term.x, term.curve) for term in curves]
        others = [term for term in self.terms if term.kind != "covariate" and term.certain]
        return found + [(term.name, term.levels, term.effect) for term in others]

    def _line(self, term: TermEffect) -> str:
        named = term.named(_MOST_NAMED)
        if term.kind == "covariate":
            return "\n".join(f"{name}: {self.text(effect)}" for name, effect in named)
        return f"{term.name}: " + ", ".join(f"{name} {self.text(effect)}" for name, effect in named)

    def text(self, effect: Floats) -> str:
        """Returns an effect [3] with its interval, as "+47 % (43 to 51)"."""
        width = effect[2] - effect[1]
        # An interval 8 wide has no decimals, one 0.8 wide has one.
        decimals = min(12, max(0, -floor(log10(width / 3)))) if width > 0 else 0
        point, low, high = effect.round(decimals) + 0.0  # no −0
        percent = " %" * (self.unit == "%")
        said = f"{point:+,.{decimals}f}{percent} ({low:,.{decimals}f} to {high:,.{decimals}f})"
        return said.replace("-", "\N{MINUS SIGN}")


class _Read(NamedTuple):
    """A term with what is read off its coefficients, in the units of these."""

    term: Term
    met: Bools
    """[k]"""
    value: Floats
    """[k]"""
    deviation: Floats
    """[k]"""


def effect_report(effects: Effects | None, panel: Panel, channel: int) -> EffectReport:
    """Returns the effects of a model on a channel of the only series of a panel."""
    declared = panel.schema.known_numeric + panel.schema.known_category
    unit, found = panel.schema.target[channel], []
    if effects is not None:
        factors = bool(effects.multiplies[channel])
        unit = "%" if factors else unit
        ends = np.cumsum([term.size(panel.calendar) for term in effects.terms])[:-1]
        parts = (np.split(part, ends) for part in effects.read(panel, channel))
        read = [_Read(*one) for one in zip(effects.terms, *parts, strict=True)]
        # Harmonics of a period have no names.
        read = [one for one in read if len(one.value) >= one.term.period]
        read.sort(key=lambda one: one.term.is_of_dates)
        # The terms of a covariate are neighbours.
        for _, group in groupby(read, _of_one_effect):
            terms = [*group]
            effect = _of_terms(terms, panel, factors)
            first = terms[0].term
            acts_at_once = first.lag == 0 or first.column not in declared
            if effect.certain or acts_at_once:
                found.append(effect)
    without = tuple(one for one in declared if one not in {term.name for term in found})
    return EffectReport(panel, channel, unit, tuple(found), without)


def _of_one_effect(read: _Read) -> tuple[str, int, float]:
    """What the terms of one effect have in common."""
    term = read.term
    return term.column or term.name, term.lag, term.half_life


def _shown(value: Floats, deviation: Floats, factors: bool) -> Floats:
    """[n, 3] effects and the ends of their intervals, in % or units of the target."""
    reach = _DEVIATIONS * deviation
    effect = np.stack([value, value - reach, value + reach], axis=1)
    return 100 * np.expm1(effect.clip(-LARGEST, LARGEST)) if factors else effect


def _certain(effect: Floats) -> Bools:
    """[n] whether intervals of effects [n, 3] exclude 0."""
    return np.asarray(effect[:, 1] * effect[:, 2] > 0)


def _of_terms(group: list[_Read], panel: Panel, factors: bool) -> TermEffect:
    """The effect of a part of the calendar, or of the terms of a covariate."""
    first = group[0].term
    kind: Kind = "calendar"
    name = _PLAIN.get(first.name, first.name)
    if first.kind != "calendar":
        kind = "words" if first.words > 2 else "covariate"
        name = first.name_in(panel)
        if first.half_life:
            name = f"{name} before, half-life of {number_of(int(first.half_life), _step_of(panel))}"
        elif first.lag:
            when = "before" if first.lag > 0 else "later"
            name = f"{name} {number_of(abs(first.lag), _step_of(panel))} {when}"
    levels: list[str] = []
    parts, x, curve = [], np.zeros(0), np.zeros((0, 3))
    lines = [one for one in group if one.term.kind in ("number", "bent") and not one.term.is_detail]
    if lines:
        levels, effect, x, curve = _of_number(lines, name, panel.values[:, first.place], factors)
        parts.append(effect)
    for one in group[len(lines) :]:
        names, (_, met, value, deviation) = _named(one, name, panel)
        effect = _shown(value, deviation, factors)
        # Details are many.
        kept = np.abs(value) > _SURE * deviation if one.term.is_detail else met
        levels += [text for text, there in zip(names, kept, strict=True) if there]
        parts.append(effect[kept])
    return TermEffect(name, kind, levels, np.concatenate(parts), x, curve)


def _of_number(
    lines: list[_Read], name: str, values: Floats, factors: bool
) -> tuple[list[str], Floats, Floats, Floats]:
    """Names and effects of slopes of a number that bends, points of its curve, and their effects.

    Slopes that may be none are left out where others are certain.

    Intervals of the curve are the sums of those of the slopes between: the largest that they can be.
    """
    term = lines[0].term
    knots = lines[-1].term.knots
    # Columns behind these follow the time of day: their mean over it is 0.
    read = [np.stack([one.value, one.deviation])[:, : max(1, len(one.term.knots))] for one in lines]
    slope = np.concatenate(read, axis=1) / term.spread  # [2, knots + 1]
    if term.kind == "bent":
        slope = np.pad(slope, ((0, 0), (1, 0)))
    values = values[~np.isnan(values)].clip(*term.bounds)
    values = values if len(values) else np.array([term.mean])
    x = np.linspace(values.min(), values.max(), _POINTS)
    place = np.searchsorted(knots, (x[1:] + x[:-1]) / 2)
    total = np.pad(np.cumsum(slope[:, place] * np.diff(x), axis=1), ((0, 0), (1, 0)))
    total -= [[np.interp(values.mean(), x, part)] for part in total]
    ends = ["", *map(_number, knots), ""]
    shown = [one for one in np.unique(place) if one or term.kind == "number"]
    names = [f"{name}, each unit{_between(*ends[one : one + 2])}" for one in shown]
    effect = _shown(slope[0, shown], slope[1, shown], factors)
    kept = np.flatnonzero(_certain(effect))
    if len(kept):
        names, effect = [names[one] for one in kept], effect[kept]
    return names, effect, x, _shown(total[0], np.abs(total[1]), factors)


def _between(low: str, high: str) -> str:
    if low and high:
        return f" from {low} to {high}"
    return f" above {low}" if low else f" below {high}" if high else ""


def _named(read: _Read, name: str, panel: Panel) -> tuple[list[str], _Read]:
    """Names of levels, and their effects: those of the year by day, and of two words the second's alone."""
    term, count = read.term, len(read.value)
    if term.name in _YEARS:
        clock = Dates(panel.calendar, panel.calendar.instant(_YEAR.astype(np.int64) * DAY))
        columns = term.columns(panel, slice(0), clock)  # [365, k], nearly orthogonal
        deviation = np.sqrt(columns**2 @ read.deviation**2)
        read = _Read(term, np.ones(len(columns), bool), columns @ read.value, deviation)
        count = len(columns)
    if term.kind == "calendar":
        named = _LEVELS.get(term.name, _counted)
        return [named(n, count) for n in range(count)], read
    if term.kind == "category":
        return [*panel.schema.categories[name]], read
    if term.kind == "around":
        step = _step_of(panel)
        shifts = [shift for shift in range(-REACH, REACH + 1) if shift]
        sides = ["after" if shift < 0 else "before" for shift in shifts]
        pairs = zip(shifts, sides, strict=True)
        near = [f"{number_of(abs(shift), step)} {side} {name}" for shift, side in pairs]
        return near + _ahead(name, step), read
    if term.kind == "lasting":
        step = _step_of(panel)
        return [f"{name}, from {step} {knot + 1:g} on" for knot in term.knots], read
    if term.kind == "holiday":
        return [text for one in term.names for text in _days_around(one)], read
    if term.kind == "missing":
        return [f"{name} missing"], read
    if term.kind == "number":
        text = f"{name}, each unit"
        read = read._replace(value=read.value / term.spread, deviation=read.deviation / term.spread)
    else:
        categories = panel.schema.categories
        words = categories[term.name_in(panel)] if term.words else map(_number, term.bounds)
        text = _switch(name, *words)
    if term.by_year:
        return _by_month(read, text)
    text += ", more at weekends" * term.at_weekends
    if term.by_clock:
        return [f"{text}, more at {_clock(hour / count)}" for hour in range(count)], read
    return [text], read


def _by_month(read: _Read, name: str) -> tuple[list[str], _Read]:
    """Names and effects of the months in the middle of which an effect that follows the year is most and least."""
    columns = waves((np.arange(12) + 0.5) / 12, 1)  # [12, 2]
    value, deviation = columns @ read.value, np.sqrt(columns**2 @ read.deviation**2)
    ends = [int(value.argmax()), int(value.argmin())]
    names = [f"{name}, more in {month_name[month + 1]}" for month in ends]
    return names, _Read(read.term, np.ones(2, bool), value[ends], deviation[ends])


def _step_of(panel: Panel) -> str:
    return _STEPS.get(panel.calendar.freq.partition("-")[0], "step")


def _days_around(holiday: str) -> list[str]:
    """Names a holiday and the days around it."""
    shifts = range(-REACH, REACH + 1)
    sides = ["before" if shift < 0 else "after" for shift in shifts]
    near = [
        f"{number_of(abs(shift), 'day')} {side} {holiday}" if shift else holiday
        for shift, side in zip(shifts, sides, strict=True)
    ]
    return near + _ahead(holiday, "day")


def _ahead(event: str, step: str) -> list[str]:
    """Names the steps that lead up to an event."""
    return [f"the {number_of(reach, step)} before {event}" for reach in AHEAD]


def _switch(name: str, low: str, high: str) -> str:
    """Names the effect of the second of two values."""
    return name if (low, high) in _SWITCHES else f"{name} {high} instead of {low}"


def _number(value: float) -> str:
    return f"{float(f'{value:.3g}'):,.10g}".replace("-", "\N{MINUS SIGN}")


def _clock(turn: float) -> str:
    hour, minute = divmod(round(turn * 1440), 60)
    return f"{hour:02}:{minute:02}"


def _counted(number: int, _: int) -> str:
    return f"no. {number + 1}"


def _date(day: int, _: int) -> str:
    date = _YEAR[day].item()
    return f"{date.day} {month_name[date.month]}"


_LEVELS: dict[str, Callable[[int, int], str]] = {
    "time of day": lambda n, count: _clock(n / count),
    "time of day at weekends": lambda n, count: _clock(n / count),
    "hour of the week": lambda n, count: f"{day_abbr[7 * n // count]} {_clock(7 * n / count % 1)}",
    "weekday": lambda n, _: day_name[n],
    "year": _date,
    "weeks of the year": _date,
    "day of the year": _date,
    "month": lambda n, _: month_name[n + 1],
    "working days": lambda *_: "each more",
    "weekday of the month": lambda n, _: f"{_ORDINALS[n // 7]} {day_name[n % 7]}",
    "last weekday of the month": lambda n, _: day_name[n],
}
"""Names of the levels of parts of the calendar, by number and count; of others the number alone."""


def _draw_bars(axis: Axes, names: list[str], effect: Floats) -> None:
    """Draws a bar per level, the first on top."""
    places = np.arange(len(names))
    axis.barh(places, effect[:, 0], 0.6, color=BAND, alpha=0.6)
    axis.hlines(places, effect[:, 1], effect[:, 2], color=VALUES, linewidth=1.4)
    axis.axvline(0.0, color=VALUES, linewidth=0.6)
    axis.set_yticks(places, names, fontsize=7)
    axis.set_ylim(max(len(names), 3) - 0.4, -0.6)  # no bar is as high as the panel


def _draw_curve(axis: Axes, along: list[str] | Floats, effect: Floats) -> None:
    x = np.arange(len(along)) if isinstance(along, list) else along
    axis.fill_between(x, effect[:, 1], effect[:, 2], color=BAND, alpha=0.2, linewidth=0)
    axis.plot(x, effect[:, 0], color=BAND, linewidth=1.4)
    axis.axhline(0.0, color=VALUES, linewidth=0.6)
    axis.margins(x=0)
    if isinstance(along, list):
        ticks = np.linspace(0, len(along) - 1, _MOST_TICKS).round().astype(int)
        axis.set_xticks(ticks, [along[place] for place in ticks], fontsize=7)
