"""A model in use: forecasts meet the truth that has come, and are judged by what was usual before.

    forecasts before `since`, a horizon apart ─▶ blocks of a horizon: what was usual
    forecasts from `since` on                 ─▶ the newest two blocks: as usual, or not

    far = (x − mean of the usual x) / (their standard deviation · √(1/newest + 1/B))

    x   band   −share inside, or log of the mean |truth − median| over the distance of the band's end on that side
        loss   log of the pinball loss over that of seasonal naive

of each of the newest blocks and of both is compared with Student's t of B − 1 degrees, at one false alarm in two
hundred. It must be bad enough to matter, too.

Axes: N series · H lead · C channel · B block.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from forecaster.arguments import typed
from forecaster.evaluation.backtest import Backtest, actual_of
from forecaster.evaluation.comparison import NAIVE
from forecaster.evaluation.metrics import pinball
from forecaster.forecast.card import off_band
from forecaster.forecast.forecast import Forecast
from forecaster.panel.arrays import Array, Floats, Ints
from forecaster.panel.findings import Finding
from forecaster.panel.frames import frame_of, to_kind
from forecaster.panel.panel import Only

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from forecaster.panel.frames import AnyFrame
else:
    from forecaster.lazy import AnyFrame, Figure


NEWEST = 2
"""Horizons that are judged."""
_FEWEST = 5  # blocks that say what is usual
_ALARMS = 0.005  # of untouched models, by each judgement
_WORSE = 1.25  # times the usual loss over that of seasonal naive
_LEAST_SPREAD = 0.03
_BIAS, _STRONG = 0.05, 3.0  # of the truth, and of the standard deviation of usual biases
_FARTHEST = 3.0  # distances of a band's end that a miss counts as at most


class Blocks(NamedTuple):
    """What forecasts were worth by the time that they were made for, in blocks of a horizon."""

    time: Ints
    """[B] last time of each."""
    cells: Floats
    """[B] with a truth."""
    inside: Floats
    """[B] share of the truths inside the band."""
    distance: Floats
    """[B] mean distance of the truth from the median, in those of the band's ends."""
    loss: Floats
    """[B] pinball loss over that of seasonal naive."""
    bias: Floats
    """[B] sum of the median less the truth, over that of the absolute truth."""


