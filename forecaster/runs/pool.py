"""Experts of a table: which suit it, and what they are solved on."""

from __future__ import annotations

from typing import get_args

import numpy as np
import torch
from numpy.typing import NDArray

from forecaster.config import Expert, ModelConfig, Plan
from forecaster.errors import ConfigError
from forecaster.forecast.artifact import Artifact, shape_of
from forecaster.model.closed_forms import ETS_SEASON, PERIODS, SEASONS
from forecaster.model.ensemble import Ensemble
from forecaster.model.experts import CUTOFFS, GENERAL, SEASONAL, SECOND
from forecaster.model.network import Network
from forecaster.panel.arrays import rows_before
from forecaster.panel.audit import ZEROS
from forecaster.panel.calendar import Calendar, cycle_steps
from forecaster.panel.categories import with_categories
from forecaster.panel.panel import Panel
from forecaster.runs.drivers import solve_arx
from forecaster.runs.levels import learn_levels
from forecaster.runs.moments import learn_scales
from forecaster.runs.residuals import learn_errors
from forecaster.runs.ridge import solve_linear
from forecaster.runs.versions import versions
from forecaster.windows.index import Int64, even_draw
from forecaster.windows.split import Split, split_panel
from forecaster.windows.store import WindowStore, training_store

HISTORY = 2048
"""Steps that experts read at most."""
_MEMORY = 256  # steps before each cutoff, where a few seasons are not more
_SPACING = 64  # steps between earlier cutoffs at most
_PHASES = 24  # of a season, at most, at which bands have widths of their own
_LAGS, _LEAST_LAGS, _CANDIDATES = 96, 8, 4096  # steps back of a driver; of all drivers together
_COMPARED = 100  # series whose levels are compared
_DRIVEN_ROWS, _MOST_CHANNELS = 200, 50  # fewer rows choose no drivers; more channels take too long


