"""The weights of experts that an explanation shows are those of the forecast, in files and frames."""

from copy import deepcopy
from dataclasses import replace
from functools import cache
from typing import get_args

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from forecast import tiny

import forecaster as fc
from forecaster.api import without_fit
from forecaster.config import Expert
from forecaster.forecast.card import model_card
from forecaster.forecast.expert_weights import PLAIN, ExpertWeights
from forecaster.forecast.explain_page import explanation_page
from forecaster.model.ablation import GROUPS, weights_without
from forecaster.windows.store import WindowStore


@cache
def unfitted() -> fc.Explanation:
    return fc.explain(tiny.plain(), 7, only="b")


def experts_of(explanation: fc.Explanation) -> ExpertWeights:
    assert explanation.experts is not None
    return explanation.experts


def window(artifact, explanation):
    """The inputs of the forecast explained."""
    forecast = explanation.forecast
    panel = forecast.panel.reaching(forecast.cutoff, artifact.horizon)
    store = WindowStore(panel, artifact.plan.model, artifact.horizon, artifact.effects)
    return store.batch(forecast.series, None, panel.row_at(forecast.cutoff)).inputs


def both_pools(network, inputs):
    """The pools and scales with the calendar and without, and the share of the second."""
    found = network.of_pool(inputs, network.scale(inputs))
    remainder = network.of_remainder(inputs)
    share = float(network.weight_of_remainder(inputs, found, remainder)[0, 0])
    assert 0.01 < share < 0.99
    return [(one.pool, one.scale) for one in (found, remainder)], share


@pytest.mark.parametrize("times", [1, 5])
def test_the_weight_of_the_remainder_counts_cutoffs_as_far_as_they_show_what_lies_ahead(times):
    artifact = without_fit(tiny.plain(), 7)[0].artifact
    (network,), inputs = artifact.ensemble.networks, window(artifact, unfitted())
    calendar = inputs.calendar.clone()
    calendar[:, -7:] *= times
    inputs = replace(inputs, calendar=calendar)
    found, remainder = network.of_pool(inputs, network.scale(inputs)), network.of_remainder(inputs)
    known = found.pool.evidence.known[0].numpy() > 0
    missed, other = (one.missed[0].numpy()[known] for one in (found, remainder))
    medians = [one.quantiles[0, :, 0, 4].numpy() for one in (found, remainder)]
    near = np.abs(missed - other).mean() / np.abs(medians[0] - medians[1]).mean()
    m = known.sum() / 8 * min(1, near)
    worse = np.abs(other).mean() / np.abs(missed).mean()
    ratio = float(inputs.error_ratios[0, 0, 2])
    expected = 1 / (1 + worse ** (4 * m / (m + 1)) * ratio ** (4 * (1 - m / 4) / (m + 1)))
    assert (near < 1) == (times > 1) and ratio < 1
    weight = network.weight_of_remainder(inputs, found, remainder)
    assert float(weight) == pytest.approx(expected, rel=1e-5)


def mixed(share, parts):
    first, second = (np.asarray(part) for part in parts)
    return (1 - share) * first + share * second


def test_weights_are_those_of_the_model_and_sum_to_one():
    model = tiny.model()
    explanation = model.explain(tiny.shop(), only="b", future=tiny.prices())
    found = experts_of(explanation)
    inputs = window(model.artifact, explanation)
    (network,) = model.artifact.ensemble.networks
    np.testing.assert_allclose(found.weights, network.weights_of_experts(inputs)[0], rtol=1e-5)
    np.testing.assert_allclose(found.weights.sum(axis=1), 1, rtol=1e-5)
    assert found.names == tuple(model.artifact.plan.model.pool.experts)
    pools, share = both_pools(network, inputs)
    np.testing.assert_allclose(
        found.before, mixed(share, (pool.evidence.weights[0] for pool, _ in pools)), rtol=1e-5
    )
    np.testing.assert_array_equal(found.available, pools[0][0].evidence.available[0])
    assert (found.weights[:, ~found.available] == 0).all()
    without = mixed(
        share, (weights_without(network.experts, pool)[:, 0].mean(dim=1) for pool, _ in pools)
    )
    for name, expected in zip(GROUPS, without, strict=True):
        np.testing.assert_allclose(found.without[name], expected, rtol=1e-4, atol=1e-6)


