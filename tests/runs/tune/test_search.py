"""A search as its caller sees it: study, best config, model, trials; printed, tracked, continued."""

import re
import shutil
from contextvars import copy_context
from dataclasses import replace
from io import StringIO
from pathlib import Path

import numpy as np
import optuna
import pandas as pd
import polars as pl
import pytest
import yaml
from forecast import tiny
from mlflow.tracking import MlflowClient
from sweeps import make_plan

import forecaster as fc
from forecaster.api import shell_command
from forecaster.config import parse_duration
from forecaster.errors import ConfigError, python_spelling
from forecaster.panel.build import open_panel
from forecaster.runs.console import Screen
from forecaster.runs.tune.outcome import (
    ALONE,
    Outcome,
    print_results,
    search_bar,
    study_figures,
)
from forecaster.runs.tune.study import open_study
from forecaster.runs.tune.trial import Evaluator

# MLflow's own use of SQLAlchemy; nothing of ours.
pytestmark = pytest.mark.filterwarnings("ignore::sqlalchemy.exc.SADeprecationWarning")

SPACE = {
    "fit.learning_rate": {"float": [0.001, 0.02], "log": True},
    "model.width": {"choice": [16, 24]},
}


def _prepared(folder: Path) -> Path:
    tiny.plain().write_csv(folder / "plain.csv")
    tiny.write_tiny(folder / "tiny.yaml", model=tiny.NETWORK["model"])
    (folder / "space.yaml").write_text(yaml.safe_dump(SPACE))
    return folder


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """A working folder with the shop and a space."""
    monkeypatch.chdir(tmp_path)
    return _prepared(tmp_path)


def _tune(data: object, trials: int, **given: object) -> fc.Study:
    given = {"config": "tiny.yaml", "space": "space.yaml", "quiet": True, **given}
    return fc.tune(data, horizon=tiny.HORIZON, trials=trials, **given)


@pytest.fixture(scope="module")
def searched(tmp_path_factory) -> tuple[fc.Study, Path]:
    """A study of four trials with a model, and its folder."""
    folder = _prepared(tmp_path_factory.mktemp("searched"))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        context = copy_context()
        context.run(shell_command.set, "forecaster tune plain.csv")
        return context.run(_tune, "plain.csv", 4, study="shop", pruner="none"), folder


@pytest.mark.long
def test_a_study_holds_the_best_config_a_model_of_it_and_every_trial(searched):
    study, _ = searched
    trials = study.trials
    assert isinstance(trials, pl.DataFrame)
    assert trials["trial"].to_list() == [0, 1, 2, 3]
    first, *others = trials["note"].to_list()
    assert first == "the preset"
    assert set(others) <= {None, "network weight 0 %"}
    assert study.preset_value == trials["WQL"][0]
    assert study.best_value == trials["WQL"].min() <= study.preset_value
    best = trials.row(study._outcome.best.number, named=True)
    assert best["WQL"] == study.best_value
    assert study.best.model.width == best["model.width"]
    assert study.best.fit.learning_rate == best["fit.learning_rate"]
    assert study.model.config.fit.learning_rate == study.best.fit.learning_rate
    last = study.model.artifact.trained_until
    assert study.model.open(tiny.plain()).calendar.text(last) == str(tiny.day(99))
    assert repr(study) == f"Study(shop: 4 trials, WQL {study.best_value:.5g})"


@pytest.mark.long
def test_the_file_of_the_best_settings_is_a_config_that_says_where_it_is_from(searched):
    study, folder = searched
    path = folder / "studies" / "shop.best.yaml"
    assert fc.load_config(path) == study.best
    lines = path.read_text().splitlines()
    assert lines[0] == "# Found by: forecaster tune plain.csv"
    assert re.fullmatch(
        r"# Trial [0-3] of 4 in study shop: WQL [\d.]+ on the validation span\.", lines[1]
    )
    assert lines[2].startswith(f"# The preset, trial 0: {study.preset_value:.6g} (the ")
    command = "forecaster fit plain.csv --config studies/shop.best.yaml --out MODEL"
    assert f"#   {command}" in lines
    elsewhere = replace(study._outcome.plan, source="a b.csv", future="f.csv")
    command = replace(study._outcome, plan=elsewhere).fit_command(Path("/x.yaml"))
    assert command == "forecaster fit 'a b.csv' --future f.csv --config /x.yaml --out MODEL"


def test_the_steps_of_a_trial_are_those_of_all_members_and_of_the_refit(folder):
    asked = {"steps": 5, "ensemble_size": 3, "refit": True}
    config = fc.load_config("tiny.yaml").replaced(horizon=tiny.HORIZON, fit=asked)
    panel = open_panel(tiny.plain(), config.data)
    evaluator = Evaluator(make_plan(folder, config=config), panel)
    evaluator.check()
    assert evaluator.steps == 5 * 3 * 2


def test_results_are_printed_with_the_preset_beside_them(searched):
    study, _ = searched
    console = Screen(width=200, record=True, file=StringIO())
    print_results(console, study._outcome)
    printed = console.export_text()
    assert f"0  {study.preset_value:.5g}  the preset" in printed
    assert "4 trials: 4 finished, 0 pruned, 0 failed · WQL " in printed


