"""Anomalies one step ahead: planted ones found; equal to a loop over cutoffs; keyed and counted."""

from dataclasses import replace
from datetime import date, datetime, timedelta
from functools import cache

import numpy as np
import polars as pl
import pytest
from forecast import tiny

import forecaster as fc
from forecaster.cli import app
from forecaster.forecast.detect import NAMES, _limit, detect
from forecaster.forecast.plots import PANELS
from forecaster.forecast.predictor import Predictor

HOURS, HORIZON = 24 * 25, 6
DAYS, SPIKES = 1000, 10


def _meter(hours=HOURS, seed=0):
    """An hourly meter with a daily cycle, as a table."""
    rng = np.random.default_rng(seed)
    clock = [datetime(2024, 1, 1) + timedelta(hours=hour) for hour in range(hours)]
    values = 20 + 5 * np.sin(2 * np.pi * np.arange(hours) / 24) + rng.normal(size=hours)
    return pl.DataFrame({"time": clock, "load": values})


@pytest.fixture(scope="module")
def meter_model():
    config = {
        "fit": {"steps": 8, "batch_size": 32, "validation": 0.4},
        "model": {"width": 16, "heads": 2, "encoder_layers": 1},
        "tracking": {"enabled": False},
    }
    return fc.fit(_meter(), horizon=HORIZON, config=config, quiet=True)


@pytest.mark.long
def test_planted_anomalies_are_found_on_rows_the_model_has_not_seen(meter_model, capsys):
    table = _meter(HOURS + 480, seed=0)
    values = table["load"].to_numpy().copy()
    rng = np.random.default_rng(7)
    planted = HOURS + np.sort(rng.choice(480, 24, replace=False))
    values[planted] += rng.choice([-1, 1], 24) * rng.uniform(6, 10, 24)
    anomalies = meter_model.detect(table.with_columns(load=pl.Series(values)))
    new = anomalies.rows[HOURS:]
    found = new["anomaly"].to_numpy() != "inside"
    truth = np.isin(np.arange(HOURS, HOURS + 480), planted)
    precision, recall = (found & truth).sum() / found.sum(), (found & truth).sum() / truth.sum()
    with capsys.disabled():
        print(f"\n24 of 480 steps planted: precision {precision:.2f}, recall {recall:.2f}", end=" ")
    assert precision >= 0.7 and recall >= 0.9
    signs = np.sign(values - _meter(HOURS + 480)["load"].to_numpy())[HOURS:]
    caught = found & truth
    assert (new["anomaly"].to_numpy()[caught] == np.where(signs[caught] > 0, "above", "below")).all()
    ranked = np.argsort(-new["score"].to_numpy())[:24]
    assert truth[ranked].mean() >= 0.85


@pytest.mark.long
def test_the_band_of_a_quiet_meter_covers_its_share_of_new_steps(meter_model):
    anomalies = meter_model.detect(_meter(HOURS + 480, seed=3), level=80)
    inside = (anomalies.rows["anomaly"][HOURS:] == "inside").mean()
    assert 0.74 < inside < 0.87  # three and a half standard errors of 480 steps around .8
    assert "inside the 80 % band" in anomalies.report


@pytest.mark.parametrize("known", [True, False])
def test_anomalies_are_those_of_a_loop_that_forecasts_from_each_step_before(known):
    model = tiny.model() if known else tiny.plain_model()
    table = tiny.shop() if known else tiny.plain()
    panel = model.open(table)
    anomalies = detect(model.artifact, panel)
    predictor = Predictor(model.artifact)
    patch = model.artifact.plan.model.patch
    for series, at in ((0, patch), (1, 50), (2, 99)):
        row = int(panel.indptr[series]) + at
        (forecast,) = predictor.forecasts_at(panel, [int(panel.time[row - 1])], horizon=1)
        low, median, high = band = anomalies.band[row, 0]
        assert median == pytest.approx(forecast.quantiles[series, 0, 0][4], rel=1e-4)
        assert low < median < high
        value = panel.values[row, 0]
        expected = "above" if value > band[2] else "below" if value < band[0] else "inside"
        assert NAMES[anomalies.anomaly[row, 0]] == expected
        side = band[2] - band[1] if value > band[1] else band[1] - band[0]
        assert anomalies.score[row, 0] == pytest.approx(abs(value - band[1]) / side, rel=1e-3)
    assert (anomalies.anomaly[: int(panel.indptr[0]) + patch] == 0).all()


