"""Rows, pictures and pages as files.

What comes in: a frame, a figure or a page, and where. What goes out: the finished file, or an
`OutputError` and nothing.
"""

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
    """Raises `OutputError` when the suffix of `path` is not one that rows can be written in."""
    if path.suffix.lower() not in FORMATS:
        raise OutputError(f"{path}: expected a name ending in .csv or .parquet")


def check_picture(path: Path) -> None:
    """Raises `OutputError` when the suffix of `path` is not one that figures are drawn in."""
    if path.suffix.lower() not in PICTURES:
        raise OutputError(f"{path}: expected a picture's name, ending in .png, .svg or .pdf")


def is_page(path: Path) -> bool:
    """Returns whether the suffix of `path` is that of a page for a browser."""
    return path.suffix.lower() in PAGES


def check_page(path: Path) -> None:
    """Raises `OutputError` when the suffix of `path` is neither a page's nor a picture's."""
    if not is_page(path) and path.suffix.lower() not in PICTURES:
        raise OutputError(f"{path}: expected a name ending in .html, .png, .svg or .pdf")


def check_report(path: Path) -> None:
    """Raises `OutputError` when the suffix of `path` is not that of a page for a browser."""
    if not is_page(path):
        raise OutputError(f"{path}: expected a page's name, ending in .html")


def write_rows(frame: Any, path: Path) -> None:
    """Writes a polars frame to CSV or Parquet, by suffix, whole or not at all.

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
    """Writes a matplotlib figure, whole or not at all; the suffix names the format.

    Raises:
        OutputError: the suffix is not a picture's, or the file cannot be written.
    """
    check_picture(path)
    with atomic_file(path) as partial:
        figure.savefig(partial, format=path.suffix.lower().lstrip("."))


def write_page(text: str, path: Path) -> None:
    """Writes a page as UTF-8, whole or not at all.

    Raises:
        OutputError: the file cannot be written.
    """
    with atomic_file(path) as partial:
        partial.write_text(text, encoding="utf-8")
