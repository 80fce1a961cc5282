"""The Python interface: fit, tune, backtest, compare, check, convert, load; the classes Forecaster and Study.

Tables go in as a path, a glob, or a pandas, polars or Arrow frame; forecasts and scores come out as
the same kind of frame. The command line takes its options, their defaults and their help from the
signatures and docstrings here, so this module imports only the settings at start-up.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache, wraps
from inspect import Parameter, getdoc, signature
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, cast, overload

from forecaster.arguments import Date, Label, Shard, typed
from forecaster.config import (
    Config,
    DataConfig,
    TrackingConfig,
    config_from,
    load_preset,
    parse_duration,
    required_horizon,
)
from forecaster.errors import ConfigError, DataError, check_count

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from forecaster.evaluation.backtest import Backtest
    from forecaster.evaluation.label_backtest import LabelBacktest
    from forecaster.evaluation.leaderboard import Leaderboard
    from forecaster.forecast.artifact import Artifact
    from forecaster.forecast.detect import Labels
    from forecaster.forecast.explain import Explanation
    from forecaster.forecast.forecast import Forecast
    from forecaster.forecast.labelling import LabelExplanation, Labelling
    from forecaster.forecast.runner import Progress
    from forecaster.model.ensemble import Ensemble
    from forecaster.model.label_network import LabelEnsemble
    from forecaster.panel.findings import Finding
    from forecaster.panel.panel import Panel
    from forecaster.runs.batch_predict import BatchResult, Engine
    from forecaster.runs.pipeline import BacktestOptions
    from forecaster.runs.registry import Published
    from forecaster.runs.resume import FitRequest
    from forecaster.runs.tune.outcome import Outcome
else:  # what options are checked against, without loading these modules
    Progress = Engine = Callable[..., Any]

Settings = str | Path | Mapping[str, Any] | Config
Presets = Mapping[str, Settings] | str | Path | Sequence[str | Path]

_DEVICE = 'Literal["cpu", "cuda"] | None'
Function = TypeVar("Function", bound=Callable[..., Any])
Kind = TypeVar("Kind", "Ensemble", "LabelEnsemble")

_COMMON = {
    "data": "CSV, Parquet or Arrow file, folder, URL or glob. Or a pandas, polars or Arrow frame.",
    "horizon": "Steps to forecast. None = as in the config.",
    "config": "YAML file of settings. Or a mapping, or a Config.",
    "preset": "Settings below those of the config: best, long, smoke or vanilla.",
    "experts": "Closed-form experts of the forecast; one alone trains no network, none = the network alone. "
    "None = all that suit the table.",
    "future": "Table of the covariates known in advance, after the cutoff.",
    "covariates": "Second table, joined on series and time.",
    "until": "Hold out all rows after this date.",
    "cutoff": "Where forecasts start: own (each series' last observation), last (the latest of all), or a "
    "date.",
    "only": "Labels of the series wanted, of several key columns joined with /. None = all.",
    "windows": "Number of cutoffs.",
    "stride": "Steps between cutoffs. None = the horizon.",
    "name": "Name of the run in MLflow.",
    "tracking": "Record the run in MLflow.",
    "overwrite": "Replace outputs that are there.",
    "parts": "Keep one file per 1,024 series, in the folder PATH.parts.",
    "shard": "Make only shard K/N (K from 1) of the parts; the same call without it merges them. Or (K, N).",
    "devices": "Processes, each with a GPU of its own or a part of the cores. None = one.",
    "restart": "Discard the parts of an interrupted run.",
    "engine": "Makes the parts elsewhere, as on a Ray cluster.",
    "progress": "Called with (series done, series in all).",
    "quiet": "Print nothing.",
    "device": "Where it computes. None = a CUDA GPU if there is one.",
}
"""Descriptions of the options that several functions have."""


@cache
def data_options() -> dict[str, tuple[Parameter, str]]:
    """Returns each field of `DataConfig` as a keyword parameter, with its description."""
    options = {}
    for name, field in DataConfig.model_fields.items():
        annotation = DataConfig.__annotations__[name].replace("'", '"')
        annotation = annotation.replace("tuple[str, ...]", "str | Sequence[str]")
        annotation = re.sub(r"tuple\[Annotated\[int.*?\], \.\.\.\]", "Sequence[int]", annotation)
        annotation = "str | Sequence[str] | None" if name == "time" else annotation
        parameter = Parameter(
            name, Parameter.KEYWORD_ONLY, default=field.default, annotation=annotation
        )
        options[name] = (parameter, " ".join((field.description or "").split()))
    return options


def descriptions(function: Callable[..., Any]) -> dict[str, str]:
    """Returns the description of each parameter in the `Args:` of a docstring."""
    section = re.split(r"\n\w+:\n", f"{getdoc(function)}\n".partition("\nArgs:\n")[2])[0]
    entries = re.findall(r"^    (\w+): (.*(?:\n     +.*)*)", section, flags=re.MULTILINE)
    return {name: " ".join(text.split()) for name, text in entries}


def _public(function: Function) -> Function:
    """Lists all options of a function of **data_options in its signature and its docstring, and checks them.

    Those that the docstring leaves out are described by `_COMMON` and by the fields of `DataConfig`.
    """
    given, fields = signature(function), data_options()
    own = [part for part in given.parameters.values() if part.kind is not Parameter.VAR_KEYWORD]
    added = [part for name, (part, _) in fields.items() if name not in given.parameters]
    function.__signature__ = given.replace(parameters=[*own, *added])  # type: ignore[attr-defined]
    texts = {name: text for name, (_, text) in fields.items()} | _COMMON | descriptions(function)
    names = [part.name for part in (*own, *added) if part.name != "self"]

    def listed(section: re.Match[str]) -> str:
        return "Args:\n" + "".join(f"{section[1]}{name}: {texts[name]}\n" for name in names)

    section = r"Args:\n( +)(?s:.*?)data_options: .*\n"
    function.__doc__ = re.sub(section, listed, function.__doc__ or "")
    return typed(function)


def _on_device(function: Function) -> Function:
    """Adds the option `device` to a function of **data_options."""
    given = signature(function)
    option = Parameter("device", Parameter.KEYWORD_ONLY, default=None, annotation=_DEVICE)
    *own, data_fields = given.parameters.values()

    @wraps(function)
    def run(*args: Any, device: str | None = None, **named: Any) -> Any:
        if device is None:  # nothing to import
            return function(*args, **named)
        from forecaster.model.hardware import on_device

        with on_device(device):
            return function(*args, **named)

    run.__signature__ = given.replace(parameters=[*own, option, data_fields])  # type: ignore[attr-defined]
    return run  # type: ignore[return-value]


@overload
def fit(
    data: object, horizon: int | None = None, *, label: None = None, **options: Any
) -> Forecaster: ...


@overload
def fit(data: object, *, label: str, **options: Any) -> Classifier: ...


@_public
@_on_device
def fit(
    data: object,
    horizon: int | None = None,
    *,
    config: Settings | None = None,
    preset: str | None = None,
    future: object = None,
    covariates: object = None,
    until: Date | None = None,
    out: str | Path | None = None,
    overwrite: bool = False,
    warm_start: Forecaster | str | Path | None = None,
    restart: bool = False,
    checkpoint_every: int | None = None,
    devices: int | None = None,
    nodes: int | None = None,
    precision: Literal["full", "bf16"] | None = None,
    compile: bool = False,
    budget: str | float | None = None,
    experts: str | Sequence[str] | None = None,
    lower: float | None = None,
    upper: float | None = None,
    integer: bool = False,
    report: str | Path | None = None,
    tracking: bool = True,
    name: str | None = None,
    quiet: bool = False,
    **data_options: Any,
) -> Forecaster | Classifier:
    """Returns a model fitted to a table; a `Classifier` where a column of labels is declared.

    The same call with the same `out` resumes a fit that was interrupted.

    Args:
        out: Folder for the model.
        overwrite: Replace the model in `out`, and the page.
        warm_start: Model, or folder of one, whose weights the training starts from.
        restart: Discard the interrupted fit in `out`, instead of resuming it.
        checkpoint_every: Steps between checkpoints. None = one every 10 minutes.
        devices: Processes on each machine that train together. None = one.
        nodes: Machines that train together, under torchrun. None = one.
        precision: Matrix products in training: full (float32) or bf16. None = full.
        compile: Compile the training loss with torch; pays on a GPU in a long fit.
        budget: Time for the training, as 90s, 10m or 1h; the steps are lowered to what fits in.
        lower: Smallest value of a forecast.
        upper: Largest value of a forecast.
        integer: Round forecasts to whole numbers.
        report: HTML page about the validation windows; `out` has one anyway.
        name: Name of the run in MLflow. None = that of the folder or the table.
        data_options: fields of `DataConfig`.

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
    bounds = {"lower": lower, "upper": upper, "integer": integer or None}
    settings = settings.replaced(
        target={key: bound for key, bound in bounds.items() if bound is not None}
    )
    settings = _tracked(_with_experts(settings, experts), tracking)
    if budget is not None:
        settings = settings.replaced(fit={"budget_seconds": parse_duration(budget, "--budget")})
    if precision not in (None, "full", "bf16"):
        raise ConfigError(f"precision {precision!r}: expected full or bf16")
    check_count(checkpoint_every, "checkpoint_every")
    if out is None and (checkpoint_every is not None or restart):
        raise ConfigError("checkpoint_every and restart need out, a folder to save to")
    if out is not None:
        check_target(Path(out), overwrite)
    page = _checked_page(report, data, overwrite)
    labels = settings.data.label
    if labels is not None:
        given = {"warm_start": warm_start, "report": report, "budget": budget, "future": future}
        refuse(given, f"a fit to labels (--label {labels})")
    check_paths(data, future, covariates)
    if isinstance(warm_start, str | Path):
        _check_model(warm_start)
    elif warm_start is None and labels is None:
        required_horizon(settings)

    # Heavy, so imported after all that is quickly refused.
    from forecaster.fitting.distributed import find_distributed_context, only_rank_zero_prints
    from forecaster.fitting.train import TrainingContext
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
        folder = None if run is None else run.out
        context = TrainingContext(distributed=distributed, bf16=precision == "bf16", compiled=compile)
        command = "fc.fit(...)" if folder is None else request.command(folder)
        artifact = run_fit(panel, settings, folder, console, start, run, context, page, name, command)
        return _model_of(artifact, settings.tracking)


