"""Writes rows, pictures and pages to files, whole or not at all."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

from forecaster.errors import OutputError
from forecaster.files import atomic_file

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMATS = (".csv", ".parquet")
PICTURES = (".png", ".svg", ".pdf")
PAGES = (".html", ".htm")


def check_format(path: Path) -> None:
    """Raises `OutputError` unless `path` ends in .csv or .parquet."""
    if path.suffix.lower() not in FORMATS:
        raise OutputError(f"{path}: expected a name ending in .csv or .parquet")


def check_picture(path: Path) -> None:
    """Raises `OutputError` unless `path` ends as a picture does."""
    if path.suffix.lower() not in PICTURES:
        raise OutputError(f"{path}: expected a picture's name, ending in .png, .svg or .pdf")


def is_page(path: Path) -> bool:
    """Returns whether `path` ends as an HTML page does."""
    return path.suffix.lower() in PAGES


def check_page(path: Path) -> None:
    """Raises `OutputError` unless `path` ends as a page or a picture does."""
    if not is_page(path) and path.suffix.lower() not in PICTURES:
        raise OutputError(f"{path}: expected a name ending in .html, .png, .svg or .pdf")


def check_report(path: Path) -> None:
    """Raises `OutputError` unless `path` ends as an HTML page does."""
    if not is_page(path):
        raise OutputError(f"{path}: expected a page's name, ending in .html")


def write_rows(frame: Any, path: Path) -> None:
    """Writes a polars frame as CSV or Parquet, by suffix.

    Raises:
        OutputError: the suffix is unknown, or the file cannot be written.
    """
    check_format(path)
    with atomic_file(path) as partial, partial.open("wb") as file:
        # Our own handle: its errors are OSErrors with a reason, whatever the writer wraps.
        if path.suffix.lower() == ".csv":
            frame.write_csv(file)
        else:
            # Written straight to the file, a full disk comes back as a fault of the format.
            buffer = io.BytesIO()
            frame.write_parquet(buffer)
            file.write(buffer.getbuffer())


def write_figure(figure: Figure, path: Path) -> None:
    """Writes a matplotlib figure; the suffix names the format.

    Raises:
        OutputError: the suffix is not a picture's, or the file cannot be written.
    """
    check_picture(path)
    with atomic_file(path) as partial:
        figure.savefig(partial, format=path.suffix.lower().lstrip("."))


def write_page(text: str, path: Path) -> None:
    """Writes a page as UTF-8.

    Raises:
        OutputError: the file cannot be written.
    """
    with atomic_file(path) as partial:
        partial.write_text(text, encoding="utf-8")
