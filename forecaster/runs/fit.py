"""Panel + config → artifact.

What comes in: a panel and a config with a horizon. What goes out: an artifact that knows until when it
was trained, and its scores on the validation windows beside simple baselines' and its linear part's.
Promised: scalers and categories come from training rows only; early stopping returns the best weights;
the same seed gives the same artifact.

    resolve what was left to the data → split at one date → linear maps → members → shares and weights
    → calibration → score → all of it again on all rows, where that is asked for
"""

from __future__ import annotations

import hashlib
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import torch

from forecaster.config import Config
from forecaster.errors import ConfigError
from forecaster.evaluation.rivals import CHEAP, MODEL, RIDGE, rivals_at, score_models
from forecaster.forecast.artifact import Artifact, shape_of
from forecaster.forecast.forecast import known_forecast
from forecaster.forecast.predictor import Predictor
from forecaster.model.ensemble import Ensemble
from forecaster.model.size import check_memory
from forecaster.model.threads import spare_threads
from forecaster.panel.categories import with_categories
from forecaster.panel.panel import Panel
from forecaster.panel.periods import find_periods
from forecaster.runs.attention_share import attention_share
from forecaster.runs.blend import choose_shares, choose_weights
from forecaster.runs.calibration import calibrated
from forecaster.runs.counts import refuse_what_is_no_count
from forecaster.runs.linear import linear_settings
from forecaster.runs.members import Trainings, curves_of, found_by
from forecaster.runs.ridge.choice import settle_linear
from forecaster.runs.sizes import sized
from forecaster.runs.training.devices import joined
from forecaster.runs.training.launch import workers
from forecaster.runs.training.train import ALONE, Surroundings
from forecaster.runs.transfer import (
    Start,
    ancestry,
    check_start,
    seen_until,
    started_config,
    with_words_of,
)
from forecaster.runs.versions import versions
from forecaster.windows.split import Split, split_panel, split_time


def fit_panel(
    panel: Panel,
    config: Config,
    split: Split,
    surroundings: Surroundings = ALONE,
    start: Start | None = None,
) -> Artifact:
    """Returns the artifact trained on a panel.

    Args:
        panel: the table; rows after the holdout date already cut off (`Panel.until`).
        config: resolved by `resolve_config`.
        split: of this panel under this config.
        surroundings: what the training runs on, and who watches.
        start: whose weights come first; None = random ones.

    Raises:
        ConfigError: the weights to start from do not fit.
        FitError: the loss is not finite; names the series.
    """
    fingerprint = panel.fingerprint()
    panel, parent = with_categories(panel, split.train_end), start.artifact if start else None
    if parent is not None:
        panel = with_words_of(panel, parent)
    place = surroundings.place
    config = settle_linear(panel, config, split)
    with (
        torch.random.fork_rng(devices=[]),
        spare_threads(place.devices),
        workers(place, panel, config, surroundings.checkpoints) as hand,
        joined(place),
    ):
        trainings = Trainings(panel, config, surroundings, start, hand)
        config, measured = trainings.settled(config, split)
        members = trainings.members(config, split)
        networks = [member.network for member in members]
        choose_shares(networks, trainings.store, split, place)
        weights = choose_weights(networks, trainings.store, split, place)
        artifact = Artifact(
            schema=panel.schema,
            config=config,
            shape=members[0].network.shape,
            ensemble=Ensemble(networks, weights, target=config.target).eval(),
            trained_until=seen_until(split.end, panel.schema, parent),
            data=panel.name,
            fingerprint=fingerprint,
            versions=versions(),
            parent=ancestry(parent) if parent else None,
        )
        artifact = calibrated(artifact, panel, split)
        found = artifact.metrics | found_by(members, weights)
        if measured is not None:
            found["seconds_per_step"] = asdict(measured)
        if len(split.held):
            found |= attention_share(artifact.ensemble, panel, config, split)
            found["validation"] = _validate(artifact, panel, split, surroundings)
            if config.fit.refit and not members[-1].ended:
                members = trainings.refitted(config, members)
                networks = [member.network for member in members]
                artifact = replace(artifact, ensemble=artifact.ensemble.with_members(networks))
                found["curves"] |= curves_of(members)
    return replace(artifact, metrics=found)


def with_found_cycles(panel: Panel, config: Config) -> Panel:
    """Returns the panel with season and periods found in its training rows, where there is no clock."""
    calendar, periods = panel.calendar, config.data.periods
    told = calendar.season is not None and periods is not None
    if told or not calendar.integer or not panel.regular:
        return panel
    if config.horizon is None or (panel.last_observed < 0).all():
        return panel
    seen = panel.until(split_time(panel, config))
    found = find_periods(seen.values[:, : panel.n_channels], seen.indptr)
    if not found:
        return panel
    if periods is None:
        # Numbered rows of several series share no clock: row 7 is another hour in each of them.
        shared = panel.schema.time is not None or panel.n_series == 1
        periods = tuple(sorted(period.steps for period in found)) if shared else ()
    return panel.with_cycles(calendar.season or found[0].steps, periods)


