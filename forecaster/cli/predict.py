"""`forecaster predict`: a model and a table in, a file of keyed forecasts out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from forecaster.cli import options, results


@options.reads_table
def predict(
    model: options.Model,
    data: options.Data,
    out: Annotated[Path, typer.Option(help="File for the forecasts: .csv or .parquet.")],
    future: options.Future = None,
    covariates: options.Covariates = None,
    horizon: options.Horizon = None,
    cutoff: Annotated[
        str,
        typer.Option(metavar="own|last|DATE", help="Where each forecast starts: own end, or a date."),
    ] = "own",
    samples: Annotated[
        int | None, typer.Option(min=1, help="Write this many joint sample paths per series instead.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Of the sample paths.")] = 0,
    plot: Annotated[Path | None, typer.Option(help="Picture of the first few series: .png.")] = None,
    *,
    told: options.Told,
) -> None:
    """Forecast every series of a table.

    Writes one row per (series, channel, lead), with quantiles, keyed in the table's own names; with
    --samples one row per (series, channel, sample, lead).
    """
    from rich.console import Console
    from rich.progress import Progress

    from forecaster import api
    from forecaster.runs import announce

    results.refuse_unwritable(out, plot, data, future, covariates)
    roles = options.declared(told)
    loaded = api.load(model)
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("forecasting", total=None)
        forecast = loaded.predict(
            data,
            future=future,
            covariates=covariates,
            cutoff=cutoff,
            horizon=horizon,
            samples=samples,
            seed=seed,
            progress=lambda done, total: progress.update(task, completed=done, total=total),
            **roles,
        )
    announce.findings(console, [found for found in forecast.findings if found.severity == "warning"])
    typer.echo(forecast.report)
    if samples is not None:
        forecast.write_samples(out)
        typer.echo(f"wrote {out}: {samples:,} paths of each series")
    results.put(forecast, out if samples is None else None, plot)
