"""A bound in time becomes a number of steps, once."""

import json
from pathlib import Path

import pytest
import torch
from forecast import tiny

import forecaster as fc
from forecaster.config import FitPlan
from forecaster.errors import ConfigError
from forecaster.fitting import budget
from forecaster.fitting.budget import Pace, within_budget
from forecaster.fitting.context import TrainingContext
from forecaster.fitting.fit import fit_panel, resolve
from forecaster.fitting.reporter import Reporter

DATA = Path(__file__).parents[2] / "data"


@pytest.mark.parametrize(
    ("seconds", "validation", "steps"),
    [
        (1000.0, 1.0, 400),  # all of them fit in: 40 s and 8 validations
        (28.0, 1.0, 200),  # 8 validations stay, half the steps
        (9.0, 10.0, 1),  # one validation alone is longer: one step all the same
        (9.0, 1.0, 8),  # 8 validations
        (9.0, 0.0, 90),  # nothing is validated
    ],
)
def test_steps_are_lowered_to_what_the_time_allows(seconds, validation, steps):
    fit = FitPlan(steps=400, batch_size=8, budget_seconds=5.0)
    found = within_budget(fit, Pace(step=0.1, validation=validation), seconds)
    assert (found.steps, found.budget_seconds) == (steps, None)
    if 1 < steps < 400:
        assert found.steps * 0.1 + found.steps // found.validate_every * validation <= seconds


def fitted(panel, config, said=None):
    class Said(Reporter):
        def notice(self, text):
            if said is not None:
                said.append(text)

    config, split = resolve(panel, config)
    return fit_panel(panel, config, split, TrainingContext(reporter=Said()))


@pytest.mark.long
def test_what_is_measured_is_thrown_away_and_the_fit_is_the_one_of_so_many_steps(
    make_panel, make_config, monkeypatch
):
    panel, said = make_panel(2, 60), []
    settings = {"model": {"dropout": 0.2}}
    real = budget.within_budget

    def slow(fit, pace, seconds):
        assert pace.step > 0 and pace.validation > 0
        return real(fit, Pace(step=100.0, validation=0.0), seconds)

    monkeypatch.setattr(budget, "within_budget", slow)
    asked = make_config(4, fit={"budget_seconds": 1000.0, "ensemble_size": 2, "steps": 100}, **settings)
    bounded = fitted(panel, asked, said)
    found = bounded.plan.fit
    assert 4 <= found.steps <= 5 and found.budget_seconds is None  # half of 1,000 s each
    few = "too few to learn much; all of them take about"
    assert len(said) == 1 and f"2 trainings of {found.steps} of 100 steps: {few} " in said[0]
    told = {"ensemble_size": 2, "steps": found.steps}
    other = fitted(panel, make_config(4, fit=told, **settings))
    assert bounded.metrics == other.metrics
    for one, two in zip(bounded.ensemble.members, other.ensemble.members, strict=True):
        for name, weight in one.state_dict().items():
            assert torch.equal(weight, two.state_dict()[name])


def test_a_budget_that_is_ample_changes_nothing(make_panel, make_config):
    said = []
    artifact = fitted(make_panel(2, 60), make_config(4, fit={"budget_seconds": 1e6}), said)
    assert artifact.metrics["steps"] == artifact.plan.fit.steps == 6
    assert len(said) == 1 and said[0].endswith(" ms; 1 training of 6 of 6 steps, all of them")


@pytest.mark.parametrize("told", ["soon", "-3m", "0", "10 weeks"])
def test_a_budget_that_is_no_duration_is_refused(told):
    with pytest.raises(ConfigError, match=r"budget=.*: expected a duration, as 90s, 45m or 2h"):
        fc.fit(DATA / "demo.csv", 7, budget=told)


TINY = {
    "model": {"width": 8, "heads": 2, "encoder_layers": 1, "experts": []},
    "fit": {"steps": 60, "batch_size": 8},
    "tracking": {"enabled": False},
}


@pytest.mark.long
def test_a_fit_that_goes_on_measures_nothing_again(tmp_path, monkeypatch):
    class Stopped(BaseException):
        pass

    def stop(*told):
        raise Stopped

    table, real = tmp_path / "shop.csv", budget.within_budget
    tiny.plain(60).write_csv(table)
    with monkeypatch.context() as patched:
        patched.setattr(budget, "within_budget", lambda fit, _, s: real(fit, Pace(10.0, 0.0), s))
        patched.setattr("forecaster.fitting.fit.choose_network_weights", stop)
        with pytest.raises(Stopped):
            fc.fit(table, 7, config=TINY, budget="1m", out=tmp_path / "model", quiet=True)
    kept = json.loads((tmp_path / "model.run" / "run.json").read_text())["budgeted"]
    assert 1 < kept["steps"] < 60 and kept["budget_seconds"] is None
    monkeypatch.setattr(budget, "within_budget", stop)
    with pytest.raises(fc.ConfigError, match=r"has fit.budget_seconds 60.0, this one .* 120.0"):
        fc.fit(table, 7, config=TINY, budget="2m", out=tmp_path / "model", quiet=True)
    model = fc.fit(table, 7, config=TINY, budget="1m", out=tmp_path / "model", quiet=True)
    assert model.artifact.plan.fit.steps == model.metrics["steps"] == kept["steps"]
