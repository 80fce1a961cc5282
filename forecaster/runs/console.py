"""Console output of fits, backtests and searches: inferred roles, plan, scores, findings."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from io import StringIO
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape
from rich.progress import Progress, ProgressColumn
from rich.table import Column, Table
from rich.text import Text

from forecaster.errors import first_line, number_of, visible
from forecaster.forecast.writer import NEEDS_MATPLOTLIB, can_draw
from forecaster.panel.findings import SEVERITIES, Finding, printed_findings, worst_first
from forecaster.panel.panel import Panel
from forecaster.panel.periods import find_periods, period_words

if TYPE_CHECKING:
    from forecaster.evaluation.backtest import Backtest
    from forecaster.evaluation.class_backtest import ClassBacktest
    from forecaster.runs.tracking import TrackedRun


_SHORT = 2.0  # seconds that a stage may be silent


class Screen(Console):
    """A console that prints what fits, backtests and searches do."""

    @contextmanager
    def stage(self, doing: str) -> Iterator[None]:
        """Prints what is done once it has taken two seconds and, at its end, how many it took."""
        begun, shown = time.monotonic(), threading.Event()

        def show() -> None:
            shown.set()
            self.print(doing, end=" … ", markup=False, highlight=False)

        timer = threading.Timer(_SHORT, show)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            timer.join()
            if shown.is_set():
                self.print_line(f"{time.monotonic() - begun:,.0f} s")

    def attempt(
        self,
        name: str,
        draw: Callable[[], object],
        kept: str,
        refuses: type[Exception] | tuple[()] = (),
    ) -> bool:
        """Calls `draw`; its failure costs no result and is a warning. Returns whether it went well.

        Args:
            name: of the picture or page.
            draw: makes it.
            kept: the result, as "the model itself is complete".
            refuses: an error that is raised all the same.
        """
        try:
            draw()
            return True
        except refuses:
            raise
        except Exception as error:  # whatever a drawing raises, the result matters more
            self.print_notice(f"no {name}: {first_line(error)}; {kept}")
            return False

    def draw(self, drawings: Mapping[str, Callable[[], object]], kept: str) -> bool:
        """Attempts each drawing, by name; returns whether all went well. Without matplotlib: one line for all."""
        if drawings and not can_draw():
            self.print_notice(f"no {', '.join(drawings)}: {NEEDS_MATPLOTLIB}; {kept}")
            return False
        return all([self.attempt(name, draw, kept) for name, draw in drawings.items()])

    def print_roles(self, panel: Panel) -> None:
        """Prints which column is what, and why."""
        title = {"title": cell(panel.name), "title_justify": "left"}
        self.print_words(("column", "role", "kind", "because"), panel.schema.rows(), **title)
        grid = "regular" if panel.regular else "irregular: rows as observed"
        values = panel.values[:, : panel.n_channels]
        found = find_periods(values, panel.indptr) if panel.regular else ()
        calendar = panel.calendar
        of = "channels" if panel.n_channels > 1 else "series" * (panel.n_series > 1)
        repeats = period_words(found, calendar, of)
        season = f"{calendar.season_length} steps"
        if calendar.integer and calendar.season is None and found:
            season = f"{found[0].steps} steps, found in the data"
        self.print_line(
            f"{panel.schema.layout} layout · {panel.n_series:,} series · "
            f"{number_of(panel.n_channels, 'channel')} · {panel.n_rows:,} rows · "
            f"frequency {calendar.freq} ({grid}) · season {season}"
            + (f" · repeats every {repeats}" if repeats else "")
        )

    def print_findings(self, found: Sequence[Finding]) -> None:
        """Prints what is remarkable about a table, worst first, with what to do about it."""
        if (printed := printed_findings.get()) is not None:
            printed |= dict.fromkeys(worst_first(found))
        styles = {"error": "red", "warning": "yellow", "note": "cyan"}
        table = Table.grid(
            Column(no_wrap=True), Column(no_wrap=True), Column(overflow="fold"), padding=(0, 2)
        )
        for finding in worst_first(found):
            text = Text(visible(finding.text))
            if finding.first:
                text.append(f" (first: {visible(finding.first)})")
            if finding.advice:
                text.append(f"\n→ {visible(finding.advice)}", style="dim")
            severity = Text(finding.severity, style=styles[finding.severity])
            table.add_row(severity, Text(finding.rule), text)
        if found:
            self.print(table)

    def print_counts(self, found: Sequence[Finding]) -> None:
        """Prints how many errors, warnings and notes there are."""
        kinds = [finding.severity for finding in found]
        self.print_line(", ".join(number_of(kinds.count(one), one) for one in SEVERITIES))

    def print_line(self, text: str, style: str | None = None) -> None:
        """Prints a sentence as it is: names with brackets are no markup, long lines stay whole."""
        self.print(visible(text), style=style, soft_wrap=True, markup=False, highlight=False)

    def print_rows(self, rows: Any, most: int = 10) -> None:
        """Prints the first rows of a polars frame of forecasts: of the quantiles the outermost."""
        inner = [name for name in rows.columns if name.startswith("q0.")][1:-1]
        frame = rows.head(most).drop(inner)
        # Six significant digits, without an exponent.
        self._print_columns(
            frame.to_dict(as_series=False), lambda name, value: f"{float(f'{value:.6g}'):.15g}"
        )
        without = f", without {len(inner)} inner quantiles" if inner else ""
        self.print_line(
            f"{frame.height:,} of {rows.height:,} rows{without}; all are written by --out FILE "
            "(.csv, .parquet or .xlsx)"
        )

    def print_words(self, headings: Sequence[str], rows: Iterable[Sequence[str]], **style: Any) -> None:
        """Prints a table of text, folded where it is long."""
        columns = (Column(heading, overflow="fold") for heading in headings)
        table = Table(*columns, box=None, pad_edge=False, **style)
        for row in rows:
            table.add_row(*map(cell, row))
        self.print(table)

    def _print_columns(
        self, columns: Mapping[str, Sequence[Any]], text: Callable[[str, float], str]
    ) -> None:
        """Prints a table, if it has columns; `text` writes a fraction of a column.

        Nothing is cut: where it is too wide, what is the same in all rows is printed once.
        """

        def words(one: Any) -> str:
            return "-" if one is None else visible(str(one))

        shown = {
            name: [
                words(name),
                *(text(name, one) if isinstance(one, float) else words(one) for one in cells),
            ]
            for name, cells in columns.items()
        }
        width = {name: max(map(len, cells)) for name, cells in shown.items()}
        same = [name for name, cells in shown.items() if len({*cells[1:]}) == 1]
        if same and sum(width.values()) + len(width) > self.width:
            self.print_line(" · ".join(" ".join(shown.pop(name)[:2]) for name in same))
        sides = {
            name: "<>"[isinstance(next(iter(cells), ""), int | float)]
            for name, cells in columns.items()
        }
        for row in zip(*shown.values(), strict=True):
            padded = (f"{one:{sides[name]}{width[name]}}" for name, one in zip(shown, row, strict=True))
            self.print_line(" ".join(padded).rstrip())

    def print_fresh_refit(self, parent: Mapping[str, Any]) -> None:
        """Prints that a refit does not begin where the model began."""
        self.print_notice(
            f"this model started from weights fitted to {parent['data']} until {parent['until']}; a refit "
            "starts from random weights, so these scores are those of its config, not of the warm start"
        )

    def print_tracked(self, run: TrackedRun) -> None:
        """Prints where to see a run, or why its store does not have it, and what to do."""
        if run.lost and not run.recorded:
            self.print_notice(f"not tracked: MLflow store {run.wanted}: {run.lost}")
        elif run.lost:
            self.print_notice(
                f"MLflow store {run.wanted}: {run.lost}; the run is logged to {run.uri}, copy it later "
                "with: forecaster runs sync"
            )
        elif run.recorded:
            self.print_line(f"tracked, see it with: {run.page}")
        if run.founded and not run.lost:
            self.print_line(
                f"runs are recorded in {run.uri.removeprefix('sqlite:///')}: MLFLOW_TRACKING_URI names another "
                "store, --no-tracking (tracking=False) records none"
            )

    def print_cutoffs(self, panel: Panel, times: Sequence[int], fitted_at: int | None) -> None:
        """Prints which cutoffs are forecast by which weights."""
        text = panel.calendar.text
        by = "the model as it is" if fitted_at is None else f"weights fitted until {text(fitted_at)}"
        span = f"{len(times):,} cutoffs from {text(times[0])} to {text(times[-1])}"
        self.print_line(f"{span if len(times) > 1 else f'cutoff {text(times[0])}'}: {by}")

    def print_summary(self, backtest: Backtest) -> None:
        """Prints how the models compare, and which one is better."""
        from forecaster.evaluation.comparison import MODEL

        self._print_columns(backtest.summary_columns, _score)
        if backtest.level_columns is not None:
            self._print_columns(backtest.level_columns, _score)
        context, mine = backtest.report_context, str(backtest.scores[MODEL])  # as text: nan equals nan
        same = [name for name, own in backtest.scores.items() if name != MODEL and str(own) == mine]
        if same and context is not None and context.artifact.metrics.get("network_weight") == 0:
            self.print_line(f"network weight 0 %: {' = '.join([MODEL, *same])}")
        self.print_line(
            f"{number_of(len(backtest.forecasts), 'cutoff')} · {backtest.scored:,} cells scored, "
            f"{backtest.unscored:,} without a truth or a forecast · {MODEL} {backtest.verdict}"
        )
        if backtest.coverage is not None and backtest.scored:
            self.print_line(backtest.coverage.line())
        for asked in backtest.asked_coverage:
            self.print_line(asked.line())
        self.print_findings(backtest.findings)

    def print_class_summary(self, backtest: ClassBacktest) -> None:
        """Prints the scores of a classifier, and its confusion."""
        self.print_findings([finding for finding in backtest.findings if finding.severity == "warning"])
        for columns in (backtest.summary_columns, backtest.confusion_columns):
            self._print_columns(columns, lambda name, value: f"{value:.4g}")
        self.print_line(backtest.verdict)

    def print_notice(self, text: str) -> None:
        """Prints a notice."""
        self.print_line(text, style="yellow")


def time_left(seconds: float) -> str:
    """Returns the seconds to the end in words."""
    return f"{seconds / 60:,.0f} min left" if seconds > 90 else f"{seconds:,.0f} s left"


def progress_bar(console: Console, *columns: ProgressColumn) -> Progress:
    """Returns a bar that is shown on a terminal alone, and vanishes at its end."""
    hidden = not console.is_terminal
    return Progress(*columns, console=console, transient=True, disable=hidden, refresh_per_second=4)


def check_text(panel: Panel, found: Sequence[Finding]) -> str:
    """Returns what `forecaster check` prints about a table."""
    text = StringIO()
    screen = Screen(file=text, width=100)
    screen.print_roles(panel)
    screen.print_findings(found)
    screen.print_counts(found)
    return text.getvalue().rstrip()


def cell(text: str) -> str:
    """Returns text as a cell of a table shows it: no markup, no control characters."""
    return escape(visible(text))


def _score(name: str, value: float) -> str:
    seconds = ".1f" if value >= 1 else ".1g"
    formats = {"skill": ".3g", "seconds": seconds, "excess": "+.3f", "low": "+.3f", "high": "+.3f"}
    usual = ".3g" if name.startswith("coverage") else ".4g"
    return "-" if value != value else format(value, formats.get(name, usual))
