"""`forecaster fit`: a table in, a saved model and a tracked run out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from forecaster.cli import options
from forecaster.errors import ConfigError


@options.reads_table
def fit(
    data: options.DataOrNone = None,
    out: Annotated[Path | None, typer.Option(help="Folder for the model.")] = None,
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
    resume: Annotated[
        Path | None,
        typer.Option(metavar="RUN", help="Go on with a fit that was stopped: the --out it was given."),
    ] = None,
    restart: Annotated[
        bool, typer.Option("--restart", help="Give up a fit that was stopped in --out.")
    ] = False,
    checkpoint_every: Annotated[
        int | None, typer.Option(min=1, metavar="STEPS", help="Steps between checkpoints.")
    ] = None,
    devices: Annotated[
        int | None, typer.Option(min=1, help="Train on several devices of each machine.")
    ] = None,
    nodes: Annotated[
        int | None, typer.Option(min=1, help="Machines that train together, under torchrun.")
    ] = None,
    precision: Annotated[
        str | None, typer.Option(metavar="full|bf16", help="Of products of matrices in training.")
    ] = None,
    compiled: Annotated[
        bool, typer.Option("--compile", help="Let torch compile the network before training.")
    ] = False,
    report: Annotated[
        Path | None, typer.Option(help="Page about the validation windows: .html.")
    ] = None,
    budget: Annotated[
        str | None, typer.Option(metavar="DURATION", help="Time for the training, as 90s, 10m or 1h.")
    ] = None,
    *,
    told: options.Told,
) -> None:
    """Fit a model to a table.

    Says what every column is taken for, trains, scores the validation rows beside seasonal naive,
    and writes the model and an MLflow run. A fit that was stopped goes on with --resume; DATA and all
    settings are then those of its beginning.
    """
    if resume is None and data is None:
        raise ConfigError("Missing argument DATA: the table to fit a model to")
    if resume is None and out is None:
        raise ConfigError("Missing option --out: the folder for the model")
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
        resume=resume,
        restart=restart,
        checkpoint_every=checkpoint_every,
        devices=devices,
        nodes=nodes,
        precision=precision,
        compile=compiled or None,
        budget=budget,
        report=report,
    )
