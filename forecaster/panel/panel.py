"""The flat store of a table: what comes in are rows sorted by (series, time), what goes out are arrays.

Series lie one after the other; series s owns rows indptr[s] to indptr[s + 1]. NaN is the one mask for
missing numbers, code −1 for missing categories. On a regular panel consecutive rows of a series are
one step apart and gaps are empty rows; otherwise rows are as observed. Methods return new panels and
loop over no series.

Axes: row, series, column (targets, past and known numbers, in `schema.columns` order), code column.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from forecaster.errors import DataError
from forecaster.panel.calendar import Calendar
from forecaster.panel.finding import Finding
from forecaster.panel.schema import Schema

Ints = NDArray[np.int64]

NO_TIME = -(2**63)
"""Stands for "no time" in int64 arrays; becomes null in frames."""
MISSING = -1
"""The code of an empty cell of a category; a word the model has not met has code 0."""


@dataclass(frozen=True, repr=False)
class Panel:
    """Every series of a table as flat arrays."""

    schema: Schema
    calendar: Calendar
    keys: pl.DataFrame
    """Key columns in the caller's names and dtypes, one row per series; none for a single series."""
    values: NDArray[np.float32]
    """float32 [row, column], data units; NaN = missing."""
    codes: NDArray[np.int32]
    """int32 [row, code column]; 0 = unknown, MISSING = an empty cell."""
    time: Ints
    """int64 [row]: microseconds since 1970, or integer steps."""
    indptr: Ints
    """int64 [series + 1]: first row of each series, then the number of rows."""
    static: NDArray[np.float32]
    """float32 [series, static number]; NaN = missing."""
    static_codes: NDArray[np.int32]
    """int32 [series, static category]; 0 = unknown, MISSING = an empty cell."""
    regular: bool
    """Whether consecutive rows of a series are one step apart."""
    kind: str
    """Kind of the caller's table: "polars", "pandas", "pyarrow" or "file"."""
    name: str
    """The table's name in messages."""
    notes: tuple[Finding, ...] = ()
    """What was noticed while the tables were read and made into arrays."""

    def __repr__(self) -> str:
        return f"Panel({self.name}: {self.n_series} series, {self.n_rows} rows, {self.calendar.freq})"

    @property
    def n_series(self) -> int:
        """Series, those without rows included."""
        return len(self.indptr) - 1

    @property
    def n_rows(self) -> int:
        """Rows of all series, gap rows included."""
        return len(self.time)

    @property
    def n_channels(self) -> int:
        """Targets."""
        return len(self.schema.target)

    @cached_property
    def labels(self) -> list[str]:
        """One name per series: key values joined with "/", or the table's name."""
        if not self.keys.width:
            return [Path(self.name).stem if self.kind == "file" else "series"]
        text = [pl.col(name).cast(pl.String) for name in self.keys.columns]
        labels: list[str] = self.keys.select(pl.concat_str(text, separator="/")).to_series().to_list()
        return labels

    @cached_property
    def last_observed(self) -> Ints:
        """int64 [series]: last row in which any target is observed; -1 where there is none."""
        rows = self._observed_rows
        at = np.searchsorted(rows, self.indptr[1:]) - 1
        found = np.append(rows, -1)[at]
        return np.where((at >= 0) & (found >= self.indptr[:-1]), found, -1)

    @cached_property
    def first_observed(self) -> Ints:
        """int64 [series]: first row in which any target is observed; -1 where there is none."""
        rows = np.append(self._observed_rows, self.n_rows)
        found = rows[np.searchsorted(rows, self.indptr[:-1])]
        return np.where(found < self.indptr[1:], found, -1)

    @cached_property
    def _observed_rows(self) -> Ints:
        return np.flatnonzero(~np.isnan(self.values[:, : self.n_channels]).all(axis=1))

    def until(self, time: int) -> Panel:
        """Returns the panel without rows after a time; series may be left without rows."""
        return self.keep(self.time <= time)

    def keep(self, rows: NDArray[np.bool_]) -> Panel:
        """Returns the panel with the marked rows only; every series stays."""
        if rows.all():
            return self
        before = np.concatenate(([0], np.cumsum(rows)))
        return replace(
            self,
            values=self.values[rows],
            codes=self.codes[rows],
            time=self.time[rows],
            indptr=before[self.indptr],
        )

    def row_at(self, time: int | Ints) -> Ints:
        """Returns the last row of each series with time <= the given: int64 [series]; -1 = none.

        Args:
            time: one for all series, or int64 [series].
        """
        limit = time if isinstance(time, int) else np.repeat(time, np.diff(self.indptr))
        count = self._count(self.time <= limit)
        return np.where(count > 0, self.indptr[:-1] + count - 1, -1)

    def reaching(self, cutoff: Ints, horizon: int) -> Panel:
        """Returns the panel with at least `horizon` rows after every series' cutoff.

        Added rows have calendar times and empty cells; rows already there stay, later ones
        too. A regular series that ends before its cutoff is filled up to it.

        Args:
            cutoff: int64 [series] times; `NO_TIME` stands for the series' last row, and adds nothing
                to a series without rows.
            horizon: steps after the cutoff.
        """
        length = np.diff(self.indptr)
        empty = length == 0
        last = np.append(self.time, NO_TIME)[np.where(empty, self.n_rows, self.indptr[1:] - 1)]
        cutoff = np.where(cutoff == NO_TIME, last, cutoff)
        last = np.where(empty, cutoff, last)
        ahead = self._count(self.time > np.repeat(cutoff, length))
        unplaced = cutoff == NO_TIME
        cutoff, last = np.where(unplaced, 0, cutoff), np.where(unplaced, 0, last)
        anchor, start = last, np.zeros_like(length)
        if self.regular:
            # From the first row, whose day of the month no shorter month has clipped.
            anchor = np.where(empty, cutoff, np.append(self.time, 0)[self.indptr[:-1]])
            start = np.maximum(length - 1, 0)
            missing = self.calendar.steps(anchor, np.maximum(cutoff, last)) - start
        else:
            anchor, missing = np.maximum(last, cutoff), start
        added = np.maximum(horizon - ahead + missing, 0)
        added = np.where(unplaced, 0, added)
        if not added.any():
            return self
        owner = np.repeat(np.arange(self.n_series), added)
        count = np.arange(len(owner)) - np.repeat(np.cumsum(added) - added, added) + 1
        times = self.calendar.shift(anchor[owner], start[owner] + count)
        shift = np.concatenate(([0], np.cumsum(added)))
        old = np.arange(self.n_rows) + np.repeat(shift[:-1], length)
        indptr = self.indptr + shift
        return self.scattered(old, indptr, indptr[owner] + length[owner] + count - 1, times)

    def scattered(self, old: Ints, indptr: Ints, new: Ints, times: Ints) -> Panel:
        """Returns the panel with its rows moved to `old` and empty rows of given times at `new`."""
        n_rows = int(indptr[-1])
        values = np.full((n_rows, self.values.shape[1]), np.nan, np.float32)
        codes = np.full((n_rows, self.codes.shape[1]), MISSING, np.int32)
        time = np.empty(n_rows, np.int64)
        values[old], codes[old], time[old], time[new] = self.values, self.codes, self.time, times
        return replace(self, values=values, codes=codes, time=time, indptr=indptr)

    def fingerprint(self) -> str:
        """Returns a sha256 of all that is in the panel: the same for the same data in any format."""
        schema, digest = self.schema, hashlib.sha256()
        names = (schema.series, schema.columns, schema.code_columns, schema.static, schema.freq)
        # A model's categories may be fewer than the data's; they name what the codes mean.
        words = sorted((name, values) for name, values in schema.categories.items())
        digest.update(repr((names, schema.time_zone, self.regular, words)).encode())
        text = [pl.col(name).cast(pl.String) for name in self.keys.columns]
        digest.update(repr(self.keys.select(text).rows()).encode())
        for numbers in (self.values, self.static):
            # Many bit patterns are NaN.
            digest.update(np.where(np.isnan(numbers), np.float32(np.nan), numbers).data)
        for array in (self.codes, self.time, self.indptr, self.static_codes):
            digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()

    def with_categories(self, rows: NDArray[np.bool_]) -> Panel:
        """Returns the panel with categories limited to those in the given (training) rows.

        All others become code 0, unknown. Static categories are kept where a series has such a row.

        Args:
            rows: bool [row].
        """
        series = self._count(rows) > 0
        categories = dict(self.schema.categories)
        for names, codes, used in (
            (self.schema.code_columns, self.codes, rows),
            (self.schema.static_category, self.static_codes, series),
        ):
            for k, name in enumerate(names):
                old = categories[name]
                counts = np.bincount(codes[used, k] - MISSING, minlength=len(old) + 1 - MISSING)
                seen = counts[1 - MISSING :] > 0
                categories[name] = tuple(np.array(old, object)[seen])
        return self.recoded(categories)

    def recoded(self, categories: Mapping[str, tuple[str, ...]]) -> Panel:
        """Returns the panel in the codes of other categories; what is not among them becomes 0.

        Args:
            categories: for every categorical column, as a model has them in its schema.
        """

        def translated(codes: NDArray[np.int32], names: Sequence[str]) -> NDArray[np.int32]:
            codes = codes.copy()
            for k, name in enumerate(names):
                new = {word: code for code, word in enumerate(categories[name], start=1)}
                words = self.schema.categories[name]
                table = np.array([MISSING, 0, *(new.get(word, 0) for word in words)], np.int32)
                codes[:, k] = table[codes[:, k] - MISSING]
            return codes

        codes = translated(self.codes, self.schema.code_columns)
        static_codes = translated(self.static_codes, self.schema.static_category)
        schema = replace(self.schema, categories=dict(categories))
        return replace(self, schema=schema, codes=codes, static_codes=static_codes)

    def frame(self, series: Ints, time: Ints, **columns: Any) -> pl.DataFrame:
        """Returns rows keyed in the caller's own names, ids and dtypes.

        Args:
            series: int64 [n], numbers of series.
            time: int64 [n].
            columns: further arrays [n] in order; `cutoff` holds times (`NO_TIME` becomes null) and
                comes before the time column. NaN becomes null. Where channels were made series, the
                key already is the channel, and `channel` is left out.

        Returns:
            Series keys, cutoff, time, then the other columns.

        Raises:
            DataError: a column's name is already a key's.
        """
        made: list[pl.Series] = list(self.keys[series]) if self.keys.width else []
        if "cutoff" in columns:
            made.append(self.stamps(np.asarray(columns.pop("cutoff")), "cutoff"))
        made.append(self.stamps(time, self.schema.time or "time"))
        if self.schema.melted:
            columns.pop("channel", None)
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
            return column.cast(pl.Int64)
        stamps = column.cast(pl.Datetime("us", schema.time_zone))
        if schema.time_dtype == "date":
            return stamps.dt.date()
        if schema.time_dtype == "string" and schema.time_format:
            return stamps.dt.strftime(schema.time_format)
        unit: Any = schema.time_unit or "us"
        return stamps.dt.cast_time_unit(unit)

    def _count(self, rows: NDArray[np.bool_]) -> Ints:
        """Returns how many of the marked rows each series has: int64 [series]."""
        before = np.concatenate(([0], np.cumsum(rows)))
        return np.asarray(np.diff(before[self.indptr]), np.int64)
