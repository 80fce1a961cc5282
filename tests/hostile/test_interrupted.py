"""Ctrl-C at any moment of any verb: exit code 130, no traceback, nothing half-written or left."""

import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from forecast.tiny import tree

GOLDEN = Path(__file__).parents[1] / "golden" / "format-1"
FUTURE = ("--future", "future.csv")
VERBS = {
    "check": ("check", "table.csv", "--horizon", "28"),
    "convert": ("convert", "table.csv", "new.store"),
    "predict": ("predict", "model", "table.csv", *FUTURE, "--out", "new.csv", "--plot", "new.png"),
    "backtest": ("backtest", "model", "table.csv", "--windows", "2", "--out", "new.csv"),
    "explain": ("explain", "model", "table.csv", *FUTURE, "--only", "store_1", "--out", "new.html"),
}
SHARES = (0.02, 0.8)
"""Of what a process does; the signal comes at a moment drawn between them, another one for each verb."""
PROGRAM = "from forecaster.__main__ import main; print('begun', flush=True); main()"
TIMEOUT = 120


@pytest.fixture
def folder(tmp_path):
    """The golden model and its tables, and a folder of its own for temporary files."""
    shutil.copytree(GOLDEN, tmp_path / "work")
    (tmp_path / "temporary").mkdir()
    return tmp_path / "work"


def _begun(folder: Path, words) -> subprocess.Popen[str]:
    """Starts a verb; returns once the interpreter has, and runs what is ours."""
    own = {"OMP_NUM_THREADS": "1", "TMPDIR": str(folder.parent / "temporary")}
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *words],
        cwd=folder,
        env=os.environ | own | {"MLFLOW_TRACKING_URI": "sqlite:///runs.db"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "begun\n", process.communicate()
    return process


def _cpu(process) -> float:
    """Seconds of processor time: unlike the clock's, they tell how far a process is on any machine."""
    try:
        times = psutil.Process(process.pid).cpu_times()
    except psutil.Error:
        return float("inf")
    return times.user + times.system


def _wait_until_spent(process, seconds: float) -> None:
    end = time.monotonic() + TIMEOUT
    while process.poll() is None and _cpu(process) < seconds and time.monotonic() < end:
        time.sleep(0.005)


def _there(folder: Path) -> dict[str, bytes]:
    """What lies in the working folder and in that of temporary files, beside what was given; ids of runs
    are the same in all."""
    given = tree(GOLDEN)
    work = {name: content for name, content in tree(folder).items() if name not in given}
    there = work | tree(folder.parent / "temporary")
    return {re.sub(r"[0-9a-f]{32}", "run", name): content for name, content in there.items()}


def _clear(folder: Path) -> None:
    """Removes what a verb has made."""
    given = {path.name for path in GOLDEN.iterdir()}
    for name in {name.split("/")[0] for name in tree(folder)} - given:
        path = folder / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()


@pytest.mark.slow
def test_sigterm_ends_a_prediction_in_seconds_whatever_it_computes(folder):
    """Python hears no signal within a single operation on a large tensor."""
    endless = "from forecaster.model.ensemble import Ensemble as E; import torch; "
    endless += "E.predict = lambda *_: print('computing', flush=True) or torch.linalg.svd(torch.rand(5000, 5000)); "
    process = subprocess.Popen(
        [sys.executable, "-c", endless + PROGRAM, *VERBS["predict"]],
        cwd=folder,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert [process.stdout.readline() for _ in range(2)] == ["begun\n", "computing\n"]
        time.sleep(1)  # it is within the operation by now
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=5) == 143
    finally:
        process.kill()
        process.communicate()
    assert _there(folder) == {}


@pytest.mark.slow
@pytest.mark.parametrize("verb", VERBS)
def test_ctrl_c_at_any_moment_gives_130_and_leaves_nothing_half_done(folder, verb):
    begins, spent, whole = 0.0, 0.0, _begun(folder, VERBS[verb])
    begins = _cpu(whole)
    while whole.poll() is None:
        spent = max(spent, min(_cpu(whole), 1e6))
        time.sleep(0.02)
    assert whole.returncode == 0, whole.communicate()
    whole.communicate()
    made, moment = _there(folder), random.Random(verb).uniform(*SHARES)
    for _ in range(4):
        _clear(folder)
        process = _begun(folder, VERBS[verb])
        try:
            _wait_until_spent(process, begins + moment * (spent - begins))
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=TIMEOUT)
        finally:
            process.kill()
            process.wait()
        if process.returncode != 0:
            break
        moment /= 2  # it took less than the first time, and ended before the signal came
    there = _there(folder)
    assert "Traceback" not in out + err and "rror" not in err, (moment, err)
    assert set(there) <= set(made), (moment, set(there) - set(made))
    assert all(there[name] == made[name] for name in there if name.endswith(("csv", "npy"))), moment
    assert process.returncode == 130, moment
