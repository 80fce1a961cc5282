"""Where forecasts start and which rows they reach, before any network runs.

What comes in: a panel, a model, and what was asked for. What goes out: a `Task`, settled once over all
series, and for any neighbouring series of the panel the rows and times of their leads. Promised: what
is said of a series under a task does not depend on the series it is looked at with.

Axes: H lead.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from forecaster.errors import ConfigError, DataError
from forecaster.forecast.artifact import Artifact
from forecaster.forecast.paths import NO_PATHS, Draws
from forecaster.panel.arrays import blocks
from forecaster.panel.panel import MISSING, NO_TIME, Panel
from forecaster.windows.index import Int64

BLOCK = 1024
"""Series that are forecast together: what a network says of a series depends, in its last bits, on how
many it is shown with, and they are shown in batches that never cross a block."""


@dataclass(frozen=True)
class Task:
    """What is asked of every series alike: of one block as of another."""

    horizon: int
    """Leads wanted."""
    cutoff: int | None
    """Time that all are forecast from; None = each from its own last observed target."""
    latest: int
    """Time that the rows of a series without any target follow."""
    draws: Draws = NO_PATHS
    """Paths to keep."""

    def cutoffs(self, panel: Panel) -> Int64:
        """Returns int64 [series] time of each cutoff; NO_TIME = a series without an observed target."""
        if self.cutoff is not None:
            return np.full(panel.n_series, self.cutoff, dtype=np.int64)
        return _own_cutoffs(panel)


def settle(artifact: Artifact, panel: Panel, cutoff: str, horizon: int | None, draws: Draws) -> Task:
    """Returns what is asked of every series of a panel.

    Args:
        artifact: the model.
        panel: all series.
        cutoff: "own" = each series from its last observed target; "last" = all from the latest of
            these; or a date, for all.
        horizon: leads; None = as trained.
        draws: paths to keep.

    Raises:
        ConfigError: the model cannot reach that far, or has no paths.
        DataError: the date cannot be read.
    """
    wanted = artifact.horizon if horizon is None else horizon
    check_reach(artifact, wanted)
    _check_draws(artifact, draws)
    if cutoff not in ("own", "last"):
        time = panel.calendar.parse(cutoff)
        return Task(wanted, time, time, draws)
    own = _own_cutoffs(panel)
    located = own != NO_TIME
    latest = int(own[located].max() if located.any() else panel.time.max())
    return Task(wanted, None if cutoff == "own" else int(own.max()), latest, draws)


def _own_cutoffs(panel: Panel) -> Int64:
    last = panel.last_observed
    return np.where(last >= 0, panel.time[last], NO_TIME)


@dataclass(frozen=True)
class Ahead:
    """Where the leads of every series of a panel lie."""

    panel: Panel
    """With the horizon's rows after every cutoff."""
    at: Int64
    """[series] row of the cutoff; the row before its first for a series that begins later."""
    rows: Int64
    """[series, H] row of each lead; -1 where a series has not begun."""
    time: Int64
    """[series, H] time of each lead."""
    usable: NDArray[np.bool_]
    """[series] whether there is something to forecast from."""
    reasons: NDArray[np.str_]
    """[series] why there is not."""


def reach(panel: Panel, task: Task, length: int, horizon: int) -> Ahead:
    """Returns where the leads of every series of a panel lie.

    Args:
        panel: all series of a table, or some.
        task: settled over all.
        length: rows that a forecast looks back.
        horizon: leads, which may be more than the task wants.
    """
    times = task.cutoffs(panel)
    # A series without a cutoff still gets rows in the output; their times follow the latest one.
    cutoff = np.where(times == NO_TIME, task.latest, times)
    panel = panel.reaching(cutoff, horizon)
    lead = np.arange(1, horizon + 1)
    last = panel.row_at(cutoff)
    at = np.where(last < 0, panel.indptr[:-1] - 1, last)
    rows = at[:, None] + lead
    unbegun = np.flatnonzero(last < 0)
    time = panel.time[np.minimum(rows, panel.n_rows - 1)]
    if len(unbegun):
        time[unbegun] = panel.calendar.shift(cutoff[unbegun, None], lead)
        for step in range(horizon):
            wanted = cutoff.copy()
            wanted[unbegun] = time[unbegun, step]
            found = panel.row_at(wanted)[unbegun]
            rows[unbegun, step] = np.where(panel.time[found] == wanted[unbegun], found, -1)
    return Ahead(panel, at, rows, time, *_usable(panel, at, length))


