"""Events whose effect is not the same every time: how much it varies is found, and bands are as wide."""

from dataclasses import replace
from datetime import date, timedelta
from statistics import NormalDist

import numpy as np
import polars as pl
import pytest
import torch

import forecaster as fc
from forecaster.api.requests import opened
from forecaster.config import config_from
from forecaster.fitting.mixed_effects import learn_effects
from forecaster.fitting.regression import Unit, solve
from forecaster.fitting.varying import variations
from forecaster.model.ensemble import varied

HORIZON, DAYS, NOISE = 14, 400, 8.0
LEVELS = tuple(n / 10 for n in range(1, 10))
NORMAL = [NormalDist().inv_cdf(level) for level in LEVELS]
QUICK = {"fit": {"steps": 1}, "tracking": {"enabled": False}}
WORDS = np.array(["none", "flyer", "screen"])


def planted(kind, seed, share=0.25):
    """Ten series with events whose effects vary by a share of themselves: a table, means and deviations."""
    random = np.random.default_rng(seed)
    frames, means, spreads = [], [], []
    for number in range(10):
        event = random.choice(3, DAYS + HORIZON, p=[0.8, 0.1, 0.1])
        event[DAYS : DAYS + 6] = [1, 2, 0, 1, 0, 2]
        size = np.array([0.0, 60.0, 120.0])[event]
        mean, spread = random.uniform(150, 300) + size, np.hypot(NOISE, share * size)
        if kind == "factor":
            size = np.array([0.0, 0.8, 1.1])[event]
            mean, spread = np.log(random.uniform(80, 300)) + size, np.hypot(0.05, share * size)
        values = mean + spread * random.standard_normal(len(mean))
        values = np.exp(values) if kind == "factor" else values
        column = WORDS[event] if kind == "words" else (event == 1) * 1.0
        days = [date(2022, 1, 3) + timedelta(day) for day in range(DAYS + HORIZON)]
        frame = pl.DataFrame({"series": f"s{number}", "date": days, "y": values, "event": column})
        frame = frame if kind == "words" else frame.with_columns(other=pl.Series((event == 2) * 1.0))
        frames.append(frame)
        means.append(mean[DAYS:])
        spreads.append(spread[DAYS:])
    table = pl.concat(frames)
    is_ahead = pl.col("date") > days[DAYS - 1]
    table = table.with_columns(y=pl.when(~is_ahead).then("y"))
    return table, np.stack(means), np.stack(spreads)


def known(kind):
    return ["event"] if kind == "words" else ["event", "other"]


@pytest.mark.long
@pytest.mark.parametrize("kind", ["sum", "factor", "words"])
def test_bands_on_the_days_of_an_event_are_as_wide_as_it_varies(kind):
    """By the true distribution: without what varies they hold a third of what comes on such days."""
    held, plain = [], []
    for seed in range(3):
        table, mean, spread = planted(kind, seed)
        forecast = fc.predict(table, HORIZON, known=known(kind))
        bounds = forecast.quantiles[:, :, 0][..., [0, -1]]
        bounds = np.log(bounds.clip(1e-9)) if kind == "factor" else bounds
        low, high = np.moveaxis((bounds - mean[..., None]) / spread[..., None], -1, 0)
        chance = _normal(high) - _normal(low)
        is_event = spread > spread.min()
        held.append(chance[is_event].mean())
        plain.append(chance[~is_event].mean())
    assert 0.74 < np.mean(held) < 0.9
    assert 0.74 < np.mean(plain) < 0.94


@pytest.mark.long
def test_a_fit_knows_what_varies_and_keeps_it(tmp_path):
    table, mean, spread = planted("sum", 5)
    past = table.filter(pl.col("y").is_not_null())
    model = fc.fit(past, HORIZON, known=known("sum"), config=QUICK, quiet=True, out=tmp_path / "model")
    forecast = model.predict(table)
    bounds = forecast.quantiles[:, :, 0][..., [0, -1]]
    low, high = np.moveaxis((bounds - mean[..., None]) / spread[..., None], -1, 0)
    chance = _normal(high) - _normal(low)
    assert 0.7 < chance[spread > spread.min()].mean() < 0.92
    again = fc.load(tmp_path / "model").predict(table)
    np.testing.assert_array_equal(again.quantiles, forecast.quantiles)


def _normal(numbers):
    return np.vectorize(NormalDist().cdf)(numbers)