@pytest.mark.long
def test_the_weighted_mean_and_the_correction_are_the_forecast():
    whole = tiny.plain().with_columns(pl.col("sales").cast(pl.Int64) % 3)
    parts = whole.with_columns(pl.col("sales") * (1 + pl.int_range(pl.len()) % 7 / 10))
    tables = ((tiny.plain(), "a"), (tiny.plain(), "b"), (parts, "c"), (whole, "c"))
    for table, only in tables:
        explanation = fc.explain(table, 7, only=only)
        found = experts_of(explanation)
        median = (found.weights * found.forecasts).sum(axis=1) + found.correction
        forecast = explanation.forecast.median[0, :, 0]
        if table is whole:
            assert (forecast % 1 == 0).all() and np.abs(forecast - median).max() < 1
        else:
            np.testing.assert_allclose(forecast, median, rtol=1e-5)
        assert np.abs(found.correction).max() > 0


@pytest.mark.parametrize("factor", [False, True])
def test_what_experts_forecast_holds_the_effects_of_covariates(factor):
    random = np.random.default_rng(0)
    promo = (random.random(207) < 0.2) * 1.0
    values = 100 * 1.5**promo if factor else 50 * promo + random.choice([-1, 1], 207)
    values = values * np.exp(random.normal(0, 0.05, 207)) + random.normal(0, 1, 207) * (not factor)
    table = pl.DataFrame({"date": [tiny.day(n) for n in range(207)], "y": values, "promo": promo})
    table = table.with_columns(y=pl.when(pl.int_range(207) < 200).then("y"))
    explanation = fc.explain(table, 7, known=["promo"])
    found = experts_of(explanation)
    assert promo[200:].any() and (explanation.effects.unit == "%") == factor
    median = (found.weights * found.forecasts).sum(axis=1) + found.correction
    np.testing.assert_allclose(median, explanation.forecast.median[0, :, 0], rtol=1e-4)
    naive = found.forecasts[:, found.names.index("long_mean")]
    raised = naive[promo[200:] == 1].mean() - naive[promo[200:] == 0].mean()
    assert raised == pytest.approx(50, abs=8)


def test_errors_are_means_of_what_each_expert_missed_at_earlier_cutoffs():
    """The twin: loops over cutoffs and positions, in data units."""
    model = tiny.plain_model()
    explanation = model.explain(tiny.plain(), only="a")
    inputs = window(model.artifact, explanation)
    (network,) = model.artifact.ensemble.networks
    pools, share = both_pools(network, inputs)
    for expert, error in enumerate(experts_of(explanation).error):
        of_pools = []
        for pool, scale in pools:
            evidence = pool.evidence
            missed = [
                abs(float(evidence.missed[0, cutoff, position, expert])) * float(scale.scale[0, 0])
                for cutoff in range(evidence.known.shape[1])
                for position in range(evidence.known.shape[2])
                if evidence.known[0, cutoff, position]
            ]
            of_pools.append(sum(missed) / len(missed))
        assert error == pytest.approx(float(mixed(share, of_pools)), rel=1e-5)
    short = tiny.plain().filter((pl.col("store") != "a") | (pl.col("date") >= tiny.day(97)))
    assert np.isnan(experts_of(fc.explain(short, 7, only="a")).error).all(), "no cutoff is known"


