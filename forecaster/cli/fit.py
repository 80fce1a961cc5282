"""`forecaster fit`: a table → a saved model and a tracked run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from forecaster import api
from forecaster.cli import options, results


@options.flags_of(api.fit)
def fit(
    data: Annotated[
        str,
        typer.Argument(
            metavar="DATA", help="CSV, Excel, Parquet or Arrow file, folder, URL or quoted glob."
        ),
    ],
    out: Annotated[Path, typer.Option(metavar="PATH", help="Folder for the model.")],
    config: options.ConfigFile = None,
    sets: options.Sets = None,
    warm_start: Annotated[
        Path | None,
        typer.Option("--from", metavar="MODEL", help="Start from the weights of another model."),
    ] = None,
    **given: Any,
) -> dict[str, Any]:
    """Fit a model to a table.

    Prints the role of every column, trains, scores the validation rows beside seasonal naive, and
    writes the model and an MLflow run. The same command resumes a fit that was interrupted.
    """
    from forecaster.config import load_config

    settings = load_config(config, sets or ())
    model = api.fit(data, config=settings, out=out, warm_start=warm_start, **given)
    return {"out": out, **results.about_fit(model)}
