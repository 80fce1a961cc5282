"""The Python interface: fit, tune, backtest, compare, check, convert, load; the classes Forecaster and Study.

Tables go in as a path, a glob, or a pandas, polars or Arrow frame; forecasts and scores come out as
the same kind of frame. The command line takes its options, their defaults and their help from the
signatures here, so this module imports only the settings at start-up. Annotations are values, as in
options.py: names that only type checkers import stand in quotes.
"""

from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import replace
from functools import wraps
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Generic,
    Literal,
    ParamSpec,
    Protocol,
    TypeVar,
    Unpack,
    cast,
    overload,
)

from forecaster import options
from forecaster.arguments import Date, Function, typed
from forecaster.config import (
    Config,
    TrackingConfig,
    config_from,
    load_preset,
    parse_duration,
    required_horizon,
)
from forecaster.errors import ConfigError, DataError, check_count
from forecaster.forecast.bands import check_levels
from forecaster.options import DataOptions, Option, public

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from forecaster.evaluation.backtest import Backtest
    from forecaster.evaluation.class_backtest import ClassBacktest
    from forecaster.evaluation.leaderboard import Leaderboard
    from forecaster.forecast.artifact import Artifact
    from forecaster.forecast.classification import ClassExplanation, Classification
    from forecaster.forecast.detect import Anomalies
    from forecaster.forecast.explain import Explanation
    from forecaster.forecast.forecast import Forecast
    from forecaster.forecast.totals import TotalRequest
    from forecaster.forecast.what_if import WhatIf
    from forecaster.model.class_network import ClassEnsemble
    from forecaster.model.ensemble import Ensemble
    from forecaster.panel.findings import Finding
    from forecaster.panel.frames import AnyFrame
    from forecaster.panel.panel import Only, Panel
    from forecaster.panel.tree import HierarchyRequest
    from forecaster.runs.batch_predict import BatchResult
    from forecaster.runs.pipeline import BacktestOptions
    from forecaster.runs.registry import Published
    from forecaster.runs.resume import FitRequest
    from forecaster.runs.tune.outcome import Outcome

shell_command: ContextVar[str | None] = ContextVar("shell_command", default=None)
"""The command line that calls a function here, for its report or file; None = Python calls it."""

FitOptions = ParamSpec("FitOptions")
Kind = TypeVar("Kind", "Ensemble", "ClassEnsemble")


class _Fit(Protocol[FitOptions]):
    """A function that returns a `Classifier` where a class column is declared."""

    @overload
    def __call__(self, data: object, *, label: str, **options: Any) -> "Classifier": ...  # type: ignore[overload-overlap]

    @overload
    def __call__(self, *args: FitOptions.args, **options: FitOptions.kwargs) -> "Forecaster": ...


def _by_label(fit: Callable[FitOptions, "Forecaster | Classifier"]) -> _Fit[FitOptions]:
    """Says to type checkers which model comes back; the options stay declared once."""
    return cast("_Fit[FitOptions]", fit)


def _on_device(function: Function) -> Function:
    """Runs a function on the device that its option `device` names."""

    @wraps(function)
    def run(*args: Any, device: str | None = None, **named: Any) -> Any:
        if device is None:  # nothing to import
            return function(*args, **named)
        from forecaster.model.hardware import on_device

        with on_device(device):
            return function(*args, **named)

    return run  # type: ignore[return-value]


@_by_label
@public
@_on_device
def fit(
    data: options.Table,
    horizon: options.Horizon = None,
    *,
    config: options.Settings = None,
    preset: options.Preset = None,
    future: options.Future = None,
    covariates: options.Covariates = None,
    until: options.Until = None,
    out: Annotated[options.PathLike | None, Option("Folder for the model.")] = None,
    overwrite: Annotated[bool, Option("Overwrite the model in `out`, and the page.")] = False,
    warm_start: Annotated[
        "Forecaster | options.PathLike | None",
        Option("Model, or folder of one, whose weights the training starts from."),
    ] = None,
    restart: Annotated[
        bool, Option("Discard the interrupted fit in `out`, instead of resuming it.")
    ] = False,
    checkpoint_every: Annotated[
        int | None, Option("Steps between checkpoints. None = one every 10 minutes.")
    ] = None,
    devices: Annotated[
        int | None, Option("Processes on each machine that train together. None = one.")
    ] = None,
    nodes: Annotated[
        int | None, Option("Machines that train together, under torchrun. None = one.")
    ] = None,
    precision: Annotated[
        Literal["full", "bf16"] | None,
        Option("Matrix products in training: full (float32) or bf16. None = full."),
    ] = None,
    compile: Annotated[
        bool, Option("Compile the training loss with torch; pays on a GPU in a long fit.")
    ] = False,
    budget: Annotated[
        str | float | None,
        Option(
            "Time for the training, as 90s, 10m or 1h; the steps are lowered to what fits in.",
            metavar="DURATION",
        ),
    ] = None,
    experts: options.Experts = None,
    select: Annotated[
        bool,
        Option(
            "Compare the default with no fit, all experts and each alone on four windows; fit the winner."
        ),
    ] = False,
    lower: options.Lower = None,
    upper: options.Upper = None,
    integer: options.Integer = False,
    report: Annotated[
        options.PathLike | None,
        Option("HTML page about the validation windows; `out` has one anyway."),
    ] = None,
    tracking: options.Tracking = True,
    name: Annotated[
        str | None,
        Option("Name of the run in MLflow. None = that of the folder or the table."),
    ] = None,
    quiet: options.Quiet = False,
    device: options.Device = None,
    **data_options: Unpack[DataOptions],
) -> "Forecaster | Classifier":
    """Returns a model fitted to a table; a `Classifier` where a class column is declared.

    The same call with the same `out` resumes a fit that was interrupted.

    Raises:
        DataError: the table cannot be understood.
        ConfigError: a setting is wrong, or another fit was interrupted in `out`.
        FitError: the loss is not finite.
        OutputError: `out` cannot be written or exists, or another fit writes it.

    Example:
        >>> model = fit("sales.csv", horizon=28, known=["price"])   # doctest: +SKIP
    """
    from contextlib import ExitStack

    from forecaster.forecast.model_folder import check_target
    from forecaster.panel.findings import check_paths

    settings = config_from(config, horizon, data_options, preset)
    settings = _with_options(settings, tracking, experts, budget, bounds_of(lower, upper, integer))
    if precision not in (None, "full", "bf16"):
        raise ConfigError(f"precision {precision!r}: expected full or bf16")
    check_count(checkpoint_every, "checkpoint_every")
    if out is None and (checkpoint_every is not None or restart):
        raise ConfigError("checkpoint_every and restart need out, a folder to save to")
    if out is not None:
        check_target(Path(out), overwrite)
    page = _checked_page(report, data, overwrite)
    label = settings.data.label
    if select:
        own = {"experts": experts, "preset": preset, "label": label, "warm_start": warm_start}
        refuse(own, "a fit that selects its model (--select)")
    if label is not None:
        given = {"warm_start": warm_start, "report": report, "budget": budget, "future": future}
        refuse(given, f"a classifier (--label {label})")
    check_paths(data, future, covariates)
    if isinstance(warm_start, str | Path):
        _check_model(warm_start)
    elif warm_start is None and label is None:
        required_horizon(settings)

    # Heavy, so imported after all that is quickly refused.
    from forecaster.fitting.context import TrainingContext
    from forecaster.fitting.distributed import find_distributed_context, only_rank_zero_prints
    from forecaster.runs.console import Screen
    from forecaster.runs.pipeline import run_fit
    from forecaster.runs.resume import FitRequest, claimed

    distributed = find_distributed_context(devices, nodes)
    held_out = None if until is None else _date_text(until, "until")
    request = FitRequest(
        settings, data, future, covariates, held_out, warm_start, precision, compile, checkpoint_every
    )
    with ExitStack() as stack:
        run = None
        if out is not None:
            stack.enter_context(only_rank_zero_prints(distributed))
            run = stack.enter_context(claimed(Path(out), request, restart, distributed.is_main))
        console = Screen(quiet=quiet or not distributed.is_main)
        with console.stage("reading the table"):
            start = _artifact_of(warm_start)
            settings, panel = _open(request)
        selection = None
        if select:
            from forecaster.runs.selection import select as selected

            selection = selected(panel, settings, (data, settings.data, covariates), console)
            console.print_line(selection.text)
            settings = selection.config
            request = replace(request, config=settings)
        folder = None if run is None else run.out
        context = TrainingContext(distributed=distributed, bf16=precision == "bf16", compiled=compile)
        command = "fc.fit(...)" if folder is None else request.command(folder)
        fits = selection is None or selection.fits
        how = (start, run, context, page, name, command, False, fits)
        artifact = run_fit(panel, settings, folder, console, *how)
        return _model_of(artifact, settings.tracking)


