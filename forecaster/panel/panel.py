"""The panel: every series of a table as flat arrays, sorted by (series, time).

Series s owns rows indptr[s] to indptr[s + 1]. NaN is the one mask for missing numbers, code −1 for
missing categories. On a regular panel consecutive rows of a series are one step apart and gaps are
empty rows; otherwise rows are as observed. Methods return new panels and loop over no series. Arrays
may be mapped from files (`store.py`): derived ones are then mapped too, and no method needs memory
for more than a block of rows.

Axes: row, series, column (targets, past and known numbers, in `schema.columns` order), code column.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import polars.selectors as cs

from forecaster.arguments import SeriesName
from forecaster.errors import DataError, natural, nearest
from forecaster.panel.arrays import PART_CELLS, Bools, Codes, Floats, Ints, add_to, owners, resized
from forecaster.panel.calendar import DAY, Calendar, closed_days
from forecaster.panel.findings import Faults, Finding
from forecaster.panel.frames import Original
from forecaster.panel.holidays import count_holidays
from forecaster.panel.schema import Names, Schema
from forecaster.panel.timestamps import split_times, write_times

NO_TIME = -(2**63)
"""Stands for "no time" in int64 arrays; becomes null in frames."""
MISSING = -1
"""The code of an empty cell of a category; a category unknown to the model has code 0."""


Only = SeriesName | Sequence[SeriesName] | None
"""Series by their names; None = all."""


@dataclass(frozen=True, repr=False)
class Panel:
    """Every series of a table as flat arrays."""

    schema: Schema
    calendar: Calendar
    keys: pl.DataFrame
    """Key columns in the caller's names and dtypes, one row per series; none for a single series."""
    values: Floats
    """float64 [row, column], data units; NaN = missing."""
    codes: Codes
    """int32 [row, code column]; 0 = unknown, MISSING = an empty cell."""
    time: Ints
    """int64 [row]: microseconds since 1970, or integer steps."""
    indptr: Ints
    """int64 [series + 1]: first row of each series, then the number of rows."""
    static: Floats
    """float64 [series, static number]; NaN = missing."""
    static_codes: Codes
    """int32 [series, static category]; 0 = unknown, MISSING = an empty cell."""
    kind: str
    """Kind of the caller's table: "polars", "pandas", "pyarrow" or "file"."""
    name: str
    """The table's name in messages."""
    original: Original = field(default_factory=Original)
    """What the caller's pandas frame looks like; dtypes of ids and times alone."""
    notes: tuple[Finding, ...] = ()
    """Findings on the tables, made while they were read and became arrays."""
    unmet: Mapping[str, Names] = field(default_factory=dict)
    """By column, the categories with code 0: the model's lack them."""
    members: Bools | None = None
    """bool [series, channel]: the channels that each series has, where groups of series became series;
    None = all."""
    n_new: int = 0
    """Series, the last ones, that only the future table has."""

    def __repr__(self) -> str:
        return f"Panel({self.name}: {self.n_series} series, {self.n_rows} rows, {self.calendar.freq})"

    @property
    def regular(self) -> bool:
        """Whether consecutive rows of a series are one step apart."""
        return self.schema.regular

    @property
    def n_series(self) -> int:
        """Number of series, those without rows included."""
        return len(self.indptr) - 1

    @cached_property
    def owner(self) -> Ints:
        """The series of each row: int64 [row]."""
        return owners(self.indptr)

    @property
    def n_rows(self) -> int:
        """Number of rows of all series, gap rows included."""
        return len(self.time)

    @property
    def n_channels(self) -> int:
        """Number of targets."""
        return len(self.schema.target)

    @property
    def present(self) -> Bools:
        """bool [series, channel]: whether a series has the channel, and so rows in results."""
        return np.ones((self.n_series, self.n_channels), bool) if self.members is None else self.members

    def lacks(self, names: Sequence[str]) -> Bools:
        """Returns bool [series, name]: whether a column is of a channel that the series lacks."""
        every = np.hstack([~self.present, np.zeros((self.n_series, 1), bool)])
        return every[:, [self.schema.channel_of.get(name, -1) for name in names]]

    @cached_property
    def series_names(self) -> list[str]:
        """One name per series: key values joined with "/", or the table's name; a sum of all is the total."""
        if not self.keys.width:
            return [Path(self.name).stem if self.kind == "file" else "series"]
        text = pl.all().cast(pl.String)
        summed = pl.all_horizontal(text.is_null())
        joined = pl.concat_str(text, separator="/", ignore_nulls=True)
        names = pl.when(summed).then(pl.lit("total")).otherwise(joined).alias("name")
        return self.keys.select(names).to_series().to_list()

    def one_series(self, name: SeriesName | None) -> int:
        """Returns the number of the series of this name, or of the only one.

        Raises:
            DataError: there is none, or several; also where no name is given.
        """
        if name is None and self.n_series > 1:
            raise DataError(
                f"{self.name}: {self.n_series:,} series; name one, as --only '{self.series_names[0]}'"
            )
        return 0 if name is None else self.series_named(name)

    def series_named(self, name: SeriesName) -> int:
        """Returns the number of the series of this name.

        Raises:
            DataError: there is none, and the nearest is named; or several have it.
        """
        name, names = str(name), self.series_names
        first = names.index(name) if name in names else -1
        if name in names[first + 1 :]:
            keys = self.keys[[first, names.index(name, first + 1)]].rows(named=True)
            both = " and ".join(", ".join(f"{k} '{v}'" for k, v in one.items()) for one in keys)
            raise DataError(
                f"{self.name}: several series have the name '{name}': {both}; rename one of them, or "
                "leave the others out of the table"
            )
        if first >= 0:
            return first
        parts = f"/{name}/"
        if self.schema.pivots and any(f"/{name}/" in parts for name in self.schema.target):
            pivot, advice = "layout wide", "leave out --only"
            if relate := ",".join(self.schema.relate):
                group = next((name for name in names if f"/{name}/" in parts), names[0])
                pivot, advice = f"relate {relate}", f"name its group, as '{group}',"
            raise DataError(
                f"{self.name}: series '{name}' is a channel here ({pivot}); {advice} and select its "
                "rows, or explain it with --channel"
            )
        near = nearest(name, names)
        hint = f"did you mean '{near}'?" if near else f"the first is '{names[0]}'"
        raise DataError(f"{self.name}: no series '{name}' among {len(names)}; {hint}")

    def numbers(self, only: Only = None) -> Ints:
        """Returns the numbers of series in the natural order of their names, store_2 before store_10.

        Args:
            only: names of series; None = all.

        Raises:
            DataError: there is no such series; names the nearest.
        """
        given = [only] if isinstance(only, str | int | float | date | None) else [*only]
        if given in ([], [""]):
            raise DataError(f"{self.name}: expected the names of some series (--only), found none")
        names, faults, found = self.series_names, Faults(), set[int]()
        for name in given if only is not None else ():
            with faults:
                found.add(self.series_named(str(name)))
        faults.refuse()
        numbers = range(self.n_series) if only is None else found
        return np.array(sorted(numbers, key=lambda number: natural(names[number])), np.int64)

    def only(self, names: Only) -> Panel:
        """Returns the panel of some series, in their order here; None = all.

        Raises:
            DataError: there is no such series; names the nearest.
        """
        return self if names is None else self.some(np.sort(self.numbers(names)))

    def some(self, series: Ints) -> Panel:
        """Returns the panel of series by their numbers, in this order."""
        length = np.diff(self.indptr)[series]
        return replace(
            self._resized(self.indptr[series], length, np.append(0, np.cumsum(length))),
            **self._of_series(series),
        )

    def _of_series(self, series: Ints | slice) -> dict[str, Any]:
        """Returns what a panel of some series holds beside their rows."""
        return {
            "n_new": 0,
            "keys": self.keys[series] if self.keys.width else self.keys,
            "members": None if self.members is None else self.members[series],
            "static": self.static[series],
            "static_codes": self.static_codes[series],
        }

    def _resized(self, begin: Ints, length: Ints, indptr: Ints) -> Panel:
        """Returns the panel with other rows in each series: see `resized`."""
        values, codes, time = resized(
            begin, length, indptr, (self.values, np.nan), (self.codes, MISSING), (self.time, NO_TIME)
        )
        return replace(self, values=values, codes=codes, time=time, indptr=indptr)

    def series_at(self, rows: Any) -> Any:
        """Returns the numbers of the series that own rows, int64 [n], or that of one."""
        return np.searchsorted(self.indptr, rows, side="right") - 1

    def name_at(self, row: int | np.int64) -> str:
        """Returns the name of the series that owns a row."""
        return self.series_names[self.series_at(row)]

    def text_at(self, row: int | np.int64) -> str:
        """Returns the time of a row as text."""
        return self.calendar.text(self.time[row])

    @property
    def observed(self) -> Bools:
        """bool [row]: whether any target is observed."""
        targets = self.values[:, : self.n_channels]
        return (targets == targets).any(axis=1)

    @property
    def first_observed(self) -> Ints:
        """int64 [series]: first row in which any target is observed; -1 where there is none."""
        return self.observed_ends[:, 0]

    @property
    def last_observed(self) -> Ints:
        """int64 [series]: last row in which any target is observed; -1 where there is none."""
        return self.observed_ends[:, 1]

    @property
    def longest(self) -> int:
        """Rows of the longest series up to its last observation."""
        return int((self.last_observed - self.indptr[:-1] + 1).max())

    def last_time(self, purpose: str = "nothing to learn from") -> int:
        """Returns the time of the last observed target.

        Raises:
            DataError: there is none; says for what it is needed.
        """
        last = self.last_observed
        if (last < 0).all():
            raise DataError(f"{self.name}: no target is observed, {purpose}")
        return int(self.time[last[last >= 0]].max())

    def cutoff_at(self, cutoff: str) -> int | None:
        """Returns the time of a cutoff; None where series have one each (own), or that of the latest (last).

        Raises:
            DataError: it cannot be read, or all series end before it.
        """
        if cutoff in ("own", "last"):
            return None
        time, end = self.calendar.parse(cutoff, "--cutoff"), int(self.time.max(initial=NO_TIME))
        # Of a longer step: a day within the period after the last one is the end of that one.
        if end != NO_TIME and (steps := int(self.calendar.steps(end, time))) > 0:
            text = self.calendar.text
            raise DataError(
                f"{self.name}: cutoff {text(time)} is {steps:,} steps of {self.calendar.freq} after the end "
                f"of the table, {text(end)}; expected at most that"
            )
        return time

    @cached_property
    def observed_ends(self) -> Ints:
        """int64 [series, 2]: first and last row in which any target is observed; -1 = none."""
        ends = np.full((self.n_series, 2), -1, np.int64)
        for first, part in self.parts():
            real = np.flatnonzero(part.observed)
            place = np.searchsorted(real, part.indptr)
            some = np.flatnonzero(np.diff(place))
            rows = real[np.stack([place[some], place[some + 1] - 1], axis=1)]
            ends[first + some] = rows + self.indptr[first]
        return ends

    @cached_property
    def closed(self) -> Bools:
        """bool [series, 7]: weekdays of open days, from Monday on, on which a series hardly ever has a value."""
        closed = np.zeros((self.n_series, 7), bool)
        if not self.regular or self.calendar.unit != "b":
            return closed
        open_days = np.isin(np.arange(7), self._weekday(self.calendar.grid(0, 7 * DAY)))
        for first, part in self.parts():
            place = part.owner * 7 + self._weekday(part.time)
            counts = np.bincount(place[part.observed], minlength=7 * part.n_series).reshape(-1, 7)
            begin, end = self.observed_ends[first : first + part.n_series].T
            weeks = (end - begin) * self.calendar.step / (7 * DAY)
            closed[first : first + part.n_series] = closed_days(counts, weeks) & open_days
        return closed

    def _weekday(self, time: Ints) -> Ints:
        days = self.calendar.wall_clock(np.where(time == NO_TIME, 0, time)) // DAY
        return (days + 3) % 7

    def closed_at(self, series: Ints, time: Ints) -> Bools:
        """bool [n, H]: whether series [n] are closed at times [n, H]."""
        return self.closed[series[:, None], self._weekday(time)]

    def split_time(self, horizon: int, validation: float | None) -> int:
        """Returns the time of the last row that trains, as far as it does not depend on the model.

        Args:
            horizon: steps that are left to validation at least.
            validation: share of the time axis that is; None = nothing.
        """
        end = self.last_time()
        if validation is None:
            return end
        begin = int(self.time[self.indptr[:-1][np.diff(self.indptr) > 0]].min())
        steps = (end - begin) / self.calendar.step + 1
        held_steps = max(horizon, round(validation * steps))
        wanted = end - held_steps * self.calendar.step
        earlier = self.row_at(int(wanted))
        return int(self.time[earlier[earlier >= 0]].max()) if (earlier >= 0).any() else end

    def parts(self) -> Iterator[tuple[int, Panel]]:
        """Yields views of neighbouring series of bounded size, with the number of their first."""
        cells = self.indptr * (self.values.shape[1] + self.codes.shape[1] + 1)
        first = 0
        while first < self.n_series:
            last = int(np.searchsorted(cells, cells[first] + PART_CELLS, side="right")) - 1
            last = max(last, first + 1)  # a longer series is a part of its own
            yield first, self.between(first, last)
            first = last

    def between(self, first: int, last: int) -> Panel:
        """Returns a view of the series from `first` to the one before `last`."""
        rows = slice(int(self.indptr[first]), int(self.indptr[last]))
        return replace(
            self,
            values=self.values[rows],
            codes=self.codes[rows],
            time=self.time[rows],
            indptr=self.indptr[first : last + 1] - rows.start,
            **self._of_series(slice(first, last)),
        )

    def with_cycles(self, season: int | None, periods: tuple[int, ...]) -> Panel:
        """Returns the panel with another main season, and other periods beside the calendar."""
        schema = replace(self.schema, season_length=season, periods=periods)
        calendar = replace(self.calendar, season=season, periods=periods)
        return replace(self, schema=schema, calendar=calendar)

    def without_label(self) -> Panel:
        """Returns the panel without its class column, if it has one."""
        if self.schema.label is None:
            return self
        schema = replace(self.schema, label=None)
        return replace(self, schema=schema, codes=self.codes[:, : len(schema.code_columns)])

    def until(self, time: int) -> Panel:
        """Returns the panel without rows after a time; series may be left without rows."""
        return self.cut(self.indptr[:-1], self.rows_until(time))

    def cut(self, begin: Ints, end: Ints, added: Ints | int = 0) -> Panel:
        """Returns the panel with rows begin to end (exclusive) of each series; every series stays.

        Args:
            begin, end: int64 [series] rows of the series.
            added: empty rows without a time that follow; one for all series, or int64 [series].
        """
        length = end - begin
        indptr = np.append(0, np.cumsum(length + added))
        if (begin == self.indptr[:-1]).all() and (indptr == self.indptr).all():
            return self
        return self._resized(begin, length, indptr)

    def without_lead_in(self) -> Panel:
        """Returns the panel without the rows before a series' first observed target."""
        first = self.first_observed
        return self.cut(np.where(first < 0, self.indptr[:-1], first), self.indptr[1:])

    def rows_until(self, time: int | Ints, series: Ints | None = None) -> Ints:
        """Returns the first row after a time of each series, or of those named; else the row after its last."""
        series = np.arange(self.n_series) if series is None else series
        limit = np.broadcast_to(np.asarray(time, np.int64), len(series))
        low, high = self.indptr[series].copy(), self.indptr[series + 1].copy()
        while (left := np.flatnonzero(low < high)).size:
            middle = (low[left] + high[left]) // 2
            later = self.time[middle] > limit[left]
            high[left[later]] = middle[later]
            low[left[~later]] = middle[~later] + 1
        return low

    def row_at(self, time: int | Ints) -> Ints:
        """Returns the last row of each series up to a time: int64 [series]; -1 = none."""
        after = self.rows_until(time)
        return np.where(after > self.indptr[:-1], after - 1, -1)

    def reaching(self, cutoff: Ints, horizon: int) -> Panel:
        """Returns the panel with at least `horizon` rows after every series' cutoff.

        Added rows have calendar times and empty cells; all others stay. A regular series that ends
        before its cutoff is filled up to it.

        Args:
            cutoff: int64 [series] times; `NO_TIME` = the series' last row, and no rows are added to a
                series without rows.
            horizon: steps after the cutoff.
        """
        length = np.diff(self.indptr)
        empty = length == 0
        last = np.full(self.n_series, NO_TIME)
        last[~empty] = self.time[self.indptr[1:][~empty] - 1]
        cutoff = np.where(cutoff == NO_TIME, last, cutoff)
        last = np.where(empty, cutoff, last)
        after = self.indptr[1:] - self.rows_until(cutoff)
        unplaced = cutoff == NO_TIME
        cutoff, last = np.where(unplaced, 0, cutoff), np.where(unplaced, 0, last)
        anchor, start = last, np.zeros_like(length)
        if self.regular:
            anchor = np.where(empty, cutoff, self.calendar.anchors(self.time, self.indptr))
            start = np.where(empty, 0, self.calendar.steps(anchor, last))
            missing = self.calendar.steps(anchor, np.maximum(cutoff, last)) - start
        else:
            anchor, missing = np.maximum(last, cutoff), start
        added = np.where(unplaced, 0, np.maximum(horizon - after + missing, 0))
        if not added.any():
            return self
        owner = np.repeat(np.arange(self.n_series), added)
        count = np.arange(len(owner)) - np.repeat(np.cumsum(added) - added, added) + 1
        times = self.calendar.shift(anchor[owner], start[owner] + count)
        panel = self.cut(self.indptr[:-1], self.indptr[1:], added)
        new = panel.indptr[owner] + length[owner] + count - 1
        panel.time[new] = times
        for at, country in enumerate(self.schema.holidays, -len(self.schema.holidays)):
            panel.values[new, at] = count_holidays(self.calendar, times, country)
        return panel

    def fingerprint(self) -> str:
        """Returns a sha256 of the content: the same for the same data in any format."""
        return self._fingerprint

    @cached_property
    def _fingerprint(self) -> str:
        schema, digest = self.schema, hashlib.sha256()
        names = (schema.series, schema.columns, schema.code_columns, schema.static, schema.freq)
        # Part of the hash, for a model's categories may be fewer than those of the data.
        words = sorted((name, values) for name, values in schema.categories.items())
        digest.update(repr((names, schema.time_zone, self.regular, words)).encode())
        digest.update(repr(self.keys.cast(pl.String).rows()).encode())
        arrays = (self.values, self.static, self.codes, self.time, self.indptr, self.static_codes)
        for array in arrays:
            add_to(digest, array)
        return digest.hexdigest()

    def frame(self, series: Ints, time: Ints, **columns: Any) -> pl.DataFrame:
        """Returns rows keyed in the caller's own names, ids and dtypes.

        Args:
            series: int64 [n], numbers of series.
            time: int64 [n].
            columns: further arrays [n] in order; `cutoff` holds times and comes before the time
                column, `channel` numbers. NaN and `NO_TIME` become null. Where channels were made series,
                or series channels, the channel is part of the key, and `channel` is left out; so are the
                rows of channels that a series lacks.

        Raises:
            DataError: a column's name is already a key's.
        """
        channel = columns.get("channel")
        if channel is not None and (self.schema.pivots or self.schema.melted):
            del columns["channel"]
        elif channel is not None:
            columns["channel"] = np.array(self.schema.target)[channel]
        made = self.ids(series, channel)
        if "cutoff" in columns:
            made.append(self.stamps(np.asarray(columns.pop("cutoff")), "cutoff"))
        stamps = self.stamps(time, self.schema.time or "time")
        parts, written = self.schema.time_parts, self.schema.time_format or ""
        made += split_times(stamps, parts, written) if parts else [stamps]
        rows = self.with_results(made, columns)
        if self.members is None or channel is None:
            return rows
        return rows.filter(self.members[series, channel])

    def ids(self, series: Ints, channel: Ints | None = None) -> list[pl.Series]:
        """Returns the key columns of series [n], or of channels [n] of theirs that were series."""
        keys: list[pl.Series] = list(self.keys[series]) if self.keys.width else []
        if channel is None or not self.schema.pivots:
            return keys
        keys += list(self.schema.channel_keys[channel])
        return sorted(keys, key=lambda key: self.schema.key_columns.index(key.name))

    def series_frame(self, **columns: Any) -> pl.DataFrame:
        """Returns a row per series, keyed in the caller's own names, ids and dtypes.

        Args:
            columns: arrays [series] in order. NaN becomes null.

        Raises:
            DataError: a column's name is already a key's.
        """
        return self.with_results([*self.keys], columns)

    def with_results(self, keys: list[pl.Series], columns: Mapping[str, Any]) -> pl.DataFrame:
        """Returns key columns and then results by name; NaN becomes null."""
        made = [*keys]
        for name, values in columns.items():
            if name in {column.name for column in made}:
                raise DataError(f"{self.name}: column '{name}' is also a result's; rename it")
            column = pl.Series(name, values)
            made.append(column.fill_nan(None) if column.dtype.is_float() else column)
        return pl.DataFrame(made)

    def stamps(self, time: Ints, name: str) -> pl.Series:
        """Returns int64 times as a column of the caller's own time dtype; `NO_TIME` becomes null."""
        schema = self.schema
        column = pl.Series(name, time, dtype=pl.Int64)
        column = column.set(column == NO_TIME, None)
        if schema.time_dtype == "integer":
            return column
        stamps = column.cast(pl.Datetime("us", schema.time_zone))
        # Of its slots, those of an hour that clocks show twice have numbers of their own.
        counted = name == schema.time and (schema.time_format or "").endswith(f"@{schema.time_zone}")
        if schema.local and not counted:
            stamps = stamps.dt.replace_time_zone(None)
        if schema.time_dtype == "date":
            return stamps.dt.date()
        if schema.time_dtype in ("string", "digits") and schema.time_format and not schema.time_parts:
            text = write_times(stamps, schema.time_format)
            digits = schema.time_dtype == "digits" and text.dtype == pl.String
            return text.cast(pl.Int64) if digits else text
        unit: Any = schema.time_unit or "us"
        return stamps.dt.cast_time_unit(unit)

    def as_text(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Returns rows for a CSV file: times as the caller's file has them, else as ISO 8601."""
        zone = None if self.schema.local else self.schema.time_zone
        time_format = self.schema.time_format
        if time_format is None:
            first = self.time[self.indptr[:-1][np.diff(self.indptr) > 0]]
            clock = self.calendar.wall_clock(first) % DAY
            days = self.regular and self.calendar.step >= DAY and not clock.any()
            time_format = "%Y-%m-%d" if days else "%Y-%m-%d %H:%M:%S%.f" + "%:z" * (zone is not None)
        names = {"cutoff", "period", self.schema.time or "time"} - {*self.keys.columns}
        times = rows.select(cs.by_name(names, require_all=False) & cs.temporal())
        stamps = times.cast(pl.Datetime("us", zone))
        return rows.with_columns(write_times(column, time_format) for column in stamps)
