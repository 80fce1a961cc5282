"""What the functions and methods of the Python interface share: options read, tables opened, pages checked."""

from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

from forecaster import options
from forecaster.arguments import Function
from forecaster.config import Config, parse_duration
from forecaster.errors import ConfigError, DataError
from forecaster.forecast.model_folder import check_saved
from forecaster.panel.findings import check_paths

if TYPE_CHECKING:
    from forecaster.forecast.totals import TotalRequest
    from forecaster.panel.panel import Panel
    from forecaster.panel.tree import HierarchyRequest
    from forecaster.runs.pipeline import BacktestOptions
    from forecaster.runs.resume import FitRequest


shell_command: ContextVar[str | None] = ContextVar("shell_command", default=None)
"""The command line that calls a function here, for its report or file; None = Python calls it."""


def runs_on_device(function: Function) -> Function:
    """Runs a function on the device that its option `device` names."""

    @wraps(function)
    def run(*args: Any, device: str | None = None, **named: Any) -> Any:
        if device is None:  # nothing to import
            return function(*args, **named)
        from forecaster.model.hardware import on_device

        with on_device(device):
            return function(*args, **named)

    return run  # type: ignore[return-value]


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


def bounds_of(lower: float | None, upper: float | None, integer: bool) -> dict[str, float | None]:
    """Returns the bounds of a target by setting; None = not given."""
    return {"lower": lower, "upper": upper, "integer": integer or None}


def with_options(
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


def date_text(date: object, name: str) -> str:
    from forecaster.panel.timestamps import date_text

    return date_text(date, name)


def checked_page(path: str | Path | None, data: object, overwrite: bool) -> Path | None:
    """Returns the path of a page, once it is certain that it can be written."""
    from forecaster.files import check_writable
    from forecaster.forecast.writer import PAGES, check_suffix

    if path is None:
        return None
    check_suffix(Path(path), PAGES)
    check_paths(data)
    check_writable(Path(path), data, overwrite=overwrite)
    return Path(path)


def is_registered(path: str | Path) -> bool:
    """Returns whether this is an address in the registry; raises ArtifactError for no folder of a model."""
    registered = str(path).startswith("models:/")
    if not registered:
        check_saved(Path(path))
    return registered


def open_request(asked: "FitRequest") -> "tuple[Config, Panel]":
    """Returns the table without its holdout, and the config with the settings of a store."""
    from forecaster.panel.build import with_roles_until

    config, panel = opened(asked.config, asked.data, asked.future, asked.covariates)
    if asked.until is not None:
        time, text = panel.calendar.parse(asked.until, "--until"), panel.calendar.text
        begin = int(panel.time.min())
        if time < begin:
            raise DataError(f"{panel.name}: --until {asked.until}: the table begins at {text(begin)}")
        panel = with_roles_until(panel, asked.data, config.data, asked.covariates, time).until(time)
    return config, panel


def opened(
    config: Config,
    data: object,
    future: object | None,
    covariates: object | None,
    begin: bool = False,
) -> "tuple[Config, Panel]":
    """Returns a table, and the config with the settings of a store; `begin`: `future` may begin series."""
    from forecaster.panel.build import open_panel
    from forecaster.panel.store import as_converted

    config = config.replaced(data=as_converted(data, config.data).model_dump())
    return config, open_panel(data, config.data, covariates=covariates, future=future, begin=begin)


def other_forecasts(others: options.OtherTables | None) -> dict[str, object]:
    """Returns tables of forecasts by name: of files, their stems."""

    if others is None or isinstance(others, Mapping):
        return dict(others or {})
    files = [others] if isinstance(others, str | Path) else others
    check_paths(*files)
    found: dict[str, object] = {Path(file).stem: file for file in files}
    if len(found) < len(files):
        raise ConfigError(f"others {[*map(str, files)]}: expected a name of its own for each")
    return found


def call_of(function: str, data: object, scoring: "BacktestOptions", **more: object) -> str:
    """Returns the line of the shell, else a call in Python; objects without a literal are named by parameter."""

    def literal(name: str, value: object) -> str:
        value = str(value) if isinstance(value, Path) else value
        return repr(value) if isinstance(value, str | int | float | Sequence | Mapping) else name

    given = {name: value for name, value in (vars(scoring) | more).items() if value is not None}
    # Only `fit=False` is said: a model's backtest has no such option, and there is no refit without a fit.
    del given["fit" if scoring.fit else "refit"]
    if not scoring.gap:
        del given["gap"]
    words = (f"{name}={literal(name, value)}" for name, value in given.items())
    return shell_command.get() or f"{function}({', '.join([literal('data', data), *words])})"
