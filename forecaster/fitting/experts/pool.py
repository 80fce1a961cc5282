"""Experts of a table: which suit it, and what they are solved on.

Which experts there are is chosen on all rows, those of validation included; what they hold is solved on the
training rows alone (`solve_experts`). That is harmless: the choice reads lengths, the calendar, the share of
zeros and the spread of levels, and no number of a forecast is estimated there. A backtest cuts the table at
its cutoff before the choice (`_Refits`), so that no scored row enters it.
"""

from __future__ import annotations

from typing import NamedTuple, get_args

import numpy as np
import torch
from numpy.typing import NDArray

from forecaster.config import Expert, ExpertPlan, ModelConfig, Plan
from forecaster.errors import ConfigError
from forecaster.fitting.experts.cold_bands import learn_bands
from forecaster.fitting.experts.drivers import solve_arx
from forecaster.fitting.experts.levels import learn_levels
from forecaster.fitting.experts.ridge import solve_linear
from forecaster.fitting.moments import learn_scales
from forecaster.fitting.versions import versions
from forecaster.forecast.artifact import Artifact, shape_of
from forecaster.model.closed_forms import ETS_SEASON, LEVEL_SEASONS, MEAN_SEASONS, SEASONS
from forecaster.model.ensemble import Ensemble
from forecaster.model.experts import CUTOFFS, GENERAL, SEASONAL, SECOND, Experts
from forecaster.model.network import Network
from forecaster.panel.arrays import rows_before
from forecaster.panel.audit import ZEROS
from forecaster.panel.calendar import Calendar, cycle_steps
from forecaster.panel.categories import with_categories
from forecaster.panel.panel import Panel
from forecaster.windows.index import Int64, even_draw
from forecaster.windows.split import Split, split_panel
from forecaster.windows.store import WindowStore, training_store

HISTORY = 2048
"""Steps that experts read at most: a batch of 256 windows is 4 MB, and older steps hardly weigh (0.9^2048)."""
# Steps before each cutoff, where `SEASONS` seasons are not more: the slowest smoothing, of 0.1, has
# 0.9^256 = 2e-12 of its weight further back.
_MEMORY = 256
# Steps between earlier cutoffs, at most: at a horizon of 512 steps they would leave no history before them.
_SPACING = 64
_LAGS = 96  # steps back of a driver, at most: four days of hours, a day of quarters of an hour
_LEAST_DELAY = _MEMORY // 8  # steps back of a driver that are tried, however short horizon and season
_LEAST_LAGS = 8  # of each column: with fewer there are too many columns
# Columns times lags, at most: 1,024 windows of them and of their squares fill the 64 MB of `drivers.py`.
_CANDIDATES = 4096
_COMPARED = 100  # series whose levels are compared, an even draw
# Rows of the longest series from which on drivers are chosen: a held-out quarter of fewer is under 50 windows.
_DRIVEN_ROWS = 200
_MOST_CHANNELS = 50  # whose drivers are chosen: each takes a pass over its windows


class _Lengths(NamedTuple):
    """How far back experts read, in steps."""

    season: int
    """1 = none."""
    second: int
    """Of a longer cycle; 0 = none."""
    spacing: int
    """Between the earlier cutoffs."""
    memory: int
    """Before each cutoff."""
    longest: int
    """Of the longest series."""

    @property
    def cutoff_span(self) -> int:
        """From the earliest cutoff to the window's own."""
        return CUTOFFS * self.spacing

    @property
    def second_span(self) -> int:
        """Before each cutoff, for means over the longer cycle: beyond the memory, as far as history goes."""
        return min(MEAN_SEASONS * self.second, self.longest, HISTORY - self.cutoff_span)


