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

from forecaster.config import Config, ModelPlan
from forecaster.errors import ConfigError
from forecaster.evaluation.comparison import CHEAP_BASELINES, MODEL, RIDGE, baselines_at, score_models
from forecaster.forecast.artifact import Artifact, shape_of
from forecaster.forecast.calibrate import CalibrationSet, calibrate
from forecaster.forecast.forecast import known_forecast
from forecaster.forecast.predictor import Predictor
from forecaster.model.ensemble import Ensemble
from forecaster.model.network import Network
from forecaster.model.size import check_memory
from forecaster.model.threads import spare_threads
from forecaster.panel.categories import with_categories
from forecaster.panel.panel import Panel
from forecaster.panel.periods import find_periods
from forecaster.runs.distributed import launch_ranks, process_group
from forecaster.runs.linear import linear_settings, settle_linear
from forecaster.runs.members import Trainings, choose_shares, choose_weights, curves_of, found_by
from forecaster.runs.train import NO_CONTEXT, TrainingContext
from forecaster.runs.transfer import (
    Start,
    ancestry,
    check_start,
    seen_until,
    started_config,
    with_words_of,
)
from forecaster.runs.versions import versions
from forecaster.windows.datamodule import WindowSequence
from forecaster.windows.index import Int64
from forecaster.windows.split import Split, split_panel, split_time
from forecaster.windows.store import training_store

SIZES = ((2_000, 64, 400), (200_000, 64, 800), (None, 128, 1_600))
"""(training windows below, width, steps). A few hundred windows gain nothing by more of either; a few
thousand gain by both, most of it by steps, which cost less. LOG.md has the tables."""


