"""What new rows hold that the rows before them did not: levels, scatter, gaps and covariates out of range."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from forecaster.panel.arrays import Floats, Ints
from forecaster.panel.calendar import Calendar
from forecaster.panel.findings import Finding
from forecaster.panel.panel import Panel

_NAMED = 3  # series
_MOST_SERIES = 1000
_SIDE = 4  # values on each side of a step at least, of a table without a season
_JUMP = 2.0  # times the largest step of before
_SCATTER = 2.0  # times that of before
_GAPS = 0.1  # more of the cells than in any span before
_OUTSIDE = 0.05  # of the new cells of a covariate
_FEWEST = 20  # values of a span whose scatter is measured


class _History(NamedTuple):
    """A channel of a series, up to its last observation."""

    name: str
    values: Floats
    time: Ints
    new: int
    """Number of the first new row."""


def drifts(panel: Panel, since: int, steps: int) -> list[Finding]:
    """Returns a warning for each way in which the rows after a time differ from those before.

    Args:
        panel: the table.
        since: the time.
        steps: of the newest rows that are compared with spans as long before.
    """
    panel = panel.until(panel.last_time())
    if panel.n_series > _MOST_SERIES:
        panel = panel.some(np.linspace(0, panel.n_series - 1, _MOST_SERIES).round().astype(np.int64))
    season, histories = panel.calendar.season_length, [*_histories(panel, since)]
    width = season if 1 < season <= steps else max(_SIDE, min(steps // 2, 2 * _SIDE))
    jumps = sorted(
        (jump for one in histories for jump in _jumps(one, width, panel.calendar)), reverse=True
    )
    # The newest steps, where there is enough before them.
    newest = [one._replace(new=max(one.new, len(one.values) - steps)) for one in histories]
    newest = [one for one in newest if 2 * steps + season <= one.new < len(one.values)]
    return [
        *_drift("level", [text for _, text in jumps], "series with a new level"),
        *_drift("scatter", _scatters(newest, season), "series with another scatter"),
        *_drift(
            "gaps", [text for one in newest for text in _gaps(one, steps)], "series with more gaps"
        ),
        *_ranges(panel, since),
    ]


def _histories(panel: Panel, since: int) -> Iterator[_History]:
    ends, new = panel.last_observed + 1, panel.rows_until(since)
    for number, begin in enumerate(panel.indptr[:-1].tolist()):
        rows = slice(begin, max(begin, int(ends[number])))
        for channel, target in enumerate(panel.schema.target):
            name = panel.series_names[number]
            if panel.n_series == 1 and not panel.keys.width:
                name = target
            elif panel.n_channels > 1:
                name = f"{name} ({target})"
            yield _History(
                name, panel.values[rows, channel], panel.time[rows], int(new[number]) - begin
            )


def _jumps(one: _History, width: int, calendar: Calendar) -> Iterator[tuple[float, str]]:
    """Yields a step in the new rows between whose sides the means of a season differ more than at any before."""
    if not 4 * width <= one.new < len(one.values):
        return
    before, after = _sides(one.values, width)
    jump = np.abs(after - before)
    old, new = np.split(jump, [one.new - width])
    if not np.isfinite(old).any() or not np.isfinite(new).any():
        return
    ratio = np.nanmax(new) / max(np.nanmax(old), 1e-12 * np.nanmax(np.abs(before)), 1e-300)
    if ratio > _JUMP:
        at = int(np.nanargmax(new)) + len(old)
        way = "rose" if after[at] > before[at] else "fell"
        level = f"from {before[at]:,.4g} to {after[at]:,.4g}"
        yield ratio, f"the level of {one.name} {way} {level} on {calendar.text(int(one.time[at]))}"


def _sides(values: Floats, width: int) -> tuple[Floats, Floats]:
    """Means of so many values before each step, and from it on; NaN where fewer than half are known."""
    known = ~np.isnan(values)
    sums = np.append(0.0, np.cumsum(np.where(known, values, 0.0)))
    counts = np.append(0, np.cumsum(known))
    at = np.arange(len(values))

    def mean(low: Ints, high: Ints) -> Floats:
        count = counts[high] - counts[low]
        enough = 2 * count >= width
        return np.where(enough, (sums[high] - sums[low]) / np.maximum(count, 1), np.nan)

    return mean(np.maximum(at - width, 0), at), mean(at, np.minimum(at + width, len(values)))


def _scatters(newest: Sequence[_History], season: int) -> list[str]:
    """Names series whose newest moves are larger than those of before; else whether those of all together are."""
    found, every = list[str](), [np.empty(0)]
    for one in newest:
        moves = np.abs(one.values[season:] - one.values[:-season])
        # Of new rows with new ones a season before: a level shift is no scatter.
        new, usual = moves[one.new :], _middle(moves[: one.new - season], 1)
        if usual > 0:
            every.append(new / usual)
            if (ratio := _middle(new / usual, _FEWEST)) > _SCATTER:
                found.append(f"the scatter of {one.name} is {ratio:.2g} times that of before")
    if not found and (ratio := _middle(np.concatenate(every), _FEWEST)) > _SCATTER:
        return [f"the scatter is {ratio:.2g} times that of before"]
    return found


def _gaps(one: _History, steps: int) -> Iterator[str]:
    """Yields that more of the newest cells are missing than in the worst span before."""
    before, after = np.split(np.isnan(one.values), [one.new])
    spans = before[len(before) % steps :].reshape(-1, steps).mean(axis=1)
    if after.mean() > spans.max() + _GAPS:
        yield f"{100 * after.mean():.0f} % of the cells of {one.name} are missing"


def _ranges(panel: Panel, since: int) -> Iterator[Finding]:
    """Yields covariates outside of what they were before."""
    new = panel.time > since
    for place, name in enumerate(panel.schema.columns[panel.n_channels :], start=panel.n_channels):
        before, after = (panel.values[rows, place] for rows in (~new, new))
        before, after = before[~np.isnan(before)], after[~np.isnan(after)]
        if not len(before) or not len(after):
            continue
        low, high = before.min(), before.max()
        outside = after[(after < low) | (after > high)]
        share = len(outside) / len(after)
        if share > _OUTSIDE:
            far = outside[np.abs(outside - before.mean()).argmax()]
            text = (
                f"{name} leaves its range of {low:,.4g} to {high:,.4g} in {100 * share:.0f} % of the new rows, as "
                f"far as {far:,.4g}"
            )
            yield from _drift("range", [text], "")


def _drift(rule: str, texts: Sequence[str], what: str) -> Iterator[Finding]:
    """Yields a warning that names the first few texts, if there are any."""
    if texts:
        more = f"; {len(texts):,} {what} in all" if len(texts) > _NAMED else ""
        yield Finding("warning", rule, "; ".join(texts[:_NAMED]) + more, "", count=len(texts))


def _middle(values: Floats, least: int) -> float:
    """The median of at least so many values; else NaN."""
    values = values[~np.isnan(values)]
    return float(np.median(values)) if len(values) >= least else np.nan
