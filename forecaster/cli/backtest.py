"""`forecaster backtest`: a model and a table → scores at past cutoffs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from forecaster import api
from forecaster.cli import options, results
from forecaster.forecast.writer import PAGES, PICTURES, ROWS


@options.flags_of(api.Forecaster.backtest)
def backtest(
    model: options.Model,
    out: Annotated[Path | None, typer.Option(help="File for all rows: .csv or .parquet.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Picture of the last cutoff: .png.")] = None,
    report: Annotated[Path | None, typer.Option(help="Page for a browser: .html.")] = None,
    overwrite: options.Overwrite = False,
    **given: Any,
) -> None:
    """Score a model at past cutoffs, beside baselines.

    By default the model's settings are fitted again to the rows before the first cutoff, so that no
    scored row has been seen.
    """
    outputs = {ROWS: out, PICTURES: plot, PAGES: report}
    results.check_files(outputs, (given["data"], given["covariates"]), overwrite)
    from rich.console import Console

    from forecaster.runs.console import print_summary

    result = api.load(model).backtest(**given)
    print_summary(Console(), result)
    results.put(result, out, plot)
    if report is not None:
        result.report(report)
        typer.echo(f"wrote {report}")
