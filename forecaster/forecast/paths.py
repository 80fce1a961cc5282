"""Joint sample paths: the distribution of each cell, in an order that errors at earlier cutoffs have.

    u      level of the truth in the forecast of its cell, at earlier cutoffs common to all series
    z      Φ⁻¹(u), an error as of a normal distribution
    e      Σⱼ gⱼ zⱼ / √(Σⱼ zⱼ²), g random directions: correlated over leads, series and channels as these errors are
    f      √ρ common + √(1 − ρ) own: over leads as the errors of all series together, ρ between two series
    order  √(1 − λ) e + √λ f, λ = 10 / (10 + cutoffs without overlap)

Where a path is the r-th smallest of S by this order, it has the r-th value of its cell (`path_values`). So no
distribution of a cell is changed. Sources: Clark, Gangopadhyay, Hay, Rajagopalan and Wilby, "The Schaake
shuffle" (2004), for the ranks; a Gaussian copula in their place, since cutoffs are few. The random numbers
are functions of seed, series and cutoff only: neither batch, shard nor the order of series changes a path.

Axes: J earlier cutoff · K series and channel · N series · H lead · C channel · S path · Q quantile level.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from forecaster.errors import number_of
from forecaster.panel.arrays import Bools, Floats, Ints, text_hashes
from forecaster.panel.panel import Panel

if TYPE_CHECKING:
    from forecaster.forecast.forecast import Forecast
    from forecaster.model.ensemble import Ensemble

GRID = tuple((place + 0.5) / 100 for place in range(100))
"""Levels whose quantiles a truth is compared with."""
FEWEST = 10
"""Cutoffs below which a status says how few there are."""
UNKNOWN = 255
"""Stands for an error that is not known."""
_PRIOR = 10.0  # cutoffs without overlap at which a series' own count as much as what all have in common
_LEAD_PRIOR, _PHI = 5.0, 0.65  # errors that a usual autocorrelation counts as, and that
_SERIES_PRIOR, _RHO = 2.0, 0.1  # cutoffs of two series that a usual correlation counts as, and that
_CHUNK = 64  # series and channels at a time: small enough for the cache
_BETWEEN = "\x1f"  # the unit separator: no key holds it


@dataclass(frozen=True)
class ErrorLevels:
    """At which levels of its forecasts the truth was, at cutoffs common to all series."""

    counts: NDArray[np.uint8]
    """[J, K, H] how many of the 100 quantiles of `GRID` lie below the truth (of equal ones see `_counts` of
    `error_levels`); `UNKNOWN` = no truth or forecast."""
    hashes: Ints
    """[K] `pair_hashes` of series and channels; others have what all have in common."""
    spacing: int
    """Steps between cutoffs."""
    recent: Ints
    """[K] `recent_digests` of the rows that were read."""

    @property
    def measured(self) -> ErrorLevels:
        """These errors."""
        return self

    @cached_property
    def _known(self) -> Bools:
        """[J, K, H] whether an error is known."""
        return np.asarray(self.counts != UNKNOWN)

    @cached_property
    def cutoffs(self) -> int:
        """Cutoffs with a known error."""
        return int(self._known.any(axis=(1, 2)).sum())

    @cached_property
    def _normal(self) -> Floats:
        """[J, K, H] errors as of a normal distribution; 0 where not known, which counts for nothing."""
        from scipy.special import ndtri  # a tenth of a second, which most forecasts have no use for

        level = (self.counts + 0.5) / (len(GRID) + 1)
        return np.where(self._known, ndtri(np.where(self._known, level, 0.5)), 0.0)

    @cached_property
    def _own(self) -> dict[int, int]:
        """The place of each series and channel, by its hash."""
        return {number: place for place, number in enumerate(self.hashes.tolist())}

    def _independent(self, cutoffs: Ints) -> Floats:
        """Returns how many of some numbers of cutoffs do not overlap."""
        apart = 1 + (cutoffs - 1) * self.spacing / self.counts.shape[2]
        return np.where(cutoffs > 0, np.minimum(cutoffs, apart), 0.0)

    @cached_property
    def own_share(self) -> Floats:
        """[K] 1 − λ of each series and channel."""
        independent = self._independent(self._known.any(axis=2).sum(axis=0))
        return independent / (_PRIOR + independent)

    @cached_property
    def correlation(self) -> float:
        """ρ, the mean correlation of two series or channels at one lead, shrunk to ρ₀ = 0.1.

        Of K series a cutoff shows it with the variance ∝ (ρ₀ + (1 − ρ₀) / K)².
        """
        errors = self._normal
        count = self._known.sum(axis=1)  # [J, H]
        squares = (errors**2).sum(axis=1)
        products = (errors.sum(axis=1) ** 2 - squares).sum()  # of each pair, twice
        pairs = (count * (count - 1)).sum()
        trust = float(self._independent(np.array(self.cutoffs))) if pairs else 0.0
        found = products / pairs * count.sum() / squares.sum() if pairs else 0.0
        deviation = _RHO + (1 - _RHO) / max(2, errors.shape[1])
        of_two = _RHO + (1 - _RHO) / 2
        prior = _SERIES_PRIOR * (deviation / of_two) ** 2
        return float(np.clip((trust * found + prior * _RHO) / (trust + prior), 0.0, 0.9))

    @cached_property
    def over_leads(self) -> Floats:
        """[H, H] the Cholesky factor of the correlation over leads of the errors of all series.

        Shrunk to that of an autoregression of the first order, φ^|h − k|.
        """
        errors, horizon = self._normal, self.counts.shape[2]
        together = np.tensordot(errors, errors, axes=([0, 1], [0, 1]))  # [H, H]
        deviation = np.sqrt(np.maximum(np.diag(together), 1e-9))
        found = together / np.outer(deviation, deviation)
        trust = float(self._independent(np.array(self.cutoffs))) * min(self.counts.shape[1], 10)
        lag = np.abs(np.subtract.outer(np.arange(horizon), np.arange(horizon)))
        first = float(found[lag == 1].mean()) if horizon > 1 else 0.0
        phi = np.clip((trust * first + _LEAD_PRIOR * _PHI) / (trust + _LEAD_PRIOR), 0.0, 0.97)
        shrunk = (trust * found + _LEAD_PRIOR * phi**lag) / (trust + _LEAD_PRIOR)
        np.fill_diagonal(shrunk, 1.0 + 1e-6)
        return np.linalg.cholesky(shrunk)

    def order(
        self, hashes: Ints, keys: NDArray[np.uint64], count: int, seed: int
    ) -> NDArray[np.float32]:
        """Returns [K, S, H] numbers whose order within a cell is that of its paths.

        Args:
            hashes: of series and channels.
            keys: their random keys.
            count: S paths.
            seed: of what series share.
        """
        cutoffs, _, horizon = self.counts.shape
        root = self.over_leads.T.astype(np.float32)
        shared = np.random.default_rng(seed)
        common = shared.standard_normal((count, horizon), np.float32) @ root
        weights = shared.standard_normal((count, cutoffs), np.float32)
        # g of one length: else all series are far out in the same paths, and skewed ones add up.
        weights *= cutoffs**0.5 / np.linalg.norm(weights, axis=1, keepdims=True).clip(min=1e-6)
        own = np.stack(
            [np.random.default_rng(key).standard_normal((count, horizon), np.float32) for key in keys]
        )
        rho = self.correlation
        order = np.float32(rho**0.5) * common + np.float32((1 - rho) ** 0.5) * (own @ root)
        places = np.array([self._own.get(number, -1) for number in hashes.tolist()])
        seen = np.flatnonzero(places >= 0)
        errors = self._normal[:, places[seen]].astype(np.float32).transpose(1, 0, 2)  # [k, J, H]
        size = np.sqrt((errors**2).sum(axis=1, keepdims=True))  # [k, 1, H]
        empirical = weights @ errors / np.maximum(size, 1e-6)  # [k, S, H]
        share = self.own_share[places[seen], None, None].astype(np.float32)
        order[seen] = np.sqrt(1 - share) * order[seen] + np.sqrt(share) * empirical
        return order


class Measurable(Protocol):
    """Errors, or what measures them when they are needed."""

    @property
    def measured(self) -> ErrorLevels:
        """The errors."""


@dataclass(frozen=True)
class PathSource:
    """Draws sample paths of forecasts of one model."""

    errors: Measurable
    ensemble: Ensemble
    """Knows the bounds of the target."""

    @property
    def scarce(self) -> str:
        """What a status says where errors are of fewer than ten cutoffs; else nothing."""
        found = self.errors.measured.cutoffs
        return f"errors of {number_of(found, 'earlier cutoff')}" * (found < FEWEST)

    def draw(self, forecast: Forecast, count: int, seed: int) -> Floats:
        """Returns [N, S, H, C] paths of a forecast in data units, NaN where there is none."""
        n, horizon, channels, _ = forecast.quantiles.shape
        panel, series, mean = forecast.panel, forecast.series, forecast.mean
        hashes = pair_hashes(panel, series)  # [N, C]
        keys = path_keys(panel, series, forecast.cutoff, seed)[:, None] + np.arange(channels)
        errors = self.errors.measured
        assert mean is not None
        paths = np.empty((n, count, horizon, channels))
        size = max(1, _CHUNK // channels)
        for start in range(0, n, size):
            part = slice(start, start + size)
            values = path_values(self.ensemble, forecast.quantiles[part], mean[part], count)
            pairs = keys[part].reshape(-1).view(np.uint64)
            order = errors.order(hashes[part].reshape(-1), pairs, count, seed)[:, :, :horizon]
            rank = order.argsort(axis=1).reshape(-1, channels, count, horizon).transpose(0, 2, 3, 1)
            np.put_along_axis(paths[part], rank, np.moveaxis(values, -1, 1), axis=1)
        return self.ensemble.settled(torch.from_numpy(paths)).numpy()


def path_values(ensemble: Ensemble, quantiles: Floats, mean: Floats, count: int) -> Floats:
    """Returns [n, H, C, S] the values of the paths of each cell, rising: quantiles of levels (r − ½) / S.

    Args:
        ensemble: what forecast them.
        quantiles: [n, H, C, Q].
        mean: [n, H, C].
        count: S.
    """
    places = [(rank + 0.5) / count for rank in range(count)]
    return ensemble.values(torch.from_numpy(quantiles), torch.from_numpy(mean), places).numpy()


def pair_hashes(panel: Panel, series: Ints) -> Ints:
    """Returns [N, C] a hash of the key of some series and the name of each channel."""
    channels = panel.schema.target
    names = [f"{key}{_BETWEEN}{channel}" for key in _keys(panel, series) for channel in channels]
    return text_hashes(names).reshape(len(series), len(channels))


def path_keys(panel: Panel, series: Ints, cutoff: Ints, seed: int) -> Ints:
    """Returns [N] random keys of sample paths: a hash of seed, series and cutoff.

    So paths are the same on every machine and beside whatever other windows. A single series without a
    key has no name in it, whatever its file's is.
    """
    windows = zip(cutoff.tolist(), _keys(panel, series), strict=True)
    return text_hashes([f"{seed}{_BETWEEN}{time}{_BETWEEN}{name}" for time, name in windows])


def _keys(panel: Panel, series: Ints) -> list[str]:
    if not panel.keys.width:
        return [""] * len(series)
    return [_BETWEEN.join(str(part) for part in row) for row in panel.keys[series].rows()]
