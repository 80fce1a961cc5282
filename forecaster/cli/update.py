"""`forecaster update`: a model and its table as it is now → a model that knows the new rows."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from forecaster import api
from forecaster.cli import options, results
from forecaster.errors import ConfigError


@options.flags_of(api.Forecaster.update)
def update(
    model: options.Model,
    data: Annotated[
        str,
        typer.Argument(
            metavar="DATA", help="The table as it is now: the history, and rows that are new."
        ),
    ],
    out: Annotated[Path, typer.Option(metavar="PATH", help="Folder for the new model.")],
    overwrite: options.Overwrite = False,
    **given: Any,
) -> dict[str, Any]:
    """Update a model with the rows that came after its fit.

    Nothing is chosen again: experts are solved from all rows, what was trained is trained on from where it is, and
    bands follow the errors of held-out rows. The model of before stays as it is.
    """
    loaded = api.load(model)
    if not isinstance(loaded, api.Forecaster):
        raise ConfigError(f"{model}: expected a model that forecasts, found a classifier: fit it again")
    new = loaded.update(data, out=out, overwrite=overwrite, **given)
    changed = new is not loaded
    return {
        "out": out if changed else None,
        "new_steps": new.metrics["update"]["steps"] if changed else 0,
        **results.about_fit(new),
    }