def test_a_step_and_what_follows_it_change_nothing_before_it():
    panel = tiny.plain_model().open(tiny.plain())
    artifact = tiny.plain_model().artifact
    noisy = panel.values.copy()
    noisy[60:100] += 50  # of the first series, from its step 60 on
    before = detect(artifact, panel)
    after = detect(artifact, replace(panel, values=noisy))
    medians = before.band[..., 1], after.band[..., 1]
    assert tiny.bits(medians[0][:61]) == tiny.bits(medians[1][:61])
    assert tiny.bits(medians[0][100:]) == tiny.bits(medians[1][100:])


def test_every_step_has_one_row_in_the_callers_own_names():
    table = tiny.shop(stores=("a", "b"))
    table = table.with_columns(
        sales=pl.when((pl.col("store") == "b") & pl.col("date").is_in([tiny.day(40), tiny.day(41)]))
        .then(None)
        .otherwise("sales")
    ).filter(~((pl.col("store") == "a") & (pl.col("date") == tiny.day(30))))
    anomalies = tiny.model().detect(table)
    rows = anomalies.rows
    assert rows.columns == [
        *("store", "date", "channel", "actual", "forecast"),
        *("lo-99", "hi-99", "anomaly", "score", "event", "status"),
    ]
    assert rows.height == 200 and rows.select("store", "date").n_unique() == 200  # with the gap row
    assert rows["store"].dtype == table["store"].dtype and rows["date"].dtype == table["date"].dtype
    empty = rows.filter(pl.col("status") == "no value")
    assert empty.select("store", "date").rows() == [
        ("a", tiny.day(30)),
        ("b", tiny.day(40)),
        ("b", tiny.day(41)),
    ]
    assert empty["anomaly"].null_count() == empty["score"].null_count() == 3
    patch = tiny.model().artifact.plan.model.patch
    unknown = rows.filter(pl.col("status").str.starts_with(f"fewer than {patch} steps of history"))
    assert unknown.height == 2 * patch and unknown["anomaly"].null_count() == 2 * patch
    compared = rows.filter(pl.col("status") == "ok")
    assert compared["anomaly"].null_count() == 0 and compared["score"].null_count() == 0
    counts = anomalies.counts
    assert sum(counts.values()) == 200 and counts[""] == 3 + 2 * patch
    start = f"2 series, 200 rows: {counts['inside']} inside the 99 % band, {counts['above']} above"
    assert anomalies.report.startswith(start)
    assert (
        f"{compared.height} of {compared.height} steps are not later than 2024-04-09"
        in anomalies.report
    )


def test_pandas_in_pandas_out_and_a_wide_table_has_a_row_per_channel():
    table = _meter(200).with_columns(gas=pl.col("load") * 2 + pl.Series(np.arange(200) % 7))
    anomalies = fc.detect(table.to_pandas())
    frame = anomalies.frame
    assert type(frame).__module__.startswith("pandas") and len(frame) == 400
    assert frame["channel"].tolist() == ["load"] * 200 + ["gas"] * 200
    np.testing.assert_allclose(frame["actual"][:200], table["load"].to_numpy(), rtol=1e-6)


@pytest.mark.long
def test_a_higher_level_marks_fewer_steps_and_scores_are_distances_in_its_band(meter_model):
    found = [meter_model.detect(_meter(), level=level) for level in (60, 90, 99.5)]
    outside = [one.counts["above"] + one.counts["below"] for one in found]
    assert outside[0] > outside[1] > outside[2]
    for one, share in zip(found, (0.4, 0.1, 0.005), strict=True):
        low, _, high = np.moveaxis(one.band, -1, 0)
        values = one.panel.values[:, :1]
        assert ((one.anomaly == 2) == (values > high)).all()
        assert ((one.anomaly == 3) == (values < low)).all()
        assert ((one.score > 1) == (one.anomaly > 1)).all() and (
            (one.event > 0) == (one.anomaly > 1)
        ).all()
        assert (one.anomaly > 1).mean() == pytest.approx(share, rel=0.3, abs=0.008)


