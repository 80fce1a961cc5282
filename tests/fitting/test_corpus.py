"""What weights are learned from holds no development table, under any unit."""

import numpy as np
import pytest

from forecaster.fitting.pretrain.corpus import RealSeries, coarser, leave_out, run_keys

rng = np.random.default_rng(3)
TABLE = rng.normal(100, 10, 80).round(4)


def real(values, name="x"):
    return RealSeries("made", name, "M", np.asarray(values, float), None)


def shares(one, other):
    return bool(np.isin(run_keys(np.asarray(one, float)), run_keys(np.asarray(other, float))).any())


def shares_slowly(one, other):
    """The same by looking at each pair of runs."""
    for i in range(len(one) - 5):
        for j in range(len(other) - 5):
            a, b = np.asarray(one[i : i + 6], float), np.asarray(other[j : j + 6], float)
            if np.array_equal(a, b) and len(set(a)) >= 4:
                return True
            if min(_fineness(a), _fineness(b)) < 1:
                continue
            # y = slope · x + zero through the least and the largest.
            for x in (_unit(a), 1 - _unit(a)):
                if np.abs(x - _unit(b)).max() < 3e-6:
                    return True
    return False


def _unit(run):
    return (run - run.min()) / (run.max() - run.min())


def _fineness(run):
    gaps = np.diff(np.sort(run))
    if (gaps == 0).any():
        return 0
    return (run.max() - run.min()) / gaps.min() / 1000


@pytest.mark.parametrize("change", [
    lambda y: y, lambda y: 1000 * y, lambda y: 7 - 0.3 * y, lambda y: y + 1e4,
])  # fmt: skip
def test_a_run_of_fine_values_is_met_again_in_any_unit(change):
    fine = np.array([1.0, 3.5, 3.501, 9.25, 4.4, 7.125, 2.0])
    other = np.concatenate([rng.normal(size=30), change(fine), rng.normal(size=30)])
    assert shares(fine, other)
    assert shares_slowly(fine, other)


@pytest.mark.parametrize("count", [5, 6])
def test_six_values_are_shared_and_five_are_not(count):
    other = np.concatenate([rng.normal(size=20), TABLE[10 : 10 + count], rng.normal(size=20)])
    assert shares(TABLE, other) is (count == 6)


def test_small_counts_are_alike_by_chance_and_say_nothing():
    assert not shares([0, 0, 1, 0, 0, 0, 2, 0], [0, 0, 1, 0, 0, 0, 2, 0])
    assert not shares([1, 2, 3, 4, 5, 6], [10, 20, 30, 40, 50, 60])  # a line, scaled
    assert shares([1, 2, 3, 4, 5, 6], [0, 1, 2, 3, 4, 5, 6])  # the same numbers as they are


def test_missing_values_break_a_run():
    holed = TABLE.copy()
    holed[::5] = np.nan
    assert not shares(TABLE, holed)


def test_keys_say_what_the_slow_comparison_says():
    draws = np.random.default_rng(5)
    for number in range(60):
        one = draws.normal(size=12).round(draws.integers(0, 5))
        other = draws.normal(size=12).round(draws.integers(0, 5))
        if number % 2:
            begin = draws.integers(0, 6)
            other[begin : begin + 6] = one[3:9] * draws.choice([1, 2.5]) + draws.choice([0, 8])
        assert shares(one, other) == shares_slowly(one, other), (one, other)


def test_series_that_a_table_holds_are_left_out_and_named_by_table():
    whole = [real(TABLE * 2.54, "inches"), real(rng.normal(size=50), "other"), real([1, 2], "short")]
    kept, shared = leave_out(whole, {"table": [TABLE], "empty": []})
    assert [series.name for series in kept] == ["other", "short"]
    assert shared == {"table": ["made/inches"]}


def test_longer_steps_are_means_of_whole_ones_that_end_with_the_series():
    values = np.arange(1.0, 100.0)
    values[-1] = np.nan
    (found,) = coarser(RealSeries("shop", "a", "M", values, np.datetime64("2000-01-01")))
    assert (found.step, found.start, found.name) == ("Q", None, "a/Q")
    assert len(found.values) == 33 and np.isnan(found.values[-1])
    assert found.values[:2].tolist() == [2.0, 5.0]
    assert coarser(RealSeries("shop", "a", "Q", values[:60], None)) == []
    (ten, fifteen) = coarser(RealSeries("road", "a", "5min", np.arange(601.0), None))
    assert (ten.step, fifteen.step) == ("10min", "15min") and fifteen.values[-1] == 599.0