@pytest.mark.parametrize(("workers", "left"), [(1, "4 min left"), (2, "2 min left")])
def test_the_first_trial_says_how_long_all_take(tmp_path, monkeypatch, workers, left):
    """100 of 400 steps in 20 s: 80 s a trial, three one after another 240 s, two at a time 160 s."""
    plan = make_plan(tmp_path, trials=3, workers=workers)
    now, text = [1000.0], StringIO()
    monkeypatch.setattr("forecaster.runs.tune.outcome.time.monotonic", lambda: now[0])
    with search_bar(Screen(width=200, file=text), plan, open_study(plan), 400) as (_, estimate):
        now[0] += 5
        estimate(25)
        assert text.getvalue() == ""  # a search of seconds needs no estimate
        now[0] += 15
        estimate(100)
        estimate(200)
    assert text.getvalue() == f"at most about {left} for 3 trials, at the pace of the first one\n"


@pytest.mark.long
def test_the_same_call_goes_on_and_repeats_nothing(folder):
    first = _tune("plain.csv", 2, study="shop", refit=False)
    journal = (folder / "studies" / "shop.journal").read_text()
    second = _tune("plain.csv", 3, study="shop", refit=False)
    assert second.trials.head(2).equals(first.trials)
    assert second.trials["state"].to_list()[0] == "finished" and len(second.trials) == 3
    assert (folder / "studies" / "shop.journal").read_text().startswith(journal)
    third = _tune("plain.csv", 3, study="shop", refit=False)
    assert third.trials.equals(second.trials)
    with pytest.raises(ConfigError, match="refit was False"):
        _ = third.model


def test_pandas_in_pandas_out(folder):
    study = _tune(tiny.plain().to_pandas(), 1, refit=False)
    assert isinstance(study.trials, pd.DataFrame)
    assert study.name == "frame-7"


@pytest.mark.long
def test_several_metrics_make_a_pareto_study(folder):
    study = _tune("plain.csv", 3, metrics=["WQL", "sMAPE"], refit=False)
    trials = study.trials
    front = trials.filter("pareto").select("WQL", "sMAPE").rows()
    assert front and all(
        not (a <= c and b <= d and (a, b) != (c, d))
        for c, d in front
        for a, b in trials.select("WQL", "sMAPE").rows()
    )
    assert study.best_value == trials["WQL"].min()
    assert trials["state"].to_list() == ["finished"] * 3  # nothing is pruned


@pytest.mark.long
def test_the_holdout_is_no_part_of_the_study(folder):
    until = str(tiny.day(85))
    study = _tune("plain.csv", 1, until=until)
    calendar = study.model.open("plain.csv").calendar
    assert calendar.text(study.model.artifact.trained_until) == until
    cut = _tune(tiny.plain().filter(pl.col("date") <= tiny.day(85)), 1, study="cut", refit=False)
    assert study.best_value == cut.best_value


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ({"metrics": "wql"}, "metrics=wql: expected one of WQL, MASE, MSE, MAE, RMSE, sMAPE"),
        ({"metrics": ["MAE", "MAE"]}, "metrics=MAE, MAE: expected each one once"),
        ({"sampler": "tpee"}, "sampler=tpee: expected one of tpe, gp, random"),
        ({"pruner": "median"}, "pruner=median: expected one of asha, hyperband, none"),
        ({"workers": 0}, "workers=0: expected 1 or more"),
        (
            {"metrics": ["MAE", "WQL"], "pruner": "asha"},
            "pruner=asha: trials with 2 metrics cannot be compared before their end",
        ),
        ({"timeout": "soon"}, "timeout=soon: expected a duration, as 90s, 45m or 2h"),
        ({"study": "a/b"}, "study='a/b': expected letters, digits"),
        ({"metric": "WQL"}, "fc.tune: unknown argument 'metric'; did you mean 'metrics'?"),
        ({"space": "nowhere.yaml"}, "space nowhere.yaml: cannot be read"),
    ],
)
def test_an_option_that_cannot_be_is_refused_before_anything_is_created(folder, told, said):
    with pytest.raises(ConfigError, match=re.escape(python_spelling(said))):
        _tune("plain.csv", 2, **told)
    assert not (folder / "studies").exists()


def test_a_pruner_is_refused_where_losses_of_trials_do_not_mean_the_same(folder):
    space = SPACE | {"model.head": {"choice": ["quantile", "student_t"]}}
    (folder / "heads.yaml").write_text(yaml.safe_dump(space))
    with pytest.raises(ConfigError, match=r"the space searches model.head, so losses of two trials"):
        _tune("plain.csv", 2, space="heads.yaml", pruner="asha")
    study = _tune("plain.csv", 2, space="heads.yaml", refit=False)
    assert study.trials["state"].to_list() == ["finished"] * 2


def test_a_config_that_does_not_fit_the_table_is_refused_before_anything_is_created(folder):
    with pytest.raises(ConfigError, match=r"model.patch 50 is longer than model.context_length 14"):
        _tune("plain.csv", 2, config=tiny.TINY | {"model": {"patch": 50, "context_length": 14}})
    assert not (folder / "studies").exists()


