"""The Python face: fit · tune · load · check · convert; what they return is in `fitted.py`.

What comes in: a path, a glob, or a pandas, polars or Arrow frame. What goes out: forecasts and scores
as the same kind of frame. Everything heavy loads when it is needed.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from rich.console import Console

from forecaster.arguments import SETTINGS, FitOptions, Roles, TuneOptions
from forecaster.config import Config, DataConfig, TrackingConfig, config_from, parse_duration
from forecaster.errors import ConfigError, DataError
from forecaster.fitted import Forecaster

if TYPE_CHECKING:
    from forecaster.forecast.artifact import Artifact
    from forecaster.panel.findings import Finding
    from forecaster.panel.panel import Panel
    from forecaster.runs.distributed import DistributedContext
    from forecaster.runs.resume import FitRequest, ResumableFit
    from forecaster.tuned import Study


def fit(data: object = None, horizon: int | None = None, **options: Unpack[FitOptions]) -> Forecaster:
    """Returns a model fitted to a table.

    Args:
        data: path of a CSV or Parquet file, a glob, or a pandas, polars or Arrow frame.
        horizon: steps to forecast; may come from the config instead.
        options: fields of `DataConfig` (`time`, `series`, `target`, `known`, `freq`, ...), `config`
            (a file, a mapping or a Config), `future` (a table whose covariates are known in advance),
            `covariates` (a second table, joined on series and time), `until` (a date; later rows are
            a holdout), `out` (a folder to save to), `warm_start` (a model, or the folder of one,
            whose weights the training starts from), `checkpoint_every` (steps between checkpoints),
            `resume` (the `out` of a fit that was stopped, which then goes on), `restart` (give up a
            fit that was stopped in `out`), `devices` (processes that train together on each machine),
            `nodes` (machines), `precision` and `compile` (as in the config's `fit`), `budget` (a
            duration, as "10m", that bounds the training), `report` (a page about the validation
            windows, of which `out` has one anyway), `quiet` (say nothing).

    Raises:
        DataError: the table cannot be understood.
        ConfigError: a setting is wrong.
        FitError: the loss is not finite.
        OutputError: `out` cannot be written, or another fit writes it or was stopped there.

    Example:
        >>> model = fit("sales.csv", horizon=28, known=["price"])   # doctest: +SKIP
    """
    from forecaster.forecast.artifact import check_target
    from forecaster.runs.distributed import find_distributed_context, only_rank_zero_prints
    from forecaster.runs.resume import FitRequest, resumable_fit

    roles = {name: value for name, value in options.items() if name not in SETTINGS}
    config = config_from(options.get("config"), horizon, roles)
    every = options.get("checkpoint_every")
    training = {name: options.get(name) for name in ("checkpoint_every", "precision", "compile")}
    training["budget_seconds"] = parse_duration(options.get("budget"), "--budget")
    config = config.replaced(fit={name: value for name, value in training.items() if value is not None})
    distributed = find_distributed_context(options.get("devices"), options.get("nodes"))
    tables = (options.get("future"), options.get("covariates"), options.get("until"))
    told = FitRequest(config, data, *tables, options.get("warm_start"))
    out, resume = _path(options.get("out")), _path(options.get("resume"))
    quiet, restart = options.get("quiet", False), options.get("restart", False)
    report = _page(options.get("report"), data)
    if out is None and resume is None:
        if every is not None or restart:
            raise ConfigError("checkpoint_every and restart need out, a folder to save to")
        return _fitted(told, None, quiet, distributed, report)
    if out is not None:
        check_target(out)
    with (
        only_rank_zero_prints(distributed),
        resumable_fit(told, out, resume, restart, distributed.is_main) as begun,
    ):
        return _fitted(begun.asked, begun, quiet, distributed, report)


def _fitted(
    asked: FitRequest,
    begun: ResumableFit | None,
    quiet: bool,
    distributed: DistributedContext,
    report: Path | None,
) -> Forecaster:
    """Returns the model of a fit whose folder, if it has one, is claimed."""
    from forecaster.runs.pipeline import run_fit

    if asked.data is None:
        raise ConfigError("data: expected a table: a path, a glob or a frame")
    start = _started_from(asked.start)
    config, panel = _opened(asked)
    out = None if begun is None else begun.folder.out
    console = Console(quiet=quiet or not distributed.is_main)
    artifact = run_fit(panel, config, out, console, start, begun, distributed, report=report)
    return Forecaster(artifact, config.tracking)


def _page(path: str | Path | None, data: object) -> Path | None:
    """Returns where a page goes, once it is sure that it can be written."""
    from forecaster.files import check_writable
    from forecaster.forecast.writer import check_report

    if path is None:
        return None
    check_report(Path(path))
    check_writable(Path(path), str(data) if isinstance(data, str | Path) else None)
    return Path(path)


def _opened(asked: FitRequest) -> tuple[Config, Panel]:
    """Returns the table without its holdout, and the config with what a store says."""
    from forecaster.panel.build import open_panel
    from forecaster.panel.store import as_converted

    config = asked.config.replaced(data=as_converted(asked.data, asked.config.data).model_dump())
    panel = open_panel(asked.data, config.data, covariates=asked.covariates, future=asked.future)
    if asked.until is not None:
        time, text = panel.calendar.parse(asked.until), panel.calendar.text
        begin = int(panel.time.min())
        if time < begin:
            raise DataError(f"{panel.name}: --until {asked.until}: the table begins at {text(begin)}")
        panel = panel.until(time)
    return config, panel


def tune(
    data: object, horizon: int | None = None, trials: int = 50, **options: Unpack[TuneOptions]
) -> Study:
    """Returns the study of a search for better settings than those of a config.

    Each trial is fitted and then scored on later rows of the table; trial 0 is the config as it is. The
    same call goes on with the study that is there.

    Args:
        data: path of a CSV or Parquet file, a glob, or a pandas, polars or Arrow frame.
        horizon: steps to forecast; may come from the config instead.
        trials: in all, those of earlier calls included.
        options: fields of `DataConfig`, `config`, `future`, `covariates`, `until`, `out` and `quiet` as
            `fit` takes them; `space` (the settings to search: a YAML file, or a mapping), `study` (its
            name), `storage` (a journal file or an address), `workers` (processes), `sampler` ("tpe",
            "gp", "random"), `pruner` ("asha", "hyperband", "none"), `metrics` ("WQL", "MASE", "MSE",
            "MAE", "RMSE", "sMAPE", or several of them), `timeout` (as "2h"), `seed`, `register` (a name
            in the registry), `refit` (False: no model is fitted with the best settings).

    Raises:
        DataError: the table cannot be understood, or is too short.
        ConfigError: a setting, the space, or a study that is there contradicts what was asked for.
        FitError: three trials in a row failed alike, or none finished.

    Example:
        >>> study = tune("sales.csv", horizon=28, trials=50)   # doctest: +SKIP
        >>> study.best.fit.learning_rate, study.model          # doctest: +SKIP
    """
    from forecaster.forecast.artifact import check_target
    from forecaster.runs.resume import FitRequest
    from forecaster.runs.tune.search import run_search
    from forecaster.runs.tune.study import tune_options
    from forecaster.tuned import Study

    roles = {name: value for name, value in options.items() if name in DataConfig.model_fields}
    apart = {*roles, "config", "quiet", "future", "covariates"}
    config = config_from(options.get("config"), horizon, roles)
    tables = (options.get("future"), options.get("covariates"))
    search = tune_options(trials, {name: value for name, value in options.items() if name not in apart})
    if search.out is not None:
        check_target(search.out)
    asked = FitRequest(config, data, *tables, search.until)
    config, panel = _opened(asked)
    console = Console(quiet=options.get("quiet", False))
    outcome, artifact = run_search(panel, config, search, console, data, *tables)
    return Study(outcome, panel.kind, artifact)


def convert(
    data: object,
    store: str | Path,
    covariates: object | None = None,
    future: object | None = None,
    quiet: bool = False,
    **roles: Unpack[Roles],
) -> Panel:
    """Writes a table of any size to a folder that `fit`, `predict`, `backtest` and `check` take.

    Args:
        data: path of files larger than memory, or any other table.
        store: the folder; it appears whole or not at all.
        covariates: a second table, joined on series and time; it has to fit in memory.
        future: a table of the covariates known in advance; it has to fit in memory.
        quiet: say nothing.
        roles: of columns, as in `fit`.

    Raises:
        DataError: the table cannot be understood.
        OutputError: the folder is something else, or the disk is full.

    Example:
        >>> convert("sales/*.parquet", "sales.store", known=["price"])   # doctest: +SKIP
    """
    from rich.progress import Progress

    from forecaster.panel.convert import convert_table
    from forecaster.runs.console import print_findings, print_line, print_roles

    config, console, folder = config_from(None, None, roles), Console(quiet=quiet), Path(store)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("converting", total=None)
        panel = convert_table(
            data,
            folder,
            config.data,
            covariates=covariates,
            future=future,
            progress=lambda done, total: bar.update(task, completed=done, total=total),
        )
    print_roles(console, panel)
    print_findings(console, panel.notes)
    size = sum(file.stat().st_size for file in folder.iterdir())
    print_line(console, f"wrote {folder} ({size / 1e6:,.1f} MB)")
    return panel


def load(path: str | Path) -> Forecaster:
    """Returns the model saved in a folder, or registered in MLflow; runs no code from there.

    Args:
        path: a folder, or models:/NAME@champion, models:/NAME/VERSION or models:/NAME/latest in the
            store that MLFLOW_TRACKING_URI names, or the one in this folder.

    Raises:
        ArtifactError: there is none, it is damaged, or a newer version wrote it.
        ConfigError: the MLflow store cannot be reached, or knows no such model.
    """
    from forecaster.forecast.artifact import load_artifact
    from forecaster.runs.registry import is_address, load_registered

    if is_address(path):
        return Forecaster(load_registered(str(path), TrackingConfig()))
    return Forecaster(load_artifact(path))


def check(
    data: object,
    horizon: int | None = None,
    future: object | None = None,
    covariates: object | None = None,
    **roles: Unpack[Roles],
) -> list[Finding]:
    """Returns what is remarkable about a table, worst first; empty when nothing is.

    Args:
        data: path, glob or frame.
        horizon: steps that will be forecast, to find series too short for it.
        future: a table of the covariates known in advance.
        covariates: a second table, joined on series and time.
        roles: of columns, as in `fit`.

    Raises:
        DataError: the table cannot be understood at all.
    """
    from forecaster.panel.audit import check_panel
    from forecaster.panel.build import open_panel

    config = config_from(None, horizon, roles)
    return check_panel(open_panel(data, config.data, covariates=covariates, future=future), horizon)


def _path(told: str | Path | None) -> Path | None:
    return None if told is None else Path(told)


def _started_from(model: object | None) -> Artifact | None:
    """Returns the artifact of a model, or of the folder of one."""
    if isinstance(model, str | Path):
        model = load(model)
    if model is not None and not isinstance(model, Forecaster):
        raise ConfigError(
            f"warm_start: expected a model or the folder of one, found {type(model).__name__}"
        )
    return None if model is None else model.artifact
