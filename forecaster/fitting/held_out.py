"""What held-out windows say about a fit: conformal factors, scores, and the mean weights of its parts."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from forecaster.config import Plan
from forecaster.evaluation.backtest import Backtest, score_forecasts
from forecaster.evaluation.comparison import MODEL, RIDGE
from forecaster.fitting.context import TrainingContext
from forecaster.fitting.mixture import experts_alone, mean_weight
from forecaster.fitting.no_fit import baseline_models, defaults_of
from forecaster.forecast.artifact import Artifact
from forecaster.forecast.calibrate import CalibrationSet, calibrate, tail_factor, with_factors
from forecaster.forecast.error_levels import measured_errors
from forecaster.forecast.forecast import known_forecast
from forecaster.forecast.paths import FEWEST
from forecaster.forecast.predictor import Predictor
from forecaster.forecast.source import coded
from forecaster.model.ensemble import Ensemble
from forecaster.panel.panel import Panel
from forecaster.windows.index import Int64, even_draw
from forecaster.windows.split import Split
from forecaster.windows.store import WindowStore
from forecaster.windows.streams import WindowSequence

_CALIBRATION_CELLS = 1 << 23  # quantiles; more cutoffs are thinned evenly
_LEAST_CUTOFFS = 10
_WEIGHED_WINDOWS = 512  # an even draw, whose expert weights are averaged
_BATCH = 128


def calibrated(artifact: Artifact, panel: Panel, split: Split) -> Artifact:
    """Returns the artifact with conformal factors of the calibration windows, and their metrics."""
    if len(split.calibration_windows) == 0 or uncalibrated(artifact.plan) is not None:
        return artifact
    levels = artifact.plan.model.quantile_levels
    bare = Ensemble(artifact.ensemble.networks, artifact.ensemble.weights)
    cutoffs = cutoffs_of(split, split.calibration_windows)
    held_out = calibration_set(replace(artifact, ensemble=bare), panel, cutoffs)
    factors, effect = calibrate(held_out, levels)
    applied = None
    moved = held_out
    if effect["applied"]:
        applied = torch.from_numpy(factors)
        moved = replace(
            held_out, quantiles=with_factors(held_out.quantiles, factors.astype(float), levels)
        )
    return replace(
        artifact,
        ensemble=artifact.ensemble.with_factors(applied, tail_factor(moved, levels)),
        metrics=artifact.metrics | {"calibration": effect},
    )


def with_errors(artifact: Artifact, panel: Panel, split: Split) -> Artifact:
    """Returns the artifact with its errors at earlier cutoffs; on held-out rows where a network has learned."""
    if artifact.plan.model.decoder == "autoregressive":
        return artifact
    panel = panel.until(split.end)
    if not experts_alone(artifact.ensemble.networks):
        errors = measured_errors(artifact, panel, split.split)
        if errors.cutoffs >= FEWEST:
            return replace(artifact, errors=errors)
    return replace(artifact, errors=measured_errors(artifact, panel))


def uncalibrated(plan: Plan) -> str | None:
    """Returns why quantiles are not calibrated; None = they can be."""
    if plan.fit.calibration is None:
        return "fit.calibration is null"
    if len(plan.model.quantile_levels) == 1:
        return "the median alone has no band"
    return None


def validation_scores(
    artifact: Artifact, panel: Panel, split: Split, context: TrainingContext
) -> dict[str, Any]:
    """Returns the scores of the validation windows: the model, its linear expert and baselines."""
    cutoffs = cutoffs_of(split, split.validation_windows)
    series, cutoff = cutoffs
    models = {MODEL: artifact, **baseline_models(panel.until(split.split), defaults_of(artifact))}
    linear = artifact.ensemble.experts_only("linear")
    if linear is not None:
        models[RIDGE] = replace(artifact, ensemble=linear)
    backtest = scored(models, panel, series, cutoff)
    context.reporter.validation(backtest)
    ends = ("_low", "high")  # of intervals, NaN of too few cutoffs
    scores = {
        model: {
            name: by_name[name]
            for name in by_name
            if name[-4:] not in ends or by_name[name] == by_name[name]
        }
        for model, by_name in backtest.scores.items()
    }
    # Identifies the windows, so that scores of two models are compared on the same ones only.
    digest = hashlib.sha256(cutoffs.astype("<i8").tobytes()).hexdigest()[:16]
    return {"windows": len(series), "cutoffs": digest, "cells": backtest.scored, "scores": scores}


def scored(models: Mapping[str, Artifact], panel: Panel, series: Int64, cutoff: Int64) -> Backtest:
    """Returns the forecasts of models, and their scores, at cutoffs of a table; `MODEL` is among the names.

    Args:
        models: by name, of the same horizon and quantile levels.
        panel: a horizon of rows follows each cutoff.
        series, cutoff: [n] number of the series, and row.
    """
    forecasts = {}
    for name, model in models.items():
        quantiles = Predictor(model).quantiles(coded(panel, model), series, cutoff)
        levels = model.plan.model.quantile_levels
        forecasts[name] = known_forecast(panel, series, cutoff, quantiles, levels)
    return score_forecasts([forecasts])


@torch.no_grad()
def mean_weights(ensemble: Ensemble, store: WindowStore, split: Split) -> dict[str, Any]:
    """Returns the mean weights of network and experts over validation windows, else over training windows."""
    networks = ensemble.networks
    names = networks[0].config.pool.experts
    if not names:
        return {}
    index, numbers = split.validation, split.validation_windows
    if not len(numbers):
        index, numbers = split.train, np.arange(len(split.train))
    numbers = numbers[even_draw(len(numbers), _WEIGHED_WINDOWS)]
    member_weights = torch.tensor(ensemble.weights)  # [M]
    by_window = []
    for batch in WindowSequence(store, index, numbers, _BATCH):
        weights = torch.stack(
            [network.weights_of_experts(batch.inputs).mean(dim=1) for network in networks], dim=-1
        )
        by_window.append(weights @ member_weights)
    mean = torch.cat(by_window).mean(dim=0).tolist()
    network_weights = torch.tensor([mean_weight(network) for network in networks])
    return {
        "network_weight": float(network_weights @ member_weights),
        "expert_weights": dict(zip(names, mean, strict=True)),
    }


def cutoffs_of(split: Split, numbers: Int64) -> Int64:
    """Returns [2, n] series and row of the cutoffs of validation windows, each once."""
    series, _, cutoff = split.validation.locate(numbers)
    return np.unique(np.stack([series, cutoff]), axis=1)


def calibration_set(artifact: Artifact, panel: Panel, cutoffs: Int64) -> CalibrationSet:
    """Returns quantiles of an artifact and the truth at cutoffs, fewer where cells are many, in scaled units.

    Args:
        artifact: the model.
        panel: a horizon of rows follows each cutoff.
        cutoffs: [2, n] series and row.
    """
    levels = artifact.plan.model.quantile_levels
    cells = artifact.horizon * panel.n_channels * len(levels)  # of a cutoff
    most = max(_LEAST_CUTOFFS, _CALIBRATION_CELLS // cells)
    if cutoffs.shape[1] > most:
        kept = np.linspace(0, cutoffs.shape[1] - 1, most).round().astype(np.int64)
        cutoffs = cutoffs[:, kept]
    series, cutoff = cutoffs
    predictor = Predictor(artifact)
    quantiles = predictor.quantiles(panel, series, cutoff)
    leads = cutoff[:, None] + np.arange(1, artifact.horizon + 1)
    actual = panel.values[leads, : panel.n_channels]
    scale = predictor.scales(panel, series, cutoff)
    quantiles, actual = (
        scale.apply(torch.from_numpy(part)).double().numpy() for part in (quantiles, actual)
    )
    step = np.round((panel.time[cutoff] - panel.time[cutoff].min()) / panel.calendar.step)
    return CalibrationSet(quantiles, actual, series, step.astype(np.int64))
