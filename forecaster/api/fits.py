"""Fitting a table, and searching for settings."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal, ParamSpec, Protocol, Unpack, cast, overload

from forecaster import options
from forecaster.api.models import Classifier, Forecaster, Study, model_of, start_of
from forecaster.api.requests import (
    bounds_of,
    checked_page,
    date_text,
    is_registered,
    open_request,
    refuse,
    runs_on_device,
    shell_command,
    with_options,
)
from forecaster.config import config_from, required_horizon
from forecaster.errors import ConfigError, check_count
from forecaster.forecast.model_folder import check_target
from forecaster.options import DataOptions, Option, public
from forecaster.panel.findings import check_paths

FitOptions = ParamSpec("FitOptions")


class _Fit(Protocol[FitOptions]):
    """A function that returns a `Classifier` where a class column is declared."""

    @overload
    def __call__(self, data: object, *, label: str, **options: Any) -> "Classifier": ...  # type: ignore[overload-overlap]

    @overload
    def __call__(self, *args: FitOptions.args, **options: FitOptions.kwargs) -> "Forecaster": ...


def _by_label(fit: Callable[FitOptions, "Forecaster | Classifier"]) -> _Fit[FitOptions]:
    """Says to type checkers which model comes back; the options stay declared once."""
    return cast("_Fit[FitOptions]", fit)


@_by_label
@public
@runs_on_device
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
    budget: options.Budget = None,
    experts: options.Experts = None,
    select: options.Select = False,
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

    settings = config_from(config, horizon, data_options, preset)
    settings = with_options(settings, tracking, experts, budget, bounds_of(lower, upper, integer))
    if precision not in (None, "full", "bf16"):
        raise ConfigError(f"precision {precision!r}: expected full or bf16")
    check_count(checkpoint_every, "checkpoint_every")
    if out is None and (checkpoint_every is not None or restart):
        raise ConfigError("checkpoint_every and restart need out, a folder to save to")
    if out is not None:
        check_target(Path(out), overwrite)
    page = checked_page(report, data, overwrite)
    label = settings.data.label
    if select:
        own = {"experts": experts, "preset": preset, "label": label, "warm_start": warm_start}
        refuse(own, "a fit that selects its model (--select)")
    if label is not None:
        given = {"warm_start": warm_start, "report": report, "budget": budget, "future": future}
        refuse(given, f"a classifier (--label {label})")
    check_paths(data, future, covariates)
    if isinstance(warm_start, str | Path):
        is_registered(warm_start)
    elif warm_start is None and label is None:
        required_horizon(settings)

    # Heavy, so imported after all that is quickly refused.
    from forecaster.fitting.context import TrainingContext
    from forecaster.fitting.distributed import find_distributed_context, only_rank_zero_prints
    from forecaster.runs.console import Screen
    from forecaster.runs.pipeline import run_fit
    from forecaster.runs.resume import FitRequest, claimed

    distributed = find_distributed_context(devices, nodes)
    held_out = None if until is None else date_text(until, "until")
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
            start = start_of(warm_start)
            settings, panel = open_request(request)
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
        return model_of(artifact, settings.tracking)


@public
@runs_on_device
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
    folder = None if out is None else Path(out)
    if folder is not None:
        check_target(folder, overwrite)
    settings = with_options(config_from(config, horizon, data_options, preset), tracking)
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

    held_out = None if until is None else date_text(until, "until")
    console = Screen(quiet=quiet)
    with console.stage("reading the table"):
        request = FitRequest(settings, data, future, covariates, held_out)
        settings, panel = open_request(request)
    plan = plan_search(
        panel,
        settings,
        request,
        space,
        study,
        storage,
        pruner,
        metrics,
        timeout,
        trials=trials,
        workers=workers,
        sampler=sampler,
        seed=seed,
    )
    command = shell_command.get() or "fc.tune(...)"
    outcome, artifact = run_search(panel, plan, console, folder, register, refit, command)
    return Study(outcome, panel.kind, artifact)
