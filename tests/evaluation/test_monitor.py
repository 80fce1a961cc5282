"""A monitor: what broke is found and said, what did not is left alone."""

import json
from functools import cache

import numpy as np
import polars as pl
import pytest
from forecast import tiny

import forecaster as fc
from forecaster.errors import ConfigError
from forecaster.evaluation.drift import drifts
from forecaster.evaluation.monitor import monitor_page
from forecaster.panel.build import open_panel

SEEN, DAYS = 200, 214


@cache
def shop(change="none", days=DAYS):
    """Four stores with a week, whose level, scatter or week changes on the day after the last one that is seen."""
    rng, number = np.random.default_rng(1), np.arange(days)
    new, tables = number >= SEEN, []
    for store in range(4):
        noise = rng.normal(size=300)[:days] * np.where(new & (change == "scatter"), 4, 1)
        late = np.where(new & (change == "week"), 3, 0)
        sales = 20 + 5 * store + 4 * np.sin(2 * np.pi * (number + late) / 7) + noise
        sales += np.where(new & (change == "level"), 12, 0)
        dates = [tiny.day(int(one)) for one in number]
        tables.append(pl.DataFrame({"store": [f"s{store}"] * days, "date": dates, "sales": sales}))
    return pl.concat(tables)


@cache
def model():
    return fc.fit(shop(days=SEEN), horizon=7, config=tiny.TINY, quiet=True)


@cache
def monitor(change):
    return model().monitor(shop(change), quiet=True)


@pytest.mark.long
def test_an_untouched_model_is_not_broken():
    found = monitor("none")
    assert not found.broken and found.sentence.startswith(
        "nothing has broken down: the 80 % band holds"
    )
    assert found.frame_by_time["new"].to_list() == [False] * len(found.usual.time) + [True, True]
    assert list(found.scores)[:3] == ["forecaster", "seasonal naive", "no fit"]


@pytest.mark.long
@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("level", "the level of s0 rose from"),
        ("scatter", "the scatter is"),
        ("week", "of seasonal naive's from 2024-07-19 to"),
    ],
)
def test_a_planted_change_is_found_and_named(change, words):
    found = monitor(change)
    assert found.broken and "the 80 % band held" in found.sentence and words in found.sentence
    if change == "level":
        assert "on 2024-07-19" in found.sentence and "forecasts were too low by" in found.sentence


def test_blocks_are_sums_over_their_cells():
    found = monitor("none")
    forecast = found.forecasts[0]
    actual, quantiles = forecast.actual, forecast.quantiles
    inside = [
        quantiles[n, lead, 0, 0] <= actual[n, lead, 0] <= quantiles[n, lead, 0, -1]
        for n in range(4)
        for lead in range(7)
    ]
    assert found.blocks.inside[0] == pytest.approx(np.mean(inside))
    assert found.blocks.cells.tolist() == [28, 28]
    bias = (quantiles[..., 4] - actual).sum() / np.abs(actual).sum()
    assert found.blocks.bias[0] == pytest.approx(bias)


@pytest.mark.long
def test_earlier_forecasts_are_judged_as_they_were_made():
    days = [SEEN, SEEN + 7]
    made = [model().predict(shop(days=count)).frame for count in days]
    found = model().monitor(shop(), forecasts=dict(zip("ab", made, strict=True)), quiet=True)
    np.testing.assert_allclose(found.blocks.inside, monitor("none").blocks.inside)
    # A file that says something else is not what the model says again.
    wrong = made[0].with_columns(pl.col("^(forecast|q.*)$") + 50)
    assert model().monitor(shop(), forecasts={"wrong": wrong}, quiet=True).broken


def test_forecasts_of_another_horizon_or_without_quantiles_are_those_of_another_model():
    longer = fc.predict(shop(days=SEEN), 9).frame
    with pytest.raises(ConfigError, match="forecasts 7 steps, found one 9 steps ahead"):
        model().monitor(shop(), forecasts={"longer": longer}, quiet=True)
    points = model().predict(shop(days=SEEN)).frame.select("store", "cutoff", "date", "forecast")
    with pytest.raises(ConfigError, match=r"q0\.1, q0\.2, q0\.3, .* are missing"):
        model().monitor(shop(), forecasts={"points": points}, quiet=True)


