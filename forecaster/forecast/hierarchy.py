"""Hierarchies: forecasts of series and of their sums, reconciled so that they add up.

    base      the model's forecast of each series, and of each inner node as a series of its own
    path      of an inner node: its quantiles in the order of the summed paths of its series
    forecast  base medians, reconciled (`reconcile.py`); so are means, and each sample path by itself
    node      sum of its reconciled series, held to the bounds of the target before
    quantile  of the reconciled paths of the node: the median of a sum is not the sum of medians

Axes: R inner node · N series · S path · X median, mean, then paths · H lead · C channel · J cutoff.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from scipy.sparse import csr_array, diags_array
from scipy.special import ndtri

from forecaster.errors import ConfigError, number_of
from forecaster.forecast.artifact import Artifact
from forecaster.forecast.error_levels import CUTOFFS, earlier_cutoffs, median_errors
from forecaster.forecast.forecast import COLD, Forecast
from forecaster.forecast.paths import path_values
from forecaster.forecast.predictor import Predictor
from forecaster.forecast.reconcile import Reconciliation, error_covariance
from forecaster.forecast.result import Result
from forecaster.forecast.totals import PATHS
from forecaster.forecast.window import ForecastWindow
from forecaster.lazy import Figure
from forecaster.model.ensemble import Ensemble
from forecaster.panel.arrays import Floats, Ints
from forecaster.panel.findings import Finding
from forecaster.panel.frames import PolarsFrame
from forecaster.panel.panel import Panel
from forecaster.panel.tree import (
    NODE_LEVEL,
    HierarchyRequest,
    Method,
    Tree,
    common_cutoff,
    stacked,
    summed,
)

MOST_OF_MINT = 2_000
"""Nodes up to which mint is the default."""
_WINDOWS = 40_000  # forecasts at earlier cutoffs, of all nodes together


@dataclass(frozen=True, repr=False)
class Hierarchy(Result):
    """Reconciled forecasts of all nodes: inner ones from the total down, then every series."""

    nodes: Forecast
    """Quantiles, means and, where so many were asked for, paths of the nodes, with their history."""
    median: Floats
    """[R + N, H, C] reconciled base medians, the point forecast, data units."""
    base: Floats
    """[R + N, H, C] medians before; NaN = an inner node without one, as by bottom-up."""
    levels: tuple[str, ...]
    """[R + N] name of the level of each node."""
    method: Method
    """How it was reconciled."""
    lost: tuple[int, str]
    """How many series and channels have no forecast, and the most frequent reason."""

    @property
    def panel(self) -> Panel:
        """Histories of the nodes."""
        return self.nodes.panel

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What the audit of the table found, worst first."""
        return self.nodes.findings

    @property
    def rows(self) -> PolarsFrame:
        """A polars frame with a row per node, channel and lead, in that order."""
        assert self.nodes.mean is not None
        level = np.array(self.levels, dtype=object)[:, None, None]
        values = {NODE_LEVEL: np.broadcast_to(level, self.median.shape)}
        values |= {"forecast": self.median, "mean": self.nodes.mean} | self.nodes.shown
        return self.nodes.keyed({name: cells[:, None] for name, cells in values.items()})

    @property
    def report(self) -> str:
        """One line: how many nodes, how reconciled, and how many series have no forecast."""
        line = f"{number_of(len(self.levels), 'node')} of {number_of(len(set(self.levels)), 'level')}"
        line += f", reconciled by {self.method}"
        return line + f"; {self.lost[0]:,} without a forecast: {self.lost[1]}" * (self.lost[0] > 0)

    def plot(self) -> Figure:
        """Returns a figure of history, forecast and bands of the first nodes, at most six."""
        from forecaster.forecast.plots import plot_forecast

        quantiles = self.nodes.quantiles.copy()
        quantiles[..., self.nodes.levels.index(0.5)] = self.median
        return plot_forecast(replace(self.nodes, quantiles=quantiles), np.arange(len(self.levels)))


def hierarchy_of(
    forecast: Forecast, request: HierarchyRequest, samples: int | None = None, seed: int = 0
) -> Hierarchy:
    """Returns the reconciled forecasts of the nodes of a hierarchy.

    Args:
        forecast: of all series, base quantiles; its paths, if it has some, are those reconciled.
        request: checked.
        samples: paths to reconcile and keep; None = 200, which are not kept; 0 = none, so without quantiles.
        seed: of the paths.

    Raises:
        ConfigError: the model draws no paths.
    """
    artifact, window = forecast.artifact, forecast.window
    count = PATHS if samples is None else samples
    if artifact is None or window is None:
        raise ConfigError("--hierarchy needs the forecasts of a model")
    if forecast.paths is not None:
        count = forecast.paths.shape[1]
    tree = request.tree(forecast.panel)
    method = request.method or ("mint" if len(tree.levels) <= MOST_OF_MINT else "wls")
    drawn = _Drawn(forecast, tree, artifact.ensemble, count, seed)
    inner = summed(forecast.panel, tree)
    base = np.full((inner.n_series, *forecast.median.shape[1:]), np.nan)
    changes: _Changes = []
    if method != "bottom-up":
        base, changes = _reconciled(drawn, inner, artifact, window, method)
    return _settled(drawn, inner, base, changes, method, keep=samples is not None)


