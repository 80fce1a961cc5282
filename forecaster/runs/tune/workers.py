"""Many workers: processes of this machine on one study, a device each.

What comes in: a plan and how many. What goes out: the study, told. Promised: a worker that dies is
replaced, and its trial runs again; workers end with the process that started them, however that ends;
each is ended by its own number. The same command on another machine joins in.

They are started afresh, never forked: a fork of a process that has used polars or torch may hang.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from forecaster import errors
from forecaster.errors import FitError, ForecasterError
from forecaster.runs.tune.plan import SweepPlan
from forecaster.runs.tune.study import finished
from forecaster.runs.tune.worker import Session, Told, objective_of, refuse_same_errors, run_worker

if TYPE_CHECKING:
    from optuna import Study

OBJECTIVE = "forecaster.runs.tune.objective:Objective"
"""What makes the objective of a plan."""
DEATHS = 5
"""So many workers die, with nothing told in between, before the search ends. More than it takes for
settings that kill their worker to count as failed."""
_LOOK_SECONDS = 0.2
_LEAVE_SECONDS = 15.0


def run_workers(
    plan: SweepPlan,
    study: Study,
    session: Session,
    told: Told | None = None,
    objective: str = OBJECTIVE,
) -> None:
    """Runs trials in `plan.workers` processes until as many as the plan asks for are told.

    Args:
        plan: of the search.
        study: opened by the caller, who so knows that it can be.
        session: the call that the workers belong to.
        told: receives each trial that is told while this runs, whichever worker told it.
        objective: address of the function that makes the objective of a plan.

    Raises:
        ForecasterError: what ended a worker, or the storage stayed away.
    """
    if plan.workers == 1:
        run_worker(plan, objective_of(objective, plan), session, told)
        return
    with tempfile.TemporaryDirectory(prefix="forecaster-tune-") as scratch:
        plan.write(Path(scratch) / "plan.json")
        environments = [_environment(number, plan.workers) for number in range(plan.workers)]
        crew = [
            _Worker(Path(scratch), number, environment, session, objective)
            for number, environment in enumerate(environments)
        ]
        try:
            _watch(crew, study, plan, session, told)
        finally:
            _leave(crew)


class _Worker:
    """One process, and the next in its place."""

    def __init__(
        self,
        scratch: Path,
        number: int,
        environment: Mapping[str, str],
        session: Session,
        objective: str,
    ):
        self.number, self.log = number, scratch / f"worker-{number}.log"
        self._plan, self._environment = scratch / "plan.json", environment
        self._session, self._objective = session, objective
        self.start()

    def start(self) -> None:
        """Starts the process, apart from the terminal: Ctrl-C reaches it through its parent."""
        words = ["--objective", self._objective, "--since", str(self._session.since)]
        words += ["--number", str(self.number), "--patience", str(self._session.patience_seconds)]
        if self._session.ends is not None:
            words += ["--seconds", str(max(0.0, self._session.ends - time.monotonic()))]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "forecaster.runs.tune.worker", str(self._plan), *words],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env=dict(self._environment),
                start_new_session=True,
            )

    def part(self) -> None:
        """Tells the process to end, if it still runs: it may give its trial back first."""
        if self.process.stdin is not None:
            self.process.stdin.close()

    @property
    def last_words(self) -> str:
        """What the process wrote last."""
        lines = self.log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        return lines[-1] if lines else "it said nothing"


def _watch(
    crew: list[_Worker], study: Study, plan: SweepPlan, session: Session, told: Told | None
) -> None:
    """Waits until all workers are done, and replaces those that die."""
    known = {trial.number for trial in finished(study.get_trials(deepcopy=False))}
    working, deaths = list(crew), 0
    while working:
        time.sleep(_LOOK_SECONDS)
        ended = [worker for worker in working if worker.process.poll() is not None]
        trials = study.get_trials(deepcopy=False)
        new = [trial for trial in finished(trials) if trial.number not in known]
        for trial in sorted(new, key=lambda trial: trial.datetime_complete):
            known.add(trial.number)
            if told is not None:
                told(trial)
        deaths = 0 if new else deaths
        refuse_same_errors(plan, trials, session)
        for worker in ended:
            working.remove(worker)
            code = worker.process.returncode
            if code == 2:
                raise _error(worker.last_words)
            if code == 0 or session.is_over:
                continue
            worker.part()
            deaths += 1
            if deaths == DEATHS:
                raise FitError(
                    f"study {plan.study}: {DEATHS} workers ended before they told anything, the last "
                    f"by {_cause(code)}: {worker.last_words}"
                )
            worker.start()
            working.append(worker)


def _leave(crew: list[_Worker]) -> None:
    """Ends all workers that still run."""
    for worker in crew:
        worker.part()
    ends = time.monotonic() + _LEAVE_SECONDS
    for worker in crew:
        try:
            worker.process.wait(max(0.0, ends - time.monotonic()))
        except subprocess.TimeoutExpired:
            worker.process.kill()
            worker.process.wait()


def _environment(number: int, workers: int) -> dict[str, str]:
    """Returns the variables of one worker: its share of the cores, and its device."""
    mine = dict(os.environ)
    here = str(Path(__file__).parents[3])
    mine["PYTHONPATH"] = os.pathsep.join([here, *filter(None, [os.environ.get("PYTHONPATH")])])
    allowed = getattr(os, "sched_getaffinity", None)  # where the system has it
    cores = len(allowed(0)) if allowed else os.cpu_count() or 1
    for name in ("OMP_NUM_THREADS", "POLARS_MAX_THREADS"):
        mine.setdefault(name, str(max(1, cores // workers)))
    devices = _devices()
    if devices:
        mine["CUDA_VISIBLE_DEVICES"] = devices[number % len(devices)]
    return mine


def _devices() -> list[str]:
    """Returns the GPUs that this process may use, by the names that a child is given."""
    told = os.environ.get("CUDA_VISIBLE_DEVICES")
    if told is not None:
        return [name.strip() for name in told.split(",") if name.strip()]
    import torch

    return [str(number) for number in range(torch.cuda.device_count())]


def _error(line: str) -> ForecasterError:
    """Returns the error that a worker wrote as its last line."""
    name, _, message = line.partition(": ")
    kind = getattr(errors, name, FitError)
    return kind(message) if isinstance(kind, type) else FitError(line)


def _cause(code: int) -> str:
    """Returns what ended a process, in words."""
    return signal.Signals(-code).name if code < 0 else f"exit code {code}"