@_public
@_on_device
def tune(
    data: object,
    horizon: int | None = None,
    trials: int = 50,
    *,
    space: str | Path | Mapping[str, Any] | None = None,
    config: Settings | None = None,
    preset: str | None = None,
    study: str | None = None,
    storage: str | Path | None = None,
    workers: int = 1,
    sampler: Literal["tpe", "gp", "random"] = "tpe",
    pruner: Literal["asha", "hyperband", "none"] | None = None,
    metrics: str | Sequence[str] | None = None,
    timeout: str | float | None = None,
    seed: int = 0,
    until: Date | None = None,
    future: object = None,
    covariates: object = None,
    out: str | Path | None = None,
    overwrite: bool = False,
    register: str | None = None,
    refit: bool = True,
    command: str = "fc.tune(...)",
    tracking: bool = True,
    quiet: bool = False,
    **data_options: Any,
) -> Study:
    """Returns the study of a search for better settings than those of a config.

    Each trial is fitted and then scored on later rows of the table; trial 0 is the config as it is. The
    same call continues the study of that name.

    Args:
        trials: Number of trials in all, those of earlier calls included.
        space: YAML file of the settings to search. Or a mapping. None = configs/sweeps/default.yaml.
        config: YAML file of settings, those of the first trial. Or a mapping, or a Config.
        study: Name of the study. None = from the table and the horizon.
        storage: Journal file or database address. None = a journal in studies/.
        workers: Number of processes, one device each.
        sampler: Proposes the settings of a trial.
        pruner: Stops trials that fall behind. None = asha where losses are comparable.
        metrics: Score to minimise: WQL, MASE, MSE, MAE, RMSE or sMAPE; several make a Pareto study. None =
            WQL, or log_loss of held-out labels.
        timeout: Time after which no trial starts, as 45m or 2h.
        seed: Seed of the sampler.
        out: Folder for a model of the best settings.
        overwrite: Replace the model in `out`.
        register: Register that model in MLflow under this name.
        refit: Fit a model with the best settings.
        command: Command that is written into the file of the best settings.
        data_options: fields of `DataConfig`.

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
    settings = _tracked(config_from(config, horizon, data_options, preset), tracking)
    if (label := settings.data.label) is None:
        required_horizon(settings)
    else:
        given = {"until": until, "future": future}
        refuse(given, f"a search for labels (--label {label})")
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
    options: dict[str, Any] = {"trials": trials, "workers": workers, "sampler": sampler, "seed": seed}
    plan = plan_search(
        panel, settings, request, space, study, storage, pruner, metrics, timeout, **options
    )
    outcome, artifact = run_search(panel, plan, console, folder, register, refit, command)
    return Study(outcome, panel.kind, artifact)


@_public
def convert(
    data: object,
    store: str | Path,
    *,
    future: object = None,
    covariates: object = None,
    overwrite: bool = False,
    quiet: bool = False,
    **data_options: Any,
) -> Panel:
    """Writes a table of any size to a folder that `fit`, `predict`, `backtest` and `check` read.

    Args:
        store: Folder for the panel store; it appears whole or not at all.
        future: Table of the covariates known in advance; it has to fit in memory.
        covariates: Second table, joined on series and time; it has to fit in memory.
        overwrite: Replace the store that is there.
        data_options: fields of `DataConfig`.

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