@pytest.mark.parametrize(
    ("told", "seconds"),
    [(None, None), (90, 90), ("90", 90), ("45m", 2700), ("1.5h", 5400), ("1d", 86400)],
)
def test_a_duration_is_seconds_or_has_a_unit(told, seconds):
    assert parse_duration(told, "--timeout") == seconds


@pytest.mark.slow
def test_a_frame_is_handed_to_several_workers_through_a_store(folder, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    frame, prices = tiny.shop(), tiny.prices()
    # No pruner: which trials it stops depends on which others have ended, so on the clock.
    given = {"future": prices, "sampler": "random", "pruner": "none", "refit": False}
    two = _tune(frame, 4, workers=2, study="two", **given)
    one = _tune(frame, 4, workers=1, study="one", **given)
    assert one.trials.drop("seconds").equals(two.trials.drop("seconds"))


@pytest.mark.long
def test_a_search_is_a_run_with_a_nested_run_per_trial_and_figures(folder, empty_store, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{folder}/mlflow.db")
    shutil.copy(empty_store, folder / "mlflow.db")
    fit = tiny.TINY["fit"] | {"steps": 10}
    config = tiny.NETWORK | {"tracking": {"enabled": True}, "fit": fit}
    for trials in (2, 3):  # continued under the same run
        study = _tune("plain.csv", trials, study="shop", config=config, pruner="none", refit=False)
    client = MlflowClient(tracking_uri=f"sqlite:///{folder}/mlflow.db")
    (experiment,) = [e for e in client.search_experiments() if e.name == "forecaster"]
    runs = {run.info.run_name: run for run in client.search_runs([experiment.experiment_id])}
    assert set(runs) == {"shop", *(f"trial-{number:03d}" for number in range(3))}
    parent = runs["shop"]
    tags = parent.data.tags
    assert (tags["kind"], tags["study"], tags["trials"]) == ("sweep", "shop", "3")
    assert parent.info.status == "FINISHED"
    assert parent.data.metrics["best/WQL"] == study.best_value
    for row in study.trials.rows(named=True):
        run = runs[f"trial-{row['trial']:03d}"]
        assert run.data.tags["mlflow.parentRunId"] == parent.info.run_id
        assert run.data.tags["state"] == row["state"] == "finished"
        assert run.data.params["model.width"] == str(row["model.width"])
        assert run.data.metrics["validation/forecaster/WQL"] == pytest.approx(row["WQL"])
        assert client.get_metric_history(run.info.run_id, "train_loss")
    names = [file.path for file in client.list_artifacts(parent.info.run_id)]
    assert names == ["best.yaml", "history.png", "settings.png"]


def test_pruned_trials_and_unused_settings_are_not_drawn_as_results():
    """A pruned trial's last loss is in another unit; experts alone ignore the network's settings."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))

    def value(trial):
        width = trial.suggest_categorical("model.width", [32, 64])
        trial.set_user_attr("network_weight", float(trial.number % 2))
        if trial.number % 4 == 0:
            trial.report(1e6, 1)
            raise optuna.TrialPruned
        return width / 100 if trial.number % 2 else 0.3

    study.optimize(value, n_trials=20)
    figures = dict(study_figures(study, ("WQL",)))
    assert set(figures) == {"history.png", "importance.png", "settings.png"}
    drawn = np.concatenate(
        [part.get_offsets()[:, 1] for part in figures["history.png"].axes[0].collections]
    )
    assert len(drawn) == 15 and drawn.max() < 1
    outcome = Outcome(make_plan(Path(), trials=20), tuple(study.trials))
    notes = outcome.columns()["note"]
    assert notes[:3] == [None, None, "network weight 0 %"]
    console = Screen(width=200, record=True, file=StringIO())
    print_results(console, outcome)
    printed = console.export_text()
    last = "the experts alone; " + ALONE.format("the experts")
    assert f"in 5 of 15 finished trials the network has weight 0 %: {last}" in printed


@pytest.mark.parametrize(
    ("trials", "metrics", "names"),
    [
        (0, ("WQL",), set()),
        (1, ("WQL",), {"history.png"}),
        (9, ("WQL", "MASE"), {"history.png", "importance.png", "settings.png", "pareto.png"}),
    ],
)
def test_a_study_has_the_figures_that_it_has_enough_trials_for(tmp_path, trials, metrics, names):
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(
        sampler=optuna.samplers.RandomSampler(seed=0), directions=["minimize"] * len(metrics)
    )

    def values(trial):
        width = trial.suggest_categorical("model.width", [32, 64])
        rate = trial.suggest_float("fit.learning_rate", 1e-4, 1e-1, log=True)
        return [width / 100 + rate, 1 - rate][: len(metrics)]

    study.optimize(values, n_trials=trials)
    figures = dict(study_figures(study, metrics))
    assert names <= set(figures) and (trials or not figures)
    for name, figure in figures.items():
        figure.savefig(tmp_path / name)  # layout included: a warning would be an error
