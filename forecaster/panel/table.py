"""A table as it was read: a frame, the name messages use for it, and what was noticed on the way."""

from __future__ import annotations

import bisect
import itertools
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import polars as pl

from forecaster.errors import DataError, nearest
from forecaster.panel.findings import Finding
from forecaster.panel.timestamps import WrittenTimes


@dataclass(frozen=True)
class Table:
    """A frame and where it came from."""

    frame: pl.DataFrame
    """The rows in their original order."""
    name: str
    """Path, glob, or "the pandas frame": used in messages."""
    kind: str
    """"polars", "pandas", "pyarrow" or "file": the kind of frame that results are returned as."""
    notes: tuple[Finding, ...] = ()
    """What was noticed while reading."""
    parts: tuple[tuple[str, int], ...] = ()
    """Names and numbers of rows of the files, where several became one table."""
    numbers: pl.Series | None = None
    """Each row's number in the table that this one is a part of; None = it is whole."""
    times: WrittenTimes | None = None
    """How the column of times was written, once it is parsed; None = not parsed."""

    def place(self, row: int) -> str:
        """Returns a row, counted from 1 after the header, as messages name it.

        Example:
            >>> Table(pl.DataFrame(), "*.csv", "file", parts=(("a.csv", 3), ("b.csv", 9))).place(5)
            'b.csv row 2'
        """
        if self.numbers is not None:
            row = int(self.numbers[row - 1])
        if not self.parts:
            return f"row {row}"
        ends = list(itertools.accumulate(rows for _, rows in self.parts))
        part = bisect.bisect_left(ends, row)
        name, rows = self.parts[part]
        return f"{name} row {row - ends[part] + rows}"


def merge_notes(notes: Iterable[Finding]) -> tuple[Finding, ...]:
    """Returns the notes, with equal ones on several files merged and counted."""
    found: dict[tuple[str, str], Finding] = {}
    for note in notes:
        first = found.get((note.rule, note.text))
        found[note.rule, note.text] = (
            note if first is None else replace(first, count=first.count + note.count)
        )
    return tuple(found.values())


def did_you_mean(name: str, known: Sequence[str]) -> str:
    """Returns "; did you mean 'x'?" for the nearest known name, or nothing."""
    near = nearest(name, known, cutoff=0.6)
    return f"; did you mean '{near}'?" if near else ""


def listing(names: Sequence[str]) -> str:
    """Returns names for a message: all of a few, the first of many with their count."""
    shown = ", ".join(names[:20])
    return shown if len(names) <= 20 else f"{shown}, ... ({len(names)} in all)"


def check_unique(names: Sequence[str], where: str) -> None:
    """Raises a DataError that lists the names, surrounding blanks aside, that occur more than once."""
    counts = Counter(name.strip() for name in names)
    repeated = [f"'{name}' {count} times" for name, count in counts.items() if count > 1]
    if repeated:
        raise DataError(f"{where}: expected one column per name, found {', '.join(repeated)}; rename")


def one_line(error: BaseException) -> str:
    """Returns another library's error message, shortened to one line."""
    return " ".join(str(error).split("\n\n")[0].split())[:200]
