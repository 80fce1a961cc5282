"""Drivers of each channel, chosen and solved over training windows: what `model/arx.py` holds.

    screening   columns at a lag, and their squares, that correlate most with what the linear forecast misses
    selection   orthogonal matching pursuit: the one that explains most of the rest, again and again
    solution    ridge maps of the first 0, 1, 2, 4, … 64 of them; held-out quarters choose the number

A channel where no number lowers the held-out error by 2 % has no drivers.

Axes: N window · H lead · M candidate, a column at a lag · F number that a map reads · G quarter.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from forecaster.config import Plan
from forecaster.model.arx import MOST_DRIVERS
from forecaster.model.experts import Experts
from forecaster.model.network import Network
from forecaster.panel.panel import Panel
from forecaster.runs.moments import moments
from forecaster.windows.index import Int64, WindowIndex, even_draw
from forecaster.windows.store import WindowStore

_ROWS = 4096  # windows of a channel
_CELLS = 1 << 23  # windows times candidates
_SCREENED = 128
_COUNTS = (1, 2, 4, 8, 16, 32, MOST_DRIVERS)
_PENALTIES = (1e-4, 1e-2, 1.0)
_WORTH = 0.98  # the held-out error with drivers, relative to without
_FARTHEST = 10.0  # spreads of the context: a target further off is not learned from
_LARGEST = 1e3  # the same, of its own values
_BATCH = 256
_TINY, _LEAST_OWN = 1e-9, 1e-6  # of a candidate's square: what nothing before it explains
Floats = NDArray[np.float64]


class DriverRows(NamedTuple):
    """Training windows of one channel, scaled units."""

    candidates: Floats
    """[N, M]"""
    own: Floats
    """[N, F] what maps read of the channel itself."""
    forecast: Floats
    """[N, H] of the linear expert, solved without the window's quarter, less the level."""
    missed: Floats
    """[N, H] target less that forecast; 0 where missing."""
    quarter: Floats
    """[N]"""

    def only(self, keep: NDArray[np.bool_], chosen: Int64 | None = None) -> DriverRows:
        """Returns some windows, and of the candidates the chosen ones or all."""
        candidates = self.candidates[keep] if chosen is None else self.candidates[np.ix_(keep, chosen)]
        return DriverRows(candidates, *(cells[keep] for cells in self[1:]))

    def read(self) -> Floats:
        """[N, F] what maps of all these candidates read."""
        return np.concatenate([self.own, self.candidates], axis=1)

    def sums(self, keep: NDArray[np.bool_], chosen: Int64) -> MapSums:
        """Returns what the maps of chosen candidates are solved from."""
        rows = self.only(keep, chosen)
        return MapSums.of(rows.read(), rows.forecast, rows.missed)


