"""Effects as planners read them: planted ones lie within their intervals, by their names, in rows and pictures."""

from datetime import date, timedelta

import numpy as np
import polars as pl
import pytest

import forecaster as fc
from forecaster.api.requests import opened
from forecaster.config import config_from
from forecaster.fitting.mixed_effects import learn_effects
from forecaster.forecast.effect_report import EffectReport, effect_report

WEEK = np.array([0, 5, 8, 3, 10, 20, 15.0])
DAYS = 400


def days(values, start=date(2022, 1, 3), **covariates):
    """A table of one daily series."""
    dates = [start + timedelta(day) for day in range(len(values))]
    return pl.DataFrame({"date": dates, "y": values} | covariates)


def report_of(frame, known=(), only=0, of=None, **data):
    """The effects of a table, on one of its series or on that of another table."""
    config = config_from(None, 7, {"known": [*known]} | data)
    _, panel = opened(config, frame, None, None, begin=True)
    effects = learn_effects(panel, 14)
    if of is not None:
        _, panel = opened(config, of, None, None, begin=True)
    return effect_report(effects, panel.between(only, only + 1), 0)


def levels(report: EffectReport, term: str) -> dict[str, list[float]]:
    """Effect and ends of its interval by the levels of a term."""
    rows = report.rows.filter(pl.col("term") == term)
    return {row["level"]: [row["effect"], row["low"], row["high"]] for row in rows.to_dicts()}


def autoregressive(random, spread, count=DAYS):
    noise = random.normal(0, spread, count)
    for row in range(1, count):
        noise[row] += 0.4 * noise[row - 1]
    return noise


def promoted(seed):
    random = np.random.default_rng(seed)
    promo = (random.random(DAYS) < 0.2) * 1.0
    week = 1 + WEEK[np.arange(DAYS) % 7] / 100
    return days(100 * week * 1.5**promo * np.exp(autoregressive(random, 0.06)), promo=promo)


def heated(seed):
    random = np.random.default_rng(seed)
    degrees = 12 + 10 * np.sin(2 * np.pi * np.arange(DAYS) / 365) + random.normal(0, 3, DAYS)
    low, high = np.quantile(degrees, (0.2, 0.8))
    mean = 100 + 4 * np.maximum(degrees - high, 0) + 3 * np.maximum(low - degrees, 0)
    return days(mean + autoregressive(random, 5), degrees=degrees)


def test_intervals_hold_planted_effects_nine_times_in_ten():
    logs = np.log(1 + WEEK / 100)
    week = 100 * np.expm1(logs - logs.mean())
    held = []
    for seed in range(12):
        found = report_of(promoted(seed), ["promo"])
        assert found.unit == "%"
        promo = levels(found, "promo")["promo"]
        weekdays = [*levels(found, "weekday").values()]
        for (_, low, high), true in zip([promo, *weekdays], [50, *week], strict=True):
            held.append(low < true < high)
    assert 0.82 < np.mean(held) < 0.98


def test_slopes_above_and_below_the_bends_are_those_planted():
    held = []
    for seed in range(12):
        found = report_of(heated(seed), ["degrees"])
        if found.unit == "y":  # else the likelihood of factors was larger
            named = levels(found, "degrees")
            (above,) = (effect for name, effect in named.items() if " above " in name)
            held.append(above[1] < 4 < above[2])
    assert len(held) > 8 and np.mean(held) >= 0.75
    lines = report_of(heated(0), ["degrees"]).report.splitlines()
    assert lines[0].startswith("degrees, each unit below 1.85: \N{MINUS SIGN}3.6 (")
    assert lines[4].startswith("degrees, each unit above 22.4: +4.5 (")


def test_a_planner_reads_promotions_weekdays_and_what_has_no_effect():
    noise = np.random.default_rng(0).normal(size=DAYS)
    lines = report_of(promoted(0).with_columns(noise=noise), ["promo", "noise"]).report.splitlines()
    assert lines[0] == "promo: +49 % (48 to 51)"
    assert lines[1].startswith("weekday: Monday \N{MINUS SIGN}8.") and "Saturday +1" in lines[1]
    assert lines[-1] == "no effect found: noise"


