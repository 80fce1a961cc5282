"""Search for better settings: run trials up to a total, report, fit the best settings.

This process asks and tells the Optuna study; worker processes only evaluate. A trial whose process
has ended is marked as failed and enqueued again, so that on one machine exactly `trials` trials count.
Several machines can share a storage; together they may exceed the total by one trial for each further
machine.
"""

from __future__ import annotations

import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from forecaster.errors import ConfigError, FitError, first_line
from forecaster.fitting.processes import Child, is_gone, ready, this_process
from forecaster.runs.console import Screen
from forecaster.runs.tracking import TrackedRun, open_run, without_password
from forecaster.runs.tune.outcome import (
    STATES,
    Outcome,
    log_study,
    print_plan,
    print_results,
    search_bar,
)
from forecaster.runs.tune.space import apply
from forecaster.runs.tune.study import SweepPlan, counted, make_sampler, open_study
from forecaster.runs.tune.worker import (
    Evaluate,
    TrialRequest,
    TrialResult,
    finished_results,
    safely,
    start_worker,
)

if TYPE_CHECKING:
    from optuna import Study, Trial
    from optuna.trial import FrozenTrial

    from forecaster.forecast.artifact import Artifact
    from forecaster.panel.panel import Panel

EVALUATOR = "forecaster.runs.tune.trial:Evaluator"
SAME_ERRORS = 3
"""Consecutive failures with one error that end the search."""
SAME_DEATHS = 3
"""Worker processes that die with the same settings before these count as failed."""
WORKER_DEATHS = 5
"""Consecutive deaths of workers, without a result between them, that end the search."""
LONGEST_TRIAL = timedelta(hours=24)
"""A trial that has run for longer on another machine counts as lost."""


def run_search(
    panel: Panel,
    plan: SweepPlan,
    console: Screen,
    out: Path | None = None,
    register: str | None = None,
    fits: bool = True,
    command: str = "",
) -> tuple[Outcome, Artifact | None]:
    """Returns the result of a search, and the model of its best settings.

    Args:
        panel: the table of the plan; rows of a holdout already cut off.
        plan: from `plan_search`.
        console: for its log.
        out: folder for the model.
        register: name in the registry for the model.
        fits: whether a model is fitted if it has neither a folder nor a name.
        command: recorded in the file of the best settings.

    Raises:
        ConfigError: the config contradicts the table, or the plan the existing study.
        DataError: the audit finds errors, or the table is too short.
        FitError: three consecutive trials failed alike, or none finished.
    """
    from forecaster.panel.audit import audit_panel

    with ExitStack() as stack:
        shared = stack.enter_context(_readable(plan, panel)) if plan.workers > 1 else plan
        # First: the seconds in which they load torch are those in which this process prepares.
        workers = stack.enter_context(_started(shared, EVALUATOR)) if plan.workers > 1 else None
        from forecaster.runs.pipeline import run_fit
        from forecaster.runs.tune.trial import Evaluator

        found = audit_panel(panel, plan.config.horizon, plan.config.target)
        evaluator = Evaluator(plan, panel)
        with console.stage("preparing the search"):
            evaluator.check()
        console.print_roles(panel)
        console.print_findings(found)
        print_plan(console, evaluator)
        stack.enter_context(_storage_errors(plan))
        study = open_study(plan)
        key = f"{plan.study}\n{without_password(plan.storage)}"
        run = stack.enter_context(open_run(plan.config.tracking, plan.study, kind="sweep", key=key))
        run.log_tags({"study": plan.study, "storage": without_password(plan.storage)})
        run.log_dataset(panel.name, panel.fingerprint(), panel.schema, "tuning")
        try:
            with search_bar(console, plan, study, evaluator.steps) as (show, estimate):
                run_trials(shared, study, run, show, evaluator, on_report=estimate, workers=workers)
        finally:
            outcome = Outcome.of(plan, study)
            log_study(run, study, outcome, console)
            if (ended := len(outcome.ended)) < plan.trials:
                line = f"{ended}/{plan.trials} trials finished; rerun the same command to continue"
                console.print_line(line)
        best = outcome.write_best(command)
        run.log_text(best.read_text(encoding="utf-8"), "best.yaml")
    print_results(console, outcome)
    console.print_tracked(run)
    console.print_line(f"wrote {best}")
    if not fits and out is None and register is None:
        console.print_line(f"fit it: {outcome.fit_command(best)}")
        return outcome, None
    config = outcome.config(outcome.best)
    console.rule(f"fit with trial {outcome.best.number}", align="left")
    name = plan.study if out is None else None
    artifact = run_fit(panel, config, out, console, introduced=True, command=command, name=name)
    if register is not None:
        from forecaster.runs.registry import publish

        published = publish(artifact, register, config.tracking)
        console.print_line(f"registered {published.address}: {published.sentence}")
    return outcome, artifact


