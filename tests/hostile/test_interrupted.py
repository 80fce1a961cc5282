"""Ctrl-C at any moment of any verb: exit code 130, no traceback, nothing half-written or left."""

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

GOLDEN = Path(__file__).parents[1] / "golden" / "format-1"
FUTURE = ("--future", "future.csv")
VERBS = {
    "check": ("check", "table.csv", "--horizon", "28"),
    "convert": ("convert", "table.csv", "new.store"),
    "predict": ("predict", "model", "table.csv", *FUTURE, "--out", "new.csv", "--plot", "new.png"),
    "backtest": ("backtest", "model", "table.csv", "--windows", "2", "--out", "new.csv"),
    "explain": ("explain", "model", "table.csv", *FUTURE, "--series", "store_1", "--out", "new.html"),
}
MOMENTS = 2
TIMEOUT = 120


@pytest.fixture
def folder(tmp_path):
    """The golden model and its tables."""
    shutil.copytree(GOLDEN, tmp_path, dirs_exist_ok=True)
    return tmp_path


def _started(folder: Path, words) -> subprocess.Popen[str]:
    program = "from forecaster.cli import main; main()"
    environment = os.environ | {"OMP_NUM_THREADS": "1", "MLFLOW_TRACKING_URI": "sqlite:///runs.db"}
    return subprocess.Popen(
        [sys.executable, "-c", program, *words],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def _cpu(process) -> float:
    """Seconds of processor time: unlike the clock's, they tell how far a process is on any machine."""
    try:
        times = psutil.Process(process.pid).cpu_times()
    except psutil.Error:
        return float("inf")
    return times.user + times.system


def _loads(process) -> bool:
    """Whether the verb has begun: it loads what the command line alone does not."""
    try:
        return "_polars" in Path(f"/proc/{process.pid}/maps").read_text()
    except OSError:
        return False


def _wait_until_spent(process, moment: float, spent: float) -> None:
    """Waits until a process has done a share of what it does between loading and its end."""
    end, begun = time.monotonic() + TIMEOUT, None
    while process.poll() is None and time.monotonic() < end:
        if begun is None and _loads(process):
            begun = _cpu(process)
        if begun is not None and _cpu(process) >= begun + moment * max(0, spent - begun):
            return
        time.sleep(0.005)


@pytest.mark.slow
@pytest.mark.parametrize("verb", VERBS)
def test_ctrl_c_at_any_moment_leaves_nothing_half_done(folder, verb):
    whole = _started(folder, VERBS[verb])
    spent = 0.0
    while whole.poll() is None:
        spent = max(spent, min(_cpu(whole), 1e6))
        time.sleep(0.02)
    said = whole.communicate()[1]
    assert whole.returncode == 0, said
    made = {path.name for path in folder.iterdir()} - {path.name for path in GOLDEN.iterdir()}
    for moment in sorted(random.Random(verb).uniform(0, 1) for _ in range(MOMENTS)):
        for name in made:
            path = folder / name
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
        process = _started(folder, VERBS[verb])
        try:
            _wait_until_spent(process, moment, spent)
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=TIMEOUT)
        finally:
            process.kill()
            process.wait()
        # At its very end a process has nothing left to tidy up, and dies of the signal itself.
        assert process.returncode in (130, 0, -signal.SIGINT), (moment, process.returncode, err)
        assert "Traceback" not in out + err and "Error" not in err, (moment, err)
        there = {path.name for path in folder.iterdir()} - {path.name for path in GOLDEN.iterdir()}
        assert there <= made, (moment, there)