def pool_settings(model: ModelConfig, panel: Panel, horizon: int) -> dict[str, object]:
    """Returns the experts that suit a table, and how far back they read.

    Args:
        model: the request.
        panel: the table.
        horizon: steps.
    """
    longest = panel.longest
    asked = model.experts
    if asked is None and (model.head != "quantile" or model.decoder != "direct"):
        asked = ()
    if asked == ():
        return {"experts": (), "history_length": max(1, min(longest, HISTORY))}
    season, second = _seasons(panel.calendar, longest) if panel.regular else (1, 0)
    spacing = max(1, min(horizon, _SPACING, -(-(longest - season) // CUTOFFS)))
    reach = CUTOFFS * spacing
    memory = max(2, min(max(_MEMORY, SEASONS * season), longest, HISTORY - reach))
    if memory < 2 * season:
        season, second = 1, 0
    if second > HISTORY - reach:
        second = 0
    back = min(PERIODS * second, longest, HISTORY - reach)
    drivers = _drivers(panel, longest)
    suitable = {
        *GENERAL,
        "linear",
        *(SEASONAL if season > 1 else ()),
        *(SECOND if second else ()),
        *(["tsb"] if _intermittent(panel, panel.indptr[1:]).any() else ()),
        *(["arx"] if drivers else ()),
    }
    if season > ETS_SEASON:
        suitable -= {"ets"}
    if memory < 3 * season:
        suitable -= {"growing_season"}
    if unsuited := sorted(set(asked or ()) - suitable):
        raise ConfigError(
            f"model.experts {', '.join(unsuited)}: {panel.name} has no season or demand for it (season "
            f"{season}, longest series {longest:,} rows); take some of "
            f"{', '.join(name for name in get_args(Expert) if name in suitable)}"
        )
    names = tuple(name for name in get_args(Expert) if name in (asked or suitable))
    lags = 0
    if "arx" in names:
        lags = min(_LAGS, max(horizon, season, _MEMORY // 8), _CANDIDATES // len(drivers))
    return {
        "experts": names,
        "history_length": max(memory, back) + reach,
        "memory": memory,
        "cutoff_spacing": spacing,
        "seasons": (season, second),
        "band_phases": min(season, _PHASES) if _first_cycle(panel.calendar) == season else 1,
        "drivers": drivers if lags else (),
        "driver_length": lags + reach if lags else 1,
        "driver_units": "training" if panel.n_series == 1 or (lags and _alike(panel)) else "window",
    }


def solve_experts(network: Network, panel: Panel, plan: Plan, split: Split, store: WindowStore) -> None:
    """Solves what experts hold over training windows, in place: linear maps and residual quantiles.

    The linear forecast keeps the maps without a block of time, for training windows.
    """
    experts = network.experts
    if experts is None:
        return
    solve_linear(network, panel, plan, split.train)
    solve_arx(network, panel, plan, split.train, store)
    demand = _intermittent(panel, split.train_end)
    experts.intermittent[1:] = torch.from_numpy(demand)
    experts.intermittent[0] = bool(demand.all())
    beyond = learn_levels(network, panel, split.train_end)
    learn_errors(network, panel, plan, split, store, beyond)


def fit_experts(panel: Panel, plan: Plan, split: Split, only: Expert | None = None) -> Artifact:
    """Returns an artifact of the experts without a network, or of one of them; the plan has some."""
    fingerprint = panel.until(split.end).fingerprint()
    panel, plan = with_categories(panel, split.train_end), smallest(plan)
    if plan.fit.refit:
        split = split_panel(panel, plan.with_fit(validation=None))
    network = bare_network(panel, plan, split)
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


def bare_network(panel: Panel, plan: Plan, split: Split) -> Network:
    """Returns a network of the smallest size with the scales of the training rows."""
    with torch.random.fork_rng(devices=[]):
        network = Network(smallest(plan).model, shape_of(panel, plan.horizon))
    learn_scales(network, panel, split.train_end)
    return network.eval()


def _seasons(calendar: Calendar, longest: int) -> tuple[int, int]:
    """The main season, and the shortest longer cycle that a series holds once: 0 where there is none."""
    season = calendar.season_length
    longer = (steps for name in calendar.cycles if (steps := cycle_steps(calendar, name)) > season)
    second = min(longer, default=0)
    return season, second if season > 1 and second <= longest // 2 else 0


def _first_cycle(calendar: Calendar) -> int:
    return cycle_steps(calendar, calendar.cycles[0]) if calendar.cycles else 1


def _drivers(panel: Panel, longest: int) -> tuple[str, ...]:
    """The columns that `arx` may read, the last ones of the table: covariates, and targets where some."""
    schema = panel.schema
    if not panel.regular or longest < _DRIVEN_ROWS or panel.n_channels > _MOST_CHANNELS:
        return ()
    names = schema.columns if panel.n_channels > 1 else schema.past_numeric + schema.known_numeric
    return names if len(names) <= _CANDIDATES // _LEAST_LAGS else ()


def _alike(panel: Panel) -> bool:
    """Whether the levels of the series of each channel differ by less than half of how much each varies."""
    facts = []
    for number in even_draw(panel.n_series, _COMPARED):
        rows = panel.values[panel.indptr[number] : panel.indptr[number + 1], : panel.n_channels]
        there = ~np.isnan(rows)
        count = np.maximum(there.sum(axis=0), 1)
        level = np.where(there, rows, 0.0).sum(axis=0) / count
        varies = (np.where(there, rows - level, 0.0) ** 2).sum(axis=0) / count
        facts.append(np.where(there.any(axis=0), [level, varies], np.nan))
    levels, varies = np.swapaxes(facts, 0, 1)
    if np.isnan(levels).all(axis=0).any():  # a channel without a value
        return False
    return bool((np.nanvar(levels, axis=0) <= np.nanmean(varies, axis=0) / 4).all())


def _intermittent(panel: Panel, end: Int64) -> NDArray[np.bool_]:
    """[C] whether the observed targets before a row of each series are never negative, a tenth of them 0."""
    seen, zeros, negative = np.zeros((3, panel.n_channels))
    for rows in rows_before(panel.indptr, end, panel.values.shape[1]):
        values = panel.values[rows, : panel.n_channels]
        seen += (values == values).sum(axis=0)
        zeros += (values == 0).sum(axis=0)
        negative += (values < 0).sum(axis=0)
    return (zeros >= ZEROS * np.maximum(seen, 1)) & (negative == 0)
