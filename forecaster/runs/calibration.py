"""Quantiles that hold what they say: widths learned from windows that no training has used.

What comes in: an artifact, its panel and split. What goes out: the artifact with widths, and what they
are worth. Promised: nothing but the widths changes; no row outside the calibrating windows and their
contexts is read.
"""

from __future__ import annotations

from dataclasses import asdict, replace

import numpy as np
import torch

from forecaster.config import Config
from forecaster.forecast.artifact import Artifact
from forecaster.forecast.calibrate import CalibrationSet, calibrate
from forecaster.forecast.predictor import Predictor
from forecaster.model.ensemble import Ensemble
from forecaster.model.network import Network
from forecaster.panel.panel import Panel
from forecaster.windows.index import Int64
from forecaster.windows.split import Split

_CELLS = 1 << 23
"""Of all quantiles looked at; more cutoffs than that are thinned evenly."""


def calibrated(artifact: Artifact, panel: Panel, split: Split) -> Artifact:
    """Returns the artifact with its quantiles calibrated, and what that is worth among its metrics.

    Args:
        artifact: of this panel; widths it has are forgotten.
        panel: the table.
        split: whose last validated cutoffs were left for this; none of them = no widths.
    """
    if len(split.calibration) == 0 or uncalibrated(artifact.config) is not None:
        return artifact
    levels = artifact.config.model.quantile_levels
    series, cutoff = _cutoffs(split, artifact.horizon * panel.n_channels * len(levels))
    found = calibrate(_held(artifact, panel, series, cutoff), levels)
    widths = torch.from_numpy(found.widths) if found.strength else None
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
    if config.model.head == "negative_binomial":
        return "the quantiles of counts are whole numbers, which no width can move to an exact share"
    if len(config.model.quantile_levels) == 1:
        return "the median alone has no band"
    return None


def _cutoffs(split: Split, cells: int) -> tuple[Int64, Int64]:
    """Returns series and row of the calibrating cutoffs, each once; thinned where cells are many."""
    series, _, cutoff = split.validation.locate(split.calibration)
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