def run_trials(
    plan: SweepPlan,
    study: Study,
    run: TrackedRun | None = None,
    on_trial: Callable[[FrozenTrial], None] = lambda trial: None,
    evaluate: Evaluate | None = None,
    factory: str = EVALUATOR,
    on_report: Callable[[int], None] = lambda step: None,
    workers: list[Child] | None = None,
) -> None:
    """Runs trials until the study has as many as the plan wants, or its time is over.

    Args:
        plan: of the search.
        study: opened.
        run: MLflow run of the study; each trial gets a nested run.
        on_trial: receives each trial of this process once it has ended.
        evaluate: evaluates trials in this process if the plan has one worker.
        factory: "module:function" that makes an evaluator of a plan, in each worker process.
        on_report: receives the step of each validation of a running trial.
        workers: already started; those that die are replaced in the list. None = start them.

    Raises:
        ForecasterError: that ended a worker.
        FitError: consecutive trials failed alike, or workers keep dying.
    """
    trials = _Trials(plan, study, run or TrackedRun(), on_trial, on_report)
    try:
        if plan.workers > 1 or evaluate is None:
            with _started(plan, factory) if workers is None else nullcontext(workers) as running:
                _run_workers(plan, trials, factory, running)
            return
        while (trial := trials.ask()) is not None:
            report = partial(trials.report, trial)
            trials.tell(trial, safely(evaluate, trials.running[trial], report))
    finally:
        with suppress(Exception):  # a storage that is away; the next call finds the trials
            trials.retry_lost(leaving=True)


@dataclass
class _Trials:
    """The trials that this process runs."""

    plan: SweepPlan
    study: Study
    run: TrackedRun
    on_trial: Callable[[FrozenTrial], None]
    on_report: Callable[[int], None]
    running: dict[Trial, TrialRequest] = field(default_factory=dict)
    abandoned: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.process, self.errors = this_process(), deque[object](maxlen=SAME_ERRORS)
        self.ends = time.monotonic() + (self.plan.timeout_seconds or float("inf"))

    def ask(self) -> Trial | None:
        """Returns a trial to run, its request in `running`; None if there are enough."""
        from optuna.exceptions import UpdateFinishedTrialError

        while time.monotonic() < self.ends:
            self.retry_lost()
            trials = self.study.get_trials(deepcopy=False)
            if len(counted(trials)) >= self.plan.trials:
                return None
            waiting = [trial.number for trial in trials if trial.state.name == "WAITING"]
            if not waiting:
                # Not `ask` alone: a trial must name its process from its first moment on.
                self.study.enqueue_trial({}, user_attrs={"process": self.process})
            self.study.sampler = make_sampler(self.plan, min(waiting, default=len(trials)))
            trial = self.study.ask()
            try:
                trial.set_user_attr("process", self.process)
                self.running[trial] = self._request(trial)
            except UpdateFinishedTrialError:  # another machine failed it meanwhile
                continue
            except ConfigError as error:
                self._finish(trial, TrialResult("PRUNED", None, str(error), {"refused": str(error)}))
                continue
            return trial
        return None

    def report(self, trial: Trial, step: int, loss: float) -> bool:
        """Reports a validation loss; returns whether the trial is to stop."""
        from optuna.exceptions import UpdateFinishedTrialError

        self.on_report(step)
        if self.plan.pruner == "none":  # Optuna takes no reports of several metrics
            return False
        try:
            trial.report(loss, step)
            return bool(trial.should_prune())
        except UpdateFinishedTrialError:  # another machine took this process for ended
            return True

    def tell(self, trial: Trial, result: TrialResult) -> None:
        """Tells the result of a trial.

        Raises:
            FitError: it is the last of several consecutive ones that failed alike.
        """
        run = self.running.pop(trial).run
        self._finish(trial, result)
        status = {"COMPLETE": "FINISHED", "PRUNED": "KILLED", "FAIL": "FAILED"}[result.state]
        run.log_tags(
            {"state": STATES[result.state]} | ({"reason": result.reason} if result.reason else {})
        )
        run.close(status)
        self.errors.append(error := result.attributes.get("error"))
        if error is not None and list(self.errors).count(error) == SAME_ERRORS:
            raise FitError(
                f"study {self.plan.study}: {SAME_ERRORS} consecutive trials failed alike: {error}"
            )

    def abandon(self, trial: Trial) -> None:
        """Gives up a trial whose worker has died; the next `ask` enqueues it again."""
        del self.running[trial]
        self.abandoned.add(trial.number)

    def retry_lost(self, leaving: bool = False) -> None:
        """Fails running trials whose process has ended, or is leaving, and enqueues them again."""
        for trial in self.study.get_trials(deepcopy=False):
            left = leaving and trial.user_attrs.get("process") == self.process
            if trial.state.name != "RUNNING" or not (left or self._is_lost(trial)):
                continue
            # First: an interruption in between then loses and doubles nothing.
            self._enqueue_again(trial, died=not left)
            reason = "interrupted" if left else "its process ended"
            self._tell(trial.number, TrialResult("FAIL", None, reason))
            self.run.close_nested(trial.user_attrs.get("run", ""), reason)

    def _request(self, trial: Trial) -> TrialRequest:
        plan, preset = self.plan, bool(trial.user_attrs.get("preset"))
        if preset:
            values, config = plan.space.suggest_preset(trial, plan.config), plan.config
        else:
            values = plan.space.suggest(trial)
            config = apply(plan.config, values)
        tags = {"kind": "trial", "study": plan.study, "trial": str(trial.number)}
        if "retry_of" in trial.user_attrs:
            tags["retry_of"] = str(trial.user_attrs["retry_of"])
        run = self.run.nested(f"trial-{trial.number:03d}", tags | {"state": "running"})
        if run.recorded:
            trial.set_user_attr("run", run.run_id)
            run.log_params(values)
        finished = finished_results(self.study.get_trials(deepcopy=False))
        prunable = plan.pruner != "none" and not preset
        return TrialRequest(trial.number, values, config, prunable, finished, run)

    def _finish(self, trial: Trial, result: TrialResult) -> None:
        from optuna.exceptions import UpdateFinishedTrialError

        with suppress(UpdateFinishedTrialError):
            for name, value in result.attributes.items():
                trial.set_user_attr(name, value)
        self._tell(trial, result)
        self.on_trial(self.study.get_trials(deepcopy=False)[trial.number])

    def _tell(self, trial: Trial | int, result: TrialResult) -> None:
        from optuna.trial import TrialState

        # Another machine may have failed the trial and retried its settings: that result counts.
        self.study.tell(trial, result.values, TrialState[result.state], skip_if_finished=True)

    def _is_lost(self, trial: FrozenTrial) -> bool:
        process = str(trial.user_attrs.get("process", ""))
        if process == self.process:
            return trial.number in self.abandoned
        gone = is_gone(process)
        if gone is None:
            return datetime.now() - (trial.datetime_start or datetime.min) > LONGEST_TRIAL
        return gone

    def _enqueue_again(self, trial: FrozenTrial, died: bool) -> None:
        """Enqueues the settings of a trial, unless too many processes have died of them."""
        deaths = trial.user_attrs.get("deaths", 0) + died
        retried = {other.user_attrs.get("retry_of") for other in self.study.get_trials(deepcopy=False)}
        if deaths >= SAME_DEATHS or trial.number in retried:
            return
        attributes: dict[str, Any] = {"retry_of": trial.number, "process": self.process}
        attributes |= {"deaths": deaths} if deaths else {}
        values = dict(trial.params)
        if trial.user_attrs.get("preset"):
            attributes["preset"] = True
            values = self.plan.space.preset(self.plan.config)
        self.study.enqueue_trial(values, user_attrs=attributes)


