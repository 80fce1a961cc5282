"""What an explanation shows is what the model does, of the right series, in files that stand alone."""

import re
from copy import deepcopy
from dataclasses import replace
from functools import cache

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from forecast import tiny

import forecaster as fc
from forecaster.forecast.artifact import Artifact
from forecaster.forecast.explain import hide_each, importance_of, rollout
from forecaster.forecast.explain_page import explanation_page
from forecaster.windows.store import WindowStore


@cache
def explained() -> fc.Explanation:
    return with_network(tiny.model()).explain(tiny.shop(), only="b", future=tiny.prices())


def with_network(model: fc.Forecaster, weight: float = 0.5) -> fc.Forecaster:
    """The model with another weight of the network."""
    artifact = replace(model.artifact, ensemble=deepcopy(model.artifact.ensemble))
    for network in artifact.ensemble.networks:
        if network.experts is not None:
            network.network_weight.fill_(weight)
    return fc.Forecaster(artifact)


def shares(rng, *axes):
    weights = rng.random(axes)
    return weights / weights.sum(axis=-1, keepdims=True)


def test_rollout_is_the_product_of_one_matrix_per_attention_over_all_tokens():
    """The twin: context and horizon as one sequence, each attention one matrix, loops for products."""
    rng, context, horizon = np.random.default_rng(0), 4, 3
    encoder = [shares(rng, 2, context, context) for _ in range(2)]
    decoder = [np.tril(shares(rng, 2, horizon, horizon)) for _ in range(2)]
    decoder = [weights / weights.sum(axis=-1, keepdims=True) for weights in decoder]
    cross = [shares(rng, 2, horizon, context) for _ in range(2)]
    whole = np.eye(context + horizon)

    def then(rows, columns, weights):
        step = np.eye(context + horizon)
        for n in range(weights.shape[1]):
            for m in range(weights.shape[2]):
                mean = sum(head[n, m] for head in weights) / len(weights)
                step[rows + n, columns + m] = 0.5 * mean + 0.5 * (rows + n == columns + m)
            if rows != columns:
                step[rows + n, rows + n] = 0.5
        return np.array(
            [
                [sum(step[i, k] * whole[k, j] for k in range(len(whole))) for j in range(len(whole))]
                for i in range(len(whole))
            ]
        )

    for weights in encoder:
        whole = then(0, 0, weights)
    for own, across in zip(decoder, cross, strict=True):
        whole = then(context, context, own)
        whole = then(context, 0, across)
    found = rollout(encoder, decoder, cross)
    np.testing.assert_allclose(found, whole[context:], atol=1e-12)
    np.testing.assert_allclose(found.sum(axis=1), 1.0)
    assert (np.triu(found[:, context:], 1) == 0).all(), "no patch rests on a later one"


def test_the_forecast_shown_is_the_one_that_predict_gives():
    found = explained()
    expected = with_network(tiny.model()).predict(tiny.shop(), future=tiny.prices())
    assert found.title == "b · sales" and found.forecast.panel.series_names == ["b"]
    np.testing.assert_allclose(found.forecast.quantiles[0], expected.quantiles[1], rtol=1e-5)
    assert np.array_equal(found.forecast.time[0], expected.time[1])
    assert found.forecast.actual is None and {one.loss for one in found.importance} == {None}


def test_tokens_lie_at_their_true_times():
    found = explained()
    read = tiny.model().artifact.context_length
    assert len(found.time) == read + 7 and len(found.context) == 4 and len(found.horizon) == 1
    assert found.span(found.context[-1].start, found.context[-1].stop) == "2024-04-03 – 2024-04-09"
    assert found.span(found.horizon[0].start, found.horizon[0].stop) == "2024-04-10 – 2024-04-16"
    sales = tiny.shop().filter(pl.col("store") == "b")["sales"].to_numpy()
    np.testing.assert_allclose(found.history, sales[-read:], rtol=1e-6)


