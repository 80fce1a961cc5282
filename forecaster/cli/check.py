"""`forecaster check`: what is remarkable about a table, before any training."""

from __future__ import annotations

import json as json_format
from dataclasses import asdict
from typing import Annotated

import typer

from forecaster.cli import options


@options.reads_table
def check(
    data: options.Data,
    horizon: options.Horizon = None,
    future: options.Future = None,
    covariates: options.Covariates = None,
    json: Annotated[bool, typer.Option("--json", help="Print findings for machines.")] = False,
    *,
    told: options.Told,
) -> None:
    """Show what every column is taken for, and what may go wrong.

    Exits with 2 when the table cannot be understood.
    """
    config = options.settings(None, None, horizon, told)
    from rich.console import Console

    from forecaster.panel.audit import check_panel
    from forecaster.panel.build import open_panel
    from forecaster.runs import announce

    panel = open_panel(data, config.data, covariates=covariates, future=future)
    findings = check_panel(panel, horizon)
    if json:
        typer.echo(json_format.dumps([asdict(finding) for finding in findings], indent=1))
    else:
        console = Console()
        announce.roles(console, panel)
        announce.findings(console, findings)
    if any(finding.severity == "error" for finding in findings):
        raise typer.Exit(2)