@dataclass(frozen=True)
class _Drawn:
    """Medians, means and paths of series, drawn in blocks: all at once would not fit in memory."""

    forecast: Forecast
    tree: Tree
    ensemble: Ensemble
    count: int
    seed: int

    @cached_property
    def lost(self) -> Ints:
        """[R, C] series of a node without a forecast."""
        return np.rint(self.tree.sums @ (~self.forecast.usable).astype(np.float64)).astype(np.int64)

    def blocks(self) -> Iterator[tuple[slice, Floats]]:
        """Yields some series and their cells [n, X, H, C], NaN where there is no forecast."""
        stop = 0
        for part in self.forecast.blocks():
            start, stop = stop, stop + len(part.time)
            paths = np.empty((len(part.time), 0, *part.median.shape[1:]))
            if self.count:
                paths = part.draw(self.count, self.seed)
            yield slice(start, stop), _cells(part, paths)

    def sums_of(self, block: slice, cells: Floats) -> Floats:
        """Returns [R, X, H, C] what cells of some series add to inner nodes; NaN adds nothing."""
        added = self.tree.sums[:, block] @ np.nan_to_num(cells).reshape(len(cells), -1)
        return added.reshape(-1, *cells.shape[1:])

    @cached_property
    def least(self) -> Floats:
        """[C] 0 of channels that were never negative before the cutoff, unless the target has a lower bound."""
        panel = self.forecast.panel
        past = panel.time <= common_cutoff(panel, self.forecast.cutoff)
        never = ~(panel.values[past, : panel.n_channels] < 0).any(axis=0)
        return np.where(never & (self.ensemble.target.lower is None), 0.0, -np.inf)

    def bounded(self, cells: Floats) -> Floats:
        """Returns cells of series held to the bounds of the target; means are not rounded."""
        values = torch.from_numpy(np.maximum(cells, self.least))
        mean = self.ensemble.bounded(values[:, 1])
        values = self.ensemble.settled(values)
        values[:, 1] = mean
        return values.numpy()


_Changes = list[Reconciliation | None]
"""Of each channel; None = nothing to reconcile. Forecasts are X · H: median, mean and paths at every lead."""


