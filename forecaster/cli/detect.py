"""`forecaster detect`: a model and a table → a label for each observed step."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from forecaster import api
from forecaster.cli import options, results
from forecaster.errors import ConfigError, visible
from forecaster.forecast.writer import PICTURES, ROWS


@options.flags_of(api.Forecaster.detect)
def detect(
    model: options.Model,
    out: Annotated[Path | None, typer.Option(help="File for the labels: .csv or .parquet.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Picture to draw: .png, .svg or .pdf.")] = None,
    overwrite: options.Overwrite = False,
    **given: Any,
) -> None:
    """Label each step of a table by the band that was forecast one step before it."""
    outputs = {ROWS: out, PICTURES: plot}
    results.check_files(outputs, (given["data"], given["covariates"]), overwrite)
    loaded = api.load(model)
    if not isinstance(loaded, api.Forecaster):
        raise ConfigError(
            f"{model}: forecaster detect expects a model that forecasts, found one of labels, which has "
            "predict, backtest, explain and export"
        )
    with results.progress("labelling") as update:
        labels = loaded.detect(progress=update, **given)
    typer.echo(visible(labels.report))
    results.put(labels, out, plot)
