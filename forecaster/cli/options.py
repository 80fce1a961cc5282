"""Options that several verbs share, and how they reach the config.

What comes in: flags as typed. What goes out: a validated `Config`, or the flags about the table as
Python's face takes them.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping, Sequence
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Annotated, Any, get_args, get_type_hints

import typer

from forecaster.config import COLUMN_LISTS, LISTS, Config, DataConfig, load_config

Told = Mapping[str, Any]
"""Flags about the table that were typed, by name."""

Data = Annotated[
    str,
    typer.Argument(metavar="DATA", help="CSV, Parquet or Arrow file, folder or URL, or a quoted glob."),
]
DataOrNone = Annotated[
    str | None,
    typer.Argument(metavar="DATA", help="CSV, Parquet or Arrow file, folder or URL, or a quoted glob."),
]
Model = Annotated[
    Path,
    typer.Argument(metavar="MODEL", help="Folder written by forecaster fit, or models:/NAME@champion."),
]
Future = Annotated[
    str | None, typer.Option(help="Table of the covariates known in advance, after the cutoff.")
]
Covariates = Annotated[str | None, typer.Option(help="Second table, joined on series and time.")]
Horizon = Annotated[int | None, typer.Option(min=1, help="Steps to forecast.")]
ConfigFile = Annotated[Path | None, typer.Option("--config", help="YAML file of settings.")]
Store = Annotated[
    str | None, typer.Option(help="MLflow store; MLFLOW_TRACKING_URI or a local one if left out.")
]
Sets = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="One setting, as model.width=64; repeatable."),
]


def reads_table(verb: Callable[..., None]) -> Callable[..., None]:
    """Returns a verb with one more flag per field of `DataConfig`; it gets those typed as `told`.

    Typer reads flags from a signature, and sixteen of them spelled out in every verb would be four
    copies of the schema. The schema's own docstrings are their help. A flag that the verb has itself
    means what the verb says.
    """
    own = [part for name, part in signature(verb).parameters.items() if name != "told"]
    names = {part.name for part in own}
    fields = [name for name in DataConfig.model_fields if name not in names]
    flags = [
        Parameter(name, Parameter.KEYWORD_ONLY, default=None, annotation=_flag(name)) for name in fields
    ]

    @functools.wraps(verb)
    def run(**given: Any) -> None:
        typed = {name: given.pop(name) for name in fields}
        verb(**given, told={name: value for name, value in typed.items() if value is not None})

    hints = get_type_hints(verb, include_extras=True)
    parts = [part.replace(annotation=hints[part.name], kind=Parameter.KEYWORD_ONLY) for part in own]
    run.__signature__ = Signature([*parts, *flags])  # type: ignore[attr-defined]
    run.__annotations__ = {part.name: part.annotation for part in (*parts, *flags)}
    return run


def _flag(name: str) -> Any:
    field = DataConfig.model_fields[name]
    words = (field.description or "").replace("\n", " ")
    help_text = re.split(r"(?<=\.) ", words)[0]
    kinds = [kind for kind in get_args(field.annotation) if kind is not type(None)]
    choices = [word for kind in (field.annotation, *kinds) for word in get_args(kind)]
    choices = [word for word in choices if isinstance(word, str)]
    if name in COLUMN_LISTS:
        return Annotated[str | None, typer.Option(metavar="A,B", help=help_text)]
    if field.annotation is bool:
        return Annotated[bool | None, typer.Option(f"--{name.replace('_', '-')}", help=help_text)]
    if name in LISTS:
        return Annotated[str | None, typer.Option(metavar="N,M", help=help_text)]
    if int in kinds:
        return Annotated[int | None, typer.Option(help=help_text)]
    return Annotated[str | None, typer.Option(metavar="|".join(choices) or "TEXT", help=help_text)]


def settings(
    config: Path | None, sets: Sequence[str] | None, horizon: int | None, told: Told
) -> Config:
    """Returns the config of a file, `--set` assignments and table flags, the later ones on top.

    Args:
        config: YAML file.
        sets: dotted.key=value.
        horizon: steps to forecast.
        told: flags about the table, as typed.

    Raises:
        ConfigError: all faults at once.
    """
    loaded = load_config(config, sets or ())
    wanted: dict[str, Any] = {} if horizon is None else {"horizon": horizon}
    return loaded.replaced(data=declared(told), **wanted)


def declared(told: Told) -> dict[str, Any]:
    """Returns the flags about the table, comma-separated lists taken apart."""
    return {
        name: [part.strip() for part in value.split(",") if part.strip()] if name in LISTS else value
        for name, value in told.items()
    }
