"""Rolling cutoffs: forecasts made then, compared with what followed.

What comes in: a panel, the cutoffs, and a function that makes forecasts at them. What goes out: a row
per (series, cutoff, channel, lead) with the truth beside it, and scores of the model and of the
baselines over the same cells. Promised: baselines are always in the table; no cell is dropped in
silence; beside the forecasts themselves, memory does not grow with leads, levels and models.

Axes: N forecast (series at one cutoff) · H lead · C channel · Q quantile level.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from forecaster.errors import DataError
from forecaster.evaluation.bootstrap import Skill
from forecaster.evaluation.groups import Axis, rows_at, skills_over, table_by, truth_of
from forecaster.evaluation.rivals import BASELINES, rivals_at, tallies_of
from forecaster.evaluation.rivals import MODEL as MODEL
from forecaster.evaluation.rivals import NAIVE as NAIVE
from forecaster.evaluation.scales import Scales
from forecaster.evaluation.tally import Scores, Tally, joined, names_of
from forecaster.evaluation.verdict import verdict_of
from forecaster.forecast.forecast import Forecast
from forecaster.forecast.writer import write_rows
from forecaster.panel.arrays import empty_mapped
from forecaster.panel.frames import frame_of, to_kind
from forecaster.panel.panel import Panel

if TYPE_CHECKING:
    from forecaster.evaluation.report.origin import Origin

Said = Mapping[str, Forecast]
"""By model, the forecast of all series at one cutoff: "forecaster", and rivals that were fitted."""

_PART_CELLS = 1 << 23  # quantiles of a model that are worked on at a time: 32 MB
_MOST_BYTES = 1 << 28  # of quantiles of all cutoffs that stay in RAM


@dataclass(frozen=True, repr=False)
class Backtest:
    """Forecasts of a known past, with their scores."""

    forecasts: tuple[Forecast, ...]
    """One per cutoff, each with the truth that followed."""
    scores: dict[str, Scores]
    """By model, ours first: all metrics, and the skill against seasonal naive with its interval."""
    scored: int
    """Cells (series, cutoff, channel, lead) that were scored."""
    unscored: int
    """Cells without a truth or without a forecast: in the rows, not in the scores."""
    tallies: Mapping[str, Tally] = field(default_factory=dict)
    """By model, what the scores follow from; windows as in `forecasts`, one after the other."""
    scales: Scales | None = None
    """What scaled metrics of these windows divide by."""
    origin: Origin | None = None
    """How it came about, for its report; None = nobody said."""

    def __repr__(self) -> str:
        return f"Backtest({len(self.forecasts)} cutoffs: {MODEL} {self.verdict})"

    @property
    def levels(self) -> tuple[float, ...]:
        """Quantile levels."""
        return self.forecasts[0].levels

    @property
    def rows(self) -> Any:
        """A polars frame with a row per (cutoff, series, channel, lead)."""
        return reduce(lambda above, below: above.vstack(below), (f.rows for f in self.forecasts))

    @property
    def frame(self) -> Any:
        """The rows as the kind of frame the caller came with (a file gives polars)."""
        return to_kind(self.rows, self.forecasts[0].panel.kind)

    @property
    def summary(self) -> Any:
        """A row per model with all its scores, as the kind of frame the caller came with."""
        columns: dict[str, list[Any]] = {"model": list(self.scores)}
        for name in names_of(self.scores.values()):
            columns[name] = [scores.get(name, np.nan) for scores in self.scores.values()]
        return to_kind(frame_of(columns), self.forecasts[0].panel.kind)

    def by(self, axis: Axis) -> Any:
        """Returns a row per (series, lead, cutoff or channel) and model with the metrics of its cells.

        Args:
            axis: "series" (keyed in the caller's own columns), "lead", "cutoff" or "channel".

        Returns:
            The caller's kind of frame: what the row is about, `model`, `cells` (how many were scored),
            and the metrics; null where nothing was scored.

        Raises:
            ConfigError: there is no such axis.
            DataError: a key column has the name of a metric.
        """
        return table_by(self.forecasts, self.tallies, axis)

    def skill(self, model: str = MODEL, rival: str = NAIVE) -> Skill:
        """Returns 1 − WQL / WQL of a rival, with its 95 % bootstrap interval (`paired_skills`)."""
        pair = {name: self.tallies[name] for name in (model, rival)}
        return skills_over(self.forecasts, pair, rival)[model]

    @property
    def verdict(self) -> str:
        """One sentence that says whether the model is worth having."""
        return verdict_of(self.scores)

    def write(self, path: str | Path) -> None:
        """Writes the rows to a .csv or .parquet file, whole or not at all.

        Raises:
            OutputError: the suffix is neither, or the file cannot be written.
        """
        write_rows(self.rows, Path(path))

    def report(self, path: str | Path) -> None:
        """Writes a page for a browser that needs no other file: verdict, scores, pictures, settings.

        Raises:
            OutputError: the name does not end in .html, or the file cannot be written.
        """
        from forecaster.evaluation.report.page import page_of
        from forecaster.forecast.writer import check_report, write_page

        check_report(Path(path))
        write_page(page_of(self), Path(path))

    def plot(self, series: str | None = None) -> Any:
        """Returns a figure of the last cutoff's forecast with the truth.

        Args:
            series: the key of one series; None = the first few.
        """
        return self.forecasts[-1].plot(series)


def rolling_cutoffs(panel: Panel, windows: int, horizon: int, stride: int | None = None) -> list[int]:
    """Returns the times of cutoffs, rising; the last leaves exactly one horizon of truth.

    Args:
        panel: the table.
        windows: how many cutoffs.
        horizon: steps forecast at each.
        stride: steps between cutoffs; None = the horizon, so that windows do not overlap.

    Raises:
        DataError: the table does not reach back to the first cutoff.
    """
    last = panel.last_observed
    if (last < 0).all():
        raise DataError(f"{panel.name}: no target is observed, nothing to compare forecasts with")
    end = int(panel.time[last[last >= 0]].max())
    spacing = stride or horizon
    reach = horizon + spacing * (windows - 1)
    begin = int(panel.time.min())
    steps = int(panel.calendar.steps(np.array([begin]), np.array([end]))[0])
    held = int((panel.calendar.before(end, max(1, steps + 1)) > begin).sum())
    if reach > held:
        fit = max(0, (held - horizon) // spacing + 1)
        advice = f"{fit:,} fit, use --windows {fit}" if fit else "not one fits, take a longer table"
        raise DataError(
            f"{panel.name}: {windows:,} windows of horizon {horizon:,}, {spacing:,} steps apart, reach "
            f"back {reach:,} steps, the table begins at {panel.calendar.text(begin)}, {held + 1:,} "
            f"steps before its last target; {advice}"
        )
    past = panel.calendar.before(end, reach)
    return [int(time) for time in past[: -horizon + 1 or None : spacing]]


def run_backtest(
    cutoffs: Sequence[int],
    forecasts_at: Callable[[Sequence[int]], Iterable[Said]],
    baselines: Sequence[str] = BASELINES,
) -> Backtest:
    """Returns forecasts and scores at rolling cutoffs.

    Args:
        cutoffs: times of the last steps that may be seen, rising.
        forecasts_at: makes the forecasts of all series at some neighbouring cutoffs, with the truth
            beside them; called with all cutoffs in turn, as many at a time as memory is bounded for.
        baselines: which stand beside the model.
    """
    kept: list[Forecast] = []
    parts: list[_Part] = []
    shelf = _Shelf(len(cutoffs))
    size = 0
    waiting = list(cutoffs)
    while waiting:
        # How many cells a cutoff has is known after the first.
        count = max(1, _PART_CELLS // size) if size else 1
        said = list(forecasts_at(waiting[:count]))
        first, waiting = said[0][MODEL], waiting[count:]
        size = first.quantiles.size + (0 if first.paths is None else first.paths.size)
        parts += _parts(said, baselines)
        # Paths are many times as large as quantiles, and have done their part.
        kept += [shelf.put(replace(one[MODEL], paths=None)) for one in said]
    return _scored(kept, parts)


def score_forecasts(said: Sequence[Said], baselines: Sequence[str] = BASELINES) -> Backtest:
    """Returns the scores of forecasts that have their truth beside them.

    Args:
        said: of any windows; the cutoffs of one forecast may differ from series to series.
        baselines: which stand beside the model.
    """
    parts = [part for one in said for part in _parts([one], baselines)]
    return _scored([one[MODEL] for one in said], parts)


class _Shelf:
    """Where the forecasts of many cutoffs are kept: in RAM, or in unnamed files where they are many."""

    def __init__(self, cutoffs: int):
        self._cutoffs, self._put = cutoffs, 0
        self._arrays: dict[str, NDArray[Any]] = {}

    def put(self, forecast: Forecast) -> Forecast:
        """Returns the forecast, its arrays moved to files where those of all cutoffs are large."""
        if forecast.quantiles.nbytes * self._cutoffs <= _MOST_BYTES:
            return forecast
        moved: dict[str, Any] = {}
        for name in ("quantiles", "actual", "time"):
            own = getattr(forecast, name)
            if name not in self._arrays:
                self._arrays[name] = empty_mapped((self._cutoffs, *own.shape), own.dtype)
            moved[name] = self._arrays[name][self._put]
            moved[name][...] = own
        self._put += 1
        return replace(forecast, **moved)


class _Part(NamedTuple):
    """What was found at some cutoffs."""

    tallies: dict[str, Tally]
    scales: Scales


def _parts(said: Sequence[Said], baselines: Sequence[str]) -> Iterator[_Part]:
    """Yields what forecasts sum to, in their order; those of the same panel together."""
    for _, group in groupby(said, key=lambda one: id(one[MODEL].panel)):
        some = list(group)
        mine = [one[MODEL] for one in some]
        panel, horizon = mine[0].panel, mine[0].time.shape[1]
        series, cutoff, actual = (
            np.concatenate(parts)
            for parts in zip(*((one.series, one.cutoff, truth_of(one)) for one in mine), strict=True)
        )
        at = rows_at(panel, series, cutoff)
        beside = rivals_at(panel, series, at, horizon, mine[0].levels, baselines)
        quantiles = {name: np.concatenate([one[name].quantiles for one in some]) for name in some[0]}
        paths = None if mine[0].paths is None else np.concatenate([one.paths for one in mine])
        together = {MODEL: quantiles.pop(MODEL), **beside.quantiles, **quantiles}
        tallies = tallies_of(actual, together, mine[0].levels, beside.scales, paths)
        yield _Part(tallies, beside.scales)


def _scored(forecasts: Sequence[Forecast], parts: Sequence[_Part]) -> Backtest:
    tallies = {name: joined([part.tallies[name] for part in parts]) for name in parts[0].tallies}
    skills = skills_over(forecasts, tallies, NAIVE)
    scores: dict[str, Scores] = {}
    for name, mine in tallies.items():
        skill, low, high = skills[name]
        scores[name] = mine.overall() | {"skill": skill, "skill_low": low, "skill_high": high}
    scales = Scales(
        *(np.concatenate(all_of) for all_of in zip(*(p.scales for p in parts), strict=True))
    )
    scored = int(tallies[MODEL].windows["cells"].sum())
    cells = sum(truth_of(one).size for one in forecasts)
    return Backtest(tuple(forecasts), scores, scored, cells - scored, tallies, scales)