@pytest.mark.long
def test_the_shell_exits_with_3_writes_a_page_and_recalibrates(shell, tmp_path, monkeypatch):
    opened = []
    counted = lambda *given, **options: opened.append(1) or open_panel(*given, **options)  # noqa: E731
    monkeypatch.setattr("forecaster.forecast.source.open_panel", counted)
    model().save(tmp_path / "model")
    shop("scatter").write_csv(tmp_path / "shop.csv")
    outputs = ["--report", tmp_path / "page.html", "--plot", tmp_path / "picture.png"]
    words = [*outputs, "--recalibrate", tmp_path / "new", "--no-tracking"]
    answer = shell("monitor", tmp_path / "model", tmp_path / "shop.csv", *words, "--json")
    assert answer.code == 3 and "the 80 % band held" in answer.err and opened == [1]
    document = json.loads(answer.out)
    assert document["exit_code"] == 3 and document["broken"] is True
    assert document["recalibrated"] == str(tmp_path / "new") and document["findings"]
    page = (tmp_path / "page.html").read_text()
    assert "the model has broken down" in page and "<svg" in page
    assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")
    factors = [
        fc.load(path).artifact.ensemble.conformal_factors
        for path in (tmp_path / "model", tmp_path / "new")
    ]
    assert factors[1][0] > 1.1 * (1.0 if factors[0] is None else factors[0][0])
    again = shell("monitor", tmp_path / "model", tmp_path / "shop.csv", *words[-3:])
    assert again.code == 2 and "--overwrite" in again.err
    assert not again.out  # before anything is forecast


def test_without_new_truth_there_is_nothing_to_judge(shell, tmp_path):
    assert model().monitor(shop(days=SEEN), quiet=True) is None
    model().save(tmp_path / "model")
    shop(days=SEEN).write_csv(tmp_path / "shop.csv")
    answer = shell("monitor", tmp_path / "model", tmp_path / "shop.csv", "--no-tracking")
    assert answer.code == 0 and "no truth has come after 2024-07-18" in answer.out


@pytest.mark.long
def test_few_rows_before_the_fit_are_too_few_to_tell_what_is_usual():
    short = fc.fit(shop(days=24), horizon=7, config=tiny.TINY, quiet=True)
    found = short.monitor(shop(days=31), quiet=True)
    assert not found.broken and [one.rule for one in found.judgements] == ["usual"]
    assert found.sentence.startswith(
        "too few forecasts before these to tell what is usual: the 80 % band"
    )
    assert "the model is as it was" not in monitor_page(found)


def test_covariates_out_of_range_and_gaps_are_named():
    frame = tiny.shop(100).with_columns(
        price=pl.when(pl.col("date") >= tiny.day(90))
        .then(pl.col("price") + 9)
        .otherwise(pl.col("price")),
        sales=pl.when((pl.col("date") >= tiny.day(93)) & (pl.col("store") == "b"))
        .then(None)
        .otherwise(pl.col("sales")),
    )
    panel = tiny.model().open(frame)
    since = int(np.datetime64(tiny.day(89), "us").astype(np.int64))
    texts = {one.rule: one.text for one in drifts(panel, since, 10)}
    assert texts["range"].startswith("price leaves its range of 1 to 3 in 100 % of the new rows")
    assert "gaps" not in texts  # its rows end: it is not known whether more will come
    middle = frame.with_columns(
        sales=pl.when(pl.col("date") == tiny.day(99)).then(30.0).otherwise(pl.col("sales"))
    )
    texts = {one.rule: one.text for one in drifts(tiny.model().open(middle), since, 10)}
    assert "60 % of the cells of b are missing" in texts["gaps"]


@pytest.mark.long
@pytest.mark.parametrize("value", [0.0, 5.0])
def test_a_series_that_never_changes_is_not_broken_and_one_that_begins_to_is(value):
    days = [tiny.day(number) for number in range(228)]
    flat = pl.DataFrame({"date": days, "y": [value] * 228})
    start = fc.fit(flat.head(200), horizon=7, config=tiny.TINY, quiet=True)
    assert not start.monitor(flat, quiet=True).broken
    # Each week higher than the ones before show.
    later = [0.0] * 200 + [4.0 ** (1 + day // 7) for day in range(28)]
    assert start.monitor(flat.with_columns(pl.col("y") + pl.Series(later)), quiet=True).broken
