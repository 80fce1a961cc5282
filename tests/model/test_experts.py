"""Experts against slow, obvious loops; their errors, weights and what they must survive."""

import json
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
import torch
from small_networks import (
    EXPERTS,
    PLAIN,
    make_inputs,
    make_network,
    with_targets,
)

from forecaster.config import Expert, ExpertPlan, ModelPlan
from forecaster.fitting.experts.pool import bare_network, solve_experts
from forecaster.fitting.fit import resolve
from forecaster.model.autoregression import RIDGE, autoregression, coefficients
from forecaster.model.closed_forms import DAMPED, ETS, TRENDS
from forecaster.model.embedding import Shape
from forecaster.model.evidence import positions
from forecaster.model.experts import CUTOFFS, Experts
from forecaster.model.scaling import ContextScaler, Scale
from forecaster.windows.batch import Inputs, no_effects
from forecaster.windows.store import training_store
from forecaster.windows.streams import WindowSequence

ALL = tuple(name for name in get_args(Expert) if name not in ("linear", "arx"))
SEASON, SECOND, MEMORY, SPACING, HORIZON = 4, 12, 24, 2, 15
HISTORY = 3 * SECOND + CUTOFFS * SPACING


def make_experts(names=ALL, season=SEASON, second=SECOND, memory=MEMORY, horizon=HORIZON):
    pool = ExpertPlan(
        experts=names,
        history_length=memory + second + CUTOFFS * SPACING,
        memory=memory,
        cutoff_spacing=SPACING,
        seasons=(season, second),
    )
    config = ModelPlan(context_length=2, patch=1, decoder_patch=1, pool=pool)
    experts = Experts(config, Shape(horizon=horizon, channels=1))
    experts.intermittent[:] = True
    return experts


def pool_of(experts, rows):
    """The pool of rows [R, T], which are in scaled units already."""
    history = torch.as_tensor(np.array(rows), dtype=torch.float64)[..., None]
    count, empty = len(history), torch.zeros(len(history), 2, 0)
    observed = ~history.isnan()
    inputs = Inputs(
        context=history[:, -2:],
        observed=observed[:, -2:],
        past=empty,
        past_observed=empty.bool(),
        known=empty,
        known_observed=empty.bool(),
        static=empty[:, 0],
        static_category=empty[:, 0].long(),
        past_category=empty.long(),
        known_category=empty.long(),
        phase=empty,
        elapsed=torch.zeros(count, 2),
        channel=torch.ones(count, 1, dtype=torch.int64),
        history=history,
        history_observed=observed,
        drivers=empty,
        **no_effects(count, 1),
    )
    zero = torch.zeros(count, 1, dtype=torch.float64)
    return experts(inputs, Scale(zero, zero, zero + 1), ContextScaler(1), empty)


def histories(seed=0, length=HISTORY):
    """Rows: whole, with gaps, of few steps, counts, and growth by one factor."""
    rng = np.random.default_rng(seed)
    time = np.arange(length)
    wave = np.array([2.0, -1.0, 0.5, 3.0])[time % 4] * (1 + time / 30)
    rows = wave + 0.05 * time + rng.normal(size=(10, length))
    rows[1, rng.random(length) < 0.3] = np.nan
    rows[2, rng.random(length) < 0.8] = np.nan
    rows[3, -3:] = np.nan
    for row, own in ((4, 1), (5, 3), (6, 9), (7, 21)):
        rows[row, :-own] = np.nan
    rows[8] = rng.poisson(0.7, length)
    rows[9] = 1.06**time * rng.lognormal(0, 0.1, length)
    return rows


def slow_fill(row, period):
    """Gaps take the value a period before, else the last one; the first period, or the mean, before."""
    (seen,) = np.nonzero(~np.isnan(row))
    if len(seen) == 0:
        return np.zeros(len(row)), 0
    first, row = seen[0], row.copy()
    for lag in (period, 1):
        for at in range(first, len(row)):
            if np.isnan(row[at]) and at - lag >= first:
                row[at] = row[at - lag]
    own = len(row) - first
    row[:first] = row[first:].mean()
    for at in reversed(range(first if own >= period else 0)):
        row[at] = row[at + period]
    return row, own


