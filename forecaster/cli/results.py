"""Results of verbs: output files, checked before the work and written after it, and what documents say."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from forecaster import api
from forecaster.api.requests import refuse
from forecaster.errors import ConfigError, OutputError, visible
from forecaster.forecast.model_folder import check_saved, is_model
from forecaster.forecast.writer import check_suffix, write_figure
from forecaster.options import DataOptions

if TYPE_CHECKING:
    from forecaster.panel.panel import Panel


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


def put(
    result: Any, rows: Path | None, picture: Path | None, page: Path | None = None
) -> dict[str, Path | None]:
    """Writes the rows of a result, then its picture and page; a drawing that fails is a warning.

    Returns:
        Those that were written: out, plot and report.
    """
    from forecaster.runs.console import Screen

    if rows is not None:
        result.write(rows)
        typer.echo(f"wrote {rows}")

    def drawn(path: Path, draw: Callable[[], None]) -> bool:
        return Screen(stderr=True).attempt(str(path), draw, "everything else is complete", OutputError)

    made: dict[str, Path | None] = {"out": rows, "plot": None, "report": None}
    if picture is not None and drawn(picture, lambda: write_figure(result.plot(), picture)):
        typer.echo(f"drew {picture}")
        made["plot"] = picture
    if page is not None and drawn(page, lambda: result.report(page)):
        typer.echo(f"wrote {page}")
        made["report"] = page
    return made


def about_table(panel: Panel) -> dict[str, Any]:
    """Returns the roles of the columns of a table, and its size."""
    names = ("column", "role", "kind", "because")
    return {
        "columns": [dict(zip(names, row, strict=True)) for row in panel.schema.rows()],
        "layout": panel.schema.layout,
        "series": panel.n_series,
        "channels": panel.n_channels,
        "rows": panel.n_rows,
        "frequency": panel.calendar.freq,
        "regular": panel.regular,
        "season_length": panel.calendar.season_length,
    }


def about_fit(model: api.Model[Any]) -> dict[str, Any]:
    """Returns what a fit has learned, and its scores on validation rows."""
    names = ("steps", "best_step", "ended", "network_weight", "expert_weights")
    return {
        "kind": type(model).__name__.lower(),
        "horizon": model.config.horizon,
        **{name: model.metrics.get(name) for name in names},
        "scores": model.metrics.get("validation", {}).get("scores", {}),
    }


def about_scores(result: Any) -> dict[str, Any]:
    """Returns the scores of a backtest by model, as they are printed, and the verdict."""
    scores = {row.pop("model"): row for row in rows_in(result.summary_columns)}
    found = {"scores": scores, "verdict": result.verdict}
    if not isinstance(result.scored, int):  # of classes
        confusion = rows_in(result.confusion_columns)
        return found | {"scored": result.scored.sum(), "confusion": confusion}
    return found | {
        "cutoffs": len(result.forecasts),
        "scored": result.scored,
        "unscored": result.unscored,
        "by_level": rows_in(result.level_columns),
    }


def rows_in(columns: Mapping[str, Sequence[Any]] | None) -> list[dict[str, Any]]:
    """Returns columns as rows by name; none where there are no columns."""
    names = [*(columns or ())]
    return [dict(zip(names, row, strict=True)) for row in zip(*(columns or {}).values(), strict=True)]


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
