"""Plans of searches that cost nothing, and processes that own trials."""

import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
from cheap_objectives import SPACE

from forecaster.config import Config
from forecaster.runs.tune.claims import is_lost
from forecaster.runs.tune.owner import Owner, _started
from forecaster.runs.tune.plan import SweepPlan
from forecaster.runs.tune.study import counted


def make_plan(folder, **told):
    """A plan whose study lies in a folder."""
    horizon = told.pop("horizon", 7)
    whole = {
        "study": "shop",
        "storage": str(folder / "shop.journal"),
        "source": "shop.csv",
        "config": Config().replaced(horizon=horizon).model_dump(mode="json"),
        "space": SPACE,
        "fingerprint": "0" * 64,
        "trials": 6,
        "pruner": "none",
    }
    return SweepPlan(**whole | told)


@contextmanager
def living_process():
    """Yields a process that does nothing, and its owner's text."""
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        me = Owner.this()
        yield process, str(Owner(me.host, me.system, process.pid, _started(process.pid)))
    finally:
        process.kill()
        process.wait()
        process.stdin.close()


def states(trials):
    """The states of trials, as a sorted list of names."""
    return sorted(trial.state.name for trial in trials)


@contextmanager
def command(plan, folder, objective, patience=60.0):
    """Yields the process of a search; it and its workers are gone afterwards."""
    plan.write(folder / "plan.json")
    program = str(Path(__file__).with_name("sweep_command.py"))
    words = [str(folder / "plan.json"), f"cheap_objectives:{objective}", str(patience)]
    process = subprocess.Popen(
        [sys.executable, program, *words], stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    seen = []
    try:
        yield process
        seen = workers_of(process)
    finally:
        process.kill()
        process.communicate()
        for worker in seen:
            with suppress(psutil.NoSuchProcess):
                worker.kill()


def workers_of(process):
    """The worker processes of a search."""
    with suppress(psutil.NoSuchProcess):
        return psutil.Process(process.pid).children()
    return []


def wait_for(condition, process=None, seconds=120.0):
    """Waits until a condition holds, as long as a process lives."""
    ends = time.monotonic() + seconds
    while not condition():
        assert process is None or process.poll() is None, process.stderr.read()
        assert time.monotonic() < ends, "it never came to that"
        time.sleep(0.02)


def assert_nothing_lost(trials, total):
    """Exactly the asked number was told; what a dead worker had begun ran again, once, as it was."""
    told = counted(trials)
    assert len(told) == total and all(trial.state.is_finished() for trial in told)
    assert sum(bool(trial.user_attrs.get("preset")) for trial in told) == 1
    assert len({str(sorted(trial.params.items())) for trial in told}) == total
    for lost in filter(is_lost, trials):
        runs = [t for t in trials if t.user_attrs.get("retry_of") == lost.number]
        (again,) = [trial for trial in runs if trial in told or is_lost(trial)]
        assert lost.params.items() <= again.params.items() or is_lost(again)