def slow_smooth(values, own, period):
    """Level, trend and season after values, and the forecasts of all leads from them."""
    level, trend, season = values[0], 0.0, [0.0] * period
    if 1 < period <= len(values) // 2:
        means = [np.mean(values[:period]), np.mean(values[period : 2 * period])]
        slope = (means[1] - means[0]) / period
        for n in range(period):
            both = (values[n] - means[0] + values[n + period] - means[1]) / 2
            season[n] = both - slope * (n - (period - 1) / 2)
        level = means[0] - slope * period / 2
    for step, value in enumerate(values):
        ahead = level + own.damping * trend
        error = value - ahead - season[step % period]
        level, trend = ahead + own.level * error, own.damping * trend + own.trend * error
        if period > 1:
            season[step % period] += own.season * error
    forecasts, damped = [], 0.0
    for lead in range(HORIZON):
        damped += own.damping ** (lead + 1)
        forecasts.append(level + damped * trend + season[(len(values) + lead) % period])
    return forecasts


def slow_average(values, alpha):
    weights = [(1 - alpha) ** age for age in reversed(range(len(values)))]
    return sum(w * v for w, v in zip(weights, values, strict=True)) / sum(weights)


def slow_season(window, own=2 * SEASON):
    """The mean season without level and drift as far as it is more than chance, and how far."""
    if own < 2 * SEASON:
        return [0.0] * SEASON, 0.0
    blocks = window[-6 * SEASON :].reshape(6, SEASON)
    drift = (blocks[-1].mean() - blocks[0].mean()) / (5 * SEASON)
    ramp = [n - (SEASON - 1) / 2 for n in range(SEASON)]
    rests = np.array([block - block.mean() - drift * np.array(ramp) for block in blocks])
    mean = rests.mean(axis=0)
    chance = np.var(rests, axis=0, ddof=1).sum() / 6
    shown = max(0.0, 1 - chance / max(np.square(mean).sum(), 1e-12))
    return shown * mean, shown


def slow_curves(flat, memory, horizon):
    """The line, and the mean of curves by their criterion, without season."""
    count = len(flat)
    if count == 1:
        return flat, flat
    time, ahead = np.arange(1.0 - count, 1), np.arange(1.0, horizon + 1)
    every = [sign * turns / memory for turns in (0.75, 1.5, 3, 6, 12, 24) for sign in (1, -1)]
    every = [r for r in every if r * horizon <= 1.5]
    rates = [r for r in every if abs(r) * count >= 0.3]
    fits, logits = [], []
    for rate in [None, *rates]:
        x, x_ahead = (t if rate is None else np.exp(rate * t) for t in (time, ahead))
        size = abs(x).max() or 1.0
        design = np.column_stack([np.ones(count), x / size])
        found, *_ = np.linalg.lstsq(design, flat, rcond=None)
        whole = np.square(flat - flat.mean()).sum()
        left = max(np.square(flat - design @ found).sum(), 1e-5 * whole) + 1e-12
        fits.append(found[0] + found[1] * x_ahead / size)
        logits.append(-count / 2 * np.log(left) + (rate is None) * np.log(count) / 2)
    if min(flat) > 1e-3 * max(flat):
        slope, level = np.polyfit(time, np.log(flat), 1)
        left = np.square(np.log(flat) - level - slope * time).sum()
        if abs(slope) * count >= 0.3:
            fits.append(np.exp(level + min(slope, 1.5 / horizon) * ahead))
            criterion = -count / 2 * np.log(left) - np.log(flat).sum()
            logits.append(criterion + np.log(count) / 2 + np.log(len(every)))
    weights = np.exp(np.array(logits) - max(logits))
    return fits[0], weights @ np.array(fits) / weights.sum()


