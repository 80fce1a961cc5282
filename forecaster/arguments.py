"""What Python's face may be told beside data: keywords in, one validated `Config` out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict

from forecaster.config import Config

Names = str | Sequence[str]


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