def test_steps_around_an_event_are_told_where_they_are_certain():
    random = np.random.default_rng(1)
    promo = (random.random(DAYS) < 0.05) * 1.0
    values = 100 + 40 * promo + random.normal(0, 2, DAYS)
    values[1:] -= 15 * promo[:-1]
    values[:-2] -= 8 * promo[2:]
    found = levels(report_of(days(values, promo=promo), ["promo"]), "promo")
    expected = {"promo": 40, "1 day after promo": -15, "2 days before promo": -8}
    assert {name: round(effect) for name, (effect, *_) in found.items()} == pytest.approx(
        expected, abs=2
    )


def test_two_words_are_compared_and_more_are_counted_from_their_mean():
    random = np.random.default_rng(2)
    ad, sky = random.choice(["none", "tv"], DAYS), random.choice(["rain", "snow", "sun"], DAYS)
    values = 100 + 20 * (ad == "tv") + 9 * (sky == "sun") + random.normal(0, 1, DAYS)
    found = report_of(days(values, ad=ad, sky=sky), ["ad", "sky"])
    (name, (effect, *_)), *around = levels(found, "ad").items()
    assert name == "ad tv instead of none"
    np.testing.assert_allclose(effect, 20, atol=0.5)
    assert all(abs(chance) < 1 for _, (chance, *_) in around)
    words = levels(found, "sky")
    np.testing.assert_allclose(words["sun"][0] - words["rain"][0], 9, atol=0.5)
    np.testing.assert_allclose(sum(effect for effect, *_ in words.values()), 0, atol=1e-9)


def test_the_year_is_its_highest_and_its_lowest_day():
    random = np.random.default_rng(3)
    values = 100 + 20 * np.sin(2 * np.pi * np.arange(1100) / 365.25) + random.normal(0, 3, 1100)
    found = levels(report_of(days(values, date(2021, 1, 1))), "year")
    (high, low), effects = found, np.array([*found.values()])
    assert high.split()[0] == "highest" and high.split()[2] in ("March", "April")
    assert low.split()[0] == "lowest" and low.split()[2] in ("September", "October")
    np.testing.assert_allclose(effects[:, 0], [20, -20], atol=1.5)


def test_a_day_that_is_closed_is_no_level():
    random = np.random.default_rng(4)
    open_days = days(100 + WEEK[np.arange(500) % 7] + random.normal(0, 2, 500))
    open_days = open_days.filter(pl.col("date").dt.weekday() < 6)
    found = levels(report_of(open_days), "weekday")
    assert [*found] == ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday"]
    effects = np.array([*found.values()])
    np.testing.assert_allclose(effects[:, 0], WEEK[:5] - WEEK[:5].mean(), atol=1)
    assert (effects[:, 2] - effects[:, 1]).max() < 1.5


def test_a_series_that_the_table_lacked_has_the_effect_of_the_others_and_is_less_certain():
    random = np.random.default_rng(5)
    x = random.normal(size=(20, 100))
    slopes = np.linspace(4, 8, 20)
    tables = [
        days(slope * row + random.normal(size=100), x=row).with_columns(series=pl.lit(f"s{number:02}"))
        for number, (slope, row) in enumerate(zip(slopes, x, strict=True))
    ]
    whole = pl.concat(tables)
    other = tables[0].with_columns(series=pl.lit("other"))
    known, *_ = levels(report_of(whole, ["x"], 3), "x").values()
    new, *_ = levels(report_of(whole, ["x"], of=pl.concat([other, tables[1]])), "x").values()
    assert known[1] < slopes[3] < known[2] and known[2] - known[1] < 0.8
    assert new[0] == pytest.approx(6, abs=0.3)
    assert new[1] < 4.4 and new[2] > 7.6


def test_a_table_without_effects_says_so():
    random = np.random.default_rng(6)
    found = report_of(days(random.normal(size=30), x=random.normal(size=30)), ["x"])
    assert found.report == "no clear effect: x" and found.rows.height >= 3
    nothing = report_of(days(np.ones(30)))
    assert nothing.report == "no effects found" and nothing.rows.height == 0
    assert nothing.plot().axes


@pytest.mark.long
def test_the_page_and_the_picture_of_an_explanation_show_effects(tmp_path):
    table = promoted(7).with_columns(y=pl.when(pl.int_range(DAYS) < DAYS - 7).then("y"))
    found = fc.explain(table, 7, known=["promo"])
    found.write(tmp_path / "why.html")
    page = (tmp_path / "why.html").read_text(encoding="utf-8")
    for words in ("<h2>Effects</h2>", "<li>promo: +", "Effects in %", "known covariates", ">Monday<"):
        assert words in page
    assert found.effects.to_pandas()["term"].tolist()[:2] == ["promo", "weekday"]
