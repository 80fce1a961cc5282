"""Attention over experts tuned on a table: only where validation windows are clear about a gain."""

import numpy as np
import pandas as pd
import pytest
import torch

import forecaster as fc
from forecaster.fitting.experts import tuning
from forecaster.fitting.experts.pool import bare_network, smallest, solve_experts
from forecaster.fitting.experts.tuning import (
    STEPS,
    after_steps,
    parameters_of,
    put,
    row_losses,
    rows_of,
    tuned_maps,
)
from forecaster.fitting.fit import fit_panel, resolve
from forecaster.forecast.saved_model import load_artifact, save_artifact
from forecaster.model.expert_attention import LEVELS, ExpertAttention, tokens_of
from forecaster.model.heads import pinball
from forecaster.model.shipped_weights import load_shipped
from forecaster.panel.build import open_panel
from forecaster.windows.store import WindowStore, training_store

EXPERTS = {"experts": ["naive", "drift", "long_mean", "level_0.3", "linear"], "lookbacks": (12,)}


def noise_with_spikes(rows=400, series=1, seed=0):
    """Independent noise with spikes of one step: after a spike naive and the levels are wrong, a mean is right."""
    random = np.random.default_rng(seed)
    values = random.normal(size=(series, rows)) + 12 * (random.random((series, rows)) < 0.08)
    frame = {
        "series": np.repeat(np.arange(series), rows),
        "time": np.tile(np.arange(rows), series),
        "y": values.ravel(),
    }
    return pd.DataFrame(frame)


@pytest.fixture(scope="module")
def solved(make_panel, make_config):
    """A network of a small table with its experts solved, the table's windows, and the split."""
    panel = make_panel(2, 160)
    plan, split = resolve(panel, make_config(4, model=EXPERTS))
    plan = smallest(plan)
    network, store = bare_network(panel, plan, split.train_end), training_store(panel, plan)
    solve_experts(network, panel, plan, split, store)
    return network, store, split


def test_the_last_maps_alone_are_tuned_and_no_step_leaves_them(solved):
    network, store, split = solved
    attention = network.experts.attention
    rows = rows_of(network, store, split.train, np.arange(40))
    none, some, more = (after_steps(attention, rows, steps, seed=0) for steps in (0, 3, 9))
    before = attention.state_dict()
    last = {f"tuned.{number}.{part}" for number in (0, 1) for part in ("weight", "bias")}
    assert all(torch.equal(value, before[name]) for name, value in none.state_dict().items())
    for tuned in (some, more):
        moved = {
            name for name, value in tuned.state_dict().items() if not torch.equal(value, before[name])
        }
        assert moved == last
    assert all(torch.equal(value, before[name]) for name, value in attention.state_dict().items())


def test_steps_lessen_the_loss_of_the_rows_they_are_taken_on(solved):
    network, store, split = solved
    rows = rows_of(network, store, split.train, np.arange(60))

    def loss(attention):
        return row_losses(tuning._quantiles(attention, rows), rows.evidence, rows.truth).sum()

    shipped = network.experts.attention
    assert loss(after_steps(shipped, rows, 60, seed=0)) < loss(shipped)


def test_quantiles_of_stored_rows_are_those_of_the_experts_at_their_positions(solved):
    network, store, split = solved
    rows = rows_of(network, store, split.train, np.arange(5))
    attention, evidence = network.experts.attention, rows.evidence
    every = torch.eye(8)
    expected = attention.quantiles(evidence, evidence.forecasts, evidence.width, every)
    torch.testing.assert_close(tuning._quantiles(attention, rows), expected)


def test_the_loss_of_a_row_is_its_pinball_loss_in_units_cell_by_cell(solved):
    network, store, split = solved
    rows = rows_of(network, store, split.train, np.arange(3))
    truth = rows.truth.clone()
    truth[0, 0], truth[1, 1] = torch.nan, 1e6
    quantiles = tuning._quantiles(network.experts.attention, rows)
    found = row_losses(quantiles, rows.evidence, truth)
    center = (rows.evidence.weights[:, None] * rows.evidence.forecasts).sum(dim=-1)
    for row in range(len(truth)):
        for position in range(8):
            if truth[row, position].isnan():
                assert found[row, position] == 0
                continue
            unit = float(rows.evidence.unit[row])
            away = float(truth[row, position] - center[row, position]) / unit
            if abs(away) > 20:
                away = np.sign(away) * 20 * (1 + np.log(abs(away) / 20))
            total = 0.0
            for number, level in enumerate(LEVELS):
                quantile = float(quantiles[row, position, number] - center[row, position]) / unit
                total += (
                    2 * max(level * (away - quantile), (level - 1) * (away - quantile)) / len(LEVELS)
                )
            assert float(found[row, position]) == pytest.approx(total, rel=1e-3, abs=1e-3)


