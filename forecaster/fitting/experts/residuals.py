"""What experts miss on training windows: their weights, and the quantiles of their residuals.

    training windows, whole and with ─▶ mean errors ─▶ weights ─▶ residuals in units ─▶ quantiles
    a history cut to each class         per lead                  of `Evidence.unit`     per lead

Axes: R row, a channel of a window · H lead · E expert · L class of history · C channel · Q quantile level.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from forecaster.config import Plan
from forecaster.model.experts import SHARPNESS, Evidence, Experts, Pool, truncated
from forecaster.model.network import Network
from forecaster.panel.panel import Panel
from forecaster.windows.index import WindowIndex, even_draw
from forecaster.windows.split import Split
from forecaster.windows.store import WindowStore

_RESIDUALS = 1 << 22  # cells from which quantiles are taken
_ROWS = 4096
_FEWER = 4  # times fewer windows for each class of short histories
_POOLED = 200  # residuals of neighbouring leads from which the quantiles of a lead are taken
_TABLE = 20  # windows side by side at which errors on all of them count half
_PRIOR = 4  # windows side by side that a normal distribution counts as
_CHANGE = 2.0  # of the loss: the cost of a sharpness e times as large, for one window side by side
_SHARPENED, _LEAST_SCATTER = 1_500, 0.01  # windows that choose it; spreads of the context
_BATCH = 256


class _Rows(NamedTuple):
    """Channels of training windows."""

    pool: Pool
    target: Tensor
    """[R, H, 1] what followed, scaled units; NaN where missing."""
    channel: Tensor
    """[R] codes."""
    phase: Tensor
    """[R, H] parts of the season."""

    def weighed(self, worse: Tensor, sharpness: Tensor) -> _Rows:
        """Returns rows with such errors on training windows [H, E], and such sharpness [2]."""
        count = len(self.channel)
        table, sharpness = worse.expand(count, -1, -1), sharpness.expand(count, -1)
        return self.with_evidence(of_table=table, sharpness=sharpness)

    def with_evidence(self, **evidence: Tensor) -> _Rows:
        """Returns rows with other evidence."""
        pool = self.pool
        return self._replace(pool=pool._replace(evidence=pool.evidence._replace(**evidence)))

    def residuals(self) -> Tensor:
        """[R, H, 1 + E] of the weighted experts and of each alone, in units of their bands."""
        pool = self.pool
        mean, error = pool.mean()
        every = torch.cat([mean[..., None], pool.forecasts], dim=-1)
        evidence = pool.evidence
        units = [evidence.unit(one) for one in (error, *evidence.error.T)]
        return (self.target - every) / torch.stack(units, dim=-1)


@torch.no_grad()
def learn_errors(
    network: Network,
    panel: Panel,
    plan: Plan,
    split: Split,
    store: WindowStore,
    beyond: NDArray[np.float64],
) -> None:
    """Puts errors on training windows, and quantiles of their residuals, into the experts.

    Residuals count from their own median: a few quarters' drift is more than a bias (taken for one, it
    raised the MSE of ETTh1 720 hours ahead from .83 to .98), but those of `tsb` alone: its forecast is a
    mean, far from the median where most values are 0. Those of short histories are of the same
    windows without what is further back, of no history those of the last windows, around the level predicted
    from the other series; `beyond` [S, C] of `learn_levels` is the leave-one-out error.
    """
    # Here, for it loads Lightning: a forecast without a fit comes without.
    from forecaster.windows.datamodule import WindowSequence

    experts, draw = network.experts, np.random.default_rng(0)
    assert experts is not None
    together = 1 if split.train.channels == panel.n_channels else panel.n_channels
    # Windows that overlap repeat each other: as many as fit side by side count.
    apart = len(split.train) * together / plan.horizon
    most = min(_ROWS, _RESIDUALS // (plan.horizon * (1 + len(experts.names)))) // together
    bounds = (0, *(longest + 1 for longest in experts.longest))  # of the steps of a class

    def rows_of(index: WindowIndex, most: int, bucket: int | None) -> _Rows:
        """The rows of an even draw of windows, their history cut to a class."""
        found = []
        for batch in WindowSequence(store, index, even_draw(len(index), max(1, most)), _BATCH):
            inputs = batch.inputs
            if bucket is not None:
                steps = draw.integers(bounds[bucket], bounds[bucket + 1], len(batch.cutoff))
                inputs = truncated(inputs, torch.from_numpy(steps))
            scale = network.scale(inputs)
            target = scale.apply(batch.target).transpose(1, 2).flatten(0, 1)[..., None]
            if bucket == 0:
                shift = beyond[batch.series.numpy()[:, None], inputs.channel.numpy() - 1]
                target = target + torch.from_numpy(shift.flatten()).float()[:, None, None]
            where = inputs.channel.flatten(), experts.phases_of(inputs)
            pool = network.pool(inputs, scale, batch.time)
            found.append((pool.forecasts, *pool.evidence, target, *where))
        forecasts, *evidence, target, channel, phase = map(torch.cat, zip(*found, strict=True))
        return _Rows(Pool(forecasts, Evidence(*evidence)), target, channel, phase)

    experts.reset_errors()
    rows, last = rows_of(split.train, most, None), len(experts.longest)
    worse = apart / (apart + _TABLE) * _worse(rows)
    experts.worse[last] = worse
    experts.sharpness[last] = _sharpness(rows, worse, apart)
    rows = rows.weighed(worse, experts.sharpness[last])
    experts.width.copy_(_widths(rows, experts, apart * plan.horizon))
    width = experts.width[rows.channel[:, None], rows.phase]
    rows = rows.with_evidence(width=width)

    levels, trust = np.array(plan.model.quantile_levels), apart / (apart + _PRIOR)
    _move_offsets(experts, last, rows, levels, trust)
    for bucket in reversed(range(last)):
        index = split.train
        if bucket == 0:
            if not bool((experts.cold_scale > 0).any()):
                continue
            kept = np.minimum(index.count, -(-experts.longest[-1] // index.stride))
            begin = index.first + (index.count - kept) * index.stride
            index, trust = replace(index, first=begin, count=kept), 1.0
        rows = rows_of(index, most // _FEWER, bucket)
        worse = apart / (apart + _TABLE) * _worse_when_cut(rows)
        experts.worse[bucket] = worse
        _move_offsets(experts, bucket, rows.weighed(worse, experts.sharpness[bucket]), levels, trust)


def _worse(rows: _Rows) -> Tensor:
    """[H, E] mean error of each expert over the least − 1, in units of scatter."""
    error = (rows.pool.forecasts - rows.target).abs()
    return _over_least((error / rows.pool.evidence.scatter[:, None, None]).nanmean(dim=0))


def _worse_when_cut(rows: _Rows) -> Tensor:
    """[1, E] the same at all leads together, in units of the mean error of all experts of the row.

    Of a short history scatter is no unit: two values may be close by chance.
    """
    error = (rows.pool.forecasts - rows.target).abs()
    available = rows.pool.evidence.available[:, None]
    error = error.masked_fill(~available, torch.nan).nanmean(dim=1, keepdim=True)
    return _over_least((error / error.nanmean(dim=2, keepdim=True)).nanmean(dim=0))


def _over_least(mean: Tensor) -> Tensor:
    least = mean.nan_to_num(torch.inf).amin(dim=1, keepdim=True)
    return (mean / least - 1).nan_to_num(0.0, posinf=0.0)


@torch.enable_grad()
def _sharpness(rows: _Rows, worse: Tensor, apart: float) -> Tensor:
    """[2] the sharpness of least Huber loss, near `SHARPNESS` where windows side by side are few."""
    every = -(-len(rows.target) // _SHARPENED)
    evidence = Evidence(*(part[::every] for part in rows.pool.evidence))
    pool = Pool(rows.pool.forecasts[::every], evidence)
    some = _Rows(pool, *(part[::every] for part in rows[1:]))
    target, unit = some.target[..., 0], evidence.scatter.clamp(min=_LEAST_SCATTER)[:, None]
    # In float64: in float32 rounding decides where the search stops.
    before, change = torch.tensor(SHARPNESS).double(), torch.zeros(2).double().requires_grad_()

    def loss() -> Tensor:
        mean, _ = some.weighed(worse, before * change.exp()).pool.mean()
        error = torch.where(target.isnan(), 0.0, (mean - target.nan_to_num()) / unit)
        return F.huber_loss(error, torch.zeros_like(error), reduction="sum")

    def penalized() -> Tensor:
        change.grad = None
        found = loss() / start + _CHANGE / apart * change.square().sum()
        found.backward()
        return found

    start = loss().detach()
    if not start > 0:
        return before.float()
    torch.optim.LBFGS([change], line_search_fn="strong_wolfe").step(penalized)
    return (before * change.detach().exp()).float()


def _widths(rows: _Rows, experts: Experts, steps: float) -> Tensor:
    """[C + 1, phase] the mean distance from the weighted mean, relative to that of all.

    Of a channel, then of a phase of its season; nearer to 1 where training `steps` are few.
    """
    codes, phases = experts.width.shape
    missed = rows.residuals()[..., 0].abs()
    missed = missed / missed.nanmean(dim=0)
    there = missed.isfinite()
    at, cells = (rows.channel[:, None] * phases + rows.phase)[there], codes * phases
    counts = torch.bincount(at, minlength=cells).unflatten(0, (codes, phases))
    sums = torch.bincount(at, missed[there].double(), cells).unflatten(0, (codes, phases))
    sums[0], counts[0] = sums.sum(dim=0), counts.sum(dim=0)  # code 0: any channel
    each = sums.sum(dim=1, keepdim=True) / counts.sum(dim=1, keepdim=True)
    steps /= codes - 1
    apart, seasons = steps / experts.horizon, steps / experts.season
    of_channel = 1 + apart / (apart + _PRIOR) * ((each / each[:1]).nan_to_num(1.0) - 1)
    of_phase = (sums / counts / each).nan_to_num(1.0) - 1
    # Empirical Bayes: a mean of seasons whose distances vary as much as those of a normal distribution.
    noise = (math.pi / 2 - 1) / seasons
    differ = (of_phase.square().mean(dim=1, keepdim=True) - noise).clamp(min=0)
    # The root: what is quiet on training rows may not stay so.
    return of_channel * (1 + differ / (differ + noise) * of_phase).sqrt()


def _move_offsets(
    experts: Experts, bucket: int, rows: _Rows, levels: NDArray[np.float64], trust: float
) -> None:
    """Moves the quantiles of a class of history towards those of such residuals."""
    residuals, names = rows.residuals().numpy(), experts.names
    is_mean = np.array([names == ("tsb",), *(name == "tsb" for name in names)])[:, None]
    for lead in range(residuals.shape[1]):
        reach = min(residuals.shape[1], _POOLED // (2 * len(residuals)))
        near = residuals[:, max(0, lead - reach) : lead + reach + 1].reshape(-1, residuals.shape[2])
        near = near[np.isfinite(near).all(axis=1)]
        if len(near) > 1:
            found = np.quantile(near, levels, axis=0).T
            around = found - found[:, levels == 0.5] if bucket else found
            # A cold level is a median, but that of residuals any number between two series.
            around = np.where(levels < 0.5, around.clip(max=0), around.clip(min=0) * (levels > 0.5))
            offsets = experts.offsets[bucket, :, lead]
            offsets += trust * (torch.from_numpy(np.where(is_mean, found, around)) - offsets)
