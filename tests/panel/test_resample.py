"""Rows aggregated to longer periods: the values, stamps and ends of pandas, and nothing in part."""

from collections import Counter
from datetime import date, timedelta

import numpy as np
import pandas as pd
import polars as pl
import pytest
from forecast import tiny
from hypothesis import given, settings
from hypothesis import strategies as st
from test_convert import in_parts

import forecaster as fc
from forecaster.config import DataConfig
from forecaster.errors import ConfigError, DataError
from forecaster.panel.build import open_panel
from forecaster.panel.convert import convert_table

WEEKS = [f"W-{day}" for day in ("MON", "TUE", "WED", "THU", "FRI", "SAT", "SUN")]
LONG = ["MS", "ME", "QS", "QE", "QS-FEB", "QE-JAN", "YS", "YE", "YE-MAR"]


def random_table(rng, step, spans):
    """Rows of some series with closed weekdays or hours, gaps, empty cells, and a future of a few rows."""
    parts, lost = [], rng.choice([0.0, 0.01, 0.05, 0.3])
    for number, (start, rows, ahead) in enumerate(spans):
        times = pd.date_range(start, periods=rows + ahead, freq=step)
        cells = {"y": rng.integers(0, 50, len(times)).astype(float)}
        cells["p"], cells["k"] = rng.normal(size=(2, len(times))).round(3)
        frame = pd.DataFrame({"id": f"s{number}", "t": times, **cells})
        frame["c"] = rng.choice(["a", "b"], len(times))
        frame.loc[rng.random(len(frame)) < lost, "y"] = np.nan
        frame.loc[frame.index >= rows, ["y", "p"]] = np.nan
        keep = rng.random(len(frame)) >= lost
        if rng.random() < 0.5:
            keep &= ~times.day_of_week.isin(rng.integers(0, 7, 2))
        if step == "h" and rng.random() < 0.5:
            keep &= (times.hour >= 8) & (times.hour < 20)
        frame.loc[frame.index[keep][:2], "y"] = 1.0
        parts.append(frame[keep])
    return pd.concat(parts)


def is_closed_by_position(seen, step):
    """Whether a time is at a weekday (and hour) at which the series is hardly ever observed, step by step."""
    hourly = pd.Timedelta(1, step) < pd.Timedelta("1D")
    hours = {time: time.hour if hourly else 0 for time in pd.date_range(seen[0], seen[-1], freq=step)}
    there = Counter((time.weekday(), hour) for time, hour in hours.items())
    got = Counter((time.weekday(), hours[time]) for time in seen)

    def is_closed(time):
        place = time.weekday(), time.hour if hourly else 0
        if there[place] > 1:
            return got[place] < 0.05 * there[place]
        often = sum(count for (_, hour), count in there.items() if hour == place[1])
        found = sum(count for (_, hour), count in got.items() if hour == place[1])
        return often > 1 and found < 0.05 * often

    return is_closed


def slow_periods(rows, rule, agg, step):
    """y, p, k and c of each period by pandas and a loop over its steps, for the rows of one series."""
    offset, day, one = pd.tseries.frequencies.to_offset(rule), pd.Timedelta("1D"), pd.Timedelta(1, step)
    how = {"y": lambda cells: cells.sum(min_count=1)} if agg == "sum" else {"y": agg}
    found = rows.resample(rule).agg(how | {"p": "mean", "k": "mean", "c": "last"})
    stamped_last = rule[0] == "W" or rule.split("-")[0].endswith("E")
    targets, every = rows["y"].dropna().index, rows.index
    for name, kind, times in (
        ("y", agg, targets), ("p", "mean", targets), ("k", "mean", every), ("c", "last", every),
    ):  # fmt: skip
        seen, is_closed = set(times), is_closed_by_position(times, step)
        for stamp in found.index:
            begin, end = (
                (stamp - offset + day, stamp + day) if stamped_last else (stamp, stamp + offset)
            )
            steps = list(pd.date_range(begin, end, freq=step, inclusive="left"))
            expected = [time for time in steps if not is_closed(time)]
            here = [time for time in steps if time in seen]
            hits = sum(time in seen for time in expected)
            if not expected:
                enough = times.min() - one < begin and times.max() + one >= end
            elif kind == "last":
                enough = any(time >= expected[-2:][0] for time in here)
            else:
                enough = 10 * hits >= {"sum": 9, "mean": 5, "max": 5}[kind] * len(expected)
            if not (enough and (here or not expected)):
                found.loc[stamp, name] = None if name == "c" else np.nan
            elif kind == "sum":
                found.loc[stamp, name] += (len(expected) - hits) * rows["y"][here].mean()
    return found