def test_without_validation_windows_or_with_one_stretch_the_shipped_maps_stay(make_panel, make_config):
    panel = make_panel(2, 60)
    for validation in (None, 0.1):
        config = make_config(4, model=EXPERTS, fit={"validation": validation})
        plan, split = resolve(panel, config)
        network, store = (
            bare_network(panel, smallest(plan), split.train_end),
            training_store(panel, plan),
        )
        solve_experts(network, panel, smallest(plan), split, store)
        steps, maps = tuned_maps(network, store, split, 0)
        assert steps == 0
        for one, own in zip(maps, parameters_of(network.experts.attention), strict=True):
            assert torch.equal(one, own)


@pytest.mark.long
def test_where_the_table_teaches_what_others_did_not_tuning_is_a_gain_on_later_rows(monkeypatch):
    monkeypatch.setattr(tuning, "STEPS", STEPS)
    monkeypatch.setattr(tuning, "_ROWS", 1000)
    table = noise_with_spikes(1200)
    config = {"model": EXPERTS | {"width": 8, "heads": 1}, "fit": {"steps": 1}}
    before = table[table.time < 1000]
    model = fc.fit(before, 8, time="time", series="series", config=config, tracking=False, quiet=True)
    assert model.artifact.metrics["attention_steps"] == STEPS
    network = model.artifact.ensemble.networks[0]
    later = open_panel(table, model.artifact.plan.data, schema=model.artifact.schema)
    attention = network.experts.attention
    store = WindowStore(later, model.artifact.plan.model, 8)
    batch = store.batch(np.zeros(190, np.int64), None, np.arange(1000, 1190))
    truth = torch.from_numpy(later.values[np.arange(1000, 1190)[:, None] + np.arange(1, 9), :1])
    losses = []
    for maps in (parameters_of(attention), parameters_of(shipped_for(attention))):
        put(maps, attention)
        quantiles = network.of_experts(batch.inputs, network.scale(batch.inputs)).quantiles
        losses.append(float(pinball(quantiles, truth, torch.tensor(LEVELS).double()).mean()))
    assert losses[0] < 0.98 * losses[1]


def shipped_for(attention):
    fresh = ExpertAttention(attention.names, tunable=True)
    load_shipped(fresh)
    return fresh


@pytest.mark.long
def test_tuned_maps_are_kept_in_a_refit_a_file_and_a_warm_start(
    make_panel, make_config, tmp_path, monkeypatch
):
    panel = make_panel(2, 160)
    moved = []

    def tuned(network, store, split, seed):
        maps = [part + 0.01 for part in parameters_of(network.experts.attention)]
        moved.append(maps)
        return 50, maps

    monkeypatch.setattr("forecaster.fitting.members.tuned_maps", tuned)
    config = make_config(4, model=EXPERTS, fit={"refit": True, "steps": 2})
    artifact = fit_panel(panel, *resolve(panel, config))
    assert len(moved) == 1 and artifact.metrics["attention_steps"] == 50
    save_artifact(artifact, tmp_path / "model")
    loaded = load_artifact(tmp_path / "model")
    for network in (artifact.ensemble.networks[0], loaded.ensemble.networks[0]):
        for one, own in zip(moved[0], parameters_of(network.experts.attention), strict=True):
            assert torch.equal(one, own)
    again = fit_panel(panel, *resolve(panel, config, loaded), start=loaded)
    del again
    torch.testing.assert_close(moved[1][0], moved[0][0] + 0.01)


def test_histories_of_at_most_a_season_keep_the_shipped_maps(solved):
    network, store, split = solved
    attention = network.experts.attention
    rows = rows_of(network, store, split.train, np.arange(6))
    brief = torch.tensor([True, False, True, False, True, True])
    rows = rows._replace(attended=rows.attended._replace(brief=brief))
    shipped = tuning._quantiles(attention, rows)
    tuned = after_steps(attention, rows, 5, seed=0)
    same = (tuning._quantiles(tuned, rows) == shipped).all(dim=-1).all(dim=-1)
    assert same.tolist() == brief.tolist()
    steps = rows.evidence.steps
    assert (tokens_of(rows.evidence, attention.solved).brief == (steps[:, 0] <= 8)).all()
