"""Outliers are drawn in, level shifts levelled, and all else stays as it is."""

import numpy as np
import pytest

from forecaster.panel import outliers
from forecaster.panel.outliers import cleaned

SERIES, STEPS, SEASON = 40, 200, 7


@pytest.fixture
def random():
    return np.random.default_rng(3)


def steady(random):
    level = random.uniform(50, 200, (SERIES, 1))
    week = 10 * np.sin(2 * np.pi * np.arange(STEPS) / SEASON)
    return level + week + random.normal(0, 3, (SERIES, STEPS))


def tenfold_at_the_end(values, random):
    values[:, -1] *= 10


def nothing_at_the_end(values, random):
    values[:, -1] = 0


def a_week_of_zeros(values, random):
    values[:, 100:107] = 0


def many(values, random):
    values[random.random(values.shape) < 0.02] *= 20


def a_gap_after(values, random):
    values[:, -6] *= 10
    values[:, -5:] = np.nan


@pytest.mark.parametrize(
    "plant", [tenfold_at_the_end, nothing_at_the_end, a_week_of_zeros, many, a_gap_after]
)
def test_outliers_are_drawn_in(plant, random):
    true = steady(random)
    values = true.copy()
    plant(values, random)
    planted = ~np.isnan(values) & (values != true)
    found, changes = cleaned(values, SEASON)
    missed = np.abs(found - true)[planted]
    assert np.quantile(missed, 0.98) < 12  # of four deviations of the noise
    np.testing.assert_array_equal(found[~planted], values[~planted])
    assert sum(one.last - one.first for one in changes) >= 0.98 * planted.sum()


@pytest.mark.parametrize("last", [10, 30, 100])
def test_rows_before_a_level_shift_have_the_level_after_it(last, random):
    true = steady(random)
    values = true.copy()
    values[:, :-last] -= 60
    found, changes = cleaned(values, SEASON)
    assert [one.series for one in changes] == [*range(SERIES)]
    assert all(one.is_shift and abs(one.first - (STEPS - last)) <= 1 for one in changes)
    assert np.abs((found - true).mean(axis=1)).max() < 5


def test_rows_before_another_unit_have_the_scatter_after_it(random):
    true = steady(random)
    values = true.copy()
    values[:, :100] /= 1000
    found, _ = cleaned(values, SEASON)
    assert np.abs(found.std(axis=1) / true.std(axis=1) - 1).max() < 0.4
    assert np.abs(found.mean(axis=1) - true.mean(axis=1)).max() < 8


def walk(random, shape):
    return random.normal(size=shape).cumsum(axis=1)


def growth(random, shape):
    month = np.arange(shape[1])
    return (
        100
        * 1.01**month
        * (1 + 0.3 * np.sin(2 * np.pi * month / 12))
        * random.lognormal(0, 0.02, shape)
    )


@pytest.mark.parametrize(
    ("draw", "season"),
    [
        (lambda random, shape: random.normal(size=shape), 7),
        (walk, 7),
        (growth, 12),
        (lambda random, shape: random.poisson(0.3, shape), 7),
        (lambda random, shape: random.poisson(5, shape), 7),
        (lambda random, shape: random.negative_binomial(0.5, 0.2, shape), 7),
        (lambda random, shape: np.cumsum(random.random(shape) < 0.02, axis=1), 7),
        (lambda random, shape: np.full(shape, 5.0), 7),
    ],
)
def test_what_is_natural_stays(draw, season, random):
    values = np.asarray(draw(random, (100, 300)), float)
    found, changes = cleaned(values, season)
    assert len(changes) <= 5
    assert (found != values).mean() < 0.005


def test_far_values_at_the_start_are_outliers_where_the_next_are_not(random):
    true = steady(random)
    values = true.copy()
    values[:20, 0] += 500
    values[20:, :3] += 500
    found, changes = cleaned(values, SEASON)
    assert not any(one.is_shift for one in changes)
    assert np.abs(found - true).max() < 20
    values[20:, :12] = true[20:, :12] + 500  # longer than outliers last
    found, changes = cleaned(values, SEASON)
    assert {one.series for one in changes if one.is_shift} == {*range(20, SERIES)}


