"""`forecaster check`: a table → the role of each column, and findings before any training."""

from __future__ import annotations

from typing import Any

import typer

from forecaster import api
from forecaster.cli import document, options, results
from forecaster.errors import DataError, visible


@options.flags_of(api.check)
def check(**given: Any) -> dict[str, Any]:
    """Show the role of every column, and what may go wrong.

    Exits with 2 when the table cannot be understood.
    """

    from forecaster.panel.findings import Finding, findings_of, worst_first
    from forecaster.runs.console import Screen

    findings: list[Finding]
    answer: dict[str, Any] = {}
    try:
        findings = api.check(**given)
    except DataError as error:
        findings = worst_first(findings_of(error))
    errors = [finding for finding in findings if finding.severity == "error"]
    console = Screen()
    if isinstance(findings, api.TableCheck):
        console.print_roles(findings.panel)
        answer = results.about_table(findings.panel)
    for finding in errors:  # to standard error, as those of every verb
        typer.echo(f"error: {visible(finding.line())}", err=True)
    console.print_findings(findings[len(errors) :])
    console.print_counts(findings)
    if errors:
        refusal = DataError("\n".join(finding.line() for finding in errors), errors)
        answer |= {"exit_code": 2, "error": document.fault_of(refusal)}
    return {**answer, "findings": findings}
