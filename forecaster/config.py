"""The whole schema of a run: YAML or keyword arguments → one frozen `Config`.

A default lives here and nowhere else. Unknown keys fail with the nearest known name. `null` means off
or, where a field says so, "chosen from the data".
"""

from __future__ import annotations

import itertools
import json
import math
import re
import reprlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar, get_args
from zoneinfo import ZoneInfo

import yaml
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic.fields import FieldInfo

from forecaster.arguments import kinds_in, typed
from forecaster.errors import ConfigError, nearest
from forecaster.files import shipped

COLUMN_LISTS = ("series", "target", "known", "past", "static", "categorical", "relate")
"""Roles that several columns may share."""
PRESETS = ("long", "smoke", "vanilla")
"""Files of configs/ that come with the package, for `--preset`."""
_MOST_FAULTS = 30
_LONGEST_MESSAGE = 600  # characters
_MOST_BYTES = 1 << 20
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_COMMENT_COLUMN = 30

Expert = Literal[
    "naive",
    "drift",
    "long_mean",
    "level_0.1",
    "level_0.3",
    "level_0.8",
    "damped_trend",
    "slow_trend",
    "fast_trend",
    "theta",
    "line",
    "curve",
    "ets",
    "autoregression",
    "seasonal_naive",
    "seasonal_mean",
    "growing_season",
    "seasonal_drift",
    "second_naive",
    "second_mean",
    "profile",
    "tsb",
    "linear",
    "arx",
]
"""Closed-form forecasts, in the order of a pool."""
_Penalty = Annotated[float, Field(ge=0)]
_Bound = Annotated[float, Field(ge=-3e38, le=3e38)]  # as numbers of tables are
LONGEST = 1_000_000
"""Upper bound of steps and tokens, against typos and denial of service."""
WIDEST, DEEPEST, MANY = 65_536, 1000, 1_000_000_000
"""Upper bounds of the size of a token, of layers, and of counts."""
_Steps = Annotated[int, Field(ge=1, le=LONGEST)]

_Parsed = TypeVar("_Parsed", bound="Section")


