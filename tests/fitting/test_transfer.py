"""A fit that starts from another model's weights: what it takes, what it refuses, what it remembers."""

import importlib.util
import json
import re
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch
from forecast import tiny

import forecaster as fc
from forecaster.errors import ConfigError
from forecaster.fitting.warm_start import seen_until

ROOT = Path(__file__).parents[2]
DATA = ROOT.parent / "shared" / "datasets"
UNTRAINED = {"steps": 1, "learning_rate": 1e-30, "batch_size": 8}
AT = "2024-03-25"


def _fit(table, start=None, horizon=7, known="price", model=None, **fit):
    """A quiet fit of the smallest kind; the network is what the start says."""
    model = {} if start is not None and model is None else model or tiny.ONE["model"]
    config = {"fit": tiny.TINY["fit"] | fit, "model": model, "tracking": {"enabled": False}}
    return fc.fit(table, horizon=horizon, known=known, config=config, warm_start=start, quiet=True)


def _wider(seed=1):
    """The shop with further covariates of every kind, the old ones in another order."""
    rng, shop = np.random.default_rng(seed), tiny.shop()
    rows = shop.height
    return shop.select(
        "store",
        "date",
        pl.Series("wind", rng.normal(size=rows)),
        "sales",
        "visitors",
        pl.Series("promo", rng.random(rows)),
        "price",
        pl.Series("sky", rng.choice(["grey", "blue"], rows)),
        pl.Series("size", [40.5] * 100 + [60.5] * 100 + [80.5] * 100),
        "city",
    )


def _hourly(days=20):
    """A plain table of another frequency and level."""
    hours = 24 * days
    stamps = np.datetime64("2023-01-01") + np.arange(hours).astype("timedelta64[h]")
    wave = 500 + 30 * np.sin(2 * np.pi * np.arange(hours) / 24)
    noise = np.random.default_rng(0).normal(size=hours)
    return pl.DataFrame({"time": stamps.astype("datetime64[us]"), "load": wave + noise})


@cache
def _attention_alone(table=tiny.shop, known="price"):
    """A model without experts, which would be solved afresh."""
    return _fit(table(), known=known, model=tiny.NETWORK["model"])


def _weights(model):
    return model.artifact.ensemble.members[0].state_dict()


@pytest.mark.long
def test_untrained_a_wider_table_gets_the_forecasts_of_the_model_it_starts_from():
    old = _attention_alone()
    new = _fit(_wider(), old, known=["promo", "price"], **UNTRAINED)
    schema = new.artifact.schema
    assert schema.past == ("wind", "visitors", "sky") and schema.known == ("promo", "price")
    was, now = old.predict(tiny.shop(), cutoff=AT), new.predict(_wider(), cutoff=AT)
    # But for the effects of known covariates, which are those of the new table.
    np.testing.assert_allclose(now.quantiles, was.quantiles, rtol=1e-3)
    other = new.predict(_wider(seed=2), cutoff=AT)  # what is new says nothing before it has learned
    np.testing.assert_allclose(other.quantiles, was.quantiles, rtol=1e-3)


def test_other_channels_another_frequency_and_another_horizon_are_welcome():
    old = _attention_alone(tiny.plain, ())
    new = _fit(_hourly(), old, known=(), horizon=30, **UNTRAINED)
    assert new.config.model.patch == 7 and new.config.model.width == 16
    assert new.artifact.schema.freq == "1h" and new.artifact.shape.cycles == 3
    forecast = new.predict(_hourly())
    assert forecast.quantiles.shape[1] == 30 and np.isfinite(forecast.quantiles).all()
    was, now = _weights(old), _weights(new)
    own = ("linear.", "network_weight", "scaler.")  # of each table
    for name, weight in was.items():
        if name != "embedding.time.phase.weight" and not name.startswith(own):
            assert torch.allclose(now[name], weight, rtol=0, atol=1e-20), name
    # An hour's cycles are the day's, the week's and the year's; a day has the last two.
    assert now["embedding.time.phase.weight"][:, :8].abs().max() < 1e-20
    assert torch.equal(now["embedding.time.phase.weight"][:, 8:], was["embedding.time.phase.weight"])