@public
@_on_device
def tune(
    data: options.Table,
    horizon: options.Horizon = None,
    trials: Annotated[int, Option("Number of trials in all, those of earlier calls included.")] = 50,
    *,
    space: Annotated[
        options.PathLike | Mapping[str, Any] | None,
        Option(
            "YAML file of the settings to search. Or a mapping. None = configs/sweeps/default.yaml."
        ),
    ] = None,
    config: Annotated[
        options.SettingsLike | None,
        Option("YAML file of settings, those of the first trial. Or a mapping, or a Config."),
    ] = None,
    preset: options.Preset = None,
    study: Annotated[
        str | None, Option("Name of the study. None = from the table and the horizon.")
    ] = None,
    storage: Annotated[
        options.PathLike | None,
        Option("Journal file or database address. None = a journal in studies/.", metavar="URL"),
    ] = None,
    workers: Annotated[int, Option("Number of processes, one device each.")] = 1,
    sampler: Annotated[
        Literal["tpe", "gp", "random"], Option("Proposes the settings of a trial.")
    ] = "tpe",
    pruner: Annotated[
        Literal["asha", "hyperband", "none"] | None,
        Option("Stops trials that fall behind. None = asha where losses are comparable."),
    ] = None,
    metrics: Annotated[
        options.Columns | None,
        Option(
            "Score to minimise: WQL, MASE, MSE, MAE, RMSE or sMAPE; several make a Pareto study. "
            "None = WQL, or log_loss of a classifier."
        ),
    ] = None,
    timeout: Annotated[
        str | float | None,
        Option("Time after which no trial starts, as 45m or 2h.", metavar="DURATION"),
    ] = None,
    seed: Annotated[int, Option("Seed of the sampler.", least=0)] = 0,
    until: options.Until = None,
    future: options.Future = None,
    covariates: options.Covariates = None,
    out: Annotated[options.PathLike | None, Option("Folder for a model of the best settings.")] = None,
    overwrite: Annotated[bool, Option("Overwrite the model in `out`.")] = False,
    register: Annotated[str | None, Option("Register that model in MLflow under this name.")] = None,
    refit: Annotated[bool, Option("Fit a model with the best settings.")] = True,
    tracking: options.Tracking = True,
    quiet: options.Quiet = False,
    device: options.Device = None,
    **data_options: Unpack[DataOptions],
) -> "Study":
    """Returns the study of a search for better settings than those of a config.

    Each trial is fitted and then scored on later rows of the table; trial 0 is the config as it is. The
    same call continues the study of that name.

    Raises:
        DataError: the table cannot be understood, or is too short.
        ConfigError: a setting or the space is wrong, or contradicts the study of that name.
        FitError: three trials in a row failed alike, or none finished.
        OutputError: `out` cannot be written, or exists.

    Example:
        >>> study = tune("sales.csv", horizon=28, trials=50)   # doctest: +SKIP
        >>> study.best.fit.learning_rate, study.model          # doctest: +SKIP
    """
    from forecaster.forecast.model_folder import check_target
    from forecaster.panel.findings import check_paths

    folder = None if out is None else Path(out)
    if folder is not None:
        check_target(folder, overwrite)
    settings = _with_options(config_from(config, horizon, data_options, preset), tracking)
    if (label := settings.data.label) is None:
        required_horizon(settings)
    else:
        given = {"until": until, "future": future}
        refuse(given, f"a search for a classifier (--label {label})")
    check_paths(data, future, covariates)

    from forecaster.runs.console import Screen
    from forecaster.runs.resume import FitRequest
    from forecaster.runs.tune.search import run_search
    from forecaster.runs.tune.study import plan_search

    held_out = None if until is None else _date_text(until, "until")
    console = Screen(quiet=quiet)
    with console.stage("reading the table"):
        request = FitRequest(settings, data, future, covariates, held_out)
        settings, panel = _open(request)
    numbers: dict[str, Any] = {"trials": trials, "workers": workers, "sampler": sampler, "seed": seed}
    plan = plan_search(
        panel, settings, request, space, study, storage, pruner, metrics, timeout, **numbers
    )
    command = shell_command.get() or "fc.tune(...)"
    outcome, artifact = run_search(panel, plan, console, folder, register, refit, command)
    return Study(outcome, panel.kind, artifact)


@public
@_on_device
def predict(
    data: options.Table,
    horizon: options.RequiredHorizon = None,
    *,
    future: options.Future = None,
    covariates: options.Covariates = None,
    cutoff: options.Cutoff = "own",
    samples: options.Samples = None,
    seed: options.PathSeed = 0,
    only: options.Only = None,
    lower: options.Lower = None,
    upper: options.Upper = None,
    integer: options.Integer = False,
    levels: options.Levels = None,
    quantiles: options.Quantiles = None,
    fill_known: options.FillKnown = None,
    progress: options.Progress = None,
    device: options.Device = None,
    **data_options: Unpack[DataOptions],
) -> "Forecast":
    """Returns the forecast of every series in a table, or of some, without a fit.

    Experts are weighed by attention to their errors at earlier cutoffs of each series. Covariates known
    in advance are read by experts solved at once from the rows up to the cutoff. Nothing is saved or
    recorded.

    Raises:
        DataError: the table cannot be understood, holds classes, or a known covariate is missing.
        ConfigError: there is no horizon, or a level is none.

    Example:
        >>> predict("sales.csv", 28, future="promos.csv").frame   # doctest: +SKIP
    """
    check_levels(levels, quantiles)
    bounds = bounds_of(lower, upper, integer)
    model, panel = without_fit(data, horizon, future, covariates, cutoff, only, bounds, data_options)
    return model.predict(
        panel,
        cutoff=cutoff,
        progress=progress,
        samples=samples,
        seed=seed,
        only=only,
        levels=levels,
        quantiles=quantiles,
        fill_known=fill_known,
    )


