"""Artifact + panel → classes of series or of steps, vectors of series, and the steps that mattered.

Long series are read in windows that overlap by half; the probabilities of a step are the mean over its
windows, those in whose middle it lies counting most.

Axes: N series · R row of the panel · L context · G class · D width.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from forecaster.arguments import SeriesName, typed
from forecaster.errors import DataError, number_of
from forecaster.forecast import plots
from forecaster.forecast.artifact import Artifact
from forecaster.forecast.result import Result
from forecaster.forecast.runner import Progress, Runner, batch_size
from forecaster.forecast.task import BatchCounts, Task
from forecaster.forecast.writer import html_page, write_drawing
from forecaster.lazy import Axes, Figure
from forecaster.model.class_network import ClassEnsemble
from forecaster.panel.arrays import Array, Bools, Floats, Ints
from forecaster.panel.audit import audit_panel
from forecaster.panel.findings import Finding
from forecaster.panel.frames import PolarsFrame
from forecaster.panel.panel import Only, Panel
from forecaster.windows.batch import Inputs
from forecaster.windows.store import WindowStore

ClassArtifact = Artifact[ClassEnsemble]
Compute = Callable[[Inputs], Tensor]
OK, NO_VALUE = "ok", "no value observed"
_CHANNELS = 6  # drawn of a series
_CELLS = 15  # classes up to which a confusion has its counts written in
_LETTERS = 14  # of a class beside the confusion
_HIDDEN = 10
"""Stretches of a window that are hidden one by one to see what mattered."""


@dataclass(frozen=True, repr=False)
class Classification(Result):
    """Probabilities of the classes of each series, or of each of its steps."""

    panel: Panel
    """The table; its rows are keys of the result."""
    classes: tuple[str, ...]
    """[G] classes in words."""
    dtype: str
    """Of the classes of the training table."""
    probabilities: Floats
    """[N, G] of series, or [R, G] of steps; NaN where there is nothing to classify."""
    per_step: bool
    """Whether each step has a class."""
    findings: tuple[Finding, ...] = ()
    """What the audit of the table found, worst first."""

    @property
    def known(self) -> Bools:
        """[N] or [R] whether there is a class."""
        return ~np.isnan(self.probabilities[:, 0])

    @property
    def code(self) -> Ints:
        """[N] or [R] number of the class among the classes; −1 = none."""
        return np.where(self.known, np.nan_to_num(self.probabilities).argmax(axis=1), -1)

    @property
    def rows(self) -> PolarsFrame:
        """A polars frame: keys, [time], label, p_<class> for each class, status."""
        return self.rows_with()

    def rows_with(self, **more: Sequence[Any]) -> PolarsFrame:
        """Returns the rows with further columns before `label`."""
        panel = self.panel
        made = {
            **more,
            "label": words_of(self.classes, self.code, self.dtype),
            **{f"p_{word}": self.probabilities[:, k] for k, word in enumerate(self.classes)},
            "status": np.where(self.known, OK, NO_VALUE),
        }
        if self.per_step:
            return panel.frame(panel.owner, panel.time, **made)
        return panel.series_frame(**made)

    @property
    def lost(self) -> tuple[int, str]:
        """How many series or steps have no class, and why."""
        count = int((~self.known).sum())
        return count, NO_VALUE if count else ""

    @property
    def report(self) -> str:
        """One line: how many series or steps have each class."""
        count = np.bincount(self.code[self.known], minlength=len(self.classes)).tolist()
        named = [f"{n:,} {word}" for word, n in zip(self.classes, count, strict=True) if n]
        words = ", ".join(named) or "none"
        return predictions_line(self.panel.n_series, len(self.known), words, self.lost)

    def plot(self) -> Figure:
        """Returns a figure of the first few series, with their classes or the class of each step."""
        panel = self.panel
        some = panel.numbers()[: plots.PANELS].tolist()
        figure, axes = plots.panel_grid(len(some))
        code, classes = self.code, self.classes
        count = np.bincount(code[code >= 0], minlength=len(classes))
        usual = [(int(k), classes[k]) for k in np.argsort(-count, kind="stable")]
        for axis, number in zip(axes, some, strict=False):
            shown = plots.last_steps(panel, number)
            time = _draw_values(axis, panel, shown)
            title = panel.series_names[number]
            if self.per_step:
                _draw_classes(axis, time, code[shown], usual)
            else:
                best = np.nan_to_num(self.probabilities[number]).max()
                title += (
                    f": {classes[code[number]]} ({100 * best:.0f} %)" if code[number] >= 0 else ": none"
                )
            axis.set_title(title, fontsize=10, loc="left")
        if self.per_step:
            plots.shared_legend(figure, axes[0])
        return figure


def predictions_line(n_series: int, count: int, words: str, lost: tuple[int, str]) -> str:
    """Returns one line: how many series and classes, which, and how many are missing and why."""
    line = f"{number_of(n_series, 'series', 'series')}, {number_of(count, 'prediction')}"
    line += f": {words}" if words else ""
    return line + (f"; {lost[0]:,} without a prediction: {lost[1]}" if lost[0] else "")


def words_of(classes: Sequence[str], code: Ints, dtype: str) -> list[Any]:
    """Returns the words of classes from 0, −1 = none, as values of the dtype of the training table."""
    values: list[Any] = [*classes]
    if dtype.startswith("Float"):
        values = [float(word) for word in classes]
    elif dtype.startswith(("Int", "UInt")):
        values = [int(word) if word.removeprefix("-").isdecimal() else None for word in classes]
    elif dtype == "Boolean":
        values = [word == "true" for word in classes]
    return [None if one < 0 else values[one] for one in code.tolist()]


def series_hashes(panel: Panel) -> Ints:
    """Returns [N, 4] to know a series again: hashes of its key and of its values, first and last time.

    They are the same on every machine. Rows that have neither keys nor times are known by values alone.
    """
    found = np.zeros((panel.n_series, 4), np.int64)
    has_key = panel.keys.width > 0 or panel.schema.time is not None
    for series, (name, (first, last)) in enumerate(
        zip(panel.series_names, panel.observed_ends, strict=True)
    ):
        values = panel.values[first : last + 1, : panel.n_channels] + 0.0  # no -0.0
        content = np.where(np.isnan(values), np.nan, values).astype("<f8").tobytes()
        key = (name if panel.keys.width else "").encode() if has_key else content
        found[series] = _hash(key), _hash(content), panel.time[first], panel.time[last]
    return found


def _hash(content: bytes) -> int:
    return int.from_bytes(hashlib.sha256(content).digest()[:8], "little", signed=True)


class ClassTask(Task):
    """Classes, as the task of a batch prediction."""

    def audited(self, panel: Panel, artifact: ClassArtifact, only: Only) -> tuple[Panel, list[Finding]]:
        panel = panel.only(only)
        return panel, audit_panel(panel, classes=True)

    def predict(
        self, artifact: ClassArtifact, device: str | None = None, lanes: int | None = None
    ) -> Callable[[Panel], Classification]:
        return ClassPredictor(artifact, device, lanes).predict

    def terms(self, panel: Panel) -> dict[str, Any]:
        return {}

    def report(self, panel: Panel, totals: BatchCounts, findings: Sequence[Finding]) -> str:
        return predictions_line(totals.series, totals.rows, "", totals.lost)

    def none_predicted(self, panel: Panel, totals: BatchCounts) -> None:
        """Returns no error: a table without values has no classes, and says so in `status`."""


class ClassPredictor:
    """Classifies series with one artifact."""

    def __init__(self, artifact: ClassArtifact, on: str | None = None, lanes: int | None = None):
        """Takes a model; device and batches in parallel as `Runner`."""
        self.artifact = artifact
        self._runner = Runner(artifact, on, lanes)
        self._ensemble = self._runner.ensemble

    def predict(self, panel: Panel, progress: Progress | None = None) -> Classification:
        """Returns the classes of all series of a panel that has been audited."""
        return self._classifications(panel, self._ensemble, 1, progress)[0]

    def predict_by_parts(self, panel: Panel) -> list[Classification]:
        """Returns the classes by the model, by its networks alone and by its random kernels alone."""
        return self._classifications(panel, self._ensemble.beside_parts, 3)

    def vectors(self, panel: Panel) -> Floats:
        """Returns [N, D] a vector of each series, of its last `context_length` steps; NaN without a value.

        Args:
            panel: one that has been audited.
        """
        return self._of_series(panel, self._ensemble.embed)

    def importance(self, panel: Panel, series: int) -> tuple[Floats, Floats]:
        """Returns what each step adds to the log-probability of a series' class, and its probabilities.

        A stretch of steps is hidden at a time; steps that are hidden together share the difference.

        Returns:
            [L] of the last steps of the series, NaN before its first; [G].
        """
        store, end = WindowStore(panel, self.artifact.plan.model, 0), panel.indptr[series + 1] - 1
        length = self.artifact.context_length
        own = int(min(length, end + 1 - panel.indptr[series]))
        size = max(1, -(-own // _HIDDEN))
        edges = np.arange(length - own, length, size)
        hidden = torch.zeros((len(edges) + 1, length), dtype=torch.bool)
        for row, begin in enumerate(edges, start=1):
            hidden[row, begin : begin + size] = True
        inputs = store.batch(np.full(len(hidden), series), None, np.full(len(hidden), end)).inputs
        with torch.inference_mode():
            inputs = inputs.without(hidden).to(self._runner.device)
            found = self._ensemble(inputs).double().cpu()
        if self._ensemble.per_step:
            found = found[:, -own:].mean(dim=1)
        predicted = int(found[0].argmax())
        logs = found[:, predicted].clamp(min=1e-9).log()
        effect = np.full(length, np.nan)
        for row, begin in enumerate(edges, start=1):
            stop = min(int(begin) + size, length)
            effect[begin:stop] = float(logs[0] - logs[row]) / (stop - int(begin))
        return effect, found[0].numpy()

    def _classifications(
        self, panel: Panel, compute: Compute, models: int, progress: Progress | None = None
    ) -> list[Classification]:
        """Returns the classes by each of some models, whose probabilities `compute` puts side by side."""
        schema, classes, per_step = self.artifact.schema, self.artifact.classes, self._ensemble.per_step
        width = models * len(classes)
        found = [np.zeros((0, width))]
        for first, part in panel.parts():
            found.append(
                self._of_steps(part, compute, width) if per_step else self._of_series(part, compute)
            )
            if progress is not None:
                progress(first + part.n_series, panel.n_series)
        dtype = schema.dtypes.get(schema.label or "", "String")
        each = np.split(np.concatenate(found), models, axis=1)
        return [Classification(panel, classes, dtype, own, per_step) for own in each]

    def _of_series(self, panel: Panel, compute: Compute) -> Floats:
        """Returns what is computed of the last window of each series: [N, _]; NaN without a value."""
        chosen = np.flatnonzero(panel.last_observed >= 0)
        found = np.concatenate([*self._computed(panel, chosen, panel.indptr[chosen + 1] - 1, compute)])
        whole = np.full((panel.n_series, found.shape[1]), np.nan)
        whole[chosen] = found
        return whole

    def _of_steps(self, panel: Panel, compute: Compute, width: int) -> Floats:
        """Returns [R, width] what is computed of the windows that hold a step; NaN without a value."""
        length = self.artifact.context_length
        chosen = np.flatnonzero(panel.last_observed >= 0)
        rows = np.diff(panel.indptr)[chosen]
        every = max(1, length // 2)
        each = np.maximum(1, 1 + -(-(rows - length) // every))
        owner = np.repeat(chosen, each)
        back = np.arange(len(owner)) - np.repeat(np.cumsum(each) - each, each)
        end = panel.indptr[owner + 1] - 1 - back * every
        middle = np.minimum(np.arange(length), np.arange(length)[::-1]) + 1.0
        total, weight = np.zeros((panel.n_rows, width)), np.zeros(panel.n_rows)
        done = 0
        for found in self._computed(panel, owner, end, compute):
            here = slice(done, done + len(found))
            at = end[here, None] + np.arange(1 - length, 1)
            inside = at >= panel.indptr[owner[here], None]
            shares = np.broadcast_to(middle, at.shape)[inside]
            np.add.at(total, at[inside], found[inside] * shares[:, None])
            np.add.at(weight, at[inside], shares)
            done += len(found)
        with np.errstate(invalid="ignore"):
            return total / weight[:, None]

    def _computed(self, panel: Panel, series: Ints, end: Ints, compute: Compute) -> Iterator[Floats]:
        """Yields what is computed of windows, some at a time; at least once."""
        store = WindowStore(panel, self.artifact.plan.model, 0)
        size = batch_size(panel.n_channels * self.artifact.context_length)
        results = self._runner.run(lambda inputs, part: compute(inputs), store, series, end, size)
        return (result.double().cpu().numpy() for result in results)


@dataclass(frozen=True, repr=False)
class ClassExplanation(Result):
    """What each step of a series adds to the log-probability of its class."""

    panel: Panel
    series: int
    """Number of the series in the panel."""
    label: str
    probability: float
    effect: Floats
    """[steps] of the last steps of the series; negative where the class is likelier without them."""

    @property
    def rows(self) -> PolarsFrame:
        """A polars frame: keys, time, effect."""
        end = int(self.panel.indptr[self.series + 1])
        owner = np.full(len(self.effect), self.series)
        return self.panel.frame(
            owner, self.panel.time[end - len(self.effect) : end], effect=self.effect
        )

    @property
    def report(self) -> str:
        """One line: the class, its probability, and the steps that matter most."""
        end = int(self.panel.indptr[self.series + 1])
        alike = np.flatnonzero(self.effect == np.nanmax(self.effect))
        times = self.panel.time[end - len(self.effect) + alike[[0, -1]]]
        first, last = (self.panel.calendar.text(int(time)) for time in times)
        return (
            f"{self.panel.series_names[self.series]}: {self.label}, probability {self.probability:.3f}; the "
            f"steps from {first} to {last} matter most"
        )

    @typed
    def write(self, path: str | Path) -> None:
        """Writes a page (.html) or a picture (.png, .svg, .pdf).

        Raises:
            OutputError: the suffix is another, or the file cannot be written.
        """
        write_drawing(Path(path), self.plot, self._page)

    def _page(self) -> str:
        picture = plots.figure_svg(self.plot(), "the series, and what each step adds to its class")
        return html_page("Class", f"<h1>{escape(self.label)}</h1><p>{escape(self.report)}</p>{picture}")

    def plot(self) -> Figure:
        """Returns a figure of the series and of the effect of its steps."""
        title = f"{self.panel.series_names[self.series]}: {self.label} ({100 * self.probability:.0f} %)"
        panel = self.panel
        figure, (upper, lower) = plots.panel_grid(2, columns=1)
        end = int(panel.indptr[self.series + 1])
        time = _draw_values(upper, panel, slice(end - len(self.effect), end))
        upper.set_title(title, fontsize=10, loc="left")
        lower.bar(
            range(len(self.effect)) if panel.calendar.integer else time,
            self.effect,
            width=1.0,
            color=plots.BAND,
        )
        if panel.calendar.integer:
            lower.set_xticks([])
        lower.set_title("log-probability of the class lost per hidden step", fontsize=10, loc="left")
        plots.tidy(lower)
        return figure


def explain_class(artifact: ClassArtifact, panel: Panel, only: SeriesName | None) -> ClassExplanation:
    """Returns which steps of a series mattered; see `Classifier.explain`.

    Raises:
        DataError: there is no such series, or several and none is named; or it has no value.
    """
    series = panel.one_series(only)
    if panel.last_observed[series] < 0:
        raise DataError(f"{panel.name}: series '{panel.series_names[series]}': {NO_VALUE}")
    effect, probabilities = ClassPredictor(artifact).importance(panel, series)
    best = int(probabilities.argmax())
    word = artifact.classes[best]
    return ClassExplanation(panel, series, word, float(probabilities[best]), effect[~np.isnan(effect)])


def plot_scores(classes: Sequence[str], counts: Ints, bins: tuple[Array, ...]) -> Figure:
    """Returns the confusion of classes, and how often predictions are right at each probability.

    Args:
        classes: [G] in words.
        counts: [G + 1, G] of `class_scores.confusion`.
        bins: of `class_scores.reliability`.
    """
    figure, (left, right) = plots.panel_grid(2)
    figure.set_size_inches(figure.get_figwidth(), 4.2)
    figure.subplots_adjust(left=0.11, top=0.91, bottom=0.14)
    shown = counts if counts[0].any() else counts[1:]
    names = (["other"] if counts[0].any() else []) + [*classes]
    shares = shown / np.maximum(shown.sum(axis=1, keepdims=True), 1)
    left.imshow(shares, cmap="Blues", vmin=0, vmax=1, aspect="auto")
    if len(classes) <= _CELLS:
        for row, column in np.ndindex(*shown.shape):
            dark = shares[row, column] > 0.5
            text = f"{shown[row, column]:,}"
            left.text(column, row, text, ha="center", va="center", fontsize=8,
                      color="white" if dark else plots.VALUES)  # fmt: skip
    left.set_title("true class (rows), predicted class (columns)", fontsize=10, loc="left")
    plots.tidy(left)
    left.grid(visible=False)
    left.set_xticks(range(len(classes)), [word[:_LETTERS] for word in classes])
    left.set_yticks(range(len(names)), [word[:_LETTERS] for word in names])
    share, mean, count = bins
    some = count > 0
    right.plot([0, 1], [0, 1], color=plots.VALUES, linewidth=0.8, linestyle="--")
    right.plot(mean[some], share[some], color=plots.BAND, marker="o", markersize=4, linewidth=1.4)
    right.set_xlabel("probability of the predicted class", fontsize=9)
    right.set_title("share of predictions that are right", fontsize=10, loc="left")
    plots.tidy(right)
    return figure


def _draw_values(axis: Axes, panel: Panel, rows: slice) -> Array:
    time = plots.axis_times(panel, panel.time[rows])
    colors = (plots.VALUES, plots.BAND, plots.TRUTH, "#6b8e4e", "#8a5fa8", "#b08d3c")
    for channel, color in zip(range(panel.n_channels), colors[:_CHANNELS], strict=False):
        axis.plot(time, panel.values[rows, channel], color=color, linewidth=1.0)
    plots.tidy(axis, dates=not panel.calendar.integer)
    return time


def _draw_classes(axis: Axes, time: Array, code: Ints, classes: Sequence[tuple[int, str]]) -> None:
    """Draws a dot per step, at the foot of the axis, in the colour of its class; the first is light."""
    colors = ("#c9ccd1", plots.TRUTH, "#6b8e4e", "#8a5fa8", "#d1a62c", "#a33b57")
    foot = axis.get_ylim()[0]
    for place, (number, word) in enumerate(classes):
        at = np.flatnonzero(code == number)
        color = colors[1 + (place - 1) % (len(colors) - 1)] if place else colors[0]
        axis.scatter(time[at], [foot] * len(at), color=color, s=12, marker="s", label=word)
