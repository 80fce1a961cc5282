"""The window of a forecast: its cutoffs and horizon, and the rows of its leads in a panel.

Axes: H lead · C channel.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from forecaster.errors import ConfigError, check_count, is_count
from forecaster.forecast.artifact import Artifact
from forecaster.forecast.bands import Columns, Levels, asked_columns
from forecaster.forecast.model_folder import check_leads
from forecaster.model.size import check_work
from forecaster.panel.arrays import Bools, Ints, blocks
from forecaster.panel.groups import check_results
from forecaster.panel.known import Change, changed, check_fill, filled
from forecaster.panel.panel import MISSING, NO_TIME, Panel

_MOST_SAMPLES = 100_000  # paths of a cell: more are a typing error, and fill the memory


@dataclass(frozen=True)
class ForecastWindow:
    """Horizon and cutoff of a forecast, resolved once over all series."""

    horizon: int
    """Leads wanted."""
    cutoff: int | None
    """Time of the cutoff of all series; None = each its own last observed target."""
    latest: int
    """Cutoff in the output of a series without any target."""
    num_samples: int | None = None
    """Sample paths to keep, and to take quantiles from; None = keep none."""
    seed: int = 0
    """Of the sample paths."""
    columns: Columns = ()
    """Of the quantiles; () = of the fitted levels."""
    fill: str | None = None
    """How known covariates are filled where they are missing; None = they are not."""
    changes: tuple[Change, ...] = ()
    """Of known covariates, after they are filled."""

    def cutoffs(self, panel: Panel) -> Ints:
        """Returns int64 [series] time of each cutoff; NO_TIME = a series without an observed target."""
        if self.cutoff is not None:
            return np.full(panel.n_series, self.cutoff, dtype=np.int64)
        return _own_cutoffs(panel)


def resolve_window(
    artifact: Artifact,
    panel: Panel,
    cutoff: str = "own",
    horizon: int | None = None,
    num_samples: int | None = None,
    seed: int = 0,
    levels: Levels = None,
    quantiles: Levels = None,
    fill: str | None = None,
) -> ForecastWindow:
    """Returns the window of a forecast of all series of a panel.

    Args:
        artifact: the model.
        panel: opened with its schema.
        cutoff: "own" = each series from its own last observed target; "last" = all from the latest of
            these; or a date.
        horizon: leads; None = as trained. Fewer are an exact prefix, more need an autoregressive decoder.
        num_samples: sample paths to keep.
        seed: of the sample paths.
        levels: central bands, percent, in place of the fitted quantiles.
        quantiles: further levels.
        fill: how known covariates are filled after the cutoff; None = they must be there.

    Raises:
        ConfigError: the horizon is too long for the model, it draws no paths, or has no such levels.
        DataError: the date cannot be read, or a column has the name of a result.
    """
    columns = columns_for(panel, levels, quantiles, artifact.plan.model.quantile_levels)
    wanted = artifact.horizon if horizon is None else horizon
    check_samples(num_samples)
    check_horizon(artifact, wanted, num_samples)
    if not is_count(seed, least=0):
        raise ConfigError(f"seed {seed!r}: expected 0 or more")
    check_fill(panel, fill)
    common = latest = panel.cutoff_at(cutoff)
    if latest is None:
        own = _own_cutoffs(panel)
        located = own != NO_TIME
        latest = int(own[located].max()) if located.any() else artifact.trained_until
        common = None if cutoff == "own" else latest
    return ForecastWindow(wanted, common, latest, num_samples, seed, columns, fill)


def columns_for(panel: Panel, levels: Levels, quantiles: Levels, fitted: Sequence[float]) -> Columns:
    """Returns the columns of quantiles beside those of a table; () = as fitted; raises as `asked_columns`.

    Raises:
        DataError: a column of the table has the name of one of them.
    """
    if levels is None and quantiles is None:
        return ()
    columns = asked_columns(levels, quantiles, fitted)
    check_results(panel, [name for name, _ in columns], "--levels, --quantiles")
    return columns


def check_horizon(artifact: Artifact, wanted: int, num_samples: int | None = None) -> None:
    """Refuses a horizon that the model cannot forecast.

    Raises:
        ConfigError: it is too long, no step at all, or takes hours.
    """
    model = artifact.plan.model
    check_leads(artifact.plan, wanted)
    check_count(wanted, "horizon", " steps")
    check_work(model, wanted, len(artifact.ensemble.members), num_samples)
    for member in artifact.ensemble.networks:
        covered = member.longest_horizon
        if covered is not None and wanted > covered:
            raise ConfigError(
                f"horizon {wanted}: the learned positions of this model cover {covered} steps; fit one "
                f"with --horizon {wanted}, or with other model.positions, to reach further"
            )


def check_samples(wanted: int | None) -> None:
    """Raises a ConfigError for a number of sample paths that is none, or too large; None = none."""
    if wanted is None:
        return
    check_count(wanted, "samples", " paths")
    if wanted > _MOST_SAMPLES:
        raise ConfigError(f"samples {wanted}: expected at most {_MOST_SAMPLES:,} paths")


@dataclass(frozen=True)
class Leads:
    """Rows and times of the leads of every series of a panel."""

    panel: Panel  # with the horizon's rows after every cutoff
    cutoff: Ints  # [series] row; the row before the first for a series that begins later
    rows: Ints  # [series, H]; -1 where a series has not begun
    time: Ints  # [series, H]
    usable: Bools  # [series, C] whether there is something to forecast from
    reasons: NDArray[np.str_]  # [series, C] why there is not
    cold: Bools  # [series] usable without any history

    @property
    def chosen(self) -> Ints:
        """Numbers of the series with a channel to forecast."""
        return np.flatnonzero(self.usable.any(axis=1))


def _own_cutoffs(panel: Panel) -> Ints:
    last = panel.last_observed
    return np.where(last >= 0, panel.time[last], NO_TIME)


def locate_leads(panel: Panel, artifact: Artifact, window: ForecastWindow) -> Leads:
    """Returns where the leads of every series lie, in a panel with rows for them."""
    horizon = max(window.horizon, artifact.horizon)
    times = window.cutoffs(panel)
    # A series without a cutoff still gets rows in the output; their times follow the latest one.
    cutoff = np.where(times == NO_TIME, window.latest, times)
    panel = panel.reaching(cutoff, horizon)
    lead = np.arange(1, horizon + 1)
    last = panel.row_at(cutoff)
    if artifact.effects is not None and artifact.effects.look_ahead:
        # What is planned for the steps after the horizon is not known at the cutoff.
        end = np.where(last < 0, panel.indptr[:-1], last + 1) + horizon
        panel = panel.cut(panel.indptr[:-1], np.minimum(panel.indptr[1:], end))
        last = panel.row_at(cutoff)
    at = np.where(last < 0, panel.indptr[:-1] - 1, last)
    rows = at[:, None] + lead
    time = panel.time[np.minimum(rows, panel.n_rows - 1)]
    unbegun = np.flatnonzero(last < 0)
    if len(unbegun):
        time[unbegun] = panel.calendar.shift(cutoff[unbegun, None], lead)
        for step in range(horizon):
            row = panel.row_at(time[:, step])[unbegun]
            rows[unbegun, step] = np.where(panel.time[row] == time[unbegun, step], row, -1)
    if window.fill is not None:
        panel = filled(panel, rows, at, window.fill)
    if window.changes:
        panel = changed(panel, rows[:, : window.horizon], window.changes)
    usable, reasons = _usable(panel, at, artifact.context_length)
    first = panel.first_observed
    cold = ((first < 0) | (first > at)) & (rows >= 0).all(axis=1) & artifact.ensemble.forecasts_cold
    cold &= panel.regular | (last >= 0)
    number = np.flatnonzero(cold)
    cold[number] = ~unknown_cells(panel, rows[number, : window.horizon]).any(axis=(1, 2))
    return Leads(panel, at, rows, time, usable | cold[:, None], reasons, cold)


def _usable(panel: Panel, at: Ints, length: int) -> tuple[Bools, NDArray[np.str_]]:
    first, last, channels = panel.first_observed, panel.last_observed, panel.n_channels
    begun = (first >= 0) & (first <= at)
    begin = np.maximum(panel.indptr[:-1], at - length + 1)
    usable = np.repeat((begun & (last >= begin))[:, None], channels, axis=1)
    ever = np.repeat(begun[:, None], channels, axis=1)
    # A series that goes on after its cutoff may have no observation in the context, a channel anywhere.
    unsure = np.flatnonzero(usable[:, 0] & ((last > at) | (channels > 1)))
    for part in blocks(len(unsure), length * channels):
        series = unsure[part]
        rows = np.maximum(at[series, None] - np.arange(length), begin[series, None])
        seen = panel.values[rows, :channels]
        usable[series] = (seen == seen).any(axis=1)
    for number in np.flatnonzero(begun & ~usable.all(axis=1)) if channels > 1 else ():
        past = panel.values[panel.indptr[number] : at[number] + 1, :channels]
        ever[number] = (past == past).any(axis=0)
    reasons = np.where(
        ever,
        f"no target observed in the {length} steps before the cutoff",
        "no target observed before the cutoff",
    )
    return usable, reasons


def unknown_cells(panel: Panel, rows: Ints) -> Bools:
    """Returns [series, H, known] whether a known covariate, the numbers first, has no value in rows [series, H]."""
    schema, at = panel.schema, rows[..., None]
    numbers = np.array([schema.columns.index(name) for name in schema.known_numeric], np.int64)
    codes = np.array([schema.code_columns.index(name) for name in schema.known_category], np.int64)
    empty = np.isnan(panel.values[at, numbers]), panel.codes[at, codes] == MISSING
    lacks = panel.lacks((*schema.known_numeric, *schema.known_category))
    return np.concatenate(empty, axis=-1) & ~lacks[panel.series_at(rows)]
