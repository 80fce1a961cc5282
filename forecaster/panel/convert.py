"""A table becomes a panel store: small ones whole, large Parquet and Arrow files in parts.

Roles of a large table are inferred from a sample; its rows are partitioned by series into files, of
which each becomes a panel (the longest series has to fit in memory). The store is the panel of the
whole table, bit for bit: where all rows contradict the sample, an error names the flag that settles it.

    scan → sample → roles → partition → rows of each part → calendar, categories → panels → store
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from forecaster.config import DataConfig
from forecaster.errors import DataError
from forecaster.files import check_replaceable
from forecaster.panel.build import build_panel, check_density, find_calendar, joined, panel_of
from forecaster.panel.calendar import Calendar
from forecaster.panel.csv import first_bytes
from forecaster.panel.findings import Faults, Finding, fault, refuse_errors, summed
from forecaster.panel.frames import (
    Table,
    aligned,
    find_files,
    format_of,
    join_times,
    read_tables,
    scan_file,
    unreadable,
)
from forecaster.panel.holidays import check_holidays
from forecaster.panel.infer_freq import Parts, grid_rows
from forecaster.panel.names import common
from forecaster.panel.numbers import Decimals
from forecaster.panel.panel import Panel
from forecaster.panel.pivoted import check_storable
from forecaster.panel.resample import resampled
from forecaster.panel.roles import (
    COVARIATES,
    MOST_CATEGORIES,
    MOST_CODES,
    check_schema,
    comparable_times,
    declared_columns,
    infer_schema,
    join_clock,
    look_like_codes,
    repeated_rows,
)
from forecaster.panel.rows import Rows, ids_as, main_rows
from forecaster.panel.schema import Names, Schema
from forecaster.panel.store import (
    CARD,
    FILES,
    KIND,
    StoreWriter,
    is_store,
    open_store,
    write_store,
    writing,
)
from forecaster.panel.timestamps import TimeParts, parse_times

WHOLE = 1 << 22
"""Cells up to which a table is read whole."""
PART = 1 << 20
"""Cells of a part of a larger table, and of the sample that its roles are inferred from."""
MOST_TEXT = 1 << 30
"""Bytes of text files, which are always read whole; that takes up to ten times as much memory."""
_MOST_PARTS = 500
"""Parts written at a time."""
_FILE_ROWS = 1 << 12
"""Rows of a file of a part; polars keeps a file in memory until it is full."""
_SAMPLE_PLACES = 64
_PART, _ROW = "__part__", "__row__"

Progress = Callable[[int, int], None]
"""Called with (rows done, rows in all); every row is processed three times."""


@dataclass(frozen=True)
class _Scan:
    """Rows of files that are read in parts."""

    frame: pl.LazyFrame
    name: str
    n_rows: int
    notes: tuple[Finding, ...]
    time_parts: TimeParts
    """As those of a schema."""


def convert_table(
    source: object,
    folder: Path,
    data: DataConfig,
    *,
    covariates: object | None = None,
    future: object | None = None,
    decimals: Decimals | None = None,
    progress: Progress = lambda done, total: None,
    overwrite: bool = True,
) -> Panel:
    """Writes the panel of a table to a folder, and returns it mapped from there.

    Args:
        source: path, folder, glob or URL of files, or a frame.
        folder: appears whole or not at all.
        data: how to read, and declared roles.
        covariates: a second table, which has to fit in memory.
        future: rows after the end with covariates known in advance; has to fit in memory.
        decimals: marks of a model.
        progress: called as rows of a large table are done.
        overwrite: whether a store that is there is replaced.

    Raises:
        DataError: the table is unreadable, or contradicts the roles inferred from its sample.
        OutputError: the folder is something else, or the disk is full.
    """
    check_replaceable(folder, CARD, KIND, FILES, (source, covariates, future), overwrite)
    if is_store(source):
        raise DataError(f"{source}: is a panel store already; pass the table it was made of")
    sources = {"covariates": covariates, "future": future}
    if (scan := _scan(source, data)) is not None:
        with _reading(scan.name):
            sample = join_clock(sample_of(scan, PART), data)
        time = ",".join(sample.time_parts) or data.time
        tables = read_tables(sources, data.model_copy(update={"time": time}), decimals)
        if sample.time_parts:
            frame, parts = join_times(scan.frame, time, scan.name)
            scan = replace(scan, frame=frame, time_parts=parts)
        schema = infer_schema(sample, data, **tables).schema
        check_storable(schema, scan.name)
        schema = replace(schema, time_parts=scan.time_parts)
        others = {name: table.with_ids(schema.series) for name, table in tables.items()}
        # Rows can only be partitioned by series that a column names.
        if schema.series and not schema.melted:
            # Scratch lies within the store: a kill leaves one thing, which the next run removes.
            # Threads of a writer that failed may still add files: the folder goes all the same.
            with (
                writing(folder) as store,
                tempfile.TemporaryDirectory(dir=store.folder, ignore_cleanup_errors=True) as scratch,
            ):
                _Conversion(scan, data, others, Path(scratch), progress).run(schema, sample, store)
            return open_store(folder)
    tables = read_tables({"table": source} | sources, data, decimals)
    panel = build_panel(tables.pop("table"), data, schema=None, **dict[str, Any](tables))
    check_storable(panel.schema, panel.name)
    return write_store(panel, folder, data)


def _scan(source: object, data: DataConfig) -> _Scan | None:
    """Returns the rows of large Parquet and Arrow files, unread; None for what is read whole."""
    if not isinstance(source, str | Path) or "://" in str(source) or data.layout == "rows":
        return None
    files, notes = find_files(str(source))
    with _reading(str(source)):
        heads = [first_bytes(Path(file.name), 512) for file in files]
        kinds = [format_of(head, file.name) for head, file in zip(heads, files, strict=True)]
        if not {*kinds} <= {"parquet", "arrow"}:
            size = sum(Path(file.name).stat().st_size for file in files)
            if size > MOST_TEXT:
                raise DataError(
                    f"{source}: {size / 1e9:.1f} GB of text, which is read whole, and at most "
                    f"{MOST_TEXT / 1e9:.1f} GB; write Parquet first, which is read in parts: "
                    f"polars.scan_csv('{source}').sink_parquet('{Path(source).stem}.parquet')"
                )
            return None
        frames = [
            scan_file(Path(file.name), kind, file) for file, kind in zip(files, kinds, strict=True)
        ]
        frame = pl.concat(aligned(files, frames), how="vertical_relaxed")
        rows = int(frame.select(pl.len()).collect(engine="streaming").item())
    frame, parts = join_times(frame, data.time, str(source))
    whole = rows * len(frame.collect_schema()) <= WHOLE
    return None if whole else _Scan(frame, str(source), rows, tuple(notes), parts)


@contextmanager
def _reading(name: str) -> Iterator[None]:
    """Turns the error of a reader, at whatever row, into one clear line."""
    try:
        yield
    except (pl.exceptions.PolarsError, FileNotFoundError) as error:
        raise unreadable(name, error) from error


def sample_of(scan: _Scan, cells: int) -> Table:
    """Returns rows from places spread over a table, in their order."""
    every = -(-scan.n_rows // _SAMPLE_PLACES)
    rows = max(1, cells // len(scan.frame.collect_schema()) // _SAMPLE_PLACES)
    sample = scan.frame.with_row_index(_ROW).filter(pl.col(_ROW) % every < rows).drop(_ROW)
    return Table(sample.collect(engine="streaming"), scan.name, "file")


@dataclass(frozen=True)
class _Conversion:
    """A table on its way into a store."""

    scan: _Scan
    data: DataConfig
    others: Mapping[str, Table]
    """Covariates, and future rows, where there are any."""
    scratch: Path
    progress: Progress

    def run(self, schema: Schema, sample: Table, store: StoreWriter) -> None:
        """Appends every part to the store, and finishes it."""
        given = [sample, *self.others.values()]
        holidays = self.data.holidays or ()
        if holidays:
            check_holidays(holidays, given)
        check_schema(schema, sample, self.others.get("covariates"))
        with _reading(self.scan.name):
            schema = self._with_time_format(schema)
            files = self._partition(schema)
        self.progress(self.scan.n_rows, 3 * self.scan.n_rows)
        parts, layouts = self._read_parts(files, schema, sample)
        schema, step, regular = self._settle(schema, parts, layouts)
        calendar, notes = step, list[Finding]()
        for number, part in enumerate(parts):
            rows = replace(part, frame=pl.read_ipc(self._rows(number)))
            rows = replace(rows, schema=replace(schema, dtypes=part.schema.dtypes))
            if self.data.resample is not None:
                rows, calendar, found = resampled(rows, step, self.data, regular=regular)
                notes += found
            store.append(
                panel_of(rows, calendar, self.scan.name, "file", sparse=True, holidays=holidays)
            )
            self._advance(2, number, parts)
        notes += [note for table in given for note in table.notes]
        notes += [note for part in parts for note in part.notes]
        store.finish(self.data, summed([*self.scan.notes, *notes]))

    def _advance(self, turn: int, number: int, parts: Sequence[object]) -> None:
        rows = self.scan.n_rows
        self.progress(turn * rows + rows * (number + 1) // len(parts), 3 * rows)

    def _rows(self, number: int) -> Path:
        return self.scratch / f"rows-{number}.arrow"

    def _with_time_format(self, schema: Schema) -> Schema:
        """Returns the schema with the format of text times, which only all rows together may show."""
        name, kinds = schema.time, self.scan.frame.collect_schema()
        if name is None or kinds[name] != pl.String or self.data.time_format is not None:
            return schema
        values = self.scan.frame.select(name).unique(maintain_order=True).collect(engine="streaming")
        try:
            times = values[name].drop_nulls()
            return replace(
                schema, time_format=parse_times(times, f"{self.scan.name}, column '{name}'")[1]
            )
        except DataError:  # the part that holds the value reports it with its row
            return schema

    def _partition(self, schema: Schema) -> list[Path]:
        """Writes rows to one folder per part, in the order of series, and returns the folders."""
        scan, keys = self.scan, list(schema.series)
        roles = (schema.time, *keys, *schema.target, *schema.covariates, *schema.label_columns)
        columns = common(scan.frame.collect_schema(), roles)
        # Categories as text: their codes differ from file to file, and series are sorted by text.
        plain = scan.frame.select(columns)
        plain = plain.with_columns(pl.col(pl.Categorical, pl.Enum).cast(pl.String))
        counts = plain.group_by(keys).agg(pl.len().cast(pl.Int64)).collect(engine="streaming")
        counts = counts.sort(keys)
        size = max(PART // len(columns), -(-scan.n_rows // _MOST_PARTS), 1)
        before = counts["len"].cum_sum() - counts["len"]
        index = counts.select(keys).with_columns(((before // size).rank("dense") - 1).alias(_PART))
        rows = plain.with_row_index(_ROW, 1)
        rows = rows.join(index.lazy(), on=keys, how="left", nulls_equal=True)
        # Arrow, for a full disk is then an OSError and not one of the reader.
        folder = self.scratch / "parts"
        parts = pl.PartitionBy(folder, key=_PART, include_key=False, max_rows_per_file=_FILE_ROWS)
        rows.sink_ipc(parts, compression="lz4", mkdir=True)
        return [self.scratch / "parts" / f"{_PART}={n}" for n in range(index[_PART].n_unique())]

    def _read_parts(
        self, files: Sequence[Path], schema: Schema, sample: Table
    ) -> tuple[list[Rows], Parts]:
        """Writes the rows of every part to a file.

        Returns:
            Rows with their categories and an empty frame; mapped times and first rows of series.
        """
        kinds = self.scan.frame.collect_schema()
        times = None if schema.time is None else comparable_times(sample, schema.time, self.data)
        unique = times is not None and not repeated_rows(*times, schema.series, schema.time or "")[0]
        parts, layouts = [], []
        for number, file in enumerate(files):
            frame = pl.concat([pl.read_ipc(path) for path in sorted(file.iterdir())]).sort(_ROW)
            frame = frame.cast({name: kinds[name] for name in frame.columns if name != _ROW})
            table = Table(frame.drop(_ROW), self.scan.name, "file", numbers=frame[_ROW])
            rows = main_rows(table, schema, self.data)
            repeats = [note.text for note in rows.notes if note.rule == "duplicates"]
            if repeats and unique and self.data.series is None:
                text = f"series and time repeat ({repeats[0]})"
                raise self._contradiction(text, "pass the series with --series")
            refuse_errors(rows.notes)
            time, indptr = rows.layout()
            np.save(self.scratch / f"time-{number}.npy", time)
            layouts.append((np.load(self.scratch / f"time-{number}.npy", mmap_mode="r"), indptr))
            faults = Faults()
            rows = joined(rows, self.data, faults, **self._other_tables(table, schema))
            refuse_errors([*rows.notes, *faults.found])
            self._check_static(rows)
            rows.frame.write_ipc(self._rows(number))
            codes = (*rows.schema.code_columns, *rows.schema.static_category)
            words = {name: tuple(rows.frame[name].drop_nulls().unique()) for name in codes}
            parts.append(
                replace(rows, frame=rows.frame.clear(), schema=replace(rows.schema, categories=words))
            )
            self._advance(1, number, files)
        return parts, layouts

    def _other_tables(self, table: Table, schema: Schema) -> dict[str, Any]:
        """Returns the covariates and future rows of the series of a part."""
        found = dict(self.others)
        for name, other in self.others.items():
            if keys := common(schema.series, other.frame.columns):
                mine = table.frame.select(keys).unique()
                cast = other.frame.with_columns(ids_as(other, key, mine[key].dtype) for key in keys)
                kept = cast.with_row_index("\0row").join(mine, on=keys, how="semi")["\0row"]
                found[name] = replace(other, frame=other.frame[kept], numbers=kept + 1)
        return found

    def _settle(
        self, schema: Schema, parts: Sequence[Rows], layouts: Parts
    ) -> tuple[Schema, Calendar, bool]:
        """Returns the schema and the calendar of all parts, and whether their rows lie on its grid."""
        facts = {(p.schema.time_dtype, p.schema.time_zone, p.schema.time_format) for p in parts}
        if len(facts) > 1:
            written = " and ".join(sorted(str(fact[2]) for fact in facts))
            text = f"{self.scan.name}: times are not written alike ({written})"
            raise fault("time", text, "pass how they are written with --time-format")
        calendar, regular = find_calendar(parts[0].schema, self.data, layouts)
        if regular and self.data.resample is None:
            total = grid_rows(calendar, layouts)
            check_density(self.scan.name, calendar.freq, total, self.scan.n_rows)
        categories = {}
        for name in parts[0].schema.categories:
            words = {word for part in parts for word in part.schema.categories[name]}
            categories[name] = tuple(sorted(words))
        self._check_categories(categories)
        self._check_codes(schema, sum(part.keys.height for part in parts))
        on_grid = regular or self.data.resample is not None
        return replace(parts[0].schema, regular=on_grid, categories=categories), calendar, regular

    def _contradiction(self, text: str, advice: str, where: str = "") -> DataError:
        sampled = "the rows that roles were inferred from"
        return fault("sample", f"{self.scan.name}: {text}, but not in {sampled}", advice, where=where)

    def _check_static(self, rows: Rows) -> None:
        """Refuses a column that is static in the sample and varies in a part."""
        changing = [note.where for note in rows.notes if note.rule == "static"]
        if changing and self.data.static is None:
            text = f"column '{changing[0]}' varies within a series"
            raise self._contradiction(text, f"declare its role, as --past {changing[0]}", changing[0])

    def _check_categories(self, categories: dict[str, Names]) -> None:
        """Refuses more categories than roles allow."""
        data, kinds = self.data, self.scan.frame.collect_schema()
        covariates = declared_columns(data, *COVARIATES)
        for name, words in categories.items():
            if name not in kinds:
                continue
            most, declared = MOST_CATEGORIES, covariates
            advice = "name the covariates that count with --known, --past and --static"
            if kinds[name].is_integer():
                most, declared = MOST_CODES, declared_columns(data, "categorical")
                advice = "name the columns that are categories with --categorical"
            if len(words) > most and name not in declared:
                text = f"column '{name}' holds {len(words)} categories, more than {most}"
                raise self._contradiction(text, advice, name)

    def _check_codes(self, schema: Schema, n_series: int) -> None:
        """Refuses whole numbers that all rows show to be codes, but not the sample."""
        kinds: Any = self.scan.frame.collect_schema()
        names = common(schema.covariates, kinds)
        names = [n for n in names if kinds[n].is_integer() and n not in schema.categorical]
        if self.data.categorical is not None or not names:
            return
        span = self.scan.frame.select(pl.col(names).max() - pl.col(names).min())
        spans = span.collect(engine="streaming").row(0, named=True)
        for name in [name for name in names if (spans[name] or 0) < MOST_CODES]:
            values = self.scan.frame.select(pl.col(name).unique()).collect(engine="streaming")[name]
            if look_like_codes(values, n_series if name in schema.static else self.scan.n_rows):
                text = f"column '{name}' holds {values.drop_nulls().len()} codes"
                advice = f"declare whether it is a category with --categorical {name}, or others"
                raise self._contradiction(text, advice, name)