@public
@_on_device
def what_if(
    data: options.Table,
    horizon: options.RequiredHorizon,
    future: options.Future,
    changes: options.WhatIf,
    *,
    covariates: options.Covariates = None,
    cutoff: options.Cutoff = "own",
    samples: options.Differences = None,
    seed: options.PathSeed = 0,
    only: options.Only = None,
    lower: options.Lower = None,
    upper: options.Upper = None,
    integer: options.Integer = False,
    levels: options.Levels = None,
    quantiles: options.Quantiles = None,
    fill_known: options.FillKnown = None,
    device: options.Device = None,
    **data_options: Unpack[DataOptions],
) -> "WhatIf[Forecast]":
    """Returns forecasts without a fit as a table is and with other known covariates, and their difference.

    Raises:
        DataError: the table cannot be understood, holds classes, or a known covariate is missing.
        ConfigError: there is no horizon, no such covariate or value, or a level is none.

    Example:
        >>> what_if("sales.csv", 28, "promos.csv", ["price*0.9", "promo=1"]).frame   # doctest: +SKIP
    """
    from forecaster.panel.known import changes_of

    changes_of(changes)
    check_levels(levels, quantiles)
    bounds = bounds_of(lower, upper, integer)
    model, panel = without_fit(data, horizon, future, covariates, cutoff, only, bounds, data_options)
    return model.what_if(
        panel,
        None,
        changes,
        cutoff=cutoff,
        samples=samples,
        seed=seed,
        only=only,
        levels=levels,
        quantiles=quantiles,
        fill_known=fill_known,
    )


@public
@_on_device
def detect(
    data: options.Table,
    *,
    beyond: options.Beyond = 1.0,
    covariates: options.Covariates = None,
    only: options.Only = None,
    progress: options.Progress = None,
    device: options.Device = None,
    **data_options: Unpack[DataOptions],
) -> "Anomalies":
    """Returns whether each observed step is inside, above or below the band forecast before it, without a fit.

    Raises:
        DataError: the table cannot be understood, or holds classes.
        ConfigError: `beyond` is no number above 0.

    Example:
        >>> detect("sales.csv").write("anomalies.parquet")   # doctest: +SKIP
    """
    model, panel = without_fit(data, 1, None, covariates, only=only, roles=data_options)
    return model.detect(panel, beyond, only=only, progress=progress)


@public
def explain(
    data: options.Table,
    horizon: options.RequiredHorizon = None,
    *,
    only: options.OneSeries = None,
    channel: options.ExplainedChannel = None,
    cutoff: options.ExplainedCutoff = "own",
    future: options.Future = None,
    covariates: options.Covariates = None,
    **data_options: Unpack[DataOptions],
) -> "Explanation":
    """Returns the weights of experts in one forecast without a fit, and how covariates and the past change it.

    Raises:
        DataError: the table cannot be understood, holds classes, or has no such series or channel.
        ConfigError: there is no horizon.

    Example:
        >>> explain("sales.csv", 28, only="store_1").write("why.html")  # doctest: +SKIP
    """
    model, panel = without_fit(data, horizon, future, covariates, cutoff, only, roles=data_options)
    return model.explain(panel, only, channel, cutoff)


def without_fit(
    data: object,
    horizon: int | None,
    future: object | None = None,
    covariates: object | None = None,
    cutoff: Date = "own",
    only: "Only" = None,
    bounds: Mapping[str, float | None] | None = None,
    roles: Mapping[str, Any] | None = None,
) -> "tuple[Forecaster, Panel]":
    """Returns a model of a table that nothing is fitted to, and the table as the model reads it.

    Args:
        data, horizon, future, covariates, cutoff: as `predict`; targets after a date are not read.
        only: series to forecast; all of them are read.
        bounds: lower, upper and integer, of the target.
        roles: options of the table.

    Raises:
        DataError: the table cannot be understood, or has no such series.
        ConfigError: there is no horizon, or a class column is declared.
    """
    from forecaster.panel.findings import check_paths

    settings = _with_options(config_from(None, horizon, roles or {}), tracking=False, target=bounds)
    required_horizon(settings)
    _refuse_classes(settings)
    check_paths(data, future, covariates)
    start = _date_text(cutoff, "cutoff")

    from forecaster.panel.build import with_roles_until

    settings, panel = _opened_with_step(settings, data, future, covariates)
    _refuse_classes(settings)
    panel.only(only)
    time = panel.cutoff_at(start)
    if time is not None:
        panel = with_roles_until(panel, data, settings.data, covariates, time, future)

    # It loads torch, so it is imported after all that is quickly refused.
    from forecaster.fitting.no_fit import described, unfitted
    from forecaster.forecast.error_levels import LaterErrors
    from forecaster.forecast.source import coded

    artifact = unfitted(panel if time is None else panel.until(time), settings)
    panel = replace(coded(panel, artifact), notes=(*panel.notes, described(artifact)))
    artifact = replace(
        artifact, errors=LaterErrors(artifact, panel if time is None else panel.until(time))
    )
    return Forecaster(artifact, settings.tracking), panel


def _opened_with_step(
    config: Config, data: object, future: object | None, covariates: object | None
) -> "tuple[Config, Panel]":
    """Returns what `_opened` does; where no series has two rows, with the usual step and a warning."""
    try:
        return _opened(config, data, future, covariates)
    except DataError as error:
        if [fault.rule for fault in error.findings] != ["step"]:
            raise
        step = error.findings[0].where

    from forecaster.panel.findings import Finding

    config, panel = _opened(config.replaced(data={"freq": step}), data, future, covariates)
    text = f"no series has two rows: steps of {step} are assumed"
    finding = Finding("warning", "frequency", text, "pass another one with --freq")
    return config, replace(panel, notes=(*panel.notes, finding))


def _refuse_classes(settings: Config) -> None:
    """Raises a ConfigError where a table of classes would be forecast without a fit."""
    if label := settings.data.label:
        raise ConfigError(
            f"--label {label}: expected a table to forecast, found one of classes, which take a fit: "
            f"forecaster fit DATA --label {label} --out MODEL"
        )


@public
def convert(
    data: options.Table,
    store: Annotated[
        options.PathLike, Option("Folder for the panel store; it appears whole or not at all.")
    ],
    *,
    future: Annotated[
        object,
        Option("Table of the covariates known in advance; it has to fit in memory."),
    ] = None,
    covariates: Annotated[
        object, Option("Second table, joined on series and time; it has to fit in memory.")
    ] = None,
    overwrite: Annotated[bool, Option("Overwrite an existing store.")] = False,
    quiet: options.Quiet = False,
    **data_options: Unpack[DataOptions],
) -> "Panel":
    """Writes a table of any size to a folder that `fit`, `predict`, `backtest` and `check` read.

    Raises:
        DataError: the table cannot be understood.
        OutputError: the folder exists, or the disk is full.

    Example:
        >>> convert("sales/*.parquet", "sales.store", known=["price"])   # doctest: +SKIP
    """
    from forecaster.panel.convert import convert_table
    from forecaster.panel.findings import check_paths
    from forecaster.runs.console import Screen, progress_bar

    check_paths(data, future, covariates)
    console, folder = Screen(quiet=quiet), Path(store)
    with progress_bar(console) as bar:
        task = bar.add_task("converting", total=None)
        panel = convert_table(
            data,
            folder,
            config_from(None, None, data_options).data,
            covariates=covariates,
            future=future,
            progress=lambda done, total: bar.update(task, completed=done, total=total),
            overwrite=overwrite,
        )
    console.print_roles(panel)
    console.print_findings(panel.notes)
    size = sum(file.stat().st_size for file in folder.iterdir())
    console.print_line(f"wrote {folder} ({size / 1e6:,.1f} MB)")
    return panel


