"""`forecaster ui`: recorded runs in the browser."""

from __future__ import annotations

from typing import Annotated

import typer

from forecaster.cli import options


def ui(
    port: Annotated[
        int | None,
        typer.Option(min=0, max=65535, help="Port; 5000 or the next free one if left out, 0 = any."),
    ] = None,
    uri: options.Store = None,
) -> None:
    """Serve MLflow's pages on the local store until Ctrl-C.

    They are seen on this machine alone.
    """
    from forecaster.config import TrackingConfig
    from forecaster.runs.tracking.server import serve
    from forecaster.runs.tracking.store import tracking_uri

    raise typer.Exit(
        serve(tracking_uri(TrackingConfig(uri=uri)), port, lambda where: typer.echo(f"runs: {where}"))
    )
