"""What new rows hold that the rows before them did not: levels, scatter, gaps and covariates out of range."""

from __future__ import annotations

import numpy as np

from forecaster.panel.arrays import Floats
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
    found = [
        _levels(panel, since, steps),
        *_scatter_and_gaps(panel, since, steps),
        *_covariates(panel, since),
    ]
    return [one for one in found if one is not None]


def _levels(panel: Panel, since: int, steps: int) -> Finding | None:
    """Steps in the new rows between whose sides the means of a season differ more than at any step before."""
    season, texts = panel.calendar.season_length, list[tuple[float, str]]()
    width = season if 1 < season <= steps else max(_SIDE, min(steps // 2, 2 * _SIDE))
    for number, begin, end in _spans(panel):
        first = int(panel.rows_until(since, np.array([number]))[0]) - begin
        if end - begin - first < 1 or first < 4 * width:
            continue
        for channel in range(panel.n_channels):
            before, after = _sides(panel.values[begin:end, channel], width)
            jump = np.abs(after - before)
            old, new = jump[: first - width], jump[first - width :]
            if not np.isfinite(old).any() or not np.isfinite(new).any():
                continue
            ratio = np.nanmax(new) / max(np.nanmax(old), 1e-12 * np.nanmax(np.abs(before)), 1e-300)
            if ratio > _JUMP:
                at = int(np.nanargmax(new)) + first - width
                text, name = panel.calendar.text, _name(panel, number, channel)
                when, way = (
                    text(int(panel.time[begin + at])),
                    "rose" if after[at] > before[at] else "fell",
                )
                level = f"{before[at]:,.4g} to {after[at]:,.4g}"
                texts.append((ratio, f"the level of {name} {way} from {level} on {when}"))
    worst = [text for _, text in sorted(texts, reverse=True)]
    return _drift("level", worst[:_NAMED], len(worst), "series with a new level")


def _sides(values: Floats, width: int) -> tuple[Floats, Floats]:
    """Means of so many values before each step, and from it on; NaN where fewer than half are known."""
    known = ~np.isnan(values)
    sums = np.append(0.0, np.cumsum(np.where(known, values, 0.0)))
    counts = np.append(0, np.cumsum(known))
    at = np.arange(len(values))
    means = []
    for low, high in ((np.maximum(at - width, 0), at), (at, np.minimum(at + width, len(values)))):
        count = counts[high] - counts[low]
        enough = 2 * count >= width
        means.append(np.where(enough, (sums[high] - sums[low]) / np.maximum(count, 1), np.nan))
    return means[0], means[1]


def _scatter_and_gaps(panel: Panel, since: int, steps: int) -> list[Finding | None]:
    """Scatter of the newest steps beside that of all before; missing cells beside the worst span before."""
    season, scatters, gaps, ratios = (
        panel.calendar.season_length,
        list[str](),
        list[str](),
        list[Floats](),
    )
    for number, begin, end in _spans(panel):
        first = max(int(panel.rows_until(since, np.array([number]))[0]), end - steps)
        if first >= end or first - begin < 2 * steps + season:
            continue
        for channel in range(panel.n_channels):
            values, name = panel.values[begin:end, channel], _name(panel, number, channel)
            moves = np.abs(values[season:] - values[:-season])
            # Of new rows with new ones a season before: a level shift is no scatter.
            new, old = moves[first - begin :], moves[: first - begin - season]
            usual = _middle(old, 1)
            if usual > 0:
                ratios.append(new / usual)
                if _middle(ratios[-1], _FEWEST) > _SCATTER:
                    ratio = _middle(ratios[-1], _FEWEST)
                    scatters.append(f"the scatter of {name} is {ratio:.2g} times that of before")
            missing = np.isnan(values)
            before = missing[: first - begin]
            spans = before[len(before) % steps :].reshape(-1, steps).mean(axis=1)
            share = float(missing[first - begin :].mean())
            if share > spans.max() + _GAPS:
                gaps.append(f"{100 * share:.0f} % of the cells of {name} are missing")
    if ratios and not scatters and (ratio := _middle(np.concatenate(ratios), _FEWEST)) > _SCATTER:
        scatters = [f"the scatter is {ratio:.2g} times that of before"]
    return [
        _drift("scatter", scatters[:_NAMED], len(scatters), "series with another scatter"),
        _drift("gaps", gaps[:_NAMED], len(gaps), "series with more gaps"),
    ]


def _covariates(panel: Panel, since: int) -> list[Finding | None]:
    """Covariates outside of what they were before."""
    schema, new = panel.schema, panel.time > since
    found = list[Finding | None]()
    for place, name in enumerate(schema.columns[panel.n_channels :], start=panel.n_channels):
        before, after = (panel.values[rows, place] for rows in (~new, new))
        before, after = before[~np.isnan(before)], after[~np.isnan(after)]
        if not len(before) or not len(after):
            continue
        low, high = before.min(), before.max()
        outside = (after < low) | (after > high)
        if outside.mean() > _OUTSIDE:
            far = after[outside][np.abs(after[outside] - before.mean()).argmax()]
            text = (
                f"{name} leaves its range of {low:,.4g} to {high:,.4g} in {100 * outside.mean():.0f} % of the new "
                f"rows, as far as {far:,.4g}"
            )
            found.append(_drift("range", [text], 1, ""))
    return found


def _drift(rule: str, texts: list[str], count: int, what: str) -> Finding | None:
    if not texts:
        return None
    more = f"; {count:,} {what} in all" if count > len(texts) else ""
    return Finding("warning", rule, "; ".join(texts) + more, "", count=count)


def _spans(panel: Panel) -> list[tuple[int, int, int]]:
    """Number of each series with an observation, its first row, and the row after its last observation."""
    ends = panel.last_observed + 1
    rows = zip(panel.indptr[:-1].tolist(), ends.tolist(), strict=True)
    return [(number, begin, end) for number, (begin, end) in enumerate(rows) if end > begin]


def _middle(values: Floats, least: int) -> float:
    """The median of at least so many values; else NaN."""
    values = values[~np.isnan(values)]
    return float(np.median(values)) if len(values) >= least else np.nan


def _name(panel: Panel, number: int, channel: int) -> str:
    target, several = panel.schema.target[channel], panel.n_channels > 1
    if panel.n_series == 1 and not panel.keys.width:
        return target
    name = panel.series_names[number]
    return f"{name} ({target})" if several else name
