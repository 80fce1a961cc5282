"""Accuracy of a hierarchy by level: of base forecasts, and of the reconciled ones that add up.

Axes: R node · H lead · C channel.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import numpy as np

from forecaster.evaluation.error_scales import Histories, ratio, scales_at
from forecaster.forecast.forecast import Forecast
from forecaster.forecast.hierarchy import hierarchy_of
from forecaster.panel.arrays import Floats
from forecaster.panel.tree import HierarchyRequest


def score_levels(forecasts: Iterable[Forecast], request: HierarchyRequest) -> dict[str, list[Any]]:
    """Returns columns with a row per level: WAPE and MASE of the medians, base and reconciled, and nodes.

    The truth of a node is the sum of its series, where all are observed. NaN = no base forecast, as of sums by
    bottom-up.

    Args:
        forecasts: of all series, with actuals.
        request: checked.
    """
    sums: dict[tuple[str, str], Floats] = defaultdict(lambda: np.zeros(4))
    nodes: dict[str, int] = {}
    for forecast in forecasts:
        assert forecast.actual is not None
        found = hierarchy_of(forecast, request, samples=0)
        panel, leaves = found.panel, forecast.actual
        above = request.tree(forecast.panel).sums @ leaves.reshape(len(leaves), -1)
        actual = np.concatenate([above.reshape(-1, *leaves.shape[1:]), leaves])  # [R, H, C]
        values, series = panel.values[:, : panel.n_channels], np.arange(panel.n_series)
        history = Histories(values, panel.indptr, panel.row_at(found.nodes.cutoff), series)
        scale = scales_at(history, panel.calendar.season_length).mase[:, None]  # [R, 1, C]
        levels = np.array(found.levels)
        for kind, forecasted in (("base", found.base), ("reconciled", found.median)):
            error = np.abs(forecasted - actual)
            size = np.where(np.isfinite(error), np.abs(actual), 0.0)
            scaled = error / scale
            for level in dict.fromkeys(found.levels):
                own = levels == level
                nodes[level] = int(own.sum())
                ratios = scaled[own][np.isfinite(scaled[own])]
                sums[kind, level] += [np.nansum(error[own]), size[own].sum(), ratios.sum(), len(ratios)]
    columns: dict[str, list[Any]] = {"level": list(nodes), "nodes": list(nodes.values())}
    for metric, part in (("WAPE", 0), ("MASE", 2)):
        for kind in ("base", "reconciled"):
            pairs = [sums[kind, level][part : part + 2] for level in nodes]
            columns[f"{metric} {kind}"] = [float(ratio(wrong, total)) for wrong, total in pairs]
    return columns
