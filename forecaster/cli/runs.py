"""`forecaster runs`: what is recorded in MLflow."""

from __future__ import annotations

from typing import Annotated

import typer

from forecaster.cli import options

app = typer.Typer(help="Recorded runs.", no_args_is_help=True)


@app.callback()
def _group() -> None:
    """Recorded runs."""


@app.command("log")
def log(
    model: options.Model,
    uri: Annotated[
        str | None, typer.Option(help="MLflow store; MLFLOW_TRACKING_URI or a local one if left out.")
    ] = None,
    experiment: Annotated[str, typer.Option(help="MLflow experiment.")] = "forecaster",
) -> None:
    """Record a saved model whose fit could not reach the MLflow store."""
    from forecaster.config import TrackingConfig
    from forecaster.runs.job import log_saved

    used = log_saved(model, TrackingConfig(uri=uri, experiment=experiment))
    typer.echo(f"logged {model} to {used}")