@pytest.mark.long
def test_periods_are_carried_where_a_step_is_as_long():
    config = tiny.NETWORK | {"data": {"periods": [5, 9]}}
    old = fc.fit(tiny.plain(), horizon=7, config=config, quiet=True)
    was = _weights(old)["embedding.time.phase.weight"]  # week, year, 5 steps, 9 steps
    config = {"data": {"periods": [9, 4]}, "fit": UNTRAINED, "tracking": {"enabled": False}}
    new = fc.fit(tiny.plain(), horizon=7, config=config, warm_start=old, quiet=True)
    now = _weights(new)["embedding.time.phase.weight"]
    at = [16 + 8 * new.artifact.schema.periods.index(period) for period in (9, 4)]
    assert torch.equal(now[:, :16], was[:, :16])
    assert torch.equal(now[:, at[0] : at[0] + 8], was[:, 24:32])
    assert now[:, at[1] : at[1] + 8].abs().max() < 1e-20
    other = fc.fit(_hourly(), horizon=7, config=config, warm_start=old, quiet=True)
    now = _weights(other)["embedding.time.phase.weight"]  # day, week, year, 9 steps of an hour, 4
    assert torch.equal(now[:, 8:24], was[:, :16]) and now[:, 24:].abs().max() < 1e-20


def test_words_of_both_tables_are_known_and_none_is_lost():
    cities = tiny.shop(stores=("a", "b")).with_columns(
        city=pl.when(pl.col("store") == "a").then(pl.lit("east")).otherwise(pl.lit("north"))
    )
    old = _attention_alone()
    new = _fit(cities, old, **UNTRAINED)
    assert old.artifact.schema.categories["city"] == ("north", "south")
    assert new.artifact.schema.categories["city"] == ("north", "south", "east")
    was, now = old.predict(tiny.shop(), cutoff=AT), new.predict(tiny.shop(), cutoff=AT)
    # But for the effect of the price, which is that of two stores.
    np.testing.assert_allclose(now.quantiles, was.quantiles, rtol=0.05)


def test_a_model_that_knew_gaps_between_rows_still_does_on_a_regular_table():
    irregular = tiny.plain().filter(pl.Series(np.random.default_rng(0).random(300) < 0.8))
    irregular = irregular.with_columns(pl.col("date").cast(pl.Datetime("us")))
    jitter = pl.Series(np.random.default_rng(1).integers(0, 20000, irregular.height))
    irregular = irregular.with_columns(pl.col("date") + pl.duration(minutes=jitter % 1000))
    old = _fit(irregular, known=(), model=tiny.NETWORK["model"])
    assert not old.artifact.shape.regular
    new = _fit(tiny.plain(), old, known=(), **UNTRAINED)
    assert new.artifact.schema.regular and not new.artifact.shape.regular
    was, now = (_weights(model)["embedding.context_patch.weight"] for model in (old, new))
    assert torch.equal(now, was)


def test_settings_left_alone_are_the_models_and_some_may_differ():
    model = {"dropout": 0.3, "context_length": 14, "width": 16}
    new = _fit(tiny.shop(), _attention_alone(), model=model)
    assert new.config.model.heads == 2
    assert new.config.model.dropout == 0.3 and new.config.model.context_length == 14


def test_without_a_horizon_it_is_the_models():
    config = {"fit": UNTRAINED, "tracking": {"enabled": False}}
    new = fc.fit(tiny.plain(), config=config, warm_start=_attention_alone(tiny.plain, ()), quiet=True)
    assert new.artifact.horizon == tiny.HORIZON


@pytest.mark.long
def test_settings_that_contradict_the_weights_are_refused_with_the_numbers():
    model = {"width": 32, "patch": 5, "head": "student_t", "quantile_levels": [0.1, 0.5]}
    with pytest.raises(ConfigError) as caught:
        _fit(tiny.shop(), tiny.model(), model=model)
    said = str(caught.value)
    assert "`warm_start`: model.width 32 is asked for, the artifact's weights are made for 16" in said
    assert "model.patch 5 is asked for, the artifact's weights are made for 7" in said
    assert "model.head student_t is asked for, the artifact's weights are made for quantile" in said
    assert "model.quantile_levels [0.1, 0.5] is asked for" in said


@pytest.mark.long
def test_a_table_that_lacks_covariates_is_refused_by_their_names():
    with pytest.raises(ConfigError) as caught:
        _fit(tiny.plain(), tiny.model(), known=())
    assert str(caught.value) == (
        "`warm_start`: the artifact was fitted with covariates that this table does not give: 'visitors' "
        "(expected a past number, found none), 'price' (expected a known number, found none), 'city' "
        "(expected a static category, found none); this table's covariates are none. Add or declare "
        "them (further ones are welcome), or start from an artifact without them"
    )
    with pytest.raises(ConfigError, match=r"'price' \(expected a known number, found a past number\)"):
        _fit(tiny.shop(), tiny.model(), known=())


