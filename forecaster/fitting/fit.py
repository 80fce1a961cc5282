"""Config and panel → plan (`resolve`, once) → artifact (`fit_panel`).

    resolve      context and patches → experts → split → width and steps → linear expert
    fit_panel    experts and networks → network weights → ensemble weights → calibration
                 → validation scores → on all rows, with `fit.refit` or without a network

Scalers and categories come from training rows only; the same seed gives the same artifact.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from forecaster.config import Config, Plan, needs_maps, parse_plan, required_horizon
from forecaster.errors import ConfigError
from forecaster.fitting.experts.levels import learn_levels
from forecaster.fitting.experts.linear_settings import choose_linear, linear_settings
from forecaster.fitting.experts.pool import pool_settings, smallest
from forecaster.fitting.held_out import calibrated, mean_weights, validation_scores
from forecaster.fitting.members import Trainings, curves_of, member_metrics, trains_network
from forecaster.fitting.mixture import choose_ensemble_weights, choose_network_weights, experts_alone
from forecaster.fitting.train import NO_CONTEXT, TrainingContext, training_ranks
from forecaster.fitting.versions import versions
from forecaster.fitting.warm_start import (
    check_start,
    seen_until,
    started_config,
    with_words_of,
)
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
    model, fit = config.model, config.fit
    context, patch = _lengths(config, horizon, panel)
    least_width, least_steps, least_batch = SIZES[0][1:]
    unit = 2 * model.heads  # each head has pairs of numbers, which sinusoids need
    settled: dict[str, Any] = {
        "patch": patch,
        "decoder_patch": min(patch, horizon),
        "width": model.width or -(-least_width // unit) * unit,
        "context_length": context,
        "attention_length": context,
        **pool_settings(model, panel, horizon),
    }
    if needs_maps(settled["experts"]):
        back = CUTOFFS * settled["cutoff_spacing"]
        settled |= linear_settings(model, panel, context, back)
    trained = {"steps": fit.steps or least_steps, "batch_size": fit.batch_size or least_batch}
    plan = settled_plan(panel, config, {"periods": panel.calendar.periods}, settled, trained)
    _check_tokens(plan)
    split = split_panel(panel, plan)
    windows = len(split.train) * (panel.n_channels if model.channel_attention else 1)
    width, steps, batch = next(sizes for below, *sizes in SIZES if below is None or windows < below)
    plan = plan.with_model(width=model.width or -(-width // unit) * unit)
    plan = plan.with_fit(steps=fit.steps or steps, batch_size=fit.batch_size or batch)
    if start is not None:
        check_start(panel, plan, start)
    if not trains_network(plan, split) and start is None:
        plan = smallest(plan)
    check_memory(plan.model, shape_of(panel, plan.horizon))
    check_work(plan.model, plan.horizon, plan.fit.ensemble_size)
    return choose_linear(panel, plan, split), split


def settled_plan(
    panel: Panel, config: Config, data: dict[str, Any], model: dict[str, Any], fit: dict[str, Any]
) -> Plan:
    """Returns the plan of a request: settings as given, and roles, step and season of the table."""
    schema = panel.schema.as_read
    roles = ("series", "target", "known", "past", "static", "layout")
    read = {name: getattr(schema, name) for name in roles} | {
        "time": schema.time or "row",
        "freq": None if config.data.resample else schema.freq,
        "season_length": panel.calendar.season,
    }
    settled = config.model_dump(exclude={"tracking"}) | {"horizon": config.horizon or 0}
    for section, own in {"data": read | data, "model": model, "fit": fit}.items():
        settled[section] |= own
    return parse_plan(settled, "config")


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
    with training_ranks(panel, plan, context) as context:
        trainings = Trainings(panel, plan, context, start)
        plan = trainings.settled(plan, split)
        members = trainings.members(plan, split)
        networks = [member.network for member in members]
        with context.stage("weighing networks and experts"):
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
        with context.stage("calibrating quantiles"):
            artifact = calibrated(artifact, panel, split)
        metrics = artifact.metrics | member_metrics(members, weights)
        metrics |= mean_weights(artifact.ensemble, trainings.store, split)
        if len(split.validation_windows):
            with context.stage("scoring the validation windows"):
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


def _check_tokens(plan: Plan) -> None:
    """Refuses patches, penalties and positions that context and horizon do not fit."""
    model = plan.model
    length = model.attention_length or model.context_length
    if model.patch > length:
        raise ConfigError(
            f"model.patch {model.patch} is longer than model.context_length {length}: "
            f"shorten the patch, or lengthen the context"
        )
    ahead = -(-plan.horizon // model.decoder_patch)
    if isinstance(model.ridge_alpha, tuple) and len(model.ridge_alpha) != ahead:
        raise ConfigError(
            f"model: {len(model.ridge_alpha)} values of ridge_alpha for {ahead} horizon patches "
            f"(horizon {plan.horizon} in patches of {model.decoder_patch}): give one for each, or one "
            "for all"
        )
