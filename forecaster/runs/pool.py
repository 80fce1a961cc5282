"""Experts of a table: which suit it, what they are solved on, and the quantiles of their residuals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import get_args

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from forecaster.config import Expert, ModelConfig, Plan
from forecaster.errors import ConfigError
from forecaster.forecast.artifact import Artifact, shape_of
from forecaster.model.ensemble import Ensemble
from forecaster.model.experts import (
    CUTOFFS,
    ETS_SEASON,
    GENERAL,
    PERIODS,
    SEASONAL,
    SEASONS,
    SECOND,
    SHARPNESS,
    Pool,
    truncated,
)
from forecaster.model.network import Network
from forecaster.panel.arrays import rows_before
from forecaster.panel.calendar import Calendar, cycle_steps
from forecaster.panel.categories import with_categories
from forecaster.panel.panel import Panel
from forecaster.runs.drivers import solve_arx
from forecaster.runs.levels import learn_levels
from forecaster.runs.moments import learn_scales
from forecaster.runs.ridge import solve_linear
from forecaster.runs.versions import versions
from forecaster.windows.datamodule import WindowSequence
from forecaster.windows.index import Int64, WindowIndex, even_draw
from forecaster.windows.split import Split, split_panel
from forecaster.windows.store import WindowStore, training_store

HISTORY = 2048
"""Steps that experts read at most."""
_MEMORY = 256  # steps before each cutoff, where a few seasons are not more
_SPACING = 64  # steps between earlier cutoffs at most
_ZEROS = 0.1  # of the training rows of an intermittent channel at least
_RESIDUALS = 1 << 22  # cells from which quantiles are taken
_ROWS = 4096
_FEWER = 4  # times fewer windows for each class of short histories
_POOLED = 200  # residuals of neighbouring leads from which the quantiles of a lead are taken
_TABLE = 20  # windows side by side at which errors on all of them count half
_PRIOR = 4  # windows side by side that a normal distribution counts as
_CHANGE = 2.0  # of the loss: the cost of a sharpness e times as large, for one window side by side
_SHARPENED, _LEAST_SCATTER = 1_500, 0.01  # windows that choose it; spreads of the context
_LAGS, _LEAST_LAGS, _CANDIDATES = 96, 8, 4096  # steps back of a driver; of all drivers together
_DRIVEN_ROWS, _MOST_CHANNELS = 200, 50  # fewer rows choose no drivers; more channels take too long
_BATCH = 256


def pool_settings(model: ModelConfig, panel: Panel, horizon: int) -> dict[str, object]:
    """Returns the experts that suit a table, and how far back they read.

    Args:
        model: the request.
        panel: the table.
        horizon: steps.
    """
    longest = panel.longest
    asked = model.experts
    if asked is None and (model.head != "quantile" or model.decoder != "direct"):
        asked = ()
    if asked == ():
        return {"experts": (), "history_length": max(1, min(longest, HISTORY))}
    season, second = _seasons(panel.calendar, longest) if panel.regular else (1, 0)
    spacing = max(1, min(horizon, _SPACING, -(-(longest - season) // CUTOFFS)))
    reach = CUTOFFS * spacing
    memory = max(2, min(max(_MEMORY, SEASONS * season), longest, HISTORY - reach))
    if memory < 2 * season:
        season, second = 1, 0
    if second > HISTORY - reach:
        second = 0
    back = min(PERIODS * second, longest, HISTORY - reach)
    suitable = {
        *GENERAL,
        *(SEASONAL if season > 1 else ()),
        *(SECOND if second else ()),
        "tsb",
        "linear",
    }
    if season > ETS_SEASON:
        suitable -= {"ets"}
    if memory < 3 * season:
        suitable -= {"growing_season"}
    if not _intermittent(panel, panel.indptr[1:]).any():
        suitable -= {"tsb"}
    drivers = _drivers(panel, longest)
    if drivers:
        suitable |= {"arx"}
    if unsuited := sorted(set(asked or ()) - suitable):
        raise ConfigError(
            f"model.experts {', '.join(unsuited)}: {panel.name} has no season or demand for it (season "
            f"{season}, longest series {longest:,} rows); take some of "
            f"{', '.join(name for name in get_args(Expert) if name in suitable)}"
        )
    names = tuple(name for name in get_args(Expert) if name in (asked or suitable))
    lags = 0
    if "arx" in names:
        lags = min(_LAGS, max(horizon, season, _MEMORY // 8), _CANDIDATES // len(drivers))
    return {
        "experts": names,
        "history_length": max(memory, back) + reach,
        "memory": memory,
        "cutoff_spacing": spacing,
        "seasons": (season, second),
        "drivers": drivers if lags else (),
        "driver_length": lags + reach if lags else 1,
        "driver_units": "training" if panel.n_series == 1 else "window",
    }


def solve_experts(network: Network, panel: Panel, plan: Plan, split: Split, store: WindowStore) -> None:
    """Solves what experts hold over training windows, in place: linear maps and residual quantiles.

    The linear forecast keeps the maps without a block of time, for training windows.
    """
    experts = network.experts
    if experts is None:
        return
    solve_linear(network, panel, plan, split.train)
    solve_arx(network, panel, plan, split.train, store)
    demand = _intermittent(panel, split.train_end)
    experts.intermittent[1:] = torch.from_numpy(demand)
    experts.intermittent[0] = bool(demand.all())
    beyond = learn_levels(network, panel, split.train_end)
    _learn_errors(network, panel, plan, split, store, beyond)


def fit_experts(panel: Panel, plan: Plan, split: Split, only: Expert | None = None) -> Artifact:
    """Returns an artifact of the experts without a network, or of one of them; the plan has some."""
    fingerprint = panel.until(split.end).fingerprint()
    panel, plan = with_categories(panel, split.train_end), smallest(plan)
    if plan.fit.refit:
        split = split_panel(panel, plan.with_fit(validation=None))
    network = bare_network(panel, plan, split)
    solve_experts(network, panel, plan, split, training_store(panel, plan))
    ensemble = Ensemble([network], [1.0], target=plan.target).experts_only(only)
    assert ensemble is not None
    return Artifact(
        schema=panel.schema,
        plan=plan,
        shape=network.shape,
        ensemble=ensemble.eval().requires_grad_(False),
        trained_until=split.end,
        data=panel.name,
        fingerprint=fingerprint,
        versions=versions(),
    )


def smallest(plan: Plan) -> Plan:
    """Returns the plan with as little attention as there can be."""
    return plan.with_model(width=4, heads=1, encoder_layers=1, decoder_layers=1)


def bare_network(panel: Panel, plan: Plan, split: Split) -> Network:
    """Returns a network of the smallest size with the scales of the training rows."""
    with torch.random.fork_rng(devices=[]):
        network = Network(smallest(plan).model, shape_of(panel, plan.horizon))
    learn_scales(network, panel, split.train_end)
    return network.eval()


def _seasons(calendar: Calendar, longest: int) -> tuple[int, int]:
    """The main season, and the shortest longer cycle that a series holds once: 0 where there is none."""
    season = calendar.season_length
    longer = (steps for name in calendar.cycles if (steps := cycle_steps(calendar, name)) > season)
    second = min(longer, default=0)
    return season, second if season > 1 and second <= longest // 2 else 0


def _drivers(panel: Panel, longest: int) -> tuple[str, ...]:
    """The columns that `arx` may read, the last ones of the table: covariates, and targets where some."""
    schema = panel.schema
    if not panel.regular or longest < _DRIVEN_ROWS or panel.n_channels > _MOST_CHANNELS:
        return ()
    names = schema.columns if panel.n_channels > 1 else schema.past_numeric + schema.known_numeric
    return names if len(names) <= _CANDIDATES // _LEAST_LAGS else ()


def _intermittent(panel: Panel, end: Int64) -> NDArray[np.bool_]:
    """[C] whether the observed targets before a row of each series are never negative, a tenth of them 0."""
    seen, zeros, negative = np.zeros((3, panel.n_channels))
    for rows in rows_before(panel.indptr, end, panel.values.shape[1]):
        values = panel.values[rows, : panel.n_channels]
        seen += (values == values).sum(axis=0)
        zeros += (values == 0).sum(axis=0)
        negative += (values < 0).sum(axis=0)
    return (zeros >= _ZEROS * np.maximum(seen, 1)) & (negative == 0)


@torch.no_grad()
def _learn_errors(
    network: Network,
    panel: Panel,
    plan: Plan,
    split: Split,
    store: WindowStore,
    beyond: NDArray[np.float64],
) -> None:
    """Puts errors on training windows, and quantiles of their residuals, into the experts.

    Residuals count from their own median: a few quarters' drift is more than a bias (taken for one, it
    raised the MSE of ETTh1 720 hours ahead from .83 to .98). Those of short histories are of the same
    windows without what is further back, of no history those of the last windows, around the level that
    the other series tell: `beyond` [S, C] from `learn_levels` is added to theirs.
    """
    experts, levels = network.experts, np.array(plan.model.quantile_levels)
    assert experts is not None
    together = 1 if split.train.channels == panel.n_channels else panel.n_channels
    # Windows that overlap repeat each other: as many as fit side by side count.
    apart = len(split.train) * together / plan.horizon
    rows = min(_ROWS, _RESIDUALS // (plan.horizon * (1 + len(experts.names)))) // together
    draw = np.random.default_rng(0)
    shortest = (-1, *experts.longest)
    experts.worse.zero_()
    experts.sharpness.copy_(torch.tensor(SHARPNESS).expand_as(experts.sharpness))
    experts.width.fill_(1.0)
    experts.offsets.copy_(experts.initial.expand_as(experts.offsets))
    for bucket in reversed(range(len(shortest))):
        whole = bucket == len(experts.longest)
        index, trust = split.train, apart / (apart + _PRIOR)
        if bucket == 0:
            if not bool((experts.cold_scale > 0).any()):
                continue
            kept = np.minimum(index.count, -(-experts.longest[-1] // index.stride))
            begin = index.first + (index.count - kept) * index.stride
            index, trust = WindowIndex(begin, kept, index.stride, index.channels), 1.0
        numbers = even_draw(len(index), max(1, rows if whole else rows // _FEWER))
        seen: list[tuple[Pool, Tensor]] = []
        channels = []
        for batch in WindowSequence(store, index, numbers, _BATCH):
            inputs = batch.inputs
            if not whole:
                low, high = shortest[bucket] + 1, experts.longest[bucket] + 1
                inputs = truncated(
                    inputs, torch.from_numpy(draw.integers(low, high, len(batch.cutoff)))
                )
            scale = network.scale(inputs)
            target = scale.apply(batch.target).transpose(1, 2).flatten(0, 1)[..., None]
            if bucket == 0:
                shift = beyond[batch.series.numpy()[:, None], inputs.channel.numpy() - 1]
                target = target + torch.from_numpy(shift.flatten()).float()[:, None, None]
            seen.append((network.pool(inputs, scale, batch.time), target))
            channels.append(inputs.channel.flatten())
        worse = apart / (apart + _TABLE) * _worse(seen, whole=whole)
        experts.worse[bucket] = worse
        if whole:
            experts.sharpness[bucket] = _sharpness(seen, worse, apart)
        seen = [(_weighed(own, worse, experts.sharpness[bucket]), actual) for own, actual in seen]
        if whole:
            experts.width.copy_(_widths(experts.width, seen, channels, apart))
            seen = [
                (own._replace(width=experts.width[code]), actual)
                for (own, actual), code in zip(seen, channels, strict=True)
            ]
        residuals = torch.cat([_residuals(*own) for own in seen]).numpy()
        for lead in range(plan.horizon):
            reach = min(plan.horizon, _POOLED // (2 * len(residuals)))
            near = residuals[:, max(0, lead - reach) : lead + reach + 1].reshape(-1, residuals.shape[2])
            near = near[np.isfinite(near).all(axis=1)]
            if len(near) > 1:
                found = np.quantile(near, levels, axis=0).T
                if bucket:
                    found = found - found[:, levels == 0.5]
                # A cold level is a median, but that of residuals any number between two series.
                found = np.where(levels < 0.5, found.clip(max=0), found.clip(min=0) * (levels > 0.5))
                around = torch.from_numpy(found)
                experts.offsets[bucket, :, lead] += trust * (around - experts.offsets[bucket, :, lead])


def _worse(seen: Sequence[tuple[Pool, Tensor]], *, whole: bool) -> Tensor:
    """[H, E] mean error of each expert over the least − 1; the same at all leads where histories are cut.

    In units of scatter; of the mean error of all experts of the row where histories are cut, for two
    values that are close by chance are no unit.
    """
    missed = []
    for pool, actual in seen:
        error = (pool.forecasts - actual).abs()
        if whole:
            missed.append(error / pool.scatter[:, None, None])
        else:
            error = error.masked_fill(~pool.formed[:, None], torch.nan).nanmean(dim=1, keepdim=True)
            missed.append(error / error.nanmean(dim=2, keepdim=True))
    mean = torch.cat(missed).nanmean(dim=0)
    least = mean.nan_to_num(torch.inf).amin(dim=1, keepdim=True)
    return (mean / least - 1).nan_to_num(0.0, posinf=0.0)


@torch.enable_grad()
def _sharpness(seen: Sequence[tuple[Pool, Tensor]], worse: Tensor, apart: float) -> Tensor:
    """[2] the sharpness of least Huber loss, near `SHARPNESS` where windows side by side are few."""
    every = -(-sum(len(actual) for _, actual in seen) // _SHARPENED)
    parts = [(Pool(*(field[::every] for field in own)), actual[::every]) for own, actual in seen]
    before, change = torch.tensor(SHARPNESS), torch.zeros(2, requires_grad=True)

    def loss() -> Tensor:
        sharpness = before * change.exp()
        return torch.stack([_huber(*own, worse, sharpness) for own in parts]).sum()

    def penalized() -> Tensor:
        change.grad = None
        found = loss() / start + _CHANGE / apart * change.square().sum()
        found.backward()
        return found

    start = loss().detach()
    if not start > 0:
        return before
    torch.optim.LBFGS([change], line_search_fn="strong_wolfe").step(penalized)
    return before * change.detach().exp()


def _huber(pool: Pool, actual: Tensor, worse: Tensor, sharpness: Tensor) -> Tensor:
    """The loss of the weighted mean in units of scatter, summed."""
    mean = _weighed(pool, worse, sharpness).mean()
    observed, unit = ~actual[..., 0].isnan(), pool.scatter.clamp(min=_LEAST_SCATTER)[:, None]
    error = torch.where(observed, (mean - actual[..., 0].nan_to_num()) / unit, 0.0)
    return F.huber_loss(error, torch.zeros_like(error), reduction="sum")


def _weighed(pool: Pool, worse: Tensor, sharpness: Tensor) -> Pool:
    """Returns a pool weighed with such errors on training windows [H, E], and such sharpness [2]."""
    rows = len(pool.error)
    return pool._replace(of_table=worse.expand(rows, -1, -1), sharpness=sharpness.expand(rows, -1))


def _widths(
    before: Tensor, seen: Sequence[tuple[Pool, Tensor]], channels: list[Tensor], apart: float
) -> Tensor:
    """[C + 1] the mean distance from the weighted mean of each channel, relative to that of all.

    `apart`: windows of all channels side by side; a channel that has few is as wide as the others.
    """
    count = len(before) - 1
    if count == 1:
        return torch.ones_like(before)
    missed = torch.cat([_residuals(*own)[..., 0] for own in seen]).abs().nanmean(dim=1)
    code, there = torch.cat(channels), ~missed.isnan()
    each = torch.stack([missed[(code == n) & there].mean() for n in range(1, count + 1)])
    trust = apart / (apart + count * _PRIOR)
    relative = (each / missed[there].mean()).nan_to_num(1.0)
    return torch.cat([torch.ones(1), 1 + trust * (relative - 1)])


def _residuals(pool: Pool, target: Tensor) -> Tensor:
    """[R, H, 1 + E] of the weighted experts and of each alone, in units of their bands."""
    every = torch.cat([pool.mean()[..., None], pool.forecasts], dim=-1)
    units = [pool.unit(error) for error in (pool.mean_error(), *pool.error.T)]
    return (target - every) / torch.stack(units, dim=-1)[:, None]