@dataclass(frozen=True, repr=False)
class Monitor(Backtest):
    """Forecasts of rows that have come since a fit, beside the truth, baselines and what was usual before."""

    past: Backtest | None = None
    """The model's forecasts before `since`; None = the table does not reach back far enough."""
    since: int = 0
    """Time of the last row that the model knows, or of the first cutoff of given forecasts."""
    drifts: tuple[Finding, ...] = field(default=())
    """How the new rows differ from those before."""

    def __repr__(self) -> str:
        return f"Monitor({self.verdict_in_use})"

    @cached_property
    def blocks(self) -> Blocks:
        """The new forecasts, the newest block last."""
        return _blocks(self.forecasts, [one[NAIVE] for one in self.beside], self.since)

    @cached_property
    def usual(self) -> Blocks | None:
        """The forecasts before."""
        past = self.past
        if past is None:
            return None
        return _blocks(past.forecasts, [one[NAIVE] for one in past.beside], self.since)

    @property
    def frame_by_time(self) -> AnyFrame:
        """A row per block of a horizon, as the caller's kind of frame: time, new, cells, band, loss and bias."""
        parts = [(False, self.usual), (True, self.blocks)]
        known = [(new, part) for new, part in parts if part is not None]
        columns: dict[str, Any] = {
            "until": self.panel.stamps(np.concatenate([part.time for _, part in known]), "until"),
            "new": np.concatenate([np.full(len(part.time), new) for new, part in known]),
        }
        for name in Blocks._fields[1:]:
            columns[name] = np.concatenate([getattr(part, name) for _, part in known])
        return to_kind(frame_of(columns).fill_nan(None), self.panel.kind)

    @property
    def band(self) -> float:
        """The outermost band of the forecasts, percent."""
        levels = self.forecasts[0].levels
        return 100 * (levels[-1] - levels[0])

    @cached_property
    def judgements(self) -> tuple[Finding, ...]:
        """What has broken down, as errors, and what may, as warnings."""
        new, usual = self.blocks, self.usual
        if usual is None or np.isfinite(usual.distance).sum() < _FEWEST:
            text = "too few forecasts before these to tell what is usual"
            return (Finding("note", "usual", text, f"at least {_FEWEST} horizons are needed"),)
        found = list[Finding]()
        every = range(len(usual.time))
        held, before = (_mean(part, usual.cells, every) for part in (usual.inside, usual.loss))
        newest = range(max(0, len(new.time) - NEWEST), len(new.time))
        # Each of the newest blocks, and all together.
        spans = [*([place] for place in newest), *([[*newest]] if len(newest) > 1 else [])]
        cells = np.minimum(1.0, new.cells / np.median(usual.cells))
        narrow = [
            span
            for span in spans
            if off_band(self.band / 100, *2 * [_mean(new.inside, new.cells, span)]) == "narrow"
            and (
                _far(_log(new.distance), _log(usual.distance), cells, span)
                or _far(-new.inside, -usual.inside, cells, span)
            )
        ]
        worse = [
            span
            for span in spans
            if _mean(new.loss, new.cells, span) > _WORSE * before
            and _far(_log(new.loss), _log(usual.loss), cells, span)
        ]
        if narrow:
            span, share = self._span(narrow[-1]), 100 * _mean(new.inside, new.cells, narrow[-1])
            said = f"the {self.band:g} % band held {share:.0f} % {span}, {100 * held:.0f} % before"
            found.append(Finding("error", "band", said, "update the model, or --recalibrate its bands"))
        if worse:
            span, loss = self._span(worse[-1]), _mean(new.loss, new.cells, worse[-1])
            said = f"its loss was {loss:.2f} of seasonal naive's {span}, {before:.2f} before"
            found.append(Finding("error", "skill", said, "update the model, or fit it again"))
        bias = _mean(new.bias, new.cells, newest)
        usual_bias = usual.bias[np.isfinite(usual.bias)]
        if len(usual_bias) and abs(bias) > max(_BIAS, _STRONG * float(usual_bias.std())):
            way = "high" if bias > 0 else "low"
            said = f"forecasts were too {way} by {100 * abs(bias):.0f} % {self._span(newest)}"
            found.append(Finding("warning", "bias", said, "update the model"))
        return tuple(found)

    def _span(self, places: Sequence[int]) -> str:
        """The time of blocks in words."""
        horizon, time, calendar = self.forecasts[0].time.shape[1], self.blocks.time, self.panel.calendar
        first = int(calendar.shift(int(time[places[0]]), 1 - horizon))
        last = min(int(time[places[-1]]), self.panel.last_time())
        return f"from {calendar.text(first)} to {calendar.text(last)}"

    @property
    def broken(self) -> bool:
        """Whether a band or the skill has broken down."""
        return any(one.severity == "error" for one in self.judgements)

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What has broken down or may, and how the new rows differ from those before."""
        return (*self.judgements, *self.drifts)

    @property
    def verdict_in_use(self) -> str:
        """Whether the model is as it was, in words."""
        bad = [one.text for one in self.judgements if one.severity != "note"]
        if bad:
            return "; ".join(bad)
        every = range(len(self.blocks.time))
        held = 100 * _mean(self.blocks.inside, self.blocks.cells, every)
        return (
            f"nothing has broken down: the {self.band:g} % band holds {held:.0f} % {self._span(every)}"
        )

    @property
    def sentence(self) -> str:
        """Whether the model is as it was, how the new rows differ, and what to do."""
        differs = "; ".join(one.text for one in self.drifts)
        bad = [one for one in self.judgements if one.severity != "note"]
        if not bad:
            return f"{self.verdict_in_use}{'; but ' * bool(differs)}{differs}"
        return f"{self.verdict_in_use}{': ' * bool(differs)}{differs}; {bad[0].advice}"

    def _page(self) -> str:
        from forecaster.evaluation.monitor_page import monitor_page

        return monitor_page(self)

    @typed
    def plot(self, only: Only = None) -> Figure:
        """A figure of what the band held and of the loss, by time, before the fit's last row and after."""
        from forecaster.evaluation.monitor_page import plot_monitor

        return plot_monitor(self)


