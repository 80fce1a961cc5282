"""`forecaster monitor`: a model in use, and the table as it is now → what has broken down."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from forecaster import api
from forecaster.cli import options, results
from forecaster.errors import ConfigError, visible
from forecaster.forecast.model_folder import check_target
from forecaster.forecast.writer import PAGES, PICTURES, ROWS
from forecaster.options import DataOptions

BROKEN = 3
"""Exit code where a band or the skill has broken down."""


@options.flags_of(api.Forecaster.monitor)
def monitor(
    model: options.Model,
    data: Annotated[str, typer.Argument(metavar="DATA", help="The table as it is now.")],
    forecasts: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILE", help="Forecasts that were made earlier; repeatable. Default: made again."
        ),
    ] = None,
    recalibrate: Annotated[
        Path | None,
        typer.Option(
            metavar="PATH", help="Folder for the same model with bands that follow the new rows."
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="File for all rows: .csv, .parquet or .xlsx.")
    ] = None,
    plot: Annotated[Path | None, typer.Option(help="Picture by time: .png.")] = None,
    report: Annotated[Path | None, typer.Option(help="Page for a browser: .html.")] = None,
    overwrite: options.Overwrite = False,
    **given: Any,
) -> dict[str, Any]:
    """Compare the forecasts of a model with the truth that has come since its fit.

    Exit code 3: a band or the skill has broken down; what differs in the new rows is printed.
    """
    files = list(forecasts or ())
    results.check_files({ROWS: out, PICTURES: plot, PAGES: report}, (data, *files), overwrite)
    if recalibrate is not None:
        check_target(recalibrate, overwrite)

    from forecaster.forecast.source import Source
    from forecaster.runs.console import Screen

    loaded = api.load(model)
    if not isinstance(loaded, api.Forecaster):
        raise ConfigError(f"{model}: expected a model that forecasts, found a classifier")
    roles = {name: given[name] for name in DataOptions.__annotations__ if name in given}
    source = Source(data, given["future"], given["covariates"], roles)
    panel = source.panel(loaded.artifact, with_new_words=recalibrate is not None)
    found = loaded.monitor(panel, forecasts=files or None, **given)
    if found is None:
        nothing = dict.fromkeys(
            ("broken", "summary", "verdict", "out", "plot", "report", "recalibrated")
        )
        return {**nothing, "scores": {}}

    Screen().print_summary(found)
    typer.echo(visible(found.sentence))
    written = results.put(found, out, plot, report)
    if recalibrate is not None:
        saved: dict[str, Any] = {"out": recalibrate, "overwrite": overwrite}
        saved |= {name: given[name] for name in ("tracking", "device")}
        loaded.update(panel, refit="bands", **saved)
    return {
        "exit_code": BROKEN if found.broken else 0,
        "broken": found.broken,
        "summary": found.sentence,
        **results.about_scores(found),
        **written,
        "recalibrated": recalibrate,
    }
