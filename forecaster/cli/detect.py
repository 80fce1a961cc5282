"""`forecaster detect`: a model and a table, or a table alone → anomalies."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from forecaster import api
from forecaster.api.unfitted import DETECT_HORIZON
from forecaster.cli import options, results
from forecaster.errors import ConfigError, visible
from forecaster.forecast.writer import PICTURES, ROWS

_LISTED = 10  # events


@options.flags_of(api.Forecaster.detect)
def detect(
    model: options.ModelOrTable,
    data: options.ModelTable = None,
    out: Annotated[
        Path | None, typer.Option(help="File for the anomalies: .csv, .parquet or .xlsx.")
    ] = None,
    plot: Annotated[Path | None, typer.Option(help="Picture to draw: .png, .svg or .pdf.")] = None,
    overwrite: options.Overwrite = False,
    **given: Any,
) -> dict[str, Any]:
    """Mark the values outside the band that was forecast one step before them."""
    saved, table = results.model_and_table(model, data)
    results.check_files({ROWS: out, PICTURES: plot}, (table, given["covariates"]), overwrite)
    loaded: api.Forecaster | api.Classifier
    if saved is None:
        loaded, given = results.without_fit(table, DETECT_HORIZON, given)
    else:
        loaded, given = api.load(saved), given | {"data": table}
    if not isinstance(loaded, api.Forecaster):
        raise ConfigError(
            f"{saved}: forecaster detect expects a model that forecasts, found a classifier, which has "
            "predict, backtest, explain and export"
        )
    with results.progress("detecting") as update:
        anomalies = loaded.detect(progress=update, **given)
    for line in (anomalies.report, *anomalies.events[:_LISTED]):
        typer.echo(visible(line))
    files = results.put(anomalies, out, plot)
    rows = anomalies.rows
    return {
        "level": anomalies.level,
        "counts": {name or "not compared": count for name, count in anomalies.counts.items()},
        "anomalies": rows.filter(rows["event"] > 0),
        "summary": anomalies.report,
        "out": files["out"],
        "plot": files["plot"],
    }