@public
@_on_device
def backtest(
    data: options.Table,
    horizon: options.Horizon = None,
    windows: options.Windows = 8,
    refit: options.Refit = "once",
    *,
    config: options.Settings = None,
    preset: options.Preset = None,
    experts: options.Experts = None,
    presets: Annotated[
        options.Presets | None,
        Option(
            "Further presets or YAML files of settings, for a leaderboard. Or settings by name. "
            "None = no leaderboard."
        ),
    ] = None,
    stride: options.Stride = None,
    gap: options.Gap = 0,
    others: options.Others = None,
    hierarchy: options.ScoredHierarchy = None,
    reconcile: options.Reconcile = None,
    covariates: options.Covariates = None,
    only: options.Scored = None,
    fit: options.Fit = True,
    levels: options.Levels = None,
    quantiles: options.Quantiles = None,
    quiet: options.Quiet = False,
    tracking: options.Tracking = True,
    name: options.Name = None,
    device: options.Device = None,
    **data_options: Unpack[DataOptions],
) -> "Backtest":
    """Returns the backtest of a configuration: fits it first, no saved model is needed.

    Without a fit it scores what `predict` forecasts from the rows before each cutoff; nothing is recorded.

    Raises:
        ConfigError: a setting is wrong, or contradicts `fit=False`.
        DataError: the table cannot be understood, or has too little history for so many windows.

    Example:
        >>> backtest("sales.csv", horizon=28, windows=8).summary   # doctest: +SKIP
    """
    from forecaster.panel.findings import check_paths

    if not fit:
        refuse(
            {"presets": presets, "refit": None if refit == "once" else refit, "gap": gap or None},
            "a backtest without a fit",
        )
    settings = config_from(config, horizon, data_options, preset)
    settings = _with_options(settings, tracking and fit, experts)
    if settings.data.label is not None:
        raise ConfigError(
            "label: expected a saved classifier and a table with classes to score it on, found settings: fit "
            "first (its scores are of held-out series), then backtest the model on another table"
        )
    required_horizon(settings)
    check_levels(levels, quantiles)
    check_paths(data, covariates)
    tree = hierarchy_request(hierarchy, reconcile, only=only)

    from forecaster.runs.pipeline import BacktestOptions, run_backtest_pipeline
    from forecaster.runs.resume import FitRequest

    scoring = BacktestOptions(windows, refit, gap, stride, None, only, fit, levels, quantiles)
    tables = _others(others)
    contenders = None if presets is None else _presets(presets, settings)
    settings, panel = _open(FitRequest(settings, data, covariates=covariates))
    source = (data, settings.data, covariates)
    more: dict[str, Any] = {"horizon": horizon, "config": config, "preset": preset, "experts": experts}
    more |= {"presets": presets, "others": others, "covariates": covariates} | data_options
    more |= {"hierarchy": hierarchy, "reconcile": reconcile}
    command = shell_command.get() or _call("fc.backtest", data, scoring, **more)
    return run_backtest_pipeline(
        settings,
        panel,
        scoring,
        settings.tracking,
        source,
        quiet,
        name,
        command,
        contenders,
        tables,
        tree,
    )


def _presets(presets: options.Presets, settings: Config) -> dict[str, Config]:
    """Returns configs by name that differ from some settings in how a model is made alone."""
    if not isinstance(presets, Mapping):
        files = [presets] if isinstance(presets, str | Path) else presets
        presets = {Path(file).stem: file for file in files}
        if len(presets) < len(files):
            raise ConfigError(f"presets {[*map(str, files)]}: expected a name of its own for each")
    alike = {name: getattr(settings, name) for name in ("data", "target", "horizon")}
    levels = {"quantile_levels": settings.model.quantile_levels}
    return {
        f"preset {name}": _preset(given).model_copy(update=alike).replaced(model=levels)
        for name, given in presets.items()
    }


def _preset(given: options.SettingsLike) -> Config:
    """Returns the config of a preset: a bare word is a name, a file has a suffix or a folder."""
    bare = isinstance(given, str) and given == Path(given).stem
    return load_preset(str(given)) if bare else config_from(given, None, {})


@public
def compare(
    data: options.Table,
    horizon: options.Horizon = None,
    *,
    presets: Annotated[
        options.Presets,
        Option("Further presets or YAML files of settings, a row each. Or settings by name."),
    ] = (),
    windows: options.Windows = 8,
    refit: options.Refit = "once",
    config: options.Settings = None,
    preset: options.Preset = None,
    experts: options.Experts = None,
    stride: options.Stride = None,
    gap: options.Gap = 0,
    others: options.Others = None,
    hierarchy: options.ScoredHierarchy = None,
    reconcile: options.Reconcile = None,
    covariates: options.Covariates = None,
    only: options.Scored = None,
    levels: options.Levels = None,
    quantiles: options.Quantiles = None,
    quiet: options.Quiet = False,
    tracking: options.Tracking = True,
    name: options.Name = None,
    device: options.Device = None,
    **data_options: Unpack[DataOptions],
) -> "Leaderboard":
    """Returns the backtest of a config beside presets, all experts of the table, and baselines.

    Raises:
        ConfigError: a setting is wrong.
        DataError: the table cannot be understood, or has too little history for so many windows.

    Example:
        >>> compare("sales.csv", 28, presets=["vanilla", "my.yaml"]).summary   # doctest: +SKIP
    """
    scores = backtest(
        data,
        horizon,
        windows,
        refit,
        config=config,
        preset=preset,
        experts=experts,
        presets=presets,
        stride=stride,
        gap=gap,
        others=others,
        hierarchy=hierarchy,
        reconcile=reconcile,
        covariates=covariates,
        only=only,
        levels=levels,
        quantiles=quantiles,
        quiet=quiet,
        tracking=tracking,
        name=name,
        device=device,
        **data_options,
    )
    return cast("Leaderboard", scores)


@public
def score(
    forecasts: Annotated[
        options.OtherTables | object,
        Option("Table of forecasts, as of `others`. Or several: files, or frames by name."),
    ],
    actuals: Annotated[object, Option("Table of the actuals, with the history before each cutoff.")],
    *,
    season: Annotated[int | None, Option("Steps of the season. None = of the calendar.")] = None,
    **data_options: Unpack[DataOptions],
) -> "Backtest":
    """Returns the scores of any forecasts beside seasonal naive, over the cells that all of them have.

    The row `forecaster` is the single table, the first of several files, or that name of a mapping; the others
    are compared with it. Scales of MASE and RMSSE come from the rows of `actuals` before each cutoff.

    Raises:
        DataError: a table cannot be understood, or they have no cell in common.
        ConfigError: two tables have one name, or none of a mapping is called forecaster.

    Example:
        >>> score("autoets.csv", "sales.csv").scores["forecaster"]["MASE"]   # doctest: +SKIP
    """
    from forecaster.evaluation.comparison import MODEL
    from forecaster.evaluation.others import check_taken, score_others
    from forecaster.panel.build import open_panel
    from forecaster.panel.findings import check_paths
    from forecaster.panel.forecast_rows import read_others

    given: dict[str, object] = {MODEL: forecasts}
    if isinstance(forecasts, Mapping):
        given = dict(forecasts)
    elif isinstance(forecasts, Sequence) and not isinstance(forecasts, str):
        if not all(isinstance(one, str | Path) for one in forecasts):
            raise ConfigError(f"forecasts: expected frames by name, one of them {MODEL}, found a list")
        given = {MODEL: forecasts[0]} | _others(forecasts[1:]) if forecasts else {}
    if MODEL not in given:
        raise ConfigError(f"forecasts: expected one named {MODEL}, found {', '.join(given) or 'none'}")
    check_taken([name for name in given if name != MODEL], [])
    check_paths(actuals, *given.values())
    if season is not None:
        data_options["season_length"] = season
    panel = open_panel(actuals, config_from(None, None, data_options).data)
    return score_others(panel, {name: read_others(table, panel) for name, table in given.items()})


