"""A model in use: earlier forecasts meet the truth that has come, and are judged by what was usual before.

    forecasts before `since`, a horizon apart ─▶ blocks of a horizon: what was usual
    forecasts after `since`                   ─▶ the newest two horizons: as usual, or not

    far = (newest − mean of the usual blocks) / (their standard deviation · √(1 + 1/B))

is compared with Student's t of B − 1 degrees, which calls one in a hundred untouched models broken by its band, and
one by its loss. Both must be bad enough to matter, too.

Axes: N series · H lead · C channel · B block.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from forecaster.arguments import typed
from forecaster.errors import number_of
from forecaster.evaluation.backtest import Backtest, actual_of
from forecaster.evaluation.comparison import NAIVE
from forecaster.forecast.card import off_band
from forecaster.forecast.forecast import Forecast
from forecaster.forecast.writer import write_page
from forecaster.panel.findings import Finding
from forecaster.panel.frames import frame_of, to_kind
from forecaster.panel.panel import Only

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from forecaster.panel.frames import AnyFrame
else:
    from forecaster.lazy import AnyFrame, Figure

Floats = NDArray[np.float64]

NEWEST = 2
"""Horizons that are judged."""
_FEWEST = 5  # blocks that say what is usual
_ALARMS = 0.01  # of untouched models, by each of two judgements
_WORSE = 1.25  # times the loss over that of seasonal naive
_LEAST_SPREAD = 0.03  # of the share that a band holds


class Blocks(NamedTuple):
    """What forecasts were worth by the time that they were made for, in blocks of a horizon."""

    time: NDArray[np.int64]
    """[B] last time of each."""
    cells: Floats
    """[B] with a truth."""
    inside: Floats
    """[B] share of the truths inside the band."""
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

    @cached_property
    def blocks(self) -> Blocks:
        """The new forecasts, the newest block last."""
        return _blocks(self.forecasts, [one[NAIVE] for one in self.beside])

    @cached_property
    def usual(self) -> Blocks | None:
        """The forecasts before."""
        past = self.past
        if past is None:
            return None
        return _blocks(past.forecasts, [one[NAIVE] for one in past.beside])

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
        inside, loss = (_newest(new.cells, part) for part in (new.inside, new.loss))
        if usual is None or len(usual.time) < _FEWEST or not np.isfinite(inside):
            text = "too few forecasts before these to tell what is usual"
            return (Finding("note", "usual", text, f"at least {_FEWEST} horizons are needed"),)
        found = list[Finding]()
        span = f"the last {number_of(self._judged_steps, 'step')}"
        mean = float(np.nanmean(usual.inside))
        nominal = self.band / 100
        text = (
            f"the {self.band:g} % band held {100 * inside:.0f} % in {span}, {100 * mean:.0f} % before"
        )
        if off_band(nominal, inside, inside) == "narrow" and _far(
            inside, usual.inside, -1, _LEAST_SPREAD
        ):
            found.append(Finding("error", "band", text, "update the model, or --recalibrate its bands"))
        before = float(np.nanmean(usual.loss))
        text = f"its loss is {loss:.2f} of seasonal naive's in {span}, {before:.2f} before"
        if loss > _WORSE * before and _far(np.log(loss), np.log(usual.loss), 1, np.log(_WORSE) / 4):
            found.append(Finding("error", "skill", text, "update the model, or fit it again"))
        bias = _newest(new.cells, new.bias)
        if _far(bias, usual.bias, int(np.sign(bias)), 0.01) and abs(bias) > 0.05:
            way = "high" if bias > 0 else "low"
            text = f"forecasts are too {way} by {100 * abs(bias):.0f} % in {span}"
            found.append(Finding("warning", "bias", text, "update the model"))
        return tuple(found)

    @property
    def broken(self) -> bool:
        """Whether a band or the skill has broken down."""
        return any(one.severity == "error" for one in self.judgements)

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What has broken down or may, and how the new rows differ from those before."""
        return (*self.judgements, *self.drifts)

    @property
    def sentence(self) -> str:
        """Whether the model is as it was, and why not, in words."""
        bad = [one.text for one in self.judgements if one.severity != "note"]
        if not bad:
            held = _newest(self.blocks.cells, self.blocks.inside)
            known = "as before" if self.usual is not None else "so far"
            return (
                f"nothing has broken down: the {self.band:g} % band holds {100 * held:.0f} %, {known}"
            )
        cause = "; ".join(one.text for one in self.drifts)
        advice = next(one.advice for one in self.judgements if one.severity != "note")
        return "; ".join(bad) + (f": {cause}" if cause else "") + f"; {advice}"

    @property
    def _judged_steps(self) -> int:
        horizon = self.forecasts[0].time.shape[1]
        steps = self.panel.calendar.steps(self.since, int(self.blocks.time[-1]))
        return min(NEWEST * horizon, int(steps))

    @typed
    def report(self, path: str | Path) -> None:
        """Writes one self-contained HTML page: what has broken down, the picture, scores and drifts.

        Raises:
            OutputError: the name does not end in .html, or the file cannot be written.
        """
        from forecaster.evaluation.monitor_page import monitor_page

        write_page(monitor_page(self), Path(path))

    @typed
    def plot(self, only: Only = None) -> Figure:
        """A figure of what the band held and of the loss, by time, before the fit's last row and after."""
        from forecaster.evaluation.monitor_page import plot_monitor

        return plot_monitor(self)


