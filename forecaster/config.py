"""The whole YAML schema: what comes in is a mapping, what goes out is one frozen `Config`.

One YAML file is one run. A default lives here and nowhere else; unknown keys fail with the nearest
name; `null` means off or, where a field says so, "chosen from the data" — the choice is then fixed
in the resolved config that travels with the artifact.
"""

from __future__ import annotations

import reprlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import BaseModel, Field, ValidationError, model_validator

from forecaster.errors import ConfigError, nearest
from forecaster.fit_config import FitConfig as FitConfig
from forecaster.network_config import LONGEST, Section
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
    holidays: str | None = None
    """Country, as DE or US-CA, whose public holidays become a known covariate."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.delimiter is not None and self.delimiter == self.decimal:
            raise ValueError(
                f"delimiter and decimal are both '{self.decimal}'; each needs its own mark"
            )
        return self


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
        self._can_be_taught()
        self._can_have_members()
        if self.fit.scheduled_sampling is not None and self.model.decoder != "autoregressive":
            raise ValueError(
                f"fit.scheduled_sampling {self.fit.scheduled_sampling} replaces previous values, and "
                f"decoder {self.model.decoder} reads none: take model.decoder autoregressive, or null"
            )
        return self

    def _can_be_taught(self) -> None:
        """Refuses losses that mean nothing to the head, the decoder, or a network without maps."""
        fit, model = self.fit, self.model
        if fit.loss != "pinball" and model.head != "quantile":
            raise ValueError(
                f"fit.loss {fit.loss} teaches a median by itself, and head {model.head} learns a whole "
                "distribution by its likelihood: take fit.loss pinball, or model.head quantile"
            )
        if fit.frequency_weight is not None:
            found = {"head": (model.head, "quantile"), "decoder": (model.decoder, "direct")}
            for name, (value, needed) in found.items():
                if value != needed:
                    raise ValueError(
                        f"fit.frequency_weight {fit.frequency_weight} compares the spectrum of a "
                        f"median over all leads, which {name} {value} does not forecast at once: "
                        f"take null, or model.{name} {needed}"
                    )
        if fit.linear_rate is not None and model.linear == "none":
            raise ValueError(
                f"fit.linear_rate {fit.linear_rate} teaches linear maps, and model.linear none has "
                "none: take null, or model.linear skip or blend"
            )

    def _can_have_members(self) -> None:
        """Refuses lengths that no member reads, and a second pass without a first."""
        fit, lengths, context = self.fit, self.fit.member_lengths, self.model.context_length
        if lengths is not None and not 1 <= len(lengths) <= fit.members:
            raise ValueError(
                f"fit.member_lengths {list(lengths)} are {len(lengths)} lengths for fit.members "
                f"{fit.members}: give one to {fit.members} of them, or null"
            )
        if lengths and context is not None and max(lengths) > context:
            raise ValueError(
                f"fit.member_lengths {list(lengths)} reach further back than model.context_length "
                f"{context}: lengthen the context, or shorten them"
            )
        if fit.refit and fit.validation is None:
            raise ValueError(
                "fit.refit true fits again what validation has chosen, and fit.validation null chooses "
                "nothing: set fit.validation, or fit.refit to false"
            )

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
        near = nearest(path[-1], _names_at(path[:-1]))
        hint = f", did you mean '{near}'?" if near else ""
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
