"""Search for better settings: run trials up to a total, report, fit the best settings.

This process asks and tells the Optuna study; worker processes only evaluate. A trial whose process
has ended is marked as failed and enqueued again, so that on one machine exactly `trials` trials count.
Several machines can share a storage; together they may exceed the total by one trial for each further
machine.
"""

from __future__ import annotations

import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from functools import partial
from multiprocessing.connection import wait
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from forecaster.config import Config
from forecaster.errors import ConfigError, FitError, ForecasterError
from forecaster.runs.console import print_findings, print_line, print_roles, print_tracked
from forecaster.runs.tracking import (
    TrackedRun,
    close_lost_trial,
    first_line,
    is_gone,
    open_run,
    study_key,
    this_process,
    without_password,
)
from forecaster.runs.tune.outcome import (
    Outcome,
    SearchBar,
    log_study,
    print_plan,
    print_results,
)
from forecaster.runs.tune.space import Space, apply, load_space
from forecaster.runs.tune.study import (
    SweepPlan,
    TuneOptions,
    counted,
    make_sampler,
    open_study,
    plan_search,
)
from forecaster.runs.tune.worker import Evaluate, TrialRequest, TrialResult, Worker, safely

if TYPE_CHECKING:
    from optuna import Study, Trial
    from optuna.trial import FrozenTrial

    from forecaster.forecast.artifact import Artifact
    from forecaster.panel.panel import Panel
    from forecaster.runs.tune.trial import Evaluator

EVALUATOR = "forecaster.runs.tune.trial:Evaluator"
SAME_ERRORS = 3
"""Consecutive failures with one error that end the search."""
SAME_DEATHS = 3
"""Worker processes that die with the same settings before these count as failed."""
WORKER_DEATHS = 5
"""Consecutive deaths of workers, without a result between them, that end the search."""
BEAT_SECONDS = 60.0
SILENT_SECONDS = 600.0
"""A process on another machine that wrote no beat for so long counts as ended."""
_LEAVE_SECONDS = 15.0


def run_search(
    panel: Panel,
    config: Config,
    options: TuneOptions,
    console: Console,
    data: object,
    future: object | None = None,
    covariates: object | None = None,
) -> tuple[Outcome, Artifact | None]:
    """Returns the result of a search, and the model of its best settings.

    Args:
        panel: the table; rows of a holdout already cut off.
        config: with a horizon; trial 0 runs it as it is.
        options: of the search.
        console: for its log.
        data: what the panel was read from.
        future: covariates known in advance that it was read with.
        covariates: second table that it was read with.

    Raises:
        ConfigError: options, space and config contradict each other, the table, or the existing study.
        DataError: the audit finds errors, or the table is too short.
        FitError: three consecutive trials failed alike, or none finished.
    """
    from forecaster.panel.audit import check_panel
    from forecaster.panel.findings import refuse_errors
    from forecaster.runs.tune.trial import Evaluator

    found = check_panel(panel, config.horizon)
    refuse_errors(found)
    plan = plan_search(panel, config, options, load_space(options.space), data, future, covariates)
    evaluator = Evaluator(plan, panel)
    evaluator.check()
    print_roles(console, panel)
    print_findings(console, found)
    print_plan(console, evaluator)
    outcome = _search(panel, plan, evaluator, options, console)
    if not options.refit and options.out is None and options.register is None:
        return outcome, None
    return outcome, _refit(panel, outcome, options, console)


