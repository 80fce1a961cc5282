"""`forecaster tune`: a table in; the best settings of many trials, and a model with them, out."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from forecaster.cli import options


@options.reads_table
def tune(
    data: options.Data,
    horizon: options.Horizon = None,
    trials: Annotated[
        int, typer.Option(min=1, help="Trials in all, those of earlier calls included.")
    ] = 50,
    space: Annotated[
        Path | None, typer.Option(metavar="FILE", help="YAML file of the settings to search.")
    ] = None,
    config: options.ConfigFile = None,
    sets: options.Sets = None,
    study: Annotated[
        str | None, typer.Option(help="Name; the same name goes on with what is there.")
    ] = None,
    storage: Annotated[
        str | None, typer.Option(metavar="URL", help="Journal file, database or grpc://HOST:PORT.")
    ] = None,
    workers: Annotated[int, typer.Option(min=1, help="Processes, one device each.")] = 1,
    sampler: Annotated[
        str, typer.Option(metavar="tpe|gp|random", help="Proposes the settings of a trial.")
    ] = "tpe",
    pruner: Annotated[
        str | None,
        typer.Option(metavar="asha|hyperband|none", help="Stops trials that fall behind."),
    ] = None,
    metric: Annotated[
        list[str] | None,
        typer.Option(help="WQL, MASE, MSE, MAE, RMSE or sMAPE; repeated: a Pareto study."),
    ] = None,
    timeout: Annotated[
        str | None, typer.Option(metavar="2h", help="No trial begins later than this.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of the sampler.")] = 0,
    until: Annotated[str | None, typer.Option(metavar="DATE", help="Later rows are a holdout.")] = None,
    future: options.Future = None,
    covariates: options.Covariates = None,
    out: Annotated[Path | None, typer.Option(help="Folder for a model of the best settings.")] = None,
    register: Annotated[
        str | None, typer.Option(metavar="NAME", help="Register that model in MLflow.")
    ] = None,
    *,
    told: options.Told,
) -> None:
    """Search for better settings than those of a config.

    Each trial is fitted and then scored on later rows of the table; the first one is the config as it
    is. The best settings are written to STUDY.best.yaml, for fit --config. The same command goes on
    where it was stopped, and joins in from another machine.
    """
    wanted = options.settings(config, sets, horizon, told)
    from forecaster import api

    api.tune(
        data,
        trials=trials,
        config=wanted,
        space=space,
        study=study,
        storage=storage,
        workers=workers,
        sampler=sampler,
        pruner=pruner,
        metrics=metric or "WQL",
        timeout=timeout,
        seed=seed,
        until=until,
        future=future,
        covariates=covariates,
        out=out,
        register=register,
        refit=out is not None or register is not None,
        command=shlex.join(["forecaster", *sys.argv[1:]]),
    )
