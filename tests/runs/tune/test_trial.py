"""A trial: what it is fitted to, what it is scored on, and what it never sees."""

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import optuna
import pytest
import torch

from forecaster.config import Config
from forecaster.errors import DataError
from forecaster.evaluation.comparison import MODEL
from forecaster.fitting import fit as fit_module
from forecaster.fitting.context import TrainingContext
from forecaster.fitting.distributed import find_distributed_context
from forecaster.fitting.fit import fit_panel, resolve
from forecaster.panel.panel import Panel
from forecaster.runs.tune import trial as trial_module
from forecaster.runs.tune.space import Space, apply
from forecaster.runs.tune.study import SweepPlan
from forecaster.runs.tune.trial import (
    MOST_CUTOFFS,
    Evaluator,
    StopPruned,
    scored_cutoffs,
    used_settings,
)
from forecaster.runs.tune.worker import TrialRequest, TrialResult, finished_results, safely

HORIZON = 4
SPACE = {
    "fit.learning_rate": {"float": [0.001, 0.02], "log": True},
    "model.width": {"choice": [8, 12]},
}

Make = Callable[..., Panel]


def _plan(config: Config, **options: object) -> SweepPlan:
    return SweepPlan(
        "study", "nowhere", None, config, Space(SPACE), "f", **{"pruner": "none", **options}
    )


def _results(evaluator: Evaluator, count: int) -> list[TrialResult]:
    """Results of the preset and of some settings of the space."""
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    config, results = evaluator.plan.config, []
    for number in range(count):
        values = evaluator.plan.space.suggest(study.ask()) if number else {}
        request = TrialRequest(number, values, apply(config, values))
        results.append(safely(evaluator, request, _never))
    return results


def _never(step: int, loss: float) -> bool:
    return False


def _noisy(panel: Panel, first: int, seed: int = 9) -> Panel:
    """The panel with noise in place of all targets from a row of each series on."""
    values = panel.values.copy()
    rng = np.random.default_rng(seed)
    for begin, end in zip(panel.indptr[:-1] + first, panel.indptr[1:], strict=True):
        values[begin:end] = rng.normal(size=values[begin:end].shape) * 50
    return replace(panel, values=values)


@pytest.fixture
def weights(monkeypatch) -> list[dict[str, torch.Tensor]]:
    """The weights of each fit that follows, in their order."""
    found: list[dict[str, torch.Tensor]] = []

    def spied(*told: object) -> object:
        artifact = fit_panel(*told)
        found.append({k: v.clone() for k, v in artifact.ensemble.state_dict().items()})
        return artifact

    monkeypatch.setattr(trial_module, "fit_panel", spied)
    return found


@pytest.mark.long
def test_noise_after_the_span_changes_no_value_of_any_trial(make_panel: Make, make_config):
    panel, plan = make_panel(n_rows=120), _plan(make_config(HORIZON))
    until = int(panel.time[99])
    values = [
        [result.values for result in _results(Evaluator(plan, table.until(until)), 2)]
        for table in (panel, _noisy(panel, 100))
    ]
    assert values[0] == values[1] and None not in values[0]


@pytest.mark.long
def test_noise_in_the_scored_span_changes_no_weight_of_any_trial(
    make_panel: Make, make_config, weights
):
    panel, plan = make_panel(n_rows=120, gaps=0.05, known=1), _plan(make_config(HORIZON))
    first = scored_cutoffs(panel, plan.config)[0]
    row = int(panel.row_at(first)[0]) + 1
    assert 80 < row < 115
    scores = [_results(Evaluator(plan, t), 2)[0].values for t in (panel, _noisy(panel, row))]
    half = len(weights) // 2
    assert half > 0 and scores[0] != scores[1]
    for one, other in zip(weights[:half], weights[half:], strict=True):
        assert all(torch.equal(one[name], other[name]) for name in one)


def test_the_fit_of_a_trial_is_the_ordinary_fit_of_the_rows_before_the_first_cutoff(
    make_panel: Make, make_config, weights
):
    panel, plan = make_panel(n_rows=120), _plan(make_config(HORIZON))
    evaluator = Evaluator(plan, panel)
    _results(evaluator, 1)
    seen = panel.until(evaluator.cutoffs[0])
    artifact = fit_panel(seen, *resolve(seen, plan.config))
    assert artifact.trained_until == evaluator.cutoffs[0]
    ours = artifact.ensemble.state_dict()
    assert all(torch.equal(weights[0][name], ours[name]) for name in ours)


def test_cutoffs_lie_at_the_end_of_the_table_without_overlap(make_panel: Make, make_config):
    panel = make_panel(n_series=2, n_rows=400)
    for share, horizon in ((0.15, 4), (0.5, 2), (0.15, 100), (None, 4)):
        config = make_config(horizon, fit={"validation": share})
        cutoffs = scored_cutoffs(panel, config)
        rows = [int(panel.row_at(cutoff)[0]) for cutoff in cutoffs]
        assert rows[-1] == 399 - horizon
        assert 1 <= len(rows) <= MOST_CUTOFFS
        assert all(later - earlier >= horizon for earlier, later in pairwise(rows))
        assert rows[0] >= 399 - max(horizon, round((share or 0.15) * 400))


def test_a_table_too_short_for_a_span_is_refused(make_panel: Make, make_config):
    plan = _plan(make_config(40))
    with pytest.raises(DataError, match=r"horizon 40 reach back|longer than the history allows"):
        Evaluator(plan, make_panel(n_rows=60)).check()


