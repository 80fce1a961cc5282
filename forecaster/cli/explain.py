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
) -> dict[str, Any]:
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
    return {"out": out, **_about(explanation)}


def _about(explanation: Any) -> dict[str, Any]:
    """Returns the numbers of an explanation; of a class those of its steps."""
    if not hasattr(explanation, "importance"):
        names = ("label", "probability", "rows")
        return {name: getattr(explanation, name) for name in names} | {"summary": explanation.report}
    experts, name = explanation.experts, explanation.name
    return {
        "series": explanation.title,
        "importance": [{**vars(one), "name": name(one)} for one in explanation.importance],
        "effects": explanation.effects.rows,
        "experts": [] if experts is None else experts.rows,
        "summary": explanation.report,
    }
