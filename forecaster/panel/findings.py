"""What is wrong with a table, or only worth knowing: one `Finding` each.

What comes in: what reading, building and auditing a panel noticed. What goes out: lines for people,
mappings for machines, or one `DataError` that holds every error of a stage at once.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Literal, Self

from forecaster.errors import DataError

Severity = Literal["error", "warning", "note"]
SEVERITIES: tuple[Severity, ...] = ("error", "warning", "note")


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

    @property
    def first(self) -> str:
        """The first series and place concerned, as "series a, 2024-01-05"; may be empty."""
        return ", ".join(part for part in (self.series and f"series {self.series}", self.where) if part)

    def line(self) -> str:
        """Returns the finding as one line."""
        if self.severity == "error":
            return f"{self.text}; {self.advice}" if self.advice else self.text
        first = f" (first: {self.first})" if self.first else ""
        return f"{self.severity} {self.rule}: {self.text}{first}; {self.advice}"


def worst_first(findings: Iterable[Finding]) -> list[Finding]:
    """Returns errors, then warnings, then notes, otherwise in their order."""
    return sorted(findings, key=lambda finding: SEVERITIES.index(finding.severity))


def refuse_errors(findings: Iterable[Finding]) -> None:
    """Does nothing where there is no error among findings.

    Raises:
        DataError: one line per error, all errors at once.
    """
    errors = [finding for finding in findings if finding.severity == "error"]
    if errors:
        raise DataError("\n".join(error.line() for error in errors), errors)


def fault(
    rule: str, text: str, advice: str, *, series: str = "", where: str = "", count: int = 1
) -> DataError:
    """Returns the error of a single finding, to be raised."""
    finding = Finding("error", rule, text, advice, series, where, count)
    return DataError(finding.line(), [finding])


def findings_of(error: DataError, rule: str = "table") -> list[Finding]:
    """Returns what an error holds; its lines become findings where it names none.

    Args:
        error: any.
        rule: name of findings made from lines.
    """
    lines = str(error).splitlines()
    return list(error.findings) or [Finding("error", rule, line, "") for line in lines]


@contextmanager
def beside(notes: Sequence[Finding]) -> Iterator[None]:
    """Adds what was noticed so far to an error that ends the work inside.

    Args:
        notes: read when the error comes; errors among them are told by it.
    """
    try:
        yield
    except DataError as error:
        noticed = (note for note in notes if note.severity != "error")
        error.findings = (*findings_of(error), *noticed)
        raise


class Faults:
    """Gathers the errors of one stage, so that they are told at once.

    Every check that does not need another's result runs inside its own `with faults:`, which ends
    early where the check fails; `refuse` then raises what was gathered.
    """

    def __init__(self, rule: str = "table"):
        self.found: list[Finding] = []
        self._rule = rule

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if not isinstance(error, DataError):
            return False
        self.found += findings_of(error, self._rule)
        return True

    def refuse(self) -> None:
        """Raises everything gathered, as `refuse_errors` does."""
        refuse_errors(self.found)


def summed(notes: Iterable[Finding]) -> tuple[Finding, ...]:
    """Returns the notes on parts of a table as those on the whole: what they count is added up."""
    found: dict[tuple[str, ...], Finding] = {}
    for note in notes:
        kind = (note.severity, note.rule, note.advice, *_COUNTS.split(note.text))
        first = found.get(kind)
        if first is None:
            found[kind] = note
        elif f"{first.count:,}" in _COUNTS.findall(first.text):
            sums = map(_sum, _COUNTS.findall(first.text), _COUNTS.findall(note.text))
            words = _COUNTS.split(first.text)
            text = "".join(part for pair in zip(words, [*sums, ""], strict=True) for part in pair)
            found[kind] = replace(first, count=first.count + note.count, text=text)
    return tuple(found.values())


_COUNTS = re.compile(r"(?<![\w'.:+-])\d+(?:,\d{3})*(?![\w'.:-])")


def _sum(one: str, other: str) -> str:
    return f"{int(one.replace(',', '')) + int(other.replace(',', '')):,}"
