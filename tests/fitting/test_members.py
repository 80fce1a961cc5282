"""Ensembles: members trained one after the other, weights by validation, a second pass."""

from copy import deepcopy
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import pytorch_lightning as pl
import torch

import forecaster as fc
from forecaster.config import Config, FitPlan
from forecaster.errors import ConfigError
from forecaster.fitting import mixture, mixture_learner  # the second binds names of the first
from forecaster.fitting.context import TrainingContext
from forecaster.fitting.distributed import SINGLE_PROCESS
from forecaster.fitting.fit import fit_panel, resolve
from forecaster.fitting.mixture import best_weights, choose_ensemble_weights, choose_network_weights
from forecaster.forecast.predictor import Predictor
from forecaster.forecast.saved_model import load_artifact, save_artifact
from forecaster.model.ensemble import Ensemble
from forecaster.model.heads import pinball
from forecaster.windows.index import WindowIndex
from forecaster.windows.store import training_store
from forecaster.windows.streams import WindowSequence

LINEAR = {"experts": ["naive", "linear"], "lookbacks": (4, 12)}


def fitted(panel, config, *callbacks):
    config, split = resolve(panel, config)
    return fit_panel(panel, config, split, TrainingContext(callbacks=callbacks))


def same(one, other):
    first, second = one.state_dict(), other.state_dict()
    return first.keys() == second.keys() and all(torch.equal(first[k], second[k]) for k in first)


def network_of(member):
    """A member without its experts: those are solved again on all rows where no network of a fit counts."""
    return torch.nn.ModuleDict({k: m for k, m in member.named_children() if k != "experts"})


def own_quantiles(artifact, member, panel):
    """Of one member alone."""
    alone = Ensemble([member], [1.0]).eval()
    return Predictor(replace(artifact, ensemble=alone)).quantiles(*at_the_end(panel))


def at_the_end(panel):
    return panel, np.arange(panel.n_series), panel.last_observed - 4


@pytest.mark.slow
def test_member_k_is_the_network_that_a_fit_of_its_own_with_seed_plus_k_trains(make_panel, make_config):
    panel = make_panel(2, 60, known=1)
    settings = {"model": {"dropout": 0.2} | LINEAR}
    several = fitted(panel, make_config(4, fit={"ensemble_size": 2, "seed": 5}, **settings))
    for number, member in enumerate(several.ensemble.members):
        alone = fitted(panel, make_config(4, fit={"seed": 5 + number}, **settings))
        assert same(network_of(member), network_of(alone.ensemble.members[0]))
        told = several.metrics["members"][number] | {"weight": 1.0}
        assert told == alone.metrics["members"][0]


@pytest.mark.long
def test_an_ensemble_forecasts_the_weighted_mean_of_its_members_from_one_folder(tmp_path, two):
    artifact, panel, _, _ = two
    save_artifact(artifact, tmp_path / "model")
    loaded = load_artifact(tmp_path / "model")
    assert same(loaded.ensemble, artifact.ensemble)
    assert loaded.ensemble.weights == artifact.ensemble.weights
    expected = sum(
        weight * own_quantiles(artifact, member, panel)
        for weight, member in zip(artifact.ensemble.weights, artifact.ensemble.members, strict=True)
    )
    found = Predictor(loaded).quantiles(*at_the_end(panel))
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    assert (np.diff(found) >= 0).all()


class _Watch(pl.Callback):
    """What is trained: name, steps, and the times its windows reach to; ends it where told."""

    def __init__(self, ends_at=None):
        self.seen, self._ends_at = [], ends_at

    def on_train_start(self, trainer, learner):
        self.seen.append((learner.name, trainer.max_steps, trainer.datamodule.split))

    def on_validation_end(self, trainer, learner):
        if trainer.global_step == self._ends_at:
            trainer.should_stop = True


def test_a_watcher_that_ends_the_first_training_ends_the_fit(make_panel, make_config):
    watch = _Watch(ends_at=2)
    config = make_config(4, fit={"ensemble_size": 3, "refit": True})
    artifact = fitted(make_panel(2, 60), config, watch)
    assert [name for name, *_ in watch.seen] == [""]
    assert (len(artifact.ensemble.members), artifact.metrics["steps"]) == (1, 2)


def test_evidence_ends_one_training_and_the_next_begins(make_panel, make_config, monkeypatch):
    monkeypatch.setattr(FitPlan, "validate_every", 2)
    watch = _Watch()
    fit = {"ensemble_size": 2, "learning_rate": 0.5, "steps": None, "refit": True}
    artifact = fitted(make_panel(2, 60), make_config(4, fit=fit), watch)
    assert [name for name, *_ in watch.seen] == ["", "member-01", "refit-00", "refit-01"]
    members = artifact.metrics["members"]
    assert max(member["steps"] for member in members) < 100 < artifact.plan.fit.steps
    # A refit takes the steps that lead to the kept weights.
    taken = [steps for _, steps, _ in watch.seen[2:]]
    assert all(0 < few <= member["best_step"] for few, member in zip(taken, members, strict=True))


