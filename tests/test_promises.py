"""The promises of the house, kept through the whole of it: from a table to rows.

What single rooms promise is proved beside them: causality, equivariance and masks of the network, the
averaged weights and early stopping in tests/model; splits, window counts and batches in tests/windows;
the same panel from any kind of table in tests/panel; fits that are killed in tests/runs/test_killed_fit.py;
promise 7 in tests/cli/test_bad_input.py, 8 in tests/forecast/test_artifact.py, 4 in
tests/forecast/test_forecast.py.
"""

import re
import signal
import subprocess
import sys
from datetime import timedelta
from functools import cache

import numpy as np
import polars as pl
import pytest
import torch
from forecast import tiny
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

import forecaster as fc
from forecaster.forecast import runner
from forecaster.model.learner import Learner

pytestmark = pytest.mark.usefixtures("undrawn")  # drawing takes most of a small fit

CUTOFF = tiny.day(79)
AFTER = pl.col("date") > CUTOFF
NAN = float("nan")
# A busy machine is no fault.
FEW = settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.too_slow])
FEWER = settings(FEW, max_examples=6)  # each one chooses its experts anew


def _at(table, model=None, **options):
    return (model or tiny.model()).predict(table, cutoff=CUTOFF.isoformat(), **options)


@cache
def _reference():
    """The forecast at the cutoff, from the table as it is."""
    return _at(tiny.shop())


def _same(one, other):
    assert one.status == other.status
    assert one.time.tolist() == other.time.tolist()
    return tiny.bits(one.quantiles) == tiny.bits(other.quantiles)


def _after(column, values):
    return pl.when(AFTER).then(values).otherwise(column).alias(column)


# Promise 1


@given(st.integers(0, 2**32 - 1), st.sampled_from([1.0, 1e6, -3e30]))
@FEW
def test_1_noise_after_the_cutoff_changes_nothing(seed, size):
    rng = np.random.default_rng(seed)
    noise = {name: pl.Series(size * rng.normal(size=300)) for name in ("sales", "visitors")}
    noised = tiny.shop().with_columns(*(_after(name, values) for name, values in noise.items()))
    assert _same(_at(noised), _reference())


@pytest.mark.parametrize("empty", [None, NAN], ids=["null", "nan"])
def test_1_missing_values_after_the_cutoff_change_nothing(empty):
    gone = tiny.shop().with_columns(*(_after(name, pl.lit(empty)) for name in ("sales", "visitors")))
    assert _same(_at(gone), _reference())


def test_1_rows_after_the_cutoff_change_nothing_but_what_is_known_in_advance():
    cut = tiny.shop().filter(~AFTER)
    future = tiny.shop().filter(AFTER).select("store", "date", "price")
    assert _same(_at(cut, future=future), _reference())
    dearer = tiny.shop().with_columns(_after("price", pl.col("price") + 5))
    assert not _same(_at(dearer), _reference())


def test_1_gaps_before_the_cutoff_are_not_filled_from_rows_after_it():
    gone = pl.col("date").is_between(CUTOFF - timedelta(days=4), CUTOFF - timedelta(days=2))
    gappy = tiny.shop().filter(~gone | (pl.col("store") == "b"))
    gappy = gappy.with_columns(
        pl.when(~gone).then(pl.col(name)).alias(name) for name in ("sales", "visitors")
    )
    noised = gappy.with_columns(_after(name, pl.lit(1e6)) for name in ("sales", "visitors"))
    later = gappy.filter(AFTER).select("store", "date", "price")
    assert _same(_at(gappy), _at(noised))
    assert _same(_at(gappy), _at(gappy.filter(~AFTER), future=later))


def test_1_known_values_beyond_the_horizon_change_nothing():
    beyond = pl.col("date") > CUTOFF + timedelta(days=tiny.HORIZON)
    dearer = tiny.shop().with_columns(
        price=pl.when(beyond).then(99.0).otherwise("price"),
    )
    assert _same(_at(dearer), _reference())


