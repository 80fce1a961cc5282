"""Config and panel → plan (`resolve`, once) → artifact (`fit_panel`).

    resolve      context and patches → experts → split → width and steps → linear expert
    fit_panel    experts and networks → network weights → ensemble weights → calibration
                 → validation scores → on all rows, with `fit.refit` or without a network

Scalers and categories come from training rows only; the same seed gives the same artifact.
"""

from __future__ import annotations

from dataclasses import replace

from forecaster.config import Config, FitPlan, ModelConfig, ModelPlan, Plan, required_horizon
from forecaster.errors import ConfigError
from forecaster.fitting.experts.levels import learn_levels
from forecaster.fitting.experts.linear_settings import choose_linear, linear_settings
from forecaster.fitting.experts.pool import pool_settings, smallest
from forecaster.fitting.held_out import calibrated, mean_weights, validation_scores
from forecaster.fitting.members import Trainings, curves_of, member_metrics, trains_network
from forecaster.fitting.mixture import choose_ensemble_weights, choose_network_weights, experts_alone
from forecaster.fitting.train import NO_CONTEXT, TrainingContext, training_ranks
from forecaster.fitting.versions import versions
from forecaster.fitting.warm_start import check_start, seen_until, started_config, with_words_of
from forecaster.forecast.artifact import Artifact, shape_of
from forecaster.model.ensemble import Ensemble
from forecaster.model.experts import CUTOFFS
from forecaster.model.size import SIZES, check_memory, check_work
from forecaster.panel.audit import default_patch
from forecaster.panel.categories import with_categories
from forecaster.panel.panel import Panel
from forecaster.panel.periods import find_periods
from forecaster.windows.split import Split, split_panel


def resolve(panel: Panel, config: Config, start: Artifact | None = None) -> tuple[Plan, Split]:
    """Returns the plan of a fit, all numbers settled, and the split of the panel under it.

    Args:
        panel: the table to fit.
        config: the request.
        start: the artifact of a warm start; None = random weights.

    Raises:
        ConfigError: settings do not fit the table, each other, or the artifact of the start.
        DataError: the table is too short.
    """
    config = started_config(config, start)
    horizon = required_horizon(config)
    attention_length, patch = _lengths(config, horizon, panel)
    pool = pool_settings(config.model, panel, horizon)
    context_length = attention_length
    if pool.needs_maps:
        linear = linear_settings(config.model, panel, attention_length)
        pool = pool.with_linear(linear)
        # The linear expert reads as many steps at each of the earlier cutoffs.
        context_length = max(*linear.lookbacks, attention_length) + CUTOFFS * pool.cutoff_spacing
    least = SIZES[0]
    model = config.model.settled(
        width=_width(config.model, least.width),
        context_length=context_length,
        attention_length=attention_length,
        patch=patch,
        decoder_patch=min(patch, horizon),
        pool=pool,
    )
    fit = config.fit.settled(
        steps=config.fit.steps or least.steps,
        batch_size=config.fit.batch_size or least.batch_size,
    )
    plan = settled_plan(panel, config, model, fit)
    _check_tokens(plan, config.model.ridge_alpha)
    # The split does not depend on the sizes, which depend on the number of its windows.
    split = split_panel(panel, plan)
    plan = _with_sizes(plan, config, len(split.train), panel.n_channels)
    if start is not None:
        check_start(panel, plan, start)
    elif not trains_network(plan, split):
        plan = smallest(plan)
    check_memory(plan.model, shape_of(panel, horizon))
    check_work(plan.model, horizon, plan.fit.ensemble_size)
    return choose_linear(panel, plan, split), split


def settled_plan(panel: Panel, config: Config, model: ModelPlan, fit: FitPlan) -> Plan:
    """Returns the plan of a request: its parts as settled, and roles, step and season of the table."""
    schema = panel.schema.as_read
    roles = ("series", "target", "known", "past", "static", "layout")
    data = {name: getattr(schema, name) for name in roles} | {
        "time": schema.time or "row",
        "freq": None if config.data.resample else schema.freq,
        "season_length": panel.calendar.season,
        "periods": panel.calendar.periods,
    }
    return Plan(
        horizon=config.horizon or 0,
        data=config.data.settled(**data),
        target=config.target,
        model=model,
        fit=fit,
    )


