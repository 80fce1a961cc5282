"""What is said about a table before anything is done with it; no model is needed for that.

What comes in: a panel, and what is remarkable about it. What goes out: lines and tables on a console.
"""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from forecaster.panel.findings import SEVERITIES, Finding, worst_first
from forecaster.panel.panel import Panel
from forecaster.panel.periods import find_periods


def roles(console: Console, panel: Panel) -> None:
    """Says which column is what, and why."""
    table = Table(title=escape(panel.name), title_justify="left", box=None, pad_edge=False)
    for heading in ("column", "role", "kind", "because"):
        table.add_column(heading, overflow="fold")
    for row in panel.schema.rows():
        table.add_row(*map(escape, row))
    console.print(table)
    grid = "regular" if panel.regular else "irregular: rows as observed"
    values = panel.values[:, : panel.n_channels]
    found = find_periods(values, panel.indptr) if panel.regular else ()
    repeats = ", ".join(f"{period.steps} steps ({period.share:.0%})" for period in found)
    calendar = panel.calendar
    season = f"{calendar.season_length} steps"
    if calendar.integer and calendar.season is None and found:
        season = f"{found[0].steps} steps, found in the data"
    say(
        console,
        f"{panel.schema.layout} layout · {panel.n_series:,} series · "
        f"{panel.n_channels} channel{'s' * (panel.n_channels > 1)} · {panel.n_rows:,} rows · "
        f"frequency {calendar.freq} ({grid}) · season {season}"
        + (f" · repeats every {repeats}" if repeats else ""),
    )


def findings(console: Console, found: Sequence[Finding]) -> None:
    """Says what is remarkable about a table, worst first, with what to do about it."""
    styles = {"error": "red", "warning": "yellow", "note": "cyan"}
    table = Table.grid(padding=(0, 2))
    for _ in range(2):
        table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for finding in worst_first(found):
        text = Text(finding.text)
        if finding.first:
            text.append(f" (first: {finding.first})")
        if finding.advice:
            text.append(f"\n→ {finding.advice}", style="dim")
        severity = Text(finding.severity, style=styles[finding.severity])
        table.add_row(severity, Text(finding.rule), text)
    if found:
        console.print(table)


def count(console: Console, found: Sequence[Finding]) -> None:
    """Says how many errors, warnings and notes there are."""
    words = []
    for severity in SEVERITIES:
        number = sum(finding.severity == severity for finding in found)
        words.append(f"{number} {severity}{'s' * (number != 1)}")
    say(console, ", ".join(words))


def say(console: Console, text: str, style: str | None = None) -> None:
    """Prints a sentence as it is: names with brackets are no markup, long lines stay whole."""
    console.print(text, style=style, soft_wrap=True, markup=False, highlight=False)
