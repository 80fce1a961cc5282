"""What is said before, during and after work, so that nobody has to guess what was inferred.

What comes in: a panel, a plan, an artifact. What goes out: lines and small tables on a console.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from forecaster.config import Config
from forecaster.evaluation.backtest import MODEL, NAIVE, Backtest
from forecaster.forecast.artifact import Artifact
from forecaster.panel.audit import Finding
from forecaster.panel.panel import Panel
from forecaster.runs.tracking import TrackedRun, ui_command
from forecaster.windows.split import Split


def roles(console: Console, panel: Panel) -> None:
    """Says which column is what, and why."""
    table = Table(title=f"{panel.name}", title_justify="left", box=None, pad_edge=False)
    for heading in ("column", "role", "kind", "because"):
        table.add_column(heading, overflow="fold")
    for row in panel.schema.rows():
        table.add_row(*row)
    console.print(table)
    grid = "regular" if panel.regular else "irregular: rows as observed"
    console.print(
        f"{panel.schema.layout} layout · {panel.n_series:,} series · "
        f"{panel.n_channels} channel{'s' * (panel.n_channels > 1)} · {panel.n_rows:,} rows · "
        f"frequency {panel.calendar.freq} ({grid}) · season {panel.calendar.season_length} steps"
    )


def findings(console: Console, found: Sequence[Finding]) -> None:
    """Says what is remarkable about a table, worst first."""
    colors = {"error": "red", "warning": "yellow", "note": "cyan"}
    for finding in found:
        color = colors[finding.severity]
        console.print(
            f"[{color}]{finding.severity}[/] {finding.rule}: {finding.text} "
            f"(first: series {finding.series}, {finding.where}); {finding.advice}",
            soft_wrap=True,
        )
    if not found:
        console.print("no findings")


def plan(console: Console, panel: Panel, config: Config, split: Split) -> None:
    """Says what will be trained on what."""
    roles(console, panel)
    text = panel.calendar.text
    model = config.model
    console.print(
        f"horizon {config.horizon} · context {model.context_length} · patches of {model.patch} and "
        f"{model.decoder_patch} · width {model.width} · {model.encoder_layers} + "
        f"{model.decoder_layers} layers"
    )
    train, held = len(split.train), len(split.validation)
    if held:
        stride = split.validation.stride
        thinned = f", every {stride} steps" if stride > 1 else ""
        console.print(
            f"trains on {train:,} windows until {text(split.split)}, validates on {held:,} "
            f"windows{thinned} until {text(split.end)}"
        )
    else:
        console.print(
            f"trains on {train:,} windows until {text(split.end)}; no rows to set aside for "
            "validation, so all steps are run and the last weights kept"
        )


def scores(console: Console, artifact: Artifact) -> None:
    """Says how the validation went, losses as plainly as wins."""
    found = artifact.metrics
    line = f"{found['steps']} steps"
    if "validation" in found:
        line += f", best at {found['best_step']}"
        mine, naive = (found["validation"]["scores"][name] for name in (MODEL, NAIVE))
        verdict = "beats" if mine["skill"] > 0 else "loses to"
        line += (
            f" · validation WQL {mine['WQL']:.4f} {verdict} seasonal naive {naive['WQL']:.4f} "
            f"(skill {100 * mine['skill']:+.1f} %)"
        )
    console.print(line)


def saved(console: Console, out: Path | None, run: TrackedRun) -> None:
    """Says where things are, and what became of the tracking."""
    if out is not None:
        console.print(f"saved {out}", soft_wrap=True)
    if run.lost:
        folder = out or "FOLDER"
        console.print(f"[yellow]not tracked[/]: MLflow store {run.uri}: {run.lost}", soft_wrap=True)
        console.print(f"log this run later with: forecaster runs log {folder}", soft_wrap=True)
    elif run.recorded:
        console.print(f"tracked, see it with: {ui_command(run.uri)}", soft_wrap=True)


def cutoff(console: Console, panel: Panel, time: int, fitted_at: int | None) -> None:
    """Says which cutoff is forecast by which weights."""
    text = panel.calendar.text
    by = "the model as it is" if fitted_at is None else f"weights fitted until {text(fitted_at)}"
    console.print(f"cutoff {text(time)}: {by}")


def summary(console: Console, backtest: Backtest) -> None:
    """Says how the models compare, and which one is better."""
    table = Table(box=None, pad_edge=False)
    table.add_column("model")
    names = list(backtest.scores[MODEL])
    for name in names:
        table.add_column(name, justify="right")
    for model, mine in backtest.scores.items():
        table.add_row(model, *(f"{mine[name]:.4g}" for name in names))
    console.print(table)
    console.print(
        f"{len(backtest.forecasts)} cutoffs · {backtest.scored:,} cells scored, "
        f"{backtest.unscored:,} without a truth or a forecast · {MODEL} {backtest.verdict}"
    )