def test_of_several_members_all_is_the_mean_by_their_weights():
    artifact = tiny.plain_model().artifact
    members = [deepcopy(artifact.ensemble.networks[0]) for _ in range(2)]
    of_experts = members[1].experts.attention.tuned[0]
    torch.nn.init.constant_(of_experts.bias, 0.0)
    with torch.no_grad():
        of_experts.weight.mul_(3.0)
        members[0].network_weight.fill_(0.5)

    def explained(networks, weights):
        ensemble = type(artifact.ensemble)(networks, weights).eval()
        return experts_of(
            fc.Forecaster(replace(artifact, ensemble=ensemble)).explain(tiny.plain(), only="a")
        )

    both = explained(members, [0.3, 0.7])
    first, second = explained(members[:1], [1.0]), explained(members[1:], [1.0])
    assert np.abs(first.weights - second.weights).max() > 0.01
    for name in ("weights", "before", "error", "forecasts", "correction", "share"):
        expected = 0.3 * getattr(first, name) + 0.7 * getattr(second, name)
        np.testing.assert_allclose(getattr(both, name), expected, rtol=1e-5, atol=1e-7, err_msg=name)
    assert both.share == pytest.approx(0.85) and both.report.startswith(
        "85 % of the forecast is a weighted"
    )


@pytest.mark.long
def test_a_network_of_weight_zero_has_no_maps_and_a_line_says_why():
    found = unfitted()
    assert found.maps == found.context == found.horizon == () and found.rollout is None
    page = explanation_page(found)
    assert "The network has weight 0 in this forecast (nothing was fitted)" in page
    for words in ("Encoder:", "Cross-attention", "Rollout</b>", "Attention maps</b>", "context tokens"):
        assert words not in page
    fitted = tiny.plain_model().explain(tiny.plain(), only="a")
    assert fitted.maps == () and "(by validation windows" in fitted.without_maps
    brief = tiny.plain().filter((pl.col("store") != "c") | (pl.col("date") >= tiny.day(95)))
    model = deepcopy(tiny.plain_model().artifact.ensemble)
    model.networks[0].network_weight.fill_(0.5)
    mixed = fc.Forecaster(replace(tiny.plain_model().artifact, ensemble=model))
    assert "at most a season" in mixed.explain(brief, only="c").without_maps
    shown = mixed.explain(brief, only="a")
    assert shown.maps and not shown.without_maps and experts_of(shown).share == 0.5


def test_the_page_holds_the_weights_and_what_they_rest_on():
    found = unfitted()
    experts = experts_of(found)
    page = " ".join(explanation_page(found).split())
    text = page.replace("&gt;", ">")
    first = experts.names[experts.order[0]]
    assert f"is a weighted mean of {first} ({PLAIN[first]}) {100 * experts.mean.max():.0f} %" in text
    for words in (
        "By errors",
        "weights of the experts at each lead",
        "what evidence adds",
        "others",
    ):
        assert words in text
    shown = [experts.names[number] for number in experts.shown]
    assert 0 < len(shown) < len(experts.names)
    assert all(f"{name}: {PLAIN[name]}" in text for name in shown)


def test_each_expert_has_plain_words_of_its_own():
    assert list(PLAIN) == list(get_args(Expert))
    assert len({*PLAIN.values()}) == len(PLAIN) and all(PLAIN.values())


@pytest.mark.long
def test_cycles_that_experts_read_off_the_history_are_not_called_unimportant():
    table = tiny.plain(800).filter(store="a")  # with a week
    found = fc.explain(table, 7)
    assert "Seasons: 7 and 365 steps." in explanation_page(found)
    assert all(one.cells for one in found.importance)
    texts = [axis.get_title("left") for axis in found.plot().get_axes()]
    assert not [text for text in texts if "covariate" in text or "none of these" in text]
    # A network that reads them is measured, and so are covariates that change nothing.
    network = deepcopy(tiny.plain_model().artifact.ensemble)
    network.networks[0].network_weight.fill_(0.5)
    read = fc.Forecaster(replace(tiny.plain_model().artifact, ensemble=network)).explain(
        tiny.plain(), only="a"
    )
    assert {one.name for one in read.importance if one.kind == "calendar"} == {"week", "year"}
    kept = fc.explain(table.with_columns(size=pl.lit(3.0)), 7, static=["size"])
    assert [one.name for one in kept.importance if not one.cells] == ["size"]
    titles = [axis.get_title("left") for axis in kept.plot().get_axes()]
    assert "importance: none of these changes this forecast" in titles


