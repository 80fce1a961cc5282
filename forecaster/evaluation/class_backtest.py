"""A classifier scored on a table with the truth, beside its parts and the majority class.

Axes: N classified series or step · G class.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from forecaster.arguments import typed
from forecaster.evaluation.class_scores import CLASS_METRICS, class_scores, confusion, reliability
from forecaster.evaluation.comparison import MODEL
from forecaster.evaluation.metrics import Scores
from forecaster.forecast.classification import Classification, plot_scores
from forecaster.forecast.plots import figure_svg
from forecaster.forecast.result import Result
from forecaster.forecast.writer import html_page, html_table, write_page
from forecaster.lazy import AnyFrame, Figure
from forecaster.panel.arrays import Bools, Ints
from forecaster.panel.findings import Finding, listing
from forecaster.panel.frames import PolarsFrame, frame_of, to_kind
from forecaster.panel.panel import Panel

_SHOWN = 12
"""Classes up to which the confusion is printed."""


@dataclass(frozen=True, repr=False)
class ClassBacktest(Result):
    """Probabilities of classes with the truth beside them, and scores."""

    classifications: Mapping[str, Classification]
    """By model; "forecaster" first. All of the same table."""
    actual: Sequence[Any]
    """[N] true classes as the table has them; None = no class."""
    code: Ints
    """[N] true class from 1; above G the model has not learned it; −1 = no class."""
    unmet: tuple[str, ...]
    """Classes of the table that the model has not learned: those above G."""
    findings: tuple[Finding, ...] = ()
    """What the audit of the table found, and series of the fit that are left out, worst first."""

    def __repr__(self) -> str:
        return f"ClassBacktest({self.verdict})"

    @property
    def panel(self) -> Panel:
        """The table."""
        return self.classifications[MODEL].panel

    @property
    def classes(self) -> tuple[str, ...]:
        """[G] classes in words."""
        return self.classifications[MODEL].classes

    @property
    def scored(self) -> Bools:
        """[N] whether there is a class and a value; only these are scored."""
        return (self.code >= 0) & self.classifications[MODEL].known

    @cached_property
    def scores(self) -> dict[str, Scores]:
        """By model: accuracy, balanced accuracy, log loss, macro F1, calibration error."""
        some = self.scored
        return {
            name: class_scores(own.probabilities[some], self.code[some])
            for name, own in self.classifications.items()
        }

    @property
    def confusion(self) -> Ints:
        """[G + 1, G] counts of true class (classes not learned first) and predicted class."""
        some = self.scored
        return confusion(self.classifications[MODEL].probabilities[some], self.code[some])

    @property
    def summary_columns(self) -> dict[str, list[Any]]:
        """The columns of `summary`, those that the shell prints."""
        columns: dict[str, list[Any]] = {"model": [*self.scores]}
        return columns | {name: [own[name] for own in self.scores.values()] for name in CLASS_METRICS}

    @property
    def summary(self) -> AnyFrame:
        """A row of scores per model, as the kind of frame of the input."""
        return to_kind(frame_of(self.summary_columns), self.panel.kind)

    @property
    def confusion_columns(self) -> dict[str, list[Any]]:
        """True class, then a column of counts per predicted class; empty where classes are many."""
        if len(self.classes) > _SHOWN:
            return {}
        counts = self.confusion
        begin = 0 if counts[0].any() else 1
        names = ["other", *self.classes][begin:]
        return {"true class": names} | {
            f"→ {word}": counts[begin:, k].tolist() for k, word in enumerate(self.classes)
        }

    @property
    def verdict(self) -> str:
        """One line: accuracy beside the majority class, and whether a part alone is better."""
        mine, *others = self.scores.items()
        line = f"{self.scored.sum():,} predictions scored · accuracy {mine[1]['accuracy']:.4f}"
        for name, own in others:
            line += f", {name} {own['accuracy']:.4f}"
        better = [name for name, own in others if own["log_loss"] < mine[1]["log_loss"]]
        if better:
            line += f"; {' and '.join(better)} alone has a lower log loss"
        scored = self.code[self.scored] - 1 - len(self.classes)
        count = np.bincount(scored[scored >= 0], minlength=len(self.unmet)).tolist()
        named = [f"{word} ({n:,})" for word, n in zip(self.unmet, count, strict=True) if n]
        if named:
            line += f"; classes the model has not learned count as errors: {listing(named)}"
        return line + "".join(f"; {one.text}" for one in self.findings if one.rule == "in-sample")

    @property
    def rows(self) -> PolarsFrame:
        """A polars frame: those of `Classification.rows` of each model, with its name and the true class."""
        parts = [
            one.rows_with(actual=self.actual, model=[name] * len(self.actual))
            for name, one in self.classifications.items()
        ]
        return reduce(lambda above, below: above.vstack(below), parts)

    def plot(self) -> Figure:
        """Returns a figure of the confusion and of the reliability of the probabilities."""
        some = self.scored
        own = self.classifications[MODEL].probabilities[some]
        return plot_scores(self.classes, self.confusion, reliability(own, self.code[some]))

    @typed
    def report(self, path: str | Path) -> None:
        """Writes a page with the scores, the confusion and the reliability.

        Raises:
            OutputError: the suffix is not .html, or the file cannot be written.
        """
        tables = (self.summary_columns, self.confusion_columns)
        body = "".join(
            html_table([*one], zip(*map(_cells, one.values()), strict=True), "classes")
            for one in tables
            if one
        )
        picture = figure_svg(self.plot(), "confusion and reliability")
        write_page(
            html_page("Classes", f"<h1>Classes</h1><p>{escape(self.verdict)}</p>{body}{picture}"),
            Path(path),
        )


def _cells(column: Sequence[Any]) -> list[str]:
    return [f"{one:.4g}" if isinstance(one, float) else escape(str(one)) for one in column]