def _reconciled(
    drawn: _Drawn, inner: Panel, artifact: Artifact, window: ForecastWindow, method: Method
) -> tuple[Floats, _Changes]:
    """Returns the medians of inner nodes [R, H, C], and what their forecasts change in those of the series."""
    forecast, sums = drawn.forecast, drawn.tree.sums
    nodes, leaves = sums.shape
    _, horizon, channels = forecast.median.shape
    free = Predictor(replace(artifact, ensemble=artifact.ensemble.unbounded))
    cutoff = common_cutoff(forecast.panel, forecast.cutoff)
    window = replace(window, cutoff=cutoff, latest=cutoff, num_samples=None, columns=())
    base = free.whole(inner, window)
    # No history of a sum holds a series without one: it is added as it is.
    warm = np.array([not status.startswith(COLD) for status in forecast.status])
    warm = warm.reshape(leaves, channels)
    added = np.zeros((nodes, drawn.count + 2, horizon, channels))
    for block, cells in drawn.blocks():
        added += drawn.sums_of(block, cells * warm[block, None, None])
    paths = _ordered(base, added[:, 2:], artifact.ensemble)
    missing = _cells(base, paths) - added
    spread = np.concatenate([_variance(base), _variance(forecast)])
    most = min(CUTOFFS, max(1, _WINDOWS // (nodes + leaves)))
    times = earlier_cutoffs(forecast.panel, cutoff, horizon, most)
    errors = np.concatenate(
        [
            median_errors(predictor, panel, times, horizon)
            for predictor, panel in ((free, inner), (Predictor(artifact), forecast.panel))
        ],
        axis=1,
    )  # [J, R + N, H, C]
    changes: _Changes = []
    for channel in range(channels):
        usable = np.isfinite(missing[..., channel]).all(axis=(1, 2)) & (drawn.lost[:, channel] == 0)
        used = np.flatnonzero(usable)
        if not len(used):
            changes.append(None)
            continue
        own = errors[..., channel]
        covariance = error_covariance(
            own.transpose(0, 2, 1).reshape(-1, nodes + leaves),
            np.isfinite(own).any(axis=2).sum(axis=0),
            spread[:, channel],
            method == "mint",
        ).select(np.append(used, np.arange(nodes, nodes + leaves)))
        changeable = csr_array(sums[used] @ diags_array(warm[:, channel] * 1.0))
        lacking = missing[used, ..., channel].reshape(len(used), -1)
        changes.append(Reconciliation(changeable, covariance, lacking))
    cold = np.where(warm[:, None], 0.0, forecast.median)
    return base.median + drawn.sums_of(slice(None), cold[:, None])[:, 0], changes


def _cells(forecast: Forecast, paths: Floats) -> Floats:
    """Returns [n, X, H, C] median, mean and paths."""
    assert forecast.mean is not None
    return np.concatenate([forecast.median[:, None], forecast.mean[:, None], paths], axis=1)


def _variance(forecast: Forecast) -> Floats:
    """Returns [n, C] the variance that a forecast expects: of a normal distribution with its outermost band."""
    width = forecast.quantiles[..., -1] - forecast.quantiles[..., 0]  # [n, H, C]
    normal = ndtri(forecast.levels[-1]) - ndtri(forecast.levels[0]) or 1.0
    return np.asarray(np.nan_to_num((width / normal) ** 2).mean(axis=1))


def _ordered(base: Forecast, order: Floats, ensemble: Ensemble) -> Floats:
    """Returns paths [R, S, H, C] of inner nodes in an order [R, S, H, C]."""
    count = order.shape[1]
    if not count:
        return order
    assert base.mean is not None
    values = path_values(ensemble, base.quantiles, base.mean, count)
    paths = np.empty_like(order)
    np.put_along_axis(paths, order.argsort(axis=1, kind="stable"), np.moveaxis(values, -1, 1), axis=1)
    return paths


def _settled(
    drawn: _Drawn, inner: Panel, base: Floats, changes: _Changes, method: Method, keep: bool
) -> Hierarchy:
    """Changes the series, adds them up, and takes the quantiles of all nodes."""
    forecast, tree = drawn.forecast, drawn.tree
    nodes, leaves = tree.sums.shape
    added = np.zeros((nodes, drawn.count + 2, *forecast.median.shape[1:]))
    parts: list[tuple[Floats, Floats, Floats]] = []
    kept: list[Floats] = []
    for block, cells in drawn.blocks():
        for channel, change in enumerate(changes):
            if change is not None:
                moved = cells[..., channel]
                moved += change.corrections(block).reshape(moved.shape)
        cells = drawn.bounded(cells)
        added += drawn.sums_of(block, cells)
        parts.append(_summary(cells, forecast.all_levels))
        kept += [cells[:, 2:]] * keep
    added.transpose(0, 3, 1, 2)[drawn.lost > 0] = np.nan
    median, mean, quantiles = (
        np.concatenate(arrays)
        for arrays in zip(_summary(added, forecast.all_levels), *parts, strict=True)
    )
    panel = stacked(inner, forecast.panel, tree.keys)
    time = forecast.time[0] if leaves else forecast.time
    whole = replace(
        forecast.with_quantiles(quantiles),
        panel=panel,
        series=np.arange(nodes + leaves),
        cutoff=np.append(
            np.full(nodes, common_cutoff(forecast.panel, forecast.cutoff)), forecast.cutoff
        ),
        time=np.concatenate([np.broadcast_to(time, (nodes, len(time))), forecast.time]),
        mean=mean,
        paths=np.concatenate([added[:, 2:], *kept]) if keep else None,
        status=(*_statuses(drawn), *forecast.status),
        actual=None,
        source=None,
        artifact=None,
    )
    bases = np.concatenate([base, forecast.median])
    return Hierarchy(whole, median, bases, tree.levels, method, forecast.lost)


def _summary(cells: Floats, levels: tuple[float, ...]) -> tuple[Floats, Floats, Floats]:
    """Returns median, mean [n, H, C] and the quantiles of the paths [n, H, C, Q] of cells [n, X, H, C]."""
    paths = cells[:, 2:] if cells.shape[1] > 2 else np.full_like(cells[:, :1], np.nan)
    return cells[:, 0], cells[:, 1], np.moveaxis(np.quantile(paths, levels, axis=1), 0, -1)


def _statuses(drawn: _Drawn) -> Iterator[str]:
    """Yields what is to be said of each inner node and channel."""
    lacks = [drawn.forecast.lacks(several) for several in (False, True)]
    names, sums, usable = drawn.forecast.panel.series_names, drawn.tree.sums, drawn.forecast.usable
    for node, lost in enumerate(drawn.lost):
        series = sums.indices[sums.indptr[node] : sums.indptr[node + 1]]
        for channel, count in enumerate(lost):
            if count:
                first = names[series[~usable[series, channel]][0]]
                yield f"no forecast of {count:,} of {len(series):,} series, as {first}"
            else:
                yield "ok" + lacks[len(series) > 1]
