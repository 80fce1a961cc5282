"""Linear maps solved in closed form.

What comes in: windows as maps read them. What goes out: maps. Promised: the same windows give the same
maps, in blocks of any size; a target that is missing pulls at nothing.

    (Σ w·x·xᵀ + strength · N · I) · map = Σ w·x·y

x is what a map reads of a window (`model/linear.py`), y the targets less the level that was taken away,
both in scaled units; N counts the windows of the widest span, so that a map solved on fewer windows is
held as strongly. w is 1, and less where a target lies more than ten spreads from its context. Where
targets are missing, conjugate gradients go on from the solution that takes them for typical.

Axes: R row, a channel of a window · P place in the cycle · F feature · H lead.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor

from forecaster.model.experts import LinearForecast
from forecaster.runs.ridge.rows import FOLDS, Rows, Windows

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
