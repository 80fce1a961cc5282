"""Linear maps are the closed form of a slow, obvious ridge, whatever the windows hold."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from forecaster.errors import ConfigError
from forecaster.fitting.experts import ridge
from forecaster.fitting.experts.linear_settings import choose_linear
from forecaster.fitting.experts.pool import fit_experts
from forecaster.fitting.fit import resolve
from forecaster.model.experts import CUTOFFS
from forecaster.model.linear import ALL

ALPHA = 0.03
PLAIN = {
    "phases": 1,
    "calendar": False,
    "period": None,
    "spans": None,
}


@pytest.fixture
def make_linear(make_config):
    """A linear expert of one lookback and a given penalty."""

    def make(horizon=4, fit=None, context_length=12, **model):
        settled = {"experts": ["naive", "linear"], "lookbacks": [8], "ridge_alpha": ALPHA}
        return make_config(horizon, context_length=context_length, model=settled | model, fit=fit or {})

    return make


def linear_of(panel, config, **chosen):
    """The linear expert alone, with `chosen` in the place of what validation would choose."""
    plan, split = resolve(panel, config)
    return fit_experts(panel, plan.with_linear(**(PLAIN | chosen)), split, "linear"), split


def windows_of(panel, split, network, horizon):
    """Yields, per training row, its context and targets in scaled units."""
    series, channel, cutoff = split.train.locate(np.arange(len(split.train)))
    length = network.config.context_length
    for s, c, at in zip(series, channel, cutoff, strict=True):
        rows = np.arange(at - length + 1, at + horizon + 1)
        own = (rows >= panel.indptr[s]) & (rows < panel.indptr[s + 1])
        values = np.where(own, panel.values[rows.clip(0), c], np.nan).astype(np.float64)
        context = values[:length]
        seen = context[network.experts.cutoff_span :]
        seen = seen[~np.isnan(seen)]
        loc = seen.mean() if len(seen) else float(network.scaler.loc[c + 1])
        if len({*seen}) <= 1:  # a constant context has the spread of its series so far
            seen = panel.values[panel.indptr[s] : at + 1, c]
        spread = np.nanstd(seen) if not np.isnan(seen).all() else 0.0
        scale = spread if spread > 1e-13 * abs(loc) else float(network.scaler.scale[c + 1])
        yield (context - loc) / scale, (values[length:] - loc) / scale


def seasonal_distance(context, steps):
    """The mean distance of values so far apart, a thirtieth of the spread at least."""
    apart = [abs(b - a) for a, b in zip(context, context[steps:], strict=False) if a == a and b == b]
    return max(np.mean(apart), 1 / 30) if apart else 1.0


def slow_ridge(rows, lookback, lead, alpha, apart=None):
    """The maps of one lead: one equation per window, solved at once, as if targets were missing at random."""
    features, targets, weights = [], [], []
    for context, target in rows:
        tail = context[-lookback:]
        level = np.nanmean(tail) if not np.isnan(tail).all() else 0.0
        unit = seasonal_distance(context, apart) if apart else 1.0
        features.append(np.nan_to_num(tail - level) / unit)
        targets.append((target[lead] - level) / unit)
        weights.append(min(1.0, 10 / max(np.nan_to_num(np.abs(target)).max(), 1e-9)) ** 2)
    x, y, w = np.array(features), np.array(targets), np.array(weights)
    penalty = alpha * w.sum() * np.eye(x.shape[1])
    there = ~np.isnan(y)
    right = x[there].T @ (w[there] * y[there]) * w.sum() / w[there].sum()
    return np.linalg.solve(x.T @ (w[:, None] * x) + penalty, right)


@pytest.mark.filterwarnings("ignore:Mean of empty slice")
@pytest.mark.parametrize("missing", [0.0, 0.3, 0.9])
@pytest.mark.parametrize("known", [0, 2])
def test_each_lead_has_the_map_of_a_slow_ridge(make_panel, make_linear, missing, known):
    panel = make_panel(3, 80, known=known, missing=missing, ragged=True)
    artifact, split = linear_of(panel, make_linear(patch=2))
    network = artifact.ensemble.members[0]
    rows = list(windows_of(panel, split, network, 4))
    found = network.experts.linear.maps[0][ALL, 0].double().numpy()
    for lead in range(4):
        wanted = slow_ridge(rows, 8, lead, ALPHA)
        np.testing.assert_allclose(found[:, lead], wanted, rtol=5e-3, atol=2e-3)


@pytest.mark.parametrize("missing", [0.0, 0.3])
def test_maps_count_in_the_distance_of_seasons(make_panel, make_linear, missing):
    panel = make_panel(3, 80, missing=missing, ragged=True)
    wave = 5 * np.sin(2 * np.pi * np.arange(panel.n_rows) / 6)  # so that the distance is no spread
    panel = replace(panel, values=panel.values + wave[:, None])
    artifact, split = linear_of(panel, make_linear(linear_units=6))
    network = artifact.ensemble.members[0]
    rows = list(windows_of(panel, split, network, 4))
    for lead in range(4):
        wanted = slow_ridge(rows, 8, lead, ALPHA, apart=6)
        np.testing.assert_allclose(
            network.experts.linear.maps[0][ALL, 0, :, lead].numpy(), wanted, rtol=5e-3, atol=2e-3
        )


@pytest.mark.parametrize("horizon", [4, 12])
@pytest.mark.parametrize("missing", [0.0, 0.3])
def test_a_second_map_reads_whole_cycles_back_by_shared_weights(
    make_panel, make_linear, horizon, missing
):
    panel = make_panel(3, 80, missing=missing, ragged=True)
    period, lookback = 5, 12
    settled = {"lookbacks": [lookback], "patch": 4}
    alone, split = linear_of(panel, make_linear(horizon, **settled))
    both, _ = linear_of(panel, make_linear(horizon, **settled), period=period)
    network = alone.ensemble.members[0]
    rows = list(windows_of(panel, split, network, horizon))
    seen = [sum(not np.isnan(row[1][lead]) for row in rows) / len(rows) for lead in range(horizon)]
    free, mean = (
        one.ensemble.members[0].experts.linear.maps[0][ALL, 0].double() for one in (alone, both)
    )
    found = (2 * mean - free).numpy()
    for block in range(0, horizon, period):
        leads = range(block, min(block + period, horizon))
        x, y = [], []
        for context, target in rows:
            tail = context[-lookback:]
            level = np.nanmean(tail)
            tail = np.nan_to_num(tail - level)
            for lead in leads:
                x.append([tail[2 + lead - block], tail[7 + lead - block]])
                y.append(0.0 if np.isnan(target[lead]) else (target[lead] - level) / seen[lead])
        x, y = np.array(x), np.array(y)
        penalty = ALPHA * len(rows) * len(leads) / period * np.eye(2)
        wanted = np.linalg.solve(x.T @ x + penalty, x.T @ y)
        for lead in leads:
            reads = [2 + lead - block, 7 + lead - block]
            np.testing.assert_allclose(found[reads, lead], wanted, rtol=1e-3, atol=1e-4)
            assert np.abs(np.delete(found[:, lead], reads)).max() < 1e-6


def test_a_lookback_within_one_cycle_has_the_free_map_alone(make_panel, make_linear):
    panel = make_panel(1, 60)
    alone, both = (
        linear_of(panel, make_linear(), period=period)[0].ensemble.state_dict() for period in (None, 9)
    )
    assert all(torch.equal(both[name], numbers) for name, numbers in alone.items())


def test_a_season_as_unit_is_as_long_as_the_table_says(make_panel, make_linear):
    panel = make_panel(1, 24 * 20)
    config, _ = resolve(panel, make_linear(linear_units="season"))
    assert config.model.linear.units == panel.calendar.season_length == 24


def test_blocks_of_any_size_give_the_same_maps(make_panel, make_linear, monkeypatch):
    panel = make_panel(2, 40, targets=2, known=1, missing=0.3)
    config = make_linear(lookbacks=[4, 8])
    whole = linear_of(panel, config, phases=24)[0].ensemble.state_dict()
    monkeypatch.setattr(ridge, "_BLOCK_CELLS", 10_000)
    parts = linear_of(panel, config, phases=24)[0].ensemble.state_dict()
    for name, numbers in whole.items():
        torch.testing.assert_close(parts[name], numbers, rtol=1e-4, atol=1e-5)


def test_a_map_for_each_phase_is_solved_on_the_windows_that_end_there(make_panel, make_linear):
    panel = make_panel(1, 24 * 20)
    both, split = linear_of(panel, make_linear(), phases=24)
    network = both.ensemble.members[0]
    _, _, cutoff = split.train.locate(np.arange(len(split.train)))
    hour = np.rint(panel.calendar.phase(panel.time[cutoff])[:, 0] * 24).astype(int) % 24
    rows = list(windows_of(panel, split, network, 4))
    for phase in (0, 5, 23):
        own = [row for row, at in zip(rows, hour, strict=True) if at == phase]
        wanted = slow_ridge(own, 8, 2, ALPHA)
        np.testing.assert_allclose(
            network.experts.linear.maps[0][ALL, phase, :, 2].numpy(), wanted, rtol=1e-4, atol=1e-5
        )


def test_spans_are_averaged_and_the_shorter_is_held_as_strongly(make_panel, make_linear):
    panel = make_panel(1, 200)
    whole, split = linear_of(panel, make_linear())
    network = whole.ensemble.members[0]
    rows, count = list(windows_of(panel, split, network, 4)), len(split.train)
    both, _ = linear_of(panel, make_linear(), spans=(50, None))
    recent = rows[-50:]
    wanted = slow_ridge(recent, 8, 1, ALPHA * count / len(recent))
    wanted = (wanted + network.experts.linear.maps[0][ALL, 0, :, 1].numpy()) / 2
    found = both.ensemble.members[0].experts.linear.maps[0][ALL, 0, :, 1].numpy()
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


def test_noise_after_the_last_training_row_changes_no_map(make_panel, make_linear):
    panel = make_panel(2, 80, known=1)
    config, split = resolve(panel, make_linear(ridge_alpha=ALPHA))
    values = panel.values.copy()
    for s in range(panel.n_series):
        values[split.train_end[s] : panel.indptr[s + 1]] = 1e6
    noisy = fit_experts(replace(panel, values=values), config, split)
    clean = fit_experts(panel, config, split)
    for name, numbers in clean.ensemble.state_dict().items():
        assert torch.equal(noisy.ensemble.state_dict()[name], numbers), name


def test_constant_short_and_empty_series_give_finite_maps(make_panel, make_linear):
    panel = make_panel(4, 60, missing=0.2, ragged=True)
    values = panel.values.copy()
    values[: panel.indptr[1]] = 7.0
    values[panel.indptr[1] : panel.indptr[2]] = np.nan
    values[panel.indptr[2] + 5] = 1e30
    artifact, _ = linear_of(replace(panel, values=values), make_linear())
    for name, numbers in artifact.ensemble.state_dict().items():
        assert numbers.isfinite().all(), name


def test_everything_left_open_is_chosen_and_a_second_choice_is_the_same(make_panel, make_linear):
    panel = make_panel(1, 24 * 40, known=1)
    plan, split = resolve(panel, make_linear(ridge_alpha=None, context_length=48, lookbacks=[48]))
    model = plan.model
    assert model.linear.phases in (1, 24) and model.linear.calendar in (True, False)
    assert model.linear.period in (None, 24) and model.linear.spans is None  # less than a year
    assert isinstance(model.linear.ridge_alpha, tuple) and len(model.linear.ridge_alpha) == 2
    again = choose_linear(panel, plan.with_linear(ridge_alpha=None), split)
    assert again == plan


def test_phases_are_chosen_where_each_hour_follows_another_rule(make_panel, make_linear):
    panel = make_panel(1, 24 * 60)
    rng = np.random.default_rng(0)
    value = np.zeros(24 * 60)
    for step in range(1, len(value)):
        sign = 0.9 if step // 6 % 2 else -0.9
        value[step] = sign * value[step - 1] + rng.normal()
    panel = replace(panel, values=value[:, None])
    assert resolve(panel, make_linear(ridge_alpha=None))[0].model.linear.phases == 24


def test_a_period_is_chosen_where_series_repeat_themselves(make_panel, make_linear):
    panel = make_panel(1, 24 * 30)
    rng = np.random.default_rng(0)
    value = np.tile(rng.normal(size=24), 30) + rng.normal(size=24 * 30)
    panel = replace(panel, values=value[:, None])
    config = make_linear(24, ridge_alpha=None, lookbacks=[96], context_length=96)
    assert resolve(panel, config)[0].model.linear.period == 24


def test_recent_years_are_chosen_after_a_change_of_regime(make_panel, make_linear):
    panel = make_panel(1, 24 * 365 * 3)
    rng = np.random.default_rng(0)
    value = np.zeros(panel.n_rows)
    for step in range(1, len(value)):
        sign = 0.9 if step > panel.n_rows // 2 else -0.9
        value[step] = sign * value[step - 1] + rng.normal()
    panel = replace(panel, values=value[:, None])
    assert resolve(panel, make_linear())[0].model.linear.spans == (8766, 17532, None)


def test_without_validation_quarters_of_the_training_choose(make_panel, make_linear):
    config = make_linear(fit={"validation": None}, ridge_alpha=None)
    model = resolve(make_panel(2, 60), config)[0].model
    assert model.linear.phases == 1 and len(model.linear.ridge_alpha) == 2


def test_lookbacks_and_context_follow_from_the_length_of_the_table(make_panel, make_config):
    def found(rows, series=1, horizon=8, **model):
        settled = {"experts": ["naive", "linear"], "context_length": None, "patch": None} | model
        model = resolve(make_panel(series, rows), make_config(horizon, model=settled))[0].model
        back = CUTOFFS * model.pool.cutoff_spacing  # the linear expert forecasts at earlier cutoffs too
        return model.linear.lookbacks, model.attention_length, model.context_length - back

    assert found(1200) == ((168,), 168, 168)
    assert found(90, series=5) == ((24,), 24, 24)
    assert found(3100) == ((168, 336), 168, 336)
    assert found(1200, context_length=12) == ((12,), 12, 12)


def test_a_list_of_alphas_has_one_for_each_horizon_patch(make_panel, make_linear):
    with pytest.raises(ConfigError, match="3 values of ridge_alpha for 2 horizon patches"):
        resolve(make_panel(1, 60), make_linear(ridge_alpha=[0.1, 0.2, 0.3]))
