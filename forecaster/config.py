"""The whole YAML schema: what comes in is a mapping, what goes out is one frozen `Config`.

One YAML file is one run. A default lives here and nowhere else; unknown keys fail with the nearest
name; `null` means off or, where a field says so, "chosen from the data" — the choice is then fixed
in the resolved config that travels with the artifact.
"""

from __future__ import annotations

import difflib
import reprlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import BaseModel, Field, ValidationError, model_validator

from forecaster.errors import ConfigError
from forecaster.network_config import LONGEST, MANY, WIDEST, Section
from forecaster.network_config import ModelConfig as ModelConfig
from forecaster.plain_yaml import parse_yaml, read_yaml

COLUMN_LISTS = ("series", "target", "known", "past", "static", "categorical")
"""Roles that several columns may share."""
LISTS = (*COLUMN_LISTS, "periods")
"""Settings of a table that hold several values."""
_MOST_FAULTS = 30


class DataConfig(Section):
    """How a table is read, and which column is what. Null = inferred, and printed before work starts.

    Every field is also a flag of the verbs that read data; its help is the first sentence here.
    """

    time: str | None = None
    """Column of timestamps; "row" numbers the rows (no clock). Null = found."""
    series: tuple[str, ...] | None = None
    """Columns that together name a series. Null = found."""
    target: tuple[str, ...] | None = None
    """Columns to forecast, the channels. Null = found."""
    known: tuple[str, ...] = ()
    """Covariates known in advance. Never guessed: declared here, or given in the future table."""
    past: tuple[str, ...] | None = None
    """Covariates seen only up to the cutoff. Null = every remaining usable column."""
    static: tuple[str, ...] | None = None
    """Columns constant within a series. Null = found."""
    categorical: tuple[str, ...] | None = None
    """Covariates that are categories, beside text and booleans, which always are.
    Null = also columns of few whole numbers; none where the list is empty."""
    freq: str | None = None
    """Step of the time axis, as 1h, 1d, 1mo. Null = found."""
    season_length: int | None = Field(None, ge=1, le=LONGEST)
    """Steps of the main season. Null = from the step; without a clock, found in the data."""
    periods: tuple[Annotated[int, Field(ge=2, le=LONGEST)], ...] | None = None
    """Further cycles, in steps, whose phase the network is told beside those of the calendar.
    Null = none with a calendar; on an integer axis, found in the data."""
    layout: Literal["wide", "long", "rows"] | None = None
    """wide: columns are channels; long: rows of many series; rows: each row is a whole series.
    Null = wide or long, found."""
    delimiter: str | None = None
    """Character between the fields of a CSV file, or tab. Null = found."""
    decimal: Literal[".", ","] | None = None
    """Decimal mark of numbers in a CSV file. Null = found."""
    time_format: str | None = None
    """How times are written, as %d.%m.%Y %H:%M; s, ms, us or ns for counts since 1970. Null = found."""
    snap: bool = False
    """Move times that lie off the grid of the step to the nearest place on it.
    Otherwise they are kept as they are."""
    on_duplicates: Literal["error", "mean", "last"] = "error"
    """What becomes of rows that share series and time but disagree. mean: their mean; last: the
    last one. Rows that agree are one row in any case, and that is said."""
    on_gaps: Literal["mask", "forward-fill"] = "mask"
    """What becomes of missing cells between two observed ones. mask: they stay missing;
    forward-fill: the last value before them holds."""
    holidays: str | None = None
    """Country, as DE or US-CA, whose public holidays become a known covariate."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.delimiter is not None and self.delimiter == self.decimal:
            raise ValueError(
                f"delimiter and decimal are both '{self.decimal}'; each needs its own mark"
            )
        return self


class FitConfig(Section):
    """Training."""

    steps: int = Field(400, ge=1, le=MANY)
    """Optimiser steps at most."""
    batch_size: int = Field(256, ge=1, le=LONGEST)
    """Channel-windows per step."""
    seed: int = Field(0, ge=0, lt=1 << 63)
    """Fixes initial weights, dropout and the order of windows."""
    learning_rate: float = Field(4e-3, gt=0)
    """Peak rate of AdamW."""
    weight_decay: float = Field(0.05, ge=0)
    """Decoupled weight decay of AdamW, on matrices only."""
    warmup: float = Field(0.05, ge=0, le=1)
    """Share of the steps in which the rate rises; a cosine to zero follows."""
    gradient_clip: float | None = Field(1.0, gt=0)
    """Largest gradient norm; null = off."""
    average_decay: float | None = Field(0.99, gt=0, lt=1)
    """Decay of the moving average of weights that is validated and kept; null = off."""
    validation: float | None = Field(0.15, gt=0, lt=0.9)
    """Share of the time axis, at its end, that early stopping watches; null = off."""
    validation_windows: int = Field(1024, ge=1, le=MANY)
    """Validation windows watched at most; where there are more, an even draw of them."""
    validate_every: int = Field(50, ge=1, le=MANY)
    """Steps between validations."""
    patience: int | None = Field(5, ge=1, le=MANY)
    """Validations without a better loss before training stops; null = never."""
    stride: int = Field(1, ge=1, le=LONGEST)
    """Steps between the cutoffs of neighbouring windows, counted back from each series' last row; a
    day's steps learn from the hour of the day alone at which the table ends."""
    loss: Literal["pinball", "mae", "huber"] = "pinball"
    """What the median learns from. pinball: with all quantiles alike; mae: the absolute error alone;
    huber: the squared error where it is small. The other quantiles learn their distance from it."""
    frequency_weight: float | None = Field(None, gt=0)
    """Weight of the absolute error of the median's spectrum over the leads; null = off."""
    linear_rate: float | None = Field(None, gt=0)
    """Learning rate at which linear maps go on from their solution; null = they stay."""
    members: int = Field(1, ge=1, le=100)
    """Networks of different seeds whose quantiles are averaged, weighted by validation."""
    member_lengths: tuple[Annotated[int, Field(ge=1, le=LONGEST)], ...] | None = Field(
        None, max_length=100
    )
    """`model.attention_length` of each member in turn; null = that of the model."""
    refit: bool = False
    """Fit again on all rows, validation's too, what validation has chosen: steps, shares, widths."""
    budget_seconds: float | None = Field(None, gt=0)
    """Bounds the training: 20 steps are measured, and the steps are lowered to what fits in.
    The resolved config says how many; null = no bound."""
    calibration: float | None = Field(0.5, gt=0, lt=1)
    """Share of the validated cutoffs, at their end, that early stopping leaves to the calibration of
    quantiles; null = quantiles stay as they are."""
    lead_decay: float | None = Field(None, gt=0, lt=1)
    """Weight of each lead in the training loss, relative to the lead before; null = all alike."""
    noise: float | None = Field(None, gt=0)
    """Spread of the noise added to the context while training, in scaled units; null = off."""
    patch_masking: float | None = Field(None, gt=0, lt=1)
    """Share of the context hidden while training, as one run of patches per window; null = off."""
    scheduled_sampling: float | None = Field(None, gt=0, le=1)
    """Share of previous patches that an autoregressive decoder draws itself while training, at the
    last step; it rises evenly from none. Null = off: the truth is always given."""
    precision: Literal["full", "bf16", "auto"] = "full"
    """full: float32; bf16: products of matrices in bfloat16; auto: bf16 where this machine was measured
    to be faster with it. The resolved config says which."""
    compile: bool = False
    """Let torch compile the network before training; pays on a GPU in a long fit."""
    checkpoint_minutes: float | None = Field(10.0, gt=0)
    """Minutes between checkpoints, which `--resume` goes on from; null = none."""
    checkpoint_every: int | None = Field(None, ge=1, le=MANY)
    """Steps between checkpoints, in place of minutes."""
    freeze_encoder: bool = False
    """Keep the encoder of the weights that a fit starts from (`--from`) as it is."""
    adapters: int | None = Field(None, ge=1, le=WIDEST)
    """Rank of the changes that attention and feed-forward matrices may learn, the weights a fit starts
    from (`--from`) staying as they are. Null = off: they learn whole."""


