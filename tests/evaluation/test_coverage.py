"""The coverage of a band: ties shared out as by a loop, an interval that holds what it says, a warning."""

from io import StringIO

import numpy as np
import pytest
from evaluation.report_page import backtest_of, panel_of
from forecast import tiny

import forecaster as fc
from forecaster.evaluation.backtest import actual_of
from forecaster.evaluation.comparison import MODEL
from forecaster.evaluation.coverage import Coverage, band_of, coverage_interval, share_inside
from forecaster.evaluation.report import verdict_section
from forecaster.evaluation.report_data import ReportData
from forecaster.runs.console import Screen

NINE = tuple(level / 10 for level in range(1, 10))


def _slow_share(y: float, quantiles: list[float], levels: tuple[float, ...]) -> float:
    """The share by its definition: each level is a cell of probability, halfway to its neighbours."""
    low, high = band_of(levels)
    if y < quantiles[low] or y > quantiles[high]:
        return 0.0
    if y not in (quantiles[low], quantiles[high]):
        return 1.0
    inside = whole = 0.0
    for place, quantile in enumerate(quantiles):
        if quantile != y:
            continue
        begin = 0.0 if place == 0 else (levels[place - 1] + levels[place]) / 2
        end = 1.0 if place == len(levels) - 1 else (levels[place] + levels[place + 1]) / 2
        whole += end - begin
        inside += max(0.0, min(end, levels[high]) - max(begin, levels[low]))
    return inside / whole


@pytest.mark.parametrize(
    "levels", [NINE, (0.1, 0.5, 0.9), (0.05, 0.1, 0.3, 0.5, 0.9, 0.95), (0.2, 0.5, 0.8)]
)
def test_ties_are_shared_out_as_by_a_slow_loop(levels):
    rng = np.random.default_rng(0)
    quantiles = np.sort(rng.integers(0, 4, (40, 6, len(levels))), axis=-1).astype(float)
    actual = rng.integers(-1, 5, (40, 6)).astype(float)
    actual[0] = np.nan
    slow = [
        [_slow_share(y, row.tolist(), levels) for y, row in zip(ys, rows, strict=True)]
        for ys, rows in zip(actual[1:], quantiles[1:], strict=True)
    ]
    found = share_inside(actual, quantiles, levels)
    np.testing.assert_allclose(found[1:], slow, atol=1e-12)
    assert (found[0] == 0).all()


def test_without_ties_the_share_is_whether_the_band_holds_the_value():
    rng = np.random.default_rng(1)
    quantiles, actual = np.sort(rng.normal(size=(300, 9))), rng.normal(size=300)
    plain = (quantiles[:, 0] <= actual) & (actual <= quantiles[:, -1])
    assert (share_inside(actual, quantiles, NINE) == plain).all()


@pytest.mark.parametrize("mean", [0.2, 0.7, 2.0, 6.0, 30.0])
def test_the_band_of_a_perfect_forecast_of_counts_holds_about_what_it_says(mean):
    draws = np.random.default_rng(2).poisson(mean, 100_000).astype(float)
    quantiles = np.quantile(draws, NINE, method="inverted_cdf")
    each = np.broadcast_to(quantiles, (len(draws), 9))
    plain = ((quantiles[0] <= draws) & (draws <= quantiles[-1])).mean()
    found = share_inside(draws, each, NINE).mean()
    assert abs(found - 0.8) < 0.05 and abs(found - 0.8) < abs(plain - 0.8)


def test_a_forecast_that_is_always_right_holds_four_in_five_not_all():
    assert share_inside(np.full(3, 7.0), np.full((3, 9), 7.0), NINE) == pytest.approx(0.8)


def _slow_interval(inside: np.ndarray, cells: np.ndarray, block: int) -> tuple[float, float]:
    rng, shares = np.random.default_rng(9), []
    for _ in range(4000):
        drawn: list[int] = []
        while len(drawn) < len(cells):
            start = int(rng.integers(0, len(cells)))
            drawn += [(start + step) % len(cells) for step in range(block)]
        drawn = drawn[: len(cells)]
        shares.append(sum(inside[k] for k in drawn) / sum(cells[k] for k in drawn))
    return tuple(np.quantile(shares, [0.05, 0.95]))