def slow_seasonal_drift(window):
    means = [block.mean() for block in window[-6 * SEASON :].reshape(6, SEASON)]
    drift = np.mean(np.diff(means))  # a season
    return [window[h % SEASON - SEASON] + drift * (1 + h // SEASON) for h in range(HORIZON)]


def slow_coefficients(c, count):
    """The recursion of Levinson and Durbin."""
    phi, variance = [], c[0] * (1 + 2 / count) + 1e-12
    for lag in range(1, 4):
        partial = (c[lag] - sum(phi[n] * c[lag - 1 - n] for n in range(lag - 1))) / variance
        partial = min(max(partial, -0.97), 0.97)
        phi = [phi[n] - partial * phi[lag - 2 - n] for n in range(lag - 1)] + [partial]
        variance *= 1 - partial**2
    return phi


def slow_autoregression(filled, own):
    steps, end = MEMORY - 3 * SEASON, len(filled)
    w = np.zeros(steps)
    for n in range(steps):
        at = end - steps + n
        if at >= end - own + SEASON:
            w[n] = filled[at] - np.mean([filled[at - i * SEASON] for i in (1, 2, 3)])
    c = [sum(w[n] * w[n - lag] for n in range(lag, steps)) for lag in range(4)]
    phi = slow_coefficients(c, min(max(own - SEASON, 1), steps))
    path = list(w)
    for _ in range(HORIZON):
        path.append(sum(phi[n] * path[-1 - n] for n in range(3)))
    base = [np.mean([filled[h % SEASON - i * SEASON] for i in (1, 2, 3)]) for h in range(HORIZON)]
    return base + np.array(path[steps:])


def slow_profile(filled, own, pattern):
    end, span, found = len(filled), 3 * SEASON, []
    cycles = [i for i in (1, 2, 3) if i * SECOND + span <= min(own, end)] or [1]
    for h in range(HORIZON):
        deviations = []
        for i in cycles:
            at = end - i * SECOND + min(h % SECOND - SEASON // 2, SECOND - SEASON)
            around = filled[at : at + SEASON].mean()
            deviations.append(around - filled[end - i * SECOND - span : end - i * SECOND].mean())
        found.append(filled[-span:].mean() + pattern[h % SEASON] + np.mean(deviations))
    return found


def slow_growing(window):
    blocks = window[-6 * SEASON :].reshape(6, SEASON)
    means = [block.mean() for block in blocks]
    drift = (means[-1] - means[0]) / (5 * SEASON)
    rests = [
        [value - mean - drift * (n - (SEASON - 1) / 2) for n, value in enumerate(block)]
        for block, mean in zip(blocks, means, strict=True)
    ]
    spreads = [np.sqrt(np.mean(np.square(rest))) + 1e-6 for rest in rests]
    growth = (np.mean(spreads[-2:]) / np.mean(spreads[:2])) ** (1 / 4)
    growth = min(max(growth, 0.8), 1.25)
    shape = np.mean([np.array(rest) / s for rest, s in zip(rests, spreads, strict=True)], axis=0)
    shape -= shape.mean()
    latest = np.exp(np.mean(np.log(spreads[-3:])) + np.log(growth))
    flat = [block - latest * growth ** (n - 5) * shape for n, block in enumerate(blocks)]
    level = slow_average(np.concatenate(flat), 0.3)
    return [
        level + 0.8 * drift * (h + 1) + latest * growth ** (1 + h // SEASON) * shape[h % SEASON]
        for h in range(HORIZON)
    ]


def slow_tsb(window, own):
    chance = weight = size = weights = 0.0
    demands = 0
    for age, value in enumerate(window[::-1][:own]):
        chance, weight = chance + 0.9**age * (value != 0), weight + 0.9**age
        if value != 0:
            size, weights = size + 0.9**demands * value, weights + 0.9**demands
            demands += 1
    return chance / weight * (size / weights if demands else 0.0)


def slow_experts(row):
    """The forecasts of all experts of one row, by name."""
    filled, own = slow_fill(row, SEASON)
    window, own = filled[-MEMORY:], min(max(own, 1), MEMORY)
    lead, last, begin = np.arange(HORIZON), filled[-1], window[MEMORY - own]
    pattern, shown = slow_season(window, own)
    flat = [value - pattern[(n - MEMORY) % SEASON] for n, value in enumerate(window)]
    ahead = np.array([pattern[h % SEASON] for h in lead])
    phases = [
        [v for n, v in enumerate(window) if (n - MEMORY) % SEASON == p and n >= MEMORY - own]
        or [window[p - SEASON]]
        for p in range(SEASON)
    ]
    slope = np.polyfit(np.arange(own), flat[-own:], 1)[0] if own > 1 else 0.0
    line, curve = slow_curves(np.array(flat[-own:]), MEMORY, HORIZON)
    usual = np.array([np.mean(of_phase) for of_phase in phases])
    lasting = usual - usual.mean() - slope * (np.arange(SEASON) - (SEASON - 1) / 2)
    lasting = shown * lasting[lead % SEASON]
    early = MEMORY - min(8, MEMORY // 2)
    missed = [  # the first of nearly equal candidates is taken
        np.mean(
            [
                abs(window[n + early] - slow_smooth(window[n : n + early], one, SEASON)[0])
                for n in range(MEMORY - early)
            ]
        )
        for one in ETS
    ]
    found = {
        "naive": last,
        "drift": last + (last - begin) / max(own - 1, 1) * (lead + 1),
        "long_mean": [np.mean(phases[h % SEASON]) for h in lead],
        "seasonal_naive": [window[h % SEASON - SEASON] for h in lead],
        "seasonal_mean": [np.mean([window[h % SEASON - n * SEASON] for n in (1, 2, 3)]) for h in lead],
        "second_naive": [filled[h % SECOND - SECOND] for h in lead],
        "second_mean": [np.mean([filled[h % SECOND - n * SECOND] for n in (1, 2, 3)]) for h in lead],
        "growing_season": slow_growing(window),
        "seasonal_drift": slow_seasonal_drift(window),
        "autoregression": slow_autoregression(filled, slow_fill(row, SEASON)[1]),
        "profile": slow_profile(filled, slow_fill(row, SEASON)[1], slow_season(window)[0]),
        "damped_trend": slow_smooth(np.array(flat), DAMPED, 1) + ahead,
        "theta": slow_average(flat, 0.4) + slope / 2 * (lead + 1) + ahead,
        "line": line + lasting,
        "curve": curve + lasting,
        "ets": slow_smooth(
            window, ETS[int(np.argmax(missed <= np.min(missed) * 1.001 + 1e-6))], SEASON
        ),
        "tsb": slow_tsb(window, own),
    }
    for name, parameters in TRENDS.items():
        found[name] = slow_smooth(np.array(flat), parameters, 1) + ahead
    for alpha in (0.1, 0.3, 0.8):
        found[f"level_{alpha}"] = slow_average(flat, alpha) + ahead
    return np.stack([np.broadcast_to(found[name], HORIZON) for name in ALL], axis=1)


@pytest.mark.parametrize("seed", range(3))
def test_every_expert_equals_a_slow_loop(seed):
    rows = histories(seed)
    found = pool_of(make_experts(), rows).forecasts.numpy()
    wanted = np.stack([slow_experts(row) for row in rows])
    for number, name in enumerate(ALL):
        one, other = found[..., number], wanted[..., number]
        if name == "growing_season":  # in a series of few steps the rest of a season is rounding
            one, other = one[[0, 1, 2, 3, 7, 8, 9]], other[[0, 1, 2, 3, 7, 8, 9]]
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-3, err_msg=name)


def test_the_coefficients_of_an_autoregression_solve_its_equations_and_are_stable():
    values = np.convolve(np.random.default_rng(0).normal(size=202), [1.0, 0.7, 0.4], "valid")
    sums = [float(values[lag:] @ values[: 200 - lag]) for lag in range(4)]
    found = coefficients(
        [torch.tensor([[c]], dtype=torch.float64) for c in sums], torch.tensor([[200]])
    )
    ridge = [sums[0] * (1 + RIDGE / 200), *sums[1:]]
    equations = [[ridge[abs(one - other)] for other in range(3)] for one in range(3)]
    np.testing.assert_allclose(torch.cat(found)[:, 0], np.linalg.solve(equations, sums[1:]), rtol=1e-6)
    # Any numbers in place of autocovariances give roots inside the unit circle.
    generator = torch.Generator().manual_seed(0)
    wild = (
        torch.randn(4, 1, 300, generator=generator).double()
        * torch.tensor([0.1, 1, 1, 1])[:, None, None]
    )
    wild[0] = wild[0].abs()
    for phi in torch.stack(coefficients([*wild], torch.full((1, 300), 9)))[:, 0].T:
        assert (np.abs(np.roots([1, *-phi.numpy()])) < 1).all()


@pytest.mark.parametrize("length", [3, 30])
def test_an_autoregression_without_a_season_is_of_differences(length):
    row = np.full(HISTORY, np.nan)
    row[-length:] = np.random.default_rng(1).normal(size=length).cumsum()
    experts = make_experts(("autoregression",), season=1, second=0)
    filled, own = slow_fill(row, 1)
    w = np.diff(filled[-MEMORY:])
    w[: max(0, len(w) - own + 1)] = 0
    c = [w[lag:] @ w[: len(w) - lag] for lag in range(4)]
    phi, path = slow_coefficients(c, min(own - 1, len(w))), list(w)
    for _ in range(HORIZON):
        path.append(sum(phi[n] * path[-1 - n] for n in range(3)))
    found = pool_of(experts, row[None]).forecasts[0, :, 0]
    np.testing.assert_allclose(found, row[-1] + np.cumsum(path[len(w) :]), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("season", [1, 4])
def test_an_autoregression_decays_after_the_leads_that_are_iterated(season):
    rows = torch.randn(2, 90, generator=torch.Generator().manual_seed(0), dtype=torch.float64).cumsum(1)
    leads = [*range(70)]
    added = autoregression(rows, torch.full((2,), 90), 80, season, [0, 5], leads)
    steps = added.diff(dim=-1) if season == 1 else added
    torch.testing.assert_close(steps[..., -6:], 0.95 * steps[..., -7:-1], rtol=1e-4, atol=1e-7)
    some = autoregression(rows, torch.full((2,), 90), 80, season, [0, 5], [0, 3, 66])
    torch.testing.assert_close(some, added[..., [0, 3, 66]])


def test_rounding_chooses_no_candidate_where_two_observations_tell_nothing():
    experts, rows = make_experts(("ets",)), np.full((60, HISTORY), np.nan)
    rows[:, -2:] = np.random.default_rng(0).normal(size=(60, 2))
    # The mean is all there is to tell: the slowest candidate, of level 0.1 without trend, is taken.
    wanted = [slow_smooth(slow_fill(row, SEASON)[0][-MEMORY:], ETS[0], SEASON) for row in rows]
    found = pool_of(experts, rows).forecasts[..., 0]
    np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-3)


def test_the_error_is_that_of_forecasts_at_earlier_cutoffs_up_to_the_cutoff_of_the_window():
    """Each earlier cutoff is forecast from a history that ends there: what follows changes nothing."""
    experts, rows = make_experts(), histories()
    rows[:, [-5, -9]] = np.nan
    pool = pool_of(experts, rows)
    total, cells = np.zeros((len(rows), len(ALL))), np.zeros(len(rows))
    scored = positions(HORIZON)
    for shift in range(SPACING, CUTOFFS * SPACING + 1, SPACING):
        before = np.full_like(rows, np.nan)
        before[:, shift:] = rows[:, :-shift]
        forecasts = pool_of(experts, before).forecasts.numpy()
        for row, lead in np.ndindex(len(rows), HORIZON):
            at = HISTORY - shift + lead
            own = HISTORY - shift - np.isnan(rows[row]).argmin()
            if lead in scored and at < HISTORY and own >= SEASON and not np.isnan(rows[row, at]):
                total[row] += np.abs(forecasts[row, lead] - rows[row, at])
                cells[row] += 1
    np.testing.assert_allclose(pool.evidence.cutoffs, cells / len(scored), rtol=1e-6)
    np.testing.assert_allclose(
        pool.evidence.error, total / np.maximum(cells, 1)[:, None], rtol=1e-3, atol=1e-3
    )
    assert (cells == 0).any() and (pool.evidence.cutoffs > 1).any()


def test_weights_are_equal_where_no_earlier_cutoff_is_known_and_0_where_an_expert_cannot_be_formed():
    experts = make_experts()
    weights = pool_of(experts, histories()).evidence.weights
    one = dict(zip(ALL, weights[4].tolist(), strict=True))  # of one step of history
    absent = {name for name in ALL if "season" in name or "second" in name}
    absent |= {"autoregression", "profile", "line", "curve"}
    assert all(one[name] == 0 for name in absent) and len(absent) == 10
    assert [one[name] for name in ALL if name not in absent] == pytest.approx([1 / 12] * 12)
    experts.intermittent[1] = False
    weights = pool_of(experts, histories()).evidence.weights
    assert (weights[..., ALL.index("tsb")] == 0).all()
    # A smaller error has a larger weight.
    pool = pool_of(experts, histories()[:1])
    weights = pool.evidence.weights[0]
    formed = weights > 0
    assert pool.evidence.error[0][formed].argsort().tolist() == (-weights[formed]).argsort().tolist()


@pytest.mark.parametrize("name", [*ALL, "linear"])
def test_a_pool_of_one_is_that_expert(name):
    alone = EXPERTS.model_copy(update={"experts": (name,), "seasons": (SEASON, 8)})
    network, inputs = make_network(PLAIN, pool=alone), make_inputs(PLAIN)
    network.network_weight.zero_()
    pool = network.pool(inputs, network.scale(inputs))
    assert (pool.evidence.weights == 1).all()
    forecast = network(inputs)
    assert forecast.isfinite().all() and (forecast.diff(dim=-1) >= 0).all()
    if name == "tsb":  # a mean of counts, and no median
        return
    center = network.scale(inputs).invert(pool.forecasts.unflatten(0, (-1, 2))[..., 0].mT)
    torch.testing.assert_close(forecast[..., 4], center)


MANY = EXPERTS.model_copy(update={"experts": (*ALL, "linear"), "seasons": (SEASON, 8)})


@pytest.mark.parametrize(("a", "b"), [(1e-3, 0.0), (7.0, -2e9), (1e4, 3e8), (0.02, 5.0)])
def test_scaled_and_shifted_histories_scale_and_shift_every_expert(a, b):
    network, inputs = make_network(PLAIN, pool=MANY), make_inputs(PLAIN)
    network.experts.intermittent[:] = True
    moved = with_targets(inputs, a * inputs.history + b)
    scales = [network.scale(one) for one in (inputs, moved)]
    one, other = (network.pool(*pair) for pair in zip((inputs, moved), scales, strict=True))
    kept = [n for n, name in enumerate(network.experts.names) if b == 0 or name != "tsb"]
    # Pools are in scaled units, which move with the values.
    torch.testing.assert_close(
        other.forecasts[..., kept], one.forecasts[..., kept], rtol=1e-3, atol=1e-3
    )
    torch.testing.assert_close(
        other.evidence.error[:, kept], one.evidence.error[:, kept], rtol=1e-3, atol=1e-3
    )
    torch.testing.assert_close(scales[1].scale, a * scales[0].scale, rtol=1e-5, atol=0.0)


HARD = {
    "constant": lambda h: torch.full_like(h, 7.0),
    "zeros": torch.zeros_like,
    "one observation": lambda h: torch.where(torch.arange(len(h)) == 25, h.T, torch.nan).T,
    "the last value alone": lambda h: torch.where(torch.arange(len(h)) == len(h) - 1, h.T, torch.nan).T,
    "none": lambda h: torch.full_like(h, torch.nan),
    "tiny": lambda h: 1e-30 * h,
    "huge": lambda h: 1e30 * h,
    "huge before the context": lambda h: torch.where(torch.arange(len(h)) < 20, 1e30, h.T).T,
    "shorter than the season": lambda h: (
        torch.where(torch.arange(len(h)) < len(h) - 3, torch.nan, h.T).T
    ),
    "a jump": lambda h: torch.where(torch.arange(len(h)) < len(h) - 1, 0.0, 1e9 * h.T).T,
}


@pytest.mark.parametrize("case", HARD)
@pytest.mark.parametrize("weight", [0.0, 1.0])
def test_any_history_gives_finite_rising_quantiles_and_leaves_other_rows_alone(case, weight):
    network, inputs = make_network(PLAIN, pool=MANY), make_inputs(PLAIN)
    network.experts.intermittent[:] = True
    network.network_weight.fill_(weight)
    history = inputs.history.clone()
    history[1] = HARD[case](history[1])
    found = network(with_targets(inputs, history))
    assert found.isfinite().all() and (found.diff(dim=-1) >= 0).all()
    kept = [0, 2]
    torch.testing.assert_close(found[kept], network(inputs)[kept], rtol=1e-5, atol=1e-5)


def test_noise_that_maps_were_solved_on_gives_the_linear_forecast_no_weight(make_panel, make_config):
    """Maps of long lookbacks over noise fit their own windows; held-out maps do not."""
    panel = make_panel(2, 260)
    settings = {"experts": ("naive", "level_0.1", "linear"), "lookbacks": (100,)}
    plan, split = resolve(panel, make_config(8, context_length=100, model=settings))
    plan = plan.with_linear(ridge_alpha=1e-4)
    network, store = bare_network(panel, plan, split.train_end), training_store(panel, plan)
    solve_experts(network, panel, plan, split, store)

    def weight(index, numbers, known_time=True):
        (batch,) = WindowSequence(store, index, numbers, 10_000)
        time = batch.time if known_time else None
        pool = network.pool(batch.inputs, network.scale(batch.inputs), time)
        return float(pool.evidence.weights[pool.evidence.cutoffs > CUTOFFS / 2][..., -1].mean())

    every = np.arange(len(split.train))
    later = weight(split.validation, split.validation_windows, known_time=False)
    assert weight(split.train, every) < later + 0.05
    network.experts.linear.held_out = ()
    assert weight(split.train, every) > later + 0.2  # maps solved on the windows would have this


def test_figures_of_statsforecast():
    """statsforecast.json holds the first three leads of these models of statsforecast 2.1.1.

    Of y[t] = 10 + (37·t mod 101) / 10, t < 120: SimpleExponentialSmoothing(alpha=0.3), HistoricAverage(),
    RandomWalkWithDrift(), SeasonalNaive(7), SeasonalWindowAverage(7, window_size=3); of the demand
    (37·t mod 101) mod 9 where t mod 3 > 0, else 0, t < 480: TSB(alpha_d=0.1, alpha_p=0.1). Initial values
    have no weight left at the end of so long a series.
    """
    figures = json.loads((Path(__file__).parent / "statsforecast.json").read_text())
    time = np.arange(480)
    values = 10 + (37 * time[:120] % 101) / 10
    demand = np.where(time % 3 > 0, (37 * time % 101) % 9, 0)
    cases = (
        (values, 1, {"level_0.3": "ses", "long_mean": "mean", "drift": "drift"}),
        (values, 7, {"seasonal_naive": "seasonal_naive", "seasonal_mean": "seasonal_window_average"}),
        (demand, 1, {"tsb": "tsb"}),
    )
    for series, season, names in cases:
        experts = make_experts(tuple(names), season, 0, len(series), horizon=3)
        row = np.concatenate([np.full(CUTOFFS * SPACING, np.nan), series])
        found = pool_of(experts, row[None]).forecasts[0]
        for number, name in enumerate(names.values()):
            np.testing.assert_allclose(found[:, number], figures[name], rtol=1e-5, err_msg=name)