@_public
@_on_device
def backtest(
    data: object,
    horizon: int | None = None,
    windows: int = 8,
    refit: Literal["once", "each"] = "once",
    *,
    config: Settings | None = None,
    preset: str | None = None,
    experts: str | Sequence[str] | None = None,
    presets: Presets | None = None,
    stride: int | None = None,
    covariates: object = None,
    only: Label | Sequence[Label] | None = None,
    quiet: bool = False,
    tracking: bool = True,
    name: str | None = None,
    command: str | None = None,
    **data_options: Any,
) -> Backtest:
    """Returns forecasts at past cutoffs with the truth beside them, and scores: of a config, not a model.

    Args:
        refit: Fit before the first cutoff (once), or before each.
        presets: Further presets or YAML files of settings, for a leaderboard. Or settings by name. None = no
            leaderboard.
        only: Labels of the series to score; fits read all. None = all.
        command: Command that is written into the report.
        data_options: fields of `DataConfig`.

    Raises:
        ConfigError: a setting is wrong.
        DataError: the table cannot be understood, or has too little history for so many windows.

    Example:
        >>> backtest("sales.csv", horizon=28, windows=8).summary   # doctest: +SKIP
    """
    from forecaster.panel.findings import check_paths

    settings = _with_experts(config_from(config, horizon, data_options, preset), experts)
    settings = _tracked(settings, tracking)
    if settings.data.label is not None:
        raise ConfigError(
            "label: expected a saved model and a table with labels to score it on, found settings: fit "
            "first (its scores are of held-out series), then backtest the model on another table"
        )
    required_horizon(settings)
    check_paths(data, covariates)

    from forecaster.runs.pipeline import BacktestOptions, run_backtest_pipeline
    from forecaster.runs.resume import FitRequest

    options = BacktestOptions(windows, refit, stride, None, only)
    contenders = None if presets is None else _presets(presets, settings)
    settings, panel = _open(FitRequest(settings, data, covariates=covariates))
    source = (data, settings.data, covariates)
    more: dict[str, Any] = {"horizon": horizon, "config": config, "preset": preset, "experts": experts}
    more |= {"presets": presets, "covariates": covariates} | data_options
    command = command or _call("fc.backtest", data, options, **more)
    return run_backtest_pipeline(
        settings, panel, options, settings.tracking, source, quiet, name, command, contenders
    )