class TargetConfig(Section):
    """What values of the target can be; applied to forecasts only."""

    lower: float | None = None
    """No forecast is below it; null = no bound."""
    upper: float | None = None
    """No forecast is above it; null = no bound."""
    integer: bool = False
    """Forecasts are rounded to whole numbers."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.lower is not None and self.upper is not None and self.lower >= self.upper:
            raise ValueError(f"lower {self.lower} is not below upper {self.upper}")
        return self


class TrackingConfig(Section):
    """Where a run is recorded."""

    enabled: bool = True
    """Record the run in MLflow."""
    uri: str | None = None
    """MLflow tracking store; null = MLFLOW_TRACKING_URI, else SQLite in the working directory."""
    experiment: str = "forecaster"
    """MLflow experiment."""


class Config(Section):
    """One run."""

    horizon: int | None = Field(None, ge=1, le=LONGEST)
    """Steps to forecast after the cutoff; required to fit."""
    data: DataConfig = DataConfig()
    """Roles of the columns."""
    target: TargetConfig = TargetConfig()
    """What its values can be."""
    model: ModelConfig = ModelConfig()
    """The network."""
    fit: FitConfig = FitConfig()
    """Training."""
    tracking: TrackingConfig = TrackingConfig()
    """Where the run is recorded."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.fit.scheduled_sampling is not None and self.model.decoder != "autoregressive":
            raise ValueError(
                f"fit.scheduled_sampling {self.fit.scheduled_sampling} replaces previous values, and "
                f"decoder {self.model.decoder} reads none: take model.decoder autoregressive, or null"
            )
        return self

    def replaced(self, **sections: Mapping[str, Any] | int | None) -> Config:
        """Returns a copy with some settings replaced and everything validated again.

        Example:
            >>> Config().replaced(horizon=28, fit={"steps": 10}).fit.steps
            10
        """
        # What nobody has set stays unset, so that what was told can be told from a default.
        merged = _merge(self.model_dump(mode="json", exclude_unset=True), sections)
        return parse_config(merged, source="config")