def _search(
    panel: Panel, plan: SweepPlan, evaluator: Evaluator, options: TuneOptions, console: Console
) -> Outcome:
    tracking = plan.config.tracking
    key = study_key(plan.study, plan.storage)
    with _storage_errors(plan), ExitStack() as stack:
        study = open_study(plan)
        run = stack.enter_context(open_run(tracking, plan.study, kind="sweep", key=key))
        run.log_tags({"study": plan.study, "storage": without_password(plan.storage)})
        bar = stack.enter_context(SearchBar(console, plan, study))
        workers = stack.enter_context(_readable(plan, panel)) if plan.workers > 1 else plan
        try:
            run_trials(workers, study, run, bar.move, evaluator)
        finally:
            bar.stop()
            outcome = Outcome.of(plan, study)
            log_study(run, study, outcome)
            if len(outcome.ended) < plan.trials:
                print_line(
                    console,
                    f"{len(outcome.ended)}/{plan.trials} trials finished; rerun the same command to "
                    "continue",
                )
        best = outcome.write_best(options.command)
        run.log_text(best.read_text(encoding="utf-8"), "best.yaml")
    print_results(console, outcome)
    print_tracked(console, run)
    print_line(console, f"wrote {best}")
    return outcome


def run_trials(
    plan: SweepPlan,
    study: Study,
    run: TrackedRun | None = None,
    on_trial: Callable[[FrozenTrial], None] = lambda trial: None,
    evaluate: Evaluate | None = None,
    factory: str = EVALUATOR,
) -> None:
    """Runs trials until the study has as many as the plan wants, or its time is over.

    Args:
        plan: of the search.
        study: opened.
        run: MLflow run of the study; each trial gets a nested run.
        on_trial: receives each trial of this process once it has ended.
        evaluate: evaluates trials in this process if the plan has one worker.
        factory: "module:function" that makes an evaluator of a plan, in each worker process.

    Raises:
        ForecasterError: that ended a worker.
        FitError: consecutive trials failed alike, or workers keep dying.
    """
    trials = _Trials(plan, study, run or TrackedRun(), on_trial)
    with trials.alive():
        if plan.workers == 1 and evaluate is not None:
            while (trial := trials.ask()) is not None:
                result = safely(evaluate, trials.running[trial], partial(trials.report, trial))
                trials.tell(trial, result)
        else:
            _run_workers(plan, trials, factory)