def check_known(panel: Panel, artifact: Artifact, task: Task) -> None:
    """Refuses a future whose known covariates are not all given, where there is a forecast.

    Raises:
        DataError: naming the first that is missing, and how many series lack some.
    """
    schema, lacking = panel.schema, dict.fromkeys(panel.schema.known, 0)
    if not schema.known:
        return
    named: dict[str, str] = {}
    for start in range(0, panel.n_series, BLOCK):
        part = panel.between(start, min(start + BLOCK, panel.n_series))
        # A shorter forecast is the beginning of the trained one: the last patch is read whole.
        ahead = reach(part, task, artifact.context_length, max(task.horizon, artifact.horizon))
        rows = ahead.rows[:, : task.horizon]
        for name in schema.known:
            if name in schema.categorical:
                empty = ahead.panel.codes[rows, schema.code_columns.index(name)] == MISSING
            else:
                empty = np.isnan(ahead.panel.values[rows, schema.columns.index(name)])
            missing = empty & ahead.usable[:, None]
            lacking[name] += int(missing.any(axis=1).sum())
            if missing.any() and name not in named:
                series, lead = np.argwhere(missing)[0]
                time = panel.calendar.text(int(ahead.time[series, lead]))
                named[name] = f"series {part.labels[series]} at {time} (lead {lead + 1}"
    for name in [name for name in schema.known if name in named]:
        raise DataError(
            f"{panel.name}: '{name}' is known in advance, but has no value for {named[name]} of "
            f"{task.horizon}); {lacking[name]} of {panel.n_series} series lack some: give them with "
            "--future FILE, or shorten --horizon"
        )


def _usable(panel: Panel, at: Int64, length: int) -> tuple[NDArray[np.bool_], NDArray[np.str_]]:
    first, last = panel.first_observed, panel.last_observed
    ever = (first >= 0) & (first <= at)
    begin = np.maximum(panel.indptr[:-1], at - length + 1)
    usable = ever & (last >= begin)
    # A series that goes on after its cutoff may have been silent before it.
    unsure = np.flatnonzero(usable & (last > at))
    for part in blocks(len(unsure), length * panel.n_channels):
        series = unsure[part]
        rows = np.maximum(at[series, None] - np.arange(length), begin[series, None])
        seen = panel.values[rows, : panel.n_channels]
        usable[series] = (seen == seen).any(axis=(1, 2))
    reasons = np.where(
        ever,
        f"no target observed in the {length} steps before the cutoff",
        "no target observed before the cutoff",
    )
    return usable, reasons


def check_reach(artifact: Artifact, wanted: int) -> None:
    """Refuses a horizon that the model was not made for.

    Raises:
        ConfigError: the model cannot reach that far.
    """
    trained, model = artifact.horizon, artifact.config.model
    if model.decoder != "autoregressive" and not 1 <= wanted <= trained:
        raise ConfigError(
            f"horizon {wanted}: this model forecasts 1 to {trained} steps; "
            f"fit one with --horizon {wanted} to reach further, or with model.decoder autoregressive"
        )
    if wanted < 1:
        raise ConfigError(f"horizon {wanted}: expected 1 or more steps")
    for member in artifact.ensemble.members:
        covered = member.longest_horizon
        if covered is not None and wanted > covered:  # type: ignore[operator]
            raise ConfigError(
                f"horizon {wanted}: the learned positions of this model cover {covered} steps; fit one "
                f"with --horizon {wanted}, or with other model.positions, to reach further"
            )


def _check_draws(artifact: Artifact, draws: Draws) -> None:
    """Refuses paths of a model that has none."""
    if draws.samples is None:
        return
    if draws.samples < 1:
        raise ConfigError(f"samples {draws.samples}: expected 1 or more paths")
    if artifact.config.model.decoder != "autoregressive":
        raise ConfigError(
            f"samples {draws.samples}: this model's decoder is direct: it says how each lead is "
            "distributed by itself, not how leads go together; fit one with "
            "--set model.decoder=autoregressive to draw paths"
        )