@pytest.mark.long
@pytest.mark.parametrize("horizon", [1, 40])
def test_every_horizon_can_be_drawn(horizon, tmp_path):
    found = fc.explain(tiny.plain(), horizon, only="a")
    assert experts_of(found).weights.shape[0] == horizon
    figure = found.plot()
    figure.savefig(tmp_path / "why.png")
    axes = figure.get_axes()
    (area,) = (axis for axis in axes if "each lead" in axis.get_title(loc="left"))
    assert area.get_xlim() == (0.5, horizon + 0.5) and area.get_ylim() == (0, 100)
    tops = [path.vertices[:, 1].max() for stack in area.collections for path in stack.get_paths()]
    assert max(tops) == pytest.approx(100)


@cache
def _of_ets() -> fc.Forecaster:
    config = tiny.config_with(experts=["ets"])
    return fc.fit(tiny.plain(60), horizon=7, config=config, quiet=True)


@pytest.mark.long
def test_a_network_alone_has_no_experts_and_one_expert_has_all_the_weight():
    alone = tiny.network_model().explain(tiny.plain(60), only="a")
    assert alone.experts is None and alone.maps and "Experts.</b>" not in explanation_page(alone)
    model = _of_ets()
    found = model.explain(tiny.plain(60), only="a")
    one = experts_of(found)
    assert one.names == ("ets",) and (one.weights == 1).all() and (one.correction == 0).all()
    assert (
        one.report == f"The forecast is that of one expert, ets ({PLAIN['ets']})."
        and "ets" in explanation_page(found)
    )


def test_rows_are_keyed_as_the_table_is():
    found = experts_of(unfitted())
    rows = found.to_polars()
    keys = ["store", "cutoff", "date", "lead", "channel"]
    assert rows.columns == [*keys, "expert", "weight", "forecast", "before", "error", "available"]
    assert rows.height == 7 * len(found.names) and set(rows["store"]) == {"b"}
    naive = rows.filter(pl.col("expert") == "naive")
    np.testing.assert_array_equal(naive["weight"], found.weights[:, found.names.index("naive")])
    assert naive["lead"].to_list() == [*range(1, 8)] and naive["date"][0] == tiny.day(100)
    assert rows.group_by("lead").agg(pl.col("weight").sum())["weight"].to_numpy() == pytest.approx(1)
    pandas = experts_of(fc.explain(tiny.plain().to_pandas(), 7, only="b")).frame
    assert isinstance(pandas, pd.DataFrame) and len(pandas) == rows.height


def test_the_sentence_names_the_evidence_that_moves_the_largest_weight_most():
    found = experts_of(unfitted())
    first = found.order[0]
    moved = {name: found.mean[first] - without[first] for name, without in found.without.items()}
    group = max(moved, key=lambda name: abs(moved[name]))
    verb = "raised" if moved[group] > 0 else "lowered"
    without = f"(without: {100 * found.without[group][first]:.0f} %)"
    assert f"its weight is {verb} most by " in found.report and without in found.report


def test_the_card_says_where_the_weights_come_from():
    line = "- weights of experts: by attention that was learned on other tables"
    artifact = tiny.plain_model().artifact
    assert f"{line}\n" in model_card(artifact)
    tuned = replace(artifact, metrics=artifact.metrics | {"attention_steps": 200})
    assert f"{line}, tuned in 200 steps on this one\n" in model_card(tuned)
    unfitted_model, _ = without_fit(tiny.plain(), 7, None, None, roles={})
    card = model_card(unfitted_model.artifact)
    assert (
        "- no fit: experts weighed by attention to their errors in each series; network weight 0 %"
        in card
    )
    assert "weights of experts" not in model_card(_of_ets().artifact)