@pytest.mark.long
def test_what_training_validates_is_the_mixture_at_the_weight_that_is_then_chosen(
    make_panel, make_config, monkeypatch
):
    seen, real = [], mixture_learner.chosen_numbers
    monkeypatch.setattr(mixture, "chosen_numbers", lambda losses: seen.append(losses) or real(losses))
    panel = make_panel(2, 80, targets=2, missing=0.1)
    fit = {"steps": 40, "learning_rate": 0.01, "batch_size": 16}
    artifact = fitted(panel, make_config(4, fit=fit, model=LINEAR))
    (losses,), curves = seen, artifact.metrics["curves"]
    of_mixture = [loss for _, loss in curves["validation_loss"]]
    best, (network,) = of_mixture.index(min(of_mixture)), artifact.ensemble.members
    weights = network.network_weight[1:]
    assert curves["network_weight"][best][1] == float(weights.mean())
    number = [mixture.NETWORK_WEIGHTS.index(weight) for weight in weights.tolist()]
    chosen = sum(losses[n, :, channel].sum() for channel, n in enumerate(number))
    # Both are per observed target.
    cells = losses[-1].sum() / curves["network_loss"][best][1]
    assert of_mixture[best] == pytest.approx(float(chosen / cells), rel=1e-5)
    _, split = resolve(panel, make_config(4, fit=fit, model=LINEAR))
    store = training_store(panel, artifact.plan)
    batches = WindowSequence(store, split.validation, split.validation_windows, 64)
    observed = sum(int((~batch.target.isnan()).sum()) for batch in batches)
    assert float(cells) == pytest.approx(observed, rel=1e-5)


@pytest.mark.long
def test_a_refit_trains_each_member_on_all_rows_for_its_best_number_of_steps(make_panel, make_config):
    panel, watch = make_panel(2, 60), _Watch()
    settings = {"model": {"dropout": 0.1}}
    fit = {"ensemble_size": 2, "learning_rate": 0.05, "steps": 8}
    once = fitted(panel, make_config(4, fit=fit, **settings))
    again = fitted(panel, make_config(4, fit=fit | {"refit": True}, **settings), watch)
    best = [member["best_step"] for member in once.metrics["members"]]
    assert [(name, steps) for name, steps, _ in watch.seen] == [
        ("", 8),
        ("member-01", 8),
        ("refit-00", best[0]),
        ("refit-01", best[1]),
    ]
    whole = watch.seen[-1][2]
    assert (
        len(whole.validation_windows) == 0 and whole.split == once.trained_until == again.trained_until
    )
    found = again.metrics
    assert found["curves"].keys() == {"validation_loss", "member-01/validation_loss"}
    assert found["steps"] == found["members"][0]["steps"] == 8
    assert sum(member["weight"] for member in found["members"]) == pytest.approx(1)
    assert again.ensemble.weights == once.ensemble.weights  # validation has chosen before
    assert again.metrics["validation"] == once.metrics["validation"]
    assert not same(again.ensemble, once.ensemble)
    if once.ensemble.conformal_factors is not None:
        assert torch.equal(again.ensemble.conformal_factors, once.ensemble.conformal_factors)


@pytest.mark.parametrize("refit", [True, pytest.param(None, marks=pytest.mark.slow)])
def test_a_refit_of_a_member_of_network_weight_0_trains_nothing(
    make_panel, make_config, monkeypatch, refit
):
    monkeypatch.setattr(mixture, "NETWORK_WEIGHTS", (0.0,))
    panel, watch = make_panel(2, 60), _Watch()
    config = make_config(4, fit={"refit": refit, "steps": 2}, model=LINEAR)
    artifact = fitted(panel, config, watch)
    assert [name for name, *_ in watch.seen] == [""]
    (member,) = artifact.ensemble.members
    assert member.network_weights() == (0, 0)
    before = fitted(panel, config.replaced(fit={"refit": False})).ensemble.members[0]
    assert not torch.equal(member.experts.linear.maps[0], before.experts.linear.maps[0])  # solved again
    later, (_, split) = panel.values.copy(), resolve(panel, config)
    for begin, end in zip(split.train_end, panel.indptr[1:], strict=True):
        later[begin + 1 : end] += 1.0
    after = fitted(
        replace(panel, values=later), config.replaced(fit={"refit": False})
    ).ensemble.members[0]
    assert torch.equal(after.experts.linear.maps[0], before.experts.linear.maps[0])


