"""Writes rows, pictures and pages to files, whole or not at all."""

from __future__ import annotations

import importlib.util
import io
from collections.abc import Callable, Iterable, Sequence
from html import escape
from pathlib import Path
from typing import Any

from forecaster.errors import ConfigError, OutputError
from forecaster.files import atomic_file, write_text
from forecaster.lazy import Figure

ROWS = (".csv", ".parquet", ".xlsx")
SHEET_ROWS = 2**20 - 1
"""Below the header of a sheet."""
PICTURES = (".png", ".svg", ".pdf")
PAGES = (".html",)
NEEDS_MATPLOTLIB = "pictures and pages need matplotlib: pip install matplotlib"
_NEEDS_XLSXWRITER = "workbooks are written by xlsxwriter: pip install xlsxwriter"

_STYLE = Path(__file__).with_name("page.css")


def can_draw() -> bool:
    """Whether the extra `report` is installed."""
    return importlib.util.find_spec("matplotlib") is not None


def check_suffix(path: Path, suffixes: tuple[str, ...]) -> None:
    """Raises `OutputError` unless `path` ends in one of some suffixes, `ConfigError` if an extra is missing."""
    if path.suffix.lower() not in suffixes:
        *first, last = suffixes
        expected = f"{', '.join(first)} or {last}" if first else last
        raise OutputError(f"{path}: expected a name ending in {expected}")
    if path.suffix.lower() in PICTURES + PAGES and not can_draw():
        raise ConfigError(f"{path}: {NEEDS_MATPLOTLIB}")
    if path.suffix.lower() == ".xlsx" and importlib.util.find_spec("xlsxwriter") is None:
        raise ConfigError(f"{path}: {_NEEDS_XLSXWRITER}")


def check_sheet(path: Path, rows: int) -> None:
    """Raises `OutputError` where a file is a workbook and has more rows than a sheet."""
    if path.suffix.lower() == ".xlsx" and rows > SHEET_ROWS:
        found = f"{path}: expected at most {SHEET_ROWS:,} rows of a sheet, found {rows:,}"
        raise OutputError(f"{found}; write .csv or .parquet")


def folder_of(out: Path) -> Path:
    """Returns the folder of the parts of a file of rows."""
    return out.with_name(f"{out.name}.parts")


def write_rows(frame: Any, path: Path, as_text: Callable[[Any], Any]) -> None:
    """Writes a polars frame as CSV, Parquet or Excel, by suffix.

    Args:
        frame: the rows.
        path: of the file.
        as_text: returns the rows of a CSV file.

    Raises:
        OutputError: the suffix is unknown, a sheet does not hold the rows, or the file cannot be written.
        ConfigError: xlsxwriter is missing.
    """
    check_suffix(path, ROWS)
    check_sheet(path, frame.height)
    with atomic_file(path) as partial:
        # Straight to a full disk, polars 1.41 loses the last rows of a CSV file without an error, and the
        # error of a Parquet file is one of the format.
        buffer = io.BytesIO()
        if path.suffix.lower() == ".csv":
            as_text(frame).write_csv(buffer)
        elif path.suffix.lower() == ".xlsx":
            from forecaster.panel.workbooks import write_sheet  # it loads polars

            buffer.write(write_sheet(frame, str(path), as_text))
        else:
            frame.write_parquet(buffer)
        partial.write_bytes(buffer.getbuffer())


def write_figure(figure: Figure, path: Path) -> None:
    """Writes a matplotlib figure; the suffix names the format.

    Raises:
        OutputError: the suffix is not a picture's, or the file cannot be written.
    """
    check_suffix(path, PICTURES)
    with atomic_file(path) as partial:
        figure.savefig(partial, format=path.suffix.lower().lstrip("."))


def write_page(text: str, path: Path) -> None:
    """Writes a page as UTF-8.

    Raises:
        OutputError: the suffix is not a page's, or the file cannot be written.
    """
    check_suffix(path, PAGES)
    write_text(path, text)


def write_drawing(path: Path, plot: Callable[[], Figure], page: Callable[[], str]) -> None:
    """Writes a page or a picture, as the suffix says.

    Raises:
        OutputError: the suffix is neither's, or the file cannot be written.
    """
    check_suffix(path, PAGES + PICTURES)
    if path.suffix.lower() in PAGES:
        write_page(page(), path)
    else:
        write_figure(plot(), path)


def html_page(title: str, body: str) -> str:
    """Returns a page of a plain title and an HTML body that needs no other file and no script."""
    style = _STYLE.read_text(encoding="utf-8")
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{style}</style></head><body>{body}</body></html>\n"
    )


def html_table(head: Sequence[str], rows: Iterable[Sequence[str]], caption: str) -> str:
    """Returns a table that scrolls in its own box; head is plain text, cells are HTML, the first a row heading."""
    names = "".join(f'<th scope="col">{escape(name)}</th>' for name in head)
    body = "".join(
        f'<tr><th scope="row">{first}</th>{"".join(f"<td>{cell}</td>" for cell in rest)}</tr>'
        for first, *rest in rows
    )
    return (
        f'<div class="wide" role="region" tabindex="0" aria-label="{escape(caption)}">'
        f"<table><thead><tr>{names}</tr></thead><tbody>{body}</tbody></table></div>"
    )
