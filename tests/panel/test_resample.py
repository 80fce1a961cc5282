"""Rows aggregated to longer periods: the values, stamps and ends of pandas, and nothing in part."""

from datetime import date, timedelta

import numpy as np
import pandas as pd
import polars as pl
import pytest
from forecast import tiny
from hypothesis import given, settings
from hypothesis import strategies as st

import forecaster as fc
from forecaster.config import DataConfig
from forecaster.errors import ConfigError, DataError
from forecaster.panel.build import open_panel

WEEKS = [f"W-{day}" for day in ("MON", "TUE", "WED", "THU", "FRI", "SAT", "SUN")]
LONG = ["MS", "ME", "QS", "QE", "QS-FEB", "QE-JAN", "YS", "YE", "YE-MAR"]


def random_table(rng, step, spans):
    """Rows of some series with gaps, empty cells, and a future of two to nine rows."""
    parts = []
    for number, (start, rows, ahead) in enumerate(spans):
        times = pd.date_range(start, periods=rows + ahead, freq=step)
        cells = {"y": rng.integers(0, 50, len(times)).astype(float)}
        cells["p"], cells["k"] = rng.normal(size=(2, len(times))).round(3)
        frame = pd.DataFrame({"id": f"s{number}", "t": times, **cells})
        frame["c"] = rng.choice(["a", "b"], len(times))
        frame.loc[rng.random(len(frame)) < 0.2, "y"] = np.nan
        frame.loc[frame.index >= rows, ["y", "p"]] = np.nan
        keep = (rng.random(len(frame)) < 0.9) | (frame.index < 2)
        frame.loc[:1, "y"] = 1.0
        parts.append(frame[keep])
    return pd.concat(parts)


def slow_periods(rows, rule, agg, step):
    """y, p, k and c of each period by pandas, for the rows of one series by time."""
    offset, day = pd.tseries.frequencies.to_offset(rule), pd.Timedelta("1D")
    parts = rows.resample(rule)
    how = {"y": lambda cells: cells.sum(min_count=1)} if agg == "sum" else {"y": agg}
    found = parts.agg(how | {"p": "mean", "k": "mean", "c": "last"})
    begin, end = found.index, found.index + offset
    if rule[0] == "W" or rule.split("-")[0].endswith("E"):
        begin, end = found.index - offset + day, found.index + day
    seen = rows["y"].dropna().index
    for names, times in ((["y", "p"], seen), (["k", "c"], rows.index)):
        found.loc[~((times.min() - step < begin) & (times.max() + step >= end)), names] = np.nan
    return found


@settings(max_examples=20)
@given(
    st.sampled_from(
        [("D", rule) for rule in WEEKS + LONG] + [("h", rule) for rule in ["2h", "D", *WEEKS]]
    ),
    st.sampled_from(["sum", "mean", "last", "max"]),
    st.integers(0, 2**32 - 1),
)
def test_periods_are_those_of_pandas_and_none_in_part(steps, agg, seed):
    step, rule = steps
    rng = np.random.default_rng(seed)
    most = {"2h": 60, "D": 400}.get(rule, 900) if step == "h" else 1500 if rule[0] in "QY" else 300
    start = date(2023, 1, 1) + timedelta(days=int(rng.integers(700)))
    spans = [(start, int(rng.integers(most // 2, most)), int(rng.integers(2, 9))) for _ in range(3)]
    table = random_table(rng, step, spans)
    data = DataConfig(
        series=("id",), target=("y",), past=("p",), known=("k", "c"), static=(), resample=rule, agg=agg
    )
    panel = open_panel(table.sample(frac=1, random_state=seed % 1000), data)
    words = np.array([*panel.schema.categories["c"], None])
    for number, (_, rows) in enumerate(table.set_index("t").groupby("id")):
        expected = slow_periods(rows, rule, agg, pd.Timedelta(1, step))
        # Rows before the first whole target are dropped, and those without a value at the ends.
        filled = expected.index[expected.notna().any(axis=1)]
        expected = expected.loc[expected["y"].first_valid_index() : filled[-1]]
        own = slice(*panel.indptr[number : number + 2])
        assert panel.time[own].tolist() == expected.index.as_unit("us").asi8.tolist()
        np.testing.assert_allclose(panel.values[own], expected[["y", "p", "k"]], rtol=1e-5, atol=1e-5)
        codes = np.where(panel.codes[own, 0] < 0, 0, panel.codes[own, 0]) - 1
        assert words[codes].tolist() == [word if word == word else None for word in expected["c"]]


DAILY = pl.DataFrame({"day": pl.date_range(date(2024, 1, 3), date(2024, 4, 10), "1d", eager=True)})
DAILY = DAILY.with_columns(y=pl.int_range(pl.len()).cast(pl.Float64))  # Wednesday to Wednesday


def test_periods_in_part_are_dropped_and_said():
    panel = open_panel(DAILY, DataConfig(resample="W-SUN", agg="sum"))
    assert panel.schema.freq == "1w-sun" and panel.n_rows == 13
    assert [panel.calendar.text(int(panel.time[at])) for at in (0, -1)] == ["2024-01-14", "2024-04-07"]
    assert panel.values[0, 0] == sum(range(5, 12))
    (note,) = [note for note in panel.notes if note.rule == "resample"]
    assert note.text == (
        "99 rows became 15 periods; 2 of them are dropped, as rows cover only a part (1 first, 1 last ones "
        "of a series)"
    )
    assert (note.count, note.where) == (2, "2024-01-01 to 2024-01-07")


@pytest.mark.parametrize(
    ("day", "month"),
    [("2024-03-30", "2024-02-01"), ("2024-03-31", "2024-03-01"), ("2024-04-29", "2024-03-01")],
)
def test_a_date_is_the_last_period_that_rows_up_to_it_cover(day, month):
    calendar = open_panel(DAILY, DataConfig(resample="MS", agg="max")).calendar
    assert calendar.text(calendar.parse(day)) == month


@pytest.mark.parametrize("rule", ["MS", "ME"])
def test_business_days_cover_a_week_and_months_a_year(rule):
    weekdays = DAILY.filter(pl.col("day").dt.weekday() <= 5).filter(pl.col("day") <= date(2024, 4, 5))
    panel = open_panel(weekdays, DataConfig(resample="W", agg="last"))
    assert panel.calendar.text(int(panel.time[-1])) == "2024-04-07"
    months = pl.DataFrame({"month": pd.date_range("2020-01-01", periods=36, freq=rule), "y": range(36)})
    years = open_panel(months, DataConfig(target=("y",), resample="YE", agg="mean"))
    assert years.values[:, 0].tolist() == [5.5, 17.5, 29.5]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"resample": "W-SUN"},
            "--resample W-SUN: expected how targets are aggregated: --agg sum, mean",
        ),
        ({"resample": "2h", "agg": "sum"}, "expected a longer step than that of the rows, 1d"),
        ({"resample": "B", "agg": "sum"}, "expected rows with dates, and a step as W-SUN, MS or 2h"),
        ({"resample": "YE", "agg": "sum"}, "the rows of no series cover a whole period"),
        ({"resample": "W-XYZ", "agg": "sum"}, "freq 'W-XYZ': expected a count and a unit"),
        ({"freq": "W-SUN"}, "expected steps of 1w-sun .*, or aggregate them with --resample"),
        ({"freq": "MS"}, "expected steps of 1mo .*, or aggregate them with --resample"),
        ({"freq": "12h"}, "freq '12h': no two rows are nearer than 2 such steps; leave out --freq"),
    ],
)
def test_a_step_that_does_not_suit_the_rows_is_refused(options, message):
    with pytest.raises((ConfigError, DataError), match=message):
        open_panel(DAILY, DataConfig(**options))


