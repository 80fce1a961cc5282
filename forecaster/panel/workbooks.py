"""Sheets of Excel and OpenDocument workbooks.

A sheet is read as the CSV file that it would be saved as, with a decimal point, so that titles above the header,
columns without a name and text are treated alike; numbers keep all their digits, and days are days.
"""

from __future__ import annotations

import datetime
import io
from collections.abc import Callable, Collection
from typing import Any

import polars as pl

from forecaster.config import DataConfig
from forecaster.errors import DataError, OutputError
from forecaster.panel.csv import Content, read_csv, read_text
from forecaster.panel.findings import Finding, fault, listing, one_line
from forecaster.panel.names import without
from forecaster.panel.numbers import Decimals, Parsed

_MARKS = Decimals(
    others=".",
    origin=" as in all numbers of a workbook",
    advice="make them numbers there, or save it as CSV",
)
_MOMENT, _MIDNIGHT = r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", r"^(\d{4}-\d\d-\d\d) 00:00:00$"
_FIRST_YEAR = 1900
"""Of a date in a cell."""
_MOST_INTEGER = 2**53
"""Cells hold numbers as float64."""
_DATES = (pl.Date, pl.Datetime)
_MADE = datetime.datetime(2000, 1, 1)
"""Written in each file, so that the same rows give the same bytes."""
_WRITING = {
    "in_memory": True,
    "nan_inf_to_errors": True,
    "strings_to_formulas": False,
    "strings_to_urls": False,
    "default_date_format": "yyyy-mm-dd hh:mm:ss",
}


def read_sheet(content: Content, name: str, data: DataConfig) -> Parsed:
    """Returns the rows of the first sheet of a workbook that holds a table, and a note of other sheets.

    Raises:
        DataError: it cannot be read, no visible sheet holds a table, or one that a CSV file would raise.
    """
    text, notes = _as_csv(content, name)
    parsed = read_csv(text, name, _settings(data), _MARKS)
    return Parsed(parsed.frame, {}, [*notes, *parsed.notes])


def read_sheet_text(
    content: Content, name: str, data: DataConfig, columns: Collection[str]
) -> pl.DataFrame:
    """Returns some columns of that sheet as text."""
    return read_text(_as_csv(content, name)[0], name, _settings(data), columns)


def _settings(data: DataConfig) -> DataConfig:
    return data.model_copy(update={"delimiter": ",", "encoding": None})


def _as_csv(content: Content, name: str) -> tuple[bytes, list[Finding]]:
    try:
        import fastexcel
    except ImportError:
        raise DataError(f"{name}: workbooks are read by fastexcel: pip install fastexcel") from None
    try:
        book = fastexcel.read_excel(content)
        sheet = _first_table(book, name)
    except fastexcel.FastExcelError as error:
        text = f"{name}: cannot be read ({one_line(error)})"
        raise fault("unreadable", text, "save it again, without a password") from error
    cells, others = sheet.to_polars(), without(book.sheet_names, [sheet.name])
    text = cells.with_columns(map(_without_midnight, cells)).write_csv(include_header=False)
    found = f"the sheet '{sheet.name}' is read; ignored: {listing(others)}"
    note = Finding("note", "files", found, "save another one as a workbook of its own")
    return text.encode(), [note] if others else []


def _first_table(book: Any, name: str) -> Any:
    """Returns the first visible sheet with a header and rows, one of several columns where there is any."""
    sheets = [book.load_sheet(title, header_row=None, dtypes="string") for title in book.sheet_names]
    tables = [sheet for sheet in sheets if sheet.visible == "visible" and sheet.height > 1]
    if not tables:
        text = f"{name}: expected a sheet with a header and rows, found none"
        raise fault("empty", text, f"the sheets are {listing(book.sheet_names)}")
    return max(tables, key=lambda sheet: sheet.width > 1)


def _without_midnight(column: pl.Series) -> pl.Series:
    """Returns the dates of a column, which cells hold as times, as days where none has a clock."""
    timed = column.str.contains(_MOMENT) & ~column.str.contains(_MIDNIGHT)
    return column if timed.any() else column.str.replace(_MIDNIGHT, "$1")


def write_sheet(
    rows: pl.DataFrame, name: str, as_text: Callable[[pl.DataFrame], pl.DataFrame]
) -> bytes:
    """Returns a workbook of one sheet. Dates are dates, in their zone ISO 8601 text: no cell holds a zone.

    Args:
        rows: below the header.
        name: of the file, for messages.
        as_text: returns the rows of a CSV file.

    Raises:
        OutputError: there are more rows or columns than a sheet has, or a longer text than a cell holds.
    """
    import xlsxwriter

    buffer = io.BytesIO()
    with xlsxwriter.Workbook(buffer, _WRITING) as book:
        book.set_properties({"created": _MADE})
        sheet, day = book.add_worksheet(), book.add_format({"num_format": "yyyy-mm-dd"})
        sheet.set_column(0, rows.width, 18)
        text = as_text(rows)
        for at, typed in enumerate(rows):
            column = text[typed.name].cast(pl.String) if _is_text(typed) else typed
            is_days = column.dtype in _DATES and (column.cast(pl.Date) == column).all()
            for row, value in enumerate([column.name, *column]):
                if sheet.write(row, at, value, day if is_days else None):
                    found = f"{name}: row {row} of '{column.name}' is more than a sheet holds"
                    raise OutputError(f"{found}; write .csv or .parquet")
    return buffer.getvalue()


def _is_text(column: pl.Series) -> bool:
    """Whether no cell holds the values: zoned times, dates before 1900, digits beyond float64's, other kinds."""
    kind = column.dtype
    if kind in _DATES:
        zoned = getattr(kind, "time_zone", None) is not None
        return zoned or bool((column.dt.year() < _FIRST_YEAR).any())
    if kind.is_integer():
        return bool((column.cast(pl.Float64).abs() >= _MOST_INTEGER).any())
    return not kind.is_float() and kind != pl.Boolean