def _others(others: options.OtherTables | None) -> dict[str, object]:
    """Returns tables of forecasts by name: of files, their stems."""
    from forecaster.panel.findings import check_paths

    if others is None or isinstance(others, Mapping):
        return dict(others or {})
    files = [others] if isinstance(others, str | Path) else others
    check_paths(*files)
    found: dict[str, object] = {Path(file).stem: file for file in files}
    if len(found) < len(files):
        raise ConfigError(f"others {[*map(str, files)]}: expected a name of its own for each")
    return found


def _call(function: str, data: object, scoring: "BacktestOptions", **more: object) -> str:
    """Returns a call in Python; objects that have no literal are named by their parameter."""

    def literal(name: str, value: object) -> str:
        value = str(value) if isinstance(value, Path) else value
        return repr(value) if isinstance(value, str | int | float | Sequence | Mapping) else name

    given = {name: value for name, value in (vars(scoring) | more).items() if value is not None}
    # Only `fit=False` is said: a model's backtest has no such option, and there is no refit without a fit.
    del given["fit" if scoring.fit else "refit"]
    if not scoring.gap:
        del given["gap"]
    words = (f"{name}={literal(name, value)}" for name, value in given.items())
    return f"{function}({', '.join([literal('data', data), *words])})"


@public
def check(
    data: options.Table,
    horizon: Annotated[
        int | None,
        Option("Steps that will be forecast, to find series too short for it."),
    ] = None,
    *,
    future: options.Future = None,
    covariates: options.Covariates = None,
    **data_options: Unpack[DataOptions],
) -> "TableCheck":
    """Returns what is remarkable about a table, worst first, and the roles of its columns.

    Raises:
        DataError: the table cannot be understood at all.
    """
    from forecaster.panel.audit import check_panel
    from forecaster.panel.build import open_panel

    reading = config_from(None, horizon, data_options).data
    panel = open_panel(data, reading, covariates=covariates, future=future)
    return TableCheck(check_panel(panel, horizon), panel)


class TableCheck(list["Finding"]):
    """Findings on a table, worst first; printed as `forecaster check` prints them."""

    def __init__(self, findings: Sequence["Finding"], panel: "Panel"):
        super().__init__(findings)
        self.panel = panel

    def __repr__(self) -> str:
        from forecaster.runs.console import check_text

        return check_text(self.panel, self)

    @property
    def roles(self) -> dict[str, str]:
        """The role of each column: time, series, target, known, past, static or ignored."""
        return {column: role for column, role, *_ in self.panel.schema.rows()}


@typed
def load(path: str | Path) -> "Forecaster | Classifier":
    """Returns the model saved in a folder, or registered in MLflow; runs no code from there.

    A model fitted with `label` is a `Classifier`.

    Args:
        path: a folder, or models:/NAME@champion, models:/NAME/VERSION or models:/NAME/latest in the
            store that MLFLOW_TRACKING_URI names, or your own.

    Raises:
        ArtifactError: there is none, it is damaged, or a newer version wrote it.
        ConfigError: the MLflow store cannot be reached, or has no such model.
    """
    if _check_model(path):
        from forecaster.runs.registry import load_registered

        return _model_of(load_registered(str(path), TrackingConfig()))
    from forecaster.forecast.saved_model import load_artifact

    return _model_of(load_artifact(path))


def _model_of(
    artifact: "Artifact[Any]", tracking: TrackingConfig | None = None
) -> "Forecaster | Classifier":
    from forecaster.forecast.artifact import is_forecaster

    return Forecaster(artifact, tracking) if is_forecaster(artifact) else Classifier(artifact, tracking)


def refuse(given: Mapping[str, object], task: str, advice: str = "leave it out") -> None:
    """Raises a ConfigError where options are given, not None, that a task does not have."""
    odd = [f"--{name.replace('_', '-')}" for name, value in given.items() if value is not None]
    if odd:
        raise ConfigError(f"{', '.join(odd)}: {task} has no such option; {advice}")


def total_request(
    period: str | None, by: options.Columns | None, partial: bool
) -> "TotalRequest | None":
    """Returns the totals that options ask for; None = no totals.

    Raises:
        ConfigError: there is no such period, or no period for the groups.
    """
    if period is None:
        refuse({"by": by, "sum_partial": partial or None}, "a forecast without --sum", "give --sum too")
        return None
    from forecaster.forecast.totals import TotalRequest

    return TotalRequest.of(period, by, partial)


def hierarchy_request(
    hierarchy: object, reconcile: str | None, **others: object
) -> "HierarchyRequest | None":
    """Returns the hierarchy that options ask for; None = none. `others`: options that contradict one.

    Raises:
        ConfigError: it is not written as one, or other options are given.
        DataError: there is no such file.
    """
    if hierarchy is None:
        refuse({"reconcile": reconcile}, "a forecast without --hierarchy", "give --hierarchy too")
        return None
    refuse(others, "a hierarchy (--hierarchy)")
    from forecaster.panel.tree import HierarchyRequest

    return HierarchyRequest.of(hierarchy, reconcile)


def _check_model(path: str | Path) -> bool:
    """Returns whether this is an address in the registry; raises ArtifactError for no folder of a model."""
    from forecaster.forecast.model_folder import check_saved

    registered = str(path).startswith("models:/")
    if not registered:
        check_saved(Path(path))
    return registered


def _with_options(
    config: Config,
    tracking: bool,
    experts: options.Columns | None = None,
    budget: str | float | None = None,
    target: Mapping[str, float | None] | None = None,
) -> Config:
    """Returns a config with what options say in the place of settings; None = nothing."""
    bounds = {name: bound for name, bound in (target or {}).items() if bound is not None}
    sections: dict[str, dict[str, Any]] = {"target": bounds} if bounds else {}
    if experts is not None:
        names = [experts] if isinstance(experts, str) else [*experts]
        sections["model"] = {"experts": [] if names == ["none"] else names}
    if budget is not None:
        sections["fit"] = {"budget_seconds": parse_duration(budget, "--budget")}
    if not tracking:
        sections["tracking"] = {"enabled": False}
    return config.replaced(**sections) if sections else config


def bounds_of(lower: float | None, upper: float | None, integer: bool) -> dict[str, float | None]:
    """Returns the bounds of a target by setting; None = not given."""
    return {"lower": lower, "upper": upper, "integer": integer or None}


def _date_text(date: object, name: str) -> str:
    from forecaster.panel.timestamps import date_text

    return date_text(date, name)


def _checked_page(path: str | Path | None, data: object, overwrite: bool) -> Path | None:
    """Returns the path of a page, once it is certain that it can be written."""
    from forecaster.files import check_writable
    from forecaster.forecast.writer import PAGES, check_suffix
    from forecaster.panel.findings import check_paths

    if path is None:
        return None
    check_suffix(Path(path), PAGES)
    check_paths(data)
    check_writable(Path(path), data, overwrite=overwrite)
    return Path(path)


def _open(asked: "FitRequest") -> "tuple[Config, Panel]":
    """Returns the table without its holdout, and the config with the settings of a store."""
    from forecaster.panel.build import with_roles_until

    config, panel = _opened(asked.config, asked.data, asked.future, asked.covariates)
    if asked.until is not None:
        time, text = panel.calendar.parse(asked.until, "--until"), panel.calendar.text
        begin = int(panel.time.min())
        if time < begin:
            raise DataError(f"{panel.name}: --until {asked.until}: the table begins at {text(begin)}")
        panel = with_roles_until(panel, asked.data, config.data, asked.covariates, time).until(time)
    return config, panel


