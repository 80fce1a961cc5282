"""`forecaster tune`: search for better settings."""

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
        int, typer.Option(min=1, help="Total number of trials, earlier calls included.")
    ] = 50,
    space: Annotated[
        Path | None, typer.Option(metavar="FILE", help="YAML file of the search space.")
    ] = None,
    config: options.ConfigFile = None,
    sets: options.Sets = None,
    study: Annotated[str | None, typer.Option(help="Name; an existing study is continued.")] = None,
    storage: Annotated[
        str | None, typer.Option(metavar="URL", help="Journal file or database URL.")
    ] = None,
    workers: Annotated[int, typer.Option(min=1, help="Worker processes, one GPU each.")] = 1,
    sampler: Annotated[
        str, typer.Option(metavar="tpe|gp|random", help="Method that proposes settings.")
    ] = "tpe",
    pruner: Annotated[
        str | None,
        typer.Option(metavar="asha|hyperband|none", help="Method that stops poor trials early."),
    ] = None,
    metric: Annotated[
        list[str] | None,
        typer.Option(help="WQL, MASE, MSE, MAE, RMSE or sMAPE; repeat for a Pareto study."),
    ] = None,
    timeout: Annotated[
        str | None, typer.Option(metavar="2h", help="Start no trial after this time.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the sampler.")] = 0,
    until: Annotated[
        str | None, typer.Option(metavar="DATE", help="Hold out all rows after DATE.")
    ] = None,
    future: options.Future = None,
    covariates: options.Covariates = None,
    out: Annotated[Path | None, typer.Option(help="Folder for a model with the best settings.")] = None,
    register: Annotated[
        str | None, typer.Option(metavar="NAME", help="Register that model in MLflow.")
    ] = None,
    *,
    told: options.Told,
) -> None:
    """Search for better settings than those of a config.

    Each trial is fitted, then scored on later rows of the table; trial 0 is the config as it is. The
    best settings are written to STUDY.best.yaml, for fit --config. The same command continues an
    interrupted search; run on another machine with the same --storage, it takes part.
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
