"""Evaluation of trials in worker processes, which never open the study.

parent                                     worker
plan, "module:function"        ──▶         makes an evaluator
TrialRequest                   ──▶         evaluates
                               ◀──         step, validation loss
whether to stop                ──▶
                               ◀──         TrialResult
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal

from forecaster.config import Config
from forecaster.errors import ForecasterError, first_line
from forecaster.fitting.processes import Child, Parent
from forecaster.runs.tracking import TrackedRun
from forecaster.runs.tune.space import Values
from forecaster.runs.tune.study import SweepPlan

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

_RESULTS = {"used", "fitted", "scores", "steps", "network_weight"}
"""User attributes of a trial that are its result."""
Report = Callable[[int, float], bool]
"""Takes a step and its validation loss; returns whether to stop the trial."""


@dataclass(frozen=True)
class TrialRequest:
    """What an evaluator needs to evaluate a trial."""

    number: int
    values: Values
    """Settings that the trial proposes, by path."""
    config: Config
    """All settings."""
    prunable: bool = False
    finished: Mapping[str, TrialResult] = field(default_factory=dict)
    """By digest of what a fit uses: the results of finished trials."""
    run: TrackedRun = field(default_factory=TrackedRun)


@dataclass
class TrialResult:
    """The result of a trial; `values` are those of the metrics, if it is complete."""

    state: Literal["COMPLETE", "PRUNED", "FAIL"]
    values: tuple[float, ...] | None = None
    reason: str | None = None
    attributes: dict[str, Any] = field(default_factory=dict)
    """User attributes of the trial."""


def finished_results(trials: Iterable[FrozenTrial]) -> dict[str, TrialResult]:
    """Returns the results of finished trials as those of others that use the same settings."""
    found = {}
    for trial in trials:
        own = trial.user_attrs
        if trial.state.name == "COMPLETE" and {*own} >= _RESULTS and "same_as" not in own:
            reason = f"uses the same settings as trial {trial.number}"
            same = {name: own[name] for name in _RESULTS} | {"same_as": trial.number}
            found[own["used"]] = TrialResult("COMPLETE", tuple(trial.values), reason, same)
    return found


Evaluate = Callable[[TrialRequest, Report], TrialResult]


def start_worker(plan: SweepPlan, factory: str, number: int) -> Child:
    """Returns a process that evaluates trials, on its part of the cores and a GPU of its own."""
    environment = worker_environment(number, plan.workers)
    worker = Child(f"{__name__}:evaluate_trials", f"worker {number}", environment)
    worker.send((plan, factory))
    return worker


def worker_environment(number: int, workers: int) -> dict[str, str]:
    """Returns the variables that give one of several workers its part of the cores, and its GPU."""
    from forecaster.model.hardware import cores, cuda_count

    threads = str(max(1, cores() // workers))
    variables = {
        name: os.environ.get(name, threads) for name in ("OMP_NUM_THREADS", "POLARS_MAX_THREADS")
    }
    if gpus := cuda_count():
        visible = os.environ.get("CUDA_VISIBLE_DEVICES") or ",".join(map(str, range(gpus)))
        variables["CUDA_VISIBLE_DEVICES"] = visible.split(",")[number % gpus].strip()
    return variables


def evaluate_trials(parent: Parent) -> None:
    """Evaluates the trials that the parent process sends, one after the other."""
    plan, factory = parent.receive()
    module, name = factory.split(":")
    evaluate: Evaluate = getattr(import_module(module), name)(plan)

    def report(step: int, loss: float) -> bool:
        parent.send((step, loss))
        return parent.receive()

    while True:
        parent.send(safely(evaluate, parent.receive(), report))


def safely(evaluate: Evaluate, request: TrialRequest, report: Report) -> TrialResult:
    """Evaluates a trial; an exception makes it a failed one."""
    try:
        return evaluate(request, report)
    except Exception as error:
        known = isinstance(error, ForecasterError)
        line = first_line(error if known else traceback.format_exception_only(error)[-1])
        return TrialResult("FAIL", None, line, {"error": line})
