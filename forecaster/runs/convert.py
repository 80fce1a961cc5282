"""A table → a panel store, said aloud.

What comes in: a table, a folder and how to read. What goes out: the store, its panel, and a bar while
the work takes longer than two seconds.
"""

from __future__ import annotations

import time
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from forecaster.config import DataConfig
from forecaster.panel.convert import convert_table
from forecaster.panel.panel import Panel
from forecaster.runs.console import print_findings, print_roles

_PATIENCE_SECONDS = 2.0


def run_convert(
    source: object,
    folder: Path,
    data: DataConfig,
    covariates: object | None,
    future: object | None,
    console: Console,
) -> Panel:
    """Returns the panel of a table, mapped from the store that was written.

    Args:
        source, folder, data, covariates, future: as `convert_table` takes them.
        console: where to say what happens.
    """
    bar = Progress(
        TextColumn("converting"),
        BarColumn(),
        TextColumn("{task.percentage:.0f} %"),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
    task, begun = bar.add_task("", total=None), time.monotonic()

    def progress(done: int, total: int) -> None:
        bar.update(task, completed=done, total=total)
        if time.monotonic() - begun > _PATIENCE_SECONDS:
            bar.start()

    try:
        panel = convert_table(
            source, folder, data, covariates=covariates, future=future, progress=progress
        )
    finally:
        bar.stop()
    print_roles(console, panel)
    print_findings(console, panel.notes)
    size = sum(file.stat().st_size for file in folder.iterdir())
    console.print(f"wrote {folder} ({size / 1e6:,.1f} MB)", markup=False, highlight=False)
    return panel
