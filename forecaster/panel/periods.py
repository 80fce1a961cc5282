"""Finding periods in data by spectrum.

A sample of series is detrended, made roughly white by its first autocorrelation (an exact difference
where that is near one, so that random walks become noise), tapered, and turned into periodograms. A
line is tested against the median of its neighbours: for noise with any smooth spectrum the ratio is F
distributed; p values are corrected for all frequencies tested (Bonferroni). A period of the table is one
that at least a quarter of its series show; p values are combined by their quartile, which holds under
any dependence between series (Rüger, 1978). Axes: s = signal (a column of a series), t = row, f = frequency.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from forecaster.panel.arrays import Floats, Ints
from forecaster.panel.calendar import DAY, MONTHS, Calendar

_SIGNALS = 64
_ROWS = 4096
_MIN_ROWS = 32
_MIN_CYCLES = 3
_FEWEST_TURNS = 2.25  # of the whole period that explains such a line best
_QUARTER = 0.25
_LEVEL = 0.01
"""Chance of finding a period in noise."""
_MOST = 3
"""Periods that a table has at most."""
_TINY = 1e-20
"""Variance of a signal that its past determines."""
_FINER = 16
"""Lines of a spectrum between two that all rows tell apart."""
_LEFT = 1e-3
"""Share of a signal's variance beside its period that may have another; less is its own imprecision."""


@dataclass(frozen=True)
class Period:
    """A cycle in the data, of whole steps."""

    steps: int
    share: float
    """Of the sampled series that show it by themselves."""
    exact: float
    """In steps: `steps`, unless that drifts by more than a quarter of a turn over all rows."""


def find_periods(values: Floats, indptr: Ints, hidden: bool = False) -> tuple[Period, ...]:
    """Returns the periods of series, the strongest first; none where nothing repeats.

    Args:
        values: float64 [row, column] on a regular grid; NaN = missing.
        indptr: int64 [series + 1].
        hidden: also those that show only once the strongest are taken out: another period hides one whose lag
            falls on its opposite phase.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> wave = np.sin(np.arange(300) * 2 * np.pi / 12) + rng.normal(size=300)
        >>> [period.steps for period in find_periods(wave[:, None], np.array([0, 300]))]
        [12]
    """
    signals = _whitened(_detrended(_sample(values, indptr)))
    signals = signals[signals.var(axis=1) > _TINY]
    found = _strongest(signals) if len(signals) else []
    more = found if hidden else []
    while more and len(found) < _MOST:
        left = signals
        for period in more:
            left = left - _cycle(left, period.exact)
        signals = left[left.var(axis=1) > _LEFT * signals.var(axis=1)]
        more = _strongest(signals) if len(signals) else []
        found += more
    # What is left of a cycle may be found again.
    return tuple({period.steps: period for period in reversed(found[:_MOST])}.values())[::-1]


def _strongest(signals: Floats) -> list[Period]:
    """Returns periods that show in signals, the strongest first."""
    ratio, p_values = _lines(signals)
    n_signals = len(signals)
    at = int(np.ceil(_QUARTER * n_signals)) - 1
    quartile = np.sort(p_values, axis=0)[at]
    combined = np.minimum(quartile * n_signals / (at + 1), 1)
    strength = np.sort(ratio, axis=0)[-1 - at]
    similar = _autocorrelation(signals)
    lines: dict[int, int] = {}
    for line in np.flatnonzero(combined <= _LEVEL):
        if strength[line] < strength[max(line - 2, 0) : line + 3].max():
            continue
        steps = _refined(signals, int(line) + _MIN_CYCLES)
        # A level shift is a slow line that half the rows explain best.
        if _FEWEST_TURNS * steps > signals.shape[1]:
            continue
        if similar[steps] > 0 and (steps not in lines or strength[line] > strength[lines[steps]]):
            lines[steps] = int(line)
    ranked = {steps: float(strength[line]) for steps, line in lines.items()}
    turns = {steps: line + _MIN_CYCLES for steps, line in lines.items()}
    best = sorted(_without_harmonics(ranked, turns, similar), key=lambda steps: -ranked[steps])
    found = []
    for steps in best[:_MOST]:
        near = p_values[:, max(lines[steps] - 1, 0) : lines[steps] + 2].min(axis=1) <= _LEVEL
        found.append(Period(steps, float(near.mean()), _exact(signals, steps)))
    return found


