"""`forecaster export`: a model to MLflow's registry, or into an ONNX file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from forecaster.cli import options


def export(
    model: options.Model,
    mlflow: Annotated[
        str | None, typer.Option(metavar="NAME", help="Register a version under this name in MLflow.")
    ] = None,
    onnx: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write an ONNX file: .onnx.")
    ] = None,
    uri: options.Store = None,
    experiment: Annotated[str, typer.Option(help="MLflow experiment.")] = "forecaster",
    champion: Annotated[
        bool,
        typer.Option("--champion", help="Make the version the champion regardless of its scores."),
    ] = False,
    data: Annotated[
        str | None,
        typer.Option(
            metavar="DATA", help="Table with rows new to both, which model and champion are scored on."
        ),
    ] = None,
    overwrite: options.Overwrite = False,
) -> dict[str, Any]:
    """Register a model in MLflow, or write it as an ONNX file.

    A version with a lower loss than the champion becomes the champion; so does one that knows a horizon more of the
    table at a loss at most 2 % higher.
    """
    from forecaster import api
    from forecaster.config import TrackingConfig
    from forecaster.errors import ConfigError
    from forecaster.forecast.onnx_export import check_onnx

    if mlflow is None and onnx is None:
        raise ConfigError("nothing to export to: give --mlflow NAME, --onnx FILE, or both")
    if champion and mlflow is None:
        raise ConfigError("--champion: expected --mlflow NAME, the name whose champion it becomes")
    if data is not None and mlflow is None:
        raise ConfigError("--data: expected --mlflow NAME, whose champion the model is compared with")
    if onnx is not None:
        check_onnx(onnx, overwrite)
    loaded = api.load(model)
    answer: dict[str, Any] = {"onnx": None, "onnx_content": None, "registered": None, "summary": None}
    if onnx is not None:
        typer.echo("exporting the model to ONNX takes about 20 seconds")
        content = loaded.export_onnx(onnx)
        typer.echo(f"wrote {onnx}: {content}")
        answer |= {"onnx": onnx, "onnx_content": content}
    if mlflow is not None:
        published = loaded.export(
            mlflow, TrackingConfig(uri=uri, experiment=experiment), champion, data
        )
        typer.echo(published.sentence)
        predict = f"forecaster predict {published.address} DATA --out FILE"
        serve = f"mlflow models serve -m {published.address} --env-manager local --port 5001"
        typer.echo(f"forecast with it: {published.in_store(predict)}")
        typer.echo(f"serve it: {published.in_store(serve)}")
        names = ("name", "version", "is_champion", "address", "store")
        answer["registered"] = {name: getattr(published, name) for name in names}
        answer["summary"] = published.sentence
    return answer