def test_a_series_shorter_than_the_context_has_masked_tokens_that_nobody_takes_from():
    short = tiny.plain().filter((pl.col("store") != "c") | (pl.col("date") >= tiny.day(88)))
    found = with_network(tiny.plain_model()).explain(short, only="c")
    assert [token.seen for token in found.context] == [False, False, True, True]
    first = found.context[0].start
    assert found.span(first, first + 1) == str(tiny.day(72)), (
        "steps before the first row have times too"
    )
    masked = [n for n, token in enumerate(found.context) if not token.seen]
    for one in found.maps:
        if one.part != "decoder":
            assert (one.weights[..., masked] == 0).all()
            np.testing.assert_allclose(one.weights.sum(axis=-1), 1.0, rtol=1e-5)
    assert found.rollout is not None and (found.rollout[:, masked] == 0).all()
    drawn = found.plot().findobj(lambda artist: getattr(artist, "get_hatch", lambda: None)() == "////")
    assert len(drawn) == 2 * 2 * 3  # tokens · (encoder, cross) · (mean, two heads)
    blocks = [one.cells for one in found.importance if one.cells]
    assert blocks == [(first + 14, first + 21), (first + 21, first + 28)], (
        "a block that was never observed hides nothing"
    )


def test_hiding_each_thing_in_one_batch_is_forecasting_anew_without_it():
    found, artifact = explained(), tiny.model().artifact
    table = tiny.shop().filter(pl.col("store") == "b")
    scaled = artifact.plan.model.attention_length  # steps whose spread is the unit
    hidden = {
        "visitors": table.with_columns(visitors=pl.lit(None, pl.Float64)),
        "city": table.with_columns(city=pl.lit(None, pl.String)),
        "2024-04-03 – 2024-04-09": table.with_columns(
            pl.when(pl.col("date") <= tiny.day(92)).then(pl.col("sales", "visitors"))
        ),
    }
    values = table["sales"].to_numpy()[-scaled:]
    cutoff = str(tiny.day(99))
    model = with_network(tiny.model())
    base = model.predict(table, future=tiny.prices(stores=("b",)), cutoff=cutoff).median
    for name, other in hidden.items():
        without = model.predict(other, future=tiny.prices(stores=("b",)), cutoff=cutoff).median
        (one,) = [one for one in found.importance if found.name(one) == name]
        expected = np.abs(without - base).mean() / values.std()
        assert one.change == pytest.approx(expected, rel=1e-3, abs=1e-6), name
    kinds = {"price": "known", "visitors": "past", "city": "static"}
    kinds |= {"week": "calendar", "year": "calendar"}
    assert {one.name: one.kind for one in found.importance if not one.cells} == kinds


@pytest.mark.long
def test_the_covariate_that_the_target_is_made_of_matters_most():
    rng = np.random.default_rng(0)
    days, ids = 160, ("u", "v")
    rows = len(ids) * days
    cause = rng.integers(0, 2, rows)
    columns = {
        "id": np.repeat(ids, days),
        "day": [tiny.day(n) for n in range(days)] * len(ids),
        "y": 5.0 * cause + 0.1 * rng.normal(size=rows),
        "x": np.array(["off", "on"])[cause],
        "other": rng.normal(size=rows),
        "seen": rng.normal(size=rows),
    }
    table = pl.DataFrame(columns)
    known = table.select("id", "day", "x", "other")
    settings = tiny.config_with(context_length=14, patch=1, experts=[]) | {
        "fit": {"steps": 40, "batch_size": 64, "learning_rate": 0.02}
    }
    model = fc.fit(table, horizon=5, known=["x", "other"], config=settings, quiet=True)
    found = model.explain(table, only="v", cutoff=str(tiny.day(150)), future=known)
    first = found.importance[0]
    assert first.name == "x" and found.report.startswith("v · y: the forecast changes most without x (")
    rest = [one for one in found.importance if one.cells is None][1:]
    assert first.change > 3 * max(one.change for one in rest)
    assert first.loss is not None and first.loss > 3 * max(one.loss for one in rest)


