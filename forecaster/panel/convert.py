"""A table of any size becomes a panel store, in pieces.

What comes in is whatever `open_panel` reads; what goes out is a folder that `open_panel` opens as the
same panel, bit for bit. A table of more than `WHOLE` cells is never held whole: roles are told from a
sample spread over it, rows are dealt into parts of whole series (the longest series has to fit in
memory), and each part becomes a panel. Promised: where all rows contradict what the sample said, an
error names the flag that says it; nothing is silently different.

    scan → sample → roles → deal rows into parts → survey: step, categories → part by part → store
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import polars as pl

from forecaster.config import DataConfig
from forecaster.errors import DataError
from forecaster.files import check_replaceable, check_writable
from forecaster.panel.build import build_panel, clock_of, layout_of
from forecaster.panel.cells import SERIES
from forecaster.panel.dealt import Dealt, Layouts, deal, sample_of
from forecaster.panel.findings import fault, refuse_errors, summed
from forecaster.panel.frames import read_table
from forecaster.panel.grid import check_density
from forecaster.panel.joins import with_covariates, with_future
from forecaster.panel.panel import Panel
from forecaster.panel.roles import (
    MOST_CATEGORIES,
    MOST_CODES,
    comparable_times,
    infer_schema,
    look_like_codes,
    repeated_rows,
)
from forecaster.panel.rows import Rows, main_rows
from forecaster.panel.scan import Scan, reading, scan_table
from forecaster.panel.schema import Schema
from forecaster.panel.store import (
    CARD,
    KIND,
    StoreWriter,
    is_store,
    open_store,
    write_store,
    writing,
)
from forecaster.panel.table import Table
from forecaster.panel.timestamps import guess_formats, parse_times, with_any_offset

WHOLE = 1 << 22
"""Cells up to which a table is read whole."""
BLOCK = 1 << 20
"""Cells of a part of a larger table, and of the sample that its roles are told from."""

Progress = Callable[[int, int], None]
"""Called with (rows done, rows in all); every row is done three times."""


def convert_table(
    source: object,
    folder: Path,
    data: DataConfig,
    *,
    covariates: object | None = None,
    future: object | None = None,
    progress: Progress = lambda done, total: None,
) -> Panel:
    """Writes the panel of a table to a folder, and returns it mapped from there.

    Args:
        source: path, folder, glob or URL of files, or a frame.
        folder: appears whole or not at all; a store that is there is replaced.
        data: how to read, and declared roles.
        covariates: a second table, which has to fit in memory.
        future: rows after the end with covariates known in advance; has to fit in memory.
        progress: told how far the work is.

    Raises:
        DataError: the table cannot be understood, or says other than its sample.
        OutputError: the folder is something else, or the disk is full.
    """
    inputs = [str(given) for given in (source, covariates, future) if isinstance(given, str | Path)]
    check_writable(folder, *inputs)
    check_replaceable(folder, CARD, KIND)
    if is_store(source):
        raise DataError(f"{source}: is a panel store already; pass the table it was made of")
    scan = scan_table(source, data)
    others = [None if given is None else read_table(given, data) for given in (covariates, future)]
    if scan is None or scan.n_rows * len(scan.frame.collect_schema()) <= WHOLE:
        table = read_table(source, data)
        panel = build_panel(table, data, covariates=others[0], future=others[1])
        return write_store(panel, folder, data)
    # In what is being written: a kill leaves one thing, which the next conversion removes.
    with writing(folder) as store, tempfile.TemporaryDirectory(dir=store.folder) as scratch:
        _Pieces(scan, data, others[0], others[1], Path(scratch), progress).write(store)
    return open_store(folder)


@dataclass(frozen=True)
class _Survey:
    """What all parts have to be asked before the first can be built."""

    schema: Schema
    """With the facts of the time column."""
    layout: Path
    """Times, and the first row of each series, in a file."""
    words: dict[str, pl.Series]
    """The categories met."""


@dataclass(frozen=True)
class _Pieces:
    """A table on its way into a store."""

    scan: Scan
    data: DataConfig
    covariates: Table | None
    future: Table | None
    scratch: Path
    progress: Progress

    def write(self, store: StoreWriter) -> None:
        """Appends every part to the store, and finishes it."""
        with reading(self.scan.name):
            sample = sample_of(self.scan, BLOCK)
        told = infer_schema(sample, self.data, self.future, self.covariates).schema
        rows = self.scan.n_rows
        with reading(self.scan.name):
            dealt = deal(
                self.scan, told, self.scratch, BLOCK, lambda done, _: self.progress(done, 3 * rows)
            )
        told = self._with_format(told, dealt)
        keys = () if told.melted else told.series
        once = (
            told.time is not None
            and not repeated_rows(*comparable_times(sample, told.time, self.data), keys, told.time)[0]
        )
        surveys = []
        for number in range(len(dealt)):
            surveys.append(self._survey(dealt, number, told, once=once))
            self.progress(rows + rows * (number + 1) // len(dealt), 3 * rows)
        schema = self._settled(told, surveys)
        notes = list(self.scan.notes)
        for number in range(len(dealt)):
            table = dealt.table(number)
            own = dealt.roles(schema, number)
            covariates, future = self._others(table, own)
            panel = build_panel(
                table, self.data, schema=own, covariates=covariates, future=future, sparse=True
            )
            notes += panel.notes
            store.append(replace(panel, schema=replace(panel.schema, melted=schema.melted)))
            self.progress(2 * rows + rows * (number + 1) // len(dealt), 3 * rows)
        store.finish(self.data, summed(notes))

    def _others(self, table: Table, schema: Schema) -> list[Table | None]:
        """Returns the rows of the second tables that a part may need."""
        found = []
        for other in (self.covariates, self.future):
            keys = [] if other is None else [k for k in schema.series if k in other.frame.columns]
            if other is not None and keys and not schema.melted:
                mine = table.frame.select(keys).unique()
                given = other.frame.with_row_index("\0row", 1)
                cast = given.with_columns(
                    pl.col(key).cast(mine[key].dtype, strict=False) for key in keys
                )
                kept = given[cast.with_row_index("\0at").join(mine, on=keys, how="semi")["\0at"]]
                other = replace(other, frame=kept.drop("\0row"), numbers=kept["\0row"])
            found.append(other)
        return found

    def _with_format(self, schema: Schema, dealt: Dealt) -> Schema:
        """Returns the schema with the order of day and month, where only all rows can tell it."""
        name, declared = schema.time, self.data.time_format
        text = name is not None and self.scan.frame.collect_schema()[name] == pl.String
        if name is None or not text or declared is not None:
            return schema
        for number in range(len(dealt)):
            column = dealt.table(number).frame[name].drop_nulls()
            if len(guess_formats(column, digits=True)) < 2:
                return schema
            try:
                return replace(
                    schema, time_format=parse_times(column, f"{self.scan.name}, column '{name}'")[1]
                )
            except DataError as error:
                last = error
        raise last

    def _survey(self, dealt: Dealt, number: int, told: Schema, *, once: bool) -> _Survey:
        """Returns what a part knows, and checks what the sample said.

        Args:
            dealt: the parts.
            number: of the part.
            told: roles, as the sample tells them.
            once: whether no series and time was twice in the sample.
        """
        table = dealt.table(number)
        rows = main_rows(table, dealt.roles(told, number), self.data)
        time, indptr = layout_of(rows)
        layout = self.scratch / f"layout-{number}.npz"
        np.savez(layout, time=time, indptr=indptr)
        repeated = [note for note in rows.notes if note.rule == "duplicates"]
        if once and repeated and self.data.series is None:
            raise fault(
                "sample",
                f"{table.name}: series and time repeat ({repeated[0].text}), but not in the {_SAMPLED}",
                "say the series with --series",
                series=repeated[0].series,
            )
        refuse_errors(rows.notes)
        covariates, future = self._others(table, rows.schema)
        if covariates is not None:
            rows = with_covariates(rows, covariates, self.data)
        if future is not None:
            rows = with_future(rows, future, self.data)
        self._require_static(rows)
        names = (*rows.schema.code_columns, *rows.schema.static_category)
        return _Survey(rows.schema, layout, {n: rows.frame[n].drop_nulls().unique() for n in names})

    def _require_static(self, rows: Rows) -> None:
        """Refuses a column that the sample took for static and that varies."""
        if self.data.static is not None or not rows.schema.static:
            return
        counts = rows.frame.group_by(SERIES).agg(pl.col(rows.schema.static).drop_nulls().n_unique())
        for name in rows.schema.static:
            if (counts[name] > 1).any():
                raise fault(
                    "sample",
                    f"{self.scan.name}: column '{name}' varies within a series, but not in "
                    f"the {_SAMPLED}",
                    f"say its role, as --past {name}",
                    where=name,
                )

    def _settled(self, told: Schema, surveys: Sequence[_Survey]) -> Schema:
        """Returns the schema that every part is built with."""
        facts = surveys[0].schema
        if len({survey.schema.time_format for survey in surveys}) > 1:
            # A part may lie within one offset where the whole does not.
            facts = replace(facts, time_format=with_any_offset(facts.time_format))
        for survey in surveys:
            own = survey.schema
            if own.time_format != facts.time_format:
                own = replace(own, time_format=with_any_offset(own.time_format))
            mine, first = ((s.time_dtype, s.time_zone, s.time_format) for s in (own, facts))
            if mine != first:
                raise fault(
                    "time",
                    f"{self.scan.name}: times are not written alike ({mine[2]} and {first[2]})",
                    "say how they are written with --time-format",
                )
        layouts = Layouts([survey.layout for survey in surveys])
        calendar, regular = clock_of(replace(facts, freq=""), self.data, lambda: layouts)
        if regular:
            ends = ((time[indptr[:-1]], time[indptr[1:] - 1]) for time, indptr in layouts)
            total = sum(int((calendar.steps(*of_part) + 1).sum()) for of_part in ends)
            check_density(self.scan.name, calendar.freq, total, sum(len(time) for time, _ in layouts))
        categories = {}
        for name in facts.categorical:
            words = pl.concat([survey.words[name] for survey in surveys]).unique().sort()
            categories[name] = tuple(words)
        self._require_few(categories)
        self._require_numbers(facts, sum(len(indptr) - 1 for _, indptr in layouts))
        return replace(
            facts,
            melted=told.melted,
            freq=calendar.freq,
            season_length=calendar.season,
            regular=regular,
            categories=categories,
            holidays=self.data.holidays,
        )

    def _require_numbers(self, schema: Schema, n_series: int) -> None:
        """Refuses whole numbers that all rows show to be codes, but not the sample."""
        kinds, static = self.scan.frame.collect_schema(), schema.static
        names = (*schema.past, *schema.known, *static)
        names = tuple(n for n in names if n in kinds and kinds[n].is_integer())
        names = tuple(n for n in names if n not in schema.categorical)
        if self.data.categorical is not None or not names:
            return
        span = self.scan.frame.select(pl.col(names).max() - pl.col(names).min())
        spans = span.collect(engine="streaming").row(0, named=True)
        for name in [name for name in names if (spans[name] or 0) < MOST_CODES]:
            values = self.scan.frame.select(pl.col(name).unique()).collect(engine="streaming")[name]
            if look_like_codes(values, n_series if name in static else self.scan.n_rows):
                raise fault(
                    "sample",
                    f"{self.scan.name}: column '{name}' holds {values.drop_nulls().len()} codes, but "
                    f"not in the {_SAMPLED}",
                    f"say whether it is a category with --categorical {name}, or others",
                    where=name,
                )

    def _require_few(self, categories: Mapping[str, tuple[str, ...]]) -> None:
        """Refuses categories that are more than the sample said and roles allow."""
        data, kinds = self.data, self.scan.frame.collect_schema()
        declared = {*data.known, *(data.past or ()), *(data.static or ())}
        for name, words in categories.items():
            codes = name in kinds and kinds[name].is_integer()
            most = MOST_CODES if codes else MOST_CATEGORIES
            told = name in (data.categorical or ()) if codes else name in declared
            if name in kinds and len(words) > most and not told:
                raise fault(
                    "sample",
                    f"{self.scan.name}: column '{name}' holds {len(words)} categories, more than "
                    f"{most}, but not in the {_SAMPLED}",
                    "name the columns that are categories with --categorical"
                    if codes
                    else "name the covariates that count with --known, --past and --static",
                    where=name,
                )


_SAMPLED = "rows that roles were told from"
