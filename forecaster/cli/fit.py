"""`forecaster fit`: a table in, a saved model and a tracked run out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from forecaster.cli import options


@options.reads_table
def fit(
    data: options.Data,
    out: Annotated[Path, typer.Option(help="Folder for the model.")],
    horizon: options.Horizon = None,
    config: options.ConfigFile = None,
    sets: options.Sets = None,
    future: options.Future = None,
    covariates: options.Covariates = None,
    start: Annotated[
        Path | None,
        typer.Option("--from", metavar="MODEL", help="Start from the weights of another model."),
    ] = None,
    until: Annotated[str | None, typer.Option(metavar="DATE", help="Later rows are a holdout.")] = None,
    *,
    told: options.Told,
) -> None:
    """Fit a model to a table.

    Says what every column is taken for, trains, scores the validation rows beside seasonal naive,
    and writes the model and an MLflow run.
    """
    wanted = options.settings(config, sets, horizon, told)
    from forecaster import api

    api.fit(
        data,
        config=wanted,
        future=future,
        covariates=covariates,
        until=until,
        out=out,
        warm_start=start,
    )
