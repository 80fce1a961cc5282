"""The main job on real files as they are, one of them shortened, scored beside seasonal naive."""

from pathlib import Path

import polars as pl
import pytest

import forecaster as fc

DATA = Path(__file__).parents[2] / "shared" / "datasets"
UNTRACKED = {"tracking": {"enabled": False}}
BRIEF = {**UNTRACKED, "fit": {"steps": 40}}
"""A twentieth of the steps: enough to win by the margins below."""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not DATA.is_dir(), reason="the real data sets are not on this machine"),
]


@pytest.mark.usefixtures("short_fits")
def test_a_wide_table_of_seven_channels_beats_seasonal_naive() -> None:
    table = pl.read_csv(DATA / "ETTh1.csv").head(1_000)
    model = fc.fit(table, horizon=24, config=BRIEF, quiet=True)
    forecast = model.predict(table)
    assert forecast.rows.height == 7 * 24 and set(forecast.status) == {"ok"}
    backtest = model.backtest(table, windows=8, quiet=True)
    assert backtest.scored == 8 * 7 * 24 and backtest.scores["forecaster"]["skill"] > 0.1


@pytest.mark.usefixtures("short_fits")
def test_known_temperature_and_holidays_beat_seasonal_naive_on_half_hours() -> None:
    table = pl.read_csv(DATA / "vic_electricity.csv").tail(5_000)
    known = ["Temperature", "Holiday"]
    model = fc.fit(table, horizon=48, target="Demand", known=known, config=BRIEF, quiet=True)
    assert model.artifact.schema.freq == "30min" and model.artifact.schema.time_zone == "UTC"
    assert model.predict(table, cutoff="2014-12-28 12:30").rows.height == 48
    backtest = model.backtest(table, windows=14, quiet=True)
    assert backtest.scored == 14 * 48 and backtest.scores["forecaster"]["skill"] > 0.25


@pytest.mark.usefixtures("short_fits")
def test_series_with_gaps_and_other_ends_take_covariates_from_a_second_file() -> None:
    files = {"data": DATA / "multi_series.csv", "covariates": DATA / "multi_series_exog.csv"}
    model = fc.fit(horizon=14, config=BRIEF, quiet=True, **files)
    assert set(model.artifact.schema.past) >= {"air_temperature", "wind_speed"}
    forecast = model.predict(**files)
    assert forecast.rows.height == 5 * 14 and len(set(forecast.cutoff.tolist())) > 1
    assert model.backtest(windows=4, quiet=True, **files).scored > 0


FILES = {
    "ETTh1": ({}, 7 * 4),
    "EPF-NP": ({"target": "OT"}, 4),
    "EPF-DE": ({"target": "OT"}, 4),
    "M4-Hourly-train": ({"layout": "rows"}, 414 * 4),
    "M4-Hourly-test": ({"layout": "rows"}, 414 * 4),
    "vic_electricity": ({"target": "Demand", "holidays": "AU-VIC"}, 4),
    "bike_sharing": ({"target": "users"}, 4),
    "bdg2_hourly": ({}, 2 * 4),
    "multi_series": ({}, 5 * 4),
    "multi_series_exog": ({"target": "air_temperature"}, 5 * 4),
}
"""What has to be said of a file, and how many rows a forecast of four steps has."""


@pytest.mark.usefixtures("short_fits")
@pytest.mark.parametrize("name", FILES)
def test_every_file_is_checked_fitted_and_forecast_as_it_came(name: str) -> None:
    told, rows = FILES[name]
    path = DATA / f"{name}.csv"
    assert {finding.severity for finding in fc.check(path, 4, **told)} <= {"warning", "note"}
    few = {**UNTRACKED, "fit": {"steps": 3}}
    model = fc.fit(path, horizon=4, config=few, quiet=True, **told)
    forecast = model.predict(path)
    assert forecast.rows.height == rows and set(forecast.status) == {"ok"}
    assert not forecast.rows["forecast"].is_null().any()
    if told.get("layout") == "rows":
        assert model.artifact.schema.season_length in (None, 24)