@pytest.mark.long
@settings(max_examples=8, deadline=None)
@given(
    st.sampled_from(
        [("D", rule) for rule in WEEKS + LONG] + [("h", rule) for rule in ["2h", "D", *WEEKS]]
    ),
    st.sampled_from(["sum", "mean", "last", "max"]),
    st.integers(0, 2**32 - 1),
)
def test_periods_are_those_of_pandas_where_enough_of_their_steps_are_observed(steps, agg, seed):
    step, rule = steps
    rng = np.random.default_rng(seed)
    most = {"2h": 60, "D": 400}.get(rule, 900) if step == "h" else 1500 if rule[0] in "QY" else 300
    start = date(2023, 1, 1) + timedelta(days=int(rng.integers(700)))
    spans = [(start, int(rng.integers(most // 2, most)), int(rng.integers(2, 9))) for _ in range(2)]
    table = random_table(rng, step, spans)
    data = DataConfig(
        series=("id",), target=("y",), past=("p",), known=("k", "c"), static=(), resample=rule, agg=agg
    )
    expected = {
        number: slow_periods(rows, rule, agg, step)
        for number, (_, rows) in enumerate(table.set_index("t").groupby("id"))
    }
    table = table.sample(frac=1, random_state=seed % 1000)
    if all(found.isna().all(axis=None) for found in expected.values()):
        with pytest.raises(DataError, match="the rows of no series cover a whole period"):
            open_panel(table, data)
        return
    panel = open_panel(table, data)
    words = np.array([*panel.schema.categories["c"], None])
    for number, found in expected.items():
        own = slice(*panel.indptr[number : number + 2])
        if found["y"].isna().all():
            continue
        # Rows before the first target are dropped, and those without a value at the ends.
        filled = found.index[found.notna().any(axis=1)]
        found = found.loc[found["y"].first_valid_index() : filled[-1]]
        assert panel.time[own].tolist() == found.index.as_unit("us").asi8.tolist()
        np.testing.assert_allclose(panel.values[own], found[["y", "p", "k"]], rtol=1e-5, atol=1e-5)
        codes = np.where(panel.codes[own, 0] < 0, 0, panel.codes[own, 0]) - 1
        assert words[codes].tolist() == [word if word == word else None for word in found["c"]]


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


def hundreds(days, *lost):
    """100 on each of some days, but for the lost ones."""
    lost = [pd.Timestamp(day) for day in lost]
    return pd.DataFrame({"day": [day for day in days if day not in lost], "y": 100.0})


def resampled(table, rule="W-SUN", agg="sum"):
    """The target by period, and the findings of its aggregation."""
    panel = open_panel(table, DataConfig(target=("y",), resample=rule, agg=agg))
    stamps = [panel.calendar.text(int(time)) for time in panel.time]
    found = [note for note in panel.notes if note.rule in ("resample", "gaps")]
    return dict(zip(stamps, panel.values[:, 0].tolist(), strict=True)), found


NINE_WEEKS = pd.date_range("2024-01-01", "2024-03-03")  # Monday to Sunday
WEEKDAY_ROWS = {
    "every day": (NINE_WEEKS, 700),
    "closed on Sundays": (NINE_WEEKS[NINE_WEEKS.day_of_week < 6], 600),
    "business days": (NINE_WEEKS[NINE_WEEKS.day_of_week < 5], 500),
}


@pytest.mark.parametrize("kind", WEEKDAY_ROWS)
def test_a_sum_needs_nine_tenths_of_the_days_that_its_series_has(kind):
    days, whole = WEEKDAY_ROWS[kind]
    sums, _ = resampled(hundreds(days))
    assert list(sums.values()) == [whole] * 9
    sums, (note, warning, gaps) = resampled(hundreds(days, "2024-02-07"))  # a Wednesday
    assert np.isnan(sums.pop("2024-02-11")) and list(sums.values()) == [whole] * 8
    assert (note.severity, note.count, gaps.severity, gaps.count) == ("note", 0, "note", 1)
    step = {"business days": "1b", "closed on Sundays": "1b-mon..sat"}.get(kind, "1d")
    assert warning.severity == "warning" and warning.where.startswith("2024-02-05 to 2024-02-")
    assert warning.text == (
        f"1 of 9 periods are left empty: a sum needs nine tenths of the steps of {step} at which the "
        "series is observed"
    )
    assert gaps.text == f"1 steps of {step} without a target"


def test_a_last_week_that_holds_one_day_is_no_week():
    sunday = pd.Timestamp("2024-03-10")
    sums, (note, _) = resampled(hundreds([*NINE_WEEKS[:-7], NINE_WEEKS[-1]]))
    assert list(sums.values()) == [700] * 8 and "0 first, 1 last" in note.text
    sums, (note, gaps) = resampled(hundreds([*NINE_WEEKS, sunday]))
    assert list(sums.values()) == [700] * 9 and gaps.count == 6


def test_a_series_of_one_day_a_week_has_weeks_of_one_day():
    table = hundreds(NINE_WEEKS).assign(id="all")
    one = table[table["day"].dt.day_of_week == 5].assign(id="saturday")
    data = DataConfig(series=("id",), target=("y",), resample="W-SUN", agg="sum")
    panel = open_panel(pd.concat([table, one]), data)
    assert panel.values[:, 0].tolist() == [700] * 9 + [100] * 9
    panel = open_panel(pd.concat([table, one.drop(one.index[4])]), data)
    np.testing.assert_equal(panel.values[9:, 0], [100] * 4 + [np.nan] + [100] * 4)


@pytest.mark.parametrize(("rule", "whole"), [("D", 12), ("W-SUN", 72), ("2h", 2)])
def test_hours_from_8_to_20_but_on_sundays_make_whole_periods(rule, whole):
    hours = pd.date_range("2024-01-01", "2024-03-03 23:00", freq="h")
    hours = hours[(hours.hour >= 8) & (hours.hour < 20) & (hours.day_of_week < 6)]
    table = pd.DataFrame({"day": hours, "y": 1.0})
    sums, _ = resampled(table, rule)
    assert set(pd.Series(sums).dropna()) == {whole} and len(pd.Series(sums).dropna()) * whole == len(
        hours
    )
    # Twelve hours lost on one day. A day and pairs of hours without a row are gaps of their own.
    sums, found = resampled(table[table["day"].dt.date != date(2024, 2, 7)], rule)
    assert set(pd.Series(sums).dropna()) == {whole} and found[-1].count == 12
    assert [note.severity for note in found[1:-1]] == ["warning"] * (rule == "W-SUN")


@pytest.mark.parametrize(
    ("lost", "kept"),
    [
        ("Mon Tue Wed", {"mean", "max", "last"}),
        ("Mon Tue Wed Thu", {"last"}),
        ("Sat", {"mean", "max", "last"}),
        ("Sat Sun", {"mean", "max"}),
        ("Mon Tue Wed Thu Fri Sat", {"last"}),
    ],
)
def test_a_mean_and_a_maximum_need_half_of_the_steps_and_last_one_of_the_last_two(lost, kept):
    fifth = NINE_WEEKS[28:35]
    days = NINE_WEEKS.difference(fifth[fifth.strftime("%a").isin(lost.split())])
    for agg in ("mean", "max", "last"):
        values = list(resampled(pd.DataFrame({"day": days, "y": 2.0}), agg=agg)[0].values())
        np.testing.assert_equal(values, [2.0] * 4 + [2.0 if agg in kept else np.nan] + [2.0] * 4)


def test_sums_of_months_are_unbiased_where_a_tenth_of_the_days_is_lost_at_random():
    rng = np.random.default_rng(0)
    days = pd.date_range("2000-01-01", "2019-12-31")
    table = pd.DataFrame({"day": days, "y": rng.normal(100, 10, len(days))})
    truth = table.set_index("day")["y"].resample("MS").sum()
    sums, (_, warning, gaps) = resampled(table[rng.random(len(days)) >= 0.1], "MS")
    ratio = pd.Series(sums) / truth.to_numpy()[: len(sums)]
    assert 0.5 < ratio.notna().mean() < 0.8
    assert abs(ratio.mean() - 1) < 0.001 and ratio.min() > 0.97
    assert warning.count == ratio.isna().sum() and 600 < gaps.count < 850
    raised = int((abs(ratio - 1) > 1e-9).sum())
    assert f"; {raised} sums that lack up to a tenth of them are raised in proportion" in gaps.text


def test_a_sum_of_whole_periods_is_exact_and_a_first_month_of_28_days_counts():
    days = pd.date_range("2024-01-04", "2024-04-29")
    table = pd.DataFrame({"day": days, "y": 0.25})
    sums, (note, *_) = resampled(table, "MS")
    assert list(sums) == ["2024-01-01", "2024-02-01", "2024-03-01", "2024-04-01"]
    assert list(sums.values()) == [31 / 4, 29 / 4, 31 / 4, 30 / 4] and note.count == 0
    assert next(iter(resampled(table[1:], "MS")[0])) == "2024-02-01"  # 27 of 31 days


def test_steps_are_counted_on_the_wall_clock():
    hours = pd.date_range("2024-03-25", "2024-04-08", freq="h", tz="Europe/Berlin", inclusive="left")
    sums, _ = resampled(pd.DataFrame({"day": hours, "y": 1.0}), "D")
    assert list(sums.values()) == [24.0] * 6 + [23.0] + [24.0] * 7
    open_hours = hours[(hours.hour >= 8) & (hours.hour < 20)]
    sums, _ = resampled(pd.DataFrame({"day": open_hours, "y": 1.0}), "D")
    assert list(sums.values()) == [12.0] * 14


@pytest.mark.parametrize("rule", ["7D", "10D", "2D"])
def test_periods_of_several_days_are_those_of_pandas_from_the_epoch_and_say_so(rule):
    table = hundreds(pd.date_range("2024-03-05", "2024-06-28"))
    sums, (note,) = resampled(table, rule)
    expected = table.set_index("day")["y"].resample(rule, origin="epoch").sum()
    expected = expected[expected == expected.max()]
    assert sums == {str(day.date()): total for day, total in expected.items()}
    later, _ = resampled(table[5:], rule)
    assert later.items() <= sums.items()
    first = table.set_index("day")["y"].resample(rule, origin="epoch").sum().index[0].date()
    assert note.text.endswith(
        f"; periods of {rule.lower()} are counted from one date in every table, here from {first} on"
    )
    assert "counted from" not in resampled(table, "MS")[1][0].text


def test_irregular_rows_count_whatever_they_are_and_a_note_says_so():
    rng = np.random.default_rng(0)
    times = pd.Timestamp("2024-01-01") + pd.to_timedelta(np.sort(rng.integers(0, 56 * 86400, 500)), "s")
    sums, (note,) = resampled(pd.DataFrame({"day": times, "y": 1.0}))
    assert note.text.endswith(
        "; rows are irregular, so that periods between count whatever rows they have"
    )
    assert "1 first, 1 last" in note.text and sum(sums.values()) < 500


def test_a_store_of_parts_holds_the_same_periods_and_counts(tmp_path, monkeypatch):
    table = pl.concat([DAILY.with_columns(id=pl.lit(name)) for name in "abcd"])
    path = tmp_path / "days.parquet"
    table.sample(fraction=0.97, shuffle=True, seed=1).write_parquet(path)
    data = DataConfig(series=("id",), target=("y",), past=(), static=(), resample="W-SUN", agg="sum")
    whole = open_panel(path, data)
    in_parts(monkeypatch, 300)
    stored = convert_table(path, tmp_path / "store", data)
    np.testing.assert_array_equal(stored.values, whole.values)
    texts = [sorted(note.line() for note in panel.notes) for panel in (whole, stored)]
    assert texts[0] == texts[1] and len(texts[0]) == 4


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
        ({"agg": "mean"}, "agg=mean: this model was fitted with sum"),
        ({"resample": "W-MON"}, "resample=W-MON: this model was fitted with steps of 1w-sun"),
        ({"freq": "1d"}, "freq=1d: this model was fitted with 1w-sun"),
    ):
        with pytest.raises(ConfigError, match=message):
            model.predict(daily, **other)
