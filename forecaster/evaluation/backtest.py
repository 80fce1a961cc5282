"""Rolling-origin evaluation: forecasts at past cutoffs, compared with the actuals that followed.

Baselines are always in the table; no cell is dropped silently; beside the forecasts themselves, memory does
not grow with leads, levels and models.

Axes: N window (a series at one cutoff) · H lead · C channel · Q quantile level · G group · K cutoff · S series.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

import numpy as np
import torch

from forecaster.arguments import typed
from forecaster.config import Config
from forecaster.errors import ConfigError, DataError, nearest
from forecaster.evaluation.bootstrap import DRAWS, LEVEL, Skill, paired_skills
from forecaster.evaluation.comparison import (
    MODEL,
    NAIVE,
    better_models,
    compare_first_lead,
    compare_sums,
    compare_with_naive,
    maker_of,
    name_better_models,
    seasonal_naive_at,
    tally_models,
)
from forecaster.evaluation.coverage import (
    Coverage,
    coverage_interval,
    coverage_of,
    coverage_scores,
    nominal,
)
from forecaster.evaluation.error_scales import Scales, ratio
from forecaster.evaluation.metrics import SHARE, Scores, Tally, concatenate
from forecaster.forecast.bands import asked_bands, further_levels
from forecaster.forecast.card import FEWEST_CUTOFFS
from forecaster.forecast.forecast import DONE, Forecast, cells_of
from forecaster.forecast.result import Result
from forecaster.forecast.writer import write_page
from forecaster.lazy import AnyFrame, Figure
from forecaster.model.tails import at_levels, mean_of
from forecaster.panel.arrays import Array, Floats, Ints, empty_mapped
from forecaster.panel.findings import Finding
from forecaster.panel.frames import PolarsFrame, frame_of, to_kind
from forecaster.panel.panel import NO_TIME, Only, Panel

if TYPE_CHECKING:
    from forecaster.evaluation.report_data import ReportContext
else:
    from forecaster.lazy import ReportContext

Axis = Literal["series", "lead", "cutoff", "channel"]

ForecastsByModel = Mapping[str, Forecast]
"""Forecasts of all series at one cutoff; seasonal naive is added where they are scored."""

NO_FORECAST = "no forecast"
"""Status of a row of another model than "forecaster" that has none, as without history."""

_BLOCK_CELLS = 1 << 23  # quantiles of a model that are scored at a time: 64 MB
_RAM_BYTES = 1 << 28  # quantiles of all cutoffs beyond this move to memory-mapped files


@dataclass(frozen=True, repr=False)
class Backtest(Result):
    """Forecasts of a known past, with their scores."""

    forecasts: tuple[Forecast, ...]
    """The model's: one per cutoff, each with its actuals."""
    scores: dict[str, Scores]
    """By model, "forecaster" first: all metrics, and the skill over seasonal naive with its interval."""
    scored: int
    """Cells (series, cutoff, channel, lead) that were scored."""
    unscored: int
    """Cells without an actual or without a forecast: in the rows, not in the scores."""
    tallies: Mapping[str, Tally]
    """By model, the sums behind the scores; windows in the order of `forecasts`."""
    scales: Scales
    """Denominators of the scaled metrics of these windows."""
    beside: tuple[ForecastsByModel, ...]
    """Beside each of `forecasts`, by model."""
    seconds: dict[str, float]
    """By model, of its fits and forecasts, where measured."""
    report_context: ReportContext | None = None
    """Command, model and table for the report; None = unknown."""
    notes: tuple[Finding, ...] = ()
    """How many cells forecasts of other origin have."""
    level_columns: Mapping[str, list[Any]] | None = None
    """Of a hierarchy, accuracy by level: see `score_levels`; None = none was requested."""

    def __repr__(self) -> str:
        return f"Backtest({len(self.forecasts)} cutoffs: {MODEL} {self.verdict})"

    @property
    def panel(self) -> Panel:
        """The table of the first of `forecasts`."""
        return self.forecasts[0].panel

    @property
    def baselines(self) -> tuple[dict[str, Floats], ...]:
        """Beside each of `forecasts`, by model: [N, H, C, Q] data units; NaN = no forecast."""
        return tuple({name: own.quantiles for name, own in beside.items()} for beside in self.beside)

    @property
    def rows(self) -> PolarsFrame:
        """A polars frame with a row per (cutoff, model, series, channel, lead)."""
        parts = [
            _rows_of(name, own)
            for forecast, beside in zip(self.forecasts, self.beside, strict=True)
            for name, own in {MODEL: forecast, **beside}.items()
        ]
        return reduce(lambda above, below: above.vstack(below), parts)

    @property
    def summary(self) -> AnyFrame:
        """A row per model with its main scores, as the caller's kind of frame; `scores` has all."""
        return to_kind(frame_of(self.summary_columns), self.panel.kind)

    @property
    def summary_columns(self) -> dict[str, list[Any]]:
        """The columns of `summary`, those that the shell prints."""
        names = ("MAE", "RMSE", "MASE", "sMAPE", "WQL", *self.coverage_names, "skill")
        columns = {name: [scores[name] for scores in self.scores.values()] for name in names}
        return {"model": list(self.scores), **columns}

    @property
    def by_level(self) -> AnyFrame:
        """A row per level of the hierarchy, with the WAPE and MASE of base and reconciled forecasts.

        Raises:
            ConfigError: no hierarchy was requested.
        """
        if self.level_columns is None:
            raise ConfigError("by_level: expected a backtest with a hierarchy; give hierarchy")
        return to_kind(frame_of(self.level_columns).fill_nan(None), self.panel.kind)

    @property
    def coverage_names(self) -> list[str]:
        """The scores of the outermost fitted band, and of asked bands and quantiles."""
        asked = [name.removeprefix(SHARE) for name in self.tallies[MODEL].windows if SHARE in name]
        own = f"coverage_{self.tallies[MODEL].band}"
        return [*dict.fromkeys([own, *(name for name in asked if not name.endswith("_ties"))])]

    @typed
    def by(self, axis: Axis) -> AnyFrame:
        """A row per (series, lead, cutoff or channel) and model with the metrics of its cells.

        Args:
            axis: "series" or "channel" (keyed in the caller's own columns), "lead" or "cutoff".

        Returns:
            The caller's kind of frame: key columns, `model`, `cells` (number scored) and the metrics;
            null where nothing was scored.

        Raises:
            ConfigError: there is no such axis.
            DataError: a key column has the name of a metric.
        """
        panel = self.panel
        keys, scores = self._grouped(axis)
        models, groups = list(scores), len(scores[MODEL]["cells"])
        columns: dict[str, Any] = {"model": models * groups}
        absent = np.full(groups, np.nan)  # CRPS takes sample paths
        for name in dict.fromkeys(name for one in scores.values() for name in one):
            each = [one.get(name, absent) for one in scores.values()]
            columns[name] = np.stack(each, axis=1).ravel()
        for name in keys:
            if name in columns:
                raise DataError(f"{panel.name}: column '{name}' is also a result's; rename it")
        owner = np.repeat(np.arange(groups), len(models))
        columns = {name: key[owner] for name, key in keys.items()} | columns
        return to_kind(frame_of(columns).fill_nan(None), panel.kind, panel.original)

    def _grouped(self, axis: str) -> tuple[dict[str, Any], dict[str, dict[str, Floats]]]:
        """Key columns of the groups along an axis, and by model the metrics of each group."""
        panel, horizon = self.panel, self.forecasts[0].time.shape[1]
        if axis == "lead":
            lead = np.arange(1, horizon + 1, dtype=np.int32)
            return {"lead": lead}, {name: one.by_lead() for name, one in self.tallies.items()}
        if axis == "channel":
            keys: dict[str, Any] = {column.name: column for column in panel.schema.channel_keys}
            keys = keys or {"channel": np.array(panel.schema.target, dtype=object)}
            return keys, {name: one.by_channel() for name, one in self.tallies.items()}
        if axis not in get_args(Axis):
            raise ConfigError(f"by {axis!r}: expected one of {', '.join(get_args(Axis))}")
        series, cutoff = windows_of(self.forecasts)
        if axis == "cutoff":
            groups, group = np.unique(cutoff, return_inverse=True)
            keys = {"cutoff": panel.stamps(groups, "cutoff")}
        else:
            natural, each = panel.numbers(), panel.n_channels if panel.schema.pivots else 1
            # Each channel was a series; one that a group lacks adds nothing to the first that it has.
            there = panel.present[series, :each]
            channel = np.where(there, np.arange(each), there.argmax(axis=1, keepdims=True))
            place = np.argsort(natural)[series][:, None] * each + channel
            groups, group = np.unique(place, return_inverse=True)
            group, number = group.reshape(place.shape), natural[groups // each]
            keys = {key.name: key for key in panel.ids(number, groups % each)}
            keys = keys or {"series": np.array(panel.series_names, dtype=object)[number]}
        return keys, {name: one.by_group(group, len(groups)) for name, one in self.tallies.items()}

    @typed
    def skill(self, model: str = MODEL, baseline: str = NAIVE) -> Skill:
        """1 − WQL / WQL of a baseline, with its 95 % bootstrap interval (`paired_skills`); NaN of too few cutoffs.

        Raises:
            ConfigError: no such model was scored.
        """
        for name in (model, baseline):
            if name not in self.tallies:
                near = nearest(name, self.tallies) or ", ".join(self.tallies)
                raise ConfigError(f"skill {name!r}: no such model was scored; did you mean {near}?")
        pair = {name: self.tallies[name] for name in (model, baseline)}
        return skills_over(baseline, self.forecasts, pair)[model]

    @property
    def coverage(self) -> Coverage | None:
        """What the model's band from .1 to .9 holds, with its 90 % interval; else its outermost symmetric band.

        None where no two quantile levels are symmetric.
        """
        return coverage_of(self.scores[MODEL], nominal(self.forecasts[0].levels))

    @property
    def asked_coverage(self) -> list[Coverage]:
        """What the model's bands hold that were asked for."""
        bands = map(float, asked_bands(self.forecasts[0].columns))
        found = [coverage_of(self.scores[MODEL], band) for band in bands]
        return [one for one in found if one is not None]

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The notes, and a warning where the interval of the coverage misses what is nominal by over 10 points."""
        return self.notes if self.coverage is None else (*self.notes, *self.coverage.findings())

    @cached_property
    def better(self) -> dict[str, Skill]:
        """The models of lower WQL than "forecaster", the best first, with their skill over it."""
        return {name: self.skill(name, MODEL) for name in better_models(self.scores)}

    @property
    def verdict(self) -> str:
        """One sentence: whether the model is better than seasonal naive, and who is better than the model."""
        return (
            compare_with_naive(self.scores[MODEL], self.scores[NAIVE])
            + name_better_models(self.better)
            + self._better_fit()
            + compare_sums(self.tallies[MODEL])
            + compare_first_lead(self.tallies)
        )

    def _better_fit(self) -> str:
        """The command that fits the best model that is better than "forecaster"; empty where none can be fitted."""
        better = [name for name, gain in self.better.items() if not gain.low <= 0]
        name = next(filter(maker_of, better), None)
        if name is None or (made := maker_of(name)) is None:
            return ""
        verb, options = made
        options = options | self._reading()
        horizon = self.forecasts[0].time.shape[1]
        if verb == "predict" and "known" in options:  # the table may end at the last target
            options["fill_known"] = "last"
        if self.panel.kind != "file" or not isinstance(options.get("covariates", ""), str | Path):
            named = {"covariates": "covariates"} if "covariates" in options else {}
            words = [f"{key}={named.get(key, repr(value))}" for key, value in options.items()]
            return f"; {name} is made by: fc.{verb}({', '.join(['data', str(horizon), *words])})"
        flags = []
        for option, value in options.items():
            text = ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
            flag = f"--{option.replace('_', '-')}"
            if option == "config":
                flag, text = "--set", "fit.validation=null"
            flags += [flag] if value is True else [flag, text]
        out = ["--out", "PATH.csv" if verb == "predict" else "PATH"]
        words = ["forecaster", verb, self.panel.name, *flags, *out, "--horizon", str(horizon)]
        return f"; {name} is made by: {shlex.join(words)}"

    def _reading(self) -> dict[str, Any]:
        """The options that read the table and bound its target as the model of this backtest did."""
        artifact = self.forecasts[0].artifact
        config = (artifact and artifact.request) or Config()
        given = config.data.model_dump(exclude_defaults=True)
        given |= config.target.model_dump(exclude_defaults=True)
        if known := self.panel.schema.as_read.known:
            given["known"] = known
        if self.report_context is not None and self.report_context.covariates is not None:
            given["covariates"] = self.report_context.covariates
        return given

    @typed
    def report(self, path: str | Path) -> None:
        """Writes one self-contained HTML page: verdict, scores, pictures, settings.

        Raises:
            OutputError: the name does not end in .html, or the file cannot be written.
        """
        write_page(self._page(), Path(path))

    def _page(self) -> str:
        from forecaster.evaluation.report import render_report

        return render_report(self)

    @typed
    def plot(self, only: Only = None) -> Figure:
        """A figure of the last cutoff's forecast with the actuals.

        Args:
            only: names of series; None = the first few.
        """
        return self.forecasts[-1].plot(only)


def rolling_cutoffs(panel: Panel, windows: int, horizon: int, stride: int | None = None) -> list[int]:
    """Times of cutoffs, rising; the last leaves exactly one horizon of actuals.

    Args:
        panel: the table.
        windows: number of cutoffs.
        horizon: steps forecast at each.
        stride: steps between cutoffs; None = the horizon, so that windows do not overlap.

    Raises:
        DataError: the table does not reach back to the first cutoff.
    """
    end = panel.last_time("nothing to compare forecasts with")
    spacing = stride or horizon
    needed = horizon + spacing * (windows - 1)
    begin = int(panel.time.min())
    steps = int(panel.calendar.steps(np.array([begin]), np.array([end]))[0])
    available = int((panel.calendar.before(end, max(1, steps + 1)) > begin).sum())
    if needed > available:
        fit = max(0, (available - horizon) // spacing + 1)
        advice = f"{fit:,} fit, use --windows {fit}" if fit else "none fits, use a longer table"
        raise DataError(
            f"{panel.name}: {windows:,} windows of horizon {horizon:,}, {spacing:,} steps apart, reach "
            f"back {needed:,} steps, the table begins at {panel.calendar.text(begin)}, {available + 1:,} "
            f"steps before its last target; {advice}"
        )
    past = panel.calendar.before(end, needed)
    return [int(time) for time in past[: -horizon + 1 or None : spacing]]


def run_backtest(
    cutoffs: Sequence[int],
    forecasts_at: Callable[[Sequence[int]], Iterable[ForecastsByModel]],
    scoring: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> Backtest:
    """Forecasts and scores at rolling cutoffs.

    Args:
        cutoffs: times of the last steps that may be read, rising.
        forecasts_at: makes the forecasts of all series at some neighbouring cutoffs, with actuals;
            called with as many cutoffs at a time as bounded memory allows.
        scoring: entered while seasonal naive forecasts, and all are scored.
    """
    parts: list[_Part] = []
    storage = _ForecastStorage(len(cutoffs))
    size = 0
    remaining = list(cutoffs)
    while remaining:
        # The number of cells per cutoff is known after the first.
        count = max(1, _BLOCK_CELLS // size) if size else 1
        made = list(forecasts_at(remaining[:count]))
        first, remaining = made[0][MODEL], remaining[count:]
        size = len(made[0]) * first.quantiles.size + (0 if first.paths is None else first.paths.size)
        with scoring():
            new = list(_tally_parts(made))
        parts += [part._replace(kept=[storage.keep(*one) for one in part.kept]) for part in new]
    return _combine(parts)


def score_forecasts(forecasts: Sequence[ForecastsByModel]) -> Backtest:
    """Scores of forecasts that hold their actuals; cutoffs may differ from series to series."""
    return _combine([part for one in forecasts for part in _tally_parts([one])])


def actual_of(forecast: Forecast) -> Floats:
    """[N, H, C] the actuals that a backtest's forecasts always hold."""
    assert forecast.actual is not None
    return forecast.actual


class _ForecastStorage:
    """Keeps the forecasts of many cutoffs: in RAM, or in unnamed files where they are large."""

    def __init__(self, cutoffs: int):
        self._cutoffs, self._kept = cutoffs, 0
        self._arrays: dict[str, Array] = {}

    def keep(self, forecast: Forecast, beside: ForecastsByModel) -> tuple[Forecast, ForecastsByModel]:
        if forecast.quantiles.nbytes * (1 + len(beside)) * self._cutoffs <= _RAM_BYTES:
            return forecast, beside

        def moved(name: str, own: Forecast, parts: Sequence[str]) -> dict[str, Any]:
            return {part: self._moved(f"{part} of {name}", getattr(own, part)) for part in parts}

        predicted = ("quantiles", "further", "mean")
        forecast = replace(forecast, **moved(MODEL, forecast, (*predicted, "actual", "time")))
        beside = {
            name: replace(forecast, **moved(name, own, predicted)) for name, own in beside.items()
        }
        self._kept += 1
        return forecast, beside

    def _moved(self, name: str, cells: Array | None) -> Array | None:
        if cells is None:
            return None
        if name not in self._arrays:
            self._arrays[name] = empty_mapped((self._cutoffs, *cells.shape), cells.dtype)
        kept: Array = self._arrays[name][self._kept]
        kept[...] = cells
        return kept


class _Part(NamedTuple):
    tallies: dict[str, Tally]
    scales: Scales
    kept: list[tuple[Forecast, ForecastsByModel]]
    """The model's forecasts, each with those of the other models."""
    seconds: float
    """Of seasonal naive."""


def _tally_parts(made: Sequence[ForecastsByModel]) -> Iterator[_Part]:
    """Yields tallies and scales of forecasts, in their order; forecasts of one panel together."""
    for _, group in groupby(made, key=lambda one: id(one[MODEL].panel)):
        some = list(group)
        model = [one[MODEL] for one in some]
        panel, horizon, levels = model[0].panel, model[0].time.shape[1], model[0].levels
        series, cutoff = windows_of(model)
        actual = np.concatenate([actual_of(one) for one in model])
        rows = panel.rows_until(cutoff, series) - 1
        naive, scales, seconds = seasonal_naive_at(panel, series, rows, horizon, levels)
        ends = np.cumsum([len(one.series) for one in model])
        each = np.split(naive, ends[:-1])
        by_name = {MODEL: model, NAIVE: [*map(other_forecast, model, each)]}
        by_name |= {name: [one[name] for one in some] for name in some[0] if name != MODEL}
        quantiles = {
            name: np.concatenate([one.all_quantiles for one in own]) for name, own in by_name.items()
        }
        paths = None if model[0].paths is None else np.concatenate([one.paths for one in model])
        tallies = tally_models(actual, quantiles, levels, scales, paths, model[0].columns)
        # Sample paths are many times as large as quantiles, and are scored by now.
        kept = [replace(one, paths=None) for one in model]
        del by_name[MODEL]
        others = [
            {name: _as_beside(one, own) for name, own in zip(by_name, models, strict=True)}
            for one, *models in zip(kept, *by_name.values(), strict=True)
        ]
        yield _Part(tallies, scales, [*zip(kept, others, strict=True)], seconds)


def _as_beside(forecast: Forecast, own: Forecast) -> Forecast:
    """Returns what another model forecasts, without its panel and weights."""
    return replace(forecast, quantiles=own.quantiles, further=own.further, mean=own.mean)


def other_forecast(forecast: Forecast, quantiles: Floats, further: Floats | None = None) -> Forecast:
    """Returns quantiles of other origin at the windows of a forecast; the mean follows from them.

    Args:
        forecast: of the windows.
        quantiles: [N, H, C, Q]
        further: [N, H, C, F] at the levels of `further_levels`; those that are NaN follow from the quantiles.
    """
    cells, levels = torch.from_numpy(quantiles), forecast.levels
    mean = None if forecast.mean is None else mean_of(cells, levels).numpy()
    found = None
    if forecast.columns:
        found = at_levels(cells, levels, further_levels(forecast.columns, levels)).numpy()
        found = found if further is None else np.where(np.isnan(further), found, further)
    return replace(forecast, quantiles=quantiles, further=found, mean=mean, paths=None)


def _rows_of(name: str, forecast: Forecast) -> PolarsFrame:
    """The rows of one model at a cutoff."""
    if name != MODEL:
        finite = np.isfinite(forecast.median).any(axis=1).ravel()
        why = [NO_FORECAST if one.startswith(DONE) else one for one in forecast.status]
        forecast = replace(forecast, status=tuple(np.where(finite, "ok", why).tolist()))
    rows = forecast.rows
    # A key of the caller may have the name.
    column = "model" if "model" not in rows.columns else "forecast_model"
    return frame_of({column: [name] * len(rows)}).hstack(rows.get_columns())


def _combine(parts: Sequence[_Part]) -> Backtest:
    pairs = [pair for part in parts for pair in part.kept]
    forecasts, others = (tuple(some) for some in zip(*pairs, strict=True))
    tallies = {name: concatenate([part.tallies[name] for part in parts]) for name in parts[0].tallies}
    skills = skills_over(NAIVE, forecasts, tallies)
    scores: dict[str, Scores] = {}
    for name, one in tallies.items():
        gain, low, high = skills[name]
        scores[name] = one.overall() | {"skill": gain, "skill_low": low, "skill_high": high}
        scores[name] |= _coverage_over(forecasts, one)
    scales = Scales(*(np.concatenate(one) for one in zip(*(p.scales for p in parts), strict=True)))
    scored = int(tallies[MODEL].windows["cells"].sum())
    unscored = sum(map(cells_of, forecasts)) - scored
    seconds = {NAIVE: sum(part.seconds for part in parts)}
    return Backtest(forecasts, scores, scored, unscored, tallies, scales, others, seconds)


def skills_over(
    baseline: str,
    forecasts: Sequence[Forecast],
    tallies: Mapping[str, Tally],
    share: float = LEVEL,
    loss: str = "pinball",
) -> dict[str, Skill]:
    """Skill of each model over one of them in a loss, of WQL by default, with its bootstrap interval."""
    number, overlap, enough = _cutoffs_of(forecasts, tallies[baseline].windows["cells"].sum(axis=1))
    owners, owner = np.unique(windows_of(forecasts)[0], return_inverse=True)
    shape = (int(number.max()) + 1, len(owners))
    cell = number * shape[1] + owner

    def grid(one: Tally) -> Floats:
        sums = np.bincount(cell, one.windows[loss].sum(axis=1), shape[0] * shape[1])
        return sums.reshape(shape).astype(np.float64)

    losses = {name: grid(one) for name, one in tallies.items()}
    return paired_skills(losses, losses[baseline], overlap, share, DRAWS * enough)


def _coverage_over(forecasts: Sequence[Forecast], tally: Tally) -> Scores:
    """Coverage of a model's bands with its interval over cutoffs, as scores; none without a symmetric band."""
    bands = {float(band): f"{SHARE}coverage_{band}" for band in asked_bands(forecasts[0].columns)}
    if usual := nominal(forecasts[0].levels):
        bands |= {float(usual): "banded"}
    windows, scores = tally.windows, Scores()
    cells = windows["cells"].sum(axis=1)
    for band, name in bands.items():
        if np.isnan(windows[name]).any():  # of a model without these levels
            continue
        found = share_over_cutoffs(forecasts, windows[f"{name}_ties"].sum(axis=1), cells)
        scores |= coverage_scores(band, float(ratio(windows[name].sum(), cells.sum())), found)
    return scores


def share_over_cutoffs(
    forecasts: Sequence[Forecast], part: Floats, whole: Floats
) -> tuple[float, float, float]:
    """Σ part / Σ whole of windows [N], and its 90 % interval over cutoffs; NaN of too few."""
    number, overlap, enough = _cutoffs_of(forecasts, whole)
    parts, wholes = (np.bincount(number, one).astype(np.float64) for one in (part, whole))
    share, *ends = coverage_interval(parts, wholes, overlap)
    low, high = ends if enough else (np.nan, np.nan)
    return share, low, high


def _cutoffs_of(forecasts: Sequence[Forecast], cells: Floats) -> tuple[Ints, int, bool]:
    """Number of the cutoff of each window, how many neighbours forecast a common step, whether there are enough.

    Enough for an interval are `FEWEST_CUTOFFS` without overlap that have scored cells; cells: [N].
    """
    times, number = np.unique(windows_of(forecasts)[1], return_inverse=True)
    times = times[(np.bincount(number, cells) > 0) & (times != NO_TIME)]
    horizon, steps = forecasts[0].time.shape[1], forecasts[0].panel.calendar.steps
    gap = steps(times[:-1], times[1:]).min(initial=horizon)
    span = steps(times[:1], times[-1:]).sum()
    enough = len(times) >= FEWEST_CUTOFFS and span >= (FEWEST_CUTOFFS - 1) * horizon
    return number, -(-horizon // max(1, int(gap))), bool(enough)


def windows_of(forecasts: Sequence[Forecast]) -> tuple[Ints, Ints]:
    """[N] series and [N] cutoff of all windows."""
    return (
        np.concatenate([one.series for one in forecasts]),
        np.concatenate([one.cutoff for one in forecasts]),
    )