def _opened(
    config: Config, data: object, future: object | None, covariates: object | None
) -> "tuple[Config, Panel]":
    """Returns a table, and the config with the settings of a store."""
    from forecaster.panel.build import open_panel
    from forecaster.panel.store import as_converted

    config = config.replaced(data=as_converted(data, config.data).model_dump())
    return config, open_panel(data, config.data, covariates=covariates, future=future)


def _artifact_of(model: object) -> "Artifact | None":
    """Returns the artifact of a model, or of the folder of one."""
    if isinstance(model, str | Path):
        model = load(model)
    if model is not None and not isinstance(model, Forecaster):
        raise ConfigError(
            f"warm_start: expected a model or the folder of one, found {type(model).__name__}"
        )
    return None if model is None else model.artifact


class Model(Generic[Kind]):
    """What all fitted models have.

    Tables have the columns that the model was fitted to; `data_options` name columns that are called
    otherwise, or another format.
    """

    def __init__(self, artifact: "Artifact[Kind]", tracking: TrackingConfig | None = None):
        self.artifact: Artifact[Kind] = artifact
        self.tracking = tracking or TrackingConfig()
        """Where its runs are recorded."""

    @property
    def config(self) -> Config:
        """The settings it was fitted with, all chosen."""
        return self.artifact.plan.as_config(self.tracking)

    @property
    def metrics(self) -> dict[str, Any]:
        """Validation scores of the model and the baselines, and the loss curves."""
        return self.artifact.metrics

    def _store(self, tracking: bool) -> TrackingConfig:
        return self.tracking.model_copy(update={"enabled": self.tracking.enabled and tracking})

    @typed
    def save(self, path: str | Path) -> None:
        """Writes the model to a folder, whole or not at all.

        Raises:
            OutputError: the folder cannot be written, or holds something else.
        """
        from forecaster.forecast.saved_model import save_artifact

        save_artifact(self.artifact, path)

    @typed
    def export(
        self, name: str, tracking: TrackingConfig | None = None, champion: bool = False
    ) -> "Published":
        """Registers the model in MLflow, for `mlflow models serve` and `load` by its name.

        Args:
            name: Name of the registered model. A version with a lower WQL on its champion's validation
                windows (log loss, of a classifier) becomes the champion.
            tracking: MLflow store. None = the one of the fit.
            champion: Make it the champion in any case. Why its scores would not is printed first.

        Raises:
            ConfigError: the store cannot be reached, or refuses the name.

        Example:
            >>> model.export("sales").address  # doctest: +SKIP
            'models:/sales@champion'
        """
        from forecaster.runs.registry import publish

        return publish(self.artifact, name, tracking or self.tracking, champion)

    @typed
    def export_onnx(self, path: str | Path) -> str:
        """Writes the model as an ONNX file, for other languages; returns a summary of its content.

        Raises:
            ConfigError: this kind of model has no such form, or the extra `onnx` is not installed.
            OutputError: the file cannot be written.

        Example:
            >>> model.export_onnx("sales.onnx")  # doctest: +SKIP
        """
        from forecaster.forecast.onnx_export import write_onnx

        return write_onnx(self.artifact, Path(path))


