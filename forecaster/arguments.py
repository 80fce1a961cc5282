"""What Python's face may be told beside data: keywords in, one validated `Config` out."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict

from forecaster.config import COLUMN_LISTS, Config, DataConfig, load_config, parse_config
from forecaster.errors import ConfigError

Names = str | Sequence[str]
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


class Reading(TypedDict, total=False):
    """How a table is read, and which column is what: the fields of `DataConfig` but `series`.

    Everything left out is inferred and printed.
    """

    time: str
    target: Names
    known: Names
    past: Names
    static: Names
    categorical: Names
    freq: str
    season_length: int
    periods: Sequence[int]
    layout: str
    delimiter: str
    decimal: str
    time_format: str
    snap: bool
    on_duplicates: str
    holidays: str


class Roles(Reading, total=False):
    """The same, with the columns that together name a series."""

    series: Names


class BatchOptions(Roles, total=False):
    """What `predict_to` may be told beyond data and file."""

    future: object | None
    covariates: object | None
    cutoff: str
    horizon: int | None
    samples: int | None
    seed: int
    parts: bool
    shard: tuple[int, int] | None
    devices: int | None
    restart: bool
    engine: Any
    progress: Any


class FitOptions(Roles, total=False):
    """What `fit` may be told beyond data and horizon."""

    config: str | Path | Mapping[str, Any] | Config | None
    future: object | None
    covariates: object | None
    until: str | None
    out: str | Path | None
    warm_start: object | None
    resume: str | Path | None
    restart: bool
    checkpoint_every: int | None
    devices: int | None
    nodes: int | None
    precision: str | None
    compile: bool | None
    budget: str | float | None
    report: str | Path | None
    quiet: bool


BATCH = BatchOptions.__annotations__.keys() - Roles.__annotations__.keys()
"""Options of `predict_to` that are no roles."""


class TuneOptions(Roles, total=False):
    """What `tune` may be told beyond data, horizon and trials."""

    config: str | Path | Mapping[str, Any] | Config | None
    future: object | None
    covariates: object | None
    until: str | None
    space: str | Path | Mapping[str, Any] | None
    study: str | None
    storage: str | Path | None
    workers: int
    sampler: str
    pruner: str | None
    metrics: str | Sequence[str]
    timeout: str | float | None
    seed: int
    out: str | Path | None
    register: str | None
    refit: bool
    command: str
    quiet: bool


SETTINGS = FitOptions.__annotations__.keys() - Roles.__annotations__.keys()
"""Options of `fit` that are no roles."""


def seconds_of(duration: str | float | None, flag: str) -> float | None:
    """Returns a duration in seconds: 90, "90", "45m", "2h", "1d"; None stays None.

    Args:
        duration: as told.
        flag: it was told by, for the message.

    Raises:
        ConfigError: it is none.
    """
    if duration is None:
        return None
    told = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smhd]?)", str(duration).strip())
    if told is None or float(told[1]) <= 0:
        raise ConfigError(f"{flag} {duration}: expected a duration, as 90s, 45m or 2h")
    return float(told[1]) * _UNITS[told[2] or "s"]


def config_of(
    config: str | Path | Mapping[str, Any] | Config | None,
    horizon: int | None,
    roles: Mapping[str, Any],
) -> Config:
    """Returns the settings a caller means: those of a config with what was told beside it on top.

    Args:
        config: a file, a mapping, a Config; None = the defaults.
        horizon: None = as the config says.
        roles: fields of `DataConfig`; one name may stand for a list of one.

    Raises:
        ConfigError: all faults at once.
    """
    if config is None or isinstance(config, str | Path):
        config = load_config(config)
    elif not isinstance(config, Config):
        config = parse_config(config, source="config")
    declared = {
        name: [value] if isinstance(value, str) and name in COLUMN_LISTS else value
        for name, value in roles.items()
        if name in DataConfig.model_fields
    }
    unknown = set(roles) - set(DataConfig.model_fields)
    if unknown:
        parse_config({"data": {name: roles[name] for name in unknown}}, source="arguments")
    return config.replaced(data=declared, **({} if horizon is None else {"horizon": horizon}))