def sized(config: Config, windows: int) -> Config:
    """Returns the config with a width and a number of steps.

    Args:
        config: resolved but for them.
        windows: channel-windows that train.
    """
    width, steps = next(
        (width, steps) for below, width, steps in SIZES if below is None or windows < below
    )
    unit = 2 * config.model.heads  # each head has pairs of numbers, which sinusoids and turns need
    if config.model.width is None:
        config = config.replaced(model={"width": -(-width // unit) * unit})
    if config.fit.steps is None:
        config = config.replaced(fit={"steps": steps})
    return config


_CELLS = 1 << 23
"""Of all quantiles looked at; more cutoffs than that are thinned evenly."""


def calibrated(artifact: Artifact, panel: Panel, split: Split) -> Artifact:
    """Returns the artifact with its quantiles calibrated, and what that is worth among its metrics.

    Args:
        artifact: of this panel; widths it has are forgotten.
        panel: the table.
        split: whose last validated cutoffs were left for this; none of them = no widths.
    """
    if len(split.calibration_windows) == 0 or uncalibrated(artifact.config) is not None:
        return artifact
    levels = artifact.config.model.quantile_levels
    series, cutoff = _cutoffs(split, artifact.horizon * panel.n_channels * len(levels))
    found = calibrate(_held(artifact, panel, series, cutoff), levels)
    widths = torch.from_numpy(found.offsets) if found.strength else None
    told = {
        "cutoffs": found.windows,
        "strength": found.strength,
        "before": asdict(found.before),
        "after": asdict(found.after),
    }
    return replace(
        artifact,
        ensemble=artifact.ensemble.with_offsets(widths),
        metrics=artifact.metrics | {"calibration": told},
    )


def uncalibrated(config: Config) -> str | None:
    """Returns why quantiles of this kind stay as they are; None = they can be calibrated."""
    if config.fit.calibration is None:
        return "fit.calibration is null"
    if len(config.model.quantile_levels) == 1:
        return "the median alone has no band"
    return None


def _cutoffs(split: Split, cells: int) -> tuple[Int64, Int64]:
    """Returns series and row of the calibrating cutoffs, each once; thinned where cells are many."""
    series, _, cutoff = split.validation.locate(split.calibration_windows)
    unique = np.unique(np.stack([series, cutoff]), axis=1)
    most = max(10, _CELLS // cells)
    if unique.shape[1] > most:
        unique = unique[:, np.linspace(0, unique.shape[1] - 1, most).round().astype(np.int64)]
    return unique[0], unique[1]


def _held(artifact: Artifact, panel: Panel, series: Int64, cutoff: Int64) -> CalibrationSet:
    """Returns what the members say at cutoffs, by themselves, in scaled units."""
    members: list[Network] = list(artifact.ensemble.members)  # type: ignore[arg-type]
    plain = replace(artifact, ensemble=Ensemble(members, artifact.ensemble.weights))
    predictor = Predictor(plain)
    quantiles = predictor.quantiles(panel, series, cutoff).astype(np.float64)
    ahead = cutoff[:, None] + np.arange(1, artifact.horizon + 1)
    actual = panel.values[ahead, : panel.n_channels].astype(np.float64)
    loc, scale = (part.double().numpy() for part in predictor.scales(panel, series, cutoff))
    return CalibrationSet(
        (quantiles - loc[:, None, :, None]) / scale[:, None, :, None],
        (actual - loc[:, None]) / scale[:, None],
        series,
        np.round((panel.time[cutoff] - panel.time[cutoff].min()) / panel.calendar.step).astype(
            np.int64
        ),
    )


_MOST_WINDOWS, _BATCH = 512, 128


@torch.no_grad()
def attention_share(ensemble: Ensemble, panel: Panel, config: Config, split: Split) -> dict[str, float]:
    """Returns `share`, the mean of the members' shares by weight, and `attention_share`, as measured.

    The latter is a / (a + b): what attention moves, of all that moves the median from the context's
    mean. a is the mean distance of the forecast from the linear one, b that of the linear one from the
    mean of the context, both in scaled units, over an even draw of the watched windows. Nothing where
    there is no linear forecast, or nothing is watched.

    Args:
        ensemble: trained and blended.
        panel: the table.
        config: settled.
        split: of the panel.
    """
    floor = ensemble.linear_only()
    if floor is None or not len(split.validation_windows):
        return {}
    shares = [float(member.network_weight) for member in ensemble.members]  # type: ignore[arg-type]
    share = sum(own * weight for own, weight in zip(shares, ensemble.weights, strict=True))
    ensemble = ensemble.with_offsets(None)  # moves no median, and asks for all channels at once
    store = training_store(panel, config)
    numbers = split.validation_windows[:: -(-len(split.validation_windows) // _MOST_WINDOWS)]
    median = ensemble.levels.index(0.5)
    moved = torch.zeros(2, dtype=torch.float64)
    for batch in WindowSequence(store, split.validation, numbers, _BATCH):
        loc, scale = (part[:, None] for part in ensemble.scale(batch.inputs))
        straight, said = (one(batch.inputs)[..., median] for one in (floor, ensemble))
        for place, distance in enumerate((said - straight, straight - loc)):
            distance = (distance / scale).abs()
            moved[place] += torch.where(distance.isfinite(), distance, 0.0).sum()
    whole = float(moved.sum())
    return {"share": share, "attention_share": float(moved[0]) / whole if whole else 0.0}


def fit_panel(
    panel: Panel,
    config: Config,
    split: Split,
    context: TrainingContext = NO_CONTEXT,
    start: Start | None = None,
) -> Artifact:
    """Returns the artifact trained on a panel.

    Args:
        panel: the table; rows after the holdout date already cut off (`Panel.until`).
        config: resolved by `resolve_config`.
        split: of this panel under this config.
        context: what the training runs on, and who watches.
        start: whose weights come first; None = random ones.

    Raises:
        ConfigError: the weights to start from do not fit.
        FitError: the loss is not finite; names the series.
    """
    fingerprint = panel.fingerprint()
    panel, parent = with_categories(panel, split.train_end), start.artifact if start else None
    if parent is not None:
        panel = with_words_of(panel, parent)
    distributed = context.distributed
    config = settle_linear(panel, config, split)
    with (
        torch.random.fork_rng(devices=[]),
        spare_threads(distributed.devices),
        launch_ranks(distributed, panel, config, context.checkpoints) as hand,
        process_group(distributed),
    ):
        trainings = Trainings(panel, config, context, start, hand)
        config = trainings.settled(config, split)
        members = trainings.members(config, split)
        networks = [member.network for member in members]
        choose_shares(networks, trainings.store, split, distributed)
        weights = choose_weights(networks, trainings.store, split, distributed)
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
        if len(split.validation_windows):
            found |= attention_share(artifact.ensemble, panel, config, split)
            found["validation"] = _validate(artifact, panel, split, context)
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
    one = 1 if model.tokenizes_values else None
    patch = model.patch or one or min(_patch_for(season), max(1, (longest - config.horizon) // 3))
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
            "decoder_patch": model.decoder_patch or one or min(patch, config.horizon),
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
        DataError: the table is too short.
    """
    config = started_config(config, start)
    resolved = resolve_config(config, panel)
    if None in (resolved.model.width, resolved.fit.steps):
        together = panel.n_channels if resolved.model.channel_attention else 1
        resolved = sized(resolved, together * len(split_panel(panel, resolved).train))
    if start is not None:
        check_start(panel, resolved, start)
    check_memory(ModelPlan.of(resolved.model), shape_of(panel, resolved.horizon or 0))
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
    ahead = -(-horizon // model.decoder_patch)
    strengths = model.ridge_alpha
    if isinstance(strengths, tuple) and len(strengths) != ahead:
        raise ConfigError(
            f"model: {len(strengths)} values of ridge_alpha for {ahead} horizon patches (horizon "
            f"{horizon} in patches of {model.decoder_patch}): give one for each, or one for all"
        )


def _validate(
    artifact: Artifact, panel: Panel, split: Split, context: TrainingContext
) -> dict[str, Any]:
    """Returns the scores of the validation windows, of the model and of cheap baselines."""
    watched, _, cutoffs = split.validation.locate(split.validation_windows)
    series, cutoff = np.unique(np.stack([watched, cutoffs]), axis=1)
    levels = artifact.config.model.quantile_levels
    beside = baselines_at(panel, series, cutoff, artifact.horizon, levels, CHEAP_BASELINES)
    said = {MODEL: Predictor(artifact).quantiles(panel, series, cutoff), **beside.quantiles}
    floor = artifact.ensemble.linear_only()
    if floor is not None:
        alone = Predictor(replace(artifact, ensemble=floor))
        said[RIDGE] = alone.quantiles(panel, series, cutoff)
    if context.validated is not None:
        context.validated(
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
