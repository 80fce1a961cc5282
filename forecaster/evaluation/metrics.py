"""How far forecasts are from the truth.

Comes in: numpy arrays of actuals and forecasts in data units. Goes out: one number per call (from
`pinball` and `crps`: an array), in float64. What scaled metrics divide by is in `scales.py`.

Promised:
- a NaN actual is not scored, whatever the forecast says there;
- a NaN forecast of a real actual is a `ValueError`: no window is dropped in silence;
- a mean is one sum over one count of scored cells, never a mean of means, unless the definition
  says so (`rmsse`); where no cell is scored it is NaN.

Axes: N = any number of leading axes (series, cutoff, channel, …), H = leads, Q = quantile levels.
Actuals and point forecasts are [N, H], quantiles [N, H, Q], scales [N] or anything that broadcasts
to it. e = actual − forecast.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]


def mae(actual: ArrayLike, forecast: ArrayLike) -> float:
    """Mean absolute error, Σ|e| / count, in data units. Axes [N, H].

    >>> mae([1.0, 2.0, float("nan")], [2.0, 4.0, 9.0])
    1.5
    """
    y, f = _scored(actual, forecast)
    return _mean(np.abs(y - f))


def mse(actual: ArrayLike, forecast: ArrayLike) -> float:
    """Mean squared error, Σe² / count, in squared data units. Axes [N, H].

    >>> mse([1.0, 2.0], [2.0, 4.0])
    2.5
    """
    y, f = _scored(actual, forecast)
    return _mean((y - f) ** 2)


def rmse(actual: ArrayLike, forecast: ArrayLike) -> float:
    """Root of the mean squared error, √(Σe² / count), in data units. Axes [N, H].

    >>> rmse([0.0, 0.0], [1.0, 7.0])
    5.0
    """
    return float(np.sqrt(mse(actual, forecast)))


def bias(actual: ArrayLike, forecast: ArrayLike) -> float:
    """Mean of forecast − actual, in data units: above 0 when we forecast too much. Axes [N, H].

    >>> bias([1.0, 2.0], [2.0, 4.0])
    1.5
    """
    y, f = _scored(actual, forecast)
    return _mean(f - y)


def smape(actual: ArrayLike, forecast: ArrayLike) -> float:
    """Mean symmetric percentage error, 200·|e| / (|y| + |f|), 0 to 200 percent. Axes [N, H].

    0/0 counts as 0. Source: the M4 competition (Makridakis, Spiliotis, Assimakopoulos 2020).

    >>> smape([100.0, 0.0], [300.0, 0.0])
    50.0
    """
    y, f = _scored(actual, forecast)
    size = np.abs(y) + np.abs(f)
    return _mean(np.divide(200 * np.abs(y - f), size, out=np.zeros_like(size), where=size > 0))


def pinball(actual: ArrayLike, quantiles: ArrayLike, levels: Sequence[float]) -> Floats:
    """Quantile loss of each cell, 2·max(τe, (τ − 1)e), e = y − q_τ, in data units.

    [N, H] and [N, H, Q] → [N, H, Q], NaN where the actual is. The factor 2 makes the loss of the
    median its absolute error. Source: Koenker and Bassett 1978; factor as in fev-bench 2025.

    >>> pinball([10.0], [[8.0, 12.0]], [0.1, 0.9]).round(6).tolist()
    [[0.4, 0.4]]
    """
    y = np.asarray(actual, np.float64)
    q, tau = _checked_quantiles(y, quantiles, levels)
    _refuse_missing(y[..., None], q)
    error = y[..., None] - q
    loss: Floats = 2 * np.maximum(tau * error, (tau - 1) * error)
    return loss


def wql(actual: ArrayLike, quantiles: ArrayLike, levels: Sequence[float]) -> float:
    """Weighted quantile loss: Σ pinball, averaged over levels, / Σ|y|; no unit. Axes [N, H, Q].

    NaN where all actuals are 0. Source: Salinas et al. 2020 (DeepAR), the ρ-risk, mean over levels.

    >>> round(wql([10.0], [[8.0, 12.0]], [0.1, 0.9]), 6)
    0.04
    """
    loss = pinball(actual, quantiles, levels).mean(axis=-1)
    total = float(np.nansum(np.abs(np.asarray(actual, np.float64))))
    return float(np.nansum(loss)) / total if total > 0 else float("nan")


def crps(actual: ArrayLike, paths: ArrayLike) -> Floats:
    """Continuous ranked probability score of each cell, E|X − y| − ½·E|X − X′|, in data units.

    [N, H] and [N, H, S] → [N, H], NaN where the actual is; X and X′ are any two of the S draws, the
    same one included: the integral of (share of draws ≤ x − 1{y ≤ x})² over x. Where there are only
    quantiles, the mean of `pinball` over evenly spaced levels approaches it as they grow in number.
    Source: Gneiting and Raftery 2007.

    >>> crps([1.0], [[0.0, 4.0]]).tolist()
    [1.0]
    """
    y, x = np.asarray(actual, np.float64), np.sort(np.asarray(paths, np.float64), axis=-1)
    if x.shape[:-1] != y.shape or not x.shape[-1]:
        raise ValueError(f"draws of shape {(*y.shape, 'S')} expected, found {x.shape}")
    _refuse_missing(y[..., None], x)
    draws = x.shape[-1]
    rank = 2 * np.arange(1, draws + 1) - draws - 1
    score: Floats = np.abs(x - y[..., None]).mean(axis=-1) - (x @ rank) / draws**2
    return score


def coverage(actual: ArrayLike, lower: ArrayLike, upper: ArrayLike) -> float:
    """Share of actuals with lower ≤ actual ≤ upper, 0 to 1. Axes [N, H].

    >>> coverage([1.0, 5.0], [0.0, 0.0], [2.0, 2.0])
    0.5
    """
    y, low, high = _scored(actual, lower, upper)
    return _mean((low <= y) & (y <= high))


def interval_width(actual: ArrayLike, lower: ArrayLike, upper: ArrayLike) -> float:
    """Mean of upper − lower over the cells that `coverage` scores, in data units. Axes [N, H].

    >>> interval_width([1.0, float("nan")], [0.0, 0.0], [2.0, 9.0])
    2.0
    """
    _, low, high = _scored(actual, lower, upper)
    return _mean(high - low)


def mase(actual: ArrayLike, forecast: ArrayLike, scale: ArrayLike) -> float:
    """Mean of |e| / scale over scored cells; no unit. Axes [N, H], scale [N].

    Rows whose scale is NaN (see `mase_scale`) are left out; a NaN forecast there is still a fault.
    Source: Hyndman and Koehler 2006.

    >>> mase([[1.0, 2.0], [5.0, 5.0]], [[2.0, 4.0], [0.0, 0.0]], [3.0, float("nan")])
    0.5
    """
    y = np.asarray(actual, np.float64)
    size = _cell_scale(scale, y)
    error, size = np.abs(np.subtract(*_scored(y, forecast))), size[~np.isnan(y)]
    return _mean((error / size)[~np.isnan(size)])


def rmsse(actual: ArrayLike, forecast: ArrayLike, scale: ArrayLike) -> float:
    """Mean over rows of √(mean over leads of e²) / scale; no unit. Axes [N, H], scale [N].

    The scale is `rmsse_scale`'s. Here the definition is a mean over rows of a root over leads.
    Rows without a scored lead, or whose scale is NaN, are left out.
    Source: the M5 competition (Makridakis, Spiliotis, Assimakopoulos 2022).

    >>> rmsse([[0.0, 0.0]], [[1.0, 7.0]], [2.5])
    2.0
    """
    y, f = np.asarray(actual, np.float64), np.asarray(forecast, np.float64)
    _scored(y, f)  # for its faults: the cells have to stay in their rows here
    size = _cell_scale(scale, y)[..., 0]
    count = (~np.isnan(y)).sum(axis=-1)
    squares = np.nansum((y - f) ** 2, axis=-1)
    used = (count > 0) & ~np.isnan(size)
    return _mean(np.sqrt(squares[used] / count[used]) / size[used])


def sql(actual: ArrayLike, quantiles: ArrayLike, levels: Sequence[float], scale: ArrayLike) -> float:
    """Mean of pinball / scale over scored cells and levels; no unit. Axes [N, H, Q], scale [N].

    The scale is `mase_scale`'s; rows where it is NaN are left out, as in `mase`. Source: fev-bench
    (Shchur et al. 2025), the scaled quantile loss.

    >>> sql([[10.0]], [[[6.0]]], [0.5], [2.0])
    2.0
    """
    y = np.asarray(actual, np.float64)
    loss = pinball(y, quantiles, levels).mean(axis=-1) / _cell_scale(scale, y)
    return _mean(loss[~np.isnan(loss)])


def skill(score: float, baseline: float) -> float:
    """1 − score / baseline: the share of the baseline's error that is gone; NaN for baseline 0.

    >>> skill(3.0, 4.0)
    0.25
    """
    return 1 - score / baseline if baseline != 0 else float("nan")


def _scored(actual: ArrayLike, *forecasts: ArrayLike) -> list[Floats]:
    """The scored cells of the actual and of each forecast, as flat float64 arrays."""
    y = np.asarray(actual, np.float64)
    others = [np.asarray(forecast, np.float64) for forecast in forecasts]
    for other in others:
        if other.shape != y.shape:
            raise ValueError(f"a forecast of shape {y.shape} expected, found {other.shape}")
        _refuse_missing(y, other)
    observed = ~np.isnan(y)
    return [array[observed] for array in (y, *others)]


def _refuse_missing(actual: Floats, forecast: Floats) -> None:
    dropped = int((np.isnan(forecast) & ~np.isnan(actual)).sum())
    if dropped:
        raise ValueError(
            f"a forecast of each real actual expected, found {dropped} NaN: "
            "make the actual NaN where an entry is not to be scored"
        )


def _checked_quantiles(
    actual: Floats, quantiles: ArrayLike, levels: Sequence[float]
) -> tuple[Floats, Floats]:
    q, tau = np.asarray(quantiles, np.float64), np.asarray(levels, np.float64)
    if tau.ndim != 1 or not ((tau > 0) & (tau < 1)).all():
        raise ValueError(f"quantile levels between 0 and 1 expected, found {levels}")
    if q.shape != (*actual.shape, len(tau)):
        raise ValueError(f"quantiles of shape {(*actual.shape, len(tau))} expected, found {q.shape}")
    return q, tau


def _cell_scale(scale: ArrayLike, actual: Floats) -> Floats:
    """[N] → [N, H]: the scale of each cell. Raises where one is not above 0."""
    size = np.asarray(scale, np.float64)
    if (size <= 0).any():
        raise ValueError(f"a scale above 0, or NaN, expected, found {np.nanmin(size)}")
    return np.broadcast_to(size[..., None], actual.shape)


def _mean(cells: NDArray[np.float64] | NDArray[np.bool_]) -> float:
    return float(cells.sum() / cells.size) if cells.size else float("nan")