def test_1_what_is_before_the_steps_that_are_read_changes_nothing():
    model = tiny.model().artifact.plan.model
    read, table = max(model.context_length, model.pool.history_length), tiny.shop(300)
    before = pl.col("date") < tiny.day(300 - read)
    noised = table.with_columns(
        pl.when(before).then(pl.col(name) * 7 + 1).otherwise(name).alias(name)
        for name in ("sales", "visitors", "price")
    )
    one, two = (tiny.model().predict(rows, future=tiny.prices(300)) for rows in (table, noised))
    assert _same(one, two)


# Promise 2


def _assert_moved(moved, plain, a, b):
    width = plain[..., -1:] - plain[..., :1]
    assert (np.abs(moved - (a * plain + b)) <= 1e-6 * a * width).all()


def _without_fit(table):
    return fc.predict(table, tiny.HORIZON, known=[], cutoff=CUTOFF.isoformat())


@cache
def _plain(values):
    """The quantiles without a fit of one of the tables of `tiny`."""
    return _without_fit(values()).quantiles


@given(st.floats(1e-6, 1e6), st.floats(-1e9, 1e9))
@FEWER
def test_2_another_unit_of_the_target_is_another_unit_of_the_forecast(a, shift):
    plain = _plain(tiny.signed)
    table = tiny.signed().with_columns(pl.col("sales") * a + a * shift)
    _assert_moved(_without_fit(table).quantiles, plain, a, a * shift)


@given(st.floats(1e-6, 1e6))
@FEWER
def test_2_where_all_values_are_positive_another_unit_is_one_of_the_forecast_too(a):
    plain = _plain(tiny.plain)
    table = tiny.plain().with_columns(pl.col("sales") * a)
    _assert_moved(_without_fit(table).quantiles, plain, a, 0)


def test_2_fitted_to_another_unit_a_model_forecasts_in_it():
    a, b = 3, -1e9
    table = tiny.signed().with_columns(pl.col("sales") * a + b)
    model = fc.fit(table, horizon=tiny.HORIZON, config=tiny.TINY, quiet=True)
    plain = _at(tiny.signed(), tiny.signed_model()).quantiles
    _assert_moved(_at(table, model).quantiles, plain, a, b)


@pytest.mark.parametrize(("a", "b"), [(1e-4, 0.0), (2, -1e6)])
def test_2_fitted_to_another_unit_of_positive_values_a_model_forecasts_in_it(a, b):
    table = tiny.plain().with_columns(pl.col("sales") * a + b)
    model = fc.fit(table, horizon=tiny.HORIZON, config=tiny.TINY, quiet=True)
    plain = _at(tiny.plain(), tiny.plain_model()).quantiles
    _assert_moved(_at(table, model).quantiles, plain, a, b)


@pytest.mark.parametrize("seed", range(3))
def test_2_the_order_of_rows_and_columns_changes_nothing(seed):
    table = tiny.shop().sample(fraction=1.0, shuffle=True, seed=seed)
    names = np.random.default_rng(seed).permutation(table.columns).tolist()
    mixed = _at(table.select(names))
    assert _same(mixed, _reference())
    assert_frame_equal(mixed.frame, _reference().frame, check_exact=True)


def test_2_the_names_of_series_and_so_their_order_change_nothing():
    names = {"a": "z", "b": "y", "c": "x"}
    turned = tiny.shop().with_columns(pl.col("store").replace_strict(names))
    model = fc.fit(turned, horizon=tiny.HORIZON, known="price", config=tiny.TINY, quiet=True)
    assert tiny.bits(_at(turned, model).quantiles[::-1]) == tiny.bits(_reference().quantiles)


def test_2_the_size_of_a_batch_changes_next_to_nothing(monkeypatch):
    for size in (1, 2, 3, 64):
        monkeypatch.setattr(runner, "_BATCH", size)
        np.testing.assert_allclose(_at(tiny.shop()).quantiles, _reference().quantiles, rtol=1e-5)


