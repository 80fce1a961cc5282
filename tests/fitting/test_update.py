"""An update: a model learns the rows that came after its fit, and nothing else changes."""

import os
import signal
import subprocess
import sys
import time
from functools import cache

import numpy as np
import polars as pl
import pytest
from forecast import tiny

import forecaster as fc
from forecaster.errors import ConfigError, DataError
from forecaster.fitting.fit import fit_panel
from forecaster.fitting.no_fit import unfitted
from forecaster.forecast import calibrate
from forecaster.forecast.calibrate import CalibrationSet, adapted
from forecaster.forecast.saved_model import save_artifact
from forecaster.windows.split import split_panel

EXACT = {
    "model": {"experts": ["linear"]},
    "tracking": {"enabled": False},
}


def shop(days=114, stores=tiny.STORES):
    """The shop with as many days as there are, of one draw."""
    return tiny.shop(128, stores).filter(pl.col("date") < tiny.day(days)).drop("visitors", "price")


@cache
def model(days=100):
    return fc.fit(shop(days), horizon=7, config=tiny.TINY, quiet=True)


@cache
def updated(refit="all"):
    return model().update(shop(), refit=refit, quiet=True)


@pytest.mark.long
@pytest.mark.parametrize("refit", ["bands", "experts", "all"])
def test_an_update_knows_the_new_rows_at_the_same_settings_and_leaves_the_model_as_it_was(refit):
    before = tiny.bits(model().predict(shop(100)).quantiles)
    new = updated(refit)
    assert new.artifact.ancestry["until"] == tiny.day(113).isoformat()
    assert (
        new.artifact.parent["until"] == model().artifact.ancestry["until"] == tiny.day(99).isoformat()
    )
    assert new.artifact.plan == model().artifact.plan and new.config == model().config
    assert new.metrics["update"]["refit"] == refit and new.metrics["update"]["steps"] == 14
    assert tiny.bits(model().predict(shop(100)).quantiles) == before
    with pytest.raises(ConfigError, match="would be scored on what it has seen"):
        new.backtest(shop(), windows=1, refit="never", quiet=True)


@pytest.mark.long
def test_the_linear_expert_of_an_update_is_that_of_a_fit_to_all_rows():
    first = fc.fit(shop(100), horizon=7, config=EXACT, quiet=True)
    panel, plan = first.open(shop()), first.artifact.plan
    twin = fc.Forecaster(fit_panel(panel, plan, split_panel(panel, plan)))
    found, expected = (one.predict(shop()).median for one in (first.update(shop(), quiet=True), twin))
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    assert not np.allclose(first.predict(shop()).median, expected, rtol=1e-4)


@pytest.mark.long
def test_bands_alone_keep_the_median_and_experts_alone_what_was_trained():
    median = model().predict(shop()).median
    np.testing.assert_array_equal(updated("bands").predict(shop()).median, median)
    weights = [
        one.ensemble.networks[0].state_dict() for one in (model().artifact, updated("experts").artifact)
    ]
    trained = [name for name in weights[0] if name.startswith(("encoder", "decoder", "head"))]
    assert trained and all(np.array_equal(*(one[name] for one in weights)) for name in trained)


def test_without_new_rows_an_update_is_the_same_model_and_writes_nothing(shell, tmp_path):
    same = model().update(shop(100))
    assert same is model()
    save_artifact(model().artifact, tmp_path / "model")
    shop(100).write_csv(tmp_path / "shop.csv")
    answer = shell("update", tmp_path / "model", tmp_path / "shop.csv", "--out", tmp_path / "new")
    assert answer.code == 0 and "nothing to update" in answer.out
    assert not (tmp_path / "new").exists()


@pytest.mark.long
def test_the_verb_writes_the_model_of_python(shell, tmp_path):
    save_artifact(model().artifact, tmp_path / "model")
    shop().write_csv(tmp_path / "shop.csv")
    words = ["--out", tmp_path / "new", "--no-tracking"]
    answer = shell("update", tmp_path / "model", tmp_path / "shop.csv", *words)
    assert answer.code == 0 and "14 new steps, from 2024-04-09 to 2024-04-23" in answer.out
    loaded = fc.load(tmp_path / "new")
    assert tiny.bits(loaded.predict(shop()).quantiles) == tiny.bits(updated().predict(shop()).quantiles)
    card = (tmp_path / "new" / "card.md").read_text()
    assert "- update of " in card and "until 2024-04-09" in card


@pytest.mark.parametrize(
    ("table", "words"),
    [
        (shop(90), "found none after 2024-03-30: give the whole table"),
        (shop().drop("sales"), "no column 'sales'"),
        (shop().filter(pl.col("date").dt.weekday() == 1), "a grid of 1d would have 339 rows"),
        (shop().filter(pl.col("date") > tiny.day(98)), "give more of the history"),
    ],
    ids=["ends before", "lacks a column", "another frequency", "too short"],
)
def test_a_table_that_is_not_that_of_the_model_is_refused(table, words):
    with pytest.raises((DataError, ConfigError), match=words):
        model().update(table, quiet=True)


def test_rows_without_times_are_refused():
    rows = shop().drop("date", "city")
    numbered = fc.fit(rows, horizon=7, time="row", config=tiny.NETWORK, quiet=True)
    for call in (numbered.update, numbered.monitor):
        with pytest.raises(DataError, match="cannot be known which are new"):
            call(rows, quiet=True)


def test_a_model_that_nothing_was_fitted_to_is_made_of_all_rows():
    config = fc.Config().replaced(horizon=7)
    panel = model().open(shop(100))
    kept = fc.Forecaster(unfitted(panel, config))
    new = kept.update(shop(), quiet=True)
    assert tiny.bits(new.predict(shop()).quantiles) == tiny.bits(fc.predict(shop(), 7).quantiles)