def test_a_horizon_beyond_learned_positions_is_refused():
    old = _fit(tiny.plain(), known=(), model=tiny.NETWORK["model"] | {"positions": "learned"})
    with pytest.raises(ConfigError, match=r"cover 4 \+ 1 tokens of context and horizon, 4 \+ 2 are"):
        _fit(tiny.plain(), old, known=(), horizon=8)


@pytest.mark.parametrize("setting", [{"freeze_encoder": True}, {"adapters": 4}], ids=str)
def test_what_needs_learned_weights_is_refused_without_them(setting):
    ((name, value),) = setting.items()
    with pytest.raises(ConfigError, match=f"fit.{name} {str(value).lower()}: only trained weights can"):
        _fit(tiny.shop(), **setting)


def test_adapters_as_large_as_the_matrices_are_refused():
    with pytest.raises(ConfigError, match=r"fit.adapters 16: .* fewer than the 16 of the artifact's"):
        _fit(tiny.shop(), tiny.model(), adapters=16)


def test_what_is_no_model_is_refused(tmp_path):
    with pytest.raises(
        ConfigError, match="warm_start=3: expected a forecaster or text or a path, found int"
    ):
        _fit(tiny.shop(), 3)
    with pytest.raises(fc.ArtifactError, match="there is no such folder"):
        _fit(tiny.shop(), tmp_path / "nothing")


def test_a_frozen_encoder_stays_and_the_rest_learns():
    was = _weights(_attention_alone())
    now = _weights(_fit(tiny.shop(), _attention_alone(), freeze_encoder=True, steps=30))
    for name, weight in was.items():
        frozen = (
            name.startswith(("encoder", "about.weight", "experts"))
            or "scaler" in name
            or "cold" in name
        )
        if name.startswith("encoder"):
            assert torch.equal(now[name], weight), name
        elif not frozen and weight.ndim == 2:
            assert not torch.equal(now[name], weight), name


@pytest.mark.long
def test_adapters_leave_an_artifact_of_plain_matrices_that_moved_by_their_rank(tmp_path):
    old = _attention_alone()
    was = {name: weight.clone() for name, weight in _weights(old).items()}
    new = _fit(tiny.shop(), old, adapters=2, steps=30)
    now = _weights(new)
    assert list(now) == list(was) and all(torch.equal(_weights(old)[n], was[n]) for n in was)
    for name in ("encoder.0.attention.query.weight", "decoder.0.feed_forward.expand.weight"):
        change = now[name].double() - was[name].double()
        sizes = torch.linalg.svdvals(change)
        assert sizes[1] > 1e-6 and sizes[2] < 1e-6, name
    assert torch.equal(now["encoder.0.attention.query.bias"], was["encoder.0.attention.query.bias"])
    new.save(tmp_path / "new")
    forecast = new.predict(tiny.shop(), cutoff=AT)
    again = fc.load(tmp_path / "new").predict(tiny.shop(), cutoff=AT)
    assert tiny.bits(again.quantiles) == tiny.bits(forecast.quantiles)


def test_contract_and_card_tell_where_the_weights_come_from(tmp_path):
    old = _attention_alone(tiny.plain, ())
    middle = _fit(_hourly(), old, known=(), **UNTRAINED)
    middle.save(tmp_path / "middle")
    new = _fit(_hourly(), tmp_path / "middle", known=(), **UNTRAINED)
    new.save(tmp_path / "new")
    parent = json.loads((tmp_path / "new" / "contract.json").read_text())["parent"]
    assert parent["fingerprint"] == middle.artifact.fingerprint and parent["freq"] == "1h"
    assert parent["trained_until"] == middle.artifact.trained_until == old.artifact.trained_until
    assert parent["parent"]["fingerprint"] == old.artifact.fingerprint
    assert parent["parent"]["until"] == "2024-04-09" and parent["parent"]["parent"] is None
    assert fc.load(tmp_path / "new").artifact.parent == parent
    card = (tmp_path / "new" / "card.md").read_text()
    assert card.count("- started from weights fitted to") == 2
    assert f"until 2024-04-09, fingerprint {old.artifact.fingerprint}" in card


@pytest.mark.long
def test_nothing_that_the_first_weights_have_seen_is_scored_by_refit_never():
    old = _attention_alone(tiny.plain, ())  # until 2024-04-09
    new = _fit(tiny.plain(days=80), old, known=(), **UNTRAINED)  # until 2024-03-20
    assert new.artifact.trained_until == old.artifact.trained_until
    with pytest.raises(ConfigError, match="trained until 2024-04-09, the first cutoff is 2024-04-02"):
        new.backtest(tiny.plain(), windows=1, refit="never", quiet=True)
    early = fc.fit(tiny.plain(), horizon=7, config=tiny.NETWORK, until="2024-03-01", quiet=True)
    fair = _fit(tiny.plain(days=80), early, known=(), **UNTRAINED)
    assert fair.backtest(tiny.plain(), windows=2, refit="never", quiet=True).scored == 2 * 7 * 3


