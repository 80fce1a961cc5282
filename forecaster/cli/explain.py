"""`forecaster explain`: a model and a table in, a page or a picture of one forecast out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from forecaster.cli import options


@options.reads_table
def explain(
    model: options.Model,
    data: options.Data,
    out: Annotated[Path, typer.Option(help="Page to write, .html; or a picture: .png, .svg or .pdf.")],
    series: Annotated[
        str | None, typer.Option(metavar="NAME", help="The series; several keys joined with /.")
    ] = None,
    channel: Annotated[
        str | None, typer.Option(metavar="NAME", help="The column forecast; the first if left out.")
    ] = None,
    cutoff: Annotated[
        str, typer.Option(metavar="own|DATE", help="Where the forecast starts: own end, or a date.")
    ] = "own",
    future: options.Future = None,
    covariates: options.Covariates = None,
    keys: Annotated[
        str | None, typer.Option(metavar="A,B", help="Columns that together name a series.")
    ] = None,
    *,
    told: options.Told,
) -> None:
    """Show what the forecast of one series looked at.

    Writes attention over real time, layer by layer, and how far the forecast moves when a covariate
    or a part of the past is hidden.
    """
    from forecaster.files import check_writable
    from forecaster.forecast.writer import check_page

    check_writable(out, data, future, covariates)
    check_page(out)
    roles = options.declared(told if keys is None else {**told, "series": keys})
    if keys is not None:
        roles["keys"] = roles.pop("series")
    from forecaster import api

    found = api.load(model).explain(
        data, series, channel, cutoff, future=future, covariates=covariates, **roles
    )
    found.write(out)
    typer.echo(found.report)
    typer.echo(f"wrote {out}")
