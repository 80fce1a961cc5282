"""Events whose effect differs from one time to the next: by what share of itself.

    w_t = e_t − φ e_{t−1}                            e the errors of a regression
    E w_t² = v · (a + Σ_c κ_c k_ct)                  v the noise of the unit
    k_ct = (u_ct² + φ² u_{c,t−1}²) / v               u_c the effect of event c

κ is found by least squares, weighted by 1 / (a + Σ κ k)², and never below 0; one that chance explains is 0.

Source: Hildreth and Houck, "Some estimators for a linear model with random coefficients" (1968).

Axes: U unit · n row · E event.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from forecaster.fitting.regression import Solution, Unit, whitened_errors
from forecaster.panel.arrays import Floats

_TURNS = 5  # of the weights
_FAR = 9.0  # times what is expected, at which a square is drawn in
_CHANCE = 3.0  # standard deviations
_TINY = 1e-6


def variations(units: Sequence[Unit], effects: Sequence[Floats], found: Solution) -> Floats:
    """Returns [E] κ: the variance of the effect of an event, over its square.

    Args:
        units: of the regression.
        effects: [n, E] of each unit, in units of its z; 0 where there is no event.
        found: their regression.
    """
    squares, sizes = [], []
    parts = zip(units, effects, whitened_errors(units, found), found.noise, strict=True)
    for unit, effect, error, noise in parts:
        size = (effect * unit.root[:, None]) ** 2
        size = (size[1:] + found.phi**2 * size[:-1]) / noise
        seen = ~np.isnan(error)
        squares.append(error[seen] ** 2)
        sizes.append(size[seen])
    return _beyond_chance(np.concatenate(squares), np.concatenate(sizes))


def _beyond_chance(square: Floats, size: Floats) -> Floats:
    """[E] coefficients of squares [n] on sizes [n, E], and a constant, that chance does not explain."""
    from scipy.optimize import nnls

    if len(square) == 0:
        return np.zeros(size.shape[1])
    columns = np.column_stack([np.ones(len(square)), size])
    expected = np.full(len(square), max(float(square.mean()), _TINY))
    for _ in range(_TURNS):
        near = np.minimum(square, _FAR * expected) / expected
        weighted = columns / expected[:, None]
        found, _ = nnls(weighted, near)
        expected = np.maximum(columns @ found, _TINY)
    spread = np.var((square / expected).clip(max=_FAR))
    weighted = columns / expected[:, None]
    gram = weighted.T @ weighted
    deviation = np.sqrt(spread * np.diag(np.linalg.pinv(gram)).clip(min=0.0))
    kept: Floats = np.where(found > _CHANCE * deviation, found, 0.0)[1:]
    return kept