def period_words(found: Sequence[Period], calendar: Calendar, of: str) -> str:
    """Returns periods for people: "7 steps (in 90 % of the sampled series), 365.25 steps".

    Args:
        found: in whole steps; the one nearest to a year is a year, of 365.25 days.
        calendar: of the steps.
        of: "series" or "channels"; "" = there is one.
    """
    year = 0.0 if calendar.integer or calendar.unit in MONTHS else 365.25 * DAY / calendar.step
    shares = [f" (in {period.share:.0%} of the sampled {of})" if of else "" for period in found]
    steps = [year if abs(period.steps - year) < 1 + 0.01 * year else period.steps for period in found]
    return ", ".join(f"{count:.5g} steps{share}" for count, share in zip(steps, shares, strict=True))


def _sample(values: Floats, indptr: Ints) -> Floats:
    """Returns signals of equal length [s, t]: the last rows, with as many cells as possible."""
    length = np.minimum(np.diff(indptr), _ROWS)
    longest = np.sort(length)[::-1]
    cells = longest * np.arange(1, len(longest) + 1)
    rows = int(longest[cells.argmax()]) if len(cells) else 0
    if rows < _MIN_ROWS:
        return np.zeros((0, _MIN_ROWS))
    long = np.flatnonzero(length >= rows)
    columns = values.shape[1]
    cells = np.unique(np.linspace(0, len(long) * columns - 1, _SIGNALS).astype(np.int64))
    series, column = long[cells // columns], cells % columns
    at = indptr[series + 1, None] - rows + np.arange(rows)
    return values[at, column[:, None]]


def _detrended(signals: Floats) -> Floats:
    """Returns signals without level, trend and scale; those half missing or constant are dropped."""
    observed = ~np.isnan(signals)
    signals = signals[observed.mean(axis=1) >= 0.5]
    observed = ~np.isnan(signals)
    if not len(signals):
        return signals
    count = observed.sum(axis=1, keepdims=True)
    time = np.where(observed, np.arange(signals.shape[1]), 0.0)
    time = np.where(observed, time - time.sum(axis=1, keepdims=True) / count, 0.0)
    centred = signals - np.nanmean(signals, axis=1, keepdims=True)
    slope = np.nansum(centred * time, axis=1) / (time**2).sum(axis=1)
    centred = centred - slope[:, None] * time
    # A single cell a million times the others would hide every line.
    spread = 1.4826 * np.nanmedian(np.abs(centred), axis=1, keepdims=True)
    bound = np.where(spread > 0, 5 * spread, np.inf)
    centred = np.clip(centred, -bound, bound)
    scale = np.nanstd(centred, axis=1, keepdims=True)
    varies = scale[:, 0] > 1e-10 * np.abs(np.nanmean(signals, axis=1))
    return centred[varies] / scale[varies]


def _whitened(signals: Floats) -> Floats:
    """Returns the residuals of a first-order autoregression; missing cells become 0."""
    if not len(signals):
        return signals
    now, before = signals[:, 1:], signals[:, :-1]
    both = ~np.isnan(now) & ~np.isnan(before)
    # Where few values follow an observed one, the noise cannot be estimated.
    usable = both.mean(axis=1) >= 0.25
    now, before, both = now[usable], before[usable], both[usable]
    squares = np.where(both, before**2, 0).sum(axis=1)
    memory = np.where(both, now * before, 0).sum(axis=1) / np.where(squares > 0, squares, 1)
    # The range of a random walk after its trend is removed (Dickey and Fuller, 1979).
    memory = np.where(memory > 1 - 25 / both.sum(axis=1), 1.0, memory)
    return np.where(both, now - memory[:, None] * before, 0.0)


def _lines(signals: Floats) -> tuple[Floats, Floats]:
    """Returns each line's ratio to its neighbourhood and its p value [s, f], from `_MIN_CYCLES` on."""
    n_rows = signals.shape[1]
    taper = np.sin(np.pi * (np.arange(n_rows) + 0.5) / n_rows) ** 2
    # The last line has one degree of freedom, not two.
    power = np.abs(np.fft.rfft(signals * taper, axis=1))[:, 1 : (n_rows - 1) // 2 + 1] ** 2
    reach = int(np.clip(n_rows // 16, 8, 48))
    around = [offset for offset in range(-reach, reach + 1) if abs(offset) > 1]
    padded = np.pad(power, ((0, 0), (reach, reach)), mode="reflect")
    level = np.empty_like(power)
    for signal, row in enumerate(padded):
        windows = np.lib.stride_tricks.sliding_window_view(row, 2 * reach + 1)
        level[signal] = np.median(windows[:, np.array(around) + reach], axis=1) / np.log(2)
    ratio = power / np.where(level > 0, level, np.inf)
    # A median of m exponentials is worth m / 2.08 of them, and the taper ties neighbours together.
    worth = len(around) / 2.08 / 1.5
    ratio = ratio[:, _MIN_CYCLES - 1 :]
    p_values = (1 + ratio / worth) ** -worth
    return ratio, np.minimum(p_values * ratio.shape[1], 1)


def _autocorrelation(signals: Floats) -> Floats:
    """Returns the mean autocorrelation of signals at every lag [t]."""
    n_rows = signals.shape[1]
    spectrum = np.abs(np.fft.rfft(signals, 2 * n_rows, axis=1)) ** 2
    products = np.fft.irfft(spectrum, axis=1)[:, :n_rows]
    return (products / products[:, :1]).mean(axis=0) * n_rows / np.arange(n_rows, 0, -1)


def _refined(signals: Floats, line: int) -> int:
    """Returns the whole period near a line (in cycles over all rows) that explains most.

    Measured by the power of its first harmonics, summed over signals: it separates neighbours that the
    autocorrelation at one lag does not.
    """
    n_rows = signals.shape[1]
    lowest = max(2, int(np.floor(n_rows / (line + 1))))
    periods = np.arange(lowest, min(n_rows // 2, int(np.ceil(n_rows / (line - 1)))) + 1)
    power = np.zeros(len(periods))
    for harmonic in (1, 2, 3):
        turns = harmonic / periods
        wave = np.exp(-2j * np.pi * np.outer(np.arange(n_rows), turns))
        power += np.where(turns <= 0.5, (np.abs(signals @ wave) ** 2).sum(axis=0), 0)
    return int(periods[power.argmax()])


def _exact(signals: Floats, steps: int) -> float:
    """Returns the period within a step of a whole one whose first harmonics explain most."""
    n_rows = signals.shape[1]
    size = _FINER * n_rows
    power = (np.abs(np.fft.rfft(signals, size)) ** 2).sum(axis=0)
    first, last = size // (steps + 1), -(-size // max(1, steps - 1))
    lines = np.arange(first, min(last, size // 2) + 1)
    harmonics = [harmonic * lines for harmonic in (1, 2, 3)]
    found = sum(np.where(line < len(power), power[line % len(power)], 0.0) for line in harmonics)
    best = size / float(lines[np.argmax(found)])
    turn = steps**2 / n_rows  # a difference of periods that is a turn over all rows
    return float(steps) if abs(best - steps) <= turn / 4 else best


def _cycle(signals: Floats, period: float) -> Floats:
    """Returns [s, t] the mean cycle of signals: by place of whole steps, else its harmonics."""
    row = np.arange(signals.shape[1])
    if period == round(period):
        columns = (row % period)[:, None] == np.arange(period)
        return signals @ columns / columns.sum(axis=0) @ columns.T
    turns = 2 * np.pi * np.outer(row, np.arange(1, period // 2 + 1)) / period
    columns = np.concatenate([np.sin(turns), np.cos(turns)], axis=1)
    return signals @ np.linalg.pinv(columns).T @ columns.T


def _without_harmonics(ranked: dict[int, float], turns: dict[int, int], similar: Floats) -> list[int]:
    """Returns the periods that are more than a harmonic of a longer one.

    A day is a seventh of a week, and a period of its own: its line is the stronger one, and rows a
    day apart are nearly as similar as rows a week apart.

    Args:
        ranked: strength of the line of each period.
        turns: its cycles over all rows.
        similar: autocorrelation [t].
    """

    def is_part(steps: int, longer: int) -> bool:
        once = len(similar) / longer
        times = round(turns[steps] / once)
        # The longer one is known to half a step, a line to half a cycle and its leak.
        near = abs(turns[steps] - times * once) <= 0.75 + 0.5 * times * once / longer
        alone = ranked[steps] > ranked[longer] and similar[steps] >= 0.75 * similar[longer]
        return longer > steps and times > 1 and near and not alone

    return [steps for steps in ranked if not any(is_part(steps, longer) for longer in ranked)]
