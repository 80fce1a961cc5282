"""The linear forecast beside attention: which maps a table gets, and their solution.

What comes in: a panel, a config and the windows that train. What goes out: a network that holds the
solution, or the linear forecast alone as an artifact. Promised: once `ridge/choice.py` has settled what
was left open, the maps are a function of config and training windows alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from itertools import product

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from forecaster.config import Config, ModelPlan
from forecaster.errors import ConfigError
from forecaster.forecast.artifact import Artifact, shape_of
from forecaster.model.ensemble import Ensemble
from forecaster.model.experts import LinearForecast, mapped, relative
from forecaster.model.network import Network
from forecaster.model.scaling import Scale
from forecaster.panel.calendar import Calendar
from forecaster.panel.categories import with_categories
from forecaster.panel.freq import DAY
from forecaster.panel.panel import Panel
from forecaster.runs.scales import learn_scales
from forecaster.runs.versions import versions
from forecaster.windows.batch import Batch
from forecaster.windows.index import Int64, KeyedPermutation, WindowIndex
from forecaster.windows.split import Split, split_panel
from forecaster.windows.store import training_store

MOST_ROWS = 60_000
FOLDS = 4
"""Quarters of the time, each of which is met by maps solved on the others."""
_CELLS = 1 << 22  # of a block of windows
_FAR = 10.0  # scaled units


@dataclass(frozen=True)
class Rows:
    """A block of windows as maps read them."""

    batch: Batch
    scale: Scale
    """What maps count in."""
    relative: Tensor
    """[R] its spread per spread of the row's context."""
    others: Tensor
    """[B, E] what all maps read beside the targets."""
    place: Tensor
    """[R]"""
    time: Tensor
    """[R] of the cutoff."""
    target: Tensor
    """[R, H] in units that maps count in; NaN = missing."""
    weight: Tensor
    """[R]"""


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
        read = (widest + self.linear.horizon) * together
        # Covariates of the past are no feature, but cut out with the rest.
        columns = together + panel.values.shape[1] - panel.n_channels
        cut = (self._store.context_length + self._store.horizon) * columns
        self._size = max(1, _CELLS // max(read, cut))
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
            known = network.embedding.known_scaler(inputs.known, inputs.known_observed)
            units = linear.units(inputs, scale)
            target = units.apply(batch.target).transpose(1, 2).flatten(0, 1)
            target = torch.where(target.isfinite(), target, torch.nan)
            spreads = relative(units, scale)
            # A target is far off by what its window knows, however little a season differs.
            far = target.abs().nan_to_num(0.0).amax(dim=1).double()
            if linear.apart is not None:
                far = far * spreads
            weight = (_FAR / far.clamp(min=_FAR)).square()
            others, place = linear.others(inputs, known), linear.place(inputs)
            time = torch.from_numpy(self._time[cutoff]).repeat_interleave(inputs.channel.shape[1])
            yield Rows(batch, units, spreads, others, place, time, target, weight)

    def features(self, rows: Rows, number: int) -> tuple[Tensor, Tensor]:
        """Returns [R, F] what a map reads, and [R, H] what it should say; float64.

        A row beyond float32 reads nothing and should say nothing.
        """
        features, level = self.linear.features(rows.batch.inputs, rows.scale, rows.others, number)
        finite = features.sum(dim=1).isfinite()
        features = torch.where(finite[:, None], features, 0.0)
        target = torch.where(finite[:, None], rows.target - level[:, None], torch.nan)
        return features.double(), target.double()

    def fold(self, rows: Rows) -> Tensor:
        """Returns [R] the quarter of these windows' time that a row falls into; `FOLDS` = none."""
        size = max(1, -(-(self._until - self._from + 1) // FOLDS))
        fold = (rows.time - self._from).div(size, rounding_mode="floor")
        return torch.where((rows.time < self._from) | (rows.time > self._until), FOLDS, fold)


def spans(network: Network, panel: Panel, config: Config, index: WindowIndex) -> list[Windows]:
    """Returns the windows of each span of the training cutoffs, the widest first."""
    wanted: list[int | None] = [*sorted(config.model.linear_spans or (), reverse=True)] or [None]
    return [Windows(network, panel, config, _recent(panel, index, span)) for span in wanted]


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


_PASSES, _ENOUGH = 12, 1e-4
_TINY = 1e-12


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
    whole: Tensor
    """[P] Σ w of the widest span and all quarters, by which strengths count."""

    @classmethod
    def over(cls, parts: Sequence[Sums], whole: Tensor | None = None) -> Sums:
        """Returns what is solved from several parts of the windows.

        Args:
            parts: at least one.
            whole: [P] by which strengths count; None = these parts are all there are.
        """
        first, *others = parts
        found = cls(*(getattr(first, field.name).clone() for field in fields(cls)))
        for part in others:  # one after the other: stacked, they would take their memory twice
            for field in fields(cls):
                getattr(found, field.name).add_(getattr(part, field.name))
        return found if whole is None else replace(found, whole=whole)

    def filled(self, right: Tensor) -> Tensor:
        """Returns [P, F, H] right-hand sides as if targets were missing at random."""
        return right * (self.weight[:, None] / self.seen.clamp(min=_TINY))[:, None]

    def pooled(self) -> Sums:
        """Returns the same for one map for all places."""
        return Sums(*(getattr(self, f.name).sum(dim=0, keepdim=True) for f in fields(Sums)))


def summed(windows: Windows) -> list[list[Sums]]:
    """Returns what each map is solved from, for each quarter of the time, in one pass."""
    linear, found = windows.linear, []
    for weights in linear.maps:
        places, count, horizon = weights.shape
        sizes = [(count, count), (count, horizon), (), (horizon,), ()]
        zeros = [[torch.zeros(places, *n, dtype=torch.float64) for n in sizes] for _ in range(FOLDS)]
        found.append([Sums(*parts) for parts in zeros])
    for rows in windows.blocks():
        parts = list(_parts(rows, windows.fold(rows), linear.places))
        for number, folds in enumerate(found):
            features, target = windows.features(rows, number)
            for fold, place, own in parts:
                sums, x, y, w = folds[fold], features[own], target[own], rows.weight[own, None]
                there = ~y.isnan()
                weighted = (x * w).T
                sums.gram[place].addmm_(weighted, x)
                sums.cross[place].addmm_(weighted, torch.where(there, y, 0.0))
                sums.weight[place] += w.sum()
                sums.whole[place] += w.sum()
                sums.seen[place] += (there * w).sum(dim=0)
    return found


def summed_without(every: Sequence[Windows], folds: Sequence[int]) -> Iterator[list[list[Sums]]]:
    """Yields, span by span, [fold][map] what is solved without each quarter, and with all in the end.

    Args:
        every: the windows of each span, the widest first.
        folds: which quarters are wanted; the others are not left out.
    """
    total: list[Tensor] = []
    for windows in every:
        parts = summed(windows)
        total = total or [Sums.over(own).whole for own in parts]
        whole = [Sums.over(own, count) for own, count in zip(parts, total, strict=True)]
        without = [
            [
                Sums.over([*own[:fold], *own[fold + 1 :]], one.whole)
                for own, one in zip(parts, whole, strict=True)
            ]
            if fold in folds
            else whole
            for fold in range(FOLDS)
        ]
        yield [*without, whole]


def solution(linear: LinearForecast, sums: Sums, strengths: Tensor) -> Tensor:
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


def _eased(linear: LinearForecast, sums: Sums, right: Tensor, strengths: Tensor) -> Tensor:
    """Returns [P, F, H] the solution for right-hand sides, as if targets were missing at random."""
    right = sums.filled(right)
    found, diagonal = torch.zeros_like(right), torch.eye(right.shape[1], dtype=torch.float64)
    shared = right.shape[1] - len(linear.allowed)
    for place, gram in enumerate(sums.gram):
        # Rows sum to nothing once their mean is gone: without any penalty there is no inverse.
        least = 1e-9 * gram.diagonal().mean() + _TINY
        for strength in strengths.unique():
            factor = torch.linalg.cholesky(gram + (strength * sums.whole[place] + least) * diagonal)
            for leads, ahead in linear.lead_blocks():
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
        parts = list(_parts(rows, windows.fold(rows), windows.linear.places))
        for number, (out, one) in enumerate(zip(found, toward, strict=True)):
            features, target = windows.features(rows, number)
            for _, place, own in parts:
                x, missing = features[own], target[own].isnan()
                said = (x @ one[place]) * rows.weight[own, None]
                out[place].addmm_(x.T, said.masked_fill(missing, 0.0))
    return [
        _visible(windows.linear, out + one * (strengths * _penalty(own))[:, None])
        for out, one, own in zip(found, toward, sums, strict=True)
    ]


def _penalty(sums: Sums) -> Tensor:
    """[P, H] N of each lead: less where targets are missing, as the rest of its equation is."""
    share: Tensor = sums.seen / sums.weight.clamp(min=_TINY)[:, None]
    return sums.whole[:, None] * share


def _visible(linear: LinearForecast, numbers: Tensor) -> Tensor:
    """Returns [P, F, H] with 0 where a lead may not see a feature."""
    ahead = len(linear.allowed)
    near, far = numbers.split([numbers.shape[1] - ahead, ahead], dim=1)
    return torch.cat([near, far * linear.allowed], dim=1)


def _parts(rows: Rows, fold: Tensor, places: int) -> Iterator[tuple[int, int, Tensor]]:
    """Yields fold, place and the rows of both, where there are any."""
    group = fold * places + rows.place
    for number in group.unique().tolist():
        yield number // places, number % places, (group == number).nonzero()[:, 0]


def _dot(one: Tensor, other: Tensor) -> Tensor:
    """[P, 1, H] of [P, F, H]."""
    return (one * other).sum(dim=1, keepdim=True)


_RESIDUALS = 1 << 23  # cells from which quantiles are taken


def foretold(
    every: Sequence[Windows], rows: Rows, maps: Sequence[Sequence[Sequence[Tensor]]]
) -> Tensor:
    """Returns [R, H] what maps say of rows they have not seen, in the units they count in.

    Args:
        every: the windows of each span.
        rows: of any windows.
        maps: [span][fold][map] solved without the fold; the last of each span with all.
    """
    linear = every[0].linear
    said = torch.zeros_like(rows.target)
    for number in range(len(linear.maps)):
        features, level = linear.features(rows.batch.inputs, rows.scale, rows.others, number)
        said += level[:, None]
        for windows, folds in zip(every, maps, strict=True):
            fold = windows.fold(rows)
            for which in fold.unique().tolist():
                own = (fold == which).nonzero()[:, 0]
                part = mapped(features[own], folds[which][number], rows.place[own])
                said.index_add_(0, own, part / len(every))
    return said / len(linear.maps)


def learn_offsets(every: Sequence[Windows], maps: Sequence[Sequence[Sequence[Tensor]]]) -> None:
    """Puts the quantiles of what maps miss into the network, from an even draw of the widest span.

    Args:
        every: the windows of each span, the widest first.
        maps: as in `foretold`.
    """
    linear, levels = every[0].linear, np.array(every[0].network.config.quantile_levels)
    missed, places = [], []
    for rows in every[0].some(max(1, _RESIDUALS // linear.horizon)):
        counted = rows.relative / linear.residual_units(rows.relative)
        missed.append((rows.target - foretold(every, rows, maps)) * counted[:, None])
        places.append(rows.place)
    if not missed:
        return
    residuals, place = torch.cat(missed).numpy(), torch.cat(places).numpy()
    everyone = _around_median(residuals, levels)
    for number in range(linear.places):
        own = _around_median(residuals[place == number], levels) if linear.places > 1 else everyone
        for found in (everyone, own):  # a place without windows has those of all
            there = np.isfinite(found).all(axis=1)
            linear.offsets[number, torch.from_numpy(there)] = torch.from_numpy(found[there]).float()


def _around_median(values: NDArray[np.float32], levels: NDArray[np.float64]) -> NDArray[np.float64]:
    """Returns [H, Q] quantiles of [n, H] less their median, one of the levels."""
    found = _quantiles(values, levels)
    return found - found[:, levels == 0.5]


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


def with_periodic(
    linear: LinearForecast, number: int, free: Tensor, sums: Sums, strengths: Tensor
) -> Tensor:
    """Returns [P, F, H] the mean of a map and of one that reads whole cycles back, where there is one.

    Args:
        linear: says of which cycle, if any.
        number: of the map.
        free: to read everything.
        sums: what it was solved from.
        strengths: [H] float64, of free maps; held as strongly, all weights of a periodic one together.
    """
    period, lookback = linear.period, linear.lookbacks[number]
    if period is None or lookback < period:
        return free
    return (free + periodic(sums, lookback, strengths, period)) / 2


def periodic(sums: Sums, lookback: int, strengths: Tensor, period: int) -> Tensor:
    """Returns [P, F, H] maps that are 0 but for values whole cycles before each lead.

    Args:
        sums: over windows; targets that are missing count as typical ones.
        lookback: steps, a cycle at least.
        strengths: [H] float64.
        period: steps of a cycle.
    """
    found, cycles = torch.zeros_like(sums.cross), lookback // period
    oldest = lookback - cycles * period
    right = sums.filled(sums.cross)
    for leads in torch.arange(right.shape[2]).split(period):
        place = torch.arange(len(leads))
        reads = oldest + place[:, None] + period * torch.arange(cycles)  # [I, K]
        gram = sums.gram[:, reads[:, :, None], reads[:, None, :]].sum(dim=1)  # [P, K, K]
        cross = right[:, reads, leads[:, None]].sum(dim=1)  # [P, K]
        # The last cycle may be a part of one, and is held in proportion.
        penalty = strengths[leads].mean() * sums.whole * len(leads) / period
        least = 1e-9 * gram.diagonal(dim1=1, dim2=2).mean(dim=1) + 1e-12
        held = gram + (penalty + least)[:, None, None] * torch.eye(cycles, dtype=gram.dtype)
        shared = torch.cholesky_solve(cross[..., None], torch.linalg.cholesky(held))[..., 0]
        found[:, reads, leads[:, None]] = shared[:, None]
    return found


_STRENGTHS = tuple(10.0 ** (n / 2) for n in range(-8, 2))
_JUDGES = (1, 3)  # quarters of the training windows that judge maps solved without them
_DRAWN = 1024  # training windows that judge, at most
_WORTH = 0.99  # of the error: more maps, or more features, must lower it by this much
_MOST_PLACES, _ROWS_PER_FEATURE = 168, 2
_MOST_PRODUCTS = 1 << 20  # of features, over all places: a map takes 32 times that in bytes


def settle_linear(panel: Panel, config: Config, split: Split) -> Config:
    """Returns the config with what the linear maps are, where that was left to validation.

    Two judges choose the strength for each horizon patch by their absolute errors, which count alike:
    the watched validation windows, and two quarters of the training windows, met by maps solved without
    them; validation alone may be of another regime. Maps for each place in the shortest cycle, and
    calendar terms, must lower the errors by 1 %.

    Args:
        panel: the table, with the categories of its training rows.
        config: resolved but for this.
        split: of this panel.
    """
    model = config.model
    if model.linear != "blend":
        return config
    strengths = _STRENGTHS if model.ridge_alpha is None else ()
    places = [model.linear_phases] if model.linear_phases else [1, *_places(panel, config, split)]
    calendar = [model.linear_calendar]
    if model.linear_calendar is None:
        calendar = [False, True] if panel.calendar.cycles else [False]
    tries = [
        config.replaced(model={"linear_phases": number, "linear_calendar": told})
        for number, told in product(places, calendar)
    ]
    if len(tries) == 1 and not strengths:
        return tries[0]
    best, *others = _validated(panel, tries, split, strengths)
    for one in others:
        if one[0] < _WORTH * best[0]:
            best = one
    return best[1]


def bare_network(panel: Panel, config: Config, split: Split) -> Network:
    """Returns a network that knows the scales of the training rows and nothing else."""
    assert config.horizon is not None
    with torch.random.fork_rng(devices=[]):
        network = Network(ModelPlan.of(bare(config).model), shape_of(panel, config.horizon))
    learn_scales(network, panel, split.train_end)
    return network.eval()


def bare(config: Config) -> Config:
    """Returns the config with as little attention as there can be."""
    return config.replaced(
        model={
            "linear": "blend",
            "width": 4,
            "heads": 1,
            "encoder_layers": 1,
            "decoder_layers": 1,
        }
    )


def strengths_of(config: Config, horizon: int) -> Tensor:
    """Returns [H] the strength of each lead."""
    strength, patch = config.model.ridge_alpha, config.model.decoder_patch
    assert strength is not None and patch is not None
    if isinstance(strength, float | int):
        return torch.full((horizon,), float(strength), dtype=torch.float64)
    return torch.tensor(strength, dtype=torch.float64).repeat_interleave(patch)[:horizon]


def cycle_steps(calendar: Calendar, name: str) -> int:
    """Returns the steps of a cycle of the calendar, a nominal number where they differ."""
    length = {"day": DAY, "week": 7 * DAY, "year": 365.2425 * DAY}.get(name)
    return round(length / calendar.step) if length else int(name.split()[0])


def _validated(
    panel: Panel, tries: Sequence[Config], split: Split, strengths: Sequence[float]
) -> list[tuple[float, Config]]:
    """Returns, for each try, the error of unseen windows, and the config with the best strengths."""
    widest, horizon = tries[-1], tries[-1].horizon  # its sums hold those of all others
    network = bare_network(panel, widest, split)
    linear, patch = network.linear, widest.model.decoder_patch
    assert linear is not None and horizon is not None and patch is not None
    wanted = [torch.full((horizon,), strength, dtype=torch.float64) for strength in strengths]
    every = spans(network, panel, widest, split.train)
    options = list(product(tries, wanted or [strengths_of(widest, horizon)]))
    maps: list[list[list[list[Tensor]]]] = [[] for _ in options]  # [option][span][fold][map]
    for folds in summed_without(every, _JUDGES):
        unlike = {id(sums): sums for sums in folds}.items()  # most are the same one: solved once
        for own, (config, leads) in zip(maps, options, strict=True):
            solved = {key: _narrowed(linear, sums, leads, config) for key, sums in unlike}
            own.append([solved[id(sums)] for sums in folds])
    drawn = every[0].some(min(_DRAWN, len(split.validation_windows) or _DRAWN))
    judges = [drawn, every[0].read(split.validation, split.validation_windows)]
    errors = torch.zeros(len(judges), len(maps), horizon, dtype=torch.float64)
    for error, judge in zip(errors, judges, strict=True):
        for rows in judge:
            unseen = torch.isin(every[0].fold(rows), torch.tensor([*_JUDGES, FOLDS]))
            weight = rows.weight[unseen, None].sqrt()
            for number, own in enumerate(maps):
                missed = (rows.target - foretold(every, rows, own))[unseen].abs() * weight
                error[number] += torch.where(missed.isfinite(), missed, 0.0).sum(dim=0)
    patches = torch.stack([part.sum(dim=-1) for part in errors.split(patch, dim=-1)], dim=-1)
    patches = patches.unflatten(1, (len(tries), -1))  # [judge, try, strength, patch]
    # Judges count alike, whatever their windows and units.
    least = patches[:, :1].amin(dim=2, keepdim=True)
    judged = (patches / least.clamp(min=1e-30)).sum(dim=0)
    losses = judged.amin(dim=1).sum(dim=1).tolist()
    if not strengths:
        return list(zip(losses, tries, strict=True))
    chosen = [[strengths[k] for k in own.tolist()] for own in judged.argmin(dim=1)]
    settled = [
        config.replaced(model={"ridge_alpha": own}) for config, own in zip(tries, chosen, strict=True)
    ]
    return list(zip(losses, settled, strict=True))


def _narrowed(
    linear: LinearForecast, every: Sequence[Sums], strengths: Tensor, config: Config
) -> list[Tensor]:
    """Returns [P, F, H] or [1, F, H] the maps of a config, from the sums of one that has more."""
    maps = []
    for number, (sums, lookback) in enumerate(zip(every, linear.lookbacks, strict=True)):
        own = sums.pooled() if config.model.linear_phases == 1 else sums
        kept = torch.arange(own.gram.shape[1])
        if not config.model.linear_calendar:
            kept = kept[(kept < lookback) | (kept >= lookback + linear.calendar)]
        less = replace(own, gram=own.gram[:, kept][:, :, kept], cross=own.cross[:, kept])
        free = solution(linear, less, strengths)
        maps.append(torch.zeros(own.cross.shape))
        maps[-1][:, kept] = with_periodic(linear, number, free, less, strengths).float()
    return maps


def _places(panel: Panel, config: Config, split: Split) -> list[int]:
    """Returns the steps of the shortest cycle, where each has windows enough for a map of its own."""
    calendar, lookbacks = panel.calendar, config.model.lookbacks
    assert lookbacks is not None
    if not calendar.cycles:
        return []
    steps, size = cycle_steps(calendar, calendar.cycles[0]), max(lookbacks)
    rows = min(len(split.train), MOST_ROWS)
    enough = rows >= _ROWS_PER_FEATURE * steps * size and steps * size**2 <= _MOST_PRODUCTS
    return [steps] if 2 <= steps <= _MOST_PLACES and enough else []


_FARTHEST = 800  # steps back by default: a solution takes the cube of what a map reads
_LENGTHS = 9  # of a lookback that a table must hold before it is the default


def linear_settings(config: Config, panel: Panel, context: int) -> dict[str, object]:
    """Returns settings that follow from the table: which linear maps, and the context they need.

    Args:
        config: as asked for.
        panel: the table.
        context: steps that attention reads if nothing else is said, or the context as asked for.

    Raises:
        ConfigError: places of a cycle are asked for where there is none.
    """
    model, calendar = config.model, panel.calendar
    kind = model.linear
    if kind is None:
        kind = "blend" if model.head == "quantile" and model.decoder == "direct" else "none"
    if kind == "none":
        return {"linear": kind, "context_length": context}
    if (model.linear_phases or 1) > 1 and not calendar.cycles:
        raise ConfigError(
            f"model.linear_phases {model.linear_phases}: no calendar cycle in {panel.name} to have "
            "places of; set it to 1, or give data.periods"
        )
    lookbacks, reads = model.lookbacks, model.attention_length
    if lookbacks is None:
        lookbacks = _lookbacks(panel, context)
        if model.context_length is not None:
            lookbacks = tuple(n for n in lookbacks if n <= context) or (context,)
    if model.context_length is None:
        reads = reads or context
        context = max(*lookbacks, *(model.linear_lags or ()), reads)
    lags = model.linear_lags
    if lags is None:
        lengths = (calendar.season_length, *(cycle_steps(calendar, name) for name in calendar.cycles))
        told = bool(panel.schema.known)
        lags = tuple(sorted({n for n in lengths if 1 < n <= min(context, _FARTHEST) and told}))
    season = calendar.season_length
    return {
        "linear": kind,
        "lookbacks": lookbacks,
        "linear_lags": lags,
        "linear_units": season if model.linear_units == "season" else model.linear_units,
        "linear_period": season if model.linear_period == "season" else model.linear_period,
        "context_length": context,
        "attention_length": reads,
    }


def solve_linear(network: Network, panel: Panel, config: Config, index: WindowIndex) -> None:
    """Solves the linear maps of a network over windows.

    Args:
        network: changed in place, its scales learned; one without linear maps stays as it is.
        panel: the table.
        config: settled.
        index: the windows that train.
    """
    linear = network.linear
    if linear is None:
        return
    strengths = strengths_of(config, linear.horizon)
    maps: list[list[list[Tensor]]] = []  # [span][fold, and all][map]
    with torch.no_grad():
        every = spans(network, panel, config, index)
        for windows, sums in zip(every, summed_without(every, range(FOLDS)), strict=True):
            own = [[solution(linear, one, strengths) for one in part] for part in sums]
            own[-1] = refined(windows, sums[-1], own[-1], strengths)
            for part, fold in zip(own, sums, strict=True):
                for number, (free, one) in enumerate(zip(part, fold, strict=True)):
                    part[number] = with_periodic(linear, number, free, one, strengths).float()
            maps.append(own)
        for number, kept in enumerate(linear.maps):
            # Maps of several spans read the same features: their mean is one map.
            kept.copy_(torch.stack([own[-1][number] for own in maps]).mean(dim=0))
        learn_offsets(every, maps)


def fit_floor(panel: Panel, config: Config, split: Split) -> Artifact:
    """Returns an artifact whose forecasts are the linear ones alone.

    Args:
        panel: the table.
        config: resolved with a linear forecast; what it says of attention is left out.
        split: of the panel under this config.
    """
    fingerprint = panel.fingerprint()
    panel = with_categories(panel, split.train_end)
    config = settle_linear(panel, bare(config), split)
    if config.fit.refit:
        unwatched = config.fit.model_copy(update={"validation": None})
        split = split_panel(panel, config.model_copy(update={"fit": unwatched}))
    network = bare_network(panel, config, split)
    solve_linear(network, panel, config, split.train)
    network.network_weight.zero_()
    return Artifact(
        schema=panel.schema,
        config=config,
        shape=network.shape,
        ensemble=Ensemble([network], [1.0], target=config.target).eval().requires_grad_(False),
        trained_until=split.end,
        data=panel.name,
        fingerprint=fingerprint,
        versions=versions(),
    )


def _lookbacks(panel: Panel, context: int) -> tuple[int, ...]:
    """Returns how far maps look back: a longer table has more of them, each twice the one before."""
    calendar = panel.calendar
    longest = int((panel.last_observed - panel.indptr[:-1] + 1).max())
    first = min(context, 14 * calendar.season_length) if "day" in calendar.cycles else context
    found = [min(first, longest, _FARTHEST)]  # beyond the table there is nothing to read
    while len(found) < 3 and 2 * found[-1] <= min(longest // _LENGTHS, _FARTHEST):
        found.append(2 * found[-1])
    return tuple(found)
