"""Writes rows, pictures and pages to files, whole or not at all."""

from __future__ import annotations

import io
from collections.abc import Callable
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from forecaster.errors import OutputError
from forecaster.files import atomic_file

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ROWS = (".csv", ".parquet")
PICTURES = (".png", ".svg", ".pdf")
PAGES = (".html",)

_STYLE = """
:root{--ink:#24292f;--soft:#f3f5f7;--edge:#d0d7de;--good:#0067a8;--bad:#c4520a}
body{font:15px/1.5 system-ui,sans-serif;color:var(--ink);background:#fff;max-width:1140px;
margin:1.5rem auto;padding:0 1rem;overflow-wrap:break-word}
h1{font-size:1.6rem;margin:.2rem 0}h2{font-size:1.2rem;margin:1.8rem 0 .4rem}h3{font-size:1rem}
p,li,dl{max-width:62rem}p{margin:.4rem 0}small,figcaption{font-weight:normal;opacity:.8}
nav{display:flex;flex-wrap:wrap;gap:.2rem .9rem}a{color:var(--good)}
#verdict{background:var(--soft);border-left:.5rem solid var(--edge);padding:.9rem 1.1rem}
#verdict h2{margin-top:0}#verdict.good{border-color:var(--good)}#verdict.bad{border-color:var(--bad)}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(8.5rem,1fr));gap:.7rem}
.tiles div{background:#fff;padding:.5rem .8rem}.tiles span,.tiles small{display:block}
.tiles strong{font-size:1.5rem}
figure,.wide,pre{margin:.5rem 0;overflow-x:auto}figure svg{min-width:44rem;max-width:100%;height:auto}
svg image{image-rendering:pixelated}
table{border-collapse:collapse;font-size:.9rem;font-variant-numeric:tabular-nums}
th,td{padding:.3rem .7rem;border-bottom:1px solid var(--edge);text-align:right;white-space:nowrap}
th:first-child{text-align:left;font-weight:400;position:sticky;left:0;background:#fff}
tbody th{white-space:normal;overflow-wrap:anywhere;min-width:6.5rem;max-width:45vw}td small{display:block}
dl{display:grid;grid-template-columns:max-content 1fr;gap:.25rem 1rem}dt{font-weight:600}
dd{margin:0;overflow-wrap:anywhere}pre{background:var(--soft);padding:.7rem}
@media print{nav{display:none}details::details-content{content-visibility:visible;display:block}
figure,.wide{overflow:visible}figure svg{min-width:0}}
"""


def check_suffix(path: Path, suffixes: tuple[str, ...]) -> None:
    """Raises `OutputError` unless `path` ends in one of some suffixes."""
    if path.suffix.lower() not in suffixes:
        *first, last = suffixes
        expected = f"{', '.join(first)} or {last}" if first else last
        raise OutputError(f"{path}: expected a name ending in {expected}")


def folder_of(out: Path) -> Path:
    """Returns the folder of the parts of a file of rows."""
    return out.with_name(f"{out.name}.parts")


def write_rows(frame: Any, path: Path, as_text: Callable[[Any], Any]) -> None:
    """Writes a polars frame as CSV or Parquet, by suffix.

    Args:
        frame: the rows.
        path: of the file.
        as_text: returns the rows of a CSV file.

    Raises:
        OutputError: the suffix is unknown, or the file cannot be written.
    """
    check_suffix(path, ROWS)
    with atomic_file(path) as partial, partial.open("wb") as file:
        # Our own handle: its errors are OSErrors with a reason, whatever the writer wraps.
        if path.suffix.lower() == ".csv":
            as_text(frame).write_csv(file)
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
    check_suffix(path, PICTURES)
    with atomic_file(path) as partial:
        figure.savefig(partial, format=path.suffix.lower().lstrip("."))


def write_page(text: str, path: Path) -> None:
    """Writes a page as UTF-8.

    Raises:
        OutputError: the suffix is not a page's, or the file cannot be written.
    """
    check_suffix(path, PAGES)
    with atomic_file(path) as partial:
        partial.write_text(text, encoding="utf-8")


def html_page(title: str, body: str) -> str:
    """Returns a page of a plain title and an HTML body that needs no other file and no script."""
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head><body>{body}</body></html>\n"
    )
