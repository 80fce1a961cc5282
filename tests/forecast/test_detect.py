"""Anomalies one step ahead: planted ones found; equal to a loop over cutoffs; keyed and counted."""

from dataclasses import replace
from datetime import datetime, timedelta

import numpy as np
import polars as pl
import pytest
from forecast import tiny

import forecaster as fc
from forecaster.cli import app
from forecaster.forecast.detect import NAMES, detect
from forecaster.forecast.predictor import Predictor

HOURS, HORIZON = 24 * 60, 6


def _meter(hours=HOURS, seed=0):
    """An hourly meter with a daily cycle, as a table."""
    rng = np.random.default_rng(seed)
    clock = [datetime(2024, 1, 1) + timedelta(hours=hour) for hour in range(hours)]
    values = 20 + 5 * np.sin(2 * np.pi * np.arange(hours) / 24) + rng.normal(size=hours)
    return pl.DataFrame({"time": clock, "load": values})


@pytest.fixture(scope="module")
def meter_model():
    config = {
        "fit": {"steps": 80, "batch_size": 64, "validation": 0.4},
        "model": {"width": 16, "heads": 2, "encoder_layers": 1},
        "tracking": {"enabled": False},
    }
    return fc.fit(_meter(), horizon=HORIZON, config=config, quiet=True)


def test_planted_anomalies_are_found_on_rows_the_model_has_not_seen(meter_model, capsys):
    table = _meter(HOURS + 480, seed=0)
    values = table["load"].to_numpy().copy()
    rng = np.random.default_rng(7)
    planted = HOURS + np.sort(rng.choice(480, 24, replace=False))
    values[planted] += rng.choice([-1, 1], 24) * rng.uniform(6, 10, 24)
    anomalies = meter_model.detect(table.with_columns(load=pl.Series(values)), beyond=2.5)
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


def test_the_band_of_a_quiet_meter_covers_its_share_of_new_steps(meter_model):
    anomalies = meter_model.detect(_meter(HOURS + 480, seed=3))
    inside = (anomalies.rows["anomaly"][HOURS:] == "inside").mean()
    assert 0.74 < inside < 0.87  # three and a half standard errors of 480 steps around .8
    calibrated = meter_model.artifact.ensemble.conformal_factors is not None
    assert calibrated is ("not calibrated" not in anomalies.report)


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
        band = forecast.quantiles[series, 0, 0][[0, 4, 8]]
        np.testing.assert_allclose(anomalies.band[row, 0], band, rtol=1e-4)
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
    assert tiny.bits(before.band[:61]) == tiny.bits(after.band[:61])
    assert tiny.bits(before.band[100:]) == tiny.bits(after.band[100:])
    assert tiny.bits(before.anomaly[:60]) == tiny.bits(after.anomaly[:60])


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
        *("q0.1", "q0.9", "anomaly", "score", "status"),
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
    start = f"2 series, 200 rows: {counts['inside']} inside the 80 % band, {counts['above']} above"
    assert anomalies.report.startswith(start)
    assert (
        f"{compared.height} of {compared.height} steps are not later than 2024-04-09"
        in anomalies.report
    )


def test_pandas_in_pandas_out_and_a_wide_table_has_a_row_per_channel():
    table = _meter(200).with_columns(gas=pl.col("load") * 2 + pl.Series(np.arange(200) % 7))
    model = fc.fit(table, horizon=2, config=tiny.TINY, quiet=True)
    anomalies = model.detect(table.to_pandas())
    frame = anomalies.frame
    assert type(frame).__module__.startswith("pandas") and len(frame) == 400
    assert frame["channel"].tolist() == ["load"] * 200 + ["gas"] * 200
    np.testing.assert_allclose(frame["actual"][:200], table["load"].to_numpy(), rtol=1e-6)


def test_wider_limits_mark_fewer_steps_and_one_is_the_band_itself(meter_model):
    found = [meter_model.detect(_meter(), beyond=beyond) for beyond in (0.5, 1.0, 3.0)]
    outside = [one.counts["above"] + one.counts["below"] for one in found]
    assert outside[0] > outside[1] > outside[2]
    low, _, high = np.moveaxis(found[1].band, -1, 0)
    values = found[1].panel.values[:, :1]
    assert ((found[1].anomaly == 2) == (values > high)).all()
    assert ((found[1].anomaly == 3) == (values < low)).all()


@pytest.mark.parametrize("beyond", [0.0, float("nan")])
def test_a_limit_that_is_no_distance_is_refused(beyond):
    with pytest.raises(fc.ConfigError, match="expected a number above 0; 1 is the edge of the band"):
        tiny.plain_model().detect(tiny.plain(), beyond=beyond)


def test_a_model_of_the_median_alone_has_no_band():
    config = tiny.TINY | {"model": {**tiny.TINY["model"], "quantile_levels": [0.5]}}
    model = fc.fit(tiny.plain(), horizon=3, config=config, quiet=True)
    with pytest.raises(fc.ConfigError, match=r"quantile levels \[0.5\] have none on either side"):
        model.detect(tiny.plain())


def test_the_command_writes_the_rows_of_python_and_a_picture(tmp_path, capsys):
    tiny.plain_model().save(tmp_path / "model")
    tiny.plain().write_csv(tmp_path / "shop.csv")
    out, picture = tmp_path / "anomalies.parquet", tmp_path / "anomalies.png"
    options = [str(tmp_path / "model"), str(tmp_path / "shop.csv"), "--out", str(out)]
    app(["detect", *options, "--plot", str(picture)], standalone_mode=False)
    output = capsys.readouterr().out
    anomalies = tiny.plain_model().detect(tmp_path / "shop.csv")
    assert pl.read_parquet(out).equals(anomalies.rows)
    assert anomalies.report in output and f"wrote {out}" in output and f"drew {picture}" in output
    assert picture.stat().st_size > 10_000


def test_a_future_table_is_no_option_where_all_truth_is_in_the_table():
    model = tiny.plain_model()
    for call in (model.detect, model.backtest):
        with pytest.raises(fc.ConfigError, match="unknown argument 'future'"):
            call(tiny.plain(), future=tiny.plain())