class _Trials:
    """The trials that this process runs."""

    def __init__(
        self, plan: SweepPlan, study: Study, run: TrackedRun, on_trial: Callable[[FrozenTrial], None]
    ):
        self.plan, self.study = plan, study
        self.running: dict[Trial, TrialRequest] = {}
        self.abandoned: set[int] = set()  # trials whose worker has died
        self._run, self._on_trial = run, on_trial
        self._space, self._process = Space(plan.space), this_process()
        self._errors: deque[object] = deque(maxlen=SAME_ERRORS)
        limit = plan.timeout_seconds
        self._ends = None if limit is None else time.monotonic() + limit

    @property
    def is_over(self) -> bool:
        """Whether it is too late to start a trial."""
        return self._ends is not None and time.monotonic() >= self._ends

    @contextmanager
    def alive(self) -> Iterator[None]:
        """Writes a beat for other machines; in the end, running trials are enqueued again."""
        stop = threading.Event()

        def beat() -> None:
            while True:
                with suppress(Exception):  # the next beat may get through
                    self.study.set_user_attr(f"beat {self._process}", time.time())
                if stop.wait(BEAT_SECONDS):
                    return

        thread = threading.Thread(target=beat, daemon=True, name="beat")
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join(timeout=1.0)
            with suppress(Exception):  # a storage that is away; the next call finds the trials
                self._retry_lost(leaving=True)

    def ask(self) -> Trial | None:
        """Returns a trial to run, its request in `running`; None if there are enough."""
        from optuna.exceptions import UpdateFinishedTrialError

        while not self.is_over:
            self._retry_lost()
            trials = self.study.get_trials(deepcopy=False)
            if len(counted(trials)) >= self.plan.trials:
                return None
            waiting = [trial.number for trial in trials if trial.state.name == "WAITING"]
            if not waiting:
                # Not `ask` alone: a trial must name its process from its first moment on.
                self.study.enqueue_trial({}, user_attrs={"process": self._process})
            self.study.sampler = make_sampler(self.plan, min(waiting, default=len(trials)))
            trial = self.study.ask()
            try:
                trial.set_user_attr("process", self._process)
                request = self._request(trial)
            except UpdateFinishedTrialError:  # another machine failed it meanwhile
                continue
            except ConfigError as error:
                self._finish(trial, TrialResult("PRUNED", None, str(error), {"refused": str(error)}))
                continue
            self.running[trial] = request
            return trial
        return None

    def report(self, trial: Trial, step: int, loss: float) -> bool:
        """Reports a validation loss; returns whether the trial is to stop."""
        from optuna.exceptions import UpdateFinishedTrialError

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
        request = self.running.pop(trial)
        self._finish(trial, result)
        _close(request.run, result)
        self._errors.append(result.attributes.get("error"))
        error = self._errors[-1]
        if error is not None and list(self._errors).count(error) == SAME_ERRORS:
            raise FitError(
                f"study {self.plan.study}: {SAME_ERRORS} consecutive trials failed alike: {error}"
            )

    def _request(self, trial: Trial) -> TrialRequest:
        preset, config = bool(trial.user_attrs.get("preset")), self.plan.config
        if preset:
            values = self._space.suggest_preset(trial, config)
        else:
            values = self._space.suggest(trial)
            config = apply(config, values)
        tags = {"kind": "trial", "study": self.plan.study, "trial": str(trial.number)}
        if "retry_of" in trial.user_attrs:
            tags["retry_of"] = str(trial.user_attrs["retry_of"])
        run = self._run.nested(f"trial-{trial.number:03d}", tags | {"state": "running"})
        if run.recorded:
            trial.set_user_attr("run", run.run_id)
            run.log_params(values)
        prunable = self.plan.pruner != "none" and not preset
        return TrialRequest(trial.number, values, config, prunable, run)

    def _finish(self, trial: Trial, result: TrialResult) -> None:
        from optuna.exceptions import UpdateFinishedTrialError

        with suppress(UpdateFinishedTrialError):
            for name, value in result.attributes.items():
                trial.set_user_attr(name, value)
        self._tell(trial, result)
        self._on_trial(self.study.get_trials(deepcopy=False)[trial.number])

    def _tell(self, trial: Trial | int, result: TrialResult) -> None:
        from optuna.trial import TrialState

        # Another machine may have failed the trial and retried its settings: that result counts.
        self.study.tell(trial, result.values, TrialState[result.state], skip_if_finished=True)

    def _retry_lost(self, leaving: bool = False) -> None:
        """Fails running trials whose process has ended, or is leaving, and enqueues them again."""
        for trial in self.study.get_trials(deepcopy=False):
            left = leaving and trial.user_attrs.get("process") == self._process
            if trial.state.name != "RUNNING" or not (left or self._is_lost(trial)):
                continue
            self._enqueue_again(trial, died=not left)
            reason = "interrupted" if left else "its process ended"
            self._tell(trial.number, TrialResult("FAIL", None, reason))
            close_lost_trial(self._run, trial.user_attrs.get("run", ""), reason)

    def _is_lost(self, trial: FrozenTrial) -> bool:
        process = str(trial.user_attrs.get("process", ""))
        if process == self._process:
            return trial.number in self.abandoned
        gone = is_gone(process)
        if gone is None:
            beat = self.study.user_attrs.get(f"beat {process}", 0.0)
            return bool(time.time() - beat > SILENT_SECONDS)
        return gone

    def _enqueue_again(self, trial: FrozenTrial, died: bool) -> None:
        """Enqueues the settings of a trial, unless too many processes have died of them.

        Called before the trial is marked as failed: an interruption in between loses and doubles nothing.
        """
        attributes: dict[str, Any] = {"retry_of": trial.number, "process": self._process}
        if deaths := trial.user_attrs.get("deaths", 0) + died:
            attributes["deaths"] = deaths
        if deaths >= SAME_DEATHS:
            return
        trials = self.study.get_trials(deepcopy=False)
        if any(other.user_attrs.get("retry_of") == trial.number for other in trials):
            return
        values, first = dict(trial.params), trial
        while (number := first.user_attrs.get("retry_of")) is not None:
            first = trials[number]  # this trial may have ended before it proposed anything
            values = first.params | values
        if trial.user_attrs.get("preset"):
            attributes["preset"] = True
            values = self._space.preset(self.plan.config) | values
        self.study.enqueue_trial(values, user_attrs=attributes)


