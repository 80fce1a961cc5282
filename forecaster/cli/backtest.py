"""`forecaster backtest`: a model and a table in, scores at past cutoffs out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from forecaster.cli import imports, options, results


@options.reads_table
def backtest(
    model: options.Model,
    data: options.Data,
    windows: Annotated[int, typer.Option(min=1, help="How many cutoffs.")] = 8,
    refit: Annotated[
        str, typer.Option(metavar="once|each|never", help="What is fitted before which cutoff.")
    ] = "once",
    stride: Annotated[
        int | None, typer.Option(min=1, help="Steps between cutoffs; the horizon if left out.")
    ] = None,
    horizon: Annotated[
        int | None, typer.Option(min=1, help="Leads to score; as fitted if left out.")
    ] = None,
    covariates: options.Covariates = None,
    out: Annotated[Path | None, typer.Option(help="File for all rows: .csv or .parquet.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Picture of the last cutoff: .png.")] = None,
    report: Annotated[Path | None, typer.Option(help="Page for a browser: .html.")] = None,
    *,
    told: options.Told,
) -> None:
    """Score a model at past cutoffs, beside baselines.

    By default the model's config is fitted again on the rows before the first cutoff, so that no
    scored row has been seen.
    """
    from rich.console import Console

    with imports.undisturbed():
        from forecaster import api
        from forecaster.runs.console import print_summary

    results.refuse_unwritable(out, plot, data, covariates, page=report)
    roles = options.declared(told)
    result = api.load(model).backtest(
        data, windows, refit, stride, covariates, horizon=horizon, **roles
    )
    print_summary(Console(), result)
    results.put(result, out, plot)
    if report is not None:
        result.report(report)
        typer.echo(f"wrote {report}")