class Forecaster(Model["Ensemble"]):
    """A fitted model: predict, backtest, detect, explain, save, export.

    Tables have the columns that the model was fitted to; `data_options` name columns that are called
    otherwise, or another format.
    """

    def __repr__(self) -> str:
        schema = self.artifact.schema
        return f"Forecaster({', '.join(schema.target)}: {self.artifact.horizon} steps of {schema.freq})"

    @public
    def open(
        self,
        data: options.Table,
        future: options.Future = None,
        covariates: options.Covariates = None,
        **data_options: Unpack[DataOptions],
    ) -> "Panel":
        """Returns a table opened with this model's roles, categories and frequency."""
        from forecaster.forecast.source import Source

        return Source(data, future, covariates, data_options).panel(self.artifact)

    @public
    @_on_device
    def predict(
        self,
        data: options.Table,
        future: options.Future = None,
        covariates: options.Covariates = None,
        cutoff: options.Cutoff = "own",
        horizon: options.FittedHorizon = None,
        progress: options.Progress = None,
        samples: options.Samples = None,
        seed: options.PathSeed = 0,
        only: options.Only = None,
        *,
        levels: options.Levels = None,
        quantiles: options.Quantiles = None,
        fill_known: options.FillKnown = None,
        device: options.Device = None,
        **data_options: Unpack[DataOptions],
    ) -> "Forecast":
        """Returns the forecast of every series in a table, or of some.

        Raises:
            DataError: the table does not fit the model, or a known covariate is missing.
            ConfigError: the horizon is too long for the model, or it has no sample paths, or no such level.
        """
        check_levels(levels, quantiles)

        from forecaster.forecast.predictor import Predictor

        start = _date_text(cutoff, "cutoff")
        panel = self.open(data, future, covariates, **data_options)
        return Predictor(self.artifact).predict(
            panel, start, horizon, progress, samples, seed, only, levels, quantiles, fill_known
        )

    @public
    @_on_device
    def what_if(
        self,
        data: options.Table,
        future: options.Future,
        changes: options.WhatIf,
        covariates: options.Covariates = None,
        cutoff: options.Cutoff = "own",
        horizon: options.FittedHorizon = None,
        samples: options.Differences = None,
        seed: options.PathSeed = 0,
        only: options.Only = None,
        *,
        levels: options.Levels = None,
        quantiles: options.Quantiles = None,
        fill_known: options.FillKnown = None,
        device: options.Device = None,
        **data_options: Unpack[DataOptions],
    ) -> "WhatIf[Forecast]":
        """Returns forecasts as a table is and with other known covariates, and their difference with its band.

        Raises:
            DataError: the table does not fit the model, or a known covariate is missing.
            ConfigError: there is no such covariate or value, or the model draws no paths, or no such level.

        Example:
            >>> model.what_if("sales.csv", "promos.csv", {"price": lambda p: 0.9 * p}).frame   # doctest: +SKIP
        """
        from forecaster.panel.known import changes_of

        found = changes_of(changes)
        check_levels(levels, quantiles)

        from forecaster.forecast.forecast import none_forecast
        from forecaster.forecast.task import WhatIfTask
        from forecaster.forecast.totals import PATHS
        from forecaster.forecast.window import resolve_window

        panel = self.open(data, future, covariates, **data_options)
        start = _date_text(cutoff, "cutoff")
        window = resolve_window(
            self.artifact, panel, start, horizon, None, seed, levels, quantiles, fill_known
        )
        task = WhatIfTask(window, PATHS if samples is None else samples, found)
        panel, findings = task.audited(panel, self.artifact, only)
        compared = task.predict(self.artifact)(panel)
        if error := none_forecast(panel, compared.lost, int(panel.present.sum())):
            raise error
        return replace(compared, findings=tuple(findings))

    @public
    def future(
        self,
        data: options.Table,
        cutoff: options.Cutoff = "own",
        horizon: options.FittedHorizon = None,
        covariates: options.Covariates = None,
        only: options.Only = None,
        **data_options: Unpack[DataOptions],
    ) -> "AnyFrame":
        """Returns the table of known covariates that a forecast needs, to be filled in and passed as `future`.

        It has the keys, the times after each cutoff, and the known covariates, empty but where `data` has them.

        Raises:
            DataError: the table does not fit the model.
            ConfigError: the horizon is too long for the model.

        Example:
            >>> model.future("sales.csv").to_csv("promos.csv")   # doctest: +SKIP
        """
        from forecaster.forecast.window import locate_leads, resolve_window
        from forecaster.panel.frames import to_kind
        from forecaster.panel.known import future_frame

        panel = self.open(data, None, covariates, **data_options)
        window = resolve_window(self.artifact, panel, _date_text(cutoff, "cutoff"), horizon)
        leads, ahead = locate_leads(panel.only(only), self.artifact, window), window.horizon
        rows = future_frame(leads.panel, leads.rows[:, :ahead], leads.time[:, :ahead])
        return to_kind(rows, panel.kind, panel.original)

    @public
    @_on_device
    def predict_to(
        self,
        path: Annotated[options.PathLike, Option("File for the forecasts: .csv or .parquet.")],
        data: Annotated[
            object,
            Option(
                "History, with the columns the model was fitted to; a store is read block by block."
            ),
        ],
        future: options.Future = None,
        covariates: options.Covariates = None,
        cutoff: options.Cutoff = "own",
        horizon: options.FittedHorizon = None,
        samples: Annotated[
            int | None,
            Option(
                "Write this many joint sample paths per series instead of quantiles; with `sum`, `hierarchy` or "
                "`what_if`: use so many for these. None = quantiles, or 200 paths."
            ),
        ] = None,
        seed: options.PathSeed = 0,
        only: options.Only = None,
        sum: options.SumPeriod = None,
        by: options.By = None,
        sum_partial: options.SumPartial = False,
        what_if: options.WhatIf = None,
        hierarchy: options.Hierarchy = None,
        reconcile: options.Reconcile = None,
        parts: options.Parts = False,
        shard: options.Shard = None,
        devices: options.Devices = None,
        restart: options.Restart = False,
        engine: options.Engine = None,
        overwrite: Annotated[bool, Option("Overwrite an existing file.")] = False,
        progress: options.Progress = None,
        *,
        levels: options.Levels = None,
        quantiles: options.Quantiles = None,
        fill_known: options.FillKnown = None,
        device: options.Device = None,
        **data_options: Unpack[DataOptions],
    ) -> "BatchResult":
        """Writes the forecast of every series of a table of any size to a file, in bounded memory, or sums.

        The same call resumes one that was killed. With `what_if` all forecasts are in memory.

        Raises:
            DataError: the table does not fit the model, or a known covariate is missing.
            ConfigError: the horizon is too long for the model, or it has no sample paths, or no such level.
            OutputError: a file cannot be written or exists, or parts of another forecast are there.

        Example:
            >>> model.predict_to("forecasts.parquet", "sales.store").report   # doctest: +SKIP
        """
        from forecaster.panel.known import changes_of

        changes = None if what_if is None else changes_of(what_if)

        from forecaster.forecast.source import Source
        from forecaster.forecast.task import ForecastTask, HierarchyTask, TotalTask, WhatIfTask
        from forecaster.forecast.totals import PATHS
        from forecaster.forecast.window import resolve_window
        from forecaster.runs.batch_predict import predict_to

        start = _date_text(cutoff, "cutoff")
        check_levels(levels, quantiles)
        if samples is not None and sum is None and changes is None and hierarchy is None:
            given = {"levels": levels, "quantiles": quantiles}
            refuse(given, "a file of sample paths (--samples)")

        request = total_request(sum, by, sum_partial)
        tree = hierarchy_request(hierarchy, reconcile, sum=sum, only=only, what_if=what_if)

        def task_of(panel: "Panel") -> ForecastTask:
            kept = samples if request is None and changes is None and tree is None else None
            window = resolve_window(
                self.artifact, panel, start, horizon, kept, seed, levels, quantiles, fill_known
            )
            used = PATHS if samples is None else samples
            if changes is not None:
                return WhatIfTask(window, used, changes, request)
            if tree is not None:
                return HierarchyTask(window, used, tree)
            return ForecastTask(window) if request is None else TotalTask(window, used, request)

        source = Source(data, future, covariates, data_options, only)
        how = (parts, shard, devices, restart, engine, overwrite, progress)
        return predict_to(self.artifact, Path(path), source, task_of, *how)

    @public
    @_on_device
    def backtest(
        self,
        data: options.Table,
        windows: options.Windows = 8,
        refit: Annotated[
            Literal["once", "each", "never"] | int,
            Option(
                "Fit the same settings before the first cutoff (once), before each, every so many, or "
                "never: use these weights, an error where they have seen a scored row.",
                metavar="once|each|never|N",
            ),
        ] = "once",
        stride: options.Stride = None,
        covariates: options.Covariates = None,
        quiet: options.Quiet = False,
        horizon: Annotated[int | None, Option("Leads to score. None = as fitted.")] = None,
        only: options.Scored = None,
        tracking: options.Tracking = True,
        name: options.Name = None,
        *,
        gap: options.Gap = 0,
        others: options.Others = None,
        hierarchy: options.ScoredHierarchy = None,
        reconcile: options.Reconcile = None,
        levels: options.Levels = None,
        quantiles: options.Quantiles = None,
        device: options.Device = None,
        **data_options: Unpack[DataOptions],
    ) -> "Backtest":
        """Returns forecasts at past cutoffs with the truth beside them, and scores.

        Raises:
            ConfigError: `refit` is unknown or dishonest, or the horizon is too long for the model.
            DataError: the table has too little history for so many windows.
        """
        from forecaster.forecast.model_folder import reading_with
        from forecaster.forecast.source import Source
        from forecaster.runs.pipeline import BacktestOptions, run_backtest_pipeline

        tree = hierarchy_request(hierarchy, reconcile, only=only)
        scoring = BacktestOptions(
            windows, refit, gap, stride, horizon, only, levels=levels, quantiles=quantiles
        )
        tables = _others(others)
        panel = Source(data, None, covariates, data_options).panel(self.artifact)
        source = (data, reading_with(self.artifact.requested.data, data_options), covariates)
        more = {
            "covariates": covariates,
            "others": others,
            "hierarchy": hierarchy,
            "reconcile": reconcile,
        }
        command = shell_command.get() or _call("model.backtest", data, scoring, **more, **data_options)
        store = self._store(tracking)
        return run_backtest_pipeline(
            self.artifact, panel, scoring, store, source, quiet, name, command, None, tables, tree
        )

    @public
    @_on_device
    def detect(
        self,
        data: options.Table,
        beyond: options.Beyond = 1.0,
        covariates: options.Covariates = None,
        only: options.Only = None,
        progress: options.Progress = None,
        *,
        device: options.Device = None,
        **data_options: Unpack[DataOptions],
    ) -> "Anomalies":
        """Returns whether each observed step lies inside, above or below the band forecast before it.

        Raises:
            DataError: the table does not fit the model.
            ConfigError: the model has no band, or `beyond` is no number above 0.

        Example:
            >>> model.detect("sales.csv").write("anomalies.parquet")   # doctest: +SKIP
        """
        from forecaster.forecast.detect import detect
        from forecaster.forecast.source import Source

        panel = Source(data, None, covariates, data_options).panel(self.artifact)
        return detect(self.artifact, panel.only(only), beyond, progress)

    @public
    def explain(
        self,
        data: options.Table,
        only: options.OneSeries = None,
        channel: options.ExplainedChannel = None,
        cutoff: options.ExplainedCutoff = "own",
        future: options.Future = None,
        covariates: options.Covariates = None,
        **data_options: Unpack[DataOptions],
    ) -> "Explanation":
        """Returns the attention weights of one forecast, and how covariates and the past change it.

        Raises:
            DataError: the table does not fit the model, or has no such series or channel.

        Example:
            >>> model.explain("sales.csv", only="store_1").write("attention.html")  # doctest: +SKIP
        """
        from forecaster.forecast.explain import explain

        start = _date_text(cutoff, "cutoff")
        panel = self.open(data, future, covariates, **data_options)
        return explain(self.artifact, panel, only, channel, start)

    @public
    def onnx_inputs(
        self,
        data: options.Table,
        future: options.Future = None,
        covariates: options.Covariates = None,
        cutoff: options.Cutoff = "own",
        **data_options: Unpack[DataOptions],
    ) -> "tuple[list[str], dict[str, NDArray[Any]]]":
        """Returns what the file of `export_onnx` reads, from a table.

        Returns:
            The names of the series that can be forecast, and by name the inputs, a row for each of them.

        Raises:
            DataError: the table does not fit the model, or a known covariate is missing.

        Example:
            >>> names, inputs = model.onnx_inputs("sales.csv", "promos.csv")   # doctest: +SKIP
            >>> quantiles, mean = session.run(["quantiles", "mean"], inputs)    # doctest: +SKIP
        """
        from forecaster.forecast.onnx_export import onnx_inputs

        panel = self.open(data, future, covariates, **data_options)
        return onnx_inputs(self.artifact, panel, _date_text(cutoff, "cutoff"))