def test_settings_that_contradict_the_table_are_pruned_with_their_reason(make_panel: Make, make_config):
    evaluator = Evaluator(_plan(make_config(HORIZON)), make_panel(n_rows=120))
    config = apply(evaluator.plan.config, {"model.patch": 64})
    result = evaluator(TrialRequest(1, {}, config), _never)
    assert result.state == "PRUNED"
    assert "model.patch 64 is longer than model.context_length 12" in result.attributes["refused"]


def test_several_metrics_are_values_of_their_own(make_panel: Make, make_config):
    metrics = ("WQL", "MASE", "MSE", "MAE", "RMSE", "sMAPE")
    (result,) = _results(
        Evaluator(_plan(make_config(HORIZON), metrics=metrics), make_panel(n_rows=120)), 1
    )
    scores = result.attributes["scores"][MODEL]
    found = dict(zip(metrics, result.values, strict=True))
    assert found.pop("MSE") == pytest.approx(scores["RMSE"] ** 2)
    assert found == {name: scores[name] for name in found}


@pytest.mark.long
def test_without_network_weight_trials_still_differ_and_equal_settings_are_fitted_once(
    make_panel: Make, make_config, weights, monkeypatch
):
    def nothing(networks, *told):
        for network in networks:
            network.network_weight.zero_()

    monkeypatch.setattr(fit_module, "choose_network_weights", nothing)
    config = make_config(HORIZON, model={"experts": ("naive", "ets")}, fit={"calibration": None})
    panel = make_panel(n_rows=120)
    one, other = _results(Evaluator(_plan(config), panel), 2)
    assert one.attributes["fitted"] == other.attributes["fitted"]
    assert one.values != other.values != other.attributes["fitted"]
    study = optuna.create_study()
    study.add_trial(optuna.trial.create_trial(values=list(one.values), user_attrs=one.attributes))
    config = apply(config, {"fit.batch_size": resolve(panel, config)[0].fit.batch_size})
    request = TrialRequest(1, {}, config, finished=finished_results(study.trials))
    result = Evaluator(_plan(config), panel)(request, _never)
    assert (result.values, result.attributes["same_as"], len(weights)) == (one.values, 0, 2)


def test_one_expert_uses_no_setting_of_a_training(make_panel: Make, make_config):
    panel, config = make_panel(n_rows=120), make_config(HORIZON, model={"experts": ("ets",)})
    plans = [resolve(panel, one)[0] for one in (config, apply(config, {"fit.learning_rate": 0.01}))]
    assert len({used_settings(plan) for plan in plans}) == 1
    pool = plans[0].model.pool.model_copy(update={"experts": ("ets", "naive")})
    other = plans[0].with_model(pool=pool)
    assert used_settings(other) != used_settings(plans[0])


def test_a_metric_that_is_not_defined_fails_the_trial_by_name(make_panel: Make, make_config):
    panel = make_panel(n_rows=120)
    flat = replace(panel, values=np.full_like(panel.values, 5.0))
    (result,) = _results(Evaluator(_plan(make_config(HORIZON), metrics=("MASE",)), flat), 1)
    assert result.state == "FAIL"
    assert result.attributes["error"].startswith("MASE is not defined on the ")


def test_an_unexpected_error_fails_the_trial_in_one_line():
    def evaluate(request, report):
        raise ValueError("no\nwith details")

    result = safely(evaluate, SimpleNamespace(), _never)
    assert (result.state, result.reason) == ("FAIL", "ValueError: no")


@pytest.mark.parametrize(("prunable", "state"), [(True, "PRUNED"), (False, "COMPLETE")])
def test_a_trial_that_is_behind_ends_at_the_validation_that_showed_it(
    make_panel: Make, make_config, prunable, state
):
    config = make_config(HORIZON, fit={"steps": 9})
    evaluator, steps = Evaluator(_plan(config), make_panel(n_rows=120)), []
    result = evaluator(
        TrialRequest(0, {}, config, prunable), lambda step, loss: steps.append(step) or step >= 3
    )
    assert result.state == state
    assert steps == list(range(1, 4 if prunable else 10))
    assert result.attributes["steps"] == steps[-1]


def test_a_trial_that_has_ended_is_not_pruned(make_panel: Make, make_config):
    config = make_config(HORIZON, fit={"steps": 3})
    evaluator = Evaluator(_plan(config), make_panel(n_rows=120))
    assert evaluator(TrialRequest(0, {}, config, True), lambda step, _: step >= 3).state == "COMPLETE"


def test_of_an_ensemble_only_the_first_member_is_reported(make_panel: Make, make_config):
    panel, reports = make_panel(n_rows=120), []
    fit = {"ensemble_size": 2, "refit": True, "steps": 2}
    config, split = resolve(panel, make_config(HORIZON, fit=fit))
    watch = StopPruned(lambda *report: reports.append(report), False)
    artifact = fit_panel(panel, config, split, TrainingContext(callbacks=(watch,)))
    assert reports == [tuple(point) for point in artifact.metrics["curves"]["validation_loss"]]


@pytest.mark.slow
def test_all_ranks_stop_where_rank_0_prunes(make_panel: Make, make_config):
    panel, reports = make_panel(n_rows=120), []
    fit = {"steps": 9, "batch_size": 8}
    config, split = resolve(panel, make_config(HORIZON, fit=fit))
    watch = StopPruned(lambda *report: reports.append(report) or report[0] >= 3, True)
    around = TrainingContext(callbacks=(watch,), distributed=find_distributed_context(2, None))
    assert fit_panel(panel, config, split, around).metrics["steps"] == watch.step == 3
    assert [step for step, _ in reports] == [1, 2, 3]
