"""Options of the Python interface and of the shell: the type and the help of each, declared once.

`typed` checks arguments by these types, `help(fc.fit)` lists them, and `cli/options.py` makes flags of them.
An option of several functions is an alias here, one of a single function stands in its signature. Those that
read a table end in `**data_options: Unpack[DataOptions]`: type checkers and editors expand it, and `public`
does for `help`, so that twenty keywords need not be repeated in eighteen signatures.

Annotations are values here and in api/: none of these files has `from __future__ import annotations`.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, wraps
from inspect import Parameter, cleandoc, signature
from pathlib import Path
from types import SimpleNamespace
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    ForwardRef,
    Literal,
    TypedDict,
    Unpack,
    get_args,
    get_origin,
    get_type_hints,
)

from forecaster.arguments import Date, Function, SeriesName, typed
from forecaster.arguments import Shard as _Shard
from forecaster.config import Config, DataConfig

if TYPE_CHECKING:
    from forecaster.forecast.runner import Progress as _Progress
    from forecaster.runs.batch_predict import Engine as _Engine
else:  # what options are checked against, without loading these modules
    _Progress = _Engine = Callable[..., Any]


@dataclass(frozen=True)
class Option:
    """What an option is, for `help` and for the flag of the shell."""

    help: str
    """A phrase, then "None = …" for what leaving the option out means; more sentences are for Python alone."""
    metavar: str | None = None
    """The value in the help of the flag; None = named by its type."""
    least: int | None = 1
    """Smallest whole number that the shell accepts; None = the config checks it."""
    repeats: bool = False
    """Whether the shell takes the flag several times, for several values."""


PathLike = str | Path
Columns = str | Sequence[str]
SettingsLike = str | Path | Mapping[str, Any] | Config

Table = Annotated[
    object,
    Option(
        "CSV, Excel, Parquet or Arrow file, folder, URL or glob. Or a pandas, polars or Arrow frame."
    ),
]
Future = Annotated[object, Option("Table of the covariates known in advance, after the cutoff.")]
Covariates = Annotated[object, Option("Second table, joined on series and time.")]
Horizon = Annotated[int | None, Option("Steps to forecast. None = as in the config.")]
RequiredHorizon = Annotated[int | None, Option("Steps to forecast; a table alone needs them.")]
FittedHorizon = Annotated[
    int | None,
    Option("Steps to forecast. None = as fitted; more need an autoregressive decoder."),
]
Settings = Annotated[SettingsLike | None, Option("YAML file of settings. Or a mapping, or a Config.")]
Preset = Annotated[str | None, Option("Settings below those of the config: long, smoke or vanilla.")]
Presets = Mapping[str, SettingsLike] | str | Path | Sequence[str | Path]
Experts = Annotated[
    Columns | None,
    Option(
        "Closed-form experts of the forecast; one alone trains no network, none = the network alone. "
        "None = all that suit the table."
    ),
]
Budget = Annotated[
    str | float | None,
    Option(
        "Time for the training, as 90s, 10m or 1h; default two minutes of two cores.",
        metavar="DURATION",
    ),
]
Select = Annotated[
    bool,
    Option(
        "Compare the default with no fit, all experts and each alone on four windows; fit the winner."
    ),
]
Lower = Annotated[float | None, Option("Smallest value of a forecast.")]
Upper = Annotated[float | None, Option("Largest value of a forecast.")]
Integer = Annotated[bool, Option("Round forecasts to whole numbers.")]
Until = Annotated[Date | None, Option("Hold out all rows after this date.", metavar="DATE")]
Cutoff = Annotated[
    Date,
    Option(
        "Where forecasts start: own (each series' last observation), last (the latest of all), or a date.",
        metavar="own|last|DATE",
    ),
]
Only = Annotated[
    SeriesName | Sequence[SeriesName] | None,
    Option("Names of the series to use; several key columns are joined with /. None = all."),
]
Scored = Annotated[
    SeriesName | Sequence[SeriesName] | None,
    Option("Names of the series to score; fits read all. None = all."),
]
ExplainedChannel = Annotated[str | None, Option("Column forecast. None = the first.")]
ExplainedCutoff = Annotated[
    Date,
    Option("Where the forecast starts: own (the last observation) or a date.", metavar="own|DATE"),
]
Level = Annotated[float, Option("Band in percent; what lies outside is an anomaly.")]
OneSeries = Annotated[
    SeriesName | None,
    Option("Name of the series; several key columns are joined with /. None = the only one."),
]
Refit = Annotated[
    Literal["once", "each"] | int,
    Option(
        "Fit before the first cutoff (once), before each, or before every so many.",
        metavar="once|each|N",
    ),
]
Gap = Annotated[
    int, Option("Steps between the last row of a fit and the first cutoff it serves.", least=0)
]
UpdateEvery = Annotated[
    int | str | None,
    Option(
        "Update the model after so many steps, or a duration as 28d, with the rows that came. None = never.",
        metavar="N|28d",
    ),
]
Keep = Annotated[
    PathLike | None,
    Option("Folder that keeps updated models until the backtest ends; the same call resumes from it."),
]
OtherTables = Mapping[str, Any] | str | Path | Sequence[str | Path]
Others = Annotated[
    OtherTables | None,
    Option(
        "Files of other forecasts to score on the same cells; rows by file name. Or frames by name. "
        "They have the key columns, time, cutoff or lead, forecast, and maybe q0.1 … or lo-80, hi-80."
    ),
]
Fit = Annotated[bool, Option("Fit before the cutoffs. False: score forecasts without a fit.")]
Windows = Annotated[int, Option("Number of cutoffs.")]
Stride = Annotated[int | None, Option("Steps between cutoffs. None = the horizon.")]
Levels = Annotated[
    float | Sequence[float] | None,
    Option(
        "Central bands in percent, as columns lo-95 and hi-95 in place of the fitted quantiles. None = these.",
        metavar="80,95",
    ),
]
Quantiles = Annotated[
    float | Sequence[float] | None,
    Option("Further quantile levels between 0 and 1, as columns q0.05.", metavar="0.05,0.95"),
]
Samples = Annotated[int | None, Option("Number of joint sample paths per series to keep. None = none.")]
SumPeriod = Annotated[
    str | None,
    Option(
        "Write totals instead, of calendar periods or of the whole horizon, with bands of summed sample paths. "
        "None = no totals.",
        metavar="W|MS|QS|horizon",
    ),
]
By = Annotated[
    Columns | None,
    Option(
        "Key columns and static covariates whose series are summed together, or all. None = each series "
        "by itself."
    ),
]
WhatIf = Annotated[
    str | Sequence[str] | Mapping[str, Any] | None,
    Option(
        "Forecast also with another known covariate after the cutoff, as price*0.9, promo=1 or temp+2, and the "
        "difference; repeatable. Or by column a value, or a function of an array. None = no what-if.",
        metavar="CHANGE",
        repeats=True,
    ),
]
Differences = Annotated[
    int | None, Option("Number of paths that the difference is taken of. None = 200.")
]
FillKnown = Annotated[
    Literal["last", "seasonal", "mean"] | None,
    Option(
        "Fill known covariates that are missing after the cutoff with their last value, that a season before, or "
        "the mean (of categories the most frequent). None = they must be there."
    ),
]
SumPartial = Annotated[bool, Option("Sum the rest of a group where some series have no forecast.")]
Hierarchy = Annotated[
    object,
    Option(
        "Write sums of series that add up too, by key columns and statics: State/Region*Purpose, where / nests and "
        "* crosses, or a table of child and parent. None = series alone.",
        metavar="SPEC",
    ),
]
ScoredHierarchy = Annotated[
    object,
    Option(
        "Score sums of series too, as those of predict: base and reconciled forecasts, by level. None = "
        "series alone.",
        metavar="SPEC",
    ),
]
Reconcile = Annotated[
    Literal["mint", "wls", "bottom-up"] | None,
    Option("How a hierarchy is made to add up. None = mint up to 2,000 nodes, wls above."),
]
PathSeed = Annotated[int, Option("Seed of the sample paths.", least=0)]
Parts = Annotated[bool, Option("Keep one file per 1,024 series, in the folder PATH.parts.")]
Shard = Annotated[
    _Shard | None,
    Option(
        "Make only shard K/N (K from 1) of the parts; the same call without it merges them. Or (K, N).",
        metavar="K/N",
    ),
]
Devices = Annotated[
    int | None, Option("Processes, each with a GPU of its own or a part of the cores. None = one.")
]
Restart = Annotated[bool, Option("Discard the parts of an interrupted run.")]
Engine = Annotated[_Engine | None, Option("Execution engine of the parts, e.g. a Ray cluster.")]
Progress = Annotated[_Progress | None, Option("Called with (series done, series in all).")]
Device = Annotated[
    Literal["cpu", "cuda"] | None, Option("Device to run on. None = a CUDA GPU if there is one.")
]
Name = Annotated[str | None, Option("Name of the run in MLflow.")]
Tracking = Annotated[bool, Option("Record the run in MLflow.")]
Overwrite = Annotated[bool, Option("Overwrite existing outputs.")]
Quiet = Annotated[bool, Option("Print nothing.")]


class DataOptions(TypedDict, total=False):
    """How a table is read, and the role of each column: what a caller may give for each setting of `data`.

    Their help, their defaults and what they become are in `DataConfig`.
    """

    time: Columns | None
    series: Columns | None
    target: Columns | None
    label: str | None
    known: Columns
    past: Columns | None
    static: Columns | None
    categorical: Columns | None
    freq: str | None
    resample: str | None
    agg: Literal["sum", "mean", "last", "max"] | None
    season_length: int | None
    periods: Sequence[int] | None
    layout: Literal["wide", "long", "rows"] | None
    relate: Columns
    encoding: str | None
    skip_rows: int | None
    delimiter: str | None
    decimal: Literal[".", ","] | None
    time_format: str | None
    time_zone: str | None
    on_duplicates: Literal["error", "mean", "last", "sum"]
    holidays: Columns | None


@cache
def data_options() -> dict[str, Parameter]:
    """Returns each of `DataOptions` as a keyword parameter."""
    options = {}
    for name, kind in DataOptions.__annotations__.items():
        field = DataConfig.model_fields[name]
        text = " ".join((field.description or "").split()).replace("Null = ", "None = ")
        options[name] = Parameter(
            name,
            Parameter.KEYWORD_ONLY,
            default=field.default,
            annotation=Annotated[kind, Option(text, least=None)],
        )
    return options


def options_of(function: Callable[..., Any]) -> dict[str, tuple[Parameter, Any, Option]]:
    """Returns the parameters of a public function, each with its type and what it is."""
    # The signature of the function itself is for readers: `public` has taken the metadata out.
    listed = signature(function.__wrapped__).parameters  # type: ignore[attr-defined]
    return {name: (part, *get_args(part.annotation)) for name, part in listed.items() if name != "self"}


def unchecked(function: Function) -> Function:
    """Takes any arguments, for a function that only stores them: in place of `typed`."""

    @wraps(function)
    def run(*args: Any, **named: Any) -> Any:
        return function(*args, **named)

    return run  # type: ignore[return-value]


def public(function: Function, check: Callable[[Function], Function] = typed) -> Function:
    """Checks the arguments of a function, and lists all its options in its signature and its docstring."""
    declared = signature(function)
    parameters: list[Parameter] = []
    for part in declared.parameters.values():
        expanded = part.annotation == Unpack[DataOptions]
        parameters += data_options().values() if expanded else [part]
    function.__signature__ = declared.replace(parameters=parameters)  # type: ignore[attr-defined]
    checked = check(function)

    shown = [part.replace(annotation=_without_extras(part.annotation)) for part in parameters]
    checked.__signature__ = declared.replace(parameters=shown)  # type: ignore[attr-defined]
    entries = [f"    {name}: {option.help}" for name, (*_, option) in options_of(checked).items()]
    about, *sections = re.split(r"\n\n(?=\w+:\n)", cleandoc(function.__doc__ or ""))
    checked.__doc__ = "\n\n".join([about, "\n".join(["Args:", *entries]), *sections])
    return checked


@cache
def _without_extras(hint: Any) -> Any:
    """Returns a type as `help` shows it."""
    if get_origin(hint) is Annotated:
        hint = hint.__origin__
    if isinstance(hint, ForwardRef):
        return hint.__forward_arg__
    return get_type_hints(SimpleNamespace(__annotations__={"hint": hint}))["hint"]
