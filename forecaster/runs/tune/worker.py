"""Worker processes: what they receive, what they send back, how they start and end.

A worker evaluates one trial at a time and never opens the study. While it fits, it reports validation
losses and receives whether the trial is pruned.

    parent                                     worker
    (plan, "module:function")      ──▶         makes an evaluator
    TrialRequest                   ──▶         evaluates
                                   ◀──         (step, validation loss)
    True = stop                    ──▶
                                   ◀──         TrialResult, or the error that ends the search
"""

from __future__ import annotations

import importlib
import os
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from forecaster.config import Config
from forecaster.errors import ForecasterError
from forecaster.runs.tracking import TrackedRun, first_line
from forecaster.runs.tune.space import Values
from forecaster.runs.tune.study import SweepPlan

if TYPE_CHECKING:
    from optuna import Trial

_LEAVE_SECONDS = 10.0

Report = Callable[[int, float], bool]
"""Takes a step and its validation loss; returns whether to stop the trial."""


@dataclass(frozen=True)
class TrialRequest:
    """What a worker needs to evaluate a trial."""

    number: int
    values: Values
    """Settings that the trial proposes, by path."""
    config: Config
    """All settings."""
    prunable: bool = False
    run: TrackedRun = field(default_factory=TrackedRun)


@dataclass
class TrialResult:
    """The result of a trial; `values` are those of the metrics, if it is complete."""

    state: Literal["COMPLETE", "PRUNED", "FAIL"]
    values: tuple[float, ...] | None = None
    reason: str | None = None
    attributes: dict[str, Any] = field(default_factory=dict)
    """User attributes of the trial."""


Evaluate = Callable[[TrialRequest, Report], TrialResult]


class Worker:
    """A process that evaluates trials, one at a time."""

    def __init__(self, plan: SweepPlan, factory: str, number: int, folder: Path):
        self.trial: Trial | None = None
        self._log = folder / f"worker-{number}.log"
        self.connection, theirs = Pipe()
        with self._log.open("wb") as log:
            # Not forked: a fork of a process that has used polars or torch may hang. Not the spawn of
            # multiprocessing: it would run the caller's script again.
            self.process = subprocess.Popen(
                [sys.executable, "-m", "forecaster.runs.tune.worker", str(theirs.fileno())],
                stdin=subprocess.PIPE,  # its end tells the worker to leave
                stdout=log,
                stderr=log,
                env=worker_environment(number, plan.workers),
                pass_fds=[theirs.fileno()],
                start_new_session=True,  # Ctrl-C reaches this process alone
            )
        theirs.close()
        self.connection.send((plan, factory))

    def leave(self) -> None:
        """Tells the process to end."""
        self.connection.close()
        if self.process.stdin is not None:
            self.process.stdin.close()

    def end(self, by: float) -> str:
        """Ends the process, by force after a time; returns why it ended, in words."""
        self.leave()
        try:
            code = self.process.wait(max(0.0, by - time.monotonic()))
        except subprocess.TimeoutExpired:
            self.process.kill()
            code = self.process.wait()
        lines = self._log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        cause = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        return f"{cause}: {lines[-1]}" if lines else cause


def worker_environment(number: int, workers: int) -> dict[str, str]:
    """Returns the environment of one worker: its part of the cores, and its GPU."""
    variables = dict(os.environ)
    package = str(Path(__file__).parents[3])
    variables["PYTHONPATH"] = os.pathsep.join([package, *filter(None, [os.environ.get("PYTHONPATH")])])
    allowed = getattr(os, "sched_getaffinity", None)  # not on every system
    cores = len(allowed(0)) if allowed else os.cpu_count() or 1
    for name in ("OMP_NUM_THREADS", "POLARS_MAX_THREADS"):
        variables.setdefault(name, str(max(1, cores // workers)))
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        gpus = [name.strip() for name in visible.split(",") if name.strip()]
    else:
        import torch

        gpus = [str(gpu) for gpu in range(torch.cuda.device_count())]
    if gpus:
        variables["CUDA_VISIBLE_DEVICES"] = gpus[number % len(gpus)]
    return variables


def safely(evaluate: Evaluate, request: TrialRequest, report: Report) -> TrialResult:
    """Evaluates a trial; an exception makes it a failed one."""
    try:
        return evaluate(request, report)
    except Exception as error:
        known = isinstance(error, ForecasterError)
        line = str(error) if known else traceback.format_exception_only(error)[-1].strip()
        return TrialResult("FAIL", None, first_line(line), {"error": first_line(line)})


def work(handle: int) -> None:
    """Runs a worker process: receives requests and sends results until the parent process ends.

    Args:
        handle: file descriptor of the connection to the parent.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job inherits it ignored
    threading.Thread(target=_leave_with_parent, daemon=True).start()
    connection = Connection(handle)

    def report(step: int, loss: float) -> bool:
        connection.send((step, loss))
        answer: bool = connection.recv()
        return answer

    with suppress(EOFError, BrokenPipeError, KeyboardInterrupt):
        plan, factory = connection.recv()
        module, _, name = factory.partition(":")
        try:
            evaluate = getattr(importlib.import_module(module), name)(plan)
        except ForecasterError as error:
            connection.send(error)
            return
        while True:
            connection.send(safely(evaluate, connection.recv(), report))


def _leave_with_parent() -> None:
    """Ends this process when standard input ends, that is with its parent."""
    while os.read(0, 1):
        pass
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(_LEAVE_SECONDS)
    os._exit(130)


if __name__ == "__main__":
    # By its full name, so that the parent can unpickle what this process sends.
    importlib.import_module("forecaster.runs.tune.worker").work(int(sys.argv[1]))