class Section(BaseModel):
    """A frozen group of settings; unknown names are refused."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, use_attribute_docstrings=True, allow_inf_nan=False
    )

    @field_validator("*", mode="before")
    @classmethod
    def _no_boolean_as_number(cls, value: Any, info: ValidationInfo) -> Any:
        parts = value if isinstance(value, list | tuple) else [value]
        if any(isinstance(part, bool) for part in parts):
            kinds = [*kinds_in(cls.model_fields[str(info.field_name)].annotation)]
            if bool not in kinds and (int in kinds or float in kinds):
                raise ValueError(f"expected a number, found {json.dumps(value)}")
        return value


class DataConfig(Section):
    """How a table is read, and the role of each column; null = inferred from the table.

    Every field is an option of the Python interface and a flag of the verbs that read data.
    """

    time: str | None = None
    """Timestamp column; several columns (year,month,day,hour) are joined; row: no timestamps, the rows
    are numbered. Null = inferred."""
    series: tuple[str, ...] | None = None
    """Columns that together identify a series. Null = inferred."""
    target: tuple[str, ...] | None = None
    """Columns to forecast, the channels. Null = inferred."""
    label: str | None = None
    """Class column, one class per series or per step: trains a classifier, not a forecaster. Null = forecast."""
    known: tuple[str, ...] = ()
    """Covariates known in advance. Never inferred: declared here, or columns of the future table."""
    past: tuple[str, ...] | None = None
    """Covariates known up to the cutoff only. Null = every remaining usable column."""
    static: tuple[str, ...] | None = None
    """Covariates constant within a series. Null = inferred."""
    categorical: tuple[str, ...] | None = None
    """Additional categorical covariates (text and booleans always are). Null = also columns of few
    whole numbers."""
    freq: str | None = None
    """Frequency of the time axis, as 1h, 1d, 1mo. Null = inferred."""
    resample: str | None = None
    """Longer step that rows are aggregated to, as W-SUN, MS, 2h. Null = rows stay as they are."""
    agg: Literal["sum", "mean", "last", "max"] | None = None
    """Aggregation of targets when resampling; covariates become their mean, categories the last one."""
    season_length: int | None = Field(None, ge=1, le=LONGEST)
    """Steps of the main season. Null = from the frequency; without timestamps, found in the data."""
    periods: tuple[Annotated[int, Field(ge=2, le=LONGEST)], ...] | None = None
    """Further periods, in steps, whose phase the network reads beside those of the calendar. Null = none;
    without timestamps, found in the data."""
    layout: Literal["wide", "long", "rows"] | None = None
    """wide: channels of one series, as columns or, in a long table, as series; long: rows of many series;
    rows: one row per series. Null = wide or long, inferred."""
    relate: tuple[str, ...] = ()
    """Key columns of a long table that name a group, as store: its series (at most 50) become its channels."""
    encoding: str | None = None
    """Encoding of a CSV file, as cp850. Null = UTF-8, else UTF-16 by its first bytes, else Windows-1252."""
    skip_rows: int | None = Field(None, ge=0, le=LONGEST)
    """Lines of a CSV file before its header. Null = none."""
    delimiter: str | None = None
    """Delimiter of a CSV file: a character, or tab. Null = inferred."""
    decimal: Literal[".", ","] | None = None
    """Decimal mark of a CSV file. Null = inferred."""
    time_format: str | None = None
    """Format of timestamps, as %d.%m.%Y %H:%M; s, ms, us or ns for counts since 1970. Null = inferred."""
    time_zone: str | None = None
    """Zone of local times, as Europe/Berlin, whose clocks may change. Null = as written."""
    on_duplicates: Literal["error", "mean", "last", "sum"] = "error"
    """Rows that share series and time but differ: an error, their mean, or the last one; sum: targets are added
    up, those of copies too."""
    holidays: tuple[str, ...] | None = None
    """Countries, as DE or US-CA, whose public holidays become a known covariate each; null = none."""

    @field_validator("time", mode="before")
    @classmethod
    def _one_name(cls, time: object) -> object:
        return ",".join(map(str, time)) if isinstance(time, list | tuple) else time

    @field_validator("encoding", "time_zone")
    @classmethod
    def _known(cls, name: str | None, info: ValidationInfo) -> str | None:
        known: Any = ZoneInfo if info.field_name == "time_zone" else "".encode
        try:
            if name is not None:
                known(name)
        except (LookupError, ValueError, OSError):
            raise ValueError(f"expected a name as cp850 or Europe/Berlin, found '{name}'") from None
        return name

    @field_validator("target")
    @classmethod
    def _some(cls, target: tuple[str, ...] | None) -> tuple[str, ...] | None:
        if target == ():
            raise ValueError("expected columns, found none; leave it out and they are inferred")
        return target

    @field_validator("holidays", mode="before")
    @classmethod
    def _split(cls, given: Any) -> Any:
        given = given.split(",") if isinstance(given, str) else given
        each = isinstance(given, list | tuple)
        return [*dict.fromkeys(str(part).strip() for part in given)] if each else given

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.delimiter is not None and self.delimiter == self.decimal:
            raise ValueError(
                f"delimiter and decimal are both '{self.decimal}'; each needs its own mark"
            )
        if self.relate and self.layout in ("long", "rows"):
            raise ValueError(f"relate contradicts layout {self.layout}; leave out one of them")
        if self.freq is not None and self.resample is not None:
            raise ValueError(
                f"freq {self.freq} and resample {self.resample} both name a step; keep resample to "
                "aggregate rows to it, freq where rows are that far apart already"
            )
        return self

    def settled(self, **values: Any) -> DataConfig:
        """Returns these settings, some of them replaced by what the table has."""
        return _parsed(DataConfig, self.model_dump() | values, "config", section="data")


class TargetConfig(Section):
    """Bounds and rounding of forecasts."""

    lower: _Bound | None = None
    """Smallest value of a forecast; null = no bound."""
    upper: _Bound | None = None
    """Largest value of a forecast; null = no bound."""
    integer: bool = False
    """Round forecasts to whole numbers."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.lower is not None and self.upper is not None and self.lower >= self.upper:
            raise ValueError(f"lower {self.lower} is not below upper {self.upper}")
        if not self.integer or self.lower is None or self.upper is None:
            return self
        if math.ceil(self.lower) > math.floor(self.upper):
            raise ValueError(f"integer: no whole number from {self.lower} to {self.upper}")
        return self


