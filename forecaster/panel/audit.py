"""What is wrong, or only odd, with a panel: findings with series, row count, and what to do."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from forecaster.panel.finding import Finding, worst_first
from forecaster.panel.panel import Panel


def check_panel(panel: Panel, horizon: int | None = None) -> list[Finding]:
    """Returns the findings on a panel, errors first.

    Args:
        panel: any panel.
        horizon: steps to forecast; None leaves out what depends on it.
    """
    found = [*panel.notes, *_unobserved(panel), *_short(panel, horizon), *_constant(panel)]
    found += [*_gaps(panel), *_ends(panel)]
    return worst_first(found)


def _unobserved(panel: Panel) -> Iterator[Finding]:
    bad = np.flatnonzero(panel.last_observed < 0)
    if len(bad):
        yield Finding(
            "error" if len(bad) == panel.n_series else "warning",
            "unobserved",
            f"{len(bad)} of {panel.n_series} series have no observed target",
            "drop them, or fill their targets; they are returned with empty forecasts",
            series=panel.labels[bad[0]],
            where=", ".join(panel.schema.target),
            count=len(bad),
        )


def _short(panel: Panel, horizon: int | None) -> Iterator[Finding]:
    if horizon is None:
        return
    length = np.where(panel.last_observed < 0, 0, panel.last_observed - panel.first_observed + 1)
    bad = np.flatnonzero((length < horizon) & (length > 0))
    if len(bad):
        yield Finding(
            "warning",
            "short",
            f"{len(bad)} series are shorter than the horizon of {horizon} steps",
            "they are forecast from what they have; pass a smaller --horizon to learn from them",
            series=panel.labels[bad[0]],
            where=f"{length[bad[0]]} rows",
            count=len(bad),
        )


def _constant(panel: Panel) -> Iterator[Finding]:
    for channel, name in enumerate(panel.schema.target):
        values = panel.values[:, channel]
        rows = np.flatnonzero(~np.isnan(values))
        owner = np.searchsorted(panel.indptr, rows, side="right") - 1
        changes = (np.diff(values[rows]) != 0) & (np.diff(owner) == 0)
        varying = np.bincount(owner[1:][changes], minlength=panel.n_series) > 0
        bad = np.flatnonzero(~varying & (np.bincount(owner, minlength=panel.n_series) > 1))
        if len(bad):
            first = values[rows[np.searchsorted(owner, bad[0])]]
            yield Finding(
                "note",
                "constant",
                f"{len(bad)} series never change in '{name}' (the first holds {first:g})",
                "drop them if they are not meant to be forecast",
                series=panel.labels[bad[0]],
                where=name,
                count=len(bad),
            )


def _gaps(panel: Panel) -> Iterator[Finding]:
    rows = panel._observed_rows
    if not panel.regular or len(rows) < 2:
        return
    owner = np.searchsorted(panel.indptr, rows, side="right") - 1
    missing = np.where(np.diff(owner) == 0, np.diff(rows) - 1, 0)
    if missing.any():
        at = int(missing.argmax())
        start = panel.calendar.text(int(panel.time[rows[at] + 1]))
        yield Finding(
            "note",
            "gaps",
            f"{int(missing.sum())} steps without a target in {int((missing > 0).sum())} gaps, "
            f"the longest of {int(missing.max())} steps",
            "nothing needs doing: gaps are masked, at their true place",
            series=panel.labels[owner[at]],
            where=f"from {start}",
            count=int(missing.sum()),
        )


def _ends(panel: Panel) -> Iterator[Finding]:
    seen = panel.last_observed >= 0
    if not seen.any():
        return
    ends = panel.time[panel.last_observed[seen]]
    bad = np.flatnonzero(ends < ends.max())
    if len(bad):
        text = panel.calendar.text
        yield Finding(
            "note",
            "ends",
            f"{len(bad)} of {panel.n_series} series end before {text(int(ends.max()))}",
            "each is forecast from its own end; pass --cutoff last for one date",
            series=panel.labels[np.flatnonzero(seen)[bad[0]]],
            where=f"{text(int(ends.min()))} to {text(int(ends.max()))}",
            count=len(bad),
        )