def load_config(path: str | Path | None = None, overrides: Iterable[str] = ()) -> Config:
    """Returns the config of a YAML file with `dotted.key=value` overrides on top.

    Args:
        path: YAML file; None starts from the defaults.
        overrides: assignments such as `"model.width=64"`; the value is read as YAML.

    Raises:
        ConfigError: the file cannot be read, or settings are wrong; all of them are listed at once.
    """
    settings: dict[str, Any] = {}
    if path is not None:
        settings = read_yaml(path)
    for override in overrides:
        key, equals, value = override.partition("=")
        if not equals or not key:
            raise ConfigError(f"--set {override}: expected dotted.key=value, as model.width=64")
        nested: Any = parse_yaml(value, f"--set {key}")
        for part in reversed(key.strip().split(".")):
            nested = {part: nested}
        settings = _merge(settings, nested)
    return parse_config(settings, source=str(path) if path is not None else "settings")


def parse_config(settings: Mapping[str, Any], source: str) -> Config:
    """Returns the validated config of a mapping.

    Raises:
        ConfigError: one line per fault, all faults at once, unknown names with the nearest known.
    """
    try:
        return Config.model_validate(settings)
    except ValidationError as error:
        faults = error.errors()
        lines = [f"{source}: {_explain(fault)}" for fault in faults[:_MOST_FAULTS]]
        if len(faults) > _MOST_FAULTS:
            lines.append(f"{source}: and {len(faults) - _MOST_FAULTS:,} more faults")
        raise ConfigError("\n".join(lines)) from None


def _explain(fault: Any) -> str:
    path = [text if (text := str(part)).isprintable() else repr(text) for part in fault["loc"]]
    name = ".".join(path) or "config"
    if fault["type"] == "extra_forbidden":
        near = difflib.get_close_matches(path[-1], _names_at(path[:-1]), n=1, cutoff=0.5)
        hint = f", did you mean '{near[0]}'?" if near else ""
        return f"{name}: unknown setting{hint} (got {reprlib.repr(fault['input'])})"
    message = fault["msg"].removeprefix("Value error, ")
    if fault["type"] == "value_error":
        return f"{name}: {message}"
    return f"{name}: {message} (got {reprlib.repr(fault['input'])})"


def _names_at(path: list[str]) -> list[str]:
    section: type[BaseModel] = Config
    for part in path:
        annotation = section.model_fields[part].annotation if part in section.model_fields else None
        candidates = [annotation, *get_args(annotation)]
        found = [c for c in candidates if isinstance(c, type) and issubclass(c, BaseModel)]
        if not found:
            return []
        section = found[0]
    return list(section.model_fields)


def _merge(base: Mapping[str, Any], top: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in top.items():
        below = merged.get(key)
        both = isinstance(value, Mapping) and isinstance(below, Mapping)
        merged[key] = _merge(below, value) if both else value  # type: ignore[arg-type]
    return merged
