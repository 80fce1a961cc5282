"""A trial: what it is fitted to, what it is scored on, and what it never sees."""

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import numpy as np
import optuna
import pytest
import torch

from forecaster.config import Config
from forecaster.errors import DataError, FitError
from forecaster.evaluation.comparison import MODEL
from forecaster.panel.panel import Panel
from forecaster.runs.fit import fit_panel, prepare
from forecaster.runs.tune import objective as objective_module
from forecaster.runs.tune.objective import MOST_CUTOFFS, Objective, scored_cutoffs
from forecaster.runs.tune.plan import SweepPlan, read_plan
from forecaster.runs.tune.space import Space

HORIZON = 4
SPACE = {
    "fit.learning_rate": {"float": [0.001, 0.02], "log": True},
    "model.width": {"choice": [8, 12]},
    "model.heads": {"choice": [2, 3]},  # 8 is no multiple of 3
}

Make = Callable[..., Panel]


def _plan(config: Config, space: dict = SPACE, **told: object) -> SweepPlan:
    settings = config.model_dump(mode="json")
    return SweepPlan("study", "nowhere", "", settings, space, "f", **{"pruner": "none", **told})


def _run(objective: Objective, count: int, preset: bool = True) -> optuna.Study:
    study = optuna.create_study(
        directions=["minimize"] * len(objective.plan.metrics),
        sampler=optuna.samplers.RandomSampler(seed=0),
    )
    if preset:
        fixed = objective.space.preset(objective.plan.settings)
        study.enqueue_trial(fixed, user_attrs={"preset": True})
    study.optimize(objective, n_trials=count, catch=(FitError,))
    return study


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

    monkeypatch.setattr(objective_module, "fit_panel", spied)
    return found


def test_noise_after_the_span_changes_no_value_of_any_trial(make_panel: Make, make_config):
    panel, plan = make_panel(n_rows=120), _plan(make_config(HORIZON))
    until = int(panel.time[99])
    values = [
        [t.value for t in _run(Objective(plan, table.until(until)), 4).trials]
        for table in (panel, _noisy(panel, 100))
    ]
    assert values[0] == values[1] and None not in values[0][:1]


def test_noise_in_the_scored_span_changes_no_weight_of_any_trial(
    make_panel: Make, make_config, weights
):
    panel, plan = make_panel(n_rows=120, gaps=0.05, known=1), _plan(make_config(HORIZON))
    first = scored_cutoffs(panel, plan.settings)[0]
    row = int(panel.row_at(first)[0]) + 1
    assert 80 < row < 115
    scores = [_run(Objective(plan, t), 3).trials[0].value for t in (panel, _noisy(panel, row))]
    half = len(weights) // 2
    assert half > 0 and scores[0] != scores[1]
    for one, other in zip(weights[:half], weights[half:], strict=True):
        assert all(torch.equal(one[name], other[name]) for name in one)


def test_the_fit_of_a_trial_is_the_ordinary_fit_of_the_rows_before_the_first_cutoff(
    make_panel: Make, make_config, weights
):
    panel, plan = make_panel(n_rows=120), _plan(make_config(HORIZON))
    objective = Objective(plan, panel)
    _run(objective, 1)
    seen = panel.until(objective.cutoffs[0])
    artifact = fit_panel(seen, *prepare(seen, plan.settings))
    assert artifact.trained_until == objective.cutoffs[0]
    mine = artifact.ensemble.state_dict()
    assert all(torch.equal(weights[0][name], mine[name]) for name in mine)


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
        Objective(plan, make_panel(n_rows=60)).check()


def test_settings_that_contradict_each_other_are_pruned_with_their_reason(
    make_panel: Make, make_config
):
    objective = Objective(_plan(make_config(HORIZON)), make_panel(n_rows=120))
    study = optuna.create_study()
    study.enqueue_trial({"model.width": 8, "model.heads": 3})
    study.optimize(objective, n_trials=1)
    (trial,) = study.trials
    assert trial.state.name == "PRUNED"
    assert trial.user_attrs["refused"].endswith("width 8 is not a multiple of heads 3")


def test_settings_that_contradict_the_table_are_pruned_with_their_reason(make_panel: Make, make_config):
    space = {"model.patch": {"choice": [64]}}
    objective = Objective(_plan(make_config(HORIZON), space), make_panel(n_rows=120))
    (trial,) = _run(objective, 1, preset=False).trials
    assert trial.state.name == "PRUNED"
    assert "model.patch 64 is longer than model.context_length 12" in trial.user_attrs["refused"]


def test_the_preset_is_tried_as_it_is_even_outside_the_space(make_panel: Make, make_config, weights):
    panel = make_panel(n_rows=120)
    config = make_config(HORIZON, fit={"learning_rate": 0.5})
    objective = Objective(_plan(config), panel)
    (trial,) = _run(objective, 1).trials
    assert trial.params == {"model.width": 8, "model.heads": 2}
    seen = panel.until(objective.cutoffs[0])
    mine = fit_panel(seen, *prepare(seen, config)).ensemble.state_dict()
    assert all(torch.equal(weights[0][name], mine[name]) for name in mine)


def test_several_metrics_are_values_of_their_own(make_panel: Make, make_config):
    metrics = ("WQL", "MASE", "MSE", "MAE", "RMSE", "sMAPE")
    objective = Objective(_plan(make_config(HORIZON), metrics=metrics), make_panel(n_rows=120))
    (trial,) = _run(objective, 1).trials
    scores = trial.user_attrs["scores"][MODEL]
    found = dict(zip(metrics, trial.values, strict=True))
    assert found.pop("MSE") == pytest.approx(scores["RMSE"] ** 2)
    assert found == {name: scores[name] for name in found}


def test_a_metric_that_is_not_defined_fails_the_trial_by_name(make_panel: Make, make_config):
    panel = make_panel(n_rows=120)
    flat = replace(panel, values=np.full_like(panel.values, 5.0))
    space = {"fit.noise": {"choice": [None]}}
    objective = Objective(_plan(make_config(HORIZON), space, metrics=("MASE",)), flat)
    with pytest.raises(FitError, match=r"MASE is not defined on the .* cells of the validation span"):
        objective(optuna.create_study().ask())


def test_a_plan_is_read_as_it_was_written(tmp_path, make_config):
    plan = _plan(make_config(HORIZON), metrics=("WQL", "MAE"), timeout_seconds=5.0, until="2024-03-01")
    plan.write(tmp_path / "plan.json")
    again = read_plan(tmp_path / "plan.json")
    assert again == plan and again.identity == plan.identity
    assert again.settings == plan.settings


def test_identity_is_what_is_searched_and_not_how(make_config):
    plan = _plan(make_config(HORIZON))
    same = replace(plan, trials=3, sampler="gp", pruner="asha", workers=2, seed=5, storage="x")
    same = replace(same, config=dict(plan.config) | {"tracking": {"uri": "elsewhere"}})
    assert same.identity == plan.identity
    for other in (
        replace(plan, metrics=("MAE",)),
        replace(plan, space=Space({"fit.steps": {"int": [1, 2]}}).told),
        replace(plan, fingerprint="g"),
        replace(plan, until="2024-03-01"),
        replace(plan, config=make_config(HORIZON + 1).model_dump(mode="json")),
    ):
        assert other.identity != plan.identity
