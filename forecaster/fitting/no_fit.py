"""A model that nothing is fitted to: experts weighed by attention to their errors in each series alone.

plan        lengths, season and pool of the table, as a fit resolves them; the network has weight 0
counted     units of columns, channels of intermittent demand and positive ones, a level for series without history
estimated   effects of covariates known in advance and of the calendar
solved      no expert, but where `linear` or `arx` alone are requested these, in closed form
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from forecaster.config import Config, Expert, ExpertPlan, ModelConfig, Plan, required_horizon
from forecaster.errors import ConfigError, number_of
from forecaster.evaluation.comparison import EXPERT_OF, NAIVE, RIDGE
from forecaster.fitting.experts.cold_bands import learn_bands
from forecaster.fitting.experts.drivers import solve_arx
from forecaster.fitting.experts.levels import learn_levels
from forecaster.fitting.experts.linear_settings import choose_linear
from forecaster.fitting.experts.pool import bare_network, learn_traits, pool_settings, smallest
from forecaster.fitting.experts.ridge import solve_linear
from forecaster.fitting.mixed_effects import learn_effects
from forecaster.fitting.plan import first_plan, with_found_cycles
from forecaster.fitting.versions import versions
from forecaster.forecast.artifact import Artifact
from forecaster.model.ensemble import Ensemble
from forecaster.model.network import Network
from forecaster.model.size import check_work
from forecaster.panel.categories import with_categories
from forecaster.panel.findings import Finding
from forecaster.panel.panel import NO_TIME, Panel
from forecaster.windows.effects import Effects, without_effects
from forecaster.windows.index import Int64, WindowIndex
from forecaster.windows.split import Split, split_panel
from forecaster.windows.store import training_store

_SOLVED: frozenset[Expert] = frozenset({"linear", "arx"})


def unfitted(panel: Panel, config: Config, alone: bool = False) -> Artifact:
    """Returns a model of a table without a fit: no training windows, no gradient step.

    Args:
        panel: the rows that may be read; those after the last observed target are not.
        config: the request; of its training settings the seed alone is read.
        alone: whether each expert is to forecast by itself, as a single one does.

    Raises:
        ConfigError: there is no horizon, there are no experts, or a forecast would take hours.
        DataError: no target is observed.
    """
    horizon = required_horizon(config)
    end_time = panel.last_time("nothing to forecast from")
    # Nothing is held out: cycles are found, and experts solved, in all rows.
    whole = config.replaced(fit={"validation": None})
    panel = with_found_cycles(panel.until(end_time), whole)
    fingerprint = panel.fingerprint()
    end = panel.rows_until(end_time)
    panel = with_categories(panel, end)
    alone = alone or len(config.model.experts or ()) == 1
    effects = learn_effects(panel, horizon, alone)
    panel = without_effects(panel, effects)
    pool = pool_settings(config.model, panel, horizon)
    if not pool.experts:
        raise ConfigError(
            "a forecast without a fit is that of experts: expected settings with some, found a network alone "
            "(model.experts, model.head, model.decoder); leave them out, or fit"
        )
    plan, split = _plan(panel, whole, pool)
    plan = smallest(plan)
    check_work(plan.model, horizon, members=1)
    network = _network(panel, plan, end, effects)
    if split is not None:
        solve_linear(network, panel, plan, split.train)
        solve_arx(network, panel, plan, split.train, training_store(panel, plan))
    has_learned = split is not None or effects is not None
    return Artifact(
        schema=panel.schema,
        plan=plan,
        shape=network.shape,
        ensemble=Ensemble([network], [1.0], target=plan.target).eval().requires_grad_(False),
        # Solved experts and effects have seen the targets; else units and counts alone are of them.
        trained_until=end_time if has_learned else int(panel.time.min()) - 1,
        data=panel.name,
        fingerprint=fingerprint,
        effects=effects,
        metrics={"network_weight": 0.0, "expert_weights": {}},
        versions=versions(),
        request=config,
    )


def baseline_models(panel: Panel, config: Config) -> dict[str, Artifact]:
    """Returns naive, drift and ETS of a table: experts run alone, by name.

    Seasonal naive needs no model (`seasonal_naive`), and `ridge` is that of a fit.

    Args:
        panel: the rows that may be read.
        config: horizon, bounds and quantile levels.

    Raises:
        DataError: no target is observed.
    """
    names = {name: expert for name, expert in EXPERT_OF.items() if name not in (NAIVE, RIDGE)}
    pool = unfitted(panel, config.replaced(model={"experts": tuple(names.values())}), alone=True)
    alone = {name: pool.ensemble.experts_only(expert) for name, expert in names.items()}
    return {name: replace(pool, ensemble=own) for name, own in alone.items() if own is not None}


def defaults_of(artifact: Artifact) -> Config:
    """Returns the default settings for the horizon, bounds and quantile levels of a model."""
    plan = artifact.plan
    levels = ModelConfig(quantile_levels=plan.model.quantile_levels)
    return Config(horizon=artifact.horizon, target=plan.target, model=levels)


def described(artifact: Artifact) -> Finding:
    """Returns what the forecasts of a model without a fit rest on: its experts, season, effects and covariates."""
    schema, pool = artifact.schema, artifact.plan.model.pool
    seasons = " and ".join(f"{steps:,}" for steps in pool.seasons if steps > 1)
    solved = [name for name in pool.experts if name in _SOLVED]
    effects = artifact.effects
    # A covariate may have several terms.
    terms = effects.declared if effects else ()
    declared = dict.fromkeys(term.name if term.lag else term.column for term in terms)
    dates = [term.name for term in (*effects.of_dates, *effects.calendar)] if effects else []
    leveled = schema.static if artifact.ensemble.forecasts_cold else ()
    read = {*(term.column for term in terms), *leveled, *pool.drivers}
    covariates = (*schema.known_and_holidays, *schema.past, *schema.static)
    unread = [name for name in covariates if name not in read]
    parts = [
        f"{number_of(len(pool.experts), 'expert')} weighed by attention to their errors in each series",
        f"frequency {schema.freq}",
        f"season assumed: {seasons + ' steps' if seasons else 'none'}",
    ]
    if declared or dates:
        parts.append(f"effects estimated on these rows: {', '.join((*declared, *dates))}")
    if solved:
        parts.append(f"{' and '.join(solved)} solved on these rows")
    if unread:
        parts.append(f"not read: {', '.join(unread)}")
    advice = "forecaster fit learns from the whole table; --season-length sets another season"
    return Finding("note", "no-fit", "; ".join(parts), advice)


def _plan(panel: Panel, config: Config, pool: ExpertPlan) -> tuple[Plan, Split | None]:
    """The plan of a table, and the windows to solve experts on, where these alone are requested."""
    names = tuple(name for name in pool.experts if name not in _SOLVED)
    if not names:
        plan = first_plan(panel, config, pool)
        split = split_panel(panel, plan)
        return choose_linear(panel, plan, split), split
    bare = {"experts": names, "drivers": (), "driver_length": 1}
    return first_plan(panel, config, pool.model_copy(update=bare)), None


def _network(panel: Panel, plan: Plan, end: Int64, effects: Effects | None) -> Network:
    """A network of weight 0 with units, demand and levels of the rows of each series before `end`."""
    network = bare_network(panel, plan, end)
    assert network.experts is not None
    learn_traits(network.experts, panel, end)
    network.network_weight.zero_()
    span = panel.last_observed - panel.first_observed
    if panel.n_series > 1 and (span < network.experts.short).any():
        beyond = learn_levels(network, panel, end)
        panel = panel.reaching(np.full(panel.n_series, NO_TIME), plan.horizon)
        index = WindowIndex(panel.first_observed, span, stride=1, channels=1)
        learn_bands(network, training_store(panel, plan, effects), index, beyond)
    return network
