"""Rules about columns: empty ones, late and early ends, copies, leaks, unknown words."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from forecaster.panel.audit_facts import Facts
from forecaster.panel.findings import Finding

Floats = NDArray[np.float64]

_SAMPLE_SERIES, _SAMPLE_ROWS = 16, 1024
"""What is compared, column by column, to find copies."""
_LEAST_PAIRS = 20
"""Fewer changes prove nothing."""
_COPY = 0.9995
"""Correlation of changes from row to row beyond which two columns say the same."""
_MOST_LAGS = 48
_SHOWN = 5
"""Names shown of many."""


def empty(facts: Facts) -> Iterator[Finding]:
    """Columns without a single value."""
    if not (facts.cutoff >= 0).any():
        return
    for column in np.flatnonzero((facts.count == 0).all(axis=0)):
        name = facts.names[column]
        flag = "--target" if column < facts.panel.n_channels else "--past and --known"
        yield Finding(
            "warning",
            "empty",
            f"'{name}' has no value in any row",
            f"leave it out of {flag}, or check how its cells are written",
            where=name,
        )


def edges(facts: Facts) -> Iterator[Finding]:
    """Columns that begin after their series' first target, or stop before its last one."""
    panel, future = facts.panel, set(facts.panel.schema.known)
    seen = facts.cutoff >= 0
    for column, name in enumerate(facts.names):
        filled = seen & (facts.count[:, column] > 0)
        late = np.where(filled, facts.first[:, column] - facts.start, 0)
        if (late > 0).any():
            series = int(late.argmax())
            yield Finding(
                "note",
                "leading",
                f"'{name}' begins later than its series in {int((late > 0).sum()):,} of "
                f"{panel.n_series:,} series, by up to {late[series]:,} steps",
                "nothing needs doing: the cells before are masked",
                series=panel.labels[series],
                where=f"begins {facts.at(int(facts.first[series, column]))}",
                count=int((late > 0).sum()),
            )
        early = np.where(filled, facts.cutoff - facts.last[:, column], 0)
        if (early > 0).any() and name not in future:
            series = int(early.argmax())
            yield Finding(
                "warning" if early[series] > 1 else "note",
                "trailing",
                f"'{name}' stops before the last target in {int((early > 0).sum()):,} of "
                f"{panel.n_series:,} series, by up to {early[series]:,} steps",
                "bring it up to date: a forecast is made without its latest values",
                series=panel.labels[series],
                where=f"stops {facts.at(int(facts.last[series, column]))}",
                count=int((early > 0).sum()),
            )


def reach(facts: Facts) -> Iterator[Finding]:
    """Covariates known in advance that stop at the cutoff, or short of the horizon."""
    panel, horizon = facts.panel, facts.horizon
    seen = np.flatnonzero(facts.cutoff >= 0)
    if horizon is None or not len(seen):
        return
    # Columns of one file stop at one date, and are told together.
    alike: dict[bytes, list[str]] = {}
    for name in panel.schema.known:
        ahead = facts.last[seen, facts.names.index(name)] - facts.cutoff[seen]
        alike.setdefault(np.clip(ahead, 0, horizon).tobytes(), []).append(name)
    for steps, names in alike.items():
        ahead = np.frombuffer(steps, np.int64)
        series = int(seen[ahead.argmin()])
        first = {"series": panel.labels[series], "where": f"at {facts.at(int(facts.cutoff[series]))}"}
        if not ahead.any():
            yield Finding(
                "note",
                "reach",
                f"known in advance, but not after the last target: {_listed(names)}",
                "a forecast needs their values over the horizon: give them with --future FILE",
                **first,
                count=len(names),
            )
        elif (ahead < horizon).any():
            yield Finding(
                "warning",
                "reach",
                f"known in advance, but for fewer than {horizon} steps after the last target in "
                f"{int((ahead < horizon).sum()):,} of {panel.n_series:,} series: {_listed(names)} (the "
                f"fewest: {ahead.min()})",
                "give all steps of the horizon with --future FILE, or shorten --horizon",
                **first,
                count=int((ahead < horizon).sum()),
            )


def leaks(facts: Facts) -> Iterator[Finding]:
    """Covariates known in advance that equal the target at a time no forecast can know."""
    schema, channels = facts.panel.schema, facts.panel.n_channels
    begin = len(schema.columns) - len(schema.known_numeric)
    if not schema.known_numeric or not facts.panel.regular:
        return
    changes = _changes(facts)
    # What lies a horizon back or more may be known; without a horizon only what has not been yet.
    oldest = min(facts.horizon - 1, _MOST_LAGS) if facts.horizon else 0
    best: dict[tuple[int, int], tuple[float, int]] = {}
    for lag in range(-_MOST_LAGS, oldest + 1):
        # A covariate that holds the target of `lag` steps ago.
        alike = _alike(changes[:, max(lag, 0) :, begin:], changes[:, -min(lag, 0) :, :channels])
        for known, channel in np.argwhere(alike >= _COPY):
            found = (float(alike[known, channel]), lag)
            best[known, channel] = max(best.get((known, channel), found), found)
    for (known, channel), (_, lag) in best.items():
        name, target = schema.known_numeric[known], schema.target[channel]
        when = (
            "at the same time" if lag == 0 else f"{abs(lag)} steps {'earlier' if lag > 0 else 'later'}"
        )
        yield Finding(
            "warning",
            "leak",
            f"'{name}' is declared known in advance, but is '{target}' {when}, up to a scale: over the "
            "horizon that is the answer itself",
            f"leave '{name}' out of --known",
            where=name,
        )


