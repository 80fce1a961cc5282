"""`forecaster convert`: a table of any size in, a panel store out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from forecaster.cli import options


@options.reads_table
def convert(
    data: options.Data,
    store: Annotated[Path, typer.Argument(metavar="STORE", help="Folder for the panel store.")],
    future: options.Future = None,
    covariates: options.Covariates = None,
    *,
    told: options.Told,
) -> None:
    """Write a table of any size to a folder that the other verbs read in its place.

    The table is streamed: memory stays bounded, only the longest series has to fit. What is written
    appears whole or not at all.
    """
    from forecaster import api

    api.convert(data, store, covariates=covariates, future=future, **options.declared(told))
