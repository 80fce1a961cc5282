"""`forecaster detect`: a model and a table in, a label for each observed step out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from forecaster.cli import options, results


@options.reads_table
def detect(
    model: options.Model,
    data: options.Data,
    out: Annotated[
        Path | None, typer.Option(help="File to write the labels to, .csv or .parquet.")
    ] = None,
    plot: Annotated[Path | None, typer.Option(help="Picture to draw, .png, .svg or .pdf.")] = None,
    beyond: Annotated[
        float,
        typer.Option(help="Half-widths from the median at which a value is outside; 1 = the band."),
    ] = 1.0,
    covariates: options.Covariates = None,
    *,
    told: options.Told,
) -> None:
    """Label each step of a table by the band that was forecast one step before it."""
    from rich.console import Console
    from rich.progress import Progress

    from forecaster import api

    results.refuse_unwritable(out, plot, data, covariates)
    console, roles = Console(stderr=True), options.declared(told)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("looking back", total=None)
        found = api.load(model).detect(
            data,
            beyond=beyond,
            covariates=covariates,
            progress=lambda done, total: progress.update(task, completed=done, total=total),
            **roles,
        )
    typer.echo(found.report)
    results.put(found, out, plot)
