"""One worker: claims a trial, runs it, tells what came out, until all are told.

What comes in: a plan and an objective. What goes out: a study with one more told trial after the other.
Promised: what was told is kept; a trial that fails is told as failed, with its error, and the search
goes on; the same error three times in a row ends it.

    python -m forecaster.runs.tune.worker PLAN.json --number K --since N --objective MODULE:FUNCTION

is what `workers.py` starts; it ends when its standard input does, that is with its parent.
"""

from __future__ import annotations

import argparse
import importlib
import math
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from forecaster.errors import FitError, ForecasterError
from forecaster.runs.tune.claims import Claims, standing
from forecaster.runs.tune.owner import BEAT_SECONDS
from forecaster.runs.tune.plan import SweepPlan, read_plan
from forecaster.runs.tune.space import Space
from forecaster.runs.tune.storage import PATIENCE_SECONDS, Say, StorageLost
from forecaster.runs.tune.study import finished, open_study

if TYPE_CHECKING:
    from optuna import Study, Trial
    from optuna.trial import FrozenTrial

Objective = Callable[["Trial"], "float | Sequence[float]"]
"""Returns the value of each metric. Raises `optuna.TrialPruned` where a trial falls behind."""
Told = Callable[["FrozenTrial"], None]
"""Receives each trial once it is told."""

SAME_ERRORS = 3
"""So many failures in a row with the same error end the search."""
_LOOK_SECONDS = 0.5
_FIRST_SECONDS = 10.0
_LEAVE_SECONDS = 10.0


@dataclass(frozen=True)
class Session:
    """One call of the command: what came before it is no concern of its workers."""

    since: int
    """Trials in the study when it began: their failures may have been mended."""
    number: int = 0
    """Of the worker: the first one begins a study."""
    ends: float | None = None
    """No trial begins later, by the monotonic clock; None = never too late."""
    patience_seconds: float = PATIENCE_SECONDS
    """How long a storage that is away is asked again."""
    say: Say | None = None
    """Receives one line when it is away."""

    @classmethod
    def begin(
        cls,
        study: Study,
        plan: SweepPlan,
        patience_seconds: float = PATIENCE_SECONDS,
        say: Say | None = None,
    ) -> Session:
        """Returns the session that begins now."""
        left = plan.timeout_seconds
        ends = None if left is None else time.monotonic() + left
        since = len(study.get_trials(deepcopy=False))
        return cls(since, ends=ends, patience_seconds=patience_seconds, say=say)

    @property
    def is_over(self) -> bool:
        """Whether it is too late to begin a trial."""
        return self.ends is not None and time.monotonic() >= self.ends


def run_worker(
    plan: SweepPlan, objective: Objective, session: Session | None = None, told: Told | None = None
) -> None:
    """Runs trials until as many as the plan asks for are told, by this or other workers.

    Args:
        plan: of the search.
        objective: what a trial is worth.
        session: the call it belongs to; None = one that begins now.
        told: receives each trial of this worker.

    Raises:
        FitError: the last three trials failed with the same error.
        StorageLost: the storage stayed away.
    """
    patience, say = (session.patience_seconds, session.say) if session else (PATIENCE_SECONDS, None)
    study = open_study(plan, patience, say)
    session = session or Session.begin(study, plan)
    if plan.pruner != "none":
        from forecaster.runs.tune.pruning import pruner_of

        study.pruner = pruner_of(plan)
    preset = Space(plan.space).preset(plan.settings)
    claims = Claims(study, plan.trials, preset, plan.sampler, plan.seed)
    if session.number:
        _let_begin(claims)
    try:
        while not session.is_over:
            refuse_same_errors(plan, claims.trials(), session)
            trial = claims.claim()
            if trial is not None:
                _run(claims, trial, objective)
                if told is not None:
                    told(claims.trials()[trial.number])
            elif all(each.state.is_finished() for each in standing(claims.trials(), plan.trials)):
                return
            else:
                time.sleep(_LOOK_SECONDS)  # others still run theirs, and may die of them
    except (KeyboardInterrupt, SystemExit):
        with suppress(Exception):
            claims.leave()
        raise


