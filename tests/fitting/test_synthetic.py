"""Each kind of made series does what it claims."""

import numpy as np
import pytest

from forecaster.fitting.pretrain.synthetic import KINDS, SeriesShape, make_series

MONTHS = SeriesShape(count=64, length=144, season=12)
DAYS = SeriesShape(count=64, length=800, season=7, second=365)


def lag_correlation(values, lag):
    """The correlation of values with those some steps before, median over series."""
    centred = values - values.mean(axis=1, keepdims=True)
    product = (centred[:, lag:] * centred[:, :-lag]).mean(axis=1)
    return np.median(product / centred.var(axis=1))


@pytest.mark.parametrize("shape", [MONTHS, DAYS, SeriesShape(8, 30)], ids=["months", "days", "years"])
@pytest.mark.parametrize("kind", KINDS)
def test_series_are_finite_vary_and_follow_from_their_seed(kind, shape):
    if KINDS[kind].seasonal and shape.season == 1:
        with pytest.raises(ValueError, match="need a season"):
            make_series(kind, shape, 0)
        return
    values = make_series(kind, shape, 0)
    assert values.shape == (shape.count, shape.length)
    assert values.dtype == np.float64
    assert np.isfinite(values).all()
    # Rare demand may leave a short series without any.
    assert (values.std(axis=1) > 0).mean() > (0.5 if KINDS[kind].counts else 0.999)
    assert np.array_equal(values, make_series(kind, shape, 0))
    assert not np.array_equal(values, make_series(kind, shape, 1))


@pytest.mark.parametrize("kind", [name for name, kind in KINDS.items() if kind.positive])
def test_positive_kinds_are_positive(kind):
    assert make_series(kind, DAYS, 0).min() > 0


@pytest.mark.parametrize("kind", [name for name, kind in KINDS.items() if kind.counts])
def test_counts_are_whole_numbers_from_0_on(kind):
    values = make_series(kind, MONTHS, 0)
    assert values.min() == 0
    assert np.array_equal(values, values.round())


def test_a_level_returns_and_a_walk_does_not():
    plain = SeriesShape(64, 400)
    assert lag_correlation(make_series("level", plain, 0), 50) < 0.2
    walk = make_series("random_walk", plain, 0)
    assert lag_correlation(walk, 20) > 0.5
    assert abs(lag_correlation(np.diff(walk), 1)) < 0.1


def test_flat_series_have_no_memory_beyond_their_season():
    flat = make_series("flat", SeriesShape(256, 400), 0)
    assert all(abs(lag_correlation(flat, lag)) < 0.03 for lag in (1, 5, 30))
    seasonal = (
        make_series("flat", SeriesShape(256, 400, 7), 0).reshape(256, -1)[:, :399].reshape(256, 57, 7)
    )
    spread = seasonal.std(axis=1)
    assert (spread.max(axis=1) / spread.min(axis=1) > 2).mean() > 0.15


def test_a_line_leaves_no_memory():
    values = make_series("line", SeriesShape(256, 200), 0)
    time = np.arange(200)
    fits = np.polynomial.polynomial.polyfit(time, values.T, 1)
    left = values - np.polynomial.polynomial.polyval(time, fits)
    assert abs(lag_correlation(left, 1)) < 0.05
    assert np.median(values.std(axis=1) / left.std(axis=1)) > 1.2


def test_compound_growth_is_a_line_of_logarithms():
    values = np.log(make_series("compound", SeriesShape(256, 200), 0))
    time = np.arange(200)
    fits = np.polynomial.polynomial.polyfit(time, values.T, 1)
    left = values - np.polynomial.polynomial.polyval(time, fits)
    assert abs(lag_correlation(left, 1)) < 0.05
    assert np.abs(fits[1] * 200).max() > 1


def test_saturating_series_change_less_at_the_end():
    values = make_series("saturating", SeriesShape(512, 400), 0)
    quarters = values.reshape(512, 4, 100).mean(axis=2)
    first, _, last = np.abs(np.diff(quarters, axis=1)).T
    assert np.median(last / first) < 0.9


