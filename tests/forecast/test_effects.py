"""What is known of the future acts at full strength: planted effects, with a fit and without."""

from datetime import date, timedelta

import numpy as np
import polars as pl
import pytest

import forecaster as fc
from forecaster.api.requests import opened
from forecaster.config import config_from
from forecaster.fitting.mixed_effects import learn_effects
from forecaster.windows.effects import dated

HORIZON = 28
WEEK = np.array([0, 5, 8, 3, 10, 20, 15.0])
QUICK = {"fit": {"steps": 1}, "tracking": {"enabled": False}}


def table(values, start=date(2022, 1, 3), **covariates):
    """A long table of daily series [S, n]."""
    series, days = values.shape
    columns = {
        "series": np.repeat([f"s{number:03}" for number in range(series)], days),
        "date": [start + timedelta(day) for day in range(days)] * series,
        "y": values.ravel(),
    }
    columns |= {name: np.broadcast_to(of, values.shape).ravel() for name, of in covariates.items()}
    return pl.DataFrame(columns)


def halves(frame, days=HORIZON):
    """History, and what is known of the last days."""
    row = pl.int_range(pl.len()).over("series") - pl.len().over("series")
    return frame.filter(row < -days), frame.filter(row >= -days).drop("y")


def forecast_of(frame, known, how="no fit"):
    past, future = halves(frame)
    if how == "no fit":
        return fc.predict(past, HORIZON, future=future, known=known)
    return fc.fit(past, HORIZON, known=known, config=QUICK, quiet=True).predict(past, future=future)


def effects_of(frame, known):
    """The effects that are learned from a whole table."""
    _, panel = opened(config_from(None, HORIZON, {"known": known}), frame, None, None, begin=True)
    return learn_effects(panel, HORIZON)


def promoted(random, share=0.05, factor=3.0, days=428):
    promo = (random.random(days) < share) * 1.0
    mean = (100 + WEEK[np.arange(days) % 7]) * (1 + (factor - 1) * promo)
    return mean, promo


@pytest.mark.parametrize("how", ["no fit", "fit"])
def test_a_promotion_that_triples_sales_is_forecast_whole(how):
    random = np.random.default_rng(0)
    mean, promo = promoted(random)
    frame = table((mean + random.normal(0, 5, len(mean)))[None], promo=promo)
    median = forecast_of(frame, ["promo"], how).median[0, :, 0]
    on = promo[-HORIZON:] == 1
    assert on.any()
    np.testing.assert_allclose(median[on].sum(), mean[-HORIZON:][on].sum(), rtol=0.05)
    assert np.abs(median - mean[-HORIZON:])[~on].mean() < 3


def test_a_slope_on_white_noise_is_kept():
    random = np.random.default_rng(1)
    x = random.normal(size=428)
    frame = table((100 + 10 * x + random.normal(0, 5, 428))[None], x=x)
    median = forecast_of(frame, ["x"]).median[0, :, 0]
    assert np.polyfit(x[-HORIZON:], median, 1)[0] == pytest.approx(10, abs=1)


def test_heating_and_cooling_bend_at_the_temperatures_where_they_begin():
    random = np.random.default_rng(2)
    day = np.arange(428)
    degrees = 12 + 10 * np.sin(2 * np.pi * day / 365) + random.normal(0, 3, 428)
    mean = 100 + 4 * np.maximum(degrees - 20, 0) + 3 * np.maximum(10 - degrees, 0)
    frame = table((mean + random.normal(0, 5, 428))[None], degrees=degrees)
    median = forecast_of(frame, ["degrees"]).median[0, :, 0]
    assert np.abs(median - mean[-HORIZON:]).mean() < 2.5


@pytest.mark.long
@pytest.mark.parametrize("level", [1.0, 5.0, 50.0])
def test_a_promotion_multiplies_counts_whatever_their_level(level):
    random = np.random.default_rng(3)
    promo = (random.random((30, 300)) < 0.2) * 1.0
    level = np.linspace(0.5, 1.5, 30)[:, None] * level
    found = effects_of(table(random.poisson(level * (1 + 0.5 * promo)) * 1.0, promo=promo), ["promo"])
    own = found.own[:, 0, 0]
    factor = np.exp(own) if found.multiplies[0] else 1 + own / level[:, 0]
    np.testing.assert_allclose(factor.mean(), 1.5, rtol=0.03)


def test_series_share_an_effect_and_keep_what_is_their_own():
    random = np.random.default_rng(4)
    x = random.normal(size=(20, 200))
    slopes = np.where(np.arange(20) < 10, 5.0, 9.0)
    found = effects_of(table(slopes[:, None] * x + random.normal(size=(20, 200)), x=x), ["x"])
    spread = found.own[:, 0, 0] / table(x)["y"].std()
    np.testing.assert_allclose(spread, slopes, atol=0.4)
    short = table(5 * x[:, :12] + random.normal(size=(20, 12)), x=x[:, :12])
    own = effects_of(short, ["x"]).own[:, 0, 0]
    assert own.std() < 0.1 * own.mean()