def test_a_series_that_covers_no_whole_period_stays_without_rows():
    days = pl.date_range(date(2024, 1, 1), date(2024, 2, 29), eager=True)
    long = pl.DataFrame({"id": "b", "t": days, "y": 1.0, "size": 5.0, "town": "x"})
    short = long[:3].with_columns(id=pl.lit("a"), size=6.0)
    roles = {"series": ("id",), "target": ("y",), "static": ("size", "town")}
    panel = open_panel(pl.concat([long, short]), DataConfig(resample="W-SUN", agg="sum", **roles))
    assert np.diff(panel.indptr).tolist() == [0, 8]
    np.testing.assert_equal(panel.static, [[np.nan], [5.0]])
    assert panel.static_codes.tolist() == [[-1], [1]]


def test_an_anchor_is_kept_or_refused():
    sundays = DAILY.filter(pl.col("day").dt.weekday() == 7)
    assert open_panel(sundays, DataConfig(freq="W-SUN")).calendar.freq == "1w-sun"
    with pytest.raises(DataError, match=r"expected steps of 1w-mon from 2024-01-07 .*found 2024-01-07"):
        open_panel(sundays, DataConfig(freq="W-MON"))
    quarters = pl.DataFrame({"t": pd.date_range("2020-02-01", periods=9, freq="QS-FEB"), "y": range(9)})
    assert open_panel(quarters, DataConfig(freq="QS-MAY")).n_rows == 9
    with pytest.raises(DataError, match="expected steps of 1q-jan"):
        open_panel(quarters, DataConfig(freq="QS-JAN"))


@pytest.mark.usefixtures("undrawn")
def test_a_weekly_model_aggregates_daily_tables_and_reads_no_day_after_the_cutoff(tmp_path):
    daily, cutoff = tiny.shop(170), tiny.day(100).isoformat()  # a Wednesday
    options = {"resample": "W-SUN", "agg": "sum"}
    config = tiny.config_with(experts=[])
    model = fc.fit(daily, 2, known="price", config=config, quiet=True, **options)
    forecast = model.predict(daily, cutoff=cutoff)
    assert forecast.frame["date"][:2].to_list() == [tiny.day(104), tiny.day(111)]
    after = pl.col("date") > tiny.day(100)
    noise = pl.when(after).then(pl.lit(1e9)).otherwise("sales").alias("sales")
    cut = daily.filter(~after)
    for same in (
        model.predict(daily.with_columns(noise), cutoff=cutoff),
        model.predict(cut, daily.filter(after).select("store", "date", "price")),
        model.predict(daily, cutoff=tiny.day(97).isoformat(), freq="W-SUN"),
        model.predict(daily, cutoff=cutoff, resample="1w-sun", agg="sum"),
    ):
        assert tiny.bits(same.quantiles) == tiny.bits(forecast.quantiles)
        assert same.cutoff.tolist() == forecast.cutoff.tolist()
    assert model.predict(daily, cutoff=tiny.day(96).isoformat()).frame["date"][0] == tiny.day(97)
    fc.convert(daily, tmp_path / "store", known="price", quiet=True, **options)
    stored = model.predict(tmp_path / "store", cutoff=cutoff)
    assert tiny.bits(stored.quantiles) == tiny.bits(forecast.quantiles)
    for other, message in (
        ({"agg": "mean"}, "--agg mean: this model was fitted with sum"),
        ({"resample": "W-MON"}, "--resample W-MON: this model was fitted with steps of 1w-sun"),
        ({"freq": "1d"}, "--freq 1d: this model was fitted with 1w-sun"),
    ):
        with pytest.raises(ConfigError, match=message):
            model.predict(daily, **other)