def test_how_much_an_effect_varies_is_found_and_nothing_in_noise():
    found, nothing = [], []
    for seed in range(20):
        random = np.random.default_rng(seed)
        units, effects = [], []
        for _ in range(5):
            event = (random.random(300) < 0.1) * 1.0
            size = 3 * event * (1 + 0.5 * (seed % 2) * random.standard_normal(300))
            errors = random.standard_normal(300)
            for row in range(1, 300):
                errors[row] += 0.6 * errors[row - 1]
            units.append(Unit(size + errors, event[:, None], np.arange(300)))
            effects.append(3 * event[:, None])
        (found if seed % 2 else nothing).append(
            *variations(units, effects, solve(units, np.zeros(1, int)))
        )
    assert 0.2 < np.mean(found) < 0.3  # .5²
    assert np.sum(np.array(nothing) > 0) <= 1


def test_the_variance_is_that_of_each_covariate_by_itself():
    table, *_ = planted("sum", 0)
    _, panel = opened(
        config_from(None, HORIZON, {"known": known("sum")}), table, None, None, begin=True
    )
    effects = learn_effects(panel, HORIZON)
    assert (effects.variation > 0).sum() >= 2
    whole, slow = effects.of(panel), 0.0
    for name in known("sum"):
        (place, *_) = (n for n, term in enumerate(effects.declared) if term.name_in(panel) == name)
        alone = whole - effects.of(panel, without=name)
        slow = slow + effects.variation[:, place] * alone**2
    np.testing.assert_allclose(effects.variance(panel), slow, atol=1e-9)


@pytest.mark.long
def test_days_of_an_effect_that_varies_by_more_than_the_noise_are_left_out_unless_most_are():
    """They would make the bands of all other days too wide: here half as wide again."""
    table, *_ = planted("sum", 0)
    _, panel = opened(
        config_from(None, HORIZON, {"known": known("sum")}), table, None, None, begin=True
    )
    effects = learn_effects(panel, HORIZON)
    place = panel.schema.columns.index("other")
    left = left_by(effects, panel)
    is_far = effects.variance(panel)[:, 0] > 2 * np.repeat(effects.noise[:, 0], np.diff(panel.indptr))
    was_known = ~np.isnan(panel.values[:, 0])
    np.testing.assert_array_equal(np.isnan(left), is_far | ~was_known)
    assert is_far[panel.values[:, place] == 1].all() and 0.05 < is_far.mean() < 0.3
    always = panel.values.copy()
    always[panel.indptr[1] : panel.indptr[2], place] = 1.0
    panel = replace(panel, values=always)
    effects = learn_effects(panel, HORIZON)
    left = left_by(effects, panel)
    dropped = np.isnan(left) & was_known
    assert not dropped[panel.indptr[1] : panel.indptr[2]].any() and dropped.any()


def test_later_rows_change_nothing_of_what_is_left_out():
    table, *_ = planted("sum", 0)
    _, panel = opened(
        config_from(None, HORIZON, {"known": known("sum")}), table, None, None, begin=True
    )
    effects = learn_effects(panel, HORIZON)
    later = panel.values.copy()
    place = panel.schema.columns.index("other")
    is_early = np.arange(panel.n_rows) % (DAYS + HORIZON) < DAYS // 2
    later[~is_early, place] = 1.0
    one, other = (left_by(effects, part)[is_early] for part in (panel, replace(panel, values=later)))
    # Days around an event reach three rows back.
    assert (np.isnan(one) != np.isnan(other)).sum() <= 3 * panel.n_series
    assert np.isnan(one).any()


def left_by(effects, panel):
    """What is left of the targets."""
    return effects.removed(panel, effects.of(panel), effects.variance(panel)).values[:, 0]


def test_quantiles_are_those_of_a_sum_of_two_normal_variables():
    normal = torch.tensor(NORMAL, dtype=torch.float64)
    center, spread, variance = 50.0, 3.0, 16.0
    quantiles = (center + spread * normal).expand(1, 4, 1, -1)
    more = torch.full((1, 4, 1), variance, dtype=torch.float64)
    found = varied(quantiles, more, torch.zeros(1, 1, dtype=torch.bool), LEVELS)
    torch.testing.assert_close(found[0, 0, 0], center + 5.0 * normal)
    logs = (center / 20 + spread / 10 * normal).exp().expand(1, 4, 1, -1)
    found = varied(logs, more / 100, torch.ones(1, 1, dtype=torch.bool), LEVELS)
    torch.testing.assert_close(found[0, 0, 0].log(), center / 20 + 0.5 * normal)
    none = torch.zeros(1, 4, 1, dtype=torch.float64)
    assert torch.equal(varied(quantiles, none, torch.ones(1, 1, dtype=torch.bool), LEVELS), quantiles)
