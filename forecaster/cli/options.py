"""Options that several verbs share, and how they reach the config.

What comes in: flags as typed. What goes out: a validated `Config`, or the same role flags applied to
the schema of a model.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from forecaster.config import COLUMN_LISTS, Config, load_config

Data = Annotated[
    str, typer.Argument(metavar="DATA", help="CSV or Parquet file, or a quoted glob of them.")
]
Model = Annotated[Path, typer.Argument(metavar="MODEL", help="Folder written by forecaster fit.")]
Future = Annotated[
    str | None, typer.Option(help="Table of the covariates known in advance, after the cutoff.")
]
Covariates = Annotated[str | None, typer.Option(help="Second table, joined on series and time.")]
Horizon = Annotated[int | None, typer.Option(min=1, help="Steps to forecast.")]
ConfigFile = Annotated[Path | None, typer.Option("--config", help="YAML file of settings.")]
Sets = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="One setting, as model.width=64; repeatable."),
]
Time = Annotated[str | None, typer.Option(help='Time column; "row" numbers the rows.')]
Series = Annotated[str | None, typer.Option(metavar="A,B", help="Columns that name a series.")]
Target = Annotated[str | None, typer.Option(metavar="A,B", help="Columns to forecast.")]
Known = Annotated[str | None, typer.Option(metavar="A,B", help="Covariates known in advance.")]
Past = Annotated[str | None, typer.Option(metavar="A,B", help="Covariates known up to the cutoff.")]
Static = Annotated[str | None, typer.Option(metavar="A,B", help="Columns constant in a series.")]
Freq = Annotated[str | None, typer.Option(help="Step of the time axis, as 1h, 1d, 1mo.")]
Layout = Annotated[str | None, typer.Option(metavar="wide|long", help="How series lie in the table.")]


def settings(
    config: Path | None, sets: Sequence[str] | None, horizon: int | None, **roles: str | None
) -> Config:
    """Returns the config of a file, `--set` assignments and role flags, the later ones on top.

    Args:
        config: YAML file.
        sets: dotted.key=value.
        horizon: steps to forecast.
        roles: flags that name columns; lists are comma-separated.

    Raises:
        ConfigError: all faults at once.
    """
    loaded = load_config(config, sets or ())
    wanted: dict[str, Any] = {} if horizon is None else {"horizon": horizon}
    return loaded.replaced(data=declared(**roles), **wanted)


def declared(**roles: str | None) -> dict[str, Any]:
    """Returns the role flags that were given, comma-separated lists taken apart."""
    given: dict[str, Any] = {}
    for name, value in roles.items():
        if value is None:
            continue
        many = name in COLUMN_LISTS
        given[name] = [part.strip() for part in value.split(",") if part.strip()] if many else value
    return given