@pytest.fixture(scope="module")
def fitted_two(make_panel, make_config):
    """A panel of noise, a window store, a split, and two networks that were trained on it."""
    panel = make_panel(2, 80)
    config = make_config(4, fit={"ensemble_size": 2, "calibration": None}, model=LINEAR)
    artifact = fitted(panel, config)
    _, split = resolve(panel, config)
    store = training_store(panel, artifact.plan)
    return artifact, panel, store, split


@pytest.fixture
def two(fitted_two):
    """The same, with networks that a test may change."""
    artifact, *rest = fitted_two
    return deepcopy(artifact), *rest


def slow_losses(artifact, network, panel, split):
    """Pinball loss in scaled units, cell by cell, summed over the cutoffs of each stretch."""
    series, _, cutoffs = split.validation.locate(split.validation_windows)
    alone = replace(artifact, ensemble=Ensemble([network], [1.0]).eval())
    quantiles = Predictor(alone).quantiles(panel, series, cutoffs)
    length, horizon, losses = artifact.context_length, artifact.horizon, {}
    for window, cutoff in enumerate(cutoffs):
        own = [at for at, s in zip(cutoffs, series, strict=True) if s == series[window]]
        span = max(own) - min(own) + 1
        stretch = series[window], (cutoff - min(own)) * (span // horizon) // span
        first = max(panel.indptr[series[window]], cutoff - length + 1)
        spread = panel.values[first : cutoff + 1, 0].std()
        for lead in range(horizon):
            truth = panel.values[cutoff + 1 + lead, 0]
            for level, value in zip(
                artifact.plan.model.quantile_levels, quantiles[window, lead, 0], strict=True
            ):
                error = (truth - value) / spread
                loss = 2 * max(level * error, (level - 1) * error) / 9
                losses[stretch] = losses.get(stretch, 0) + loss
    return np.array(list(losses.values()))


@pytest.mark.parametrize("spread", [0.02, 0.2])
def test_the_network_weight_is_that_of_least_loss_with_half_a_standard_error_of_the_change(two, spread):
    artifact, panel, store, split = two
    network = artifact.ensemble.members[0]
    torch.nn.init.normal_(network.output.weight, std=spread, generator=torch.manual_seed(3))
    losses = {}
    for share in mixture.NETWORK_WEIGHTS:
        network.network_weight.fill_(share)
        losses[share] = slow_losses(artifact, network, panel, split)
    choose_network_weights([network], store, split, SINGLE_PROCESS)
    alone = losses[0]
    assert len(alone) > 3
    cost = {
        share: loss.sum() + 0.5 * np.std(loss - alone, ddof=1) * len(loss) ** 0.5
        for share, loss in losses.items()
    }
    near = [share for share, found in cost.items() if found <= 1.002 * min(cost.values())]
    assert network.network_weights() == (near[0], near[0])


def test_attention_is_taken_where_it_is_better_in_every_stretch_and_not_by_chance():
    straight, better = torch.tensor([5.0, 4.0, 6.0, 5.0]), torch.tensor([4.5, 3.6, 5.5, 4.4])
    assert mixture.least_loss(torch.stack([straight, better])) == 1
    lucky = torch.tensor([5.3, 4.4, 6.2, 3.6])  # less in all, by one stretch
    assert mixture.least_loss(torch.stack([straight, lucky])) == 0
    assert mixture.least_loss(torch.tensor([[5.0], [1.0]])) == 0  # one stretch says nothing
    assert mixture.least_loss(torch.tensor([[5.0, 5.0], [4.995, 4.995]])) == 0  # next to nothing


def test_stretches_are_of_one_series_and_no_shorter_than_a_horizon():
    index = WindowIndex(np.array([10, 100]), np.array([9, 3]), 1, 1)
    found = mixture.stretches(index, np.arange(12), 4)
    assert found.tolist() == [0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2]
    assert mixture.stretches(index, np.array([2, 8, 11]), 4).tolist() == [0, 0, 1]


def test_without_validation_a_network_weight_is_0_and_weights_of_members_are_equal(two):
    artifact, _, store, split = two
    unwatched = replace(split, validation_windows=split.validation_windows[:0])
    networks = list(artifact.ensemble.members)
    choose_network_weights(networks, store, unwatched, SINGLE_PROCESS)
    assert [network.network_weights() for network in networks] == [(0.0, 0.0)] * 2
    assert choose_ensemble_weights(networks, store, unwatched, SINGLE_PROCESS) == [0.5, 0.5]


@pytest.mark.parametrize("fit", [{}, {"validation": None}])
def test_what_nothing_validates_is_not_trained_and_the_experts_forecast(fit, capsys, monkeypatch):
    monkeypatch.setattr("forecaster.fitting.train.train", None)
    months = pd.date_range("2023-01-01", periods=18 if not fit else 60, freq="MS")
    draw = np.random.default_rng(0)
    table = pd.DataFrame({"month": months, "y": 100 + draw.normal(size=len(months))})
    config = {"fit": {**fit, "ensemble_size": 2}}
    model = fc.fit(table, 12, config=config, tracking=False)
    printed = capsys.readouterr().out
    assert "network weight 0 %: nothing to validate it" in printed and "without a network" in printed
    assert ("no validation window fits" in printed) == (not fit)
    assert model.metrics["steps"] == 0 and model.metrics["network_weight"] == 0
    assert len(model.artifact.ensemble.members) == 1 and model.artifact.plan.model.width == 4
    assert np.isfinite(model.predict(table).median).all()


@pytest.mark.long
def test_a_network_beside_experts_needs_100_windows_or_steps_that_are_asked_for(capsys, monkeypatch):
    """36 days leave 18 windows; of the network only its size stays, for a fit that starts from it."""
    days = pd.date_range("2024-01-01", periods=36)
    draw = np.random.default_rng(0)
    table = pd.DataFrame({"day": days, "y": 100 + draw.normal(size=len(days))})
    asked = fc.fit(table, 6, config={"fit": {"steps": 2}, "model": {"width": 8}}, tracking=False)
    assert asked.metrics["steps"] == 2 and "to train it on" not in capsys.readouterr().out
    monkeypatch.setattr("forecaster.fitting.train.train", None)
    model = fc.fit(table, 6, config={"model": {"width": 8}}, budget="1h", tracking=False)
    printed = capsys.readouterr().out
    assert "network weight 0 %: fewer than 100 windows" in printed and "without a network" in printed
    assert model.metrics["steps"] == 0 and model.metrics["network_weight"] == 0
    plan = model.artifact.plan
    assert plan.fit.steps == 0 and plan.model.width == 8
    assert plan.as_config(Config().tracking).fit.steps is None
    monkeypatch.undo()
    later = fc.fit(table, 6, warm_start=model, config={"fit": {"steps": 3}}, tracking=False)
    assert later.metrics["steps"] > 0


def test_a_network_alone_is_trained_where_nothing_validates_it(capsys):
    months = pd.date_range("2023-01-01", periods=18, freq="MS")
    table = pd.DataFrame({"month": months, "y": 100 + np.arange(18) % 5})
    config = {"fit": {"steps": 2}, "model": {"width": 8, "heads": 1}}
    model = fc.fit(table, 12, experts="none", config=config, tracking=False)
    assert "nothing validates the network, and nothing else forecasts" in capsys.readouterr().out
    assert model.metrics["steps"] == 2


def test_weights_prefer_the_better_member_and_lie_half_way_to_equal_ones(two):
    artifact, _, store, split = two
    good, bad = artifact.ensemble.members
    with torch.no_grad():
        bad.network_weight.fill_(1.0)
        bad.output.bias.add_(3.0)
    weights = choose_ensemble_weights([good, bad], store, split, SINGLE_PROCESS)
    assert sum(weights) == pytest.approx(1)
    assert 0.6 < weights[0] <= 0.75 and weights[1] >= 0.25


def test_the_best_weights_have_no_larger_loss_than_any_on_a_grid():
    generator = torch.manual_seed(0)
    levels = torch.tensor([0.1, 0.5, 0.9])
    target = torch.randn(400, generator=generator)
    quantiles = torch.stack(
        [target[:, None] * slope + shift + torch.tensor([-1.0, 0.0, 1.0]) for slope, shift in
         ((0.2, 0.0), (0.9, 0.8), (0.9, -0.5))]
    )  # fmt: skip

    def loss(weights):
        return float(pinball(torch.tensordot(weights, quantiles, dims=1), target, levels).mean())

    found = best_weights(quantiles, target, levels)
    assert float(found.sum()) == pytest.approx(1) and bool((found >= 0).all())
    steps = range(21)
    grid = [(a / 20, b / 20, 1 - a / 20 - b / 20) for a in steps for b in steps if a + b <= 20]
    assert loss(found) <= min(loss(torch.tensor(one)) for one in grid) * 1.001


def test_a_second_pass_without_validation_is_refused():
    with pytest.raises(ConfigError, match=r"refit true .* fit\.validation null chooses nothing"):
        Config().replaced(fit={"refit": True, "validation": None})