def fit_panel(
    panel: Panel,
    plan: Plan,
    split: Split,
    context: TrainingContext = NO_CONTEXT,
    start: Artifact | None = None,
) -> Artifact:
    """Returns the artifact trained on a panel.

    Args:
        panel: the table; rows of a holdout already cut off.
        plan, split: from `resolve`.
        context: logger, callbacks, devices and checkpoints of the training.
        start: the artifact of a warm start; None = random weights.

    Raises:
        ConfigError: the weights to start from do not fit.
        FitError: the loss is not finite; names the series.
    """
    fingerprint = panel.until(split.end).fingerprint()
    panel = with_categories(panel, split.train_end)
    if start is not None:
        panel = with_words_of(panel, start)
    with training_ranks(panel, plan, context) as (plan, context):
        trainings = Trainings(panel, plan, context, start)
        plan = trainings.settled(plan, split)
        members = trainings.members(plan, split)
        networks = [member.network for member in members]
        with context.reporter.stage("weighting networks and experts"):
            choose_network_weights(networks, trainings.store, split, context.distributed)
            weights = choose_ensemble_weights(networks, trainings.store, split, context.distributed)
        artifact = Artifact(
            schema=panel.schema,
            plan=plan,
            shape=members[0].network.shape,
            ensemble=Ensemble(networks, weights, target=plan.target).eval(),
            trained_until=seen_until(split.end, panel.schema, start),
            data=panel.name,
            fingerprint=fingerprint,
            versions=versions(),
            parent=start.ancestry if start else None,
        )
        with context.reporter.stage("calibrating quantiles"):
            artifact = calibrated(artifact, panel, split)
        metrics = artifact.metrics | member_metrics(members, weights)
        metrics |= mean_weights(artifact.ensemble, trainings.store, split)
        if len(split.validation_windows):
            with context.reporter.stage("scoring the validation windows"):
                metrics["validation"] = validation_scores(artifact, panel, split, context)
            if plan.fit.refit and not members[-1].ended:
                members = trainings.refitted(plan, members)
                networks = [member.network for member in members]
                artifact = replace(artifact, ensemble=artifact.ensemble.with_members(networks))
                metrics["curves"] |= curves_of((one.name, one.curves) for one in members)
            elif plan.fit.refit is None and experts_alone(networks):
                trainings.solve_again(plan, networks)
            else:
                for network in networks:
                    learn_levels(network, panel, panel.last_observed + 1)
    return replace(artifact, metrics=metrics)


def with_found_cycles(panel: Panel, config: Config) -> Panel:
    """Returns the panel with season and periods found in its training rows, where it has no clock."""
    calendar, periods = panel.calendar, config.data.periods
    given = calendar.season is not None and periods is not None
    if given or not calendar.integer or not panel.regular:
        return panel
    if config.horizon is None or (panel.last_observed < 0).all():
        return panel
    seen = panel.until(panel.split_time(config.horizon, config.fit.validation))
    found = find_periods(seen.values[:, : panel.n_channels], seen.indptr)
    if not found:
        return panel
    if periods is None:
        # Numbered rows of several series share no clock: row 7 is another hour in each of them.
        shared = panel.schema.time is not None or panel.n_series == 1
        periods = tuple(sorted(period.steps for period in found)) if shared else ()
    return panel.with_cycles(calendar.season or found[0].steps, periods)


def _lengths(config: Config, horizon: int, panel: Panel) -> tuple[int, int]:
    """Context length and patch."""
    model, season = config.model, panel.calendar.season_length
    longest = panel.longest
    patch = model.patch
    if patch is None:
        patch = 1 if model.tokenizes_values else default_patch(season, longest, horizon)
    context = model.context_length
    if context is None:
        seasons = 7 * season if "day" in panel.calendar.cycles else 2 * season
        context = min(max(4 * horizon, seasons), max(2, longest // 3))
        context = max(1, context // patch) * patch
    elif model.patch is None:
        patch = min(patch, context)
    return max(2, context), patch


def _width(model: ModelConfig, default: int) -> int:
    """The requested width, else the default, rounded up to what the heads divide."""
    unit = 2 * model.heads  # each head has pairs of numbers, which sinusoids need
    return model.width or -(-default // unit) * unit


def _with_sizes(plan: Plan, config: Config, windows: int, channels: int) -> Plan:
    """The plan with a width, steps and a batch size for so many training windows."""
    if plan.model.channel_attention:
        windows *= channels
    size = next(size for size in SIZES if size.windows is None or windows < size.windows)
    plan = plan.with_model(width=_width(config.model, size.width))
    return plan.with_fit(
        steps=config.fit.steps or size.steps,
        batch_size=config.fit.batch_size or size.batch_size,
    )


def _check_tokens(plan: Plan, alphas: float | tuple[float, ...] | None) -> None:
    """Refuses patches, penalties and positions that context and horizon do not fit."""
    model = plan.model
    length = model.attention_length or model.context_length
    if model.patch > length:
        raise ConfigError(
            f"model.patch {model.patch} is longer than model.context_length {length}: "
            f"shorten the patch, or lengthen the context"
        )
    ahead = -(-plan.horizon // model.decoder_patch)
    if isinstance(alphas, tuple) and len(alphas) != ahead:
        raise ConfigError(
            f"model: {len(alphas)} values of ridge_alpha for {ahead} horizon patches "
            f"(horizon {plan.horizon} in patches of {model.decoder_patch}): give one for each, or one "
            "for all"
        )