def _run_workers(plan: SweepPlan, trials: _Trials, factory: str, workers: list[Child]) -> None:
    """Keeps workers busy until no trial is left; replaces those that die."""
    busy: dict[Child, Trial] = {}
    deaths = 0
    while True:
        for worker in workers:
            if worker not in busy and (trial := trials.ask()) is not None:
                busy[worker] = trial
                worker.send(trials.running[trial])
        if not busy:
            return
        for worker in ready(workers):
            try:
                message = worker.receive()
            except EOFError:
                if worker in busy:
                    trials.abandon(busy.pop(worker))
                deaths += 1
                if deaths == WORKER_DEATHS:
                    raise FitError(
                        f"study {plan.study}: {WORKER_DEATHS} workers died before they finished a "
                        f"trial, the last one: {worker.failure()}"
                    ) from None
                worker.end()
                number = workers.index(worker)
                workers[number] = start_worker(plan, factory, number)
                continue
            if isinstance(message, TrialResult):
                deaths = 0
                trials.tell(busy.pop(worker), message)
            else:
                worker.send(trials.report(busy[worker], *message))


@contextmanager
def _started(plan: SweepPlan, factory: str) -> Iterator[list[Child]]:
    """Holds the workers of a plan."""
    workers = [start_worker(plan, factory, number) for number in range(plan.workers)]
    try:
        yield workers
    finally:
        for worker in workers:
            worker.end()


@contextmanager
def _storage_errors(plan: SweepPlan) -> Iterator[None]:
    """Turns errors of the storage into one line."""
    from optuna.exceptions import StorageInternalError

    try:
        yield
    except (StorageInternalError, OSError) as error:
        inner = getattr(error.__cause__, "orig", None) or error.__cause__ or error
        raise ConfigError(
            f"study storage {without_password(plan.storage)}: {first_line(inner)}; finished trials are "
            "kept, rerun the same command to continue"
        ) from error


@contextmanager
def _readable(plan: SweepPlan, panel: Panel) -> Iterator[SweepPlan]:
    """Yields a plan whose table a worker can open: a frame is written to a temporary store."""
    if plan.source is not None:
        yield plan
        return
    from forecaster.panel.store import write_store

    with tempfile.TemporaryDirectory(prefix="forecaster-tune-") as scratch:
        store = Path(scratch) / panel.name
        write_store(panel, store, plan.config.data)
        yield replace(plan, source=str(store), future=None, covariates=None)
