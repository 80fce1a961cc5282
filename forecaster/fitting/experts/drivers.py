"""Drivers of each channel, chosen and solved over training windows: what `model/arx.py` holds.

    screening   columns at a lag, and their squares, that correlate most with what the linear forecast misses
    selection   orthogonal least squares: the one that explains most of the rest, again and again
    solution    ridge maps of the first 0, 1, 2, 4, … 64 of them; held-out quarters choose the number

A channel where no number lowers the held-out error by 2 % has no drivers.

Candidates are a few thousand, one column at one lag or its square, and most are noise. So the choice itself is
held out: chosen on all windows, noise seemed better in held-out quarters by 2 % of 500 rows; chosen again
without each quarter it does not.

Axes: N window · H lead · M candidate, a column at a lag · F feature of a map · K driver column.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from forecaster.config import Plan
from forecaster.fitting.moments import moments
from forecaster.model.arx import MOST_DRIVERS
from forecaster.model.experts import Experts
from forecaster.model.network import Network
from forecaster.panel.panel import Panel
from forecaster.windows.index import Int64, WindowIndex, even_draw
from forecaster.windows.store import WindowStore

_ROWS = 4096  # windows of a channel, at most
_CELLS = 1 << 23  # windows times candidates, at most: 64 MB in float64
_SCREENED = 128  # candidates that are left to the selection, twice as many as there can be drivers
_COUNTS = (1, 2, 4, 8, 16, 32, MOST_DRIVERS)  # of drivers, tried
_PENALTIES = (1e-4, 1e-2, 1.0)  # per window, tried: features have spreads near 1
# The held-out error with drivers relative to without, at most: noise lowered it by 2 % of 500 rows.
_WORTH = 0.98
_FARTHEST = 10.0  # spreads of the context: a window whose forecast misses by more is not learned from
_LARGEST = 1e3  # the same, of the values that maps read: a context that hardly varies has no spread
_BATCH = 256
_LEAST_UNEXPLAINED = 1e-6  # of a candidate's square: less is rounding
_TINY = 1e-9
Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]


class DriverRows(NamedTuple):
    """Training windows of one channel, scaled units."""

    candidates: Floats
    """[N, M]"""
    autoregressive: Floats
    """[N, F] what maps read of the channel itself."""
    forecast: Floats
    """[N, H] of the linear expert, solved without the window's quarter, less the level."""
    residual: Floats
    """[N, H] target less that forecast; 0 where missing."""
    quarter: Floats
    """[N]"""

    def only(self, windows: Mask, chosen: Int64 | None = None) -> DriverRows:
        """Returns some windows, and of the candidates the chosen ones or all."""
        index = windows if chosen is None else np.ix_(windows, chosen)
        candidates = self.candidates[index]
        return DriverRows(candidates, *(cells[windows] for cells in self[1:]))

    def features(self) -> Floats:
        """[N, F] what maps of all these candidates read."""
        return np.concatenate([self.autoregressive, self.candidates], axis=1)

    def sums(self, windows: Mask, chosen: Int64) -> MapSums:
        """Returns what the maps of chosen candidates are solved from."""
        rows = self.only(windows, chosen)
        return MapSums.of(rows.features(), rows.forecast, rows.residual)


