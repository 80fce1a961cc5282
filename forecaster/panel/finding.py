"""What is wrong with a table, or only worth knowing: one `Finding` each.

What comes in: what reading, building and auditing a panel noticed. What goes out: lines for people,
mappings for machines, or one `DataError` that holds every error at once.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from forecaster.errors import DataError

Severity = Literal["error", "warning", "note"]


@dataclass(frozen=True)
class Finding:
    """One thing a reader should know before a forecast is trusted."""

    severity: Severity
    """error: the table cannot be understood; warning: forecasts may suffer; note: good to know."""
    rule: str
    """Short name of what was looked for, as "duplicates"."""
    text: str
    """What was found; an error says what was expected, what was found, and where."""
    advice: str
    """The flag or edit that repairs it."""
    series: str = ""
    """Label of the first series concerned; empty where it concerns the table."""
    where: str = ""
    """First row, timestamp or column concerned."""
    count: int = 1
    """How many rows, cells or series, as the text says."""

    def line(self) -> str:
        """Returns the finding as one line."""
        if self.severity == "error":
            return f"{self.text}; {self.advice}"
        first = ", ".join(
            part for part in (self.series and f"series {self.series}", self.where) if part
        )
        return (
            f"{self.severity} {self.rule}: {self.text}{first and f' (first: {first})'}; {self.advice}"
        )


def worst_first(findings: Iterable[Finding]) -> list[Finding]:
    """Returns errors, then warnings, then notes, otherwise in their order."""
    return sorted(findings, key=lambda finding: ("error", "warning", "note").index(finding.severity))


def refuse_errors(findings: Iterable[Finding]) -> None:
    """Does nothing where there is no error among findings.

    Raises:
        DataError: one line per error, all errors at once.
    """
    errors = [finding for finding in findings if finding.severity == "error"]
    if errors:
        raise DataError("\n".join(error.line() for error in errors), errors)