class NetworkSettings(Section):
    """What a request and its plan say of a network; a plan narrows what a request may leave open."""

    width: int | None = Field(64, ge=4, le=WIDEST)
    """Size of a token; null = chosen from the number of training windows."""
    heads: int = Field(4, ge=1, le=WIDEST)
    """Attention heads; divides `width`."""
    encoder_layers: int = Field(2, ge=1, le=DEEPEST)
    """Layers over the context."""
    decoder_layers: int = Field(1, ge=1, le=DEEPEST)
    """Layers over the horizon."""
    dropout: float = Field(0.1, ge=0, lt=1)
    """Share of activations dropped while training, on embeddings and residuals."""
    attention: Literal["full", "local", "sparse", "low_rank"] = "full"
    """Encoder self-attention. full: to all tokens; local: to neighbours; sparse: ProbSparse;
    low_rank: Linformer."""
    attention_size: int | None = Field(None, ge=1, le=LONGEST)
    """Window of local (default 32), factor of sparse (5) or rank of low_rank attention (64)."""
    channel_attention: bool = False
    """Attention between the channels of a series, covariates among them."""
    conv_kernel: int | None = Field(None, ge=2, le=10_000)
    """Tokens joined by a causal convolution before the encoder; null = off."""
    positions: Literal["elapsed", "sinusoidal", "learned"] = "elapsed"
    """elapsed: sinusoids of the time since the cutoff; sinusoidal: of the token's number, as published;
    learned: a vector per token."""
    context_length: int | None = Field(None, ge=2, le=LONGEST)
    """Steps before the cutoff that attention reads; null = chosen from the horizon and the season."""
    patch: int | None = Field(None, ge=1, le=LONGEST)
    """Steps per token of the context and of the horizon; null = chosen from the season."""
    decoder: Literal["direct", "autoregressive"] = "direct"
    """direct: all leads in one pass; autoregressive: patch after patch, as sample paths."""
    decoder_mask: Literal["causal", "full"] = "causal"
    """causal: leads of a patch ignore everything after it; full: all covariates are known at once."""
    head: Literal["quantile", "student_t", "binned", "classes", "step_classes"] = "quantile"
    """Distribution of a value. quantile: free in shape; student_t: heavy tails; binned: a vocabulary
    of scaled values; of a classifier, classes of a series or of each step."""
    quantile_levels: tuple[float, ...] = Field(
        (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9), max_length=1000
    )
    """Quantile levels, rising, strictly between 0 and 1, with the median."""
    style: Literal["modern", "vaswani2017"] = "modern"
    """modern: norm first, GELU, feed-forward layers of 2 · width; vaswani2017: norm after the sum,
    ReLU, 4 · width, inputs times √width."""

    @property
    def tokenizes_values(self) -> bool:
        """Whether values enter as bins of the head's vocabulary, as tokens of a language model."""
        return self.head == "binned" and self.decoder == "autoregressive"

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.width is not None and self.width % self.heads:
            raise ValueError(f"width {self.width} is not a multiple of heads {self.heads}")
        if self.width is not None and self.width % 2:
            raise ValueError(f"width {self.width} is odd; sinusoids come in pairs")
        if self.attention == "full" and self.attention_size is not None:
            raise ValueError(
                f"attention_size {self.attention_size} has no effect with attention full: take null, "
                "or attention local, sparse or low_rank"
            )
        if self.decoder == "autoregressive":
            self._check_autoregressive()
        levels = self.quantile_levels
        if list(levels) != sorted(set(levels)) or not all(0 < level < 1 for level in levels):
            raise ValueError(f"quantile_levels {list(levels)} must rise strictly between 0 and 1")
        for one, other in itertools.pairwise((*levels, 1.0)):  # 1 is no level, and q1 no column
            if f"{one:g}" == f"{other:g}":
                raise ValueError(
                    f"quantile_levels {one!r} and {other!r} would both be the column q{one:g}: "
                    "keep one, or write at most six digits"
                )
        if 0.5 not in levels:
            raise ValueError(f"quantile_levels {list(levels)} lack 0.5, the forecast itself")
        return self

    def _check_autoregressive(self) -> None:
        if self.decoder_mask == "full":
            raise ValueError(
                "decoder_mask full shows a token the tokens after it, which an autoregressive decoder "
                "has not generated yet: take decoder_mask causal, or decoder direct"
            )
        if self.head == "quantile" and len(self.quantile_levels) < 2:
            raise ValueError(
                f"quantile_levels {list(self.quantile_levels)} is one level, paths are drawn from "
                "at least two; add some, or take another head"
            )
        if self.tokenizes_values and self.patch not in (None, 1):
            raise ValueError(
                f"patch {self.patch}: an autoregressive binned head reads one value per token, patch 1"
            )

    def _check_experts(self, experts: Sequence[Expert]) -> None:
        if experts and (self.head != "quantile" or self.decoder != "direct"):
            raise ValueError(
                "experts forecast quantiles of all leads at once, which does not go with head "
                f"{self.head} and decoder {self.decoder}: take experts [], or head quantile and "
                "decoder direct"
            )
        if len(set(experts)) < len(experts):
            raise ValueError(f"experts {list(experts)} names one twice")