def _presets(presets: Presets, settings: Config) -> dict[str, Config]:
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


def _preset(given: Settings) -> Config:
    """Returns the config of a preset: a bare word is a name, a file has a suffix or a folder."""
    bare = isinstance(given, str) and given == Path(given).stem
    return load_preset(str(given)) if bare else config_from(given, None, {})


@typed
def compare(
    data: object, horizon: int | None = None, *, presets: Presets = (), **options: Any
) -> Leaderboard:
    """Returns the backtest of a config beside presets, all experts of the table, and baselines.

    Args:
        data: CSV, Parquet or Arrow file, folder, URL or glob. Or a pandas, polars or Arrow frame.
        horizon: Steps to forecast. None = as in the config.
        presets: Further presets or YAML files of settings, a row each. Or settings by name.
        options: those of `backtest`, as windows=8 or config="my.yaml".

    Raises:
        ConfigError: a setting is wrong.
        DataError: the table cannot be understood, or has too little history for so many windows.

    Example:
        >>> compare("sales.csv", 28, presets=["best", "my.yaml"]).summary   # doctest: +SKIP
    """
    return cast("Leaderboard", backtest(data, horizon, presets=presets, **options))


def _call(function: str, data: object, options: BacktestOptions, **more: object) -> str:
    """Returns a call in Python; objects that have no literal are named by their parameter."""

    def literal(name: str, value: object) -> str:
        value = str(value) if isinstance(value, Path) else value
        return repr(value) if isinstance(value, str | int | float | Sequence | Mapping) else name

    given = {name: value for name, value in (vars(options) | more).items() if value is not None}
    words = (f"{name}={literal(name, value)}" for name, value in given.items())
    return f"{function}({', '.join([literal('data', data), *words])})"


