"""Where predict, backtest and detect put what they made: looked at before the work, written after it.

What comes in: the paths a user typed. What goes out: files, and a line for each.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from forecaster.evaluation.backtest import Backtest
    from forecaster.forecast.detect import Labels
    from forecaster.forecast.forecast import Forecast


def refuse_unwritable(
    rows: Path | None, picture: Path | None, *inputs: str | None, page: Path | None = None
) -> None:
    """Raises before any work what writing the results would raise after it.

    Args:
        rows: .csv or .parquet file.
        picture: .png, .svg or .pdf file.
        inputs: what the verb reads, and must not write over.
        page: .html file.

    Raises:
        OutputError: a name or folder that cannot be written.
    """
    from forecaster.files import check_writable
    from forecaster.forecast.writer import check_format, check_picture, check_report

    for path, check in ((rows, check_format), (picture, check_picture), (page, check_report)):
        if path is not None:
            check_writable(path, *inputs)
            check(path)


def put(result: Forecast | Backtest | Labels, rows: Path | None, picture: Path | None) -> None:
    """Writes the rows and draws the picture that were asked for, and says so."""
    from forecaster.forecast.writer import write_figure

    if rows is not None:
        result.write(rows)
        typer.echo(f"wrote {rows}")
    if picture is not None:
        write_figure(result.plot(), picture)
        typer.echo(f"drew {picture}")