def test_revised_rows_are_counted(capsys):
    revised = shop().with_columns(
        pl.when((pl.col("store") == "b") & (pl.col("date") == tiny.day(95)))
        .then(pl.col("sales") + 1)
        .otherwise(pl.col("sales"))
    )
    model().update(revised, refit="bands")
    assert "1 of 3 series have other targets in rows that the model has seen" in " ".join(
        capsys.readouterr().out.split()
    )


@pytest.mark.long
def test_new_series_and_new_words_are_taken_in(tmp_path):
    more = pl.concat(
        [shop(), shop().filter(store="a").with_columns(store=pl.lit("d"), city=pl.lit("west"))]
    )
    new = model().update(more, quiet=True)
    assert new.artifact.schema.categories["city"] == (
        *model().artifact.schema.categories["city"],
        "west",
    )
    assert new.predict(more).median.shape[0] == 4
    new.save(tmp_path / "new")
    loaded = fc.load(tmp_path / "new").predict(more)
    assert tiny.bits(loaded.quantiles) == tiny.bits(new.predict(more).quantiles)


def test_each_network_of_an_ensemble_goes_on_from_its_own_weights():
    config = tiny.NETWORK | {"fit": tiny.TINY["fit"] | {"ensemble_size": 2}}
    pair = fc.fit(tiny.plain(), horizon=7, config=config, quiet=True)
    new = pair.update(tiny.plain(128), refit="experts", quiet=True)
    networks = [one.artifact.ensemble.networks for one in (pair, new)]
    for before, after in zip(*networks, strict=True):
        weights = [one.state_dict() for one in (before, after)]
        trained = [name for name in weights[0] if name.startswith(("encoder", "decoder"))]
        assert trained and all(np.array_equal(*(one[name] for one in weights)) for name in trained)


@pytest.mark.long
def test_weights_that_training_makes_worse_are_not_kept():
    config = tiny.NETWORK | {"fit": tiny.TINY["fit"] | {"steps": 30}}
    good = fc.fit(tiny.plain(), horizon=7, config=config, quiet=True)
    wild = tiny.NETWORK | {"fit": tiny.TINY["fit"] | {"learning_rate": 0.5}}
    later = fc.fit(tiny.plain(), horizon=7, config=wild, warm_start=good, quiet=True)
    assert later.metrics["best_step"] == 0
    assert later.metrics["curves"]["validation_loss"][0][0] == 0


def test_an_adapted_band_follows_each_time_in_turn():
    rng, levels = np.random.default_rng(0), (0.1, 0.5, 0.9)
    quantiles = np.tile([-1.0, 0.0, 2.0], (12, 3, 1, 1))
    actual = 3 * rng.normal(size=(12, 3, 1))
    actual[2, 1] = np.nan
    held_out = CalibrationSet(quantiles, actual, np.repeat([0, 1], 6), np.tile(np.arange(6), 2))
    factor, _ = adapted(held_out, levels)
    expected = 1.0
    for now in range(1, 9):
        outside = [
            abs(y) > expected * (1.0 if y < 0 else 2.0)
            for window in range(12)
            for lead in range(3)
            if held_out.step[window] + lead + 1 == now and np.isfinite(y := actual[window, lead, 0])
        ]
        expected *= np.exp(calibrate._ADAPTATION * (np.mean(outside) - 0.2))
    assert factor == pytest.approx(expected, rel=1e-12) and factor > 1.1


@pytest.mark.long
def test_bands_follow_noise_that_has_grown():
    rng = np.random.default_rng(3)
    noise = rng.normal(size=(200, 4)) * np.where(np.arange(200) < 150, 1, 3)[:, None]
    days = [tiny.day(number) for number in range(200)]
    wide = pl.DataFrame({"date": days} | {f"s{place}": 100 + noise[:, place] for place in range(4)})
    start = fc.fit(wide.head(150), horizon=7, config=tiny.TINY, quiet=True)
    new = start.update(wide.head(180), refit="bands", quiet=True)
    held = [
        one.backtest(wide, windows=2, refit="never", quiet=True).coverage.share for one in (start, new)
    ]
    assert held[0] < 0.75 and 0.78 < held[1] < 0.95


def test_a_failure_in_the_middle_leaves_model_and_folder_as_they_were(tmp_path, monkeypatch):
    save_artifact(model().artifact, tmp_path / "model")
    before = tiny.tree(tmp_path)

    def fails(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr("forecaster.fitting.update.fit_panel", fails)
    with pytest.raises(KeyboardInterrupt):
        fc.load(tmp_path / "model").update(shop(), out=tmp_path / "new", quiet=True)
    assert tiny.tree(tmp_path) == before


@pytest.mark.slow
@pytest.mark.usefixtures("short_fits")
def test_a_killed_update_changes_nothing(tmp_path):
    fc.fit(shop(100), horizon=7, config=tiny.ONE, quiet=True).save(tmp_path / "model")
    shop().write_csv(tmp_path / "shop.csv")
    before = tiny.tree(tmp_path / "model")
    words = ["update", "model", "shop.csv", "--out", "new", "--no-tracking"]
    whole = tmp_path / "new" / "contract.json"
    for pause in (3.0, 4.0, 5.0):
        command = [sys.executable, "-m", "forecaster", *words]
        process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL)
        time.sleep(pause)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        assert tiny.tree(tmp_path / "model") == before
        assert whole.exists() == (tmp_path / "new").exists()
    if not whole.exists():
        subprocess.run([sys.executable, "-m", "forecaster", *words], cwd=tmp_path, check=True)
    assert (
        fc.load(tmp_path / "new").artifact.trained_until
        > fc.load(tmp_path / "model").artifact.trained_until
    )
