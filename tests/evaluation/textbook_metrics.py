"""Textbook definitions of the metrics, one function each: the slow twin of `forecaster.evaluation.metrics`.

Axes: N = any number of leading axes, H = leads, Q = quantile levels. e = actual − forecast. Means are one
sum over one count of scored cells; a NaN actual is not scored.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from forecaster.evaluation.metrics import pinball

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


def wql(actual: ArrayLike, quantiles: ArrayLike, levels: Sequence[float]) -> float:
    """Weighted quantile loss: Σ pinball, averaged over levels, / Σ|y|; no unit. Axes [N, H, Q].

    NaN where all actuals are 0. Source: Salinas et al. 2020 (DeepAR), the ρ-risk, mean over levels.

    >>> round(wql([10.0], [[8.0, 12.0]], [0.1, 0.9]), 6)
    0.04
    """
    loss = pinball(actual, quantiles, levels).mean(axis=-1)
    total = float(np.nansum(np.abs(np.asarray(actual, np.float64))))
    return float(np.nansum(loss)) / total if total > 0 else float("nan")


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


def _cell_scale(scale: ArrayLike, actual: Floats) -> Floats:
    """[N] → [N, H]: the scale of each cell. Raises where one is not above 0."""
    size = np.asarray(scale, np.float64)
    if (size <= 0).any():
        raise ValueError(f"a scale above 0, or NaN, expected, found {np.nanmin(size)}")
    return np.broadcast_to(size[..., None], actual.shape)


def _mean(cells: NDArray[np.float64] | NDArray[np.bool_]) -> float:
    return float(cells.sum() / cells.size) if cells.size else float("nan")


def mase_scale(history: ArrayLike, season_length: int) -> float:
    """Mean |y_t − y_{t−m}| over pairs both observed, in data units: the in-sample seasonal error.

    `history` is one series, rows up to the cutoff, NaN = missing. Without any pair m apart, the
    season is 1. NaN where there is no pair at all, or the mean is 0 (nothing to scale by).
    Source: Hyndman and Koehler 2006.

    >>> mase_scale([1.0, 2.0, 4.0, 7.0], season_length=2)
    4.0
    """
    return _scale(np.abs(_differences(history, season_length)))


def rmsse_scale(history: ArrayLike, season_length: int = 1) -> float:
    """Root mean (y_t − y_{t−m})², with the rules of `mase_scale`, in data units.

    >>> round(rmsse_scale([0.0, 1.0, 8.0]), 6)
    5.0
    """
    return float(np.sqrt(_scale(_differences(history, season_length) ** 2)))


def _differences(history: ArrayLike, season_length: int) -> Floats:
    """y_t − y_{t−m} of the pairs both observed; of season 1 when there are none."""
    y = np.asarray(history, np.float64)
    for step in (season_length, 1):
        change: Floats = y[step:] - y[:-step]
        change = change[~np.isnan(change)]
        if change.size:
            break
    return change


def _scale(errors: Floats) -> float:
    scale = float(errors.mean()) if errors.size else 0.0
    return scale if scale > 0 else float("nan")
