"""`forecaster ui`: recorded runs in the browser."""

from __future__ import annotations

import os
import sys
from typing import Annotated, Any

import typer

from forecaster.cli import document, options


def ui(
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port of this machine.")] = 5000,
    uri: options.Store = None,
) -> dict[str, Any]:
    """Serve MLflow's pages on a store, to this machine alone, until Ctrl-C."""
    from forecaster.config import TrackingConfig
    from forecaster.errors import ConfigError
    from forecaster.runs.tracking import database, last_page, tracking_uri, without_password

    config = TrackingConfig(uri=uri)
    store = tracking_uri(config)
    if store.startswith(("http://", "https://")):
        raise ConfigError(
            f"{without_password(store)} is a server already: open that address in a browser"
        )
    words = ["--host", "127.0.0.1", "--port", str(port), "--workers", "1", "--backend-store-uri", store]
    if file := database(store):
        words += ["--artifacts-destination", str(file.parent / "mlartifacts")]
    address = f"http://127.0.0.1:{port}/{last_page(config)}"
    typer.echo(f"runs: {address}")

    def serve() -> None:
        if document.wanted():
            os.dup2(2, 1)  # of the server, too, all goes to standard error
        os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"
        os.environ["MLFLOW_SERVER_ENABLE_JOB_EXECUTION"] = "false"  # else 15 processes and 2 GB
        os.execv(sys.executable, [sys.executable, "-m", "mlflow", "server", *words])

    return {"address": address, "store": without_password(store), "then": serve}