def test_2_the_other_series_of_a_table_change_next_to_nothing():
    for number, store in enumerate(tiny.STORES):
        alone = _at(tiny.shop().filter(pl.col("store") == store))
        np.testing.assert_allclose(alone.quantiles[0], _reference().quantiles[number], rtol=1e-5)


# Promise 4


@given(
    st.lists(st.integers(0, 60), min_size=1, max_size=6),
    st.integers(1, 7),
    st.sampled_from(["own", "last", "2024-03-20", "2024-03-30"]),
)
@FEW
def test_4_every_series_has_every_lead_once_whatever_its_history(lengths, horizon, cutoff):
    parts = [
        tiny.plain(90).filter(pl.col("store") == "a").tail(length).with_columns(store=pl.lit(f"s{n}"))
        for n, length in enumerate(lengths)
    ]
    table = pl.concat([tiny.plain(90), *parts])
    forecast = tiny.plain_model().predict(table, cutoff=cutoff, horizon=horizon)
    series = table["store"].unique().sort().to_list()
    rows = forecast.frame
    assert rows.select("store", "lead").rows() == [
        (s, h) for s in series for h in range(1, horizon + 1)
    ]
    days = rows.filter(pl.col("cutoff").is_not_null())
    assert ((days["date"] - days["cutoff"]).dt.total_days() == days["lead"]).all()
    empty = rows["forecast"].is_null()
    assert (rows["status"].str.starts_with("ok") == ~empty).all()
    assert f"{len(series)} series, {len(series) * horizon} rows" in forecast.report


# Promise 5


def _ragged():
    """The shop, where b ends five days before the others and c begins in February."""
    ends = (pl.col("store") == "b") & (pl.col("date") > tiny.day(94))
    begins = (pl.col("store") == "c") & (pl.col("date") < tiny.day(31))
    return tiny.plain().filter(~ends & ~begins)


def test_5_series_that_end_on_different_days_are_aligned_by_time():
    model = tiny.plain_model()
    own = model.predict(_ragged())
    first = own.frame.filter(pl.col("lead") == 1)
    assert first["date"].to_list() == [tiny.day(100), tiny.day(95), tiny.day(100)]
    assert "1 series end earlier and are forecast from their own end" in own.report
    last = model.predict(_ragged(), cutoff="last")
    assert "end earlier" not in last.report
    assert last.frame["cutoff"].unique().to_list() == [tiny.day(99)]
    # To be forecast from the others' end is to have a gap of five days before it.
    gap = pl.DataFrame({"store": ["b"] * 5, "date": [tiny.day(n) for n in range(95, 100)]})
    filled = pl.concat([_ragged(), gap.with_columns(sales=pl.lit(None, pl.Float64))])
    assert _same(model.predict(filled, cutoff="last"), last)
    assert not np.array_equal(last.quantiles[1], own.quantiles[1])
    dated = model.predict(_ragged(), cutoff="2024-03-10")
    alone = model.predict(_ragged().filter(pl.col("date") <= tiny.day(69)))
    assert _same(dated, alone)


def test_5_a_gap_is_the_same_as_empty_rows():
    hole = (pl.col("store") == "a") & pl.col("date").is_between(tiny.day(85), tiny.day(88))
    missing = tiny.plain().filter(~hole)
    empty = tiny.plain().with_columns(sales=pl.when(hole).then(None).otherwise("sales"))
    model = tiny.plain_model()
    assert _same(model.predict(missing), model.predict(empty))
    # Closed up, the days after the hole would lie elsewhere.
    closed = missing.with_columns(
        date=pl.when((pl.col("store") == "a") & (pl.col("date") < tiny.day(85)))
        .then(pl.col("date") + pl.duration(days=4))
        .otherwise("date")
    )
    assert not np.array_equal(model.predict(closed).quantiles[0], model.predict(missing).quantiles[0])


# Promise 6


