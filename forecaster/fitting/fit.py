"""Config and panel → plan (`resolve`, once) → artifact (`fit_panel`).

    resolve      context and patches → experts → split → width and steps → linear expert
    fit_panel    experts and networks → network weights → ensemble weights → calibration
                 → validation scores → on all rows, with `fit.refit` or without a network

Scalers and categories come from training rows only; the same seed gives the same artifact.
"""

from __future__ import annotations

from dataclasses import replace

from forecaster.config import Config, Plan, required_horizon
from forecaster.fitting.context import NO_CONTEXT, TrainingContext, training_ranks
from forecaster.fitting.experts.levels import learn_levels
from forecaster.fitting.experts.linear_settings import choose_linear
from forecaster.fitting.experts.pool import pool_settings, smallest
from forecaster.fitting.held_out import calibrated, mean_weights, validation_scores, with_errors
from forecaster.fitting.members import Trainings, curves_of, member_metrics, trains_network
from forecaster.fitting.mixed_effects import learn_effects
from forecaster.fitting.mixture import (
    choose_ensemble_weights,
    choose_network_weights,
    experts_alone,
    may_count,
)
from forecaster.fitting.plan import first_plan, network_width
from forecaster.fitting.versions import versions
from forecaster.fitting.warm_start import check_start, seen_until, started_config, with_words_of
from forecaster.forecast.artifact import Artifact, shape_of
from forecaster.model.ensemble import Ensemble
from forecaster.model.size import FEWEST_WINDOWS, SIZES, check_memory, check_work, most_steps
from forecaster.panel.categories import with_categories
from forecaster.panel.panel import Panel
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
    plan = first_plan(panel, config, pool_settings(config.model, panel, horizon))
    # The split does not depend on the sizes, which depend on the number of its windows.
    split = split_panel(panel, plan)
    plan = _with_sizes(plan, config, len(split.train), panel.n_channels)
    if start is not None:
        check_start(panel, plan, start)
    elif not trains_network(plan, split):
        plan = smallest(plan)
    elif (
        config.fit.steps is None
        and plan.model.pool.experts
        and (len(split.train) < FEWEST_WINDOWS or not may_count(split, horizon))
    ):
        plan = plan.with_fit(steps=0)  # not the smallest: the fit of a longer table may start from it
    check_memory(plan.model, shape_of(panel, horizon))
    check_work(plan.model, horizon, plan.fit.ensemble_size)
    return choose_linear(panel, plan, split), split


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
    with context.reporter.stage("learning effects"):
        alone = len(plan.model.pool.experts) == 1
        effects = learn_effects(panel.until(split.split), plan.horizon, alone)
    with training_ranks(panel, plan, context) as (plan, context):
        trainings = Trainings(panel, effects, plan, split, context, start)
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
            effects=effects,
            versions=versions(),
            parent=start.ancestry if start else None,
        )
        with context.reporter.stage("calibrating quantiles"):
            artifact = calibrated(artifact, panel, split)
        if context.errors:
            with context.reporter.stage("measuring errors at earlier cutoffs"):
                artifact = with_errors(artifact, panel, split)
        metrics = artifact.metrics | member_metrics(members, weights)
        metrics["attention_steps"] = trainings.tuning_steps
        metrics |= mean_weights(artifact.ensemble, trainings.store, split)
        if len(split.validation_windows):
            with context.reporter.stage("scoring the validation windows"):
                metrics["validation"] = validation_scores(artifact, panel, split, context)
            context.reporter.held_out(artifact, panel, split)
            again = plan.fit.refit and not members[-1].ended
            if again or (plan.fit.refit is None and experts_alone(networks)):
                effects = learn_effects(panel.until(split.end), plan.horizon, alone)
                artifact = replace(artifact, effects=effects)
                trainings.take(panel, effects, split.end)
            if again:
                members = trainings.refitted(plan, members)
                networks = [member.network for member in members]
                artifact = replace(artifact, ensemble=artifact.ensemble.with_members(networks))
                metrics["curves"] |= curves_of((one.name, one.curves) for one in members)
            elif plan.fit.refit is None and experts_alone(networks):
                trainings.solve_again(plan, networks)
            else:
                for network in networks:
                    learn_levels(network, trainings.panel, panel.last_observed + 1)
    return replace(artifact, metrics=metrics)


def _with_sizes(plan: Plan, config: Config, windows: int, channels: int) -> Plan:
    """The plan with a width, steps and a batch size for so many training windows."""
    if plan.model.channel_attention:
        windows *= channels
    size = next(size for size in SIZES if size.windows is None or windows < size.windows)
    plan = plan.with_model(width=network_width(config.model, size.width))
    batch_size = config.fit.batch_size or size.batch_size
    return plan.with_fit(
        steps=config.fit.steps or most_steps(plan.model, plan.horizon, batch_size),
        by_evidence=config.fit.steps is None,
        batch_size=batch_size,
    )
