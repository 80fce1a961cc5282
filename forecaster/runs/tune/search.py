"""A search from start to finish: announced, run, told, written, refitted, registered.

What comes in: an open panel, a config and the caller's wishes. What goes out: an `Outcome`, the best
config as a file, and a model fitted with it. Promised: the same call goes on with the study that is
there; everything that was told stays, whatever ends the search.
"""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from forecaster.config import Config
from forecaster.forecast.artifact import Artifact
from forecaster.panel.audit import check_panel
from forecaster.panel.findings import refuse_errors
from forecaster.panel.panel import Panel
from forecaster.panel.store import write_store
from forecaster.runs.console import print_findings, print_notice, print_roles, print_tracked
from forecaster.runs.pipeline import run_fit
from forecaster.runs.tracking.sweep import Sweep, close_dead_trial, open_sweep
from forecaster.runs.tune.objective import RUN, Objective
from forecaster.runs.tune.outcome import Outcome, outcome_of
from forecaster.runs.tune.plan import SweepPlan
from forecaster.runs.tune.report import SearchBar, say_plan, say_results
from forecaster.runs.tune.space import load_space
from forecaster.runs.tune.storage import Say, StorageLost
from forecaster.runs.tune.study import open_study
from forecaster.runs.tune.wishes import Tables, Wishes, plan_search
from forecaster.runs.tune.worker import Session, run_worker
from forecaster.runs.tune.workers import run_workers

if TYPE_CHECKING:
    from optuna import Study


def run_search(
    panel: Panel, tables: Tables, config: Config, wishes: Wishes, console: Console
) -> tuple[Outcome, Artifact | None]:
    """Returns what a search found, and the model of its best settings.

    Args:
        panel: the table; rows of a holdout already cut off.
        tables: that the panel was made of.
        config: with a horizon; trial 0 tries it as it is.
        wishes: how to search.
        console: where to say what happens.

    Raises:
        ConfigError: wishes, space and config contradict each other, the table, or the study that is
            there; or its storage stayed away.
        DataError: the audit finds errors, or the table is too short.
        FitError: three trials in a row failed alike, or none finished.
    """
    found = check_panel(panel, config.horizon)
    refuse_errors(found)
    space = load_space(wishes.space)
    plan = plan_search(panel, tables, config, wishes, space)
    objective = Objective(plan, panel)
    objective.check()
    print_roles(console, panel)
    print_findings(console, found)
    say_plan(console, objective)
    outcome = _searched(panel, plan, objective, wishes, console)
    if not wishes.refit and wishes.out is None and wishes.register is None:
        return outcome, None
    return outcome, _refitted(panel, outcome, wishes, console)


def _searched(
    panel: Panel, plan: SweepPlan, objective: Objective, wishes: Wishes, console: Console
) -> Outcome:
    """Runs the trials that are still wanted, and records the study as a whole."""
    say = partial(print_notice, console)
    with warnings.catch_warnings():
        # Optuna loads a progress bar that complains where a notebook has no widgets.
        warnings.filterwarnings("ignore", message="IProgress not found")
        study = open_study(plan, say=say)
    session = Session.begin(study, plan, say=say)
    tracking = plan.settings.tracking
    with open_sweep(tracking, plan.study, plan.storage) as sweep, ExitStack() as stack:
        plan = replace(plan, parent_run=sweep.key)
        bar = stack.enter_context(
            SearchBar(console, outcome_of(plan, study.get_trials(deepcopy=False)))
        )
        begun = datetime.now()
        try:
            if plan.workers == 1:
                objective.plan = plan
                run_worker(plan, objective, session, bar.told)
            else:
                run_workers(stack.enter_context(_reachable(plan, panel)), study, session, bar.told)
        except StorageLost:
            raise  # there is nobody to ask how far it came
        except BaseException:
            bar.stop()
            _concluded(plan, study, sweep, begun, say)
            raise
        bar.stop()
        outcome = _concluded(plan, study, sweep, begun, say)
        best = _best_path(plan)
        outcome.write_best(best, wishes.command)
        sweep.keep_best(best.read_text(encoding="utf-8"))
    say_results(console, outcome)
    print_tracked(console, sweep.run)
    print_notice(console, f"wrote {best}")
    return outcome


def _concluded(plan: SweepPlan, study: Study, sweep: Sweep, begun: datetime, say: Say) -> Outcome:
    """Returns how far a study is, recorded as such; runs of dead workers' trials are closed."""
    trials = study.get_trials(deepcopy=False)
    outcome = outcome_of(plan, trials)
    for trial in trials:
        key, why = trial.user_attrs.get(RUN, ""), trial.user_attrs.get("void")
        if why is not None and trial.datetime_complete >= begun:
            number = trial.number
            close_dead_trial(plan.settings.tracking, plan.parent_run, plan.study, number, key, why)
    sweep.summarise(study, outcome.trials, plan.metrics)
    if len(outcome.ended) < plan.trials:
        say(f"{len(outcome.ended)} of {plan.trials} trials are told; the same command goes on")
    return outcome


@contextmanager
def _reachable(plan: SweepPlan, panel: Panel) -> Iterator[SweepPlan]:
    """Yields a plan whose table a worker can open: a frame is written to a store for as long."""
    if plan.source:
        yield plan
        return
    with tempfile.TemporaryDirectory(prefix="forecaster-tune-") as scratch:
        store = Path(scratch) / panel.name
        write_store(panel, store, plan.settings.data)
        yield replace(plan, source=str(store), future=None, covariates=None)


def _refitted(panel: Panel, outcome: Outcome, wishes: Wishes, console: Console) -> Artifact:
    """Returns the model of the best settings, fitted to all rows; saved and registered as wished."""
    config = outcome.settings(outcome.best)
    console.rule(f"fit with trial {outcome.best.number}", align="left")
    with tempfile.TemporaryDirectory(prefix="forecaster-tune-") as scratch:
        out = wishes.out
        if out is None and wishes.register is not None:
            out = Path(scratch) / outcome.plan.study
        artifact = run_fit(panel, config, out, console, introduced=True)
        if wishes.register is not None and out is not None:
            from forecaster.runs.registry.publish import publish

            published = publish(out, wishes.register, config.tracking)
            print_notice(console, f"registered {published.address}: {published.sentence}")
    return artifact


def _best_path(plan: SweepPlan) -> Path:
    """Returns where the best settings go: beside the journal, else in the working directory."""
    folder = Path() if "://" in plan.storage else Path(plan.storage).parent
    return folder / f"{plan.study}.best.yaml"
