"""Ridge maps in closed form: the linear forecast solved over training windows, which are streamed.

    (Σ w·x·xᵀ + α·N·I) · map = Σ w·x·y

x holds the features of a window (`model/experts.py`), y its targets less the level taken away, both in
scaled units; w is below 1 where a target lies more than ten spreads from its context; N is Σ w over the
longest training span, so that shorter spans are shrunk as much. The sums are kept per quarter of the
training time, so that every residual is that of a map solved without its quarter: residuals of windows
in the solution gave 80 % bands that held 70 %.

Axes: B batch · R row, a channel of a window · E number that all maps read · P place in the shortest
cycle · F feature · H lead · Q quantile level.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from forecaster.config import ModelPlan, Plan
from forecaster.model.linear import HeldOut, LinearForecast, mapped, relative
from forecaster.model.network import Network
from forecaster.model.scaling import Scale
from forecaster.panel.panel import Panel
from forecaster.windows.batch import Batch
from forecaster.windows.index import Int64, WindowIndex, even_draw
from forecaster.windows.store import training_store

MOST_ROWS = 60_000
"""Rows that maps are solved over; more windows are an even draw."""
FOLDS = 4
"""Quarters of the training time; as a key of maps: all of it."""
_BLOCK_CELLS = 1 << 22
_FAR = 10.0  # spreads
_CG_STEPS, _CG_TOLERANCE = 12, 1e-4
_TINY = 1e-12

Maps = Mapping[int, Sequence[Tensor]]
"""By quarter that they were solved without (`FOLDS` = none), one map [P, F, H] per lookback."""


def solve_linear(network: Network, panel: Panel, plan: Plan, index: WindowIndex) -> None:
    """Solves the linear maps of a network over training windows, in place; its scales are learned."""
    if network.experts is None or network.experts.linear is None:
        return
    linear = network.experts.linear
    alphas = lead_alphas(plan.model, linear.horizon)
    # The longest span first: it settles how much the others are shrunk.
    lengths = sorted(plan.model.linear_spans or (None,), key=lambda n: -(n or 1 << 62))
    held_out: list[HeldOut] = []
    whole: list[Tensor] | None = None
    with torch.no_grad():
        for length in lengths:
            windows = RidgeWindows(network, panel, plan, index, MOST_ROWS, length)
            sums = without_quarters(summed(windows), range(FOLDS), whole)
            whole = whole or [one.whole for one in sums[FOLDS]]
            solved = {
                fold: [solution(linear, one, alphas) for one in own] for fold, own in sums.items()
            }
            solved[FOLDS] = _refined(windows, sums[FOLDS], solved[FOLDS], alphas)
            maps = []
            for n, lookback in enumerate(linear.lookbacks):
                each = ((solved[fold][n], sums[fold][n]) for fold in range(FOLDS + 1))
                own = [with_periodic(*one, alphas, lookback, linear.period) for one in each]
                maps.append(torch.stack(own))
            held_out.append(HeldOut(windows.begin, windows.quarter, maps))
        linear.held_out, linear.step = held_out, panel.calendar.step
        for number, kept in enumerate(linear.maps):
            # Maps of several spans read the same features: their mean is one map.
            every = torch.stack([own.maps[number] for own in held_out]).mean(dim=0)
            kept.copy_(every[[FOLDS - 1, FOLDS]])


def lead_alphas(model: ModelPlan, horizon: int) -> Tensor:
    """[H] the penalty of each lead."""
    alphas = torch.tensor(model.ridge_alpha, dtype=torch.float64)
    if alphas.ndim == 0:
        return alphas.repeat(horizon)
    return alphas.repeat_interleave(model.decoder_patch)[:horizon]


@dataclass(frozen=True)
class RowBlock:
    """A block of windows as maps read them."""

    batch: Batch
    scale: Scale
    """Units of the maps."""
    others: Tensor
    """[B, E] what all maps read beside the targets."""
    place: Tensor
    """[R]"""
    time: Tensor
    """[R] of the cutoff."""
    target: Tensor
    """[R, H] units of the maps; NaN = missing."""
    weight: Tensor
    """[R]"""


class RidgeWindows:
    """The windows of a training span, block by block; memory does not grow with their number."""

    def __init__(
        self,
        network: Network,
        panel: Panel,
        plan: Plan,
        index: WindowIndex,
        most_rows: int,
        span: int | None,
    ):
        assert network.experts is not None and network.experts.linear is not None
        index = index if span is None else _recent(panel, index, span)
        self.network, self.linear = network, network.experts.linear
        self._store, self._time, self._index = training_store(panel, plan), panel.time, index
        together = 1 if index.channels == panel.n_channels else panel.n_channels
        self._numbers = even_draw(len(index), most_rows // together)
        widest = max(weights.shape[2] for weights in self.linear.maps)
        read = (widest + self.linear.horizon) * together
        # Covariates of the past are no feature, but cut out with the rest.
        columns = together + panel.values.shape[1] - panel.n_channels
        cut = (self._store.context_length + self._store.horizon) * columns
        self._size = max(1, _BLOCK_CELLS // max(read, cut))
        own = index.count > 0
        last = index.first[own] + (index.count[own] - 1) * index.stride
        self.begin = int(panel.time[index.first[own]].min()) if own.any() else 0
        """Time of the first cutoff."""
        self._until = int(panel.time[last].max()) if own.any() else -1
        self.quarter = max(1, -(-(self._until - self.begin + 1) // FOLDS))
        """Of the training time, in its units."""
        self.steps = round((self._until - self.begin) / panel.calendar.step) + 1
        """Of the time axis, from the first cutoff to the last."""

    def all(self) -> Iterator[RowBlock]:
        return self.read(self._index, self._numbers)

    def some(self, most: int) -> Iterator[RowBlock]:
        """Yields the rows of an even draw of at most `most` windows."""
        return self.read(self._index, self._numbers[even_draw(len(self._numbers), most)])

    def read(self, index: WindowIndex, numbers: Int64) -> Iterator[RowBlock]:
        """Yields the rows of windows of any index of the panel."""
        network, linear = self.network, self.linear
        for start in range(0, len(numbers), self._size):
            series, channel, cutoff = index.locate(numbers[start : start + self._size])
            batch = self._store.batch(series, channel if index.channels > 1 else None, cutoff)
            inputs = batch.inputs
            scale = network.scale(inputs)
            units = linear.units(inputs, scale)
            target = units.apply(batch.target).transpose(1, 2).flatten(0, 1)
            target = torch.where(target.isfinite(), target, torch.nan)
            # A target is far off by what its window knows, however little a season differs.
            far = target.abs().nan_to_num(0.0).amax(dim=1).double()
            if linear.apart is not None:
                far = far * relative(units, scale)
            weight = (_FAR / far.clamp(min=_FAR)).square()
            others = linear.others(inputs, network.embedding.known_numbers(inputs))[:, 0]
            time = torch.from_numpy(self._time[cutoff]).repeat_interleave(inputs.channel.shape[1])
            place = linear.place(inputs)[:, 0]
            yield RowBlock(batch, units, others, place, time, target, weight)

    def reading(self, rows: RowBlock) -> list[tuple[Tensor, Tensor]]:
        """Returns, per map, [R, F] what it reads and [R] the level taken away."""
        inputs, count = rows.batch.inputs, len(self.linear.maps)
        return [self.linear.features(inputs, rows.scale, rows.others, n) for n in range(count)]

    def equations(self, rows: RowBlock) -> Iterator[tuple[Tensor, Tensor]]:
        """Yields, per map, [R, F] what it reads and [R, H] what it should forecast; float64.

        A row beyond float32 reads nothing and should forecast nothing.
        """
        for features, level in self.reading(rows):
            target, finite = rows.target - level[:, None], features.sum(dim=1).isfinite()[:, None]
            if not finite.all():
                target = torch.where(finite, target, torch.nan)
                features = torch.where(finite, features, 0.0)
            yield features.double(), target.double()

    def fold(self, rows: RowBlock) -> Tensor:
        """Returns [R] the quarter of this span that a row falls into; `FOLDS` = none."""
        fold = (rows.time - self.begin).div(self.quarter, rounding_mode="floor")
        return torch.where((rows.time < self.begin) | (rows.time > self._until), FOLDS, fold)


def _recent(panel: Panel, index: WindowIndex, span: int) -> WindowIndex:
    """The windows whose cutoff is among the last `span` steps of training cutoffs."""
    own = index.count > 0
    if not own.any():
        return index
    last = index.first + (index.count - 1) * index.stride
    begin = panel.rows_until(int(panel.time[last[own]].max() - span * panel.calendar.step))
    late = np.maximum(0, -(-(begin - index.first) // index.stride))
    return index.between(index.first + late * index.stride, last)


# Normal equations


class Equations(NamedTuple):
    """Normal equations of a map; float64."""

    gram: Tensor
    """[P, F, F]"""
    cross: Tensor
    """[P, F, H]"""
    weight: Tensor
    """[P] Σ w."""
    seen: Tensor
    """[P, H] Σ w of rows whose target is observed."""
    whole: Tensor
    """[P] Σ w of the longest span and all quarters: what penalties are multiplied by."""

    @classmethod
    def empty(cls, maps: Tensor) -> Equations:
        """Returns the equations of no rows for maps [P, F, H]."""
        places, count, horizon = maps.shape
        shapes = [(count, count), (count, horizon), (), (horizon,), ()]
        return cls(*(torch.zeros(places, *shape, dtype=torch.float64) for shape in shapes))

    def plus(self, other: Equations) -> Equations:
        return Equations(*map(torch.add, self, other))

    def pooled(self) -> Equations:
        """Returns the same for one map for all places."""
        return Equations(*(part.sum(dim=0, keepdim=True) for part in self))

    def filled(self, right: Tensor) -> Tensor:
        """[P, F, H] right-hand sides as if targets were missing at random."""
        return right * (self.weight[:, None] / self.seen.clamp(min=_TINY))[:, None]

    def penalty(self) -> Tensor:
        """[P, H] N of each lead: less where targets are missing, as the rest of its equation is."""
        return self.whole[:, None] * (self.seen / self.weight.clamp(min=_TINY)[:, None])


def summed(windows: RidgeWindows) -> list[list[Equations]]:
    """[map][quarter] normal equations, in one pass over the windows."""
    found = [[Equations.empty(maps[0]) for _ in range(FOLDS)] for maps in windows.linear.maps]
    for rows in windows.all():
        groups = list(_groups(rows, windows.fold(rows), windows.linear.places))
        for folds, (features, target) in zip(found, windows.equations(rows), strict=True):
            for fold, place, own in groups:
                sums, weight = folds[fold], rows.weight[own, None]
                x, y, root = features[own], target[own], weight.sqrt()
                x = x * root if bool((weight < 1).any()) else x
                there = ~y.isnan()
                # Numpy forms half of a product of a matrix with itself; torch all of it.
                sums.gram[place] += torch.from_numpy(x.numpy().T @ x.numpy())
                sums.cross[place].addmm_(x.T, torch.where(there, y, 0.0) * root)
                sums.seen[place] += (there * weight).sum(dim=0)
                for total in (sums.weight, sums.whole):
                    total[place] += weight.sum()
    return found


def without_quarters(
    parts: Sequence[Sequence[Equations]], folds: Iterable[int], whole: Sequence[Tensor] | None
) -> dict[int, list[Equations]]:
    """The equations [map] without each of some quarters, and those of all (`FOLDS`).

    `whole`: of the longest span; None = these are its own.
    """
    total = [reduce(Equations.plus, own) for own in parts]
    if whole is not None:
        total = [sums._replace(whole=own) for sums, own in zip(total, whole, strict=True)]
    found = {FOLDS: total}
    for fold in folds:
        others = [reduce(Equations.plus, [*own[:fold], *own[fold + 1 :]]) for own in parts]
        found[fold] = [s._replace(whole=every.whole) for s, every in zip(others, total, strict=True)]
    return found


def solution(
    linear: LinearForecast, sums: Equations, alphas: Tensor, right: Tensor | None = None
) -> Tensor:
    """[P, F, H] maps, as if targets were missing at random; `right` replaces the right-hand sides."""
    right = sums.filled(sums.cross if right is None else right)
    found, diagonal = torch.zeros_like(right), torch.eye(right.shape[1], dtype=torch.float64)
    shared = right.shape[1] - len(linear.allowed)
    for place, gram in enumerate(sums.gram):
        # Rows sum to nothing once their mean is gone: without any penalty there is no inverse.
        least = 1e-9 * gram.diagonal().mean() + _TINY
        for alpha in alphas.unique():
            factor = torch.linalg.cholesky(gram + (alpha * sums.whole[place] + least) * diagonal)
            for leads, ahead in linear.lead_blocks():
                own = torch.arange(leads.start, leads.stop)
                own = own[alphas[own] == alpha]
                size = shared + ahead  # the factor of the first features is the first part of it
                part = torch.cholesky_solve(right[place, :size, own], factor[:size, :size])
                found[place, :size, own] = part
    return found


def _refined(
    windows: RidgeWindows, sums: Sequence[Equations], maps: Sequence[Tensor], alphas: Tensor
) -> list[Tensor]:
    """Maps that are right for the observed targets: preconditioned conjugate gradients.

    Each lead misses other windows, and a matrix of products for each lead would be too much.
    """
    found = list(maps)
    if all(bool((one.seen >= one.weight[:, None] * (1 - 1e-9)).all()) for one in sums):
        return found
    linear = windows.linear
    images = _applied(windows, sums, found, alphas)
    rests = [_visible(linear, one.cross) - image for one, image in zip(sums, images, strict=True)]
    toward, energy = [torch.zeros_like(rest) for rest in rests], [torch.ones(()) for _ in rests]
    for turn in range(_CG_STEPS):
        if all(r.norm() <= _CG_TOLERANCE * s.cross.norm() for r, s in zip(rests, sums, strict=True)):
            break
        near = [solution(linear, s, alphas, right=r) for s, r in zip(sums, rests, strict=True)]
        fresh = [_dot(rest, step) for rest, step in zip(rests, near, strict=True)]
        for n, step in enumerate(near):
            toward[n] = step + (fresh[n] / energy[n].clamp(min=_TINY) * toward[n] if turn else 0.0)
        images, energy = _applied(windows, sums, toward, alphas), fresh
        for n, image in enumerate(images):
            length = energy[n] / _dot(toward[n], image).clamp(min=_TINY)
            found[n] = found[n] + length * toward[n]
            rests[n] = rests[n] - length * image
    return found


def _applied(
    windows: RidgeWindows, sums: Sequence[Equations], toward: Sequence[Tensor], alphas: Tensor
) -> list[Tensor]:
    """The left-hand sides over observed targets, times a direction, map by map."""
    found = [torch.zeros_like(one) for one in toward]
    for rows in windows.all():
        groups = list(_groups(rows, torch.zeros_like(rows.place), windows.linear.places))
        for out, one, (features, target) in zip(found, toward, windows.equations(rows), strict=True):
            for _, place, own in groups:
                x, missing = features[own], target[own].isnan()
                image = (x @ one[place]) * rows.weight[own, None]
                out[place].addmm_(x.T, image.masked_fill(missing, 0.0))
    return [
        _visible(windows.linear, out + one * (alphas * own.penalty())[:, None])
        for out, one, own in zip(found, toward, sums, strict=True)
    ]


def _visible(linear: LinearForecast, numbers: Tensor) -> Tensor:
    """[P, F, H] with 0 where a lead may not read a feature."""
    ahead = len(linear.allowed)
    near, far = numbers.split([numbers.shape[1] - ahead, ahead], dim=1)
    return torch.cat([near, far * linear.allowed], dim=1)


def _groups(rows: RowBlock, fold: Tensor, places: int) -> Iterator[tuple[int, int, Tensor | slice]]:
    """Yields fold, place and the rows of both, where there are any."""
    group = fold * places + rows.place
    numbers = group.unique().tolist()
    for number in numbers:
        own = slice(None) if len(numbers) == 1 else (group == number).nonzero()[:, 0]
        yield number // places, number % places, own  # a slice copies nothing


def _dot(one: Tensor, other: Tensor) -> Tensor:
    """[P, 1, H] of [P, F, H]."""
    return (one * other).sum(dim=1, keepdim=True)


def with_periodic(
    free: Tensor, sums: Equations, alphas: Tensor, lookback: int, period: int | None
) -> Tensor:
    """The map, float32, averaged with one that reads whole cycles back, where there is one.

    A lead of the latter reads the values at its own place in the cycles before it, and all leads of a
    cycle share their weights: a few dozen in the place of hundreds of thousands, so that its errors
    differ from those of a free map (Lin et al., "SparseTSF", 2024).
    """
    if period is None or period > lookback:
        return free.float()
    found, cycles = torch.zeros_like(sums.cross), lookback // period
    oldest = lookback - cycles * period
    right = sums.filled(sums.cross)
    for leads in torch.arange(right.shape[2]).split(period):
        place = torch.arange(len(leads))
        reads = oldest + place[:, None] + period * torch.arange(cycles)  # [lead of the cycle, cycle]
        gram = sums.gram[:, reads[:, :, None], reads[:, None, :]].sum(dim=1)  # [P, cycle, cycle]
        cross = right[:, reads, leads[:, None]].sum(dim=1)  # [P, cycle]
        # The last cycle may be a part of one, and is shrunk in proportion.
        penalty = alphas[leads].mean() * sums.whole * len(leads) / period
        least = 1e-9 * gram.diagonal(dim1=1, dim2=2).mean(dim=1) + _TINY
        held = gram + (penalty + least)[:, None, None] * torch.eye(cycles, dtype=gram.dtype)
        shared = torch.cholesky_solve(cross[..., None], torch.linalg.cholesky(held))[..., 0]
        found[:, reads, leads[:, None]] = shared[:, None]
    return ((free + found) / 2).float()


def held_out(
    spans: Sequence[RidgeWindows],
    rows: RowBlock,
    read: Sequence[tuple[Tensor, Tensor]],
    maps: Sequence[Maps],
) -> Tensor:
    """[R, H] forecasts by maps that were solved without the rows' own quarter, mean of the spans."""
    found = torch.zeros_like(rows.target)
    for windows, folds in zip(spans, maps, strict=True):
        fold = windows.fold(rows)
        for which in fold.unique().tolist():
            own = (fold == which).nonzero()[:, 0]
            for (features, level), weights in zip(read, folds.get(which, folds[FOLDS]), strict=True):
                forecast = level[own, None] + mapped(features[own], weights, rows.place[own])
                found.index_add_(0, own, forecast)
    return found / (len(read) * len(spans))