def test_the_truth_is_shown_where_the_table_has_it_and_raises_no_forecast():
    cutoff = str(tiny.day(80))
    model = with_network(tiny.plain_model())
    found = model.explain(tiny.plain(), only="a", cutoff=cutoff)
    sales = tiny.plain().filter(pl.col("store") == "a")["sales"].to_numpy()
    np.testing.assert_allclose(found.forecast.actual[0, :, 0], sales[81:88], rtol=1e-6)
    assert all(one.loss is not None for one in found.importance)
    later = tiny.plain().with_columns(
        sales=pl.when(pl.col("date") > tiny.day(80)).then(-77.0).otherwise(pl.col("sales"))
    )
    other = model.explain(later, only="a", cutoff=cutoff)
    assert found.maps
    for one, twin in zip(found.maps, other.maps, strict=True):
        assert tiny.bits(one.weights) == tiny.bits(twin.weights)
    assert [one.change for one in found.importance] == [one.change for one in other.importance]


VARIANTS = {
    "low-rank": {"attention": "low_rank", "attention_size": 3},
    "channels": {"channel_attention": True},
    "autoregressive": {"decoder": "autoregressive", "patch": 2},
}


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize("settings", VARIANTS.values(), ids=VARIANTS)
def test_every_kind_of_model_can_be_explained(settings):
    config = tiny.config_with(experts=[], **settings)
    model = with_network(fc.fit(tiny.shop(60), horizon=7, known="price", config=config, quiet=True))
    found = model.explain(tiny.shop(60), only="a", future=tiny.prices(60))
    expected = model.predict(tiny.shop(60), future=tiny.prices(60)).median[0]
    np.testing.assert_allclose(found.forecast.median[0], expected, rtol=1e-4)
    page = explanation_page(found)
    low_rank = "low_rank" in settings.values()
    assert (found.rollout is None) == low_rank and ("no rollout" in page) == low_rank
    if found.rollout is not None:
        np.testing.assert_allclose(found.rollout.sum(axis=1), 1.0, rtol=1e-5)
    assert ("median of all paths" in page) == (settings.get("decoder") == "autoregressive")
    across = [one for one in found.maps if one.names is not None]
    assert (
        ("Channels attend to each other" in page) == bool(across) == ("channel_attention" in settings)
    )
    if across:
        assert [one.names for one in across] == [("sales", "price", "visitors"), ("sales", "price")]
        assert [one.weights.shape for one in across] == [(2, 3, 3), (2, 2, 2)]


def test_other_channels_are_hidden_in_turn_where_a_channel_sees_them():
    wide = tiny.plain().pivot("store", index="date", values="sales")
    settings = tiny.config_with(channel_attention=True, experts=[])
    model = fc.fit(wide, horizon=7, target=["a", "b", "c"], config=settings, quiet=True)
    found = model.explain(wide, channel="b")
    assert found.title.endswith(" · b") and found.channel == 1
    assert {one.name for one in found.importance if one.kind == "channel"} == {"a", "c"}
    read = model.artifact.context_length
    np.testing.assert_allclose(found.history, wide["b"].to_numpy()[-read:], rtol=1e-6)
    alone = fc.fit(wide, horizon=7, target=["a", "b", "c"], config=tiny.NETWORK, quiet=True)
    assert not [one for one in alone.explain(wide).importance if one.kind == "channel"]
    with pytest.raises(fc.DataError, match=r"no channel 'bb' among 3; did you mean 'b'\?"):
        model.explain(wide, channel="bb")


@pytest.mark.long
def test_the_page_needs_nothing_but_itself(tmp_path):
    explained().write(tmp_path / "attention.html")
    page = (tmp_path / "attention.html").read_text(encoding="utf-8")
    assert [path.name for path in tmp_path.iterdir()] == ["attention.html"]
    assert "<script" not in page and "http" not in page and "@import" not in page and "src=" not in page
    links = {link for link in re.findall(r'href="([^,"]*)', page) if link[0] != "#"}
    assert links == {"data:image/png;base64"}
    for words in ("does not prove", "2024-04-09", "price", "visitors", "city", "week"):
        assert words in page
    for title in ("Encoder: self-attention", "Decoder: self-attention", "Cross-attention"):
        assert title in page


def test_names_cannot_break_the_page():
    table = tiny.plain().with_columns(pl.col("store").replace({"a": "<b>&\"x'"}))
    page = explanation_page(tiny.plain_model().explain(table, only="<b>&\"x'"))
    assert "<b>&\"x'" not in page and "&lt;b&gt;&amp;&quot;x&#x27;" in page