@pytest.mark.parametrize("layout", ["two series", "three series", "two channels"])
def test_a_few_series_have_effects_of_their_own(layout):
    random = np.random.default_rng(6)
    effect = np.array([20.0, -10.0, 0.0])[: 3 if layout == "three series" else 2, None]
    promo = (random.random((len(effect), 228)) < 0.1) * 1.0
    if layout == "two channels":
        promo[:] = promo[0]
    promo[:, -3:] = 1
    mean = 100 + WEEK[np.arange(228) % 7] + effect * promo
    frame = table(mean + random.normal(0, 3, mean.shape), promo=promo)
    if layout == "two channels":
        frame = frame.pivot("series", index=["date", "promo"], values="y")
        frame = frame.with_columns(series=pl.lit("one"))
        past, future = frame.head(200), frame.tail(HORIZON).drop("s000", "s001")
        model = {"future": future, "known": ["promo"], "target": ["s000", "s001"]}
        median = fc.predict(past, HORIZON, **model).median[0].T
    else:
        median = forecast_of(frame, ["promo"]).median[..., 0]
    apart = median[:, -3:] - mean[:, -3:]
    np.testing.assert_allclose(apart.mean(axis=1), 0, atol=3)


def test_what_if_moves_the_forecast_by_the_effect_alone():
    random = np.random.default_rng(5)
    mean, promo = promoted(random, share=0.2, factor=1.5)
    values = mean * np.exp(random.normal(0, 0.05, len(mean)))
    past, future = halves(table(values[None], promo=promo))
    future = future.with_columns(promo=pl.lit(0.0))
    found = fc.what_if(past, HORIZON, future, {"promo": 1.0}, known=["promo"])
    ratio = (found.changed.quantiles / found.base.quantiles)[0, :, 0]
    is_weekend = np.arange(len(mean))[-HORIZON:] % 7 >= 5
    for days in (is_weekend, ~is_weekend):  # a promotion may do more at weekends
        np.testing.assert_allclose(ratio[days], ratio[days][0, 0], rtol=1e-6)
    np.testing.assert_allclose(ratio, 1.5, atol=0.03)


def test_what_an_event_does_by_hour_and_at_weekends_is_found():
    random = np.random.default_rng(8)
    hour = np.arange(24 * 300)
    clock, weekday = hour % 24, hour // 24 % 7
    event = np.repeat(random.random(300) < 0.15, 24)
    event[-24 * 4 :] = True  # Wednesday to Saturday
    work, rest = (height * np.exp(-(((clock - 13) / 5) ** 2)) for height in (60, 25))
    mean = 100 + np.where((weekday >= 5) | event, rest, work)
    frame = pl.DataFrame({"time": hour, "y": mean + random.normal(0, 4, len(hour)), "e": event * 1})
    frame = frame.with_columns(pl.datetime(2023, 1, 2) + pl.duration(hours="time"))
    past = frame.with_columns(y=pl.when(pl.int_range(pl.len()) < len(hour) - 96).then("y"))
    median = fc.predict(past, 96, known=["e"]).median[0, :, 0]
    missed = np.abs(median - mean[-96:]).reshape(4, 24).mean(axis=1)
    assert (missed < 3).all()  # 11 on workdays with an effect that is the same at all hours


@pytest.mark.parametrize("series", [1, 5])
def test_days_that_were_closed_say_nothing_of_the_others(series):
    random = np.random.default_rng(9)
    day = np.arange(120 + HORIZON)
    is_open = (random.random(len(day)) > 0.03) & (day % 7 != 6)
    level = random.uniform(3000, 8000, (series, 1))
    mean = level * np.exp(random.normal(0, 0.1, (series, 7)))[:, day % 7] * is_open
    sales = (mean * np.exp(random.normal(0, 0.08, mean.shape))).round()
    forecast = forecast_of(table(sales, open=is_open * 1.0), ["open"])
    missed = np.abs(forecast.median[..., 0] - mean[:, -HORIZON:]) / level
    assert missed[:, is_open[-HORIZON:]].mean() < 0.035
    closed = ~is_open[-HORIZON:]
    assert not forecast.quantiles[:, closed].any() and not forecast.mean[:, closed].any()
    assert not forecast.draw(20)[..., closed, 0].any()


@pytest.mark.long
def test_a_saved_model_keeps_its_effects(tmp_path):
    random = np.random.default_rng(6)
    mean, promo = promoted(random)
    past, future = halves(table((mean + random.normal(0, 5, len(mean)))[None], promo=promo))
    model = fc.fit(past, HORIZON, known=["promo"], config=QUICK, quiet=True)
    model.save(tmp_path / "model")
    one, other = (one.predict(past, future=future) for one in (model, fc.load(tmp_path / "model")))
    assert (one.quantiles == other.quantiles).all()