def refuse_same_errors(plan: SweepPlan, trials: Sequence[FrozenTrial], session: Session) -> None:
    """Ends a search whose last trials all failed alike.

    Raises:
        FitError: with that error.
    """
    ended = sorted(finished(trials), key=lambda trial: trial.datetime_complete)[-SAME_ERRORS:]
    errors = {trial.user_attrs.get("error") for trial in ended}
    old = any(trial.number < session.since for trial in ended)
    if len(ended) == SAME_ERRORS and len(errors) == 1 and None not in errors and not old:
        raise FitError(
            f"study {plan.study}: {SAME_ERRORS} trials in a row failed alike: {errors.pop()}"
        )


def _let_begin(claims: Claims) -> None:
    """Waits a while for the first trial of a study: side by side all workers would begin the preset."""
    ends = time.monotonic() + _FIRST_SECONDS
    while not claims.trials() and time.monotonic() < ends:
        time.sleep(0.05)


def _run(claims: Claims, trial: Trial, objective: Objective) -> None:
    """Runs a trial and tells what came of it."""
    from optuna import TrialPruned
    from optuna.exceptions import UpdateFinishedTrialError
    from optuna.trial import TrialState

    values: float | Sequence[float] | None = None
    try:
        with _beating(claims, trial):
            values = objective(trial)
        state = TrialState.COMPLETE
        found = [values] if isinstance(values, int | float) else values
        if any(math.isnan(value) for value in found):
            raise FitError(f"the objective is not a number: {values}")
    except TrialPruned:
        state, values = TrialState.PRUNED, None
    except StorageLost:
        raise  # nobody is there to be told; the settings run again
    except Exception as error:
        state, values = TrialState.FAIL, None
        with suppress(UpdateFinishedTrialError):
            trial.set_user_attr("error", _line(error))
    # Another machine may have taken this one for dead, and have run the settings again: that counts.
    with suppress(UpdateFinishedTrialError):
        claims.study.tell(trial, values, state, skip_if_finished=True)


def _line(error: Exception) -> str:
    """Returns an error in one line."""
    if isinstance(error, ForecasterError):
        return str(error).splitlines()[0]
    return traceback.format_exception_only(error)[-1].strip().splitlines()[0]


@contextmanager
def _beating(claims: Claims, trial: Trial) -> Iterator[None]:
    """Says now and then that the worker of a trial lives, for those who cannot see its process."""
    stop = threading.Event()
    storage: Any = claims.study._storage.impatient()

    def beat() -> None:
        count = 0
        while not stop.wait(BEAT_SECONDS):
            count += 1
            with suppress(Exception):  # the next beat may get through
                storage.set_trial_user_attr(trial._trial_id, "beat", count)

    thread = threading.Thread(target=beat, daemon=True, name=f"beat of trial {trial.number}")
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(timeout=1.0)  # a storage that hangs holds nobody up


def objective_of(address: str, plan: SweepPlan) -> Objective:
    """Returns the objective that a function makes of a plan.

    Args:
        address: of the function, as "package.module:function".
        plan: of the search.
    """
    module, _, name = address.partition(":")
    made: Objective = getattr(importlib.import_module(module), name)(plan)
    return made


def main() -> int:
    """Runs one worker and returns its exit code: 0, or 2 with one line that names the kind of error."""
    parser = argparse.ArgumentParser(prog="worker")
    parser.add_argument("plan", type=Path)
    parser.add_argument("--objective", required=True)
    parser.add_argument("--number", type=int, default=0)
    parser.add_argument("--since", type=int, required=True)
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--patience", type=float, default=PATIENCE_SECONDS)
    given = parser.parse_args()
    ends = None if given.seconds is None else time.monotonic() + given.seconds
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job is deaf to it
    threading.Thread(target=_leave_with_parent, daemon=True).start()
    try:
        plan = read_plan(given.plan)
        session = Session(given.since, given.number, ends, given.patience)
        run_worker(plan, objective_of(given.objective, plan), session)
    except ForecasterError as error:
        print(f"{type(error).__name__}: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    return 0


def _leave_with_parent() -> None:
    """Ends this process when its parent ends or says so: by Ctrl-C first, then for good."""
    while os.read(0, 1):
        pass
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(_LEAVE_SECONDS)
    os._exit(130)


if __name__ == "__main__":
    sys.exit(main())
