"""What training does to its windows: what was asked for, under the seed, and never at inference."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from forecaster.model.augment import augmented, hidden_steps
from small_networks import CONTEXT, EVERYTHING, HORIZON, PLAIN, make_inputs, make_network

from forecaster.config import Config, FitConfig
from forecaster.errors import ConfigError, DataError
from forecaster.forecast.predictor import Predictor
from forecaster.model.learner import Learner
from forecaster.model.loss import _previous
from forecaster.runs.fit import fit_panel, prepare
from forecaster.windows.batch import Batch


def fitted(panel, config):
    config, split = prepare(panel, config)
    return fit_panel(panel, config, split)


def weights_of(artifact):
    return artifact.ensemble.members[0].state_dict()


def make_batch(seed=1):
    inputs = make_inputs(EVERYTHING, missing=0.3)
    target = 20 + 3 * torch.randn((3, HORIZON, 2), generator=torch.Generator().manual_seed(seed))
    target[0, :3] = torch.nan
    return Batch(inputs, target, torch.arange(3), torch.arange(3))


def learner_of(network, **fit):
    return Learner(network, FitConfig(**fit), ["a", "b", "c"])


_ALONE = SimpleNamespace(reduce=lambda sums, reduce_op: sums)


def alone(learner, monkeypatch, step=0):
    """Lets a learner work without a trainer."""
    monkeypatch.setattr(type(learner), "global_step", step)
    monkeypatch.setattr(type(learner), "trainer", SimpleNamespace(world_size=1, strategy=_ALONE))
    return learner


@pytest.mark.parametrize("patch", [1, 3, 4, 16])
@pytest.mark.parametrize("share", [0.01, 0.3, 0.9])
def test_one_run_of_whole_patches_is_hidden_in_each_window(patch, share):
    torch.manual_seed(0)
    observed = torch.ones(300, CONTEXT, 2, dtype=torch.bool)
    hidden = hidden_steps(observed, share, patch)
    patches = -(-CONTEXT // patch)
    run = max(1, round(share * patches))
    whole = torch.cat([hidden[:, :1].expand(-1, patches * patch - CONTEXT), hidden], dim=1)
    tokens = whole.unflatten(1, (patches, patch))
    assert torch.equal(tokens.any(-1), tokens.all(-1))
    if run < patches:
        assert (tokens.any(-1).sum(1) == run).all()
        ends = tokens.any(-1).int().diff(dim=1, prepend=torch.zeros(300, 1), append=torch.zeros(300, 1))
        assert (ends.abs().sum(1) == 2).all()  # one run begins, one ends
        assert tokens.any(-1).any(0).all()  # somewhere: each patch is hidden in some window
    else:
        assert not hidden.any()  # nothing would be left


def test_a_window_with_nothing_left_is_spared():
    observed = torch.zeros(200, CONTEXT, 1, dtype=torch.bool)
    observed[:, 7] = True
    hidden = hidden_steps(observed, 0.5, 1)
    assert (observed & ~hidden[..., None]).any(1).all() and hidden.any() and not hidden.all()


def test_hidden_cells_are_missing_targets_and_past_covariates_and_nothing_else():
    torch.manual_seed(0)
    inputs = make_inputs(EVERYTHING, missing=0.0)
    shown = augmented(inputs, FitConfig(patch_masking=0.4), make_network(EVERYTHING).scaler, 4)
    gone = ~shown.observed[..., 0]
    assert gone.any() and shown.context[gone].isnan().all() and shown.past[gone].isnan().all()
    assert not shown.past_observed[gone].any() and (shown.past_category[gone] == 0).all()
    for name in ("context", "past", "past_category"):
        assert torch.equal(getattr(shown, name)[~gone], getattr(inputs, name)[~gone])
    for name in ("known", "known_observed", "known_category", "phase", "elapsed", "static", "channel"):
        assert torch.equal(getattr(shown, name), getattr(inputs, name))


def test_noise_has_the_asked_share_of_each_windows_own_spread():
    torch.manual_seed(0)
    inputs = make_inputs(PLAIN, batch=2000, missing=0.2)
    inputs = replace(inputs, context=inputs.context * torch.tensor([1.0, 1000.0]))
    scaler = make_network(PLAIN).scaler
    shown = augmented(inputs, FitConfig(noise=0.25), scaler, 4)
    scale = scaler(inputs.context, inputs.observed, inputs.channel).scale[:, None]
    noise = ((shown.context - inputs.context) / scale)[inputs.observed]
    assert noise.std().item() == pytest.approx(0.25, rel=0.02) and abs(noise.mean().item()) < 0.005
    assert torch.equal(shown.observed, inputs.observed) and torch.equal(shown.known, inputs.known)


def test_by_default_a_window_is_shown_as_it_is_and_no_random_number_is_drawn():
    inputs, scaler = make_inputs(EVERYTHING), make_network(EVERYTHING).scaler
    before = torch.get_rng_state()
    assert augmented(inputs, FitConfig(), scaler, 4) is inputs
    assert torch.equal(torch.get_rng_state(), before)


def test_leads_count_in_the_loss_by_the_power_of_the_decay(monkeypatch):
    network, batch = make_network(EVERYTHING), make_batch()
    memory = network.encode(batch.inputs)
    losses = network.head.loss(network.decode(memory, batch.inputs), memory.scale, batch.target)
    weights = torch.tensor([0.5**h for h in range(HORIZON)])[:, None].expand(3, -1, 2)
    weights = weights * ~batch.target.isnan()
    expected = (losses * weights).sum() / weights.sum()
    learner = alone(learner_of(network, lead_decay=0.5), monkeypatch)
    torch.testing.assert_close(learner.training_step(batch, 0), expected)
    plain = alone(learner_of(network), monkeypatch).training_step(batch, 0)
    torch.testing.assert_close(plain, losses.sum() / (~batch.target.isnan()).sum())


def test_missing_targets_count_in_no_loss_whatever_they_hold(monkeypatch):
    for decoder in ("direct", "autoregressive"):
        network, batch = make_network(EVERYTHING, decoder=decoder), make_batch()
        alone(learner := learner_of(network), monkeypatch)
        part = Batch(batch.inputs, batch.target.clone(), batch.series, batch.cutoff)
        part.target[1:] = torch.nan
        memory = network.encode(batch.inputs)
        previous = None if decoder == "direct" else previous_values(batch.inputs, part.target, 3)
        raw = network.decode(memory, batch.inputs, previous)
        only = network.head.loss(raw, memory.scale, part.target)[0]
        expected = only.sum() / (~part.target[0].isnan()).sum()
        torch.testing.assert_close(learner.training_step(part, 0), expected)


def test_scheduled_sampling_draws_none_at_the_start_and_its_share_at_the_end(monkeypatch):
    """Draws are seen by what the head is asked for: all of the truth, or none of it."""
    network, batch = make_network(PLAIN, decoder="autoregressive"), make_batch()
    inputs = make_inputs(PLAIN, batch=3)
    target = 20 + 3 * torch.randn(3, HORIZON, 2)
    batch = Batch(inputs, target, torch.arange(3), torch.arange(3))
    memory, truth = network.encode(inputs), previous_values(inputs, target, 3)
    shares = {}
    for share in (0.0, 0.5, 1.0):
        torch.manual_seed(0)
        told = torch.stack([_previous(network, memory, batch, share) for _ in range(200)])
        other = (told != truth) & ~(told.isnan() & truth.isnan())
        patches = other[:, :, 3:].unflatten(2, (-1, 3))
        assert torch.equal(patches.any(3), patches.all(3))  # a patch is drawn whole or not at all
        assert not other[:, :, :3].any()  # the context is the context
        shares[share] = patches.float().mean().item()
    assert shares[0.0] == 0 and shares[1.0] == 1 and shares[0.5] == pytest.approx(0.5, abs=0.05)
    learner = learner_of(network, scheduled_sampling=0.4, steps=200)
    found = [alone(learner, monkeypatch, step)._share_drawn() for step in (0, 50, 200)]
    assert found == pytest.approx([0.0, 0.1, 0.4])


TRICKS = {
    "noise": {"noise": 0.3},
    "patch masking": {"patch_masking": 0.4},
    "lead decay": {"lead_decay": 0.8},
    "scheduled sampling": {"scheduled_sampling": 1.0},
}


@pytest.mark.parametrize("trick", TRICKS.values(), ids=TRICKS)
def test_a_trick_is_the_same_under_a_seed_and_changes_training_alone(trick, make_panel, make_config):
    panel = make_panel(2, 60)
    model = {"decoder": "autoregressive", "paths": 4} if "scheduled_sampling" in trick else {}
    plain = fitted(panel, make_config(4, model=model))
    first, second = (fitted(panel, make_config(4, model=model, fit=trick)) for _ in range(2))
    found, again, without = (weights_of(artifact) for artifact in (first, second, plain))
    assert all(torch.equal(found[name], again[name]) for name in found)
    assert any(not torch.equal(found[name], without[name]) for name in found)
    forecasts = [Predictor(first).predict(panel).quantiles for _ in range(2)]
    assert np.array_equal(*forecasts)


def test_scheduled_sampling_without_previous_values_is_refused():
    expected = "fit.scheduled_sampling 0.5 replaces previous values, and decoder direct reads none"
    with pytest.raises(ConfigError, match=expected):
        Config().replaced(fit={"scheduled_sampling": 0.5})


def test_targets_that_are_no_counts_are_refused_with_how_many_and_the_first(make_panel, make_config):
    panel = make_panel(2, 40)
    panel.values[:] = np.round(panel.values)
    panel.values[3, 0], panel.values[50, 0], panel.values[60, 0] = np.nan, 0.5, -1.0
    config = make_config(4, model={"head": "negative_binomial"})
    expected = (
        r"head negative_binomial forecasts counts, but 2 of 79 values are negative or not whole "
        r"\(first: 'y0' is 0.5 in series s1 at 2024-02-28 08:00\); set model.head to quantile"
    )
    with pytest.raises(DataError, match=expected):
        prepare(panel, config)
    panel.values[[50, 60], 0] = 2.0
    assert fitted(panel, config).metrics["steps"] == 6
