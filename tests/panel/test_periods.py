"""Periods in data: planted ones are found, noise has none."""

import csv
from pathlib import Path

import numpy as np
import pytest

from forecaster.panel.calendar import Calendar
from forecaster.panel.periods import Period, find_periods, period_words

M4 = Path("../shared/datasets/M4-Hourly-train.csv")


def found(*signals):
    values = np.concatenate(signals)[:, None]
    return [p.steps for p in find_periods(values, np.cumsum([0, *map(len, signals)]))]


def wave(rng, rows, period, noise):
    time = np.arange(rows)
    return np.sin(2 * np.pi * (time / period + rng.random())) + noise * rng.normal(size=rows)


@pytest.mark.parametrize("noise", [0.0, 0.1, 0.5, 1.0])
def test_planted_periods_are_found_under_noise(noise):
    rng = np.random.default_rng(0)
    for _ in range(40):
        period, slope = int(rng.integers(4, 60)), rng.normal()
        assert found(wave(rng, 500, period, noise) + slope * np.arange(500))[:1] == [period]


def test_two_periods_are_found_and_harmonics_are_not():
    rng = np.random.default_rng(1)
    both = 2 * wave(rng, 1500, 24, 0.3) + wave(rng, 1500, 168, 0.3)
    assert found(both) == [24, 168]
    for period in (9, 26, 43):
        saw = np.arange(600) % period / period * 3 + 0.7 * rng.normal(size=600)
        assert found(saw) == [period]


def test_missing_cells_outliers_and_ragged_series_hide_nothing():
    rng = np.random.default_rng(2)
    series = [wave(rng, rows, 12, 0.5) for rows in (300, 250, 40, 280)]
    for one in series:
        one[rng.random(len(one)) < 0.3] = np.nan
    series[0][7] = 1e9
    assert found(*series) == [12]
    (period,) = find_periods(np.concatenate(series)[:, None], np.cumsum([0, *map(len, series)]))
    assert period.share == 1


def test_a_period_of_a_few_series_is_not_one_of_the_table():
    rng = np.random.default_rng(3)
    noise = [rng.normal(size=300) for _ in range(9)]
    assert found(wave(rng, 300, 12, 0.2), *noise) == []
    assert found(*(wave(rng, 300, 12, 0.2) for _ in range(4)), *noise[:6]) == [12]


def noise_of(kind, seed):
    rng = np.random.default_rng(seed)
    rows = (100, 200, 333)[seed % 3]
    steps = rng.normal(size=(4, rows))
    if kind == "white":
        return steps[:1]
    if kind == "missing":
        return np.where(rng.random((1, rows)) < 0.3, np.nan, steps[:1])
    if kind == "walk":
        return np.cumsum(steps[:1], axis=1)
    if kind == "drift":
        return np.cumsum(steps[:1] + 0.3, axis=1)
    if kind == "shared":
        return np.cumsum(steps[:1], axis=1) + 0.1 * steps
    for t in range(1, rows):
        steps[:, t] += 0.8 * steps[:, t - 1]
    return steps[:1]


@pytest.mark.parametrize("kind", ["white", "missing", "walk", "drift", "shared", "memory"])
def test_noise_has_periods_no_more_often_than_the_level_says(kind):
    hits = sum(bool(found(*noise_of(kind, seed))) for seed in range(300))
    assert hits / 300 <= 0.01


def test_nothing_repeats_where_there_is_nothing():
    for values, indptr in (
        (np.zeros((0, 1)), [0]),
        (np.full((100, 1), np.nan), [0, 100]),
        (np.ones((100, 2)), [0, 50, 100]),
        (np.random.default_rng(0).random((20, 1)), [0, 20]),
        (np.arange(200.0)[:, None], [0, 200]),
        (np.where(np.arange(400) % 2, np.nan, 1.0 * np.arange(400))[:, None], [0, 400]),
    ):
        assert find_periods(values, np.array(indptr)) == ()


def test_a_level_shift_is_no_period():
    """A slow line, which two turns of half the rows explain best."""
    for seed in range(40):
        random = np.random.default_rng(seed)
        promotions = random.random(386) < 0.2
        shifted = 120 + 5 * random.normal(size=386) + 40 * promotions
        shifted += 80 * (np.arange(386) > random.integers(180, 206))
        assert find_periods(shifted[:, None], np.array([0, 386]), hidden=True) == ()


@pytest.mark.skipif(not M4.exists(), reason="the data set is not here")
def test_the_hours_of_the_m4_competition_repeat_every_day():
    with M4.open() as file:
        rows = [[float(cell) for cell in row[1:] if cell] for row in list(csv.reader(file))[1:]]
    assert found(*map(np.array, rows))[0] == 24


@pytest.mark.parametrize(
    ("freq", "of", "words"),
    [
        (
            "1d",
            "channels",
            "7 steps (in 100% of the sampled channels), 365.25 steps (in 62% of the sampled channels)",
        ),
        ("1d", "", "7 steps, 365.25 steps"),
        ("1h", "", "7 steps, 366 steps"),
        ("1i", "", "7 steps, 366 steps"),
        ("1mo", "", "7 steps, 366 steps"),
    ],
)
def test_a_share_of_periods_says_of_what_and_a_year_of_days_is_365_25(freq, of, words):
    periods = [Period(7, 1.0, 7.0), Period(366, 0.62, 366.0)]
    assert period_words(periods, Calendar(freq, None, freq == "1i"), of) == words