@pytest.mark.parametrize("level", [0.0, 100, float("nan"), -1])
def test_a_level_that_is_no_percentage_is_refused(level):
    with pytest.raises(fc.ConfigError, match="expected a number above 0 and below 100, percent"):
        tiny.plain_model().detect(tiny.plain(), level=level)


def test_a_model_of_the_median_alone_has_the_band_of_its_errors():
    config = tiny.config_with(quantile_levels=[0.5], experts=["seasonal_mean"])
    model = fc.fit(tiny.plain(), horizon=3, config=config, quiet=True)
    anomalies = model.detect(tiny.plain(), level=90)
    low, median, high = np.moveaxis(anomalies.band, -1, 0)
    np.testing.assert_allclose(high - median, median - low)
    outside = anomalies.counts["above"] + anomalies.counts["below"]
    assert 0.05 < outside / (anomalies.reason == 0).sum() < 0.15


def _week(seed, planted="", size=5.0, days=DAYS):
    """Days with a week and noise of a standard deviation of 1, and the planted rows."""
    rng = np.random.default_rng(seed)
    values = 50 + np.array([0, 1, 2, 3, 2, 6, 5])[np.arange(days) % 7] + rng.normal(size=days)
    at = np.sort(rng.choice(np.arange(100, days), SPIKES, replace=False))
    if planted == "spikes":
        values[at] += size * rng.choice([-1, 1], SPIKES)
    if planted == "shift":
        values[3 * days // 5 :] += size
    dates = [date(2018, 1, 1) + timedelta(days=day) for day in range(days)]
    return pl.DataFrame({"day": dates, "riders": values}), at


@pytest.mark.parametrize("fitted", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_spikes_of_five_deviations_are_found_and_little_else(fitted, capsys):
    config = {"fit": {"steps": 50}, "tracking": {"enabled": False}}
    model = fc.fit(_week(0)[0], horizon=7, config=config, quiet=True) if fitted else None
    for seed in (0, 1):
        table, at = _week(seed, "spikes")
        anomalies = fc.detect(table) if model is None else model.detect(table)
        outside = anomalies.anomaly[:, 0] > 1
        found, others = outside[at].sum(), (outside.sum() - outside[at].sum()) / (DAYS - SPIKES)
        with capsys.disabled():
            print(f"\nspikes: {found} of {SPIKES} found, {others:.2%} of the others", end=" ")
        assert found >= SPIKES - 2 and others <= 0.015


def test_of_a_clean_series_hardly_a_step_is_marked():
    outside = fc.detect(_week(3)[0]).anomaly > 1
    assert 0.002 < outside.mean() <= 0.015


@cache
def _shifted(size):
    return fc.detect(_week(4, "shift", size)[0])


@pytest.mark.long
@pytest.mark.parametrize("size", [5, 40])
def test_a_change_of_level_is_one_event_and_the_first_of_the_list(size):
    anomalies = _shifted(size)
    weeks = anomalies.rows[600:614].filter(pl.col("event") > 0)
    assert weeks.height > 1 and weeks["event"].n_unique() == 1
    times = f"{weeks['day'][0]} – {weeks['day'][-1]}"
    assert weeks["day"][0] == date(2018, 1, 1) + timedelta(600)
    assert anomalies.events[0].startswith(f"riders, {times}: above, score ")
    assert anomalies.events[0].endswith(f"; {weeks.height} rows")


def test_events_are_ordered_by_score_and_hold_each_anomaly_once():
    lines = ((seed, _week(seed, "spikes", days=500)[0]) for seed in (5, 6))
    table = pl.concat(one.with_columns(line=pl.lit(f"l{seed}")) for seed, one in lines)
    anomalies = fc.detect(table)
    rows = anomalies.rows.filter(pl.col("event") > 0)
    assert rows.height == anomalies.counts["above"] + anomalies.counts["below"]
    assert (rows["score"] > 1).all()
    expected = []
    for _, group in rows.group_by("event", maintain_order=True):
        assert group["line"].n_unique() == 1
        assert (group["day"].diff().drop_nulls() < timedelta(7)).all()
        best = group.row(group["score"].arg_max(), named=True)
        times = " – ".join(dict.fromkeys(str(day) for day in group["day"][[0, -1]]))
        count = f"{group.height} row{'s' * (group.height > 1)}"
        text = f"{best['actual']:.6g} instead of {best['forecast']:.6g}; {count}"
        line = f"{best['line']} · riders, {times}: {best['anomaly']}, score {best['score']:.2g}, {text}"
        expected.append((best["score"], line))
    assert anomalies.events == [line for _, line in sorted(expected, reverse=True)]
    own = rows.group_by("line", maintain_order=True).agg(pl.col("event").unique().sort(), pl.col("day"))
    for event, day in own.select("event", "day").iter_rows():
        distances = np.diff(np.array(day, dtype="datetime64[D]")).astype(int)
        assert len(event) == 1 + (distances >= 7).sum()
    assert f"in {len(expected)} events" in anomalies.report


@pytest.mark.long
def test_a_broken_value_hides_no_other_anomaly_and_an_exact_series_none():
    table, at = _week(7, "spikes", 12.0)
    values = table["riders"].to_numpy().copy()
    values[700] = 1e7
    outside = fc.detect(table.with_columns(riders=pl.Series(values))).anomaly[:, 0] > 1
    assert outside[700] and outside[at].sum() >= SPIKES - 1
    exact = table.tail(300).with_columns(riders=pl.lit(5.0))
    assert fc.detect(exact).counts["inside"] == 300 - 7
    stuck = exact.with_columns(
        riders=pl.when(pl.col("day") == date(2020, 2, 2)).then(9.0).otherwise("riders")
    )
    assert fc.detect(stuck).events[0].startswith("riders, 2020-02-02")


def test_where_hardly_a_step_has_an_error_each_error_is_an_anomaly():
    scores = np.zeros(500)
    assert _limit(scores[:0], 0.99) == _limit(scores, 0.99) == 0
    scores[7] = 3.0
    assert _limit(scores, 0.99) == 0


@pytest.mark.parametrize("draw", ["normal", "laplace", "standard_t"])
def test_the_limit_of_a_level_lies_where_the_tail_of_healthy_scores_has_it(draw):
    rng = np.random.default_rng(0)
    scores = np.abs(getattr(rng, draw)(*((4,) if draw == "standard_t" else ()), size=200_000))
    for share in (0.8, 0.95, 0.99):
        assert (scores > _limit(scores, share)).mean() == pytest.approx(1 - share, rel=0.6)


def test_the_picture_has_the_series_with_the_highest_scores_around_them():
    table = tiny.shop(stores=tuple("abcdefgh"))
    last = pl.col("store").is_in(["c", "h"]) & (pl.col("date") == tiny.day(60))
    table = table.with_columns(sales=pl.col("sales") + pl.when(last).then(1e3).otherwise(0.0))
    anomalies = tiny.model().detect(table)
    figure = anomalies.plot()
    titles = [axis.get_title("left") for axis in figure.axes]
    assert len(titles) == PANELS and {titles[0][0], titles[1][0]} == {"c", "h"}
    (axis,) = _shifted(40).plot().axes
    drawn = axis.lines[0].get_xdata()
    assert np.datetime64(date(2018, 1, 1) + timedelta(600)) in drawn and len(drawn) == 400


@pytest.mark.long
def test_the_command_writes_the_rows_of_python_and_a_picture(tmp_path, capsys):
    tiny.plain_model().save(tmp_path / "model")
    tiny.plain().write_csv(tmp_path / "shop.csv")
    out, picture = tmp_path / "anomalies.parquet", tmp_path / "anomalies.png"
    options = [str(tmp_path / "model"), str(tmp_path / "shop.csv"), "--out", str(out)]
    app(["detect", *options, "--plot", str(picture)], standalone_mode=False)
    output = capsys.readouterr().out
    anomalies = tiny.plain_model().detect(tmp_path / "shop.csv")
    assert pl.read_parquet(out).equals(anomalies.rows)
    assert (
        "\n".join([anomalies.report, *anomalies.events[:10]]) in output
        and f"wrote {out}" in output
        and f"drew {picture}" in output
    )
    assert picture.stat().st_size > 10_000


def test_a_future_table_is_no_option_where_all_truth_is_in_the_table():
    model = tiny.plain_model()
    for call in (model.detect, model.backtest):
        with pytest.raises(fc.ConfigError, match="unknown argument 'future'"):
            call(tiny.plain(), future=tiny.plain())
