"""Plans of searches that cost nothing, and processes that run them."""

import pickle
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
from cheap_evaluators import SPACE

from forecaster.config import Config
from forecaster.runs.tune.space import Space
from forecaster.runs.tune.study import SweepPlan, counted, open_study


def make_plan(folder, **options):
    """A plan whose study lies in a folder."""
    config = Config().replaced(horizon=options.pop("horizon", 7), tracking={"enabled": False})
    whole = {
        "study": "shop",
        "storage": str(folder / "shop.journal"),
        "source": "shop.csv",
        "config": config,
        "space": Space(SPACE),
        "fingerprint": "0" * 64,
        "trials": 6,
        "pruner": "none",
    }
    return SweepPlan(**whole | options)


def finished(trials):
    """The trials that count and have ended."""
    return [trial for trial in counted(trials) if trial.state.is_finished()]


def trials_of(plan):
    """All trials of the study of a plan."""
    return open_study(plan).get_trials()


@contextmanager
def command(plan, folder, evaluator):
    """Yields the process of a search; it and its workers are gone afterwards."""
    (folder / "plan.pickle").write_bytes(pickle.dumps(plan))
    program = str(Path(__file__).with_name("sweep_command.py"))
    words = [str(folder / "plan.pickle"), f"cheap_evaluators:{evaluator}"]
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
        assert time.monotonic() < ends, "the condition never held"
        time.sleep(0.02)


def is_running(process):
    """Whether a process runs."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def assert_nothing_lost(trials, total):
    """Exactly `total` trials count and have ended; each lost one was retried once, as it was."""
    ended = counted(trials)
    assert len(ended) == total and all(trial.state.is_finished() for trial in ended)
    assert sum(bool(trial.user_attrs.get("preset")) for trial in ended) == 1
    assert len({str(sorted(trial.params.items())) for trial in ended}) == total
    retries = [trial.user_attrs["retry_of"] for trial in trials if "retry_of" in trial.user_attrs]
    assert len(retries) == len(set(retries))
    for trial in trials:
        if (lost := trial.user_attrs.get("retry_of")) is not None:
            assert trials[lost].params.items() <= trial.params.items() or trial not in ended