@_public
def check(
    data: object,
    horizon: int | None = None,
    *,
    future: object = None,
    covariates: object = None,
    **data_options: Any,
) -> TableCheck:
    """Returns what is remarkable about a table, worst first, and the roles of its columns.

    Args:
        horizon: Steps that will be forecast, to find series too short for it.
        data_options: fields of `DataConfig`.

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

    def __init__(self, findings: Sequence[Finding], panel: Panel):
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
def load(path: str | Path) -> Forecaster | Classifier:
    """Returns the model saved in a folder, or registered in MLflow; runs no code from there.

    A model that was fitted to labels is a `Classifier`.

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
    artifact: Artifact[Any], tracking: TrackingConfig | None = None
) -> Forecaster | Classifier:
    from forecaster.forecast.artifact import is_forecaster

    return Forecaster(artifact, tracking) if is_forecaster(artifact) else Classifier(artifact, tracking)


def refuse(given: Mapping[str, object], task: str) -> None:
    """Raises a ConfigError where options are given, not None, that a task does not have."""
    odd = [f"--{name.replace('_', '-')}" for name, value in given.items() if value is not None]
    if odd:
        raise ConfigError(f"{', '.join(odd)}: {task} has no such option; leave it out")


def _check_model(path: str | Path) -> bool:
    """Returns whether this is an address in the registry; raises ArtifactError for no folder of a model."""
    from forecaster.forecast.model_folder import check_saved

    registered = str(path).startswith("models:/")
    if not registered:
        check_saved(Path(path))
    return registered


def _with_experts(config: Config, experts: str | Sequence[str] | None) -> Config:
    if experts is None:
        return config
    names = [experts] if isinstance(experts, str) else [*experts]
    return config.replaced(model={"experts": [] if names == ["none"] else names})


def _tracked(config: Config, tracking: bool) -> Config:
    return config if tracking else config.replaced(tracking={"enabled": False})


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


def _open(asked: FitRequest) -> tuple[Config, Panel]:
    """Returns the table without its holdout, and the config with the settings of a store."""
    from forecaster.panel.build import open_panel, with_roles_until
    from forecaster.panel.store import as_converted

    config = asked.config.replaced(data=as_converted(asked.data, asked.config.data).model_dump())
    panel = open_panel(asked.data, config.data, covariates=asked.covariates, future=asked.future)
    if asked.until is not None:
        time, text = panel.calendar.parse(asked.until, "--until"), panel.calendar.text
        begin = int(panel.time.min())
        if time < begin:
            raise DataError(f"{panel.name}: --until {asked.until}: the table begins at {text(begin)}")
        panel = with_roles_until(panel, asked.data, config.data, asked.covariates, time).until(time)
    return config, panel