class ModelConfig(NetworkSettings):
    """The network. The config chooses; there is no class per variant."""

    head: Literal["quantile", "student_t", "binned"] = "quantile"
    """Distribution of a value. quantile: free in shape; student_t: heavy tails; binned: a vocabulary
    of scaled values."""
    experts: tuple[Expert, ...] | None = None
    """Closed-form forecasts beside the network, as [ets, linear]; null = all that suit the table, [] = none."""
    lookbacks: tuple[_Steps, ...] | None = Field(None, max_length=32)
    """Context lengths of the linear expert, one ridge model each, averaged; null = chosen."""
    linear_units: Literal["window", "training", "season"] | _Steps = "window"
    """Units of the linear maps. window: spread of the context; training: spread of the channel's
    training rows; season, or a number of steps: mean distance of values so far apart, as in MASE."""
    ridge_alpha: _Penalty | tuple[_Penalty, ...] | None = None
    """Ridge penalty of the linear maps per training window, or one per horizon patch; null = chosen."""

    @model_validator(mode="after")
    def _experts_suit(self) -> Self:
        self._check_experts(self.experts or ())
        return self

    def settled(self, **numbers: Any) -> ModelPlan:
        """Returns the plan of the network: these settings, some of them replaced by settled numbers.

        Raises:
            ConfigError: a number is out of its bounds.
        """
        settings = {name: getattr(self, name) for name in NetworkSettings.model_fields}
        return _parsed(ModelPlan, settings | numbers, "config", section="model")


class FitConfig(Section):
    """Training."""

    steps: int | None = Field(None, ge=1, le=MANY)
    """Optimiser steps; null = as many as the validation windows gain from."""
    batch_size: int | None = Field(None, ge=1, le=LONGEST)
    """Channel-windows per step; null = chosen from the number of training windows."""
    seed: int = Field(0, ge=0, lt=1 << 63)
    """Fixes initial weights, dropout and the order of windows."""
    learning_rate: float = Field(4e-3, gt=0)
    """Peak rate of AdamW."""
    weight_decay: float = Field(0.05, ge=0)
    """Decoupled weight decay of AdamW, on matrices only."""
    validation: float | None = Field(0.15, gt=0, lt=0.9)
    """Share of the time axis, at its end, that validates; null = off."""
    stride: int = Field(1, ge=1, le=LONGEST)
    """Steps between the cutoffs of neighbouring windows, counted back from each series' last row."""
    loss: Literal["pinball", "mae", "huber"] = "pinball"
    """Training loss of the median. pinball: the same loss as the other quantiles; mae: the absolute error;
    huber: the squared error where it is small. The other quantiles learn their distance from the median."""
    ensemble_size: int = Field(1, ge=1, le=100)
    """Networks of different seeds whose quantiles are averaged, weighted by validation."""
    refit: bool | None = None
    """Refit on all rows after validation, with the steps and weights it chose; null = only when the network has
    weight 0."""
    budget_seconds: float | None = Field(None, gt=0)
    """Seconds for the whole training; steps end with them. Null = two minutes of two cores, counted in
    steps, where `steps` is null."""
    calibration: float | None = Field(0.5, gt=0, lt=1)
    """Share of the validation cutoffs, at their end, that calibrates quantiles; null = off."""
    freeze_encoder: bool = False
    """Freeze the encoder when fine-tuning (`--from`)."""
    adapters: int | None = Field(None, ge=1, le=WIDEST)
    """LoRA rank for fine-tuning (`--from`) attention and feed-forward
    matrices; null = full fine-tuning."""

    def settled(self, **numbers: Any) -> FitPlan:
        """Returns the plan of a training: these settings, some of them replaced by settled numbers."""
        return _parsed(FitPlan, self.model_dump() | numbers, "config", section="fit")


FORECAST_SETTINGS = (
    *("target.lower", "target.upper", "target.integer", "model.experts", "model.head", "model.decoder"),
    *("model.decoder_mask", "model.decoder_layers", "model.quantile_levels", "model.lookbacks"),
    *("model.linear_units", "model.ridge_alpha", "fit.loss", "fit.refit", "fit.validation"),
    *("fit.calibration", "fit.ensemble_size", "fit.stride", "fit.freeze_encoder", "fit.adapters"),
)
"""Settings that do not apply to classification."""


class TrackingConfig(Section):
    """Recording of runs in MLflow."""

    enabled: bool = True
    """Record the run in MLflow."""
    uri: str | None = None
    """MLflow store; null = MLFLOW_TRACKING_URI, else SQLite in your data folder."""
    experiment: str = "forecaster"
    """MLflow experiment."""


