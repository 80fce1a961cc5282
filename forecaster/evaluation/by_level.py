"""Accuracy of a hierarchy by level: of base forecasts, and of the reconciled ones that add up.

Axes: R node · H lead · C channel.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from forecaster.evaluation.error_scales import Floats, Histories, ratio, scales_at
from forecaster.forecast.forecast import Forecast
from forecaster.forecast.hierarchy import hierarchy_of
from forecaster.panel.tree import HierarchyRequest


def score_levels(forecasts: Iterable[Forecast], request: HierarchyRequest) -> dict[str, list[Any]]:
    """Returns columns with a row per level: WAPE and MASE of the medians, base and reconciled, and nodes.

    The truth of a node is the sum of its series, where all are observed. NaN = no base forecast, as of sums by
    bottom-up.

    Args:
        forecasts: of all series, with actuals.
        request: checked.
    """
    sums: dict[str, Floats] = {}
    nodes: dict[str, int] = {}
    for forecast in forecasts:
        assert forecast.actual is not None
        found, tree = hierarchy_of(forecast, request, samples=0), request.tree(forecast.panel)
        panel = found.panel
        leaves = forecast.actual
        actual = np.concatenate(
            [(tree.sums @ leaves.reshape(len(leaves), -1)).reshape(-1, *leaves.shape[1:]), leaves]
        )
        rows = panel.row_at(found.nodes.cutoff)
        history = Histories(
            panel.values[:, : panel.n_channels], panel.indptr, rows, np.arange(panel.n_series)
        )
        scale = scales_at(history, panel.calendar.season_length).mase[:, None]  # [R, 1, C]
        errors = {
            name: np.abs(cells - actual) for name, cells in (("base", found.base), ("", found.median))
        }
        levels = np.array(found.levels)
        for level in dict.fromkeys(found.levels):
            own = levels == level
            nodes[level] = int(own.sum())
            for name, error in errors.items():
                scored = np.isfinite(error[own])
                size = np.where(scored, np.abs(actual[own]), 0.0).sum()
                ratios = (error[own] / scale[own])[scored & np.isfinite(scale[own])]
                each = [np.nansum(error[own]), size, ratios.sum(), len(ratios)]
                sums[f"{name}{level}"] = sums.get(f"{name}{level}", np.zeros(4)) + each
    columns: dict[str, list[Any]] = {"level": list(nodes), "nodes": list(nodes.values())}
    for metric, at in (("WAPE", 0), ("MASE", 2)):
        for name in ("base", ""):
            found_of = [sums[f"{name}{level}"] for level in nodes]
            shown = [float(ratio(one[at], one[at + 1])) for one in found_of]
            columns[f"{metric} {name or 'reconciled'}"] = shown
    return columns
