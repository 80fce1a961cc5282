"""Output files of predict, backtest and detect: checked before the work, written after it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from inspect import signature
from pathlib import Path
from typing import Any

import typer

from forecaster import api
from forecaster.api.requests import refuse
from forecaster.errors import ConfigError, OutputError, visible
from forecaster.forecast.model_folder import check_saved, is_model
from forecaster.forecast.writer import check_suffix, write_figure
from forecaster.options import DataOptions


def check_files(
    outputs: Mapping[tuple[str, ...], Path | None], inputs: Sequence[str | None], overwrite: bool
) -> None:
    """Raises before any work where a file cannot be read, or could not be written after the work.

    Args:
        outputs: path by the suffixes it may have.
        inputs: tables that the verb reads, and must not overwrite.
        overwrite: whether existing files may be overwritten.
    """
    from forecaster.files import check_writable
    from forecaster.panel.findings import check_paths

    for suffixes, path in outputs.items():
        if path is not None:
            check_writable(path, *inputs, overwrite=overwrite)
            check_suffix(path, suffixes)
    check_paths(*inputs)


def put(result: Any, rows: Path | None, picture: Path | None, page: Path | None = None) -> None:
    """Writes the rows of a result, then its picture and page; a drawing that fails is a warning."""
    from forecaster.runs.console import Screen

    if rows is not None:
        result.write(rows)
        typer.echo(f"wrote {rows}")

    def drawn(path: Path, draw: Callable[[], None]) -> bool:
        return Screen(stderr=True).attempt(str(path), draw, "everything else is complete", OutputError)

    if picture is not None and drawn(picture, lambda: write_figure(result.plot(), picture)):
        typer.echo(f"drew {picture}")
    if page is not None and drawn(page, lambda: result.report(page)):
        typer.echo(f"wrote {page}")


def refuse_options(given: Mapping[str, object], verb: str) -> dict[str, Any]:
    """Returns the options of a verb for a classifier; refuses those that only forecasts have."""
    known = signature(getattr(api.Classifier, verb)).parameters
    usual = signature(getattr(api.Forecaster, verb)).parameters
    foreign = {name: value for name, value in given.items() if name not in known}
    odd = {name: value for name, value in foreign.items() if value != usual[name].default}
    refuse(odd, "a classifier")
    return {name: value for name, value in given.items() if name in known}


def model_and_table(first: str, second: str | None) -> tuple[str | None, str]:
    """Returns the model and the table that two arguments name; None = a table alone."""
    if second is not None:
        return first, second
    if is_model(first):
        if not first.startswith("models:/"):
            check_saved(Path(first))
        raise ConfigError(f"Missing argument DATA: the table for the model {first}")
    return None, first


def refuse_of_table(given: Mapping[str, object]) -> None:
    """Refuses options that a table without a model alone has."""
    refuse(given, "a saved model", "leave it out, or the model: a table without one has it")


def without_fit(
    table: str, horizon: int | None, given: Mapping[str, Any], **bounds: Any
) -> tuple[api.Forecaster, dict[str, Any]]:
    """Returns a model of a table without a fit, and the other options with the table as it reads it."""
    roles = {name: value for name, value in given.items() if name in DataOptions.__annotations__}
    names = ("future", "covariates", "cutoff", "only")
    read = {name: given[name] for name in names if name in given}
    loaded, panel = api.without_fit(table, horizon, **read, bounds=bounds, roles=roles)
    for note in panel.notes:
        if note.rule == "no-fit":
            typer.echo(f"no fit: {visible(note.text)}", err=True)
    own = {name: value for name, value in given.items() if name not in (*roles, "future", "covariates")}
    return loaded, own | {"data": panel}


@contextmanager
def progress(task: str) -> Iterator[Callable[[int, int], None]]:
    """Shows a bar on a terminal; yields the function that is called with (done, total)."""
    from forecaster.runs.console import Screen, progress_bar

    with progress_bar(Screen(stderr=True)) as bar:
        number = bar.add_task(task, total=None)
        yield lambda done, total: bar.update(number, completed=done, total=total)
