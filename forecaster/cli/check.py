"""`forecaster check`: a table → the role of each column, and findings before any training."""

from __future__ import annotations

import json as json_format
from dataclasses import asdict
from typing import Annotated, Any

import typer

from forecaster import api
from forecaster.cli import options
from forecaster.errors import DataError, visible


@options.flags_of(api.check)
def check(
    json: Annotated[bool, typer.Option("--json", help="Print findings as JSON.")] = False, **given: Any
) -> None:
    """Show the role of every column, and what may go wrong.

    Exits with 2 when the table cannot be understood.
    """

    from forecaster.panel.findings import Finding, findings_of, worst_first
    from forecaster.runs.console import Screen

    findings: list[Finding]
    try:
        findings = api.check(**given)
    except DataError as error:
        findings = worst_first(findings_of(error))
    errors = [finding for finding in findings if finding.severity == "error"]
    if json:
        typer.echo(json_format.dumps([asdict(finding) for finding in findings], indent=1))
    else:
        console = Screen()
        if isinstance(findings, api.TableCheck):
            console.print_roles(findings.panel)
        for finding in errors:  # to standard error, as those of every verb
            typer.echo(f"error: {visible(finding.line())}", err=True)
        console.print_findings(findings[len(errors) :])
        console.print_counts(findings)
    if errors:
        raise typer.Exit(2)
