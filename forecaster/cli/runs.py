"""`forecaster runs`: the runs recorded in MLflow."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from forecaster.cli import document, options
from forecaster.errors import ConfigError, number_of, visible

if TYPE_CHECKING:
    from forecaster.runs.tracking import RunRow

app = typer.Typer(help="List recorded runs, or copy local ones to their store.")


@app.callback(invoke_without_command=True)
def runs(
    context: typer.Context,
    limit: Annotated[int, typer.Option(min=1, help="Number of runs, the newest ones.")] = 20,
    experiment: Annotated[str | None, typer.Option(help="Runs of one experiment only.")] = None,
    trials: Annotated[bool, typer.Option("--trials", help="Include the trials of sweeps.")] = False,
    uri: options.Store = None,
) -> dict[str, Any]:
    """List recorded runs, newest first, or copy local ones to their store."""
    if context.invoked_subcommand is not None:
        return {}
    from forecaster.config import TrackingConfig
    from forecaster.runs.tracking import list_runs, pending

    rows = list_runs(TrackingConfig(uri=uri), experiment, limit, trials)
    _show(rows)
    if waiting := len(pending()):
        typer.echo(
            f"{number_of(waiting, 'run')} in the local store only; copy with: forecaster runs sync"
        )
    return {"runs": rows, "local_only": waiting}


@app.command("sync")
def sync(
    uri: Annotated[
        str | None, typer.Option(help="MLflow store; default: the one each run was meant for.")
    ] = None,
) -> dict[str, Any]:
    """Copy the runs that were logged locally, because their store was away."""
    from forecaster.runs import tracking

    done = tracking.sync(uri)
    for store, count in done.sent.items():
        typer.echo(f"copied {number_of(count, 'run')} to {store}")
    for line in done.refused:
        typer.echo(f"refused by the store, and left out: {visible(line)}", err=True)
    if done.busy:
        typer.echo(f"{number_of(done.busy, 'run')} still being written; sync again later")
    away = [
        f"MLflow store {store}: {reason}; {number_of(count, 'run')} not copied"
        for store, (count, reason) in done.away.items()
    ]
    for line in away:
        typer.echo(f"error: {line}", err=True)
    if not (done.sent or done.busy or done.away):
        typer.echo("no run to copy")
    answer = {"copied": done.sent, "refused": done.refused, "busy": done.busy}
    if away:
        answer |= {"exit_code": 2, "error": document.fault_of(ConfigError("\n".join(away)))}
    return answer


def _show(rows: list[RunRow]) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    def cell(text: str) -> str:  # the one of runs.console, without its imports
        return escape(visible(text))

    if not rows:
        typer.echo("no runs recorded")
        return
    several = len({row.experiment for row in rows}) > 1
    table = Table(box=None, pad_edge=False)
    for heading, folds in (("run", False), ("name", True), ("data", True), ("kind", True)):
        table.add_column(heading, overflow="fold", no_wrap=not folds)
    for heading in ("WQL", "skill"):
        table.add_column(heading, justify="right", no_wrap=True)
    for heading in ("when", "state", "experiment")[: 2 + several]:
        table.add_column(heading, no_wrap=True)
    for row in rows:
        kind = row.kind if row.trials is None else f"{row.kind}, {row.trials} trials"
        words = (row.run_id[:8], row.name, row.data or "-", kind)
        wql = "-" if row.wql is None else f"{row.wql:.4f}"
        skill = "-" if row.skill is None else f"{row.skill:+.1%}"
        began = datetime.fromisoformat(row.when).astimezone().strftime("%Y-%m-%d %H:%M")
        last = (began, row.state, cell(row.experiment))[: 2 + several]
        table.add_row(*map(cell, words), wql, skill, *last)
    console = Console()
    # Wide where no terminal folds the lines.
    (console if console.is_terminal else Console(width=200)).print(table)
    if not several:
        typer.echo(f"experiment {visible(rows[0].experiment)}")