def test_the_slope_of_a_local_trend_goes_on():
    values = make_series("local_trend", SeriesShape(512, 100), 0)
    before = values[:, 89] - values[:, 79]
    after = values[:, 99] - values[:, 89]
    assert (np.sign(before) == np.sign(after)).mean() > 0.7


def test_totals_never_fall():
    assert (np.diff(make_series("cumulative", DAYS, 0)) >= 0).all()


def test_the_season_of_growth_grows_with_the_level():
    values = make_series("growth", SeriesShape(512, 144, 12), 0).reshape(512, 12, 12)
    level, spread = values.mean(axis=2), values.std(axis=2)
    rising = level[:, -1] > 2 * level[:, 0]
    assert rising.sum() > 50
    assert np.median(spread[rising, -1] / spread[rising, 0]) > 1.5


def test_the_spread_of_a_growing_season_changes_by_more_than_its_level():
    values = make_series("growing_season", SeriesShape(512, 144, 12), 0).reshape(512, 12, 12)
    spread = values.std(axis=2)
    change = np.abs(np.log(spread[:, -1] / spread[:, 0]))
    assert np.median(change) > 0.4


def test_a_moving_season_is_nearer_to_its_last_than_to_its_first():
    values = make_series("moving_season", SeriesShape(512, 144, 12), 0).reshape(512, 12, 12)
    last = np.abs(values[:, -1] - values[:, -2]).mean(axis=1)
    first = np.abs(values[:, -1] - values[:, 0]).mean(axis=1)
    assert np.median(first / last) > 1.3


def test_weekday_and_time_of_year_matter():
    values = np.log(make_series("weekly_and_yearly", DAYS, 0))
    assert lag_correlation(values, 7) > lag_correlation(values, 3) + 0.1
    assert lag_correlation(values, 364) > lag_correlation(values, 182)


def test_closed_days_are_closed_each_week():
    values = make_series("closed_days", DAYS, 0)[:, :798].reshape(64, 114, 7)
    closed = (values == 0).all(axis=1)
    assert np.array_equal(closed, (values == 0).any(axis=1))
    assert closed.any(axis=1).mean() > 0.5
    assert not closed.all(axis=1).any()


def test_intermittent_demand_is_0_at_most_steps():
    values = make_series("intermittent", DAYS, 0)
    assert ((values == 0).mean(axis=1) > 0.4).all()
    assert np.median((values == 0).mean(axis=1)) > 0.7


def test_shares_stay_between_0_and_1():
    values = make_series("bounded", DAYS, 0)
    assert 0 < values.min() < values.max() < 1


def test_the_last_level_of_a_shift_is_another_one():
    values = make_series("shift", SeriesShape(512, 120, 12), 0)
    usual = values[:, :100]
    distance = np.abs(values[:, -1] - usual.mean(axis=1)) / usual.std(axis=1)
    assert np.median(distance) > 2.5


def test_levels_change_at_breaks():
    values = make_series("breaks", SeriesShape(512, 200), 0)
    halves = np.abs(values[:, :100].mean(axis=1) - values[:, 100:].mean(axis=1))
    within = values[:, :100].std(axis=1)
    assert np.median(halves / within) > 0.8


def test_large_changes_follow_large_changes():
    sizes = np.abs(np.diff(make_series("changing_spread", SeriesShape(512, 1000), 0)))
    noise = np.abs(np.diff(make_series("random_walk", SeriesShape(512, 1000), 0)))
    assert lag_correlation(sizes, 5) > lag_correlation(noise, 5) + 0.03


def test_waves_come_back_after_a_period_of_no_calendar():
    values = make_series("waves", SeriesShape(256, 800), 0)
    spectrum = np.abs(np.fft.rfft(values - values.mean(axis=1, keepdims=True))) ** 2
    period = 800 / spectrum[:, 1:].argmax(axis=1).clip(1)
    assert ((period > 4) & (period < 60)).mean() > 0.9
