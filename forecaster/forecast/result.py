"""What all results in rows have: the rows as the caller's kind of frame, and as a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

from forecaster.arguments import typed
from forecaster.forecast.writer import write_rows
from forecaster.lazy import AnyFrame, PandasFrame
from forecaster.panel.frames import PolarsFrame, to_kind, to_pandas
from forecaster.panel.panel import Panel


class HasRows(Protocol):
    """Has rows about a table."""

    @property
    def panel(self) -> Panel:
        """The table."""

    @property
    def rows(self) -> PolarsFrame:
        """A polars frame, keyed as the table is."""


class Predicted(HasRows, Protocol):
    """What is predicted of the series of a table."""

    @property
    def lost(self) -> tuple[int, str]:
        """How many have nothing predicted, and the most frequent reason."""


class Result:
    """The rows of a subclass as a frame and as a file."""

    def __repr__(self: Any) -> str:
        return f"{type(self).__name__}({self.report})"

    @property
    def frame(self: HasRows) -> AnyFrame:
        """The rows as the kind of frame of the input (a file gives polars)."""
        return to_kind(self.rows, self.panel.kind, self.panel.original)

    def to_polars(self: HasRows) -> PolarsFrame:
        """Returns the rows as a polars frame, whatever the input was."""
        return self.rows

    def to_pandas(self: HasRows) -> PandasFrame:
        """Returns the rows as a pandas frame, whatever the input was."""
        return to_pandas(self.rows, self.panel.original)

    @typed
    def write(self: HasRows, path: str | Path) -> None:
        """Writes the rows to a .csv, .parquet or .xlsx file, whole or not at all.

        Raises:
            OutputError: the suffix is none of them, or the file cannot be written.
        """
        write_rows(self.rows, Path(path), self.panel.as_text)