def _artifact_of(model: object) -> Artifact | None:
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

    def __init__(self, artifact: Artifact[Kind], tracking: TrackingConfig | None = None):
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
    ) -> Published:
        """Registers the model in MLflow, for `mlflow models serve` and `load` by its name.

        Args:
            name: Name of the registered model. A version with a lower WQL on its champion's validation
                windows (log loss, of labels) becomes the champion.
            tracking: MLflow store. None = the one of the fit.
            champion: Make it the champion in any case. Why its scores would not is printed first.

        Raises:
            ConfigError: the store is away, or refuses the name.

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

    @_public
    def open(
        self, data: object, future: object = None, covariates: object = None, **data_options: Any
    ) -> Panel:
        """Returns a table opened with this model's roles, categories and frequency.

        Args:
            data_options: fields of `DataConfig`.
        """
        from forecaster.forecast.source import Source

        return Source(data, future, covariates, data_options).panel(self.artifact)

    @_public
    @_on_device
    def predict(
        self,
        data: object,
        future: object = None,
        covariates: object = None,
        cutoff: Date = "own",
        horizon: int | None = None,
        progress: Progress | None = None,
        samples: int | None = None,
        seed: int = 0,
        only: Label | Sequence[Label] | None = None,
        **data_options: Any,
    ) -> Forecast:
        """Returns the forecast of every series in a table, or of some.

        Args:
            horizon: Steps to forecast. None = as fitted; more need an autoregressive decoder.
            samples: Sample paths to keep in `Forecast.samples`; they need an autoregressive decoder.
            seed: Seed of the sample paths.
            data_options: fields of `DataConfig`.

        Raises:
            DataError: the table does not fit the model, or a known covariate is missing.
            ConfigError: the horizon is too long for the model, or it has no sample paths.
        """
        from forecaster.forecast.predictor import Predictor

        start = _date_text(cutoff, "cutoff")
        panel = self.open(data, future, covariates, **data_options)
        return Predictor(self.artifact).predict(panel, start, horizon, progress, samples, seed, only)

    @_public
    @_on_device
    def predict_to(
        self,
        path: str | Path,
        data: object,
        future: object = None,
        covariates: object = None,
        cutoff: Date = "own",
        horizon: int | None = None,
        samples: int | None = None,
        seed: int = 0,
        only: Label | Sequence[Label] | None = None,
        parts: bool = False,
        shard: Shard | None = None,
        devices: int | None = None,
        restart: bool = False,
        engine: Engine | None = None,
        overwrite: bool = False,
        progress: Progress | None = None,
        **data_options: Any,
    ) -> BatchResult:
        """Writes the forecast of every series of a table of any size to a file, in bounded memory.

        The same call resumes one that was killed.

        Args:
            path: File for the forecasts: .csv or .parquet.
            data: History, with the columns the model was fitted to; a store is read block by block.
            horizon: Steps to forecast. None = as fitted; more need an autoregressive decoder.
            samples: Write this many joint sample paths per series instead of quantiles.
            seed: Seed of the sample paths.
            overwrite: Replace the file that is there.
            data_options: fields of `DataConfig`.

        Raises:
            DataError: the table does not fit the model, or a known covariate is missing.
            ConfigError: the horizon is too long for the model, or it has no sample paths.
            OutputError: a file cannot be written or exists, or parts of another forecast are there.

        Example:
            >>> model.predict_to("forecasts.parquet", "sales.store").report   # doctest: +SKIP
        """
        from forecaster.forecast.source import Source
        from forecaster.forecast.task import ForecastTask
        from forecaster.forecast.window import resolve_window
        from forecaster.runs.batch_predict import predict_to

        start = _date_text(cutoff, "cutoff")

        def task_of(panel: Panel) -> ForecastTask:
            return ForecastTask(resolve_window(self.artifact, panel, start, horizon, samples, seed))

        source = Source(data, future, covariates, data_options, only)
        how = (parts, shard, devices, restart, engine, overwrite, progress)
        return predict_to(self.artifact, Path(path), source, task_of, *how)

    @_public
    @_on_device
    def backtest(
        self,
        data: object,
        windows: int = 8,
        refit: Literal["once", "each", "never"] = "once",
        stride: int | None = None,
        covariates: object = None,
        quiet: bool = False,
        horizon: int | None = None,
        only: Label | Sequence[Label] | None = None,
        tracking: bool = True,
        name: str | None = None,
        command: str | None = None,
        **data_options: Any,
    ) -> Backtest:
        """Returns forecasts at past cutoffs with the truth beside them, and scores.

        Args:
            refit: Fit the same settings before the first cutoff (once), before each, or never: use
                these weights, an error where they have seen a scored row.
            horizon: Leads to score. None = as fitted.
            only: Labels of the series to score; fits read all. None = all.
            command: Command that is written into the report.
            data_options: fields of `DataConfig`.

        Raises:
            ConfigError: `refit` is unknown or dishonest, or the horizon is too long for the model.
            DataError: the table has too little history for so many windows.
        """
        from forecaster.forecast.model_folder import reading_with
        from forecaster.forecast.source import Source
        from forecaster.runs.pipeline import BacktestOptions, run_backtest_pipeline

        options = BacktestOptions(windows, refit, stride, horizon, only)
        panel = Source(data, None, covariates, data_options).panel(self.artifact)
        source = (data, reading_with(self.artifact.requested.data, data_options), covariates)
        command = command or _call(
            "model.backtest", data, options, covariates=covariates, **data_options
        )
        store = self._store(tracking)
        return run_backtest_pipeline(self.artifact, panel, options, store, source, quiet, name, command)

    @_public
    @_on_device
    def detect(
        self,
        data: object,
        beyond: float = 1.0,
        covariates: object = None,
        only: Label | Sequence[Label] | None = None,
        progress: Progress | None = None,
        **data_options: Any,
    ) -> Labels:
        """Returns a label for each observed step: inside, above or below the band forecast before it.

        Args:
            beyond: Half-widths from the median at which a value is outside; 1 = the band itself.
            data_options: fields of `DataConfig`.

        Raises:
            DataError: the table does not fit the model.
            ConfigError: the model has no band, or `beyond` is no number above 0.

        Example:
            >>> model.detect("sales.csv").write("labels.parquet")   # doctest: +SKIP
        """
        from forecaster.forecast.detect import detect
        from forecaster.forecast.source import Source

        panel = Source(data, None, covariates, data_options).panel(self.artifact)
        return detect(self.artifact, panel.only(only), beyond, progress)

    @_public
    def explain(
        self,
        data: object,
        only: Label | None = None,
        channel: str | None = None,
        cutoff: Date = "own",
        future: object = None,
        covariates: object = None,
        **data_options: Any,
    ) -> Explanation:
        """Returns the attention weights of one forecast, and how covariates and the past move it.

        Args:
            only: Label of the series, of several key columns joined with /. None = the only one.
            channel: Column forecast. None = the first.
            cutoff: Where the forecast starts: own (the last observation) or a date.
            data_options: fields of `DataConfig`.

        Raises:
            DataError: the table does not fit the model, or has no such series or channel.

        Example:
            >>> model.explain("sales.csv", only="store_1").write("attention.html")  # doctest: +SKIP
        """
        from forecaster.forecast.explain import explain

        start = _date_text(cutoff, "cutoff")
        panel = self.open(data, future, covariates, **data_options)
        return explain(self.artifact, panel, only, channel, start)

    @_public
    def onnx_inputs(
        self,
        data: object,
        future: object = None,
        covariates: object = None,
        cutoff: Date = "own",
        **data_options: Any,
    ) -> tuple[list[str], dict[str, NDArray[Any]]]:
        """Returns what the file of `export_onnx` reads, from a table.

        Args:
            data_options: fields of `DataConfig`.

        Returns:
            The labels of the series that can be forecast, and by name the inputs, a row for each of them.

        Raises:
            DataError: the table does not fit the model, or a known covariate is missing.

        Example:
            >>> labels, inputs = model.onnx_inputs("sales.csv", "promos.csv")   # doctest: +SKIP
            >>> (quantiles,) = session.run(["quantiles"], inputs)               # doctest: +SKIP
        """
        from forecaster.forecast.onnx_export import onnx_inputs

        panel = self.open(data, future, covariates, **data_options)
        return onnx_inputs(self.artifact, panel, _date_text(cutoff, "cutoff"))


class Classifier(Model["LabelEnsemble"]):
    """A fitted model of labels: predict, backtest, explain, embed, save, export."""

    def __repr__(self) -> str:
        return f"Classifier({self.artifact.schema.label}: {', '.join(self.classes)})"

    @property
    def classes(self) -> tuple[str, ...]:
        """The labels in words, in the order of the probabilities."""
        return self.artifact.classes

    @_public
    @_on_device
    def predict(
        self,
        data: object,
        covariates: object = None,
        progress: Progress | None = None,
        only: Label | Sequence[Label] | None = None,
        **data_options: Any,
    ) -> Labelling:
        """Returns the label of every series in a table, or of every step, with probabilities.

        A column of labels in the table is not read.

        Args:
            data_options: fields of `DataConfig`.

        Raises:
            DataError: the table does not fit the model.
        """
        from forecaster.forecast.labelling import Labeller
        from forecaster.panel.audit import audit_panel

        panel = self._open(data, covariates, data_options).only(only)
        found = tuple(audit_panel(panel, labels=True))
        return replace(Labeller(self.artifact).label(panel, progress), findings=found)

    @_public
    @_on_device
    def predict_to(
        self,
        path: str | Path,
        data: object,
        covariates: object = None,
        only: Label | Sequence[Label] | None = None,
        parts: bool = False,
        shard: Shard | None = None,
        devices: int | None = None,
        restart: bool = False,
        engine: Engine | None = None,
        overwrite: bool = False,
        progress: Progress | None = None,
        **data_options: Any,
    ) -> BatchResult:
        """Writes the labels of a table of any size to a file, in bounded memory; see `Forecaster.predict_to`.

        Args:
            path: File for the labels: .csv or .parquet.
            data_options: fields of `DataConfig`.

        Raises:
            DataError: the table does not fit the model.
            OutputError: a file cannot be written or exists, or parts of another prediction are there.
        """
        from forecaster.forecast.labelling import LabelTask
        from forecaster.forecast.source import Source
        from forecaster.runs.batch_predict import predict_to

        source = Source(data, None, covariates, data_options, only)
        how = (parts, shard, devices, restart, engine, overwrite, progress)
        return predict_to(self.artifact, Path(path), source, lambda panel: LabelTask(), *how)

    @_public
    @_on_device
    def backtest(
        self,
        data: object,
        covariates: object = None,
        only: Label | Sequence[Label] | None = None,
        tracking: bool = True,
        name: str | None = None,
        **data_options: Any,
    ) -> LabelBacktest:
        """Returns labels of a table with the true ones beside them, and scores.

        Args:
            data: Table with labels; series that the fit has seen are left out with a warning.
            data_options: fields of `DataConfig`.

        Raises:
            DataError: the table does not fit the model, or has no labels.
            ConfigError: the fit has seen all series.
            ArtifactError: the model was fitted before it kept which series it has seen.
        """
        from forecaster.runs.label_scoring import backtest_labels

        panel = self._open(data, covariates, data_options, labels=True).only(only)
        return backtest_labels(self.artifact, panel, self._store(tracking), name)

    @_public
    @_on_device
    def embed(
        self,
        data: object,
        covariates: object = None,
        only: Label | Sequence[Label] | None = None,
        **data_options: Any,
    ) -> Any:
        """Returns one vector per series, as the kind of frame of the input: keys, v_0, v_1, …

        Near vectors belong to series that look alike to the encoder.

        Args:
            data_options: fields of `DataConfig`.

        Raises:
            DataError: the table does not fit the model.
        """
        from forecaster.forecast.labelling import Labeller
        from forecaster.panel.audit import audit_panel
        from forecaster.panel.frames import to_kind

        panel = self._open(data, covariates, data_options).only(only)
        audit_panel(panel, labels=True)
        vectors = Labeller(self.artifact).vectors(panel)
        columns = {f"v_{place}": column for place, column in enumerate(vectors.T)}
        return to_kind(panel.series_frame(**columns), panel.kind, panel.original)

    @_public
    def explain(
        self, data: object, only: Label | None = None, covariates: object = None, **data_options: Any
    ) -> LabelExplanation:
        """Returns how much each step of a series adds to the probability of its label.

        Args:
            only: Label of the series, of several key columns joined with /. None = the only one.
            data_options: fields of `DataConfig`.

        Raises:
            DataError: the table does not fit the model, or has no such series.

        Example:
            >>> model.explain("gestures.csv", only="T3").write("steps.png")  # doctest: +SKIP
        """
        from forecaster.forecast.labelling import explain_label

        return explain_label(self.artifact, self._open(data, covariates, data_options), only)

    def _open(
        self, data: object, covariates: object, options: Mapping[str, Any], labels: bool = False
    ) -> Panel:
        """Returns a table opened with this model's roles, its labels too where they are wanted."""
        from forecaster.forecast.source import Source

        return Source(data, None, covariates, options).panel(self.artifact, labels)


class Study:
    """The trials of a search, the best of them, and the preset they are compared with."""

    def __init__(self, outcome: Outcome, kind: str, artifact: Artifact | None):
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
    def trials(self) -> Any:
        """A row per trial, as the caller's kind of frame: state, values, seconds, settings, note."""
        from forecaster.panel.frames import frame_of, to_kind

        return to_kind(frame_of(self._outcome.columns()), self._kind)

    @property
    def model(self) -> Forecaster | Classifier:
        """A model of the best config, fitted to all rows.

        Raises:
            ConfigError: the search was run with `refit=False`.
        """
        if self._artifact is None:
            raise ConfigError("refit was False, so there is no model: fit(data, config=study.best)")
        return _model_of(self._artifact, self._outcome.plan.config.tracking)