class Config(Section):
    """One run."""

    horizon: int | None = Field(None, ge=1, le=LONGEST)
    """Steps to forecast after the cutoff; required to fit."""
    data: DataConfig = DataConfig()
    """Reading of the table and roles of the columns; null = inferred from the table."""
    target: TargetConfig = TargetConfig()
    """Bounds and rounding of forecasts."""
    model: ModelConfig = ModelConfig()
    """The network."""
    fit: FitConfig = FitConfig()
    """Training."""
    tracking: TrackingConfig = TrackingConfig()
    """Recording in MLflow."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        fit, head = self.fit, self.model.head
        if fit.loss != "pinball" and head != "quantile":
            raise ValueError(
                f"fit.loss {fit.loss} trains the median alone, and head {head} learns a whole "
                "distribution by its likelihood: take fit.loss pinball, or model.head quantile"
            )
        if fit.refit and fit.validation is None:
            raise ValueError(
                "fit.refit true fits again what validation has chosen, and fit.validation null chooses "
                "nothing: set fit.validation, or fit.refit to null"
            )
        return self

    def replaced(self, **sections: Mapping[str, Any] | int | None) -> Config:
        """Returns a copy with some settings replaced and everything validated again.

        Example:
            >>> Config().replaced(horizon=28, fit={"steps": 10}).fit.steps
            10
        """
        # Unset fields stay unset, so explicit values stay distinguishable from defaults.
        merged = _merge(self.model_dump(mode="json", exclude_unset=True), sections)
        return parse_config(merged, source="config")


class LinearPlan(Section):
    """What the linear expert reads, with all numbers settled; `arx` corrects its forecast."""

    lookbacks: tuple[_Steps, ...] = Field(min_length=1, max_length=32)
    """Steps before the cutoff, one map each, averaged."""
    units: Literal["window", "training"] | _Steps = "window"
    """As requested; a season is its number of steps."""
    ridge_alpha: _Penalty | tuple[_Penalty, ...] | None = None
    """Ridge penalty per training window, or one per horizon patch; None until it is chosen."""
    phases: _Steps = 1
    """Steps of the shortest calendar cycle, where each has maps of its own."""
    calendar: bool = False
    """Whether maps read where in each calendar cycle the cutoff falls."""
    period: int | None = None
    """Steps of a cycle: each map is averaged with one that reads whole cycles back alone."""
    spans: tuple[int | None, ...] | None = None
    """Training steps, counted from the last, that maps are solved on, averaged; None = all."""


class ExpertPlan(Section):
    """The pool of experts, with all numbers settled."""

    experts: tuple[Expert, ...] = ()
    """In the order of a pool; none where the network forecasts alone."""
    history_length: _Steps = 1
    """Steps before the cutoff that experts read; a constant context takes its spread from them."""
    memory: _Steps = 1
    """Steps before each of the cutoffs that experts are compared at."""
    cutoff_spacing: _Steps = 1
    """Steps between these cutoffs."""
    seasons: tuple[_Steps, Annotated[int, Field(ge=0, le=LONGEST)]] = (1, 0)
    """Steps of the main season, and of a longer one; 0 = none."""
    drivers: tuple[str, ...] = ()
    """Past covariates, and targets where there are several, that the expert `arx` may read for each target."""
    driver_length: _Steps = 1
    """Steps before the cutoff for which they are cut out."""
    driver_units: Literal["training", "window"] = "training"
    """Whether their mean, and the unit of what they do, are those of the training rows or of the window."""
    linear: LinearPlan | None = None
    """None = no linear maps are solved."""

    @property
    def needs_maps(self) -> bool:
        """Whether some expert needs linear maps."""
        return not {"linear", "arx"}.isdisjoint(self.experts)

    def with_linear(self, linear: LinearPlan) -> ExpertPlan:
        """Returns a copy with another plan of the linear expert."""
        return self.model_copy(update={"linear": linear})


class ModelPlan(NetworkSettings):
    """The network and its experts with all numbers settled; what network code reads."""

    width: int = Field(64, ge=4, le=WIDEST)
    context_length: int = Field(ge=2, le=LONGEST)
    """Steps of a window before the cutoff: what attention and the linear expert read."""
    attention_length: _Steps | None = None
    """Steps before the cutoff that attention reads; None = all."""
    patch: _Steps
    decoder_patch: _Steps
    """Steps per token of the horizon: `patch`, or the whole of a shorter horizon."""
    known_less_mean: bool = False
    """Whether attention reads numbers known in advance less their mean in the context."""
    pool: ExpertPlan = ExpertPlan()
    """The experts, and what they read."""

    @model_validator(mode="after")
    def _experts_suit(self) -> Self:
        self._check_experts(self.pool.experts)
        return self

    @property
    def linear(self) -> LinearPlan:
        """What the linear expert reads; only of a pool that needs maps."""
        assert self.pool.linear is not None
        return self.pool.linear

    @property
    def feed_forward(self) -> int:
        """Hidden size of the feed-forward layers."""
        return (2 if self.style == "modern" else 4) * self.width


class FitPlan(FitConfig):
    """Training with all numbers settled."""

    steps: int
    """0 = no network is trained beside the experts."""
    by_evidence: bool = False
    """Whether training ends before `steps` where the validation windows gain no more."""
    batch_size: int

    @property
    def validate_every(self) -> int:
        """Steps between validations: 25 where they end the training, else eight validations."""
        return min(25, self.steps) if self.by_evidence else max(1, self.steps // 8)


class Plan(Section):
    """A request with all numbers settled, as an artifact keeps it."""

    horizon: int = Field(ge=0, le=LONGEST)
    """Steps to forecast after the cutoff; 0 = classes are learned."""
    data: DataConfig
    """Roles of the columns."""
    target: TargetConfig
    """Bounds and rounding of forecasts."""
    model: ModelPlan
    """The network."""
    fit: FitPlan
    """Training."""

    def as_config(self, tracking: TrackingConfig) -> Config:
        """Returns the settings that give this plan again."""
        pool, linear = self.model.pool, self.model.pool.linear
        model = {name: getattr(self.model, name) for name in NetworkSettings.model_fields}
        model["context_length"] = self.model.attention_length or self.model.context_length
        model["experts"] = pool.experts
        if linear is not None:
            model["lookbacks"] = linear.lookbacks
            model["linear_units"] = linear.units
            model["ridge_alpha"] = linear.ridge_alpha
        fit = self.fit.model_dump(exclude={"by_evidence"})
        if self.fit.by_evidence or not self.fit.steps:
            fit["steps"] = None
        if not self.horizon:  # these follow from the classes
            del model["head"], model["experts"], fit["ensemble_size"]
        return Config(
            horizon=self.horizon or None,
            data=self.data,
            target=self.target,
            model=ModelConfig(**model),
            fit=FitConfig(**fit),
            tracking=tracking,
        )

    def with_model(self, **settled: Any) -> Plan:
        """Returns a copy with some numbers of the network replaced."""
        return self.model_copy(update={"model": self.model.model_copy(update=settled)})

    def with_linear(self, **settled: Any) -> Plan:
        """Returns a copy with some numbers of the linear expert replaced; the plan has one."""
        linear = self.model.linear.model_copy(update=settled)
        return self.with_model(pool=self.model.pool.with_linear(linear))

    def with_fit(self, **settled: Any) -> Plan:
        """Returns a copy with some numbers of the training replaced."""
        return self.model_copy(update={"fit": self.fit.model_copy(update=settled)})


@typed
def load_config(path: str | Path | None = None, overrides: Sequence[str] = ()) -> Config:
    """Returns the config of a YAML file with `dotted.key=value` overrides on top.

    Args:
        path: YAML file; None starts from the defaults.
        overrides: assignments such as `"model.width=64"`; the value is read as YAML.

    Raises:
        ConfigError: the file cannot be read, or settings are wrong; all of them are listed at once.
    """
    settings = {} if path is None else read_yaml(path)
    for override in overrides:
        key, equals, value = override.partition("=")
        if not equals or not key:
            raise ConfigError(f"--set {override}: expected dotted.key=value, as model.width=64")
        nested: Any = parse_yaml(value, f"--set {key}")
        for part in reversed(key.strip().split(".")):
            nested = {part: nested}
        settings = _merge(settings, nested)
    return parse_config(settings, source=str(path) if path is not None else "settings")


def load_preset(name: str) -> Config:
    """Returns the config of a preset; raises ConfigError where the package has none of that name."""
    if name not in PRESETS:
        near = nearest(name, PRESETS)
        hint = f", did you mean '{near}'?" if near else ""
        raise ConfigError(f"preset '{name}': expected {', '.join(PRESETS[:-1])} or {PRESETS[-1]}{hint}")
    return load_config(shipped(f"{name}.yaml", "configs", "presets"))


def parse_config(settings: Mapping[str, Any], source: str) -> Config:
    """Returns the validated config of a mapping.

    Raises:
        ConfigError: one line per fault, all faults at once, unknown names with the nearest known.
    """
    return _parsed(Config, settings, source)


def parse_plan(settings: Mapping[str, Any], source: str) -> Plan:
    """Returns the validated plan of a mapping, as an artifact keeps it.

    Raises:
        ConfigError: one line per fault, all faults at once.
    """
    return _parsed(Plan, settings, source)


def _parsed(
    kind: type[_Parsed], settings: Mapping[str, Any], source: str, section: str | None = None
) -> _Parsed:
    """The validated settings; `section`: where they stand, in messages."""
    try:
        return kind.model_validate(settings)
    except ValidationError as error:
        faults = error.errors()
        lines = [f"{source}: {_explain(fault, kind, section)}" for fault in faults[:_MOST_FAULTS]]
        if len(faults) > _MOST_FAULTS:
            lines.append(f"{source}: and {len(faults) - _MOST_FAULTS:,} more faults")
        raise ConfigError("\n".join(lines)) from None


def _explain(fault: Any, kind: type[Section], section: str | None) -> str:
    path = [text if (text := str(part)).isprintable() else repr(text) for part in fault["loc"]]
    found = reprlib.repr(fault["input"])[:100]  # bounded: an alias repeats what it names
    name = ".".join(path if section is None else (section, *path)) or "config"
    if fault["type"] == "extra_forbidden":
        near = nearest(path[-1], _names_at(kind, path[:-1]))
        hint = f", did you mean '{near}'?" if near else ""
        return f"{name}: unknown setting{hint} (got {found})"
    message = fault["msg"].removeprefix("Value error, ")
    if len(message) > _LONGEST_MESSAGE:  # a setting may be of any length
        message = f"{message[:_LONGEST_MESSAGE]}…"
    if fault["type"] == "value_error":
        return f"{name}: {message}"
    return f"{name}: {message} (got {found})"


def _names_at(kind: type[Section], path: Sequence[str]) -> list[str]:
    for part in path:
        annotation = kind.model_fields[part].annotation
        options = (annotation, *get_args(annotation))  # of `LinearPlan | None`
        (kind,) = (
            option for option in options if isinstance(option, type) and issubclass(option, Section)
        )
    return list(kind.model_fields)


def _merge(base: Mapping[str, Any], top: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in top.items():
        below = merged.get(key)
        both = isinstance(value, Mapping) and isinstance(below, Mapping)
        merged[key] = _merge(below, value) if both else value  # type: ignore[arg-type]
    return merged


def config_from(
    config: str | Path | Mapping[str, Any] | Config | None,
    horizon: int | None,
    roles: Mapping[str, Any],
    preset: str | None = None,
) -> Config:
    """Returns a config with a horizon and fields of `DataConfig` on top, and a preset below it.

    Args:
        config: a file, a mapping, a Config; None = the defaults.
        horizon: None = as in the config.
        roles: fields of `DataConfig`; one name may stand for a list of one.
        preset: one of `PRESETS`; what the config leaves unset is as there.

    Raises:
        ConfigError: all faults at once.
    """
    if config is None or isinstance(config, str | Path):
        config = load_config(config)
    elif not isinstance(config, Config):
        config = parse_config(config, source="config")
    if preset is not None:
        config = load_preset(preset).replaced(**config.model_dump(mode="json", exclude_unset=True))
    declared = {
        name: [value] if isinstance(value, str) and name in COLUMN_LISTS else value
        for name, value in roles.items()
        if name in DataConfig.model_fields
    }
    unknown = set(roles) - set(DataConfig.model_fields)
    if unknown:
        parse_config({"data": {name: roles[name] for name in unknown}}, source="arguments")
    return config.replaced(data=declared, **({} if horizon is None else {"horizon": horizon}))


def setting(config: Config, path: str) -> Any:
    """Returns the setting at a dotted path, as "fit.steps"."""
    section, _, name = path.partition(".")
    return getattr(getattr(config, section), name)


def required_horizon(config: Config) -> int:
    """Returns the horizon of a config; raises ConfigError where it has none."""
    if config.horizon is None:
        raise ConfigError("a horizon is required: how many steps to forecast (--horizon 28)")
    return config.horizon


def parse_duration(duration: str | float | None, flag: str) -> float | None:
    """Returns a duration in seconds: 90, "90", "45m", "2h", "1d"; None stays None.

    Raises:
        ConfigError: it is no duration; `flag` names the option in the message.
    """
    if duration is None:
        return None
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smhd]?)", str(duration).strip())
    if found is None or float(found[1]) <= 0:
        raise ConfigError(f"{flag} {duration}: expected a duration, as 90s, 45m or 2h")
    return float(found[1]) * _SECONDS[found[2] or "s"]


def describe(config: Config) -> str:
    """Returns all settings of a config as YAML, with the first sentence of each description."""
    lines = ["# All settings with their values. Made by `forecaster config`."]
    for name, field in Config.model_fields.items():
        value = getattr(config, name)
        if not isinstance(value, Section):
            lines.append(_setting(name, value, field))
            continue
        lines += ["", f"{name}:".ljust(_COMMENT_COLUMN) + f"# {_summary(field)}"]
        for key, inner in type(value).model_fields.items():
            lines.append(_setting(f"  {key}", getattr(value, key), inner))
    return "\n".join(lines) + "\n"


def _setting(name: str, value: Any, field: FieldInfo) -> str:
    plain = list(value) if isinstance(value, tuple) else value
    text = yaml.safe_dump(plain, default_flow_style=True, width=1000).removesuffix("...\n").strip()
    annotations = (field.annotation, *get_args(field.annotation))
    choices = [word for kind in annotations for word in get_args(kind) if isinstance(word, str)]
    comment = _summary(field)
    if not all(word in comment for word in choices):
        comment = f"{' | '.join(choices)}: {comment}"
    return f"{name}: {text} ".ljust(_COMMENT_COLUMN) + f"# {comment}"


def _summary(field: FieldInfo) -> str:
    """Returns the first sentence of a description, without its full stop."""
    words = " ".join((field.description or "").split())
    return re.split(r"(?<=\.) ", words)[0].removesuffix(".")


def read_yaml(path: str | Path, what: str = "config") -> dict[str, Any]:
    """Returns the settings of a YAML file, none where it is empty.

    Raises:
        ConfigError: it cannot be read, is not YAML, or holds something else than settings; `what`
            names the file in the message.
    """
    name = f"{what} {path}"
    try:
        with Path(path).open("rb") as file:
            content = file.read(_MOST_BYTES + 1)  # bounded: the path may be /dev/zero
    except (OSError, ValueError) as error:  # ValueError: a path with a NUL
        raise ConfigError(
            f"{name}: cannot be read ({getattr(error, 'strerror', None) or error})"
        ) from error
    if len(content) > _MOST_BYTES:
        raise ConfigError(f"{name}: expected settings, found a file of more than 1 MB")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{name}: not UTF-8 (byte {error.start})") from error
    found = parse_yaml(text, name)
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise ConfigError(f"{name}: expected settings by name, found {type(found).__name__}")
    return found


def parse_yaml(text: str, source: str) -> Any:
    """Returns the value of a YAML text.

    Raises:
        ConfigError: it is not plain YAML; `source` names it in the message.
    """
    try:
        return yaml.load(text, Loader=_UniqueKeyLoader)
    except yaml.YAMLError as error:
        reason = " ".join(str(error).replace('in "<unicode string>", ', "in ").split())
        raise ConfigError(f"{source}: not YAML ({reason[:300]})") from error
    except RecursionError as error:
        raise ConfigError(f"{source}: not plain YAML: nested too deep") from error
    except ValueError as error:  # a date such as 2024-13-45, a number of 5,000 digits
        raise ConfigError(f"{source}: not YAML ({reprlib.repr(str(error))})") from error


_PLAIN = {
    "bool": re.compile(r"(?:true|True|TRUE|false|False|FALSE)$"),
    "int": re.compile(r"[-+]?(?:0|[1-9][0-9_]*|0x[0-9a-fA-F_]+)$"),
    "float": re.compile(
        r"(?:[-+]?[0-9][0-9_]*\.[0-9_]*|\.[0-9][0-9_]*)(?:[eE][-+][0-9]+)?$"
        r"|[-+]?\.(?:inf|Inf|INF)$|\.(?:nan|NaN|NAN)$"
    ),
}
"""What is read as a boolean or a number: YAML 1.2, as far as YAML 1.1 agrees."""


class _UniqueKeyLoader(yaml.SafeLoader):
    """The safe loader, without the surprises of YAML 1.1.

    A key that is given twice is refused; 010, 1:30, yes, no, on and off are text, which a setting of
    numbers or booleans reads in the usual way. What `safe_dump` writes is read back as it was.
    """

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if key.tag == "tag:yaml.org,2002:merge":
                # Merged mappings are copied, so that nested ones grow exponentially.
                raise yaml.constructor.ConstructorError(
                    None, None, "merge keys (<<) are not supported: repeat the settings", key.start_mark
                )
            if isinstance(key.value, str) and key.value in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"'{key.value[:100]}' is given twice", key.start_mark
                )
            if isinstance(key.value, str):
                seen.add(key.value)
        return super().construct_mapping(node, deep)


_UniqueKeyLoader.yaml_implicit_resolvers = {
    first: [
        (tag, _PLAIN.get(tag.removeprefix("tag:yaml.org,2002:"), pattern)) for tag, pattern in found
    ]
    for first, found in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def flatten(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Returns nested settings by dotted name."""
    flat: dict[str, Any] = {}
    for name, value in settings.items():
        nested = isinstance(value, Mapping)
        flat |= flatten(value, f"{prefix}{name}.") if nested else {f"{prefix}{name}": value}
    return flat
