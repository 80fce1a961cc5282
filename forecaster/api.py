"""The Python face: fit · load · check · convert; what they return is in `fitted.py`.

What comes in: a path, a glob, or a pandas, polars or Arrow frame. What goes out: forecasts and scores
as the same kind of frame. Everything heavy loads when it is needed.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from rich.console import Console

from forecaster.arguments import SETTINGS, FitOptions, Roles, config_of
from forecaster.errors import ConfigError, DataError
from forecaster.fitted import Forecaster

if TYPE_CHECKING:
    from forecaster.forecast.artifact import Artifact
    from forecaster.panel.finding import Finding
    from forecaster.panel.panel import Panel


def fit(data: object, horizon: int | None = None, **options: Unpack[FitOptions]) -> Forecaster:
    """Returns a model fitted to a table.

    Args:
        data: path of a CSV or Parquet file, a glob, or a pandas, polars or Arrow frame.
        horizon: steps to forecast; may come from the config instead.
        options: fields of `DataConfig` (`time`, `series`, `target`, `known`, `freq`, ...), `config`
            (a file, a mapping or a Config), `future` (a table whose covariates are known in advance),
            `covariates` (a second table, joined on series and time), `until` (a date; later rows are
            a holdout), `out` (a folder to save to), `warm_start` (a model, or the folder of one,
            whose weights the training starts from), `quiet` (say nothing).

    Raises:
        DataError: the table cannot be understood.
        ConfigError: a setting is wrong.
        FitError: the loss is not finite.

    Example:
        >>> model = fit("sales.csv", horizon=28, known=["price"])   # doctest: +SKIP
    """
    from forecaster.forecast.artifact import check_target
    from forecaster.panel.build import open_panel
    from forecaster.panel.stores.stored import as_converted
    from forecaster.runs.job import run_fit

    roles = {name: value for name, value in options.items() if name not in SETTINGS}
    config = config_of(options.get("config"), horizon, roles)
    out = options.get("out")
    if out is not None:
        check_target(Path(out))
    start = _started_from(options.get("warm_start"))
    config = config.replaced(data=as_converted(data, config.data).model_dump())
    panel = open_panel(
        data, config.data, covariates=options.get("covariates"), future=options.get("future")
    )
    until = options.get("until")
    if until is not None:
        time, text = panel.calendar.parse(until), panel.calendar.text
        begin = int(panel.time.min())
        if time < begin:
            raise DataError(f"{panel.name}: --until {until}: the table begins at {text(begin)}")
        panel = panel.until(time)
    console = Console(quiet=options.get("quiet", False))
    folder = Path(out) if out is not None else None
    return Forecaster(run_fit(panel, config, folder, console, start))


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
    from forecaster.runs.convert import run_convert

    config, console = config_of(None, None, roles), Console(quiet=quiet)
    return run_convert(data, Path(store), config.data, covariates, future, console)


def load(path: str | Path) -> Forecaster:
    """Returns the model saved in a folder; runs no code from it.

    Raises:
        ArtifactError: there is none, it is damaged, or a newer version wrote it.
    """
    from forecaster.forecast.artifact import load_artifact

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

    config = config_of(None, horizon, roles)
    return check_panel(open_panel(data, config.data, covariates=covariates, future=future), horizon)


def _started_from(model: object | None) -> Artifact | None:
    """Returns the artifact of a model, or of the folder of one."""
    if isinstance(model, str | Path):
        model = load(model)
    if model is not None and not isinstance(model, Forecaster):
        raise ConfigError(
            f"warm_start: expected a model or the folder of one, found {type(model).__name__}"
        )
    return None if model is None else model.artifact
