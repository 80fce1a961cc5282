"""Writes rows, pictures and pages to files, whole or not at all."""

from __future__ import annotations

import io
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from forecaster.errors import OutputError
from forecaster.files import atomic_file

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMATS = (".csv", ".parquet")
PICTURES = (".png", ".svg", ".pdf")
PAGES = (".html", ".htm")
# Colours follow Okabe and Ito (2008), darkened until a line of each stands out from the page.
_STYLE = """
:root{--ink:#24292f;--paper:#fff;--soft:#f3f5f7;--edge:#d0d7de;
--blue:#0067a8;--orange:#c4520a;--green:#00805c;--purple:#a8508a;--brown:#8a6d00}
body{font:15px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--paper);max-width:1140px;
margin:1.5rem auto;padding:0 1rem;overflow-wrap:break-word}
h1{font-size:1.6rem;line-height:1.25;margin:.2rem 0}h2{font-size:1.2rem;margin:1.8rem 0 .4rem}
h3{font-size:1rem;margin:1.1rem 0 .3rem}small{font-weight:normal;opacity:.75}
p{max-width:62rem;margin:.4rem 0}figure{margin:.4rem 0}figcaption{font-size:.85rem;opacity:.85}
svg{max-width:100%;height:auto}svg image{image-rendering:pixelated}
"""


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


def html_page(title: str, body: str, style: str = "") -> str:
    """Returns an HTML page without scripts that needs no other file.

    Args:
        title: as plain text.
        body: as HTML.
        style: CSS rules beside the common ones, whose colours are --ink, --paper, --soft, --edge,
            --blue, --orange, --green, --purple and --brown.
    """
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{_STYLE}{style}</style></head>"
        f"<body>{body}</body></html>\n"
    )