def _mean(values: Floats, cells: Floats, places: Sequence[int]) -> float:
    """The mean of blocks by their cells; NaN of none."""
    some, weights = values[list(places)], cells[list(places)]
    known = np.isfinite(some) & (weights > 0)
    return float(np.average(some[known], weights=weights[known])) if known.any() else np.nan


def _log(values: Floats) -> Floats:
    """Logarithms, NaN of 0."""
    return np.log(np.where(values > 0, values, np.nan))


def _far(new: Floats, usual: Floats, cells: Floats, places: Sequence[int]) -> bool:
    """Whether the mean of blocks is above that of usual ones by more than one in two hundred is.

    cells: [B] of the new blocks, as shares of those of a usual one.
    """
    from scipy.stats import t  # half a second, for a monitor alone

    x, usual = _mean(new, cells, places), usual[np.isfinite(usual)]
    count = len(usual)
    if count < _FEWEST or not np.isfinite(x):
        return False
    spread = max(float(usual.std(ddof=1)), _LEAST_SPREAD)
    error = spread * (1 / cells[list(places)].sum() + 1 / count) ** 0.5
    return bool((x - usual.mean()) / error > t.ppf(1 - _ALARMS, count - 1))


def _blocks(forecasts: Sequence[Forecast], naive: Sequence[Forecast], since: int) -> Blocks:
    """Means over the cells of forecasts by the times they were made for, in horizons from a time on, or back."""
    horizon, calendar = forecasts[0].time.shape[1], forecasts[0].panel.calendar
    levels = forecasts[0].levels
    middle = levels.index(0.5)
    names = ("block", "inside", "distance", "loss", "naive", "missed", "size")
    sums: dict[str, list[Array]] = {name: [] for name in names}
    for one, beside in zip(forecasts, naive, strict=True):
        actual = actual_of(one)
        known = np.isfinite(actual) & np.isfinite(beside.median)
        known &= np.isfinite(one.quantiles).all(axis=-1)
        time = np.broadcast_to(one.time[..., None], actual.shape)[known]
        truth, quantiles = actual[known], one.quantiles[known]  # [n], [n, Q]
        missed = truth - quantiles[:, middle]
        end = np.where(missed < 0, quantiles[:, 0], quantiles[:, -1]) - quantiles[:, middle]
        sums["block"].append((calendar.steps(since, time) - 1) // horizon)
        sums["inside"].append((quantiles[:, 0] <= truth) & (truth <= quantiles[:, -1]))
        sums["distance"].append(
            np.minimum(np.abs(missed), _FARTHEST * np.abs(end)) / np.maximum(np.abs(end), 1e-300)
        )
        for name, own in (("loss", quantiles), ("naive", beside.quantiles[known])):
            sums[name].append(pinball(truth, own, levels).sum(axis=1))
        sums["missed"].append(-missed)
        sums["size"].append(np.abs(truth))
    parts = {name: np.concatenate(values) for name, values in sums.items()}
    number, block = np.unique(parts.pop("block"), return_inverse=True)
    cells = np.bincount(block).astype(np.float64)
    total = {name: np.bincount(block, own) for name, own in parts.items()}
    with np.errstate(invalid="ignore", divide="ignore"):
        return Blocks(
            time=np.asarray(calendar.shift(since, horizon * (number + 1))),
            cells=cells,
            inside=total["inside"] / cells,
            distance=total["distance"] / cells,
            loss=total["loss"] / total["naive"],
            bias=total["missed"] / total["size"],
        )
