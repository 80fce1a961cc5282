"""Findings: what is wrong with a table, or worth knowing, as reading, building and auditing report it.

They become lines for people, mappings for machines, or one `DataError` with every error of a stage.
"""

from __future__ import annotations

import glob
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Literal, Self

from forecaster.errors import DataError, nearest

if TYPE_CHECKING:
    import polars as pl

Severity = Literal["error", "warning", "note"]
SEVERITIES: tuple[Severity, ...] = ("error", "warning", "note")


OTHER_STEP = "have another step than"
"""In the text of a warning: values of these series are not of the step that the table is forecast by."""


@dataclass(frozen=True)
class Finding:
    """One thing a reader should know before a forecast is trusted."""

    severity: Severity
    """error: the table is refused; warning: forecasts may suffer; note: good to know."""
    rule: str
    """Short name of the check, as "duplicates"."""
    text: str
    """What was found; an error says what was expected, what was found, and where."""
    advice: str
    """The flag or edit that repairs it."""
    series: str = ""
    """Name of the first series concerned; empty where it concerns the table."""
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


printed_findings: ContextVar[dict[Finding, None] | None] = ContextVar("printed_findings", default=None)
"""Collects what is printed, in its order and once; None = nothing does."""


def worst_first(findings: Iterable[Finding]) -> list[Finding]:
    """Returns errors, then warnings, then notes, otherwise in their order."""
    return sorted(findings, key=lambda finding: SEVERITIES.index(finding.severity))


def refuse_errors(findings: Iterable[Finding]) -> None:
    """Raises all errors among findings as one `DataError`, a line each."""
    errors = [finding for finding in findings if finding.severity == "error"]
    if errors:
        raise DataError("\n".join(error.line() for error in errors), errors)


def fault(
    rule: str, text: str, advice: str, *, series: str = "", where: str = "", count: int = 1
) -> DataError:
    """Returns the error of a single finding, to be raised."""
    finding = Finding("error", rule, text, advice, series, where, count)
    return DataError(finding.line(), [finding])


def row_fault(
    rule: str,
    where: str,
    expected: str,
    cells: pl.Series,
    bad: pl.Series,
    advice: str,
    place: Callable[[int], str] = "row {}".format,
) -> DataError:
    """Returns the error of the rows where `bad` is true: names the first with its cell, counts all.

    Args:
        where: table and column.
        cells: what the rows hold.
        place: returns a row, counted from 1, as messages name it.
    """
    first, count = int(bad.arg_true()[0]), int(bad.sum())
    cell, row = cells[first], place(first + 1)
    found = "none" if cell is None else f"'{cell}'" if isinstance(cell, str) else cell
    text = f"{where}: expected {expected}, found {found} in {row} ({count} such rows)"
    return fault(rule, text, advice, where=row, count=count)


def findings_of(error: DataError, rule: str = "table") -> list[Finding]:
    """Returns the findings of an error; one per line, of this rule, where it carries none."""
    lines = str(error).splitlines()
    return list(error.findings) or [Finding("error", rule, line, "") for line in lines]


def summed(notes: Iterable[Finding]) -> tuple[Finding, ...]:
    """Returns the notes on parts of a table, or on its files, as notes on the whole: counts are added up."""
    found: dict[tuple[str, ...], Finding] = {}
    for note in notes:
        kind = (note.severity, note.rule, note.advice, *_COUNTS.split(note.text))
        if (first := found.get(kind)) is None:
            found[kind] = note
            continue
        text = first.text
        if text != note.text:
            counts = zip(_COUNTS.findall(text), _COUNTS.findall(note.text), strict=True)
            sums = [f"{sum(int(part.replace(',', '')) for part in pair):,}" for pair in counts]
            begin, *words = _COUNTS.split(text)
            text = begin + "".join(map("".join, zip(sums, words, strict=True)))
        found[kind] = replace(first, count=first.count + note.count, text=text)
    return tuple(found.values())


_COUNTS = re.compile(r"(?<![\w'.:+-])\d+(?:,\d{3})*(?![\w'.:-])")


@contextmanager
def beside(notes: Sequence[Finding]) -> Iterator[None]:
    """Adds the warnings and notes found so far to a `DataError` that is raised inside."""
    try:
        yield
    except DataError as error:
        error.findings = (*findings_of(error), *(note for note in notes if note.severity != "error"))
        raise


class Faults:
    """Gathers the errors of one stage, so that all of them are reported at once.

    Every check that does not need another's result runs in its own `with faults:`, which ends early
    where the check fails; `refuse` then raises what was gathered.
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


def check_paths(*tables: object) -> None:
    """Raises DataError where tables are paths that lead nowhere; patterns and addresses are not tried."""
    faults = Faults("unreadable")
    for source in (str(table) for table in tables if isinstance(table, str | Path)):
        with faults:
            if re.search("[\0\ud800-\udfff]", source):
                raise fault("no-file", f"{source!r}: not a name in UTF-8", "rename the file")
            path = Path(source).expanduser()
            if "://" in source or path.exists() or glob.has_magic(source):
                continue
            folder = path.resolve().parent
            near = sorted(other.name for other in folder.iterdir()) if folder.is_dir() else []
            hint = did_you_mean(path.name, near)
            raise fault("no-file", f"{source}: no such file (looked for {path.resolve()}){hint}", "")
    faults.refuse()


def did_you_mean(name: str, known: Sequence[str]) -> str:
    """Returns "; did you mean 'x'?" for the nearest known name, or nothing."""
    near = nearest(name, known, cutoff=0.6)
    return f"; did you mean '{near}'?" if near else ""


def words_of(name: str) -> set[str]:
    """Returns the words of a column's name: storeId and store_id have the same."""
    return set(snake(name).split("_"))


def snake(name: str) -> str:
    """Returns a column's name in small letters, with a _ between its words."""
    return re.sub("[^a-z]+", "_", re.sub("(?<=[a-z])(?=[A-Z])", "_", name).lower())


def listing(names: Sequence[str], most: int = 20) -> str:
    """Returns names for a message: all of a few, the first of many with their count; each in one short line."""
    shown = ", ".join(_short(name) for name in names[:most])
    return shown if len(names) <= most else f"{shown}, ... ({len(names)} in all)"


def _short(name: str, most: int = 200) -> str:
    """Returns a name in one line; a quotation mark without an end makes a name of the rest of a file."""
    line = " ".join(name.splitlines())
    return line if len(line) <= most else f"{line[:most]}..."


def one_line(error: BaseException) -> str:
    """Returns another library's error message, shortened to one line."""
    return " ".join(str(error).split("\n\n")[0].split())[:200]