def _close(run: TrackedRun, result: TrialResult) -> None:
    states = {"COMPLETE": "finished", "PRUNED": "pruned", "FAIL": "failed"}
    statuses = {"COMPLETE": "FINISHED", "PRUNED": "KILLED", "FAIL": "FAILED"}
    tags = {"state": states[result.state]}
    run.log_tags(tags if result.reason is None else tags | {"reason": result.reason})
    run.close(statuses[result.state])


def _run_workers(plan: SweepPlan, trials: _Trials, factory: str) -> None:
    """Keeps workers busy until no trial is left; replaces those that die."""
    with tempfile.TemporaryDirectory(prefix="forecaster-tune-") as scratch:
        start = partial(Worker, plan, factory, folder=Path(scratch))
        workers = {number: start(number=number) for number in range(plan.workers)}
        deaths = 0
        try:
            while _assign(trials, workers):
                ready = wait([worker.connection for worker in workers.values()])
                for number, worker in list(workers.items()):
                    if worker.connection not in ready:
                        continue
                    trial = worker.trial
                    try:
                        message: Any = worker.connection.recv()
                    except (EOFError, OSError):
                        cause = worker.end(time.monotonic() + _LEAVE_SECONDS)
                        if trial is not None:
                            del trials.running[trial]
                            trials.abandoned.add(trial.number)  # retried by the next `ask`
                        deaths += 1
                        if deaths == WORKER_DEATHS:
                            raise FitError(
                                f"study {plan.study}: {WORKER_DEATHS} workers died before they "
                                f"finished a trial, the last by {cause}"
                            ) from None
                        workers[number] = start(number=number)
                        continue
                    if isinstance(message, ForecasterError):
                        raise message
                    assert trial is not None
                    if isinstance(message, TrialResult):
                        worker.trial, deaths = None, 0
                        trials.tell(trial, message)
                    else:
                        prune = trials.report(trial, *message)
                        with suppress(OSError):  # died since; noticed in the next round
                            worker.connection.send(prune)
        finally:
            for worker in workers.values():
                worker.leave()
            by = time.monotonic() + _LEAVE_SECONDS
            for worker in workers.values():
                worker.end(by)


def _assign(trials: _Trials, workers: dict[int, Worker]) -> bool:
    """Gives a trial to each idle worker; returns whether any worker is busy."""
    for worker in workers.values():
        if worker.trial is None and (trial := trials.ask()) is not None:
            worker.trial = trial
            with suppress(OSError):  # it has died; noticed in the next round
                worker.connection.send(trials.running[trial])
    return any(worker.trial is not None for worker in workers.values())


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
    if plan.source:
        yield plan
        return
    from forecaster.panel.store import write_store

    with tempfile.TemporaryDirectory(prefix="forecaster-tune-") as scratch:
        store = Path(scratch) / panel.name
        write_store(panel, store, plan.config.data)
        yield replace(plan, source=str(store), future=None, covariates=None)


def _refit(panel: Panel, outcome: Outcome, options: TuneOptions, console: Console) -> Artifact:
    """Fits the best settings to all rows; saves and registers the model as the options say."""
    from forecaster.runs.pipeline import run_fit

    config = outcome.config(outcome.best)
    console.rule(f"fit with trial {outcome.best.number}", align="left")
    with tempfile.TemporaryDirectory(prefix="forecaster-tune-") as scratch:
        out = options.out
        if out is None and options.register is not None:
            out = Path(scratch) / outcome.plan.study
        artifact = run_fit(panel, config, out, console, introduced=True)
        if options.register is not None and out is not None:
            from forecaster.runs.registry import publish

            published = publish(out, options.register, config.tracking)
            print_line(console, f"registered {published.address}: {published.sentence}")
    return artifact