def test_rows_without_times_are_scored_by_refit_never_only_in_the_table_of_the_fit():
    table = tiny.plain().drop("date")
    held = fc.fit(table, horizon=7, time="row", config=tiny.NETWORK, until="-21", quiet=True)
    assert held.backtest(table, windows=3, refit="never", quiet=True).scored == 3 * 7 * 3
    # Numbered from their own end, the rows of this table begin again at 0, although all were trained on.
    shorter = table.group_by("store", maintain_order=True).head(79)
    appended, prepended = pl.concat([table, shorter]), pl.concat([shorter, table])
    for other in (shorter, appended, prepended):
        with pytest.raises(ConfigError, match="it cannot be known which rows the model has seen"):
            held.backtest(other, windows=3, refit="never", quiet=True)


@pytest.mark.long
def test_times_of_another_kind_are_not_compared():
    schema, artifact = tiny.plain_model().artifact.schema, tiny.plain_model().artifact
    assert seen_until(5, schema, artifact) == artifact.trained_until
    assert seen_until(5, schema, None) == 5
    for other in (replace(schema, time=None), replace(schema, time_dtype="integer")):
        assert seen_until(5, other, artifact) == 5


@pytest.mark.slow
@pytest.mark.usefixtures("short_fits")
def test_a_refit_starts_from_random_weights_and_says_so(capsys):
    new = _fit(tiny.shop(), tiny.model(), adapters=2, freeze_encoder=True)
    plain = _fit(tiny.shop(), model=tiny.TINY["model"])
    again = new.backtest(tiny.shop(), windows=2, quiet=False)
    said = " ".join(capsys.readouterr().out.split())
    assert "a refit starts from random weights, so these scores are those of its config" in said
    expected = plain.backtest(tiny.shop(), windows=2, quiet=True)
    for mine, theirs in zip(again.forecasts, expected.forecasts, strict=True):
        assert tiny.bits(mine.quantiles) == tiny.bits(theirs.quantiles)


def test_the_verb_says_what_it_takes_and_what_it_does_not(tmp_path, monkeypatch, shell):
    monkeypatch.chdir(tmp_path)
    _attention_alone().save("old")
    _wider().write_csv("wider.csv")
    words = "fit wider.csv --known price,promo --horizon 7 --from old --out new"
    sets = "--set fit.steps=1 --set fit.batch_size=8 --set tracking.enabled=false"
    code, said, _ = shell(*words.split(), *sets.split())
    assert code == 0
    assert "starts from weights fitted to the polars frame (1d) until 2024-04-09" in said
    assert re.search(r"past covariates +visitors +wind, sky +-", said)
    assert re.search(r"known covariates +price +promo +-", said)
    assert "those weights have seen the polars frame until 2024-04-09, validation begins after" in said


@pytest.mark.slow
@pytest.mark.usefixtures("unchecked_shapes")
@pytest.mark.skipif(not DATA.is_dir(), reason="the real data sets are not on this machine")
def test_etth1_saves_bdg2_half_the_steps_to_the_best_of_random_weights():
    spec = importlib.util.spec_from_file_location("transfer", ROOT / "benchmarks" / "transfer.py")
    transfer = importlib.util.module_from_spec(spec)
    sys.modules["transfer"] = transfer  # dataclasses look their module up
    spec.loader.exec_module(transfer)
    tables = [transfer.open_panel(DATA / f, fc.Config().data) for f in ("ETTh1.csv", "bdg2_hourly.csv")]
    wanted, reached = [], []
    for seed in range(2):
        # What is trained is the network alone: experts would only be solved beside it.
        own = ["model.experts=[]", "fit.batch_size=96", "fit.steps=200", f"fit.seed={seed}"]
        settings = [*transfer.BASE, "horizon=24", *own]
        parent, _ = transfer.fitted(tables[0], settings)
        _, cold = transfer.fitted(tables[1], settings)
        _, warm = transfer.fitted(tables[1], settings, parent)
        wanted.append(cold.best[0])
        reached.append(warm.reached(cold.best[1]))
    assert None not in reached
    assert np.mean(reached) <= 0.5 * np.mean(wanted), (reached, wanted)