def pool_settings(model: ModelConfig, panel: Panel, horizon: int) -> ExpertPlan:
    """Returns the experts that suit a table, and how far back they read; `linear_settings` adds their maps.

    All rows are read, those of validation too: see the top of this file.

    Args:
        model: the request.
        panel: the table.
        horizon: steps.

    Raises:
        ConfigError: a requested expert has no season, demand or positive channel in the table.
    """
    longest = panel.longest
    requested = model.experts
    if requested is None and (model.head != "quantile" or model.decoder != "direct"):
        requested = ()
    if requested == ():
        # History is read all the same: a constant context takes its spread from it.
        return ExpertPlan(history_length=max(1, min(longest, HISTORY)))
    lengths = _lengths(panel, horizon)
    columns = _drivers(panel)
    suitable = _suitable(panel, lengths, columns)
    if requested and "ets" in requested:
        suitable.add("ets")
    if unsuited := sorted(set(requested or ()) - suitable):
        raise ConfigError(
            f"model.experts {', '.join(unsuited)}: {panel.name} has no season or demand for it "
            f"(season {lengths.season}, longest series {longest:,} rows); take some of "
            f"{', '.join(name for name in get_args(Expert) if name in suitable)}"
        )
    names = tuple(name for name in get_args(Expert) if name in (requested or suitable))
    drivers = columns if "arx" in names else ()
    # What a driver does shows within a horizon or a season: delays of so many steps are tried, and of 32 at
    # least, as far as all candidates (columns times lags) are solved together.
    lags = 0
    if drivers:
        delay = max(horizon, lengths.season, _LEAST_DELAY)
        lags = min(_LAGS, delay, _CANDIDATES // len(drivers))
    # Means of the training rows are of all series together: of use where these are alike.
    is_absolute = panel.n_series == 1 or (lags > 0 and _alike(panel))
    return ExpertPlan(
        experts=names,
        # Each earlier cutoff has the same memory as the window's own.
        history_length=max(lengths.memory, lengths.second_span) + lengths.cutoff_span,
        memory=lengths.memory,
        cutoff_spacing=lengths.spacing,
        seasons=(lengths.season, lengths.second),
        drivers=drivers,
        # Errors at earlier cutoffs are of forecasts that read as many lags.
        driver_length=lags + lengths.cutoff_span if drivers else 1,
        driver_units="training" if is_absolute else "window",
    )


def _lengths(panel: Panel, horizon: int) -> _Lengths:
    """Seasons, spacing and memory that a table's longest series and calendar allow."""
    longest = panel.longest
    season, second = _seasons(panel.calendar, longest) if panel.regular else (1, 0)
    # A horizon apart, so that errors are of other steps (MAE on 17 tables .735 of seasonal naive's; half a
    # horizon apart .751), and so near that a series with a season before it has all of them.
    fitting = -(-(longest - season) // CUTOFFS)  # rounded up
    spacing = max(1, min(horizon, _SPACING, fitting))
    allowed = HISTORY - CUTOFFS * spacing
    memory = max(2, min(max(_MEMORY, SEASONS * season), longest, allowed))
    if memory < 2 * season:  # of what HISTORY allows
        season, second = 1, 0
    if second > allowed:  # it must lie within the history of the earliest cutoff
        second = 0
    return _Lengths(season, second, spacing, memory, longest)


def _suitable(panel: Panel, lengths: _Lengths, drivers: tuple[str, ...]) -> set[str]:
    """The experts that a table has the season, demand or drivers for."""
    suitable = {*GENERAL, "linear"}
    if lengths.season > 1:
        suitable.update(SEASONAL)
    if lengths.second:
        suitable.update(SECOND)
    if lengths.second_span < lengths.second + LEVEL_SEASONS * lengths.season:
        suitable.discard("profile")
    if _intermittent(panel, panel.indptr[1:]).any():
        suitable.add("tsb")
    if drivers:
        suitable.add("arx")
    if lengths.season > ETS_SEASON:
        suitable.discard("ets")
    if lengths.memory < 3 * lengths.season:  # growth compares the spread of early and late ones
        suitable.discard("growing_season")
    return suitable


def solve_experts(network: Network, panel: Panel, plan: Plan, split: Split, store: WindowStore) -> None:
    """Solves what experts hold over training windows, in place: linear maps, and levels of series without history.

    The linear forecast keeps the maps without a block of time, for training windows.
    """
    experts = network.experts
    if experts is None:
        return
    solve_linear(network, panel, plan, split.train)
    solve_arx(network, panel, plan, split.train, store)
    learn_traits(experts, panel, split.train_end)
    beyond = learn_levels(network, panel, split.train_end)
    learn_bands(network, store, split.train, beyond)


def learn_traits(experts: Experts, panel: Panel, end: Int64) -> None:
    """Puts which channels are of intermittent demand into experts, by rows before `end`."""
    found = _intermittent(panel, end)
    experts.intermittent[1:] = torch.from_numpy(found)
    experts.intermittent[0] = bool(found.all())  # a channel that the table lacks


def fit_experts(panel: Panel, plan: Plan, split: Split, only: Expert | None = None) -> Artifact:
    """Returns an artifact of the experts without a network, or of one of them; the plan has some."""
    fingerprint = panel.until(split.end).fingerprint()
    panel, plan = with_categories(panel, split.train_end), smallest(plan)
    if plan.fit.refit:
        split = split_panel(panel, plan.with_fit(validation=None))
    network = bare_network(panel, plan, split.train_end)
    solve_experts(network, panel, plan, split, training_store(panel, plan))
    ensemble = Ensemble([network], [1.0], target=plan.target).experts_only(only)
    assert ensemble is not None
    return Artifact(
        schema=panel.schema,
        plan=plan,
        shape=network.shape,
        ensemble=ensemble.eval().requires_grad_(False),
        trained_until=split.end,
        data=panel.name,
        fingerprint=fingerprint,
        versions=versions(),
    )


def smallest(plan: Plan) -> Plan:
    """Returns the plan with as little attention as there can be."""
    return plan.with_model(width=4, heads=1, encoder_layers=1, decoder_layers=1)


def bare_network(panel: Panel, plan: Plan, end: Int64) -> Network:
    """Returns a network of the smallest size with the scales of the rows of each series before `end`."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(plan.fit.seed)
        network = Network(smallest(plan).model, shape_of(panel, plan.horizon))
    learn_scales(network, panel, end)
    return network.eval()


def _seasons(calendar: Calendar, longest: int) -> tuple[int, int]:
    """The main season, and the shortest longer cycle, that a series holds twice: 1 and 0 where there is none."""
    season = calendar.season_length
    if longest < 2 * season:
        return 1, 0
    cycles = (cycle_steps(calendar, name) for name in calendar.cycles)
    second = min((steps for steps in cycles if steps > season), default=0)
    return season, second if season > 1 and second <= longest // 2 else 0


def _drivers(panel: Panel) -> tuple[str, ...]:
    """The columns that `arx` may read, the last ones of the table: covariates, and targets where some.

    Those known in advance too: effects read them at their own rows, and one may act some steps later.
    """
    schema = panel.schema
    too_short = panel.longest < _DRIVEN_ROWS
    if not panel.regular or too_short or panel.n_channels > _MOST_CHANNELS:
        return ()
    names = schema.columns if panel.n_channels > 1 else schema.past_numeric + schema.known_numeric
    return names if len(names) <= _CANDIDATES // _LEAST_LAGS else ()


def _alike(panel: Panel) -> bool:
    """Whether the levels of the series of each channel differ by less than half of how much each varies.

    Then the mean of the training rows is a level that a series comes back to, known better than the mean of
    its window: MAE of a series that follows two others .32 in units of windows, .05 in those of training rows.
    """
    moments = []
    for number in even_draw(panel.n_series, _COMPARED):
        series = slice(panel.indptr[number], panel.indptr[number + 1])
        rows = panel.values[series, : panel.n_channels]
        observed = ~np.isnan(rows)
        count = np.maximum(observed.sum(axis=0), 1)
        level = np.where(observed, rows, 0.0).sum(axis=0) / count
        variance = (np.where(observed, rows - level, 0.0) ** 2).sum(axis=0) / count
        moments.append(np.where(observed.any(axis=0), [level, variance], np.nan))
    levels, variances = np.swapaxes(moments, 0, 1)  # [series, C] each
    if np.isnan(levels).all(axis=0).any():  # a channel without a value
        return False
    between, within = np.nanvar(levels, axis=0), np.nanmean(variances, axis=0)  # [C] each
    return bool((between <= within / 4).all())  # half the spread is a quarter of the variance


def _intermittent(panel: Panel, end: Int64) -> NDArray[np.bool_]:
    """[C] whether the observed targets before a row of each series are never negative, a tenth of them 0."""
    observed, zeros, negative = np.zeros((3, panel.n_channels))
    for rows in rows_before(panel.indptr, end, panel.values.shape[1]):
        values = panel.values[rows, : panel.n_channels]
        observed += (~np.isnan(values)).sum(axis=0)
        zeros += (values == 0).sum(axis=0)
        negative += (values < 0).sum(axis=0)
    return (zeros >= ZEROS * np.maximum(observed, 1)) & (negative == 0)