def twins(facts: Facts) -> Iterator[Finding]:
    """Columns that say the same up to a scale."""
    schema = facts.panel.schema
    if len(schema.columns) < 2:
        return
    changes = _changes(facts)
    alike = _alike(changes, changes)
    known = len(schema.columns) - len(schema.known_numeric)
    for one, other in np.argwhere(np.triu(alike >= _COPY, 1)):
        if one < facts.panel.n_channels and other >= known:
            continue  # a leak, and told as one
        names = schema.columns[one], schema.columns[other]
        yield Finding(
            "note",
            "twins",
            f"'{names[0]}' and '{names[1]}' say the same, up to a scale",
            "leave one of them out: it teaches nothing and costs time",
            where=names[1],
        )


def unknown_categories(facts: Facts) -> Iterator[Finding]:
    """Words that the model has not met: they are read as "unknown"."""
    panel, schema = facts.panel, facts.panel.schema
    for names, codes, each in (
        (schema.code_columns, panel.codes, "rows"),
        (schema.static_category, panel.static_codes, "series"),
    ):
        for column, name in enumerate(names):
            bad = np.flatnonzero(codes[:, column] == 0)
            if not len(bad):
                continue
            row = int(bad[0])
            by_row = each == "rows"
            series = int(np.searchsorted(panel.indptr, row, side="right") - 1) if by_row else row
            words = panel.unmet.get(name, ())
            yield Finding(
                "warning",
                "unknown-category",
                f"{len(bad):,} of {len(codes):,} {each} hold words in '{name}' that the model has not "
                f"met{': ' if words else ''}{_listed(words)}",
                "they are forecast as unknown; correct the spelling, or fit again with them",
                series=panel.labels[series],
                where=facts.at(row) if by_row else name,
                count=len(bad),
            )


def _listed(words: tuple[str, ...] | list[str]) -> str:
    return ", ".join(words[:_SHOWN]) + ", ..." * (len(words) > _SHOWN)


def _changes(facts: Facts) -> Floats:
    """Returns changes from row to row of a sample, centred in each series: [series, row, column].

    NaN where a value is missing, and in columns that change by nothing but a trend.
    """
    panel = facts.panel
    length = np.diff(panel.indptr)
    longest = np.argsort(-length, kind="stable")[:_SAMPLE_SERIES]
    rows = np.minimum(int(length[longest[0]]), _SAMPLE_ROWS)
    # From the end of the observed rows: future ones hold no target.
    begin = np.maximum(panel.indptr[longest], facts.cutoff[longest] + 1 - rows)
    row = begin[:, None] + np.arange(rows)
    inside = row < panel.indptr[longest + 1][:, None]
    values = panel.values[np.where(inside, row, 0)].astype(np.float64)
    values[~inside] = np.nan
    changes = np.diff(values, axis=1)
    real = changes == changes
    count = real.sum(axis=1, keepdims=True)
    changes -= np.where(real, changes, 0).sum(axis=1, keepdims=True) / np.maximum(count, 1)
    size = np.where(values == values, np.abs(values), 0).max(axis=(0, 1), initial=0)
    changes[:, :, np.nanmax(np.abs(changes), axis=(0, 1), initial=0) <= 1e-5 * size] = np.nan
    return changes


def _alike(one: Floats, other: Floats) -> Floats:
    """Returns the median over series of |correlation| of columns, rows counted from the first.

    Args:
        one, other: [series, row, column], centred; NaN where missing. The longer is cut.
    """
    rows = min(one.shape[1], other.shape[1])
    one, other = one[:, :rows], other[:, :rows]
    real, also = (one == one).astype(np.float64), (other == other).astype(np.float64)
    one, other = np.where(real > 0, one, 0), np.where(also > 0, other, 0)
    product = one.transpose(0, 2, 1) @ other
    power = (one**2).transpose(0, 2, 1) @ also, real.transpose(0, 2, 1) @ other**2
    count = real.transpose(0, 2, 1) @ also
    usable = (count >= _LEAST_PAIRS) & (power[0] > 0) & (power[1] > 0)
    alike = np.abs(product) / np.sqrt(np.where(usable, power[0] * power[1], 1))
    alike = np.where(usable, alike, np.nan)
    none = ~usable.any(axis=0)
    alike[:, none] = 0
    median: Floats = np.nanmedian(alike, axis=0)
    return median
