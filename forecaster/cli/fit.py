"""`forecaster fit`: a table → a saved model and a tracked run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from forecaster import api
from forecaster.cli import options
from forecaster.errors import ConfigError


@options.flags_of(api.fit)
def fit(
    data: Annotated[
        str | None,
        typer.Argument(metavar="DATA", help="CSV, Parquet or Arrow file, folder, URL or quoted glob."),
    ] = None,
    config: options.ConfigFile = None,
    sets: options.Sets = None,
    warm_start: Annotated[
        Path | None,
        typer.Option("--from", metavar="MODEL", help="Start from the weights of another model."),
    ] = None,
    **given: Any,
) -> None:
    """Fit a model to a table.

    Prints the role of every column, trains, scores the validation rows beside seasonal naive, and
    writes the model and an MLflow run. An interrupted fit continues with --resume, with the data and
    settings of its start.
    """
    if given["resume"] is None and data is None:
        raise ConfigError("Missing argument DATA: the table to fit a model to")
    if given["resume"] is None and given["out"] is None:
        raise ConfigError("Missing option --out: the folder for the model")
    from forecaster.config import load_config

    api.fit(data, config=load_config(config, sets or ()), warm_start=warm_start, **given)