def test_a_step_at_the_end_of_a_random_walk_stays(random):
    values = walk(random, (SERIES, STEPS))
    values[:, -1] += 30
    assert cleaned(values, SEASON)[1] == []


def test_values_far_away_in_every_twelfth_row_are_the_nature_of_a_series(random):
    values = random.normal(100, 3, (SERIES, STEPS))
    values[:, ::12] += 200
    assert cleaned(values, 1)[1] == []


def test_it_commutes_with_another_unit_and_another_zero(random):
    values = steady(random)
    for plant in (many, a_gap_after):
        plant(values, random)
    values[:10, :80] -= 90
    found, changes = cleaned(values, SEASON)
    other, others = cleaned(-3 * values + 1000, SEASON)
    np.testing.assert_allclose(other, -3 * found + 1000, rtol=1e-9)
    assert [one[:3] for one in others] == [one[:3] for one in changes]


def test_series_are_read_one_by_one(random):
    values = steady(random)
    many(values, random)
    values[3, :150] = np.nan
    whole, _ = cleaned(values, SEASON)
    for number in range(SERIES):
        alone, _ = cleaned(values[number : number + 1], SEASON)
        np.testing.assert_array_equal(alone[0], whole[number])


@pytest.mark.parametrize("shape", [(3, 0), (0, 5), (2, 1), (2, 21)])
def test_short_and_empty_histories_stay(shape):
    values = np.full(shape, np.nan)
    values[:, -1:] = 1e25
    found, changes = cleaned(values, SEASON)
    assert found is values
    assert changes == []


def test_it_measures_what_a_slow_twin_measures(random):
    values = steady(random)[:6]
    many(values, random)
    values[0, :60] = np.nan
    values[1, 50:60] = np.nan
    course = outliers._course(values, 1)
    for number, row in enumerate(values):
        level, missed, far = slow_course(row)
        np.testing.assert_allclose(course.level[number], level)
        np.testing.assert_array_equal(course.far[number], far)
        lasting, move = slow_persistence(course.values[number], level, missed, far)
        assert course.lasting[number] == lasting
        assert course.move[number] == pytest.approx(move)


def middle(values, share=0.5):
    """The value below a share."""
    seen = sorted(value for value in values if value == value)
    return seen[int(share * (len(seen) - 1))]


def slow_course(row):
    """Level, error and whether a value is far, by loops."""
    filled = row.copy()
    for step in range(1, len(row)):
        if np.isnan(filled[step]):
            filled[step] = filled[step - 1]
    before = np.full(len(row), np.nan)
    for step in range(7, len(row)):
        seven = filled[step - 7 : step]
        if not np.isnan(seven).any():
            before[step] = sorted(seven)[3]
    drift = middle(filled - before)
    level = before + drift
    for step in range(len(row) - 7):
        seven = filled[step + 1 : step + 8]
        if np.isnan(level[step]) and not np.isnan(seven).any():
            level[step] = sorted(seven)[3] - drift
    missed = filled - level
    far = np.zeros(len(row), bool)
    for sign in (1, -1):
        usual = middle([abs(one) for one in missed if sign * one > 0], 0.9)
        for step, one in enumerate(missed):
            far[step] |= sign * one > 4 * usual
    return level, missed, far & ~np.isnan(row)


def slow_persistence(values, level, missed, far):
    """Whether errors last, and the typical difference of neighbouring levels, by loops."""
    usual = 1.4826 * middle(abs(missed))
    left, moves = [], []
    for step in range(len(values)):
        if step + 7 < len(values):
            moves.append(abs(sorted(values[step + 1 : step + 8])[3] - level[step]))
        is_likely = abs(missed[step]) > 1.5 * usual and step + 3 < len(values)
        if is_likely and not slow_far(missed, step):
            after = sorted(values[step + 1 : step + 4])[1]
            left.append(min(2, max(-1, (after - level[step]) / missed[step])))
    return sum(left) / (len(left) + 4) >= 0.5, 1.4826 * middle(moves)


def slow_far(missed, step):
    sign = np.sign(missed[step])
    usual = middle([abs(one) for one in missed if sign * one > 0], 0.9)
    return abs(missed[step]) > 4 * usual
