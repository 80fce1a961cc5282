"""`forecaster check`: what is remarkable about a table, before any training."""

from __future__ import annotations

import json as json_format
from dataclasses import asdict
from typing import Annotated

import typer

from forecaster.cli import options
from forecaster.errors import DataError


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
    from forecaster.panel.findings import findings_of, worst_first
    from forecaster.runs.console import print_counts, print_findings, print_roles

    panel = None
    try:
        panel = open_panel(data, config.data, covariates=covariates, future=future)
        findings = check_panel(panel, horizon)
    except DataError as error:
        findings = worst_first(findings_of(error))
    errors = [finding for finding in findings if finding.severity == "error"]
    if json:
        typer.echo(json_format.dumps([asdict(finding) for finding in findings], indent=1))
    else:
        console = Console()
        if panel is not None:
            print_roles(console, panel)
        # Errors go where those of every verb go.
        for finding in errors:
            typer.echo(f"error: {finding.line()}", err=True)
        print_findings(console, findings[len(errors) :])
        print_counts(console, findings)
    if errors:
        raise typer.Exit(2)
