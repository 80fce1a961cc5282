"""`forecaster explain`: a model and a table, or a table alone → a page or a picture of one forecast."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from forecaster import api
from forecaster.cli import options, results
from forecaster.errors import visible
from forecaster.forecast.writer import PAGES, PICTURES


@options.flags_of(api.Forecaster.explain, table=api.explain)
def explain(
    model: options.ModelOrTable,
    out: Annotated[Path, typer.Option(help="Page to write, .html; or a picture: .png, .svg or .pdf.")],
    data: options.ModelTable = None,
    overwrite: options.Overwrite = False,
    **given: Any,
) -> None:
    """Show the attention weights of one forecast, and which inputs change it.

    Writes attention over experts, of a network that has a weight also attention over real time, and how far
    the forecast moves when a covariate or a part of the past is hidden.
    """
    horizon = given.pop("horizon")
    saved, table = results.model_and_table(model, data)
    tables = (table, given["future"], given["covariates"])
    results.check_files({PAGES + PICTURES: out}, tables, overwrite)
    loaded: api.Forecaster | api.Classifier
    if saved is None:
        loaded, given = results.without_fit(table, horizon, given)
    else:
        results.refuse_of_table({"horizon": horizon})
        loaded, given = api.load(saved), given | {"data": table}
    if isinstance(loaded, api.Classifier):
        given = results.refuse_options(given, "explain")
    explanation = loaded.explain(**given)
    explanation.write(out)
    typer.echo(visible(explanation.report))
    if effects := getattr(explanation, "effects", None):  # a class has none
        for line in effects.report.splitlines():
            typer.echo(visible(line))
    typer.echo(f"wrote {out}")
