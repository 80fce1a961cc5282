"""Every rule finds what it is for in the smallest table that shows it, and not in its neighbour."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
from forecast import tiny
from panel.panel_tables import days, table

from forecaster.config import Config, DataConfig, TargetConfig
from forecaster.fitting.fit import resolve
from forecaster.panel.audit import check_panel, facts_of
from forecaster.panel.build import open_panel
from forecaster.panel.categories import recoded

START = np.datetime64("2024-01-01", "D")


def daily(noise=1, length=60, **columns):
    """One series of days: y and further columns."""
    rng = np.random.default_rng(noise)
    y = columns.pop("y", rng.normal(50, 5, length).round(2))
    return pl.DataFrame({"day": START + np.arange(len(y)), "y": y, **columns})


def several(**series):
    """Daily series of given values, each from the first day."""
    parts = [daily(y=np.asarray(y, float)).with_columns(id=pl.lit(name)) for name, y in series.items()]
    return pl.concat(parts)


def noisy(seed=0, length=60, level=50):
    return np.random.default_rng(seed).normal(level, level / 10, length)


def found(frame, horizon=None, rule=None, future=None, **data):
    panel = open_panel(frame, DataConfig(**data), future=future)
    return [f for f in check_panel(panel, horizon) if rule is None or f.rule == rule]


def only(frame, rule, **more):
    """The single finding of a rule."""
    (finding,) = found(frame, rule=rule, **more)
    return finding


def test_healthy_tables_have_no_findings():
    assert found(daily(x=noisy(7), z=noisy(2)), 14, target=("y",)) == []
    assert found(several(a=noisy(1), b=noisy(2, level=5000)), 14) == []
    walk = np.cumsum(np.random.default_rng(3).normal(size=400))
    assert found(daily(y=walk), 14) == []
    demand = np.random.default_rng(4).poisson(0.2, 400)
    growth = 1.02 ** np.arange(400)
    for rules, bounded in ((["sparse", "bounds"], demand.astype(float)), (["bounds"], growth)):
        assert [finding.rule for finding in found(daily(y=bounded), 14)] == rules  # a suggestion


def test_series_without_a_target_are_an_error_only_where_there_is_no_other():
    void = several(a=noisy(), b=[np.nan] * 5)
    finding = only(void, "unobserved", target=("y",))
    assert (finding.severity, finding.series, finding.count) == ("warning", "b", 1)
    assert "1 of 2 series" in finding.text
    alone = void.filter(pl.col("id") == "b")
    assert only(alone, "unobserved", target=("y",), series=("id",)).severity == "error"


def test_short_series_have_no_step_before_the_horizon():
    frame = several(a=noisy(), b=noisy(1, 7), c=noisy(2, 8))
    finding, _ = found(frame, 7, "short")
    assert (finding.severity, finding.series, finding.count) == ("warning", "b", 1)
    assert finding.where == "7 steps" and "horizon of 7" in finding.text
    assert found(frame, 3, "short") == [] and found(frame, None, "short") == []


def test_series_shorter_than_twice_the_horizon_cannot_learn_and_be_validated():
    frame = several(a=noisy(), b=noisy(1, 7), c=noisy(2, 13), d=noisy(3, 14))
    few, fewer = found(frame, 7, "short")
    assert (few.series, few.count) == ("b", 1) and "no more steps" in few.text
    assert (fewer.severity, fewer.series, fewer.count) == ("warning", "c", 1)
    assert "fewer steps than twice the horizon of 7" in fewer.text and fewer.where == "13 steps"


@pytest.mark.parametrize(
    ("freq", "horizon", "least"), [("D", 2, 5), ("D", 200, 407), ("MS", 12, 31), ("h", 24, 59)]
)
def test_a_table_without_a_validation_window_is_told_the_steps_that_it_needs(freq, horizon, least):
    for rows in (horizon + 1, least - 1, least, least + 1):
        times = pd.date_range("2023-01-01", periods=rows, freq=freq)
        frame = pd.DataFrame({"t": times, "y": noisy(length=rows)})
        panel = open_panel(frame, DataConfig())
        config = Config().replaced(horizon=horizon, model={"experts": ["naive", "theta"]})
        split = resolve(panel, config)[1]
        warned = [finding for finding in check_panel(panel, horizon) if finding.rule == "short"]
        assert len(warned) == (len(split.validation_windows) == 0) == (rows < least)
        for finding in warned:
            assert f"needs a series of {least} steps" in finding.text
            assert finding.where == f"{rows} steps" and "its weight is 0 %" in finding.text


def test_series_that_are_mostly_zero_are_told_what_their_median_is():
    frame = several(a=noisy(), b=[0, 3, 0, 0, 5, 0], c=[0, 1, 0, 2, 3], d=[0] * 6)
    finding = only(frame, "sparse")
    assert (finding.severity, finding.series, finding.count) == ("warning", "b", 1)
    assert "1 of 4 series are 0 in at least half of their observed steps in 'y'" in finding.text
    assert "the first in 67%" in finding.text and "the median of a step is near 0" in finding.text
    assert "--experts tsb" in finding.advice
    # Half, of what is observed.
    assert only(several(a=[1, np.nan, 0, np.nan, 2, 0]), "sparse").count == 1
    assert found(several(a=[1, 0, 2, 0, 2]), rule="sparse") == []


def test_experts_that_a_fit_would_refuse_are_not_advised():
    rare = only(several(a=noisy(), b=[0, 0, 0, 4]), "sparse")
    returns = only(several(a=[-1, 0, 0, 0, 2]), "sparse")
    assert rare.advice == returns.advice == "plan with upper quantiles"


def test_constant_series_never_change():
    finding = only(several(a=noisy(), b=[5] * 9), "constant")
    assert (finding.severity, finding.series, finding.count) == ("warning", "b", 1)
    assert "the first holds 5" in finding.text
    assert found(daily(y=1e8 + np.arange(60) % 2), rule="constant") == []
    assert found(several(a=noisy(), b=[5] * 8 + [6]), rule="constant") == []


def test_a_stuck_series_holds_its_last_value_much_longer_than_any_before():
    dead = np.append(noisy(), [0.0] * 30)
    finding = only(daily(y=dead), "stuck")
    assert finding.where == "from 2024-03-01" and "0 for 30 steps" in finding.text
    assert found(daily(y=np.append(noisy(), [0.0] * 10)), rule="stuck") == []
    # A series that always rests as long is at rest, not dead.
    rests = np.tile(np.append(noisy(length=10), [0.0] * 30), 3)
    assert found(daily(y=rests), rule="stuck") == []
    assert "for 30 steps" in only(daily(y=np.append(dead, [np.nan] * 3)), "stuck").text


def test_a_series_that_ended_long_ago_is_distinguished_from_one_that_ends_a_little_earlier():
    finding = only(several(a=noisy(length=100), b=noisy(length=60)), "ended")
    assert (finding.severity, finding.series, finding.where) == ("warning", "b", "ends 2024-02-29")
    assert "up to 40 steps" in finding.text
    near = several(a=noisy(length=100), b=noisy(length=90))
    assert found(near, rule="ended") == []
    assert only(near, "ends").count == 1


def test_gaps_are_counted_with_the_longest_and_their_share():
    frame = daily(length=100).filter(~pl.int_range(100).is_in([5, 20, 21, 22]))
    finding = only(frame, "gaps")
    assert (finding.severity, finding.count, finding.where) == ("note", 4, "from 2024-01-21")
    assert "4.0%" in finding.text and "2 gaps, the longest of 3" in finding.text
    hollow = daily(length=100).filter(~pl.int_range(100).is_between(20, 60))
    finding = only(hollow, "gaps")
    assert finding.severity == "warning" and "1 of 1 series miss more than 20%" in finding.text
    assert found(daily(), rule="gaps") == []


def test_a_series_of_another_step_is_named_and_is_no_series_of_gaps():
    frame = several(a=noisy(), b=noisy(1), c=noisy(2))
    weekly = frame.filter((pl.col("id") != "c") | (pl.col("day").dt.weekday() == 1))
    assert found(weekly.filter(pl.col("id") != "c"), rule="frequency") == []
    assert found(weekly, rule="frequency") == []  # nine rows prove little
    longer = several(a=noisy(length=200), b=noisy(1, 200), c=noisy(2, 200))
    weekly = longer.filter((pl.col("id") != "c") | (pl.col("day").dt.weekday() == 1))
    finding = only(weekly, "frequency")
    assert (finding.severity, finding.series, finding.count) == ("warning", "c", 1)
    assert "another step than 1d" in finding.text and "7 times" in finding.text
    assert found(weekly, rule="gaps") == []
    assert found(longer, rule="frequency") == []


def test_a_step_that_changes_is_named():
    early = daily(length=140).filter(pl.int_range(140) % 7 == 0)
    late = daily(length=200)[140:]
    finding = only(pl.concat([early, late]), "frequency")
    assert "the step of 1 of 1 series changes" in finding.text
    assert "from about 7 to 1 times 1d" in finding.text


def test_irregular_rows_have_no_step_to_drift_from():
    rng = np.random.default_rng(0)
    stamps = np.datetime64("2024-01-01T00:00:00") + np.cumsum(rng.integers(60, 90_000, 200))
    stamps = stamps.astype("M8[us]")
    frame = pl.DataFrame({"time": stamps, "y": noisy(length=200)})
    assert found(frame, rule="frequency") == [] and found(frame, rule="gaps") == []


@pytest.mark.parametrize("factor", [1e6, 1e-6])
def test_a_series_of_another_scale_is_named(factor):
    others = {name: noisy(k) for k, name in enumerate("abc")}
    finding = only(several(**others, d=noisy(9) * factor), "scale")
    assert (finding.severity, finding.series, finding.count) == ("warning", "d", 1)
    assert f"{factor:.0e} times" in finding.text
    assert found(several(**others, d=noisy(9) * 1000), rule="scale") == []


def test_a_level_that_jumps_a_thousandfold_and_stays_is_named():
    grams = np.append(noisy(), noisy(1) * 1000)
    finding = only(several(a=noisy(), b=grams), "jump")
    assert (finding.severity, finding.series, finding.where) == ("warning", "b", "2024-03-01")
    assert "factor of about 1,000" in finding.text
    assert only(several(a=grams[::-1]), "jump").where == "2024-03-01"
    with_holes = np.where(np.arange(120) % 7, grams, np.where(np.arange(120) % 2, 0, np.nan))
    assert only(several(a=with_holes), "jump").count == 1
    back = np.concatenate([noisy(), noisy(1) * 1000, noisy(2)])
    assert found(several(a=back), rule="jump") == []  # it does not stay
    assert found(several(a=np.append(noisy(), noisy(1) * 50)), rule="jump") == []
    assert found(several(a=np.append(noisy(), noisy(1, 5) * 1000)), rule="jump") == []


def test_a_sign_that_flips_with_a_leap_and_stays_is_named():
    flipped = np.append(noisy(), -noisy(1))
    finding = only(several(a=noisy(), b=flipped), "jump")
    assert "the sign of 1 of 2 series in 'y' flips" in finding.text
    assert (finding.series, finding.where) == ("b", "2024-03-01")
    sinking = np.linspace(50, -50, 100) + noisy(1, 100) / 100
    assert found(several(a=sinking), rule="jump") == []
    assert found(several(a=np.concatenate([flipped, noisy(2)])), rule="jump") == []


def test_a_series_is_judged_alike_alone_and_among_others():
    rng, series = np.random.default_rng(0), {}
    for number in range(40):
        length = int(rng.integers(20, 90))
        values = np.exp(rng.normal(size=length) / 2)
        values[rng.integers(length) :] *= rng.choice([1, -1, 1000, -0.001])
        values[rng.random(length) < 0.2] = rng.choice([0, np.nan])
        series[f"s{number:02d}"] = values
    panel = open_panel(several(**series), DataConfig())
    alone = [panel.between(k, k + 1) for k in range(40)]
    facts, *each = (facts_of(one, None, TargetConfig()) for one in (panel, *alone))
    for name in ("count", "low", "high", "size", "negative", "run", "gaps", "longest"):
        stacked = np.concatenate([getattr(one, name) for one in each])
        np.testing.assert_allclose(getattr(facts, name), stacked, rtol=1e-12)
    for name in ("first", "last", "longest_at"):
        rows = [
            getattr(one, name) + (getattr(one, name) >= 0) * panel.indptr[k]
            for k, one in enumerate(each)
        ]
        assert (getattr(facts, name) == np.concatenate(rows)).all()
    jumps = [sum(f.count for f in check_panel(one) if f.rule == "jump") for one in (panel, *alone)]
    assert jumps[0] == sum(jumps[1:]) > 5


def test_a_few_negative_counts_are_named():
    counts = np.random.default_rng(0).poisson(9, 100).astype(float)
    counts[40] = -3
    finding = only(several(a=counts + 100, b=counts), "negative")
    assert (finding.series, finding.where, finding.count) == ("b", "2024-02-10", 1)
    assert "1 of 200 are negative (the first is -3)" in finding.text
    assert found(several(a=counts + 0.5), rule="negative") == []  # no counts
    assert found(several(a=np.round(noisy() - 50)), rule="negative") == []  # not a few


def test_columns_without_a_value_are_named():
    frame = daily(x=[None] * 60).with_columns(pl.col("x").cast(pl.Float64))
    finding = only(frame, "empty", target=("y",), past=("x",))
    assert finding.where == "x" and "'x' has no value in any row" in finding.text
    two = daily(z=[None] * 60).with_columns(pl.col("z").cast(pl.Float64))
    assert "--target" in only(two, "empty", target=("y", "z")).advice
    assert found(daily(x=noisy()), rule="empty", target=("y",)) == []


def test_columns_that_begin_late_or_stop_early_are_named():
    x = noisy(5)
    late, stale = x.copy(), x.copy()
    late[:7], stale[-9:] = np.nan, np.nan
    frame = daily(late=late, stale=stale, x=x)
    one = only(frame, "leading", target=("y",))
    assert one.severity == "note" and "'late' begins later" in one.text and "7 steps" in one.text
    assert one.where == "begins 2024-01-08"
    other = only(frame, "trailing", target=("y",))
    assert other.severity == "warning" and "'stale' stops before" in other.text
    assert "9 steps" in other.text and other.where == "stops 2024-02-20"
    words = daily(word=["a", "b"] * 28 + [None] * 4)
    assert "'word' stops" in only(words, "trailing", target=("y",)).text
    # A channel that stops before the others is forecast from nothing new.
    assert "'stale' stops" in only(frame, "trailing", target=("y", "stale")).text


def test_known_covariates_have_to_cover_the_horizon():
    frame = daily(price=noisy(5), promo=noisy(6))
    data = {"target": ("y",), "known": ("price", "promo")}
    finding = only(frame, "horizon", horizon=7, **data)
    assert finding.severity == "note" and "price, promo" in finding.text
    assert finding.where == "at 2024-02-29"
    assert found(frame, None, "horizon", **data) == []

    def ahead(steps):
        rows = {"day": START + 60 + np.arange(steps), "price": noisy(7, steps)}
        return pl.DataFrame(rows | {"promo": noisy(8, steps)})

    finding = only(frame, "horizon", horizon=7, future=ahead(3), **data)
    assert finding.severity == "warning" and "(the fewest: 3)" in finding.text
    assert "fewer than 7 steps" in finding.text and "1 of 1 series: price, promo" in finding.text
    assert found(frame, 7, "horizon", future=ahead(7), **data) == []


@pytest.mark.parametrize("lag", [-2, 0, 2])
def test_a_known_covariate_that_is_the_target_shifted_is_a_leak(lag):
    y = noisy(1, 100)
    x = np.roll(-3 * y + 7, lag)
    frame = daily(y=y[10:90], x=x[10:90], z=noisy(3, 80))
    data = {"target": ("y",), "known": ("x", "z")}
    finding = only(frame, "leak", horizon=7, **data)
    assert finding.severity == "warning" and "'x' is declared known in advance" in finding.text
    when = {-2: "2 steps later", 0: "at the same time", 2: "2 steps earlier"}[lag]
    assert when in finding.text
    # What lies a horizon back may be known.
    older = daily(y=y[10:90], x=np.roll(y, 7)[10:90])
    assert found(older, 7, "leak", target=("y",), known=("x",)) == []
    trend = daily(y=np.arange(60.0), x=np.arange(60.0))
    assert found(trend, 7, "leak", target=("y",), known=("x",)) == []
    near = daily(y=y[10:90], x=(y + noisy(4, 100, 10))[10:90])
    assert found(near, 7, "leak", target=("y",), known=("x",)) == []


def test_columns_that_are_copies_are_named():
    x = noisy(5)
    finding = only(daily(x=x, x2=2 * x + 3, z=noisy(6)), "twins", target=("y",))
    assert finding.severity == "note" and "'x' and 'x2' are the same" in finding.text
    near = daily(x=x, x2=x + noisy(7, level=10))
    assert found(near, rule="twins", target=("y",)) == []


def test_joins_that_miss_are_named_with_their_series():
    shop = tiny.shop(40).drop("price")
    weather = tiny.shop(47).select("store", "date", temp="price", size=pl.lit(2.0))
    data = DataConfig(target=("sales",), known=("temp",), past=("visitors",), static=("size",))

    def joined(covariates, covered=True):
        kept = pl.when(covered).then("temp").alias("temp")
        panel = open_panel(shop, data, covariates=covariates.with_columns(kept))
        return {
            (one.where, one.count, one.series): one.text
            for one in check_panel(panel)
            if one.rule == "empty"
        }

    assert joined(weather) == {}
    missed = joined(weather.filter(pl.col("store") != "b"))
    assert missed.keys() == {("temp", 1, "b"), ("size", 1, "b")}
    assert missed["temp", 1, "b"] == "'temp' has no value up to the last target of 1 of 3 series"
    ahead = joined(weather, (pl.col("date") >= tiny.day(40)) | (pl.col("store") == "a"))
    assert ahead.keys() == {("temp", 2, "b")}
    assert joined(weather, pl.lit(False)).keys() == {("temp", 1, "")}


def test_a_static_column_that_changes_within_a_series_is_named():
    shop = tiny.shop(40).with_columns(
        size=pl.when(pl.col("date") > tiny.day(30), pl.col("store") != "a").then(2.0).otherwise(1.0)
    )
    finding = only(shop, "static", static=("size", "city"))
    assert finding.text == "'size' is static, but changes within 2 of 3 series"
    assert (finding.severity, finding.series, finding.where) == ("warning", "b", "size")
    assert found(tiny.shop(40), rule="static", static=("city",)) == []


def test_categories_unknown_to_a_model_are_counted():
    model = open_panel(table(a={0: 1, 1: 2, 2: 1}), DataConfig(known=("w",)))
    new = table(a={0: 1, 1: 2, 2: 1, 3: 2}).with_columns(w=pl.Series(["even", "hail", "odd", "fog"]))
    panel = open_panel(new, DataConfig(), schema=model.schema)
    (finding,) = [f for f in check_panel(panel) if f.rule == "unknown-category"]
    assert (finding.severity, finding.count, finding.series) == ("warning", 2, "a")
    assert "2 of 4 rows hold values of 'w'" in finding.text and "hail, fog" in finding.text
    assert finding.where == "2024-01-02"
    coded = recoded(open_panel(new, DataConfig(known=("w",))), model.schema.categories)
    assert next(f for f in check_panel(coded) if f.rule == "unknown-category").count == 2
    assert not [f for f in check_panel(model) if f.rule == "unknown-category"]


def test_static_categories_unknown_to_a_model_are_counted():
    kinds = {"day": days(0, 1, 0, 1), "id": list("aabb"), "y": [1.0, 2, 3, 5], "kind": list("ppqq")}
    model = open_panel(pl.DataFrame(kinds), DataConfig())
    new = open_panel(pl.DataFrame(kinds | {"kind": list("pprr")}), DataConfig(), schema=model.schema)
    (finding,) = [f for f in check_panel(new) if f.rule == "unknown-category"]
    assert (finding.count, finding.series) == (1, "b") and finding.text.endswith(": r")


def test_findings_are_the_same_whichever_parts_a_panel_is_read_in(monkeypatch):
    rng = np.random.default_rng(0)
    frame = pl.concat(
        daily(k, 30 + k, x=noisy(k, 30 + k)).with_columns(id=pl.lit(f"s{k}")) for k in range(9)
    ).filter(pl.Series(rng.random(306) > 0.1))
    frame = pl.concat(
        [frame, several(dead=[1.0] * 20).with_columns(x=pl.lit(None, pl.Float64))], how="diagonal"
    )
    panel = open_panel(frame, DataConfig(target=("y",)))
    whole = check_panel(panel, 7)
    monkeypatch.setattr("forecaster.panel.panel.PART_CELLS", 100)
    assert len(list(panel.parts())) > 3 and check_panel(panel, 7) == whole and len(whole) >= 4


@pytest.mark.parametrize(
    ("values", "advice"),
    [
        ([0.0, 3.0, 1.0, 12.0] * 10, "--lower 0 --integer"),
        ([1.0, 3.0, 2.0, 12.0] * 10, "--lower 0 --integer"),
        ([70.0, 90.0, 101.0, 84.0] * 10, "--integer"),
        ([-3.0, 3.0, 1.0, -2.0] * 10, "--integer"),
        ([0.0, 3.5, 1.25, 12.0] * 10, "--lower 0"),
        ([5.5, 3.5, 4.25, 12.0] * 10, None),
        ([-0.5, 3.5, 1.25, 12.0] * 10, None),
        ([4.0] * 40, None),
    ],
)
def test_bounds_that_all_targets_keep_are_suggested(values, advice):
    said = found(daily(y=np.array(values)), rule="bounds")
    assert [one.severity for one in said] == ["note"] * (advice is not None)
    if said:
        assert said[0].advice == f"if they must be, fit with {advice}"
        assert said[0].text.startswith("all 40 values of y are ") and said[0].count == 40
    panel, obeyed = open_panel(daily(y=np.array(values)), DataConfig()), {"lower": 0, "integer": True}
    assert all(one.rule != "bounds" for one in check_panel(panel, target=TargetConfig(**obeyed)))
    part = check_panel(panel, target=TargetConfig(lower=0))
    part = [one.advice for one in part if one.rule == "bounds"]
    assert ["--integer" in advice and "--lower" not in advice for advice in part] == [True] * len(part)


def test_a_table_of_zeros_is_constant_and_zeros_have_no_sign():
    finding = only(daily(y=np.full(40, -0.0)), "constant")
    assert finding.text.endswith("(the first holds 0)")