def test_6_a_resumed_fit_ends_as_an_uninterrupted_one(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tiny.shop().write_csv("shop.csv")
    fit = {"steps": 5, "batch_size": 32}
    config = tiny.config_with(dropout=0.2, experts=["naive", "linear"])
    options = {"horizon": 7, "known": "price", "config": config | {"fit": fit}, "quiet": True}
    fc.fit("shop.csv", out="whole", **options)
    options["checkpoint_every"] = 2
    ends = [3, 5]
    step = Learner.training_step

    def killed(self, batch, batch_index):
        if ends and self.global_step == ends[0] - 1:
            raise SystemExit(ends.pop(0))
        return step(self, batch, batch_index)

    monkeypatch.setattr(Learner, "training_step", killed)
    with pytest.raises(SystemExit):
        fc.fit("shop.csv", out="model", **options)
    while ends:
        with pytest.raises(SystemExit):
            fc.fit("shop.csv", out="model", **options)
    fc.fit("shop.csv", out="model", **options)
    made, whole = tiny.tree(tmp_path / "model"), tiny.tree(tmp_path / "whole")
    whole["report.html"] = whole["report.html"].replace(b"--out whole", b"--out model")
    assert made == whole
    assert {path.name for path in tmp_path.iterdir()} == {"shop.csv", "whole", "model"}


def test_6_a_model_killed_while_it_is_saved_leaves_the_old_one_whole(tmp_path):
    tiny.plain_model().save(tmp_path / "model")
    before = tiny.tree(tmp_path / "model")
    program = (
        "import os, signal, sys\n"
        "from pathlib import Path\n"
        "from forecaster.files import atomic_folder\n"
        "with atomic_folder(Path('model'), replaces='contract.json') as folder:\n"
        "    (folder / 'contract.json').write_text('half')\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, timeout=60)
    assert done.returncode == -signal.SIGKILL
    assert tiny.tree(tmp_path / "model") == before
    # What the dead process left is no model, and in nobody's way.
    assert [path.suffix for path in tmp_path.iterdir() if path.name != "model"] == [".partial"]
    tiny.plain_model().save(tmp_path / "model")
    assert tiny.tree(tmp_path / "model") == before


# Promise 9


def test_9_validation_scores_every_cell_of_every_window_once():
    gone = (pl.col("store") == "b") & pl.col("date").is_between(tiny.day(94), tiny.day(95))
    table = tiny.plain().with_columns(sales=pl.when(gone).then(None).otherwise("sales"))
    model = fc.fit(table, horizon=7, config=tiny.config_with(experts=[]), quiet=True)
    found = model.metrics["validation"]
    # 15 days of 100 are set aside: cutoffs from day 84 to day 92.
    cutoffs = range(84, 93)
    assert found["windows"] == 3 * len(cutoffs)
    dark = sum(1 for cutoff in cutoffs for lead in range(1, 8) if cutoff + lead in (94, 95))
    assert found["cells"] == 3 * len(cutoffs) * 7 - dark


def test_9_scalers_and_categories_come_from_training_rows_only():
    held = pl.col("date") > tiny.day(84)
    table = tiny.shop().with_columns(weather=pl.lit("dry"))
    changed = table.with_columns(
        visitors=pl.when(held).then(pl.col("visitors") * 1000).otherwise("visitors"),
        price=pl.when(held).then(pl.col("price") * 1000).otherwise("price"),
        weather=pl.when(held).then(pl.lit("hail")).otherwise("weather"),
        sales=pl.when(held).then(pl.col("sales") * 1000).otherwise("sales"),
    )
    options = {"horizon": 7, "known": "price", "past": ["visitors", "weather"], "quiet": True}
    fit = tiny.TINY["fit"] | {"steps": 1, "learning_rate": 1e-12}
    config = tiny.config_with(experts=[]) | {"fit": fit}
    one, two = (fc.fit(rows, config=config, **options).artifact for rows in (table, changed))
    assert two.schema.categories["weather"] == ("dry",)
    one, two = (artifact.ensemble.members[0].state_dict() for artifact in (one, two))
    moments = [name for name in one if "scaler." in name]
    assert len(moments) == 8 and all(torch.equal(one[name], two[name]) for name in moments)


def test_9_statics_of_a_series_without_training_rows_are_not_looked_at():
    sizes = pl.col("store").replace_strict({"a": 1.0, "b": 2.0, "c": 3.0})
    table = tiny.plain().with_columns(size=sizes)
    late = (pl.col("store") == "c") & (pl.col("date") <= tiny.day(90))
    table = table.filter(~late)
    giant = table.with_columns(size=pl.when(pl.col("store") == "c").then(1e6).otherwise("size"))
    moments, config = [], tiny.config_with(experts=[])
    for rows in (table, giant):
        artifact = fc.fit(rows, horizon=3, config=config, quiet=True, until="2024-03-25").artifact
        scaler = artifact.ensemble.members[0].embedding.static_scaler
        moments.append((scaler.loc.tolist(), scaler.scale.tolist()))
    assert moments[0] == moments[1] == ([1.5], [0.5])


# Promise 10


def test_10_baselines_are_in_every_table_and_a_loss_is_called_a_loss(capsys):
    # A season that seasonal naive knows by heart, and a model that hardly learns.
    week = tiny.plain().with_columns(sales=pl.col("date").dt.weekday().cast(pl.Float64) * 10)
    noise = np.random.default_rng(0).normal(size=300) / 10
    week = week.with_columns(pl.col("sales") + pl.Series(noise))
    model = fc.fit(week, horizon=7, config=tiny.config_with(experts=[]))
    said = " ".join(capsys.readouterr().out.split())
    assert re.search(r"is undecided against seasonal naive .* \(skill -.* too few cutoffs", said)
    backtest = model.backtest(week, windows=6, quiet=True)
    assert backtest.scores["forecaster"]["skill"] < 0
    assert backtest.verdict.startswith("loses to seasonal naive")
    rivals = ["seasonal naive", "naive", "drift", "ETS", "ridge"]
    assert backtest.summary["model"].to_list() == ["forecaster", *rivals]


# Promise 11


@cache
def _backtest(refit):
    """Two cutoffs of the shop: day 85 and day 92."""
    return tiny.model().backtest(tiny.shop(), windows=2, refit=refit, quiet=True)


@cache
def _held():
    """A model of the shop until the first of the two cutoffs."""
    until = tiny.day(85).isoformat()
    return fc.fit(tiny.shop(), horizon=7, known="price", until=until, config=tiny.TINY, quiet=True)


def _noised(cutoff, rng):
    """The shop with noise after a cutoff."""
    later = pl.col("date") > np.int64(cutoff).view("M8[us]").astype("M8[D]").item()
    return tiny.shop().with_columns(
        pl.when(later).then(pl.Series(1e3 * rng.normal(size=300))).otherwise(name).alias(name)
        for name in ("sales", "visitors")
    )


@pytest.mark.parametrize("refit", ["once", "each"])
def test_11_a_backtest_never_sees_a_row_after_its_cutoff(refit):
    backtest, rng = _backtest(refit), np.random.default_rng(5)
    # The first cutoff of both is the same fit.
    number = 0 if refit == "once" else 1
    noised = _noised(backtest.forecasts[number].cutoff[0], rng)
    windows = 2 if refit == "once" else 1
    twin = tiny.model().backtest(noised, windows=windows, refit=refit, quiet=True)
    assert _same(twin.forecasts[number - 2 + windows], backtest.forecasts[number])
    # And the scores do look at what came then.
    assert twin.scores["forecaster"]["MAE"] > 2 * backtest.scores["forecaster"]["MAE"]


def test_11_the_second_cutoff_of_one_fit_sees_no_row_after_it():
    never = {"windows": 2, "refit": "never", "quiet": True}
    plain = _held().backtest(tiny.shop(), **never)
    noised = _noised(plain.forecasts[1].cutoff[0], np.random.default_rng(5))
    twin = _held().backtest(noised, **never)
    assert all(map(_same, twin.forecasts, plain.forecasts))
    assert _same(plain.forecasts[1], _backtest("once").forecasts[1])
    assert twin.scores["forecaster"]["MAE"] > 2 * plain.scores["forecaster"]["MAE"]


@pytest.mark.slow
@pytest.mark.usefixtures("short_fits")
def test_11_what_a_fit_chose_on_later_rows_decides_nothing_in_a_refit():
    # Numbered rows with cycles to find, codes, a static and few words, until the last 20 rows.
    step, rng = np.arange(160), np.random.default_rng(0)
    own = {"flag": step % 2, "code": step % 7 + 0.5, "word": [f"w{k % 3}" for k in step]}
    wave = 10 + 4 * np.sin(2 * np.pi * step / 12)
    table = pl.concat(
        pl.DataFrame(
            {"id": [name] * 160, "y": wave + rng.normal(size=160) / 4, "size": [n] * 160} | own
        )
        for n, name in enumerate("ab")
    )
    noise = {
        "y": rng.normal(size=320) * 90,
        "flag": rng.integers(0, 90, 320),
        "size": rng.integers(0, 90, 320),
        "word": [f"v{k}" for k in range(320)],
        "code": [None] * 320,
    }
    later = pl.int_range(pl.len()).over("id") >= 140
    noised = table.with_columns(
        pl.when(later).then(pl.Series(cells)).otherwise(name).alias(name)
        for name, cells in noise.items()
    )
    config = tiny.TINY | {"fit": {"steps": 2, "batch_size": 16}}
    options = {"time": "row", "target": "y", "horizon": 10, "config": config, "quiet": True}
    one, two = (fc.fit(rows, **options) for rows in (table, noised))
    assert one.config != two.config and one.artifact.schema.static != two.artifact.schema.static
    held = fc.fit(noised, until="-20", **options).artifact.schema
    assert (held.past, held.static) == (one.artifact.schema.past, one.artifact.schema.static)
    for refit in ("once", "each"):
        mine, other, blind = (
            model.backtest(rows, windows=2, refit=refit, quiet=True)
            for model, rows in ((one, table), (two, table), (two, noised))
        )
        assert all(map(_same, mine.forecasts, other.forecasts)) and mine.rows.equals(other.rows)
        assert _same(blind.forecasts[0], mine.forecasts[0]) and set(mine.rows["status"]) == {"ok"}


def test_11_refit_once_keeps_the_weights_of_the_first_cutoff_and_each_does_not():
    once, each = _backtest("once"), _backtest("each")
    assert _same(once.forecasts[0], each.forecasts[0])
    assert not _same(once.forecasts[1], each.forecasts[1])
    fresh = _held().predict(tiny.shop(), cutoff=tiny.day(85).isoformat())
    assert tiny.bits(fresh.quantiles) == tiny.bits(once.forecasts[0].quantiles)


def test_11_refit_never_is_refused_with_both_dates_unless_every_cutoff_is_unseen():
    held = _held()
    assert np.int64(held.artifact.trained_until).view("M8[us]") == np.datetime64("2024-03-26")
    backtest = held.backtest(tiny.shop(), windows=2, refit="never", quiet=True)
    predicted = held.predict(tiny.shop(), cutoff="2024-03-26")
    assert tiny.bits(backtest.forecasts[0].quantiles) == tiny.bits(predicted.quantiles)
    expected = "trained until 2024-03-26, the first cutoff is 2024-03-25: .* use `refit` once"
    with pytest.raises(fc.ConfigError, match=expected):
        held.backtest(tiny.shop(), windows=2, stride=8, refit="never", quiet=True)


def test_11_trained_until_is_the_last_target_seen_not_the_last_row():
    silent = tiny.plain().with_columns(
        sales=pl.when(pl.col("date") > tiny.day(90)).then(None).otherwise("sales")
    )
    model = fc.fit(silent, horizon=7, config=tiny.config_with(experts=[]), quiet=True)
    assert np.int64(model.artifact.trained_until).view("M8[us]") == np.datetime64(tiny.day(90))