def test_a_series_that_is_not_there_or_not_named_is_refused():
    model, table = tiny.plain_model(), tiny.plain()
    long = table.with_columns(store="store_" + pl.col("store"))
    with pytest.raises(fc.DataError, match=r"no series 'stor_b' among 3; did you mean 'store_b'\?"):
        model.explain(long, only="stor_b")
    with pytest.raises(fc.DataError, match="no series 'zzz' among 3; the first is 'a'"):
        model.explain(table, only="zzz")
    with pytest.raises(fc.DataError, match="3 series; name one, as only='a'"):
        model.explain(table)
    alone = table.filter(pl.col("store") == "b")
    assert model.explain(alone).title == "b · sales"
    with pytest.raises(
        fc.DataError, match="series c has no forecast: no target observed before the cutoff"
    ):
        late = table.filter((pl.col("store") != "c") | (pl.col("date") > tiny.day(90)))
        model.explain(late, only="c", cutoff=str(tiny.day(80)))


@pytest.mark.long
def test_of_several_members_the_weightiest_is_looked_into():
    first, second = tiny.plain_model().artifact, _other_plain()
    members = [first.ensemble.members[0], second.ensemble.members[0]]
    ensemble = type(first.ensemble)(members, [0.3, 0.7]).eval()
    both: Artifact = replace(first, ensemble=ensemble)
    found = with_network(fc.Forecaster(both)).explain(tiny.plain(), only="a")
    alone = with_network(fc.Forecaster(second)).explain(tiny.plain(), only="a")
    assert tiny.bits(found.maps[0].weights) == tiny.bits(alone.maps[0].weights)


@pytest.mark.long
def test_the_member_looked_into_is_one_whose_network_has_a_weight():
    artifact = with_network(tiny.plain_model()).artifact
    members = [
        *deepcopy(artifact.ensemble).members,
        *with_network(fc.Forecaster(_other_plain()), 0).artifact.ensemble.members,
    ]
    ensemble = type(artifact.ensemble)(members, [0.3, 0.7]).eval()
    found = fc.Forecaster(replace(artifact, ensemble=ensemble)).explain(tiny.plain(), only="a")
    alone = fc.Forecaster(artifact).explain(tiny.plain(), only="a")
    assert tiny.bits(found.maps[0].weights) == tiny.bits(alone.maps[0].weights)
    assert found.experts is not None and found.experts.share == pytest.approx(0.85)


@cache
def _other_plain() -> Artifact:
    settings = tiny.TINY | {"fit": tiny.TINY["fit"] | {"seed": 1}}
    return fc.fit(tiny.plain(), horizon=7, config=settings, quiet=True).artifact


def test_paths_share_their_random_numbers_among_variants():
    """Equal variants of a window with drawn paths give equal forecasts: chance has no importance."""
    model = fc.fit(
        tiny.plain(60),
        horizon=3,
        config=tiny.config_with(decoder="autoregressive", patch=1),
        quiet=True,
    )
    found = model.explain(tiny.plain(60), only="a")
    (network,) = model.artifact.ensemble.members
    panel = found.forecast.panel.reaching(found.forecast.cutoff, 3)
    store = WindowStore(panel, network.config, 3)
    batch = store.batch(found.forecast.series, None, panel.row_at(found.forecast.cutoff))
    hidden = hide_each(batch.inputs, panel, None, network.config.patch)
    same = [replace(one, inputs=batch.inputs) for one in hidden]
    with torch.inference_mode():
        still = importance_of(model.artifact.ensemble, batch.inputs, same, 0, batch, torch.tensor([5]))
    assert max(one.change for one in still) < 1e-5


def test_a_context_of_one_token_is_explained_by_its_steps():
    """Yearly rows have a context of one patch: with it all hidden, nothing would be left to compare."""
    years = pd.DataFrame(
        {"time": pd.date_range("1950-01-01", periods=40, freq="YS"), "y": np.arange(40.0) % 9}
    )
    found = fc.explain(years, 3)
    blocks = [one.cells for one in found.importance if one.kind == "context"]
    assert blocks == [(n, n + 1) for n in range(len(found.history))]
    assert max(one.change for one in found.importance) > 0
    still = fc.explain(years.assign(y=5.0), 3)
    assert still.report.endswith("nothing that can be hidden changes the forecast")