def test_noise_costs_next_to_nothing():
    random = np.random.default_rng(7)
    noise = random.normal(size=428)
    walk = np.cumsum(random.normal(size=428))
    frame = table((100 + random.normal(0, 5, 428))[None], noise=noise, walk=walk)
    with_noise = forecast_of(frame, ["noise", "walk"]).median
    without = forecast_of(frame.drop("noise", "walk"), []).median
    assert np.abs(with_noise - without).mean() < 0.5


@pytest.mark.parametrize(
    "spoil",
    [
        pytest.param(lambda x: np.where(np.arange(len(x)) == 100, 1e6, x), id="a wrong decimal mark"),
        pytest.param(lambda x: np.where(np.arange(len(x)) < 214, np.nan, x), id="half of it missing"),
        pytest.param(lambda x: np.where(np.arange(len(x)) < 214, 0.0, x), id="half of it zero"),
    ],
)
def test_a_covariate_with_faults_is_still_read(spoil):
    random = np.random.default_rng(8)
    x = random.normal(size=428)
    mean = 100 + WEEK[np.arange(428) % 7] + 10 * x
    frame = table((mean + random.normal(0, 5, 428))[None], x=spoil(x))
    median = forecast_of(frame, ["x"]).median[0, :, 0]
    assert np.abs(median - mean[-HORIZON:]).mean() < 1.6


@pytest.mark.parametrize(
    "values",
    [np.zeros((2, 60)), np.full((2, 60), 7.0), np.full((1, 3), 1e25), np.ones((1, 1))],
    ids=["zeros", "a constant", "huge", "one row"],
)
def test_tables_that_show_nothing_have_no_effects(values):
    days = values.shape[1]
    promo = np.arange(days + HORIZON) % 2.0
    past = table(values, promo=promo[:days])
    future = table(
        np.zeros((len(values), HORIZON)), date(2022, 1, 3) + timedelta(days), promo=promo[days:]
    )
    found = fc.predict(past, HORIZON, future=future.drop("y"), known=["promo"], freq="1d")
    largest = max(1.0, values.max())
    assert (np.abs(found.median - values.max()) < 1e-3 * largest).all()


def test_what_is_put_back_is_what_was_taken_out():
    random = np.random.default_rng(9)
    mean, promo = promoted(random)
    values = np.stack([mean, 2 * mean]) + random.normal(0, 5, (2, len(mean)))
    frame = table(values, promo=promo)
    _, panel = opened(config_from(None, HORIZON, {"known": ["promo"]}), frame, None, None, begin=True)
    effects = learn_effects(panel, HORIZON)
    effect = effects.of(panel)
    left = effects.removed(panel, effect).values[:, :1]
    back = left * np.exp(effect) if effects.multiplies[0] else left + effect
    np.testing.assert_allclose(back, panel.values[:, :1], rtol=1e-12)
    assert not effects.center[..., 0].any()  # there are no numbers
    twins = []
    for number, rows, clock in dated(panel):
        taken_out = (*effects.declared, *effects.of_dates)
        columns = np.concatenate([term.columns(panel, rows, clock) for term in taken_out], axis=1)
        twins.append(columns @ effects.own[number].T[: columns.shape[1]])
    twin = np.concatenate(twins)
    np.testing.assert_allclose(effect, twin)


def test_series_beyond_those_that_variances_are_learned_from_have_effects_of_their_own():
    random = np.random.default_rng(10)
    x = random.normal(size=(300, 60))
    slopes = np.where(np.arange(300) % 2, 5.0, 9.0)
    values = slopes[:, None] * x + random.normal(size=(300, 60))
    found = effects_of(table(values, x=x), ["x"])
    own = found.own[:, 0, 0] / table(x)["y"].std()
    assert np.abs(own - slopes).max() < 1


@pytest.mark.long
@pytest.mark.parametrize(("before", "least", "most"), [(10.0, 9.8, 10.2), (2.0, 9.0, 10.5)])
def test_a_slope_that_changes_is_that_of_the_last_rows(before, least, most):
    random = np.random.default_rng(3)
    x = random.normal(size=2_400)
    slope = np.where(np.arange(2_400) < 1_500, before, 10.0)
    values = (100 + slope * x + random.normal(0, 5, 2_400))[None]
    frame = table(values, date(2016, 1, 4), x=x)
    effects = effects_of(frame, ["x"])
    _, panel = opened(config_from(None, HORIZON, {"known": ["x"]}), frame, None, None, begin=True)
    effect = effects.of(panel)[-300:, 0]
    assert least < np.polyfit(x[-300:], effect, 1)[0] < most