def resolve_config(config: Config, panel: Panel) -> Config:
    """Returns the config with everything that was left to the data filled in.

    Args:
        config: with a horizon.
        panel: the table to fit.

    Raises:
        ConfigError: no horizon is given, or context and horizon do not fit the model's tokens.
    """
    if config.horizon is None:
        raise ConfigError("a horizon is required: how many steps to forecast (--horizon 28)")
    model, schema = config.model, panel.schema
    season = panel.calendar.season_length
    longest = int((panel.last_observed - panel.indptr[:-1] + 1).max())
    # A training window needs a patch of own rows before its horizon; short tables get short patches.
    word = 1 if model.reads_words else None
    patch = model.patch or word or min(_patch_for(season), max(1, (longest - config.horizon) // 3))
    context = model.context_length
    if context is not None and model.patch is None:
        patch = min(patch, context)
    if context is None:
        seasons = 7 * season if "day" in panel.calendar.cycles else 2 * season
        context = min(max(4 * config.horizon, seasons), max(2, longest // 3))
        context = max(1, context // patch) * patch
    resolved = config.replaced(
        data={
            "time": schema.time or "row",
            "series": schema.series,
            "target": schema.target,
            "known": schema.known,
            "past": schema.past,
            "static": schema.static,
            "freq": schema.freq,
            "season_length": panel.calendar.season,
            "periods": panel.calendar.periods,
            "layout": schema.layout,
        },
        model={
            "patch": patch,
            "decoder_patch": model.decoder_patch or word or min(patch, config.horizon),
            **linear_settings(config, panel, max(2, context)),
        },
    )
    _check_tokens(resolved)
    return resolved


def prepare(panel: Panel, config: Config, start: Artifact | None = None) -> tuple[Config, Split]:
    """Returns the resolved config and the split of a panel: what a fit is about to do.

    Args:
        panel: the table to fit.
        config: as asked for.
        start: whose weights come first; None = random ones.

    Raises:
        ConfigError: settings do not fit the table, each other, or the artifact to start from.
        DataError: the table is too short, or holds no counts where a head wants them.
    """
    config = started_config(config, start)
    resolved = resolve_config(config, panel)
    if None in (resolved.model.width, resolved.fit.steps):
        together = panel.n_channels if resolved.model.channel_attention else 1
        resolved = sized(resolved, together * len(split_panel(panel, resolved).train))
    if start is not None:
        check_start(panel, resolved, start)
    if resolved.model.head == "negative_binomial":
        refuse_what_is_no_count(panel)
    check_memory(resolved.model, shape_of(panel, resolved.horizon or 0))
    return resolved, split_panel(panel, resolved)


def _check_tokens(config: Config) -> None:
    """Refuses patches and positions that the context and the horizon do not fit."""
    model, horizon = config.model, config.horizon
    assert model.context_length and model.patch and model.decoder_patch and horizon
    name = "context_length" if model.attention_length is None else "attention_length"
    length = model.attention_length or model.context_length
    if model.patch > length:
        raise ConfigError(
            f"model.patch {model.patch} is longer than model.{name} {length}: "
            f"shorten the patch, or lengthen the {name.removesuffix('_length')}"
        )
    context = -(-length // model.patch)
    ahead = -(-horizon // model.decoder_patch)
    strengths = model.linear_strength
    if isinstance(strengths, tuple) and len(strengths) != ahead:
        raise ConfigError(
            f"model: {len(strengths)} values of linear_strength for {ahead} horizon patches (horizon "
            f"{horizon} in patches of {model.decoder_patch}): give one for each, or one for all"
        )
    covered = model.learned_positions
    if model.positions == "learned" and covered is not None and covered < context + ahead:
        raise ConfigError(
            f"model.learned_positions {covered} do not cover context and horizon: "
            f"{length} steps in patches of {model.patch} and horizon {horizon} in "
            f"patches of {model.decoder_patch} are {context} + {ahead} tokens; "
            f"set it to {context + ahead} or more, or to null"
        )


def _validate(
    artifact: Artifact, panel: Panel, split: Split, surroundings: Surroundings
) -> dict[str, Any]:
    """Returns the scores of the validation windows, of the model and of cheap baselines."""
    watched, _, cutoffs = split.validation.locate(split.held)
    series, cutoff = np.unique(np.stack([watched, cutoffs]), axis=1)
    levels = artifact.config.model.quantile_levels
    beside = rivals_at(panel, series, cutoff, artifact.horizon, levels, CHEAP)
    said = {MODEL: Predictor(artifact).quantiles(panel, series, cutoff), **beside.quantiles}
    floor = artifact.ensemble.linear_only()
    if floor is not None:
        alone = Predictor(replace(artifact, ensemble=floor))
        said[RIDGE] = alone.quantiles(panel, series, cutoff)
    if surroundings.validated is not None:
        surroundings.validated(
            {
                name: known_forecast(panel, series, cutoff, said[name], levels)
                for name in (MODEL, RIDGE)
                if name in said
            }
        )
    ahead = cutoff[:, None] + np.arange(1, artifact.horizon + 1)
    actual = panel.values[ahead, : panel.n_channels]
    scores, scored = score_models(actual, said, levels, beside.scales)
    # What tells whether another model was scored on the same windows.
    digest = hashlib.sha256(np.stack([series, cutoff]).astype("<i8").tobytes()).hexdigest()[:16]
    return {"windows": len(series), "cutoffs": digest, "cells": scored, "scores": scores}


def _patch_for(season: int) -> int:
    """Returns a token's length: the season, or the largest part of it that is at most 24 steps."""
    for steps in range(min(season, 24), 3, -1):
        if season % steps == 0:
            return steps
    return 8