def solve_arx(
    network: Network, panel: Panel, plan: Plan, index: WindowIndex, store: WindowStore
) -> None:
    """Chooses drivers and solves their maps over training windows, in place, after the linear forecast."""
    experts = network.experts
    if experts is None or experts.arx is None:
        return
    arx = experts.arx
    assert experts.linear is not None
    arx.used.zero_()
    arx.maps.zero_()
    lags = plan.model.pool.driver_length - experts.cutoff_span  # the rest is for earlier cutoffs
    columns = [panel.schema.columns.index(name) for name in plan.model.pool.drivers]
    candidates = 2 * lags * len(columns)  # M: each column at each lag, and its square
    series, cutoff = _drawn(index, min(_ROWS, _CELLS // candidates))
    values = panel.values[cutoff][:, columns]
    mean, spread = moments(lambda: [values], len(columns)).scales()
    arx.loc.copy_(torch.from_numpy(mean))
    arx.spread.copy_(torch.from_numpy(spread))
    blocks = len(experts.linear.held_out[0].maps[0])
    held_out = arx.maps.new_zeros(blocks, *arx.maps.shape[1:])  # [block, C + 1, F, H]
    for channel in range(panel.n_channels):
        rows = _rows(network, experts, store, series, channel, cutoff)
        # Columns, then their squares, at all lags; the channel's own values are read already.
        allowed = np.repeat(np.array(columns * 2) != channel, lags)
        solved = _solved(rows, allowed, blocks)
        if solved is None:
            continue
        drivers, maps = solved
        code, count = channel + 1, len(drivers)
        features = rows.autoregressive.shape[1] + count
        # Candidates are numbered column · lags + lag.
        arx.column[code, :count] = torch.from_numpy(drivers // lags)
        arx.lag[code, :count] = torch.from_numpy(drivers % lags)
        arx.used[code] = True
        held_out[:, code, :features] = torch.from_numpy(maps[:, :-1])
        held_out[:, code, -1] = torch.from_numpy(maps[:, -1])
    arx.held_out = held_out
    arx.maps.copy_(held_out[[-2, -1]])  # [EARLY or ALL, …]: without the last quarter, and on all rows


def _drawn(index: WindowIndex, most: int) -> tuple[Int64, Int64]:
    """Series and cutoff of an even draw of windows, each once though several channels have it."""
    series, _, cutoff = index.locate(even_draw(len(index), most))
    series, cutoff = np.unique(np.stack([series, cutoff]), axis=1)
    return series, cutoff


@torch.no_grad()
def _rows(
    network: Network, experts: Experts, store: WindowStore, series: Int64, channel: int, cutoff: Int64
) -> DriverRows:
    """Reads the windows of one channel; those whose target is far off are left out."""
    arx, linear = experts.arx, experts.linear
    assert arx is not None and linear is not None
    parts = []
    for start in range(0, len(series), _BATCH):
        part = slice(start, start + _BATCH)
        channels = np.full(len(series[part]), channel)
        batch = store.batch(series[part], channels, cutoff[part])
        inputs = batch.inputs
        scale = network.scale(inputs)
        forecast = linear.forecast(inputs, scale, batch.time)[0][:, 0]  # [R, 1, H] → [R, H]
        filled = experts.history(inputs, scale).filled
        autoregressive, level = arx.autoregressive(filled, inputs, scale, network.scaler, (0,))
        values = arx.standardised(inputs, scale, network.scaler)[:, experts.cutoff_span :]
        # Newest first, so that lag 0 is the cutoff: [R, D, 2K] → [R, 2K, D] → [R, M].
        candidates = values.flip(1).transpose(1, 2).flatten(1)
        target = scale.apply(batch.target)[..., 0]
        parts.append(
            (
                candidates,
                autoregressive[:, 0],
                forecast - level[:, 0],
                (target - forecast).nan_to_num(0.0),
                linear.held_out[0].block(batch.time),
            )
        )
    columns = map(torch.cat, zip(*parts, strict=True))
    rows = DriverRows(*(column.double().numpy() for column in columns))
    # One far-off window would decide a least-squares map.
    furthest = np.abs(rows.residual).max(axis=1, initial=0.0)  # [N]
    largest = np.abs(rows.autoregressive).max(axis=1, initial=0.0)
    return rows.only((furthest <= _FARTHEST) & (largest < _LARGEST))


class Products(NamedTuple):
    """Products over windows from which candidates are screened."""

    gram: Floats
    """[F, F] of what maps read of the channel itself."""
    mixed: Floats
    """[F, M] of that and candidates."""
    explained: Floats
    """[F, H] of that and the residuals."""
    cross: Floats
    """[M, H] of candidates and residuals."""
    square: Floats
    """[M] of candidates."""

    @classmethod
    def of(cls, rows: DriverRows) -> Products:
        """Returns the products of some windows."""
        z, x, residual = rows.autoregressive, rows.candidates, rows.residual
        return cls(
            gram=z.T @ z,
            mixed=z.T @ x,
            explained=z.T @ residual,
            cross=x.T @ residual,
            square=np.einsum("nm,nm->m", x, x),
        )


def _selected(rows: DriverRows, windows: Mask, products: Products, allowed: Mask) -> Int64:
    """Candidates in the order in which they are read; what maps read of the channel comes before all.

    Orthogonal least squares (Chen, Billings and Luo 1989), the greedy forward selection, over the residuals r
    of all leads h: the next driver is the candidate whose part orthogonal to all before it, x⊥, explains most,
    argmax Σ_h (x⊥ᵀr_h)² / x⊥ᵀx⊥. Products are projected, not windows, which took 3 s for 1,984 candidates
    and takes .15 s; with z what maps read of the channel itself (Frisch, Waugh and Lovell),

        x⊥ᵀr = xᵀr − xᵀz·(zᵀz)⁻¹·zᵀr        x⊥ᵀx⊥ = xᵀx − xᵀz·(zᵀz)⁻¹·zᵀx

    and after each choice b, G ← G − g_b·g_bᵀ / G_bb, a step of Gram–Schmidt.

    `windows`: to choose on; `products` are theirs.
    """
    jitter = _TINY * np.eye(len(products.gram)) * max(1.0, products.gram.trace())
    projection = np.linalg.solve(products.gram + jitter, products.mixed)  # [F, M]
    cross = products.cross - projection.T @ products.explained  # [M, H]
    square = products.square - (products.mixed * projection).sum(axis=0)  # [M]
    allowed = allowed & (square > _LEAST_UNEXPLAINED * products.square) & (square > _TINY)
    score = (cross**2).sum(axis=1) / np.where(allowed, square, np.inf)  # [M], 0 where not allowed
    count = min(_SCREENED, int(allowed.sum()))
    screened = np.argsort(-score, kind="stable")[:count]
    # From here on M is the screened candidates.
    x = rows.candidates[np.ix_(windows, screened)]
    gram = x.T @ x - products.mixed[:, screened].T @ projection[:, screened]  # [M, M] of x⊥
    cross = cross[screened]  # [M, H] of x⊥ and r
    least = _LEAST_UNEXPLAINED * gram.diagonal()
    remaining = np.ones(len(screened), bool)
    chosen: list[int] = []
    for _ in range(min(MOST_DRIVERS, len(screened))):
        square = gram.diagonal()  # of what the chosen ones do not explain
        remaining &= square > least
        if not cross[remaining].any():  # nothing is left, or nothing is missed
            break
        score = (cross**2).sum(axis=1) / np.where(remaining, square, np.inf)
        best = int(np.argmax(score))
        column, length = gram[:, best].copy(), square[best]
        # The part along the new driver b is taken off all others and off the residuals.
        cross = cross - np.outer(column, cross[best]) / length
        gram = gram - np.outer(column, column) / length
        remaining[best] = False
        chosen.append(int(screened[best]))
    return np.array(chosen, np.int64)


def _solved(rows: DriverRows, allowed: Mask, blocks: int) -> tuple[Int64, NDArray[np.float32]] | None:
    """Drivers and their maps [block, F + 1, H], without each quarter and without none.

    None: drivers chosen without a quarter are worth nothing there.
    """
    quarters: list[Mask] = [rows.quarter == block for block in range(blocks - 1)]
    products = [Products.of(rows.only(quarter)) for quarter in quarters]
    total = Products(*(np.sum(parts, axis=0) for parts in zip(*products, strict=True)))
    errors: dict[tuple[int, float], float] = {}
    for quarter, part in zip(quarters, products, strict=True):
        if not quarter.any() or quarter.all():
            continue
        rest = Products(*(sums - of_quarter for sums, of_quarter in zip(total, part, strict=True)))
        for setting, error in _held_out_errors(rows, quarter, rest, allowed).items():
            errors[setting] = errors.get(setting, 0.0) + error
    if not errors or min(errors.values()) > _WORTH * np.abs(rows.residual).sum():
        return None
    count, penalty = min(errors, key=errors.__getitem__)
    all_rows = np.ones(len(rows.quarter), bool)
    drivers = _selected(rows, all_rows, total, allowed)[:count]
    maps = []
    for windows in (*(~quarter for quarter in quarters), all_rows):
        sums = rows.sums(windows, drivers)
        maps.append(sums.solution(len(sums.gram), penalty))
    return drivers, np.stack(maps).astype(np.float32)


def _held_out_errors(
    rows: DriverRows, quarter: Mask, rest: Products, allowed: Mask
) -> dict[tuple[int, float], float]:
    """Absolute errors in a quarter by number of drivers and penalty, all chosen and solved without it.

    `rest`: products of the other quarters.
    """
    order = _selected(rows, ~quarter, rest, allowed)
    sums, held_out = rows.sums(~quarter, order), rows.only(quarter, order)
    features = held_out.features()
    errors = {}
    # Drivers are in the order of their choice: fewer are a beginning of them, of the same sums.
    for count in _COUNTS if len(order) else ():
        for penalty in _PENALTIES:
            maps = sums.solution(rows.autoregressive.shape[1] + count, penalty)
            residual = held_out.residual - features[:, : len(maps) - 1] @ maps[:-1]
            error = np.abs(residual - held_out.forecast * maps[-1]).sum()
            errors[count, penalty] = float(error)
    return errors


class MapSums(NamedTuple):
    """Products of what maps read and should forecast, over windows."""

    windows: Floats
    """[] their number."""
    gram: Floats
    """[F, F]"""
    shared: Floats
    """[F, H] of features and the linear forecast."""
    cross: Floats
    """[F, H] of features and residuals."""
    square: Floats
    """[H] of the linear forecast."""
    forecast_cross: Floats
    """[H] of the linear forecast and residuals."""

    @classmethod
    def of(cls, features: Floats, forecast: Floats, residual: Floats) -> MapSums:
        """Returns the sums of some windows."""
        return cls(
            windows=np.array(float(len(features))),
            gram=features.T @ features,
            shared=features.T @ forecast,
            cross=features.T @ residual,
            square=(forecast**2).sum(axis=0),
            forecast_cross=(forecast * residual).sum(axis=0),
        )

    def solution(self, count: int, penalty: float) -> Floats:
        """[F + 1, H] the ridge map of the first features and, last, of the linear forecast itself.

        For a lead with forecasts f and residuals r, A = XᵀX + λ·N·I and B = Xᵀf, block elimination of

            [A   B        ] [M]   [Xᵀr]          v = (fᵀr − Bᵀ·A⁻¹·Xᵀr) / (fᵀf + λ·N − Bᵀ·A⁻¹·B)
            [Bᵀ  fᵀf + λ·N] [v] = [fᵀr]          M = A⁻¹·Xᵀr − A⁻¹·B·v

        solves A, which all leads share, once: f differs by lead.
        """
        count = min(count, len(self.gram))
        ridge = penalty * max(float(self.windows), 1.0)
        gram = self.gram[:count, :count] + ridge * np.eye(count)
        shared, cross = self.shared[:count], self.cross[:count]
        solved = np.linalg.solve(gram, np.concatenate([shared, cross], axis=1))
        of_forecast, of_residual = np.split(solved, 2, axis=1)  # [F, H] each: A⁻¹·B and A⁻¹·Xᵀr
        complement = self.square + ridge - (shared * of_forecast).sum(axis=0)
        factor = (self.forecast_cross - (shared * of_residual).sum(axis=0)) / complement
        return np.concatenate([of_residual - of_forecast * factor, factor[None]])