def solve_arx(
    network: Network, panel: Panel, plan: Plan, index: WindowIndex, store: WindowStore
) -> None:
    """Chooses drivers and solves their maps over training windows, in place, after the linear forecast."""
    experts = network.experts
    if experts is None or experts.arx is None:
        return
    arx, names = experts.arx, panel.schema.columns
    assert experts.linear is not None
    arx.used.zero_()
    arx.maps.zero_()
    lags = plan.model.driver_length - experts.reach
    columns = [names.index(name) for name in plan.model.drivers]
    most = min(_ROWS, _CELLS // (2 * lags * len(columns)))
    found, _, rows = index.locate(even_draw(len(index), most))
    series, cutoff = np.unique(np.stack([found, rows]), axis=1)
    mean, spread = moments(lambda: [panel.values[cutoff][:, columns]], len(columns)).scales()
    arx.loc.copy_(torch.from_numpy(mean))
    arx.spread.copy_(torch.from_numpy(spread))
    blocks = len(experts.linear.held_out[0].maps[0])
    held_out = arx.maps.new_zeros(blocks, *arx.maps.shape[1:])
    for channel in range(panel.n_channels):
        rows_of = _rows(network, experts, store, series, channel, cutoff)
        others = np.repeat(np.array(columns * 2) != channel, lags)  # its own values are read already
        solved = _solved(rows_of, others, blocks)
        if solved is None:
            continue
        chosen, maps = solved
        code, own, count = channel + 1, rows_of.own.shape[1], len(chosen)
        arx.column[code, :count] = torch.from_numpy(chosen // lags)
        arx.lag[code, :count] = torch.from_numpy(chosen % lags)
        arx.used[code] = True
        held_out[:, code, : own + count] = torch.from_numpy(maps[:, :-1])
        held_out[:, code, -1] = torch.from_numpy(maps[:, -1])
    arx.held_out = held_out
    arx.maps.copy_(held_out[[-2, -1]])


@torch.no_grad()
def _rows(
    network: Network, experts: Experts, store: WindowStore, series: Int64, channel: int, cutoff: Int64
) -> DriverRows:
    """Reads the windows of one channel; those whose target is far off are left out."""
    arx, linear = experts.arx, experts.linear
    assert arx is not None and linear is not None
    parts = []
    for start in range(0, len(series), _BATCH):
        at = slice(start, start + _BATCH)
        batch = store.batch(series[at], np.full(len(series[at]), channel), cutoff[at])
        inputs = batch.inputs
        scale, known = network.scale(inputs), network.embedding.known_numbers(inputs)
        (forecast,) = linear.forecast(inputs, scale, known, batch.time)[0].unbind(dim=1)
        own, level = arx.own(experts.filled(inputs, scale).values, inputs, scale, network.scaler, (0,))
        values = arx.standardised(inputs, scale, network.scaler)[:, experts.reach :]
        target = scale.apply(batch.target)[..., 0]
        candidates = values.flip(1).transpose(1, 2).flatten(1)
        missed, quarter = (target - forecast).nan_to_num(0.0), linear.held_out[0].block(batch.time)
        parts.append((candidates, own[:, 0], forecast - level[:, 0], missed, quarter))
    read = [torch.cat(part).double().numpy() for part in zip(*parts, strict=True)]
    near = (np.abs(read[3]) <= _FARTHEST).all(axis=1) & (np.abs(read[1]) < _LARGEST).all(axis=1)
    return DriverRows(*(part[near] for part in read))


class Products(NamedTuple):
    """Products over windows from which candidates are screened."""

    own: Floats
    """[F, F]"""
    mixed: Floats
    """[F, M]"""
    explained: Floats
    """[F, H] of what maps read of the channel itself and what is missed."""
    cross: Floats
    """[M, H] of candidates and what is missed."""
    square: Floats
    """[M]"""

    @classmethod
    def of(cls, rows: DriverRows) -> Products:
        """Returns the products of some windows."""
        own, x, missed = rows.own, rows.candidates, rows.missed
        return cls(own.T @ own, own.T @ x, own.T @ missed, x.T @ missed, np.einsum("nm,nm->m", x, x))


def _selected(
    rows: DriverRows, keep: NDArray[np.bool_], products: Products, allowed: NDArray[np.bool_]
) -> Int64:
    """Candidates in the order in which they are read; what maps read of the channel comes before all.

    `keep`: windows to choose on; `products` are theirs.
    """
    held = products.own + _TINY * np.eye(len(products.own)) * max(1.0, products.own.trace())
    through = np.linalg.solve(held, products.mixed)  # [F, M]
    cross = products.cross - through.T @ products.explained
    size = products.square - (products.mixed * through).sum(axis=0)
    allowed = allowed & (size > _LEAST_OWN * products.square) & (size > _TINY)
    score = (cross**2).sum(axis=1) / np.where(allowed, size, np.inf)
    near = np.argsort(-score, kind="stable")[: min(_SCREENED, int(allowed.sum()))]
    x = rows.candidates[np.ix_(keep, near)]
    gram = x.T @ x - products.mixed[:, near].T @ through[:, near]
    shared = cross[near]
    least = _LEAST_OWN * gram.diagonal()
    left, chosen = np.ones(len(near), bool), []
    for _ in range(min(MOST_DRIVERS, len(near))):
        size = gram.diagonal()
        left &= size > least
        if not shared[left].any():  # nothing is left, or nothing is missed
            break
        best = int(np.argmax((shared**2).sum(axis=1) / np.where(left, size, np.inf)))
        along, length = gram[:, best].copy(), size[best]
        shared = shared - np.outer(along, shared[best]) / length
        gram = gram - np.outer(along, along) / length
        left[best] = False
        chosen.append(int(near[best]))
    return np.array(chosen, np.int64)


def _solved(
    rows: DriverRows, allowed: NDArray[np.bool_], blocks: int
) -> tuple[Int64, NDArray[np.float32]] | None:
    """Drivers and their maps [block, F + 1, H], without each quarter and without none.

    None: drivers chosen without a quarter are worth nothing there.
    """
    inside = [rows.quarter == block for block in range(blocks - 1)]
    each = [Products.of(rows.only(part)) for part in inside]
    total = Products(*(np.sum(parts, axis=0) for parts in zip(*each, strict=True)))
    errors: dict[tuple[int, float], float] = {}
    for part, products in zip(inside, each, strict=True):
        if not part.any() or part.all():
            continue
        others = Products(*(a - b for a, b in zip(total, products, strict=True)))
        order = _selected(rows, ~part, others, allowed)
        sums, held_out = rows.sums(~part, order), rows.only(part, order)
        for count in _COUNTS if len(order) else ():
            for penalty in _PENALTIES:
                found = sums.solution(rows.own.shape[1] + count, penalty)
                missed = held_out.missed - held_out.read()[:, : len(found) - 1] @ found[:-1]
                error = np.abs(missed - held_out.forecast * found[-1]).sum()
                errors[count, penalty] = errors.get((count, penalty), 0.0) + float(error)
    if not errors or min(errors.values()) > _WORTH * np.abs(rows.missed).sum():
        return None
    count, penalty = min(errors, key=errors.__getitem__)
    every = np.ones(len(rows.quarter), bool)
    chosen = _selected(rows, every, total, allowed)[:count]
    sums_of = [rows.sums(keep, chosen) for keep in (*(~part for part in inside), every)]
    maps = [own.solution(len(own.gram), penalty) for own in sums_of]
    return chosen, np.stack(maps).astype(np.float32)


class MapSums(NamedTuple):
    """Products of what maps read and should forecast, over windows."""

    windows: Floats
    """[]"""
    gram: Floats
    """[F, F]"""
    shared: Floats
    """[F, H] of numbers read and the linear forecast."""
    cross: Floats
    """[F, H] of numbers read and what is missed."""
    square: Floats
    """[H] of the linear forecast."""
    along: Floats
    """[H] of the linear forecast and what is missed."""

    @classmethod
    def of(cls, read: Floats, forecast: Floats, missed: Floats) -> MapSums:
        """Returns the sums of some windows."""
        count, square = np.array(float(len(read))), (forecast**2).sum(axis=0)
        along = (forecast * missed).sum(axis=0)
        return cls(count, read.T @ read, read.T @ forecast, read.T @ missed, square, along)

    def solution(self, count: int, penalty: float) -> Floats:
        """[F + 1, H] the ridge map of the first numbers read and, last, of the linear forecast itself."""
        count, held = min(count, len(self.gram)), penalty * max(float(self.windows), 1.0)
        gram = self.gram[:count, :count] + held * np.eye(count)
        shared, cross = self.shared[:count], self.cross[:count]
        solved = np.linalg.solve(gram, np.concatenate([shared, cross], axis=1))
        one, other = np.split(solved, 2, axis=1)
        # The forecast of a lead is read by that lead alone: eliminated last.
        last = (self.along - (shared * other).sum(axis=0)) / (
            self.square + held - (shared * one).sum(axis=0)
        )
        return np.concatenate([other - one * last, last[None]])
