"""A mixed linear regression with autoregressive errors, solved on sums.

    z_u = level and trend of unit u + X_u (b + d_u) + e_u        e_u an AR(1) process, shared φ
    b_k ~ N(0, τ_g)                                              of the table, k a column of group g
    d_uk ~ N(0, v_u·δ_g)                                         of a unit; v_u the variance of its noise

τ and δ are those of restricted maximum likelihood, by MacKay's fixed point: a variance is the sum of squares
of its coefficients over the number of them that the data determine. A group without evidence vanishes.

Units of the same columns without gaps, as series of equal dates have, share a design: its sums and its inverse
are computed once.

Sources: Laird and Ware, "Random-effects models for longitudinal data" (1982); MacKay, "Bayesian interpolation"
(1992); Cochrane and Orcutt, "Application of least squares regression to relationships containing
autocorrelated error terms" (1949).

Axes: U unit, a channel of a series · D design · n row · K column · G group · F = K columns, level and trend.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch

from forecaster.panel.arrays import Bools, Floats, Ints

_PASSES = 4  # of the autocorrelation
_SWEEPS = 6  # of the variances in each; at a known autocorrelation in all
_CHANGE = 0.03  # of the logarithm of a variance, below which a sweep is the last one
_LARGEST_PHI = 0.98
_LOWER_PHIS = (0.7, 0.4)  # tried where the learned one is higher
# Of the changes over a season that a lower one leaves, over those that the learned one leaves, at most.
_WORTH = 0.95
_PRIOR_ROWS = 10.0  # of the noise of all units, that each unit's own leans on
_LEAST = 1e-10  # a variance; what has come down to it stays there
_RARE = 4.0  # standard deviations of a normal distribution, that are no chance
_UNSEEN = 1e-6  # of what the variance says of coefficients, up to which rows say nothing
NOTHING = 1e-4
"""A variance of coefficients over that of the noise: a hundredth of a deviation."""
_TREND_ROWS = 30
"""Rows from which a unit has a trend of its own."""


class Unit(NamedTuple):
    """The rows of a unit; those where z is NaN say nothing."""

    z: Floats
    """[n]"""
    columns: Floats
    """[n, K]; units of one design have the same object."""
    time: Ints
    """[n] of each row: errors of units may go together."""
    weight: Floats | None = None
    """[n] of the rows; None = 1."""

    @property
    def root(self) -> Floats:
        """[n] of the weights."""
        return np.ones(len(self.z)) if self.weight is None else np.sqrt(self.weight)


class Sums(NamedTuple):
    """Products of columns, level, trend (x) and z of units, of rows t and t − 1 that are both observed."""

    xx: Floats
    """[3, D, F, F] Σ x_t x_tᵀ, Σ x_t x_{t−1}ᵀ and Σ x_{t−1} x_{t−1}ᵀ"""
    xz: Floats
    """[3, U, F] Σ x_t z_t, Σ x_t z_{t−1} + x_{t−1} z_t and Σ x_{t−1} z_{t−1}"""
    zz: Floats
    """[3, U] Σ z_t², Σ z_t z_{t−1} and Σ z_{t−1}²"""
    rows: Floats
    """[U]"""
    design: Ints
    """[U] of each unit."""

    def whitened(self, phi: float) -> tuple[Floats, Floats, Floats]:
        """Returns [D, F, F], [U, F] and [U] products of x_t − φ x_{t−1} and z_t − φ z_{t−1}."""
        now, lagged, before = self.xx
        both = lagged + np.swapaxes(lagged, 1, 2)
        xx = now - phi * both + phi**2 * before
        xz = self.xz[0] - phi * self.xz[1] + phi**2 * self.xz[2]
        zz = self.zz[0] - 2 * phi * self.zz[1] + phi**2 * self.zz[2]
        return xx, xz, zz


class Normal(NamedTuple):
    """Normal equations of the columns, level and trend projected out."""

    gram: Floats
    """[D, K, K]"""
    cross: Floats
    """[U, K]"""
    square: Floats
    """[U]"""
    freedom: Floats
    """[U] rows less level and trend."""
    design: Ints
    """[U]"""


@dataclass(frozen=True)
class Solution:
    """Variances, and the coefficients of the units they were learned from."""

    phi: float
    shared_variance: Floats
    """[G] τ, in squares of z."""
    own_variance: Floats
    """[G] δ, over the noise of a unit; 0 = the same in all units, whatever the rows say."""
    noise: Floats
    """[U] v, in squares of z."""
    shared: Floats
    """[K] b."""
    own: Floats
    """[U, K] d."""
    determined: Floats
    """[U, K] how much of a coefficient the rows of a unit fit by themselves, 0 to 1."""
    of_table: Floats
    """[K] the part of that which is of b."""
    covariance: Floats
    """[K, K] of what is not known of b, in squares of z."""
    posterior: Floats
    """[D, K, K] M: that of d over the noise of a unit, were b known."""
    explained: Floats
    """[D, K, K] A M: how much of an error in b the d of a unit takes back."""
    sums: Sums
    """Of the units."""
    settled: bool
    """Whether the last sweep changed no variance by much."""
    together: float = 1.0
    """As how many rows of one unit those of all units at a time count less: 1 of independent errors."""

    @property
    def coefficients(self) -> Floats:
        """[U, K] b + d."""
        return self.shared + self.own

    def beyond_chance(self, group: Ints) -> Bools:
        """Returns [G] whether what all units share of a group is more than chance makes of its k columns.

            χ² = uᵀ L⁻¹ u > quantile of k           u = P b, L = P − 1/τ: what the rows say of b by themselves
            P  = the inverse of the covariance of b in the group

        Sources: Wald, "Tests of statistical hypotheses concerning several parameters" (1943); Wilson and Hilferty,
        "The distribution of chi-square" (1931), for the quantile.
        """
        found = np.zeros(len(self.shared_variance), bool)
        for number, variance in enumerate(self.shared_variance):
            if variance <= NOTHING * self.noise.mean():
                continue
            columns = np.flatnonzero(group == number)
            precision = _inverse(self.covariance[np.ix_(columns, columns)])
            size, axes = np.linalg.eigh(precision - np.eye(len(columns)) / variance)
            said = size > _UNSEEN / variance
            along = axes.T @ precision @ self.shared[columns]
            chi_square = (along[said] ** 2 / size[said]).sum()
            found[number] = said.any() and chi_square > _quantile(said.sum())
        return found

    def without(self, gone: Bools) -> Solution:
        """Returns the same to begin with, but for groups [G] that are left out."""
        return replace(
            self,
            shared_variance=np.where(gone, _LEAST, self.shared_variance),
            own_variance=np.where(gone, 0.0, self.own_variance),
        )

    def of_last(self) -> Solution:
        """Returns that of the last unit alone, in as many rows as all have."""
        last = self.sums.design[-1:]
        sums = Sums(
            xx=self.sums.xx[:, last],
            xz=self.sums.xz[:, -1:],
            zz=self.sums.zz[:, -1:],
            rows=self.sums.rows[-1:],
            design=np.zeros(1, np.int64),
        )
        return replace(
            self,
            noise=self.noise[-1:],
            own=self.own[-1:],
            determined=self.determined[-1:] * len(self.own),
            posterior=self.posterior[last],
            explained=self.explained[last],
            sums=sums,
        )

    def uncertainty(self, readings: Floats) -> Floats:
        """Returns [U, P] standard deviations of readings [P, K] of b + d, variances and φ taken as known.

        covariance = (1 − A M)ᵀ covariance of b (1 − A M) + v M
        """
        kept = readings - readings @ np.swapaxes(self.explained, 1, 2)  # [D, P, K]
        of_table = ((kept @ self.covariance) * kept).sum(axis=2)  # [D, P]
        own = ((readings @ self.posterior) * readings).sum(axis=2)
        design = self.sums.design
        variance = of_table[design] + self.noise[:, None] * own[design]
        return np.sqrt(np.maximum(variance, 0.0))  # rounding


def _quantile(count: int) -> float:
    """That of χ² of k columns which chance exceeds as rarely as a normal number four deviations.

    k (1 − 2/9k + 4 √(2/9k))³
    """
    part = 2 / (9 * count)
    return float(count * (1 - part + _RARE * np.sqrt(part)) ** 3)


def solve(
    units: Sequence[Unit],
    group: Ints,
    phi: float | None = None,
    start: Solution | None = None,
    xx: Floats | None = None,
    least_noise: float | Floats = _LEAST,
    season: int = 1,
) -> Solution:
    """Returns the variances and coefficients of units.

    A learned autocorrelation is that of neighbouring rows, so coefficients are those of changes from row to row.
    Where a lower one leaves smaller changes over a season, which are what a forecast misses, it is taken.

    Args:
        units: with the same columns.
        group: [K] of each column, from 0 on.
        phi: the autocorrelation of the errors; None = learned.
        start: variances to begin with.
        xx: of `Sums`, where they are known.
        least_noise: variance of the noise of a unit, at least; of all or [U].
        season: steps between rows whose changes are compared.
    """
    sums = summed(units, xx)
    if phi is not None:
        return _at_phi(sums, group, phi, start, least_noise, _PASSES * _SWEEPS)
    found, phi = start, 0.5 if start is None else start.phi
    for _ in range(_PASSES):
        found = _at_phi(sums, group, phi, found, least_noise, _SWEEPS)
        before, phi = found, _autocorrelation(found)
        found = replace(found, together=_together(units, found))
        same = abs(phi - before.phi) < 0.01 and found.together < 1.1 * before.together
        if same and found.settled:
            break
    assert found is not None
    lower = [one for one in _LOWER_PHIS if one < found.phi]
    if not lower:
        return found
    candidates = [found]
    candidates += [_at_phi(sums, group, one, found, least_noise, _SWEEPS) for one in lower]
    changes = [_change_over(season, units, one) for one in candidates]
    least = int(np.argmin(changes))
    return candidates[least] if changes[least] < _WORTH * changes[0] else found


def _change_over(season: int, units: Sequence[Unit], found: Solution) -> float:
    """The mean change over a season m of what a solution leaves of units: mean |r_t − r_{t−m}|, r = z − fit."""
    changes = []
    for unit, fit in zip(units, fitted(units, found), strict=True):
        left = unit.z - fit
        change = np.abs(left[season:] - left[:-season])
        changes.append(change[~np.isnan(change)])
    every = np.concatenate(changes)
    return float(every.mean()) if len(every) else 0.0


def summed(units: Sequence[Unit], known: Floats | None = None) -> Sums:
    """Returns the sums of units; z is taken less its mean, for rounding; `known`: those of columns alone."""
    designs: dict[int, list[int]] = {}
    for number, unit in enumerate(units):
        alone = unit.weight is not None or np.isnan(unit.z).any()
        designs.setdefault(-1 - number if alone else id(unit.columns), []).append(number)
    size = units[0].columns.shape[1] + 2
    xx = np.zeros((3, len(designs), size, size)) if known is None else known
    xz, zz = np.zeros((3, len(units), size)), np.zeros((3, len(units)))
    rows, design = np.zeros(len(units)), np.zeros(len(units), np.int64)
    for number, members in enumerate(designs.values()):
        first = units[members[0]]
        x = _with_level(first)
        z = np.stack([_centred(units[member]) for member in members], axis=1)  # [n, members]
        seen = ~np.isnan(z[:, 0])
        both = np.flatnonzero(seen[1:] & seen[:-1])
        root = first.root[:, None]
        x, z = x * root, z * root
        (x, z), (x_before, z_before) = ((x[at], z[at]) for at in (both + 1, both))
        if known is None:
            xx[:, number] = x.T @ x, x.T @ x_before, x_before.T @ x_before
        xz[0, members] = z.T @ x
        xz[1, members] = z_before.T @ x + z.T @ x_before
        xz[2, members] = z_before.T @ x_before
        pairs = ((z, z), (z, z_before), (z_before, z_before))
        zz[:, members] = [(one * other).sum(axis=0) for one, other in pairs]
        rows[members], design[members] = len(both), number
    return Sums(xx, xz, zz, rows, design)


def _with_level(unit: Unit) -> Floats:
    """[n, F] columns, level and trend."""
    count = len(unit.z)
    trend = np.arange(count) / count - 0.5
    return np.column_stack([unit.columns, np.ones(count), trend * _has_trend(unit)])


def _has_trend(unit: Unit) -> bool:
    return bool((~np.isnan(unit.z)).sum() >= _TREND_ROWS)


def _centred(unit: Unit) -> Floats:
    return unit.z - np.nanmean(unit.z)


def normal_equations(sums: Sums, phi: float) -> Normal:
    """Returns the equations of the columns at an autocorrelation."""
    xx, xz, zz = sums.whitened(phi)
    inverse = _inverse(_definite(xx[:, -2:, -2:]))  # [D, 2, 2]
    solved = inverse @ xx[:, -2:, :-2]  # [D, 2, K]
    gram = xx[:, :-2, :-2] - xx[:, :-2, -2:] @ solved
    level, columns = xz[:, -2:], xz[:, :-2]
    cross = columns - _times(np.swapaxes(solved, 1, 2), level, sums.design)
    square = zz - (level * _times(inverse, level, sums.design)).sum(axis=1)
    has_trend = xx[sums.design, -1, -1] > 0
    freedom = np.maximum(sums.rows - 1 - has_trend, 1.0)
    return Normal(gram, cross, np.maximum(square, 0.0), freedom, sums.design)


def _inverse(matrices: Floats) -> Floats:
    """Inverses of positive definite matrices [..., K, K], by Cholesky's factor: in a third of numpy's time."""
    factor, failed = torch.linalg.cholesky_ex(torch.from_numpy(matrices))
    if failed.any():  # but for rounding
        return np.asarray(np.linalg.inv(matrices), np.float64)
    return torch.cholesky_inverse(factor).numpy()


def _definite(gram: Floats) -> Floats:
    """[D, 2, 2] of level and trend, which a short unit may lack."""
    trace = np.trace(gram, axis1=1, axis2=2)[:, None, None]
    return gram + (1e-9 * trace + 1e-30) * np.eye(2)


def _times(matrices: Floats, vectors: Floats, design: Ints) -> Floats:
    """Returns [U, ·] the matrix [D, ·, ·] of the design of each unit times its vector [U, ·]."""
    if len(matrices) == len(vectors):  # designs are numbered as units come
        return np.asarray((matrices @ vectors[..., None])[..., 0])
    found = np.empty((len(vectors), matrices.shape[1]))
    for number, matrix in enumerate(matrices):
        members = design == number
        found[members] = vectors[members] @ matrix.T
    return found


def _at_phi(
    sums: Sums, group: Ints, phi: float, before: Solution | None, least: float | Floats, sweeps: int
) -> Solution:
    """Variances and coefficients at an autocorrelation, from those of one before.

    M = (A + 1/δ)⁻¹ of a design with gram A; what a unit says of b is (A − A M A) / v.
    """
    equations = normal_equations(sums, phi)
    gram, cross, square, freedom, design = equations
    units, size = cross.shape
    groups = int(group.max()) + 1
    members = (group == np.arange(groups)[:, None]).astype(np.float64)  # [G, K]
    count = members.sum(axis=1)
    several = units > 1
    if before is None:
        noise = np.maximum(square / freedom / 2, least)
        shared_variance = np.full(groups, noise.mean())
        own_variance = np.full(groups, 0.1 if several else 0.0)
    else:
        noise, shared_variance = before.noise, before.shared_variance
        own_variance = before.own_variance
    together = 1.0 if before is None else before.together
    own, of_shared = np.zeros((units, size)), gram
    posterior = explained = np.zeros_like(gram)
    for _ in range(sweeps):
        if several:
            posterior, of_own = _posterior(gram, own_variance, group)
            differ = own_variance[group] > 0
            explained = gram[:, :, differ] @ posterior[:, differ]
            of_shared = gram - explained[:, :, differ] @ gram[:, differ]
        # Rows of errors that go together say less of what units share.
        precision = np.bincount(design, 1 / noise, len(gram)) / together  # [D]
        information = np.tensordot(precision, of_shared, axes=1)  # [K, K]
        left = (cross - _times(explained, cross, design)) / noise[:, None]
        right = left.sum(axis=0) / together
        prior = (1 / shared_variance)[group]
        covariance = _inverse(information + np.diag(prior))
        shared = covariance @ right
        of_table = 1 - prior * np.diag(
            covariance
        )  # [K] how much the data determine of each coefficient
        fixed = members @ of_table  # [G]
        new = (members @ shared**2) / fixed.clip(1e-9, count)
        change = _change(shared_variance / noise.mean(), new / noise.mean())
        shared_variance = np.where(shared_variance > _LEAST, new.clip(_LEAST), _LEAST)
        of_table = of_table * min(1.0, together / units)
        determined = np.broadcast_to(of_table, (units, size))
        if several:
            own = _times(posterior, cross - _times(gram, shared[None].repeat(units, 0), design), design)
            of_unit = of_own[design]
            fixed = members @ of_unit.sum(axis=0)
            new = (members @ (own**2 / noise[:, None]).sum(axis=0)) / fixed.clip(1e-9)
            change = max(change, _change(own_variance, new))
            own_variance = np.where(own_variance > 0, new.clip(_LEAST), 0.0)
            determined = determined + of_unit
        noise = np.maximum(_noise(equations, shared + own, determined.sum(axis=1)), least)
        if change < _CHANGE:
            break
    return Solution(
        phi=phi,
        shared_variance=shared_variance,
        own_variance=own_variance,
        noise=noise,
        shared=shared,
        own=own,
        determined=determined,
        of_table=of_table,
        covariance=covariance,
        posterior=posterior,
        explained=explained,
        sums=sums,
        settled=change < _CHANGE,
        together=together,
    )


def _posterior(gram: Floats, own_variance: Floats, group: Ints) -> tuple[Floats, Floats]:
    """Returns M = (A + 1/δ)⁻¹ [D, K, K], and 1 − M/δ [D, K], how much of d a design determines; 0 where δ is."""
    differ = np.flatnonzero(own_variance[group])
    precision = 1 / own_variance[group[differ]]
    some = np.ix_(np.arange(len(gram)), differ, differ)
    inverse = _inverse(gram[some] + np.diag(precision))
    posterior, of_own = np.zeros_like(gram), np.zeros(gram.shape[:2])
    posterior[some] = inverse
    of_own[:, differ] = 1 - precision * np.diagonal(inverse, axis1=1, axis2=2)
    return posterior, of_own


def _change(before: Floats, after: Floats) -> float:
    """The largest change of the logarithm of a variance, over that of the noise, that is above nothing."""
    matters = np.maximum(before, after) > NOTHING
    ratio = np.log(np.maximum(after, _LEAST) / np.maximum(before, _LEAST))
    return float(np.abs(ratio[matters]).max(initial=0.0))


def _noise(equations: Normal, coefficients: Floats, determined: Floats) -> Floats:
    """[U] variances of the noise; that of a short unit leans on the others."""
    gram, cross, square, freedom, design = equations
    fitted = _times(gram, coefficients, design)  # [U, K]
    left = square - 2 * (coefficients * cross).sum(axis=1) + (coefficients * fitted).sum(axis=1)
    left = np.maximum(left, 0.0)
    free = np.maximum(freedom - determined, 0.2 * freedom)
    mean = left.sum() / free.sum()
    return np.maximum((left + _PRIOR_ROWS * mean) / (free + _PRIOR_ROWS), _LEAST)


def _autocorrelation(found: Solution) -> float:
    """φ of what coefficients, level and trend leave: Σ w_t w_{t−1} / Σ w_{t−1}²."""
    sums = found.sums
    c = np.concatenate([found.coefficients, _level(found)], axis=1)  # [U, F]
    lagged, before = (
        zz - (xz * c).sum(axis=1) * factor + (c * _times(xx, c, sums.design)).sum(axis=1)
        for zz, xz, xx, factor in zip(sums.zz[1:], sums.xz[1:], sums.xx[1:], (1, 2), strict=True)
    )
    ratio = (lagged / found.noise).sum() / max((before / found.noise).sum(), _LEAST)
    return float(np.clip(ratio, 0.0, _LARGEST_PHI))


def _together(units: Sequence[Unit], found: Solution) -> float:
    """By how much errors of units at the same time, r with variance 1, add up more than independent ones would.

        together = Σ_t (Σ_u r_tu)² / Σ_tu r_tu²

    The design effect of clusters: Moulton, "An illustration of a pitfall in estimating the effects of aggregate
    variables on micro units" (1990).
    """
    if len(units) == 1:
        return 1.0
    errors, times = [], []
    for unit, error in zip(units, whitened_errors(units, found), strict=True):
        seen = ~np.isnan(error)
        errors.append(error[seen])
        times.append(unit.time[1:][seen])
    error = np.concatenate(errors)
    _, place = np.unique(np.concatenate(times), return_inverse=True)
    total = np.bincount(place, error)
    return max(1.0, float((total**2).sum() / max((error**2).sum(), _LEAST)))


def whitened_errors(units: Sequence[Unit], found: Solution) -> list[Floats]:
    """Returns [n − 1] errors of each unit without their autocorrelation, of variance 1: (e_t − φ e_{t−1}) / √v."""
    errors = []
    for unit, fit, noise in zip(units, fitted(units, found), found.noise, strict=True):
        left = (unit.z - fit) * unit.root
        errors.append((left[1:] - found.phi * left[:-1]) / np.sqrt(noise))
    return errors


def _level(found: Solution) -> Floats:
    """[U, 2] level and slope of the trend, beside the columns."""
    sums = found.sums
    xx, xz, _ = sums.whitened(found.phi)
    left = xz[:, -2:] - _times(xx[:, -2:, :-2], found.coefficients, sums.design)
    return _times(_inverse(_definite(xx[:, -2:, -2:])), left, sums.design)


def deviations(
    units: Sequence[Unit], group: Ints, found: Solution, xx: Floats | None = None
) -> Solution:
    """Returns the solution with other units: their d at its variances and b."""
    sums = summed(units, xx)
    equations = normal_equations(sums, found.phi)
    gram, cross, _, _, design = equations
    posterior, of_own = _posterior(gram, found.own_variance, group)
    left = cross - _times(gram, found.shared[None].repeat(len(units), 0), design)
    own = _times(posterior, left, design)
    determined = found.of_table + of_own[design]
    return replace(
        found,
        noise=_noise(equations, found.shared + own, determined.sum(axis=1)),
        own=own,
        determined=determined,
        posterior=posterior,
        explained=gram @ posterior,
        sums=sums,
    )


def fitted(units: Sequence[Unit], found: Solution) -> list[Floats]:
    """Returns [n] level, trend and columns of each unit of a solution."""
    coefficients = np.concatenate([found.coefficients, _level(found)], axis=1)  # [U, F]
    designs: dict[tuple[int, bool], list[int]] = {}
    for number, unit in enumerate(units):
        designs.setdefault((id(unit.columns), _has_trend(unit)), []).append(number)
    fits: list[Floats] = [np.zeros(0)] * len(units)
    for members in designs.values():
        design = _with_level(units[members[0]])
        for member, fit in zip(members, coefficients[members] @ design.T, strict=True):
            fits[member] = fit + np.nanmean(units[member].z)
    return fits