class Classifier(Model["ClassEnsemble"]):
    """A fitted classifier: predict, backtest, explain, embed, save, export."""

    def __repr__(self) -> str:
        return f"Classifier({self.artifact.schema.label}: {', '.join(self.classes)})"

    @property
    def classes(self) -> tuple[str, ...]:
        """The classes in words, in the order of the probabilities."""
        return self.artifact.classes

    @public
    @_on_device
    def predict(
        self,
        data: options.Table,
        covariates: options.Covariates = None,
        progress: options.Progress = None,
        only: options.Only = None,
        *,
        device: options.Device = None,
        **data_options: Unpack[DataOptions],
    ) -> "Classification":
        """Returns the class of every series in a table, or of every step, with probabilities.

        A class column in the table is not read.

        Raises:
            DataError: the table does not fit the model.
        """
        from forecaster.forecast.classification import ClassPredictor
        from forecaster.panel.audit import audit_panel

        panel = self._open(data, covariates, data_options).only(only)
        found = tuple(audit_panel(panel, classes=True))
        return replace(ClassPredictor(self.artifact).predict(panel, progress), findings=found)

    @public
    @_on_device
    def predict_to(
        self,
        path: Annotated[options.PathLike, Option("File for the classes: .csv or .parquet.")],
        data: options.Table,
        covariates: options.Covariates = None,
        only: options.Only = None,
        parts: options.Parts = False,
        shard: options.Shard = None,
        devices: options.Devices = None,
        restart: options.Restart = False,
        engine: options.Engine = None,
        overwrite: options.Overwrite = False,
        progress: options.Progress = None,
        *,
        device: options.Device = None,
        **data_options: Unpack[DataOptions],
    ) -> "BatchResult":
        """Writes the classes of a table of any size to a file, in bounded memory; see `Forecaster.predict_to`.

        Raises:
            DataError: the table does not fit the model.
            OutputError: a file cannot be written or exists, or parts of another prediction are there.
        """
        from forecaster.forecast.classification import ClassTask
        from forecaster.forecast.source import Source
        from forecaster.runs.batch_predict import predict_to

        source = Source(data, None, covariates, data_options, only)
        how = (parts, shard, devices, restart, engine, overwrite, progress)
        return predict_to(self.artifact, Path(path), source, lambda panel: ClassTask(), *how)

    @public
    @_on_device
    def backtest(
        self,
        data: Annotated[
            object,
            Option(
                "Table with a class column; series that the fit has seen are left out with a warning."
            ),
        ],
        covariates: options.Covariates = None,
        only: options.Only = None,
        tracking: options.Tracking = True,
        name: options.Name = None,
        *,
        device: options.Device = None,
        **data_options: Unpack[DataOptions],
    ) -> "ClassBacktest":
        """Returns predicted and true classes of a table, and scores.

        Raises:
            DataError: the table does not fit the model, or has no classes.
            ConfigError: the fit has seen all series.
            ArtifactError: the model was fitted before it kept which series it has seen.
        """
        from forecaster.runs.class_scoring import backtest_classes

        panel = self._open(data, covariates, data_options, with_classes=True).only(only)
        return backtest_classes(self.artifact, panel, self._store(tracking), name)

    @public
    @_on_device
    def embed(
        self,
        data: options.Table,
        covariates: options.Covariates = None,
        only: options.Only = None,
        *,
        device: options.Device = None,
        **data_options: Unpack[DataOptions],
    ) -> "AnyFrame":
        """Returns one vector per series, as the kind of frame of the input: keys, v_0, v_1, …

        Near vectors belong to series that look alike to the encoder.

        Raises:
            DataError: the table does not fit the model.
        """
        from forecaster.forecast.classification import ClassPredictor
        from forecaster.panel.audit import audit_panel
        from forecaster.panel.frames import to_kind

        panel = self._open(data, covariates, data_options).only(only)
        audit_panel(panel, classes=True)
        vectors = ClassPredictor(self.artifact).vectors(panel)
        columns = {f"v_{place}": column for place, column in enumerate(vectors.T)}
        return to_kind(panel.series_frame(**columns), panel.kind, panel.original)

    @public
    def explain(
        self,
        data: options.Table,
        only: options.OneSeries = None,
        covariates: options.Covariates = None,
        **data_options: Unpack[DataOptions],
    ) -> "ClassExplanation":
        """Returns how much each step of a series adds to the probability of its class.

        Raises:
            DataError: the table does not fit the model, or has no such series.

        Example:
            >>> model.explain("gestures.csv", only="T3").write("steps.png")  # doctest: +SKIP
        """
        from forecaster.forecast.classification import explain_class

        return explain_class(self.artifact, self._open(data, covariates, data_options), only)

    def _open(
        self, data: object, covariates: object, options: Mapping[str, Any], with_classes: bool = False
    ) -> "Panel":
        """Returns a table opened with this model's roles, its class column too where it is wanted."""
        from forecaster.forecast.source import Source

        return Source(data, None, covariates, options).panel(self.artifact, with_classes)


class Study:
    """The trials of a search, the best of them, and the preset they are compared with."""

    def __init__(self, outcome: "Outcome", kind: str, artifact: "Artifact | None"):
        self._outcome, self._kind, self._artifact = outcome, kind, artifact

    def __repr__(self) -> str:
        plan = self._outcome.plan
        finished = len(self._outcome.ended)
        return f"Study({plan.study}: {finished} trials, {plan.metrics[0]} {self.best_value:.5g})"

    @property
    def name(self) -> str:
        """Name of the study; `tune` continues the study of the same name."""
        return self._outcome.plan.study

    @property
    def best(self) -> Config:
        """The config with the smallest value; of several metrics, of the first one."""
        return self._outcome.config(self._outcome.best)

    @property
    def best_value(self) -> float:
        """Its value on the validation span."""
        return self._outcome.best_value

    @property
    def preset_value(self) -> float | None:
        """The value of the config as it was given; None where its trial has not finished."""
        return self._outcome.preset_value

    @property
    def trials(self) -> "AnyFrame":
        """A row per trial, as the caller's kind of frame: state, values, seconds, settings, note."""
        from forecaster.panel.frames import frame_of, to_kind

        return to_kind(frame_of(self._outcome.columns()), self._kind)

    @property
    def model(self) -> "Forecaster | Classifier":
        """A model of the best config, fitted to all rows.

        Raises:
            ConfigError: the search was run with `refit=False`.
        """
        if self._artifact is None:
            raise ConfigError("refit was False, so there is no model: fit(data, config=study.best)")
        return _model_of(self._artifact, self._outcome.plan.config.tracking)
