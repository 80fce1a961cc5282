"""Covariates that lead the targets: known ones, and past ones by a horizon or more, which are as good as known.

    x ─▶ its innovations u ─▶ correlation with those of y, lag by lag ─▶ lags beyond chance ─▶ terms

    s_t = x_t − its mean at the phase of t          phases of the season, and of the week where steps are finer
    u_t = s_t − c − Σ w_l s_{t−l}                   l = 1, m, m + 1; m steps a season; v_t the same of y
    r_k = Σ u_{t−k} v_t / √(Σ u² Σ v²)              beyond chance: |r_k| > 4 / √n; k < 0: the target leads

Two series that each go on as they were, or have the same season, are alike at many lags; their innovations are not.
Shorter leads of past covariates end within the horizon: `arx` and the network of a fit read them. What a known
covariate did on the last steps may act on for long, as advertising and cold do: adstock a, by three half-lives.

    s_t = Σ β_j x_{j,t} + Σ γ_h a_{h,t} + e_t       x_j columns of known terms, β of each series; e autoregressive
    χ² = n (RSS without a / RSS − 1) > 22           three values γ beyond chance, as 4 standard deviations of one

Sources: Box and Jenkins, "Time series analysis: forecasting and control" (1970), on the identification of transfer
functions; Broadbent, "One way TV advertisements work" (1979), on adstock.

Axes: n row · k lag.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from forecaster.panel.arrays import Floats
from forecaster.panel.calendar import DAY, Calendar
from forecaster.panel.panel import Panel
from forecaster.windows.effect_columns import (
    REACH,
    Dates,
    Term,
    adstock_term,
    decaying,
    drawn,
    number_term,
    shifted,
)
from forecaster.windows.index import even_draw

_SERIES, _ROWS = 32, 2000  # that are looked at, the last ones
_CHANCE = 4.0  # standard deviations of a correlation of innovations
_FEWEST_ROWS = 40  # of all series, at a lag
_FEWEST_LAGS, _SEASONS, _MOST_LAGS = 14, 2, 200  # beyond the horizon
_MOST = 3  # lags of a covariate
_HALF_LIVES = (1.0, 3.0, 10.0)  # steps
_CHI_SQUARE = 22.0  # of three columns, as rare as 4 standard deviations
_FEWEST_PERIODS = 3  # that show means by phase
_TINY = 1e-9  # standard deviations: rounding
_FAR = 5.0  # standard deviations, at which innovations are drawn in


def leading_terms(panel: Panel, horizon: int) -> Iterator[Term]:
    """Yields a term for each lag, at least a horizon, at which a past covariate leads a target."""
    for term, lags in _leading(panel, panel.schema.past_numeric, horizon):
        for lag in lags:
            yield _before(term, lag)


def carried_terms(panel: Panel, known: Sequence[Term]) -> Iterator[Term]:
    """Yields a term for each lag at which a known number leads a target, and for what numbers and events leave.

    A target may lead a number, too, as sales do before a price rises. Adstock is the same as a target that goes on
    as it was: its lags need not be beyond chance.
    """
    if not panel.regular or not known:
        return
    numbers = [term.column for term in known if term.kind == "number" and not term.is_detail]
    for term, lags in _leading(panel, numbers, 1, REACH):
        for lag in lags:
            yield _before(term, lag)
    whole = [term for term in known if not term.is_detail or term.kind in ("around", "lasting")]
    plain = [replace(term, by_clock=False) for term in whole]
    carried = [term for term in plain if term.kind in ("number", "event")]
    if not carried:
        return
    evidence = _Adstock(panel, plain)
    for term in carried:
        if evidence.of(term) > _CHI_SQUARE:
            for half_life in _HALF_LIVES:
                yield adstock_term(term, half_life)


def _before(term: Term, lag: int) -> Term:
    """The term of a number so many steps before; of a negative lag, later."""
    when = "before" if lag > 0 else "later"
    return replace(term, name=f"{term.name} {abs(lag)} steps {when}", lag=lag)


def _leading(
    panel: Panel, names: Sequence[str], least: int, ahead: int = 0
) -> Iterator[tuple[Term, list[int]]]:
    """Yields terms of numbers, and by how many steps they lead a target: `least` or more, or −1 to −`ahead`."""
    if not panel.regular or not names:
        return
    most = int(np.clip(_SEASONS * panel.calendar.season_length, _FEWEST_LAGS, _MOST_LAGS))
    lags = [*range(-ahead, 0), *range(least, least + most + 1)]
    pieces = [panel.values[rows] for rows in _last_rows(panel)]
    targets = [
        [innovations(piece[:, channel], panel.calendar) for piece in pieces]
        for channel in range(panel.n_channels)
    ]
    for name in names:
        place = panel.schema.columns.index(name)
        covariate = [innovations(piece[:, place], panel.calendar) for piece in pieces]
        beyond = np.max([beyond_chance(covariate, one, lags) for one in targets], axis=0)
        strongest = np.argsort(-beyond, kind="stable")[:_MOST]
        found = sorted(lags[one] for one in strongest if beyond[one] > 1)
        if found:
            yield number_term(name, place, drawn(panel.values[:, place])), found


def _last_rows(panel: Panel) -> list[slice]:
    """Those of some series, of those that have any."""
    there = np.flatnonzero(np.diff(panel.indptr))
    some = there[even_draw(len(there), _SERIES)]
    stops = panel.indptr[some + 1].tolist()
    starts = np.maximum(panel.indptr[some], panel.indptr[some + 1] - _ROWS).tolist()
    return [slice(start, stop) for start, stop in zip(starts, stops, strict=True)]


class _Adstock:
    """Whether adstock says more of the targets of a panel than chance, beside all known terms."""

    def __init__(self, panel: Panel, known: Sequence[Term]):
        self.panel, self.rows = panel, _last_rows(panel)
        beside = []
        for rows in self.rows:
            clock = Dates(panel.calendar, panel.time[rows])
            columns = [term.columns(panel, rows, clock) for term in known]
            # By the season, too, or what it takes out of the target were looked for in the adstock.
            flat = [_flat(column, panel.calendar) for column in np.concatenate(columns, axis=1).T]
            beside.append(np.column_stack([np.ones(rows.stop - rows.start), *flat]))
        self.channels = []
        for channel in range(panel.n_channels):
            targets = [_flat(panel.values[rows, channel], panel.calendar) for rows in self.rows]
            self.channels.append(Remainder(beside, [one.clip(-_FAR, _FAR) for one in targets]))

    def of(self, term: Term) -> float:
        """Returns the largest χ² of the adstock of a term, of the channels."""
        columns = []
        for rows in self.rows:
            number = _flat(term.values(self.panel, rows), self.panel.calendar).clip(-_FAR, _FAR)
            before = np.nan_to_num(shifted(number, 1))
            adstock = (decaying(before, half_life) for half_life in _HALF_LIVES)
            flat = [_flat(column, self.panel.calendar) for column in adstock]
            columns.append(np.stack(flat, axis=1))
        return max(channel.chi_square(columns) for channel in self.channels)


class Remainder:
    """What columns leave of the targets of some series, each with weights of its own.

    By generalised least squares (Cochrane and Orcutt 1949): errors e of neighbouring rows are alike.

        φ = Σ e_t e_{t−1} / Σ e²_{t−1}              y_t − φ y_{t−1} on x_t − φ x_{t−1}
    """

    def __init__(self, columns: Sequence[Floats], targets: Sequence[Floats]):
        """Takes columns [n, k], the first of which is 1, and targets [n] of each series; NaN = missing."""
        pairs = [*zip(columns, targets, strict=True)]
        known = [np.isfinite(y) for y in targets]
        errors = [np.full(len(y), np.nan) for y in targets]
        for error, there, (x, y) in zip(errors, known, pairs, strict=True):
            error[there] = _left(y[there], _basis(x[there]))
        product = sum(np.nansum(one[1:] * one[:-1]) for one in errors)
        square = sum(np.nansum(one[:-1] ** 2) for one in errors)
        self.phi = float(product / square) if square > 0 else 0.0
        changes = [self._changes(y) for y in targets]
        self.known = [np.isfinite(one) for one in changes]
        self.basis = [
            _basis(self._changes(x)[there]) for x, there in zip(columns, self.known, strict=True)
        ]
        parts = zip(changes, self.known, self.basis, strict=True)
        self.left = np.concatenate([_left(y[there], basis) for y, there, basis in parts])
        self.freedom = len(self.left) - sum(basis.shape[1] for basis in self.basis)

    def _changes(self, values: Floats) -> Floats:
        """Values less φ times the row before."""
        return values[1:] - self.phi * values[:-1]

    def chi_square(self, added: Sequence[Floats]) -> float:
        """Returns χ² of further columns [n, h], whose weights all series share; 0 where rows are few."""
        if self.freedom < _FEWEST_ROWS:
            return 0.0
        parts = zip(added, self.known, self.basis, strict=True)
        columns = [_left(self._changes(a)[there], basis) for a, there, basis in parts]
        rest = _left(self.left, _basis(np.concatenate(columns)))
        return float(self.freedom * (np.sum(self.left**2) / max(np.sum(rest**2), _TINY) - 1))


def _basis(columns: Floats) -> Floats:
    """[n, k] orthogonal columns that span the same."""
    return np.asarray(np.linalg.qr(columns)[0])


def _left(values: Floats, basis: Floats) -> Floats:
    """What orthogonal columns leave of values [n] or [n, m] (Frisch and Waugh 1933)."""
    return np.asarray(values - basis @ (basis.T @ values))


def innovations(values: Floats, calendar: Calendar) -> Floats:
    """Returns [n] what the season and the last steps do not say of values, of variance 1; NaN where not known."""
    found, season = np.full(len(values), np.nan), calendar.season_length
    known = np.isfinite(values)
    if not known.any() or values[known].min() == values[known].max():
        return found
    values = _flat(values, calendar)
    lags = sorted({1, season, season + 1})
    before = np.stack([shifted(values, lag) for lag in lags], axis=1)
    columns = np.column_stack([before, np.ones(len(values))])
    known &= np.isfinite(columns).all(axis=1)
    if known.sum() <= 2 * columns.shape[1]:
        return found
    weights, *_ = np.linalg.lstsq(columns[known], values[known], rcond=None)
    left = values[known] - columns[known] @ weights
    spread = left.std()
    if spread > _TINY:
        found[known] = (left / spread).clip(-_FAR, _FAR)
    return found


def _flat(values: Floats, calendar: Calendar) -> Floats:
    """[n] in standard deviations from their mean, without the season and, on finer steps, the week."""
    known = np.isfinite(values)
    if not known.any():
        return values
    values = (values - values[known].mean()) / (values[known].std() + _TINY)
    finer = not calendar.integer and calendar.step < DAY
    for period in (calendar.season_length, 7 * DAY // calendar.step if finer else 1):
        values = values - _mean_by_phase(values, int(period))
    return values


def _mean_by_phase(values: Floats, period: int) -> Floats:
    """[n] the mean of the values at each phase of a period; 0 where there are not several of all."""
    if len(values) < _FEWEST_PERIODS * period:
        return np.zeros(len(values))
    phase = np.arange(len(values)) % period
    known = np.isfinite(values)
    total = np.bincount(phase[known], values[known], period)
    count = np.bincount(phase[known], minlength=period)
    return (total / np.maximum(count, 1))[phase]


def beyond_chance(covariate: Sequence[Floats], target: Sequence[Floats], lags: Sequence[int]) -> Floats:
    """Returns [k] |r_k| over what chance allows, of the innovations of all series; 0 where rows are few."""
    sums = np.zeros((4, len(lags)))
    for u, v in zip(covariate, target, strict=True):
        u_known, v_known = np.isfinite(u) * 1.0, np.isfinite(v) * 1.0
        u, v = np.nan_to_num(u), np.nan_to_num(v)
        pairs = ((u, v), (u**2, v_known), (u_known, v**2), (u_known, v_known))
        for number, lag in enumerate(lags):
            early, late = max(0, -lag), max(0, lag)
            stop = max(0, len(u) - abs(lag))
            sums[:, number] += [
                one[early : early + stop] @ other[late : late + stop] for one, other in pairs
            ]
    product, u_square, v_square, rows = sums
    size = np.sqrt(u_square * v_square)
    correlation = np.divide(np.abs(product), size, out=np.zeros(len(lags)), where=size > 0)
    return np.where(rows < _FEWEST_ROWS, 0.0, correlation * np.sqrt(rows) / _CHANCE)