def _newest(cells: Floats, values: Floats) -> float:
    """The mean of the newest blocks by cells."""
    weight = np.where(np.isfinite(values), cells, 0.0)[-NEWEST:]
    if not weight.any():
        return np.nan
    return float(np.average(np.nan_to_num(values[-NEWEST:]), weights=weight))


def _far(value: float, usual: Floats, sign: int, least: float) -> bool:
    """Whether a value lies farther from usual ones on one side than one in a hundred does."""
    from scipy.stats import t  # half a second, for a monitor alone

    usual = usual[np.isfinite(usual)]
    count = len(usual)
    if count < _FEWEST or not np.isfinite(value):
        return False
    spread = max(float(usual.std(ddof=1)), least) * (1 + 1 / count) ** 0.5
    return bool(sign * (value - usual.mean()) / spread > t.ppf(1 - _ALARMS, count - 1))


def _blocks(forecasts: Sequence[Forecast], naive: Sequence[Forecast]) -> Blocks:
    """Sums over the cells of forecasts by the times that they were made for, counted back from the last truth."""
    horizon, calendar = forecasts[0].time.shape[1], forecasts[0].panel.calendar
    levels = np.array(forecasts[0].levels)
    sums: dict[str, list[NDArray[Any]]] = {
        name: [] for name in ("block", "inside", "loss", "naive", "missed", "size")
    }
    end = max(
        int(one.time[np.isfinite(actual_of(one)).any(axis=2)].max(initial=0)) for one in forecasts
    )
    for one, beside in zip(forecasts, naive, strict=True):
        actual = actual_of(one)
        known = np.isfinite(actual) & np.isfinite(one.median) & np.isfinite(beside.median)
        time = np.broadcast_to(one.time[..., None], actual.shape)[known]
        truth, quantiles = actual[known], one.quantiles[known]  # [n], [n, Q]
        sums["block"].append(calendar.steps(time, end) // horizon)
        sums["inside"].append((quantiles[:, 0] <= truth) & (truth <= quantiles[:, -1]))
        for name, own in (("loss", quantiles), ("naive", beside.quantiles[known])):
            apart = truth[:, None] - own
            sums[name].append(np.maximum(levels * apart, (levels - 1) * apart).sum(axis=1))
        sums["missed"].append(one.median[known] - truth)
        sums["size"].append(np.abs(truth))
    parts = {name: np.concatenate(values) for name, values in sums.items()}
    block = parts.pop("block").astype(np.int64)
    count = int(block.max(initial=0)) + 1
    cells = np.bincount(block, minlength=count).astype(np.float64)[::-1]
    total = {name: np.bincount(block, own, count)[::-1] for name, own in parts.items()}
    with np.errstate(invalid="ignore", divide="ignore"):
        return Blocks(
            time=np.asarray(calendar.shift(end, -horizon * np.arange(count)))[::-1],
            cells=cells,
            inside=total["inside"] / cells,
            loss=total["loss"] / total["naive"],
            bias=total["missed"] / total["size"],
        )