@pytest.mark.parametrize(("overlap", "block"), [(1, 3), (6, 6)])
def test_the_interval_is_that_of_a_slow_loop_over_blocks(overlap, block):
    rng = np.random.default_rng(3)
    cells = rng.integers(5, 30, 30).astype(float)
    inside = np.round(cells * rng.uniform(0.5, 1, 30))
    share, *ends = coverage_interval(inside, cells, overlap)
    assert share == inside.sum() / cells.sum()
    np.testing.assert_allclose(ends, _slow_interval(inside, cells, block), atol=0.01)


def test_the_interval_holds_the_true_coverage_about_as_often_as_it_says():
    rng, held = np.random.default_rng(4), 0
    for _ in range(300):
        each = rng.beta(8, 2, 60)  # errors of a cutoff are alike
        share, low, high = coverage_interval(rng.binomial(20, each).astype(float), np.full(60, 20.0))
        held += low <= 0.8 <= high
        assert low <= share <= high
    assert 0.8 < held / 300 < 0.97


def test_advice_follows_direction_and_size():
    wide = Coverage(80, 0.87, 0.85, 0.89, 0.87)
    assert (wide.off(0.04), wide.off(), wide.findings()) == ("wide", "", ())
    assert "safe" in wide.advice()
    narrow = Coverage(80, 0.5, 0.45, 0.55, 0.5)
    assert narrow.advice() == "2.5 times as many values fall outside as should: plan with a wider band"
    assert narrow.off() == "narrow" and narrow.advice() in narrow.findings()[0].advice


def test_one_cutoff_has_no_interval_and_no_warning():
    share, low, high = coverage_interval(np.array([1.0, 0.0]), np.array([10.0, 0.0]))
    assert share == 0.1 and np.isnan(low) and np.isnan(high)
    one = Coverage(80, share, low, high, share)
    assert (
        one.findings() == ()
        and one.line() == "80 % band holds 10.0 % (too few cutoffs for an interval)"
    )


@pytest.mark.parametrize(
    ("low", "high", "said"),
    [(0.6, 0.69, "too narrow"), (0.6, 0.71, ""), (0.89, 0.95, ""), (0.91, 0.95, "too wide")],
)
def test_a_warning_takes_a_whole_interval_outside_70_to_90_percent(low, high, said):
    found = Coverage(80, (low + high) / 2, low, high, 0.99).findings()
    assert [one.severity for one in found] == (["warning"] if said else [])
    assert all(said in one.text and "99.0 % with each tie inside" in one.text for one in found)


def test_a_backtest_says_its_coverage_and_warns_of_bands_that_do_not_hold():
    found = backtest_of(panel_of(8), windows=6, noise=0.001, shift=1.0)
    levels = found.forecasts[0].levels
    shares = [share_inside(actual_of(one), one.quantiles, levels) for one in found.forecasts]
    scored = [~np.isnan(actual_of(one)) for one in found.forecasts]
    expected = sum(one.sum() for one in shares) / sum(one.sum() for one in scored)
    mine = found.coverage
    assert mine.share == found.scores[MODEL]["coverage_80_ties"] == pytest.approx(expected)
    assert mine.plain == found.scores[MODEL]["coverage_80"]
    console = Screen(width=200, file=StringIO())
    console.print_summary(found)
    said = console.file.getvalue()
    assert mine.line() in said and "90 % interval" in mine.line()
    assert mine.high < 0.7 and "warning  coverage" in said and "too narrow" in said
    assert "90 % interval" in verdict_section(ReportData(found))


@pytest.mark.long
def test_levels_without_a_tenth_name_the_outermost_pair_and_a_median_alone_says_nothing():

    def scored(*levels: float) -> fc.Backtest:
        settings = {"model": {"quantile_levels": levels, "experts": ["naive"]}}
        options = {"windows": 2, "fit": False, "quiet": True}
        return fc.backtest(tiny.plain(40), 7, config=settings, **options)

    found = scored(0.25, 0.5, 0.75, 0.9)
    assert found.coverage.band == 50 and found.coverage.line().startswith("50 % band holds")
    alone = scored(0.5)
    assert alone.coverage is None and alone.findings == ()
