"""Linear maps solved in closed form over windows that are read block by block.

What comes in: a network whose scales are learned, and windows. What goes out: maps, and the quantiles
of what they miss. Promised: memory does not grow with the number of windows; the same windows give the
same maps, in blocks of any size; a target that is missing pulls at nothing.

    (Σ w·x·xᵀ + strength · Σ w · I) · map = Σ w·x·y

x is what a map reads of a window (`model/linear.py`), y the targets less the level that was taken away,
both in scaled units. w is 1, and less where a target lies more than ten spreads from its context. Where
targets are missing, conjugate gradients go on from the solution that takes them for typical. At most
200,000 rows (windows of one channel) are read: where there are more, an even draw of them.

Quantiles come from windows that the maps behind them have not seen: each quarter of the time is met by
maps solved on the other three. Those of seen windows, of maps with 450 features, gave 80 % bands that
held 70 % of the year that followed.

Axes: R row, a channel of a window · P place in the cycle · F feature · H lead · Q quantile level.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from forecaster.config import Config
from forecaster.model.linear import LinearSkip, mapped
from forecaster.model.network import Network
from forecaster.model.scaling import Scale
from forecaster.panel.panel import Panel
from forecaster.windows.batch import Batch
from forecaster.windows.index import Int64, KeyedPermutation, WindowIndex
from forecaster.windows.store import training_store

MOST_ROWS = 200_000
FOLDS = 4
_CELLS = 1 << 22  # of a block of windows
_RESIDUALS = 1 << 23  # cells from which quantiles are taken
_FAR = 10.0  # scaled units
_PASSES, _ENOUGH = 12, 1e-4
_TINY = 1e-12


@dataclass(frozen=True)
class Rows:
    """A block of windows as maps read them."""

    batch: Batch
    scale: Scale
    others: Tensor
    """[B, E] what all maps read beside the targets."""
    place: Tensor
    """[R]"""
    fold: Tensor
    """[R] quarter of the time; `FOLDS` where it is not among the windows that are solved over."""
    target: Tensor
    """[R, H] scaled units; NaN = missing."""
    weight: Tensor
    """[R]"""


@dataclass(frozen=True)
class Sums:
    """What a map is solved from; float64."""

    gram: Tensor
    """[P, F, F]"""
    cross: Tensor
    """[P, F, H]"""
    weight: Tensor
    """[P] Σ w."""
    seen: Tensor
    """[P, H] Σ w of rows whose target is observed."""

    @classmethod
    def over(cls, parts: Sequence[Sums]) -> Sums:
        """Returns what is solved from several parts of the windows."""
        return cls(*(sum(getattr(part, f.name) for part in parts) for f in fields(cls)))  # type: ignore[arg-type]

    def pooled(self) -> Sums:
        """Returns the same for one map for all places."""
        return Sums(*(getattr(self, f.name).sum(dim=0, keepdim=True) for f in fields(Sums)))


class Windows:
    """Windows of an index, block by block."""

    def __init__(self, network: Network, panel: Panel, config: Config, index: WindowIndex):
        """Takes what reads them.

        Args:
            network: with linear maps, its scales learned.
            panel: the table.
            config: resolved.
            index: the windows to solve over.
        """
        assert network.linear is not None
        self.network, self.linear = network, network.linear
        self._store, self._time = training_store(panel, config), panel.time
        self._index = index
        together = 1 if index.channels == panel.n_channels else panel.n_channels
        self._numbers = _drawn(len(index), MOST_ROWS // together)
        widest = max(weights.shape[1] for weights in self.linear.maps)
        self._size = max(1, _CELLS // ((widest + self.linear.horizon) * together))
        own = index.count > 0
        last = index.first[own] + (index.count[own] - 1) * index.stride
        self._from = int(panel.time[index.first[own]].min()) if own.any() else 0
        self._until = int(panel.time[last].max()) if own.any() else -1

    def __len__(self) -> int:
        return len(self._numbers)

    def blocks(self) -> Iterator[Rows]:
        """Yields all rows."""
        return self.read(self._index, self._numbers)

    def some(self, most: int) -> Iterator[Rows]:
        """Yields the rows of an even draw of at most so many windows."""
        return self.read(self._index, self._numbers[_drawn(len(self), most)])

    def read(self, index: WindowIndex, numbers: Int64) -> Iterator[Rows]:
        """Yields the rows of windows of any index of the panel."""
        network, linear = self.network, self.linear
        for start in range(0, len(numbers), self._size):
            series, channel, cutoff = index.locate(numbers[start : start + self._size])
            batch = self._store.batch(series, channel if index.channels > 1 else None, cutoff)
            inputs = batch.inputs
            scale = network.scaler(inputs.context, inputs.observed, inputs.channel)
            known = network.known_scaler(inputs.known, inputs.known_observed)
            target = scale.apply(batch.target).transpose(1, 2).flatten(0, 1)
            target = torch.where(target.isfinite(), target, torch.nan)
            far = target.abs().nan_to_num(0.0).amax(dim=1).double()
            weight = (_FAR / far.clamp(min=_FAR)).square()
            others, place = linear.others(inputs, known), linear.place(inputs)
            fold = torch.from_numpy(self._fold(cutoff)).repeat_interleave(inputs.channel.shape[1])
            yield Rows(batch, scale, others, place, fold, target, weight)

    def features(self, rows: Rows, number: int) -> tuple[Tensor, Tensor]:
        """Returns [R, F] what a map reads, and [R, H] what it should say; float64.

        A row beyond float32 reads nothing and should say nothing.
        """
        features, level = self.linear.features(rows.batch.inputs, rows.scale, rows.others, number)
        finite = features.sum(dim=1).isfinite()
        features = torch.where(finite[:, None], features, 0.0)
        target = torch.where(finite[:, None], rows.target - level[:, None], torch.nan)
        return features.double(), target.double()

    def _fold(self, cutoff: Int64) -> Int64:
        time = self._time[cutoff]
        size = (self._until - self._from) / FOLDS or 1.0
        fold = np.minimum((time - self._from) / size, FOLDS - 1).astype(np.int64)
        return np.where((time < self._from) | (time > self._until), FOLDS, fold)


def spans(network: Network, panel: Panel, config: Config, index: WindowIndex) -> list[Windows]:
    """Returns the windows of each span of the training cutoffs, the widest first."""
    wanted = sorted(config.model.linear_spans or (), reverse=True) or [None]
    return [Windows(network, panel, config, _recent(panel, index, span)) for span in wanted]


def summed(windows: Windows) -> list[list[Sums]]:
    """Returns what each map is solved from, for each quarter of the time, in one pass."""
    linear, found = windows.linear, []
    for weights in linear.maps:
        places, count, horizon = weights.shape
        sizes = [(places, count, count), (places, count, horizon), (places,), (places, horizon)]
        zeros = [[torch.zeros(size, dtype=torch.float64) for size in sizes] for _ in range(FOLDS)]
        found.append([Sums(*parts) for parts in zeros])
    for rows in windows.blocks():
        parts = list(_parts(rows, linear.places))
        for number, folds in enumerate(found):
            features, target = windows.features(rows, number)
            for fold, place, own in parts:
                sums, x, y, w = folds[fold], features[own], target[own], rows.weight[own, None]
                there = ~y.isnan()
                weighted = (x * w).T
                sums.gram[place].addmm_(weighted, x)
                sums.cross[place].addmm_(weighted, torch.where(there, y, 0.0))
                sums.weight[place] += w.sum()
                sums.seen[place] += (there * w).sum(dim=0)
    return found


def solution(linear: LinearSkip, sums: Sums, strengths: Tensor) -> Tensor:
    """Returns [P, F, H] maps, as if targets were missing at random.

    Args:
        linear: says which features a lead may see.
        sums: over windows.
        strengths: [H] float64.
    """
    return _eased(linear, sums, sums.cross, strengths)


def refined(
    windows: Windows, sums: Sequence[Sums], maps: Sequence[Tensor], strengths: Tensor
) -> list[Tensor]:
    """Returns maps that are right for the targets that are there: preconditioned conjugate gradients.

    Each lead misses other windows, and a matrix of products for each lead would be too much.

    Args:
        windows: as in the sums.
        sums: for each map.
        maps: to go on from.
        strengths: [H] float64.
    """
    found = list(maps)
    if all(bool((one.seen >= one.weight[:, None] * (1 - 1e-9)).all()) for one in sums):
        return found
    linear = windows.linear
    images = _applied(windows, sums, found, strengths)
    rests = [_visible(linear, one.cross) - image for one, image in zip(sums, images, strict=True)]
    toward, energy = [torch.zeros_like(rest) for rest in rests], [torch.ones(()) for _ in rests]
    for turn in range(_PASSES):
        if all(r.norm() <= _ENOUGH * s.cross.norm() for r, s in zip(rests, sums, strict=True)):
            break
        near = [_eased(linear, s, r, strengths) for s, r in zip(sums, rests, strict=True)]
        fresh = [_dot(rest, step) for rest, step in zip(rests, near, strict=True)]
        for n, step in enumerate(near):
            toward[n] = step + (fresh[n] / energy[n].clamp(min=_TINY) * toward[n] if turn else 0.0)
        images, energy = _applied(windows, sums, toward, strengths), fresh
        for n, image in enumerate(images):
            length = energy[n] / _dot(toward[n], image).clamp(min=_TINY)
            found[n] = found[n] + length * toward[n]
            rests[n] = rests[n] - length * image
    return found


def learn_offsets(windows: Windows, others: Sequence[Sequence[Sequence[Tensor]]]) -> None:
    """Puts in the quantiles of what maps miss that were solved without the row's quarter of the time.

    Args:
        windows: an even draw of them is read.
        others: [span][fold][map] maps solved without the fold; the last of each with all.
    """
    linear, network = windows.linear, windows.network
    levels = network.head.levels.double().numpy()
    missed, places = [], []
    for rows in windows.some(max(1, _RESIDUALS // linear.horizon)):
        said = torch.zeros_like(rows.target)
        for number in range(len(linear.maps)):
            features, level = linear.features(rows.batch.inputs, rows.scale, rows.others, number)
            said += level[:, None]
            for folds in others:
                for fold in rows.fold.unique().tolist():
                    own = (rows.fold == fold).nonzero()[:, 0]
                    part = mapped(features[own], folds[fold][number], rows.place[own])
                    said.index_add_(0, own, part / len(others))
        missed.append(rows.target - said / len(linear.maps))
        places.append(rows.place)
    if not missed:
        return
    residuals, place = torch.cat(missed).numpy(), torch.cat(places).numpy()
    everyone = _quantiles(residuals, levels)
    for number in range(linear.places):
        own = _quantiles(residuals[place == number], levels) if linear.places > 1 else everyone
        for found in (everyone, own):  # a place without windows has those of all
            there = np.isfinite(found).all(axis=1)
            linear.offsets[number, torch.from_numpy(there)] = torch.from_numpy(found[there]).float()


def _quantiles(values: NDArray[np.float32], levels: NDArray[np.float64]) -> NDArray[np.float64]:
    """Returns [H, Q] quantiles of [n, H] over what is finite; NaN where fewer than two are.

    By hand: numpy's own goes lead by lead through Python where NaN may be.
    """
    if len(values) < 2:
        return np.full((values.shape[1], len(levels)), np.nan)
    ordered = np.sort(np.where(np.isfinite(values), values, np.nan), axis=0).astype(np.float64)
    count = (ordered == ordered).sum(axis=0)
    at = levels[:, None] * np.maximum(count - 1, 0)  # [Q, H]
    low = np.minimum(np.floor(at).astype(np.int64), len(ordered) - 2)
    below, above = (np.take_along_axis(ordered, low + n, axis=0) for n in (0, 1))
    found = np.where(at > low, below + (at - low) * (above - below), below)
    return np.where(count >= 2, found, np.nan).T


def _eased(linear: LinearSkip, sums: Sums, right: Tensor, strengths: Tensor) -> Tensor:
    """Returns [P, F, H] the solution for right-hand sides, as if targets were missing at random."""
    right = right * (sums.weight[:, None] / sums.seen.clamp(min=_TINY))[:, None]
    found, diagonal = torch.zeros_like(right), torch.eye(right.shape[1], dtype=torch.float64)
    shared = right.shape[1] - len(linear.allowed)
    for place, gram in enumerate(sums.gram):
        # Rows sum to nothing once their mean is gone: without any penalty there is no inverse.
        least = 1e-9 * gram.diagonal().mean() + _TINY
        for strength in strengths.unique():
            factor = torch.linalg.cholesky(gram + (strength * sums.weight[place] + least) * diagonal)
            for leads, ahead in linear.reach():
                own = torch.arange(leads.start, leads.stop)
                own = own[strengths[own] == strength]
                size = shared + ahead  # the factor of the first features is the first part of it
                part = torch.cholesky_solve(right[place, :size, own], factor[:size, :size])
                found[place, :size, own] = part
    return found


def _applied(
    windows: Windows, sums: Sequence[Sums], toward: Sequence[Tensor], strengths: Tensor
) -> list[Tensor]:
    """Returns, for each map, the left-hand side over targets that are there, times a direction."""
    found = [torch.zeros_like(one) for one in toward]
    for rows in windows.blocks():
        parts = list(_parts(rows, windows.linear.places))
        for number, (out, one) in enumerate(zip(found, toward, strict=True)):
            features, target = windows.features(rows, number)
            for _, place, own in parts:
                x, missing = features[own], target[own].isnan()
                said = (x @ one[place]) * rows.weight[own, None]
                out[place].addmm_(x.T, said.masked_fill(missing, 0.0))
    return [
        _visible(windows.linear, out + one * (strengths * own.seen)[:, None])
        for out, one, own in zip(found, toward, sums, strict=True)
    ]


def _visible(linear: LinearSkip, numbers: Tensor) -> Tensor:
    """Returns [P, F, H] with 0 where a lead may not see a feature."""
    ahead = len(linear.allowed)
    near, far = numbers.split([numbers.shape[1] - ahead, ahead], dim=1)
    return torch.cat([near, far * linear.allowed], dim=1)


def _parts(rows: Rows, places: int) -> Iterator[tuple[int, int, Tensor]]:
    """Yields fold, place and the rows of both, where there are any."""
    group = rows.fold * places + rows.place
    for number in group.unique().tolist():
        yield number // places, number % places, (group == number).nonzero()[:, 0]


def _dot(one: Tensor, other: Tensor) -> Tensor:
    """[P, 1, H] of [P, F, H]."""
    return (one * other).sum(dim=1, keepdim=True)


def _recent(panel: Panel, index: WindowIndex, span: int | None) -> WindowIndex:
    """Returns the windows whose cutoff is among the last so many steps of training cutoffs."""
    own = index.count > 0
    if span is None or not own.any():
        return index
    last = int(panel.time[index.first[own] + (index.count[own] - 1) * index.stride].max())
    begin = panel.rows_until(int(last - span * panel.calendar.step))
    late = np.maximum(0, -(-(begin - index.first) // index.stride))
    count = np.maximum(0, index.count - late)
    return WindowIndex(index.first + late * index.stride, count, index.stride, index.channels)


def _drawn(size: int, most: int) -> Int64:
    """Returns at most `most` of `size` numbers, rising; the same ones every time."""
    if size <= most:
        return np.arange(size)
    return np.sort(KeyedPermutation(size, seed=0, epoch=0)(np.arange(most)))
